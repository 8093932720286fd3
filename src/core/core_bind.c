/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "placement/placement.h"

/*
 * Binds in flight. core.h tells the life of a promise; here is one op per pod UID, from
 * the moment somebody asks until it is certain what became of it.
 */

enum {
    GET_RETRY_MIN_MS = 250,
    GET_RETRY_MAX_MS = 5000,
    SEND_WITHIN_MS = 1000, /* from the reservation until the Binding leaves */
};

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

static void bind_op_join(struct bind_op *op, uint64_t token, struct span node)
{
    MEM_GROW(op->waiters, op->waiters_cap, op->n_waiters + 1);
    op->waiters[op->n_waiters++] = (struct waiter){token, own(node)};
}

static void reply_bound(struct step *s, uint64_t token, struct span wanted,
                        struct span node)
{
    if (span_eq(wanted, node))
        output_reply(s, token, ERR_NONE, "%s", "");
    else
        output_reply(s, token, ERR_CONFLICT, "the pod is already bound to node %.*s",
                  SPAN_ARG(node));
}

/* Answers all who wait: the pod is bound to `node`. */
static void answer_bound(struct step *s, struct bind_op *op, struct span node)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        reply_bound(s, op->waiters[i].token, op->waiters[i].node, node);
    waiters_clear(op);
}

static void answer_error(struct step *s, struct bind_op *op, enum err_code code,
                         const char *text)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        output_reply(s, op->waiters[i].token, code, "%s", text);
    waiters_clear(op);
}

static void call_get(struct step *s, struct bind_op *op)
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

static bool reject_fit(const struct ledger_node *node, const struct request *r,
                       struct err *err)
{
    cleanup_buf struct buf why = {0};
    placement_reason(&why, node, r, placement_fit(node, r));
    err_set(err, ERR_CONFLICT, "no card of node %.*s fits: %s", SPAN_ARG(node->name),
            why.p);
    return false;
}

/* nvidia.com/gpu: the node counts the pod from now on, and nothing is written to it. */
static bool reserve_devices(struct step *s, struct ledger_pod *pod, struct span node_name,
                            struct err *err)
{
    struct ledger *l = s->core->ledger;
    const struct ledger_node *node = ledger_node_find(l, node_name);
    if (node && placement_fit(node, &pod->request) != FIT_YES)
        return reject_fit(node, &pod->request, err);
    if (!node && !request_fits_anywhere(&pod->request)) {
        err_set(err, ERR_CONFLICT, "nothing is known of node %.*s", SPAN_ARG(node_name));
        return false;
    }
    ledger_pod_place(l, pod, node_name, NULL, 0);
    return true;
}

/* Reserves the cards and gives the annotations; false (with err) when nothing fits. */
static bool reserve(struct step *s, struct ledger_pod *pod, struct span node_name,
                    struct buf *annotations, struct err *err)
{
    struct core *core = s->core;
    struct ledger *l = core->ledger;
    const struct ledger_node *node = ledger_node_find(l, node_name);
    const struct request *r = &pod->request;
    int64_t unit = core->settings.ledger.unit_mib;
    uint32_t picks[REQUEST_MAX_CARDS];
    if (r->kind == REQUEST_DEVICES)
        return reserve_devices(s, pod, node_name, err);
    if (!node) {
        err_set(err, ERR_CONFLICT, "nothing is known of node %.*s", SPAN_ARG(node_name));
        return false;
    }
    if (!placement_choose(node, r, picks))
        return reject_fit(node, r, err);
    struct promise_share *written =
        arena_zalloc(&core->scratch, r->cards * sizeof *written);
    struct ledger_share *shares = arena_zalloc(&core->scratch, r->cards * sizeof *shares);
    for (uint32_t i = 0; i < r->cards; i++) {
        const struct card *card = &node->cards[picks[i]];
        bool whole = r->kind == REQUEST_CARDS;
        shares[i].card = written[i].card = card->index;
        shares[i].uuid = written[i].uuid = card->uuid;
        shares[i].mib = whole ? card->total_mib : r->mib_per_card;
        written[i].card_units = card->total_mib / unit;
        written[i].units = whole ? written[i].card_units : r->units / r->cards;
    }
    /* Two promises of one process never carry the same time. */
    if (core->last_assume_ns >= s->now.wall_ns)
        core->last_assume_ns++;
    else
        core->last_assume_ns = s->now.wall_ns;
    promise_write(annotations, &(struct promise){.shares = written, .n = r->cards}, r,
                  core->last_assume_ns);
    ledger_pod_place(l, pod, node_name, shares, r->cards);
    return true;
}

