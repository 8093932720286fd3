/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "wire/grpc_fixture.h"
#include "wire/grpc_priv.h"
#include "wire/grpcd.h"

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

static void peer_begin(struct peer *p, struct grpcd_config limits)
{
    *p = (struct peer){.now_ms = 1000000};
    limits.methods = methods;
    limits.ctx = p;
    p->d = grpcd_new(&limits);
    p->c = p->d->conns = grpcd_conn_new(p->d, p->now_ms);
    words_init(&p->words);
    buf_adds(&p->out, NGHTTP2_CLIENT_MAGIC);
    frame(&p->out, NGHTTP2_SETTINGS, 0, 0, SPAN(""));
}

static void peer_end(struct peer *p)
{
    p->d->conns = NULL;
    grpcd_conn_free(p->c);
    ck_assert_uint_eq(p->d->refs, 1);
    grpcd_free(p->d);
    words_fini(&p->words);
    buf_fini(&p->out);
}

/* The body runs with a peer `p`; arguments: limits of the server. */
#define FOR_PEER(...)                                                                    \
    for (struct peer p, *p_ = (peer_begin(&p, (struct grpcd_config){__VA_ARGS__}), &p);  \
         p_; peer_end(&p), p_ = NULL)

/* The server's output as text. */
static const char *output_of(struct peer *p)
{
    const uint8_t *bytes;
    ssize_t n;
    grpcd_flush(p->d);
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
        peer_begin(&p, (struct grpcd_config){0});
        request(&p, 1, head, SPAN("hi"));
        ck_assert_str_eq(exchange(&p), ok);
        peer_end(&p);
    }
}
END_TEST

#define POST         ":method: POST\n:scheme: http\n:path: "
#define GRPC_TYPE    "\ncontent-type: application/grpc\n"
#define ANSWER(rest) "HEADERS 1 :status=200 content-type=application/grpc " rest " end\n"
#define ECHO         POST "/t.T/Echo" GRPC_TYPE

