/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpc_priv.h"

/*
 * Streams on a curl multi handle. A new stream is added to the multi handle by the next
 * run of the loop, so that callbacks of libcurl may start streams. It is removed before
 * its `end` is called, so that `end` may start and cancel streams.
 *
 * libcurl's own stall detection uses averages and is late by seconds. Here the time of
 * the last byte is checked after all received bytes are read, so that a delay of this
 * loop does not count as a stall of the peer.
 */

struct httpc_stream {
    struct httpc_exchange x; /* first */
    struct httpc_loop *loop;
    const struct httpc_sink *sink; /* borrowed */
    void *ctx;                     /* borrowed */
    struct httpc_request req;      /* strings owned; without the credentials */
    char *method, *path;
    struct buf body;
    bool is_added; /* to the multi handle */
    bool is_bad;   /* the request is invalid: `bad` */
    struct err bad;
    struct httpc_stream *prev, *next;
};

struct httpc_loop {
    CURLM *multi;
    struct httpc_stream *first;
    unsigned sink_calls;
};

static void must_multi(CURLMcode rc)
{
    if (rc == CURLM_OK)
        return;
    fprintf(stderr, "libcurl: %s\n", curl_multi_strerror(rc));
    abort();
}

struct httpc_loop *httpc_loop_new(void)
{
    httpc_global_init();
    struct httpc_loop *loop = xcalloc(1, sizeof *loop);
    loop->multi = curl_multi_init();
    if (!loop->multi)
        abort();
    return loop;
}

static void link_in(struct httpc_loop *loop, struct httpc_stream *s)
{
    s->next = loop->first;
    if (s->next)
        s->next->prev = s;
    loop->first = s;
}

