/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc_fixture.h"

/*
 * Calls that fail: the connection is lost, the peer neither responds nor reads, the response is
 * truncated or too large.
 */

static struct httpc_request request(const char *method, const char *body)
{
    return (struct httpc_request){
        .method = method, .path = "/", .body = span_of(body), .timeout_ms = TIMEOUT_MS};
}

/* The result of a call. */
struct outcome {
    int rc;
    enum err_code code;
    unsigned status;
    bool sent;
    size_t n;
    int64_t took_ms;
    struct err err;
};

static struct outcome call(struct httpc *c, const struct httpc_request *req)
{
    struct outcome o = {0};
    struct httpc_reply reply;
    int64_t start = clock_mono_ms();
    o.rc = httpc_call(c, req, MAX_BODY, &reply, &o.err);
    o.took_ms = clock_mono_ms() - start;
    o.code = o.err.code;
    o.status = reply.status;
    o.sent = reply.sent;
    o.n = reply.body.n;
    httpc_reply_fini(&reply);
    return o;
}

struct closing {
    const char *method, *body;
    unsigned closes; /* so many connections close after a request; the first after two */
    bool with_reset, fails;
    unsigned requests, connections; /* of the server, after the second call */
};

static void close_early(struct stub_conn *conn, void *ctx)
{
    const struct closing *how = ctx;
    if (conn->index >= how->closes) {
        stub_echo(conn, (void *)"again");
        return;
    }
    stub_read(conn);
    if (conn->index == 0) {
        stub_reply(conn, 200, "", "first");
        stub_read(conn);
    }
    if (how->with_reset)
        stub_reset_at_close(conn);
}

/* On a connection that is reused. */
TEST(only_a_get_is_sent_again_and_once)
{
    static const struct closing cases[] = {
        {"POST", "{\"x\":1}", 1, false, true, 2, 1},
        {"POST", NULL, 1, true, true, 2, 1},
        {"DELETE", NULL, 1, false, true, 2, 1},
        {"DELETE", NULL, 1, true, true, 2, 1},
        {"PATCH", "{}", 1, false, true, 2, 1},
        {"PUT", "{}", 1, true, true, 2, 1},
        {"GET", NULL, 1, false, false, 3, 2},
        {"GET", NULL, 2, false, true, 3, 2},
    };
    array_items(p, cases) {
        FOR_CLIENT(close_early, (void *)(uintptr_t)p)
        {
            struct httpc_request req = request(p->method, p->body);
            ck_assert_uint_eq(call(c, &req).status, 200);
            struct outcome o = call(c, &req);
            ck_assert_int_eq(o.code, p->fails ? ERR_UNAVAILABLE : ERR_NONE);
            ck_assert(o.sent);
            ck_assert_uint_eq(stub_requests(s), p->requests);
            ck_assert_uint_eq(stub_connections(s), p->connections);
            ck_assert_uint_eq(call(c, &req).status, 200); /* the client remains usable */
        }
    }
}

TEST(a_refused_connection_is_known_not_to_have_sent)
{
    struct stub *s = stub_start(stub_echo, (void *)"ok");
    cleanup_free char *url = xstrdup(stub_url(s));
    stub_stop(s);
    struct httpc *c = client_of(url);
    struct httpc_request req = request("POST", "{}");
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
    ck_assert(!o.sent);
    ck_assert_msg(strstr(o.err.msg, "POST http://127.0.0.1:") == o.err.msg, "%s",
                  o.err.msg);
    httpc_free(c);
}

static struct clock_deadline in_ms(int64_t ms)
{
    int64_t now = clock_mono_ms();
    return (struct clock_deadline){now + ms, clock_offset_ms(now, clock_wall_ns())};
}

