/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
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

static void add_pod(const char *ns, const char *name, const char *node)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
             "\"namespace\":\"%s\",\"uid\":\"uid-%s\",\"annotations\":{"
             "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_POD\":\"2\","
             "\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}},\"spec\":{%s\"containers\":[{"
             "\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"2\"}}}]},\"status\":{\"phase\":\"%s\"}}",
             name, ns, name, node, *node ? "Running" : "Pending");
}

static void set_up(void)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_ca(lib_dir, "readers");
    tls_make_ca(lib_dir, "front");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "readers", "dashboard", "DNS:dashboard.test");
    tls_make_cert(lib_dir, "front", "proxy", "DNS:x.test");
    tls_make_cert(lib_dir, "front", "other", "DNS:proxy");
    peer_do(&sim.api, "POST", "/kube-sim/access", access_rules);
    sim_add_node(&sim, "n1", 2, 16);
    add_pod("team-a", "mine", "\"nodeName\":\"n1\",");
    add_pod("team-b", "theirs", "\"nodeName\":\"n1\",");
    add_pod("team-a", "mine-waits", "");
    add_pod("team-b", "theirs-waits", "");
    extender_begin(&extender, &sim,
                   ARGV("--tls-cert", lib_path("server.crt"), "--tls-key",
                        lib_path("server.key"), "--client-ca", lib_path("ca.crt"),
                        "--observe-client-ca", lib_path("readers.crt"),
                        "--requestheader-client-ca", lib_path("front.crt"),
                        "--requestheader-allowed-names", "proxy"));
    extender_connect(&extender, lib_path("ca.crt"), NULL, NULL);
    extender_wait_ready(&extender);
}

/* GET with a token, or without credentials. Returns "STATUS BODY", kept. */
static const char *get(const char *token, const char *path)
{
    cleanup_buf struct buf body = {0};
    struct peer p = extender.observers;
    p.authorization = token ? lib_fmt("Bearer %s", token) : NULL;
    unsigned status = peer_call(&p, "GET", path, NULL, &body);
    return lib_fmt("%u %s", status, body.p);
}

/* Does that begin with the status, and contain the text? */
static void expect(const char *token, const char *path, const char *status,
                   const char *text)
{
    const char *said = get(token, path);
    ck_assert_msg(strncmp(said, status, 3) == 0 && strstr(said, text), "%s of %s: %s",
                  path, token, said);
}

static int reviews(const char *resource)
{
    return sim_count(&sim, "create", resource, "");
}

/* Headers and body that curl gets with further arguments (which end with NULL). `cert`: a
 * client certificate, or NULL. `until`: of the output of a watch, or NULL. */
static const char *curl_until(const char *until, const char *path, const char *cert,
                              const char *const *more)
{
    struct program p;
    const char *argv[PROGRAM_ARGS] = {
        "curl",
        "-sSiN",
        "--noproxy",
        "*",
        "--cacert",
        lib_path("ca.crt"),
        lib_fmt("https://127.0.0.1:%u%s", extender.observers.port, path)};
    size_t n = 7;
    if (cert)
        n = program_args(argv, n,
                         ARGV("--cert", lib_fmt("%s/%s.crt", lib_dir, cert), "--key",
                              lib_fmt("%s/%s.key", lib_dir, cert)));
    program_args(argv, n, more);
    program_start(&p, lib_dir, argv);
    if (until)
        ck_assert(program_wait_output(&p, until));
    else
        program_wait(&p);
    const char *said = lib_fmt("%s", program_output(&p));
    program_kill(&p);
    return said;
}

static const char *curl(const char *path, const char *cert, const char *const *more)
{
    return curl_until(NULL, path, cert, more);
}

TEST(views_need_a_token_with_the_right)
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
    static const struct {
        const char *token, *path, *status, *text;
    } cases[] = {
        {"nobody", "/metrics", "403", "lacks the permission get nonResourceURL /metrics"},
        {"team", API "/gpunodes", "200", ""},
        {"nobody", API "/gpunodes?watch=true", "403",
         "list gpunodes.nvidia-gpu-scheduler"},
        {"prom", "/metrics", "200", "gpushare_view_reviews_total{kind=\"token\"}"},
        {"prom", "/inspect", "403", ""},
        {"admin", "/", "200", ""},
        {"admin", "/inspect", "200", ""},
    };
    set_up();
    array_items(o, open)
        expect(NULL, *o, "200", "");
    array_items(view, views) {
        expect(NULL, *view, "401", "a bearer token or a client certificate is required");
        expect("wrong", *view, "401", "the bearer token is not valid");
        expect("a b", *view, "401", "");
        expect("nobody", *view, "403", "system:serviceaccount:a:nobody");
    }
    array_items(c, cases)
        expect(c->token, c->path, c->status, c->text);
    ck_assert_contains(curl("/metrics", NULL, NULL),
                       "WWW-Authenticate: Bearer realm=\"gpushare\"");
    ck_assert_contains(
        curl("/metrics", NULL, ARGV("-H", "Authorization: Basic cHJvbTo=")),
        "HTTP/1.1 401");
    ck_assert_contains(curl("/metrics", NULL, ARGV("-H", "Authorization: bearer prom")),
                       "HTTP/1.1 200");
    ck_assert_lacks(program_output(&extender.program), "Bearer");
}

