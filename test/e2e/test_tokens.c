/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/attempt.h"

/* The token of the extender is revoked while it runs. */

#define SYSTEM  "/api/v1/namespaces/kube-system"
#define ACCOUNT "gpushare-schd-extender"

#define TOKEN_FILE "extender.token"

TEST(a_token_that_is_revoked)
{
    cluster_add_node("n1", "", CARDS(16384));
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
    cluster_kubectl("apply", "-f", "manifests/rbac.yaml");
    char *old = cluster_file(TOKEN_FILE);
    old[strcspn(old, "\n")] = '\0';
    ck_assert_uint_eq(peer_status(attempt_token(old), "/api/v1/nodes"), 401);
    const char *token = cluster_token(ACCOUNT, NULL);
    begun = lib_now_ms();
    temp_write(cluster.dir, TOKEN_FILE, token);
    cluster_wait_running("waits");
    cluster_report("from a new token to a pod that runs", lib_now_ms() - begun);
    cluster_settle();
}

CLUSTER_MAIN(200)
