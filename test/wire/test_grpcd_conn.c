/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "wire/grpc_fixture.h"
#include "wire/grpcd_priv.h"

/*
 * A connection of the server without a socket. The test makes the frames of the client
 * and sets the time.
 */

enum { END = NGHTTP2_FLAG_END_STREAM, ACK = NGHTTP2_FLAG_ACK };

static const char call_head[] = ":method: POST\n:scheme: http\n:path: /t.T/Echo\n"
                                ":authority: localhost\nte: trailers\n"
                                "content-type: application/grpc\n";

struct peer {
    struct grpcd *d;
    struct grpcd_conn *c;
    struct words words;
    struct buf out; /* frames for the server */
    int64_t now_ms;
    struct grpcd_call *parked; /* the last call of Park or Watch; NULL: canceled */
    unsigned n_started, n_cancelled;
};

static void echo(void *ctx, struct grpcd_call *call, struct span request)
{
    struct peer *p = ctx;
    struct buf reply = {0};
    p->n_started++;
    buf_add_span(&reply, request);
    grpcd_reply(call, &reply);
}

static void park(void *ctx, struct grpcd_call *call, struct span request)
{
    struct peer *p = ctx;
    (void)request;
    p->n_started++;
    p->parked = call;
}

static void on_cancel(void *ctx, struct grpcd_call *call)
{
    struct peer *p = ctx;
    p->n_cancelled++;
    p->parked = NULL;
    grpcd_end(call, GRPC_CANCELLED, "%s", "");
}

static const struct grpcd_method methods[] = {
    {.path = "/t.T/Echo", .start = echo},
    {.path = "/t.T/Park", .start = park, .on_cancel = on_cancel},
    {.path = "/t.T/Watch", .stream = true, .start = park, .on_cancel = on_cancel},
    {0},
};

static void peer_begin(struct peer *p, struct grpcd_limits limits)
{
    *p = (struct peer){.now_ms = 1000000};
    p->d =
        grpcd_new(&(struct grpcd_config){.methods = methods, .ctx = p, .limits = limits});
    p->c = grpcd_conn_new(p->d, p->now_ms);
    words_init(&p->words);
    buf_adds(&p->out, NGHTTP2_CLIENT_MAGIC);
    frame(&p->out, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
}

static void peer_end(struct peer *p)
{
    grpcd_conn_free(p->c);
    ck_assert_uint_eq(p->d->request_bytes, 0);
    ck_assert_uint_eq(p->d->stats.calls, 0);
    grpcd_call_flush(p->d, p->now_ms);
    ck_assert_uint_eq(p->d->refs, 1);
    grpcd_free(p->d);
    words_fini(&p->words);
    buf_fini(&p->out);
}

/* The server's output as text. */
static const char *output_of(struct peer *p)
{
    const uint8_t *bytes;
    ssize_t n;
    grpcd_call_flush(p->d, p->now_ms);
    grpcd_conn_tick(p->c, p->now_ms);
    buf_clear(&p->words.text);
    while ((n = nghttp2_session_mem_send(p->c->session, &bytes)) > 0)
        words_add(&p->words, (struct span){(const char *)bytes, (size_t)n});
    return p->words.text.p ? p->words.text.p : "";
}

/* Feeds p->out and returns the server's output as text. */
static const char *exchange(struct peer *p)
{
    grpcd_conn_feed(p->c, (const uint8_t *)p->out.p, p->out.n, p->now_ms);
    buf_clear(&p->out);
    return output_of(p);
}

static void request(struct peer *p, uint32_t id, const char *head, struct span bytes)
{
    headers(&p->out, 0, id, head);
    message(&p->out, END, id, bytes);
}

static const char ok[] = "HEADERS 1 :status=200 content-type=application/grpc\n"
                         "DATA 1 7\nHEADERS 1 grpc-status=0 end\n";

START_TEST(a_call_in_frames)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    request(&p, 1, call_head, SPAN("hi"));
    ck_assert_str_eq(exchange(&p), ok);
    ck_assert_uint_eq(p.n_started, 1);
    peer_end(&p);
}
END_TEST

