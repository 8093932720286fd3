/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdlib.h>
#include <string.h>

/*
 * Checks a core at the moment of each promise. The oracle judges by the API objects, which
 * may have changed since their last delivery; the witness judges by what was delivered to
 * the core (delivered.c): no promise above the last delivered size, none on an unavailable
 * card or on a node without an Scv or with a stale heartbeat, and the card must be the
 * choice of the placement policy. Pods of outsiders count as soon as they were delivered.
 * Promises include reservations, as in the ledger; the oracle compares the ledger with the
 * objects at rest, and must agree that the pod fits.
 *
 * After each step the ledger must have the nodes as delivered, and count at least the pods
 * that were delivered.
 */

/* The expected view of a node in a replica. */
struct view {
    const struct delivered *delivered;
    const struct ledger_node *node;
    int index;
    unsigned in;                             /* bits of the available cards */
    const struct witness_reserved *reserved; /* before the step */
};

static int count(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* If the kubelet needs all cards that are left for pods of nvidia.com/gpu that have none
 * yet, no card is available. */
static struct view view_of(const struct replica *r, int index)
{
    char name[] = {'n', (char)('0' + index), 0};
    const struct ledger *l = core_ledger(replica_core(r));
    struct view v = {replica_delivered(r), ledger_node_find(l, span_of(name)), index, 0,
                     replica_reserved(r)};
    int claimed = 0;
    v.in = delivered_available(v.delivered, index);
    for (const struct ledger_pod *p = v.node ? v.node->pods : NULL; p; p = p->next) {
        int asked = (int)request_devices(p->request);
        int more = asked ? asked - delivered_devices(v.delivered, index, p->name) : 0;
        claimed += more > 0 ? more : 0;
    }
    if (claimed && claimed >= count(v.in))
        v.in = 0;
    return v;
}

static int64_t room(const struct view *v, const struct card *card)
{
    return delivered_mib(v->delivered, v->index, card->index) - card->promised_mib;
}

static bool is_in(const struct view *v, const struct card *card)
{
    return v->in & 1u << card->index;
}

static const struct card *find(const struct view *v, int32_t index)
{
    for (uint32_t i = 0;
         delivered_mib(v->delivered, v->index, index) >= 0 && i < v->node->n_cards; i++)
        if (v->node->cards[i].index == index)
            return &v->node->cards[i];
    return NULL;
}

/* What the pod must not take of the card. */
static int64_t reserved_by_others(const struct view *v, const struct ledger_pod *pod,
                                  const struct card *card)
{
    return witness_reserved_mib(v->reserved, pod->uid.p, pod->priority, v->index,
                                card->index, card->total_mib);
}

static void look_at_card(struct world *w, const struct view *v,
                         const struct ledger_pod *pod, const struct card *card)
{
    const char *uid = pod->uid.p;
    if (!is_in(v, card))
        violated(w, "%s is promised GPU%d, which is unavailable", uid, card->index);
    if (room(v, card) < 0)
        violated(w, "%s overcommits GPU%d: %lld of %lld MiB", uid, card->index,
                 (long long)card->promised_mib,
                 (long long)delivered_mib(v->delivered, v->index, card->index));
    if ((pod->request->kind == REQUEST_CARDS || card->whole) && card->pods != 1)
        violated(w, "%s shares GPU%d, which is promised whole", uid, card->index);
    if (pod->request->core && card->compute_promised > 100)
        violated(w,
                 "%s gets %u percent of the compute of GPU%d, of which %u are promised",
                 uid, pod->request->core, card->index, card->compute_promised);
    if (room(v, card) < reserved_by_others(v, pod, card))
        violated(w, "%s gets memory of GPU%d of n%d that is reserved for other pods", uid,
                 card->index, v->index);
}

static int64_t room_for(const struct world *w, const struct view *v,
                        const struct ledger_pod *pod, const struct card *card)
{
    return room(v, card) - reserved_by_others(v, pod, card) -
           evictions_kept_mib(w, v->index, pod, card);
}

/* Is there certainly enough compute for the pod? */
static bool has_core(const struct world *w, const struct view *v,
                     const struct ledger_pod *pod, const struct card *card)
{
    return !pod->request->core ||
           (card->compute_promised + card->compute_reserved + pod->request->core <= 100 &&
            !evictions_kept_mib(w, v->index, pod, card));
}

/* Memory on one card: must be the best card. A reserved card was the best one earlier. */
static void look_at_choice(struct world *w, const struct view *v,
                           const struct ledger_pod *pod, const struct card *chosen)
{
    int64_t need = pod->request->mib_per_card, had = room_for(w, v, pod, chosen) + need;
    if (witness_reserved_has(v->reserved, pod->uid.p, v->index) ||
        evictions_nominated(w, v->node)) /* nominated pods come first */
        return;
    for (uint32_t i = 0; i < v->node->n_cards; i++) {
        const struct card *other = &v->node->cards[i];
        int64_t has = room_for(w, v, pod, other);
        if (other == chosen || !is_in(v, other) || other->whole || has < need ||
            !has_core(w, v, pod, other))
            continue;
        if (!request_accepts_card(pod->request,
                                  span_of(oracle_model(v->index, other->index)),
                                  oracle_clock(v->index, other->index)))
            continue;
        bool better = pod->request->placement == PLACE_SPREAD ? has > had : has < had;
        if (better || (has == had && other->index < chosen->index))
            violated(w, "%s is on GPU%d, but the policy chooses GPU%d", pod->uid.p,
                     chosen->index, other->index);
    }
}

/* No promise: the kubelet chooses the cards. */
static void look_at_devices(struct world *w, const struct replica *r,
                            const struct core_output *o)
{
    if (o->annotations)
        violated(w, "%s requests nvidia.com/gpu, but has annotations: %s", o->uid,
                 o->annotations);
    oracle_sent(w, replica_id(r), o->uid, o->node);
}

static void look_at_promise(struct world *w, const struct replica *r,
                            const struct core_output *o, const struct view *v,
                            const struct ledger_pod *pod, const char *at)
{
    uint32_t n = 0;
    while (*at) {
        char *end;
        const struct card *card = find(v, (int32_t)strtol(at, &end, 10));
        at = *end == ',' ? end + 1 : end;
        n++;
        if (!card) {
            violated(w, "%s is promised a card that %s does not have", o->uid, o->node);
            return;
        }
        look_at_card(w, v, pod, card);
        evictions_check_kept(w, v->index, pod, card);
        oracle_promised(w, replica_id(r), pod, v->index, card->index,
                        delivered_mib(v->delivered, v->index, card->index));
        if (pod->request->kind == REQUEST_MEMORY && pod->request->cards == 1)
            look_at_choice(w, v, pod, card);
    }
    if (n != pod->request->cards)
        violated(w, "%s is promised %u cards instead of %u", o->uid, n,
                 pod->request->cards);
}

void witness_bind(struct world *w, const struct replica *r, const struct core_output *o)
{
    const struct core *core = replica_core(r);
    const struct ledger_pod *pod = ledger_pod_find(core_ledger(core), span_of(o->uid));
    if (!core_is_leader(core))
        violated(w, "%s is bound by a process that does not hold the lease", o->uid);
    if (pod && pod->request->kind == REQUEST_DEVICES) {
        look_at_devices(w, r, o);
        return;
    }
    json_t *notes = json_loads(o->annotations ? o->annotations : "{}", 0, NULL);
    const char *at = json_string_value(json_object_get(notes, "ALIYUN_COM_GPU_MEM_IDX"));
    int index = oracle_index(o->node);
    struct view v = index < 0 ? (struct view){0} : view_of(r, index);
    if (!v.node || !pod || !at || !delivered_cards(v.delivered, index) ||
        delivered_stale(v.delivered, index) || v.node->state == NODE_STALE)
        violated(w, "%s is promised cards of %s, which has none available", o->uid,
                 o->node);
    else
        look_at_promise(w, r, o, &v, pod, at);
    json_decref(notes);
}

/* Traces the pods of which the ledger counts less than it must. */
static void explain(struct world *w, const struct replica *r, const struct view *v,
                    const struct card *card)
{
    for (const struct oracle_pod *p = oracle_first(w); p; p = p->next) {
        int64_t must = p->known_by & 1u << replica_id(r)
                           ? oracle_must_count(w, p, replica_id(r), v->index, card->index)
                           : -1;
        const struct ledger_pod *mine =
            ledger_pod_find(core_ledger(replica_core(r)), span_of(p->uid));
        int64_t has = mine && mine->node ? ledger_pod_mib(mine, card) : -1;
        if (must >= 0 && has < must)
            trace(w,
                  "r%d counts %lld of %lld MiB for %s (%s) on GPU%d of n%d: it was bound "
                  "with %s",
                  replica_id(r), (long long)has, (long long)must, p->name, p->uid,
                  card->index, v->index, p->promise);
    }
}

/* Keeps its reservation until the outcome of its Binding is known, also if another
 * scheduler has bound it meanwhile. */
static bool is_reserved(const struct ledger_pod *pod)
{
    return pod->n_shares && !pod->final;
}

static void find_cardless(struct world *w, const struct replica *r, const struct view *v,
                          const struct card *card)
{
    for (const struct ledger_pod *pod = v->node->pods; pod; pod = pod->next)
        if (pod->request->by_label && !is_reserved(pod) &&
            ledger_pod_mib(pod, card) >= 0 && oracle_has_no_card(w, pod->uid))
            violated(w, "r%d counts pod %.*s on GPU%d of n%d: it has labels and no card",
                     replica_id(r), SPAN_ARG(pod->uid), card->index, v->index);
}

static void compare_card(struct world *w, const struct replica *r, const struct view *v,
                         const struct card *card)
{
    int id = replica_id(r), i = card->index;
    int64_t mib = delivered_mib(v->delivered, v->index, i);
    struct oracle_sum sum = oracle_known_sum(w, id, v->index, i);
    find_cardless(w, r, v, card);
    if (card->total_mib != mib)
        violated(w, "r%d has %lld MiB on GPU%d of n%d, delivered: %lld", id,
                 (long long)card->total_mib, i, v->index, (long long)mib);
    if ((card->state == CARD_AVAILABLE) != is_in(v, card))
        violated(w, "r%d: GPU%d of n%d was delivered as %s, the ledger disagrees", id, i,
                 v->index, card->state == CARD_AVAILABLE ? "unavailable" : "available");
    if (card->compute_promised < sum.core)
        violated(w, "r%d counts %u of %d percent of the compute of GPU%d of n%d", id,
                 card->compute_promised, sum.core, i, v->index);
    if (card->promised_mib < sum.mib || (int)card->pods < sum.whole + sum.shared ||
        (sum.whole && !card->whole)) {
        explain(w, r, v, card);
        violated(
            w,
            "r%d: %d pods with %lld MiB on GPU%d of n%d were delivered, it counts %u "
            "with %lld",
            id, sum.whole + sum.shared, (long long)sum.mib, i, v->index, card->pods,
            (long long)card->promised_mib);
    }
}

static void compare_node(struct world *w, const struct replica *r, const struct view *v)
{
    int delivered = delivered_cards(v->delivered, v->index), has = 0;
    if (v->node && (v->node->state == NODE_USABLE || v->node->state == NODE_STALE))
        has = (int)v->node->n_cards;
    if (delivered_stale(v->delivered, v->index) && v->node->state == NODE_USABLE)
        violated(w, "r%d: the heartbeat of n%d is stale, but the node gets pods",
                 replica_id(r), v->index);
    w->stats.must_be_stale += delivered_stale(v->delivered, v->index);
    if (has != delivered)
        violated(w, "r%d: %d cards of n%d were delivered, it has %d", replica_id(r),
                 delivered, v->index, has);
    for (int i = 0; i < has && !w->failed; i++)
        compare_card(w, r, v, &v->node->cards[i]);
}

void witness_check(struct world *w, const struct replica *r)
{
    for (int node = 0; node < NODES && !w->failed; node++) {
        struct view v = view_of(r, node);
        compare_node(w, r, &v);
    }
}
