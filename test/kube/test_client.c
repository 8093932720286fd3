/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"
#include "kube/kubeconfig_priv.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "kube/client_priv.h"
#include "kube/fixture.h"
#include "lib/stub.h"
#include "lib/tls.h"

enum { TIMEOUT_MS = 60000 };

static struct stub *server;

static void serve(stub_fn answer, const char *ctx)
{
    server = stub_start(answer, (void *)ctx);
    w.config.server = stub_url(server);
    w.config.source = "context x of y";
}

static void end(void)
{
    fixture_end();
    if (server)
        stub_stop(steal(&server));
}

static void connect_client(void)
{
    start();
    w.c->now_ms = clock_mono_ms;
}

static void use_token_file(const char *token)
{
    put("token", token);
    w.config.token_file = file_in_config("token");
}

/* The status of the response; 0 if there is none. */
static unsigned send_request(struct kube_request req)
{
    struct httpc_reply reply;
    req.timeout_ms = TIMEOUT_MS;
    w.err = (struct err){0};
    int rc = kube_call(w.c, &req, &reply, &w.err);
    unsigned status = reply.status;
    ck_assert((rc == 0) == (status != 0));
    httpc_reply_fini(&reply);
    return status;
}

static unsigned call(const char *method, const char *path, const char *body)
{
    return send_request(
        (struct kube_request){.method = method, .path = path, .body = span_of(body)});
}

/* Responds with 200 to the token `ctx`, else with 401. */
static void get_token(struct stub_conn *conn, void *ctx)
{
    cleanup_free char *line =
        xasprintf("\r\nAuthorization: Bearer %s\r\n", (const char *)ctx);
    while (stub_read(conn)) {
        cleanup_free char *last =
            stub_request(conn->server, stub_requests(conn->server) - 1);
        stub_reply(conn, strstr(last, line) ? 200 : 401, "", "{}");
    }
}

TEST(a_call_has_prefix_credentials_and_user_agent)
{
    serve(get_token, "abc");
    w.config.path_prefix = "/k8s/c1";
    w.config.token = "abc";
    connect_client();
    ck_assert_uint_eq(call("GET", "/api/v1/pods?limit=1", NULL), 200);
    ck_assert_uint_eq(call("POST", "/x", "{\"a\":1}"), 200);
    cleanup_free char *get = stub_request(server, 0);
    cleanup_free char *post = stub_request(server, 1);
    ck_assert(strstr(get, "GET /k8s/c1/api/v1/pods?limit=1 HTTP/1.1\r\n") == get);
    ck_assert_contains(get, "\r\nUser-Agent: gpushare/" GPUSHARE_VERSION "\r\n");
    ck_assert(strstr(get, "\r\nContent-Type:") == NULL);
    ck_assert(strstr(post, "POST /k8s/c1/x HTTP/1.1\r\n") == post);
    ck_assert_contains(post, "\r\nContent-Type: application/json\r\n");
    send_request((struct kube_request){.method = "PATCH",
                                       .path = "/y",
                                       .content_type = "application/merge-patch+json",
                                       .body = SPAN("{}")});
    cleanup_free char *patch = stub_request(server, 2);
    ck_assert(strstr(patch, "\r\nContent-Type: application/merge-patch+json\r\n") !=
              NULL);
}

TEST(after_a_401_the_call_is_retried_with_the_new_token)
{
    serve(get_token, "new");
    use_token_file("old");
    connect_client();
    ck_assert_uint_eq(call("POST", "/", "{}"), 401); /* there is no new token yet */
    ck_assert_uint_eq(stub_requests(server), 2);
    put("token", "new");
    ck_assert_uint_eq(call("POST", "/", "{}"), 200);
    put("token", "worse"); /* not reloaded yet */
    ck_assert_uint_eq(call("POST", "/", "{}"), 200);
}

