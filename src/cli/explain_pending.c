/* SPDX-License-Identifier: Apache-2.0 */

/* explain pod, of a pending pod: why nodes and cards reject it, the changes that would let it
 * fit, its gang, its reservations, and layout preemption. */

#include "cli/explain_priv.h"

#include <inttypes.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "placement/gang.h"
#include "placement/preempt.h"
#include "placement/reason.h"

/* Cores, with up to three decimals. */
static void add_cores(struct buf *out, int64_t milli)
{
    buf_add_i64(out, milli / 1000);
    if (milli % 1000 == 0)
        return;
    buf_printf(out, ".%03" PRId64, milli % 1000);
    while (out->p[out->n - 1] == '0')
        out->p[--out->n] = '\0';
}

static int64_t left(int64_t offered, int64_t requested)
{
    return offered > requested ? offered - requested : 0;
}

static bool add_lacks(struct buf *out, const struct ledger_node *node,
                      const struct ledger_pod *pod)
{
    struct resources has = ledger_node_allocatable(node);
    struct resources used = ledger_node_requested(node);
    struct resources wanted = ledger_pod_requests(pod);
    int64_t cpu = left(has.cpu_milli, used.cpu_milli);
    int64_t memory = left(has.memory, used.memory);
    size_t before = out->n;
    const struct request *r = pod->request;
    if (!r->by_label && !r->slots && !ledger_node_offers(node, r))
        buf_printf(out, "; lacks %s: no device plugin offers it on this node",
                   r->kind == REQUEST_MEMORY  ? KEY_GPU_MEM
                   : r->kind == REQUEST_CARDS ? KEY_GPU_COUNT
                                              : KEY_NVIDIA_GPU);
    if (has.cpu_milli && wanted.cpu_milli > cpu) {
        buf_adds(out, "; lacks CPU: the pod requests ");
        add_cores(out, wanted.cpu_milli);
        buf_adds(out, ", free are ");
        add_cores(out, cpu);
    }
    if (has.memory && wanted.memory > memory) {
        buf_printf(out,
                   "; lacks node memory: the pod requests %" PRId64
                   " MiB, free are %" PRId64 " MiB",
                   (wanted.memory >> 20) + (wanted.memory % (1 << 20) != 0),
                   memory >> 20);
    }
    if (has.pods && used.pods >= has.pods)
        buf_printf(out, "; no pod slot is free: %" PRId64 " of %" PRId64 " are taken",
                   used.pods, has.pods);
    return out->n > before;
}

/* Does kube-scheduler skip the node because it is cordoned? */
static bool is_skipped(const struct explain_page *p, const struct ledger_node *node)
{
    return node->cordoned && !p->tolerates;
}

/* Cards that the extender has reserved for pods from filter to bind. The API objects do not
 * show them: only the leader's view does. */
static void add_reserved(struct explain_page *p, struct buf *out,
                         const struct ledger_node *node, const struct card *card)
{
    const json_t *viewed = json_object_getn(p->viewed, node->name.p, node->name.n);
    const json_t *dev, *item;
    const char *before = "; reserved: ";
    size_t i, k;
    json_array_foreach(json_object_get(viewed, "devs"), k, dev)
    {
        if (json_integer_value(json_object_get(dev, "id")) != card->index)
            continue;
        json_array_foreach(json_object_get(dev, "reservations"), i, item)
        {
            int64_t mib = json_integer_value(json_object_get(item, "mib"));
            buf_printf(out, "%s%.*s/%.*s %s", before,
                       SPAN_ARG(session_text(item, "namespace")),
                       SPAN_ARG(session_text(item, "name")), show_units(mib, p->unit).s);
            before = ", ";
            if (!span_eq(session_text(item, "uid"), p->pod->uid))
                continue;
            buf_printf(&p->own, "%sGPU%" PRId32, p->own.n ? ", " : "", card->index);
            p->own_node = node->name;
        }
    }
}

/* The number that the pod names counts before that of the object. */
static uint32_t minimum_of(const struct explain_page *p)
{
    uint32_t own = p->pod->member ? p->pod->member->minimum : 0;
    return own ? own : p->facts->minimum;
}

static bool waits_for_gang(const struct explain_page *p)
{
    return p->pod->member && minimum_of(p) != 1;
}

/*
 * What layout preemption (--preempt-after of the extender) would do for a pending pod, and,
 * by the extender's view, what it does. kube-scheduler's own preemption does nothing where
 * the total of the node suffices.
 */

/* Of a PriorityClass that users create (HighestUserDefinablePriority). */
enum { HIGHEST_PRIORITY = 1000000000 };

/* The pods to remove from a node so that the request fits there. */
struct removal {
    const struct ledger_node *node; /* NULL: none helps */
    struct preempt_victims set;
};

