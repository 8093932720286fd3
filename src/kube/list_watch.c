/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/list_watch.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "domain/object.h"

/* Lists and watches: the decoder of the responses, and the loop that makes the requests. */

enum {
    PAGE_LIMIT = 500,
    ITEM_MAX = 32 << 20, /* bytes; etcd limits an object to 1.5 MiB, in protobuf */
    ERROR_BODY_MAX = 64 << 10,
    /* A working watch can be silent until its end; kube-apiserver answers a list within
     * --request-timeout, 60 s. */
    WATCH_MARGIN_S = 15,
    LIST_STALL_MS = 90 * 1000,
    RETRY_AFTER_MAX_S = 60, /* larger values of Retry-After are reduced to this */
};

void list_watch_init(struct list_watch *f, const struct list_watch_handler *handler,
                     void *ctx)
{
    *f = (struct list_watch){.handler = handler, .ctx = ctx, .retry_after_ms = -1};
}

void list_watch_fini(struct list_watch *f)
{
    arena_fini(&f->arena);
    buf_fini(&f->version);
    buf_fini(&f->next);
    buf_fini(&f->tail);
}

/* -- requests -- */

void list_watch_escape(struct buf *path, struct span value)
{
    for (size_t i = 0; i < value.n; i++) {
        struct span c = {value.p + i, 1};
        if (span_has_only(c, "-_."))
            buf_add_span(path, c);
        else
            buf_printf(path, "%%%02X", (unsigned char)*c.p);
    }
}

void list_watch_request(const struct list_watch *f, const char *path, int64_t watch_s,
                        bool gzip, struct arena *a, struct kube_request *request)
{
    cleanup_buf struct buf url = {0};
    buf_adds(&url, path);
    if (f->watch) {
        buf_printf(&url, "watch=1&allowWatchBookmarks=true&timeoutSeconds=%lld",
                   (long long)watch_s);
        buf_adds(&url, "&resourceVersion=");
        list_watch_escape(&url, buf_span(&f->version));
    } else {
        buf_printf(&url, "limit=%d", PAGE_LIMIT);
        buf_adds(&url, f->next.n ? "&continue=" : "");
        list_watch_escape(&url, buf_span(&f->next));
    }
    *request = (struct kube_request){
        .method = "GET",
        .path = arena_copy(a, buf_span(&url)).p,
        .gzip = gzip && !f->watch, /* the API server does not compress watches */
        .stall_ms = f->watch ? (watch_s + WATCH_MARGIN_S) * 1000 : LIST_STALL_MS,
    };
}

/* -- lists -- */

/* The metadata of a list: resource version and continue token. */
static void read_list_metadata(struct list_watch *f, struct jread *j)
{
    struct jread_str key;
    struct span version = {0}, next = {0};
    jread_object(j, "metadata");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "resourceVersion"))
            jread_text(j, "metadata.resourceVersion", &f->arena, &version);
        else if (jread_key_is(key, "continue"))
            jread_text(j, "metadata.continue", &f->arena, &next);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL))
        return;
    buf_set(&f->version, version);
    buf_set(&f->next, next);
}

/* -- watches -- */

/* BOOKMARK: an object with a resource version only. */
static void read_bookmark(struct list_watch *f, struct jread *j)
{
    struct jread_str key;
    struct object_meta meta = {0};
    jread_object(j, "object");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, &f->arena, &meta, NULL, 0);
        else
            jread_skip(j);
    }
    if (jread_finish(j, NULL) == 0 && meta.version.n)
        f->handler->bookmark(f->ctx, meta.version);
}

