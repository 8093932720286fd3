/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi_priv.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    GONE_MAX = 16384, /* deletions that each cache remembers */
    NODES_MAX = 16,   /* nodes rendered under one lock ... */
    SLOTS_MAX = 1024, /* ... and slots skipped */
    LONGEST_MS = 1000,
    LISTING_MS = 20, /* poll interval until every kind of object has been listed */
    /* Changes are batched, so that many watchers wake once instead of twenty times
     * a second. */
    PAUSE_MS = 50,
    PAUSE_WATCHES_PER_MS = 5, /* for each so many watches, a millisecond more */
};

/* A pod in the cache. */
struct shown_pod {
    char *ns, *name, *uid;
    struct watch_cache_item *item;
    bool present; /* in this scan */
};

/* A node in the cache. */
struct shown_node {
    uint64_t generation;
    char *name; /* NULL: not in the cache */
    struct watch_cache_item *item;
    bool healthy;
    struct gpuapi_times times;
    struct shown_pod *pods;
    size_t n_pods, pods_cap;
};

static void drop_pod(struct gpuapi *v, struct shown_pod *pod)
{
    watch_cache_drop(v->caches[GPUAPI_PODS], &pod->item);
    free(pod->ns);
    free(pod->name);
    free(pod->uid);
}

static void drop_node(struct gpuapi *v, struct shown_node *shown)
{
    for (size_t i = 0; i < shown->n_pods; i++)
        drop_pod(v, &shown->pods[i]);
    watch_cache_drop(v->caches[GPUAPI_NODES], &shown->item);
    free(shown->pods);
    free(shown->name);
    *shown = (struct shown_node){.generation = shown->generation};
}

static bool is_pod(const struct shown_pod *shown, const struct gpuapi_pod *pod)
{
    return span_eq(span_of(shown->name), pod->name) &&
           span_eq(span_of(shown->ns), pod->ns) && span_eq(span_of(shown->uid), pod->uid);
}

static struct shown_pod *get_pod(struct shown_node *shown, const struct gpuapi_pod *pod)
{
    for (size_t i = 0; i < shown->n_pods; i++)
        if (is_pod(&shown->pods[i], pod))
            return &shown->pods[i];
    MEM_GROW(shown->pods, shown->pods_cap, shown->n_pods + 1);
    struct shown_pod *p = &shown->pods[shown->n_pods++];
    *p = (struct shown_pod){.ns = xmemdup0(pod->ns.p, pod->ns.n),
                            .name = xmemdup0(pod->name.p, pod->name.n),
                            .uid = xmemdup0(pod->uid.p, pod->uid.n)};
    return p;
}

static void publish_pods(struct gpuapi *v, struct shown_node *shown,
                         const struct gpuapi_node *n)
{
    for (size_t i = 0; i < n->n_pods; i++) {
        const struct gpuapi_pod *pod = &n->pods[i];
        struct shown_pod *p = get_pod(shown, pod);
        p->present = true;
        watch_cache_put(v->caches[GPUAPI_PODS], &p->item, pod->shown_name, pod->head,
                        pod->tail);
    }
    size_t kept = 0;
    for (size_t i = 0; i < shown->n_pods; i++) {
        struct shown_pod *p = &shown->pods[i];
        if (p->present)
            shown->pods[kept++] = *p;
        else
            drop_pod(v, p);
    }
    shown->n_pods = kept;
    for (size_t i = 0; i < kept; i++)
        shown->pods[i].present = false;
}

/* A new measurement alone is not a change: report_time is the time of the measurement
 * that brought the current state. */
static void publish_node(struct gpuapi *v, struct shown_node *shown,
                         const struct gpuapi_node *n, int64_t now_s)
{
    cleanup_buf struct buf tail = {0};
    struct gpuapi_times *t = &shown->times;
    if (!shown->item || shown->healthy != n->healthy) {
        t->transition_s = now_s;
        t->was_healthy |= n->healthy;
        if (n->healthy)
            t->health_s = now_s;
    }
    shown->healthy = n->healthy;
    gpuapi_node_tail(n, t, &tail);
    if (shown->item && watch_cache_item_is(shown->item, n->head, buf_span(&tail)))
        return;
    t->has_report = n->has_sample;
    t->report_s = n->sample_s;
    buf_clear(&tail);
    gpuapi_node_tail(n, t, &tail);
    watch_cache_put(v->caches[GPUAPI_NODES], &shown->item, n->name, n->head,
                    buf_span(&tail));
}

