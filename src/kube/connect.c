/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/connect.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"

struct kube_client *kube_connect_in(const char *kubeconfig, const char *context,
                                    char **ns, struct err *err)
{
    struct kube_config config = {0};
    struct kube_client *client = NULL;
    const struct kube_config_sources sources = {
        .kubeconfig = kubeconfig,
        .context = context,
        .host = getenv("KUBERNETES_SERVICE_HOST"),
        .port = getenv("KUBERNETES_SERVICE_PORT"),
        .home = getenv("HOME"),
    };
    if (kube_config_load(&sources, &config, err) == 0)
        client = kube_client_new(&config, err);
    if (client)
        log_info("kube", "API server: configured", LOG_S("server", config.server),
                 LOG_S("source", config.source));
    if (client && ns)
        *ns = xstrdup(config.ns);
    kube_config_fini(&config);
    return client;
}

struct kube_client *kube_connect(const char *kubeconfig, const char *context,
                                 struct err *err)
{
    return kube_connect_in(kubeconfig, context, NULL, err);
}
