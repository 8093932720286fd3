/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/check.h"

#include <inttypes.h>

#include "base/mem.h"
#include "cli/beats.h"
#include "cli/show.h"
#include "cli/unit.h"
#include "domain/keys.h"

struct check {
    struct buf *out;
    const struct world *w;
    const struct ledger_node *node; /* that is looked at */
    size_t n;
    int64_t unit;
};

/* A difference; foreign text in it must be plain. */
static void differs(struct check *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void differs(struct check *c, const char *fmt, ...)
{
    cleanup_buf struct buf line = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&line, fmt, ap);
    va_end(ap);
    if (c->node) {
        buf_adds(c->out, "node ");
        table_plain(c->out, c->node->name);
        buf_adds(c->out, ": ");
    }
    table_plain(c->out, buf_span(&line));
    buf_addc(c->out, '\n');
    c->n++;
}

static void note(struct check *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct check *c, const char *fmt, ...)
{
    cleanup_buf struct buf line = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&line, fmt, ap);
    va_end(ap);
    buf_adds(c->out, "note: node ");
    table_plain(c->out, c->node->name);
    buf_adds(c->out, ": ");
    table_plain(c->out, buf_span(&line));
    buf_addc(c->out, '\n');
}

static void check_card(struct check *c, const struct card *card)
{
    if (card->promised_mib > card->total_mib)
        differs(c, "GPU%" PRId32 " has %" PRId64 " MiB, and %" PRId64 " are promised",
                card->index, card->total_mib, card->promised_mib);
    else if (card->overcommitted)
        differs(c, "GPU%" PRId32 " is promised whole, and to other pods besides",
                card->index);
    if (card_is_duplicate(c->node, (uint32_t)(card - c->node->cards)))
        differs(c,
                "GPU%" PRId32 " has UUID %.*s, which its Scv gives to another card, too",
                card->index, SPAN_ARG(card->uuid));
    if (card_external_mib(card))
        differs(c,
                "GPU%" PRId32 ": %" PRId64
                " MiB are in use from outside Kubernetes, beyond the tolerance",
                card->index, card->withheld_mib);
}

/* The Node's capacity is what kube-scheduler goes by. */
static void check_capacity(struct check *c)
{
    const struct world_node *is = world_node(c->w, c->node->name);
    int64_t units = 0;
    if (!is || c->node->source != SOURCE_SCV || c->node->state == NODE_SCV_DAMAGED)
        return;
    for (uint32_t i = 0; i < c->node->n_cards; i++)
        units += c->node->cards[i].total_mib / c->unit;
    if (!ledger_mem_matches(c->node, c->unit, is->capacity.mem))
        differs(c,
                "its capacity is %" PRId64 " of " KEY_GPU_MEM
                ", and its cards make %" PRId64
                " (is --memory-unit the same here, in the extender and in the device "
                "plugin?)",
                is->capacity.mem, units);
    if (!ledger_count_matches(c->node, is->capacity.cards))
        differs(c,
                "its capacity is %" PRId64 " of " KEY_GPU_COUNT
                ", and its Scv lists %" PRIu32 " cards",
                is->capacity.cards, c->node->n_cards);
}

static void check_pod(struct check *c, const struct ledger_pod *pod)
{
    if (pod->request.kind == REQUEST_DEVICES)
        return;
    if (!pod->n_shares && c->node->n_cards != 1)
        differs(c, "pod %.*s/%.*s is bound here without a card", SPAN_ARG(pod->ns),
                SPAN_ARG(pod->name));
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        const struct ledger_share *s = &pod->shares[i];
        if (!s->on)
            differs(c,
                    "pod %.*s/%.*s has a promise of %" PRId64 " MiB on GPU%" PRId32
                    " %.*s, which is not there",
                    SPAN_ARG(pod->ns), SPAN_ARG(pod->name), s->mib, s->card,
                    SPAN_ARG(s->uuid));
    }
}

static const struct ledger_pod *pod_named(const struct ledger_node *node, struct span ns,
                                          struct span name)
{
    const struct ledger_pod *pod = node->pods;
    while (pod && !(span_eq(pod->ns, ns) && span_eq(pod->name, name)))
        pod = pod->next;
    return pod;
}

/* A card that the kubelet gave to a container of the pod. */
static void check_held_card(struct check *c, const struct ledger_pod *pod,
                            const struct scv_held *held, struct span uuid)
{
    for (uint32_t i = 0; i < pod->n_shares; i++) {
        const struct ledger_share *s = &pod->shares[i];
        if (span_eq(s->on ? s->on->uuid : s->uuid, uuid))
            return;
    }
    for (uint32_t i = 0; i < c->node->n_cards; i++)
        if (span_eq(c->node->cards[i].uuid, uuid) &&
            ledger_pod_mib(pod, &c->node->cards[i]) >= 0)
            return;
    differs(c,
            "container %.*s of pod %.*s/%.*s has card %.*s, which its annotations do not "
            "name",
            SPAN_ARG(held->container), SPAN_ARG(pod->ns), SPAN_ARG(pod->name),
            SPAN_ARG(uuid));
}

