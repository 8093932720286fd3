/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/gang.h"

/*
 * Gangs (domain/gang.h): when kube-scheduler asks about one member, either all members that
 * have no place yet get reservations in this step, or none does and those of the gang end
 * (unless as many as must start have a place without this member). So no gang holds a part
 * of its cards while it waits for the rest, and two gangs cannot block each other. Members
 * that are bound keep their promises.
 *
 * The reservations of a gang have one time limit. It is longer than that of a single pod,
 * because the first members wait at kube-scheduler's Permit for the last: the coscheduling
 * plugin lets them wait for 60 s by default (PermitWaitingTimeSeconds).
 *
 * Members that do not wait for each other (policy basic of their PodGroup, which filter has
 * read) are reserved for as single pods, and lose their reservations alone.
 *
 * A reservation that a gang has is not renewed by a later filter. Otherwise a gang could
 * keep its cards forever although one member cannot start for another reason.
 */

/* The reservations of the other members of the pod's gang. `visit` may end them. */
static void each_other(struct step *s, const struct ledger_gang *gang, struct span uid,
                       void (*visit)(struct step *, struct ledger_reservation *, void *),
                       void *ctx)
{
    for (const struct ledger_member *m = gang ? gang->members : NULL; m; m = m->next) {
        struct ledger_reservation *r =
            span_eq(m->pod->uid, uid)
                ? NULL
                : ledger_reservation_find(s->core->ledger, m->pod->uid);
        if (r)
            visit(s, r, ctx);
    }
}

static void end_one(struct step *s, struct ledger_reservation *r, void *ctx)
{
    (void)ctx;
    reserve_end(s, r->uid);
}

static void add_limit(struct step *s, struct ledger_reservation *r, void *ctx)
{
    int64_t *until_ms = ctx;
    (void)s;
    if (r->until_ms < *until_ms)
        *until_ms = r->until_ms;
}

void gang_lost(struct step *s, struct span uid)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, uid);
    if (pod && pod->member)
        each_other(s, pod->member->gang, uid, end_one, NULL);
}

static bool is_candidate(const struct core_input *in, const struct ledger_node *node)
{
    for (size_t i = 0; i < in->n_nodes; i++)
        if (span_eq(in->nodes[i], node->name))
            return true;
    return false;
}

/* Does the reservation still serve the pod: the node is offered, and the cards suit? */
static bool serves(struct step *s, const struct ledger_reservation *r)
{
    const struct core_input *in = s->in;
    const struct request *request = in->request;
    const struct select_pod asks = {request, in->priority, in->uid, NULL};
    uint64_t chosen;
    bool whole = request->kind == REQUEST_CARDS;
    if (!is_candidate(in, r->node) || r->whole != whole ||
        r->n_shares != request->cards || r->priority != in->priority ||
        (!whole && r->shares[0].mib != request->mib_per_card) ||
        r->core != request->core || !select_bind(r->node, &asks, &chosen))
        return false;
    for (uint32_t i = 0; i < r->n_shares; i++, chosen &= chosen - 1)
        if (r->shares[i].on != &r->node->cards[__builtin_ctzll(chosen)])
            return false;
    return true;
}

/* The nodes of the input, each once. */
static size_t list_nodes(struct step *s, const struct ledger_node ***list)
{
    const struct core_input *in = s->in;
    const struct ledger *l = s->core->ledger;
    struct arena *a = &s->core->scratch;
    uint8_t *seen = arena_zalloc(a, ledger_node_slots(l) + 1);
    size_t n = 0;
    *list = arena_alloc(a, (in->n_nodes + 1) * sizeof **list);
    for (size_t i = 0; i < in->n_nodes; i++) {
        const struct ledger_node *node = ledger_node_find(l, in->nodes[i]);
        if (!node || seen[node->id])
            continue;
        seen[node->id] = 1;
        (*list)[n++] = node;
    }
    return n;
}

static void reserve_member(struct step *s, const struct gang_plan_member *m,
                           int64_t until_ms)
{
    const struct core_input *in = s->in;
    const struct reserve_claim claim = {
        .uid = m->uid,
        .ns = m->pod ? m->pod->ns : in->ns,
        .name = m->pod ? m->pod->name : in->name,
        .priority = m->pod ? m->pod->priority : in->priority,
        .request = m->request,
        .requests = m->requests,
        .until_ms = until_ms,
        .joint = true,
    };
    reserve_on(s, &claim, m->node, m->cards);
}

/* Reserves for all that were placed. Cards are chosen on each node in the order of the
 * plan, so what a member takes was free when the plan was made. */
static void reserve_all(struct step *s, const struct gang_verdict *v, int64_t until_ms)
{
    size_t n = MUTANT(gang_in_part) ? 1 : v->n_members;
    for (size_t i = 0; i < n; i++)
        if (v->members[i].placed && v->members[i].cards)
            reserve_member(s, &v->members[i], until_ms);
}

static bool has_space(const struct step *s)
{
    return ledger_reservations(s->core->ledger) + GANG_PLAN_MEMBERS <
           CORE_RESERVATIONS_MAX;
}

enum core_reserve_outcome gang_reserve(struct step *s, const struct ledger_node **node,
                                       struct buf *why)
{
    const struct core_input *in = s->in;
    struct ledger *l = s->core->ledger;
    struct gang_verdict v;
    const struct ledger_node **nodes;
    const struct ledger_gang *gang = ledger_gang_find(l, in->ns, in->gang);
    const struct gang_asker asker = {.pod = {in->request, in->priority, in->uid, gang},
                                     .name = in->gang->name,
                                     .minimum = in->gang->minimum,
                                     .requests = in->requests};
    struct ledger_reservation *own = ledger_reservation_find(l, in->uid);
    if (own && serves(s, own) &&
        (gang_judge_is_settled(l, &asker) || MUTANT(gang_of_old_members))) {
        if (MUTANT(gang_reservation_leaks))
            own->until_ms = INT64_MAX;
        *node = own->node;
        return CORE_RESERVE_DONE;
    }
    int64_t until_ms = s->now.mono_ms + CORE_GANG_RESERVATION_MS;
    if (own)
        add_limit(s, own, &until_ms);
    /* The caller wakes pending pods, if its cards are free after this step. */
    if (own)
        ledger_reservation_end(l, own);
    if (!has_space(s))
        return CORE_RESERVE_FULL;
    size_t n = list_nodes(s, &nodes);
    bool spread = in->request->placement == PLACE_SPREAD;
    gang_judge(l, &asker, nodes, n, spread, &s->core->scratch, &v);
    if (!v.fits) {
        gang_judge_reason(why, &asker, &v);
        if (v.placed >= v.needed) /* they can start without this one */
            return CORE_RESERVE_GANG_REJECTED;
        if (!MUTANT(gang_keeps_a_part))
            each_other(s, gang, in->uid, end_one, NULL);
        buf_adds(why, "; none starts before all can");
        return CORE_RESERVE_GANG_REJECTED;
    }
    each_other(s, gang, in->uid, add_limit, &until_ms);
    reserve_all(s, &v, until_ms);
    *node = v.members[0].node;
    return CORE_RESERVE_DONE;
}