static void publish(struct gpuapi *v, const struct gpuapi_node *n)
{
    struct shown_node *shown = &v->shown[n->slot];
    int64_t now_s = clock_wall_ns() / 1000000000;
    pthread_mutex_lock(&v->lock);
    if (shown->name && (n->gone || !span_eq(span_of(shown->name), n->name)))
        drop_node(v, shown);
    shown->generation = n->generation;
    if (!n->gone) {
        if (!shown->name)
            shown->name = xmemdup0(n->name.p, n->name.n);
        publish_node(v, shown, n, now_s);
        publish_pods(v, shown, n);
    }
    pthread_mutex_unlock(&v->lock);
}

static struct shown_node *shown_at(struct gpuapi *v, size_t slot)
{
    MEM_GROW(v->shown, v->shown_cap, slot + 1);
    while (v->n_shown <= slot)
        v->shown[v->n_shown++] = (struct shown_node){0};
    return &v->shown[slot];
}

/* Renders up to NODES_MAX changed nodes, from *slot on. False: *slot is at the end. */
static bool scan(struct gpuapi *v, uint32_t *slot, struct gpuapi_node *nodes, size_t *n)
{
    const struct ledger *l = core_ledger(core_driver_read(v->driver));
    uint32_t slots = ledger_node_slots(l), end = slots;
    if (slots - *slot > SLOTS_MAX)
        end = *slot + SLOTS_MAX;
    for (*n = 0; *slot < end && *n < NODES_MAX; ++*slot) {
        const struct ledger_node *node = ledger_node_at(l, *slot);
        const struct shown_node *shown = shown_at(v, *slot);
        if (node ? node->generation == shown->generation : !shown->name)
            continue;
        if (node)
            gpuapi_render_node(node, v->conf.grace_s, &v->arena, &nodes[(*n)++]);
        else
            nodes[(*n)++] = (struct gpuapi_node){.slot = *slot, .gone = true};
    }
    bool more = *slot < slots;
    core_driver_read_end(v->driver);
    return more;
}

/* Whether a round is due. Not before every kind of object has been listed: nodes would be
 * incomplete. */
static bool round_is_due(struct gpuapi *v)
{
    const struct core *core = core_driver_read(v->driver);
    uint64_t generation = ledger_generation(core_ledger(core));
    bool ready = core_ready(core, core_driver_now(), NULL) == 0;
    core_driver_read_end(v->driver);
    bool changed = generation != v->generation || !atomic_load(&v->ready);
    if (!(ready || atomic_load(&v->ready)) || !changed)
        return false;
    v->generation = generation;
    return true;
}

/* Wakes the watchers that wait now; one that begins to wait meanwhile has seen the
 * change. A watcher is in `waiters` only while it waits, and is removed under the lock
 * before it is freed, so its waker is valid. */
static void wake_all(struct gpuapi *v, enum gpuapi_kind kind)
{
    pthread_mutex_lock(&v->lock);
    while (!list_is_empty(&v->waiters[kind])) {
        struct watcher *w = LIST_FIRST(&v->waiters[kind], struct watcher, waiting);
        list_remove(&w->waiting);
        httpd_stream_wake(w->waker);
    }
    pthread_mutex_unlock(&v->lock);
}

static uint64_t last_change(struct gpuapi *v, int kind)
{
    pthread_mutex_lock(&v->lock);
    uint64_t n = watch_cache_last(v->caches[kind]);
    pthread_mutex_unlock(&v->lock);
    return n;
}

