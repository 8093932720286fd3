/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "extender/watch_cache.h"
#include "placement/reason.h"

enum {
    GONE_MAX = 16384,  /* deletions that each cache remembers */
    OBJECTS_MAX = 128, /* rendered under one lock, and the rest of a node ... */
    SLOTS_MAX = 1024,  /* ... and slots skipped */
    FOLLOW_MS = 100,   /* watches that are read in that time share a pass */
    /* The second port has one thread, which also answers /healthz: */
    RENDER_MS = 10, /* in the fill of one reader, and ... */
    PAUSE_MS = 2,   /* ... then in none */
};

/* What a slot of the ledger has in the cache: a GpuNode and its GpuPods. */
struct shown_node {
    uint64_t generation; /* of the node, when it was rendered */
    struct watch_cache_owner objects;
};

struct gpuapi {
    struct core_driver *driver;
    struct gpuapi_config conf;
    struct stream_kind watches, lists;

    pthread_mutex_t lock; /* protects the members below */
    /* Passes over the ledger bring the cache up to it, one after the other. */
    uint64_t pass;       /* number of the last one */
    int64_t began_ms;    /* ... when it began */
    uint64_t generation; /* of the ledger then */
    bool running;        /* it has not ended ... */
    uint32_t slot;       /* ... and goes on here, ... */
    int64_t next_ms;     /* not before */
    bool filled;         /* a pass has ended */
    struct watch_cache *caches[GPUAPI_KINDS];
    struct shown_node **shown; /* by slot of the ledger; each owned */
    size_t n_shown, shown_cap;
    struct buf json; /* of the object that is rendered, and ... */
    struct buf name; /* ... its name */
};

/* -- the JSON of a GpuNode and a GpuPod --
 * The bytes are those that Go writes for nvidia-gpu-scheduler's types: the order of
 * members, omitted empty members (omitempty), sorted maps. */

static void write_head(struct jwrite *w, const char *kind, struct span name,
                       int64_t created_s)
{
    cleanup_buf struct buf created = {0};
    watch_cache_write_time(&created, created_s);
    jwrite_object(w, NULL);
    jwrite_str(w, "kind", span_of(kind));
    jwrite_str(w, "apiVersion", SPAN("resources.scheduler.caden2016.github.io/v1"));
    jwrite_object(w, "metadata");
    jwrite_str(w, "name", name);
    jwrite_str(w, "namespace", SPAN("kube-system"));
    jwrite_raw(w, "resourceVersion", SPAN("\"" WATCH_CACHE_NUMBER "\""));
    jwrite_raw(w, "creationTimestamp", buf_span(&created));
}

/* `card` NULL: the node does not list the card (any more). */
static void write_card(struct jwrite *w, const struct card *card, struct span uuid,
                       struct span node)
{
    jwrite_object(w, NULL);
    jwrite_str_set(w, "device_id", card ? card->uuid : uuid);
    if (card) {
        jwrite_str_set(w, "device_model", card->model);
        jwrite_str_set(w, "device_busid",
                       card->scv ? card->scv->bus_id : (struct span){0});
    }
    jwrite_str_set(w, "device_node", node);
    jwrite_object_end(w);
}

/* A card with a UUID, and its model in lower case. */
struct known_card {
    const struct card *card;
    struct span model;
};

static int by_uuid(const void *a, const void *b)
{
    const struct known_card *x = a, *y = b;
    return span_cmp(x->card->uuid, y->card->uuid);
}

static int by_model(const void *a, const void *b)
{
    const struct known_card *x = a, *y = b;
    return span_cmp(x->model, y->model) ?: by_uuid(a, b);
}

/* The cards by UUID, without duplicates: an Scv may name a card twice. */
static size_t sort_cards(const struct ledger_node *node, struct arena *a,
                         struct known_card *cards)
{
    size_t n = 0, kept = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        if (!node->cards[i].uuid.n)
            continue;
        struct span model = arena_copy(a, node->cards[i].model);
        for (char *p = (char *)model.p; *p; p++)
            *p = (char)(*p >= 'A' && *p <= 'Z' ? *p | 0x20 : *p);
        cards[n++] = (struct known_card){&node->cards[i], model};
    }
    qsort(cards, n, sizeof *cards, by_uuid);
    for (size_t i = 0; i < n; i++)
        if (!kept || by_uuid(&cards[kept - 1], &cards[i]) != 0)
            cards[kept++] = cards[i];
    return kept;
}

