/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/reason.h"

/*
 * Binds, from the request of kube-scheduler to the outcome of the Binding (core.h, "Life of
 * a promise"): puts the promise into the ledger and sends the Binding, one per pod UID. GETs
 * decide where the answer of the Binding does not.
 */

enum {
    SEND_WITHIN_MS = 1000, /* the Binding leaves within this time of its promise */
    GET_RETRY_MIN_MS = 250,
    GET_RETRY_MAX_MS = 5000,
};

/* -- operations, with the callers that wait for the outcome -- */

struct bind_op *bind_op_find(const struct core *core, struct span uid)
{
    return map_get(&core->bind_ops_by_uid, uid);
}

static struct span own(struct span s)
{
    return (struct span){xmemdup0(s.p, s.n), s.n};
}

static void disown(struct span *s)
{
    free((char *)s->p);
    *s = (struct span){0};
}

static void waiters_clear(struct bind_op *op)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        disown(&op->waiters[i].node);
    op->n_waiters = 0;
}

void bind_op_free(struct bind_op *op)
{
    waiters_clear(op);
    free(op->waiters);
    disown(&op->uid);
    disown(&op->ns);
    disown(&op->name);
    disown(&op->node);
    disown(&op->seen);
    free(op);
}

/* New, in the core, in state FETCHING. Copies the strings. */
static struct bind_op *bind_op_new(struct core *core, struct span uid, struct span ns,
                                   struct span name, struct span node)
{
    struct bind_op *op = xcalloc(1, sizeof *op);
    op->uid = own(uid);
    op->ns = own(ns);
    op->name = own(name);
    op->node = own(node);
    op->next = core->bind_ops;
    if (core->bind_ops)
        core->bind_ops->prev = op;
    core->bind_ops = op;
    core->n_bind_ops++;
    map_set(&core->bind_ops_by_uid, op);
    return op;
}

/* Removes it from the core and frees it. */
static void bind_op_end(struct step *s, struct bind_op *op)
{
    struct core *core = s->core;
    if (op->prev)
        op->prev->next = op->next;
    else
        core->bind_ops = op->next;
    if (op->next)
        op->next->prev = op->prev;
    core->n_bind_ops--;
    map_remove(&core->bind_ops_by_uid, op->uid);
    bind_op_free(op);
}

/* Adds a caller that waits for the outcome. */
static void bind_op_join(struct bind_op *op, uint64_t token, struct span node)
{
    MEM_GROW(op->waiters, op->waiters_cap, op->n_waiters + 1);
    op->waiters[op->n_waiters++] = (struct waiter){token, own(node)};
}

/* Replies to a caller that wants the pod on `wanted`; it is bound to `node`. */
static void bind_op_reply_bound(struct step *s, uint64_t token, struct span wanted,
                                struct span node)
{
    if (span_eq(wanted, node))
        output_reply(s, token, ERR_NONE, "%s", "");
    else
        output_reply(s, token, ERR_CONFLICT, "the pod is already bound to node %.*s",
                     SPAN_ARG(node));
}

/* Replies to all waiting callers: the pod is bound to `node`, or the error. */
static void bind_op_answer_bound(struct step *s, struct bind_op *op, struct span node)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        bind_op_reply_bound(s, op->waiters[i].token, op->waiters[i].node, node);
    waiters_clear(op);
}

static void bind_op_answer_error(struct step *s, struct bind_op *op, enum err_code code,
                                 const char *text)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        output_reply(s, op->waiters[i].token, code, "%s", text);
    waiters_clear(op);
}

/* Sends a GET of the pod. */
static void bind_op_get(struct step *s, struct bind_op *op)
{
    op->call = core_next_id(s->core);
    op->get_ms = s->now.mono_ms;
    op->overtaken = false;
    const char *ns = output_str(s, op->ns), *name = output_str(s, op->name);
    const char *uid = output_str(s, op->uid);
    struct core_output *o = output_add(s, CORE_CALL_GET_POD);
    o->call = op->call;
    o->uid = uid;
    o->ns = ns;
    o->name = name;
}