/* Removes the stream from the multi handle and the list; the caller frees it. */
static void detach(struct httpc_stream *s)
{
    if (s->is_added)
        must_multi(curl_multi_remove_handle(s->loop->multi, s->x.easy));
    s->is_added = false;
    if (s->prev)
        s->prev->next = s->next;
    else
        s->loop->first = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

static void stream_free(struct httpc_stream *s)
{
    struct httpc *c = s->x.c;
    httpc_exchange_fini(&s->x);
    httpc_free(c);
    free(s->method);
    free(s->path);
    buf_fini(&s->body);
    free(s);
}

static bool on_begin(struct httpc_exchange *x)
{
    struct httpc_stream *s = (struct httpc_stream *)x;
    s->loop->sink_calls++;
    return s->sink->begin(s->ctx, x->status, x->retry_after_s);
}

static size_t on_data(char *p, size_t size, size_t n, void *ctx)
{
    struct httpc_stream *s = ctx;
    s->x.last_byte_ms = clock_mono_ms();
    s->loop->sink_calls++;
    if (s->sink->data(s->ctx, p, size * n))
        return size * n;
    s->x.stopped = STOP_SINK;
    return 0;
}

struct httpc_stream *httpc_stream_start(struct httpc_loop *loop, struct httpc *c,
                                        const struct httpc_request *req,
                                        const struct httpc_sink *sink, void *ctx)
{
    enum { PIECE = 512 * 1024 };
    struct httpc_stream *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->sink = sink;
    s->ctx = ctx;
    httpc_exchange_init(&s->x, httpc_ref(c));
    s->x.begin = on_begin;
    HTTPC_SET(s->x.easy, CURLOPT_BUFFERSIZE, (long)PIECE);
    HTTPC_SET(s->x.easy, CURLOPT_WRITEFUNCTION, on_data);
    HTTPC_SET(s->x.easy, CURLOPT_WRITEDATA, s);
    HTTPC_SET(s->x.easy, CURLOPT_PRIVATE, s);
    if (req->tcp_user_timeout_ms > 0) { /* no other stream may reuse its socket */
        HTTPC_SET(s->x.easy, CURLOPT_FRESH_CONNECT, 1L);
        HTTPC_SET(s->x.easy, CURLOPT_FORBID_REUSE, 1L);
    }

    buf_add_span(&s->body, req->body);
    s->req = *req;
    s->req.body = buf_span(&s->body);
    s->is_bad = httpc_exchange_prepare(&s->x, &s->req, &s->bad);
    s->req.method = s->method = xstrdup(req->method);
    s->req.path = s->path = xstrdup(req->path);
    s->req.authorization = s->req.accept = s->req.content_type = NULL;
    link_in(loop, s);
    return s;
}

int64_t httpc_stream_date_s(const struct httpc_stream *s)
{
    return s->x.date_s;
}

static void finish(struct httpc_stream *s, struct err *why)
{
    detach(s);
    if (why)
        httpc_exchange_wrap(&s->x, &s->req, why);
    s->loop->sink_calls++;
    s->sink->end(s->ctx, why);
    stream_free(s);
}

static void start_new(struct httpc_loop *loop)
{
    struct httpc_stream *s = loop->first;
    while (s) {
        if (s->is_bad) {
            finish(s, &s->bad);
            s = loop->first; /* `end` may have changed the list */
            continue;
        }
        if (!s->is_added) {
            s->x.last_byte_ms = clock_mono_ms();
            must_multi(curl_multi_add_handle(loop->multi, s->x.easy));
            s->is_added = true;
        }
        s = s->next;
    }
}

static void reap(struct httpc_loop *loop)
{
    int left;
    CURLMsg *msg = curl_multi_info_read(loop->multi, &left);
    for (; msg; msg = curl_multi_info_read(loop->multi, &left)) {
        struct httpc_stream *s = NULL;
        struct err why = {0};
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        bool failed = httpc_exchange_result(&s->x, msg->data.result, &why);
        finish(s, failed ? &why : NULL);
    }
}

/* Milliseconds until the stream counts as stalled. Before its request is written, the
 * limit is connect_ms. */
static int64_t stall_left(const struct httpc_stream *s, int64_t now)
{
    if (s->req.stall_ms <= 0 || !s->x.attempts)
        return INT64_MAX;
    return s->x.last_byte_ms + s->req.stall_ms - now;
}

static void end_stalled(struct httpc_loop *loop)
{
    struct httpc_stream *s = loop->first;
    while (s) {
        if (stall_left(s, clock_mono_ms()) > 0) {
            s = s->next;
            continue;
        }
        struct err why = {0};
        err_set(&why, ERR_TIMEOUT, "no data for %lld ms", (long long)s->req.stall_ms);
        finish(s, &why);
        s = loop->first;
    }
}

/* Processes all pending I/O without waiting. Returns whether a sink was called. */
static bool advance(struct httpc_loop *loop)
{
    unsigned before = loop->sink_calls;
    int running;
    start_new(loop);
    must_multi(curl_multi_perform(loop->multi, &running));
    reap(loop);
    end_stalled(loop);
    return loop->sink_calls != before;
}

static int wait_limit(const struct httpc_loop *loop, int64_t wait_ms)
{
    int64_t limit = wait_ms < INT_MAX ? wait_ms : INT_MAX, now = clock_mono_ms();
    for (const struct httpc_stream *s = loop->first; s; s = s->next) {
        int64_t left = stall_left(s, now);
        if (left < limit)
            limit = left;
    }
    return limit > 0 ? (int)limit : 0;
}

void httpc_loop_run(struct httpc_loop *loop, int64_t wait_ms)
{
    if (advance(loop))
        return;
    must_multi(curl_multi_poll(loop->multi, NULL, 0, wait_limit(loop, wait_ms), NULL));
    advance(loop);
}

void httpc_loop_wake(struct httpc_loop *loop)
{
    must_multi(curl_multi_wakeup(loop->multi));
}

void httpc_stream_cancel(struct httpc_stream *s)
{
    if (!s)
        return;
    detach(s);
    stream_free(s);
}

void httpc_loop_free(struct httpc_loop *loop)
{
    if (!loop)
        return;
    while (loop->first)
        httpc_stream_cancel(loop->first);
    must_multi(curl_multi_cleanup(loop->multi));
    free(loop);
}
