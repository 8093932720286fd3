/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/quantity.h"
#include "placement/preempt.h"

/* Layout preemption (core.h): the rejected pods, the search, the evictions. */

/* -- from the choice of a node to the last eviction -- */

/*
 * Executes a layout preemption: nominates the pod, keeps the cards for it, and evicts the
 * victims one after the other. Before each eviction the rest of the plan is checked again:
 * a victim that is not needed any more stays, and none is evicted for a plan that cannot
 * succeed any more.
 *
 * A timeout or a 5xx leaves the outcome of an eviction unknown. It is sent again: an
 * Eviction names the UID, and a second one of a terminating pod changes nothing.
 */

enum {
    SEND_WITHIN_MS = 1000,
    RETRY_MS = 1000,
    ATTEMPTS_MAX = 5,
    RETRY_AFTER_MAX_MS = 30 * 1000,
    OTHER_VICTIMS_MS = 10 * 1000, /* until the next search after a refused eviction */
    FAILED_MS = 60 * 1000,        /* until the next search after another failure */
    SPARED_MS = 60 * 1000,        /* a pod whose eviction was refused is no victim */
};

/* preempt_select; the `more` UIDs leave in any case. */
static bool select_victims(struct step *s, const struct ledger_pod *pod,
                           const struct ledger_node *node, const struct span *more,
                           size_t n_more, struct preempt_victims *victims)
{
    struct preemptor who = {select_pod_of(pod), true, s->now.mono_ms};
    return preempt_select(&who, node, more, n_more, &s->core->scratch, victims) &&
           victims->cards &&
           !core_quota_check(s->core, s->now, pod->ns, pod->uid, pod->request, node,
                             victims->cards, NULL);
}

static void clear_plan(struct core_preempt_pod *e)
{
    arena_fini(&e->plan);
    e->node = (struct span){0};
    e->n_victims = e->next = 0;
    e->cards = 0;
}

/* Other pods may use the cards again. */
static void release_cards(struct step *s, struct core_preempt_pod *e)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    if (pod && ledger_pod_kept(pod)) {
        ledger_pod_keep(s->core->ledger, pod, e->node, 0);
        core_wakeup_node(s, e->node);
    }
    clear_plan(e);
}

static struct core_output *add_call(struct step *s, enum core_output_type type,
                                    struct core_preempt_pod *e,
                                    const struct ledger_pod *pod)
{
    struct core_output *o = core_call(s, type, &e->call, pod->ns, pod->name, pod->uid);
    o->node = step_text(s->out, e->node);
    o->send_by = core_leader_bind_deadline(s->core);
    step_due(&o->send_by.mono_ms, s->now.mono_ms + SEND_WITHIN_MS);
    return o;
}

/* After an eviction the pod has to wait for the limit; else it is searched for again. */
static void abandon(struct step *s, struct core_preempt_pod *e, int64_t retry_ms)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    s->core->preempt.counts.abandoned++;
    /* Removes the nomination. An answer is not needed: kube-scheduler removes it as well when it
     * tries the pod again. */
    if (!e->evicted && pod && !pod->node && !core_check_may_bind(s->core, s->now, NULL) &&
        (!pod->nomination || span_eq(pod->nomination->node->name, e->node))) {
        add_call(s, CORE_CALL_NOMINATE, e, pod)->node = NULL;
        e->call = 0;
    }
    release_cards(s, e);
    e->state = e->evicted ? CORE_PREEMPT_DONE : CORE_PREEMPT_WAITING;
    e->due_ms = s->now.mono_ms + retry_ms;
}

