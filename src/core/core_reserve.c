/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/gang.h"
#include "placement/reason.h"

/*
 * Reservations: cards that are kept for a pod from filter to bind (core.h). The ledger has
 * them beside the promises; a bind finds them there (select_bind).
 *
 * kube-scheduler judges one pod after the other, but binds them later and in parallel. So
 * without reservations several pods are sent to the same cards, and all but one of their
 * binds fail.
 *
 * filter's request is core_reserve_requested; gangs are apart, in gang_reserve at the end.
 */

static void end_reservation(struct step *s, struct ledger_reservation *r)
{
    struct wakeup_fits before = core_wakeup_before(s, r->node->name);
    ledger_reservation_end(s->core->ledger, r);
    core_wakeup_after(s, &before);
}

void core_reserve_end(struct step *s, struct span uid, struct span node)
{
    struct ledger_reservation *r = ledger_reservation_find(s->core->ledger, uid);
    if (r && span_eq(r->node->name, node))
        ledger_reservation_end(s->core->ledger, r);
    else if (r)
        end_reservation(s, r);
}

void core_reserve_end_gang(struct step *s, const struct ledger_gang *gang)
{
    struct ledger_reservation *r;
    for (const struct ledger_member *m = gang ? gang->members : NULL; m; m = m->next)
        if ((r = ledger_reservation_find(s->core->ledger, m->pod->uid)))
            end_reservation(s, r);
}

/* If it was made with those of its gang, these end, too. */
static void reservation_lost(struct step *s, struct ledger_reservation *r,
                             const char *why)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, r->uid);
    core_log(s, ERR_NONE, "node %.*s: the reservation of pod %.*s/%.*s has ended: %s",
             SPAN_ARG(r->node->name), SPAN_ARG(r->ns), SPAN_ARG(r->name), why);
    if ((r->joint || MUTANT(basic_members_end_together)) && pod && pod->member)
        core_gang_lost(s, pod->member->gang, "a member has lost its cards");
    else
        end_reservation(s, r);
}

void core_reserve_yield(struct step *s, struct span node_name, int64_t priority)
{
    const struct ledger_node *node = ledger_node_find(s->core->ledger, node_name);
    struct ledger_reservation *lost;
    while (node && !MUTANT(weaker_reservation_stays) &&
           (lost = ledger_reservation_lost(node, priority)))
        reservation_lost(s, lost, "a pod of higher priority has its cards");
}

void core_reserve_review(struct step *s)
{
    const struct ledger_node *node;
    while ((node = ledger_next_changed(s->core->ledger))) {
        struct ledger_reservation *r = select_reservation_lost(s->core->ledger, node);
        if (r) /* the node changes, so the others are judged again */
            reservation_lost(s, r, "the node or its cards do not serve it any more");
    }
}

void core_reserve_drop_all(struct step *s)
{
    struct ledger_reservation *r;
    while ((r = ledger_first_reservation(s->core->ledger)))
        ledger_reservation_end(s->core->ledger, r);
}

void core_reserve_for(struct step *s, const struct gang_plan_member *m, int64_t until_ms,
                      bool joint)
{
    const struct core_input *in = s->in;
    const struct request *request = request_on(m->request, m->node->dialect);
    struct ledger_reservation r = {
        .uid = m->uid,
        .ns = m->pod ? m->pod->ns : in->ns,
        .name = m->pod ? m->pod->name : in->name,
        .priority = m->pod ? m->pod->priority : in->priority,
        .request = request,
        .requests = m->requests,
        .until_ms = until_ms,
        .joint = joint,
        .n_shares = request->cards,
        .shares = arena_zalloc(&s->core->scratch, request->cards * sizeof *r.shares)};
    uint64_t chosen = m->cards;
    if (request->kind == REQUEST_DEVICES) /* whose cards the kubelet chooses */
        return;
    for (uint32_t i = 0; i < request->cards; i++, chosen &= chosen - 1) {
        const struct card *card = &m->node->cards[__builtin_ctzll(chosen)];
        r.shares[i] = (struct ledger_share){
            .card = card->index,
            .mib = request->kind == REQUEST_CARDS
                       ? card->total_mib
                       : request_mib(request, card->total_mib, card->kind->kept_mib),
            .uuid = card->uuid};
    }
    ledger_reserve(s->core->ledger, &r, m->node->name);
    core_reserve_yield(s, m->node->name, r.priority);
}