/* -- from the request to the Binding -- */

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

/* Sends the Binding, after the promise if there is one. */
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

/* Binds a pending pod, or replies with the reason why not. `op`: NULL: a new one, from the
 * input. `pod`: NULL: it requests nothing. `zero`: it says so by a limit of 0;
 * kube-scheduler lets the extender bind such pods. */
static void bind_start(struct step *s, struct bind_op *op, struct ledger_pod *pod,
                       bool zero)
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

/* -- from the Binding to its outcome: bound, not bound, or the pod is deleted -- */

/* A list did not show the pod while the op was in flight. If the pod exists, the watch
 * shows it again. */
static void forget_unconfirmed(struct step *s, const struct bind_op *op)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (pod && pod->unconfirmed && !pod->node)
        ledger_pod_remove(s->core->ledger, pod);
}

/* The labels that made the request were removed while the Binding was in flight. */
static void forget_without_request(struct step *s, const struct bind_op *op)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (pod && !pod->node && pod->request->kind == REQUEST_NONE && !pod->invalid_reason)
        ledger_pod_remove(s->core->ledger, pod);
}

/* The outcome is known: the pod is pending again, and no copy of the Binding is left. */
static void not_bound(struct step *s, struct bind_op *op, enum err_code code,
                      const char *text)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (pod && pod->node && !op->plain) {
        struct wakeup_fits before = wakeup_before(s, op->node);
        ledger_pod_unplace(s->core->ledger, pod);
        wakeup_after(s, &before);
        forget_unconfirmed(s, op);
        forget_without_request(s, op);
    }
    bind_op_answer_error(s, op, code, text);
    bind_op_end(s, op);
}

static void bound(struct step *s, struct bind_op *op, struct span node)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    bind_op_answer_bound(s, op, node);
    bind_op_end(s, op);
    if (!pod)
        return;
    pod->confirmed_ms = s->now.mono_ms;
    pod->final = pod->n_shares > 0;
    if (pod->unconfirmed)
        bind_check(s, pod);
}

void bind_check(struct step *s, struct ledger_pod *pod)
{
    struct bind_op *op =
        bind_op_new(s->core, pod->uid, pod->ns, pod->name, pod->node->name);
    op->state = BIND_OP_CHECKING;
    pod->unconfirmed = false;
    bind_op_get(s, op);
}

void bind_bound(struct step *s, struct bind_op *op, struct span node)
{
    if (op->state != BIND_OP_SENT) {
        bound(s, op, node);
        return;
    }
    /* Remembered for the case that the answer of the Binding is lost. */
    if (!op->seen.p)
        op->seen = (struct span){xmemdup0(node.p, node.n), node.n};
}

void bind_deleted(struct step *s, struct bind_op *op)
{
    if (op->state == BIND_OP_SENT) {
        op->deleted = true;
        return;
    }
    bind_op_answer_error(s, op, ERR_NOT_FOUND, "the pod was deleted or has terminated");
    bind_op_end(s, op);
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
        bind_deleted(s, op);
        return;
    }
    /* An immediate GET may show that it has taken effect, or why it cannot. */
    op->check_ms = s->now.mono_ms;
    if (is_lost(op->why.code) || op->why.code == ERR_CONFLICT ||
        op->why.code == ERR_NOT_FOUND)
        return;
    bind_op_answer_error(s, op, op->why.code, op->why.msg);
    op->check_ms = op->proof_ms + 1;
}

static void binding_answered(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    if (code == ERR_NONE) {
        bound(s, op, op->node);
    } else if (op->seen.p) {
        struct span node = arena_copy(&s->core->scratch, op->seen);
        bound(s, op, node);
    } else if (in->not_sent || (MUTANT(lost_answer_is_failure) && code != ERR_NONE)) {
        not_bound(s, op, ERR_UNAVAILABLE, in->err->msg);
    } else {
        outcome_unknown(s, op);
    }
}

