/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/tls.h"

/*
 * Views of an extender with HTTPS, with tokens that a real API server reviews.
 */

#define SYSTEM "/api/v1/namespaces/kube-system"

/* A new token of that ServiceAccount in kube-system, as a header. New. */
static char *bearer_of(const char *account)
{
    cleanup_free char *path = xasprintf(SYSTEM "/serviceaccounts/%s/token", account);
    cleanup_json json_t *j = peer_json(&cluster.api, "POST", path,
                                       "{\"apiVersion\":\"authentication.k8s.io/v1\","
                                       "\"kind\":\"TokenRequest\",\"spec\":{}}");
    return xasprintf("Bearer %s", lib_str(j, "status.token"));
}

static char *bearer(void)
{
    return bearer_of("viewer");
}

static void start_extender(void)
{
    cleanup_free char *dir = temp_path(cluster.dir, "pki");
    tls_make_cert(dir, "ca", "server", "IP:127.0.0.1");
    cleanup_free char *cert = temp_path(dir, "server.crt"),
                      *key = temp_path(dir, "server.key"), *ca = temp_path(dir, "ca.crt");
    cluster_start_with("gpushare-extender",
                       ARGV("--tls-cert", cert, "--tls-key", key, "--client-ca", ca));
    unsigned verbs = cluster.extender.verbs.port, look = cluster.extender.observers.port;
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    peer_init_tls(&cluster.extender.verbs, verbs, ca);
    peer_init_tls(&cluster.extender.observers, look, ca);
    extender_wait_answers(&cluster.extender);
}

static unsigned get(const char *authorization, const char *path, struct buf *said)
{
    cluster.extender.observers.authorization = authorization;
    unsigned status = peer_call(&cluster.extender.observers, "GET", path, NULL, said);
    cluster.extender.observers.authorization = NULL;
    return status;
}

START_TEST(a_service_account_with_the_role_reads_metrics)
{
    cleanup_buf struct buf said = {0};
    cluster_create_scv("n1", CARDS(16384));
    free(cluster_kubectl(ARGV("apply", "-f", "manifests/rbac-inspect.yaml")));
    free(
        cluster_kubectl(ARGV("create", "serviceaccount", "viewer", "-n", "kube-system")));
    cleanup_free char *token = bearer(), *other = bearer();
    start_extender();
    ck_assert_uint_eq(get(NULL, "/metrics", &said), 401);
    ck_assert_uint_eq(get("Bearer eyJhbGciOiJSUzI1NiJ9.e30.eA", "/metrics", &said), 401);
    ck_assert_uint_eq(get(token, "/metrics", &said), 403);
    ck_assert_contains(said.p, "system:serviceaccount:kube-system:viewer");
    ck_assert_contains(said.p, "lacks the permission get nonResourceURL /metrics");
    free(cluster_kubectl(ARGV("create", "clusterrolebinding", "viewer", "--clusterrole",
                              "gpushare-viewer", "--serviceaccount",
                              "kube-system:viewer")));
    int64_t begun = lib_now_ms();
    lib_wait(get(token, "/metrics", &said) == 200);
    cluster_report("from the binding of the role to an answer", lib_now_ms() - begun);
    ck_assert_contains(said.p, "gpushare_nodes");
    ck_assert_uint_eq(get(other, "/inspect", &said), 200);
    ck_assert_uint_eq(get(token, "/", &said), 200);
    ck_assert_uint_eq(get(token, "/apis/nvidia-gpu-scheduler/v1", &said), 200);
    ck_assert_uint_eq(get(token, "/apis/nvidia-gpu-scheduler/v1/gpupods", &said), 200);

    cluster_create_pod("waits", 1, "", SCHEDULER("nobody"));
    lib_wait((get(token, "/inspect", &said), strstr(said.p, "\"name\":\"waits\"")));

    /* Names of pods are only for those who may list all pods. */
    free(cluster_kubectl(ARGV("create", "serviceaccount", "page", "-n", "kube-system")));
    free(cluster_kubectl(ARGV("create", "clusterrole", "page", "--verb", "get",
                              "--non-resource-url", "/", "--non-resource-url",
                              "/inspect")));
    free(cluster_kubectl(ARGV("create", "clusterrolebinding", "page", "--clusterrole",
                              "page", "--serviceaccount", "kube-system:page")));
    cleanup_free char *page = bearer_of("page");
    lib_wait(get(page, "/", &said) == 200);
    ck_assert_uint_eq(get(page, "/inspect", &said), 403);
    ck_assert_contains(said.p, "lacks the permission list pods in all namespaces");
    ck_assert_uint_eq(get(page, "/apis/nvidia-gpu-scheduler/v1/gpunodes", &said), 403);
}

CLUSTER_MAIN("view_auth", 240, ARGV("--nodes", "0"),
             a_service_account_with_the_role_reads_metrics)
