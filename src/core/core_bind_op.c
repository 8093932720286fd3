/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/* The bind operations of the core: one per pod UID, with the callers that wait for its
 * outcome. */

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

struct bind_op *bind_op_new(struct core *core, struct span uid, struct span ns,
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

void bind_op_end(struct step *s, struct bind_op *op)
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

void bind_op_join(struct bind_op *op, uint64_t token, struct span node)
{
    MEM_GROW(op->waiters, op->waiters_cap, op->n_waiters + 1);
    op->waiters[op->n_waiters++] = (struct waiter){token, own(node)};
}

void bind_op_reply_bound(struct step *s, uint64_t token, struct span wanted,
                         struct span node)
{
    if (span_eq(wanted, node))
        output_reply(s, token, ERR_NONE, "%s", "");
    else
        output_reply(s, token, ERR_CONFLICT, "the pod is already bound to node %.*s",
                     SPAN_ARG(node));
}

void bind_op_answer_bound(struct step *s, struct bind_op *op, struct span node)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        bind_op_reply_bound(s, op->waiters[i].token, op->waiters[i].node, node);
    waiters_clear(op);
}

void bind_op_answer_error(struct step *s, struct bind_op *op, enum err_code code,
                          const char *text)
{
    for (size_t i = 0; i < op->n_waiters; i++)
        output_reply(s, op->waiters[i].token, code, "%s", text);
    waiters_clear(op);
}

void bind_op_get(struct step *s, struct bind_op *op)
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
