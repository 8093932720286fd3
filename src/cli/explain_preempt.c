/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/explain_priv.h"
#include "placement/preempt.h"

/*
 * What layout preemption (--preempt-after of the extender) would do for a pending pod, and,
 * by the extender's view, what it does. kube-scheduler's own preemption does nothing where
 * the total of the node suffices.
 */

/* Of a PriorityClass that users create (HighestUserDefinablePriority). */
enum { HIGHEST_PRIORITY = 1000000000 };

/* The cheapest evictions on one node. */
struct evictions {
    const struct ledger_node *node; /* NULL: none helps */
    size_t n;
    int64_t priority; /* the highest of the victims */
};

static bool total_suffices(const struct ledger_node *node, const struct request *r)
{
    int64_t mib = 0;
    uint32_t cards = 0, core = 0;
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct card *card = &node->cards[i];
        if (card->state != CARD_AVAILABLE || card->whole)
            continue;
        mib += card->free_mib > 0 ? card->free_mib : 0;
        core += card_core_left(card);
        cards++;
    }
    return r->kind == REQUEST_CARDS ? cards >= r->cards
                                    : mib >= r->mib_per_card * r->cards &&
                                          core >= (uint32_t)r->core * r->cards;
}

/* Pods of DaemonSets and mirror pods are never evicted, terminating ones leave anyway. */
static bool select_on(const struct ledger_pod *pod, const struct ledger_node *node,
                      int64_t priority, struct arena *a, struct preempt_victims *set)
{
    size_t n = 0, n_leaving = 0, n_spared = 0;
    for (const struct ledger_pod *q = node->pods; q; q = q->next)
        n++;
    struct span *leaving = arena_alloc(a, n * sizeof *leaving);
    struct span *spared = arena_alloc(a, n * sizeof *spared);
    for (const struct ledger_pod *q = node->pods; q; q = q->next) {
        if (q->terminating)
            leaving[n_leaving++] = q->uid;
        else if (q->mirror || q->daemon)
            spared[n_spared++] = q->uid;
    }
    const struct preemptor who = {.pod = {pod->request, priority, pod->uid, NULL},
                                  .spared = spared,
                                  .n_spared = n_spared};
    return preempt_select(&who, node, leaving, n_leaving, a, set) && set->n > 0;
}

/* The extender hears only of nodes that kube-scheduler offers to the pod. */
static bool may_be_offered(const struct ledger_node *node, const struct ledger_pod *pod)
{
    cleanup_buf struct buf lacks = {0};
    return !node->cordoned && node->state == NODE_USABLE &&
           !explain_space(&lacks, node, pod);
}

static struct evictions cheapest(const struct explain_page *p,
                                 const struct ledger_node **nodes, size_t n,
                                 int64_t priority, struct arena *a)
{
    struct evictions best = {0};
    for (size_t i = 0; i < n; i++) {
        const struct ledger_node *node = nodes[i];
        struct preempt_victims set;
        if (!may_be_offered(node, p->pod) || !total_suffices(node, p->pod->request) ||
            !select_on(p->pod, node, priority, a, &set))
            continue;
        int64_t top = set.pods[0]->priority;
        if (!best.node || top < best.priority || (top == best.priority && set.n < best.n))
            best = (struct evictions){.node = node, .n = set.n, .priority = top};
    }
    return best;
}

/* What it would do on the nodes. False: nothing helps. */
static bool add_evictions(struct explain_page *p, const struct ledger_node **nodes,
                          size_t n)
{
    const struct ledger_pod *pod = p->pod;
    cleanup_arena struct arena a = {0};
    struct evictions now = cheapest(p, nodes, n, pod->priority, &a);
    struct evictions any = now.node ? now : cheapest(p, nodes, n, HIGHEST_PRIORITY, &a);
    if (!any.node)
        return false;
    buf_adds(p->out, "Node ");
    explain_plain(p, any.node->name);
    buf_adds(p->out, " has enough free memory in total, so kube-scheduler evicts no pods "
                     "there. With --preempt-after, the extender would ");
    if (now.node)
        buf_printf(p->out,
                   "evict %zu pod%s of priority %" PRId64
                   "%s, if kube-scheduler offers this node.\n",
                   now.n, now.n == 1 ? "" : "s", now.priority,
                   now.n == 1 ? "" : " or lower");
    else
        buf_printf(p->out, "do so for a pod of priority %" PRId64 " or higher.\n",
                   any.priority + 1);
    return true;
}

