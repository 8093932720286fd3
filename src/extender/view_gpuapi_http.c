/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "extender/view_gpuapi_priv.h"

enum { PIECE = 16 * 1024 }; /* what a reader is given at a time, and can make us hold */

/* Those who wait for news, or for there to be something to show. */

static void enlist(struct watcher *w)
{
    struct sleepers *all = &w->o->asleep[w->kind];
    w->asleep = true;
    w->next = NULL;
    w->prev = all->last;
    *(w->prev ? &w->prev->next : &all->first) = w;
    all->last = w;
    all->n++;
}

void view_gpuapi_unlist(struct watcher *w)
{
    struct sleepers *all = &w->o->asleep[w->kind];
    if (!w->asleep)
        return;
    w->asleep = false;
    *(w->prev ? &w->prev->next : &all->first) = w->next;
    *(w->next ? &w->next->prev : &all->last) = w->prev;
    all->n--;
}

static void on_open(void *ctx, struct httpd_waker *waker)
{
    struct watcher *w = ctx;
    w->waker = waker;
}

static struct watcher *watcher_new(struct view_gpuapi *o, enum view_gpuapi_kind kind)
{
    struct watcher *w = xcalloc(1, sizeof *w);
    w->o = o;
    w->kind = kind;
    view_gpuapi_reader_begin(o);
    return w;
}

static void watcher_free(struct watcher *w)
{
    struct view_gpuapi *o = w->o;
    pthread_mutex_lock(&o->lock);
    view_gpuapi_unlist(w);
    pthread_mutex_unlock(&o->lock);
    watch_cache_list_free(w->list);
    free(w);
    view_gpuapi_reader_end(o);
}

/* Lists */

/* It is of one moment: that of the first piece. */
static bool begin_list(struct watcher *w)
{
    struct view_gpuapi *o = w->o;
    pthread_mutex_lock(&o->lock);
    view_gpuapi_unlist(w);
    if (atomic_load(&o->ready))
        w->list = watch_cache_list(o->logs[w->kind]);
    else
        enlist(w);
    pthread_mutex_unlock(&o->lock);
    return w->list;
}

static enum httpd_more list_fill(void *ctx, struct buf *out)
{
    struct watcher *w = ctx;
    if (!w->list) {
        if (!begin_list(w))
            return HTTPD_SLEEP;
        buf_adds(out, "{\"metadata\":{},\"items\":[");
    }
    if (!watch_cache_list_read(w->list, PIECE, out))
        return HTTPD_AGAIN;
    buf_adds(out, "]}");
    return HTTPD_END;
}

static void list_close(void *ctx)
{
    struct watcher *w = ctx;
    atomic_fetch_sub(&w->o->lists, 1);
    watcher_free(w);
}

static const struct httpd_stream list_stream = {on_open, list_fill, list_close};

static void come_back(struct httpd_reply *reply)
{
    reply->header[0][0] = "Retry-After";
    reply->header[0][1] = "1";
}

/* Readers that take nothing would each hold a list for minutes. */
void view_gpuapi_list(struct view_gpuapi *o, enum view_gpuapi_kind kind,
                      struct httpd_reply *reply)
{
    if (atomic_fetch_add(&o->lists, 1) >= VIEW_GPUAPI_LISTS) {
        atomic_fetch_sub(&o->lists, 1);
        httpd_fail(reply, 503, "%d lists are being read; come back later",
                   VIEW_GPUAPI_LISTS);
        come_back(reply);
        return;
    }
    reply->stream = &list_stream;
    reply->stream_ctx = watcher_new(o, kind);
}

/* Watches */