/* Nominates the pod to the node and keeps the cards, if that still helps. */
static void begin_evictions(struct step *s, struct core_preempt_pod *e,
                            struct span node_name)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    const struct ledger_node *node = ledger_node_find(s->core->ledger, node_name);
    struct preempt_victims v;
    if (!node || !select_victims(s, pod, node, NULL, 0, &v) || !v.n)
        return; /* changed since the search: the next tick searches again */
    e->node = arena_copy(&e->plan, node_name);
    e->cards = v.cards;
    e->victims = arena_alloc(&e->plan, v.n * sizeof *e->victims);
    for (size_t i = 0; i < v.n; i++)
        e->victims[e->n_victims++] = arena_copy(&e->plan, v.pods[i]->uid);
    e->state = CORE_PREEMPT_NOMINATING;
    e->evicted = false;
    e->attempts = 0;
    s->core->preempt.counts.started++;
    ledger_pod_keep(s->core->ledger, pod, e->node, e->cards);
    core_log(s, ERR_NONE,
             "pod %.*s/%.*s: no card has enough free memory%s; evicting %zu pod(s) of "
             "lower priority from node %.*s",
             SPAN_ARG(pod->ns), SPAN_ARG(pod->name),
             pod->request->compute_percent ? " and compute" : "", v.n, SPAN_ARG(e->node));
    add_call(s, CORE_CALL_NOMINATE, e, pod)->text = step_printf(
        s->out, "nominated to node %.*s; evicting %zu pod(s) of lower priority there",
        SPAN_ARG(e->node), v.n);
}

/* Does the pod fit on the node when all victims but victims[without] have left? */
static bool suffices(struct step *s, const struct core_preempt_pod *e,
                     const struct ledger_pod *pod, const struct ledger_node *node,
                     size_t without)
{
    struct preempt_victims v;
    size_t n = 0;
    struct span *leaving =
        arena_alloc(&s->core->scratch, (e->n_victims + 1) * sizeof *leaving);
    for (size_t i = 0; i < e->n_victims; i++)
        if (i != without)
            leaving[n++] = e->victims[i];
    return select_victims(s, pod, node, leaving, n, &v) && !v.n;
}

/* The next victim whose eviction is needed; NULL: none is left. */
static const struct ledger_pod *next_victim(struct step *s, struct core_preempt_pod *e,
                                            const struct ledger_pod *pod,
                                            const struct ledger_node *node)
{
    for (; e->next < e->n_victims; e->next++, e->attempts = 0) {
        const struct ledger_pod *victim =
            ledger_pod_find(s->core->ledger, e->victims[e->next]);
        if (victim && victim->node == node && !victim->terminating &&
            victim->priority < pod->priority + MUTANT(eviction_of_equal_priority) &&
            !suffices(s, e, pod, node, e->next))
            return victim;
    }
    return NULL;
}

/* Sends the next eviction that is still needed, or ends the preemption. */
static void evict_next(struct step *s, struct core_preempt_pod *e)
{
    struct ledger *l = s->core->ledger;
    const struct ledger_pod *pod = ledger_pod_find(l, e->uid);
    const struct ledger_node *node = ledger_node_find(l, e->node);
    if (core_check_may_bind(s->core, s->now, NULL)) {
        e->due_ms = s->now.mono_ms; /* the next tick goes on, or forgets it */
        return;
    }
    if (!pod || pod->node || !ledger_pod_kept(pod) || !node ||
        !suffices(s, e, pod, node, e->n_victims)) {
        abandon(s, e, RETRY_MS);
        return;
    }
    const struct ledger_pod *victim = next_victim(s, e, pod, node);
    if (!victim) {
        e->state = CORE_PREEMPT_DONE;
        if (!e->evicted) /* all victims left by themselves */
            e->until_ms = s->now.mono_ms + FAILED_MS;
        return;
    }
    struct core_output *o = add_call(s, CORE_CALL_EVICT, e, victim);
    o->preemptor = step_text(s->out, e->uid);
    /* The UID, not the name: tenants may not see each other's pods. */
    o->text = step_printf(
        s->out, "evicted from node %.*s: pod %.*s of priority %lld needs the memory%s",
        SPAN_ARG(e->node), SPAN_ARG(e->uid), (long long)pod->priority,
        pod->request->compute_percent ? " and compute" : "");
    e->attempts++;
}

/* "namespace/name", or the UID of a pod that is gone. */
static const char *label(struct step *s, struct span uid)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, uid);
    return pod ? step_printf(s->out, "%.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name))
               : step_text(s->out, uid);
}

static void nominated(struct step *s, struct core_preempt_pod *e)
{
    enum err_code code = s->code;
    if (code == ERR_NONE) {
        e->state = CORE_PREEMPT_EVICTING;
        evict_next(s, e);
        return;
    }
    if (code != ERR_NOT_FOUND && code != ERR_CONFLICT)
        core_log(s, code,
                 "pod %s: cannot set nominatedNodeName: %s; no pod is evicted for it, "
                 "retrying in %d s",
                 label(s, e->uid), s->in->err->msg, FAILED_MS / 1000);
    abandon(s, e, FAILED_MS);
}

