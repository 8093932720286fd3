/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/list_watch.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "domain/object.h"

/* Lists and watches: the decoder of the responses, and the loop that makes the requests. */

enum {
    PAGE_LIMIT = 500,
    ITEM_MAX = 32 << 20, /* bytes; etcd limits an object to 1.5 MiB, in protobuf */
    ERROR_BODY_MAX = 64 << 10,
    RETRY_AFTER_MAX_S = 60, /* larger values of Retry-After are reduced to this */
};

void list_watch_init(struct list_watch *f, const struct list_watch_handler *handler,
                     void *ctx)
{
    *f = (struct list_watch){.handler = handler, .ctx = ctx, .retry_after_ms = -1};
}

static void close_stream(struct list_watch *f)
{
    if (f->open)
        jstream_fini(&f->stream);
    f->open = false;
}

void list_watch_fini(struct list_watch *f)
{
    close_stream(f);
    arena_fini(&f->arena);
    buf_fini(&f->version);
    buf_fini(&f->next);
    buf_fini(&f->error_body);
}

void list_watch_set_version(struct list_watch *f, struct span version)
{
    buf_set(&f->version, version);
}

/* -- requests -- */

void list_watch_escape(struct buf *path, struct span value)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '_' || c == '.') {
            buf_addc(path, (char)c);
        } else {
            buf_addc(path, '%');
            buf_addc(path, hex[c >> 4]);
            buf_addc(path, hex[c & 15]);
        }
    }
}

void list_watch_list_query(struct buf *path, const struct list_watch *f)
{
    buf_adds(path, "limit=");
    buf_add_i64(path, PAGE_LIMIT);
    if (f->next.n) {
        buf_adds(path, "&continue=");
        list_watch_escape(path, buf_span(&f->next));
    }
}

void list_watch_watch_query(struct buf *path, struct span version, int64_t seconds)
{
    buf_adds(path, "watch=1&allowWatchBookmarks=true&timeoutSeconds=");
    buf_add_i64(path, seconds);
    buf_adds(path, "&resourceVersion=");
    list_watch_escape(path, version);
}

/* -- lists -- */

/* The metadata of a list: resource version and continue token. */
static void read_member(void *ctx, struct jread_str key, struct jread *j)
{
    struct list_watch *f = ctx;
    struct jread_str inner;
    struct span version = {0}, next = {0};
    if (!jread_key_is(key, "metadata")) {
        jread_skip(j);
        return;
    }
    arena_reset(&f->arena);
    jread_object(j, "metadata");
    while (jread_member(j, &inner)) {
        if (jread_key_is(inner, "resourceVersion"))
            jread_text(j, "metadata.resourceVersion", &f->arena, &version);
        else if (jread_key_is(inner, "continue"))
            jread_text(j, "metadata.continue", &f->arena, &next);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL))
        return;
    buf_set(&f->version, version);
    buf_set(&f->next, next);
}

static void read_item(void *ctx, struct jread *j)
{
    struct list_watch *f = ctx;
    if (f->err.code != ERR_NONE) {
        jread_skip(j);
        return;
    }
    arena_reset(&f->arena);
    f->handler->object(f->ctx, j, false);
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
    if (jread_check(j, NULL) == 0 && jread_fault(j, NULL) == 0 && f->handler->bookmark)
        f->handler->bookmark(f->ctx, meta.version);
}

/* ERROR: a Status, which ends the watch. */
static void read_error(struct list_watch *f, struct jread *j)
{
    struct span raw;
    struct err err;
    if (!jread_raw(j, &raw))
        return;
    json_t *root = json_loadb(raw.p, raw.n, JSON_ALLOW_NUL, NULL);
    json_int_t code = json_integer_value(json_object_get(root, "code"));
    json_decref(root);
    kube_reply_check(code >= 400 && code <= 599 ? (unsigned)code : 500, raw, &err);
    list_watch_fail(f, &err);
}

static void read_typed(struct list_watch *f, struct jread *j, struct span type)
{
    if (span_eq(type, SPAN("ADDED")) || span_eq(type, SPAN("MODIFIED")))
        f->handler->object(f->ctx, j, false);
    else if (span_eq(type, SPAN("DELETED")))
        f->handler->object(f->ctx, j, true);
    else if (span_eq(type, SPAN("BOOKMARK")))
        read_bookmark(f, j);
    else if (span_eq(type, SPAN("ERROR")))
        read_error(f, j);
    else
        jread_skip(j);
}

/* {"type": ..., "object": ...}. API servers send this order; in the other order, the
 * object is kept as bytes until its type is known. If the event is truncated after its
 * object, the event is parsed again, but the object is not delivered twice. */
static void read_event(void *ctx, struct jread *j)
{
    struct list_watch *f = ctx;
    struct jread_str key;
    struct span type = {0}, object = {0};
    size_t n = 0;
    if (f->err.code != ERR_NONE) {
        jread_skip(j);
        return;
    }
    arena_reset(&f->arena);
    jread_object(j, "event");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "type"))
            jread_text(j, "event.type", &f->arena, &type);
        else if (!jread_key_is(key, "object"))
            jread_skip(j);
        else if (!type.n)
            jread_raw(j, &object);
        else if (n++ < f->delivered)
            jread_skip(j);
        else
            read_typed(f, j, type);
        if (n > f->delivered && jread_check(j, NULL) == 0)
            f->delivered = n;
    }
    if (jread_check(j, NULL))
        return;
    f->delivered = 0;
    if (object.p && type.n) {
        struct jread inner;
        jread_init(&inner, object.p, object.n);
        read_typed(f, &inner, type);
    }
    struct err err;
    if (jread_fault(j, &err))
        f->handler->fault(f->ctx, &err);
}