static bool total_suffices(const struct ledger_node *node, const struct request *r)
{
    int64_t mib = 0;
    uint32_t cards = 0, core = 0;
    ARRAY_EACH_ITEM(const struct card, card, node->cards, node->n_cards)
    {
        if (card->state != CARD_AVAILABLE || card->whole)
            continue;
        mib += card->free_mib > 0 ? card->free_mib : 0;
        core += card_core_left(card);
        cards++;
    }
    /* kube-scheduler knows nothing of the memory of slots. */
    return r->kind == REQUEST_CARDS ? cards >= r->cards
                                    : (r->slots || mib >= r->mib_per_card * r->cards) &&
                                          core >= (uint32_t)r->core * r->cards;
}

/* The extender hears only of nodes that kube-scheduler offers to the pod, and kube-scheduler
 * evicts where the total is too small. */
static bool may_evict_on(const struct explain_page *p, const struct ledger_node *node)
{
    cleanup_buf struct buf lacks = {0};
    return !node->cordoned && node->state == NODE_USABLE &&
           !add_lacks(&lacks, node, p->pod) && total_suffices(node, p->r);
}

static int64_t total_of(const struct preempt_victims *set)
{
    int64_t mib = 0;
    for (size_t i = 0; i < set->n; i++)
        for (uint32_t k = 0; k < set->pods[i]->n_shares; k++)
            mib += set->pods[i]->shares[k].mib;
    return mib;
}

/* What layout preemption would evict (`evicts`): the lowest priority, then the fewest pods.
 * What somebody may delete: the fewest pods, then of the lowest priority, then with the least
 * memory. */
static struct removal find_removal(const struct explain_page *p, bool evicts,
                                   int64_t priority, struct arena *a)
{
    const struct preemptor who = {.pod = {p->r, priority, p->pod->uid, NULL},
                                  .evicts = evicts};
    struct removal best = {0};
    for (size_t i = 0; i < p->n; i++) {
        struct preempt_victims set;
        if ((evicts ? !may_evict_on(p, p->nodes[i]) : is_skipped(p, p->nodes[i])) ||
            !preempt_select(&who, p->nodes[i], NULL, 0, a, &set) || !set.n)
            continue;
        int64_t more = best.node ? (int64_t)set.n - (int64_t)best.set.n : -1;
        int64_t above =
            best.node ? (int64_t)set.pods[0]->priority - best.set.pods[0]->priority : -1;
        int64_t first = evicts ? above : more, second = evicts ? more : above;
        if (first < 0 || (!first && second < 0) ||
            (!first && !second && !evicts && total_of(&set) < total_of(&best.set)))
            best = (struct removal){p->nodes[i], set};
    }
    return best;
}

/* What it would do on the nodes. False: nothing helps. */
static bool add_evictions(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    struct removal now = find_removal(p, true, p->pod->priority, &a);
    struct removal any = now.node ? now : find_removal(p, true, HIGHEST_PRIORITY, &a);
    if (!any.node)
        return false;
    int64_t priority = any.set.pods[0]->priority;
    table_text(p->out,
               "Node %.*s has enough free memory in total, so kube-scheduler evicts no "
               "pods there. With --preempt-after, the extender would ",
               SPAN_ARG(any.node->name));
    if (now.node)
        buf_printf(p->out,
                   "evict %zu pod%s of priority %" PRId64
                   "%s, if kube-scheduler offers this node.\n",
                   now.set.n, show_plural(now.set.n), priority,
                   now.set.n == 1 ? "" : " or lower");
    else
        buf_printf(p->out, "do so for a pod of priority %" PRId64 " or higher.\n",
                   priority + 1);
    return true;
}

/* -- by the extender's view -- */

