/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"

/* The token of the extender is revoked while it runs. */

#define SYSTEM   "/api/v1/namespaces/kube-system"
#define ACCOUNT  "gpushare-schd-extender"

#define TOKEN_FILE "extender.token"

/* A new token of the extender's ServiceAccount. New. */
static char *new_token(void)
{
    cleanup_json json_t *j =
        peer_json(&cluster.api, "POST", SYSTEM "/serviceaccounts/" ACCOUNT "/token",
                  "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                  "\"TokenRequest\",\"spec\":{\"expirationSeconds\":3600}}");
    return xstrdup(lib_str(j, "status.token"));
}

/* The answer of the API server to a client with this token. */
static unsigned status_with(const char *token)
{
    struct peer peer;
    cleanup_free char *ca = temp_path(cluster.dir, "pki/ca.crt");
    cleanup_free char *bearer = xasprintf("Bearer %s", token);
    peer_init_tls(&peer, cluster.api.port, ca);
    peer.authorization = bearer;
    unsigned status = peer_status(&peer, "/api/v1/nodes");
    peer_fini(&peer);
    return status;
}

START_TEST(a_token_that_is_revoked)
{
    cluster_add_node("n1", NULL, NULL, CARDS(16384));
    cluster_create_pod("before", 2, "", "");
    cluster_wait_running("before");
    cluster_listen();
    cluster_delete(SYSTEM "/serviceaccounts/" ACCOUNT);
    int64_t begun = lib_now_ms();
    lib_wait(cluster_logged("): HTTP 401: Unauthorized; retrying"));
    cluster_report("from the end of the account to a clear word about it",
                   lib_now_ms() - begun);
    lib_wait(cluster_logged("stopped leading"));
    /* Its state remains valid for a while, but it may not bind. */
    cluster_create_pod("waits", 2, "", "");
    cluster_wait_refused("waits", "gpushare-extender: HTTP 401: Unauthorized");
    cluster_check_free("n1", 14);
    ck_assert_uint_eq(peer_status(&cluster.extender.observers, "/healthz"), 200);
    /* A recreated account of that name is another account: the token stays invalid. */
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac.yaml")));
    cleanup_free char *old = temp_read(cluster.dir, TOKEN_FILE);
    old[strcspn(old, "\n")] = '\0';
    ck_assert_uint_eq(status_with(old), 401);
    cleanup_free char *token = new_token();
    begun = lib_now_ms();
    temp_write(cluster.dir, TOKEN_FILE, token);
    cluster_wait_running("waits");
    cluster_report("from a new token to a pod that runs", lib_now_ms() - begun);
    cluster_settle();
}

CLUSTER_MAIN("tokens", 200, ARGV("--nodes", "0"), a_token_that_is_revoked)