/* -- the request of filter -- */

static enum core_reserve_outcome gang_reserve(struct step *s,
                                              const struct ledger_node **node,
                                              struct buf *why); /* below */

/* Do reservations leave the pod its CPU, memory and slot? What pods take is known better to
 * kube-scheduler, which offers the node. */
static bool node_has_space(const struct core_input *in, const struct ledger_node *node)
{
    if (!node->has_reserved)
        return true;
    struct resources seen = ledger_requests_seen(node, in->priority, in->uid);
    return ledger_requests_fit(node, &seen, &in->requests);
}

/* The first of the nodes that fits, and the cards there; NULL: none. A node whose CPU is
 * reserved for other pods comes last, and is not refused: kube-scheduler knows nothing of
 * that, and would not retry the pod when the reservations end. */
static const struct ledger_node *choose_node(struct step *s, uint64_t *chosen)
{
    const struct core_input *in = s->in;
    const struct select_pod asks = {in->request, in->priority, in->uid, NULL};
    for (size_t i = 0; i < 2 * in->n_nodes; i++) {
        const struct ledger_node *node =
            ledger_node_find(s->core->ledger, in->nodes[i % in->n_nodes]);
        if (node && node_has_space(in, node) == (i < in->n_nodes) &&
            select_bind(node, &asks, chosen) &&
            !core_quota_check(s->core, s->now, in->ns, in->uid, in->request, node,
                              *chosen, NULL))
            return node;
    }
    return NULL;
}

/* The outcome without a look at the nodes: CORE_RESERVE_DONE if they are to be judged. Cards
 * are reserved only for a pod without a promise, and only where binds are decided. */
static enum core_reserve_outcome check_request(struct step *s, bool replaces,
                                               const struct ledger_node **promised,
                                               struct err *err)
{
    const struct core *core = s->core;
    const struct ledger_pod *pod = ledger_pod_find(core->ledger, s->in->uid);
    const struct bind_op *op = core_bind_find(core, s->in->uid);
    if (!s->in->n_nodes)
        return CORE_RESERVE_NO_NODE;
    if ((pod && pod->node) || op) {
        *promised =
            pod && pod->node ? pod->node : ledger_node_find(core->ledger, op->node);
        return CORE_RESERVE_PROMISED;
    }
    if (core_check_may_bind(core, s->now, err))
        return CORE_RESERVE_NOT_NOW;
    if (ledger_totals(core->ledger).reservations - replaces >= CORE_RESERVATIONS_MAX)
        return CORE_RESERVE_FULL;
    return CORE_RESERVE_DONE;
}

/* Reservations whose time limit has passed end first: the tick of this step comes after the
 * answer, and would end what was answered.
 *
 * The time limit of an earlier reservation is not renewed: a pod whose start fails elsewhere
 * must not keep its cards while it is retried. When the limit has passed, pending pods are
 * woken before it is its turn again. */
