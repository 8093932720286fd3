/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
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
 * that were delivered. Only the leader has reservations: each was asked for by a filter, ends
 * at its time limit, and has a pod that is not bound, deleted or promised cards. A pod of
 * higher priority is not rejected because of weaker reservations, and no bind takes what is
 * reserved for another pod: a list of them is taken after each step, so a bind is judged by
 * those before it, whatever the step did to them.
 */

/* -- reservations of the list -- */

struct reservations {
    const struct reserved *items;
    size_t n;
    const struct replica *of;
};

static struct reservations before(const struct replica *r)
{
    return (struct reservations){r->reserved, r->n_reserved, r};
}

static const struct reserved *find(struct reservations list, const char *uid)
{
    for (size_t i = 0; i < list.n; i++)
        if (!strcmp(list.items[i].uid, uid))
            return &list.items[i];
    return NULL;
}

static bool has_on(struct reservations list, const char *uid, int node)
{
    const struct reserved *at = find(list, uid);
    return at && at->node == node;
}

/* MiB of the card that are reserved for other pods of that priority or a higher one, and not
 * promised to them now: one step binds the members of a gang. */
static int64_t reserved_mib(struct reservations list, const char *uid, int64_t priority,
                            int node, const struct card *card)
{
    int64_t sum = 0;
    for (size_t i = 0; i < list.n; i++) {
        const struct reserved *at = &list.items[i];
        const struct ledger_pod *pod = replica_pod(list.of, at->uid);
        if (at->node != node || at->priority < priority || !strcmp(at->uid, uid) ||
            (pod && pod->node))
            continue;
        for (int k = 0; k < at->n; k++)
            if (at->card[k] == card->index)
                sum += at->mib[k] ? at->mib[k] : card->total_mib;
    }
    return sum;
}

/* -- a node as the replica must see it -- */

struct view {
    const struct replica *r;
    const struct node_copy *delivered;
    const struct ledger_node *node; /* NULL: unknown */
    int index;
    unsigned in; /* bits of the available cards */
    int claimed; /* for pods of nvidia.com/gpu that have no card yet */
};

/* Cards that only pods have, by the podList, of which the replica has seen by GET that they have
 * ended. */
static unsigned given_back(const struct replica *r, const struct view *v)
{
    unsigned bits = v->delivered->held;
    if (!v->node)
        return 0;
    for (uint32_t i = 0; i < v->node->n_cards; i++)
        if (ledger_node_info(v->node).held_cards >> i & 1)
            bits &= ~(1u << oracle_card(v->index, v->node->cards[i].index));
    for (int i = 0; bits && i < v->delivered->n_holders; i++)
        if (!oracle_has_ended(r->world, v->index, v->delivered->holders[i].pod))
            bits &= ~v->delivered->holders[i].cards;
    r->world->stats.given_back += bits != 0;
    return bits;
}

/* If the kubelet needs all full cards that are left for pods of nvidia.com/gpu that have none
 * yet, none of these is available; if it needs all without a promise, none of those. One step
 * promises the members of a gang: what they claim does not count when `member` gets its promise. */
static struct view view_of(const struct replica *r, int index,
                           const struct ledger_member *member)
{
    const struct node_copy *copy = &r->delivered.nodes[index];
    struct view v = {r, copy, replica_node(r, index), index, 0, 0};
    v.in = delivered_available(copy, given_back(r, &v));
    for (const struct ledger_pod *p = v.node ? v.node->pods : NULL; p; p = p->next) {
        int more = (int)ledger_pod_devices(v.node, p);
        if (member && p->member && p->member->gang == member->gang)
            continue;
        for (int i = 0; more && i < copy->n_holders; i++)
            more -= span_eq(span_of(copy->holders[i].pod), p->name)
                        ? copy->holders[i].devices
                        : 0;
        v.claimed += more > 0 ? more : 0;
    }
    unsigned full = 0, promised = 0;
    for (int card = 0; card < oracle_cards(index); card++)
        full |= *oracle_profile(index, card) ? 0 : v.in & 1u << card;
    for (uint32_t i = 0; v.node && i < v.node->n_cards; i++)
        if (v.node->cards[i].pods || v.node->cards[i].reserved_mib)
            promised |= 1u << oracle_card(index, v.node->cards[i].index);
    if (v.claimed && v.claimed >= __builtin_popcount(full & ~promised))
        v.in &= ~(v.claimed >= __builtin_popcount(full) ? full : full & ~promised);
    return v;
}

