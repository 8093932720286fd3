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

static void begin_change(struct search *s)
{
    buf_adds(s->out, "  - ");
    s->n_changes++;
}

static void add_name(struct search *s, struct span name)
{
    table_plain(s->out, name);
}

static void add_amount(struct search *s, int64_t mib)
{
    show_amount(s->out, mib, s->unit);
    buf_addc(s->out, ' ');
    quantity_write_unit(s->out, s->unit);
}

/* Names the first cordoned node with enough memory, and the number of others. */
static void try_uncordon(struct search *s)
{
    const struct ledger_node *first = NULL;
    size_t more = 0;
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct ledger_node *node = s->nodes[i];
        if (!is_skipped(s, node) ||
            select_fit_pod(node, &(struct select_pod){s->r, s->pod->priority, s->pod->uid,
                                                      NULL}) != FIT_YES)
            continue;
        more += first != NULL;
        first = first ? first : node;
    }
    if (!first)
        return;
    begin_change(s);
    buf_adds(s->out, "kubectl uncordon ");
    add_name(s, first->name);
    buf_adds(s->out, ": the pod fits there");
    if (more)
        buf_printf(s->out, " and on %zu more cordoned node%s", more,
                   more == 1 ? "" : "s");
    buf_addc(s->out, '\n');
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

static void add_victim(struct search *s, const struct ledger_pod *pod)
{
    buf_adds(s->out, "pod ");
    add_name(s, pod->ns);
    buf_addc(s->out, '/');
    add_name(s, pod->name);
    buf_adds(s->out, " (");
    if (pod->request->kind == REQUEST_DEVICES)
        buf_printf(s->out, "%" PRIu32 " " KEY_NVIDIA_GPU, pod->request->cards);
    for (uint32_t k = 0; k < pod->n_shares; k++) {
        const struct ledger_pod_share *share = &pod->shares[k];
        buf_adds(s->out, k ? ", " : "");
        int64_t mib = share->on ? ledger_pod_mib(pod, share->on) : share->mib;
        add_amount(s, mib);
        buf_printf(s->out, " on GPU%" PRId32, share->on ? share->on->index : share->card);
    }
    buf_addc(s->out, ')');
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
    begin_change(s);
    buf_adds(s->out, "the pod fits on node ");
    add_name(s, node->name);
    buf_adds(s->out, " without ");
    for (size_t i = 0; i < best.n; i++) {
        buf_adds(s->out, i == 0 ? "" : i + 1 == best.n ? " and " : ", ");
        add_victim(s, best.pods[i]);
    }
    buf_addc(s->out, '\n');
}

/* -- smaller or other requests -- */

static const struct ledger_node *find_fit(const struct search *s, const struct request *r)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (!is_skipped(s, s->nodes[i]) &&
            select_fit_pod(s->nodes[i], &(struct select_pod){r, s->pod->priority,
                                                             s->pod->uid, NULL}) ==
                FIT_YES)
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
    if (!node)
        return;
    begin_change(s);
    buf_adds(s->out, "request ");
    add_amount(s, low * s->unit);
    buf_adds(s->out, s->r->cards > 1 ? " per card instead of " : " instead of ");
    add_amount(s, s->r->mib_per_card);
    buf_adds(s->out, ": the pod fits on node ");
    add_name(s, node->name);
    buf_addc(s->out, '\n');
}

static void try_without_compute(struct search *s)
{
    struct request less = *s->r;
    less.core = 0;
    const struct ledger_node *node = s->r->core ? find_fit(s, &less) : NULL;
    if (!node)
        return;
    begin_change(s);
    buf_adds(s->out, "without limit " KEY_GPU_CORE ", the pod fits on node ");
    add_name(s, node->name);
    buf_addc(s->out, '\n');
}

static void try_fewer_cards(struct search *s)
{
    struct request less = *s->r;
    while (--less.cards > 0) {
        const struct ledger_node *node = find_fit(s, &less);
        if (!node)
            continue;
        begin_change(s);
        buf_printf(s->out, "request %" PRIu32 " card%s instead of %" PRIu32 "%s",
                   less.cards, less.cards == 1 ? "" : "s", s->r->cards,
                   s->r->kind == REQUEST_MEMORY ? " (with the same memory per card)"
                                                : "");
        buf_adds(s->out, ": the pod fits on node ");
        add_name(s, node->name);
        buf_addc(s->out, '\n');
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

static void add_models(struct search *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n_nodes; i++)
        for (uint32_t k = 0; k < s->nodes[i]->n_cards; k++) {
            if (!is_first_of_model(s, i, k))
                continue;
            buf_adds(s->out, any ? ", " : "");
            add_name(s, s->nodes[i]->cards[k].model);
            any = true;
        }
    buf_adds(s->out, any ? "" : "none known");
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
    begin_change(s);
    if (!matches) {
        buf_adds(s->out, s->r->models.n ? "no node has model "
                                        : "no node has cards with this clock");
        add_name(s, s->r->models);
        buf_adds(s->out, "; models in the cluster: ");
        add_models(s);
    }
    if (node) {
        buf_adds(s->out, matches ? "" : "; ");
        buf_adds(s->out, "with any model or clock, the pod fits on node ");
        add_name(s, node->name);
    }
    buf_addc(s->out, '\n');
}

/* -- nodes and cards back in service -- */

static void add_freed(struct search *s, const struct card *card)
{
    if (card_external_mib(card)) {
        buf_adds(s->out, " if processes outside Kubernetes free ");
        add_amount(s, card_external_mib(card));
        buf_printf(s->out, " of GPU%" PRId32, card->index);
    }
    if (card->overuse_mib) {
        buf_adds(s->out, card_external_mib(card) ? " and" : " if");
        buf_adds(s->out, " pods that use more than their promises free ");
        add_amount(s, card->overuse_mib);
        buf_printf(s->out, " of GPU%" PRId32, card->index);
    }
    buf_addc(s->out, '\n');
}

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
    begin_change(s);
    buf_adds(s->out, "the pod fits on node ");
    add_name(s, node->name);
    if (card->state != CARD_AVAILABLE) {
        buf_printf(s->out, " if GPU%" PRId32 "%s\n", card->index, words[card->state]);
        return;
    }
    add_freed(s, card);
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
    begin_change(s);
    buf_adds(s->out, "the pod fits on node ");
    add_name(s, node->name);
    if (node->state == NODE_USABLE) {
        buf_adds(s->out, " without the label gpushare/mode\n");
        return;
    }
    buf_adds(s->out, " once this is resolved: ");
    cleanup_buf struct buf why = {0};
    reason_add(&why, node, s->r, FIT_LATER);
    table_plain(s->out, buf_span(&why));
    buf_addc(s->out, '\n');
}

static void report_nominated(struct search *s, const struct ledger_node *node)
{
    if (select_fit(node, s->r) != FIT_YES)
        return;
    begin_change(s);
    buf_adds(s->out, "node ");
    add_name(s, node->name);
    buf_adds(s->out, s->r->core
                         ? " has enough free memory and compute, but reserves it for"
                         : " has enough free memory, but reserves it for");
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next) {
        const struct ledger_pod *p = m->pod;
        if (p->priority < s->pod->priority || span_eq(p->uid, s->pod->uid))
            continue;
        buf_adds(s->out, " pod ");
        add_name(s, p->ns);
        buf_addc(s->out, '/');
        add_name(s, p->name);
    }
    buf_adds(s->out, ", nominated to this node\n");
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
