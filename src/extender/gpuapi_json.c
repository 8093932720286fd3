/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/gpuapi_priv.h"
#include "placement/reason.h"

/*
 * The bytes are those that Go writes for nvidia-gpu-scheduler's types: the order of
 * members, omitted empty members (omitempty), sorted maps.
 */

#define API_VERSION "resources.scheduler.caden2016.github.io/v1"
#define NAMESPACE   "\"namespace\":\"kube-system\""
#define NODE_LABEL  "nvidia-gpu-scheduler.node"

const struct watch_cache_kind gpuapi_kinds[GPUAPI_KINDS] = {
    [GPUAPI_NODES] = {"GpuNode", "{\"metadata\":{\"name\":",
                           "," NAMESPACE ",\"creationTimestamp\":null},\"spec\":"
                           "{\"device_busy\":null,\"report_time\":null},\"status\":"
                           "{\"last_health_time\":null,\"last_transition_time\":null}}"},
    [GPUAPI_PODS] = {"GpuPod", "{\"metadata\":{\"name\":",
                          "," NAMESPACE ",\"creationTimestamp\":null},\"spec\":{},"
                          "\"status\":{}}"},
};

static void add_head(struct buf *out, const char *kind, struct span name)
{
    buf_adds(out, "{\"kind\":\"");
    buf_adds(out, kind);
    buf_adds(out, "\",\"apiVersion\":\"" API_VERSION "\",\"metadata\":{\"name\":");
    buf_add_json(out, name);
    buf_adds(out, "," NAMESPACE ",\"resourceVersion\":\"");
}

/* An RFC 3339 time, or null if it is not known. */
static void add_time(struct buf *out, bool known, int64_t seconds)
{
    if (!known) {
        buf_adds(out, "null");
        return;
    }
    buf_addc(out, '"');
    clock_format_s(out, seconds);
    buf_addc(out, '"');
}

static void add_created(struct buf *out, int64_t seconds)
{
    buf_adds(out, "\",\"creationTimestamp\":");
    add_time(out, seconds != 0, seconds);
}

/* Writes a member, with a comma if it is not the first; omits an empty one. */
static void add_text(struct buf *out, const char *key, struct span value)
{
    if (!value.n)
        return;
    buf_adds(out, out->p[out->n - 1] == '{' ? "\"" : ",\"");
    buf_adds(out, key);
    buf_adds(out, "\":");
    buf_add_json(out, value);
}

/* `card` NULL: the node does not list the card (any more). */
static void add_card(struct buf *out, const struct card *card, struct span uuid,
                     struct span node)
{
    buf_addc(out, '{');
    add_text(out, "device_id", card ? card->uuid : uuid);
    if (card) {
        add_text(out, "device_model", card->model);
        add_text(out, "device_busid", card->scv ? card->scv->bus_id : (struct span){0});
    }
    add_text(out, "device_node", node);
    buf_addc(out, '}');
}

static struct span lower(struct arena *a, struct span s)
{
    char *p = arena_alloc(a, s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        p[i] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] | 0x20 : s.p[i]);
    return (struct span){p, s.n};
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
    int c = span_cmp(x->model, y->model);
    return c ? c : by_uuid(a, b);
}

/* Sorts by UUID and removes duplicates: an Scv may name a card twice. */
static size_t sort_cards(struct known_card *cards, size_t n)
{
    size_t kept = 0;
    qsort(cards, n, sizeof *cards, by_uuid);
    for (size_t i = 0; i < n; i++)
        if (!kept || by_uuid(&cards[kept - 1], &cards[i]) != 0)
            cards[kept++] = cards[i];
    return kept;
}

static void add_models(struct buf *out, struct known_card *cards, size_t n)
{
    bool any = false;
    qsort(cards, n, sizeof *cards, by_model);
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || !span_eq(cards[i].model, cards[i - 1].model);
        if (!cards[i].model.n)
            continue;
        if (first) {
            buf_adds(out, any ? "]," : "\"device_models\":{");
            buf_add_json(out, cards[i].model);
            buf_adds(out, ":[");
        } else {
            buf_addc(out, ',');
        }
        any = true;
        buf_add_json(out, cards[i].card->uuid);
    }
    if (any)
        buf_adds(out, "]},");
}