static int number(const struct view *v, const struct card *card)
{
    return oracle_card(v->index, card->index);
}

static int64_t room(const struct view *v, const struct card *card)
{
    return delivered_mib(v->delivered, number(v, card)) - card->promised_mib;
}

static bool is_in(const struct view *v, const struct card *card)
{
    return v->in & 1u << number(v, card);
}

/* MiB that the request takes of the card. */
static int64_t part(const struct view *v, const struct request *r,
                    const struct card *card)
{
    return oracle_part(r, delivered_mib(v->delivered, number(v, card)));
}

/* A pending pod, or one that gets its promise. */
struct asking {
    const char *uid;
    int64_t priority;
    const struct request *request;
};

/* What the pod may take of the card. */
static int64_t room_for(const struct world *w, const struct view *v, struct asking a,
                        const struct card *card)
{
    return room(v, card) - reserved_mib(before(v->r), a.uid, a.priority, v->index, card) -
           evictions_kept_mib(w, v->index, a.uid, a.priority, card);
}

static bool isolates(const struct view *v, const struct request *r)
{
    return !r->isolation || (r->isolation & oracle_enforces(v->delivered->isolation));
}

/* Is there certainly room on the card, but for weaker reservations? */
static bool takes(const struct world *w, const struct view *v, struct asking a,
                  const struct card *card)
{
    return is_in(v, card) && !card->whole && isolates(v, a.request) &&
           room_for(w, v, a, card) >= part(v, a.request, card) &&
           (!a.request->compute_percent ||
            (card->compute_promised + card->compute_reserved +
                     a.request->compute_percent <=
                 100 &&
             !evictions_kept_mib(w, v->index, a.uid, a.priority, card))) &&
           request_accepts_card(
               a.request,
               &(struct card_kind){
                   .model = span_of(oracle_model(v->index, number(v, card))),
                   .profile = span_of(oracle_profile(v->index, number(v, card))),
                   .spec.clock_mhz = oracle_clock(v->index, number(v, card))});
}

/* -- a promise -- */

static void look_at_card(struct world *w, const struct view *v,
                         const struct ledger_pod *pod, const struct card *card)
{
    const char *uid = pod->uid.p;
    if (!is_in(v, card))
        violated(w, "%s is promised GPU%d, which is unavailable", uid, card->index);
    if (room(v, card) < 0)
        violated(w, "%s overcommits GPU%d, which has %lld MiB promised", uid, card->index,
                 (long long)card->promised_mib);
    if ((pod->request->kind == REQUEST_CARDS || card->whole) && card->pods != 1)
        violated(w, "%s shares GPU%d, which is promised whole", uid, card->index);
    if (pod->request->compute_percent && card->compute_promised > 100)
        violated(w,
                 "%s gets %u percent of the compute of GPU%d, of which %u are promised",
                 uid, pod->request->compute_percent, card->index, card->compute_promised);
    if (room(v, card) < reserved_mib(before(v->r), uid, pod->priority, v->index, card))
        violated(w, "%s gets memory of GPU%d of n%d that is reserved for other pods", uid,
                 card->index, v->index);
}

/* Is the card certainly free, but for the pod that has just got it, which `has` so much? */
static bool is_free(const struct world *w, const struct view *v, struct asking a,
                    const struct card *card, int64_t has)
{
    return is_in(v, card) && card->pods == (has > 0) &&
           room_for(w, v, a, card) + has == delivered_mib(v->delivered, number(v, card));
}

