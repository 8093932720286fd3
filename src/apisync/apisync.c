/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/apisync.h"

#include "base/hash.h"
#include "base/mem.h"
#include "domain/keys.h"

enum {
    /* timeoutSeconds of a watch: 50 to 75 s. Bookmarks do not prove that a watch works:
     * an API server sends none while no object of the kind changes. The end of a watch
     * does, at the cost of one request. */
    WATCH_MIN_S = 50,
    WATCH_MORE_S = 25,
    STALL_MS = 90 * 1000, /* longer than any working answer pauses */
};

/* Pods in a terminal phase hold no cards and are excluded; a pod that enters one is
 * DELETED in the watch. */
static const char *const paths[CORE_KINDS] = {
    [CORE_NODES] = "/api/v1/nodes?",
    [CORE_PODS] = "/api/v1/pods?fieldSelector="
                  "status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&",
    [CORE_SCVS] = "/apis/core.run-linux.com/v1/scvs?",
    [CORE_LEASES] =
        "/apis/coordination.k8s.io/v1/namespaces/" KEY_LEASE_NAMESPACE "/leases?",
    [CORE_CONFIGMAPS] = "/api/v1/namespaces/" KEY_UNHEALTHY_NAMESPACE "/configmaps?",
};

void apisync_request(const struct apisync *s, bool gzip, struct arena *a,
                     struct kube_request *request)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, paths[s->kind]);
    if (s->watch) {
        uint64_t spread = hash_bytes(0, &s->run, sizeof s->run) % WATCH_MORE_S;
        listwatch_watch_query(&path, buf_span(&s->in.version),
                              WATCH_MIN_S + (int64_t)spread);
    } else {
        listwatch_list_query(&path, &s->in);
    }
    *request = (struct kube_request){
        .method = "GET",
        .path = arena_copy(a, buf_span(&path)).p,
        .gzip = gzip && !s->watch, /* the API server does not compress watches */
        .stall_ms = STALL_MS,
    };
}

static void read_object(void *ctx, struct jread *j, bool gone);
static void on_bookmark(void *ctx, struct span version);
static void on_fault(void *ctx, const struct err *err);

static const struct listwatch_handler reader = {read_object, on_bookmark, on_fault};

void apisync_start(struct apisync *s, enum core_kind kind, bool watch, uint64_t run,
                   struct span version, const struct apisync_sink *sink, void *ctx)
{
    *s = (struct apisync){
        .kind = kind, .watch = watch, .run = run, .sink = sink, .ctx = ctx};
    listwatch_init(&s->in, &reader, s);
    listwatch_set_version(&s->in, version);
    listwatch_start(&s->in, watch);
}

void apisync_fini(struct apisync *s)
{
    listwatch_fini(&s->in);
}

static void emit(struct apisync *s, struct core_input in)
{
    in.kind = s->kind;
    in.run = s->run;
    in.retry_after_ms = s->in.retry_after_ms;
    s->sink->input(s->ctx, &in);
}

bool apisync_begin(struct apisync *s, unsigned status, int64_t retry_after_s)
{
    listwatch_begin(&s->in, status, retry_after_s);
    if (status == 200 && s->watch)
        emit(s, (struct core_input){.type = CORE_WATCH_PROGRESS});
    return true;
}

bool apisync_data(struct apisync *s, const char *p, size_t n)
{
    return listwatch_data(&s->in, p, n);
}

bool apisync_end(struct apisync *s, const struct err *why)
{
    const struct err *failed = listwatch_end(&s->in, why) ? &s->in.err : NULL;
    if (s->watch)
        emit(s, (struct core_input){.type = CORE_WATCH_ENDED, .err = failed});
    else if (failed)
        emit(s, (struct core_input){.type = CORE_LIST_FAILED, .err = failed});
    else if (s->in.next.n)
        return true;
    else
        emit(s, (struct core_input){.type = CORE_LIST_ENDED,
                                    .version = buf_span(&s->in.version)});
    return false;
}