START_TEST(a_call_in_single_bytes)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    headers(&p.out, 0, 1, call_head);
    frame(&p.out, NGHTTP2_DATA, 0, 1, SPAN("\0\0"));
    frame(&p.out, NGHTTP2_DATA, 0, 1, SPAN("\0\0\2h"));
    frame(&p.out, NGHTTP2_DATA, 0, 1, SPAN("i"));
    frame(&p.out, NGHTTP2_DATA, END, 1, SPAN(""));
    for (size_t i = 0; i + 1 < p.out.n; i++)
        grpcd_conn_feed(p.c, (const uint8_t *)p.out.p + i, 1, p.now_ms);
    ck_assert_str_eq(output_of(&p), "");
    grpcd_conn_feed(p.c, (const uint8_t *)p.out.p + p.out.n - 1, 1, p.now_ms);
    ck_assert_str_eq(output_of(&p), ok);
    peer_end(&p);
}
END_TEST

START_TEST(any_printable_authority_is_accepted)
{
    static const char *const good[] = {
        ":authority: /var/lib/kubelet/device-plugins/gpushare.sock\n",
        ":authority: %2Fvar%2Flib%2Fkubelet%2Fx.sock\n",
        ":authority: localhost:1\n",
        "", /* none */
        "host: localhost\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct peer p;
        cleanup_free char *head = xasprintf(":method: POST\n:scheme: http\n"
                                            ":path: /t.T/Echo\n%s"
                                            "content-type: application/grpc+proto\n",
                                            good[i]);
        peer_begin(&p, (struct grpcd_limits){0});
        request(&p, 1, head, SPAN("hi"));
        ck_assert_str_eq(exchange(&p), ok);
        peer_end(&p);
    }
}
END_TEST

START_TEST(malformed_headers_reset_the_stream)
{
    static const char *const bad[] = {
        /* a pseudo-header twice, missing, unknown, empty, late */
        ":method: POST\n:method: POST\n:scheme: http\n:path: /t.T/Echo\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\n:path: /t.T/Echo\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\n:authority: a\n:authority: a\n",
        ":method: POST\n:scheme: http\n:scheme: http\n:path: /t.T/Echo\n",
        ":scheme: http\n:path: /t.T/Echo\n",
        ":method: POST\n:path: /t.T/Echo\n",
        ":method: POST\n:scheme: http\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\n:protocol: x\n",
        ":method: POST\n:scheme: http\n:path: \n",
        ":method: POST\n:scheme: http\n:path: t.T/Echo\n",
        ":method: POST\n:scheme: http\n:path: /t.T/ Echo\n",
        ":method: POST\n:scheme: http\nte: trailers\n:path: /t.T/Echo\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\n:authority: a b\n",
        /* invalid names and values; fields of HTTP/1 */
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\nX-Upper: 1\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\nx y: 1\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\nx: a\rb\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\nconnection: close\n",
        ":method: POST\n:scheme: http\n:path: /t.T/Echo\ntransfer-encoding: chunked\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct peer p;
        peer_begin(&p, (struct grpcd_limits){0});
        cleanup_free char *head = xasprintf("%scontent-type: application/grpc\n", bad[i]);
        request(&p, 1, head, SPAN("hi"));
        ck_assert_msg(strcmp(exchange(&p), "RST 1 PROTOCOL_ERROR\n") == 0, "%s: %s",
                      bad[i], p.words.text.p);
        /* The connection stays open. */
        request(&p, 3, call_head, SPAN("hi"));
        ck_assert_msg(strstr(exchange(&p), "HEADERS 3 grpc-status=0 end\n") != NULL, "%s",
                      p.words.text.p);
        ck_assert_uint_eq(p.n_started, 1);
        ck_assert_uint_eq(p.d->stats.rejected, 1);
        peer_end(&p);
    }
}
END_TEST

static void expect(const char *head, struct span bytes, bool is_raw, const char *want)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.max_message = 100});
    headers(&p.out, 0, 1, head);
    if (is_raw)
        frame(&p.out, NGHTTP2_DATA, END, 1, bytes);
    else
        message(&p.out, END, 1, bytes);
    ck_assert_str_eq(exchange(&p), want);
    ck_assert_uint_eq(p.n_started, 0);
    ck_assert_uint_eq(p.d->stats.rejected, 1);
    peer_end(&p);
}

#define POST         ":method: POST\n:scheme: http\n:path: "
#define GRPC_TYPE    "\ncontent-type: application/grpc\n"
#define ANSWER(rest) "HEADERS 1 :status=200 content-type=application/grpc " rest " end\n"

START_TEST(other_requests_than_grpc_get_an_http_status)
{
    expect(":method: GET\n:scheme: http\n:path: /t.T/Echo" GRPC_TYPE, SPAN(""), false,
           "HEADERS 1 :status=405 end\n");
    expect(POST "/t.T/Echo\ncontent-type: application/json\n", SPAN(""), false,
           "HEADERS 1 :status=415 end\n");
    expect(POST "/t.T/Echo\n", SPAN(""), false, "HEADERS 1 :status=415 end\n");
}
END_TEST