TEST(who_may_list_all_pods_sees_all_of_them)
{
    static const char *const views[] = {"/inspect", "/inspect/n1", API "/gpupods"};
    static const char *const watches[] = {"/inspect?watch=true",
                                          API "/gpupods?watch=true"};
    set_up();
    array_items(view, views) {
        expect("admin", *view, "200", "mine");
        expect("admin", *view, "200", "theirs");
        /* To list the pods of one namespace is not enough. */
        expect("team", *view, "403", "lacks the permission list pods in all namespaces");
    }
    array_items(watch, watches) {
        expect("team", *watch, "403", "");
        /* An empty line ends the initial state. */
        const char *said =
            curl_until("\n\n", *watch, NULL, ARGV("-H", "Authorization: Bearer admin"));
        ck_assert_contains(said, "HTTP/1.1 200");
        ck_assert_contains(said, "theirs");
    }
}

TEST(certificates_admit_too)
{
    const char *const *team = ARGV("-H", "X-Remote-User: team");
    set_up();
    ck_assert_contains(curl("/inspect", "dashboard", NULL), "theirs-waits");
    /* The API server has asked whether the user may list gpupods. */
    ck_assert_contains(curl(API "/gpupods", "proxy", team), "team-b-theirs");
    /* It asks only about what is below /apis. */
    ck_assert_contains(curl("/inspect", "proxy", NULL), "HTTP/1.1 401");
    /* Only the front proxy may name a user. An alternative name does not count, as in
     * Kubernetes. */
    ck_assert_contains(curl(API "/gpupods", "other", team),
                       "X-Remote-User is accepted only from");
    ck_assert_contains(curl(API "/gpupods", "dashboard", team),
                       "X-Remote-User is accepted only from");
    ck_assert_int_eq(reviews("tokenreviews"), 0);
    ck_assert_int_eq(reviews("subjectaccessreviews"), 0);
    ck_assert_contains(
        curl(API "/gpupods", NULL,
             ARGV("-H", "Authorization: Bearer admin", "-H", "X-Remote-User: root")),
        "HTTP/1.1 401");
}

TEST(answers_are_cached_and_survive_the_api_server)
{
    set_up();
    expect("prom", "/metrics", "200", "");
    sim_fault(&sim, "{\"resource\":\"subjectaccessreviews\",\"action\":\"cut\"}");
    expect("prom", "/metrics", "200", "");
    expect("prom", "/inspect", "503", "cannot check credentials now");
    sim_fault(&sim, "{\"resource\":\"tokenreviews\",\"action\":\"answer\","
                    "\"status\":503}");
    const char *said = get("admin", "/metrics");
    ck_assert_contains(said, "503 ");
    ck_assert_contains(said, "cannot check credentials now");
    ck_assert_lacks(said, "Review"); /* what went wrong is only in the log */
    lib_wait(strstr(program_output(&extender.program), "SubjectAccessReview: "));
    sim_no_faults(&sim);
    lib_wait(strncmp(get("admin", "/metrics"), "200", 3) == 0);
    /* An API server that does not answer delays nobody else. */
    sim_fault(&sim, "{\"resource\":\"tokenreviews\",\"action\":\"hang\"}");
    expect("team", "/inspect", "503", "");
    expect("admin", "/metrics", "200", "");
}

TEST(kubectl_inspect_compares_with_the_extender)
{
    static const struct {
        const char *token, *says;
    } cases[] = {{"admin\n", "; compared with the extender"},
                 {"nobody", "lacks the permission list pods in all namespaces"},
                 {"invented", ": HTTP 401: the bearer token is not valid\n"}};
    set_up();
    array_items(c, cases) {
        temp_write(lib_dir, "token", c->token);
        ck_assert_contains(
            lib_output_of(-1, "kubectl-inspect-gpushare",
                          ARGV("--check", "--kubeconfig", sim_kubeconfig(&sim),
                               "--extender",
                               lib_fmt("https://127.0.0.1:%u", extender.observers.port),
                               "--extender-token", lib_path("token"), "--extender-ca",
                               lib_path("ca.crt"))),
            c->says);
    }
}

SUITE_MAIN(120, NULL)
