/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "lib/stub.h"
#include "wire/httpc_calls.h"

/* Calls with truncated or too large responses. */

static void send_all_lines(struct stub_conn *conn, void *ctx)
{
    stub_read(conn);
    stub_printf(conn, "%s", (const char *)ctx);
}

START_TEST(a_truncated_response_is_an_error)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "not HTTP at all\r\n\r\n",
        "",
    };
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct stub *s = stub_start(send_all_lines, (void *)answers[i]);
        struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
        struct httpc_request req = request("POST", "{}");
        struct outcome o = call(c, &req);
        ck_assert_msg(o.code == ERR_UNAVAILABLE, "case %zu: %s", i, o.err.msg);
        ck_assert(o.sent);
        ck_assert_uint_eq(o.status, 0);
        ck_assert_uint_eq(o.n, 0);
        httpc_free(c);
        stub_stop(s);
    }
}
END_TEST

/* Sends data until the client disconnects. */
static void send_until_closed(struct stub_conn *conn, void *ctx)
{
    cleanup_free char *piece = xcalloc(1, 65536);
    stub_read(conn);
    stub_printf(conn, "HTTP/1.1 200 OK\r\n%s\r\n", (const char *)ctx);
    for (int i = 0; i < 1000; i++) {
        stub_printf(conn, "10000\r\n");
        stub_send(conn, piece, 65536);
        stub_printf(conn, "\r\n");
    }
}

START_TEST(a_body_is_truncated_at_its_limit)
{
    struct stub *s =
        stub_start(send_until_closed, (void *)"Transfer-Encoding: chunked\r\n");
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("GET", NULL);
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(o.status, 200);
    ck_assert_uint_eq(o.n, MAX_BODY);
    ck_assert_uint_eq(stub_requests(s), 1);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

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

START_TEST(a_decompression_bomb_is_truncated)
{
    cleanup_buf struct buf zipped = zip_zeros(64 << 20);
    ck_assert_uint_lt(zipped.n, 1 << 18);
    struct stub *s = stub_start(send_zipped, &zipped);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("GET", NULL);
    req.gzip = true;
    struct outcome o = call(c, &req);
    ck_assert_int_eq(o.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(o.n, MAX_BODY);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

START_TEST(a_compressed_response_of_exactly_the_limit_is_accepted)
{
    cleanup_buf struct buf zipped = zip_zeros(MAX_BODY);
    struct stub *s = stub_start(send_zipped, &zipped);
    struct httpc *c = client_of(stub_url(s), TIMEOUT_MS);
    struct httpc_request req = request("GET", NULL);
    req.gzip = true;
    struct outcome o = call(c, &req);
    ck_assert_msg(o.rc == 0, "%s", o.err.msg);
    ck_assert_uint_eq(o.n, MAX_BODY);
    cleanup_free char *got = stub_request(s, 0);
    ck_assert(strstr(got, "\r\nAccept-Encoding: gzip\r\n") != NULL);
    req.gzip = false;
    ck_assert_uint_eq(call(c, &req).n, zipped.n);
    cleanup_free char *plain = stub_request(s, 1);
    ck_assert(strstr(plain, "Accept-Encoding") == NULL);
    httpc_free(c);
    stub_stop(s);
}
END_TEST

UNIT_MAIN("httpc_limit", a_truncated_response_is_an_error,
          a_body_is_truncated_at_its_limit, a_decompression_bomb_is_truncated,
          a_compressed_response_of_exactly_the_limit_is_accepted)
