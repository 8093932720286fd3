/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt.h"

#include <stdlib.h>

#include "base/mem.h"
#include "extender/verb.h"

/*
 * preempt. kube-scheduler proposes candidate nodes, each with victims, from what it
 * counts for a node as a whole. It keeps only the nodes and victims of the reply. So the
 * reply names each node with all proposed victims (they may be needed for CPU) and the
 * additional ones, and omits a node where eviction cannot help. A node without victims
 * must be omitted: kube-scheduler would end the preemption with an error.
 */

enum {
    /* The kubelet's default is 110 pods on a node; the largest known limit is 2,500. */
    NODE_VICTIMS_MAX = 4096,
    VICTIMS_PER_NODE = 64, /* on average, of all nodes that a request may name */
};

/* A pod to evict from a node. */
struct victim {
    struct span uid;
    int64_t priority;
    bool known; /* whether priority is set */
};

/* A candidate node. */
struct target {
    struct span name;
    struct victim *victims; /* by falling priority, as kube-scheduler sent them */
    size_t n, cap;
    int64_t pdb_violations;
};

struct targets {
    struct target *all;
    size_t n, cap, n_victims;
    bool full;            /* the victims are Pod objects */
    struct arena scratch; /* of one victim */
    uint64_t charged;     /* to the budget */
};

static void targets_fini(struct targets *targets)
{
    for (size_t i = 0; i < targets->n; i++)
        free(targets->all[i].victims);
    free(targets->all);
    arena_fini(&targets->scratch);
}
#define cleanup_targets __attribute__((cleanup(targets_fini)))

static int add_victim(struct verb_reading *r, struct target *t, const struct victim *v)
{
    struct targets *targets = r->ctx;
    size_t most = r->limits->nodes * VICTIMS_PER_NODE;
    if (t->n == NODE_VICTIMS_MAX || targets->n_victims++ == most)
        return err_set(r->err, ERR_TOO_LARGE,
                       "too many victims: expected at most %d on a node, and %zu on all "
                       "nodes",
                       NODE_VICTIMS_MAX, most);
    if (arena_bytes(r->a) > VERB_ARENA_MAX)
        return err_set(r->err, ERR_TOO_LARGE, "the names and UIDs have more than %d MiB",
                       VERB_ARENA_MAX >> 20);
    if (t->n == t->cap) { /* the array grows to twice its size */
        size_t bytes = (t->cap + 8) * sizeof *t->victims;
        if (!budget_take(r->limits->budget, bytes))
            return err_set(r->err, ERR_UNAVAILABLE,
                           "too many bytes of requests and replies in memory");
        targets->charged += bytes;
    }
    MEM_GROW(t->victims, t->cap, t->n + 1);
    t->victims[t->n++] = *v;
    return 0;
}

static bool is_inside(struct span part, struct span all)
{
    return (uintptr_t)part.p >= (uintptr_t)all.p &&
           (uintptr_t)part.p < (uintptr_t)all.p + all.n;
}

/* Only the UID and the priority of a Pod are kept. */
static void read_victim(struct verb_reading *r, struct target *t)
{
    struct targets *targets = r->ctx;
    struct jread *j = &r->j;
    struct jread_str key;
    struct victim v = {0};
    struct pod pod = {0};
    if (targets->full) {
        uint64_t charged = 0;
        r->failed = verb_read_pod(j, &targets->scratch, r->limits->budget, &pod, &charged,
                                  r->err) != 0;
        budget_give(r->limits->budget, charged);
        if (!is_inside(pod.meta.uid, (struct span){j->data, j->n}))
            pod.meta.uid = arena_copy(r->a, pod.meta.uid);
        arena_reset(&targets->scratch);
        v = (struct victim){pod.meta.uid, pod.priority, true};
    } else {
        jread_object(j, "Pods[]");
        while (jread_member(j, &key)) {
            if (jread_str_eq_nocase(key, SPAN("UID")))
                jread_text(j, "Pods[].UID", r->a, &v.uid);
            else
                jread_skip(j);
        }
    }
    if (!v.uid.n)
        jread_fail(j, "Pods[]", "has no UID");
    if (!r->failed)
        r->failed = add_victim(r, t, &v) != 0;
}

