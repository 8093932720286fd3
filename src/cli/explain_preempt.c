/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "cli/explain_priv.h"
#include "placement/preempt.h"

/*
 * What layout preemption (--preempt-after of the extender) would do for a pending pod.
 * kube-scheduler's own preemption does nothing where the total of the node suffices.
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
    const struct preemptor who = {.request = pod->request,
                                  .priority = priority,
                                  .uid = pod->uid,
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

void explain_preempt(struct explain_page *p, const struct ledger_node **nodes, size_t n)
{
    const struct ledger_pod *pod = p->pod;
    enum request_kind kind = pod->request->kind;
    cleanup_arena struct arena a = {0};
    if (pod->never_preempts || pod->member ||
        (kind != REQUEST_MEMORY && kind != REQUEST_CARDS))
        return;
    struct evictions now = cheapest(p, nodes, n, pod->priority, &a);
    struct evictions any = now.node ? now : cheapest(p, nodes, n, HIGHEST_PRIORITY, &a);
    if (!any.node)
        return;
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
}
