/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/feed.h"

#include "base/hash.h"
#include "base/mem.h"
#include "domain/keys.h"

enum {
    PAGE_LIMIT = 500,
    ITEM_MAX = 32 << 20, /* etcd keeps 1.5 MiB; the JSON form is larger */
    ERROR_BODY_MAX = 64 << 10,
    RETRY_AFTER_MAX_S = 60, /* a server that asks for more is asked again all the same */
    /* How long a watch is asked for: 50 to 75 seconds. Bookmarks are no sign of life: an
     * API server sends none while nothing of the kind has changed. The end of a watch is
     * one, and starting the next costs a request. */
    WATCH_MIN_S = 50,
    WATCH_MORE_S = 25,
    STALL_MS = 90 * 1000, /* no answer is ever silent for so long */
};

/* Pods that are over hold nothing, so they are neither listed nor watched; one that ends
 * leaves the watch as DELETED. */
static const char *const paths[CORE_KINDS] = {
    [CORE_NODES] = "/api/v1/nodes?",
    [CORE_PODS] = "/api/v1/pods?fieldSelector="
                  "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&",
    [CORE_SCVS] = "/apis/core.run-linux.com/v1/scvs?",
    [CORE_LEASES] =
        "/apis/coordination.k8s.io/v1/namespaces/" KEY_LEASE_NAMESPACE "/leases?",
    [CORE_CONFIGMAPS] = "/api/v1/namespaces/" KEY_UNHEALTHY_NAMESPACE "/configmaps?",
};

static void add_escaped(struct buf *out, struct span s)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '_' || c == '.') {
            buf_addc(out, (char)c);
        } else {
            buf_addc(out, '%');
            buf_addc(out, hex[c >> 4]);
            buf_addc(out, hex[c & 15]);
        }
    }
}

void feed_request(const struct feed *f, bool gzip, struct arena *a,
                  struct kube_request *request)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, paths[f->kind]);
    if (f->watch) {
        uint64_t spread = hash_bytes(0, &f->run, sizeof f->run) % WATCH_MORE_S;
        buf_adds(&path, "watch=1&allowWatchBookmarks=true&timeoutSeconds=");
        buf_add_i64(&path, WATCH_MIN_S + (int64_t)spread);
        buf_adds(&path, "&resourceVersion=");
        add_escaped(&path, buf_span(&f->version));
    } else {
        buf_adds(&path, "limit=");
        buf_add_i64(&path, PAGE_LIMIT);
        if (f->next.n) {
            buf_adds(&path, "&continue=");
            add_escaped(&path, buf_span(&f->next));
        }
    }
    *request = (struct kube_request){
        .method = "GET",
        .path = arena_copy(a, buf_span(&path)).p,
        .gzip = gzip && !f->watch, /* the API server does not compress watches */
        .stall_ms = STALL_MS,
    };
}

static void read_object(struct feed *f, struct jread *j, bool gone);
static void read_event(void *ctx, struct jread *j);
static void read_item(void *ctx, struct jread *j);
static void read_member(void *ctx, struct jread_str key, struct jread *j);

static const struct jsonlist_handler list_handler = {read_item, read_member};
static const struct jsonlist_handler watch_handler = {read_event, NULL};

void feed_start(struct feed *f, enum core_kind kind, bool watch, uint64_t run,
                struct span version, const struct feed_sink *sink, void *ctx)
{
    *f = (struct feed){.kind = kind,
                       .watch = watch,
                       .run = run,
                       .sink = sink,
                       .ctx = ctx,
                       .retry_after_ms = -1};
    buf_add_span(&f->version, version);
}

void feed_fini(struct feed *f)
{
    jsonlist_fini(&f->list);
    arena_fini(&f->arena);
    buf_fini(&f->version);
    buf_fini(&f->next);
    buf_fini(&f->error_body);
}

static void emit(struct feed *f, struct core_input in)
{
    in.kind = f->kind;
    in.run = f->run;
    in.retry_after_ms = f->retry_after_ms;
    f->sink->input(f->ctx, &in);
}

