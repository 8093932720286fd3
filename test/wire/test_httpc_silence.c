/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc.h"

#include <stdlib.h>

#include "base/mem.h"
#include "lib/stub.h"
#include "wire/httpc_calls.h"

/* Calls whose peer does not respond or does not read. */

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
    silent_server_init(&silence);
    struct stub *s = stub_start(send_nothing, &silence);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("POST", "{}");
    req.timeout_ms = timeout_ms;
    struct outcome o = call(c, &req);
    ck_assert_int_ge(o.took_ms, timeout_ms - 10);
    if (o.sent) {
        ck_assert_int_eq(o.code, ERR_TIMEOUT);
        req.timeout_ms = TIMEOUT_MS;
        ck_assert_uint_eq(call(c, &req).status, 200);
        ck_assert_uint_eq(stub_connections(s), 2);
        silent_server_end(&silence);
        ck_assert(!silence.was_reset);
    }
    httpc_free(c);
    gate_open(silence.gate);
    stub_stop(s);
    silent_server_fini(&silence);
    return o.sent;
}

START_TEST(no_response_is_a_timeout_and_closes_the_connection)
{
    int64_t timeout_ms = 200;
    while (!times_out_without_response(timeout_ms)) {
        timeout_ms *= 2;
        ck_assert_int_lt(timeout_ms, TIMEOUT_MS);
    }
}
END_TEST

START_TEST(connect_ms_covers_tls_and_nothing_was_sent)
{
    struct silence silence;
    silent_server_init(&silence);
    struct stub *s = stub_start(send_nothing, &silence);
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", stub_port(s));
    struct httpc *c = client_of(url, 200);
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
END_TEST

enum { STUCK = 16 << 20 };

/* Sends far more than the peer reads. Returns how the call and the connection ended. A
 * request that was not sent leaves *silence empty. */
static struct outcome get_unacknowledged(int64_t timeout_ms, int64_t tcp_user_timeout_ms,
                                         struct silence *silence)
{
    silent_server_init(silence);
    struct stub *s = stub_start_narrow(send_nothing, silence);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    cleanup_free char *body = xcalloc(1, STUCK);
    struct httpc_request req = request("POST", NULL);
    req.body = (struct span){body, STUCK};
    req.timeout_ms = timeout_ms;
    req.tcp_user_timeout_ms = tcp_user_timeout_ms;
    struct outcome o = call(c, &req);
    gate_open(silence->gate);
    if (o.sent)
        gate_wait(silence->drained);
    httpc_free(c);
    stub_stop(s);
    silent_server_fini(silence);
    ck_assert_int_eq(o.rc, -1);
    ck_assert_uint_lt(silence->got, STUCK);
    return o;
}

START_TEST(unacknowledged_bytes_reset_the_connection_after_tcp_user_timeout)
{
    struct silence silence;
    struct outcome o = get_unacknowledged(TIMEOUT_MS, 300, &silence);
    ck_assert(o.sent);
    ck_assert_int_ne(o.code, ERR_TIMEOUT);
    ck_assert(silence.was_reset);
}
END_TEST

START_TEST(with_tcp_user_timeout_a_timeout_discards_undelivered_bytes)
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
END_TEST

static void get_unacknowledged_on_reuse(struct stub_conn *conn, void *ctx)
{
    stub_read(conn);
    stub_reply(conn, 200, "", "first");
    send_nothing(conn, ctx);
}

START_TEST(tcp_user_timeout_applies_to_a_reused_connection)
{
    struct silence silence;
    silent_server_init(&silence);
    struct stub *s = stub_start_narrow(get_unacknowledged_on_reuse, &silence);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    cleanup_free char *body = xcalloc(1, STUCK);
    struct httpc_request req = request("POST", "{}");
    req.tcp_user_timeout_ms = 300;
    ck_assert_uint_eq(call(c, &req).status, 200);
    req.body = (struct span){body, STUCK};
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.rc, -1);
    ck_assert(o.sent);
    ck_assert_int_ne(o.code, ERR_TIMEOUT);
    ck_assert_uint_eq(stub_connections(s), 1);
    silent_server_end(&silence);
    ck_assert(silence.was_reset);
    httpc_free(c);
    stub_stop(s);
    silent_server_fini(&silence);
}
END_TEST

START_TEST(calls_with_tcp_user_timeout_have_connections_of_their_own)
{
    struct stub *s = stub_start(stub_echo, (void *)"ok");
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request plain = request("POST", "{}"), safe = plain, safer = plain;
    safe.tcp_user_timeout_ms = 5000;
    safer.tcp_user_timeout_ms = 3000;
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(call(c, &plain).status, 200);
        ck_assert_uint_eq(call(c, &safe).status, 200);
        ck_assert_uint_eq(call(c, &safer).status, 200);
    }
    ck_assert_uint_eq(stub_connections(s), 3);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

UNIT_MAIN("httpc_silence", no_response_is_a_timeout_and_closes_the_connection,
          connect_ms_covers_tls_and_nothing_was_sent,
          unacknowledged_bytes_reset_the_connection_after_tcp_user_timeout,
          with_tcp_user_timeout_a_timeout_discards_undelivered_bytes,
          tcp_user_timeout_applies_to_a_reused_connection,
          calls_with_tcp_user_timeout_have_connections_of_their_own)
