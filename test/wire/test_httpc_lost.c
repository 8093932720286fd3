/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "lib/stub.h"
#include "wire/httpc_calls.h"

/* Calls whose connection is lost or fails. */

/* The first connection sends one response, reads a second request and closes. All others
 * answer. */
static void close_on_the_second(struct stub_conn *conn, void *ctx)
{
    bool *with_reset = ctx;
    if (conn->index) {
        stub_echo(conn, (void *)"again");
        return;
    }
    stub_read(conn);
    stub_reply(conn, 200, "", "first");
    stub_read(conn);
    if (*with_reset)
        stub_reset_at_close(conn);
}

START_TEST(a_write_is_never_retried_on_another_connection)
{
    static const struct {
        const char *method, *body;
    } cases[] = {
        {"POST", "{\"x\":1}"}, {"POST", NULL}, {"DELETE", NULL}, {"PATCH", "{}"}};
    for (size_t i = 0; i < ARRAY_LEN(cases) * 2; i++) {
        bool with_reset = i % 2;
        struct stub *s = stub_start(close_on_the_second, &with_reset);
        struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
        struct httpc_request req = request(cases[i / 2].method, cases[i / 2].body);
        ck_assert_uint_eq(call(c, &req).status, 200);
        struct outcome o = call(c, &req);
        ck_assert_int_eq(o.rc, -1);
        ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
        ck_assert(o.sent);
        ck_assert_uint_eq(stub_requests(s), 2);
        ck_assert_uint_eq(stub_connections(s), 1);
        ck_assert_uint_eq(call(c, &req).status, 200); /* the client remains usable */
        ck_assert_uint_eq(stub_requests(s), 3);
        httpc_free(c);
        stub_stop(s);
    }
}
END_TEST

START_TEST(a_get_is_retried_once_when_a_reused_connection_closes)
{
    bool with_reset = false;
    struct stub *s = stub_start(close_on_the_second, &with_reset);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("GET", NULL);
    ck_assert_uint_eq(call(c, &req).status, 200);
    struct outcome o = call(c, &req);
    ck_assert_msg(o.rc == 0, "%s", o.err.msg);
    ck_assert(o.sent);
    ck_assert_uint_eq(stub_requests(s), 3);
    ck_assert_uint_eq(stub_connections(s), 2);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

static void respond_once_per_connection(struct stub_conn *conn, void *ctx)
{
    (void)ctx;
    stub_read(conn);
    if (conn->index == 0) {
        stub_reply(conn, 200, "", "first");
        stub_read(conn);
    }
}

START_TEST(a_get_is_not_retried_more_than_once)
{
    struct stub *s = stub_start(respond_once_per_connection, NULL);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("GET", NULL);
    ck_assert_uint_eq(call(c, &req).status, 200);
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
    ck_assert(o.sent);
    ck_assert_uint_eq(stub_requests(s), 3);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

/* Responds once and closes in the middle of the second request's body. */
static void close_in_the_body(struct stub_conn *conn, void *ctx)
{
    struct gate *seen = ctx;
    char byte;
    stub_read(conn);
    stub_reply(conn, 200, "", "first");
    if (recv(conn->fd, &byte, 1, 0) == 1)
        gate_open(seen);
    stub_reset_at_close(conn);
}

START_TEST(a_partly_sent_body_is_not_sent_again)
{
    enum { SIZE = 8 << 20 };
    struct gate *seen = gate_new();
    struct stub *s = stub_start_narrow(close_in_the_body, seen);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    cleanup_free char *body = xcalloc(1, SIZE + 1);
    memset(body, 'b', SIZE);
    struct httpc_request req = request("POST", "small");
    ck_assert_uint_eq(call(c, &req).status, 200);
    req.body = (struct span){body, SIZE};
    struct outcome o = call(c, &req);
    gate_wait(seen);
    ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
    ck_assert(o.sent);
    ck_assert_uint_eq(stub_connections(s), 1);
    httpc_free(c);
    stub_stop(s);
    gate_free(seen);
}
END_TEST

START_TEST(a_refused_connection_is_known_not_to_have_sent)
{
    struct stub *s = stub_start(stub_echo, (void *)"ok");
    cleanup_free char *url = xstrdup(stub_url(s));
    stub_stop(s);
    struct httpc *c = client_of(url, TIMEOUT_MS);
    struct httpc_request req = request("POST", "{}");
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
    ck_assert(!o.sent);
    ck_assert_msg(strstr(o.err.msg, "POST http://127.0.0.1:") == o.err.msg, "%s",
                  o.err.msg);
    httpc_free(c);
}
END_TEST

static struct clock_deadline in_ms(int64_t ms)
{
    int64_t now = clock_mono_ms();
    return (struct clock_deadline){now + ms, clock_offset_ms(now, clock_wall_ns())};
}

START_TEST(a_request_after_its_deadline_is_not_sent)
{
    struct stub *s = stub_start(stub_echo, (void *)"ok");
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("POST", "{}");
    req.send_by = in_ms(-1);
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_UNAVAILABLE);
    ck_assert(!o.sent);
    wait_for(stub_connections(s) == 1); /* it is checked after connect */
    ck_assert_uint_eq(stub_requests(s), 0);
    req.send_by = in_ms(10000);
    ck_assert_uint_eq(call(c, &req).status, 200);
    req.send_by = in_ms(-1); /* on a reused connection, too */
    ck_assert(!call(c, &req).sent);
    req.send_by = in_ms(10000);
    req.send_by.offset_ms -= 5000; /* one clock was stopped for five seconds */
    ck_assert(!call(c, &req).sent);
    ck_assert_uint_eq(stub_requests(s), 1);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

/* Responds once, closes, and signals that. On the first connection it sends
 * unexpected bytes before. */
static void respond_and_close(struct stub_conn *conn, void *ctx)
{
    struct gate **left = ctx;
    if (conn->index > 2) {
        stub_echo(conn, (void *)"ok");
        return;
    }
    stub_read(conn);
    stub_reply(conn, 200, "", "ok");
    if (conn->index == 0)
        stub_printf(conn, "HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n");
    if (conn->index == 1)
        shutdown(conn->fd, SHUT_RDWR);
    if (conn->index < 2) {
        gate_open(left[conn->index]);
        stub_read(conn);
    }
}

START_TEST(a_connection_with_unexpected_input_is_not_reused)
{
    struct gate *left[2] = {gate_new(), gate_new()};
    struct stub *s = stub_start(respond_and_close, left);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("POST", "{}");
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(call(c, &req).status, 200);
        ck_assert_uint_eq(stub_requests(s), i + 1);
        ck_assert_uint_eq(stub_connections(s), i + 1);
        if (i < 2)
            gate_wait(left[i]);
    }
    httpc_free(c);
    stub_stop(s);
    gate_free(left[0]);
    gate_free(left[1]);
}
END_TEST

UNIT_MAIN("httpc_lost", a_connection_with_unexpected_input_is_not_reused,
          a_write_is_never_retried_on_another_connection,
          a_get_is_retried_once_when_a_reused_connection_closes,
          a_get_is_not_retried_more_than_once, a_partly_sent_body_is_not_sent_again,
          a_refused_connection_is_known_not_to_have_sent,
          a_request_after_its_deadline_is_not_sent)