bool feed_begin(struct feed *f, unsigned status, int64_t retry_after_s)
{
    f->status = status;
    if (retry_after_s > RETRY_AFTER_MAX_S)
        retry_after_s = RETRY_AFTER_MAX_S;
    f->retry_after_ms = retry_after_s < 0 ? -1 : retry_after_s * 1000;
    jsonlist_fini(&f->list);
    jsonlist_init(&f->list, f->watch ? JSONLIST_WATCH : JSONLIST_LIST, ITEM_MAX,
                  f->watch ? &watch_handler : &list_handler, f);
    buf_clear(&f->next);
    if (status == 200 && f->watch)
        emit(f, (struct core_input){.type = CORE_WATCH_ALIVE});
    return true;
}

/* The first failure counts: what follows an ERROR event does not hide its code. */
static void fail(struct feed *f, const struct err *err)
{
    if (f->failed.code == ERR_NONE)
        f->failed = *err;
}

bool feed_data(struct feed *f, const char *p, size_t n)
{
    if (f->status != 200) {
        size_t left = ERROR_BODY_MAX - f->error_body.n;
        buf_add(&f->error_body, p, n < left ? n : left);
        return true;
    }
    if (f->failed.code != ERR_NONE)
        return false;
    struct err err;
    if (jsonlist_feed(&f->list, p, n, &err))
        fail(f, &err);
    return f->failed.code == ERR_NONE;
}

static bool end_list(struct feed *f)
{
    if (f->failed.code != ERR_NONE) {
        emit(f, (struct core_input){.type = CORE_LIST_FAILED, .err = &f->failed});
        return false;
    }
    if (f->next.n)
        return true;
    emit(f,
         (struct core_input){.type = CORE_LIST_ENDED, .version = buf_span(&f->version)});
    return false;
}

bool feed_end(struct feed *f, const struct err *why)
{
    if (f->failed.code != ERR_NONE) {
        /* Known already. */
    } else if (f->status && f->status != 200) {
        kube_reply_check(f->status, buf_span(&f->error_body), &f->failed);
    } else if (why) {
        f->failed = *why;
    } else if (f->status == 0) {
        err_set(&f->failed, ERR_UNAVAILABLE, "no answer");
    } else {
        /* A watch that is cut off inside an event has not failed: it will come again. */
        struct err err;
        if (f->watch ? jsonlist_cut(&f->list, &err) : jsonlist_end(&f->list, &err))
            fail(f, &err);
    }
    if (!f->watch)
        return end_list(f);
    emit(f, (struct core_input){.type = CORE_WATCH_ENDED,
                                .err = f->failed.code == ERR_NONE ? NULL : &f->failed});
    return false;
}