static void on_bookmark(void *ctx, struct span version)
{
    emit(ctx, (struct core_input){.type = CORE_WATCH_PROGRESS, .version = version});
}

static void on_fault(void *ctx, const struct err *err)
{
    struct apisync *s = ctx;
    s->sink->fault(s->ctx, err);
}

/* Reports the error of an invalid object, with its name. */
static bool report_invalid(struct apisync *s, struct jread *j,
                           const struct object_meta *meta)
{
    struct err err;
    if (!jread_fault(j, &err))
        return false;
    err_wrap(&err, "%s %.*s%s%.*s", core_kind_name(s->kind), SPAN_ARG(meta->ns),
             meta->ns.n ? "/" : "", SPAN_ARG(meta->name));
    s->sink->fault(s->ctx, &err);
    return true;
}

static void deliver(struct apisync *s, struct core_input in,
                    const struct object_meta *meta, bool gone)
{
    in.type = CORE_OBJECT;
    in.deleted = gone;
    in.version = s->watch ? meta->version : (struct span){0};
    s->objects++;
    emit(s, in);
}

static void read_pod(struct apisync *s, struct jread *j, bool gone)
{
    struct pod pod;
    pod_read(j, &s->in.arena, &pod);
    if (jread_check(j, NULL))
        return;
    bool invalid = report_invalid(s, j, &pod.meta);
    if (invalid && !pod.meta.uid.n)
        return;
    deliver(s, (struct core_input){.pod = &pod, .invalid = invalid}, &pod.meta, gone);
}

static void read_node(struct apisync *s, struct jread *j, bool gone)
{
    struct node node;
    node_read(j, &s->in.arena, &node);
    if (jread_check(j, NULL))
        return;
    node.damaged = report_invalid(s, j, &node.meta);
    if (object_is_name(node.meta.name))
        deliver(s, (struct core_input){.node = &node}, &node.meta, gone);
}

static void read_scv(struct apisync *s, struct jread *j, bool gone)
{
    struct scv scv, all;
    struct jread copy = *j;
    scv_read(j, &s->in.arena, &scv);
    if (jread_check(j, NULL))
        return;
    if (s->sink->scv) {
        scv_read_all(&copy, &s->in.arena, &all);
        if (jread_fault(&copy, NULL) == 0)
            s->sink->scv(s->ctx, &all, s->run, gone);
    }
    scv.damaged = report_invalid(s, j, &scv.meta);
    if (scv.meta.name.n)
        deliver(s, (struct core_input){.scv = &scv}, &scv.meta, gone);
}

static void read_lease(struct apisync *s, struct jread *j, bool gone)
{
    struct lease lease;
    lease_read(j, &s->in.arena, &lease);
    if (jread_check(j, NULL) || report_invalid(s, j, &lease.meta))
        return;
    deliver(s, (struct core_input){.lease = &lease}, &lease.meta, gone);
}

static void read_configmap(struct apisync *s, struct jread *j, bool gone)
{
    struct unhealthy_cards u;
    struct err err;
    unhealthy_cards_read(j, &s->in.arena, &u);
    if (jread_check(j, NULL) || report_invalid(s, j, &u.meta))
        return;
    if (u.damaged && !gone) {
        err_set(&err, ERR_INVALID,
                "configmap %.*s: \"" KEY_UNHEALTHY_DATA
                "\" is not a comma list of card indexes",
                SPAN_ARG(u.meta.name));
        s->sink->fault(s->ctx, &err);
    }
    deliver(s, (struct core_input){.unhealthy = &u}, &u.meta, gone);
}

static void read_object(void *ctx, struct jread *j, bool gone)
{
    static void (*const readers[CORE_KINDS])(struct apisync *, struct jread *, bool) = {
        [CORE_NODES] = read_node,
        [CORE_PODS] = read_pod,
        [CORE_SCVS] = read_scv,
        [CORE_LEASES] = read_lease,
        [CORE_CONFIGMAPS] = read_configmap,
    };
    struct apisync *s = ctx;
    readers[s->kind](s, j, gone);
}
