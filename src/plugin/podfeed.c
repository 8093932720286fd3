/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/podfeed.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    PAGE_LIMIT = 500,
    ITEM_MAX = 32 << 20, /* etcd keeps 1.5 MiB; the JSON form is larger */
    ERROR_BODY_MAX = 64 << 10,
    WATCH_MIN_S = 240,
    WATCH_MORE_S = 120,
    STALL_MS = 400 * 1000, /* longer than any watch is asked for */
    LIST_STALL_MS = 30 * 1000,
    PAUSE_MS = 50, /* between two watches, however short they are cut */
    RETRY_MS = 250,
    RETRY_MAX_MS = 10 * 1000,
};

void podfeed_init(struct podfeed *f, const char *node, int64_t unit_mib,
                  const struct podfeed_sink *sink, void *ctx)
{
    *f = (struct podfeed){.node = node, .unit_mib = unit_mib, .sink = sink, .ctx = ctx};
}

static void close_json(struct podfeed *f)
{
    if (f->open)
        jsonlist_fini(&f->json);
    f->open = false;
}

void podfeed_fini(struct podfeed *f)
{
    close_json(f);
    arena_fini(&f->arena);
    buf_fini(&f->version);
    buf_fini(&f->next);
    buf_fini(&f->error_body);
}

void podfeed_anew(struct podfeed *f)
{
    close_json(f);
    f->watching = f->paging = false;
}

static void add_escaped(struct buf *out, struct span s)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] && strchr(plain, s.p[i]))
            buf_addc(out, s.p[i]);
        else
            buf_printf(out, "%%%02X", (unsigned char)s.p[i]);
    }
}

void podfeed_request(struct podfeed *f, struct arena *a, struct kube_request *request)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/api/v1/pods?fieldSelector=spec.nodeName%3D");
    add_escaped(&path, span_of(f->node));
    if (f->watching) {
        f->runs++;
        uint64_t spread = hash_bytes(0, &f->runs, sizeof f->runs) % WATCH_MORE_S;
        buf_printf(&path, "&watch=1&allowWatchBookmarks=true&timeoutSeconds=%d",
                   WATCH_MIN_S + (int)spread);
        buf_adds(&path, "&resourceVersion=");
        add_escaped(&path, buf_span(&f->version));
    } else {
        buf_printf(&path, "&limit=%d", PAGE_LIMIT);
        if (f->paging) {
            buf_adds(&path, "&continue=");
            add_escaped(&path, buf_span(&f->next));
        } else {
            f->sink->list(f->ctx, false);
        }
    }
    buf_clear(&f->next);
    buf_clear(&f->error_body);
    f->status = 0;
    f->retry_after_ms = 0;
    f->failed.code = ERR_NONE;
    *request = (struct kube_request){.method = "GET",
                                     .path = arena_copy(a, buf_span(&path)).p,
                                     .gzip = !f->watching,
                                     .stall_ms = f->watching ? STALL_MS : LIST_STALL_MS};
}

static void take_pod(struct podfeed *f, struct jread *j, bool gone)
{
    struct pod pod;
    struct err err;
    pod_read(j, &f->arena, &pod);
    if (jread_check(j, NULL))
        return;
    if (jread_fault(j, &err)) {
        err_wrap(&err, "pod %.*s/%.*s", SPAN_ARG(pod.meta.ns), SPAN_ARG(pod.meta.name));
        f->sink->fault(f->ctx, &err);
        pod = (struct pod){.meta = pod.meta};
    }
    if (f->watching && pod.meta.version.n) {
        buf_clear(&f->version);
        buf_add_span(&f->version, pod.meta.version);
    }
    if (!pod.meta.uid.n || !pod.meta.name.n)
        return;
    if (gone)
        f->sink->gone(f->ctx, pod.meta.uid);
    else
        f->sink->seen(f->ctx, plan_new(&pod, f->unit_mib));
}

static void on_item(void *ctx, struct jread *j)
{
    struct podfeed *f = ctx;
    struct span raw;
    if (!jread_raw(j, &raw))
        return; /* cut off: it comes again */
    struct jread inner;
    arena_reset(&f->arena);
    jread_init(&inner, raw.p, raw.n);
    take_pod(f, &inner, false);
}

static void on_member(void *ctx, struct jread_str key, struct jread *j)
{
    struct podfeed *f = ctx;
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
    buf_clear(&f->version);
    buf_add_span(&f->version, version);
    buf_clear(&f->next);
    buf_add_span(&f->next, next);
}

