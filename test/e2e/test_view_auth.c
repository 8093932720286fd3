/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"
#include "lib/tls.h"

/*
 * Views of an extender with HTTPS, with tokens that a real API server reviews.
 */

/* A new token of that ServiceAccount in kube-system, as a header. */
static char *bearer_of(const char *account)
{
    return lib_fmt("Bearer %s", cluster_token(account, NULL));
}

static void start_extender(void)
{
    tls_make_cert(cluster_pki(""), "ca", "server", "IP:127.0.0.1,IP:::1");
    cluster_start_with("gpushare-extender", ARGV("--tls-cert", cluster_pki("server.crt"),
                                                 "--tls-key", cluster_pki("server.key"),
                                                 "--client-ca", cluster_pki("ca.crt")));
    extender_connect(&cluster.extender, cluster_pki("ca.crt"), NULL, NULL);
    extender_wait_answers(&cluster.extender);
}

static const char *said; /* the last answer */

static unsigned get(const char *authorization, const char *path)
{
    cleanup_buf struct buf body = {0};
    struct peer as = cluster.extender.observers;
    as.authorization = authorization;
    unsigned status = peer_call(&as, "GET", path, NULL, &body);
    said = lib_fmt("%s", body.p);
    return status;
}

TEST(a_service_account_with_the_role_reads_metrics)
{
    cluster_create_scv("n1", CARDS(16384));
    cluster_kubectl("apply", "-f", "manifests/rbac-inspect.yaml");
    cluster_kubectl("create", "serviceaccount", "viewer", "-n", "kube-system");
    const char *token = bearer_of("viewer"), *other = bearer_of("viewer");
    start_extender();
    ck_assert_uint_eq(get(NULL, "/metrics"), 401);
    ck_assert_uint_eq(get("Bearer eyJhbGciOiJSUzI1NiJ9.e30.eA", "/metrics"), 401);
    ck_assert_uint_eq(get(token, "/metrics"), 403);
    ck_assert_contains(said, "system:serviceaccount:kube-system:viewer");
    ck_assert_contains(said, "lacks the permission get nonResourceURL /metrics");
    cluster_kubectl("create", "clusterrolebinding", "viewer", "--clusterrole",
                    "gpushare-viewer", "--serviceaccount", "kube-system:viewer");
    int64_t begun = lib_now_ms();
    lib_wait(get(token, "/metrics") == 200);
    cluster_report("from the binding of the role to an answer", lib_now_ms() - begun);
    ck_assert_contains(said, "gpushare_nodes");
    ck_assert_uint_eq(get(other, "/inspect"), 200);
    ck_assert_uint_eq(get(token, "/"), 200);
    ck_assert_uint_eq(get(token, "/apis/nvidia-gpu-scheduler/v1"), 200);
    ck_assert_uint_eq(get(token, "/apis/nvidia-gpu-scheduler/v1/gpupods"), 200);

    cluster_create_pod("waits", 1, "", SCHEDULER("nobody"));
    lib_wait((get(token, "/inspect"), strstr(said, "\"name\":\"waits\"")));

    /* Names of pods are only for those who may list all pods. */
    cluster_kubectl("create", "serviceaccount", "page", "-n", "kube-system");
    cluster_kubectl("create", "clusterrole", "page", "--verb", "get",
                    "--non-resource-url", "/", "--non-resource-url", "/inspect");
    cluster_kubectl("create", "clusterrolebinding", "page", "--clusterrole", "page",
                    "--serviceaccount", "kube-system:page");
    const char *page = bearer_of("page");
    lib_wait(get(page, "/") == 200);
    ck_assert_uint_eq(get(page, "/inspect"), 403);
    ck_assert_contains(said, "lacks the permission list pods in all namespaces");
    ck_assert_uint_eq(get(page, "/apis/nvidia-gpu-scheduler/v1/gpunodes"), 403);
}

CLUSTER_MAIN(240)
