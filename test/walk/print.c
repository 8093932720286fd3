/* SPDX-License-Identifier: Apache-2.0 */
#include "walk/walk.h"

#include <stdlib.h>
#include <string.h>

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

enum { FAR_MS = 20000, STATE_BYTES = 2048, MESSAGE_BYTES = 64 };

struct printer {
    unsigned char bytes[STATE_BYTES];
    size_t n;
    int64_t now_ms;
};

static void put(struct printer *p, int64_t v)
{
    if (p->n + 4 > sizeof p->bytes)
        abort();
    int32_t small = (int32_t)v;
    memcpy(p->bytes + p->n, &small, sizeof small);
    p->n += sizeof small;
}

static void put_time(struct printer *p, int64_t t)
{
    int64_t far = t > p->now_ms + FAR_MS ? FAR_MS : t - p->now_ms;
    put(p, t < p->now_ms - FAR_MS ? -FAR_MS : far);
}

/* A time that matters only until it has passed. */
static void put_due(struct printer *p, int64_t t)
{
    put_time(p, t < p->now_ms ? p->now_ms : t);
}

/* The identity of a process: "p1" and so on. */
static void put_name(struct printer *p, struct span s)
{
    put(p, s.n < 2 ? 0 : s.p[0] * 256 + s.p[1]);
}

static void put_uid(struct printer *p, struct span s)
{
    put(p, s.n ? s.p[0] : 0);
}

static void put_leader(struct printer *p, const struct world *w, const struct core *core)
{
    const struct leader *leader = &core->leader;
    int64_t version = -1;
    span_i64(buf_span(&leader->version), &version);
    put(p, leader->state | leader->leading << 4 | leader->settled << 6 |
               leader->known << 7 | leader->absent << 8);
    int64_t object = -1;
    span_i64(buf_span(&leader->uid), &object);
    put(p, leader->known ? version == w->lease.version : -1);
    put(p, w->lease.object - object);
    put_due(p, leader->lead_from_ms);
    put_name(p, buf_span(&leader->holder));
    put(p, leader->duration_s);
    if (leader->state == LEADER_IDLE)
        put_due(p, leader->due_ms);
    if (leader->state == LEADER_WRITING)
        put_time(p, leader->sent.mono_ms);
    if (leader->leading) {
        put_time(p, leader->valid.mono_ms);
        put(p, core->cursors[CORE_PODS].listed_ms < leader->acquired_ms);
        put(p, core->cursors[CORE_PODS].requested_ms < leader->acquired_ms);
    } else {
        put_time(p, leader->observed_ms);
    }
}

static void put_op(struct printer *p, const struct bind_op *op)
{
    put_uid(p, op->uid);
    put(p, op->state | (op->call != 0) << 4 | op->deleted << 5 |
               (op->seen.p != NULL) << 6 | (op->call && op->get_ms > op->proof_ms) << 7 |
               op->overtaken << 8 | op->checked_late << 9);
    put_due(p, op->proof_ms);
    if (!op->call)
        put_due(p, op->check_ms);
    put(p, op->backoff_ms);
    put(p, op->why.code);
    for (size_t i = 0; i < op->n_waiters; i++)
        put(p, (int64_t)op->waiters[i].token);
    put(p, -1);
}

/* With more failures in a row, the back-off stays at its maximum. */
static void put_failures(struct printer *p, unsigned failures)
{
    put(p, failures < 8 ? failures : 8);
}

static void put_core(struct printer *p, const struct world *w, const struct core *core)
{
    const struct cursor *c = &core->cursors[CORE_PODS];
    put_leader(p, w, core);
    put(p, c->state | c->synced << 4);
    put_failures(p, c->failure.failures);
    put_failures(p, c->relists);
    if (c->state == CURSOR_LIST_DUE || c->state == CURSOR_WATCH_DUE)
        put_due(p, c->due_ms);
    put(p, (int64_t)(core->rng.state & INT32_MAX));
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    put_op(p, op);
    put(p, -2);
    for (int i = 0; i < WALK_PODS; i++) {
        const struct ledger_pod *pod =
            ledger_pod_find(core->ledger, i ? SPAN("B") : SPAN("A"));
        put(p, pod != NULL);
        if (!pod)
            continue;
        int64_t requested_ms = c->state == CURSOR_LISTING ? c->requested_ms : p->now_ms;
        put(p, (pod->node != NULL) | pod->unconfirmed << 1 | (pod->seen == c->run) << 2 |
                   (pod->confirmed_ms < requested_ms) << 3);
    }
    put(p, core->wakeups_begun);
    const struct ledger_node *node = ledger_node_find(core->ledger, SPAN("n0"));
    put(p, node ? node->cards[0].promised_mib : -1);
    LIST_EACH(struct wakeup, wakeup, &core->wakeups, link)
    {
        put(p, wakeup->due);
        put_due(p, wakeup->not_before_ms);
    }
    put(p, -3);
}