static void write_models(struct jwrite *w, const struct known_card *all, size_t n)
{
    struct known_card cards[SCV_MAX_CARDS];
    bool any = false;
    memcpy(cards, all, n * sizeof *cards);
    qsort(cards, n, sizeof *cards, by_model);
    for (size_t i = 0; i < n; i++) {
        if (!cards[i].model.n)
            continue;
        if (!any)
            jwrite_object(w, "device_models");
        if (!any || !span_eq(cards[i].model, cards[i - 1].model)) {
            if (any)
                jwrite_array_end(w);
            jwrite_key(w, cards[i].model);
            jwrite_array(w, NULL);
        }
        any = true;
        jwrite_str(w, NULL, cards[i].card->uuid);
    }
    if (any) {
        jwrite_array_end(w);
        jwrite_object_end(w);
    }
}

static void write_message(struct buf *out, const struct ledger_node *node, bool has_lease,
                          int64_t grace_s)
{
    if (node->state != NODE_USABLE) {
        struct request any = {.kind = REQUEST_MEMORY, .cards = 1};
        reason_add(out, node, &any, select_fit(node, &any));
    } else if (!has_lease) {
        buf_adds(out, "The cards of GpuNode are known; it has no Lease.");
    } else {
        buf_adds(out, "Lease of GpuNode is refreshed");
        if (grace_s > 0)
            buf_printf(out, " in %llds", (long long)grace_s);
        buf_addc(out, '.');
    }
}

static void write_node(struct jwrite *w, const struct ledger_node *node,
                       const struct ledger_node_info *info, int64_t grace_s)
{
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf message = {0};
    struct known_card cards[SCV_MAX_CARDS];
    size_t n = sort_cards(node, &a, cards);
    write_head(w, "GpuNode", node->name, info->scv_created_s);
    jwrite_object_end(w);
    jwrite_object(w, "spec");
    if (n)
        jwrite_object(w, "device_infos");
    for (size_t i = 0; i < n; i++) {
        jwrite_key(w, cards[i].card->uuid);
        write_card(w, cards[i].card, (struct span){0}, node->name);
    }
    if (n)
        jwrite_object_end(w);
    write_models(w, cards, n);
    if (node->n_cards) { /* not wholly free, for whatever reason */
        jwrite_array(w, "device_busy");
        for (size_t i = 0; i < n; i++)
            if (!card_is_free(cards[i].card))
                jwrite_str(w, NULL, cards[i].card->uuid);
        jwrite_array_end(w);
    } else {
        jwrite_raw(w, "device_busy", SPAN("null"));
    }
    jwrite_raw(w, "report_time", SPAN(WATCH_CACHE_REPORTED));
    jwrite_object_end(w);
    jwrite_object(w, "status");
    jwrite_str(w, "health", node->state == NODE_USABLE ? SPAN("True") : SPAN("False"));
    write_message(&message, node, info->has_lease, grace_s);
    jwrite_str(w, "message", buf_span(&message));
    jwrite_raw(w, "last_health_time", SPAN(WATCH_CACHE_RECOVERED));
    jwrite_raw(w, "last_transition_time", SPAN(WATCH_CACHE_TRANSITION));
    jwrite_object_end(w);
    jwrite_object_end(w);
}

static const struct card *card_by_uuid(const struct ledger_node *node, struct span uuid)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (uuid.n && span_eq(node->cards[i].uuid, uuid))
            return &node->cards[i];
    return NULL;
}

/* Opens a container, and before the first one the list of containers. */
static void begin_container(struct jwrite *w, bool *any, struct span name)
{
    if (!*any)
        jwrite_array(w, "containers_device");
    *any = true;
    jwrite_object(w, NULL);
    jwrite_str_set(w, "container_name", name);
    jwrite_array(w, "device_info");
}

static void end_container(struct jwrite *w)
{
    jwrite_array_end(w);
    jwrite_object_end(w);
}

/* Writes which container has which cards of the promise, as the allocation annotation
 * does: of memory each container has a part on every card; whole cards are dealt in
 * order. */