void core_reserve_requested(struct step *s)
{
    const struct core_input *in = s->in;
    cleanup_buf struct buf why = {0};
    struct err err = {0};
    const struct ledger_node *node = NULL;
    core_reserve_tick(s);
    core_bind_forgotten(s, in->uid);
    core_gang_tick(s); /* as late */
    struct ledger_reservation *old = ledger_reservation_find(s->core->ledger, in->uid);
    struct wakeup_fits before =
        core_wakeup_before(s, old ? old->node->name : (struct span){0});
    int64_t until_ms = old && !MUTANT(reservation_renewed) ? old->until_ms : INT64_MAX;
    enum core_reserve_outcome outcome = check_request(s, old != NULL, &node, &err);
    if (outcome == CORE_RESERVE_DONE && in->gang) {
        outcome = gang_reserve(s, &node, &why);
    } else if (old) {
        ledger_reservation_end(s->core->ledger, old);
    }
    if (outcome == CORE_RESERVE_DONE && !in->gang) {
        uint64_t chosen;
        node = choose_node(s, &chosen);
        step_due(&until_ms, s->now.mono_ms + CORE_RESERVATION_MS);
        if (node)
            core_reserve_for(s,
                             &(struct gang_plan_member){.uid = in->uid,
                                                        .request = in->request,
                                                        .requests = in->requests,
                                                        .node = node,
                                                        .cards = chosen},
                             until_ms, false);
        else
            outcome = CORE_RESERVE_NO_NODE;
    }
    core_wakeup_after(s, &before);
    if (outcome == CORE_RESERVE_NOT_NOW)
        buf_adds(&why, err.msg);
    struct core_output *o = core_output_add(s, CORE_RESERVED);
    o->token = in->token;
    o->reserve = outcome;
    o->node = node ? step_text(s->out, node->name) : NULL;
    o->text = why.n ? step_text(s->out, buf_span(&why)) : NULL;
}

void core_reserve_tick(struct step *s)
{
    struct ledger_reservation *r;
    while ((r = ledger_first_reservation(s->core->ledger)) &&
           r->until_ms <= s->now.mono_ms && !MUTANT(reservation_without_limit))
        end_reservation(s, r);
}

int64_t core_reserve_due(const struct core *core)
{
    const struct ledger_reservation *r = ledger_first_reservation(core->ledger);
    return r ? r->until_ms : INT64_MAX;
}

/* -- gangs -- */

/*
 * Gangs (domain/gang.h): when kube-scheduler asks about one member, either all members that
 * have no place yet get reservations in this step, or none does and those of the gang end
 * (unless as many as must start have a place without this member). That is a forecast, which
 * keeps gangs apart that need the same cards; the bind decides (core_gang.c). A member whose
 * node is not offered to it is planned again by itself. Members that are bound keep their
 * promises.
 *
 * The reservations of a gang have one time limit. It is longer than that of a single pod,
 * because the first members wait at kube-scheduler's Permit for the last: the coscheduling
 * plugin lets them wait for 60 s by default (PermitWaitingTimeSeconds).
 *
 * Members that do not wait for each other (policy basic of their PodGroup, which filter has
 * read) are reserved for as single pods, and lose their reservations alone.
 *
 * Controllers create members one after another. So a gang whose minimum is known waits for
 * members that do not exist, for gang_wait_ms from the creation of the oldest that does, as this
 * process has seen it. Meanwhile filter answers an error, because kube-scheduler retries a pod
 * after an error by itself (with its back-off), and a rejected pod only after an event.
 *
 * A reservation that a gang has is not renewed by a later filter. Otherwise a gang could
 * keep its cards forever although one member cannot start for another reason.
 */

/* Does the reservation, which holds, still serve the pod: is the node offered and not answered in
 * vain before, and the request the same? */
