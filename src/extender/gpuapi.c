/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gpuapi.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/jwrite.h"
#include "base/mem.h"
#include "placement/reason.h"

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
        jwrite_str_set(w, "device_model", card->kind->model);
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
        struct span model = arena_copy(a, node->cards[i].kind->model);
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
 * does: of memory, and in a dialect, each container has a part on every card; whole cards are
 * dealt in order. */
static void write_promised(struct jwrite *w, bool *any, const struct ledger_pod *pod)
{
    const struct request_part all = {.amount = pod->n_shares};
    const struct request *r = pod->request;
    const struct request_part *parts = r->n_parts ? r->parts : &all;
    size_t n_parts = r->n_parts ? r->n_parts : 1;
    const bool dealt = r->kind == REQUEST_CARDS && !r->dialect;
    uint32_t next = 0;
    for (size_t c = 0; c < n_parts && pod->n_shares; c++) {
        uint32_t from = dealt ? next : 0, to = pod->n_shares;
        if (dealt && parts[c].amount < to - from)
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

/* -- from the ledger to the cache -- */

static size_t put_node(void *ctx, struct watch_cache *cache,
                       struct watch_cache_owner *owner, const struct ledger *l,
                       const struct ledger_node *node)
{
    const int64_t *grace_s = ctx;
    const bool usable = node->state == NODE_USABLE;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf json = {0}, message = {0};
    struct jwrite w = {.out = &json};
    struct known_card cards[SCV_MAX_CARDS];
    struct ledger_node_info info = ledger_node_info(node);
    (void)l;
    if (!node->n_cards && !info.has_scv && !info.has_lease && !node->pods)
        return 1;
    size_t n = sort_cards(node, &a, cards);
    write_head(&w, "GpuNode", node->name, info.scv_created_s);
    jwrite_object_end(&w);
    jwrite_object(&w, "spec");
    if (n)
        jwrite_object(&w, "device_infos");
    for (size_t i = 0; i < n; i++) {
        jwrite_key(&w, cards[i].card->uuid);
        write_card(&w, cards[i].card, (struct span){0}, node->name);
    }
    if (n)
        jwrite_object_end(&w);
    write_models(&w, cards, n);
    if (node->n_cards) { /* not wholly free, for whatever reason */
        jwrite_array(&w, "device_busy");
        for (size_t i = 0; i < n; i++)
            if (!card_is_free(cards[i].card))
                jwrite_str(&w, NULL, cards[i].card->uuid);
        jwrite_array_end(&w);
    } else {
        jwrite_raw(&w, "device_busy", SPAN("null"));
    }
    jwrite_raw(&w, "report_time", SPAN(WATCH_CACHE_REPORTED));
    jwrite_object_end(&w);
    jwrite_object(&w, "status");
    jwrite_str(&w, "health", usable ? SPAN("True") : SPAN("False"));
    if (!usable) {
        reason_add_unusable(&message, node);
    } else if (!info.has_lease) {
        buf_adds(&message, "The cards of GpuNode are known; it has no Lease.");
    } else {
        buf_adds(&message, "Lease of GpuNode is refreshed");
        if (*grace_s > 0)
            buf_printf(&message, " in %llds", (long long)*grace_s);
        buf_addc(&message, '.');
    }
    jwrite_str(&w, "message", buf_span(&message));
    jwrite_raw(&w, "last_health_time", SPAN(WATCH_CACHE_RECOVERED));
    jwrite_raw(&w, "last_transition_time", SPAN(WATCH_CACHE_TRANSITION));
    jwrite_object_end(&w);
    jwrite_object_end(&w);
    /* A new measurement alone is not a change: report_time is the time of the measurement
     * that brought the current state. */
    watch_cache_put(
        cache, owner,
        &(struct watch_cache_state){.name = node->name,
                                    .json = buf_span(&json),
                                    .healthy = usable,
                                    .now_s = clock_wall_ns() / 1000000000,
                                    .reported_s = info.has_sample ? info.sample_s : 0});
    return 1;
}

/* Where the GpuPods of a node go. */
struct pods_target {
    struct watch_cache *cache;
    struct watch_cache_owner *owner;
    const struct ledger_node *node;
    struct held *held; /* sorted */
    size_t n_held;
    struct buf name, json; /* of the one that is rendered */
};

/* `pod` NULL: the pod has cards only from another device plugin. */
static void put_pod(struct pods_target *to, const struct ledger_pod *pod, struct span ns,
                    struct span pod_name)
{
    const struct ledger_node *node = to->node;
    struct held *held = to->held;
    struct jwrite w = {.out = &to->json};
    bool any = false;
    buf_set(&to->name, ns);
    buf_addc(&to->name, '-');
    buf_add_span(&to->name, pod_name);
    buf_clear(&to->json);
    write_head(&w, "GpuPod", buf_span(&to->name), pod ? pod->created_s : 0);
    jwrite_object(&w, "labels");
    jwrite_str(&w, "nvidia-gpu-scheduler.node", node->name);
    jwrite_object_end(&w);
    jwrite_object_end(&w);
    jwrite_object(&w, "spec");
    jwrite_str_set(&w, "pod_name", pod_name);
    jwrite_str_set(&w, "pod_namespace", ns);
    jwrite_str_set(&w, "node_name", node->name);
    if (pod)
        write_promised(&w, &any, pod);
    for (size_t i =
             ARRAY_LOWER_BOUND(h, held, to->n_held, compare_pod(h->is, ns, pod_name) < 0);
         i < to->n_held && compare_pod(held[i].is, ns, pod_name) == 0; i++) {
        const struct scv_held *h = held[i].is;
        held[i].put = true;
        begin_container(&w, &any, h->container);
        for (size_t k = 0; k < h->n_uuids; k++) {
            const struct card *card = NULL;
            for (uint32_t c = 0; c < node->n_cards && h->uuids[k].n && !card; c++)
                card = span_eq(node->cards[c].uuid, h->uuids[k]) ? &node->cards[c] : NULL;
            write_card(&w, card, h->uuids[k], node->name);
        }
        end_container(&w);
    }
    if (any)
        jwrite_array_end(&w);
    jwrite_object_end(&w);
    jwrite_object(&w, "status");
    jwrite_object_end(&w);
    jwrite_object_end(&w);
    watch_cache_put(to->cache, to->owner,
                    &(struct watch_cache_state){.name = buf_span(&to->name),
                                                .json = buf_span(&to->json)});
}

static size_t put_pods(void *ctx, struct watch_cache *cache,
                       struct watch_cache_owner *owner, const struct ledger *l,
                       const struct ledger_node *node)
{
    struct ledger_node_info info = ledger_node_info(node);
    cleanup_free struct held *held = xcalloc(info.n_held, sizeof *held);
    struct pods_target to = {cache, owner, node, held, info.n_held, {0}, {0}};
    size_t n = 1;
    (void)ctx, (void)l;
    for (size_t i = 0; i < info.n_held; i++)
        held[i].is = &info.held[i];
    qsort(held, info.n_held, sizeof *held, by_pod);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next, n++)
        put_pod(&to, pod, pod->ns, pod->name);
    for (size_t i = 0; i < info.n_held; i++, n++)
        if (held[i].is->pod.n && !held[i].put && !held[i].is->ended)
            put_pod(&to, NULL, held[i].is->ns, held[i].is->pod);
    buf_fini(&to.name);
    buf_fini(&to.json);
    return n;
}

#define WORDS(kind, gone_tail)                                                           \
    {                                                                                    \
        .object = "{\"" kind "\":", .gone = "{\"" kind "\":{\"metadata\":{\"name\":",    \
        .gone_end = ",\"namespace\":\"kube-system\",\"creationTimestamp\":null},"        \
                    "\"spec\":" gone_tail "},\"Type\":\"DELETED\"}\n",                   \
        .list = "{\"metadata\":{},\"items\":[", .list_text = "]}", .resync = true        \
    }

const struct view_watch_kind gpuapi_nodes = {
    WORDS("GpuNode", "{\"device_busy\":null,\"report_time\":null},\"status\":"
                     "{\"last_health_time\":null,\"last_transition_time\":null}"),
    put_node, NULL};

const struct view_watch_kind gpuapi_pods = {WORDS("GpuPod", "{},\"status\":{}"), put_pods,
                                            NULL};
