/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/stream.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

void stream_retry_after(struct httpd_reply *reply)
{
    httpd_add_header(reply, "Retry-After", "1");
}

void stream_refuse(struct httpd_reply *reply, const char *why)
{
    httpd_fail(reply, 503, "%s", why);
    stream_retry_after(reply);
}

static void leave_kind(struct stream_kind *kind, bool main)
{
    atomic_fetch_sub(&kind->open, 1);
    if (main)
        atomic_fetch_sub(&kind->main_open, 1);
}

static enum httpd_stream_result on_fill(void *ctx, struct httpd_open_stream *stream,
                                        struct buf *out)
{
    struct stream *s = ctx;
    (void)stream; /* the server's poll, once a second, is enough */
    int64_t now_ms = clock_mono_ms();
    if (now_ms >= s->client.end_ms)
        return HTTPD_STREAM_END;
    if (now_ms < s->next_ms)
        return HTTPD_STREAM_WAIT;
    enum httpd_stream_result result = s->read(s, out);
    if (result == HTTPD_STREAM_WAIT) {
        s->next_ms = now_ms + STREAM_PAUSE_MS;
        if (!out->n && s->kind->heartbeat_ms &&
            now_ms - s->sent_ms >= s->kind->heartbeat_ms)
            buf_addc(out, '\n');
    }
    if (out->n)
        s->sent_ms = now_ms;
    return out->n && result == HTTPD_STREAM_WAIT ? HTTPD_STREAM_MORE : result;
}

static void on_close(void *ctx)
{
    struct stream *s = ctx;
    s->close(s);
    leave_kind(s->kind, s->client.main);
    free(s);
}

static const struct httpd_stream stream_fns = {.fill = on_fill, .close = on_close};

void *stream_open(struct stream_kind *kind, const struct stream_client *client,
                  size_t size,
                  enum httpd_stream_result (*read)(void *stream, struct buf *out),
                  void (*close)(void *stream), struct httpd_reply *reply)
{
    bool fits = atomic_fetch_add(&kind->open, 1) < kind->most,
         here = !client->main || atomic_fetch_add(&kind->main_open, 1) < kind->main_most;
    if (!fits || !here) {
        leave_kind(kind, client->main);
        httpd_fail(reply, 503, "too many %s: %u are open%s", kind->what,
                   here ? kind->most : kind->main_most,
                   here ? "; retry later" : " on this port; use --observe-port");
        stream_retry_after(reply);
        return NULL;
    }
    struct stream *s = xcalloc(1, size);
    *s = (struct stream){.read = read,
                         .close = close,
                         .kind = kind,
                         .client = *client,
                         .sent_ms = clock_mono_ms()};
    reply->stream = &stream_fns;
    reply->stream_ctx = s;
    return s;
}

/* -- shared texts -- */

/* A rendered text. Freed with its last reference, of which one is in `texts`. */
struct rendered {
    struct buf text, state;
    int64_t began_ms; /* when its rendering began */
    uint64_t charged; /* to the budget */
    unsigned refs;
    bool given_up;
};

enum { NEW, OLD, TEXTS };

/* Lock order: render_lock, then lock. */
struct stream_text {
    struct stream_kind *kind;
    struct budget *budget;
    void (*render)(void *ctx, struct buf *out);
    void *ctx;
    pthread_mutex_t render_lock; /* held while a text is rendered */
    pthread_mutex_t lock;        /* protects the texts */
    struct rendered *texts[TEXTS];
};

