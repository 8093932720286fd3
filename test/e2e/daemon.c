/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/daemon.h"

#include "base/mem.h"
#include "lib/cluster.h"

char *daemon_kubeconfig(const char *component, const char *node, char **authorization)
{
    cleanup_free char *token = cluster_token_of(component, node);
    cleanup_free char *ca = temp_path(cluster.dir, "pki/ca.crt");
    cleanup_free char *trust = xasprintf(", certificate-authority: \"%s\"", ca);
    cleanup_free char *user = xasprintf("token: \"%s\"", token);
    if (authorization)
        *authorization = xasprintf("Bearer %s", token);
    return lib_kubeconfig(node, "https", cluster.api.port, trust, user);
}
