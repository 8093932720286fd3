/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/beats.h"
#include "cli/show.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "placement/placement.h"

struct page {
    struct buf *out;
    const struct world *w;
    const struct ledger *l;
    const struct ledger_pod *pod;
    const json_t *object;
    int64_t unit;
    bool colours;
    bool tolerates; /* kube-scheduler offers it cordoned nodes, too */
};

static void plain(struct page *p, struct span text)
{
    table_plain(p->out, text);
}

static void add_amount(struct buf *out, int64_t mib, int64_t unit)
{
    show_amount(out, mib, unit);
    buf_addc(out, ' ');
    quantity_write_unit(out, unit);
}

static const json_t *at(const json_t *o, const char *a, const char *b)
{
    return json_object_get(json_object_get(o, a), b);
}

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

/* A pod of a DaemonSet, for example. The taint that stands for a cordoned node has no
 * value. */
static bool tolerates_cordon(const json_t *pod)
{
    const json_t *item;
    size_t i;
    json_array_foreach(at(pod, "spec", "tolerations"), i, item)
    {
        struct span key = text_at(item, "key"), effect = text_at(item, "effect");
        bool any = span_eq(text_at(item, "operator"), SPAN("Exists"));
        bool meant = key.n ? span_eq(key, SPAN("node.kubernetes.io/unschedulable")) : any;
        if (meant && (any || !text_at(item, "value").n) &&
            (!effect.n || span_eq(effect, SPAN("NoSchedule"))))
            return true;
    }
    return false;
}

/* What kube-scheduler wrote into the pod: it also knows of CPU, taints and volumes. */
static void add_condition(struct page *p)
{
    const json_t *item;
    size_t i;
    json_array_foreach(at(p->object, "status", "conditions"), i, item)
    {
        struct span message = text_at(item, "message");
        if (!span_eq(text_at(item, "type"), SPAN("PodScheduled")) ||
            !span_eq(text_at(item, "status"), SPAN("False")) || !message.n)
            continue;
        buf_adds(p->out, "kube-scheduler says: ");
        plain(p, message);
        buf_addc(p->out, '\n');
    }
}

/* A card of a node, for a pod that waits. */

static void add_promises(struct buf *out, const struct ledger_node *node,
                         const struct card *card, int64_t unit, struct arena *a)
{
    const struct ledger_pod **pods;
    size_t n = show_pods_on(node, a, &pods);
    const char *before = "; promised: ";
    for (size_t i = 0; i < n; i++) {
        int64_t mib = ledger_pod_mib(pods[i], card);
        if (mib < 0)
            continue;
        buf_printf(out, "%s%.*s/%.*s ", before, SPAN_ARG(pods[i]->ns),
                   SPAN_ARG(pods[i]->name));
        add_amount(out, mib, unit);
        before = ", ";
    }
}

static void add_missing(struct page *p, struct buf *out, const struct ledger_node *node,
                        const struct card *card)
{
    const struct request *r = &p->pod->request;
    int64_t clock = card->scv ? card->scv->spec.clock_mhz : 0;
    if (request_is_selective(r) && !request_accepts_card(r, card->model, clock))
        buf_adds(out, "not of the model or clock that is asked for");
    else if (card->total_mib < r->mib_per_card)
        buf_adds(out, "too small, whoever leaves");
    else if (card->state == CARD_UNHEALTHY)
        buf_adds(out, "unhealthy");
    else if (card->state == CARD_LISTED)
        buf_adds(out, "taken out by ConfigMap");
    else if (card->state == CARD_HELD)
        buf_adds(out, "held through nvidia.com/gpu");
    else if (card->state == CARD_DUPLICATE)
        buf_adds(out, "has the same UUID as another card");
    else if (card->whole)
        buf_adds(out, "taken whole");
    else if (r->kind == REQUEST_MEMORY && card->free_mib < r->mib_per_card) {
        add_amount(out, r->mib_per_card - card->free_mib, p->unit);
        buf_adds(out, " missing");
    } else if (r->kind == REQUEST_MEMORY || card_is_free(card))
        buf_adds(out, "has the room");
    else
        buf_adds(out, "not wholly free");
    if (card->state == CARD_AVAILABLE && card->withheld_mib) {
        buf_adds(out, "; in use from outside Kubernetes: ");
        add_amount(out, card->withheld_mib, p->unit);
    }
    cleanup_arena struct arena a = {0};
    add_promises(out, node, card, p->unit, &a);
}

