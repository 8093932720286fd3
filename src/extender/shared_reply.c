/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/shared_reply.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

enum { CHUNK = 16 * 1024 }; /* bytes copied at a time */

/* A rendered text. Freed with its last reference; `shelf` has one. */
struct snapshot {
    struct buf text; /* empty: given up */
    struct buf state;
    uint64_t number;  /* of its rendering */
    int64_t began_ms; /* when its rendering began */
    uint64_t charged; /* to the budget */
    unsigned refs;
    bool given_up;
};

struct shelf {
    pthread_mutex_t render_lock;                /* held while a text is rendered */
    _Atomic uint64_t renderings;                /* begun */
    struct snapshot *texts[SHARED_REPLY_TEXTS]; /* the newest first; NULL: none */
};

/* Lock order: a render_lock, then `lock`. */
struct shared_replies {
    struct budget *budget;
    struct seats readers;
    pthread_mutex_t lock; /* protects the texts of all shelves, and all snapshots */
    struct shelf shelves[SHARED_REPLY_KINDS];
};

struct shared_replies *shared_replies_new(struct budget *budget)
{
    struct shared_replies *s = xcalloc(1, sizeof *s);
    s->budget = budget;
    s->readers = (struct seats){.what = "large replies",
                                .most = SHARED_REPLY_READERS,
                                .main_most = SHARED_REPLY_MAIN_READERS};
    pthread_mutex_init(&s->lock, NULL);
    for (int kind = 0; kind < SHARED_REPLY_KINDS; kind++)
        pthread_mutex_init(&s->shelves[kind].render_lock, NULL);
    return s;
}

static void drop_text(struct shared_replies *s, struct snapshot *at)
{
    buf_fini(&at->text);
    budget_give(s->budget, at->charged);
    at->charged = 0;
    at->given_up = true;
}

static void unref(struct shared_replies *s, struct snapshot *at)
{
    if (--at->refs)
        return;
    drop_text(s, at);
    buf_fini(&at->state);
    free(at);
}

