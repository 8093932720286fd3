/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi_priv.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
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

/* -- the cache of watches -- */

/* One state of an object; immutable and shared with lists that are being sent. */
struct text {
    atomic_uint refs;
    size_t n, number_at, number_n; /* the number: its offset and length */
    char p[];
};

struct watch_cache_item {
    struct span name; /* owned */
    struct text *text;
    uint64_t seq, born;
};

/* A change. An entry that a later change of the item superseded has neither member. */
struct entry {
    uint64_t seq;
    struct watch_cache_item *item; /* changed */
    char *gone;                    /* deleted: its name; owned */
};

struct watch_cache {
    const struct watch_cache_kind *kind;
    size_t max_gone;
    uint64_t seq;          /* of the last change */
    uint64_t forgotten;    /* number of the last deletion that was discarded */
    struct entry *entries; /* by rising seq */
    size_t n, cap, n_gone;
    struct watch_cache_item **items; /* by name, then by age */
    size_t n_items, items_cap;
    struct watch_cache_list *list; /* of the state now; NULL: not made yet */
};

struct watch_cache *watch_cache_new(const struct watch_cache_kind *kind, size_t max_gone)
{
    struct watch_cache *w = xcalloc(1, sizeof *w);
    w->kind = kind;
    w->max_gone = max_gone;
    return w;
}

static void text_drop(struct text *text)
{
    if (atomic_fetch_sub(&text->refs, 1) == 1)
        free(text);
}

struct watch_cache_list {
    atomic_uint refs;
    size_t n;
    struct text *texts[];
};

void watch_cache_list_free(struct watch_cache_list *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
        return;
    for (size_t i = 0; i < l->n; i++)
        text_drop(l->texts[i]);
    free(l);
}

static void item_free(struct watch_cache_item *item)
{
    text_drop(item->text);
    free((char *)item->name.p);
    free(item);
}

void watch_cache_free(struct watch_cache *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++)
        free(w->entries[i].gone);
    for (size_t i = 0; i < w->n_items; i++)
        item_free(w->items[i]);
    watch_cache_list_free(w->list);
    free(w->entries);
    free(w->items);
    free(w);
}

uint64_t watch_cache_last(const struct watch_cache *w)
{
    return w->seq;
}

size_t watch_cache_count(const struct watch_cache *w)
{
    return w->n_items;
}

static struct text *text_new(struct span head, uint64_t seq, struct span tail)
{
    cleanup_buf struct buf number = {0};
    buf_add_i64(&number, (int64_t)seq);
    struct text *t = xmalloc(sizeof *t + head.n + number.n + tail.n);
    atomic_init(&t->refs, 1);
    t->n = head.n + number.n + tail.n;
    t->number_at = head.n;
    t->number_n = number.n;
    memcpy(t->p, head.p, head.n);
    memcpy(t->p + head.n, number.p, number.n);
    memcpy(t->p + head.n + number.n, tail.p, tail.n);
    return t;
}

static struct span text_head(const struct text *t)
{
    return (struct span){t->p, t->number_at};
}

static struct span text_tail(const struct text *t)
{
    size_t at = t->number_at + t->number_n;
    return (struct span){t->p + at, t->n - at};
}

/* Index of the first entry with a higher number. */
static size_t entry_after(const struct watch_cache *w, uint64_t seq)
{
    return ARRAY_LOWER_BOUND(e, w->entries, w->n, e->seq <= seq);
}

static struct entry *entry_of(const struct watch_cache *w,
                              const struct watch_cache_item *item)
{
    struct entry *e = &w->entries[entry_after(w, item->seq - 1)];
    assert(e->item == item);
    return e;
}

/* Removes superseded entries and, if there are too many deletions, the oldest ones. Half
 * of the limit stays, so that the next compaction is far. */
