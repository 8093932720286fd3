/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/preempt.h"
#include "placement/reason.h"

/*
 * Checks layout preemption by its own arithmetic: a victim has a lower priority, is needed
 * when its eviction is sent, and is not evicted beside another eviction in flight; no pod
 * has others evicted twice within the limit; the cards are kept for it.
 */

/* The evictions of one replica since its start for one pod. */
struct preemption {
    char uid[64];
    unsigned plan, last_plan; /* counts nominations: now, and at the last eviction */
    int64_t last_ms;          /* of the replica's clock; 0: none */
    struct buf victims;       /* UIDs, of this plan */
    struct preemption *next;
};

/* A card that is kept, before the step of the replica that is checked now. */
struct kept {
    char uid[64];
    int node, card;
    int64_t priority, mib; /* mib: 0: the whole card */
};

void evictions_forget(struct replica *r)
{
    for (struct preemption *p = r->preemptions, *next; p; p = next) {
        next = p->next;
        buf_fini(&p->victims);
        free(p);
    }
    r->preemptions = NULL;
    r->evicts = false;
}

static struct preemption *preemption_of(struct replica *r, const char *uid)
{
    struct preemption *p = r->preemptions;
    while (p && strcmp(p->uid, uid) != 0)
        p = p->next;
    if (p)
        return p;
    p = xcalloc(1, sizeof *p);
    snprintf(p->uid, sizeof p->uid, "%s", uid);
    p->next = r->preemptions;
    return r->preemptions = p;
}

/* As extender/filter.c does; every leader gets what a follower would forward. */
void evictions_rejected(struct world *w, struct replica *r, const struct pod *pod)
{
    cleanup_arena struct arena a = {0};
    struct request request;
    struct request_rules rules = ledger_rules(ledger_settings(core_ledger(r->core)));
    struct span names[ALL_NODES];
    size_t n = 0;
    if (request_of(pod, &rules, &a, &request, NULL) || pod->never_preempts)
        return;
    struct preemptor preemptor = {.pod = {&request, pod->priority, pod->meta.uid, NULL}};
    EACH_NODE(w, i)
    {
        const struct ledger_node *node = replica_node(r, i);
        if (node && select_fit(node, &request) != FIT_NEVER &&
            preempt_could_help(&preemptor, node, &a))
            names[n++] = span_of(node_names[i]);
    }
    struct core_input in = {
        .type = CORE_REJECTED, .uid = pod->meta.uid, .nodes = names, .n_nodes = n};
    EACH_REPLICA(w, leader)
    if (n && replica_up(w, leader) && core_is_leader(leader->core))
        replica_input(w, leader, &in);
}

/* Does the pod certainly fit when all that leave have left? Not beside a pod of nvidia.com/gpu: its
 * cards may be those that become free. */
static bool fits_already(const struct replica *by, const struct preemption *p,
                         const struct ledger_pod *pod, const struct ledger_node *node)
{
    const struct request *r = pod->request;
    unsigned bits = 0;
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next)
        if (m->pod != pod)
            return false; /* it may need the same cards */
    for (const struct ledger_pod *q = node->pods; q; q = q->next)
        if (q->request->devices || q->request->kind == REQUEST_DEVICES)
            return false;
    if (node->reserved ||
        (r->percent && r->cards > 1) || /* not judged: cards of one size */
        (r->isolation &&
         !(r->isolation &
           oracle_enforces(by->delivered.nodes[oracle_index(node->name.p)].isolation))))
        return false;
    for (uint32_t c = 0; c < node->n_cards; c++) {
        const struct card *card = &node->cards[c];
        int64_t left = card->total_mib - card->withheld_mib;
        uint32_t core = r->compute_percent;
        bool empty = true;
        for (const struct ledger_pod *q = node->pods; q; q = q->next) {
            int64_t mib = ledger_pod_mib(q, card);
            if (mib < 0 || q->terminating ||
                (p->victims.n && strstr(p->victims.p, q->uid.p)))
                continue;
            left -= q->request->kind == REQUEST_CARDS ? card->total_mib : mib;
            core += ledger_pod_core(q, card);
            empty = false;
        }
        bool suits = card->state == CARD_AVAILABLE &&
                     card->total_mib >= oracle_part(r, card->total_mib) &&
                     request_accepts_card(r, card->kind);
        if (suits &&
            (r->kind == REQUEST_CARDS ? empty && !card->withheld_mib
                                      : left >= oracle_part(r, card->total_mib) &&
                                            (!r->compute_percent || core <= 100)))
            bits |= 1u << oracle_card(oracle_index(node->name.p), card->index);
    }
    return oracle_connects(&by->delivered.nodes[oracle_index(node->name.p)].links, bits,
                           (int)r->cards, r->min_link ? r->min_link - 1 : 0);
}