/* Busy cards: not wholly free, because of a promise, another device plugin, a process
 * outside Kubernetes, or because the card is not healthy. */
static void add_busy(struct buf *out, const struct known_card *cards, size_t n)
{
    bool any = false;
    buf_adds(out, "\"device_busy\":[");
    for (size_t i = 0; i < n; i++) {
        if (card_is_free(cards[i].card))
            continue;
        if (any)
            buf_addc(out, ',');
        any = true;
        buf_add_json(out, cards[i].card->uuid);
    }
    buf_addc(out, ']');
}

/* The JSON after the resourceVersion, up to the value of report_time. */
static void add_spec(struct buf *out, const struct ledger_node *node, int64_t created_s,
                     struct arena *a)
{
    struct known_card cards[SCV_MAX_CARDS];
    size_t n = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (node->cards[i].uuid.n)
            cards[n++] =
                (struct known_card){&node->cards[i], lower(a, node->cards[i].model)};
    n = sort_cards(cards, n);
    add_created(out, created_s);
    buf_adds(out, "},\"spec\":{");
    for (size_t i = 0; i < n; i++) {
        buf_adds(out, i ? "," : "\"device_infos\":{");
        buf_add_json(out, cards[i].card->uuid);
        buf_addc(out, ':');
        add_card(out, cards[i].card, (struct span){0}, node->name);
    }
    buf_adds(out, n ? "}," : "");
    cleanup_buf struct buf busy = {0};
    if (node->n_cards)
        add_busy(&busy, cards, n);
    else
        buf_adds(&busy, "\"device_busy\":null");
    add_models(out, cards, n);
    buf_add_span(out, buf_span(&busy));
    buf_adds(out, ",\"report_time\":");
}

static void add_message(struct buf *out, const struct ledger_node *node, bool has_lease,
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

void gpuapi_node_tail(const struct gpuapi_node *n,
                           const struct gpuapi_times *t, struct buf *out)
{
    buf_add_span(out, n->spec);
    add_time(out, t->has_report, t->report_s);
    buf_adds(out, n->healthy ? "},\"status\":{\"health\":\"True\",\"message\":"
                             : "},\"status\":{\"health\":\"False\",\"message\":");
    buf_add_json(out, n->message);
    buf_adds(out, ",\"last_health_time\":");
    add_time(out, t->was_healthy, t->health_s);
    buf_adds(out, ",\"last_transition_time\":");
    add_time(out, true, t->transition_s);
    buf_adds(out, "}}");
}

static const struct card *card_by_uuid(const struct ledger_node *node, struct span uuid)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (uuid.n && span_eq(node->cards[i].uuid, uuid))
            return &node->cards[i];
    return NULL;
}

/* Opens a container, and before the first one the list of containers. */
static void begin_container(struct buf *out, bool *any, struct span name)
{
    buf_adds(out, *any ? "," : ",\"containers_device\":[");
    *any = true;
    buf_addc(out, '{');
    add_text(out, "container_name", name);
    buf_adds(out, name.n ? ",\"device_info\":[" : "\"device_info\":[");
}

static void add_share(struct buf *out, const struct ledger_share *share,
                      const struct ledger_node *node, bool first)
{
    buf_adds(out, first ? "" : ",");
    add_card(out, ledger_share_card(node, share), share->uuid, node->name);
}

/* Writes which container has which cards of the promise, as the allocation annotation
 * does: of memory each container has a part on every card; whole cards are dealt in
 * order. */
static void add_promised(struct buf *out, bool *any, const struct ledger_pod *pod)
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
        begin_container(out, any, parts[c].name);
        for (uint32_t i = from; i < to; i++)
            add_share(out, &pod->shares[i], pod->node, i == from);
        buf_adds(out, "]}");
    }
}

static bool is_of(const struct scv_held *h, struct span ns, struct span name)
{
    return span_eq(h->ns, ns) && span_eq(h->pod, name);
}

