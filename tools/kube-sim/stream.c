/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/stream_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "kube-sim/gzip_priv.h"

enum { PIECE = 64 * 1024 }; /* approximate bytes of events per call */

struct stream {
    struct sim_server *server;
    struct api_watch *watch;
    struct stream *next, **link;
    struct httpd_waker *waker;     /* NULL before open */
    enum httpd_stream_result fate; /* HTTPD_STREAM_MORE: the watch is open */
};

static size_t stall_index(const char *resource)
{
    return sim_kind_index(sim_kind_by_resource(span_of(resource)));
}

/* -- watches -- */

static void wake(void *ctx)
{
    struct stream *st = ctx;
    httpd_wake(st->waker);
}

static void open_watch(void *ctx, struct httpd_waker *waker)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    st->waker = waker;
    api_watch_on_ready(st->watch, wake, st);
    pthread_mutex_unlock(&st->server->lock);
}

static enum httpd_stream_result take_events(struct stream *st, struct buf *out)
{
    if (st->fate != HTTPD_STREAM_MORE)
        return st->fate;
    if (st->server->stalled[stall_index(api_watch_resource(st->watch))])
        return HTTPD_STREAM_WAIT;
    int64_t now_ms = front_now_ms();
    int rc = 1;
    while (rc > 0 && out->n < PIECE)
        rc = api_watch_next(st->watch, now_ms, out);
    return rc < 0 ? HTTPD_STREAM_END : rc == 0 ? HTTPD_STREAM_WAIT : HTTPD_STREAM_MORE;
}

static enum httpd_stream_result fill_watch(void *ctx, struct buf *out)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    enum httpd_stream_result more = take_events(st, out);
    pthread_mutex_unlock(&st->server->lock);
    return more;
}

static void close_watch(void *ctx)
{
    struct stream *st = ctx;
    pthread_mutex_lock(&st->server->lock);
    *st->link = st->next;
    if (st->next)
        st->next->link = st->link;
    api_watch_free(st->watch);
    pthread_mutex_unlock(&st->server->lock);
    free(st);
}

static const struct httpd_stream watch_stream = {
    .open = open_watch, .fill = fill_watch, .close = close_watch};

void sim_stream_watch(struct sim_server *s, struct api_watch *w,
                      struct httpd_reply *reply)
{
    struct stream *st = xcalloc(1, sizeof *st);
    *st = (struct stream){.server = s,
                          .watch = w,
                          .next = s->streams,
                          .link = &s->streams,
                          .fate = HTTPD_STREAM_MORE};
    if (st->next)
        st->next->link = &st->next;
    s->streams = st;
    reply->stream = &watch_stream;
    reply->stream_ctx = st;
}

size_t sim_stream_order(struct sim_server *s, const char *resource,
                        enum stream_order order)
{
    size_t n = 0;
    for (struct stream *st = s->streams; st; st = st->next) {
        if (resource && strcmp(resource, api_watch_resource(st->watch)) != 0)
            continue;
        n++;
        if (order == STREAM_COUNT)
            continue;
        if (order != STREAM_WAKE)
            st->fate = order == STREAM_CUT ? HTTPD_STREAM_ABORT : HTTPD_STREAM_END;
        if (st->waker)
            httpd_wake(st->waker);
    }
    return n;
}

/* -- lists -- */

struct list {
    struct api_list *list;
    struct gzip *gzip; /* NULL: no compression */
    struct buf piece;  /* before it is compressed */
};

static void open_list(void *ctx, struct httpd_waker *waker)
{
    (void)ctx;
    (void)waker;
}

/* The compressor may keep a whole piece; then the next piece is added. */
static enum httpd_stream_result fill_list(void *ctx, struct buf *out)
{
    struct list *l = ctx;
    bool more = true;
    if (!l->gzip)
        return api_list_next(l->list, out) ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
    while (more && !out->n) {
        buf_clear(&l->piece);
        more = api_list_next(l->list, &l->piece);
        sim_gzip_add(l->gzip, buf_span(&l->piece), !more, out);
    }
    return more ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
}

static void close_list(void *ctx)
{
    struct list *l = ctx;
    api_list_free(l->list);
    sim_gzip_free(l->gzip);
    buf_fini(&l->piece);
    free(l);
}

static const struct httpd_stream list_stream = {
    .open = open_list, .fill = fill_list, .close = close_list};

/* A list that fits into one piece becomes an ordinary body. */
void sim_stream_list(struct api_list *list, struct httpd_reply *reply)
{
    if (!api_list_next(list, &reply->body)) {
        api_list_free(list);
        return;
    }
    struct list *l = xcalloc(1, sizeof *l);
    l->list = list;
    reply->stream = &list_stream;
    reply->stream_ctx = l;
}

void sim_stream_compress(struct sim_server *s, struct httpd_reply *reply)
{
    if (reply->body.n <= SIM_GZIP_ABOVE)
        return; /* the first piece of a streamed list is larger; a watch has no body */
    cleanup_buf struct buf plain = reply->body;
    struct list *l = reply->stream_ctx;
    struct gzip *z = sim_gzip_new();
    reply->body = (struct buf){0};
    sim_gzip_add(z, buf_span(&plain), !l, &reply->body);
    if (l)
        l->gzip = z;
    else
        sim_gzip_free(z);
    reply->gzip = true;
    size_t i = 0;
    while (reply->header[i][0])
        i++;
    reply->header[i][0] = "Vary";
    reply->header[i][1] = "Accept-Encoding";
    pthread_mutex_lock(&s->lock);
    s->compressed++;
    pthread_mutex_unlock(&s->lock);
}