START_TEST(unknown_methods_get_status_12)
{
    expect(POST "/t.T/Other" GRPC_TYPE, SPAN(""), false,
           ANSWER("grpc-status=12 grpc-message=unknown method /t.T/Other"));
    expect(POST "/" GRPC_TYPE, SPAN(""), false,
           ANSWER("grpc-status=12 grpc-message=unknown method /"));
    expect(POST "/t.T/Echo%" GRPC_TYPE, SPAN(""), false,
           ANSWER("grpc-status=12 grpc-message=unknown method /t.T/Echo%25"));
    char path[GRPCD_PATH_KEPT + 1];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    cleanup_free char *head = xasprintf(POST "%sy" GRPC_TYPE, path);
    cleanup_free char *want =
        xasprintf(ANSWER("grpc-status=12 grpc-message=unknown method %s..."), path);
    expect(head, SPAN(""), false, want);
}
END_TEST

START_TEST(bad_messages_get_their_status)
{
    const char *head = POST "/t.T/Echo" GRPC_TYPE;
    char large[101] = {0};
    expect(head, SPAN("\1\0\0\0\2hi"), true,
           ANSWER("grpc-status=12 grpc-message=compressed messages are not supported"));
    expect(head, SPAN("\7\0\0\0\2hi"), true,
           ANSWER("grpc-status=13 grpc-message=invalid flag of a message"));
    expect(head, SPAN("\0\0\0\0\3hi"), true,
           ANSWER("grpc-status=13 grpc-message=truncated request message"));
    expect(head, SPAN("\0\0\0"), true,
           ANSWER("grpc-status=13 grpc-message=truncated request message"));
    expect(head, SPAN(""), true,
           ANSWER("grpc-status=13 grpc-message=request without a message"));
    expect(
        head, SPAN("\0\0\0\0\2hi\0"), true,
        ANSWER("grpc-status=13 grpc-message=unexpected data after the request message"));
    expect(head, (struct span){large, sizeof large}, false,
           ANSWER("grpc-status=8 grpc-message=message has 101 bytes, at most 100 are "
                  "accepted"));
}
END_TEST

START_TEST(a_bad_timeout_is_rejected)
{
    expect(POST "/t.T/Echo" GRPC_TYPE "grpc-timeout: soon\n", SPAN(""), false,
           ANSWER("grpc-status=13 grpc-message=malformed grpc-timeout"));
}
END_TEST

START_TEST(an_early_rejection_stops_the_request)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.max_message = 100});
    headers(&p.out, 0, 1, call_head);
    frame(&p.out, NGHTTP2_DATA, 0, 1, SPAN("\0\1\0\0\0"));
    ck_assert_str_eq(exchange(&p),
                     ANSWER("grpc-status=8 grpc-message=message has 16777216 bytes, "
                            "at most 100 are accepted") "RST 1 NO_ERROR\n");
    frame(&p.out, NGHTTP2_DATA, END, 1, SPAN("late"));
    ck_assert_str_eq(exchange(&p), "");
    peer_end(&p);
}
END_TEST

START_TEST(large_headers_get_431)
{
    struct peer p;
    cleanup_buf struct buf many = {0}, large = {0};
    buf_adds(&many, call_head);
    for (int i = 0; i < GRPCD_HEADERS_MAX; i++)
        buf_printf(&many, "x-%d: y\n", i);
    buf_adds(&large, call_head);
    buf_adds(&large, "x: ");
    for (int i = 0; i < GRPCD_HEADER_BYTES_MAX; i++)
        buf_addc(&large, 'y');
    buf_addc(&large, '\n');
    peer_begin(&p, (struct grpcd_limits){0});
    headers(&p.out, END, 1, many.p);
    ck_assert_str_eq(exchange(&p), "HEADERS 1 :status=431 end\n");

    cleanup_buf struct buf frames = {0};
    headers(&frames, END, 3, large.p); /* too large for one frame: split by hand */
    struct span block = {frames.p + 9, frames.n - 9};
    frame(&p.out, NGHTTP2_HEADERS, END, 3, (struct span){block.p, 16000});
    frame(&p.out, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 3,
          (struct span){block.p + 16000, block.n - 16000});
    ck_assert_str_eq(exchange(&p), "HEADERS 3 :status=431 end\n");
    peer_end(&p);
}
END_TEST