static int64_t number_at(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* "2026-11-21T09:00:00Z (5 s ago)" */
static void add_time(struct explain_page *p, const json_t *o, const char *key)
{
    struct span text = session_text(o, key);
    int64_t s;
    buf_add_printable(p->out, text);
    if (!clock_parse(text, &s))
        return;
    if (s > p->facts->now_s)
        buf_printf(p->out, " (in %" PRId64 " s)", s - p->facts->now_s);
    else
        buf_printf(p->out, " (%" PRId64 " s ago)", p->facts->now_s - s);
}

/* What the leader does for the pod. */
static void add_entry(struct explain_page *p, const json_t *entry)
{
    struct span last = session_text(entry, "lastSearch");
    struct span node = session_text(entry, "node");
    int64_t nodes = number_at(entry, "candidateNodes");
    int64_t refused = number_at(entry, "refusedEvictions");
    bool waits = span_eq(session_text(entry, "state"), SPAN("waiting"));
    if (waits) {
        buf_printf(p->out, "  evictions could help on %" PRId64 " node%s, since ", nodes,
                   show_plural((size_t)nodes));
        add_time(p, entry, "since");
        buf_adds(p->out, "\n  the leader searches for victims from ");
        add_time(p, entry, "searchAfter");
        buf_adds(p->out, " on, for one pod after the other\n");
        if (span_eq(last, SPAN("no-victims")))
            buf_adds(p->out, "  the last search found no victims: pods of lower priority "
                             "do not suffice, or may not be evicted\n");
        else if (span_eq(last, SPAN("not-needed")))
            buf_adds(p->out, "  the last search found that the pod fits when terminating "
                             "pods have left\n");
        if (p->pod->nomination)
            table_line(p->out,
                       "  nothing is evicted while status.nominatedNodeName is %.*s",
                       SPAN_ARG(p->pod->nomination->node->name));
    } else if (node.n) {
        table_line(p->out,
                   "  the cards on node %.*s are kept for the pod; victims: %" PRId64
                   ", not evicted yet: %" PRId64,
                   SPAN_ARG(node), number_at(entry, "victims"),
                   number_at(entry, "victimsLeft"));
    }
    if (session_text(entry, "noEvictionBefore").n) {
        buf_adds(p->out, "  no further pod is evicted for it before ");
        add_time(p, entry, "noEvictionBefore");
        buf_addc(p->out, '\n');
    }
    if (refused)
        buf_printf(p->out, "  refused evictions: %" PRId64 ", the last one %s\n", refused,
                   json_is_true(json_object_get(entry, "refusedByBudget"))
                       ? "by a PodDisruptionBudget"
                       : "by the API server");
}

/* Why layout preemption never considers the pod; NULL: it does. */
static const char *excluded(const struct explain_page *p)
{
    const struct ledger_pod *pod = p->pod;
    if (pod->never_preempts)
        return "preemptionPolicy is Never";
    if (waits_for_gang(p))
        return "it is a member of a gang, for which the other members need cards, too";
    if (pod->request->kind != REQUEST_MEMORY && pod->request->kind != REQUEST_CARDS)
        return "the kubelet chooses its cards";
    return NULL;
}

/* Layout preemption is on, and no node takes the pod or the leader acts for it. */
static void add_state(struct explain_page *p, const json_t *pending, const json_t *entry)
{
    const json_t *view = p->facts->view;
    const char *why = excluded(p);
    buf_printf(p->out, "Layout preemption is on (--preempt-after %" PRId64 "s)",
               number_at(view, "preemptAfterSeconds"));
    if (why) {
        buf_printf(p->out, ", but evicts no pod for this one: %s.\n", why);
    } else if (entry) {
        buf_adds(p->out, ":\n");
        add_entry(p, entry);
    } else if (!json_is_true(json_object_get(view, "leader"))) {
        table_line(p->out,
                   "; the replica that answered does not lead. The leader is %.*s.",
                   SPAN_ARG(session_text(view, "holder")));
    } else if (!pending) {
        buf_adds(p->out, "; the extender does not show what it does for this pod.\n");
    } else {
        buf_adds(p->out, ", but does nothing for this pod: since the extender leads, "
                         "filter has not rejected it where evictions could help.\n");
    }
}

static void add_preemption(struct explain_page *p, bool rejected)
{
    const json_t *after = json_object_get(p->facts->view, "preemptAfterSeconds");
    const json_t *pending = NULL, *item;
    size_t i;
    json_array_foreach(json_object_get(p->facts->view, "pendingPods"), i, item)
    {
        if (span_eq(session_text(item, "uid"), p->pod->uid))
            pending = item;
    }
    const json_t *entry = json_object_get(pending, "preemption");
    bool acts = entry && !span_eq(session_text(entry, "state"), SPAN("waiting"));
    bool helps = rejected && !acts && !excluded(p) && add_evictions(p);
    if (json_integer_value(after) > 0 && (rejected || acts))
        add_state(p, pending, entry);
    else if (helps && after)
        buf_adds(
            p->out,
            "Layout preemption is off: the extender runs without --preempt-after.\n");
    else if (helps)
        buf_adds(p->out, "Whether it does is not known without --extender.\n");
}

/* -- nodes, cards and the verdict -- */

/* Of enum card_state: what is wrong, and what would repair it. */
static const struct {
    const char *is, *until;
} card_states[] = {
    [CARD_UNHEALTHY] = {"unhealthy", "becomes healthy"},
    [CARD_LISTED] = {"excluded by the ConfigMap", "is removed from the ConfigMap"},
    [CARD_HELD] = {"allocated through nvidia.com/gpu",
                   "is released by the pod that has nvidia.com/gpu"},
    [CARD_DUPLICATE] = {"has the same UUID as another card",
                        "gets a UUID of its own in the Scv"},
};
_Static_assert(ARRAY_LEN(card_states) == CARD_STATES, "a state without words");

/* Names a pod that has the card through nvidia.com/...; a claim has no certain card. */
static void add_holder(struct buf *out, const struct ledger_node *node,
                       const struct card *card)
{
    struct ledger_node_info info = ledger_node_info(node);
    ARRAY_EACH_ITEM(const struct scv_held, held, info.held, info.n_held)
    {
        if (card->state != CARD_HELD ||
            !(ledger_held_cards(node, held) >> (card - node->cards) & 1))
            continue;
        buf_printf(out, " (pod %.*s/%.*s)", SPAN_ARG(held->ns), SPAN_ARG(held->pod));
        return;
    }
}

static void add_card_row(struct explain_page *p, struct table *t,
                         const struct ledger_node *node, const struct card *card)
{
    const struct request *r = p->r;
    const int64_t mib = request_mib(r, card->total_mib);
    bool available = card->state == CARD_AVAILABLE;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf why = {0};
    if (!request_accepts_card(r, card->kind))
        buf_adds(&why, card->kind->profile.n && !request_is_selective(r)
                           ? "an instance, which is taken by its profile"
                           : "model or clock does not match");
    else if (card->total_mib < mib)
        buf_adds(&why, "too small");
    else if (!available) {
        buf_adds(&why, card_states[card->state].is);
        add_holder(&why, node, card);
    } else if (card->whole)
        buf_adds(&why, "promised as a whole card");
    else if (r->kind == REQUEST_MEMORY && card->free_mib < mib)
        buf_printf(&why, "lacks %s", show_units(mib - card->free_mib, p->unit).s);
    else if (r->slots && card->slots_left < (int64_t)r->slots)
        buf_adds(&why, "has too few free slots");
    else if (r->core > card_core_left(card))
        buf_printf(&why, "lacks %u %% of its compute", r->core - card_core_left(card));
    else if (r->kind == REQUEST_MEMORY || card_is_free(card))
        buf_adds(&why, "fits");
    else
        buf_adds(&why, "not entirely free");
    if (available && card_external_mib(card))
        buf_printf(&why, "; used outside Kubernetes: %s",
                   show_units(card_external_mib(card), p->unit).s);
    if (available && card->overuse_mib)
        buf_printf(&why, "; used by pods beyond their promises: %s",
                   show_units(card->overuse_mib, p->unit).s);
    explain_promises(&why, node, card, p->unit, &a);
    add_reserved(p, &why, node, card);
    table_span(t, PLAIN, SPAN(""));
    table_cell(t, PLAIN, "GPU%" PRId32, card->index);
    table_cell(t, PLAIN, "%s/%s", show_amount(card->free_mib, p->unit).s,
               show_amount(card->total_mib, p->unit).s);
    table_span(t, PLAIN, buf_span(&why));
    table_end(t);
}

/* Why the pod's own terms exclude the node; NULL: they do not, as far as they are known. */
static const char *excluded_by_pod(const struct explain_page *p,
                                   const struct ledger_node *node)
{
    return p->facts->rules
               ? defrag_rules_excludes(p->facts->rules, p->pod->uid, node->name)
               : NULL;
}

/* On how many nodes the request fits, and on how many only the cordon prevents it, or the
 * lack of CPU, memory or a pod slot. */
struct fits {
    size_t open, cordoned, crowded;
};

static void add_node_row(struct explain_page *p, struct table *t,
                         const struct ledger_node *node, struct fits *fits)
{
    cleanup_buf struct buf why = {0};
    const struct select_pod pod = select_pod_of(p->pod);
    const char *excluded = excluded_by_pod(p, node);
    enum fit uncordoned = select_fit_pod(node, &pod);
    enum fit fit = p->tolerates ? uncordoned : select_fit_schedulable(node, &pod);
    if (excluded)
        buf_printf(&why, "%s%s", excluded, fit == FIT_YES ? "" : "; ");
    if (excluded && fit == FIT_YES) {
        fit = uncordoned = FIT_LATER;
    } else if (fit == FIT_YES) {
        struct select_view view;
        uint64_t chosen;
        select_view(&view, node, NULL, SELECT_AS_IS);
        select_cards(&view, p->r, SELECT_ALL_CARDS, &chosen);
        buf_adds(&why, chosen ? "fits:" : "fits");
        for (; chosen; chosen &= chosen - 1)
            buf_printf(&why, " GPU%" PRId32, node->cards[__builtin_ctzll(chosen)].index);
    } else if (p->tolerates) {
        reason_add(&why, node, p->r, select_fit(node, p->r));
    } else {
        reason_add_schedulable(&why, node, &pod);
    }
    bool crowded = add_lacks(&why, node, p->pod);
    fits->open += fit == FIT_YES && !crowded;
    fits->crowded += fit == FIT_YES && crowded;
    fits->cordoned += fit != FIT_YES && uncordoned == FIT_YES && !excluded;
    table_span(t, BOLD, node->name);
    table_span(t, PLAIN, SPAN(""));
    table_span(t, PLAIN, SPAN(""));
    table_span(t,
               fit == FIT_YES && !crowded ? GREEN
               : fit == FIT_NEVER         ? RED
                                          : YELLOW,
               buf_span(&why));
    table_end(t);
}

/* The nodes that the pod's own terms exclude are no candidates for what follows. */
static struct fits add_nodes(struct explain_page *p)
{
    size_t kept = 0;
    cleanup_table struct table t = {.colors = p->facts->colors};
    cleanup_buf struct buf header = {0};
    struct fits fits = {0};
    buf_adds(&header, "NODE\tGPU\tFREE/TOTAL(");
    quantity_write_unit(&header, p->unit);
    buf_adds(&header, ")\tREASON");
    table_header(&t, header.p);
    for (size_t i = 0; i < p->n; i++) {
        add_node_row(p, &t, p->nodes[i], &fits);
        for (uint32_t k = 0; k < p->nodes[i]->n_cards; k++)
            add_card_row(p, &t, p->nodes[i], &p->nodes[i]->cards[k]);
        if (!excluded_by_pod(p, p->nodes[i]))
            p->nodes[kept++] = p->nodes[i];
    }
    p->n = kept;
    table_write(&t, p->out);
    return fits;
}

/* -- single changes that would let the pod fit -- */

static bool lacks_slots(const struct explain_page *p, const struct ledger_node *node)
{
    return p->r->slots && !ledger_node_offers(node, p->r);
}

/* Would the request fit on the node if the card were healthy and nothing of it withheld?
 * `card` NULL: if the node were usable, had no label gpushare/mode, or offered slots? */
static bool would_fit(const struct explain_page *p, const struct ledger_node *node,
                      const struct card *card)
{
    struct ledger_node changed = *node;
    struct card cards[SCV_MAX_CARDS];
    struct select_view view;
    bool lacks = !card && lacks_slots(p, node);
    for (uint32_t i = 0; i < node->n_cards; i++) {
        cards[i] = node->cards[i];
        if (lacks)
            cards[i].slots_left = (int32_t)p->r->slots;
        if (&node->cards[i] == card) {
            cards[i].withheld_mib =
                card->state == CARD_AVAILABLE ? 0 : card->withheld_mib;
            cards[i].state = CARD_AVAILABLE;
        }
        cards[i].free_mib = card_left_mib(&cards[i]);
    }
    if (!card && !lacks && node->state == NODE_USABLE)
        changed.mode = NODE_ANY;
    if (!card)
        changed.state = NODE_USABLE;
    select_view_cards(&view, &changed, cards, node->claimed);
    return select_cards(&view, p->r, SELECT_ALL_CARDS, NULL) == FIT_YES;
}

/* Appends a change as one line. */
__attribute__((format(printf, 2, 3))) static void add_change(struct explain_page *p,
                                                             const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_adds(&p->changes, "  - ");
    table_vtext(&p->changes, fmt, ap);
    buf_addc(&p->changes, '\n');
    va_end(ap);
}

/* Names the first cordoned node with enough memory, and the number of others. */
static void try_uncordon(struct explain_page *p)
{
    const struct ledger_node *first = NULL;
    const struct select_pod pod = select_pod_of(p->pod);
    size_t more = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (!is_skipped(p, p->nodes[i]) || select_fit_pod(p->nodes[i], &pod) != FIT_YES)
            continue;
        more += first != NULL;
        first = first ? first : p->nodes[i];
    }
    if (more)
        add_change(p,
                   "kubectl uncordon %.*s: the pod fits there and on %zu more cordoned "
                   "node%s",
                   SPAN_ARG(first->name), more, show_plural(more));
    else if (first)
        add_change(p, "kubectl uncordon %.*s: the pod fits there", SPAN_ARG(first->name));
}

