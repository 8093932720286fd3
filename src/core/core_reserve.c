/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/reason.h"

/*
 * Reservations: cards that are kept for a pod from filter to bind (core.h). The ledger has
 * them beside the promises; a bind finds them there (placement_choose_seen).
 *
 * kube-scheduler judges one pod after the other, but binds them later and in parallel. So
 * without reservations several pods are sent to the same cards, and all but one of their
 * binds fail.
 */

static void end(struct step *s, struct ledger_reservation *r)
{
    struct wakeup_fits before = wakeup_before(s, r->node->name);
    ledger_reservation_end(s->core->ledger, r);
    wakeup_after(s, &before);
}

void reserve_end(struct step *s, struct span uid)
{
    struct ledger_reservation *r = ledger_reservation_find(s->core->ledger, uid);
    if (r)
        end(s, r);
}

void reserve_end_at(struct step *s, struct span uid, struct span node)
{
    struct ledger_reservation *r = ledger_reservation_find(s->core->ledger, uid);
    if (r && span_eq(r->node->name, node))
        ledger_reservation_end(s->core->ledger, r);
    else if (r)
        end(s, r);
}

void reserve_yield(struct step *s, struct span node_name, int64_t priority)
{
    const struct ledger_node *node = ledger_node_find(s->core->ledger, node_name);
    struct ledger_reservation *lost;
    while (node && !MUTANT(weaker_reservation_stays) &&
           (lost = ledger_reservation_lost(node, priority))) {
        output_log(s, ERR_NONE,
                   "node %.*s: the reservation of pod %.*s/%.*s has ended: a pod of "
                   "higher priority has its cards",
                   SPAN_ARG(node->name), SPAN_ARG(lost->ns), SPAN_ARG(lost->name));
        if (lost->joint || MUTANT(basic_members_end_together))
            gang_lost(s, lost->uid);
        end(s, lost);
    }
}

void reserve_drop_all(struct step *s)
{
    struct ledger_reservation *r;
    while ((r = ledger_first_reservation(s->core->ledger)))
        ledger_reservation_end(s->core->ledger, r);
}

void reserve_on(struct step *s, const struct reserve_claim *claim,
                const struct ledger_node *node, uint64_t chosen)
{
    const struct request *request = claim->request;
    struct ledger_share *shares =
        arena_zalloc(&s->core->scratch, request->cards * sizeof *shares);
    for (uint32_t i = 0; i < request->cards; i++, chosen &= chosen - 1) {
        const struct card *card = &node->cards[__builtin_ctzll(chosen)];
        shares[i] = (struct ledger_share){
            .card = card->index, .mib = request->mib_per_card, .uuid = card->uuid};
    }
    const struct ledger_reservation r = {
        .uid = claim->uid,
        .ns = claim->ns,
        .name = claim->name,
        .priority = claim->priority,
        .whole = request->kind == REQUEST_CARDS,
        .joint = claim->joint,
        .core = request->core,
        .shares = shares,
        .n_shares = request->cards,
        .requests = {claim->requests.cpu_milli, claim->requests.memory, 1},
        .until_ms = claim->until_ms,
    };
    ledger_reserve(s->core->ledger, &r, node->name);
    reserve_yield(s, node->name, claim->priority);
}

/* Do reservations leave the pod its CPU, memory and slot? What pods take is known better to
 * kube-scheduler, which offers the node. */
static bool has_space(const struct core_input *in, const struct ledger_node *node)
{
    const struct resources wanted = {in->requests.cpu_milli, in->requests.memory, 1};
    if (!node->has_reserved)
        return true;
    struct resources seen = ledger_requests_seen(node, in->priority, in->uid);
    return ledger_requests_fit(node, &seen, &wanted);
}

/* The first of the nodes that fits, and the cards there; NULL: none. A node whose CPU is
 * reserved for other pods comes last, and is not refused: kube-scheduler knows nothing of
 * that, and would not retry the pod when the reservations end. */
static const struct ledger_node *choose(struct step *s, uint64_t *chosen)
{
    const struct core_input *in = s->in;
    const struct select_pod asks = {in->request, in->priority, in->uid, NULL};
    for (size_t i = 0; i < 2 * in->n_nodes; i++) {
        const struct ledger_node *node =
            ledger_node_find(s->core->ledger, in->nodes[i % in->n_nodes]);
        if (node && has_space(in, node) == (i < in->n_nodes) &&
            select_fit_pod(node, &asks) == FIT_YES && select_bind(node, &asks, chosen))
            return node;
    }
    return NULL;
}