/* What the sets of up to three of the cards are worth: the widths of the best ones of each size. */
static int worth(const struct link_table *t, unsigned cards)
{
    int sum = 0;
    for (int n = 2; n <= __builtin_popcount(cards); n++) {
        int link = (int)ARRAY_LEN(oracle_links);
        while (!oracle_connects(t, cards, n, link))
            link--;
        sum += link + (link >= ORACLE_NV); /* a width beside any NVLinks */
    }
    return sum;
}

/* Memory on one card: must be the best card; of equal ones the first, or if that is free, the one
 * that leaves the best sets of connected cards. A reserved card was the best one earlier, and so
 * was one of a gang whose other members are bound in this step. */
static void look_at_choice(struct world *w, const struct view *v,
                           const struct ledger_pod *pod, const struct card *chosen)
{
    struct asking a = {pod->uid.p, pod->priority, pod->request};
    /* What is reserved for weaker pods is taken last. */
    struct asking last = {a.uid, INT64_MIN, a.request};
    bool apart = room_for(w, v, last, chosen) >= 0;
    for (uint32_t i = 0; i < v->node->n_cards; i++)
        apart |= &v->node->cards[i] != chosen && takes(w, v, last, &v->node->cards[i]);
    a = apart ? last : a;
    int64_t has_now = part(v, pod->request, chosen);
    int64_t had = room_for(w, v, a, chosen) + has_now;
    if (w->bindings > 1 || has_on(before(v->r), a.uid, v->index) ||
        evictions_nominated(w, v->node)) /* nominated pods come first */
        return;
    const struct link_table *links = &v->delivered->links;
    const unsigned mine = 1u << number(v, chosen);
    unsigned equal = mine, free = is_free(w, v, a, chosen, has_now) ? mine : 0;
    for (uint32_t i = 0; i < v->node->n_cards; i++) {
        const struct card *other = &v->node->cards[i];
        int64_t has = room_for(w, v, a, other);
        if (other != chosen && is_free(w, v, a, other, 0))
            free |= 1u << number(v, other);
        if (other == chosen || !takes(w, v, a, other))
            continue;
        equal |= has == had ? 1u << number(v, other) : 0;
        bool better = pod->request->placement == PLACE_SPREAD ? has > had : has < had;
        if (better)
            violated(w, "%s is on GPU%d, but the policy chooses GPU%d", a.uid,
                     chosen->index, other->index);
    }
    bool linked = links->known && !pod->request->ignores_links && (equal & -equal & free);
    unsigned best = equal & -equal;
    for (unsigned left = equal; left && linked; left &= left - 1)
        if (worth(links, free & ~(left & -left)) > worth(links, free & ~best))
            best = left & -left;
    if (mine != best)
        violated(w, "%s is on card %x of n%d; of the equal cards %x, %x is the choice",
                 a.uid, mine, v->index, equal, best);
}

/* Several cards: no other set of cards that are certainly free is connected better. */
static void look_at_set(struct world *w, const struct view *v,
                        const struct ledger_pod *pod, unsigned chosen)
{
    struct asking a = {pod->uid.p, pod->priority, pod->request};
    unsigned candidates = chosen;
    int n = (int)pod->request->cards;
    const struct link_table *links = &v->delivered->links;
    struct oracle_pod *p = oracle_find(w, a.uid);
    int narrowest = oracle_narrowest(links, chosen);
    /* Binding by Binding, check_promise cannot know which one is applied. */
    if (p && narrowest > p->narrowest)
        p->narrowest = narrowest;
    /* A percentage is of cards of one size. */
    if (n > 3 || pod->request->percent || pod->request->ignores_links || !links->known ||
        w->bindings > 1 || has_on(before(v->r), a.uid, v->index) ||
        evictions_nominated(w, v->node))
        return;
    for (uint32_t i = 0; i < v->node->n_cards; i++) {
        const struct card *card = &v->node->cards[i];
        if (takes(w, v, a, card) &&
            (pod->request->kind == REQUEST_MEMORY ||
             (!card->pods &&
              room_for(w, v, a, card) == delivered_mib(v->delivered, number(v, card)))))
            candidates |= 1u << number(v, card);
    }
    if (oracle_connects(links, candidates, n, narrowest + 1))
        violated(w, "%s is on cards %x of n%d, but %x has better connected ones", a.uid,
                 chosen, v->index, candidates);
}