static void add_victim(struct explain_page *p, struct buf *out,
                       const struct ledger_pod *pod)
{
    buf_printf(out, "pod %.*s/%.*s (", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    if (pod->request->kind == REQUEST_DEVICES)
        buf_printf(out, "%" PRIu32 " " KEY_NVIDIA_GPU, pod->request->cards);
    for (uint32_t k = 0; k < pod->n_shares; k++) {
        const struct ledger_share *share = &pod->shares[k];
        const struct card *card = ledger_share_card(pod->node, share);
        int64_t mib = card ? ledger_pod_mib(pod, card) : share->mib;
        buf_printf(out, "%s%s on GPU%" PRId32, k ? ", " : "", show_units(mib, p->unit).s,
                   card ? card->index : share->card);
    }
    buf_adds(out, pod->terminating ? ", terminating)" : ")");
}

static void try_removal(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    struct removal best = find_removal(p, false, INT64_MAX, &a);
    if (!best.node)
        return;
    cleanup_buf struct buf victims = {0};
    for (size_t i = 0; i < best.set.n; i++) {
        buf_adds(&victims, i == 0 ? "" : i + 1 == best.set.n ? " and " : ", ");
        add_victim(p, &victims, best.set.pods[i]);
    }
    add_change(p, "the pod fits on node %.*s without %s", SPAN_ARG(best.node->name),
               victims.p);
}

/* -- smaller or other requests -- */

static const struct ledger_node *find_fit(const struct explain_page *p,
                                          const struct request *r)
{
    const struct select_pod pod = {r, p->pod->priority, p->pod->uid, NULL};
    for (size_t i = 0; i < p->n; i++)
        if (!is_skipped(p, p->nodes[i]) && select_fit_pod(p->nodes[i], &pod) == FIT_YES)
            return p->nodes[i];
    return NULL;
}

enum { MODELS_MAX = 32 };

/* Appends the models of the cluster. Does a card have a model and a clock that the request
 * accepts? */
static bool list_models(const struct explain_page *p, struct buf *out)
{
    struct span models[MODELS_MAX];
    size_t n = 0;
    bool any = false;
    for (size_t i = 0; i < p->n; i++)
        ARRAY_EACH_ITEM(const struct card, card, p->nodes[i]->cards, p->nodes[i]->n_cards)
        {
            struct span model = card->kind->model;
            size_t at = 0;
            any |= request_accepts_card(p->r, card->kind);
            while (at < n && !span_eq(models[at], model))
                at++;
            if (at < n || n == MODELS_MAX || !model.n)
                continue;
            models[n++] = model;
            buf_printf(out, "%s%.*s", n > 1 ? ", " : "", SPAN_ARG(model));
        }
    return any;
}

static bool is_isolation_missing(const struct explain_page *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (!select_isolation_allows(p->nodes[i], p->r))
            return true;
    return false;
}

/* What can be asked less of, in steps. With each step the request fits wherever it did before. */
enum less { LESS_MEMORY, LESS_COMPUTE, LESS_CARDS, LESS_LINKS, LESS_ISOLATION, ANY_CARD };

/* The number of steps; 0: there is nothing of it in the request. */
static int64_t steps_of(const struct explain_page *p, enum less what)
{
    const struct request *r = p->r;
    switch (what) {
    case LESS_MEMORY: /* a limit is a whole number of units per card */
        return r->kind != REQUEST_MEMORY ? 0
               : r->percent              ? r->percent - 1
               : r->slots                ? r->mib_per_card - r->slots
                                         : (r->mib_per_card - 1) / p->unit;
    case LESS_COMPUTE:
        return r->core > 0;
    case LESS_CARDS:
        return r->cards - 1;
    case LESS_LINKS:
        return r->min_link ? r->min_link - LINK_NODE + 1 : 0;
    case LESS_ISOLATION:
        return r->isolation && is_isolation_missing(p);
    case ANY_CARD:
        return request_is_selective(r);
    }
    return 0;
}

static struct request after_steps(const struct explain_page *p, enum less what,
                                  int64_t steps)
{
    struct request less = *p->r;
    int64_t most = steps_of(p, what);
    if (what == LESS_MEMORY && less.percent)
        less.percent -= (uint32_t)steps;
    else if (what == LESS_MEMORY && less.slots)
        less.mib_per_card -= steps;
    else if (what == LESS_MEMORY)
        less.mib_per_card = (most + 1 - steps) * p->unit;
    else if (what == LESS_COMPUTE)
        less.core = 0;
    else if (what == LESS_CARDS)
        less.cards -= (uint32_t)steps;
    else if (what == LESS_LINKS)
        less.min_link = steps < most ? less.min_link - (uint8_t)steps : LINK_UNKNOWN;
    else if (what == LESS_ISOLATION)
        less.isolation = 0;
    else
        less = request_of_any_card(p->r);
    return less;
}

static struct show_text amount_of(const struct explain_page *p, const struct request *r)
{
    struct show_text text = show_units(r->mib_per_card, r->slots ? 1 : p->unit);
    if (r->percent)
        snprintf(text.s, sizeof text.s, "%" PRIu32 " %%", r->percent);
    return text;
}

static void add_less(struct explain_page *p, enum less what, const struct request *less,
                     const struct ledger_node *node)
{
    const struct request *r = p->r;
    cleanup_buf struct buf text = {0}, models = {0};
    char weaker[8], demanded[8];
    if (what == ANY_CARD && !list_models(p, &models))
        buf_printf(
            &text, "%s%.*s; models in the cluster: %s%s",
            r->models.n ? "no node has model " : "no node has cards with this clock",
            SPAN_ARG(r->models), models.n ? models.p : "none known", node ? "; " : "");
    else if (what == LESS_ISOLATION && r->isolation & SCV_ISOLATION_DRIVER)
        add_change(p, "a node whose driver is 615 or newer");
    if (node && what == LESS_MEMORY)
        buf_printf(&text, "request %s%s instead of %s: ", amount_of(p, less).s,
                   r->cards > 1 ? " per card" : "", amount_of(p, r).s);
    else if (node && what == LESS_CARDS)
        buf_printf(&text,
                   "request %" PRIu32 " card%s instead of %" PRIu32 "%s: ", less->cards,
                   show_plural(less->cards), r->cards,
                   r->kind == REQUEST_MEMORY ? " (with the same memory per card)" : "");
    else if (node && what == LESS_LINKS && less->min_link)
        buf_printf(&text, "annotation " KEY_MIN_LINK " %s instead of %s: ",
                   link_word(less->min_link, weaker), link_word(r->min_link, demanded));
    else if (node)
        buf_adds(&text, what == LESS_COMPUTE     ? "without limit " KEY_GPU_CORE ", "
                        : what == LESS_LINKS     ? "without annotation " KEY_MIN_LINK ", "
                        : what == LESS_ISOLATION ? "without annotation " KEY_ISOLATION
                                                   ", "
                                                 : "with any model or clock, ");
    if (node)
        buf_printf(&text, "the pod fits on node %.*s", SPAN_ARG(node->name));
    if (text.n)
        add_change(p, "%s", text.p);
}

/* The fewest steps after which the request fits. */
static void try_less(struct explain_page *p, enum less what)
{
    int64_t most = steps_of(p, what), low = 1, high = most;
    if (most <= 0)
        return;
    while (low < high) { /* fewer than `low` do not suffice; `high` do, or none do */
        int64_t middle = low + (high - low) / 2;
        struct request less = after_steps(p, what, middle);
        if (find_fit(p, &less))
            high = middle;
        else
            low = middle + 1;
    }
    struct request less = after_steps(p, what, low);
    add_less(p, what, &less, find_fit(p, &less));
}

/* -- nodes and cards back in service -- */

static void try_card(struct explain_page *p, const struct ledger_node *node,
                     const struct card *card)
{
    bool available = card->state == CARD_AVAILABLE;
    int64_t external = card_external_mib(card);
    cleanup_buf struct buf how = {0};
    if ((available && !card->withheld_mib) || !would_fit(p, node, card))
        return;
    if (!available)
        buf_printf(&how, " if GPU%" PRId32 " %s", card->index,
                   card_states[card->state].until);
    if (available && external)
        buf_printf(&how, " if processes outside Kubernetes free %s of GPU%" PRId32,
                   show_units(external, p->unit).s, card->index);
    if (available && card->overuse_mib)
        buf_printf(&how,
                   " %s pods that use more than their promises free %s of GPU%" PRId32,
                   external ? "and" : "if", show_units(card->overuse_mib, p->unit).s,
                   card->index);
    add_change(p, "the pod fits on node %.*s%s", SPAN_ARG(node->name), how.p);
}

static void try_node(struct explain_page *p, const struct ledger_node *node)
{
    bool usable = node->state == NODE_USABLE, lacks = lacks_slots(p, node);
    cleanup_buf struct buf why = {0};
    if ((usable && !lacks && node->mode == NODE_ANY) || !would_fit(p, node, NULL))
        return;
    buf_adds(&why, !usable ? " once this is resolved: "
                   : lacks ? " once its device plugin offers " KEY_GPU_SHARE
                           : " without the label gpushare/mode");
    if (!usable)
        reason_add(&why, node, p->r, FIT_LATER);
    add_change(p, "the pod fits on node %.*s%s", SPAN_ARG(node->name), why.p);
}

static void report_nominated(struct explain_page *p, const struct ledger_node *node)
{
    if (select_fit(node, p->r) != FIT_YES)
        return;
    cleanup_buf struct buf pods = {0};
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next)
        if (m->pod->priority >= p->pod->priority && !span_eq(m->pod->uid, p->pod->uid))
            buf_printf(&pods, " pod %.*s/%.*s", SPAN_ARG(m->pod->ns),
                       SPAN_ARG(m->pod->name));
    add_change(p,
               "node %.*s has enough free memory%s, but reserves it for%s, nominated to "
               "this node",
               SPAN_ARG(node->name), p->r->core ? " and compute" : "",
               pods.n ? pods.p : "");
}

