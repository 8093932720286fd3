/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "kube-sim/cases_http.h"
#include "kube-sim/cases_pure.h"
#include "kube-sim/same.h"
#include "lib/cluster.h"

/*
 * The cases in test/kube-sim/conformance against the real API server: it answers as the cases
 * say, and as kube-sim does, but for what test/kube-sim/differences.json names.
 */

static struct cases_http *api, *etcd;

static void ask(struct cases_http *h, const char *path, const char *body)
{
    unsigned status = cases_http_ask(h, "POST", path, body);
    ck_assert_msg(status / 100 == 2, "%s %s: %u", path, body, status);
}

/* Pods are refused before there is an account, which a controller would make. */
static void space(void *ctx, const char *name)
{
    cleanup_free char *ns = xasprintf("{\"metadata\":{\"name\":\"%s\"}}", name);
    cleanup_free char *path = xasprintf("/api/v1/namespaces/%s/serviceaccounts", name);
    (void)ctx;
    ask(api, "/api/v1/namespaces", ns);
    ask(api, path,
        "{\"metadata\":{\"name\":\"default\"},"
        "\"automountServiceAccountToken\":false}");
}

static struct cases_http *connect_to(const char *program, const char *ca,
                                     const char *user)
{
    cleanup_free char *port = xasprintf("run/%s.port", program);
    cleanup_free char *ports = temp_read(cluster.dir, port);
    cleanup_free char *url =
        xasprintf("https://127.0.0.1:%.*s", (int)strcspn(ports, "\n"), ports);
    cleanup_free char *authority = xasprintf("%s/pki/%s.crt", cluster.dir, ca);
    cleanup_free char *cert = xasprintf("%s/pki/%s.crt", cluster.dir, user);
    cleanup_free char *key = xasprintf("%s/pki/%s.key", cluster.dir, user);
    return cases_http_new(&(struct cases_http_config){url, authority, cert, key});
}

/* etcd forgets everything but the present. */
static void compact(void *ctx)
{
    cleanup_json json_t *pods =
        peer_json(&cluster.api, "GET", "/api/v1/namespaces/default/pods", NULL);
    cleanup_free char *body = xasprintf("{\"revision\":%s,\"physical\":true}",
                                        lib_str(pods, "metadata.resourceVersion"));
    (void)ctx;
    ask(etcd, "/v3/kv/compaction", body);
}

/* And so does kube-apiserver, whose caches remember: it starts anew. */
static void forget(void *ctx)
{
    compact(ctx);
    cluster_stop("kube-apiserver", "TERM");
    cluster_start("kube-apiserver");
    lib_wait(cases_http_ask(api, "GET", "/readyz", NULL) == 200);
}

/* Both servers; returns how much is not as it should be. */
static size_t run_both(const char *file)
{
    struct cases_pure pure;
    struct cases_server sim,
        real = {
            .name = "kubernetes", .space = space, .compact = compact, .forget = forget};
    cleanup_free char *id = cases_name(file);
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

START_TEST(the_real_server_answers_as_the_cases_say_and_as_kube_sim_does)
{
    /* Whoever writes by himself would be in the way. */
    static const char *const others[] = {"kube-scheduler", "gpushare-extender", "kwok",
                                         "kube-controller-manager"};
    const char *only = getenv("CASE");
    size_t n, faults = 0, run = 0;
    char **files = cases_files(&n);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        cluster_stop(others[i], "KILL");
    api = connect_to("kube-apiserver", "ca", "admin");
    etcd = connect_to("etcd", "etcd-ca", "etcd-client");
    for (size_t i = 0; i < n; i++) {
        if (only && !strstr(files[i], only))
            continue;
        faults += run_both(files[i]);
        run++;
    }
    printf("%zu cases\n", run);
    cases_http_free(api);
    cases_http_free(etcd);
    cases_free(files, n);
    ck_assert_uint_gt(run, 0);
    ck_assert_uint_eq(faults, 0);
}

CLUSTER_MAIN("conformance", 600, ARGV("--nodes", "0"),
             the_real_server_answers_as_the_cases_say_and_as_kube_sim_does)