static void look_at_promise(struct world *w, const struct view *v,
                            const struct ledger_pod *pod,
                            const struct oracle_notes *notes)
{
    unsigned chosen = 0;
    struct oracle_pod *p = oracle_find(w, pod->uid.p);
    if (p) /* as in look_at_set */
        p->enforced |= oracle_enforces(v->delivered->isolation);
    for (int i = 0; i < notes->n; i++) {
        const struct card *card = NULL;
        for (uint32_t k = 0; k < v->node->n_cards; k++)
            if (number(v, &v->node->cards[k]) == notes->card[i])
                card = &v->node->cards[k];
        if (!card || delivered_mib(v->delivered, number(v, card)) < 0) {
            violated(w, "%s is promised a card that n%d does not have", pod->uid.p,
                     v->index);
            return;
        }
        look_at_card(w, v, pod, card);
        evictions_check_kept(w, v->index, pod, card);
        oracle_promised(w, v->r, pod, v->index, number(v, card),
                        delivered_mib(v->delivered, number(v, card)));
        if (pod->request->kind == REQUEST_MEMORY && pod->request->cards == 1)
            look_at_choice(w, v, pod, card);
        chosen |= 1u << number(v, card);
    }
    if (notes->n > 1)
        look_at_set(w, v, pod, chosen);
    if (notes->n != (int)pod->request->cards)
        violated(w, "%s is promised %d cards instead of %u", pod->uid.p, notes->n,
                 pod->request->cards);
}

void witness_bind(struct world *w, const struct replica *r, const struct core_output *o)
{
    const struct ledger_pod *pod = replica_pod(r, o->uid);
    int index = oracle_index(o->node);
    if (!core_is_leader(r->core))
        violated(w, "%s is bound by a process that does not hold the lease", o->uid);
    if (pod &&
        pod->request->kind == REQUEST_DEVICES) { /* the kubelet chooses the cards */
        if (o->annotations)
            violated(w, "%s requests nvidia.com/gpu, but has annotations: %s", o->uid,
                     o->annotations);
        oracle_sent(w, r, o->uid, o->node);
        return;
    }
    cleanup_json_value json_t *binding =
        json_pack("{s:{s:o*}}", "metadata", "annotations",
                  json_loads(o->annotations ? o->annotations : "{}", 0, NULL));
    struct oracle_notes notes = oracle_notes(binding, index < 0 ? 0 : index);
    struct view v = {0};
    if (index >= 0)
        v = view_of(r, index, pod ? pod->member : NULL);
    if (!v.node || !pod || !notes.n || !delivered_cards(v.delivered) ||
        v.delivered->stale || v.node->state == NODE_STALE)
        violated(w, "%s is promised cards of %s, which has none available", o->uid,
                 o->node);
    else
        look_at_promise(w, &v, pod, &notes);
}

/* -- after each step -- */