struct stream_text *stream_text_new(struct stream_kind *kind, struct budget *budget,
                                    void (*render)(void *ctx, struct buf *out), void *ctx)
{
    struct stream_text *t = xcalloc(1, sizeof *t);
    *t = (struct stream_text){
        .kind = kind, .budget = budget, .render = render, .ctx = ctx};
    pthread_mutex_init(&t->render_lock, NULL);
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

static void release_text(struct stream_text *t, struct rendered *r, bool gives_up)
{
    if (!r)
        return;
    r->refs--;
    r->given_up |= gives_up;
    if (!r->refs || gives_up) {
        buf_fini(&r->text);
        budget_give(t->budget, r->charged);
        r->charged = 0;
    }
    if (!r->refs) {
        buf_fini(&r->state);
        free(r);
    }
}

void stream_text_free(struct stream_text *t)
{
    if (!t)
        return;
    release_text(t, t->texts[NEW], true);
    release_text(t, t->texts[OLD], true);
    pthread_mutex_destroy(&t->render_lock);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* The text to share; NULL: another one is to be rendered, for which NEW is free. */
static struct rendered *find_text(struct stream_text *t, struct span state)
{
    struct rendered *newest = t->texts[NEW], *oldest = t->texts[OLD];
    bool newest_is_read = newest && newest->refs > 1,
         oldest_is_read = oldest && oldest->refs > 1;
    if (newest && (span_eq(buf_span(&newest->state), state) ||
                   (newest_is_read && oldest_is_read &&
                    clock_mono_ms() - newest->began_ms < STREAM_FRESH_MS)))
        return newest;
    if (newest_is_read || !oldest_is_read)
        release_text(t, steal(&t->texts[OLD]), true);
    if (newest_is_read)
        t->texts[OLD] = newest;
    else
        release_text(t, newest, true);
    t->texts[NEW] = NULL;
    return NULL;
}

/* A reference, and the size of the text; NULL: the budget is used up. */
static struct rendered *get_text(struct stream_text *t, struct span state, size_t *bytes)
{
    pthread_mutex_lock(&t->render_lock);
    pthread_mutex_lock(&t->lock);
    struct rendered *r = find_text(t, state);
    if (!r) {
        pthread_mutex_unlock(&t->lock);
        r = xcalloc(1, sizeof *r);
        r->refs = 1;
        r->began_ms = clock_mono_ms();
        buf_add_span(&r->state, state);
        t->render(t->ctx, &r->text);
        r->text.cap = r->text.n + 1;
        r->text.p = xreallocarray(r->text.p, r->text.cap, 1);
        pthread_mutex_lock(&t->lock);
        if (budget_change(t->budget, &r->charged, r->text.cap)) {
            t->texts[NEW] = r;
        } else {
            release_text(t, r, true);
            r = t->texts[OLD];
        }
    }
    if (r) {
        r->refs++;
        *bytes = r->text.n;
    }
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_unlock(&t->render_lock);
    return r;
}

struct reader {
    struct stream stream;
    struct stream_text *all;
    struct rendered *of;
    size_t at;
};

static enum httpd_stream_result read_text(void *stream, struct buf *out)
{
    struct reader *r = stream;
    enum httpd_stream_result result = HTTPD_STREAM_ABORT;
    pthread_mutex_lock(&r->all->lock);
    if (!r->of->given_up) {
        size_t n = r->of->text.n - r->at;
        n = n < STREAM_CHUNK ? n : STREAM_CHUNK;
        buf_add(out, r->of->text.p + r->at, n);
        r->at += n;
        result = r->at < r->of->text.n ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
    }
    pthread_mutex_unlock(&r->all->lock);
    return result;
}

static void close_text(void *stream)
{
    struct reader *r = stream;
    if (!r->of)
        return;
    pthread_mutex_lock(&r->all->lock);
    release_text(r->all, r->of, false);
    pthread_mutex_unlock(&r->all->lock);
}

void stream_text_send(struct stream_text *t, struct span state,
                      const struct stream_client *client, struct httpd_reply *reply)
{
    size_t bytes = 0;
    struct reader *r =
        stream_open(t->kind, client, sizeof *r, read_text, close_text, reply);
    if (!r)
        return;
    r->all = t;
    r->of = get_text(t, state, &bytes);
    reply->stream_length = bytes;
    if (!r->of) {
        reply->stream = NULL;
        on_close(r);
        stream_refuse(reply, "too many large replies are being read; retry later");
    }
}