/* The envelope of a list: its version and the token for the next page. */
static void read_member(void *ctx, struct jread_str key, struct jread *j)
{
    struct feed *f = ctx;
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

static void read_item(void *ctx, struct jread *j)
{
    struct feed *f = ctx;
    arena_reset(&f->arena);
    read_object(f, j, false);
}

/* Takes the fault of an object, with its name in the message. */
static bool has_fault(struct feed *f, struct jread *j, const struct object_meta *meta)
{
    struct err err;
    if (!jread_fault(j, &err))
        return false;
    err_wrap(&err, "%s %.*s%s%.*s", core_kind_name(f->kind), SPAN_ARG(meta->ns),
             meta->ns.n ? "/" : "", SPAN_ARG(meta->name));
    f->sink->fault(f->ctx, &err);
    return true;
}

static void deliver(struct feed *f, struct core_input in, const struct object_meta *meta,
                    bool gone)
{
    in.type = CORE_OBJECT;
    in.gone = gone;
    in.version = f->watch ? meta->version : (struct span){0};
    f->objects++;
    emit(f, in);
}

static void read_pod(struct feed *f, struct jread *j, bool gone)
{
    struct pod pod;
    pod_read(j, &f->arena, &pod);
    if (jread_check(j, NULL))
        return;
    bool faulty = has_fault(f, j, &pod.meta);
    if (faulty && !pod.meta.uid.n)
        return;
    deliver(f, (struct core_input){.pod = &pod, .faulty = faulty}, &pod.meta, gone);
}

static void read_node(struct feed *f, struct jread *j, bool gone)
{
    struct node node;
    node_read(j, &f->arena, &node);
    if (jread_check(j, NULL) || has_fault(f, j, &node.meta))
        return;
    deliver(f, (struct core_input){.node = &node}, &node.meta, gone);
}

static void read_scv(struct feed *f, struct jread *j, bool gone)
{
    struct scv scv;
    scv_read(j, &f->arena, &scv);
    if (jread_check(j, NULL))
        return;
    scv.damaged = has_fault(f, j, &scv.meta);
    if (scv.meta.name.n)
        deliver(f, (struct core_input){.scv = &scv}, &scv.meta, gone);
}

static void read_lease(struct feed *f, struct jread *j, bool gone)
{
    struct lease lease;
    lease_read(j, &f->arena, &lease);
    if (jread_check(j, NULL) || has_fault(f, j, &lease.meta))
        return;
    deliver(f, (struct core_input){.lease = &lease}, &lease.meta, gone);
}

static void read_configmap(struct feed *f, struct jread *j, bool gone)
{
    struct unhealthy_cards u;
    struct err err;
    unhealthy_cards_read(j, &f->arena, &u);
    if (jread_check(j, NULL) || has_fault(f, j, &u.meta))
        return;
    if (u.damaged && !gone) {
        err_set(&err, ERR_INVALID,
                "configmap %.*s: \"" KEY_UNHEALTHY_DATA
                "\" is not a comma list of card indexes",
                SPAN_ARG(u.meta.name));
        f->sink->fault(f->ctx, &err);
    }
    deliver(f, (struct core_input){.unhealthy = &u}, &u.meta, gone);
}

static void read_object(struct feed *f, struct jread *j, bool gone)
{
    static void (*const readers[CORE_KINDS])(struct feed *, struct jread *, bool) = {
        [CORE_NODES] = read_node,
        [CORE_PODS] = read_pod,
        [CORE_SCVS] = read_scv,
        [CORE_LEASES] = read_lease,
        [CORE_CONFIGMAPS] = read_configmap,
    };
    readers[f->kind](f, j, gone);
}

/* BOOKMARK: nothing but a version. */
static void read_bookmark(struct feed *f, struct jread *j)
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
    if (jread_check(j, NULL) == 0 && jread_fault(j, NULL) == 0)
        emit(f, (struct core_input){.type = CORE_WATCH_ALIVE, .version = meta.version});
}

/* ERROR: a Status. It ends the watch. */
static void read_error(struct feed *f, struct jread *j)
{
    struct jread_str key;
    struct span raw;
    struct jread inner;
    int64_t code = 0;
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
    kube_reply_check(is_error ? (unsigned)code : 500, raw, &f->failed);
}

static void read_typed(struct feed *f, struct jread *j, struct span type)
{
    if (span_eq(type, SPAN("ADDED")) || span_eq(type, SPAN("MODIFIED")))
        read_object(f, j, false);
    else if (span_eq(type, SPAN("DELETED")))
        read_object(f, j, true);
    else if (span_eq(type, SPAN("BOOKMARK")))
        read_bookmark(f, j);
    else if (span_eq(type, SPAN("ERROR")))
        read_error(f, j);
    else
        jread_skip(j);
}

/* {"type": ..., "object": ...}, in this order from every API server; in the other order
 * the object is read after its type is known. An event that is cut off behind its object
 * is read again later, the object is not. */
static void read_event(void *ctx, struct jread *j)
{
    struct feed *f = ctx;
    struct jread_str key;
    struct span type = {0}, object = {0};
    size_t n = 0;
    if (f->failed.code != ERR_NONE) {
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
        else if (n++ < f->handed)
            jread_skip(j);
        else
            read_typed(f, j, type);
        if (n > f->handed && jread_check(j, NULL) == 0)
            f->handed = n;
    }
    if (jread_check(j, NULL))
        return;
    f->handed = 0;
    if (object.p && type.n) {
        struct jread inner;
        jread_init(&inner, object.p, object.n);
        read_typed(f, &inner, type);
    }
    struct err err;
    if (jread_fault(j, &err))
        f->sink->fault(f->ctx, &err);
}
