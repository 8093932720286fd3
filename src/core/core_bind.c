/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/reason.h"

/*
 * What bind decides, from the request of kube-scheduler to the outcome of the Binding (core.h,
 * "Life of a promise"): puts the promise into the ledger and sends the Binding, one per pod UID.
 * GETs decide where the answer of the Binding does not. The verb, with its body, reply and the way
 * to the leader, is extender/bind.c. Binds of gangs are held in core_gang.c.
 */

enum {
    SEND_WITHIN_MS = 1000, /* the Binding leaves within this time of its promise */
    GET_RETRY_MIN_MS = 250,
    GET_RETRY_MAX_MS = 5000,
};

/* -- operations, with the callers that wait for the outcome -- */

struct bind_op *core_bind_find(const struct core *core, struct span uid)
{
    return map_get(&core->bind_ops_by_uid, uid);
}

/* New, in the core, in state FETCHING. Copies the strings. */
static struct bind_op *bind_op_new(struct core *core, struct span uid, struct span ns,
                                   struct span name, struct span node)
{
    struct bind_op *op = xcalloc(1, sizeof *op);
    op->uid = arena_copy(&op->strings, uid);
    op->ns = arena_copy(&op->strings, ns);
    op->name = arena_copy(&op->strings, name);
    op->node = arena_copy(&op->strings, node);
    list_prepend(&core->bind_ops, &op->link);
    map_set(&core->bind_ops_by_uid, op);
    return op;
}

/* Removes it from the core and frees it. */
static void bind_op_end(struct core *core, struct bind_op *op)
{
    list_remove(&op->link);
    map_remove(&core->bind_ops_by_uid, op->uid);
    free(op->waiters);
    arena_fini(&op->strings);
    free(op);
}

void core_bind_fini(struct core *core)
{
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    bind_op_end(core, op);
    map_fini(&core->bind_ops_by_uid);
}

/* Adds a caller that waits for the outcome. */
static void bind_op_join(struct bind_op *op, uint64_t token, struct span node)
{
    MEM_GROW(op->waiters, op->waiters_cap, op->n_waiters + 1);
    op->waiters[op->n_waiters++] = (struct waiter){token, arena_copy(&op->strings, node)};
}

/* Replies to a caller; `err` says why the pod is not bound. */
static void reply(struct step *s, uint64_t token, enum core_bind_outcome outcome,
                  const struct err *err)
{
    struct core_output *o = core_output_add(s, CORE_REPLY);
    o->token = token;
    o->bind = outcome;
    o->code = err->code;
    o->text = step_text(s->out, span_of(err->msg));
}

/* Replies to a caller that wants the pod on `wanted`; it is bound to `node`. */
static void reply_bound(struct step *s, uint64_t token, struct span wanted,
                        struct span node)
{
    struct err err = {0};
    bool here = span_eq(wanted, node);
    if (!here)
        err_set(&err, ERR_CONFLICT, "the pod is already bound to node %.*s",
                SPAN_ARG(node));
    reply(s, token, here ? CORE_BOUND : CORE_BIND_REJECTED, &err);
}

/* Replies to all waiting callers that the pod is not bound. */
static void reply_all(struct step *s, struct bind_op *op, enum core_bind_outcome outcome,
                      const struct err *err)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        reply(s, op->waiters[i].token, outcome, err);
    op->n_waiters = 0;
}

void core_bind_end(struct step *s, struct bind_op *op, enum core_bind_outcome outcome,
                   const struct err *err)
{
    reply_all(s, op, outcome, err);
    bind_op_end(s->core, op);
}

void core_bind_fail(struct step *s, struct bind_op *op, const struct err *err)
{
    core_bind_end(s, op, CORE_BIND_REJECTED, err);
}

void core_bind_fail_all(struct step *s)
{
    const struct err err = {ERR_UNAVAILABLE, "the API server was restored from a backup"};
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    core_bind_end(s, op, CORE_BIND_NOT_NOW, &err);
}

/* The outcome of a bind that has begun here and ends later, without a Binding that can take effect.
 * Whether this process may bind decides it, not why the bind has ended: with NOT_NOW the caller
 * asks the next leader. */
static enum core_bind_outcome outcome_if_unbound(const struct step *s)
{
    return core_check_may_bind(s->core, s->now, NULL) ? CORE_BIND_NOT_NOW
                                                      : CORE_BIND_REJECTED;
}