static void compact(struct watch_cache *w)
{
    size_t forget = w->n_gone > w->max_gone ? w->n_gone - w->max_gone / 2 : 0, n = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct entry *e = &w->entries[i];
        if (e->gone && forget) {
            w->forgotten = e->seq;
            free(e->gone);
            e->gone = NULL;
            w->n_gone--;
            forget--;
        }
        if (e->item || e->gone)
            w->entries[n++] = *e;
    }
    w->n = n;
}

static void append(struct watch_cache *w, struct watch_cache_item *item, char *gone)
{
    size_t live = w->n_items + w->n_gone;
    watch_cache_list_free(w->list);
    w->list = NULL;
    if (w->n_gone > w->max_gone || (w->n > 64 && w->n > 2 * live))
        compact(w);
    MEM_GROW(w->entries, w->cap, w->n + 1);
    w->entries[w->n++] = (struct entry){++w->seq, item, gone};
    w->n_gone += gone != NULL;
    if (item)
        item->seq = w->seq;
}

/* Index of the first item of that name, or where it would be. */
static size_t name_at(const struct watch_cache *w, struct span name)
{
    return ARRAY_LOWER_BOUND(i, w->items, w->n_items, span_cmp((*i)->name, name) < 0);
}

static bool is_named(const struct watch_cache *w, size_t i, struct span name)
{
    return i < w->n_items && span_eq(w->items[i]->name, name);
}

static struct watch_cache_item *item_new(struct watch_cache *w, struct span name)
{
    struct watch_cache_item *item = xcalloc(1, sizeof *item);
    item->name = (struct span){xmemdup0(name.p, name.n), name.n};
    size_t at = name_at(w, name);
    while (is_named(w, at, name))
        at++;
    *ARRAY_INSERT(w->items, w->n_items, w->items_cap, at) = item;
    return item;
}

static void set_state(struct watch_cache *w, struct watch_cache_item *item,
                      struct span head, struct span tail)
{
    append(w, item, NULL);
    struct text *old = item->text;
    item->text = text_new(head, item->seq, tail);
    if (old)
        text_drop(old);
}

bool watch_cache_item_is(const struct watch_cache_item *item, struct span head,
                         struct span tail)
{
    return span_eq(text_head(item->text), head) && span_eq(text_tail(item->text), tail);
}

bool watch_cache_put(struct watch_cache *w, struct watch_cache_item **item,
                     struct span name, struct span head, struct span tail)
{
    struct watch_cache_item *i = *item;
    if (i && watch_cache_item_is(i, head, tail))
        return false;
    if (i)
        entry_of(w, i)->item = NULL;
    else
        i = *item = item_new(w, name);
    set_state(w, i, head, tail);
    return true;
}

void watch_cache_drop(struct watch_cache *w, struct watch_cache_item **gone)
{
    struct watch_cache_item *item = *gone;
    if (!item)
        return;
    *gone = NULL;
    size_t at = name_at(w, item->name);
    size_t i = at;
    while (w->items[i] != item)
        i++;
    ARRAY_REMOVE(w->items, w->n_items, i);
    entry_of(w, item)->item = NULL;
    append(w, NULL, xmemdup0(item->name.p, item->name.n));
    for (; is_named(w, at, item->name); at++) {
        struct watch_cache_item *twin = w->items[at];
        entry_of(w, twin)->item = NULL;
        set_state(w, twin, text_head(twin->text), text_tail(twin->text));
    }
    item_free(item);
}

static void write_line(const struct watch_cache *w, const struct entry *e,
                       struct buf *out)
{
    buf_adds(out, "{\"");
    buf_adds(out, w->kind->key);
    buf_adds(out, "\":");
    if (e->item) {
        buf_add(out, e->item->text->p, e->item->text->n);
        buf_adds(out, ",\"Type\":\"SYNCED\"}\n");
        return;
    }
    buf_adds(out, w->kind->gone_head);
    buf_add_json(out, span_of(e->gone));
    buf_adds(out, w->kind->gone_tail);
    buf_adds(out, ",\"Type\":\"DELETED\"}\n");
}

