/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/reflector.h"

#include "base/clock.h"
#include "base/log.h"

static void start_page(struct reflector *r);

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct reflector *r = ctx;
    if (status == 401)
        kube_client_unauthorized(r->client);
    if (!r->sync.watch && !r->date_s) /* later pages continue the first one's snapshot */
        r->date_s = httpc_stream_date_s(r->stream);
    return apisync_begin(&r->sync, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct reflector *r = ctx;
    return apisync_data(&r->sync, p, n);
}

static void finish(struct reflector *r)
{
    const struct apisync *s = &r->sync;
    if (s->in.err.code == ERR_NONE && !s->watch)
        log_info("reflector", "list complete", LOG_S("kind", core_kind_name(s->kind)),
                 LOG_I("objects", s->objects),
                 LOG_I("ms", clock_mono_ms() - r->since_ms));
    else
        log_debug("reflector", s->watch ? "watch ended" : "list failed",
                  LOG_S("kind", core_kind_name(s->kind)), LOG_ERR(&s->in.err));
    apisync_fini(&r->sync);
    r->active = false;
}

static void on_end(void *ctx, const struct err *why)
{
    struct reflector *r = ctx;
    r->stream = NULL;
    if (apisync_end(&r->sync, why))
        start_page(r);
    else
        finish(r);
}

static const struct httpc_sink http_sink = {on_begin, on_data, on_end};

static void start_page(struct reflector *r)
{
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    apisync_request(&r->sync, r->gzip, &a, &request);
    r->stream = kube_stream_start(r->client, r->loop, &request, &http_sink, r, &err);
    if (!r->stream)
        on_end(r, &err); /* no credentials: handled as a lost request */
}

void reflector_cancel(struct reflector *r)
{
    if (r->stream)
        httpc_stream_cancel(r->stream);
    r->stream = NULL;
    if (r->active)
        apisync_fini(&r->sync);
    r->active = false;
}

void reflector_start(struct reflector *r, const struct core_output *output)
{
    bool watch = output->type == CORE_WATCH;
    reflector_cancel(r);
    r->since_ms = clock_mono_ms();
    r->active = true;
    if (!watch)
        r->date_s = 0;
    apisync_start(&r->sync, output->kind, watch, output->run, span_of(output->version),
                  r->sink, r->ctx);
    start_page(r);
}
