/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_preempt_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"

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

void core_preempt_clear(struct core_preempt_pod *e)
{
    for (size_t i = 0; i < e->n_victims; i++)
        free((char *)e->victims[i].p);
    free(e->victims);
    free((char *)e->node.p);
    e->victims = NULL;
    e->n_victims = e->next = 0;
    e->node = (struct span){0};
    e->cards = 0;
}

void core_preempt_keep(struct step *s, const struct core_preempt_pod *e)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    /* kube-scheduler may have nominated it to another node since. */
    const struct ledger_nomination *m = pod ? pod->nomination : NULL;
    bool free_to =
        pod && !pod->node && (!m || (!m->kept && span_eq(m->node->name, e->node)));
    if (e->cards && free_to)
        ledger_pod_keep(s->core->ledger, pod, e->node, e->cards);
}

void core_preempt_release(struct step *s, struct core_preempt_pod *e)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    if (pod && ledger_pod_kept(pod)) {
        ledger_pod_keep(s->core->ledger, pod, e->node, 0);
        wakeup_node(s, e->node);
    }
    core_preempt_clear(e);
}

static struct core_output *add_call(struct step *s, enum core_output_type type,
                                    struct core_preempt_pod *e,
                                    const struct ledger_pod *pod)
{
    struct clock_deadline until = leader_bind_deadline(s->core);
    if (until.mono_ms > s->now.mono_ms + SEND_WITHIN_MS)
        until.mono_ms = s->now.mono_ms + SEND_WITHIN_MS;
    const char *ns = output_str(s, pod->ns), *name = output_str(s, pod->name);
    const char *uid = output_str(s, pod->uid), *node = output_str(s, e->node);
    struct core_output *o = output_add(s, type);
    e->call = o->call = core_next_id(s->core);
    o->ns = ns;
    o->name = name;
    o->uid = uid;
    o->node = node;
    o->send_by = until;
    return o;
}

/* Removes the nomination. An answer is not needed: kube-scheduler removes it as well when it
 * tries the pod again. */
static void retract(struct step *s, struct core_preempt_pod *e)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    if (!pod || pod->node || core_may_bind(s->core, s->now, NULL) ||
        (pod->nomination && !span_eq(pod->nomination->node->name, e->node)))
        return;
    add_call(s, CORE_CALL_NOMINATE, e, pod)->node = NULL;
    e->call = 0;
}

/* After an eviction the pod has to wait for the limit; else it is searched for again. */
static void abandon(struct step *s, struct core_preempt_pod *e, int64_t retry_ms)
{
    s->core->preempt.counts.abandoned++;
    if (!e->evicted)
        retract(s, e);
    core_preempt_release(s, e);
    e->state = e->evicted ? CORE_PREEMPT_DONE : CORE_PREEMPT_WAITING;
    e->due_ms = s->now.mono_ms + retry_ms;
}

void core_preempt_begin(struct step *s, struct core_preempt_pod *e, struct span node_name)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, e->uid);
    const struct ledger_node *node = ledger_node_find(s->core->ledger, node_name);
    struct preempt_victims v;
    if (!node || !core_preempt_select(s, pod, node, NULL, 0, &v) || !v.n)
        return; /* changed since the search: the next tick searches again */
    e->node = (struct span){xmemdup0(node_name.p, node_name.n), node_name.n};
    e->cards = v.cards;
    e->victims = xcalloc(v.n, sizeof *e->victims);
    for (size_t i = 0; i < v.n; i++)
        e->victims[e->n_victims++] =
            (struct span){xmemdup0(v.pods[i]->uid.p, v.pods[i]->uid.n), v.pods[i]->uid.n};
    e->state = CORE_PREEMPT_NOMINATING;
    e->evicted = false;
    e->attempts = 0;
    s->core->preempt.counts.started++;
    ledger_pod_keep(s->core->ledger, pod, e->node, e->cards);
    output_log(s, ERR_NONE,
               "pod %.*s/%.*s: no card has enough free memory%s; evicting %zu pod(s) of "
               "lower priority from node %.*s",
               SPAN_ARG(pod->ns), SPAN_ARG(pod->name),
               pod->request->core ? " and compute" : "", v.n, SPAN_ARG(e->node));
    const char *text = output_text_of(
        s, "nominated to node %.*s; evicting %zu pod(s) of lower priority there",
        SPAN_ARG(e->node), v.n);
    add_call(s, CORE_CALL_NOMINATE, e, pod)->text = text;
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
    return core_preempt_select(s, pod, node, leaving, n, &v) && !v.n;
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