static void compare_card(struct world *w, const struct view *v, const struct card *card)
{
    int id = v->r->id, i = number(v, card);
    int64_t mib = delivered_mib(v->delivered, i);
    struct oracle_sum sum = oracle_known_sum(w, v->r, v->index, i);
    for (const struct ledger_pod *pod = v->node->pods; pod; pod = pod->next) {
        /* Keeps its cards until the outcome of its Binding is known, also if another
         * scheduler has bound it meanwhile. */
        bool keeps = pod->n_shares && !pod->final;
        if (pod->request->by_label && !keeps && ledger_pod_mib(pod, card) >= 0 &&
            oracle_has_no_card(w, pod->uid.p))
            violated(w, "r%d counts pod %s on GPU%d of n%d: it has labels and no card",
                     id, pod->uid.p, i, v->index);
    }
    if (card->total_mib != mib)
        violated(w, "r%d has %lld MiB on GPU%d of n%d, delivered: %lld", id,
                 (long long)card->total_mib, i, v->index, (long long)mib);
    if ((card->state == CARD_AVAILABLE) != is_in(v, card))
        violated(w, "r%d: GPU%d of n%d was delivered as %s, the ledger disagrees", id, i,
                 v->index, card->state == CARD_AVAILABLE ? "unavailable" : "available");
    if ((int)card->compute_promised < sum.core)
        violated(w, "r%d counts %u of %d percent of the compute of GPU%d of n%d", id,
                 card->compute_promised, sum.core, i, v->index);
    if (card->promised_mib >= sum.mib && (int)card->pods >= sum.whole + sum.shared &&
        (!sum.whole || card->whole))
        return;
    EACH_POD(w, p)
    {
        int64_t must = p->of[id].known ? oracle_must_count(w, p, v->r, v->index, i) : -1;
        const struct ledger_pod *mine = replica_pod(v->r, p->uid);
        int64_t has = mine && mine->node ? ledger_pod_mib(mine, card) : -1;
        if (has < must)
            trace(w, "r%d counts %lld of %lld MiB for %s (%s), bound with %s", id,
                  (long long)has, (long long)must, p->name, p->uid, p->promise);
    }
    violated(w,
             "r%d: %d pods with %lld MiB on GPU%d of n%d were delivered, it counts %u "
             "with %lld",
             id, sum.whole + sum.shared, (long long)sum.mib, i, v->index, card->pods,
             (long long)card->promised_mib);
}

void witness_check(struct world *w, const struct replica *r)
{
    EACH_NODE(w, node)
    {
        struct view v = view_of(r, node, NULL);
        int delivered = delivered_cards(v.delivered), has = 0;
        if (v.node && (v.node->state == NODE_USABLE || v.node->state == NODE_STALE))
            has = (int)v.node->n_cards;
        if (v.delivered->stale && v.node->state == NODE_USABLE)
            violated(w, "r%d: the heartbeat of n%d is stale, but the node gets pods",
                     r->id, node);
        w->stats.must_be_stale += v.delivered->stale;
        /* Without an Scv, a Node of a yard has the cards of its capacity. */
        if (w->yard && (!v.delivered->scv || (v.node && v.node->state == NODE_MISSING)))
            continue;
        if (has != delivered)
            violated(w, "r%d: %d cards of n%d were delivered, it has %d", r->id,
                     delivered, node, has);
        for (int i = 0; i < has && !w->failed; i++)
            compare_card(w, &v, &v.node->cards[i]);
    }
}

/* -- reservations -- */

static struct reserved read_one(const struct ledger_reservation *from)
{
    struct reserved r = {.priority = from->priority};
    snprintf(r.uid, sizeof r.uid, "%s", from->uid.p);
    snprintf(r.name, sizeof r.name, "/%s has ended", from->name.p);
    r.in_gang = gangs_has(from->name.p);
    r.node = oracle_index(from->node->name.p);
    for (uint32_t i = 0; i < from->n_shares && i < CARDS; i++) {
        r.card[r.n] = from->shares[i].card;
        r.mib[r.n++] = from->request->kind == REQUEST_CARDS ? 0 : from->shares[i].mib;
    }
    return r;
}

