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
    char *uid;
    int replica;
    unsigned plan, last_plan; /* counts nominations: now, and at the last eviction */
    int64_t last_ms;          /* of the replica's clock; 0: none */
    struct victim {
        char *uid;
        struct victim *next;
    } * victims; /* of this plan */
    struct preemption *next;
};

/* A card that is kept, before the step of the replica that is checked now. */
struct kept {
    char uid[64];
    int node, card;
    int64_t priority, mib; /* mib: 0: the whole card */
};
enum { KEPT_MAX = 64 };

struct evictions {
    struct preemption *all;
    struct kept kept[KEPT_MAX];
    size_t n_kept;
    bool in_flight[REPLICAS]; /* an eviction without an answer */
};

struct evictions *evictions_new(void)
{
    return xcalloc(1, sizeof(struct evictions));
}

static void clear_victims(struct preemption *p)
{
    for (struct victim *v = p->victims, *next; v; v = next) {
        next = v->next;
        free(v->uid);
        free(v);
    }
    p->victims = NULL;
}

static void forget(struct evictions *e, int replica)
{
    for (struct preemption **at = &e->all; *at;) {
        struct preemption *p = *at;
        if (replica >= 0 && p->replica != replica) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        clear_victims(p);
        free(p->uid);
        free(p);
    }
}

void evictions_free(struct evictions *e)
{
    forget(e, -1);
    free(e);
}

void evictions_forget(struct world *w, int replica)
{
    forget(w->evictions, replica);
    w->evictions->in_flight[replica] = false;
}

static struct preemption *preemption_of(struct world *w, const struct replica *r,
                                        const char *uid)
{
    struct preemption *p = w->evictions->all;
    while (p && (p->replica != replica_id(r) || strcmp(p->uid, uid) != 0))
        p = p->next;
    if (p)
        return p;
    p = xcalloc(1, sizeof *p);
    p->uid = xstrdup(uid);
    p->replica = replica_id(r);
    p->next = w->evictions->all;
    w->evictions->all = p;
    return p;
}

/* As extender/filter.c does; every leader gets what a follower would forward. */
void evictions_rejected(struct world *w, struct replica *r, const struct pod *pod)
{
    const struct ledger *l = core_ledger(replica_core(r));
    cleanup_arena struct arena a = {0};
    struct request request;
    struct request_rules rules = ledger_rules(ledger_settings(l));
    struct span names[NODES];
    char text[NODES][8];
    size_t n = 0;
    if (request_of(pod, &rules, &a, &request, NULL) || pod->never_preempts)
        return;
    struct preemptor preemptor = {.pod = {&request, pod->priority, pod->meta.uid, NULL}};
    for (int i = 0; i < NODES; i++) {
        snprintf(text[n], sizeof text[n], "n%d", i);
        const struct ledger_node *node = ledger_node_find(l, span_of(text[n]));
        if (node && select_fit(node, &request) != FIT_NEVER &&
            preempt_could_help(&preemptor, node, &a)) {
            names[n] = span_of(text[n]);
            n++;
        }
    }
    struct core_input in = {
        .type = CORE_REJECTED, .uid = pod->meta.uid, .nodes = names, .n_nodes = n};
    for (int i = 0; n && i < w->n_replicas; i++)
        if (replica_up(w, w->replicas[i]) && core_is_leader(replica_core(w->replicas[i])))
            replica_input(w, w->replicas[i], &in);
}

static bool leaves(const struct preemption *p, const struct ledger_pod *pod)
{
    const struct victim *v = p->victims;
    while (v && !span_eq(pod->uid, span_of(v->uid)))
        v = v->next;
    return pod->terminating || v;
}

/* Does the pod certainly fit when all that leave have left? */
static bool fits_already(const struct preemption *p, const struct ledger_pod *pod,
                         const struct ledger_node *node)
{
    const struct request *r = pod->request;
    uint32_t n = 0;
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next)
        if (m->pod != pod)
            return false; /* it may need the same cards */
    if (node->reserved)
        return false;
    for (uint32_t c = 0; c < node->n_cards; c++) {
        const struct card *card = &node->cards[c];
        int64_t left = card->total_mib - card->withheld_mib;
        uint32_t core = r->core;
        bool empty = true;
        for (const struct ledger_pod *q = node->pods; q; q = q->next) {
            int64_t mib = ledger_pod_mib(q, card);
            if (mib < 0 || leaves(p, q))
                continue;
            left -= q->request->kind == REQUEST_CARDS ? card->total_mib : mib;
            core += ledger_pod_core(q, card);
            empty = false;
        }
        bool suits = card->state == CARD_AVAILABLE &&
                     card->total_mib >= r->mib_per_card &&
                     request_accepts_card(r, card->model, card_clock_mhz(card));
        n += suits && (r->kind == REQUEST_CARDS
                           ? empty && !card->withheld_mib
                           : left >= r->mib_per_card && (!r->core || core <= 100));
    }
    return n >= r->cards;
}

