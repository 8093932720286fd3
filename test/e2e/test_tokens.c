/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"

/* The token of the extender is replaced, or revoked, while it runs. */

#define SYSTEM   "/api/v1/namespaces/kube-system"
#define ACCOUNT  "gpushare-schd-extender"
#define EXTENDER "gpushare-extender"

#define TOKEN_FILE "extender.token"

/* A new token of the extender's ServiceAccount; `bound`: a further field of spec, or "".
 * New. */
static char *new_token(const char *bound)
{
    cleanup_free char *body =
        xasprintf("{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                  "\"TokenRequest\",\"spec\":{\"expirationSeconds\":3600%s}}",
                  bound);
    cleanup_json json_t *j = peer_json(&cluster.api, "POST",
                                       SYSTEM "/serviceaccounts/" ACCOUNT "/token", body);
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
    cleanup_free char *token = new_token("");
    begun = lib_now_ms();
    temp_write(cluster.dir, TOKEN_FILE, token);
    cluster_wait_running("waits");
    cluster_report("from a new token to a pod that runs", lib_now_ms() - begun);
    cluster_settle();
}

/* The old token ends with the Secret to which it is bound. */
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
    lib_wait(extender_ready(&cluster.extender));
    cluster_listen();
    cleanup_free char *second = new_token("");
    temp_write(cluster.dir, TOKEN_FILE, second);
    ck_assert_uint_eq(status_with(first), 200);
    cluster_delete(SYSTEM "/secrets/rotated");
    int i = 0;
    for (int64_t end = 0; !end || lib_now_ms() < end; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        cluster_create_pod(name, 1, "", "");
        cluster_wait_running(name);
        if (!end && status_with(first) == 401)
            end = lib_now_ms() + 5000; /* the duration of the Lease */
        if (i % 8 == 7)
            cluster_delete_pods();
    }
    ck_assert(!cluster_logged("no longer") && !cluster_logged("Unauthorized"));
    cluster_settle();
}

/* The second test deletes the account of the first. */
CLUSTER_MAIN("tokens", 200, ARGV("--nodes", "0"), a_token_that_is_rotated,
             a_token_that_is_revoked)