/* `made`: by this step. */
static void check_one(struct world *w, const struct replica *r, struct reserved *now,
                      const struct ledger_reservation *from, const struct core_input *in,
                      bool made)
{
    const struct reserved *old = find(before(r), now->uid);
    const struct ledger_pod *pod = replica_pod(r, now->uid);
    bool holds = barrier_holds(w, r, now->uid) &&
                 ((in->type == CORE_BIND && span_eq(in->uid, from->uid)) ||
                  (in->type == CORE_ANSWER && !old));
    int64_t now_ms = replica_time(w, r).mono_ms;
    int64_t limit_ms = now->in_gang ? CORE_GANG_RESERVATION_MS : CORE_RESERVATION_MS;
    if (!old && !made && !holds)
        violated(w, "r%d reserves cards for %s without a filter", r->id, now->uid);
    /* Not renewed, but that of a bind that is held lasts as long. */
    now->made_ms = old && !holds ? old->made_ms : now_ms;
    if (!core_is_leader(r->core))
        violated(w, "r%d reserves cards for %s and does not lead", r->id, now->uid);
    if (in->type == CORE_TICK && now_ms - now->made_ms >= limit_ms)
        violated(w, "r%d has reserved cards for %s for %lld ms", r->id, now->uid,
                 (long long)(now_ms - now->made_ms));
    if (from->until_ms > now->made_ms + limit_ms)
        violated(w, "r%d: the reservation of %s ends %lld ms after its time limit", r->id,
                 now->uid, (long long)(from->until_ms - now->made_ms - limit_ms));
    if (pod && pod->node)
        violated(w, "r%d reserves cards for %s, which has a promise", r->id, now->uid);
    /* The pod that was delivered is not pending any more. */
    if (in->type == CORE_OBJECT && in->kind == CORE_PODS && !in->invalid &&
        (in->deleted || in->pod->node.n || pod_is_terminal(in->pod)) &&
        span_eq(in->pod->meta.uid, from->uid))
        violated(w, "r%d reserves cards for %s, which has ended or is bound", r->id,
                 now->uid);
}

/* Memory on one card only: whether several cards suit is not judged here. */
static bool fits(const struct world *w, const struct replica *r, struct asking a,
                 struct span name)
{
    const struct ledger_node *node = ledger_node_find(core_ledger(r->core), name);
    if (!node || node->state != NODE_USABLE || a.request->kind != REQUEST_MEMORY ||
        a.request->cards != 1 || evictions_nominated(w, node))
        return false;
    struct view v = view_of(r, oracle_index(node->name.p), NULL);
    if (a.request->dialect != node->dialect && a.request->dialect)
        return false;
    if (v.claimed &&
        node->has_reserved) /* which of the cards a claim leaves is not judged */
        return false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (takes(w, &v, a, &node->cards[i]))
            return true;
    return false;
}

/* A filter got no reservation, or a bind no card: not because of weaker reservations. */
static void check_rejected(struct world *w, const struct replica *r,
                           const struct core_input *in, const struct core_output *o)
{
    cleanup_free char *uid = xmemdup0(in->uid.p, in->uid.n);
    const struct ledger_pod *pod = replica_pod(r, uid);
    bool binds = (pod && pod->node) || scheduler_binds(w, uid);
    bool has = ledger_reservation_find(core_ledger(r->core), in->uid);
    if (o->type == CORE_RESERVED && in->request->kind != REQUEST_DEVICES &&
        has != (o->reserve == CORE_RESERVE_DONE))
        violated(w, "r%d: the outcome of the reservation of %s is %d, but it %s one",
                 r->id, uid, (int)o->reserve, has ? "has" : "lacks");
    if (o->type == CORE_RESERVED && !o->node && !binds && !in->gang &&
        replica_leads(w, r))
        for (size_t i = 0; i < in->n_nodes; i++)
            if (fits(w, r, (struct asking){uid, in->priority, in->request}, in->nodes[i]))
                violated(w, "r%d: no cards are reserved for %s, which fits on %.*s",
                         r->id, uid, SPAN_ARG(in->nodes[i]));
    if (in->type == CORE_BIND && o->type == CORE_REPLY && pod && !pod->node &&
        !strncmp(o->text, "no card of node", 15) &&
        fits(w, r, (struct asking){uid, pod->priority, pod->request}, in->node_name))
        violated(w, "r%d: the bind of %s fails, but it fits on %.*s", r->id, uid,
                 SPAN_ARG(in->node_name));
}

/* A pod of that priority has got cards of the node: weaker reservations that lost theirs
 * have ended. */