/* Sends a GET of the pod. */
static void bind_op_get(struct step *s, struct bind_op *op)
{
    op->get_ms = s->now.mono_ms;
    op->overtaken = false;
    core_call(s, CORE_CALL_GET_POD, &op->call, op->ns, op->name, op->uid);
}

/* -- from the request to the Binding -- */

/* False with the reason. `node` may be NULL. */
static bool reject_node(const struct ledger_node *node, struct span name,
                        const struct request *r, struct err *err)
{
    cleanup_buf struct buf why = {0};
    if (!node) {
        err_set(err, ERR_CONFLICT, "node %.*s is unknown to the extender",
                SPAN_ARG(name));
        return false;
    }
    reason_add(&why, node, r, select_fit(node, r));
    err_set(err, ERR_CONFLICT, "no card of node %.*s fits: %s", SPAN_ARG(name), why.p);
    return false;
}

bool core_bind_judge(struct step *s, const struct ledger_pod *pod, struct span node_name,
                     const struct ledger_node **at, uint64_t *cards, struct err *err)
{
    const struct ledger_node *node = ledger_node_find(s->core->ledger, node_name);
    const struct request *r =
        request_on(pod->request, node ? node->dialect : SCV_DIALECT_NONE);
    struct select_pod asks = select_pod_of(pod);
    *at = node;
    *cards = 0;
    if (MUTANT(reservation_ignored_by_bind))
        asks.priority = INT64_MAX;
    asks.gang = pod->member ? pod->member->gang : NULL;
    if (node ? !select_bind(node, &asks, cards)
             : r->kind != REQUEST_DEVICES || !request_fits_anywhere(r))
        return reject_node(node, node_name, r, err);
    return !core_quota_check(s->core, s->now, pod->ns, pod->uid, r, node, *cards, err);
}

void core_promise_place(struct step *s, struct ledger_pod *pod, struct span node,
                        const struct ledger_share *shares, uint32_t n)
{
    struct wakeup_fits before = core_wakeup_before(s, core_nominated_to(pod));
    ledger_pod_place(s->core->ledger, pod, node, shares, n);
    core_wakeup_after(s, &before);
}

bool core_bind_promise(struct step *s, struct ledger_pod *pod, struct span node_name,
                       struct buf *annotations, struct err *err)
{
    struct core *core = s->core;
    const struct ledger_node *node;
    uint64_t chosen;
    if (!core_bind_judge(s, pod, node_name, &node, &chosen, err))
        return false;
    struct request settled =
        *request_on(pod->request, node ? node->dialect : SCV_DIALECT_NONE);
    const struct request *r = &settled;
    const bool in_mib = r->slots || r->dialect;
    int64_t unit = in_mib ? 1 : core->settings.ledger.unit_mib;
    if (r->kind == REQUEST_DEVICES) { /* it counts on the node, and gets no annotations */
        core_promise_place(s, pod, node_name, NULL, 0);
        return true;
    }
    if (in_mib) {
        const struct request_part *parts = r->parts;
        settled.parts = arena_alloc(&core->scratch, (r->n_parts + 1) * sizeof *parts);
        memcpy(settled.parts, parts, r->n_parts * sizeof *parts);
        int first = MUTANT(percent_of_another_card) ? 0 : __builtin_ctzll(chosen);
        const struct card *card = &node->cards[first];
        request_settle(&settled, request_mib(r, card->total_mib, card->kind->kept_mib),
                       card->total_mib);
    }
    struct promise_share *written =
        arena_zalloc(&core->scratch, r->cards * sizeof *written);
    struct ledger_share *shares = arena_zalloc(&core->scratch, r->cards * sizeof *shares);
    for (uint32_t i = 0; i < r->cards; i++, chosen &= chosen - 1) {
        const struct card *card = &node->cards[__builtin_ctzll(chosen)];
        bool whole = r->kind == REQUEST_CARDS;
        shares[i].card = card->index;
        written[i].card =
            MUTANT(slot_of_another_card) && in_mib ? node->cards[i].index : card->index;
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
    const struct promise promise = {.shares = written, .n = r->cards, .unit_mib = unit};
    promise_write(annotations, &promise, r, pod->uid, core->last_assume_ns);
    if (!MUTANT(reservation_leaks))
        core_reserve_end(s, pod->uid, node_name);
    core_promise_place(s, pod, node_name, shares, r->cards);
    core_reserve_yield(s, node_name, pod->priority);
    return true;
}

void core_bind_retract(struct step *s, const struct bind_op *op)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    struct wakeup_fits before = core_wakeup_before(s, op->node);
    ledger_pod_unplace(s->core->ledger, pod);
    core_wakeup_after(s, &before);
}