/* The victim stays: other pods are chosen, without it. */
static void refused(struct step *s, struct core_preempt_pod *e, const char *why)
{
    e->refused++;
    e->by_budget = s->in->disruption_budget;
    core_log(s, ERR_CONFLICT,
             "pod %s: not evicted for pod %s: %s; it is no victim for %d s",
             label(s, e->victims[e->next]), label(s, e->uid), why, SPARED_MS / 1000);
    struct ledger_pod *victim = ledger_pod_find(s->core->ledger, e->victims[e->next]);
    if (victim)
        victim->spared_ms = s->now.mono_ms + SPARED_MS;
    abandon(s, e, OTHER_VICTIMS_MS);
}

static bool is_permanent(enum err_code code)
{
    return code == ERR_FORBIDDEN || code == ERR_UNAUTHORIZED || code == ERR_INVALID;
}

static void evicted(struct step *s, struct core_preempt_pod *e)
{
    const struct core_input *in = s->in;
    enum err_code code = s->code;
    bool gone = code == ERR_NOT_FOUND || code == ERR_CONFLICT; /* of another UID */
    if (!in->not_sent && !in->disruption_budget && !is_permanent(code) && !gone) {
        e->evicted = true; /* the request may have taken effect */
        e->until_ms =
            s->now.mono_ms + (MUTANT(evicted_twice) ? 0 : CORE_PREEMPT_LIMIT_MS);
    }
    if (code == ERR_NONE || gone) {
        s->core->preempt.counts.evicted += code == ERR_NONE;
        e->next++;
        e->attempts = 0;
        evict_next(s, e);
    } else if (in->disruption_budget) {
        s->core->preempt.counts.refused++;
        refused(s, e, in->err->msg);
    } else if (is_permanent(code) || e->attempts >= ATTEMPTS_MAX) {
        refused(s, e, in->err->msg);
    } else {
        int64_t wait_ms = in->retry_after_ms > RETRY_MS ? in->retry_after_ms : RETRY_MS;
        e->due_ms = s->now.mono_ms +
                    (wait_ms < RETRY_AFTER_MAX_MS ? wait_ms : RETRY_AFTER_MAX_MS);
    }
}

bool core_preempt_answered(struct step *s)
{
    LIST_EACH(struct core_preempt_pod, e, &s->core->preempt.pods, link)
    {
        if (e->call != s->in->call)
            continue;
        e->call = 0;
        if (e->state == CORE_PREEMPT_NOMINATING)
            nominated(s, e);
        else if (e->state == CORE_PREEMPT_EVICTING)
            evicted(s, e);
        return true;
    }
    return false;
}

/*
 * Layout preemption (core.h): remembers the pods that filter rejected, and searches for
 * the cheapest victims, a few nodes in each step and one pod per interval.
 * The first part of this file executes what was chosen.
 */

enum {
    INTERVAL_MS = 1000,
    /* preempt_select takes up to a millisecond, and the step holds the write lock. */
    SLICE_NODES = 4,
    SLICE_MS = 20,
    NO_VICTIMS_MS = 30 * 1000, /* until the next search if no node has victims */
    RETRIED_MS = 10 * 1000, /* kube-scheduler's longest back-off (podMaxBackoffSeconds) */
};

static void entry_end(struct core_preempt *p, struct core_preempt_pod *e)
{
    list_remove(&e->link);
    p->n--;
    clear_plan(e);
    core_disown(&e->uid);
    buf_fini(&e->nodes);
    free(e);
}

void core_preempt_fini(struct core *core)
{
    struct core_preempt *p = &core->preempt;
    LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
    entry_end(p, e);
}

/* An entry whose call is in flight stays until the answer, because the next eviction has to
 * wait for it. */
static void entry_remove(struct step *s, struct core_preempt_pod *e)
{
    release_cards(s, e);
    if (e->call) {
        e->state = CORE_PREEMPT_DONE;
        e->until_ms = s->now.mono_ms;
        return;
    }
    entry_end(&s->core->preempt, e);
}