void evictions_sent(struct world *w, struct replica *r, const struct core_output *o)
{
    if (r->evicts && o->node)
        violated(w, "r%d evicts before the previous eviction was answered", r->id);
    if (!core_is_leader(r->core))
        violated(w, "r%d evicts and does not lead", r->id);
    if (o->type == CORE_CALL_NOMINATE) {
        struct preemption *p = preemption_of(r, o->uid);
        p->plan += o->node != NULL;
        buf_clear(&p->victims);
        return;
    }
    struct preemption *p = preemption_of(r, o->preemptor);
    trace(w, "r%d evicts %s for %s", r->id, o->uid, o->preemptor);
    if (p->last_ms && p->last_plan != p->plan &&
        replica_time(w, r).mono_ms < p->last_ms + CORE_PREEMPT_LIMIT_MS)
        violated(w, "pods are evicted for %s twice within the limit", o->preemptor);
    const struct ledger_pod *pod = replica_pod(r, o->preemptor);
    const struct ledger_node *node = replica_node(r, oracle_index(o->node));
    const struct oracle_pod *victim = oracle_find(w, o->uid);
    const struct oracle_pod *by = oracle_find(w, o->preemptor);
    if (victim && by && victim->priority >= by->priority)
        violated(w, "%s of priority %lld is evicted for %s of priority %lld", o->uid,
                 (long long)victim->priority, o->preemptor, (long long)by->priority);
    if (victim && victim->daemon)
        violated(w, "%s of a DaemonSet is evicted", o->uid);
    if (by && by->never_preempts)
        violated(w, "%s never preempts, but %s is evicted for it", o->preemptor, o->uid);
    if (!pod || pod->node)
        violated(w, "%s is evicted for %s, which is not pending", o->uid, o->preemptor);
    else if (node && fits_already(r, p, pod, node))
        violated(w, "%s is evicted for %s, which needs no further eviction", o->uid,
                 o->preemptor);
    r->evicts = true;
}

void evictions_answered(struct world *w, struct replica *r, const struct core_output *o,
                        const struct core_input *answer)
{
    if (o->type != CORE_CALL_EVICT)
        return;
    struct preemption *p = preemption_of(r, o->preemptor);
    r->evicts = false;
    if (answer->err)
        return;
    buf_printf(&p->victims, "%s\n", o->uid);
    p->last_ms = replica_time(w, r).mono_ms;
    p->last_plan = p->plan;
}

void evictions_before(struct world *w, const struct replica *r)
{
    w->n_kept = 0;
    for (int i = w->first_node; w->preempts && i < w->end_node; i++) {
        const struct ledger_node *node = replica_node(r, i);
        const struct ledger_nomination *m = node ? node->nominated : NULL;
        for (; m; m = m->next)
            for (uint32_t c = 0; c < node->n_cards; c++) {
                const struct ledger_pod *q = m->pod;
                if (!(m->kept >> c & 1) || q->request->kind == REQUEST_NONE)
                    continue; /* an edit has made the request invalid */
                if (ledger_reservation_on(node, q->uid))
                    continue; /* it has cards here, perhaps others that became free */
                MEM_GROW(w->kept, w->kept_cap, w->n_kept + 1);
                struct kept *k = &w->kept[w->n_kept++];
                snprintf(k->uid, sizeof k->uid, "%s", q->uid.p);
                k->node = i;
                k->card = node->cards[c].index;
                k->priority = q->priority;
                k->mib = q->request->kind == REQUEST_CARDS
                             ? 0
                             : oracle_part(q->request, node->cards[c].total_mib);
            }
    }
}

/* Is it kept on that card for another pod of at least the same priority? */
static bool concerns(const struct kept *k, int node, const char *uid, int64_t priority,
                     const struct card *card)
{
    return k->node == node && k->card == card->index && k->priority >= priority &&
           strcmp(uid, k->uid) != 0;
}

int64_t evictions_kept_mib(const struct world *w, int node, const char *uid,
                           int64_t priority, const struct card *card)
{
    int64_t mib = 0;
    for (const struct kept *k = w->kept; k < w->kept + w->n_kept; k++)
        if (concerns(k, node, uid, priority, card))
            mib += k->mib ? k->mib : card->total_mib;
    return mib;
}

void evictions_check_kept(struct world *w, int node, const struct ledger_pod *pod,
                          const struct card *card)
{
    int64_t left = card->total_mib - card->withheld_mib - card->promised_mib;
    for (const struct kept *k = w->kept; k < w->kept + w->n_kept; k++)
        if (concerns(k, node, pod->uid.p, pod->priority, card) &&
            (!k->mib || left < k->mib))
            violated(w, "%s gets GPU%d of n%d, which is kept for %s", pod->uid.p,
                     card->index, node, k->uid);
}

bool evictions_nominated(const struct world *w, const struct ledger_node *node)
{
    for (size_t i = 0; i < w->n_kept; i++)
        if (w->kept[i].node == oracle_index(node->name.p))
            return true;
    return node->nominated;
}

bool evictions_idle(struct world *w)
{
    EACH_REPLICA(w, r)
    {
        const struct ledger_pod *p = ledger_first_pending(core_ledger(r->core));
        for (; p; p = p->next)
            if (ledger_pod_kept(p))
                return false;
    }
    return true;
}