TEST(after_a_401_of_a_static_token_nothing_is_retried)
{
    serve(get_token, "new");
    w.config.token = "old";
    connect_client();
    ck_assert_uint_eq(call("POST", "/", "{}"), 401);
    ck_assert_uint_eq(stub_requests(server), 1);
}

TEST(no_credentials_means_not_sent)
{
    serve(get_token, "new");
    w.config.token_file = file_in_config("none");
    connect_client();
    struct kube_request req = {.method = "POST", .path = "/", .timeout_ms = TIMEOUT_MS};
    struct httpc_reply reply;
    ck_assert_int_eq(kube_call(w.c, &req, &reply, &w.err), -1);
    ck_assert(!reply.sent);
    httpc_reply_fini(&reply);
    ck_assert_msg(strstr(w.err.msg, "context x of y: no token: ") == w.err.msg, "%s",
                  w.err.msg);
    ck_assert_ptr_null(kube_stream_start(w.c, NULL, &req, NULL, NULL, &w.err));
    ck_assert_uint_eq(stub_connections(server), 0);
}

TEST(an_invalid_config_is_rejected)
{
    serve(get_token, "new");
    w.config.server = "https://h:99999";
    ck_assert_ptr_null(kube_client_new(&w.config, &w.err));
    ck_assert_msg(strstr(w.err.msg, "context x of y: ") == w.err.msg, "%s", w.err.msg);
    ck_assert_int_eq(w.err.code, ERR_INVALID);
    kube_client_free(NULL);
}

/* A stream. */
static struct story {
    unsigned status;
    bool ended;
    struct buf body;
} story;

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s, int64_t date_s)
{
    (void)ctx, (void)retry_after_s, (void)date_s;
    story.status = status;
    return true;
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    (void)ctx;
    buf_add(&story.body, p, n);
    return true;
}

static void on_end(void *ctx, const struct err *why)
{
    (void)ctx;
    ck_assert_msg(!why, "%s", why ? why->msg : "");
    story.ended = true;
}

static unsigned watch(struct httpc_loop *loop)
{
    static const struct httpc_sink sink = {on_begin, on_data, on_end};
    struct kube_request req = {
        .method = "GET", .path = "/w?watch=1", .stall_ms = TIMEOUT_MS};
    story = (struct story){0};
    ck_assert_ptr_nonnull(kube_stream_start(w.c, loop, &req, &sink, NULL, &w.err));
    while (!story.ended)
        httpc_loop_run(loop, 1000);
    ck_assert_span_eq(buf_span(&story.body), "{}");
    buf_fini(&story.body);
    return story.status;
}

TEST(a_stream_sends_credentials_and_unauthorized_refreshes_them)
{
    serve(get_token, "new");
    struct httpc_loop *loop = httpc_loop_new();
    w.config.path_prefix = "/p";
    use_token_file("old");
    connect_client();
    ck_assert_uint_eq(watch(loop), 401);
    put("token", "new");
    ck_assert_uint_eq(watch(loop), 401); /* no 401 was reported for the first one */
    kube_client_unauthorized(w.c);
    ck_assert_uint_eq(watch(loop), 200);
    cleanup_free char *got = stub_request(server, 0);
    ck_assert(strstr(got, "GET /p/w?watch=1 HTTP/1.1\r\n") == got);
    httpc_loop_free(loop);
}

static void *call_often(void *arg)
{
    (void)arg;
    uintptr_t good = 0;
    struct kube_request req = {.method = "GET", .path = "/", .timeout_ms = TIMEOUT_MS};
    for (int i = 0; i < 40; i++) {
        struct httpc_reply reply;
        good += !kube_call(w.c, &req, &reply, NULL) && reply.status == 200;
        httpc_reply_fini(&reply);
    }
    return (void *)good;
}

/* A clock that advances by a minute per call, so that every call reloads the files.
 */
static int64_t hasty_clock(void)
{
    static atomic_llong now;
    return atomic_fetch_add(&now, 60000);
}