static void add_node_row(struct page *p, struct table *t, const struct ledger_node *node,
                         enum fit fit)
{
    cleanup_buf struct buf why = {0};
    uint32_t picks[REQUEST_MAX_CARDS];
    const struct request *r = &p->pod->request;
    if (fit != FIT_YES && p->tolerates)
        placement_reason(&why, node, r, placement_fit(node, r));
    else if (fit != FIT_YES)
        placement_reason_offered(&why, node, r, p->pod->priority, p->pod->uid);
    else if (placement_choose(node, r, picks)) {
        buf_adds(&why, "fits:");
        for (uint32_t i = 0; i < r->cards; i++)
            buf_printf(&why, " GPU%" PRId32, node->cards[picks[i]].index);
    } else
        buf_adds(&why, "fits");
    table_span(t, BOLD, node->name);
    table_cell(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "%s", "");
    table_end(t,
              fit == FIT_YES     ? GREEN
              : fit == FIT_NEVER ? RED
                                 : YELLOW,
              "%s", why.n ? why.p : "");
}

static void add_card_row(struct page *p, struct table *t, const struct ledger_node *node,
                         const struct card *card)
{
    cleanup_buf struct buf missing = {0}, free = {0};
    add_missing(p, &missing, node, card);
    show_amount(&free, card->free_mib, p->unit);
    buf_addc(&free, '/');
    show_amount(&free, card->total_mib, p->unit);
    table_cell(t, PLAIN, "%s", "");
    table_cell(t, PLAIN, "GPU%" PRId32, card->index);
    table_span(t, PLAIN, buf_span(&free));
    table_end(t, PLAIN, "%s", missing.n ? missing.p : "");
}

/* On how many nodes it fits, and on how many it would if they were not cordoned. */
struct fits {
    size_t open, cordoned;
};

static enum fit fit_on(const struct page *p, const struct ledger_node *node,
                       struct fits *fits)
{
    const struct ledger_pod *pod = p->pod;
    enum fit in_line =
        placement_fit_in_line(node, &pod->request, pod->priority, pod->uid);
    enum fit fit = p->tolerates ? in_line
                                : placement_fit_offered(node, &pod->request,
                                                        pod->priority, pod->uid);
    fits->open += fit == FIT_YES;
    fits->cordoned += fit != FIT_YES && in_line == FIT_YES;
    return fit;
}

static struct fits add_nodes(struct page *p, const struct ledger_node **nodes, size_t n)
{
    cleanup_table struct table t = {.colours = p->colours};
    cleanup_buf struct buf unit = {0};
    struct fits fits = {0};
    quantity_write_unit(&unit, p->unit);
    table_cell(&t, BOLD, "NODE");
    table_cell(&t, BOLD, "GPU");
    table_cell(&t, BOLD, "FREE/TOTAL(%s)", unit.p);
    table_end(&t, BOLD, "WHAT IS MISSING");
    for (size_t i = 0; i < n; i++) {
        add_node_row(p, &t, nodes[i], fit_on(p, nodes[i], &fits));
        for (uint32_t k = 0; k < nodes[i]->n_cards; k++)
            add_card_row(p, &t, nodes[i], &nodes[i]->cards[k]);
    }
    table_write(&t, p->out);
    return fits;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

/* What follows from the table. */
static void add_verdict(struct page *p, const struct ledger_node **nodes, size_t n,
                        struct fits fits)
{
    if (fits.open) {
        buf_printf(p->out,
                   "It fits on %zu node%s, as far as GPUs are concerned; it is "
                   "kube-scheduler's turn.\n",
                   fits.open, plural(fits.open));
        return;
    }
    cleanup_buf struct buf changes = {0};
    size_t n_changes =
        change_list(&changes, p->l, (const struct ledger_node *const *)nodes, n, p->pod,
                    p->tolerates);
    bool shut = false;
    for (size_t i = 0; i < n && !p->tolerates; i++)
        shut |= nodes[i]->cordoned;
    if (fits.cordoned)
        buf_printf(p->out, "It would fit on %zu node%s, but only on cordoned ones.\n",
                   fits.cordoned, plural(fits.cordoned));
    if (n_changes) {
        buf_adds(p->out, "The smallest changes, each enough by itself:\n");
        buf_add_span(p->out, buf_span(&changes));
        return;
    }
    buf_printf(p->out,
               "No single change would let it fit: it needs a node %swith more or larger "
               "cards.\n",
               shut ? "that is not cordoned, or one " : "");
}

/* What the table rests on, where that is shaky. */
static void add_beats(struct page *p, const struct ledger_node **nodes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf beat = {0};
        beats_note(&beat, p->w, nodes[i]);
        if (!beat.n)
            continue;
        buf_adds(p->out, "! ");
        plain(p, nodes[i]->name);
        buf_printf(p->out, ": %s\n", beat.p);
    }
}

