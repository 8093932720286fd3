/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain pod: what layout preemption (--preempt-after of the extender) would do for a pending pod,
 * and, by the extender's view, what it does. kube-scheduler's own preemption does nothing where the
 * total of the node suffices.
 */
#include "cli/explain_priv.h"

#include <inttypes.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"

/* Of a PriorityClass that users create (HighestUserDefinablePriority). */
enum { HIGHEST_PRIORITY = 1000000000 };

/* Is its total enough? The extender hears only of nodes that kube-scheduler offers to the
 * pod, and kube-scheduler evicts where the total is too small. */
static bool may_evict_on(struct explain_page *p, const struct ledger_node *node)
{
    const struct request *r = p->r;
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
    bool enough = r->kind == REQUEST_CARDS
                      ? cards >= r->cards
                      : (r->slots || mib >= r->mib_per_card * r->cards) &&
                            core >= (uint32_t)r->compute_percent * r->cards;
    return enough && !node->cordoned && node->state == NODE_USABLE &&
           !(explain_obstacles(p, node) & EXPLAIN_LACKS);
}

struct explain_removal explain_removal(struct explain_page *p, bool evicts,
                                       int64_t priority, struct arena *a)
{
    const struct preemptor who = {.pod = {p->r, priority, p->pod->uid, NULL},
                                  .evicts = evicts};
    struct explain_removal best = {0};
    for (size_t i = 0; i < p->n_open; i++) {
        struct explain_removal r = {.node = p->nodes[i]};
        size_t k = 0;
        if ((evicts && !may_evict_on(p, r.node)) ||
            !preempt_select(&who, r.node, NULL, 0, a, &r.set) || !r.set.n)
            continue;
        int64_t n = (int64_t)r.set.n, above = r.set.pods[0]->priority;
        r.cost[0] = evicts ? above : n;
        r.cost[1] = evicts ? n : above;
        for (size_t v = 0; !evicts && v < r.set.n; v++)
            for (uint32_t s = 0; s < r.set.pods[v]->n_shares; s++)
                r.cost[2] += r.set.pods[v]->shares[s].mib;
        while (k < 2 && r.cost[k] == best.cost[k])
            k++;
        if (!best.node || r.cost[k] < best.cost[k])
            best = r;
    }
    return best;
}

/* What it would do on the nodes. False: nothing helps. */
static bool add_evictions(struct explain_page *p)
{
    cleanup_arena struct arena a = {0};
    struct explain_removal now = explain_removal(p, true, p->pod->priority, &a);
    struct explain_removal any =
        now.node ? now : explain_removal(p, true, HIGHEST_PRIORITY, &a);
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

/* "2026-11-21T09:00:00Z (5 s ago)" */
static void add_time(struct explain_page *p, const json_t *o, const char *key)
{
    struct span text = jpath_text(o, key);
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
    struct span last = jpath_text(entry, "lastSearch");
    struct span node = jpath_text(entry, "node");
    int64_t nodes = jpath_number(entry, "candidateNodes");
    int64_t refused = jpath_number(entry, "refusedEvictions");
    bool waits = span_eq(jpath_text(entry, "state"), SPAN("waiting"));
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
                   SPAN_ARG(node), jpath_number(entry, "victims"),
                   jpath_number(entry, "victimsLeft"));
    }
    if (jpath_text(entry, "noEvictionBefore").n) {
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
    if (p->minimum != 1)
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
               jpath_number(view, "preemptAfterSeconds"));
    if (why) {
        buf_printf(p->out, ", but evicts no pod for this one: %s.\n", why);
    } else if (entry) {
        buf_adds(p->out, ":\n");
        add_entry(p, entry);
    } else if (!json_is_true(json_object_get(view, "leader"))) {
        table_line(p->out,
                   "; the replica that answered does not lead. The leader is %.*s.",
                   SPAN_ARG(jpath_text(view, "holder")));
    } else if (!pending) {
        buf_adds(p->out, "; the extender does not show what it does for this pod.\n");
    } else {
        buf_adds(p->out, ", but does nothing for this pod: since the extender leads, "
                         "filter has not rejected it where evictions could help.\n");
    }
}

void explain_preemption(struct explain_page *p)
{
    const bool rejected = !p->fits && !p->crowded;
    const json_t *after = json_object_get(p->facts->view, "preemptAfterSeconds");
    const json_t *pending = NULL, *item;
    size_t i;
    json_array_foreach(json_object_get(p->facts->view, "pendingPods"), i, item)
    {
        if (span_eq(jpath_text(item, "uid"), p->pod->uid))
            pending = item;
    }
    const json_t *entry = json_object_get(pending, "preemption");
    bool acts = entry && !span_eq(jpath_text(entry, "state"), SPAN("waiting"));
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
