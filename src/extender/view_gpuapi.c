/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_gpuapi_priv.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    GONE_MAX = 16384, /* deletions that are remembered, of each kind */
    LOOKS_MAX = 16,   /* nodes that are copied out under one lock ... */
    SLOTS_MAX = 1024, /* ... and slots that are passed over */
    LONGEST_MS = 1000,
    LISTING_MS = 20, /* before everything has been listed: nobody tells us when it has */
    WAKES_MAX = 32,  /* watchers that are woken under one lock */
    /* Changes are gathered for so long, so that they cost a thousand watchers one
     * waking and not twenty a second. */
    PAUSE_US = 50 * 1000,
    PAUSE_US_PER_WATCH = 200,
};

/* What is shown of a pod, and under which name it was put there. */
struct shown_pod {
    char *ns, *name, *uid;
    struct watch_cache_item *item;
    bool there; /* in this look */
};

/* The same of a node. */
struct shown_node {
    uint64_t generation;
    char *name; /* NULL: nothing is shown */
    struct watch_cache_item *item;
    bool healthy;
    struct view_gpuapi_times times;
    struct shown_pod *pods;
    size_t n_pods, pods_cap;
};

static void forget_pod(struct view_gpuapi *o, struct shown_pod *pod)
{
    watch_cache_drop(o->logs[VIEW_GPUAPI_PODS], &pod->item);
    free(pod->ns);
    free(pod->name);
    free(pod->uid);
}

static void forget(struct view_gpuapi *o, struct shown_node *shown)
{
    for (size_t i = 0; i < shown->n_pods; i++)
        forget_pod(o, &shown->pods[i]);
    watch_cache_drop(o->logs[VIEW_GPUAPI_NODES], &shown->item);
    free(shown->pods);
    free(shown->name);
    *shown = (struct shown_node){.generation = shown->generation};
}

static bool is_pod(const struct shown_pod *shown, const struct view_gpuapi_pod *pod)
{
    return span_eq(span_of(shown->name), pod->name) &&
           span_eq(span_of(shown->ns), pod->ns) && span_eq(span_of(shown->uid), pod->uid);
}

static struct shown_pod *need_pod(struct shown_node *shown,
                                  const struct view_gpuapi_pod *pod)
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

static void publish_pods(struct view_gpuapi *o, struct shown_node *shown,
                         const struct view_gpuapi_node *n)
{
    for (size_t i = 0; i < n->n_pods; i++) {
        const struct view_gpuapi_pod *pod = &n->pods[i];
        struct shown_pod *p = need_pod(shown, pod);
        p->there = true;
        watch_cache_put(o->logs[VIEW_GPUAPI_PODS], &p->item, pod->shown_name, pod->head,
                        pod->tail);
    }
    size_t kept = 0;
    for (size_t i = 0; i < shown->n_pods; i++) {
        struct shown_pod *p = &shown->pods[i];
        if (p->there)
            shown->pods[kept++] = *p;
        else
            forget_pod(o, p);
    }
    shown->n_pods = kept;
    for (size_t i = 0; i < kept; i++)
        shown->pods[i].there = false;
}

/* A measurement alone is no news: the time of the report is that of the measurement that
 * brought what is shown. */
static void publish_node(struct view_gpuapi *o, struct shown_node *shown,
                         const struct view_gpuapi_node *n, int64_t now_s)
{
    cleanup_buf struct buf tail = {0};
    struct view_gpuapi_times *t = &shown->times;
    if (!shown->item || shown->healthy != n->healthy) {
        t->transition_s = now_s;
        t->was_healthy |= n->healthy;
        if (n->healthy)
            t->health_s = now_s;
    }
    shown->healthy = n->healthy;
    view_gpuapi_node_tail(n, t, &tail);
    if (shown->item && watch_cache_item_is(shown->item, n->head, buf_span(&tail)))
        return;
    t->has_report = n->has_sample;
    t->report_s = n->sample_s;
    buf_clear(&tail);
    view_gpuapi_node_tail(n, t, &tail);
    watch_cache_put(o->logs[VIEW_GPUAPI_NODES], &shown->item, n->name, n->head,
                    buf_span(&tail));
}

static void publish(struct view_gpuapi *o, const struct view_gpuapi_node *n)
{
    struct shown_node *shown = &o->shown[n->slot];
    int64_t now_s = clock_wall_ns() / 1000000000;
    pthread_mutex_lock(&o->lock);
    if (shown->name && (n->gone || !span_eq(span_of(shown->name), n->name)))
        forget(o, shown);
    shown->generation = n->generation;
    if (!n->gone) {
        if (!shown->name)
            shown->name = xmemdup0(n->name.p, n->name.n);
        publish_node(o, shown, n, now_s);
        publish_pods(o, shown, n);
    }
    pthread_mutex_unlock(&o->lock);
}