static void done(struct step *s, struct core_preempt_pod *e)
{
    e->state = CORE_PREEMPT_DONE;
    if (!e->evicted) /* all victims left by themselves */
        e->until_ms = s->now.mono_ms + FAILED_MS;
}

void core_preempt_evict(struct step *s, struct core_preempt_pod *e)
{
    struct ledger *l = s->core->ledger;
    const struct ledger_pod *pod = ledger_pod_find(l, e->uid);
    const struct ledger_node *node = ledger_node_find(l, e->node);
    if (core_may_bind(s->core, s->now, NULL)) {
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
        done(s, e);
        return;
    }
    const char *preemptor = output_str(s, e->uid);
    /* The UID, not the name: tenants may not see each other's pods. */
    const char *text = output_text_of(
        s, "evicted from node %.*s: pod %.*s of priority %lld needs the memory%s",
        SPAN_ARG(e->node), SPAN_ARG(e->uid), (long long)pod->priority,
        pod->request->core ? " and compute" : "");
    struct core_output *o = add_call(s, CORE_CALL_EVICT, e, victim);
    o->preemptor = preemptor;
    o->text = text;
    e->attempts++;
}

static void spare(struct step *s, struct span uid)
{
    struct core_preempt *p = &s->core->preempt;
    if (p->n_spared < CORE_PREEMPT_PODS) {
        MEM_GROW(p->spared, p->spared_cap, p->n_spared + 1);
        p->spared[p->n_spared++] = (struct core_preempt_spared){0};
    }
    struct core_preempt_spared *at = &p->spared[p->next_spared];
    p->next_spared = (p->next_spared + 1) % CORE_PREEMPT_PODS;
    free((char *)at->uid.p);
    *at = (struct core_preempt_spared){{xmemdup0(uid.p, uid.n), uid.n},
                                       s->now.mono_ms + SPARED_MS};
}

/* "namespace/name", or the UID of a pod that is gone. */
static const char *label(struct step *s, struct span uid)
{
    const struct ledger_pod *pod = ledger_pod_find(s->core->ledger, uid);
    return pod ? output_text_of(s, "%.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name))
               : output_str(s, uid);
}

static void nominated(struct step *s, struct core_preempt_pod *e, enum err_code code)
{
    if (code == ERR_NONE) {
        e->state = CORE_PREEMPT_EVICTING;
        core_preempt_evict(s, e);
        return;
    }
    if (code != ERR_NOT_FOUND && code != ERR_CONFLICT)
        output_log(s, code,
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
    output_log(s, ERR_CONFLICT,
               "pod %s: not evicted for pod %s: %s; it is no victim for %d s",
               label(s, e->victims[e->next]), label(s, e->uid), why, SPARED_MS / 1000);
    spare(s, e->victims[e->next]);
    abandon(s, e, OTHER_VICTIMS_MS);
}

static bool is_permanent(enum err_code code)
{
    return code == ERR_FORBIDDEN || code == ERR_UNAUTHORIZED || code == ERR_INVALID;
}

/* May the request have taken effect? */
static void note_eviction(struct step *s, struct core_preempt_pod *e, enum err_code code)
{
    if (s->in->not_sent || s->in->disruption_budget || is_permanent(code) ||
        code == ERR_NOT_FOUND || code == ERR_CONFLICT)
        return;
    e->evicted = true;
    e->until_ms = s->now.mono_ms + (MUTANT(evicted_twice) ? 0 : CORE_PREEMPT_LIMIT_MS);
}

static void evicted(struct step *s, struct core_preempt_pod *e, enum err_code code)
{
    const struct core_input *in = s->in;
    note_eviction(s, e, code);
    if (code == ERR_NONE || code == ERR_NOT_FOUND || code == ERR_CONFLICT) {
        /* A conflict: the UID is that of a pod that is gone. */
        s->core->preempt.counts.evicted += code == ERR_NONE;
        e->next++;
        e->attempts = 0;
        core_preempt_evict(s, e);
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
    struct core_preempt *p = &s->core->preempt;
    enum err_code code = s->in->err ? s->in->err->code : ERR_NONE;
    struct core_preempt_pod *e = NULL;
    for (size_t i = 0; i < p->n && !e; i++)
        e = p->pods[i]->call == s->in->call ? p->pods[i] : NULL;
    if (!e)
        return false;
    e->call = 0;
    if (e->state == CORE_PREEMPT_NOMINATING)
        nominated(s, e, code);
    else if (e->state == CORE_PREEMPT_EVICTING)
        evicted(s, e, code);
    return true;
}