START_TEST(bytes_of_all_requests_are_bounded)
{
    struct peer p;
    char bytes[60] = {0};
    peer_begin(&p, (struct grpcd_limits){.max_requests = 100});
    headers(&p.out, 0, 1, call_head);
    message(&p.out, 0, 1, (struct span){bytes, sizeof bytes});
    headers(&p.out, 0, 3, call_head);
    message(&p.out, 0, 3, (struct span){bytes, sizeof bytes});
    ck_assert_str_eq(exchange(&p),
                     "HEADERS 3 :status=200 content-type=application/grpc "
                     "grpc-status=8 grpc-message=too many bytes of requests in "
                     "memory end\nRST 3 NO_ERROR\n");
    frame(&p.out, NGHTTP2_DATA, END, 1, SPAN(""));
    ck_assert_msg(strstr(exchange(&p), "HEADERS 1 grpc-status=0 end\n") != NULL, "%s",
                  p.words.text.p);
    peer_end(&p);
}
END_TEST

START_TEST(an_incomplete_request_times_out)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.request_ms = 500});
    headers(&p.out, 0, 1, call_head);
    ck_assert_str_eq(exchange(&p), "");
    ck_assert_int_eq(grpcd_conn_tick(p.c, p.now_ms), p.now_ms + 500);
    p.now_ms += 499;
    ck_assert_str_eq(output_of(&p), "");
    p.now_ms++;
    ck_assert_str_eq(output_of(&p),
                     ANSWER("grpc-status=4 grpc-message=request not complete "
                            "in time") "RST 1 NO_ERROR\n");
    peer_end(&p);
}
END_TEST

START_TEST(the_deadline_counts_from_the_headers)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.request_ms = 500});
    headers(&p.out, 0, 1, POST "/t.T/Park" GRPC_TYPE "grpc-timeout: 2S\n");
    exchange(&p);
    p.now_ms += 400;
    message(&p.out, END, 1, SPAN(""));
    ck_assert_str_eq(exchange(&p), "");
    ck_assert_ptr_nonnull(p.parked);
    ck_assert_int_eq(grpcd_deadline_ms(p.parked), 1000000 + 2000);
    p.now_ms += 1599;
    ck_assert_str_eq(output_of(&p), "");
    p.now_ms++;
    ck_assert_str_eq(output_of(&p),
                     ANSWER("grpc-status=4 grpc-message=client deadline exceeded"));
    ck_assert_uint_eq(p.n_cancelled, 1);
    peer_end(&p);
}
END_TEST

START_TEST(a_reset_cancels_the_call)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    request(&p, 1, POST "/t.T/Park" GRPC_TYPE, SPAN(""));
    exchange(&p);
    ck_assert_ptr_nonnull(p.parked);
    frame(&p.out, NGHTTP2_RST_STREAM, 0, 1, SPAN("\0\0\0\10"));
    ck_assert_str_eq(exchange(&p), "");
    ck_assert_uint_eq(p.n_cancelled, 1);
    request(&p, 3, POST "/t.T/Park" GRPC_TYPE, SPAN(""));
    exchange(&p);
    peer_end(&p); /* the connection is closed */
    ck_assert_uint_eq(p.n_cancelled, 2);
}
END_TEST

START_TEST(a_stalled_stream_is_reset)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.stall_ms = 500});
    /* stream windows of 10 bytes */
    frame(&p.out, NGHTTP2_SETTINGS, 0, 0, SPAN("\0\4\0\0\0\12"));
    request(&p, 1, POST "/t.T/Watch" GRPC_TYPE, SPAN(""));
    exchange(&p);
    struct buf list = {0};
    buf_adds(&list, "0123456789");
    grpcd_send(p.parked, &list);
    ck_assert_str_eq(output_of(&p),
                     "HEADERS 1 :status=200 content-type=application/grpc\n"
                     "DATA 1 10\n");
    p.now_ms += 400;
    frame(&p.out, NGHTTP2_WINDOW_UPDATE, 0, 1, SPAN("\0\0\0\1"));
    ck_assert_str_eq(exchange(&p), "DATA 1 1\n");
    p.now_ms += 499;
    ck_assert_str_eq(output_of(&p), "");
    ck_assert_uint_eq(p.n_cancelled, 0);
    p.now_ms++;
    ck_assert_str_eq(output_of(&p), "RST 1 CANCEL\n");
    ck_assert_uint_eq(p.n_cancelled, 1);
    ck_assert_uint_eq(p.c->output, 0);
    peer_end(&p);
}
END_TEST