static void restart_search(struct core_preempt_pod *e)
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
    return request_takes_cards(pod->request) ? pod : NULL;
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
    struct core_preempt_pod *lowest = NULL;
    if (p->n < CORE_PREEMPT_PODS)
        return true;
    LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
    {
        bool idle = e->state == CORE_PREEMPT_WAITING;
        int64_t mine = idle ? priority_of(s->core, e) : INT64_MAX;
        if (mine < priority) {
            priority = mine;
            lowest = e;
        }
    }
    if (lowest)
        entry_remove(s, lowest);
    return lowest;
}

void core_preempt_rejected(struct step *s)
{
    const struct core_input *in = s->in;
    struct core *core = s->core;
    struct core_preempt *p = &core->preempt;
    const struct ledger_pod *pod = may_preempt(core, in->uid);
    if (core->settings.preempt_after_ms <= 0 || !core->leader.leading || !pod ||
        !in->n_nodes)
        return;
    struct core_preempt_pod *e = NULL;
    LIST_EACH(struct core_preempt_pod, known, &p->pods, link)
    if (span_eq(known->uid, in->uid))
        e = known;
    if (!e && !make_place(s, pod->priority))
        return;
    if (!e) {
        e = xcalloc(1, sizeof *e);
        e->uid = core_own(pod->uid);
        e->since_ms = s->now.mono_ms;
        e->since_ns = s->now.wall_ns;
        e->due_ms = s->now.mono_ms + core->settings.preempt_after_ms;
        if (!p->n)
            p->due_ms = e->due_ms;
        list_append(&p->pods, &e->link);
        p->n++;
    }
    /* It may get a node that has not been offered yet, without evictions. */
    if (e->state == CORE_PREEMPT_WAITING && e->due_ms < pod->retry_ms + RETRIED_MS)
        e->due_ms = pod->retry_ms + RETRIED_MS;
    buf_clear(&e->nodes);
    restart_search(e);
    e->n_nodes = in->n_nodes < CORE_PREEMPT_NODES ? in->n_nodes : CORE_PREEMPT_NODES;
    for (size_t i = 0; i < e->n_nodes; i++) {
        buf_add_span(&e->nodes, in->nodes[i]);
        buf_addc(&e->nodes, '\0');
    }
}

/* The pod whose search is in progress, else the most important one that has waited long
 * enough: a higher priority, then the longer wait, then the smaller UID. */
static struct core_preempt_pod *next_waiting(struct step *s)
{
    struct core *core = s->core;
    struct core_preempt_pod *best = NULL;
    LIST_EACH(struct core_preempt_pod, e, &core->preempt.pods, link)
    {
        const struct ledger_pod *pod = may_preempt(core, e->uid);
        /* Nominated by kube-scheduler, or by a leader before this one: pods leave for it. */
        if (e->state != CORE_PREEMPT_WAITING || !pod || pod->nomination ||
            e->due_ms > s->now.mono_ms)
            continue;
        if (e->at)
            return e;
        if (!best ||
            (quantity_compare(priority_of(core, best), pod->priority)
                 ?: quantity_compare(e->since_ms, best->since_ms)
                 ?: span_cmp(e->uid, best->uid)) < 0)
            best = e;
    }
    return best;
}

/* Looks at one node. True: the pod fits there without evictions, now or when terminating
 * pods are gone. */