static struct shown_node *shown_at(struct view_gpuapi *o, size_t slot)
{
    MEM_GROW(o->shown, o->shown_cap, slot + 1);
    while (o->n_shown <= slot)
        o->shown[o->n_shown++] = (struct shown_node){0};
    return &o->shown[slot];
}

/* From *slot on: copies out what has changed, a few nodes. False: that was the end. */
static bool look(struct view_gpuapi *o, uint32_t *slot, struct view_gpuapi_node *nodes,
                 size_t *n)
{
    const struct ledger *l = core_ledger(store_read(o->store));
    uint32_t slots = ledger_node_slots(l), end = slots;
    if (slots - *slot > SLOTS_MAX)
        end = *slot + SLOTS_MAX;
    for (*n = 0; *slot < end && *n < LOOKS_MAX; ++*slot) {
        const struct ledger_node *node = ledger_node_at(l, *slot);
        const struct shown_node *shown = shown_at(o, *slot);
        if (node ? node->generation == shown->generation : !shown->name)
            continue;
        if (node)
            view_gpuapi_render_node(node, o->conf.grace_s, &o->arena, &nodes[(*n)++]);
        else
            nodes[(*n)++] = (struct view_gpuapi_node){.slot = *slot, .gone = true};
    }
    bool more = *slot < slots;
    store_read_end(o->store);
    return more;
}

/* Before everything has been listed, what is known of a node may be half of it. */
static bool may_show(struct view_gpuapi *o)
{
    const struct core *core = store_read(o->store);
    uint64_t generation = ledger_generation(core_ledger(core));
    bool ready = core_ready(core, store_now(), NULL) == 0;
    store_read_end(o->store);
    bool news = generation != o->generation || !atomic_load(&o->ready);
    if (!(ready || atomic_load(&o->ready)) || !news)
        return false;
    o->generation = generation;
    return true;
}

/* Wakes those that sleep now; who falls asleep meanwhile has seen the news. A watcher is
 * in the list only while it sleeps, and leaves it, under the lock, before it ends: so the
 * waker is there. */
static void wake_all(struct view_gpuapi *o, enum view_gpuapi_kind kind)
{
    struct sleepers *all = &o->asleep[kind];
    pthread_mutex_lock(&o->lock);
    for (size_t left = all->n, n = 0; left && all->first; left--, n++) {
        if (n % WAKES_MAX == WAKES_MAX - 1) { /* others want the lock, too */
            pthread_mutex_unlock(&o->lock);
            pthread_mutex_lock(&o->lock);
            if (!all->first)
                break;
        }
        struct watcher *w = all->first;
        view_gpuapi_unlist(w);
        httpd_wake(w->waker);
    }
    pthread_mutex_unlock(&o->lock);
}

static uint64_t last_change(struct view_gpuapi *o, int kind)
{
    pthread_mutex_lock(&o->lock);
    uint64_t n = watch_cache_last(o->logs[kind]);
    pthread_mutex_unlock(&o->lock);
    return n;
}

static void run_round(struct view_gpuapi *o)
{
    struct view_gpuapi_node nodes[LOOKS_MAX];
    uint64_t before[VIEW_GPUAPI_KINDS];
    for (int k = 0; k < VIEW_GPUAPI_KINDS; k++)
        before[k] = last_change(o, k);
    uint32_t slot = 0;
    size_t n;
    bool more;
    do {
        more = look(o, &slot, nodes, &n);
        for (size_t i = 0; i < n; i++)
            publish(o, &nodes[i]);
        arena_reset(&o->arena);
    } while (more);
    pthread_mutex_lock(&o->lock);
    bool first = !atomic_exchange(&o->ready, true);
    pthread_mutex_unlock(&o->lock);
    for (int k = 0; k < VIEW_GPUAPI_KINDS; k++)
        if (first || last_change(o, k) != before[k])
            wake_all(o, (enum view_gpuapi_kind)k);
}

/* -- only while somebody reads --
 * What is shown of 40,000 pods is 50 MB, and following the ledger costs a good part of
 * what the ledger itself does; most clusters have nobody who reads it. */