static void add_changes(struct explain_page *p)
{
    try_uncordon(p);
    try_removal(p);
    for (enum less what = LESS_MEMORY; what <= ANY_CARD; what++)
        try_less(p, what);
    for (size_t i = 0; i < p->n; i++) {
        if (is_skipped(p, p->nodes[i]))
            continue;
        report_nominated(p, p->nodes[i]);
        try_node(p, p->nodes[i]);
        for (uint32_t k = 0; k < p->nodes[i]->n_cards; k++)
            try_card(p, p->nodes[i], &p->nodes[i]->cards[k]);
    }
}

static void add_verdict(struct explain_page *p, struct fits fits)
{
    bool any_cordoned = false;
    if (!p->n) {
        buf_adds(p->out, "The pod's own terms exclude every node that has cards.\n");
        return;
    }
    if (fits.open) {
        buf_printf(
            p->out,
            "The request fits on %zu node%s. kube-scheduler decides the rest: %s.\n",
            fits.open, show_plural(fits.open),
            p->facts->rules ? "pod affinity, topology spread, volumes"
                            : "taints, affinity, volumes");
        return;
    }
    if (fits.crowded) {
        buf_printf(p->out,
                   "The request for GPUs fits on %zu node%s, but not what the pod needs "
                   "besides.\n",
                   fits.crowded, show_plural(fits.crowded));
        return;
    }
    add_changes(p);
    for (size_t i = 0; i < p->n; i++)
        any_cordoned |= is_skipped(p, p->nodes[i]);
    if (fits.cordoned)
        buf_printf(p->out, "The request fits only on %zu cordoned node%s.\n",
                   fits.cordoned, show_plural(fits.cordoned));
    if (p->changes.n)
        buf_printf(p->out, "Each of these changes alone would let the pod fit:\n%s",
                   p->changes.p);
    else
        buf_printf(p->out,
                   "No single change would let the pod fit. The pod needs a node %swith "
                   "more or larger cards.\n",
                   any_cordoned ? "that is not cordoned, or one " : "");
}

