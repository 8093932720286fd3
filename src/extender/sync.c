/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/sync.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "extender/feed.h"

/* The list or watch of one kind. */
struct line {
    struct sync *sync;
    struct feed feed;
    struct httpc_stream *stream; /* NULL: none */
    bool fed;                    /* feed is in use */
    int64_t since_ms;
};

struct sync {
    struct store *store;
    struct kube_client *client;
    bool gzip;
    struct httpc_loop *loop;
    struct line lines[CORE_KINDS];
    pthread_t thread;
    pthread_mutex_t lock;                   /* protects what follows */
    struct core_output *wanted[CORE_KINDS]; /* the newest wish of each kind, or NULL */
    uint64_t newest[CORE_KINDS];            /* run of the newest wish that ever came */
    bool stop;
};

static void on_input(void *ctx, const struct core_input *in)
{
    struct line *line = ctx;
    store_input(line->sync->store, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("sync", "object with a fault", LOG_ERR(err));
}

static const struct feed_sink feed_sink = {on_input, on_fault};

static void start_page(struct line *line);

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct line *line = ctx;
    if (status == 401)
        kube_client_unauthorized(line->sync->client);
    return feed_begin(&line->feed, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct line *line = ctx;
    return feed_data(&line->feed, p, n);
}

static void finish(struct line *line)
{
    const struct feed *f = &line->feed;
    if (f->in.failed.code == ERR_NONE && !f->watch)
        log_info("sync", "listed", LOG_S("kind", core_kind_name(f->kind)),
                 LOG_I("objects", f->objects),
                 LOG_I("ms", clock_mono_ms() - line->since_ms));
    else
        log_debug("sync", "ended", LOG_S("kind", core_kind_name(f->kind)),
                  LOG_S("what", f->watch ? "watch" : "list"), LOG_ERR(&f->in.failed));
    feed_fini(&line->feed);
    line->fed = false;
}

static void on_end(void *ctx, const struct err *why)
{
    struct line *line = ctx;
    line->stream = NULL;
    if (feed_end(&line->feed, why))
        start_page(line);
    else
        finish(line);
}

static const struct httpc_sink http_sink = {on_begin, on_data, on_end};

static void start_page(struct line *line)
{
    struct sync *sync = line->sync;
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    feed_request(&line->feed, sync->gzip, &a, &request);
    line->stream =
        kube_stream_start(sync->client, sync->loop, &request, &http_sink, line, &err);
    if (!line->stream)
        on_end(line, &err); /* no credentials: as if there had been no answer */
}

static void cancel(struct line *line)
{
    if (line->stream)
        httpc_stream_cancel(line->stream);
    line->stream = NULL;
    if (line->fed)
        feed_fini(&line->feed);
    line->fed = false;
}

static void begin(struct sync *sync, const struct core_output *wish)
{
    struct line *line = &sync->lines[wish->kind];
    bool watch = wish->type == CORE_WATCH;
    cancel(line);
    line->sync = sync;
    line->since_ms = clock_mono_ms();
    line->fed = true;
    feed_start(&line->feed, wish->kind, watch, wish->run, span_of(wish->version),
               &feed_sink, line);
    start_page(line);
}

/* Takes the wishes and starts them. False: it is time to stop. */
static bool take_wishes(struct sync *sync)
{
    struct core_output *wanted[CORE_KINDS];
    pthread_mutex_lock(&sync->lock);
    bool stop = sync->stop;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        wanted[kind] = steal(&sync->wanted[kind]);
    pthread_mutex_unlock(&sync->lock);
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        if (wanted[kind] && !stop)
            begin(sync, wanted[kind]);
        free(wanted[kind]);
    }
    return !stop;
}

static void *run(void *arg)
{
    struct sync *sync = arg;
    while (take_wishes(sync))
        httpc_loop_run(sync->loop, 1000);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        cancel(&sync->lines[kind]);
    return NULL;
}

struct sync *sync_start_thread(struct store *store, struct kube_client *client, bool gzip)
{
    struct sync *sync = xcalloc(1, sizeof *sync);
    sync->store = store;
    sync->client = client;
    sync->gzip = gzip;
    sync->loop = httpc_loop_new();
    pthread_mutex_init(&sync->lock, NULL);
    if (pthread_create(&sync->thread, NULL, run, sync))
        abort();
    pthread_setname_np(sync->thread, "watch");
    return sync;
}

void sync_add(struct sync *sync, const struct core_output *output)
{
    pthread_mutex_lock(&sync->lock);
    /* Threads may pass each other on the way here: an older wish must not end a newer
     * one, whether that still waits or has begun. */
    if (output->run > sync->newest[output->kind]) {
        sync->newest[output->kind] = output->run;
        free(sync->wanted[output->kind]);
        sync->wanted[output->kind] = core_output_dup(output);
    }
    pthread_mutex_unlock(&sync->lock);
    httpc_loop_wake(sync->loop);
}

void sync_stop(struct sync *sync)
{
    if (!sync)
        return;
    pthread_mutex_lock(&sync->lock);
    sync->stop = true;
    pthread_mutex_unlock(&sync->lock);
    httpc_loop_wake(sync->loop);
    pthread_join(sync->thread, NULL);
}

void sync_free(struct sync *sync)
{
    if (!sync)
        return;
    httpc_loop_free(sync->loop);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(sync->wanted[kind]);
    pthread_mutex_destroy(&sync->lock);
    free(sync);
}