TEST(threads_call_while_credentials_change)
{
    serve(stub_echo, "{}");
    pthread_t threads[4];
    use_token_file("t0");
    put("ca", "-----BEGIN CERTIFICATE----- 0");
    w.config.ca_file = file_in_config("ca");
    connect_client();
    w.c->now_ms = hasty_clock;
    array_items(thread, threads)
        ck_assert_int_eq(pthread_create(thread, NULL, call_often, NULL), 0);
    for (int i = 1; i < 30; i++) {
        cleanup_free char *token = xasprintf("t%d", i);
        cleanup_free char *ca = xasprintf("-----BEGIN CERTIFICATE----- %d", i);
        put("token", token);
        put("ca", ca);
        lib_pause();
    }
    array_items(t, threads) {
        void *good;
        pthread_join(*t, &good);
        ck_assert_uint_eq((uintptr_t)good, 40);
    }
}

static int64_t late_clock(void)
{
    return clock_mono_ms() + 2000;
}

static int64_t later_clock(void)
{
    return clock_mono_ms() + 60000;
}

#define SERVE(name)                                                                      \
    (const char *[])                                                                     \
    {                                                                                    \
        "-cert", name ".crt", "-key", name ".key", NULL                                  \
    }

TEST(a_new_ca_is_loaded)
{
    serve(stub_echo, "");
    tls_make_ca(w.dir, "ca1");
    tls_make_ca(w.dir, "ca2");
    tls_make_cert(w.dir, "ca1", "server1", "IP:127.0.0.1");
    tls_make_cert(w.dir, "ca2", "server2", "IP:127.0.0.1");
    cleanup_free char *ca1 = temp_read(w.dir, "ca1.crt");
    cleanup_free char *ca2 = temp_read(w.dir, "ca2.crt");
    struct tls_server *s = tls_server_start(w.dir, 0, SERVE("server1"));
    unsigned port = tls_server_port(s);
    w.config.server = arena_printf(&w.config.arena, "https://127.0.0.1:%u", port);
    w.config.ca_file = file_in_config("ca");
    buf_adds(&w.config.ca_pem, ca1);
    put("ca", ca1);
    connect_client();
    ck_assert_uint_eq(call("GET", "/", NULL), 200);
    tls_server_stop(s);

    s = tls_server_start(w.dir, port, SERVE("server2"));
    ck_assert_uint_eq(call("GET", "/", NULL), 0); /* not trusted: not sent */
    put("ca", ca2);
    w.c->now_ms = late_clock; /* two seconds later: a failed connection reloads the files
                                  after one */
    ck_assert_uint_eq(call("GET", "/", NULL), 200);
    put("ca", ca1);
    ck_assert_uint_eq(call("GET", "/", NULL), 200); /* without a failure, after 50 s */
    w.c->now_ms = later_clock;
    ck_assert_uint_eq(call("GET", "/", NULL), 0);
    tls_server_stop(s);
}

TEST(a_status_becomes_an_error_code)
{
    static const struct {
        unsigned status;
        enum err_code code;
    } cases[] = {
        {400, ERR_INVALID},   {401, ERR_UNAUTHORIZED}, {403, ERR_FORBIDDEN},
        {404, ERR_NOT_FOUND}, {405, ERR_INVALID},      {408, ERR_TIMEOUT},
        {409, ERR_CONFLICT},  {410, ERR_GONE},         {413, ERR_TOO_LARGE},
        {415, ERR_INVALID},   {422, ERR_INVALID},      {429, ERR_UNAVAILABLE},
        {500, ERR_INTERNAL},  {502, ERR_INTERNAL},     {503, ERR_UNAVAILABLE},
        {504, ERR_TIMEOUT},   {302, ERR_INTERNAL},     {100, ERR_INTERNAL},
        {0, ERR_INTERNAL},
    };
    array_items(c, cases) {
        struct err err = {0};
        ck_assert_int_eq(kube_reply_check(c->status, SPAN(""), &err), -1);
        ck_assert_msg(err.code == c->code, "%u", c->status);
        cleanup_free char *want = xasprintf("HTTP %u", c->status);
        ck_assert_str_eq(err.msg, want);
        ck_assert_int_eq(kube_reply_check(c->status, SPAN("x"), NULL), -1);
    }
    struct err err = {0};
    ck_assert_int_eq(kube_reply_check(200, SPAN("anything"), &err), 0);
    ck_assert_int_eq(kube_reply_check(201, SPAN(""), &err), 0);
    ck_assert_str_eq(err.msg, "");
}

