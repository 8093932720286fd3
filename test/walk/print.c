/* SPDX-License-Identifier: Apache-2.0 */
#include "walk/walk.h"

#include "base/hash.h"
#include "core/core_priv.h"

/*
 * The fingerprint of a state. Two states with equal fingerprints must have the same future,
 * so it has every field of a core that the next steps depend on (hence core_priv.h). Times,
 * numbers and versions are relative: to now, to each other, and to the server's. The
 * remaining time is not part of it: see main.c.
 *
 * All times further away than FAR_MS are equal: in the scenarios of the walk, no time limit
 * of the core is that long. Negative numbers from -1 down separate lists.
 */

enum { FAR_MS = 20000 };

/* Adds integers to the fingerprint. */
#define PUT(print, ...)                                                                  \
    (*(print) = hash_bytes(*(print), (const int64_t[]){__VA_ARGS__},                     \
                           sizeof(const int64_t[]){__VA_ARGS__}))

static int64_t at(const struct world *w, int64_t t)
{
    int64_t ahead = t - w->now_ms;
    return ahead > FAR_MS ? FAR_MS : ahead < -FAR_MS ? -FAR_MS : ahead;
}

/* A time that matters only until it has passed. */
static int64_t due(const struct world *w, int64_t t)
{
    return t < w->now_ms ? 0 : at(w, t);
}

/* The identity of a process: "p1" and so on; the UID of a pod. */
static int name(struct span s)
{
    return s.n ? s.p[0] * 256 + (s.n > 1 ? s.p[1] : 0) : 0;
}

static int64_t number(const struct buf *text)
{
    int64_t n = -1;
    span_i64(buf_span(text), &n);
    return n;
}

static void put_leader(uint64_t *print, const struct world *w, const struct core *core)
{
    const struct leader *leader = &core->leader;
    const struct reflector *pods = &core->reflectors[CORE_PODS];
    PUT(print, leader->state, leader->leading, leader->settled, leader->known,
        leader->absent, leader->known ? number(&leader->version) == w->lease.version : -1,
        w->lease.object - number(&leader->uid), due(w, leader->lead_from_ms),
        name(buf_span(&leader->holder)), leader->duration_s,
        leader->state == LEADER_IDLE ? due(w, leader->due_ms) : 0,
        leader->state == LEADER_WRITING ? at(w, leader->sent.mono_ms) : 0);
    if (leader->leading)
        PUT(print, at(w, leader->valid.mono_ms), pods->listed_ms < leader->acquired_ms,
            pods->requested_ms < leader->acquired_ms);
    else
        PUT(print, at(w, leader->observed_ms));
}

static void put_op(uint64_t *print, const struct world *w, const struct bind_op *op)
{
    PUT(print, name(op->uid), op->state, op->call != 0, op->deleted, op->seen.p != NULL,
        op->call && op->get_ms > op->proof_ms, op->overtaken, op->checked_late,
        due(w, op->proof_ms), op->call ? 0 : due(w, op->check_ms), op->backoff_ms,
        op->why.code);
    for (size_t i = 0; i < op->n_waiters; i++)
        PUT(print, (int64_t)op->waiters[i].token);
    PUT(print, -1);
}

/* With more failures in a row, the back-off stays at its maximum. */
static unsigned failures(unsigned n)
{
    return n < 8 ? n : 8;
}

static void put_core(uint64_t *print, const struct world *w, const struct core *core)
{
    const struct reflector *r = &core->reflectors[CORE_PODS];
    const struct ledger_node *node = ledger_node_find(core->ledger, SPAN("n0"));
    put_leader(print, w, core);
    for (uint32_t i = 0; node && i < node->n_cards; i++)
        PUT(print, node->cards[i].promised_mib);
    PUT(print, r->state, r->synced, r->failure.failures > 0, failures(r->tries),
        failures(r->relists), due(w, reflector_due(r)), (int64_t)core->rng.state,
        core->wakeups_begun);
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    put_op(print, w, op);
    PUT(print, -2);
    for (int i = 0; i < WALK_PODS; i++) {
        const struct ledger_pod *pod = ledger_pod_find(core->ledger, span_of(uids[i]));
        int64_t asked_ms = r->state == REFLECTOR_LISTING ? r->requested_ms : w->now_ms;
        PUT(print, pod != NULL);
        if (pod)
            PUT(print, pod->node != NULL, pod->unconfirmed, pod->seen == r->run,
                pod->confirmed_ms < asked_ms);
    }
    LIST_EACH(struct wakeup, wakeup, &core->wakeups, link)
    PUT(print, wakeup->due, due(w, wakeup->not_before_ms));
    PUT(print, -3);
}

static void put_message(uint64_t *print, const struct world *w, const struct message *m)
{
    const struct core *core = w->procs[m->proc].core;
    const struct answer *a = &m->answer;
    bool out = m->way == WAY_OUT, writes = out && m->type == MSG_LEASE_WRITE;
    /* Position of the bind_op that waits for the message. The core has one bind_op per pod,
     * but the planted faults of test/mutants can cause several. */
    int place = 0;
    if (m->waiting && core)
        LIST_EACH(struct bind_op, op, &core->bind_ops, link)
        {
            if (op->call == m->call)
                break;
            place++;
        }
    PUT(print, m->type, m->way, m->waiting, m->deciding, m->denied, m->proc, m->pod,
        m->create, m->life, place, out ? due(w, m->arrive_by_ms) : 0,
        out && m->type == MSG_BIND ? due(w, m->send_by_ms) : 0,
        m->waiting ? due(w, m->give_up_ms) : 0,
        writes && m->wants.version == w->lease.version,
        writes ? name(span_of(m->wants.holder)) : 0);
    if (m->way != WAY_BACK)
        return;
    PUT(print, a->code, w->n_events - a->events);
    for (int i = 0; i < WALK_PODS; i++)
        PUT(print, a->pods[i].exists, a->pods[i].bound);
    if (is_lease(m)) /* and does the process already have this version? */
        PUT(print, a->lease.version == w->lease.version, name(span_of(a->lease.holder)),
            w->lease.object - a->lease.object,
            a->lease.version ==
                (core && core->leader.known ? number(&core->leader.version) : -1));
}

uint64_t world_print(const struct world *w)
{
    uint64_t print = 0;
    for (enum what what = LIMITED; what < WHATS; what++)
        PUT(&print, w->left.n[what]);
    PUT(&print, w->left.asks[0], w->left.asks[1], name(span_of(w->lease.holder)),
        w->lease.absent);
    for (const struct walk_pod *pod = w->pods; pod < w->pods + WALK_PODS; pod++)
        PUT(&print, pod->created, pod->exists, pod->bound, pod->was_bound);
    for (int i = 0; i < w->n_asks; i++)
        PUT(&print, w->asks[i].waits, w->asks[i].proc, w->asks[i].pod);
    PUT(&print, -1);
    for (const struct proc *proc = w->procs; proc < w->procs + WALK_PROCS; proc++) {
        PUT(&print, proc->lives, proc->watching, proc->lease_cut, proc->core != NULL,
            proc->cards);
        /* The undelivered events, in order. */
        for (int e = proc->watching ? proc->next_event : w->n_events; e < w->n_events;
             e++)
            PUT(&print, w->events[e].pod, w->events[e].what);
        PUT(&print, -1);
        if (proc->core)
            put_core(&print, w, proc->core);
    }
    uint64_t sum = 0; /* the order of messages does not matter */
    EACH_MESSAGE(m, w)
    {
        uint64_t one = 0;
        put_message(&one, w, m);
        sum += one;
    }
    return print + sum;
}