void core_bind_send(struct step *s, struct bind_op *op, const struct buf *annotations)
{
    op->state = BIND_OP_SENT;
    op->gang = NULL;
    struct clock_deadline until = core_leader_bind_deadline(s->core);
    if (MUTANT(lease_ignored))
        until = (struct clock_deadline){INT64_MAX,
                                        clock_offset_ms(s->now.mono_ms, s->now.wall_ns)};
    step_due(&until.mono_ms, s->now.mono_ms + SEND_WITHIN_MS);
    /* The Binding leaves before `until` and takes effect within CORE_BIND_LIMIT_MS. */
    op->proof_ms = until.mono_ms + CORE_BIND_LIMIT_MS + CORE_CHECK_AFTER_MS;
    struct core_output *o =
        core_call(s, CORE_CALL_BIND, &op->call, op->ns, op->name, op->uid);
    o->node = step_text(s->out, op->node);
    o->annotations = annotations->n ? step_text(s->out, buf_span(annotations)) : NULL;
    o->send_by = MUTANT(send_by_ignored) ? (struct clock_deadline){0} : until;
}

/* Binds a pending pod, or replies with the reason why not. `pod`: NULL: it requests nothing.
 * `zero`: it says so by a limit of 0; kube-scheduler lets the extender bind such pods. */
static void bind_start(struct step *s, struct bind_op *op, struct ledger_pod *pod,
                       bool zero)
{
    cleanup_buf struct buf annotations = {0};
    struct err err = {0};
    if (core_check_may_bind(s->core, s->now, &err)) {
        core_bind_end(s, op, CORE_BIND_NOT_NOW, &err);
        return;
    }
    if (pod && pod->invalid_reason)
        err_set(&err, ERR_INVALID, "%s", pod->invalid_reason);
    else if (!pod && !zero && !s->core->settings.bind_any)
        err_set(&err, ERR_INVALID,
                "the pod requests no GPU memory and no cards; the extender "
                "binds such pods only with --bind-any");
    else if (pod && pod->member && core_gang_holds(s, op, pod))
        return;
    else if (pod)
        core_bind_promise(s, pod, op->node, &annotations, &err);
    if (err.code != ERR_NONE)
        core_bind_fail(s, op, &err);
    else
        core_bind_send(s, op, &annotations);
}

/* New, from the input, with its caller. */
static struct bind_op *bind_op_requested(struct step *s)
{
    const struct core_input *in = s->in;
    struct bind_op *op = bind_op_new(s->core, in->uid, in->ns, in->name, in->node_name);
    op->minimum = in->gang_minimum;
    bind_op_join(op, in->token, in->node_name);
    return op;
}

void core_bind_forgotten(struct step *s, struct span uid)
{
    struct bind_op *op = core_bind_find(s->core, uid);
    if (op && op->state == BIND_OP_HELD)
        core_bind_fail(s, op,
                       &(struct err){ERR_CONFLICT, "kube-scheduler tries the pod again"});
}

void core_bind_gone(struct step *s)
{
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    {
        for (size_t i = 0; op->state == BIND_OP_HELD && i < op->n_waiters; i++)
            if (op->waiters[i].token == s->in->token)
                op->waiters[i--] = op->waiters[--op->n_waiters];
        if (op->state == BIND_OP_HELD && !op->n_waiters)
            bind_op_end(s->core, op);
    }
}

void core_bind_requested(struct step *s)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    struct err err = {0};
    core_bind_forgotten(s, in->uid);
    struct bind_op *op = core_bind_find(core, in->uid);
    struct ledger_pod *pod = ledger_pod_find(core->ledger, in->uid);
    struct span ns = pod ? pod->ns : op ? op->ns : in->ns;
    struct span name = pod ? pod->name : op ? op->name : in->name;
    if (!span_eq(ns, in->ns) || !span_eq(name, in->name)) {
        err_set(&err, ERR_INVALID, "UID %.*s belongs to pod %.*s/%.*s", SPAN_ARG(in->uid),
                SPAN_ARG(ns), SPAN_ARG(name));
        reply(s, in->token, CORE_BIND_REJECTED, &err);
    } else if (op && !MUTANT(double_reserve)) {
        bind_op_join(op, in->token, in->node_name);
    } else if (pod && pod->node && !MUTANT(double_reserve)) {
        core_bind_check(s, pod); /* the API server may have been restored since */
        bind_op_join(core_bind_find(core, in->uid), in->token, in->node_name);
    } else if (pod) {
        bind_start(s, bind_op_requested(s), pod, false);
    } else if (core_check_may_bind(core, s->now, &err)) {
        reply(s, in->token, CORE_BIND_NOT_NOW, &err);
    } else {
        op = bind_op_requested(s);
        op->state = BIND_OP_FETCHING;
        bind_op_get(s, op);
    }
}