/* {"type": ..., "object": ...}, in any order. */
static void read_event(struct list_watch *f, struct jread *j)
{
    struct jread_str key;
    struct jread inner;
    struct span type = {0}, object = {0};
    struct err err;
    jread_object(j, "event");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "type"))
            jread_text(j, "event.type", &f->arena, &type);
        else if (jread_key_is(key, "object"))
            jread_raw(j, &object);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL))
        return; /* truncated or invalid */
    jread_init(&inner, object.p, object.n);
    if (jread_fault(j, &err))
        f->handler->fault(f->ctx, &err);
    else if (!object.n)
        return;
    else if (span_eq(type, SPAN("ADDED")) || span_eq(type, SPAN("MODIFIED")))
        f->handler->object(f->ctx, &inner, false);
    else if (span_eq(type, SPAN("DELETED")))
        f->handler->object(f->ctx, &inner, true);
    else if (span_eq(type, SPAN("BOOKMARK")))
        read_bookmark(f, &inner);
    else if (span_eq(type, SPAN("ERROR"))) { /* a Status, which ends the watch */
        json_auto_t *root = json_loadb(object.p, object.n, JSON_ALLOW_NUL, NULL);
        json_int_t code = json_integer_value(json_object_get(root, "code"));
        kube_reply_check(code >= 400 && code <= 599 ? (unsigned)code : 500, object, &err);
        list_watch_fail(f, &err);
    }
}

/* -- responses -- */

/* Reads the next event, or the next item, member or bracket of a list. False: the list has
 * ended. */
static bool read_next(struct list_watch *f)
{
    struct jread *j = &f->j;
    struct jread_str key;
    arena_reset(&f->arena);
    switch (f->state) {
    case LIST_WATCH_EVENTS:
        read_event(f, j);
        return true;
    case LIST_WATCH_LIST:
        if (jread_peek(j) == JREAD_NULL)
            jread_fail(j, "list", "expected an object");
        jread_object(j, "list");
        f->state = LIST_WATCH_MEMBERS;
        return true;
    case LIST_WATCH_MEMBERS:
        if (!jread_member(j, &key)) {
            f->state = LIST_WATCH_END;
        } else if (jread_key_is(key, "items")) {
            jread_array(j, "items");
            f->state = LIST_WATCH_ITEMS;
        } else if (jread_key_is(key, "metadata")) {
            read_list_metadata(f, j);
        } else {
            jread_skip(j);
        }
        return true;
    case LIST_WATCH_ITEMS:
        if (jread_item(j))
            f->handler->object(f->ctx, j, false);
        else
            f->state = LIST_WATCH_MEMBERS;
        return true;
    default:
        return false;
    }
}

/* Reads what is complete in these bytes. Everything is validated. */
static void read_all(struct list_watch *f, struct span bytes, bool last)
{
    struct err err;
    jread_continue(&f->j, bytes.p, bytes.n, last);
    for (bool more = true; more && f->err.code == ERR_NONE;) {
        struct jread before = f->j;
        enum list_watch_state state = f->state;
        more = read_next(f);
        if (f->j.state == JREAD_TRUNCATED) {
            f->j = before;
            f->state = state;
            return;
        }
        if (jread_check(&f->j, &err) || jread_fault(&f->j, &err)) {
            kube_check_html(bytes, &err);
            list_watch_fail(f, &err);
        }
    }
}

void list_watch_start(struct list_watch *f, bool watch)
{
    f->watch = watch;
    f->status = 0;
    f->retry_after_ms = -1;
    f->err.code = ERR_NONE;
    buf_clear(&f->next);
}

void list_watch_begin(struct list_watch *f, unsigned status, int64_t retry_after_s)
{
    if (retry_after_s > RETRY_AFTER_MAX_S)
        retry_after_s = RETRY_AFTER_MAX_S;
    f->status = status;
    f->retry_after_ms = retry_after_s < 0 ? -1 : retry_after_s * 1000;
    f->state = f->watch ? LIST_WATCH_EVENTS : LIST_WATCH_LIST;
    jread_init(&f->j, NULL, 0);
    buf_clear(&f->next);
    buf_fini(&f->tail);
    if (f->watch && status == 200)
        f->handler->bookmark(f->ctx, (struct span){0});
}

/* The first error wins: an ERROR event often precedes a closed connection. */
void list_watch_fail(struct list_watch *f, const struct err *why)
{
    if (f->err.code == ERR_NONE)
        f->err = *why;
}