/* A Status. */
static void take_error(struct podfeed *f, struct span raw)
{
    struct jread j;
    struct jread_str key;
    int64_t code = 500;
    jread_init(&j, raw.p, raw.n);
    jread_object(&j, "status");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "code"))
            jread_i64(&j, "code", &code);
        else
            jread_skip(&j);
    }
    kube_reply_check(code >= 400 && code <= 599 ? (unsigned)code : 500, raw, &f->failed);
}

static void take_bookmark(struct podfeed *f, struct jread *j)
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
    if (jread_check(j, NULL) == 0 && meta.version.n) {
        buf_clear(&f->version);
        buf_add_span(&f->version, meta.version);
    }
}

static void take_event(struct podfeed *f, struct span type, struct span object)
{
    struct jread j;
    jread_init(&j, object.p, object.n);
    if (span_eq(type, SPAN("ADDED")) || span_eq(type, SPAN("MODIFIED")))
        take_pod(f, &j, false);
    else if (span_eq(type, SPAN("DELETED")))
        take_pod(f, &j, true);
    else if (span_eq(type, SPAN("BOOKMARK")))
        take_bookmark(f, &j);
    else if (span_eq(type, SPAN("ERROR")))
        take_error(f, object);
}

static void on_event(void *ctx, struct jread *j)
{
    struct podfeed *f = ctx;
    struct span raw, type = {0}, object = {0};
    struct jread_str key;
    if (!jread_raw(j, &raw) || f->failed.code != ERR_NONE)
        return;
    arena_reset(&f->arena);
    struct jread inner;
    jread_init(&inner, raw.p, raw.n);
    jread_object(&inner, "event");
    while (jread_member(&inner, &key)) {
        if (jread_key_is(key, "type"))
            jread_text(&inner, "event.type", &f->arena, &type);
        else if (jread_key_is(key, "object"))
            jread_raw(&inner, &object);
        else
            jread_skip(&inner);
    }
    if (object.p)
        take_event(f, type, object);
}

static const struct jsonlist_handler list_handler = {on_item, on_member};
static const struct jsonlist_handler watch_handler = {on_event, NULL};

bool podfeed_begin(struct podfeed *f, unsigned status, int64_t retry_after_s)
{
    f->status = status;
    f->retry_after_ms = retry_after_s > 0 ? retry_after_s * 1000 : 0;
    close_json(f);
    jsonlist_init(&f->json, f->watching ? JSONLIST_WATCH : JSONLIST_LIST, ITEM_MAX,
                  f->watching ? &watch_handler : &list_handler, f);
    f->open = true;
    return true;
}

bool podfeed_data(struct podfeed *f, const char *p, size_t n)
{
    struct err err;
    if (f->status != 200) {
        size_t left = ERROR_BODY_MAX - f->error_body.n;
        buf_add(&f->error_body, p, n < left ? n : left);
        return true;
    }
    if (f->failed.code == ERR_NONE && jsonlist_feed(&f->json, p, n, &err) &&
        f->failed.code == ERR_NONE)
        f->failed = err;
    return f->failed.code == ERR_NONE;
}

/* Why it went wrong, if it did. */
static void find_failure(struct podfeed *f, const struct err *why)
{
    if (f->failed.code != ERR_NONE)
        return;
    if (f->status && f->status != 200)
        kube_reply_check(f->status, buf_span(&f->error_body), &f->failed);
    else if (why)
        f->failed = *why;
    else if (f->status == 0)
        err_set(&f->failed, ERR_UNAVAILABLE, "no answer");
    else if (f->watching)
        jsonlist_cut(&f->json, &f->failed);
    else
        jsonlist_end(&f->json, &f->failed);
}

static int64_t retry(struct podfeed *f)
{
    int64_t wait = RETRY_MS << (f->failures < 6 ? f->failures : 6);
    f->failures++;
    wait = wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS;
    return wait > f->retry_after_ms           ? wait
           : f->retry_after_ms < RETRY_MAX_MS ? f->retry_after_ms
                                              : RETRY_MAX_MS;
}

int64_t podfeed_end(struct podfeed *f, const struct err *why, struct err *err)
{
    find_failure(f, why);
    close_json(f);
    *err = f->failed;
    if (f->failed.code != ERR_NONE) {
        /* What the watch missed, only a list can tell, where its version is not kept any
         * more; a connection that broke is taken up where it was. */
        if (f->watching && f->failed.code != ERR_UNAVAILABLE &&
            f->failed.code != ERR_TIMEOUT)
            f->watching = false;
        f->paging = false;
        return retry(f);
    }
    f->failures = 0;
    if (f->watching)
        return PAUSE_MS;
    f->paging = f->next.n > 0;
    if (!f->paging) {
        f->sink->list(f->ctx, true);
        f->watching = true;
    }
    return 0;
}