TEST(a_request_after_its_deadline_is_not_sent)
{
    FOR_CLIENT(stub_echo, (void *)"ok")
    {
        struct httpc_request req = request("POST", "{}");
        req.send_by = in_ms(-1);
        struct outcome o = call(c, &req);
        ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
        ck_assert(!o.sent);
        lib_wait(stub_connections(s) == 1); /* it is checked after connect */
        ck_assert_uint_eq(stub_requests(s), 0);
        req.send_by = in_ms(10000);
        ck_assert_uint_eq(call(c, &req).status, 200);
        req.send_by = in_ms(-1); /* on a reused connection, too */
        ck_assert(!call(c, &req).sent);
        req.send_by = in_ms(10000);
        req.send_by.offset_ms -= 5000; /* one clock was stopped for five seconds */
        ck_assert(!call(c, &req).sent);
        ck_assert_uint_eq(stub_requests(s), 1);
    }
}

struct silence {
    struct gate *gate, *drained;
    size_t got;
    bool was_reset;
};

static void silent_server_init(struct silence *silence)
{
    *silence = (struct silence){.gate = gate_new(), .drained = gate_new()};
}

/* Lets the server read until end of file. */
static void silent_server_end(struct silence *silence)
{
    gate_open(silence->gate);
    gate_wait(silence->drained);
}

static void silent_server_fini(struct silence *silence)
{
    gate_free(silence->gate);
    gate_free(silence->drained);
}

/* The first connection sends nothing until the gate opens, and then reads its input.
 */
static void send_nothing(struct stub_conn *conn, void *ctx)
{
    struct silence *silence = ctx;
    if (conn->index) {
        stub_echo(conn, (void *)"ok");
        return;
    }
    gate_wait(silence->gate);
    silence->got = stub_drain(conn, &silence->was_reset);
    gate_open(silence->drained);
}

/* False: the machine was too busy to send the request within the limit. */
static bool times_out_without_response(int64_t timeout_ms)
{
    struct silence silence;
    struct outcome o = {0};
    silent_server_init(&silence);
    FOR_CLIENT(send_nothing, &silence)
    {
        struct httpc_request req = request("POST", "{}");
        req.timeout_ms = timeout_ms;
        o = call(c, &req);
        ck_assert_int_ge(o.took_ms, timeout_ms - 10);
        if (o.sent) {
            ck_assert_int_eq(o.code, ERR_TIMEOUT);
            req.timeout_ms = TIMEOUT_MS;
            ck_assert_uint_eq(call(c, &req).status, 200);
            ck_assert_uint_eq(stub_connections(s), 2);
            silent_server_end(&silence);
            ck_assert(!silence.was_reset);
        }
        gate_open(silence.gate);
    }
    silent_server_fini(&silence);
    return o.sent;
}

TEST(no_response_is_a_timeout_and_closes_the_connection)
{
    int64_t timeout_ms = 200;
    while (!times_out_without_response(timeout_ms)) {
        timeout_ms *= 2;
        ck_assert_int_lt(timeout_ms, TIMEOUT_MS);
    }
}

TEST(connect_ms_covers_tls_and_nothing_was_sent)
{
    struct silence silence;
    silent_server_init(&silence);
    struct stub *s = stub_start(send_nothing, &silence);
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", stub_port(s));
    struct httpc *c = client_with(&(struct httpc_config){.url = url, .connect_ms = 200});
    struct httpc_request req = request("POST", "{}");
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
    ck_assert(!o.sent);
    ck_assert_int_ge(o.took_ms, 190);
    silent_server_end(&silence);
    httpc_free(c);
    stub_stop(s);
    silent_server_fini(&silence);
}

enum { STUCK = 16 << 20 };

/* Sends far more than the peer reads. Returns how the call and the connection ended. A
 * request that was not sent leaves *silence empty. */
static struct outcome get_unacknowledged(int64_t timeout_ms, int64_t tcp_user_timeout_ms,
                                         struct silence *silence)
{
    struct outcome o = {0};
    silent_server_init(silence);
    FOR_NARROW(send_nothing, silence)
    {
        cleanup_free char *body = xcalloc(1, STUCK);
        struct httpc_request req = request("POST", NULL);
        req.body = (struct span){body, STUCK};
        req.timeout_ms = timeout_ms;
        req.tcp_user_timeout_ms = tcp_user_timeout_ms;
        o = call(c, &req);
        gate_open(silence->gate);
        if (o.sent)
            gate_wait(silence->drained);
    }
    silent_server_fini(silence);
    ck_assert_int_eq(o.rc, -1);
    ck_assert_uint_lt(silence->got, STUCK);
    return o;
}