/* Sends the Binding of an op that has its reservation (or needs none). */
static void send(struct step *s, struct bind_op *op, const struct buf *annotations)
{
    op->state = BIND_OP_SENT;
    op->call = core_next_id(s->core);
    struct clock_deadline until = leader_bind_deadline(s->core);
    if (until.mono_ms > s->now.mono_ms + SEND_WITHIN_MS)
        until.mono_ms = s->now.mono_ms + SEND_WITHIN_MS;
    /* It can leave until then, and take effect for so long after that. */
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
    o->send_by = until;
}

/* Binds a waiting pod, or says why not. `op`: from fetching the pod, or NULL. `zero`: it
 * asks for nothing, and says so by a limit of 0; kube-scheduler has us bind such pods. */
static void start(struct step *s, struct bind_op *op, struct ledger_pod *pod, bool zero)
{
    const struct core_input *in = s->in;
    cleanup_buf struct buf annotations = {0};
    struct err err = {0};
    struct span node = op ? op->node : in->node_name;
    if (core_may_bind(s->core, s->now, &err))
        goto refuse;
    if (pod && pod->invalid_reason.n) {
        err_set(&err, ERR_INVALID, "%.*s", SPAN_ARG(pod->invalid_reason));
        goto refuse;
    }
    if (!pod && !zero && !s->core->settings.bind_any) {
        err_set(&err, ERR_INVALID,
                "the pod asks for no GPU memory and no card; the extender "
                "binds such pods only with --bind-any");
        goto refuse;
    }
    if (pod && !reserve(s, pod, node, &annotations, &err))
        goto refuse;
    if (!op) {
        op = bind_op_new(s->core, in->uid, in->ns, in->name, in->node_name);
        bind_op_join(op, in->token, in->node_name);
    }
    op->plain = !pod;
    send(s, op, &annotations);
    return;
refuse:
    if (!op) {
        output_reply(s, in->token, err.code, "%s", err.msg);
        return;
    }
    answer_error(s, op, err.code, err.msg);
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
        output_reply(s, in->token, ERR_INVALID, "UID %.*s is pod %.*s/%.*s",
                  SPAN_ARG(in->uid), SPAN_ARG(ns), SPAN_ARG(name));
    } else if (op) {
        bind_op_join(op, in->token, in->node_name);
    } else if (pod && pod->node) {
        reply_bound(s, in->token, in->node_name, pod->node->name);
    } else if (pod) {
        start(s, NULL, pod, false);
    } else if (core_may_bind(core, s->now, &err)) {
        output_reply(s, in->token, err.code, "%s", err.msg);
    } else {
        op = bind_op_new(core, in->uid, in->ns, in->name, in->node_name);
        bind_op_join(op, in->token, in->node_name);
        op->state = BIND_OP_FETCHING;
        call_get(s, op);
    }
}

/* A list did not show the pod while the op was in flight. If it does exist, the watch
 * will say so. */
static void forget_doubtful(struct step *s, const struct bind_op *op)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (pod && pod->unconfirmed && !pod->node)
        ledger_pod_remove(s->core->ledger, pod);
}

/* The labels that made the request were removed while the Binding was in flight. */
static void forget_if_nothing_asked(struct step *s, const struct bind_op *op)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (pod && !pod->node && pod->request.kind == REQUEST_NONE && !pod->invalid_reason.n)
        ledger_pod_remove(s->core->ledger, pod);
}

/* The outcome is known: not bound, and no copy of the Binding is left. The pod waits. */
static void not_bound(struct step *s, struct bind_op *op, enum err_code code, const char *text)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    if (pod && pod->node && !op->plain) {
        struct wakeup_fits before = wakeup_before(s, op->node);
        ledger_pod_unplace(s->core->ledger, pod);
        wakeup_after(s, &before);
        forget_doubtful(s, op);
        forget_if_nothing_asked(s, op);
    }
    answer_error(s, op, code, text);
    bind_op_end(s, op);
}

static void bound(struct step *s, struct bind_op *op, struct span node)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, op->uid);
    answer_bound(s, op, node);
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
    struct bind_op *op = bind_op_new(s->core, pod->uid, pod->ns, pod->name, pod->node->name);
    op->state = BIND_OP_CHECKING;
    pod->unconfirmed = false;
    call_get(s, op);
}

