/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When to list and to watch the pods of the node, and what they mean for the allocator.
 */

#include "plugin/pod_reflector.h"

#include "base/hash.h"
#include "base/mem.h"

enum {
    WATCH_MIN_S = 240,
    WATCH_MORE_S = 120,
    STALL_MS = 400 * 1000, /* longer than the timeout of any watch */
    LIST_STALL_MS = 30 * 1000,
    PAUSE_MS = 50, /* between two watches; the server can end them early */
    RETRY_MS = 250,
    RETRY_MAX_MS = 10 * 1000,
};

static void on_object(void *ctx, struct jread *j, bool deleted);
static void on_bookmark(void *ctx, struct span version);
static void on_invalid(void *ctx, const struct err *err);

static const struct list_watch_handler reader = {on_object, on_bookmark, on_invalid};

void pod_reflector_init(struct pod_reflector *f, const char *node, int64_t unit_mib,
                        const struct pod_reflector_sink *sink, void *ctx)
{
    *f = (struct pod_reflector){
        .node = node, .unit_mib = unit_mib, .sink = sink, .ctx = ctx};
    rng_init(&f->rng, hash_bytes(0, node, strlen(node))); /* nodes differ */
    list_watch_init(&f->in, &reader, f);
}

void pod_reflector_fini(struct pod_reflector *f)
{
    list_watch_fini(&f->in);
}

void pod_reflector_relist(struct pod_reflector *f)
{
    f->watching = f->paging = false;
}

static void report(struct pod_reflector *f, struct alloc_input in)
{
    f->sink->input(f->ctx, &in);
}

void pod_reflector_request(struct pod_reflector *f, struct arena *a,
                           struct kube_request *request)
{
    cleanup_buf struct buf path = {0};
    if (!f->paging)
        list_watch_start(&f->in, f->watching);
    buf_adds(&path, "/api/v1/pods?fieldSelector=spec.nodeName%3D");
    list_watch_escape(&path, span_of(f->node));
    buf_addc(&path, '&');
    if (f->watching) {
        f->runs++;
        uint64_t spread = hash_bytes(0, &f->runs, sizeof f->runs) % WATCH_MORE_S;
        list_watch_watch_query(&path, buf_span(&f->in.version),
                               WATCH_MIN_S + (int64_t)spread);
    } else {
        if (!f->paging)
            report(f, (struct alloc_input){.type = ALLOC_IN_LIST_STARTED});
        list_watch_list_query(&path, &f->in);
    }
    *request = (struct kube_request){.method = "GET",
                                     .path = arena_copy(a, buf_span(&path)).p,
                                     .gzip = !f->watching,
                                     .stall_ms = f->watching ? STALL_MS : LIST_STALL_MS};
}

static void on_object(void *ctx, struct jread *j, bool deleted)
{
    struct pod_reflector *f = ctx;
    struct pod pod;
    struct err err;
    pod_read(j, &f->in.arena, &pod);
    if (jread_check(j, NULL))
        return;
    if (jread_fault(j, &err)) {
        err_wrap(&err, "pod %.*s/%.*s", SPAN_ARG(pod.meta.ns), SPAN_ARG(pod.meta.name));
        f->sink->invalid(f->ctx, &err);
        pod = (struct pod){.meta = pod.meta};
    }
    if (f->watching && pod.meta.version.n) {
        buf_set(&f->in.version, pod.meta.version);
        f->failures = 0;
    }
    if (!pod.meta.uid.n || !pod.meta.name.n)
        return;
    if (deleted)
        report(f,
               (struct alloc_input){.type = ALLOC_IN_POD_DELETED, .uid = pod.meta.uid});
    else
        report(f, (struct alloc_input){.type = ALLOC_IN_POD,
                                       .pod = pod_allocation_new(&pod, f->unit_mib)});
}

static void on_bookmark(void *ctx, struct span version)
{
    struct pod_reflector *f = ctx;
    if (!version.n) {
        f->sink->opened(f->ctx);
        return;
    }
    buf_set(&f->in.version, version);
    f->failures = 0;
}

static void on_invalid(void *ctx, const struct err *err)
{
    struct pod_reflector *f = ctx;
    f->sink->invalid(f->ctx, err);
}

int64_t pod_reflector_end(struct pod_reflector *f, const struct err *why, struct err *err)
{
    int rc = list_watch_end(&f->in, why);
    *err = f->in.err;
    if (rc) {
        /* A watch whose connection broke resumes at its version. After any other error
         * (410 Gone) a list is needed. */
        if (f->watching && err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT)
            f->watching = false;
        f->paging = false;
        f->failures++;
        int64_t wait = step_backoff(&f->rng, f->failures, RETRY_MS, RETRY_MAX_MS,
                                    f->in.retry_after_ms);
        return wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS;
    }
    /* A list that succeeds does not reset the back-off: the watch after it may be
     * answered 410 each time. */
    if (f->watching) {
        f->failures = 0;
        return PAUSE_MS;
    }
    f->paging = f->in.next.n > 0;
    if (!f->paging) {
        report(f, (struct alloc_input){.type = ALLOC_IN_LIST_ENDED});
        f->watching = true;
    }
    return 0;
}
