/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/reflector.h"

#include "base/clock.h"
#include "base/log.h"

static void start_page(struct reflector *s);

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct reflector *s = ctx;
    if (status == 401)
        kube_client_unauthorized(s->client);
    if (!s->feed.watch && !s->date_s) /* later pages show what was then */
        s->date_s = httpc_stream_date_s(s->stream);
    return apisync_begin(&s->feed, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct reflector *s = ctx;
    return apisync_data(&s->feed, p, n);
}

static void finish(struct reflector *s)
{
    const struct apisync *f = &s->feed;
    if (f->in.failed.code == ERR_NONE && !f->watch)
        log_info("sync", "listed", LOG_S("kind", core_kind_name(f->kind)),
                 LOG_I("objects", f->objects),
                 LOG_I("ms", clock_mono_ms() - s->since_ms));
    else
        log_debug("sync", "ended", LOG_S("kind", core_kind_name(f->kind)),
                  LOG_S("what", f->watch ? "watch" : "list"), LOG_ERR(&f->in.failed));
    apisync_fini(&s->feed);
    s->fed = false;
}

static void on_end(void *ctx, const struct err *why)
{
    struct reflector *s = ctx;
    s->stream = NULL;
    if (apisync_end(&s->feed, why))
        start_page(s);
    else
        finish(s);
}

static const struct httpc_sink http_sink = {on_begin, on_data, on_end};

static void start_page(struct reflector *s)
{
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    apisync_request(&s->feed, s->gzip, &a, &request);
    s->stream = kube_stream_start(s->client, s->loop, &request, &http_sink, s, &err);
    if (!s->stream)
        on_end(s, &err); /* no credentials: as if there had been no answer */
}

void reflector_cancel(struct reflector *s)
{
    if (s->stream)
        httpc_stream_cancel(s->stream);
    s->stream = NULL;
    if (s->fed)
        apisync_fini(&s->feed);
    s->fed = false;
}

void reflector_start(struct reflector *s, const struct core_output *wish)
{
    bool watch = wish->type == CORE_WATCH;
    reflector_cancel(s);
    s->since_ms = clock_mono_ms();
    s->fed = true;
    if (!watch)
        s->date_s = 0;
    apisync_start(&s->feed, wish->kind, watch, wish->run, span_of(wish->version), s->sink,
                  s->ctx);
    start_page(s);
}