static void retry_get(struct step *s, struct bind_op *op)
{
    op->backoff_ms = op->backoff_ms ? op->backoff_ms * 2 : GET_RETRY_MIN_MS;
    if (op->backoff_ms > GET_RETRY_MAX_MS)
        op->backoff_ms = GET_RETRY_MAX_MS;
    op->check_ms = s->now.mono_ms + op->backoff_ms;
}

/* The GET of an op in state UNKNOWN or CHECKING was answered. */
static void checked(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    if (code != ERR_NONE && code != ERR_NOT_FOUND) {
        retry_get(s, op);
        return;
    }
    struct span uid = arena_copy(&s->core->scratch, op->uid); /* the op may end */
    if (code == ERR_NOT_FOUND || !span_eq(in->pod->meta.uid, uid)) {
        core_pod_deleted(s, uid);
        return;
    }
    if (op->overtaken) {
        bind_op_get(s, op);
        return;
    }
    bool bound_now = in->pod->node.n > 0,
         late = op->get_ms > (MUTANT(early_get_is_proof) ? 0 : op->proof_ms);
    core_pod_observed(s, in->pod, false, CORE_POD_FROM_GET);
    op = bind_op_find(s->core, uid); /* it may have ended */
    if (!op || bound_now)
        return;
    if (op->state == BIND_OP_CHECKING) { /* no pod is ever unbound: the answer is old */
        retry_get(s, op);
        return;
    }
    if (late && !op->checked_late) {
        op->checked_late = true;
        bind_op_get(s, op);
        return;
    }
    if (late) {
        char text[sizeof op->why.msg + 64];
        snprintf(text, sizeof text, "the Binding has not taken effect: %s", op->why.msg);
        not_bound(s, op, op->why.code, text);
        return;
    }
    if (!is_lost(op->why.code))
        bind_op_answer_error(s, op, op->why.code, op->why.msg);
    op->check_ms = op->proof_ms + 1;
}

/* The GET of an op in state FETCHING was answered. */
static void fetched(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    const char *why = code == ERR_NOT_FOUND ? "pod not found"
                      : code != ERR_NONE    ? in->err->msg
                                            : NULL;
    if (code == ERR_NONE && !span_eq(in->pod->meta.uid, op->uid)) {
        code = ERR_NOT_FOUND;
        why = "the pod was deleted; a pod of the same name has another UID";
    }
    if (why) {
        bind_op_answer_error(s, op, code, why);
        forget_unconfirmed(s, op);
        bind_op_end(s, op);
        return;
    }
    if (op->overtaken) {
        bind_op_get(s, op);
        return;
    }
    struct span uid = arena_copy(&core->scratch, op->uid); /* the op may end */
    core_pod_observed(s, in->pod, false, CORE_POD_FROM_GET);
    op = bind_op_find(core, uid);
    if (op) /* neither terminal nor bound */
        bind_start(s, op, ledger_pod_find(core->ledger, uid), in->pod->n_containers > 0);
}

void bind_listed(struct step *s, uint64_t list)
{
    for (struct bind_op *op = s->core->bind_ops; op; op = op->next) {
        const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
        if (op->call && op->state != BIND_OP_SENT && (!pod || pod->seen != list))
            op->overtaken = true;
    }
}

bool bind_answered(struct step *s)
{
    struct bind_op *op = s->core->bind_ops;
    while (op && op->call != s->in->call)
        op = op->next;
    if (!op)
        return false;
    op->call = 0;
    if (op->state == BIND_OP_SENT)
        binding_answered(s, op);
    else if (op->state == BIND_OP_FETCHING)
        fetched(s, op);
    else
        checked(s, op);
    return true;
}

static bool needs_get(const struct bind_op *op)
{
    return (op->state == BIND_OP_UNKNOWN || op->state == BIND_OP_CHECKING) && !op->call;
}

void bind_tick(struct step *s)
{
    for (struct bind_op *op = s->core->bind_ops; op; op = op->next)
        if (needs_get(op) && op->check_ms <= s->now.mono_ms)
            bind_op_get(s, op);
}

int64_t bind_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    for (const struct bind_op *op = core->bind_ops; op; op = op->next)
        if (needs_get(op) && op->check_ms < due)
            due = op->check_ms;
    return due;
}
