/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * Who may see views of an extender with HTTPS: bearer tokens that kube-sim reviews.
 */

#define API "/apis/nvidia-gpu-scheduler/v1"

static const char access_rules[] =
    "{\"tokens\":{"
    "\"prom\":{\"username\":\"prometheus\"},"
    "\"admin\":{\"username\":\"root\",\"groups\":[\"admins\",\"x\"]},"
    "\"team\":{\"username\":\"team\",\"uid\":\"7\"},"
    "\"nobody\":{\"username\":\"system:serviceaccount:a:nobody\"}},"
    "\"rules\":["
    "{\"user\":\"prometheus\",\"verb\":\"get\",\"path\":\"/metrics\"},"
    "{\"group\":\"admins\",\"path\":\"*\"},{\"group\":\"admins\",\"resource\":\"*\"},"
    "{\"user\":\"team\",\"apiGroup\":\"nvidia-gpu-scheduler\",\"resource\":\"*\"},"
    "{\"user\":\"team\",\"verb\":\"list\",\"resource\":\"pods\",\"namespace\":\"team-a\"}"
    "]}";

struct fixture {
    struct sim sim;
    struct extender e;
    char *ca;
};

static void add_pod(const struct sim *s, const char *ns, const char *name,
                    const char *node)
{
    sim_load(s,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"%s\",\"uid\":\"uid-%s\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":\"2\","
             "\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}},\"spec\":{%s%s%s\"containers\":[{"
             "\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"2\"}}}]},\"status\":{\"phase\":\"%s\"}}",
             name, ns, name, node ? "\"nodeName\":\"" : "", node ? node : "",
             node ? "\"," : "", node ? "Running" : "Pending");
}

static void set_rules(const struct sim *s, const char *rules)
{
    json_decref(peer_json(&s->api, "POST", "/kube-sim/access", rules));
}

static void set_up(struct fixture *f)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "other");
    tls_make_ca(lib_dir, "readers");
    tls_make_ca(lib_dir, "front");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "readers", "dashboard", "DNS:dashboard.test");
    tls_make_cert(lib_dir, "front", "proxy", "DNS:x.test");
    tls_make_cert(lib_dir, "front", "other", "DNS:proxy");
    f->ca = temp_path(lib_dir, "ca.crt");
    cleanup_free char *crt = temp_path(lib_dir, "server.crt"),
                      *key = temp_path(lib_dir, "server.key"),
                      *readers = temp_path(lib_dir, "readers.crt"),
                      *front = temp_path(lib_dir, "front.crt");
    sim_start(&f->sim, ARGV(NULL));
    set_rules(&f->sim, access_rules);
    sim_add_node(&f->sim, "n1", 2, 16);
    add_pod(&f->sim, "team-a", "mine", "n1");
    add_pod(&f->sim, "team-b", "theirs", "n1");
    add_pod(&f->sim, "team-a", "mine-waits", NULL);
    add_pod(&f->sim, "team-b", "theirs-waits", NULL);
    cleanup_free char *path =
        lib_kubeconfig("kubeconfig", "http", f->sim.api.port, "", "");
    extender_start_at(&f->e, path,
                      ARGV("--tls-cert", crt, "--tls-key", key, "--client-ca", f->ca,
                           "--observe-client-ca", readers, "--requestheader-client-ca",
                           front, "--requestheader-allowed-names", "proxy"));
    unsigned port = f->e.observers.port;
    peer_fini(&f->e.observers);
    peer_init_tls(&f->e.observers, port, f->ca);
    lib_wait(peer_status(&f->e.observers, "/readyz") == 200);
}

static void tear_down(struct fixture *f)
{
    extender_stop(&f->e);
    sim_stop(&f->sim);
    free(f->ca);
}

/* GET with a token, or without credentials. */
static unsigned get(struct fixture *f, const char *token, const char *path,
                    struct buf *said)
{
    cleanup_free char *bearer = token ? xasprintf("Bearer %s", token) : NULL;
    struct peer p = f->e.observers;
    p.authorization = bearer;
    return peer_call(&p, "GET", path, NULL, said);
}

static int reviews(const struct fixture *f, const char *resource)
{
    return sim_count(&f->sim, "create", resource, "");
}

/* curl with further arguments (ends with NULL); *out gets headers and body. `cert`: a
 * client certificate, or NULL. `until`: of the output of a watch, or NULL. */
static void curl_until(const char *until, struct fixture *f, const char *path,
                       const char *cert, const char *const *more, struct buf *out)
{
    struct program p;
    cleanup_free char *url =
                          xasprintf("https://127.0.0.1:%u%s", f->e.observers.port, path),
                      *crt = xasprintf("%s/%s.crt", lib_dir, cert ? cert : ""),
                      *key = xasprintf("%s/%s.key", lib_dir, cert ? cert : "");
    const char *argv[PROGRAM_ARGS] = {"curl", "-sSiN", "--noproxy", "*", "--cacert",
                                      f->ca,  url};
    size_t n =
        program_args(argv, 7, cert ? ARGV("--cert", crt, "--key", key) : ARGV(NULL));
    program_args(argv, n, more);
    program_start(&p, lib_dir, argv);
    if (until)
        ck_assert(program_wait_output(&p, until));
    else
        program_wait(&p);
    buf_clear(out);
    buf_adds(out, program_output(&p));
    program_kill(&p);
}