/* Whether a deletion that the reader has not seen was discarded. Deletions from before
 * its start do not matter. */
static bool is_behind(const struct watch_cache *w, const struct watch_cache_reader *r)
{
    return w->forgotten > r->at && w->forgotten > r->base;
}

bool watch_cache_read(const struct watch_cache *w, struct watch_cache_reader *r,
                      size_t max, struct buf *out)
{
    if (!r->begun || is_behind(w, r)) {
        if (r->begun)
            buf_adds(out, "{\"Type\":\"RESYNC\"}\n");
        *r = (struct watch_cache_reader){.begun = true, .base = w->seq};
    }
    for (size_t i = entry_after(w, r->at); i < w->n && out->n < max; i++) {
        const struct entry *e = &w->entries[i];
        r->at = e->seq;
        if (e->item || (e->gone && e->seq > r->base))
            write_line(w, e, out);
    }
    bool all = entry_after(w, r->at) == w->n;
    if (!r->synced && (all || w->entries[entry_after(w, r->at)].seq > r->base)) {
        r->synced = true;
        buf_addc(out, '\n');
    }
    return all;
}

struct watch_cache_list *watch_cache_list(struct watch_cache *w)
{
    struct watch_cache_list *l = w->list;
    if (!l) {
        l = w->list = xmalloc(sizeof *l + w->n_items * sizeof *l->texts);
        atomic_init(&l->refs, 1);
        l->n = w->n_items;
        for (size_t i = 0; i < l->n; i++) {
            l->texts[i] = w->items[i]->text;
            atomic_fetch_add(&l->texts[i]->refs, 1);
        }
    }
    atomic_fetch_add(&l->refs, 1);
    return l;
}

bool watch_cache_list_read(const struct watch_cache_list *l, size_t *next, size_t max,
                           struct buf *out)
{
    while (*next < l->n && out->n < max) {
        const struct text *t = l->texts[*next];
        if (*next)
            buf_addc(out, ',');
        buf_add(out, t->p, t->n);
        ++*next;
    }
    return *next == l->n;
}

/* -- the thread that fills the caches -- */

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

/* -- lists and watches -- */

enum {
    CHUNK = 16 * 1024, /* bytes written at a time, and buffered per slow client */
    /* Likewise, of the initial state: many watches begin together when a server starts. */
    FIRST_CHUNK = 8 * 1024,
};

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
static bool begin_list(struct watcher *w, struct httpd_open_stream *stream)
{
    struct gpuapi *v = w->v;
    pthread_mutex_lock(&v->lock);
    w->waker = stream;
    list_remove(&w->waiting);
    if (atomic_load(&v->ready))
        w->list = watch_cache_list(v->caches[w->kind]);
    else
        list_append(&v->waiters[w->kind], &w->waiting);
    pthread_mutex_unlock(&v->lock);
    return w->list;
}

static enum httpd_stream_result list_fill(void *ctx, struct httpd_open_stream *stream,
                                          struct buf *out)
{
    struct watcher *w = ctx;
    if (!w->list) {
        if (!begin_list(w, stream))
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

static const struct httpd_stream list_stream = {.fill = list_fill, .close = list_close};

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

static enum httpd_stream_result watch_fill(void *ctx, struct httpd_open_stream *stream,
                                           struct buf *out)
{
    struct watcher *w = ctx;
    struct gpuapi *v = w->v;
    int64_t now_ms = clock_mono_ms();
    if (now_ms >= w->end_ms)
        return HTTPD_STREAM_END;
    pthread_mutex_lock(&v->lock);
    w->waker = stream;
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
    httpd_stream_wake_at(stream, next_due(w));
    return HTTPD_STREAM_WAIT;
}

static void watch_close(void *ctx)
{
    struct watcher *w = ctx;
    seats_give(&w->v->watches, w->main);
    watcher_free(w);
}

static const struct httpd_stream watch_stream = {.fill = watch_fill,
                                                 .close = watch_close};

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
