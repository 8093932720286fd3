/* SPDX-License-Identifier: Apache-2.0 */

/* The single changes that would let a pending pod fit. */

#include "cli/change.h"

#include <inttypes.h>

#include "base/mem.h"
#include "cli/show.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "placement/preempt.h"
#include "placement/reason.h"

struct search {
    struct buf *out;
    const struct ledger_pod *pod;
    const struct request *r;
    const struct ledger_node *const *nodes;
    size_t n_nodes;
    int64_t unit;
    bool tolerates; /* the pod tolerates cordoned nodes */
    size_t n_changes;
};

/* Does kube-scheduler skip the node because it is cordoned? */
static bool is_skipped(const struct search *s, const struct ledger_node *node)
{
    return node->cordoned && !s->tolerates;
}

/* A copy of a node with one change applied. */
struct trial {
    struct ledger_node node;
    struct card cards[SCV_MAX_CARDS];
};

static void trial_init(struct trial *g, const struct ledger_node *node)
{
    g->node = *node;
    if (node->n_cards)
        memcpy(g->cards, node->cards, node->n_cards * sizeof *g->cards);
}

/* Does the request fit on the changed cards? */
static enum fit trial_fit(struct trial *g, const struct request *r)
{
    struct select_view view;
    for (uint32_t i = 0; i < g->node.n_cards; i++)
        g->cards[i].free_mib = card_left_mib(&g->cards[i]);
    select_view_cards(&view, &g->node, g->cards, g->node.claimed);
    return select_cards(&view, r, SELECT_ALL_CARDS, NULL);
}

/* Appends a change as one line. */
__attribute__((format(printf, 2, 3))) static void add_change(struct search *s,
                                                             const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_adds(s->out, "  - ");
    table_vtext(s->out, fmt, ap);
    buf_addc(s->out, '\n');
    va_end(ap);
    s->n_changes++;
}

/* The pod with another request. */
static struct select_pod pod_with(const struct search *s, const struct request *r)
{
    return (struct select_pod){r, s->pod->priority, s->pod->uid, NULL};
}

/* Names the first cordoned node with enough memory, and the number of others. */
static void try_uncordon(struct search *s)
{
    const struct ledger_node *first = NULL;
    const struct select_pod pod = pod_with(s, s->r);
    size_t more = 0;
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (!is_skipped(s, s->nodes[i]) || select_fit_pod(s->nodes[i], &pod) != FIT_YES)
            continue;
        more += first != NULL;
        first = first ? first : s->nodes[i];
    }
    if (more)
        add_change(s,
                   "kubectl uncordon %.*s: the pod fits there and on %zu more cordoned "
                   "node%s",
                   SPAN_ARG(first->name), more, more == 1 ? "" : "s");
    else if (first)
        add_change(s, "kubectl uncordon %.*s: the pod fits there", SPAN_ARG(first->name));
}

/* -- pods to remove -- */

static int64_t top_priority(const struct preempt_victims *set)
{
    return set->n ? set->pods[0]->priority : INT64_MIN;
}

static int64_t total_of(const struct preempt_victims *set)
{
    int64_t mib = 0;
    for (size_t i = 0; i < set->n; i++)
        for (uint32_t k = 0; k < set->pods[i]->n_shares; k++)
            mib += set->pods[i]->shares[k].mib;
    return mib;
}

static bool is_smaller(const struct preempt_victims *a, const struct preempt_victims *b)
{
    if (a->n != b->n)
        return a->n < b->n;
    if (top_priority(a) != top_priority(b))
        return top_priority(a) < top_priority(b);
    return total_of(a) < total_of(b);
}

static void add_victim(struct search *s, struct buf *out, const struct ledger_pod *pod)
{
    buf_printf(out, "pod %.*s/%.*s (", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    if (pod->request->kind == REQUEST_DEVICES)
        buf_printf(out, "%" PRIu32 " " KEY_NVIDIA_GPU, pod->request->cards);
    for (uint32_t k = 0; k < pod->n_shares; k++) {
        const struct ledger_share *share = &pod->shares[k];
        int64_t mib = share->on ? ledger_pod_mib(pod, share->on) : share->mib;
        buf_printf(out, "%s%s on GPU%" PRId32, k ? ", " : "", show_units(mib, s->unit).s,
                   share->on ? share->on->index : share->card);
    }
    buf_addc(out, ')');
}

static void try_removal(struct search *s)
{
    cleanup_arena struct arena a = {0};
    const struct preemptor ask = {
        .pod = {.request = s->r, .priority = INT64_MAX, .uid = s->pod->uid}};
    struct preempt_victims best = {0}, set;
    const struct ledger_node *node = NULL;
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (is_skipped(s, s->nodes[i]) ||
            !preempt_select(&ask, s->nodes[i], NULL, 0, &a, &set) || !set.n)
            continue;
        if (!node || is_smaller(&set, &best)) {
            best = set;
            node = s->nodes[i];
        }
    }
    if (!node)
        return;
    cleanup_buf struct buf victims = {0};
    for (size_t i = 0; i < best.n; i++) {
        buf_adds(&victims, i == 0 ? "" : i + 1 == best.n ? " and " : ", ");
        add_victim(s, &victims, best.pods[i]);
    }
    add_change(s, "the pod fits on node %.*s without %s", SPAN_ARG(node->name),
               victims.p);
}

