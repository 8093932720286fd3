/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/stream.h"

#include "base/clock.h"
#include "base/log.h"

static void start_page(struct feed_stream *s);

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct feed_stream *s = ctx;
    if (status == 401)
        kube_client_unauthorized(s->client);
    if (!s->feed.watch && !s->date_s) /* later pages show what was then */
        s->date_s = httpc_stream_date_s(s->stream);
    return feed_begin(&s->feed, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct feed_stream *s = ctx;
    return feed_data(&s->feed, p, n);
}

static void finish(struct feed_stream *s)
{
    const struct feed *f = &s->feed;
    if (f->in.err.code == ERR_NONE && !f->watch)
        log_info("sync", "listed", LOG_S("kind", core_kind_name(f->kind)),
                 LOG_I("objects", f->objects),
                 LOG_I("ms", clock_mono_ms() - s->since_ms));
    else
        log_debug("sync", "ended", LOG_S("kind", core_kind_name(f->kind)),
                  LOG_S("what", f->watch ? "watch" : "list"), LOG_ERR(&f->in.err));
    feed_fini(&s->feed);
    s->fed = false;
}

static void on_end(void *ctx, const struct err *why)
{
    struct feed_stream *s = ctx;
    s->stream = NULL;
    if (feed_end(&s->feed, why))
        start_page(s);
    else
        finish(s);
}

static const struct httpc_sink http_sink = {on_begin, on_data, on_end};

static void start_page(struct feed_stream *s)
{
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    feed_request(&s->feed, s->gzip, &a, &request);
    s->stream = kube_stream_start(s->client, s->loop, &request, &http_sink, s, &err);
    if (!s->stream)
        on_end(s, &err); /* no credentials: as if there had been no answer */
}

void feed_stream_cancel(struct feed_stream *s)
{
    if (s->stream)
        httpc_stream_cancel(s->stream);
    s->stream = NULL;
    if (s->fed)
        feed_fini(&s->feed);
    s->fed = false;
}

void feed_stream_begin(struct feed_stream *s, const struct core_output *wish)
{
    bool watch = wish->type == CORE_WATCH;
    feed_stream_cancel(s);
    s->since_ms = clock_mono_ms();
    s->fed = true;
    if (!watch)
        s->date_s = 0;
    feed_start(&s->feed, wish->kind, watch, wish->run, span_of(wish->version), s->sink,
               s->ctx);
    start_page(s);
}