/* -- by the extender's view -- */

static int64_t number_at(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const json_t *find_pending(const struct explain_page *p)
{
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(p->facts->view, "pendingPods"), i, item)
    {
        if (span_eq(explain_text_at(item, "uid"), p->pod->uid))
            return item;
    }
    return NULL;
}

/* "2026-11-21T09:00:00Z (5 s ago)" */
static void add_time(struct explain_page *p, const json_t *o, const char *key)
{
    struct span text = explain_text_at(o, key);
    int64_t s;
    explain_plain(p, text);
    if (!clock_parse(text, &s))
        return;
    if (s > p->facts->now_s)
        buf_printf(p->out, " (in %" PRId64 " s)", s - p->facts->now_s);
    else
        buf_printf(p->out, " (%" PRId64 " s ago)", p->facts->now_s - s);
}

static void add_search(struct explain_page *p, const json_t *entry)
{
    struct span last = explain_text_at(entry, "lastSearch");
    int64_t nodes = number_at(entry, "candidateNodes");
    buf_printf(p->out, "  evictions could help on %" PRId64 " node%s, since ", nodes,
               nodes == 1 ? "" : "s");
    add_time(p, entry, "since");
    buf_adds(p->out, "\n  the leader searches for victims from ");
    add_time(p, entry, "searchAfter");
    buf_adds(p->out, " on, for one pod after the other\n");
    if (span_eq(last, SPAN("no-victims")))
        buf_adds(p->out, "  the last search found no victims: pods of lower priority do "
                         "not suffice, or may not be evicted\n");
    else if (span_eq(last, SPAN("not-needed")))
        buf_adds(p->out, "  the last search found that the pod fits when terminating "
                         "pods have left\n");
    if (p->pod->nomination) {
        buf_adds(p->out, "  nothing is evicted while status.nominatedNodeName is ");
        explain_plain(p, p->pod->nomination->node->name);
        buf_addc(p->out, '\n');
    }
}

static void add_progress(struct explain_page *p, const json_t *entry)
{
    struct span node = explain_text_at(entry, "node");
    if (node.n) {
        buf_adds(p->out, "  the cards on node ");
        explain_plain(p, node);
        buf_printf(p->out,
                   " are kept for the pod; victims: %" PRId64
                   ", not evicted yet: %" PRId64 "\n",
                   number_at(entry, "victims"), number_at(entry, "victimsLeft"));
    }
    if (explain_text_at(entry, "noEvictionBefore").n) {
        buf_adds(p->out, "  no further pod is evicted for it before ");
        add_time(p, entry, "noEvictionBefore");
        buf_addc(p->out, '\n');
    }
}

static void add_entry(struct explain_page *p, const json_t *entry)
{
    int64_t refused = number_at(entry, "refusedEvictions");
    if (span_eq(explain_text_at(entry, "state"), SPAN("waiting")))
        add_search(p, entry);
    else
        add_progress(p, entry);
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
    if (explain_waits_for_gang(p))
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
        buf_adds(p->out, "; the replica that answered does not lead. The leader is ");
        explain_plain(p, explain_text_at(view, "holder"));
        buf_adds(p->out, ".\n");
    } else if (!pending) {
        buf_adds(p->out, "; the extender does not show what it does for this pod.\n");
    } else {
        buf_adds(p->out, ", but does nothing for this pod: since the extender leads, "
                         "filter has not rejected it where evictions could help.\n");
    }
}

void explain_preempt(struct explain_page *p, const struct ledger_node **nodes, size_t n,
                     bool rejected)
{
    const json_t *view = p->facts->view;
    const json_t *after = json_object_get(view, "preemptAfterSeconds");
    const json_t *pending = find_pending(p);
    const json_t *entry = json_object_get(pending, "preemption");
    bool acts = entry && !span_eq(explain_text_at(entry, "state"), SPAN("waiting"));
    bool helps = rejected && !acts && !excluded(p) && add_evictions(p, nodes, n);
    if (json_integer_value(after) > 0 && (rejected || acts))
        add_state(p, pending, entry);
    else if (helps && after)
        buf_adds(
            p->out,
            "Layout preemption is off: the extender runs without --preempt-after.\n");
    else if (helps)
        buf_adds(p->out, "Whether it does is not known without --extender.\n");
}