static void read_victims(struct verb_reading *r, struct target *t)
{
    struct jread *j = &r->j;
    struct jread_str key;
    jread_object(j, "Victims");
    while (!r->failed && jread_member(j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("NumPDBViolations"))) {
            jread_i64(j, "NumPDBViolations", &t->pdb_violations);
        } else if (jread_str_eq_nocase(key, SPAN("Pods"))) {
            t->n = 0;
            jread_array(j, "Pods");
            while (!r->failed && jread_item(j))
                read_victim(r, t);
        } else {
            jread_skip(j);
        }
    }
}

static bool read_targets(struct verb_reading *r, struct jread_str key)
{
    struct targets *targets = r->ctx;
    struct jread *j = &r->j;
    bool full = jread_str_eq_nocase(key, SPAN("NodeNameToVictims"));
    const char *where = full ? "NodeNameToVictims" : "NodeNameToMetaVictims";
    if (!jread_str_eq_nocase(key, span_of(where)))
        return false;
    if (targets->n)
        jread_fail(j, where, "is a second set of victims");
    targets->full = full;
    jread_object(j, where);
    while (!r->failed && jread_member(j, &key)) {
        struct span name = jread_span(key, r->a);
        if (!object_is_name(name))
            jread_fail(j, where, "has a key that is not a valid node name");
        if (targets->n == r->limits->nodes) {
            r->failed = verb_too_many_nodes(r->limits, r->err) != 0;
            return true;
        }
        MEM_GROW(targets->all, targets->cap, targets->n + 1);
        struct target *t = &targets->all[targets->n++];
        *t = (struct target){.name = name};
        read_victims(r, t);
    }
    /* A duplicate node would be computed twice and named twice in the reply. */
    struct span *names = arena_alloc(r->a, targets->n * sizeof *names);
    for (size_t i = 0; i < targets->n; i++)
        names[i] = targets->all[i].name;
    if (targets->n)
        qsort(names, targets->n, sizeof *names, span_compare);
    for (size_t i = 1; !r->failed && i < targets->n; i++)
        if (span_eq(names[i], names[i - 1]))
            r->failed = err_set(r->err, ERR_INVALID, "%s: duplicate node %.*s", where,
                                SPAN_ARG(names[i])) != 0;
    return true;
}

static const struct verb_body candidates = {
    read_targets, "NodeNameToVictims and NodeNameToMetaVictims are both missing"};

struct preempt {
    const struct verb_args *args;
    const struct core *core;
    const struct ledger *ledger;
    struct arena *arena;
    struct buf *reply;
};

static void write_uid(struct buf *out, struct span uid)
{
    buf_adds(out, out->p[out->n - 1] == '[' ? "{\"UID\":" : ",{\"UID\":");
    buf_add_json(out, uid);
    buf_addc(out, '}');
}

/* A victim sent only as a UID has the priority that the ledger knows. */
static bool is_lower(const struct preempt *p, const struct victim *v, int64_t priority)
{
    const struct ledger_pod *pod = ledger_pod_find(p->ledger, v->uid);
    if (v->known)
        return v->priority < priority;
    return pod && pod->priority < priority;
}

/* kube-scheduler takes the first victim for the most important. The proposed victims are
 * in order. Those that the ledger does not know (they use no GPU) have no priority here
 * and keep their position. */