bool list_watch_data(struct list_watch *f, const char *p, size_t n)
{
    struct buf *tail = &f->tail;
    struct span bytes = {p, n};
    if (f->status != 200) {
        size_t left = ERROR_BODY_MAX - tail->n;
        buf_add(tail, p, n < left ? n : left);
        return true;
    }
    if (tail->n) {
        /* The API server ends each event with a newline: deliver it at once. */
        bool try_now = f->watch && memchr(p, '\n', n);
        buf_add(tail, p, n);
        if (tail->n < f->retry_at && !try_now)
            return true;
        bytes = buf_span(tail);
    }
    read_all(f, bytes, false);
    if (f->err.code != ERR_NONE)
        return false;
    /* A truncated item is read again from its start. Waiting until it has grown by an
     * eighth keeps the work linear, however small the pieces are. */
    size_t left = bytes.n - f->j.pos;
    f->retry_at = left + left / 8 + 1;
    if (tail->n) {
        memmove(tail->p, tail->p + f->j.pos, left);
        tail->n = left;
    } else {
        buf_add(tail, p + f->j.pos, left);
    }
    f->j.pos = 0;
    if (left > ITEM_MAX)
        err_set(&f->err, ERR_TOO_LARGE, "item is larger than %d bytes", ITEM_MAX);
    return left <= ITEM_MAX;
}

/* A watch that ends inside an event has not failed: the next watch sends the event. */
static int check_end(struct list_watch *f, const struct err *why, struct err *err)
{
    if (f->status && f->status != 200 && !(why && f->status < 400))
        return kube_reply_check(f->status, buf_span(&f->tail), err)
                   ? -1
                   : err_set(err, ERR_INTERNAL, "unexpected HTTP status %u", f->status);
    if (why) {
        *err = *why;
        return -1;
    }
    if (!f->status)
        return err_set(err, ERR_UNAVAILABLE, "no response");
    read_all(f, buf_span(&f->tail), !f->watch);
    if (f->watch || f->err.code != ERR_NONE)
        return 0;
    if (f->state != LIST_WATCH_END)
        return err_set(err, ERR_INVALID, "unexpected end of the list");
    return jread_finish(&f->j, err);
}

int list_watch_end(struct list_watch *f, const struct err *why)
{
    struct err err;
    if (f->err.code == ERR_NONE && check_end(f, why, &err))
        list_watch_fail(f, &err);
    f->status = 0;
    return f->err.code == ERR_NONE ? 0 : -1;
}

/* -- the loop -- */

enum { TICK_MS = 1000 };

struct slot {
    struct list_watch_loop *loop;
    size_t index;
    struct httpc_stream *stream; /* NULL: none */
    struct list_watch *in;       /* decodes the response of the stream */
    bool watch;
    int64_t date_s;

    uint64_t newest;              /* run of the newest request so far */
    struct list_watch_run queued; /* run 0: none */
    char *version;                /* of `queued`; owned, or NULL */
};

struct list_watch_loop {
    struct kube_client *client;
    const struct list_watch_fns *fns;
    void *ctx;
    struct httpc_loop *loop;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    pthread_mutex_t lock; /* protects newest, queued and version of the slots */
    size_t n_slots;
    struct slot slots[];
};

static void start_request(struct slot *s);

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s, int64_t date_s)
{
    struct slot *s = ctx;
    struct list_watch_loop *l = s->loop;
    if (status == 401)
        kube_client_unauthorized(l->client);
    if (!s->watch && !s->date_s) /* later pages continue the first one's snapshot */
        s->date_s = date_s;
    list_watch_begin(s->in, status, retry_after_s);
    return true;
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct slot *s = ctx;
    return list_watch_data(s->in, p, n);
}

static void on_end(void *ctx, const struct err *why)
{
    struct slot *s = ctx;
    struct err lost;
    s->stream = NULL;
    if (kube_client_lost(s->loop->client, s->in->status, buf_span(&s->in->tail), &lost))
        list_watch_fail(s->in, &lost);
    if (s->loop->fns->end(s->loop->ctx, s->index, why))
        start_request(s);
}