void bind_bound(struct step *s, struct bind_op *op, struct span node)
{
    if (op->state != BIND_OP_SENT) {
        bound(s, op, node);
        return;
    }
    /* Its answer is still on the way; it may be lost. */
    if (!op->seen.p)
        op->seen = own(node);
}

void bind_deleted(struct step *s, struct bind_op *op)
{
    if (op->state == BIND_OP_SENT) {
        op->gone = true;
        return;
    }
    answer_error(s, op, ERR_NOT_FOUND, "the pod is gone");
    bind_op_end(s, op);
}

/* Did the Binding get no answer that speaks of the Binding? */
static bool was_lost(enum err_code code)
{
    return code == ERR_TIMEOUT || code == ERR_UNAVAILABLE || code == ERR_INTERNAL;
}

/* The Binding was answered with an error, or not at all. */
static void unknown(struct step *s, struct bind_op *op)
{
    op->state = BIND_OP_UNKNOWN;
    op->why = *s->in->err;
    if (op->gone) {
        bind_deleted(s, op);
        return;
    }
    /* A GET may show at once that it has taken effect, or why it could not. */
    op->check_ms = s->now.mono_ms;
    if (was_lost(op->why.code) || op->why.code == ERR_CONFLICT ||
        op->why.code == ERR_NOT_FOUND)
        return;
    answer_error(s, op, op->why.code, op->why.msg);
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
    } else if (in->not_sent) {
        not_bound(s, op, ERR_UNAVAILABLE, in->err->msg);
    } else {
        unknown(s, op);
    }
}

static void retry_get(struct step *s, struct bind_op *op)
{
    op->backoff_ms = op->backoff_ms ? op->backoff_ms * 2 : GET_RETRY_MIN_MS;
    if (op->backoff_ms > GET_RETRY_MAX_MS)
        op->backoff_ms = GET_RETRY_MAX_MS;
    op->check_ms = s->now.mono_ms + op->backoff_ms;
}

/* A GET says what became of an op whose outcome was unknown, or of a bound pod. */
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
        call_get(s, op);
        return;
    }
    bool bound_now = in->pod->node.n > 0, late = op->get_ms > op->proof_ms;
    core_pod_observed(s, in->pod, false, CORE_POD_FROM_GET);
    op = bind_op_find(s->core, uid); /* the news may have ended it */
    if (!op || bound_now)
        return;
    if (op->state == BIND_OP_CHECKING) { /* a bound pod is never unbound: an older answer */
        retry_get(s, op);
        return;
    }
    if (late && !op->checked_late) {
        op->checked_late = true;
        call_get(s, op);
        return;
    }
    if (late) {
        char text[sizeof op->why.msg + 64];
        snprintf(text, sizeof text, "the Binding has not taken effect: %s", op->why.msg);
        not_bound(s, op, op->why.code, text);
        return;
    }
    if (!was_lost(op->why.code))
        answer_error(s, op, op->why.code, op->why.msg);
    op->check_ms = op->proof_ms + 1;
}

/* The pod that somebody wants to bind was asked for, because it was not known. */
static void fetched(struct step *s, struct bind_op *op)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    const char *why = code == ERR_NOT_FOUND ? "there is no such pod"
                      : code != ERR_NONE    ? in->err->msg
                                            : NULL;
    if (code == ERR_NONE && !span_eq(in->pod->meta.uid, op->uid)) {
        code = ERR_NOT_FOUND;
        why = "the pod is gone; one of the same name has another UID";
    }
    if (why) {
        answer_error(s, op, code, why);
        forget_doubtful(s, op);
        bind_op_end(s, op);
        return;
    }
    if (op->overtaken) {
        call_get(s, op);
        return;
    }
    struct span uid = arena_copy(&core->scratch, op->uid); /* the op may end */
    core_pod_observed(s, in->pod, false, CORE_POD_FROM_GET);
    op = bind_op_find(core, uid);
    if (op) /* neither over nor bound */
        start(s, op, ledger_pod_find(core->ledger, uid), in->pod->n_containers > 0);
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

static bool waits_for_get(const struct bind_op *op)
{
    return (op->state == BIND_OP_UNKNOWN || op->state == BIND_OP_CHECKING) && !op->call;
}

void bind_tick(struct step *s)
{
    for (struct bind_op *op = s->core->bind_ops; op; op = op->next)
        if (waits_for_get(op) && op->check_ms <= s->now.mono_ms)
            call_get(s, op);
}

int64_t bind_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    for (const struct bind_op *op = core->bind_ops; op; op = op->next)
        if (waits_for_get(op) && op->check_ms < due)
            due = op->check_ms;
    return due;
}