/* What containers hold, as the kubelet says. */
static void check_held(struct check *c, const struct scv_held *held)
{
    if (!held->units || scv_is_nvidia_resource(held->resource))
        return;
    const struct ledger_pod *pod = pod_named(c->node, held->ns, held->pod);
    if (!pod) {
        note(c,
             "container %.*s of pod %.*s/%.*s holds %" PRId64
             " of %.*s, and no such pod is bound here (it may have just left)",
             SPAN_ARG(held->container), SPAN_ARG(held->ns), SPAN_ARG(held->pod),
             held->units, SPAN_ARG(held->resource));
        return;
    }
    for (size_t k = 0; k < held->n_uuids && pod->n_shares; k++)
        if (held->uuids[k].n)
            check_held_card(c, pod, held, held->uuids[k]);
}

static void check_node(struct check *c, struct arena *a)
{
    const struct world_scv *scv = world_scv(c->w, c->node->name);
    cleanup_buf struct buf why = {0}, beat = {0};
    const struct ledger_pod **pods;
    size_t n = show_pods_on(c->node, a, &pods);
    show_state(&why, c->node);
    beats_note(&beat, c->w, c->node);
    if (beat.n)
        note(c, "%s", beat.p);
    if (why.n && c->node->state != NODE_NO_GPU && c->node->state != NODE_UNKNOWN)
        differs(c, "%.*s", (int)why.n, why.p);
    if (c->node->unknown_listed_card >= 0)
        differs(c,
                "ConfigMap " KEY_UNHEALTHY_PREFIX "%.*s takes out GPU%" PRId32
                ", which is not there",
                SPAN_ARG(c->node->name), c->node->unknown_listed_card);
    for (uint32_t i = 0; i < c->node->n_cards; i++)
        check_card(c, &c->node->cards[i]);
    check_capacity(c);
    for (size_t i = 0; i < n; i++)
        check_pod(c, pods[i]);
    for (size_t i = 0; scv && i < scv->scv.n_held; i++)
        check_held(c, &scv->scv.held[i]);
}

/* Annotations and requests that cannot be meant. */
static void check_pods(struct check *c, struct span node, struct arena *a)
{
    const struct world_pod **pods;
    size_t n = world_pods(c->w, a, &pods);
    for (size_t i = 0; i < n; i++)
        if (pods[i]->damaged && !pods[i]->over &&
            (!node.n || span_eq(node, pods[i]->node)))
            differs(c, "pod %.*s/%.*s: %.*s", SPAN_ARG(pods[i]->ns),
                    SPAN_ARG(pods[i]->name), SPAN_ARG(pods[i]->why));
}

size_t check_world(struct buf *out, const struct world *w, struct span node)
{
    const struct ledger *l = world_ledger(w);
    struct check c = {.out = out, .w = w, .unit = ledger_settings(l)->unit_mib};
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    size_t n = show_nodes(l, node, &a, &nodes);
    for (size_t i = 0; i < n; i++) {
        c.node = nodes[i];
        check_node(&c, &a);
    }
    c.node = NULL;
    check_pods(&c, node, &a);
    for (size_t i = 0; i < world_faults(w) && !node.n; i++)
        differs(&c, "%.*s", SPAN_ARG(world_fault(w, i)));
    return c.n;
}

/* The extender's view. */

static const json_t *named(const json_t *list, struct span name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(
        list, i,
        item) if (span_eq(span_of(json_string_value(json_object_get(item, "name"))),
                          name)) return item;
    return NULL;
}

static const json_t *card_of_index(const json_t *devs, int32_t index)
{
    size_t i;
    const json_t *item;
    json_array_foreach(devs, i, item) if (json_integer_value(json_object_get(
                                              item, "id")) == index) return item;
    return NULL;
}

/* What it says, in MiB; the Go extender says it in units only, rounded down. */
static bool same_amount(const struct check *c, const json_t *card, const char *mib_key,
                        const char *unit_key, int64_t mib, int64_t *theirs)
{
    const json_t *exact = json_object_get(card, mib_key);
    if (json_is_integer(exact)) {
        *theirs = json_integer_value(exact);
        return *theirs == mib;
    }
    *theirs = json_integer_value(json_object_get(card, unit_key)) * c->unit;
    return *theirs / c->unit == mib / c->unit;
}

static bool lists_pod(const json_t *pods, const struct ledger_pod *pod)
{
    size_t i;
    const json_t *item;
    json_array_foreach(
        pods, i,
        item) if (span_eq(span_of(json_string_value(json_object_get(item, "name"))),
                          pod->name) &&
                  span_eq(span_of(json_string_value(json_object_get(item, "namespace"))),
                          pod->ns)) return true;
    return false;
}