static void explain_waiting(struct page *p)
{
    cleanup_arena struct arena a = {0};
    const struct ledger_node **nodes;
    size_t n = show_nodes(p->l, (struct span){0}, &a, &nodes);
    buf_adds(p->out, " waits");
    if (p->pod->invalid_reason.n) {
        buf_adds(p->out, ", and no node can take it as it is: ");
        plain(p, p->pod->invalid_reason);
        buf_addc(p->out, '\n');
        add_condition(p);
        return;
    }
    buf_adds(p->out, " for ");
    request_write(p->out, &p->pod->request, p->unit);
    buf_printf(p->out, " (priority %" PRId64 ")\n\n", p->pod->priority);
    if (n) {
        struct fits fits = add_nodes(p, nodes, n);
        buf_addc(p->out, '\n');
        add_beats(p, nodes, n);
        add_verdict(p, nodes, n, fits);
    } else
        buf_adds(p->out, " no node of the cluster has a GPU that gpushare knows of\n");
    add_condition(p);
}

/* A pod that has its node. */

static void add_share(struct page *p, const struct card *card, int64_t mib)
{
    cleanup_arena struct arena a = {0};
    buf_printf(p->out, "  GPU%" PRId32 "  ", card->index);
    plain(p, card->model);
    buf_adds(p->out, card->model.n ? "  " : "");
    plain(p, card->uuid);
    buf_adds(p->out, card->uuid.n ? "  " : "");
    add_amount(p->out, mib, p->unit);
    buf_adds(p->out, " promised, of ");
    add_amount(p->out, card->total_mib, p->unit);
    if (p->pod->request.kind == REQUEST_CARDS)
        buf_adds(p->out, " (the whole card)");
    if (card->used_mib >= 0) {
        buf_adds(p->out, "; measured in use by all: ");
        add_amount(p->out, card->used_mib, p->unit);
    }
    buf_printf(p->out, "; %s", show_health(card->state));
    if (card->pods > 1) {
        cleanup_buf struct buf others = {0};
        add_promises(&others, p->pod->node, card, p->unit, &a);
        plain(p, buf_span(&others));
    }
    buf_addc(p->out, '\n');
}

/* The Go plugin writes the time anew when it confirms; ours does not. */
static void add_when(struct page *p, const struct world_pod *is)
{
    const json_t *annotations = at(p->object, "metadata", "annotations");
    struct span time = text_at(annotations, KEY_MEM_ASSUME_TIME);
    int64_t ns;
    if (time.n && span_i64(time, &ns) && ns > 0) {
        buf_adds(p->out,
                 span_eq(is->assigned, SPAN("true"))
                     ? "  its cards were chosen, or confirmed by the Go plugin, at "
                     : "  its cards were chosen at ");
        clock_format_s(p->out, ns / 1000000000);
        buf_addc(p->out, '\n');
    }
}