/* -- from the Binding to its outcome: bound, not bound, or the pod is deleted -- */

/* A list did not show the pod while the op was in flight. If the pod exists, the watch
 * shows it again. */
static void forget_unconfirmed(struct step *s, struct ledger_pod *pod)
{
    if (pod && pod->unconfirmed && !pod->node)
        ledger_pod_remove(s->core->ledger, pod);
}

/* The outcome is known: the pod is pending again, and no copy of the Binding is left. */
static void not_bound(struct step *s, struct bind_op *op, const struct err *why)
{
    struct ledger *l = s->core->ledger;
    struct ledger_pod *pod = ledger_pod_find(l, op->uid);
    if (pod && pod->node) {
        core_bind_retract(s, op);
        /* The labels that made the request were removed while the Binding was in flight. */
        if (pod->request->kind == REQUEST_NONE && !pod->invalid_reason)
            ledger_pod_remove(l, pod);
        else
            forget_unconfirmed(s, pod);
    }
    core_bind_end(s, op, outcome_if_unbound(s), why);
}

static void bound(struct step *s, struct bind_op *op, struct span node)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    for (size_t i = 0; i < op->n_waiters; i++)
        reply_bound(s, op->waiters[i].token, op->waiters[i].node, node);
    bind_op_end(s->core, op);
    if (!pod)
        return;
    pod->confirmed_ms = s->now.mono_ms;
    pod->final = pod->n_shares > 0;
    if (pod->unconfirmed)
        core_bind_check(s, pod);
}

void core_bind_check(struct step *s, struct ledger_pod *pod)
{
    struct bind_op *op =
        bind_op_new(s->core, pod->uid, pod->ns, pod->name, pod->node->name);
    op->state = BIND_OP_CHECKING;
    pod->unconfirmed = false;
    bind_op_get(s, op);
}

void core_bind_bound(struct step *s, struct bind_op *op, struct span node)
{
    if (op->state != BIND_OP_SENT) {
        bound(s, op, node);
        return;
    }
    /* Remembered for the case that the answer of the Binding is lost. */
    if (!op->seen.p)
        op->seen = arena_copy(&op->strings, node);
}

void core_bind_deleted(struct step *s, struct bind_op *op)
{
    if (op->state == BIND_OP_SENT) {
        op->deleted = true;
        return;
    }
    core_bind_fail(s, op,
                   &(struct err){ERR_NOT_FOUND, "the pod was deleted or has terminated"});
}

/* Errors that say nothing about the Binding itself. */
static bool is_lost(enum err_code code)
{
    return code == ERR_TIMEOUT || code == ERR_UNAVAILABLE || code == ERR_INTERNAL;
}

/* The Binding failed or got no answer. */
static void outcome_unknown(struct step *s, struct bind_op *op)
{
    op->state = BIND_OP_UNKNOWN;
    op->why = *s->in->err;
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (MUTANT(release_before_get) && pod)
        ledger_pod_unplace(s->core->ledger, pod);
    if (op->deleted) {
        core_bind_deleted(s, op);
        return;
    }
    /* An immediate GET may show that it has taken effect, or why it cannot. */
    op->check_ms = s->now.mono_ms;
    if (is_lost(op->why.code) || op->why.code == ERR_CONFLICT ||
        op->why.code == ERR_NOT_FOUND)
        return;
    reply_all(s, op, CORE_BIND_REJECTED, &op->why);
    op->check_ms = op->proof_ms + 1;
}