/* -- smaller or other requests -- */

static const struct ledger_node *find_fit(const struct search *s, const struct request *r)
{
    const struct select_pod pod = pod_with(s, r);
    for (size_t i = 0; i < s->n_nodes; i++)
        if (!is_skipped(s, s->nodes[i]) && select_fit_pod(s->nodes[i], &pod) == FIT_YES)
            return s->nodes[i];
    return NULL;
}

static void try_less_memory(struct search *s)
{
    struct request less = *s->r;
    const struct ledger_node *node = NULL;
    if (s->r->kind != REQUEST_MEMORY || s->r->mib_per_card <= 0)
        return;
    /* A limit is a whole number of units per card. */
    int64_t low = 0, high = (s->r->mib_per_card - 1) / s->unit;
    while (low <
           high) { /* `low` units fit on `node` or are 0; more than `high` do not fit */
        int64_t middle = low + (high - low + 1) / 2;
        less.mib_per_card = middle * s->unit;
        const struct ledger_node *on = find_fit(s, &less);
        if (on) {
            node = on;
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if (node)
        add_change(s, "request %s%s instead of %s: the pod fits on node %.*s",
                   show_units(low * s->unit, s->unit).s,
                   s->r->cards > 1 ? " per card" : "",
                   show_units(s->r->mib_per_card, s->unit).s, SPAN_ARG(node->name));
}

static void try_without_compute(struct search *s)
{
    struct request less = *s->r;
    less.core = 0;
    const struct ledger_node *node = s->r->core ? find_fit(s, &less) : NULL;
    if (node)
        add_change(s, "without limit " KEY_GPU_CORE ", the pod fits on node %.*s",
                   SPAN_ARG(node->name));
}

static void try_fewer_cards(struct search *s)
{
    struct request less = *s->r;
    while (--less.cards > 0) {
        const struct ledger_node *node = find_fit(s, &less);
        if (!node)
            continue;
        add_change(s,
                   "request %" PRIu32 " card%s instead of %" PRIu32
                   "%s: the pod fits on node %.*s",
                   less.cards, less.cards == 1 ? "" : "s", s->r->cards,
                   s->r->kind == REQUEST_MEMORY ? " (with the same memory per card)" : "",
                   SPAN_ARG(node->name));
        return;
    }
}

static bool any_matches(const struct search *s)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        for (uint32_t k = 0; k < s->nodes[i]->n_cards; k++) {
            const struct card *card = &s->nodes[i]->cards[k];
            if (request_accepts_card(s->r, card->model, card_clock_mhz(card)))
                return true;
        }
    return false;
}

static bool is_first_of_model(const struct search *s, size_t node, uint32_t card)
{
    struct span model = s->nodes[node]->cards[card].model;
    for (size_t i = 0; i <= node; i++)
        for (uint32_t k = 0; k < (i == node ? card : s->nodes[i]->n_cards); k++)
            if (span_eq(s->nodes[i]->cards[k].model, model))
                return false;
    return model.n > 0;
}

static void add_models(const struct search *s, struct buf *out)
{
    size_t before = out->n;
    for (size_t i = 0; i < s->n_nodes; i++)
        for (uint32_t k = 0; k < s->nodes[i]->n_cards; k++)
            if (is_first_of_model(s, i, k))
                buf_printf(out, "%s%.*s", out->n > before ? ", " : "",
                           SPAN_ARG(s->nodes[i]->cards[k].model));
    buf_adds(out, out->n > before ? "" : "none known");
}

static void try_any_model(struct search *s)
{
    struct request any = *s->r;
    if (!request_is_selective(s->r))
        return;
    any.models = (struct span){0};
    any.clock_mhz = 0;
    const struct ledger_node *node = find_fit(s, &any);
    bool matches = any_matches(s);
    if (matches && !node)
        return;
    cleanup_buf struct buf text = {0};
    if (!matches) {
        buf_printf(&text, "%s%.*s; models in the cluster: ",
                   s->r->models.n ? "no node has model "
                                  : "no node has cards with this clock",
                   SPAN_ARG(s->r->models));
        add_models(s, &text);
    }
    if (node)
        buf_printf(&text, "%swith any model or clock, the pod fits on node %.*s",
                   matches ? "" : "; ", SPAN_ARG(node->name));
    add_change(s, "%s", text.p);
}

/* -- nodes and cards back in service -- */

static void try_card(struct search *s, const struct ledger_node *node, uint32_t i)
{
    static const char *const words[] = {
        [CARD_UNHEALTHY] = " becomes healthy",
        [CARD_LISTED] = " is removed from the ConfigMap",
        [CARD_HELD] = " is released by the pod that has nvidia.com/gpu",
        [CARD_DUPLICATE] = " gets a UUID of its own in the Scv",
    };
    struct trial g;
    const struct card *card = &node->cards[i];
    if (card->state == CARD_AVAILABLE && !card->withheld_mib)
        return;
    trial_init(&g, node);
    g.cards[i].state = CARD_AVAILABLE;
    g.cards[i].withheld_mib = card->state == CARD_AVAILABLE ? 0 : card->withheld_mib;
    if (trial_fit(&g, s->r) != FIT_YES)
        return;
    cleanup_buf struct buf how = {0};
    int64_t external = card_external_mib(card);
    if (card->state != CARD_AVAILABLE)
        buf_printf(&how, " if GPU%" PRId32 "%s", card->index, words[card->state]);
    if (card->state == CARD_AVAILABLE && external)
        buf_printf(&how, " if processes outside Kubernetes free %s of GPU%" PRId32,
                   show_units(external, s->unit).s, card->index);
    if (card->state == CARD_AVAILABLE && card->overuse_mib)
        buf_printf(&how,
                   " %s pods that use more than their promises free %s of GPU%" PRId32,
                   external ? "and" : "if", show_units(card->overuse_mib, s->unit).s,
                   card->index);
    add_change(s, "the pod fits on node %.*s%s", SPAN_ARG(node->name),
               how.n ? how.p : "");
}

static void try_node(struct search *s, const struct ledger_node *node)
{
    struct trial g;
    trial_init(&g, node);
    g.node.state = NODE_USABLE;
    if (g.node.mode != NODE_ANY && node->state == NODE_USABLE)
        g.node.mode = NODE_ANY;
    if ((node->state == NODE_USABLE && node->mode == NODE_ANY) ||
        trial_fit(&g, s->r) != FIT_YES)
        return;
    cleanup_buf struct buf why = {0};
    if (node->state == NODE_USABLE)
        buf_adds(&why, " without the label gpushare/mode");
    else
        buf_adds(&why, " once this is resolved: ");
    if (node->state != NODE_USABLE)
        reason_add(&why, node, s->r, FIT_LATER);
    add_change(s, "the pod fits on node %.*s%s", SPAN_ARG(node->name), why.p);
}

static void report_nominated(struct search *s, const struct ledger_node *node)
{
    if (select_fit(node, s->r) != FIT_YES)
        return;
    cleanup_buf struct buf pods = {0};
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next)
        if (m->pod->priority >= s->pod->priority && !span_eq(m->pod->uid, s->pod->uid))
            buf_printf(&pods, " pod %.*s/%.*s", SPAN_ARG(m->pod->ns),
                       SPAN_ARG(m->pod->name));
    add_change(s,
               "node %.*s has enough free memory%s, but reserves it for%s, nominated to "
               "this node",
               SPAN_ARG(node->name), s->r->core ? " and compute" : "",
               pods.n ? pods.p : "");
}

size_t change_list(struct buf *out, const struct ledger *l,
                   const struct ledger_node *const *nodes, size_t n,
                   const struct ledger_pod *pod, bool tolerates)
{
    struct search s = {.out = out,
                       .tolerates = tolerates,
                       .pod = pod,
                       .r = pod->request,
                       .nodes = nodes,
                       .n_nodes = n,
                       .unit = ledger_settings(l)->unit_mib};
    try_uncordon(&s);
    try_removal(&s);
    try_less_memory(&s);
    try_without_compute(&s);
    if (s.r->cards > 1)
        try_fewer_cards(&s);
    try_any_model(&s);
    for (size_t i = 0; i < n; i++) {
        if (is_skipped(&s, nodes[i]))
            continue;
        report_nominated(&s, nodes[i]);
        try_node(&s, nodes[i]);
        for (uint32_t k = 0; k < nodes[i]->n_cards; k++)
            try_card(&s, nodes[i], k);
    }
    return s.n_changes;
}