static void curl(struct fixture *f, const char *path, const char *cert,
                 const char *const *more, struct buf *out)
{
    curl_until(NULL, f, path, cert, more, out);
}

START_TEST(views_need_a_token_with_the_right)
{
    static const char *const views[] = {"/",
                                        "/page.js",
                                        "/inspect",
                                        "/inspect/n1",
                                        "/inspect/filter",
                                        "/inspect?watch=true",
                                        "/gpushare-scheduler/inspect",
                                        "/metrics",
                                        API,
                                        API "/gpunodes",
                                        API "/gpupods",
                                        "/apis/other"};
    static const char *const open[] = {"/healthz", "/readyz", "/version"};
    struct fixture f;
    cleanup_buf struct buf said = {0};
    set_up(&f);
    for (size_t i = 0; i < ARRAY_LEN(open); i++)
        ck_assert_uint_eq(get(&f, NULL, open[i], &said), 200);
    for (size_t i = 0; i < ARRAY_LEN(views); i++) {
        ck_assert_uint_eq(get(&f, NULL, views[i], &said), 401);
        ck_assert_contains(said.p, "a bearer token or a client certificate is required");
        ck_assert_uint_eq(get(&f, "wrong", views[i], &said), 401);
        ck_assert_contains(said.p, "the bearer token is not valid");
        ck_assert_uint_eq(get(&f, "a b", views[i], &said), 401);
        ck_assert_uint_eq(get(&f, "nobody", views[i], &said), 403);
        ck_assert_contains(said.p, "system:serviceaccount:a:nobody");
    }
    ck_assert_uint_eq(get(&f, "nobody", "/metrics", &said), 403);
    ck_assert_contains(said.p, "lacks the permission get nonResourceURL /metrics");
    ck_assert_uint_eq(get(&f, "team", API "/gpunodes", &said), 200);
    ck_assert_uint_eq(get(&f, "nobody", API "/gpunodes?watch=true", &said), 403);
    ck_assert_contains(said.p, "list gpunodes.nvidia-gpu-scheduler");
    ck_assert_uint_eq(get(&f, "prom", "/metrics", &said), 200);
    ck_assert_contains(said.p, "gpushare_view_reviews_total{kind=\"token\"}");
    ck_assert_uint_eq(get(&f, "prom", "/inspect", &said), 403);
    ck_assert_uint_eq(get(&f, "admin", "/", &said), 200);
    ck_assert_uint_eq(get(&f, "admin", "/inspect", &said), 200);
    curl(&f, "/metrics", NULL, ARGV(NULL), &said);
    ck_assert_contains(said.p, "WWW-Authenticate: Bearer realm=\"gpushare\"");
    curl(&f, "/metrics", NULL, ARGV("-H", "Authorization: Basic cHJvbTo="), &said);
    ck_assert_contains(said.p, "HTTP/1.1 401");
    curl(&f, "/metrics", NULL, ARGV("-H", "Authorization: bearer prom"), &said);
    ck_assert_contains(said.p, "HTTP/1.1 200");
    ck_assert_ptr_null(strstr(program_output(&f.e.program), "Bearer"));
    tear_down(&f);
}
END_TEST

START_TEST(who_may_list_all_pods_sees_all_of_them)
{
    static const char *const views[] = {"/inspect", "/inspect/n1", API "/gpupods"};
    static const char *const watches[] = {"/inspect?watch=true",
                                          API "/gpupods?watch=true"};
    struct fixture f;
    cleanup_buf struct buf said = {0};
    set_up(&f);
    for (size_t v = 0; v < ARRAY_LEN(views); v++) {
        ck_assert_uint_eq(get(&f, "admin", views[v], &said), 200);
        ck_assert_contains(said.p, "mine");
        ck_assert_contains(said.p, "theirs");
        /* To list the pods of one namespace is not enough. */
        ck_assert_uint_eq(get(&f, "team", views[v], &said), 403);
        ck_assert_contains(said.p, "lacks the permission list pods in all namespaces");
    }
    for (size_t v = 0; v < ARRAY_LEN(watches); v++) {
        ck_assert_uint_eq(get(&f, "team", watches[v], &said), 403);
        /* An empty line ends the initial state. */
        curl_until("\n\n", &f, watches[v], NULL,
                   ARGV("-H", "Authorization: Bearer admin"), &said);
        ck_assert_contains(said.p, "HTTP/1.1 200");
        ck_assert_contains(said.p, "theirs");
    }
    tear_down(&f);
}
END_TEST

