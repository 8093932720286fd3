/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers of the publisher's calls, and the watch of the Scv. */
#include "agent/api.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"

/* -- calls -- */

enum {
    /* timeoutSeconds of a watch. Bookmarks are optional, so the regular end of a watch
     * is what shows that it works. */
    WATCH_MIN_S = 50,
    WATCH_MORE_S = 25,
    STALL_MS = 90 * 1000, /* longer than any watch lasts */
    RETRY_AFTER_MAX_S = 60,
};

#define SCVS   "/apis/core.run-linux.com/v1/scvs"
#define LEASES "/apis/coordination.k8s.io/v1/namespaces/"

static const char *path(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static const char *path(struct arena *a, const char *fmt, ...)
{
    cleanup_buf struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return arena_copy(a, buf_span(&b)).p;
}

/* A watch of our own object only: with 1,000 agents that watch every Scv, each change
 * would be sent 1,000 times. */
static const char *watch_path(const char *node, const struct publisher_output *o,
                              struct arena *a)
{
    cleanup_buf struct buf b = {0};
    buf_adds(&b, SCVS "?fieldSelector=metadata.name%3D");
    list_watch_escape(&b, span_of(node));
    buf_addc(&b, '&');
    list_watch_watch_query(&b, span_of(o->version),
                          WATCH_MIN_S + (int64_t)(o->run % WATCH_MORE_S));
    return arena_copy(a, buf_span(&b)).p;
}

void api_request(const struct api_names *names, const struct publisher_output *o,
                 struct arena *a, struct kube_request *r)
{
    const char *node = names->node, *ns = names->lease_namespace;
    *r = (struct kube_request){.method = "GET", .timeout_ms = PUBLISHER_CALL_MS};
    if (o->body)
        r->body = arena_copy(a, span_of(o->body));
    switch (o->type) {
    case PUBLISHER_WATCH:
        r->path = watch_path(node, o, a);
        r->timeout_ms = 0;
        r->stall_ms = STALL_MS;
        break;
    case PUBLISHER_LIST:
        r->path = path(a, SCVS "?fieldSelector=metadata.name%%3D%s", node);
        break;
    case PUBLISHER_CREATE:
        r->method = "POST";
        r->path = SCVS;
        break;
    case PUBLISHER_PATCH:
        r->method = "PATCH";
        r->path = path(a, SCVS "/%s", node);
        break;
    case PUBLISHER_CREATE_LEASE:
        r->method = "POST";
        r->path = path(a, LEASES "%s/leases", ns);
        break;
    case PUBLISHER_PATCH_LEASE:
        r->method = "PATCH";
        r->path = path(a, LEASES "%s/leases/%s", ns, node);
        break;
    default:
        r->path = path(a, "/api/v1/nodes/%s", node);
        break;
    }
    if (*r->method == 'P' && r->method[1] == 'A')
        r->content_type = "application/merge-patch+json";
}

static int read_body(const struct publisher_output *o, struct span body, struct arena *a,
                     struct api_answer *answer)
{
    bool found = true;
    int rc = o->type == PUBLISHER_LIST
                 ? api_object_read_list(body, a, &answer->object, &found,
                                        &answer->input.version, &answer->err)
                 : api_object_read(body, a, &answer->object, &answer->err);
    if (rc) {
        answer->err.code = ERR_INTERNAL;
        return err_wrap(&answer->err, "answer of the API server");
    }
    if (found)
        answer->input.object = &answer->object;
    return 0;
}

void api_answer(const struct publisher_output *o, const struct httpc_reply *reply,
                const struct err *why, struct arena *a, struct api_answer *answer)
{
    answer->err = (struct err){0};
    answer->input = (struct publisher_input){
        .type = PUBLISHER_ANSWER, .call = o->call, .retry_after_ms = -1};
    if (!reply) {
        answer->err = *why;
    } else {
        int64_t s = reply->retry_after_s;
        if (s >= 0)
            answer->input.retry_after_ms =
                1000 * (s < RETRY_AFTER_MAX_S ? s : RETRY_AFTER_MAX_S);
        if (kube_reply_check(reply->status, buf_span(&reply->body), &answer->err) == 0)
            read_body(o, buf_span(&reply->body), a, answer);
    }
    answer->input.err = &answer->err;
}

/* -- the watch, decoded -- */

static void pass_input(struct api_feed *f, struct publisher_input in)
{
    in.run = f->run;
    in.retry_after_ms = f->in.retry_after_ms;
    f->input(f->ctx, &in);
}

static void on_object(void *ctx, struct jread *j, bool gone)
{
    struct api_feed *f = ctx;
    struct api_object object;
    struct span raw;
    struct err err;
    if (!jread_raw(j, &raw))
        return; /* truncated: the next watch sends it again */
    if (api_object_read(raw, &f->in.arena, &object, &err))
        list_watch_fail(&f->in, &err);
    else
        pass_input(f, (struct publisher_input){
                    .type = PUBLISHER_OBJECT, .gone = gone, .object = &object});
}

static void on_bookmark(void *ctx, struct span version)
{
    pass_input(ctx,
         (struct publisher_input){.type = PUBLISHER_WATCH_ALIVE, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct api_feed *f = ctx;
    list_watch_fail(&f->in, err);
}

static const struct list_watch_handler reader = {on_object, on_bookmark, on_fault};

void api_feed_init(struct api_feed *f,
                   void (*input)(void *ctx, const struct publisher_input *in),
                   void *ctx)
{
    *f = (struct api_feed){.input = input, .ctx = ctx};
    list_watch_init(&f->in, &reader, f);
}

void api_feed_fini(struct api_feed *f)
{
    list_watch_fini(&f->in);
}

void api_feed_start(struct api_feed *f, uint64_t run)
{
    f->run = run;
    list_watch_start(&f->in, true);
}

bool api_feed_begin(struct api_feed *f, unsigned status, int64_t retry_after_s)
{
    list_watch_begin(&f->in, status, retry_after_s);
    if (status == 200)
        pass_input(f, (struct publisher_input){.type = PUBLISHER_WATCH_ALIVE});
    return true;
}

bool api_feed_data(struct api_feed *f, const char *p, size_t n)
{
    return list_watch_data(&f->in, p, n);
}

void api_feed_end(struct api_feed *f, const struct err *why)
{
    list_watch_end(&f->in, why);
    pass_input(f, (struct publisher_input){.type = PUBLISHER_WATCH_ENDED, .err = &f->in.err});
}

/* -- the thread of the watch -- */

struct next_watch {
    uint64_t run;
    char *version;
};

struct api_watch {
    struct kube_client *client;
    const struct api_names *names;
    struct httpc_loop *loop;
    pthread_t thread;

    /* used only by the thread */
    struct httpc_stream *stream;
    struct api_feed feed;

    pthread_mutex_t lock;   /* protects the members below */
    struct next_watch next; /* version NULL: none */
    bool stop;
};

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct api_watch *w = ctx;
    if (status == 401)
        kube_client_unauthorized(w->client);
    return api_feed_begin(&w->feed, status, retry_after_s);
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct api_watch *w = ctx;
    return api_feed_data(&w->feed, p, n);
}

static void on_end(void *ctx, const struct err *why)
{
    struct api_watch *w = ctx;
    w->stream = NULL;
    api_feed_end(&w->feed, why);
    log_debug("scv", "watch ended", LOG_ERR(&w->feed.in.err));
}

static const struct httpc_sink sink = {on_begin, on_data, on_end};

static void cancel_watch(struct api_watch *w)
{
    if (w->stream)
        httpc_stream_cancel(w->stream);
    w->stream = NULL;
}

static void begin_watch(struct api_watch *w, const struct next_watch *next)
{
    struct publisher_output output = {
        .type = PUBLISHER_WATCH, .run = next->run, .version = next->version};
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    cancel_watch(w);
    api_feed_start(&w->feed, next->run);
    api_request(w->names, &output, &a, &request);
    w->stream = kube_stream_start(w->client, w->loop, &request, &sink, w, &err);
    if (!w->stream)
        on_end(w, &err); /* without credentials there is no answer */
}

/* Starts the requested watch. False: the thread must stop. */
static bool start_next(struct api_watch *w)
{
    pthread_mutex_lock(&w->lock);
    struct next_watch next = w->next;
    bool stop = w->stop;
    w->next.version = NULL;
    pthread_mutex_unlock(&w->lock);
    if (next.version && !stop)
        begin_watch(w, &next);
    free(next.version);
    return !stop;
}

static void *run_watch(void *arg)
{
    struct api_watch *w = arg;
    while (start_next(w))
        httpc_loop_run(w->loop, 1000);
    cancel_watch(w);
    return NULL;
}

struct api_watch *api_watch_start(struct kube_client *client,
                                  const struct api_names *names,
                                  void (*input)(void *ctx,
                                                const struct publisher_input *in),
                                  void *ctx)
{
    struct api_watch *w = xcalloc(1, sizeof *w);
    w->client = client;
    w->names = names;
    api_feed_init(&w->feed, input, ctx);
    w->loop = httpc_loop_new();
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, run_watch, w))
        abort();
    pthread_setname_np(w->thread, "watch");
    return w;
}

void api_watch_begin(struct api_watch *w, const struct publisher_output *output)
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

void api_watch_stop(struct api_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    httpc_loop_wake(w->loop);
    pthread_join(w->thread, NULL);
}

void api_watch_end(struct api_watch *w)
{
    if (!w)
        return;
    httpc_loop_free(w->loop);
    free(w->next.version);
    api_feed_fini(&w->feed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