static void write_promised(struct jwrite *w, bool *any, const struct ledger_pod *pod)
{
    const struct request_part all = {.amount = pod->n_shares};
    const struct request *r = pod->request;
    const struct request_part *parts = r->n_parts ? r->parts : &all;
    size_t n_parts = r->n_parts ? r->n_parts : 1;
    uint32_t next = 0;
    for (size_t c = 0; c < n_parts && pod->n_shares; c++) {
        uint32_t from = r->kind == REQUEST_CARDS ? next : 0, to = pod->n_shares;
        if (r->kind == REQUEST_CARDS && parts[c].amount < to - from)
            to = from + (uint32_t)parts[c].amount;
        next = to;
        begin_container(w, any, parts[c].name);
        for (uint32_t i = from; i < to; i++)
            write_card(w, ledger_share_card(pod->node, &pod->shares[i]),
                       pod->shares[i].uuid, pod->node->name);
        end_container(w);
    }
}

/* A container with cards of another device plugin. */
struct held {
    const struct scv_held *is;
    bool put; /* with its pod */
};

/* A node whose GpuPods are rendered. */
struct pods_source {
    const struct ledger_node *node;
    struct held *held; /* sorted */
    size_t n_held;
};

static int compare_pod(const struct scv_held *h, struct span ns, struct span name)
{
    return span_cmp(h->ns, ns) ?: span_cmp(h->pod, name);
}

/* By pod; those of a pod in the order of the Scv. */
static int by_pod(const void *a, const void *b)
{
    const struct scv_held *x = ((const struct held *)a)->is,
                          *y = ((const struct held *)b)->is;
    return compare_pod(x, y->ns, y->pod) ?: (x > y) - (x < y);
}

/* `pod` NULL: the pod has cards only from another device plugin. `name`: of the GpuPod. */
static void write_pod(struct jwrite *w, const struct pods_source *from,
                      const struct ledger_pod *pod, struct span ns, struct span pod_name,
                      struct span name)
{
    const struct ledger_node *node = from->node;
    struct held *held = from->held;
    bool any = false;
    write_head(w, "GpuPod", name, pod ? pod->created_s : 0);
    jwrite_object(w, "labels");
    jwrite_str(w, "nvidia-gpu-scheduler.node", node->name);
    jwrite_object_end(w);
    jwrite_object_end(w);
    jwrite_object(w, "spec");
    jwrite_str_set(w, "pod_name", pod_name);
    jwrite_str_set(w, "pod_namespace", ns);
    jwrite_str_set(w, "node_name", node->name);
    if (pod)
        write_promised(w, &any, pod);
    for (size_t i = ARRAY_LOWER_BOUND(h, held, from->n_held,
                                      compare_pod(h->is, ns, pod_name) < 0);
         i < from->n_held && compare_pod(held[i].is, ns, pod_name) == 0; i++) {
        const struct scv_held *h = held[i].is;
        held[i].put = true;
        begin_container(w, &any, h->container);
        for (size_t k = 0; k < h->n_uuids; k++)
            write_card(w, card_by_uuid(node, h->uuids[k]), h->uuids[k], node->name);
        end_container(w);
    }
    if (any)
        jwrite_array_end(w);
    jwrite_object_end(w);
    jwrite_object(w, "status");
    jwrite_object_end(w);
    jwrite_object_end(w);
}

/* -- from the ledger to the cache -- */

static void put_node(struct gpuapi *v, struct shown_node *shown,
                     const struct ledger_node *node, const struct ledger_node_info *info)
{
    buf_clear(&v->json);
    write_node(&(struct jwrite){.out = &v->json}, node, info, v->conf.grace_s);
    /* A new measurement alone is not a change: report_time is the time of the measurement
     * that brought the current state. */
    watch_cache_put(
        v->caches[GPUAPI_NODES], &shown->objects,
        &(struct watch_cache_state){.name = node->name,
                                    .json = buf_span(&v->json),
                                    .healthy = node->state == NODE_USABLE,
                                    .now_s = clock_wall_ns() / 1000000000,
                                    .reported_s = info->has_sample ? info->sample_s : 0});
}