START_TEST(an_idle_stream_stays_open)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.stall_ms = 500, .idle_ms = 500});
    request(&p, 1, POST "/t.T/Watch" GRPC_TYPE, SPAN(""));
    ck_assert_str_eq(exchange(&p), "");
    for (int i = 0; i < 3; i++) {
        struct buf list = {0};
        p.now_ms += 100000;
        buf_adds(&list, "x");
        grpcd_send(p.parked, &list);
        ck_assert_str_eq(output_of(&p), i ? "DATA 1 6\n"
                                          : "HEADERS 1 :status=200 "
                                            "content-type=application/grpc\nDATA 1 6\n");
    }
    peer_end(&p);
}
END_TEST

START_TEST(a_newer_message_replaces_the_queued_one)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    frame(&p.out, NGHTTP2_SETTINGS, 0, 0, SPAN("\0\4\0\0\0\0")); /* no window */
    request(&p, 1, POST "/t.T/Watch" GRPC_TYPE, SPAN(""));
    exchange(&p);
    for (int i = 1; i <= 3; i++) {
        struct buf list = {0};
        for (int j = 0; j < i; j++)
            buf_addc(&list, 'x');
        grpcd_send(p.parked, &list);
        ck_assert_str_eq(output_of(&p), i > 1 ? ""
                                              : "HEADERS 1 :status=200 "
                                                "content-type=application/grpc\n");
        ck_assert_uint_eq(p.c->output, GRPC_HEAD + (size_t)i);
    }
    frame(&p.out, NGHTTP2_WINDOW_UPDATE, 0, 1, SPAN("\0\0\0\144"));
    ck_assert_str_eq(exchange(&p), "DATA 1 8\n"); /* the third alone */
    ck_assert_uint_eq(p.c->output, 0);
    peer_end(&p);
}
END_TEST

START_TEST(pings_are_acknowledged)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    frame(&p.out, NGHTTP2_PING, 0, 0, SPAN("12345678"));
    ck_assert_str_eq(exchange(&p), "PING ack\n");
    peer_end(&p);
}
END_TEST

/* Sends the frames up to `max` times without reading the output. Returns how often they
 * were sent before the connection closed. */
static int flood(struct peer *p, int max)
{
    cleanup_buf struct buf frames = p->out;
    p->out = (struct buf){0};
    for (int i = 0; i < max; i++) {
        grpcd_conn_feed(p->c, (const uint8_t *)frames.p, frames.n, p->now_ms);
        if (p->c->is_broken || !nghttp2_session_want_read(p->c->session))
            return i;
    }
    return max;
}

START_TEST(floods_end_the_connection)
{
    static const struct {
        unsigned type, flags;
        struct span payload;
    } frames[] = {
        {NGHTTP2_PING, 0, SPAN("12345678")},
        {NGHTTP2_SETTINGS, 0, SPAN("\0\3\0\0\0\1")},
    };
    for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
        struct peer p;
        peer_begin(&p, (struct grpcd_limits){0});
        exchange(&p);
        frame(&p.out, frames[i].type, frames[i].flags, 0, frames[i].payload);
        ck_assert_int_lt(flood(&p, 10000), 1000);
        peer_end(&p);
    }
}
END_TEST

START_TEST(a_flood_of_resets_ends_the_connection)
{
    struct peer p;
    uint32_t id = 1;
    peer_begin(&p, (struct grpcd_limits){0});
    exchange(&p);
    for (; id < 20000 && nghttp2_session_want_read(p.c->session) && !p.c->is_broken;
         id += 2) {
        request(&p, id, POST "/t.T/Park" GRPC_TYPE, SPAN(""));
        frame(&p.out, NGHTTP2_RST_STREAM, 0, id, SPAN("\0\0\0\10"));
        exchange(&p);
    }
    ck_assert_uint_lt(id / 2, GRPCD_RESET_BURST + 100);
    ck_assert_uint_ge(id / 2, GRPCD_RESET_BURST);
    ck_assert_uint_eq(p.n_cancelled, p.n_started);
    peer_end(&p);
}
END_TEST

START_TEST(a_flood_of_malformed_calls_ends_the_connection)
{
    struct peer p;
    uint32_t id = 1;
    peer_begin(&p, (struct grpcd_limits){0});
    exchange(&p);
    for (; id < 20000 && !grpcd_conn_is_done(p.c); id += 2) {
        headers(&p.out, END, id, ":method: POST\n");
        exchange(&p);
    }
    ck_assert_uint_eq(id / 2, GRPCD_FAULTS_MAX);
    peer_end(&p);
}
END_TEST