static void check_weaker(struct world *w, const struct replica *r,
                         struct reservations now, int index, int64_t priority)
{
    const struct ledger_node *node = replica_node(r, index);
    for (size_t i = 0; node && i < now.n; i++) {
        const struct reserved *weak = &now.items[i];
        if (weak->priority >= priority || weak->node != index)
            continue;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            const struct card *card = &node->cards[k];
            int64_t all = reserved_mib(now, "", INT64_MIN, index, card);
            int64_t without = reserved_mib(now, weak->uid, INT64_MIN, index, card);
            if (all > without && card->promised_mib + all > card->total_mib)
                violated(w, "r%d: %s keeps its reservation, but GPU%d of n%d is used up",
                         r->id, weak->uid, card->index, index);
        }
    }
}

/* Only a pod that is judged together with others can lose its reservation because of
 * theirs: that of a single pod ends for a reason of its own, or because a pod of higher
 * priority has its cards, which is logged. */
static void check_ended(struct world *w, const struct replica *r,
                        const struct reserved *was, const struct core_input *in,
                        const struct step_outputs *out)
{
    bool late = replica_time(w, r).mono_ms - was->made_ms >= CORE_RESERVATION_MS;
    bool excused = late || was->in_gang || !core_is_leader(r->core) ||
                   (in->type != CORE_RESERVE && in->type != CORE_BIND) ||
                   span_eq(in->uid, span_of(was->uid));
    for (size_t k = 0; k < out->n_lines; k++)
        excused |= strstr(out->lines[k].text, "the reservation of pod") &&
                   strstr(out->lines[k].text, was->name);
    w->stats.expired += late;
    if (!excused)
        violated(w, "r%d: %s has lost its reservation because of another pod", r->id,
                 was->uid);
}

void witness_reserve(struct world *w, struct replica *r, const struct core_input *in,
                     const struct step_outputs *out)
{
    const struct ledger *l = core_ledger(r->core);
    struct reserved *items = NULL;
    size_t n = 0, cap = 0;
    bool done = false;
    for (size_t i = 0; i < out->n_lines; i++)
        w->stats.yielded += strstr(out->lines[i].text, "the reservation of pod") != NULL;
    STEP_EACH(struct core_output, o, out)
    {
        bool made = o->type == CORE_RESERVED && o->reserve == CORE_RESERVE_DONE;
        /* A member beyond the minimum is rejected, and the others get what they lack. */
        done |= made ||
                (o->type == CORE_RESERVED && o->reserve == CORE_RESERVE_GANG_REJECTED);
        w->stats.reserved += made;
        if (o->type == CORE_CALL_BIND)
            w->stats.reserved_bound += has_on(before(r), o->uid, oracle_index(o->node));
        gangs_check(w, r, in, o);
        if (in->type == CORE_RESERVE || in->type == CORE_BIND)
            check_rejected(w, r, in, o);
    }
    for (const struct ledger_reservation *at = ledger_first_reservation(l); at;
         at = at->next) {
        MEM_GROW(items, cap, n + 1);
        items[n] = read_one(at);
        /* gangs_check: for members of the gang only */
        check_one(w, r, &items[n++], at, in,
                  done && in->type == CORE_RESERVE &&
                      (in->gang || span_eq(in->uid, at->uid)));
    }
    struct reservations now = {items, n, r};
    STEP_EACH(struct core_output, o, out)
    {
        const struct ledger_pod *pod =
            o->type == CORE_CALL_BIND ? replica_pod(r, o->uid) : NULL;
        if (o->type == CORE_RESERVED && o->reserve == CORE_RESERVE_DONE)
            check_weaker(w, r, now, oracle_index(o->node), in->priority);
        else if (pod && pod->n_shares)
            check_weaker(w, r, now, oracle_index(o->node), pod->priority);
    }
    for (size_t i = 0; i < r->n_reserved; i++)
        if (!find(now, r->reserved[i].uid))
            check_ended(w, r, &r->reserved[i], in, out);
    free(r->reserved);
    r->reserved = items;
    r->n_reserved = n;
}
