/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/listwatch.h"

#include "domain/object.h"
#include "kube/client.h"

enum {
    PAGE_LIMIT = 500,
    ITEM_MAX = 32 << 20, /* bytes; etcd limits an object to 1.5 MiB, in protobuf */
    ERROR_BODY_MAX = 64 << 10,
    RETRY_AFTER_MAX_S = 60, /* larger values of Retry-After are reduced to this */
};

void listwatch_init(struct listwatch *f, const struct listwatch_handler *handler,
                    void *ctx)
{
    *f = (struct listwatch){.handler = handler, .ctx = ctx, .retry_after_ms = -1};
}

static void close_stream(struct listwatch *f)
{
    if (f->open)
        jstream_fini(&f->stream);
    f->open = false;
}

void listwatch_fini(struct listwatch *f)
{
    close_stream(f);
    arena_fini(&f->arena);
    buf_fini(&f->version);
    buf_fini(&f->next);
    buf_fini(&f->error_body);
}

static void set(struct buf *to, struct span text)
{
    buf_clear(to);
    buf_add_span(to, text);
}

void listwatch_set_version(struct listwatch *f, struct span version)
{
    set(&f->version, version);
}

/* -- requests -- */

void listwatch_escape(struct buf *path, struct span value)
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

void listwatch_list_query(struct buf *path, const struct listwatch *f)
{
    buf_adds(path, "limit=");
    buf_add_i64(path, PAGE_LIMIT);
    if (f->next.n) {
        buf_adds(path, "&continue=");
        listwatch_escape(path, buf_span(&f->next));
    }
}

void listwatch_watch_query(struct buf *path, struct span version, int64_t seconds)
{
    buf_adds(path, "watch=1&allowWatchBookmarks=true&timeoutSeconds=");
    buf_add_i64(path, seconds);
    buf_adds(path, "&resourceVersion=");
    listwatch_escape(path, version);
}

/* -- lists -- */

/* The metadata of a list: resource version and continue token. */
static void read_member(void *ctx, struct jread_str key, struct jread *j)
{
    struct listwatch *f = ctx;
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
    set(&f->version, version);
    set(&f->next, next);
}

static void read_item(void *ctx, struct jread *j)
{
    struct listwatch *f = ctx;
    if (f->err.code != ERR_NONE) {
        jread_skip(j);
        return;
    }
    arena_reset(&f->arena);
    f->handler->object(f->ctx, j, false);
}

/* -- watches -- */

/* BOOKMARK: an object with a resource version only. */
static void read_bookmark(struct listwatch *f, struct jread *j)
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
static void read_error(struct listwatch *f, struct jread *j)
{
    struct jread_str key;
    struct span raw;
    struct jread inner;
    int64_t code = 0;
    struct err err;
    if (!jread_raw(j, &raw))
        return;
    jread_init(&inner, raw.p, raw.n);
    jread_object(&inner, "status");
    while (jread_member(&inner, &key)) {
        if (jread_key_is(key, "code"))
            jread_i64(&inner, "code", &code);
        else
            jread_skip(&inner);
    }
    bool is_error = code >= 400 && code <= 599;
    kube_reply_check(is_error ? (unsigned)code : 500, raw, &err);
    listwatch_fail(f, &err);
}

static void read_typed(struct listwatch *f, struct jread *j, struct span type)
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
    struct listwatch *f = ctx;
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

void listwatch_start(struct listwatch *f, bool watch)
{
    close_stream(f);
    f->watch = watch;
    f->status = 0;
    f->retry_after_ms = -1;
    f->err.code = ERR_NONE;
    buf_clear(&f->next);
    buf_clear(&f->error_body);
}

void listwatch_begin(struct listwatch *f, unsigned status, int64_t retry_after_s)
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
void listwatch_fail(struct listwatch *f, const struct err *why)
{
    if (f->err.code == ERR_NONE)
        f->err = *why;
}

bool listwatch_data(struct listwatch *f, const char *p, size_t n)
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
        listwatch_fail(f, &err);
    return f->err.code == ERR_NONE;
}

static int check_status(const struct listwatch *f, struct err *err)
{
    if (kube_reply_check(f->status, buf_span(&f->error_body), err))
        return -1;
    return err_set(err, ERR_INTERNAL, "unexpected HTTP status %u", f->status);
}

/* A watch that ends inside an event has not failed: the next watch sends the event. */
static int check_end(struct listwatch *f, const struct err *why, struct err *err)
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

int listwatch_end(struct listwatch *f, const struct err *why)
{
    struct err err;
    if (f->err.code == ERR_NONE && check_end(f, why, &err))
        listwatch_fail(f, &err);
    close_stream(f);
    f->status = 0;
    return f->err.code == ERR_NONE ? 0 : -1;
}
