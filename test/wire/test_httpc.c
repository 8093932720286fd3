/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>

#include "wire/httpc_fixture.h"

static struct httpc_request request(const char *method, const char *path,
                                    const char *body)
{
    return (struct httpc_request){.method = method,
                                  .path = path,
                                  .body = span_of(body),
                                  .content_type = body ? "application/json" : NULL,
                                  .timeout_ms = TIMEOUT_MS};
}

/* Makes the call, which must succeed with 200 and this body. */
static void call_ok(struct httpc *c, const struct httpc_request *req, const char *want)
{
    struct httpc_reply reply;
    struct err err = {0};
    ck_assert_done(httpc_call(c, req, MAX_BODY, &reply, &err), err);
    ck_assert_uint_eq(reply.status, 200);
    ck_assert(reply.sent);
    ck_assert_span_eq(buf_span(&reply.body), want);
    httpc_reply_fini(&reply);
}

/* Makes the call, which must fail. */
static enum err_code call_fails(struct httpc *c, const struct httpc_request *req,
                                bool *sent)
{
    struct httpc_reply reply;
    struct err err = {0};
    ck_assert_int_eq(httpc_call(c, req, MAX_BODY, &reply, &err), -1);
    ck_assert_uint_eq(reply.status, 0);
    ck_assert_uint_eq(reply.body.n, 0);
    ck_assert_str_ne(err.msg, "");
    *sent = reply.sent;
    httpc_reply_fini(&reply);
    return err.code;
}

static bool has_line(const char *request, const char *line)
{
    cleanup_free char *full = xasprintf("\r\n%s\r\n", line);
    return strstr(request, full) != NULL;
}

TEST(a_call_sends_the_request_and_returns_the_response)
{
    FOR_CLIENT(stub_echo, (void *)"{\"a\":1}")
    {
        struct httpc_request req = request("POST", "/a/../b?c=%20d", "{\"x\":[]}");
        req.authorization = "Bearer abc";
        call_ok(c, &req, "{\"a\":1}");
        cleanup_free char *got = stub_request(s, 0);
        cleanup_free char *host = xasprintf("Host: 127.0.0.1:%u", stub_port(s));
        ck_assert(strstr(got, "POST /a/../b?c=%20d HTTP/1.1\r\n") == got);
        ck_assert(has_line(got, host));
        ck_assert(has_line(got, "User-Agent: test/1"));
        ck_assert(has_line(got, "Accept: application/json"));
        ck_assert(has_line(got, "Authorization: Bearer abc"));
        ck_assert(has_line(got, "Content-Type: application/json"));
        ck_assert(has_line(got, "Content-Length: 8"));
        ck_assert_contains(got, "\r\n\r\n{\"x\":[]}");
        ck_assert(strcasestr(got, "Expect") == NULL);
    }
}

TEST(every_method_has_the_right_headers_and_body)
{
    static const struct {
        const char *method, *body, *length;
    } cases[] = {
        {"POST", "{}", "Content-Length: 2"},
        {"GET", NULL, NULL},
        {"PUT", "{}", "Content-Length: 2"},
        {"DELETE", NULL, NULL},
        {"PATCH", "{}", "Content-Length: 2"},
        {"DELETE", "{}", "Content-Length: 2"},
        {"POST", NULL, "Content-Length: 0"},
        {"PUT", NULL, "Content-Length: 0"},
        {"GET", NULL, NULL},
    };
    FOR_CLIENT(stub_echo, (void *)"ok")
    {
        for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
            struct httpc_request req = request(cases[i].method, "/p", cases[i].body);
            call_ok(c, &req, "ok");
            cleanup_free char *got = stub_request(s, i);
            cleanup_free char *line = xasprintf("%s /p HTTP/1.1\r\n", cases[i].method);
            ck_assert_msg(strstr(got, line) == got, "%s", got);
            if (cases[i].length)
                ck_assert_msg(has_line(got, cases[i].length), "%s", got);
            else
                ck_assert_lacks(got, "Content-Length");
            ck_assert_lacks(got, "urlencoded");
            ck_assert(!cases[i].body == !strstr(got, "Content-Type"));
        }
        ck_assert_uint_eq(stub_connections(s), 1);
    }
}

static void respond_to_head(struct stub_conn *conn, void *ctx)
{
    (void)ctx;
    stub_read(conn);
    stub_printf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
    stub_echo(conn, (void *)"ok");
}

TEST(head_has_a_response_without_a_body)
{
    FOR_CLIENT(respond_to_head, NULL)
    {
        struct httpc_request req = request("HEAD", "/", NULL);
        call_ok(c, &req, "");
        req = request("POST", "/", "x");
        call_ok(c, &req, "ok");
        ck_assert_uint_eq(stub_connections(s), 1);
    }
}

TEST(a_malformed_request_is_rejected_and_not_sent)
{
    FOR_CLIENT(stub_echo, (void *)"ok")
    {
        static const char *const paths[] = {
            "",         "x",    "http://other/", "/a b",     "/a\n",
            "/a\r\nX:", "/a#b", "/\x7f",         "/\xc3\xa4"};
        bool sent;
        array_items(p, paths) {
            struct httpc_request req = request("GET", *p, NULL);
            ck_assert_msg(call_fails(c, &req, &sent) == ERR_INVALID, "\"%s\"", *p);
            ck_assert(!sent);
        }
        static const struct httpc_request bad[] = {
            {.method = "GET", .path = "/", .authorization = "Bearer a\r\nX: y"},
        };
        array_indices(i, bad) {
            ck_assert_msg(call_fails(c, &bad[i], &sent) == ERR_INVALID, "case %zu", i);
            ck_assert(!sent);
        }
        struct httpc_request req = request("GET", "/", NULL);
        call_ok(c, &req, "ok");
        ck_assert_uint_eq(stub_requests(s), 1);
    }
}