/* Why kube-scheduler does not bind the member, if that is known. */
static void add_cause(struct buf *out, const struct explain_page *p,
                      const struct ledger_pod *pod)
{
    const json_t *object;
    size_t i;
    json_array_foreach(p->facts->members, i, object)
    {
        struct span message = explain_unscheduled(object, NULL);
        if (message.n &&
            span_eq(session_text(json_object_get(object, "metadata"), "uid"), pod->uid))
            buf_printf(out, " (kube-scheduler: %.*s)", SPAN_ARG(message));
    }
}

/* Whether the members of the pod's gang fit together on the nodes that the pod may use. */
static void add_gang(struct explain_page *p, struct arena *a)
{
    const struct ledger_member *m = p->pod->member;
    const struct ledger_node **open = arena_alloc(a, p->n * sizeof *open);
    cleanup_buf struct buf text = {0};
    struct gang_verdict v;
    size_t n_open = 0;
    for (size_t i = 0; i < p->n; i++)
        if (!is_skipped(p, p->nodes[i]))
            open[n_open++] = p->nodes[i];
    struct gang_asker asker = {.pod = select_pod_of(p->pod),
                               .name = m->gang->name,
                               .minimum = minimum_of(p),
                               .scheduler = p->pod->scheduler,
                               .requests = ledger_pod_requests(p->pod)};
    asker.pod.gang = m->gang;
    gang_judge(p->l, &asker, open, n_open, p->r->placement == PLACE_SPREAD, a, &v);
    if (v.fits)
        buf_printf(&text, "gang %.*s: %" PRIu32 " of %" PRIu32 " members are bound; %s",
                   SPAN_ARG(m->gang->name), v.placed, v.total,
                   v.placed ? "the others fit together" : "all fit together");
    else
        gang_judge_reason(&text, &asker, &v);
    if (v.placed && v.placed < v.needed)
        buf_printf(&text,
                   "; %" PRIu32 " of %" PRIu32 " that must start are bound, so a part of "
                   "the gang runs",
                   v.placed, v.needed);
    for (m = m->gang->members; m; m = m->next) {
        const struct ledger_pod *pod = m->pod;
        bool other = pod->scheduler != p->pod->scheduler;
        if (pod->node || pod == p->pod ||
            (!pod->gated && !other && !(v.placed && v.placed < v.needed)))
            continue;
        buf_printf(&text, "; pod %.*s %s", SPAN_ARG(pod->name),
                   pod->gated ? "has schedulingGates"
                   : other    ? "has another schedulerName"
                              : "waits, too");
        add_cause(&text, p, pod);
    }
    if (v.absent)
        buf_printf(&text,
                   "; %" PRIu32
                   " more do not exist; the extender waits for them for --gang-wait "
                   "after the first",
                   v.absent);
    table_line(p->out, "%s.", text.p);
}