static bool serves(const struct step *s, const struct ledger_reservation *r)
{
    const struct core_input *in = s->in;
    bool offered = false;
    for (size_t i = 0; i + in->n_last < in->n_nodes && !offered; i++)
        offered = span_eq(in->nodes[i], r->node->name);
    return offered && r->priority == in->priority &&
           request_equal(r->request, request_on(in->request, r->node->dialect));
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

/* Do the quotas of the namespace allow what all that were placed take? The others have theirs. */
static bool is_allowed(const struct step *s, const struct gang_verdict *v,
                       struct buf *why)
{
    struct quota_amounts sum = {0};
    for (size_t i = 0; i < v->n_members; i++) {
        const struct gang_plan_member *m = &v->members[i];
        struct quota_amounts more = core_quota_amounts(m->request, m->node, m->cards);
        for (int k = 0; m->placed && k < QUOTA_RESOURCES; k++)
            sum.of[k] += more.of[k];
    }
    buf_printf(why, "gang %.*s: ", SPAN_ARG(s->in->gang->name));
    if (!quotas_allow(ledger_quotas(s->core->ledger), s->in->ns, sum,
                      (struct quota_amounts){0}, why))
        return false;
    buf_clear(why);
    return true;
}

/* Reserves for all members that have no place yet, and sets the node of the pod in the
 * input; or ends all reservations of the gang and appends the reason. */
static enum core_reserve_outcome
gang_reserve(struct step *s, const struct ledger_node **node, struct buf *why)
{
    const struct core_input *in = s->in;
    struct ledger *l = s->core->ledger;
    struct gang_verdict v;
    const struct ledger_node **nodes;
    const struct ledger_gang *gang = ledger_gang_find(l, in->ns, in->gang);
    const struct gang_asker asker = {.pod = {in->request, in->priority, in->uid, gang},
                                     .name = in->gang->name,
                                     .minimum = in->gang->minimum,
                                     .waits = core_gang_awaits(s, gang),
                                     .scheduler = ledger_scheduler(in->scheduler),
                                     .requests = in->requests};
    struct ledger_reservation *own = ledger_reservation_find(l, in->uid);
    if (!core_gang_may_try(s, gang)) {
        core_reserve_end_gang(s, gang);
        core_reserve_end(s, in->uid, (struct span){0}); /* no watch has shown it yet */
        core_gang_reason(why, in->gang->name);
        return MUTANT(error_out_of_turn) ? CORE_RESERVE_GANG_WAITS
                                         : CORE_RESERVE_GANG_REJECTED;
    }
    gang_judge(l, &asker, NULL, 0, false, &s->core->scratch, &v);
    if (own && serves(s, own) &&
        (v.placed + v.elsewhere + 1 >= v.needed || MUTANT(gang_of_old_members))) {
        if (MUTANT(gang_reservation_leaks))
            own->until_ms = INT64_MAX;
        *node = own->node;
        return CORE_RESERVE_DONE;
    }
    int64_t until_ms = s->now.mono_ms + CORE_GANG_RESERVATION_MS;
    if (own) {
        step_due(&until_ms, own->until_ms);
        /* The caller wakes pending pods, if its cards are free after this step. */
        ledger_reservation_end(l, own);
    }
    if (ledger_totals(l).reservations + GANG_PLAN_MEMBERS >= CORE_RESERVATIONS_MAX)
        return CORE_RESERVE_FULL;
    size_t n = list_nodes(s, &nodes);
    bool spread = in->request->placement == PLACE_SPREAD;
    gang_judge(l, &asker, nodes, n, spread, &s->core->scratch, &v);
    if (v.placed + v.found + v.elsewhere < v.needed && v.placed) {
        /* What is planned for others can be all that this one is offered. */
        core_gang_release(s, gang);
        gang_judge(l, &asker, nodes, n, spread, &s->core->scratch, &v);
    }
    struct ledger_reservation *other;
    for (const struct ledger_member *m = gang ? gang->members : NULL; m; m = m->next)
        if ((other = ledger_reservation_find(l, m->pod->uid)))
            step_due(&until_ms, other->until_ms);
    if ((v.fits || v.placed) && !is_allowed(s, &v, why)) {
        core_gang_lost(s, gang, "a quota does not allow it to start");
        return CORE_RESERVE_GANG_REJECTED;
    }
    /* Also without this one? */
    bool start = v.placed + v.found + v.elsewhere >= v.needed;
    bool all = v.fits || (start && v.placed); /* no gang keeps a part of its cards */
    /* Cards are chosen on each node in the order of the plan, so what a member takes was free when
     * the plan was made. */
    for (size_t i = 0; all && i < (MUTANT(gang_in_part) ? 1 : v.n_members); i++)
        if (v.members[i].placed && v.members[i].cards)
            core_reserve_for(s, &v.members[i], until_ms, true);
    if (!v.fits) {
        gang_judge_reason(why, &asker, &v);
        if (start)
            return CORE_RESERVE_GANG_REJECTED;
        if (!MUTANT(gang_keeps_a_part))
            core_gang_lost(s, gang, "a member finds no place");
        if (v.needed > v.total - v.gated)
            return CORE_RESERVE_GANG_WAITS;
        buf_adds(why, "; none starts before all can");
        return CORE_RESERVE_GANG_REJECTED;
    }
    *node = v.members[0].node;
    return CORE_RESERVE_DONE;
}