static void put_message(struct printer *p, const struct world *w, const struct message *m)
{
    put(p, m->type | m->way << 4 | m->waiting << 8 | m->deciding << 9 | m->denied << 10 |
               m->proc << 11 | m->pod << 12 | m->create << 13);
    put(p, m->life);
    /* Position of the bind_op that waits for the message. The core has one bind_op per pod,
     * but the planted faults of test/mutants can cause several. */
    const struct core *core = w->procs[m->proc].core;
    int place = 0;
    if (m->waiting && core)
        LIST_EACH(struct bind_op, op, &core->bind_ops, link)
        {
            if (op->call == m->call)
                break;
            place++;
        }
    put(p, place);
    if (m->way == WAY_OUT) {
        put_due(p, m->arrive_by_ms);
        put_due(p, m->type == MSG_BIND ? m->send_by_ms : 0);
    }
    if (m->waiting)
        put_due(p, m->give_up_ms);
    if (m->type == MSG_LEASE_WRITE && m->way == WAY_OUT) {
        put(p, m->wants.version == w->lease.version);
        put_name(p, span_of(m->wants.holder));
    }
    if (m->way != WAY_BACK)
        return;
    const struct answer *a = &m->answer;
    put(p, a->code);
    for (int i = 0; i < WALK_PODS; i++)
        put(p, a->exists[i] | a->bound[i] << 1);
    put(p, w->n_events - a->events);
    if (m->type == MSG_LEASE_GET || m->type == MSG_LEASE_WRITE) {
        put(p, a->lease.version == w->lease.version);
        put_name(p, span_of(a->lease.holder));
        put(p, w->lease.object - a->lease.object);
        /* Does the process already have this version? */
        int64_t version = -1;
        if (core && core->leader.known)
            span_i64(buf_span(&core->leader.version), &version);
        put(p, a->lease.version == version);
    }
}

struct record {
    unsigned char bytes[MESSAGE_BYTES];
};

static int record_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct record));
}

/* The order of messages does not matter. */
static void put_messages(struct printer *p, const struct world *w)
{
    struct record records[WALK_MESSAGES] = {0};
    size_t n = 0;
    for (int i = 0; i < WALK_MESSAGES; i++) {
        if (!w->messages[i].type)
            continue;
        size_t before = p->n;
        put_message(p, w, &w->messages[i]);
        if (p->n - before > MESSAGE_BYTES)
            abort();
        memcpy(records[n++].bytes, p->bytes + before, p->n - before);
        p->n = before;
    }
    qsort(records, n, sizeof *records, record_order);
    if (p->n + n * sizeof *records > sizeof p->bytes)
        abort();
    memcpy(p->bytes + p->n, records, n * sizeof *records);
    p->n += n * sizeof *records;
}

uint64_t world_print(const struct world *w)
{
    struct printer p;
    p.n = 0;
    p.now_ms = w->now_ms;
    const struct scenario *left = &w->left;
    put(&p, left->late_pod | left->asks[0] << 4 | left->asks[1] << 8 | left->cuts << 12 |
                left->unsent << 16 | left->gone << 20 | left->deletes << 24);
    put(&p, left->crashes | left->starts << 4 | left->holds << 8 |
                left->lease_cuts << 12 | left->lease_deletes << 16);
    for (int i = 0; i < WALK_PODS; i++) {
        const struct walk_pod *pod = &w->pods[i];
        put(&p, pod->created | pod->exists << 1 | pod->bound << 2 | pod->was_bound << 3);
    }
    put_name(&p, span_of(w->lease.holder));
    put(&p, w->lease.absent);
    for (int i = 0; i < w->n_asks; i++)
        put(&p, w->asks[i].waits | w->asks[i].proc << 1 | w->asks[i].pod << 2);
    put(&p, -1);
    for (int i = 0; i < WALK_PROCS; i++) {
        const struct proc *proc = &w->procs[i];
        put(&p, proc->lives | proc->watching << 8 | proc->lease_cut << 9 |
                    (proc->core != NULL) << 10);
        /* The undelivered events, in order. */
        for (int e = proc->watching ? proc->next_event : w->n_events; e < w->n_events;
             e++)
            put(&p, w->events[e].pod << 4 | w->events[e].what);
        put(&p, -1);
        if (proc->core)
            put_core(&p, w, proc->core);
    }
    put_messages(&p, w);
    return hash_bytes(1, p.bytes, p.n);
}
