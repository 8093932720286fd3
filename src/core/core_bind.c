/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/reason.h"

/*
 * From the request of kube-scheduler to the Binding: reserves the cards in the ledger and
 * sends the Binding. core.h has the life of a promise; core_bind_outcome.c determines the
 * outcome.
 */

enum {
    SEND_WITHIN_MS = 1000, /* the Binding leaves within this time of its reservation */
};

static bool reject_fit(const struct ledger_node *node, const struct request *r,
                       struct err *err)
{
    cleanup_buf struct buf why = {0};
    reason_add(&why, node, r, select_fit(node, r));
    err_set(err, ERR_CONFLICT, "no card of node %.*s fits: %s", SPAN_ARG(node->name),
            why.p);
    return false;
}

/* nvidia.com/gpu: the pod counts on the node from now on, and gets no annotations. */
static bool promise_devices(struct step *s, struct ledger_pod *pod, struct span node_name,
                            struct err *err)
{
    struct ledger *l = s->core->ledger;
    const struct ledger_node *node = ledger_node_find(l, node_name);
    const struct select_pod asks = select_pod_of(pod);
    enum fit fit = node ? select_fit(node, pod->request) : FIT_YES;
    if (fit != FIT_YES && node->reserved)
        fit = select_fit_pod(node, &asks);
    if (fit != FIT_YES)
        return reject_fit(node, pod->request, err);
    if (!node && !request_fits_anywhere(pod->request)) {
        err_set(err, ERR_CONFLICT, "node %.*s is unknown to the extender",
                SPAN_ARG(node_name));
        return false;
    }
    ledger_pod_place(l, pod, node_name, NULL, 0);
    return true;
}

/* Puts the promise into the ledger and writes the annotations. False with err when the
 * pod does not fit. */
static bool promise_cards(struct step *s, struct ledger_pod *pod, struct span node_name,
                          struct buf *annotations, struct err *err)
{
    struct core *core = s->core;
    struct ledger *l = core->ledger;
    const struct ledger_node *node = ledger_node_find(l, node_name);
    const struct request *r = pod->request;
    int64_t unit = core->settings.ledger.unit_mib;
    struct select_pod asks = select_pod_of(pod);
    uint64_t chosen;
    if (r->kind == REQUEST_DEVICES)
        return promise_devices(s, pod, node_name, err);
    if (!node) {
        err_set(err, ERR_CONFLICT, "node %.*s is unknown to the extender",
                SPAN_ARG(node_name));
        return false;
    }
    if (MUTANT(reservation_ignored_by_bind))
        asks.priority = INT64_MAX;
    if (!select_bind(node, &asks, &chosen))
        return reject_fit(node, r, err);
    struct promise_share *written =
        arena_zalloc(&core->scratch, r->cards * sizeof *written);
    struct ledger_share *shares = arena_zalloc(&core->scratch, r->cards * sizeof *shares);
    for (uint32_t i = 0; i < r->cards; i++, chosen &= chosen - 1) {
        const struct card *card = &node->cards[__builtin_ctzll(chosen)];
        bool whole = r->kind == REQUEST_CARDS;
        shares[i].card = written[i].card = card->index;
        shares[i].uuid = written[i].uuid = card->uuid;
        shares[i].mib = whole ? card->total_mib : r->mib_per_card;
        written[i].card_units = card->total_mib / unit;
        written[i].units = whole ? written[i].card_units : r->units / r->cards;
    }
    /* No two promises of one process have the same time. */
    if (core->last_assume_ns >= s->now.wall_ns)
        core->last_assume_ns++;
    else
        core->last_assume_ns = s->now.wall_ns;
    promise_write(annotations, &(struct promise){.shares = written, .n = r->cards}, r,
                  core->last_assume_ns);
    if (!MUTANT(reservation_leaks))
        reserve_end_at(s, pod->uid, node_name);
    ledger_pod_place(l, pod, node_name, shares, r->cards);
    reserve_yield(s, node_name, pod->priority);
    return true;
}

