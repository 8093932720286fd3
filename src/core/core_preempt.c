/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_preempt_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/preempt.h"

/*
 * Layout preemption (core.h): remembers the pods that filter rejected, and searches for
 * the cheapest victims, a few nodes in each step and one pod per interval.
 * core_preempt_evict.c executes what was chosen.
 */

enum {
    INTERVAL_MS = 1000,
    /* preempt_select takes up to a millisecond, and the step holds the write lock. */
    SLICE_NODES = 4,
    SLICE_MS = 20,
    NO_VICTIMS_MS = 30 * 1000, /* until the next search if no node has victims */
};

struct core_preempt_pod *core_preempt_find(const struct core *core, struct span uid)
{
    const struct core_preempt *p = &core->preempt;
    for (size_t i = 0; i < p->n; i++)
        if (span_eq(p->pods[i]->uid, uid))
            return p->pods[i];
    return NULL;
}

static void entry_free(struct core_preempt_pod *e)
{
    core_preempt_clear(e);
    free((char *)e->uid.p);
    buf_fini(&e->nodes);
    free(e);
}

void core_preempt_fini(struct core *core)
{
    struct core_preempt *p = &core->preempt;
    for (size_t i = 0; i < p->n; i++)
        entry_free(p->pods[i]);
    for (size_t i = 0; i < p->n_spared; i++)
        free((char *)p->spared[i].uid.p);
    free(p->spared);
    free(p->pods);
    *p = (struct core_preempt){0};
}

/* The last entry takes its place. An entry whose call is in flight stays until the answer,
 * because the next eviction has to wait for it. */
static void remove_at(struct step *s, size_t i)
{
    struct core_preempt *p = &s->core->preempt;
    struct core_preempt_pod *e = p->pods[i];
    core_preempt_release(s, e);
    if (e->call) {
        e->state = CORE_PREEMPT_DONE;
        e->until_ms = s->now.mono_ms;
        return;
    }
    entry_free(e);
    p->pods[i] = p->pods[--p->n];
}

void core_preempt_restart_search(struct core_preempt_pod *e)
{
    e->at = 0;
    e->found = false;
}

/* The pod as the ledger knows it, while it may preempt; else NULL. */
static struct ledger_pod *may_preempt(const struct core *core, struct span uid)
{
    struct ledger_pod *pod = ledger_pod_find(core->ledger, uid);
    if (!pod || pod->node || pod->invalid_reason || pod->never_preempts)
        return NULL;
    /* The kubelet chooses the cards of nvidia.com/gpu: none can be kept for the pod. */
    bool ours =
        pod->request->kind == REQUEST_MEMORY || pod->request->kind == REQUEST_CARDS;
    return ours ? pod : NULL;
}

static int64_t priority_of(const struct core *core, const struct core_preempt_pod *e)
{
    const struct ledger_pod *pod = ledger_pod_find(core->ledger, e->uid);
    return pod ? pod->priority : INT64_MIN;
}

/* Makes place for a pod of that priority: a pod of lower priority is forgotten, which
 * kube-scheduler's next attempt brings back. False: there is none. */
static bool make_place(struct step *s, int64_t priority)
{
    struct core_preempt *p = &s->core->preempt;
    size_t lowest = p->n;
    if (p->n < CORE_PREEMPT_PODS)
        return true;
    for (size_t i = 0; i < p->n; i++) {
        bool idle = p->pods[i]->state == CORE_PREEMPT_WAITING;
        int64_t mine = idle ? priority_of(s->core, p->pods[i]) : INT64_MAX;
        if (mine < priority) {
            priority = mine;
            lowest = i;
        }
    }
    if (lowest == p->n)
        return false;
    remove_at(s, lowest);
    return true;
}

static struct core_preempt_pod *entry_new(struct step *s, const struct ledger_pod *pod)
{
    struct core_preempt *p = &s->core->preempt;
    struct core_preempt_pod *e = xcalloc(1, sizeof *e);
    e->uid = (struct span){xmemdup0(pod->uid.p, pod->uid.n), pod->uid.n};
    e->since_ms = s->now.mono_ms;
    e->since_ns = s->now.wall_ns;
    e->due_ms = s->now.mono_ms + s->core->settings.preempt_after_ms;
    if (!p->n)
        p->due_ms = e->due_ms;
    MEM_GROW(p->pods, p->cap, p->n + 1);
    p->pods[p->n++] = e;
    return e;
}