/* -- responses -- */

static const struct jstream_handler list_handler = {read_item, read_member};
static const struct jstream_handler watch_handler = {read_event, NULL};

void list_watch_start(struct list_watch *f, bool watch)
{
    close_stream(f);
    f->watch = watch;
    f->status = 0;
    f->retry_after_ms = -1;
    f->err.code = ERR_NONE;
    buf_clear(&f->next);
    buf_clear(&f->error_body);
}

void list_watch_begin(struct list_watch *f, unsigned status, int64_t retry_after_s)
{
    if (retry_after_s > RETRY_AFTER_MAX_S)
        retry_after_s = RETRY_AFTER_MAX_S;
    f->status = status;
    f->retry_after_ms = retry_after_s < 0 ? -1 : retry_after_s * 1000;
    f->delivered = 0;
    buf_clear(&f->next);
    close_stream(f);
    jstream_init(&f->stream, f->watch ? JSTREAM_WATCH : JSTREAM_LIST, ITEM_MAX,
                 f->watch ? &watch_handler : &list_handler, f);
    f->open = true;
}

/* The first error wins: an ERROR event often precedes a closed connection. */
void list_watch_fail(struct list_watch *f, const struct err *why)
{
    if (f->err.code == ERR_NONE)
        f->err = *why;
}

bool list_watch_data(struct list_watch *f, const char *p, size_t n)
{
    if (f->status != 200) {
        size_t left = ERROR_BODY_MAX - f->error_body.n;
        buf_add(&f->error_body, p, n < left ? n : left);
        return true;
    }
    if (f->err.code != ERR_NONE)
        return false;
    struct err err;
    if (jstream_feed(&f->stream, p, n, &err))
        list_watch_fail(f, &err);
    return f->err.code == ERR_NONE;
}

static int check_status(const struct list_watch *f, struct err *err)
{
    if (kube_reply_check(f->status, buf_span(&f->error_body), err))
        return -1;
    return err_set(err, ERR_INTERNAL, "unexpected HTTP status %u", f->status);
}

/* A watch that ends inside an event has not failed: the next watch sends the event. */
static int check_end(struct list_watch *f, const struct err *why, struct err *err)
{
    if (f->status && f->status != 200)
        return check_status(f, err);
    if (why) {
        *err = *why;
        return -1;
    }
    if (!f->status)
        return err_set(err, ERR_UNAVAILABLE, "no response");
    return f->watch ? jstream_end_truncated(&f->stream, err)
                    : jstream_end(&f->stream, err);
}

int list_watch_end(struct list_watch *f, const struct err *why)
{
    struct err err;
    if (f->err.code == ERR_NONE && check_end(f, why, &err))
        list_watch_fail(f, &err);
    close_stream(f);
    f->status = 0;
    return f->err.code == ERR_NONE ? 0 : -1;
}

/* -- the loop -- */

enum { TICK_MS = 1000 };

struct slot {
    struct list_watch_loop *loop;
    size_t index;
    struct httpc_stream *stream; /* NULL: none */
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
    pthread_mutex_t lock; /* protects `stop`, and of the slots newest, queued, version */
    bool stop;
    size_t n_slots;
    struct slot slots[];
};

static void start_request(struct slot *s);

static bool on_begin(void *ctx, unsigned status, int64_t retry_after_s)
{
    struct slot *s = ctx;
    struct list_watch_loop *l = s->loop;
    if (status == 401)
        kube_client_unauthorized(l->client);
    if (!s->watch && !s->date_s) /* later pages continue the first one's snapshot */
        s->date_s = httpc_stream_date_s(s->stream);
    l->fns->begin(l->ctx, s->index, status, retry_after_s);
    return true;
}

static bool on_data(void *ctx, const char *p, size_t n)
{
    struct slot *s = ctx;
    return s->loop->fns->data(s->loop->ctx, s->index, p, n);
}

static void on_end(void *ctx, const struct err *why)
{
    struct slot *s = ctx;
    s->stream = NULL;
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
    l->fns->request(l->ctx, s->index, &a, &request);
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

void list_watch_loop_cancel(struct list_watch_loop *l, size_t slot)
{
    struct slot *s = &l->slots[slot];
    if (s->stream)
        httpc_stream_cancel(s->stream);
    s->stream = NULL;
}

void list_watch_loop_free(struct list_watch_loop *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_slots; i++) {
        list_watch_loop_cancel(l, i);
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

bool list_watch_loop_is_active(const struct list_watch_loop *l, size_t slot)
{
    return l->slots[slot].stream != NULL;
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
        bool start = run.run && !l->stop;
        pthread_mutex_unlock(&l->lock);
        if (!start)
            continue;
        run.version = version;
        list_watch_loop_cancel(l, i);
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

static bool is_stopped(struct list_watch_loop *l)
{
    pthread_mutex_lock(&l->lock);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    return stop;
}

static void *run_thread(void *arg)
{
    struct list_watch_loop *l = arg;
    while (!is_stopped(l))
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
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    httpc_loop_wake(l->loop);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    l->has_thread = false;
    for (size_t i = 0; i < l->n_slots; i++)
        list_watch_loop_cancel(l, i);
}