TEST(with_tcp_user_timeout_a_timeout_discards_undelivered_bytes)
{
    struct silence given_up = {0}, closed = {0};
    /* A busy machine needs more time to fill the buffers of both sockets. */
    for (int64_t timeout_ms = 300; closed.got <= given_up.got; timeout_ms *= 2) {
        ck_assert_int_lt(timeout_ms, TIMEOUT_MS);
        struct outcome o = get_unacknowledged(timeout_ms, TIMEOUT_MS, &given_up);
        ck_assert(!o.sent || o.code == ERR_TIMEOUT);
        ck_assert(!o.sent || given_up.was_reset);
        /* Without tcp_user_timeout_ms, the kernel still delivers the buffered bytes. */
        o = get_unacknowledged(timeout_ms, 0, &closed);
        ck_assert(!o.sent || o.code == ERR_TIMEOUT);
        ck_assert(!closed.was_reset);
    }
}

TEST(calls_with_tcp_user_timeout_have_connections_of_their_own)
{
    FOR_CLIENT(stub_echo, (void *)"ok")
    {
        struct httpc_request plain = request("POST", "{}"), safe = plain, safer = plain;
        safe.tcp_user_timeout_ms = 5000;
        safer.tcp_user_timeout_ms = 3000;
        for (int i = 0; i < 5; i++) {
            ck_assert_uint_eq(call(c, &plain).status, 200);
            ck_assert_uint_eq(call(c, &safe).status, 200);
            ck_assert_uint_eq(call(c, &safer).status, 200);
        }
        ck_assert_uint_eq(stub_connections(s), 3);
    }
}

static void send_all_lines(struct stub_conn *conn, void *ctx)
{
    stub_read(conn);
    stub_printf(conn, "%s", (const char *)ctx);
}

TEST(a_truncated_response_is_an_error)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "not HTTP at all\r\n\r\n",
        "",
    };
    array_indices(i, answers) {
        FOR_CLIENT(send_all_lines, (void *)answers[i])
        {
            struct httpc_request req = request("POST", "{}");
            struct outcome o = call(c, &req);
            ck_assert_msg(o.code == ERR_UNAVAILABLE, "case %zu: %s", i, o.err.msg);
            ck_assert(o.sent);
            ck_assert_uint_eq(o.status, 0);
            ck_assert_uint_eq(o.n, 0);
        }
    }
}

/* n zeros, compressed with gzip. */
static struct buf zip_zeros(size_t n)
{
    cleanup_free char *command = xasprintf("head -c %zu /dev/zero | gzip -9", n);
    struct buf out = {0};
    char piece[4096];
    FILE *f = popen(command, "r");
    ck_assert(f != NULL);
    size_t got = fread(piece, 1, sizeof piece, f);
    for (; got; got = fread(piece, 1, sizeof piece, f))
        buf_add(&out, piece, got);
    ck_assert_int_eq(pclose(f), 0);
    return out;
}

static void send_zipped(struct stub_conn *conn, void *ctx)
{
    struct buf *zipped = ctx;
    while (stub_read(conn)) {
        stub_printf(
            conn,
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
            zipped->n);
        stub_send(conn, zipped->p, zipped->n);
    }
}

TEST(a_decompression_bomb_is_truncated)
{
    cleanup_buf struct buf zipped = zip_zeros(64 << 20);
    ck_assert_uint_lt(zipped.n, 1 << 18);
    FOR_CLIENT(send_zipped, &zipped)
    {
        struct httpc_request req = request("GET", NULL);
        req.gzip = true;
        struct outcome o = call(c, &req);
        ck_assert_int_eq(o.code, ERR_TOO_LARGE);
        ck_assert_uint_eq(o.n, MAX_BODY);
    }
}
