/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/socket.h>

#include "lib/lib.h"
#include "wire/httpd_fixture.h"

/* A limit that most clients keep, and one that ends no connection. */
enum { SHORT_MS = 400, NEVER_MS = 10 * 60 * 1000 };

/* Beginnings of requests that are never complete. */
static const char *const slow_starts[] = {
    "GET /hel",
    "GET /hello HTTP/1.1\r\nHost: x\r\nX: ",
    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
};

enum { STARTS = ARRAY_LEN(slow_starts), AT_LEAST_MS = 300 };

/* Sends a beginning on each connection byte by byte, then 'a' every 20 ms, until the server
 * has closed them all. They were opened after `begin`. */
static void send_slowly(struct raw *c, int64_t begin)
{
    const char *text[STARTS];
    bool ended[STARTS] = {false};
    memcpy(text, slow_starts, sizeof text);
    for (size_t left = STARTS; left;) {
        for (size_t i = 0; i < STARTS; i++) {
            char byte = *text[i] ? *text[i]++ : 'a';
            struct pollfd fd = {.fd = c[i].fd, .events = POLLIN};
            if (ended[i] || (raw_send(&c[i], &byte, 1) && poll(&fd, 1, 0) == 0))
                continue;
            ck_assert_msg(lib_now_ms() - begin >= AT_LEAST_MS, "%s", slow_starts[i]);
            ended[i] = true;
            left--;
        }
        ck_assert_int_lt(lib_now_ms() - begin, LIB_WAIT_MS);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
    }
}

/* A first request, and a later one. */
TEST(a_slow_request_times_out)
{
    const struct httpd_limits limits = {.first_request_ms = SHORT_MS,
                                        .idle_ms = SHORT_MS};
    for (int later = 0; later < 2; later++) {
        FOR_BOTH_SERVERS(&limits)
        {
            struct raw c[STARTS];
            int64_t begin = lib_now_ms();
            for (size_t i = 0; i < STARTS; i++) {
                if (later)
                    fixture_call_in_time(&c[i], SHORT_MS);
                else
                    raw_open(&c[i], kit.port);
            }
            send_slowly(c, begin);
            for (size_t i = 0; i < STARTS; i++)
                raw_close(&c[i]);
            lib_wait(fixture_is_empty());
            ck_assert_int_ge(metric("slow_connections_closed_total"), STARTS);
        }
    }
}

/* Before the first request, and after one. */
TEST(a_connection_without_a_request_times_out)
{
    for (int idle = 0; idle < 2; idle++) {
        const struct httpd_limits limits = {.first_request_ms =
                                                idle ? NEVER_MS : SHORT_MS,
                                            .idle_ms = idle ? SHORT_MS : NEVER_MS};
        FOR_BOTH_SERVERS(&limits)
        {
            struct raw c;
            int64_t begin = lib_now_ms();
            if (idle)
                fixture_call_in_time(&c, SHORT_MS);
            else
                raw_open(&c, kit.port);
            ck_assert(raw_ended(&c));
            ck_assert_int_ge(lib_now_ms() - begin, SHORT_MS);
            raw_close(&c);
        }
    }
}

TEST(a_handler_may_take_longer_than_every_limit)
{
    enum { MOST_MS = 1500 };
    const struct httpd_limits limits = {.first_request_ms = MOST_MS, .idle_ms = MOST_MS};
    fixture_start(HTTPD_THREADS, &limits);
    struct raw a, b;
    struct raw_reply r = {0};
    fixture_send_in_time(&a, "GET /block HTTP/1.1\r\nHost: x\r\n\r\n", MOST_MS,
                         fixture_is_blocked, NULL);
    int64_t begin = lib_now_ms();
    while (lib_now_ms() - begin < 2 * MOST_MS) { /* other clients are not affected */
        fixture_call_in_time(&b, MOST_MS);
        raw_close(&b);
    }
    fixture_release();
    ck_assert_int_eq(raw_read(&a, &r), RAW_OK);
    ck_assert_body(r, "unblocked");
    raw_reply_fini(&r);
    raw_close(&a);
    fixture_fini();
}

TEST(a_client_that_does_not_read_its_reply_is_disconnected)
{
    FOR_BOTH_CLIENTS(&(struct httpd_limits){.first_request_ms = SHORT_MS})
    {
        cleanup_free char *bytes = xmalloc(1 << 20);
        raw_sendf(&c, "GET /big?64 HTTP/1.1\r\nHost: x\r\n\r\n");
        lib_wait(metric("slow_connections_closed_total") == 1);
        while (recv(c.fd, bytes, 1 << 20, 0) > 0) /* what had been sent */
            ;
    }
}

/* Reads a big reply, for longer than idle_ms a little from time to time. False: the
 * machine was too busy for a read in time, and the reply is incomplete. */
static bool read_slowly(enum httpd_mode mode, int64_t idle_ms)
{
    enum { ALL = 64 << 20, PIECE = 64 << 10, MOST = 1 << 20 };
    const struct httpd_limits limits = {.first_request_ms = NEVER_MS, .idle_ms = idle_ms};
    fixture_start(mode, &limits);
    struct raw c;
    struct raw_reply r = {0};
    raw_open(&c, kit.port);
    int64_t begin = lib_now_ms();
    raw_sendf(&c, "GET /big?64 HTTP/1.1\r\nHost: x\r\n\r\n");
    bool open = raw_read_head(&c, &r) == RAW_OK;
    cleanup_free char *bytes = xmalloc(MOST);
    size_t got = c.in.n;
    while (open && got < ALL) {
        bool slow = lib_now_ms() - begin < 2 * idle_ms;
        ssize_t n = recv(c.fd, bytes, slow ? PIECE : MOST, 0);
        open = n > 0;
        got += open ? (size_t)n : 0;
        if (slow)
            nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000}, NULL);
    }
    raw_reply_fini(&r);
    raw_close(&c);
    fixture_fini();
    return open;
}

TEST(a_slow_client_gets_a_big_reply_whole)
{
    FOR_BOTH_MODES(mode)
    {
        int64_t idle_ms = 1500; /* a busy machine gets more */
        while (!read_slowly(mode, idle_ms)) {
            idle_ms *= 2;
            ck_assert_int_lt(idle_ms, LIB_WAIT_MS);
        }
    }
}

/* Bytes after the last request, such as the newline that some clients send after a
 * body, are never read. Closing over them would reset the connection. */
TEST(excess_input_does_not_discard_the_reply)
{
    FOR_BOTH_CLIENTS(NULL)
    {
        raw_sendf(&c, "GET /big?16 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        raw_sendf(&c, "\r\n"); /* while the reply is queued */
        cleanup_buf struct buf body = {0};
        ck_assert_int_eq(raw_read_all(&c, &body), RAW_OK);
        ck_assert_uint_eq(body.n, 16 << 20);
    }
}

UNIT_MAIN(120)