TEST(a_bad_configuration_is_rejected)
{
    static const struct httpc_config bad[] = {
        {.url = ""},
        {.url = "ftp://h"},
        {.url = "https://h/path"},
        {.url = "https://h?q"},
        {.url = "https://u:p@h"},
        {.url = "https://h:99999"},
        {.url = "https://h b"},
        {.url = "https://h#f"},
        {.url = "https://h", .cert_pem = SPAN("x")},
        {.url = "https://h", .key_pem = SPAN("x")},
        {.url = "https://h", .server_name = ""},
        {.url = "https://h", .server_name = "a/b"},
        {.url = "https://h", .server_name = "a\nb"},
    };
    array_indices(i, bad) {
        struct err err = {0};
        ck_assert_msg(!httpc_new(&bad[i], &err), "case %zu", i);
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_lacks(err.msg, "u:p");
    }
}

TEST(a_proxy_is_used_only_if_configured)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("all_proxy", "http://127.0.0.1:1", 1);
    setenv("no_proxy", "*", 1);
    FOR_CLIENT(stub_echo, (void *)"ok")
    {
        struct httpc_request req = request("GET", "/direct", NULL);
        call_ok(c, &req, "ok");
        httpc_free(c);

        c = client_with(
            &(struct httpc_config){.url = "http://api.invalid:81", .proxy = stub_url(s)});
        req.path = "/through";
        call_ok(c, &req, "ok");
        cleanup_free char *got = stub_request(s, 1);
        ck_assert(strstr(got, "GET http://api.invalid:81/through HTTP/1.1\r\n") == got);
    }
}

/* Responds once a request of each thread has arrived. */
struct crowd {
    pthread_barrier_t all;
    atomic_uint open;
};

enum { CROWD = 6, CALLS = 30, BURST = 128 };

static void serve_many(struct stub_conn *conn, void *ctx)
{
    struct crowd *crowd = ctx;
    atomic_fetch_add(&crowd->open, 1);
    while (stub_read(conn)) {
        pthread_barrier_wait(&crowd->all);
        stub_reply(conn, 200, "", "ok");
    }
    atomic_fetch_sub(&crowd->open, 1);
}

static void *call_once(void *ctx)
{
    struct httpc_request req = request("GET", "/", NULL);
    call_ok(ctx, &req, "ok");
    return NULL;
}

static void *call_often(void *ctx)
{
    for (int i = 0; i < CALLS; i++)
        call_once(ctx);
    return NULL;
}

static void run_threads(size_t n, void *(*fn)(void *ctx), void *ctx)
{
    pthread_t threads[BURST];
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, ctx), 0);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

TEST(threads_share_a_client_and_idle_connections_are_limited)
{
    struct crowd crowd = {0};
    pthread_barrier_init(&crowd.all, NULL, CROWD);
    struct stub *s = stub_start(serve_many, &crowd);
    struct httpc *c = client_with(&(struct httpc_config){
        .url = stub_url(s), .connect_ms = 5000, .idle_max = 2, .idle_ms = 300});
    run_threads(CROWD, call_often, c);
    ck_assert_uint_eq(stub_requests(s), CROWD * CALLS);
    ck_assert_uint_ge(stub_connections(s), CROWD);
    lib_wait(atomic_load(&crowd.open) <= 2);
    lib_wait((httpc_close_idle(c), atomic_load(&crowd.open) == 0));
    httpc_free(c);
    stub_stop(s);
    pthread_barrier_destroy(&crowd.all);
}

/* As many Bindings as the extender makes at once, which has 128 handlers. */
TEST(a_burst_uses_the_connections_of_the_burst_before_it)
{
    struct crowd crowd = {0};
    pthread_barrier_init(&crowd.all, NULL, BURST);
    FOR_CLIENT(serve_many, &crowd)
    {
        for (int burst = 0; burst < 3; burst++)
            run_threads(BURST, call_once, c);
        ck_assert_uint_eq(stub_requests(s), 3 * BURST);
        ck_assert_uint_eq(stub_connections(s), BURST);
    }
    pthread_barrier_destroy(&crowd.all);
}

/* Answers the first request, and never another. */
static void answer_once(struct stub_conn *conn, void *ctx)
{
    bool was_reset;
    stub_read(conn);
    stub_reply(conn, 200, "", "ok");
    stub_read(conn);
    stub_drain(conn, &was_reset);
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static bool has_gone_later(void *ctx)
{
    return atomic_fetch_add((atomic_int *)ctx, 1) > 2;
}

static bool is_there(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    return false;
}

TEST(a_call_whose_caller_has_gone_is_given_up)
{
    atomic_int closed = 0, asked = 0;
    bool sent;
    FOR_CLIENT(answer_once, &closed)
    {
        struct httpc_request req = request("POST", "/bind", "{}");
        req.gone = is_there;
        req.gone_ctx = &asked;
        call_ok(c, &req, "ok");
        atomic_store(&asked, 0);
        req.gone = has_gone_later;
        ck_assert_int_eq(call_fails(c, &req, &sent), ERR_UNAVAILABLE);
        ck_assert(sent);
        lib_wait(atomic_load(&closed) == 1); /* the server sees it */
        int before = atomic_load(&asked);
        req.gone = NULL; /* a handle of the pool forgets it */
        call_ok(c, &req, "ok");
        ck_assert_int_eq(atomic_load(&asked), before);
        ck_assert_uint_eq(stub_connections(s), 2);
    }
}