static void binding_answered(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    if (s->code == ERR_NONE) {
        bound(s, op, op->node);
    } else if (op->seen.p) {
        struct span node = arena_copy(&s->core->scratch, op->seen);
        bound(s, op, node);
    } else if (in->not_sent || (MUTANT(lost_answer_is_failure) && s->code != ERR_NONE)) {
        struct err why = *in->err;
        why.code = ERR_UNAVAILABLE;
        not_bound(s, op, &why);
    } else {
        outcome_unknown(s, op);
    }
}

/* The GET of an op in state UNKNOWN or CHECKING was answered. */
static void checked(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    if (s->code != ERR_NONE && s->code != ERR_NOT_FOUND) {
        op->backoff_ms = op->backoff_ms ? op->backoff_ms * 2 : GET_RETRY_MIN_MS;
        if (op->backoff_ms > GET_RETRY_MAX_MS)
            op->backoff_ms = GET_RETRY_MAX_MS;
        op->check_ms = s->now.mono_ms + op->backoff_ms;
        return;
    }
    struct span uid = arena_copy(&s->core->scratch, op->uid); /* the op may end */
    if (s->code == ERR_NOT_FOUND || !span_eq(in->pod->meta.uid, uid)) {
        core_sync_pod_deleted(s, uid);
        return;
    }
    if (op->overtaken) {
        bind_op_get(s, op);
        return;
    }
    bool bound_now = in->pod->node.n > 0,
         late = op->get_ms > (MUTANT(early_get_is_proof) ? 0 : op->proof_ms);
    core_sync_pod(s, in->pod, false, CORE_POD_FROM_GET);
    op = core_bind_find(s->core, uid); /* it may have ended */
    if (!op || bound_now)
        return;
    if (op->state == BIND_OP_CHECKING) { /* no pod is ever unbound */
        core_restored(s, "a pod that was bound is not");
        return;
    }
    if (late && !op->checked_late) {
        op->checked_late = true;
        bind_op_get(s, op);
        return;
    }
    if (late) {
        struct err why = op->why;
        err_wrap(&why, "the Binding has not taken effect");
        not_bound(s, op, &why);
        return;
    }
    if (!is_lost(op->why.code))
        reply_all(s, op, CORE_BIND_REJECTED, &op->why);
    op->check_ms = op->proof_ms + 1;
}

/* The GET of an op in state FETCHING was answered. */
static void fetched(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    struct err err = in->err ? *in->err : (struct err){0};
    if (err.code == ERR_NOT_FOUND)
        err_set(&err, ERR_NOT_FOUND, "pod not found");
    else if (err.code == ERR_NONE && !span_eq(in->pod->meta.uid, op->uid))
        err_set(&err, ERR_NOT_FOUND,
                "the pod was deleted; a pod of the same name has another UID");
    if (err.code != ERR_NONE) {
        forget_unconfirmed(s, ledger_pod_find(core->ledger, op->uid));
        core_bind_end(
            s, op, err.code == ERR_NOT_FOUND ? CORE_BIND_REJECTED : outcome_if_unbound(s),
            &err);
        return;
    }
    if (op->overtaken) {
        bind_op_get(s, op);
        return;
    }
    struct span uid = arena_copy(&core->scratch, op->uid); /* the op may end */
    core_sync_pod(s, in->pod, false, CORE_POD_FROM_GET);
    op = core_bind_find(core, uid);
    if (op) /* neither terminal nor bound */
        bind_start(s, op, ledger_pod_find(core->ledger, uid), in->pod->n_containers > 0);
}

void core_bind_listed(struct step *s, uint64_t list)
{
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    {
        const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
        if (op->call && op->state != BIND_OP_SENT && (!pod || pod->seen != list))
            op->overtaken = true;
    }
}

bool core_bind_answered(struct step *s)
{
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    {
        if (op->call != s->in->call)
            continue;
        op->call = 0;
        if (op->state == BIND_OP_SENT)
            binding_answered(s, op);
        else if (op->state == BIND_OP_FETCHING)
            fetched(s, op);
        else
            checked(s, op);
        return true;
    }
    return false;
}

static bool needs_get(const struct bind_op *op)
{
    return (op->state == BIND_OP_UNKNOWN || op->state == BIND_OP_CHECKING) && !op->call;
}

void core_bind_tick(struct step *s)
{
    LIST_EACH(struct bind_op, op, &s->core->bind_ops, link)
    if (needs_get(op) && op->check_ms <= s->now.mono_ms)
        bind_op_get(s, op);
}

int64_t core_bind_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    if (needs_get(op))
        step_due(&due, op->check_ms);
    return due;
}