START_TEST(concurrent_calls_are_bounded)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.calls = 2});
    for (uint32_t id = 1; id <= 5; id += 2)
        request(&p, id, POST "/t.T/Park" GRPC_TYPE, SPAN(""));
    ck_assert_str_eq(exchange(&p), "RST 5 REFUSED_STREAM\n");
    ck_assert_uint_eq(p.n_started, 2);
    grpcd_end(p.parked, GRPC_OK, "%s", "");
    output_of(&p);
    frame(&p.out, NGHTTP2_RST_STREAM, 0, 1, SPAN("\0\0\0\10"));
    exchange(&p);
    peer_end(&p);
}
END_TEST

START_TEST(an_idle_connection_gets_goaway)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){.idle_ms = 5000, .request_ms = 500});
    request(&p, 1, call_head, SPAN("hi"));
    exchange(&p);
    p.now_ms += 4999;
    ck_assert_str_eq(output_of(&p), "");
    ck_assert(!grpcd_conn_is_done(p.c));
    p.now_ms++;
    ck_assert_str_eq(output_of(&p), "GOAWAY NO_ERROR\n");
    ck_assert(grpcd_conn_is_done(p.c));
    peer_end(&p);
}
END_TEST

START_TEST(a_drain_ends_streams_and_waits_for_calls)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    request(&p, 1, POST "/t.T/Watch" GRPC_TYPE, SPAN(""));
    request(&p, 3, POST "/t.T/Park" GRPC_TYPE, SPAN(""));
    headers(&p.out, 0, 5, call_head);
    exchange(&p);
    struct grpcd_call *call = p.parked;
    grpcd_conn_drain(p.c, p.now_ms);
    grpcd_conn_drain(p.c, p.now_ms);
    const char *output = output_of(&p);
    ck_assert_msg(strstr(output, "GOAWAY NO_ERROR\n") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "HEADERS 1 :status=200 content-type=application/grpc "
                                 "grpc-status=14 grpc-message=server is stopping end\n"),
                  "%s", output);
    ck_assert_msg(strstr(output, "HEADERS 5 :status=200 content-type=application/grpc "
                                 "grpc-status=14 grpc-message=server is stopping end\n"),
                  "%s", output);
    ck_assert_uint_eq(p.n_cancelled, 1);
    ck_assert(!grpcd_conn_is_done(p.c));
    request(&p, 7, call_head, SPAN("hi")); /* too late */
    ck_assert_str_eq(exchange(&p), "");
    struct buf reply = {0};
    grpcd_reply(call, &reply);
    output = output_of(&p);
    ck_assert_msg(strstr(output, "HEADERS 3 grpc-status=0 end\n") != NULL, "%s", output);
    ck_assert(grpcd_conn_is_done(p.c));
    peer_end(&p);
}
END_TEST

START_TEST(trailers_of_a_client_end_its_request)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_limits){0});
    headers(&p.out, 0, 1, call_head);
    message(&p.out, 0, 1, SPAN("hi"));
    headers(&p.out, END, 1, "x-trailer: 1\n");
    ck_assert_str_eq(exchange(&p), ok);
    headers(&p.out, 0, 3, call_head);
    headers(&p.out, 0, 3, "x-trailer: 1\n");
    ck_assert_str_eq(exchange(&p), "RST 3 PROTOCOL_ERROR\n");
    peer_end(&p);
}
END_TEST

UNIT_MAIN("grpcd_conn", a_call_in_frames, a_call_in_single_bytes,
          any_printable_authority_is_accepted, malformed_headers_reset_the_stream,
          other_requests_than_grpc_get_an_http_status, unknown_methods_get_status_12,
          bad_messages_get_their_status, a_bad_timeout_is_rejected,
          an_early_rejection_stops_the_request, large_headers_get_431,
          bytes_of_all_requests_are_bounded, an_incomplete_request_times_out,
          the_deadline_counts_from_the_headers, a_reset_cancels_the_call,
          a_stalled_stream_is_reset, an_idle_stream_stays_open,
          a_newer_message_replaces_the_queued_one, pings_are_acknowledged,
          floods_end_the_connection, a_flood_of_resets_ends_the_connection,
          a_flood_of_malformed_calls_ends_the_connection, concurrent_calls_are_bounded,
          an_idle_connection_gets_goaway, a_drain_ends_streams_and_waits_for_calls,
          trailers_of_a_client_end_its_request)