static void add_held(struct buf *out, bool *any, const struct ledger_node *node,
                     const struct ledger_node_info *info, struct span ns,
                     struct span name)
{
    for (size_t i = 0; i < info->n_held; i++) {
        const struct scv_held *h = &info->held[i];
        if (!is_of(h, ns, name))
            continue;
        begin_container(out, any, h->container);
        for (size_t k = 0; k < h->n_uuids; k++) {
            buf_adds(out, k ? "," : "");
            add_card(out, card_by_uuid(node, h->uuids[k]), h->uuids[k], node->name);
        }
        buf_adds(out, "]}");
    }
}

static struct span keep(struct arena *a, struct buf *text)
{
    struct span copy = arena_copy(a, buf_span(text));
    buf_clear(text);
    return copy;
}

/* `pod` NULL: the pod has cards only from another device plugin. */
static void write_pod(const struct ledger_node *node, const struct ledger_node_info *info,
                      const struct ledger_pod *pod, struct arena *a,
                      struct gpuapi_pod *out)
{
    cleanup_buf struct buf text = {0};
    bool any = false;
    buf_add_span(&text, out->ns);
    buf_addc(&text, '-');
    buf_add_span(&text, out->name);
    out->shown_name = keep(a, &text);
    add_head(&text, "GpuPod", out->shown_name);
    out->head = keep(a, &text);
    add_created(&text, pod ? pod->created_s : 0);
    buf_adds(&text, ",\"labels\":{\"" NODE_LABEL "\":");
    buf_add_json(&text, node->name);
    buf_adds(&text, "}},\"spec\":{");
    add_text(&text, "pod_name", out->name);
    add_text(&text, "pod_namespace", out->ns);
    add_text(&text, "node_name", node->name);
    if (pod)
        add_promised(&text, &any, pod);
    add_held(&text, &any, node, info, out->ns, out->name);
    buf_adds(&text, any ? "]},\"status\":{}}" : "},\"status\":{}}");
    out->tail = keep(a, &text);
}

static bool is_there(const struct gpuapi_node *n, const struct scv_held *h)
{
    for (size_t i = 0; i < n->n_pods; i++)
        if (is_of(h, n->pods[i].ns, n->pods[i].name))
            return true;
    return false;
}

static void look_at_pods(const struct ledger_node *node,
                         const struct ledger_node_info *info, struct arena *a,
                         struct gpuapi_node *n)
{
    size_t most = info->n_held;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        most++;
    n->pods = arena_zalloc(a, most * sizeof *n->pods);
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        struct gpuapi_pod *p = &n->pods[n->n_pods++];
        p->ns = arena_copy(a, pod->ns);
        p->name = arena_copy(a, pod->name);
        p->uid = arena_copy(a, pod->uid);
        write_pod(node, info, pod, a, p);
    }
    for (size_t i = 0; i < info->n_held; i++) {
        const struct scv_held *h = &info->held[i];
        if (!h->pod.n || is_there(n, h))
            continue;
        struct gpuapi_pod *p = &n->pods[n->n_pods++];
        p->ns = arena_copy(a, h->ns);
        p->name = arena_copy(a, h->pod);
        write_pod(node, info, NULL, a, p);
    }
}

void gpuapi_render_node(const struct ledger_node *node, int64_t grace_s,
                             struct arena *a, struct gpuapi_node *out)
{
    cleanup_buf struct buf text = {0};
    struct ledger_node_info info = ledger_node_info(node);
    *out = (struct gpuapi_node){.slot = node->id, .generation = node->generation};
    out->name = arena_copy(a, node->name);
    out->gone = !node->n_cards && !info.has_scv && !info.has_lease && !node->pods;
    if (out->gone)
        return;
    out->healthy = node->state == NODE_USABLE;
    out->has_sample = info.has_sample;
    out->sample_s = info.sample_s;
    add_head(&text, "GpuNode", node->name);
    out->head = keep(a, &text);
    add_spec(&text, node, info.scv_created_s, a);
    out->spec = keep(a, &text);
    add_message(&text, node, info.has_lease, grace_s);
    out->message = keep(a, &text);
    look_at_pods(node, &info, a, out);
}
