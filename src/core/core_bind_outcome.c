/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/mutant.h"

/*
 * From the Binding to its outcome: bound, not bound, or the pod is deleted. GETs decide
 * where the answer of the Binding does not (core.h, "Life of a promise").
 */

enum {
    GET_RETRY_MIN_MS = 250,
    GET_RETRY_MAX_MS = 5000,
};

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