void core_preempt_rejected(struct step *s)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    const struct ledger_pod *pod = may_preempt(core, in->uid);
    if (core->settings.preempt_after_ms <= 0 || !core->leader.leading || !pod ||
        !in->n_nodes)
        return;
    struct core_preempt_pod *e = core_preempt_find(core, in->uid);
    if (!e && !make_place(s, pod->priority))
        return;
    e = e ? e : entry_new(s, pod);
    buf_clear(&e->nodes);
    core_preempt_restart_search(e);
    e->n_nodes = in->n_nodes < CORE_PREEMPT_NODES ? in->n_nodes : CORE_PREEMPT_NODES;
    for (size_t i = 0; i < e->n_nodes; i++) {
        buf_add_span(&e->nodes, in->nodes[i]);
        buf_addc(&e->nodes, '\0');
    }
}

/* Forgets pods that are bound, deleted or ask for nothing now, and releases the cards of
 * those whose limit has passed. */
static void sweep(struct step *s)
{
    struct core *core = s->core;
    struct core_preempt *p = &core->preempt;
    for (size_t i = p->n; i-- > 0;) {
        struct core_preempt_pod *e = p->pods[i];
        const struct ledger_pod *pod = ledger_pod_find(core->ledger, e->uid);
        bool bound = pod && pod->node && pod->final && !bind_op_find(core, e->uid);
        bool waits = e->state == CORE_PREEMPT_WAITING;
        bool over = e->state == CORE_PREEMPT_DONE && e->until_ms <= s->now.mono_ms;
        if (!pod || bound || over || (waits && !pod->node && !may_preempt(core, e->uid)))
            remove_at(s, i);
        else if (e->state == CORE_PREEMPT_DONE)
            core_preempt_keep(s, e);
    }
}

/* This process does not lead any more. Only the limit of pods for which it evicted others
 * is remembered. */
static void step_down(struct step *s)
{
    struct core_preempt *p = &s->core->preempt;
    for (size_t i = p->n; i-- > 0;) {
        struct core_preempt_pod *e = p->pods[i];
        if (e->state == CORE_PREEMPT_EVICTING && e->call) { /* it may take effect */
            e->evicted = true;
            e->until_ms = s->now.mono_ms + CORE_PREEMPT_LIMIT_MS;
        }
        bool limited = e->evicted && e->until_ms > s->now.mono_ms &&
                       ledger_pod_find(s->core->ledger, e->uid);
        if (!limited) {
            remove_at(s, i);
            continue;
        }
        core_preempt_release(s, e);
        e->state = CORE_PREEMPT_DONE;
    }
}

/* The pod whose search is in progress, else the most important one that has waited long
 * enough: a higher priority, then the longer wait, then the smaller UID. */
static struct core_preempt_pod *next_waiting(struct step *s)
{
    struct core *core = s->core;
    struct core_preempt_pod *best = NULL;
    for (size_t i = 0; i < core->preempt.n; i++) {
        struct core_preempt_pod *e = core->preempt.pods[i];
        const struct ledger_pod *pod = may_preempt(core, e->uid);
        /* Nominated by kube-scheduler, or by a leader before this one: pods leave for it. */
        if (e->state != CORE_PREEMPT_WAITING || !pod || pod->nomination ||
            e->due_ms > s->now.mono_ms)
            continue;
        if (e->at)
            return e;
        int64_t a = pod->priority, b = best ? priority_of(core, best) : INT64_MIN;
        bool first = !best || a > b;
        if (a == b && best)
            first = e->since_ms != best->since_ms ? e->since_ms < best->since_ms
                                                  : span_cmp(e->uid, best->uid) < 0;
        best = first ? e : best;
    }
    return best;
}

