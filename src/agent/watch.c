/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/jsonlist.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    ITEM_MAX = 8 << 20,
    ERROR_BODY_MAX = 64 << 10,
};

struct wish {
    uint64_t run;
    char *version;
};

struct watch {
    struct kube_client *client;
    const struct calls_names *names;
    struct watch_sink sink;
    struct httpc_loop *loop;
    pthread_t thread;

    /* of the thread alone */
    struct httpc_stream *stream;
    uint64_t run;
    struct jsonlist list;
    bool fed; /* `list` is in use */
    unsigned status;
    int64_t retry_after_ms;
    struct buf error_body;
    struct err failed;
    struct arena arena;

    pthread_mutex_t lock; /* protects what follows */
    struct wish wanted;   /* version NULL: none */
    bool stop;
};

static void hand_on(struct watch *w, struct machine_input *in)
{
    in->run = w->run;
    w->sink.input(w->sink.ctx, in);
}

static void on_item(void *ctx, struct jread *j)
{
    struct watch *w = ctx;
    struct span raw;
    struct calls_answer answer;
    if (!jread_raw(j, &raw) || w->failed.code != ERR_NONE)
        return; /* cut off: it comes again */
    arena_reset(&w->arena);
    if (calls_event(raw, &w->arena, &answer, &w->failed) == 0)
        hand_on(w, &answer.input);
}

static const struct jsonlist_handler handler = {on_item, NULL};

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct watch *w = ctx;
    w->status = status;
    w->retry_after_ms = retry_after_s < 0 ? -1 : retry_after_s * 1000;
    if (status == 401)
        kube_client_unauthorized(w->client);
    if (status == 200)
        hand_on(w, &(struct machine_input){.type = MACHINE_WATCH_ALIVE,
                                           .retry_after_ms = -1});
    return true;
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct watch *w = ctx;
    struct err err;
    if (w->status != 200) {
        size_t left = ERROR_BODY_MAX - w->error_body.n;
        buf_add(&w->error_body, p, n < left ? n : left);
        return true;
    }
    if (w->failed.code == ERR_NONE && jsonlist_feed(&w->list, p, n, &err) &&
        w->failed.code == ERR_NONE)
        w->failed = err;
    return w->failed.code == ERR_NONE;
}

static void release(struct watch *w)
{
    if (w->fed)
        jsonlist_fini(&w->list);
    w->fed = false;
}

static void on_end(void *ctx, const struct err *why)
{
    struct watch *w = ctx;
    w->stream = NULL;
    if (w->failed.code == ERR_NONE && w->status && w->status != 200)
        kube_reply_check(w->status, buf_span(&w->error_body), &w->failed);
    else if (w->failed.code == ERR_NONE && why)
        w->failed = *why;
    release(w);
    log_debug("watch", "ended", LOG_ERR(&w->failed));
    hand_on(w, &(struct machine_input){.type = MACHINE_WATCH_ENDED,
                                       .err = &w->failed,
                                       .retry_after_ms = w->retry_after_ms});
}

static const struct httpc_sink sink = {on_begin, on_data, on_end};

static void cancel(struct watch *w)
{
    if (w->stream)
        httpc_stream_cancel(w->stream);
    w->stream = NULL;
    release(w);
}

static void begin(struct watch *w, const struct wish *wish)
{
    struct machine_output output = {
        .type = MACHINE_WATCH, .run = wish->run, .version = wish->version};
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    cancel(w);
    w->run = wish->run;
    w->status = 0;
    w->retry_after_ms = -1;
    w->failed = (struct err){0};
    buf_clear(&w->error_body);
    jsonlist_init(&w->list, JSONLIST_WATCH, ITEM_MAX, &handler, w);
    w->fed = true;
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
    w->sink = *to;
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
    buf_fini(&w->error_body);
    arena_fini(&w->arena);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
