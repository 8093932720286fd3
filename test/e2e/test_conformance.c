/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/cases_http.h"
#include "kube-sim/cases_pure.h"
#include "kube-sim/same.h"
#include "lib/attempt.h"

/*
 * The cases in test/kube-sim/conformance against the real API server: its answers match the
 * cases and those of kube-sim, except for the differences in test/kube-sim/differences.json.
 */

static struct cases_http *api, *etcd;

static void ask(struct cases_http *h, const char *path, const char *body)
{
    unsigned status = cases_http_ask(h, "POST", path, body);
    ck_assert_msg(status / 100 == 2, "%s %s: %u", path, body, status);
}

/* The API server rejects pods before a ServiceAccount exists, which a controller would
 * create. */
static void space(void *ctx, const char *name)
{
    (void)ctx;
    ask(api, "/api/v1/namespaces", lib_fmt("{\"metadata\":{\"name\":\"%s\"}}", name));
    ask(api, lib_fmt("/api/v1/namespaces/%s/serviceaccounts", name),
        "{\"metadata\":{\"name\":\"default\"},"
        "\"automountServiceAccountToken\":false}");
}

static struct cases_http *connect_to(const char *program, const char *ca,
                                     const char *user)
{
    const char *ports = cluster_file(lib_fmt("run/%s.port", program));
    return cases_http_new(&(struct cases_http_config){
        lib_fmt("https://127.0.0.1:%.*s", (int)strcspn(ports, "\n"), ports),
        lib_fmt("%s/pki/%s.crt", cluster.dir, ca),
        lib_fmt("%s/pki/%s.crt", cluster.dir, user),
        lib_fmt("%s/pki/%s.key", cluster.dir, user)});
}

/* Compacts etcd to the current revision. */
static void compact(void *ctx)
{
    json_t *pods = peer_get(&cluster.api, "/api/v1/namespaces/default/pods");
    (void)ctx;
    ask(etcd, "/v3/kv/compaction",
        lib_fmt("{\"revision\":%s,\"physical\":true}",
                lib_str(pods, "metadata.resourceVersion")));
}

/* kube-apiserver caches older revisions: restarts it. */
static void forget(void *ctx)
{
    compact(ctx);
    cluster_stop("kube-apiserver", "TERM");
    cluster_start("kube-apiserver");
    lib_wait(cases_http_ask(api, "GET", "/readyz", NULL) == 200);
}

/* Runs the case on both servers; returns the number of differences. */
static size_t run_both(const char *file)
{
    struct cases_pure pure;
    struct cases_server sim,
        real = {
            .name = "kubernetes", .space = space, .compact = compact, .forget = forget};
    const char *id = cases_name(file);
    size_t faults = 0;
    cases_http_server(api, &real);
    cases_pure_init(&pure);
    cases_pure_server(&pure, &sim);
    cleanup_json json_t *theirs = cases_run(file, id, &real, &faults);
    cleanup_json json_t *ours = theirs ? cases_run(file, id, &sim, &faults) : NULL;
    if (ours)
        faults += same_check(file, theirs, ours);
    cases_pure_fini(&pure);
    return faults;
}

TEST(the_real_server_matches_the_cases_and_kube_sim)
{
    /* Stops every program that writes by itself. */
    static const char *const others[] = {"kube-scheduler", "gpushare-extender", "kwok",
                                         "kube-controller-manager"};
    const char *only = getenv("CASE");
    size_t faults = 0, run = 0;
    attempt_without_policies(); /* kube-sim has none */
    array_items(other, others)
        cluster_stop(*other, "KILL");
    api = connect_to("kube-apiserver", "ca", "admin");
    etcd = connect_to("etcd", "etcd-ca", "etcd-client");
    for (const char *const *file = lib_glob(CASES_DIR "/*.json"); *file; file++) {
        if (only && !strstr(*file, only))
            continue;
        faults += run_both(*file);
        run++;
    }
    printf("%zu cases\n", run);
    cases_http_free(api);
    cases_http_free(etcd);
    ck_assert_uint_gt(run, 0);
    ck_assert_uint_eq(faults, 0);
}

CLUSTER_MAIN(600)
