/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When to list and to watch the pods of the node, and what they mean for the allocator.
 */

#include "plugin/pod_reflector.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    WATCH_MIN_S = 240,
    WATCH_MORE_S = 120,
    STALL_MS = 400 * 1000, /* longer than the timeout of any watch */
    LIST_STALL_MS = 30 * 1000,
    PAUSE_MS = 50, /* between two watches; the server can end them early */
    RETRY_MS = 250,
    RETRY_MAX_MS = 10 * 1000,
    SPREAD_MS = 10 * 1000,
};

struct pod_reflector {
    struct pod_reflector_settings settings;
    struct list_watch_loop *loop; /* NULL: not started */
    bool watching;
    bool active;          /* a request is in flight */
    struct list_watch in; /* its version: how far the watch has got */
    unsigned failures;    /* in a row, until an event or the end of a watch */
    struct rng rng;
    uint64_t runs;
    atomic_bool relist;
    pthread_mutex_t lock; /* protects the status, which only the thread changes */
    struct pod_reflector_status status;
};

static void report(struct pod_reflector *f, struct alloc_input in)
{
    f->settings.input(f->settings.ctx, &in);
}

/* How far the watch has got. */
static void see_version(struct pod_reflector *f, struct span version)
{
    if (object_version_is_older(version, buf_span(&f->in.version)))
        atomic_store(&f->relist, true); /* the API server was restored */
    buf_set(&f->in.version, version);
    f->failures = 0;
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
        log_warn("api", "ignoring the spec of an invalid pod", LOG_ERR(&err));
        pod = (struct pod){.meta = pod.meta};
    }
    if (f->watching && pod.meta.version.n)
        see_version(f, pod.meta.version);
    if (!pod.meta.uid.n || !pod.meta.name.n)
        return;
    if (deleted)
        report(f,
               (struct alloc_input){.type = ALLOC_IN_POD_DELETED, .uid = pod.meta.uid});
    else
        report(f, (struct alloc_input){
                      .type = ALLOC_IN_POD,
                      .pod = pod_allocation_new(&pod, f->settings.unit_mib)});
}

/* `why` NULL: no failure. */
static void set_status(struct pod_reflector *f, const struct err *why, int64_t wait_ms)
{
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&f->lock);
    if (why)
        step_failed(&f->status.failure, now, why);
    else
        step_succeeded(&f->status.failure);
    f->status.due_ms = now + wait_ms;
    pthread_mutex_unlock(&f->lock);
}

static void on_bookmark(void *ctx, struct span version)
{
    struct pod_reflector *f = ctx;
    if (!version.n) {
        set_status(f, NULL, 0);
        return;
    }
    see_version(f, version);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("api", "ignoring an invalid event of the pod watch", LOG_ERR(err));
}

static struct list_watch *on_request(void *ctx, size_t slot, struct arena *a,
                                     struct kube_request *request)
{
    struct pod_reflector *f = ctx;
    cleanup_buf struct buf path = {0};
    (void)slot;
    if (atomic_exchange(&f->relist, false)) {
        f->watching = false;
        buf_clear(&f->in.next);
    }
    if (!f->in.next.n)
        list_watch_start(&f->in, f->watching);
    buf_adds(&path, "/api/v1/pods?fieldSelector=spec.nodeName%3D");
    list_watch_escape(&path, span_of(f->settings.node));
    buf_addc(&path, '&');
    if (f->watching) {
        list_watch_watch_query(&path, buf_span(&f->in.version),
                               WATCH_MIN_S + (int64_t)rng_below(&f->rng, WATCH_MORE_S));
    } else {
        if (!f->in.next.n)
            report(f, (struct alloc_input){.type = ALLOC_IN_LIST_STARTED});
        list_watch_list_query(&path, &f->in);
    }
    *request = (struct kube_request){.method = "GET",
                                     .path = arena_copy(a, buf_span(&path)).p,
                                     .gzip = !f->watching,
                                     .stall_ms = f->watching ? STALL_MS : LIST_STALL_MS};
    return &f->in;
}