static void put_pod(struct gpuapi *v, struct shown_node *shown,
                    const struct pods_source *from, const struct ledger_pod *pod,
                    struct span ns, struct span name)
{
    buf_set(&v->name, ns);
    buf_addc(&v->name, '-');
    buf_add_span(&v->name, name);
    buf_clear(&v->json);
    write_pod(&(struct jwrite){.out = &v->json}, from, pod, ns, name, buf_span(&v->name));
    watch_cache_put(v->caches[GPUAPI_PODS], &shown->objects,
                    &(struct watch_cache_state){.name = buf_span(&v->name),
                                                .json = buf_span(&v->json)});
}

/* Brings a slot of the cache up to its node, which may be NULL. Returns how many objects were
 * rendered. */
static size_t follow_node(struct gpuapi *v, uint32_t slot, const struct ledger_node *node)
{
    MEM_GROW(v->shown, v->shown_cap, slot + 1);
    while (v->n_shown <= slot)
        v->shown[v->n_shown++] = xcalloc(1, sizeof **v->shown);
    struct shown_node *shown = v->shown[slot];
    if (node ? node->generation == shown->generation : !shown->objects.first)
        return 0;
    size_t n = 1;
    if (node) {
        struct ledger_node_info info = ledger_node_info(node);
        cleanup_free struct held *held = xcalloc(info.n_held, sizeof *held);
        const struct pods_source from = {node, held, info.n_held};
        for (size_t i = 0; i < info.n_held; i++)
            held[i].is = &info.held[i];
        qsort(held, info.n_held, sizeof *held, by_pod);
        shown->generation = node->generation;
        if (node->n_cards || info.has_scv || info.has_lease || node->pods)
            put_node(v, shown, node, &info);
        for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next, n++)
            put_pod(v, shown, &from, pod, pod->ns, pod->name);
        for (size_t i = 0; i < info.n_held; i++, n++)
            if (held[i].is->pod.n && !held[i].put)
                put_pod(v, shown, &from, NULL, held[i].is->ns, held[i].is->pod);
    }
    watch_cache_sweep(&shown->objects);
    return n;
}

/* Continues the pass, or begins the next one. Requires the lock. */
static void follow(struct gpuapi *v)
{
    int64_t now_ms = clock_mono_ms(), until_ms = now_ms + RENDER_MS;
    if (now_ms < v->next_ms)
        return;
    if (!v->running) {
        v->pass++;
        v->began_ms = now_ms;
        v->slot = 0;
    }
    do {
        const struct ledger *l = core_ledger(core_driver_read(v->driver));
        uint32_t slots = ledger_node_slots(l);
        if (v->slot == 0 && v->filled && v->generation == ledger_generation(l))
            slots = 0;
        else if (v->slot == 0)
            v->generation = ledger_generation(l);
        size_t end = (size_t)v->slot + SLOTS_MAX;
        for (size_t n = 0; v->slot < slots && v->slot < end && n < OBJECTS_MAX; v->slot++)
            n += follow_node(v, v->slot, ledger_node_at(l, v->slot));
        core_driver_read_end(v->driver);
        v->running = v->slot < slots;
    } while (v->running && clock_mono_ms() < until_ms);
    v->filled |= !v->running;
    v->next_ms = v->running ? clock_mono_ms() + PAUSE_MS : 0;
}

/* The cache of 40,000 pods takes 50 MB, and most clusters have no reader. */
static void drop_cache(struct gpuapi *v)
{
    for (int i = 0; i < GPUAPI_KINDS; i++)
        watch_cache_clear(v->caches[i]); /* resourceVersions keep rising */
    while (v->n_shown)
        free(v->shown[--v->n_shown]);
    free(steal(&v->shown));
    v->shown_cap = 0;
    v->filled = v->running = false;
}

void gpuapi_trim(struct gpuapi *v)
{
    if (pthread_mutex_trylock(&v->lock))
        return; /* it is being read */
    if (v->n_shown && !atomic_load(&v->watches.open) && !atomic_load(&v->lists.open) &&
        clock_mono_ms() - v->began_ms > v->conf.idle_ms)
        drop_cache(v);
    pthread_mutex_unlock(&v->lock);
}