START_TEST(certificates_admit_too)
{
    struct fixture f;
    cleanup_buf struct buf said = {0};
    set_up(&f);
    curl(&f, "/inspect", "dashboard", ARGV(NULL), &said);
    ck_assert_contains(said.p, "theirs-waits");
    /* The API server has asked whether the user may list gpupods. */
    curl(&f, API "/gpupods", "proxy", ARGV("-H", "X-Remote-User: team"), &said);
    ck_assert_contains(said.p, "team-b-theirs");
    /* It asks only about what is below /apis. */
    curl(&f, "/inspect", "proxy", ARGV(NULL), &said);
    ck_assert_contains(said.p, "HTTP/1.1 401");
    /* Only the front proxy may name a user. An alternative name does not count, as in
     * Kubernetes. */
    static const char *const others[] = {"other", "dashboard"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        curl(&f, API "/gpupods", others[i], ARGV("-H", "X-Remote-User: team"), &said);
        ck_assert_contains(said.p, "X-Remote-User is accepted only from");
    }
    ck_assert_int_eq(reviews(&f, "tokenreviews"), 0);
    ck_assert_int_eq(reviews(&f, "subjectaccessreviews"), 0);
    curl(&f, API "/gpupods", NULL,
         ARGV("-H", "Authorization: Bearer admin", "-H", "X-Remote-User: root"), &said);
    ck_assert_contains(said.p, "HTTP/1.1 401");
    tear_down(&f);
}
END_TEST

static void get_many(void *ctx, size_t i)
{
    cleanup_buf struct buf said = {0};
    (void)i;
    for (int k = 0; k < 20; k++)
        ck_assert_uint_eq(get(ctx, "prom", "/metrics", &said), 200);
}

START_TEST(answers_are_cached_and_survive_the_api_server)
{
    struct fixture f;
    cleanup_buf struct buf said = {0};
    set_up(&f);
    lib_threads(16, get_many, &f);
    ck_assert_int_eq(reviews(&f, "tokenreviews"), 1);
    ck_assert_int_eq(reviews(&f, "subjectaccessreviews"), 1);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(get(&f, "wrong", "/metrics", &said), 401);
    ck_assert_int_eq(reviews(&f, "tokenreviews"), 2);
    sim_fault(&f.sim, "{\"resource\":\"subjectaccessreviews\",\"action\":\"cut\"}");
    ck_assert_uint_eq(get(&f, "prom", "/metrics", &said), 200);
    ck_assert_uint_eq(get(&f, "prom", "/inspect", &said), 503);
    ck_assert_contains(said.p, "cannot check credentials now");
    sim_fault(&f.sim, "{\"resource\":\"tokenreviews\",\"action\":\"answer\","
                      "\"status\":503}");
    ck_assert_uint_eq(get(&f, "admin", "/metrics", &said), 503);
    ck_assert_contains(said.p, "cannot check credentials now");
    ck_assert(!strstr(said.p, "Review")); /* what went wrong is only in the log */
    lib_wait(strstr(program_output(&f.e.program), "SubjectAccessReview: "));
    sim_no_faults(&f.sim);
    lib_wait(get(&f, "admin", "/metrics", &said) == 200);
    /* An API server that does not answer delays nobody else. */
    sim_fault(&f.sim, "{\"resource\":\"tokenreviews\",\"action\":\"hang\"}");
    ck_assert_uint_eq(get(&f, "team", "/inspect", &said), 503);
    ck_assert_uint_eq(get(&f, "admin", "/metrics", &said), 200);
    tear_down(&f);
}
END_TEST

/* Runs `kubectl inspect gpushare --check` with this token, whose output says that. */
static void check_with(struct fixture *f, const char *token, const char *want)
{
    cleanup_free char *file = temp_path(lib_dir, "token"),
                      *config = temp_path(lib_dir, "kubeconfig"),
                      *program = program_path("kubectl-inspect-gpushare"),
                      *url = xasprintf("https://127.0.0.1:%u", f->e.observers.port);
    temp_write(lib_dir, "token", token);
    cleanup_free char *said =
        lib_output(-1, ARGV(program, "--check", "--kubeconfig", config, "--extender", url,
                            "--extender-token", file, "--extender-ca", f->ca));
    ck_assert_contains(said, want);
}

START_TEST(kubectl_inspect_compares_with_the_extender)
{
    struct fixture f;
    set_up(&f);
    check_with(&f, "admin\n", "; compared with the extender");
    check_with(&f, "nobody", "lacks the permission list pods in all namespaces");
    check_with(&f, "invented", ": HTTP 401: the bearer token is not valid\n");
    tear_down(&f);
}
END_TEST

LIB_MAIN("view_auth", 120, views_need_a_token_with_the_right,
         who_may_list_all_pods_sees_all_of_them, certificates_admit_too,
         answers_are_cached_and_survive_the_api_server,
         kubectl_inspect_compares_with_the_extender)