static void compare_pods(struct check *c, const struct card *card, const json_t *dev,
                         const struct ledger_pod **pods, size_t n, const char *who)
{
    const json_t *theirs = json_object_get(dev, "pods"), *item;
    size_t i;
    for (i = 0; i < n; i++) {
        bool here = ledger_pod_mib(pods[i], card) >= 0;
        if (here && !lists_pod(theirs, pods[i]))
            differs(c, "GPU%" PRId32 ": pod %.*s/%.*s is not there for %s", card->index,
                    SPAN_ARG(pods[i]->ns), SPAN_ARG(pods[i]->name), who);
    }
    json_array_foreach(theirs, i, item)
    {
        struct span ns = span_of(json_string_value(json_object_get(item, "namespace")));
        struct span name = span_of(json_string_value(json_object_get(item, "name")));
        const struct ledger_pod *pod = pod_named(c->node, ns, name);
        if (!pod || ledger_pod_mib(pod, card) < 0)
            differs(c, "GPU%" PRId32 ": %s counts pod %.*s/%.*s, which is not on it",
                    card->index, who, SPAN_ARG(ns), SPAN_ARG(name));
    }
}

static void compare_card(struct check *c, const struct card *card, const json_t *dev,
                         const char *who)
{
    const char *health = json_string_value(json_object_get(dev, "health"));
    int64_t theirs;
    if (!same_amount(c, dev, "totalMiB", "totalGPU", card->total_mib, &theirs))
        differs(c, "GPU%" PRId32 " has %" PRId64 " MiB, and %" PRId64 " for %s",
                card->index, card->total_mib, theirs, who);
    if (!same_amount(c, dev, "promisedMiB", "usedGPU", card->promised_mib, &theirs))
        differs(c, "GPU%" PRId32 ": %" PRId64 " MiB are promised, and %" PRId64 " for %s",
                card->index, card->promised_mib, theirs, who);
    if (health && strcmp(health, show_health(card->state)) != 0)
        differs(c, "GPU%" PRId32 " is %s, and %s for %s", card->index,
                show_health(card->state), health, who);
}

static void compare_node(struct check *c, const json_t *theirs, struct arena *a,
                         const char *who)
{
    const struct ledger_pod **pods;
    size_t n = show_pods_on(c->node, a, &pods);
    const json_t *devs = json_object_get(theirs, "devs");
    const char *reason = json_string_value(json_object_get(theirs, "reason"));
    cleanup_buf struct buf why = {0};
    show_state(&why, c->node);
    if (reason && !why.n) /* it has watched heartbeats for longer than we have */
        differs(c, "it gives nothing out, for %s: %s", who, reason);
    for (uint32_t i = 0; i < c->node->n_cards; i++) {
        const struct card *card = &c->node->cards[i];
        const json_t *dev = card_of_index(devs, card->index);
        if (!dev) {
            differs(c, "GPU%" PRId32 " is not there for %s", card->index, who);
            continue;
        }
        compare_card(c, card, dev, who);
        compare_pods(c, card, dev, pods, n, who);
    }
    if (json_array_size(devs) > c->node->n_cards)
        differs(c, "%s lists %zu cards, and there are %" PRIu32, who,
                json_array_size(devs), c->node->n_cards);
}

size_t check_extender(struct buf *out, const struct world *w, const json_t *view,
                      struct span node, const char *who)
{
    const struct ledger *l = world_ledger(w);
    struct check c = {.out = out, .w = w, .unit = ledger_settings(l)->unit_mib};
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    const json_t *list = json_object_get(view, "nodes"), *item;
    const char *error = json_string_value(json_object_get(view, "error"));
    size_t n = show_nodes(l, node, &a, &nodes), i;
    int64_t unit;
    if (!json_is_array(list) || error) {
        differs(&c, "%s: %s", who, error ? error : "its answer lists no nodes");
        return c.n;
    }
    if (unit_of_view(view, &unit) && unit != c.unit)
        differs(&c,
                "one unit of " KEY_GPU_MEM " is %" PRId64 " MiB, and %" PRId64 " for %s",
                c.unit, unit, who);
    for (i = 0; i < n; i++) {
        const json_t *theirs = named(list, nodes[i]->name);
        c.node = nodes[i];
        if (theirs)
            compare_node(&c, theirs, &a, who);
        else if (nodes[i]->n_cards)
            differs(&c, "nothing is known of it for %s", who);
    }
    c.node = NULL;
    json_array_foreach(list, i, item)
    {
        struct span name = span_of(json_string_value(json_object_get(item, "name")));
        if (!node.n && !ledger_node_find(l, name) &&
            json_array_size(json_object_get(item, "devs")))
            differs(&c, "%s knows a node %.*s, which is not there", who, SPAN_ARG(name));
    }
    return c.n;
}