struct gpuapi *gpuapi_new(struct core_driver *driver, const struct gpuapi_config *config)
{
    struct gpuapi *v = xcalloc(1, sizeof *v);
    v->driver = driver;
    v->conf = *config;
    v->lists = (struct stream_kind){
        .what = "lists", .most = GPUAPI_LISTS, .main_most = GPUAPI_LISTS};
    v->watches = (struct stream_kind){.what = "watches",
                                      .most = GPUAPI_WATCHES,
                                      .main_most = GPUAPI_MAIN_WATCHES,
                                      .heartbeat_ms = config->heartbeat_ms};
#define GONE ",\"namespace\":\"kube-system\",\"creationTimestamp\":null},\"spec\":"
    v->caches[GPUAPI_NODES] =
        watch_cache_new("GpuNode",
                        GONE "{\"device_busy\":null,\"report_time\":null},\"status\":"
                             "{\"last_health_time\":null,\"last_transition_time\":null}}",
                        GONE_MAX);
    v->caches[GPUAPI_PODS] =
        watch_cache_new("GpuPod", GONE "{},\"status\":{}}", GONE_MAX);
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

void gpuapi_free(struct gpuapi *v)
{
    if (!v)
        return;
    drop_cache(v);
    for (int i = 0; i < GPUAPI_KINDS; i++)
        watch_cache_free(v->caches[i]);
    buf_fini(&v->json);
    buf_fini(&v->name);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* -- lists and watches -- */

struct reader {
    struct stream stream;
    struct gpuapi *v;
    struct watch_cache *cache;
    struct watch_cache_reader watch;
    uint64_t pass;   /* the first that shows it the ledger; 0: not known yet */
    struct buf last; /* of a list: the name of the last object */
    bool begun;      /* the list */
};

/* Brings the cache up to the ledger, for some time. False: it does not show yet what the ledger
 * was when the reader began, or up to `shared_ms` before. Requires the lock. */
static bool is_current(struct reader *r, int64_t shared_ms)
{
    struct gpuapi *v = r->v;
    bool due = (!v->filled && !v->running) || clock_mono_ms() - v->began_ms >= shared_ms;
    if (!r->pass)
        r->pass = v->pass + due;
    if (v->running || v->pass < r->pass || due)
        follow(v);
    return v->pass > r->pass || (v->pass == r->pass && !v->running);
}

static enum httpd_stream_result read_watch(void *stream, struct buf *out)
{
    struct reader *r = stream;
    pthread_mutex_lock(&r->v->lock);
    /* Many watches begin together when a server starts. */
    bool all = is_current(r, FOLLOW_MS) &&
               watch_cache_read(r->cache, &r->watch,
                                r->watch.synced ? STREAM_CHUNK : STREAM_CHUNK / 2, out);
    all &= !r->v->running;
    pthread_mutex_unlock(&r->v->lock);
    return all ? HTTPD_STREAM_WAIT : HTTPD_STREAM_MORE;
}

static enum httpd_stream_result read_list(void *stream, struct buf *out)
{
    struct reader *r = stream;
    bool all = false;
    pthread_mutex_lock(&r->v->lock);
    if (r->begun || is_current(r, 0)) {
        if (!r->begun)
            buf_adds(out, "{\"metadata\":{},\"items\":[");
        r->begun = true;
        all = watch_cache_list(r->cache, &r->last, STREAM_CHUNK, out);
    }
    pthread_mutex_unlock(&r->v->lock);
    if (all)
        buf_adds(out, "]}");
    return all ? HTTPD_STREAM_END : HTTPD_STREAM_MORE;
}

static void close_reader(void *stream)
{
    struct reader *r = stream;
    pthread_mutex_lock(&r->v->lock);
    list_remove(&r->watch.place.link);
    pthread_mutex_unlock(&r->v->lock);
    buf_fini(&r->last);
}

void gpuapi_answer(struct gpuapi *v, enum gpuapi_kind kind,
                   const struct stream_client *client, const struct httpd_request *req,
                   struct httpd_reply *reply)
{
    bool watch = httpd_is_watch(req);
    const struct stream_client here = {client->main, watch ? client->end_ms : INT64_MAX};
    struct err err = {0};
    pthread_mutex_lock(&v->lock);
    bool ready = v->filled || core_driver_ready(v->driver, &err) == 0;
    pthread_mutex_unlock(&v->lock);
    if (!ready) {
        stream_refuse(reply, err.msg);
        return;
    }
    struct reader *r = stream_open(watch ? &v->watches : &v->lists, &here, sizeof *r,
                                   watch ? read_watch : read_list, close_reader, reply);
    if (!r)
        return;
    r->v = v;
    r->cache = v->caches[kind];
    list_init(&r->watch.place.link);
}