static void run_round(struct gpuapi *v)
{
    struct gpuapi_node nodes[NODES_MAX];
    uint64_t before[GPUAPI_KINDS];
    for (int k = 0; k < GPUAPI_KINDS; k++)
        before[k] = last_change(v, k);
    uint32_t slot = 0;
    size_t n;
    bool more;
    do {
        more = scan(v, &slot, nodes, &n);
        for (size_t i = 0; i < n; i++)
            publish(v, &nodes[i]);
        arena_reset(&v->arena);
    } while (more);
    pthread_mutex_lock(&v->lock);
    bool first = !atomic_exchange(&v->ready, true);
    pthread_mutex_unlock(&v->lock);
    for (int k = 0; k < GPUAPI_KINDS; k++)
        if (first || last_change(v, k) != before[k])
            wake_all(v, (enum gpuapi_kind)k);
}

/* -- only while there are readers --
 * The cache of 40,000 pods takes 50 MB, and following the ledger costs a large part of
 * what the ledger itself costs. Most clusters have no reader. */

static void drop_all(struct gpuapi *v)
{
    for (size_t i = 0; i < v->n_shown; i++)
        drop_node(v, &v->shown[i]);
    free(v->shown);
    v->shown = NULL;
    v->n_shown = v->shown_cap = 0;
}

void gpuapi_reader_begin(struct gpuapi *v)
{
    pthread_mutex_lock(&v->lock);
    bool first = !atomic_exchange(&v->wanted, true);
    v->readers++;
    v->read_ms = clock_mono_ms();
    pthread_mutex_unlock(&v->lock);
    if (first)
        gpuapi_changed(v);
}

void gpuapi_reader_end(struct gpuapi *v)
{
    pthread_mutex_lock(&v->lock);
    v->readers--;
    v->read_ms = clock_mono_ms();
    pthread_mutex_unlock(&v->lock);
}

static void rest_when_idle(struct gpuapi *v)
{
    pthread_mutex_lock(&v->lock);
    if (atomic_load(&v->ready) && !v->readers &&
        clock_mono_ms() - v->read_ms > v->conf.idle_ms) {
        drop_all(v); /* the caches stay, so that resourceVersions keep rising */
        atomic_store(&v->ready, false);
        atomic_store(&v->wanted, false);
    }
    pthread_mutex_unlock(&v->lock);
}

/* Sleeps for the pause, then until the ledger changes. False: stop. */
static bool wait_for_change(struct gpuapi *v, int64_t pause_ms)
{
    bool listing = atomic_load(&v->wanted) && !atomic_load(&v->ready);
    int64_t now_ms = clock_mono_ms();
    int64_t longest_ms = now_ms + (listing ? LISTING_MS : LONGEST_MS);
    pthread_mutex_lock(&v->wait_lock);
    while (!v->stop && thread_wait_until(&v->cond, &v->wait_lock, now_ms + pause_ms))
        ;
    while (!v->stop && !v->dirty &&
           thread_wait_until(&v->cond, &v->wait_lock, longest_ms))
        ;
    v->dirty = false;
    bool go_on = !v->stop;
    pthread_mutex_unlock(&v->wait_lock);
    return go_on;
}

static void *run(void *arg)
{
    struct gpuapi *v = arg;
    int64_t pause_ms;
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
    do {
        if (atomic_load(&v->wanted) && round_is_due(v))
            run_round(v);
        rest_when_idle(v);
        pause_ms =
            PAUSE_MS + (int64_t)atomic_load(&v->watches.taken) / PAUSE_WATCHES_PER_MS;
    } while (wait_for_change(v, pause_ms));
    return NULL;
}

void gpuapi_changed(void *ctx)
{
    struct gpuapi *v = ctx;
    if (!atomic_load(&v->wanted))
        return;
    pthread_mutex_lock(&v->wait_lock);
    if (!v->dirty)
        pthread_cond_signal(&v->cond);
    v->dirty = true;
    pthread_mutex_unlock(&v->wait_lock);
}

