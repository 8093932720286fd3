/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/oracle_priv.h"

#include <stdio.h>

#include "placement/reason.h"

/* The oracle at rest: every ledger must match the API objects, and no pending pod fits. */

/* Cards of other device plugins: those in the podList, and all that are left if the kubelet
 * needs them for pods that have none yet. */
static unsigned away(const struct oracle *o, int node)
{
    unsigned all = 0, bits = o->listed[node];
    int claimed = 0, left = 0;
    for (const struct oracle_pod *p = o->pods; p; p = p->next)
        if (oracle_index(p->node) == node && !p->over && !p->shown)
            claimed += p->devices;
    for (int card = 0; card < oracle_cards(node); card++) {
        bool in = !o->unhealthy[node][card] && !(bits & 1u << card);
        left += in;
        all |= in ? 1u << card : 0;
    }
    return claimed && claimed >= left ? bits | all : bits;
}

static bool fits(const struct world *w, const struct oracle_pod *p, int node)
{
    const struct oracle *o = w->oracle;
    int n = 0;
    if (p->invalid || p->nothing)
        return false;
    if (p->devices && !p->models && !p->clock && !p->least)
        return true;
    for (const struct oracle_pod *q = o->pods; q; q = q->next)
        if (!q->over && oracle_index(q->node) == node &&
            (truth_is_unclear(q) || (q->labeled && (oracle_is_vague(q) || q->edited))))
            return false; /* its amount depends on when a replica first saw it */
    if (p->devices)
        return oracle_devices_left(w, p, node, NULL) >= p->devices;
    for (int card = 0; card < oracle_cards(node); card++) {
        bool untouched;
        int64_t left = oracle_free_mib(o, node, card, &untouched);
        if (!o->unhealthy[node][card] && !(away(o, node) & 1u << card) &&
            oracle_card_matches(p, node, card))
            n += p->whole ? untouched
                          : left >= p->mib &&
                                (!p->raw_core || oracle_free_core(o, node, card) >=
                                                     p->raw_core / p->cards);
    }
    return n >= p->cards;
}

static void compare_cards(struct world *w, const struct replica *r, int node)
{
    char name[8];
    snprintf(name, sizeof name, "n%d", node);
    const struct ledger_node *n =
        ledger_node_find(core_ledger(replica_core(r)), span_of(name));
    for (int card = 0; n && card < (int)n->n_cards; card++) {
        bool held = n->cards[card].state == CARD_HELD;
        bool want = away(w->oracle, node) & 1u << card;
        if (!w->oracle->unhealthy[node][card] && held != want)
            violated(
                w, "r%d has GPU%d of %s as %sheld through nvidia.com/gpu, which is wrong",
                replica_id(r), card, name, held ? "" : "not ");
    }
}

/* May a replica ignore the pod? It has no request, unless the extender bound it. */
static bool is_optional(const struct oracle_pod *p)
{
    return p->node ? oracle_is_vague(p) || (p->labeled && p->tampered) : p->nothing;
}

/* A pending pod has its newest request, also if it was edited during a bind that failed. */
static void compare_request(struct world *w, const struct replica *r,
                            const struct oracle_pod *p, const struct ledger_pod *mine)
{
    enum request_kind want = p->invalid   ? REQUEST_NONE
                             : p->devices ? REQUEST_DEVICES
                             : p->whole   ? REQUEST_CARDS
                                          : REQUEST_MEMORY;
    const struct request *has = mine->request;
    bool same = has->kind == want && p->invalid == (mine->invalid_reason != NULL);
    if (want == REQUEST_MEMORY)
        same = same && has->mib_per_card == p->mib &&
               has->core * (int64_t)has->cards == p->raw_core;
    if (want == REQUEST_MEMORY || want == REQUEST_CARDS)
        same = same && (int)has->cards == p->cards;
    if (!same)
        violated(w, "r%d has an old request of the pending pod %s", replica_id(r),
                 p->uid);
}

void oracle_bind_failed(struct world *w, const struct replica *r, const char *uid)
{
    const struct oracle_pod *p = uid ? oracle_find(w, uid) : NULL;
    const struct ledger_pod *mine =
        p ? ledger_pod_find(core_ledger(replica_core(r)), span_of(uid)) : NULL;
    if (mine && !mine->node && !p->node && !is_optional(p) &&
        p->delivered[replica_id(r)] == p->version)
        compare_request(w, r, p, mine);
}

