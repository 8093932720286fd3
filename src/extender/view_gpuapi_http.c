/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/view_gpuapi_priv.h"

enum {
    CHUNK = 16 * 1024, /* bytes written at a time, and buffered per slow client */
    /* Likewise, of the initial state: many watches begin together when a server starts. */
    FIRST_CHUNK = 8 * 1024,
};

/* The watchers that wait for a change, or for the cache to be filled. */

static void waiters_add(struct watcher *w)
{
    struct waiters *all = &w->v->waiters[w->kind];
    w->waiting = true;
    w->next = NULL;
    w->prev = all->last;
    *(w->prev ? &w->prev->next : &all->first) = w;
    all->last = w;
    all->n++;
}

void view_gpuapi_waiters_remove(struct watcher *w)
{
    struct waiters *all = &w->v->waiters[w->kind];
    if (!w->waiting)
        return;
    w->waiting = false;
    *(w->prev ? &w->prev->next : &all->first) = w->next;
    *(w->next ? &w->next->prev : &all->last) = w->prev;
    all->n--;
}

static void on_open(void *ctx, struct httpd_open_stream *waker)
{
    struct watcher *w = ctx;
    w->waker = waker;
}

static struct watcher *watcher_new(struct view_gpuapi *v, enum view_gpuapi_kind kind)
{
    struct watcher *w = xcalloc(1, sizeof *w);
    w->v = v;
    w->kind = kind;
    view_gpuapi_reader_begin(v);
    return w;
}

static void watcher_free(struct watcher *w)
{
    struct view_gpuapi *v = w->v;
    pthread_mutex_lock(&v->lock);
    view_gpuapi_waiters_remove(w);
    pthread_mutex_unlock(&v->lock);
    watch_cache_list_free(w->list);
    free(w);
    view_gpuapi_reader_end(v);
}

/* Lists */

/* Takes the snapshot when the first chunk is written. */
static bool begin_list(struct watcher *w)
{
    struct view_gpuapi *v = w->v;
    pthread_mutex_lock(&v->lock);
    view_gpuapi_waiters_remove(w);
    if (atomic_load(&v->ready))
        w->list = watch_cache_list(v->caches[w->kind]);
    else
        waiters_add(w);
    pthread_mutex_unlock(&v->lock);
    return w->list;
}

static enum httpd_stream_result list_fill(void *ctx, struct buf *out)
{
    struct watcher *w = ctx;
    if (!w->list) {
        if (!begin_list(w))
            return HTTPD_STREAM_WAIT;
        buf_adds(out, "{\"metadata\":{},\"items\":[");
    }
    if (!watch_cache_list_read(w->list, &w->next_item, CHUNK, out))
        return HTTPD_STREAM_MORE;
    buf_adds(out, "]}");
    return HTTPD_STREAM_END;
}

static void list_close(void *ctx)
{
    struct watcher *w = ctx;
    atomic_fetch_sub(&w->v->lists, 1);
    watcher_free(w);
}

static const struct httpd_stream list_stream = {
    .open = on_open, .fill = list_fill, .close = list_close};

static void add_retry_after(struct httpd_reply *reply)
{
    reply->header[0][0] = "Retry-After";
    reply->header[0][1] = "1";
}

/* The limit exists because a client that stops reading holds its list for minutes. */
void view_gpuapi_list(struct view_gpuapi *v, enum view_gpuapi_kind kind,
                      struct httpd_reply *reply)
{
    if (atomic_fetch_add(&v->lists, 1) >= VIEW_GPUAPI_LISTS) {
        atomic_fetch_sub(&v->lists, 1);
        httpd_fail(reply, 503, "too many lists: %d are open; retry later",
                   VIEW_GPUAPI_LISTS);
        add_retry_after(reply);
        return;
    }
    reply->stream = &list_stream;
    reply->stream_ctx = watcher_new(v, kind);
}

/* Watches */

/* When the watch has something to do without a change. */
static int64_t next_due(const struct watcher *w)
{
    int64_t due = w->end_ms;
    int64_t heartbeat_ms = w->v->conf.heartbeat_ms;
    if (heartbeat_ms && w->sent_ms + heartbeat_ms < due)
        due = w->sent_ms + heartbeat_ms;
    return due;
}