TEST(the_message_of_a_status_is_kept)
{
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"{\"kind\":\"Status\",\"message\":\"pods \\\"p\\\" is forbidden: User \\\"u\\\" "
         "cannot create resource \\\"pods/binding\\\"\",\"reason\":\"Forbidden\"}",
         "HTTP 403: pods \"p\" is forbidden: User \"u\" cannot create resource "
         "\"pods/binding\""},
        {"{\"kind\":\"Status\",\"message\":\"\",\"reason\":\"Forbidden\"}",
         "HTTP 403: Forbidden"},
        {"{\"kind\":\"Status\",\"message\":\"a\\nb\\u001bc\"}", "HTTP 403: a b c"},
        {"{\"kind\":\"Pod\",\"message\":\"x\"}",
         "HTTP 403 without a Status object: {\"kind\":\"Pod\",\"message\":\"x\"}"},
        {"<html>\r\n\x01\xff", "HTTP 403 without a Status object: <html>   ?"},
        {"{\"kind\":\"Status\"}",
         "HTTP 403 without a Status object: {\"kind\":\"Status\"}"},
        {"[1]", "HTTP 403 without a Status object: [1]"},
        /* The Status of kube-apiserver's timeout filter. */
        {"{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not "
         "complete within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},"
         "\"code\":504}",
         "HTTP 403: Timeout: request did not complete within the allotted timeout"},
        {"{\"status\":\"Success\",\"message\":\"x\"}",
         "HTTP 403 without a Status object: {\"status\":\"Success\",\"message\":\"x\"}"},
        {"{\"kind\":7,\"status\":\"Failure\",\"message\":\"x\"}",
         "HTTP 403 without a Status object: "
         "{\"kind\":7,\"status\":\"Failure\",\"message\":\"x\"}"},
    };
    array_items(c, cases) {
        struct err err = {0};
        ck_assert_int_eq(kube_reply_check(403, span_of(c->body), &err), -1);
        ck_assert_str_eq(err.msg, c->want);
    }
    struct err err = {0};
    cleanup_buf struct buf big = {0};
    for (int i = 0; i < 2 << 20; i++)
        buf_addc(&big, '[');
    ck_assert_int_eq(kube_reply_check(403, buf_span(&big), &err), -1);
    ck_assert_uint_lt(strlen(err.msg), 200);
    big.n = 1 << 20;
    ck_assert_int_eq(kube_reply_check(403, buf_span(&big), &err), -1);
}

/* `kubectl proxy` reports its own errors with status 500, and so do API servers. */
TEST(a_plain_500_of_kubectl_is_a_lost_connection)
{
    static const char status[] = "{\"kind\":\"Status\",\"code\":500}";
    struct span plain = SPAN("dial tcp 10.0.0.1:443: no\trace\n");
    struct err err = {0};
    struct kube_client *proxied = kube_client_proxied("/nonexistent/s", &err);
    start();
    ck_assert(kube_client_lost(proxied, 500, plain, &err));
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert_str_eq(err.msg, "kubectl proxy: dial tcp 10.0.0.1:443: no race");
    ck_assert(!kube_client_lost(proxied, 500, span_of(status), NULL));
    ck_assert(!kube_client_lost(proxied, 502, plain, NULL));
    ck_assert(!kube_client_lost(w.c, 500, plain, NULL));
    kube_client_free(proxied);
}

UNIT_MAIN_AROUND(fixture_begin, end)