START_TEST(a_bad_request_gets_its_status)
{
    static const struct {
        const char *head;
        struct span data;
        const char *status;
    } cases[] = {
        {POST "/t.T/Other" GRPC_TYPE, SPAN("\0\0\0\0\2hi"),
         "grpc-status=12 grpc-message=unknown method /t.T/Other"},
        {POST "/t.T/Echo%" GRPC_TYPE, SPAN("\0\0\0\0\2hi"),
         "grpc-status=12 grpc-message=unknown method /t.T/Echo%25"},
        {":method: POST\n:scheme: http" GRPC_TYPE, SPAN("\0\0\0\0\2hi"),
         "grpc-status=12 grpc-message=unknown method "},
        {ECHO, SPAN("\1\0\0\0\2hi"),
         "grpc-status=12 grpc-message=compressed messages are not supported"},
        {ECHO, SPAN("\7\0\0\0\2hi"),
         "grpc-status=13 grpc-message=invalid flag of a message"},
        {ECHO, SPAN("\0\0\0\0\3hi"),
         "grpc-status=13 grpc-message=truncated request message"},
        {ECHO, SPAN("\0\0\0"), "grpc-status=13 grpc-message=truncated request message"},
        {ECHO, SPAN(""), "grpc-status=13 grpc-message=request without a message"},
        {ECHO, SPAN("\0\0\0\0\2hi\0"),
         "grpc-status=13 grpc-message=unexpected data after the request message"},
        {ECHO, SPAN("\0\1\0\0\0"),
         "grpc-status=8 grpc-message=message has 16777216 bytes, at most 100 are "
         "accepted"},
        {ECHO "grpc-timeout: soon\n", SPAN("\0\0\0\0\2hi"),
         "grpc-status=13 grpc-message=malformed grpc-timeout"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        FOR_PEER(.max_message = 100)
        {
            headers(&p.out, 0, 1, cases[i].head);
            frame(&p.out, NGHTTP2_DATA, END, 1, cases[i].data);
            cleanup_free char *want = xasprintf(ANSWER("%s"), cases[i].status);
            ck_assert_str_eq(exchange(&p), want);
            ck_assert_uint_eq(p.n_started, 0);
            request(&p, 3, call_head, SPAN("hi")); /* the connection stays open */
            ck_assert_msg(strstr(exchange(&p), "HEADERS 3 grpc-status=0 end\n") != NULL,
                          "%s", p.words.text.p);
        }
    }
}
END_TEST

START_TEST(an_incomplete_request_times_out)
{
    FOR_PEER(.request_ms = 500)
    {
        headers(&p.out, 0, 1, call_head);
        ck_assert_str_eq(exchange(&p), "");
        ck_assert_int_eq(grpcd_conn_tick(p.c, p.now_ms), p.now_ms + 500);
        p.now_ms += 499;
        ck_assert_str_eq(output_of(&p), "");
        p.now_ms++;
        ck_assert_str_eq(output_of(&p),
                         ANSWER("grpc-status=4 grpc-message=request not complete "
                                "in time"));
    }
}
END_TEST

START_TEST(the_deadline_counts_from_the_headers)
{
    FOR_PEER(.request_ms = 500)
    {
        headers(&p.out, 0, 1, POST "/t.T/Park" GRPC_TYPE "grpc-timeout: 2S\n");
        exchange(&p);
        p.now_ms += 400;
        message(&p.out, END, 1, SPAN(""));
        ck_assert_str_eq(exchange(&p), "");
        ck_assert_ptr_nonnull(p.parked);
        p.now_ms += 1599;
        ck_assert_str_eq(output_of(&p), "");
        p.now_ms++;
        ck_assert_str_eq(output_of(&p),
                         ANSWER("grpc-status=4 grpc-message=client deadline exceeded"));
        ck_assert_uint_eq(p.n_cancelled, 1);
    }
}
END_TEST

START_TEST(a_client_that_does_not_read_is_disconnected)
{
    struct peer p;
    peer_begin(&p, (struct grpcd_config){.stall_ms = 500});
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
    ck_assert(!grpcd_conn_is_done(p.c));
    p.now_ms++;
    output_of(&p);
    ck_assert(grpcd_conn_is_done(p.c));
    ck_assert_uint_eq(p.n_cancelled, 0); /* until the connection is freed */
    peer_end(&p);
}
END_TEST

START_TEST(an_idle_stream_stays_open)
{
    FOR_PEER(.stall_ms = 500)
    {
        request(&p, 1, POST "/t.T/Watch" GRPC_TYPE, SPAN(""));
        ck_assert_str_eq(exchange(&p), "");
        for (int i = 0; i < 3; i++) {
            struct buf list = {0};
            p.now_ms += 100000;
            buf_adds(&list, "x");
            grpcd_send(p.parked, &list);
            ck_assert_str_eq(output_of(&p),
                             i ? "DATA 1 6\n"
                               : "HEADERS 1 :status=200 "
                                 "content-type=application/grpc\nDATA 1 6\n");
        }
    }
}
END_TEST

START_TEST(a_newer_message_replaces_the_queued_one)
{
    FOR_PEER()
    {
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
        }
        frame(&p.out, NGHTTP2_WINDOW_UPDATE, 0, 1, SPAN("\0\0\0\144"));
        ck_assert_str_eq(exchange(&p), "DATA 1 8\n"); /* the third alone */
    }
}
END_TEST

START_TEST(trailers_of_a_client_end_its_request)
{
    FOR_PEER()
    {
        headers(&p.out, 0, 1, call_head);
        message(&p.out, 0, 1, SPAN("hi"));
        headers(&p.out, END, 1, "x-trailer: 1\n");
        ck_assert_str_eq(exchange(&p), ok);
    }
}
END_TEST

UNIT_MAIN("grpcd_conn", any_printable_authority_is_accepted,
          a_bad_request_gets_its_status, an_incomplete_request_times_out,
          the_deadline_counts_from_the_headers,
          a_client_that_does_not_read_is_disconnected, an_idle_stream_stays_open,
          a_newer_message_replaces_the_queued_one, trailers_of_a_client_end_its_request)
