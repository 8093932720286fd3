/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include "base/hash.h"
#include "base/mem.h"
#include "domain/keys.h"

enum {
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

void feed_request(const struct feed *f, bool gzip, struct arena *a,
                  struct kube_request *request)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, paths[f->kind]);
    if (f->watch) {
        uint64_t spread = hash_bytes(0, &f->run, sizeof f->run) % WATCH_MORE_S;
        watchfeed_add_watch(&path, buf_span(&f->in.version),
                            WATCH_MIN_S + (int64_t)spread);
    } else {
        watchfeed_add_list(&path, &f->in);
    }
    *request = (struct kube_request){
        .method = "GET",
        .path = arena_copy(a, buf_span(&path)).p,
        .gzip = gzip && !f->watch, /* the API server does not compress watches */
        .stall_ms = STALL_MS,
    };
}

static void read_object(void *ctx, struct jread *j, bool gone);
static void on_bookmark(void *ctx, struct span version);
static void on_fault(void *ctx, const struct err *err);

static const struct watchfeed_reader reader = {read_object, on_bookmark, on_fault};

void feed_start(struct feed *f, enum core_kind kind, bool watch, uint64_t run,
                struct span version, const struct feed_sink *sink, void *ctx)
{
    *f =
        (struct feed){.kind = kind, .watch = watch, .run = run, .sink = sink, .ctx = ctx};
    watchfeed_init(&f->in, &reader, f);
    watchfeed_set_version(&f->in, version);
    watchfeed_start(&f->in, watch);
}

void feed_fini(struct feed *f)
{
    watchfeed_fini(&f->in);
}

static void emit(struct feed *f, struct core_input in)
{
    in.kind = f->kind;
    in.run = f->run;
    in.retry_after_ms = f->in.retry_after_ms;
    f->sink->input(f->ctx, &in);
}

bool feed_begin(struct feed *f, unsigned status, int64_t retry_after_s)
{
    watchfeed_begin(&f->in, status, retry_after_s);
    if (status == 200 && f->watch)
        emit(f, (struct core_input){.type = CORE_WATCH_PROGRESS});
    return true;
}

bool feed_data(struct feed *f, const char *p, size_t n)
{
    return watchfeed_data(&f->in, p, n);
}

bool feed_end(struct feed *f, const struct err *why)
{
    const struct err *failed = watchfeed_end(&f->in, why) ? &f->in.failed : NULL;
    if (f->watch)
        emit(f, (struct core_input){.type = CORE_WATCH_ENDED, .err = failed});
    else if (failed)
        emit(f, (struct core_input){.type = CORE_LIST_FAILED, .err = failed});
    else if (f->in.next.n)
        return true;
    else
        emit(f, (struct core_input){.type = CORE_LIST_ENDED,
                                    .version = buf_span(&f->in.version)});
    return false;
}

static void on_bookmark(void *ctx, struct span version)
{
    emit(ctx, (struct core_input){.type = CORE_WATCH_PROGRESS, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct feed *f = ctx;
    f->sink->fault(f->ctx, err);
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
    in.deleted = gone;
    in.version = f->watch ? meta->version : (struct span){0};
    f->objects++;
    emit(f, in);
}

static void read_pod(struct feed *f, struct jread *j, bool gone)
{
    struct pod pod;
    pod_read(j, &f->in.arena, &pod);
    if (jread_check(j, NULL))
        return;
    bool faulty = has_fault(f, j, &pod.meta);
    if (faulty && !pod.meta.uid.n)
        return;
    deliver(f, (struct core_input){.pod = &pod, .invalid = faulty}, &pod.meta, gone);
}

static void read_node(struct feed *f, struct jread *j, bool gone)
{
    struct node node;
    node_read(j, &f->in.arena, &node);
    if (jread_check(j, NULL) || has_fault(f, j, &node.meta))
        return;
    deliver(f, (struct core_input){.node = &node}, &node.meta, gone);
}

static void read_scv(struct feed *f, struct jread *j, bool gone)
{
    struct scv scv, all;
    struct jread again = *j;
    scv_read(j, &f->in.arena, &scv);
    if (jread_check(j, NULL))
        return;
    if (f->sink->scv) {
        scv_read_all(&again, &f->in.arena, &all);
        if (jread_fault(&again, NULL) == 0)
            f->sink->scv(f->ctx, &all, f->run, gone);
    }
    scv.damaged = has_fault(f, j, &scv.meta);
    if (scv.meta.name.n)
        deliver(f, (struct core_input){.scv = &scv}, &scv.meta, gone);
}

static void read_lease(struct feed *f, struct jread *j, bool gone)
{
    struct lease lease;
    lease_read(j, &f->in.arena, &lease);
    if (jread_check(j, NULL) || has_fault(f, j, &lease.meta))
        return;
    deliver(f, (struct core_input){.lease = &lease}, &lease.meta, gone);
}

static void read_configmap(struct feed *f, struct jread *j, bool gone)
{
    struct unhealthy_cards u;
    struct err err;
    unhealthy_cards_read(j, &f->in.arena, &u);
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

static void read_object(void *ctx, struct jread *j, bool gone)
{
    static void (*const readers[CORE_KINDS])(struct feed *, struct jread *, bool) = {
        [CORE_NODES] = read_node,
        [CORE_PODS] = read_pod,
        [CORE_SCVS] = read_scv,
        [CORE_LEASES] = read_lease,
        [CORE_CONFIGMAPS] = read_configmap,
    };
    struct feed *f = ctx;
    readers[f->kind](f, j, gone);
}