struct gpuapi *gpuapi_start(struct core_driver *driver,
                            const struct gpuapi_config *config)
{
    struct gpuapi *v = xcalloc(1, sizeof *v);
    v->driver = driver;
    v->conf = *config;
    v->lists =
        (struct seats){.what = "lists", .most = GPUAPI_LISTS, .main_most = GPUAPI_LISTS};
    v->watches = (struct seats){
        .what = "watches", .most = GPUAPI_WATCHES, .main_most = GPUAPI_MAIN_WATCHES};
    for (int i = 0; i < GPUAPI_KINDS; i++) {
        v->caches[i] = watch_cache_new(&gpuapi_kinds[i], GONE_MAX);
        list_init(&v->waiters[i]);
    }
    pthread_mutex_init(&v->lock, NULL);
    pthread_mutex_init(&v->wait_lock, NULL);
    pthread_cond_init(&v->cond, NULL);
    if (pthread_create(&v->thread, NULL, run, v))
        abort();
    pthread_setname_np(v->thread, "gpuapi");
    return v;
}

void gpuapi_stop(struct gpuapi *v)
{
    pthread_mutex_lock(&v->wait_lock);
    v->stop = true;
    pthread_cond_signal(&v->cond);
    pthread_mutex_unlock(&v->wait_lock);
    pthread_join(v->thread, NULL);
}

void gpuapi_free(struct gpuapi *v)
{
    if (!v)
        return;
    drop_all(v);
    for (int i = 0; i < GPUAPI_KINDS; i++)
        watch_cache_free(v->caches[i]);
    arena_fini(&v->arena);
    pthread_mutex_destroy(&v->lock);
    pthread_mutex_destroy(&v->wait_lock);
    pthread_cond_destroy(&v->cond);
    free(v);
}

/* -- lists, watches, discovery -- */

enum {
    CHUNK = 16 * 1024, /* bytes written at a time, and buffered per slow client */
    /* Likewise, of the initial state: many watches begin together when a server starts. */
    FIRST_CHUNK = 8 * 1024,
};

static void on_open(void *ctx, struct httpd_open_stream *waker)
{
    struct watcher *w = ctx;
    w->waker = waker;
}

static struct watcher *watcher_new(struct gpuapi *v, enum gpuapi_kind kind)
{
    struct watcher *w = xcalloc(1, sizeof *w);
    w->v = v;
    w->kind = kind;
    list_init(&w->waiting);
    gpuapi_reader_begin(v);
    return w;
}

static void watcher_free(struct watcher *w)
{
    struct gpuapi *v = w->v;
    pthread_mutex_lock(&v->lock);
    list_remove(&w->waiting);
    pthread_mutex_unlock(&v->lock);
    watch_cache_list_free(w->list);
    free(w);
    gpuapi_reader_end(v);
}

/* Lists */

/* Takes the snapshot when the first chunk is written. */
static bool begin_list(struct watcher *w)
{
    struct gpuapi *v = w->v;
    pthread_mutex_lock(&v->lock);
    list_remove(&w->waiting);
    if (atomic_load(&v->ready))
        w->list = watch_cache_list(v->caches[w->kind]);
    else
        list_append(&v->waiters[w->kind], &w->waiting);
    pthread_mutex_unlock(&v->lock);
    return w->list;
}

static enum httpd_stream_result list_fill(void *ctx, struct buf *out)
{
    struct watcher *w = ctx;
    if (!w->list) {
        if (!begin_list(w))
            return HTTPD_STREAM_WAIT;
        buf_adds(out, "{\"metadata\":{},\"items\":[");
    }
    if (!watch_cache_list_read(w->list, &w->next_item, CHUNK, out))
        return HTTPD_STREAM_MORE;
    buf_adds(out, "]}");
    return HTTPD_STREAM_END;
}

static void list_close(void *ctx)
{
    struct watcher *w = ctx;
    seats_give(&w->v->lists, false);
    watcher_free(w);
}

static const struct httpd_stream list_stream = {
    .open = on_open, .fill = list_fill, .close = list_close};

/* The limit exists because a client that stops reading holds its list for minutes. */
void gpuapi_list(struct gpuapi *v, enum gpuapi_kind kind, struct httpd_reply *reply)
{
    if (!seats_take(&v->lists, false, reply))
        return;
    reply->stream = &list_stream;
    reply->stream_ctx = watcher_new(v, kind);
}

/* Watches */

/* When the watch has something to do without a change. */
static int64_t next_due(const struct watcher *w)
{
    int64_t due = w->end_ms;
    int64_t heartbeat_ms = w->v->conf.heartbeat_ms;
    if (heartbeat_ms && w->sent_ms + heartbeat_ms < due)
        due = w->sent_ms + heartbeat_ms;
    return due;
}