static void forget_all(struct view_gpuapi *o)
{
    for (size_t i = 0; i < o->n_shown; i++)
        forget(o, &o->shown[i]);
    free(o->shown);
    o->shown = NULL;
    o->n_shown = o->shown_cap = 0;
}

void view_gpuapi_reader_begin(struct view_gpuapi *o)
{
    pthread_mutex_lock(&o->lock);
    bool news = !atomic_exchange(&o->wanted, true);
    o->readers++;
    o->read_ms = clock_mono_ms();
    pthread_mutex_unlock(&o->lock);
    if (news)
        view_gpuapi_changed(o);
}

void view_gpuapi_reader_end(struct view_gpuapi *o)
{
    pthread_mutex_lock(&o->lock);
    o->readers--;
    o->read_ms = clock_mono_ms();
    pthread_mutex_unlock(&o->lock);
}

static void rest_when_idle(struct view_gpuapi *o)
{
    pthread_mutex_lock(&o->lock);
    if (atomic_load(&o->ready) && !o->readers &&
        clock_mono_ms() - o->read_ms > o->conf.idle_ms) {
        forget_all(o); /* the logs stay, so that numbers go on rising */
        atomic_store(&o->ready, false);
        atomic_store(&o->wanted, false);
    }
    pthread_mutex_unlock(&o->lock);
}

static struct timespec in_us(int64_t us)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += us % 1000000 * 1000;
    t.tv_sec += us / 1000000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Sleeps a while, whatever changes; then until something has. False: stop. */
static bool wait_for_change(struct view_gpuapi *o, int64_t pause_us)
{
    bool listing = atomic_load(&o->wanted) && !atomic_load(&o->ready);
    int64_t longest_ms = listing ? LISTING_MS : LONGEST_MS;
    struct timespec pause = in_us(pause_us), longest = in_us(longest_ms * 1000);
    int timed_out = 0;
    pthread_mutex_lock(&o->wait_lock);
    while (!o->stop && !timed_out)
        timed_out = pthread_cond_timedwait(&o->cond, &o->wait_lock, &pause);
    timed_out = 0;
    while (!o->stop && !o->dirty && !timed_out)
        timed_out = pthread_cond_timedwait(&o->cond, &o->wait_lock, &longest);
    o->dirty = false;
    bool go_on = !o->stop;
    pthread_mutex_unlock(&o->wait_lock);
    return go_on;
}

static void *run(void *arg)
{
    struct view_gpuapi *o = arg;
    int64_t pause_us;
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){0});
    do {
        if (atomic_load(&o->wanted) && may_show(o))
            run_round(o);
        rest_when_idle(o);
        pause_us = PAUSE_US + (int64_t)atomic_load(&o->watches) * PAUSE_US_PER_WATCH;
    } while (wait_for_change(o, pause_us));
    return NULL;
}

void view_gpuapi_changed(void *observe)
{
    struct view_gpuapi *o = observe;
    if (!atomic_load(&o->wanted))
        return;
    pthread_mutex_lock(&o->wait_lock);
    if (!o->dirty)
        pthread_cond_signal(&o->cond);
    o->dirty = true;
    pthread_mutex_unlock(&o->wait_lock);
}

struct view_gpuapi *view_gpuapi_start(struct store *store,
                                      const struct view_gpuapi_config *config)
{
    struct view_gpuapi *o = xcalloc(1, sizeof *o);
    pthread_condattr_t attr;
    o->store = store;
    o->conf = *config;
    for (int i = 0; i < VIEW_GPUAPI_KINDS; i++)
        o->logs[i] = watch_cache_new(&view_gpuapi_kinds[i], GONE_MAX);
    pthread_mutex_init(&o->lock, NULL);
    pthread_mutex_init(&o->wait_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&o->cond, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&o->thread, NULL, run, o))
        abort();
    pthread_setname_np(o->thread, "observe");
    return o;
}

void view_gpuapi_stop(struct view_gpuapi *o)
{
    pthread_mutex_lock(&o->wait_lock);
    o->stop = true;
    pthread_cond_signal(&o->cond);
    pthread_mutex_unlock(&o->wait_lock);
    pthread_join(o->thread, NULL);
}

void view_gpuapi_free(struct view_gpuapi *o)
{
    if (!o)
        return;
    forget_all(o);
    for (int i = 0; i < VIEW_GPUAPI_KINDS; i++)
        watch_cache_free(o->logs[i]);
    arena_fini(&o->arena);
    pthread_mutex_destroy(&o->lock);
    pthread_mutex_destroy(&o->wait_lock);
    pthread_cond_destroy(&o->cond);
    free(o);
}
