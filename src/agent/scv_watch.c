/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/scv_watch.h"

#include <pthread.h>
#include <stdlib.h>

#include "agent/scv_decode.h"
#include "base/log.h"
#include "base/mem.h"

struct next_watch {
    uint64_t run;
    char *version;
};

struct scv_watch {
    struct kube_client *client;
    const struct calls_names *names;
    struct httpc_loop *loop;
    pthread_t thread;

    /* used only by the thread */
    struct httpc_stream *stream;
    struct scv_decode feed;

    pthread_mutex_t lock;   /* protects the members below */
    struct next_watch next; /* version NULL: none */
    bool stop;
};

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct scv_watch *w = ctx;
    if (status == 401)
        kube_client_unauthorized(w->client);
    return scv_decode_begin(&w->feed, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct scv_watch *w = ctx;
    return scv_decode_data(&w->feed, p, n);
}

static void on_end(void *ctx, const struct err *why)
{
    struct scv_watch *w = ctx;
    w->stream = NULL;
    scv_decode_end(&w->feed, why);
    log_debug("scv", "watch ended", LOG_ERR(&w->feed.in.err));
}

static const struct httpc_sink sink = {on_begin, on_data, on_end};

static void cancel(struct scv_watch *w)
{
    if (w->stream)
        httpc_stream_cancel(w->stream);
    w->stream = NULL;
}

static void begin(struct scv_watch *w, const struct next_watch *next)
{
    struct publisher_output output = {
        .type = PUBLISHER_WATCH, .run = next->run, .version = next->version};
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    cancel(w);
    scv_decode_start(&w->feed, next->run);
    calls_request(w->names, &output, &a, &request);
    w->stream = kube_stream_start(w->client, w->loop, &request, &sink, w, &err);
    if (!w->stream)
        on_end(w, &err); /* without credentials there is no answer */
}

/* Starts the requested watch. False: the thread must stop. */
static bool start_next(struct scv_watch *w)
{
    pthread_mutex_lock(&w->lock);
    struct next_watch next = w->next;
    bool stop = w->stop;
    w->next.version = NULL;
    pthread_mutex_unlock(&w->lock);
    if (next.version && !stop)
        begin(w, &next);
    free(next.version);
    return !stop;
}

static void *run(void *arg)
{
    struct scv_watch *w = arg;
    while (start_next(w))
        httpc_loop_run(w->loop, 1000);
    cancel(w);
    return NULL;
}

struct scv_watch *scv_watch_start(struct kube_client *client,
                                  const struct calls_names *names,
                                  const struct scv_watch_sink *to)
{
    struct scv_watch *w = xcalloc(1, sizeof *w);
    w->client = client;
    w->names = names;
    scv_decode_init(&w->feed, to->input, to->ctx);
    w->loop = httpc_loop_new();
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, run, w))
        abort();
    pthread_setname_np(w->thread, "watch");
    return w;
}

void scv_watch_begin(struct scv_watch *w, const struct publisher_output *output)
{
    pthread_mutex_lock(&w->lock);
    /* Threads may overtake each other: the highest run wins. */
    if (output->run > w->next.run) {
        free(w->next.version);
        w->next = (struct next_watch){output->run, xstrdup(output->version)};
    }
    pthread_mutex_unlock(&w->lock);
    httpc_loop_wake(w->loop);
}

void scv_watch_stop(struct scv_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    httpc_loop_wake(w->loop);
    pthread_join(w->thread, NULL);
}

void scv_watch_free(struct scv_watch *w)
{
    if (!w)
        return;
    httpc_loop_free(w->loop);
    free(w->next.version);
    scv_decode_fini(&w->feed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