static void compare_pod(struct world *w, const struct replica *r,
                        const struct oracle_pod *p)
{
    const struct ledger *l = core_ledger(replica_core(r));
    const struct ledger_pod *mine = ledger_pod_find(l, span_of(p->uid));
    if (p->over) {
        if (mine)
            violated(w, "r%d still has pod %s, which is terminal", replica_id(r), p->uid);
        return;
    }
    if (!mine && is_optional(p))
        return;
    if (!mine) {
        violated(w, "r%d lacks pod %s", replica_id(r), p->uid);
        return;
    }
    bool bound = mine->node != NULL;
    if (bound != (p->node != NULL) ||
        (bound && !span_eq(mine->node->name, span_of(p->node)))) {
        violated(w, "r%d has pod %s on %.*s, it is on %s", replica_id(r), p->uid,
                 bound ? (int)mine->node->name.n : 7,
                 bound ? mine->node->name.p : "nothing", p->node ? p->node : "nothing");
        return;
    }
    if (!bound && !is_optional(p))
        compare_request(w, r, p, mine);
    if (bound)
        truth_compare(w, r, p, mine);
    if (bound && (oracle_is_vague(p) || truth_is_unclear(p)))
        return;
    if (bound && (int)mine->n_shares != p->n_cards)
        violated(w, "r%d has %u shares of pod %s (%s), it has %d cards, by %s",
                 replica_id(r), mine->n_shares, p->uid, p->name, p->n_cards, p->promise);
    int64_t mib = oracle_pod_mib(p);
    bool more = p->labeled && p->edited; /* labels may request more now */
    for (uint32_t i = 0; bound && !oracle_is_vague(p) && i < mine->n_shares; i++) {
        bool same = false;
        int64_t has = mine->shares[i].mib;
        for (int k = 0; k < p->n_cards; k++)
            same |= mine->shares[i].card == p->card[k] &&
                    (p->whole || has == mib || (more && has > mib));
        if (!same)
            violated(w, "r%d has another share of pod %s", replica_id(r), p->uid);
    }
}

static void compare(struct world *w, const struct replica *r)
{
    struct err err = {0};
    size_t here = 0, there = 0;
    const struct core *core = replica_core(r);
    if (core_ready(core, replica_time(w, r), &err))
        violated(w, "r%d is not ready at rest: %s", replica_id(r), err.msg);
    if (core_stats(core).binds_in_flight)
        violated(w, "r%d still has a bind in flight", replica_id(r));
    for (int node = 0; node < NODES; node++)
        compare_cards(w, r, node);
    for (const struct oracle_pod *p = w->oracle->pods; p; p = p->next) {
        compare_pod(w, r, p);
        there += !p->over && !is_optional(p);
    }
    const struct ledger *l = core_ledger(core);
    for (const struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p)) {
        const struct oracle_pod *q = oracle_find(w, p->uid.p);
        here += !q || !is_optional(q);
    }
    if (here != there)
        violated(w, "r%d has %zu pods, the API has %zu", replica_id(r), here, there);
}

/* Traces the opinion of the first replica. */
static void explain(struct world *w, const struct oracle_pod *p, int node)
{
    cleanup_buf struct buf why = {0};
    char name[8];
    snprintf(name, sizeof name, "n%d", node);
    const struct ledger *l = core_ledger(replica_core(w->replicas[0]));
    const struct ledger_pod *pod = ledger_pod_find(l, span_of(p->uid));
    const struct ledger_node *n = ledger_node_find(l, span_of(name));
    if (pod && n)
        reason_add(&why, n, pod->request, select_fit(n, pod->request));
    json_t *scv = api_get(w, "/apis/core.run-linux.com/v1/scvs/%s", name);
    cleanup_free char *text = json_dumps(scv, JSON_COMPACT);
    json_decref(scv);
    trace(w, "the Scv is %s", text ? text : "absent");
    trace(w, "r0: pod %s on %s: %s %s", p->uid, name, why.n ? why.p : "?",
          pod && pod->invalid_reason ? pod->invalid_reason : "");
}

void oracle_settled(struct world *w)
{
    trace(w, "at rest: %zu pending pods", oracle_pending(w));
    for (int i = 0; i < w->n_replicas; i++)
        compare(w, w->replicas[i]);
    plain_settled(w);
    for (const struct oracle_pod *p = w->oracle->pods; p; p = p->next)
        for (int node = 0; !p->node && !p->over && !p->deleting && node < NODES; node++)
            if (fits(w, p, node) && !gangs_may_wait(w, p) && !permit_waits(w, p->uid)) {
                explain(w, p, node);
                violated(
                    w,
                    "pod %s (%lld MiB on each of %d cards%s, %d devices, %s, %d MHz) "
                    "fits on n%d and is not bound",
                    p->uid, (long long)p->mib, p->cards, p->whole ? ", whole" : "",
                    p->devices, p->models ? p->models : "any", p->clock, node);
            }
}