void explain_pending(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    const char *invalid = p->pod->invalid_reason ?: p->facts->invalid;
    if (invalid) {
        table_line(p->out, " is pending; request invalid: %s", invalid);
        return;
    }
    p->r = p->pod->request;
    size_t n = show_nodes(p->l, (struct span){0}, &a, &p->nodes);
    for (size_t i = 0; i < n; i++) /* pods can name nodes that do not exist */
        if (p->nodes[i]->state != NODE_UNKNOWN)
            p->nodes[p->n++] = p->nodes[i];
    buf_adds(p->out, " is pending; requests ");
    explain_request(p);
    buf_printf(p->out, " (priority %" PRId32 ")\n\n", p->pod->priority);
    if (!p->n) {
        buf_adds(p->out, "no node of the cluster has a GPU managed by gpushare\n");
        return;
    }
    const json_t *item;
    size_t k;
    p->viewed = json_object();
    json_array_foreach(json_object_get(p->facts->view, "nodes"), k, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name)
            json_object_set(p->viewed, name, (json_t *)item);
    }
    struct fits fits = add_nodes(p);
    buf_addc(p->out, '\n');
    for (size_t i = 0; i < p->n; i++) { /* heartbeats that make the table unreliable */
        cleanup_buf struct buf note = {0};
        cluster_state_note_heartbeat(&note, p->cs, p->nodes[i]);
        if (note.n)
            table_line(p->out, "! %.*s: %s", SPAN_ARG(p->nodes[i]->name), note.p);
    }
    add_verdict(p, fits);
    if (p->own.n)
        table_line(p->out, "Reserved for this pod until its bind: %s of node %.*s.",
                   p->own.p, SPAN_ARG(p->own_node));
    add_preemption(p, !fits.open && !fits.crowded);
    if (waits_for_gang(p))
        add_gang(p, &a);
    json_decref(p->viewed);
    buf_fini(&p->changes);
    buf_fini(&p->own);
}