static void write_target(const struct preempt *p, const struct target *t,
                         const struct preempt_victims *more)
{
    struct buf *out = p->reply;
    size_t k = 0;
    buf_adds(out, out->p[out->n - 1] == '{' ? "" : ",");
    buf_add_json(out, t->name);
    buf_adds(out, ":{\"Pods\":[");
    for (size_t i = 0; i < t->n; i++) {
        while (k < more->n && is_lower(p, &t->victims[i], more->pods[k]->priority))
            write_uid(out, more->pods[k++]->uid);
        write_uid(out, t->victims[i].uid);
    }
    while (k < more->n)
        write_uid(out, more->pods[k++]->uid);
    buf_adds(out, "],\"NumPDBViolations\":");
    buf_add_i64(out, t->pdb_violations);
    buf_addc(out, '}');
}

/* Chooses the additional victims. False: eviction cannot help on that node. */
static bool choose(const struct preempt *p, const struct target *t,
                   struct preempt_victims *more)
{
    const struct verb_args *args = p->args;
    const struct ledger_node *node = ledger_node_find(p->ledger, t->name);
    struct preemptor ask = {
        .pod = {&args->request, args->pod.priority, args->pod.meta.uid, NULL}};
    if (!node)
        return false;
    struct span *leaving = arena_alloc(p->arena, (t->n + 1) * sizeof *leaving);
    size_t n = 0;
    bool unknown = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct ledger_pod *pod = ledger_pod_find(p->ledger, t->victims[i].uid);
        if (pod && pod->node == node)
            leaving[n++] = pod->uid;
        else
            unknown = true;
    }
    /* preempt_select compares each pod of the node with each of these. All that it needs
     * to know of pods without a promise is that there are some. */
    if (unknown)
        leaving[n++] = (struct span){0};
    return preempt_select(&ask, node, leaving, n, p->arena, more) &&
           !core_quota_check(p->core, core_driver_now(), args->pod.meta.ns, ask.pod.uid,
                             &args->request, node, more->cards, NULL);
}

static void answer(const struct preempt *p, const struct target *t)
{
    const struct verb_args *args = p->args;
    const struct ledger_pod *known = ledger_pod_find(p->ledger, args->pod.meta.uid);
    struct preempt_victims more = {0};
    /* Eviction does not help a pod that has a promise or an invalid request. */
    if ((known && known->node) || args->invalid.code != ERR_NONE)
        return;
    const struct ledger_node *node = ledger_node_find(p->ledger, t->name);
    const struct request *r =
        request_on(&args->request, node ? node->dialect : SCV_DIALECT_NONE);
    if ((node && !select_dialect_allows(node, r)) ||
        (!request_needs_nothing(r) && !choose(p, t, &more)))
        return;
    if (t->n + more.n)
        write_target(p, t, &more);
}

/* Takes the read lock once per node: with thousands of expensive nodes, one lock for all
 * would delay watch events and the renewal of the lease. */
static unsigned answer_all(struct verb_call *call, const struct targets *targets)
{
    cleanup_arena struct arena scratch = {0};
    struct core_driver *driver = call->verbs->config.driver;
    struct preempt p = {
        .args = &call->work->args, .arena = &scratch, .reply = call->reply};
    struct err err;
    unsigned status;
    size_t i = 0;
    buf_adds(p.reply, "{\"NodeNameToMetaVictims\":{");
    do {
        p.core = core_driver_read(driver);
        int rc = core_ready(p.core, core_driver_now(), &err);
        p.ledger = core_ledger(p.core);
        if (!rc && i < targets->n)
            answer(&p, &targets->all[i]);
        core_driver_read_end(driver);
        arena_reset(&scratch);
        status = rc ? verb_error(p.reply, 503, &err) : verb_charge(call, 0);
    } while (status == 200 && ++i < targets->n);
    if (status == 200)
        buf_adds(p.reply, "}}");
    return status;
}

unsigned preempt_answer(struct verb_call *call)
{
    cleanup_targets struct targets targets = {0};
    unsigned status = verb_read(call, &candidates, &targets);
    if (status == 200)
        status = answer_all(call, &targets);
    verb_end(call);
    budget_give(call->verbs->config.budget, targets.charged);
    return status;
}