/* Sends the Binding, after the reservation if there is one. */
static void send(struct step *s, struct bind_op *op, const struct buf *annotations)
{
    op->state = BIND_OP_SENT;
    op->call = core_next_id(s->core);
    struct clock_deadline until = leader_bind_deadline(s->core);
    if (MUTANT(lease_ignored))
        until = (struct clock_deadline){INT64_MAX,
                                        clock_offset_ms(s->now.mono_ms, s->now.wall_ns)};
    if (until.mono_ms > s->now.mono_ms + SEND_WITHIN_MS)
        until.mono_ms = s->now.mono_ms + SEND_WITHIN_MS;
    /* The Binding leaves before `until` and takes effect within CORE_BIND_LIMIT_MS. */
    op->proof_ms = until.mono_ms + CORE_BIND_LIMIT_MS + CORE_CHECK_AFTER_MS;
    const char *ns = output_str(s, op->ns), *name = output_str(s, op->name);
    const char *uid = output_str(s, op->uid), *node = output_str(s, op->node);
    const char *notes = annotations->n ? output_str(s, buf_span(annotations)) : NULL;
    struct core_output *o = output_add(s, CORE_CALL_BIND);
    o->call = op->call;
    o->ns = ns;
    o->name = name;
    o->uid = uid;
    o->node = node;
    o->annotations = notes;
    o->send_by = MUTANT(send_by_ignored) ? (struct clock_deadline){0} : until;
}

void bind_start(struct step *s, struct bind_op *op, struct ledger_pod *pod, bool zero)
{
    const struct core_input *in = s->in;
    cleanup_buf struct buf annotations = {0};
    struct err err = {0};
    struct span node = op ? op->node : in->node_name;
    if (core_may_bind(s->core, s->now, &err))
        goto reject;
    if (pod && pod->invalid_reason) {
        err_set(&err, ERR_INVALID, "%s", pod->invalid_reason);
        goto reject;
    }
    if (!pod && !zero && !s->core->settings.bind_any) {
        err_set(&err, ERR_INVALID,
                "the pod requests no GPU memory and no cards; the extender "
                "binds such pods only with --bind-any");
        goto reject;
    }
    if (pod && !promise_cards(s, pod, node, &annotations, &err))
        goto reject;
    if (!op) {
        op = bind_op_new(s->core, in->uid, in->ns, in->name, in->node_name);
        bind_op_join(op, in->token, in->node_name);
    }
    op->plain = !pod;
    send(s, op, &annotations);
    return;
reject:
    if (!op) {
        output_reply(s, in->token, err.code, "%s", err.msg);
        return;
    }
    bind_op_answer_error(s, op, err.code, err.msg);
    bind_op_end(s, op);
}

void bind_requested(struct step *s)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    struct err err = {0};
    struct bind_op *op = bind_op_find(core, in->uid);
    struct ledger_pod *pod = ledger_pod_find(core->ledger, in->uid);
    struct span ns = pod ? pod->ns : op ? op->ns : in->ns;
    struct span name = pod ? pod->name : op ? op->name : in->name;
    if (!span_eq(ns, in->ns) || !span_eq(name, in->name)) {
        output_reply(s, in->token, ERR_INVALID, "UID %.*s belongs to pod %.*s/%.*s",
                     SPAN_ARG(in->uid), SPAN_ARG(ns), SPAN_ARG(name));
    } else if (MUTANT(double_reserve) && op && pod && pod->node) {
        bind_start(s, NULL, pod, false);
    } else if (op) {
        bind_op_join(op, in->token, in->node_name);
    } else if (pod && pod->node) {
        bind_op_reply_bound(s, in->token, in->node_name, pod->node->name);
    } else if (pod) {
        bind_start(s, NULL, pod, false);
    } else if (core_may_bind(core, s->now, &err)) {
        output_reply(s, in->token, err.code, "%s", err.msg);
    } else {
        op = bind_op_new(core, in->uid, in->ns, in->name, in->node_name);
        bind_op_join(op, in->token, in->node_name);
        op->state = BIND_OP_FETCHING;
        bind_op_get(s, op);
    }
}