/* For a pod that is in no gang. `until_ms`: the time limit of its earlier reservation, which
 * is not renewed: a pod whose start fails elsewhere must not keep its cards while it is
 * retried. When the limit has passed, pending pods are woken before it is its turn again. */
static const struct ledger_node *reserve_one(struct step *s, int64_t until_ms)
{
    const struct core_input *in = s->in;
    int64_t longest_ms = s->now.mono_ms + CORE_RESERVATION_MS;
    uint64_t chosen;
    const struct ledger_node *node = choose(s, &chosen);
    const struct reserve_claim claim = {.uid = in->uid,
                                        .ns = in->ns,
                                        .name = in->name,
                                        .priority = in->priority,
                                        .request = in->request,
                                        .requests = in->requests,
                                        .until_ms = until_ms < longest_ms ? until_ms
                                                                          : longest_ms};
    if (node)
        reserve_on(s, &claim, node, chosen);
    return node;
}

/* The outcome without a look at the nodes: CORE_RESERVE_DONE if they are to be judged. Cards
 * are reserved only for a pod without a promise, and only where binds are decided. */
static enum core_reserve_outcome check_request(struct step *s, bool replaces,
                                               const struct ledger_node **promised,
                                               struct err *err)
{
    const struct core *core = s->core;
    const struct ledger_pod *pod = ledger_pod_find(core->ledger, s->in->uid);
    const struct bind_op *op = bind_op_find(core, s->in->uid);
    if (!s->in->n_nodes)
        return CORE_RESERVE_NO_NODE;
    if ((pod && pod->node) || op) {
        *promised = pod && pod->node ? pod->node : ledger_node_find(core->ledger, op->node);
        return CORE_RESERVE_PROMISED;
    }
    if (core_may_bind(core, s->now, err))
        return CORE_RESERVE_NOT_NOW;
    if (ledger_reservations(core->ledger) - replaces >= CORE_RESERVATIONS_MAX)
        return CORE_RESERVE_FULL;
    return CORE_RESERVE_DONE;
}

/* Reservations whose time limit has passed end first: the tick of this step comes after the
 * answer, and would end what was answered. */
void reserve_requested(struct step *s)
{
    const struct core_input *in = s->in;
    cleanup_buf struct buf why = {0};
    struct err err = {0};
    const struct ledger_node *node = NULL;
    reserve_tick(s);
    struct ledger_reservation *old = ledger_reservation_find(s->core->ledger, in->uid);
    struct wakeup_fits before =
        wakeup_before(s, old ? old->node->name : (struct span){0});
    int64_t until_ms = old && !MUTANT(reservation_renewed) ? old->until_ms : INT64_MAX;
    enum core_reserve_outcome outcome = check_request(s, old != NULL, &node, &err);
    if (outcome == CORE_RESERVE_DONE && in->gang) {
        outcome = gang_reserve(s, &node, &why);
    } else if (old) {
        ledger_reservation_end(s->core->ledger, old);
    }
    if (outcome == CORE_RESERVE_DONE && !in->gang) {
        node = reserve_one(s, until_ms);
        outcome = node ? CORE_RESERVE_DONE : CORE_RESERVE_NO_NODE;
    }
    wakeup_after(s, &before);
    if (outcome == CORE_RESERVE_NOT_NOW)
        buf_adds(&why, err.msg);
    const char *name = node ? output_str(s, node->name) : NULL;
    const char *text = why.n ? output_str(s, buf_span(&why)) : NULL;
    struct core_output *o = output_add(s, CORE_RESERVED);
    o->token = in->token;
    o->reserve = outcome;
    o->node = name;
    o->text = text;
}

void reserve_tick(struct step *s)
{
    struct ledger_reservation *r;
    while ((r = ledger_first_reservation(s->core->ledger)) &&
           r->until_ms <= s->now.mono_ms)
        end(s, r);
}

int64_t reserve_due(const struct core *core)
{
    const struct ledger_reservation *r = ledger_first_reservation(core->ledger);
    return r ? r->until_ms : INT64_MAX;
}