static bool visit(struct step *s, struct core_preempt_pod *e,
                  const struct ledger_pod *pod, struct span name)
{
    const struct ledger_node *node = ledger_node_find(s->core->ledger, name);
    struct preempt_victims v;
    if (!node || node->cordoned || node->state != NODE_USABLE ||
        !select_victims(s, pod, node, NULL, 0, &v))
        return false;
    if (!v.n)
        return true;
    int64_t priority = v.pods[0]->priority;
    if (!e->found || (quantity_compare(priority, e->priority)
                          ?: quantity_compare((int64_t)v.n, (int64_t)e->cost)
                          ?: span_cmp(name, span_of(e->nodes.p + e->best))) < 0) {
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
    restart_search(e);
    if (found)
        begin_evictions(s, e, best);
    else
        e->due_ms = s->now.mono_ms + NO_VICTIMS_MS;
}

void core_preempt_tick(struct step *s)
{
    struct core_preempt *p = &s->core->preempt;
    if (core_preempt_due(s->core) > s->now.mono_ms)
        return;
    p->due_ms = s->now.mono_ms + INTERVAL_MS;
    if (!s->core->leader.leading || s->core->stopping) {
        /* Only the limit of pods for which this process evicted others is remembered. */
        LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
        {
            if (e->state == CORE_PREEMPT_EVICTING && e->call) { /* it may take effect */
                e->evicted = true;
                e->until_ms = s->now.mono_ms + CORE_PREEMPT_LIMIT_MS;
            }
            bool limited = e->evicted && e->until_ms > s->now.mono_ms &&
                           ledger_pod_find(s->core->ledger, e->uid);
            if (!limited) {
                entry_remove(s, e);
                continue;
            }
            release_cards(s, e);
            e->state = CORE_PREEMPT_DONE;
        }
        return;
    }
    /* Pods that are bound, deleted or ask for nothing now are forgotten, and the cards of those
     * whose limit has passed are released. */
    struct core *core = s->core;
    LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
    {
        struct ledger_pod *pod = ledger_pod_find(core->ledger, e->uid);
        bool bound = pod && pod->node && pod->final && !core_bind_find(core, e->uid);
        bool waits = e->state == CORE_PREEMPT_WAITING;
        bool over = e->state == CORE_PREEMPT_DONE && e->until_ms <= s->now.mono_ms;
        if (!pod || bound || over ||
            (waits && !pod->node && !may_preempt(core, e->uid))) {
            entry_remove(s, e);
            continue;
        }
        /* Keeps the cards again, after a failed bind of the pod. kube-scheduler may have
         * nominated it to another node since. */
        const struct ledger_nomination *m = pod->nomination;
        if (e->state == CORE_PREEMPT_DONE && e->cards && !pod->node &&
            (!m || (!m->kept && span_eq(m->node->name, e->node))))
            ledger_pod_keep(core->ledger, pod, e->node, e->cards);
    }
    if (core_check_may_bind(s->core, s->now, NULL))
        return;
    LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
    {
        bool evicts =
            e->state == CORE_PREEMPT_NOMINATING || e->state == CORE_PREEMPT_EVICTING;
        if (!evicts && !e->call)
            continue;
        if ((!e->call || MUTANT(eviction_before_the_answer)) &&
            e->due_ms <= s->now.mono_ms)
            evict_next(s, e);
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

/* What layout preemption does for each pod that it remembers, for people. */

enum { NS_PER_MS = 1000 * 1000 };

static int64_t wall(const struct core_preempt_pod *e, int64_t mono_ms)
{
    return e->since_ns + (mono_ms - e->since_ms) * NS_PER_MS;
}

static int by_uid(const void *a, const void *b)
{
    const struct core_preempt_status *x = a, *y = b;
    return span_cmp(x->uid, y->uid);
}

size_t core_preempt_list(const struct core *core, struct arena *a,
                         struct core_preempt_status **list)
{
    const struct core_preempt *p = &core->preempt;
    struct core_preempt_status *at = *list = arena_zalloc(a, p->n * sizeof **list);
    LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
    *at++ = (struct core_preempt_status){
        .uid = arena_copy(a, e->uid),
        .state = e->state,
        .found = e->result,
        .since_ns = e->since_ns,
        .search_ns = wall(e, e->due_ms),
        .until_ns = wall(e, e->until_ms),
        .candidates = e->n_nodes,
        .node = arena_copy(a, e->node),
        .victims = e->n_victims,
        .left = e->n_victims - e->next,
        .refused = e->refused,
        .by_budget = e->by_budget,
    };
    if (p->n)
        qsort(*list, p->n, sizeof **list, by_uid);
    return p->n;
}

uint64_t core_preempt_generation(const struct core *core)
{
    const struct core_preempt *p = &core->preempt;
    uint64_t hash = p->n;
    LIST_EACH(struct core_preempt_pod, e, &p->pods, link)
    {
        /* Of the candidates only the count is shown; kube-scheduler rotates them. */
        const int64_t numbers[] = {
            e->state,    e->result,           e->since_ns,           e->due_ms,
            e->until_ms, (int64_t)e->n_nodes, (int64_t)e->n_victims, (int64_t)e->next,
            e->refused,  e->by_budget};
        hash = hash_bytes(hash, e->uid.p, e->uid.n);
        hash = hash_bytes(hash, e->node.p, e->node.n);
        hash = hash_bytes(hash, numbers, sizeof numbers);
    }
    return hash;
}