static enum httpd_stream_result watch_fill(void *ctx, struct buf *out)
{
    struct watcher *w = ctx;
    struct view_gpuapi *v = w->v;
    int64_t now_ms = clock_mono_ms();
    if (now_ms >= w->end_ms)
        return HTTPD_STREAM_END;
    pthread_mutex_lock(&v->lock);
    view_gpuapi_waiters_remove(w);
    /* Until the cache is filled, an empty line would mean that there are no objects. */
    bool ready = atomic_load(&v->ready), all = true;
    if (ready)
        all = watch_cache_read(v->caches[w->kind], &w->reader,
                               w->reader.synced ? CHUNK : FIRST_CHUNK, out);
    if (ready && !out->n && v->conf.heartbeat_ms &&
        now_ms - w->sent_ms >= v->conf.heartbeat_ms)
        buf_addc(out, '\n');
    if (out->n || !w->sent_ms)
        w->sent_ms = now_ms;
    if (all)
        waiters_add(w); /* the next change wakes it */
    pthread_mutex_unlock(&v->lock);
    if (!all)
        return HTTPD_STREAM_MORE;
    httpd_stream_wake_at(w->waker, next_due(w));
    return HTTPD_STREAM_WAIT;
}

static void watch_close(void *ctx)
{
    struct watcher *w = ctx;
    atomic_fetch_sub(&w->v->watches, 1);
    if (w->main)
        atomic_fetch_sub(&w->v->main_watches, 1);
    watcher_free(w);
}

static const struct httpd_stream watch_stream = {
    .open = on_open, .fill = watch_fill, .close = watch_close};

static void watch(struct view_gpuapi *v, enum view_gpuapi_kind kind, bool main,
                  int64_t end_ms, struct httpd_reply *reply)
{
    if (main && atomic_fetch_add(&v->main_watches, 1) >= VIEW_GPUAPI_MAIN_WATCHES) {
        atomic_fetch_sub(&v->main_watches, 1);
        httpd_fail(reply, 503,
                   "this port is for kube-scheduler and serves at most %d watches; "
                   "use --observe-port",
                   VIEW_GPUAPI_MAIN_WATCHES);
        return;
    }
    if (atomic_fetch_add(&v->watches, 1) >= VIEW_GPUAPI_WATCHES) {
        atomic_fetch_sub(&v->watches, 1);
        if (main)
            atomic_fetch_sub(&v->main_watches, 1);
        httpd_fail(reply, 503, "too many watches: %d are open; retry later",
                   VIEW_GPUAPI_WATCHES);
        add_retry_after(reply);
        return;
    }
    struct watcher *w = watcher_new(v, kind);
    w->main = main;
    w->end_ms = end_ms;
    reply->stream = &watch_stream;
    reply->stream_ctx = w;
}

/* Whether the cache is filled or is about to be. */
static bool can_answer(struct view_gpuapi *v)
{
    bool ready = atomic_load(&v->ready);
    if (!ready) {
        ready = core_ready(store_read(v->store), store_now(), NULL) == 0;
        store_read_end(v->store);
    }
    return ready;
}

void view_gpuapi_answer(struct view_gpuapi *v, enum view_gpuapi_kind kind, bool main,
                        int64_t end_ms, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    const char *param = httpd_param(req, "watch");
    if (!can_answer(v)) {
        httpd_fail(reply, 503, "not every kind of object has been listed yet");
        add_retry_after(reply);
    } else if (param && strcmp(param, "true") == 0) {
        watch(v, kind, main, end_ms, reply);
    } else {
        view_gpuapi_list(v, kind, reply);
    }
}

void view_gpuapi_discovery(struct httpd_reply *reply)
{
    buf_adds(&reply->body,
             "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":"
             "\"nvidia-gpu-scheduler/v1\",\"resources\":["
             "{\"name\":\"gpupods\",\"singularName\":\"gpupod\",\"namespaced\":false,"
             "\"kind\":\"GpuPod\",\"verbs\":[\"list\",\"watch\"]},"
             "{\"name\":\"gpunodes\",\"singularName\":\"gpunode\",\"namespaced\":false,"
             "\"kind\":\"GpuNode\",\"verbs\":[\"list\",\"watch\"]}]}");
}

void view_gpuapi_not_found(struct httpd_reply *reply)
{
    reply->status = 404;
    reply->header[0][0] = "X-Content-Type-Options";
    reply->header[0][1] = "nosniff";
    buf_adds(&reply->body, "{\"code\":404,\"msg\":\"api not found\"}\n");
}

void view_gpuapi_not_allowed(struct httpd_reply *reply, const char *allow)
{
    reply->status = 405;
    reply->content_type = NULL;
    reply->header[0][0] = "Allow";
    reply->header[0][1] = allow;
}