static bool on_end(void *ctx, size_t slot, const struct err *why)
{
    struct pod_reflector *f = ctx;
    const struct err *err = list_watch_end(&f->in, why) ? &f->in.err : NULL;
    int64_t wait = 0; /* the next page, or the watch after a list */
    (void)slot;
    if (err) {
        /* A watch whose connection broke does not resume at its version: the API server may
         * have been restored from a backup, and would be silent until it has passed that
         * version. A list that succeeds does not reset the back-off: the watch after it may
         * be answered 410 each time. */
        bool broke =
            f->watching && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT);
        f->watching = false;
        buf_clear(&f->in.next);
        wait = step_backoff(&f->rng, ++f->failures, RETRY_MS, RETRY_MAX_MS,
                            f->in.retry_after_ms);
        wait = wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS;
        /* An API server that restarts breaks the watches of all nodes. A pod that the kubelet asks
         * for meanwhile does not wait: see pod_reflector_relist. */
        if (broke && f->failures == 1)
            wait = (int64_t)rng_below(&f->rng, SPREAD_MS);
        log_warn("api", "pod watch failed; retrying", LOG_ERR(err));
    } else if (f->watching) {
        f->failures = 0;
        wait = PAUSE_MS;
    } else if (!f->in.next.n) {
        report(f, (struct alloc_input){.type = ALLOC_IN_LIST_ENDED});
        f->watching = true;
    }
    set_status(f, err, wait);
    f->active = wait == 0;
    return f->active;
}

static int64_t on_tick(void *ctx)
{
    struct pod_reflector *f = ctx;
    int64_t now = clock_mono_ms();
    bool relist = (f->watching || !f->active) && atomic_load(&f->relist);
    pthread_mutex_lock(&f->lock);
    f->status.alive_ms = now;
    if (relist)
        f->status.due_ms = now;
    pthread_mutex_unlock(&f->lock);
    int64_t wait = f->status.due_ms - now;
    if (wait <= 0 && (relist || !f->active)) { /* a new run ends the one before */
        list_watch_loop_start(f->loop, 0, &(struct list_watch_run){.run = ++f->runs});
        f->active = true;
    }
    return wait > 0 ? wait : 1000;
}

const struct list_watch_fns pod_reflector_fns = {
    .request = on_request, .end = on_end, .tick = on_tick};

struct pod_reflector *pod_reflector_new(const struct pod_reflector_settings *settings)
{
    static const struct list_watch_handler handler = {on_object, on_bookmark, on_fault};
    struct pod_reflector *f = xcalloc(1, sizeof *f);
    f->settings = *settings;
    f->status.alive_ms = clock_mono_ms();
    pthread_mutex_init(&f->lock, NULL);
    rng_init(&f->rng, hash_bytes(0, settings->node, strlen(settings->node)));
    list_watch_init(&f->in, &handler, f);
    return f;
}

void pod_reflector_start(struct pod_reflector *f, struct kube_client *client)
{
    f->loop = list_watch_loop_new(client, 1, &pod_reflector_fns, f);
    list_watch_loop_thread(f->loop, "pods");
}

void pod_reflector_relist(struct pod_reflector *f)
{
    atomic_store(&f->relist, true);
    if (f->loop)
        list_watch_loop_wake(f->loop);
}

void pod_reflector_stop(struct pod_reflector *f)
{
    list_watch_loop_stop(f->loop);
}

void pod_reflector_free(struct pod_reflector *f)
{
    list_watch_loop_free(f->loop);
    list_watch_fini(&f->in);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

struct pod_reflector_status pod_reflector_status(struct pod_reflector *f)
{
    pthread_mutex_lock(&f->lock);
    struct pod_reflector_status status = f->status;
    pthread_mutex_unlock(&f->lock);
    return status;
}
