/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e/cluster.h"

/* The extender's token is replaced, or refused, while it runs. */

#define SYSTEM   "/api/v1/namespaces/kube-system"
#define ACCOUNT  "gpushare-schd-extender"
#define EXTENDER "gpushare-extender"

#define TOKEN_FILE "extender.token"

/* A new token of the extender's account; `bound`: a further member of spec, or "". New.
 */
static char *new_token(const char *bound)
{
    cleanup_free char *body =
        xasprintf("{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                  "\"TokenRequest\",\"spec\":{\"expirationSeconds\":3600%s}}",
                  bound);
    cleanup_json json_t *j = peer_json(&cluster.api, "POST",
                                       SYSTEM "/serviceaccounts/" ACCOUNT "/token", body);
    return xstrdup(kit_str(j, "status.token"));
}

/* What the API server answers to who shows this token. */
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
    int64_t begun = kit_now_ms();
    kit_wait(cluster_heard("): HTTP 401: Unauthorized; retrying"));
    cluster_measured("from the end of the account to a clear word about it",
                     kit_now_ms() - begun);
    kit_wait(cluster_heard("stopped leading"));
    /* What it knows is still true for a while; but it may not bind. */
    cluster_create_pod("waits", 2, "", "");
    cluster_wait_refused("waits", "gpushare-extender: HTTP 401: Unauthorized");
    cluster_check_room("n1", 14);
    ck_assert_uint_eq(peer_status(&cluster.extender.observers, "/healthz"), 200);
    /* An account of that name is another account: the token stays refused. */
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac.yaml")));
    cleanup_free char *old = temp_read(cluster.dir, TOKEN_FILE);
    old[strcspn(old, "\n")] = '\0';
    ck_assert_uint_eq(status_with(old), 401);
    cleanup_free char *token = new_token("");
    begun = kit_now_ms();
    temp_write(cluster.dir, TOKEN_FILE, token);
    cluster_wait_running("waits");
    cluster_measured("from a new token to a pod that runs", kit_now_ms() - begun);
    cluster_settle();
}

/* The old token ends with a Secret that it is bound to. */
START_TEST(a_token_that_is_rotated)
{
    cluster_add_node("n1", NULL, NULL, CARDS(16384));
    cluster_create(SYSTEM "/secrets", "{\"apiVersion\":\"v1\",\"kind\":\"Secret\","
                                      "\"metadata\":{\"name\":\"rotated\"}}");
    cleanup_free char *first =
        new_token(",\"boundObjectRef\":{\"apiVersion\":\"v1\",\"kind\":\"Secret\","
                  "\"name\":\"rotated\"}");
    cluster_stop(EXTENDER, "TERM");
    temp_write(cluster.dir, TOKEN_FILE, first);
    cluster_start(EXTENDER);
    kit_wait(extender_ready(&cluster.extender));
    cluster_listen();
    cleanup_free char *second = new_token("");
    temp_write(cluster.dir, TOKEN_FILE, second);
    ck_assert_uint_eq(status_with(first), 200);
    cluster_delete(SYSTEM "/secrets/rotated");
    int i = 0;
    for (int64_t end = 0; !end || kit_now_ms() < end; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        cluster_create_pod(name, 1, "", "");
        cluster_wait_running(name);
        if (!end && status_with(first) == 401)
            end = kit_now_ms() + 5000; /* as long as a lease */
        if (i % 8 == 7)
            cluster_delete_pods();
    }
    ck_assert(!cluster_heard("no longer") && !cluster_heard("Unauthorized"));
    cluster_settle();
}

/* The second takes the account of the first away. */
CLUSTER_MAIN("tokens", 200, ARGV("--nodes", "0"), a_token_that_is_rotated,
             a_token_that_is_revoked)