void shared_replies_free(struct shared_replies *s)
{
    if (!s)
        return;
    for (int kind = 0; kind < SHARED_REPLY_KINDS; kind++) {
        struct shelf *shelf = &s->shelves[kind];
        for (size_t i = 0; i < SHARED_REPLY_TEXTS && shelf->texts[i]; i++)
            unref(s, shelf->texts[i]);
        pthread_mutex_destroy(&shelf->render_lock);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* -- the texts -- */

static bool is_read(const struct snapshot *at)
{
    return at && at->refs > 1;
}

/* Removes the texts that nobody reads, but for the newest. Returns how many are left. */
static size_t tidy(struct shared_replies *s, struct shelf *shelf)
{
    size_t n = 0;
    for (size_t i = 0; i < SHARED_REPLY_TEXTS; i++) {
        struct snapshot *at = shelf->texts[i];
        shelf->texts[i] = NULL;
        if (at && (n == 0 || is_read(at)))
            shelf->texts[n++] = at;
        else if (at)
            unref(s, at);
    }
    return n;
}

/* The text to share. NULL: a new one must be rendered, for which there is room unless
 * *may_render is false: all are being read, and none long enough. */
static struct snapshot *find(struct shared_replies *s, struct shelf *shelf,
                             struct span state, uint64_t arrived, bool *may_render)
{
    int64_t now_ms = clock_mono_ms();
    size_t n = tidy(s, shelf), drop = n;
    struct snapshot *newest = shelf->texts[0];
    *may_render = true;
    if (!n)
        return NULL;
    bool current = newest->number > arrived || span_eq(buf_span(&newest->state), state);
    bool pressed = n > 1 && now_ms - newest->began_ms < SHARED_REPLY_FRESH_MS;
    if (current || pressed)
        return newest;
    if (n == 1 && !is_read(newest))
        drop = 0;
    else if (n == SHARED_REPLY_TEXTS &&
             now_ms - shelf->texts[n - 1]->began_ms >= SHARED_REPLY_READ_MS)
        drop = n - 1;
    if (drop < n) {
        drop_text(s, shelf->texts[drop]);
        unref(s, shelf->texts[drop]);
        shelf->texts[drop] = NULL;
    }
    *may_render = drop < SHARED_REPLY_TEXTS;
    return NULL;
}

/* False: the budget is used up. */
static bool put(struct shared_replies *s, struct shelf *shelf, struct snapshot *at)
{
    at->text.p = xreallocarray(at->text.p, at->text.n + 1, 1);
    at->text.cap = at->text.n + 1;
    if (!budget_take(s->budget, at->text.cap)) {
        unref(s, at);
        return false;
    }
    at->charged = at->text.cap;
    memmove(&shelf->texts[1], &shelf->texts[0],
            (SHARED_REPLY_TEXTS - 1) * sizeof *shelf->texts);
    shelf->texts[0] = at;
    return true;
}

static struct snapshot *render(struct shelf *shelf,
                               const struct shared_reply_source *source)
{
    struct snapshot *at = xcalloc(1, sizeof *at);
    at->refs = 1;
    at->number = atomic_fetch_add(&shelf->renderings, 1) + 1;
    at->began_ms = clock_mono_ms();
    buf_add_span(&at->state, source->state);
    source->render(source->ctx, &at->text);
    return at;
}

/* A reference, and the size of the text; NULL: no text can be kept now. */
static struct snapshot *get(struct shared_replies *s,
                            const struct shared_reply_source *source, size_t *bytes)
{
    struct shelf *shelf = &s->shelves[source->kind];
    uint64_t arrived = atomic_load(&shelf->renderings);
    pthread_mutex_lock(&shelf->render_lock);
    pthread_mutex_lock(&s->lock);
    bool may_render;
    struct snapshot *at = find(s, shelf, source->state, arrived, &may_render);
    if (!at && may_render) {
        pthread_mutex_unlock(&s->lock);
        at = render(shelf, source);
        pthread_mutex_lock(&s->lock);
        if (!put(s, shelf, at))
            at = shelf->texts[0]; /* an older one, or NULL */
    }
    if (at) {
        at->refs++;
        *bytes = at->text.n;
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&shelf->render_lock);
    return at;
}

/* -- readers -- */

struct reader {
    struct shared_replies *all;
    struct snapshot *of;
    size_t at;
    bool main;
};

static enum httpd_stream_result reader_fill(void *ctx, struct httpd_open_stream *stream,
                                            struct buf *out)
{
    struct reader *r = ctx;
    (void)stream;
    enum httpd_stream_result result = HTTPD_STREAM_ABORT;
    pthread_mutex_lock(&r->all->lock);
    if (!r->of->given_up) {
        size_t n = r->of->text.n - r->at;
        n = n < CHUNK ? n : CHUNK;
        buf_add(out, r->of->text.p + r->at, n);
        r->at += n;
        result = r->at < r->of->text.n ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
    }
    pthread_mutex_unlock(&r->all->lock);
    return result;
}

static void reader_close(void *ctx)
{
    struct reader *r = ctx;
    pthread_mutex_lock(&r->all->lock);
    unref(r->all, r->of);
    pthread_mutex_unlock(&r->all->lock);
    seats_give(&r->all->readers, r->main);
    free(r);
}

static const struct httpd_stream reader_stream = {.fill = reader_fill,
                                                  .close = reader_close};

void shared_reply_send(struct shared_replies *s, const struct shared_reply_source *source,
                       bool main, struct httpd_reply *reply)
{
    size_t bytes = 0;
    if (!seats_take(&s->readers, main, reply))
        return;
    struct snapshot *of = get(s, source, &bytes);
    if (!of) {
        seats_give(&s->readers, main);
        httpd_fail(reply, 503, "too many large replies are being read; retry later");
        seats_retry_after(reply);
        return;
    }
    struct reader *r = xcalloc(1, sizeof *r);
    *r = (struct reader){.all = s, .of = of, .main = main};
    reply->stream = &reader_stream;
    reply->stream_ctx = r;
    reply->stream_length = bytes;
}