static void add_why(struct page *p, const struct world_pod *is)
{
    const struct request *r = &p->pod->request;
    bool binpack = r->placement == PLACE_BINPACK;
    if (r->kind == REQUEST_DEVICES) {
        buf_adds(p->out, "  why: it asks for nvidia.com/gpu, whose cards the kubelet "
                         "chooses\n");
        return;
    }
    if (!p->pod->n_shares) {
        buf_adds(p->out, "  why: it was bound without a card, by somebody else than an "
                         "extender: it has no " KEY_MEM_IDX "\n");
        return;
    }
    buf_adds(p->out, "  why: its annotation ");
    if (is->idx.p)
        buf_adds(p->out, KEY_MEM_IDX " is \"");
    else
        buf_adds(p->out, KEY_ALLOCATION " is \"");
    plain(p, is->idx.p ? is->idx : is->allocation);
    buf_adds(p->out, is->allocation.p ? "\", written at bind by the extender"
                                      : "\", as the Go extender writes it");
    if (r->kind == REQUEST_MEMORY && is->allocation.p)
        buf_printf(p->out, "; policy %s: of the cards with room, %s free memory first",
                   binpack ? "binpack" : "spread", binpack ? "least" : "most");
    buf_addc(p->out, '\n');
    buf_adds(p->out, span_eq(is->assigned, SPAN("true"))
                         ? "  the device plugin has confirmed it\n"
                         : "  the device plugin has not confirmed it (yet)\n");
}

static void explain_bound(struct page *p, const struct world_pod *is)
{
    const struct ledger_node *node = p->pod->node;
    bool any = false;
    buf_adds(p->out, " is on node ");
    plain(p, node->name);
    buf_adds(p->out, p->pod->running ? ", running" : ", not running yet");
    buf_adds(p->out, "; it asks for ");
    if (p->pod->invalid_reason.n)
        plain(p, p->pod->invalid_reason);
    else
        request_write(p->out, &p->pod->request, p->unit);
    buf_addc(p->out, '\n');
    for (uint32_t k = 0; k < node->n_cards; k++) {
        int64_t mib = ledger_pod_mib(p->pod, &node->cards[k]);
        if (mib < 0)
            continue;
        add_share(p, &node->cards[k], mib);
        any = true;
    }
    for (uint32_t i = 0; i < p->pod->n_shares; i++) {
        const struct ledger_share *share = &p->pod->shares[i];
        if (share->on)
            continue;
        buf_printf(p->out, "  GPU%" PRId32 "  ", share->card);
        plain(p, share->uuid);
        buf_adds(p->out, share->uuid.n ? "  " : "");
        add_amount(p->out, share->mib, p->unit);
        buf_adds(p->out, " promised, but that card is not there\n");
        any = true;
    }
    if (!any)
        buf_adds(p->out, "  no card is known to be its own\n");
    add_why(p, is);
    add_when(p, is);
}

static const struct world_pod *find(const struct world *w, struct span ns,
                                    struct span name, struct arena *a)
{
    const struct world_pod **pods;
    size_t n = world_pods(w, a, &pods);
    for (size_t i = 0; i < n; i++)
        if (span_eq(pods[i]->ns, ns) && span_eq(pods[i]->name, name))
            return pods[i];
    return NULL;
}

int explain_pod(struct buf *out, const struct world *w, struct span ns, struct span name,
                const json_t *object, bool colours, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const struct world_pod *is = find(w, ns, name, &a);
    struct page p = {.out = out,
                     .w = w,
                     .l = world_ledger(w),
                     .object = object,
                     .unit = ledger_settings(world_ledger(w))->unit_mib,
                     .colours = colours,
                     .tolerates = tolerates_cordon(object)};
    if (!is)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no pod %.*s/%.*s, or all its containers have ended",
                       SPAN_ARG(ns), SPAN_ARG(name));
    p.pod = ledger_pod_find(p.l, is->uid);
    buf_adds(out, "pod ");
    plain(&p, ns);
    buf_addc(out, '/');
    plain(&p, name);
    if (!p.pod) {
        buf_adds(out, " asks for no GPU memory: gpushare has no say in where it goes\n");
        add_condition(&p);
    } else if (p.pod->node) {
        explain_bound(&p, is);
    } else {
        explain_waiting(&p);
    }
    return 0;
}