static enum httpd_more watch_fill(void *ctx, struct buf *out)
{
    struct watcher *w = ctx;
    struct view_gpuapi *o = w->o;
    int64_t now_ms = clock_mono_ms();
    pthread_mutex_lock(&o->lock);
    view_gpuapi_unlist(w);
    /* Before anything could be said, an empty line would say that there is nothing. */
    bool ready = atomic_load(&o->ready);
    if (ready)
        watch_cache_read(o->logs[w->kind], &w->reader, PIECE, out);
    if (ready && !out->n && o->conf.heartbeat_ms &&
        now_ms - w->said_ms >= o->conf.heartbeat_ms)
        buf_addc(out, '\n');
    if (out->n)
        w->said_ms = now_ms;
    else
        enlist(w); /* what is published after this wakes it */
    pthread_mutex_unlock(&o->lock);
    return out->n ? HTTPD_AGAIN : HTTPD_SLEEP;
}

static void watch_close(void *ctx)
{
    struct watcher *w = ctx;
    atomic_fetch_sub(&w->o->watches, 1);
    if (w->counted)
        atomic_fetch_sub(&w->o->main_watches, 1);
    watcher_free(w);
}

static const struct httpd_stream watch_stream = {on_open, watch_fill, watch_close};

void view_gpuapi_watch(struct view_gpuapi *o, enum view_gpuapi_kind kind, bool main,
                       struct httpd_reply *reply)
{
    if (main && atomic_fetch_add(&o->main_watches, 1) >= VIEW_GPUAPI_MAIN_WATCHES) {
        atomic_fetch_sub(&o->main_watches, 1);
        httpd_fail(reply, 503,
                   "this port is for kube-scheduler and serves %d watches at most; "
                   "--observe-port serves thousands",
                   VIEW_GPUAPI_MAIN_WATCHES);
        return;
    }
    struct watcher *w = watcher_new(o, kind);
    w->counted = main;
    atomic_fetch_add(&o->watches, 1);
    reply->stream = &watch_stream;
    reply->stream_ctx = w;
}

/* Somebody who claims to speak for a user must be the API server's front proxy. */
static bool is_believed(struct view_gpuapi *o, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    static const char *const headers[] = {"X-Remote-User", "X-Remote-Group",
                                          "X-Remote-Uid"};
    const char *user = NULL;
    if (!o->conf.has_front)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(headers) && !user; i++)
        user = httpd_header(req, headers[i]);
    if (user && !httpd_client(req)) {
        httpd_fail(reply, 401,
                   "X-Remote-User is believed only from a client with a certificate of "
                   "--requestheader-client-ca");
        return false;
    }
    if (user)
        log_debug("observe", "read for a user", LOG_S("path", req->path),
                  LOG_S("user", user), LOG_S("proxy", httpd_client(req)));
    return true;
}

/* Is there something to show, or will there be in a moment? */
static bool can_show(struct view_gpuapi *o)
{
    bool ready = atomic_load(&o->ready);
    if (!ready) {
        ready = core_ready(store_read(o->store), store_now(), NULL) == 0;
        store_read_end(o->store);
    }
    return ready;
}

static void answer(struct view_gpuapi *o, enum view_gpuapi_kind kind, bool main,
                   const struct httpd_request *req, struct httpd_reply *reply)
{
    const char *watch = httpd_param(req, "watch");
    if (!is_believed(o, req, reply))
        return;
    if (!can_show(o)) {
        httpd_fail(reply, 503, "not everything has been listed yet");
        come_back(reply);
    } else if (watch && strcmp(watch, "true") == 0) {
        view_gpuapi_watch(o, kind, main, reply);
    } else {
        view_gpuapi_list(o, kind, reply);
    }
}

void view_gpuapi_gpunodes(struct view_gpuapi *o, bool main,
                          const struct httpd_request *req, struct httpd_reply *reply)
{
    answer(o, VIEW_GPUAPI_NODES, main, req, reply);
}

void view_gpuapi_gpupods(struct view_gpuapi *o, bool main,
                         const struct httpd_request *req, struct httpd_reply *reply)
{
    answer(o, VIEW_GPUAPI_PODS, main, req, reply);
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