static void check_victim(struct world *w, const struct replica *r, struct preemption *p,
                         const struct core_output *o)
{
    const struct ledger *l = core_ledger(replica_core(r));
    const struct ledger_pod *pod = ledger_pod_find(l, span_of(o->preemptor));
    const struct ledger_node *node = ledger_node_find(l, span_of(o->node));
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
    else if (node && fits_already(p, pod, node))
        violated(w, "%s is evicted for %s, which needs no further eviction", o->uid,
                 o->preemptor);
}

void evictions_sent(struct world *w, const struct replica *r, const struct core_output *o)
{
    int id = replica_id(r);
    if (w->evictions->in_flight[id] && o->node)
        violated(w, "r%d evicts before the previous eviction was answered", id);
    if (!core_is_leader(replica_core(r)))
        violated(w, "r%d evicts and does not lead", id);
    if (o->type == CORE_CALL_NOMINATE) {
        struct preemption *p = preemption_of(w, r, o->uid);
        p->plan += o->node != NULL;
        clear_victims(p);
        return;
    }
    struct preemption *p = preemption_of(w, r, o->preemptor);
    int64_t now_ms = replica_time(w, r).mono_ms;
    trace(w, "r%d evicts %s for %s", id, o->uid, o->preemptor);
    if (p->last_ms && p->last_plan != p->plan &&
        now_ms < p->last_ms + CORE_PREEMPT_LIMIT_MS)
        violated(w, "pods are evicted for %s twice within the limit", o->preemptor);
    check_victim(w, r, p, o);
    w->evictions->in_flight[id] = true;
}

void evictions_answered(struct world *w, const struct replica *r,
                        const struct core_output *o, const struct core_input *answer)
{
    if (o->type != CORE_CALL_EVICT)
        return;
    enum err_code code = answer->err ? answer->err->code : ERR_NONE;
    struct preemption *p = preemption_of(w, r, o->preemptor);
    w->evictions->in_flight[replica_id(r)] = false;
    if (code == ERR_NONE) {
        struct victim *v = xcalloc(1, sizeof *v);
        v->uid = xstrdup(o->uid);
        v->next = p->victims;
        p->victims = v;
        p->last_ms = replica_time(w, r).mono_ms;
        p->last_plan = p->plan;
    }
}

static void note_kept(struct evictions *e, const struct ledger_node *node)
{
    int n = oracle_index(node->name.p);
    for (const struct ledger_nomination *m = node->nominated; m; m = m->next)
        for (uint32_t c = 0; c < node->n_cards && e->n_kept < KEPT_MAX; c++) {
            const struct ledger_pod *q = m->pod;
            if (!(m->kept >> c & 1) || q->request->kind == REQUEST_NONE)
                continue; /* an edit has made the request invalid */
            struct kept *k = &e->kept[e->n_kept++];
            snprintf(k->uid, sizeof k->uid, "%s", q->uid.p);
            k->node = n;
            k->card = node->cards[c].index;
            k->priority = q->priority;
            k->mib = q->request->kind == REQUEST_CARDS ? 0 : q->request->mib_per_card;
        }
}

void evictions_before(struct world *w, const struct replica *r)
{
    const struct ledger *l = core_ledger(replica_core(r));
    w->evictions->n_kept = 0;
    for (uint32_t i = 0; w->preempts && i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && node->nominated)
            note_kept(w->evictions, node);
    }
}

/* Is it kept on that card for another pod of at least the same priority? */
static bool concerns(const struct kept *k, int node, const struct ledger_pod *pod,
                     const struct card *card)
{
    return k->node == node && k->card == card->index && k->priority >= pod->priority &&
           !span_eq(pod->uid, span_of(k->uid));
}

int64_t evictions_kept_mib(const struct world *w, int node, const struct ledger_pod *pod,
                           const struct card *card)
{
    int64_t mib = 0;
    for (size_t i = 0; i < w->evictions->n_kept; i++) {
        const struct kept *k = &w->evictions->kept[i];
        if (concerns(k, node, pod, card))
            mib += k->mib ? k->mib : card->total_mib;
    }
    return mib;
}

void evictions_check_kept(struct world *w, int node, const struct ledger_pod *pod,
                          const struct card *card)
{
    int64_t left = card->total_mib - card->withheld_mib - card->promised_mib;
    for (size_t i = 0; i < w->evictions->n_kept; i++) {
        const struct kept *k = &w->evictions->kept[i];
        if (concerns(k, node, pod, card) && (!k->mib || left < k->mib))
            violated(w, "%s gets GPU%d of n%d, which is kept for %s", pod->uid.p,
                     card->index, node, k->uid);
    }
}

bool evictions_nominated(const struct world *w, const struct ledger_node *node)
{
    for (size_t i = 0; i < w->evictions->n_kept; i++)
        if (w->evictions->kept[i].node == oracle_index(node->name.p))
            return true;
    return node->nominated;
}

bool evictions_idle(const struct world *w)
{
    for (int i = 0; i < w->n_replicas; i++) {
        const struct core *core = replica_core(w->replicas[i]);
        const struct ledger_pod *p =
            core ? ledger_first_pending(core_ledger(core)) : NULL;
        for (; p; p = p->next)
            if (ledger_pod_kept(p))
                return false;
    }
    return true;
}