static enum httpd_stream_result watch_fill(void *ctx, struct buf *out)
{
    struct watcher *w = ctx;
    struct gpuapi *v = w->v;
    int64_t now_ms = clock_mono_ms();
    if (now_ms >= w->end_ms)
        return HTTPD_STREAM_END;
    pthread_mutex_lock(&v->lock);
    list_remove(&w->waiting);
    /* Until the cache is filled, an empty line would mean that there are no objects. */
    bool ready = atomic_load(&v->ready), all = true;
    if (ready)
        all = watch_cache_read(v->caches[w->kind], &w->reader,
                               w->reader.synced ? CHUNK : FIRST_CHUNK, out);
    if (ready && !out->n && v->conf.heartbeat_ms &&
        now_ms - w->sent_ms >= v->conf.heartbeat_ms)
        buf_addc(out, '\n');
    if (out->n || !w->sent_ms)
        w->sent_ms = now_ms;
    if (all)
        list_append(&v->waiters[w->kind], &w->waiting); /* the next change wakes it */
    pthread_mutex_unlock(&v->lock);
    if (!all)
        return HTTPD_STREAM_MORE;
    httpd_stream_wake_at(w->waker, next_due(w));
    return HTTPD_STREAM_WAIT;
}

static void watch_close(void *ctx)
{
    struct watcher *w = ctx;
    seats_give(&w->v->watches, w->main);
    watcher_free(w);
}

static const struct httpd_stream watch_stream = {
    .open = on_open, .fill = watch_fill, .close = watch_close};

static void watch(struct gpuapi *v, enum gpuapi_kind kind, bool main, int64_t end_ms,
                  struct httpd_reply *reply)
{
    if (!seats_take(&v->watches, main, reply))
        return;
    struct watcher *w = watcher_new(v, kind);
    w->main = main;
    w->end_ms = end_ms;
    reply->stream = &watch_stream;
    reply->stream_ctx = w;
}

/* Whether the cache is filled or is about to be. */
static bool can_answer(struct gpuapi *v)
{
    bool ready = atomic_load(&v->ready);
    if (!ready) {
        ready = core_ready(core_driver_read(v->driver), core_driver_now(), NULL) == 0;
        core_driver_read_end(v->driver);
    }
    return ready;
}

void gpuapi_answer(struct gpuapi *v, enum gpuapi_kind kind, bool main, int64_t end_ms,
                   const struct httpd_request *req, struct httpd_reply *reply)
{
    if (!can_answer(v)) {
        httpd_fail(reply, 503, "not every kind of object has been listed yet");
        seats_retry_after(reply);
    } else if (httpd_is_watch(req)) {
        watch(v, kind, main, end_ms, reply);
    } else {
        gpuapi_list(v, kind, reply);
    }
}

void gpuapi_discovery(struct httpd_reply *reply)
{
    buf_adds(&reply->body,
             "{\"kind\":\"APIResourceList\",\"apiVersion\":\"v1\",\"groupVersion\":"
             "\"nvidia-gpu-scheduler/v1\",\"resources\":["
             "{\"name\":\"gpupods\",\"singularName\":\"gpupod\",\"namespaced\":false,"
             "\"kind\":\"GpuPod\",\"verbs\":[\"list\",\"watch\"]},"
             "{\"name\":\"gpunodes\",\"singularName\":\"gpunode\",\"namespaced\":false,"
             "\"kind\":\"GpuNode\",\"verbs\":[\"list\",\"watch\"]}]}");
}

void gpuapi_not_found(struct httpd_reply *reply)
{
    reply->status = 404;
    reply->header[0][0] = "X-Content-Type-Options";
    reply->header[0][1] = "nosniff";
    buf_adds(&reply->body, "{\"code\":404,\"msg\":\"api not found\"}\n");
}

void gpuapi_not_allowed(struct httpd_reply *reply, const char *allow)
{
    reply->status = 405;
    reply->content_type = NULL;
    reply->header[0][0] = "Allow";
    reply->header[0][1] = allow;
}