static void start_request(struct slot *s)
{
    static const struct httpc_sink sink = {on_begin, on_data, on_end};
    struct list_watch_loop *l = s->loop;
    struct kube_request request;
    struct err err;
    cleanup_arena struct arena a = {0};
    s->in = l->fns->request(l->ctx, s->index, &a, &request);
    s->stream = kube_stream_start(l->client, l->loop, &request, &sink, s, &err);
    if (!s->stream)
        on_end(s, &err); /* without credentials: as a lost connection */
}

struct list_watch_loop *list_watch_loop_new(struct kube_client *client, size_t n_slots,
                                            const struct list_watch_fns *fns, void *ctx)
{
    struct list_watch_loop *l = xcalloc(1, sizeof *l + n_slots * sizeof *l->slots);
    l->client = client;
    l->fns = fns;
    l->ctx = ctx;
    l->loop = httpc_loop_new();
    l->n_slots = n_slots;
    for (size_t i = 0; i < n_slots; i++)
        l->slots[i] = (struct slot){.loop = l, .index = i};
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

static void cancel(struct slot *s)
{
    if (s->stream)
        httpc_stream_cancel(s->stream);
    s->stream = NULL;
}

void list_watch_loop_free(struct list_watch_loop *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_slots; i++) {
        cancel(&l->slots[i]);
        free(l->slots[i].version);
    }
    httpc_loop_free(l->loop);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Two threads may get here out of order: an older run must not replace a newer one, whether
 * that is queued or started. */
void list_watch_loop_start(struct list_watch_loop *l, size_t slot,
                           const struct list_watch_run *run)
{
    struct slot *s = &l->slots[slot];
    pthread_mutex_lock(&l->lock);
    if (run->run > s->newest) {
        s->newest = run->run;
        s->queued = *run;
        free(s->version);
        s->version = run->version ? xstrdup(run->version) : NULL;
    }
    pthread_mutex_unlock(&l->lock);
    httpc_loop_wake(l->loop);
}

void list_watch_loop_wake(struct list_watch_loop *l)
{
    httpc_loop_wake(l->loop);
}

int64_t list_watch_loop_date_s(const struct list_watch_loop *l, size_t slot)
{
    return l->slots[slot].date_s;
}

void list_watch_loop_run(struct list_watch_loop *l, int64_t ms)
{
    int64_t wait = l->fns->tick ? l->fns->tick(l->ctx) : ms;
    for (size_t i = 0; i < l->n_slots; i++) {
        struct slot *s = &l->slots[i];
        pthread_mutex_lock(&l->lock);
        struct list_watch_run run = s->queued;
        cleanup_free char *version = steal(&s->version);
        s->queued.run = 0;
        pthread_mutex_unlock(&l->lock);
        if (!run.run || atomic_load(&l->stop))
            continue;
        run.version = version;
        cancel(s);
        s->watch = run.watch;
        if (!run.watch)
            s->date_s = 0;
        if (l->fns->start)
            l->fns->start(l->ctx, i, &run);
        start_request(s);
    }
    wait = wait < ms ? wait : ms;
    httpc_loop_run(l->loop, wait > 0 ? wait : 0);
}

static void *run_thread(void *arg)
{
    struct list_watch_loop *l = arg;
    while (!atomic_load(&l->stop))
        list_watch_loop_run(l, TICK_MS);
    return NULL;
}

void list_watch_loop_thread(struct list_watch_loop *l, const char *name)
{
    if (pthread_create(&l->thread, NULL, run_thread, l))
        abort();
    pthread_setname_np(l->thread, name);
    l->has_thread = true;
}

void list_watch_loop_stop(struct list_watch_loop *l)
{
    if (!l)
        return;
    atomic_store(&l->stop, true);
    httpc_loop_wake(l->loop);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    l->has_thread = false;
    for (size_t i = 0; i < l->n_slots; i++)
        cancel(&l->slots[i]);
}