bool core_preempt_select(struct step *s, const struct ledger_pod *pod,
                         const struct ledger_node *node, const struct span *more,
                         size_t n_more, struct preempt_victims *victims)
{
    struct core_preempt *p = &s->core->preempt;
    struct arena *a = &s->core->scratch;
    size_t n = 0, n_leaving = 0, n_spared = 0;
    for (const struct ledger_pod *other = node->pods; other; other = other->next)
        n++;
    struct span *leaving = arena_alloc(a, (n + n_more) * sizeof *leaving);
    struct span *spared = arena_alloc(a, (n + p->n_spared) * sizeof *spared);
    for (const struct ledger_pod *other = node->pods; other; other = other->next) {
        if (other->terminating)
            leaving[n_leaving++] = other->uid;
        else if (other->mirror || other->daemon)
            spared[n_spared++] = other->uid;
    }
    for (size_t i = 0; i < n_more; i++)
        leaving[n_leaving++] = more[i];
    for (size_t i = 0; i < p->n_spared; i++)
        if (p->spared[i].until_ms > s->now.mono_ms)
            spared[n_spared++] = p->spared[i].uid;
    struct preemptor who = {select_pod_of(pod), spared, n_spared};
    return preempt_select(&who, node, leaving, n_leaving, a, victims) && victims->cards;
}

/* Looks at one node. True: the pod fits there without evictions, now or when terminating
 * pods are gone. */
static bool visit(struct step *s, struct core_preempt_pod *e,
                  const struct ledger_pod *pod, struct span name)
{
    const struct ledger_node *node = ledger_node_find(s->core->ledger, name);
    struct preempt_victims v;
    if (!node || node->cordoned || node->state != NODE_USABLE ||
        !core_preempt_select(s, pod, node, NULL, 0, &v))
        return false;
    if (!v.n)
        return true;
    int64_t priority = v.pods[0]->priority;
    struct span best = e->found ? span_of(e->nodes.p + e->best) : (struct span){0};
    bool cheaper =
        !e->found || priority < e->priority ||
        (priority == e->priority && v.n < e->cost) ||
        (priority == e->priority && v.n == e->cost && span_cmp(name, best) < 0);
    if (cheaper) {
        e->best = (size_t)(name.p - e->nodes.p);
        e->priority = priority;
        e->cost = v.n;
        e->found = true;
    }
    return false;
}

static void search(struct step *s, struct core_preempt_pod *e)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    bool fits = false;
    for (int i = 0; i < SLICE_NODES && e->at < e->nodes.n && !fits; i++) {
        struct span name = span_of(e->nodes.p + e->at);
        fits = visit(s, e, pod, name);
        e->at += name.n + 1;
    }
    if (!fits && e->at < e->nodes.n) {
        s->core->preempt.due_ms = s->now.mono_ms + SLICE_MS;
        return;
    }
    bool found = e->found && !fits;
    e->result = found  ? CORE_PREEMPT_VICTIMS
                : fits ? CORE_PREEMPT_NOT_NEEDED
                       : CORE_PREEMPT_NO_VICTIMS;
    struct span best = found ? span_of(e->nodes.p + e->best) : (struct span){0};
    core_preempt_restart_search(e);
    if (found)
        core_preempt_begin(s, e, best);
    else
        e->due_ms = s->now.mono_ms + NO_VICTIMS_MS;
}

void core_preempt_tick(struct step *s)
{
    struct core_preempt *p = &s->core->preempt;
    if (!p->n || s->now.mono_ms < p->due_ms)
        return;
    p->due_ms = s->now.mono_ms + INTERVAL_MS;
    if (!s->core->leader.leading || s->core->stopping) {
        step_down(s);
        return;
    }
    sweep(s);
    if (core_may_bind(s->core, s->now, NULL))
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct core_preempt_pod *e = p->pods[i];
        bool evicts =
            e->state == CORE_PREEMPT_NOMINATING || e->state == CORE_PREEMPT_EVICTING;
        if (!evicts && !e->call)
            continue;
        if ((!e->call || MUTANT(eviction_before_the_answer)) &&
            e->due_ms <= s->now.mono_ms)
            core_preempt_evict(s, e);
        return; /* one preemption at a time */
    }
    struct core_preempt_pod *e = next_waiting(s);
    if (e)
        search(s, e);
}

int64_t core_preempt_due(const struct core *core)
{
    return core->preempt.n ? core->preempt.due_ms : INT64_MAX;
}

struct core_preemptions core_preemptions(const struct core *core)
{
    const struct core_preempt *p = &core->preempt;
    struct core_preemptions out = p->counts;
    for (size_t i = 0; i < p->n; i++)
        *(p->pods[i]->state == CORE_PREEMPT_WAITING ? &out.waiting : &out.kept) += 1;
    return out;
}
