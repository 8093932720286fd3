/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch.h"

#include <pthread.h>
#include <stdlib.h>

#include "agent/scvfeed.h"
#include "base/log.h"
#include "base/mem.h"

struct wish {
    uint64_t run;
    char *version;
};

struct watch {
    struct kube_client *client;
    const struct calls_names *names;
    struct httpc_loop *loop;
    pthread_t thread;

    /* of the thread alone */
    struct httpc_stream *stream;
    struct scvfeed feed;

    pthread_mutex_t lock; /* protects what follows */
    struct wish wanted;   /* version NULL: none */
    bool stop;
};

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct watch *w = ctx;
    if (status == 401)
        kube_client_unauthorized(w->client);
    return scvfeed_begin(&w->feed, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct watch *w = ctx;
    return scvfeed_data(&w->feed, p, n);
}

static void on_end(void *ctx, const struct err *why)
{
    struct watch *w = ctx;
    w->stream = NULL;
    scvfeed_end(&w->feed, why);
    log_debug("watch", "ended", LOG_ERR(&w->feed.in.err));
}

static const struct httpc_sink sink = {on_begin, on_data, on_end};

static void cancel(struct watch *w)
{
    if (w->stream)
        httpc_stream_cancel(w->stream);
    w->stream = NULL;
}

static void begin(struct watch *w, const struct wish *wish)
{
    struct machine_output output = {
        .type = MACHINE_WATCH, .run = wish->run, .version = wish->version};
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    cancel(w);
    scvfeed_start(&w->feed, wish->run);
    calls_request(w->names, &output, &a, &request);
    w->stream = kube_stream_start(w->client, w->loop, &request, &sink, w, &err);
    if (!w->stream)
        on_end(w, &err); /* no credentials: as if there had been no answer */
}

/* Starts what is wanted. False: it is time to stop. */
static bool take_wish(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    struct wish wish = w->wanted;
    bool stop = w->stop;
    w->wanted.version = NULL;
    pthread_mutex_unlock(&w->lock);
    if (wish.version && !stop)
        begin(w, &wish);
    free(wish.version);
    return !stop;
}

static void *run(void *arg)
{
    struct watch *w = arg;
    while (take_wish(w))
        httpc_loop_run(w->loop, 1000);
    cancel(w);
    return NULL;
}

struct watch *watch_start(struct kube_client *client, const struct calls_names *names,
                          const struct watch_sink *to)
{
    struct watch *w = xcalloc(1, sizeof *w);
    w->client = client;
    w->names = names;
    scvfeed_init(&w->feed, to->input, to->ctx);
    w->loop = httpc_loop_new();
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, run, w))
        abort();
    pthread_setname_np(w->thread, "watch");
    return w;
}

void watch_begin(struct watch *w, const struct machine_output *output)
{
    pthread_mutex_lock(&w->lock);
    /* Threads may pass each other on the way here. */
    if (output->run > w->wanted.run) {
        free(w->wanted.version);
        w->wanted = (struct wish){output->run, xstrdup(output->version)};
    }
    pthread_mutex_unlock(&w->lock);
    httpc_loop_wake(w->loop);
}

void watch_stop(struct watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    httpc_loop_wake(w->loop);
    pthread_join(w->thread, NULL);
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    httpc_loop_free(w->loop);
    free(w->wanted.version);
    scvfeed_fini(&w->feed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
