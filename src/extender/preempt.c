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
    ARENA_MAX = 16 << 20,
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

struct args {
    struct pod pod;
    struct request request;
    struct err invalid;
    struct target *targets;
    size_t n, cap;
    bool full; /* the victims are Pod objects */

    struct span body;
    struct arena scratch; /* of one victim */
    struct verb_limits limits;
    size_t victims_left;
    uint64_t charged, charged_reply; /* to the budget */
    struct err *err;
    bool failed; /* err is set: the rest of the body is not read */
};

/* Charges for an array that grows to twice its size. */
static void charge_growth(struct args *args, size_t cap, size_t size)
{
    size_t bytes = (cap + 8) * size;
    if (args->failed)
        return;
    args->failed = !budget_take(args->limits.budget, bytes);
    if (args->failed)
        err_set(args->err, ERR_UNAVAILABLE,
                "too many bytes of requests and replies in memory");
    else
        args->charged += bytes;
}

static void args_fini(struct args *args)
{
    for (size_t i = 0; i < args->n; i++)
        free(args->targets[i].victims);
    free(args->targets);
    arena_fini(&args->scratch);
}
#define cleanup_args __attribute__((cleanup(args_fini)))

static void add_victim(struct args *args, struct target *t, const struct victim *v)
{
    if (t->n == NODE_VICTIMS_MAX || !args->victims_left--) {
        args->failed = true;
        err_set(args->err, ERR_TOO_LARGE,
                "too many victims: expected at most %d on a node, and %zu on all nodes",
                NODE_VICTIMS_MAX, args->limits.nodes * VICTIMS_PER_NODE);
        return;
    }
    if (t->n == t->cap)
        charge_growth(args, t->cap, sizeof *t->victims);
    if (args->failed)
        return;
    MEM_GROW(t->victims, t->cap, t->n + 1);
    t->victims[t->n++] = *v;
}

static void check_arena(struct args *args, const struct arena *a)
{
    if (args->failed || arena_bytes(a) <= ARENA_MAX)
        return;
    args->failed = true;
    err_set(args->err, ERR_TOO_LARGE, "the names and UIDs have more than %d MiB",
            ARENA_MAX >> 20);
}

static bool is_inside(struct span part, struct span all)
{
    return (uintptr_t)part.p >= (uintptr_t)all.p &&
           (uintptr_t)part.p < (uintptr_t)all.p + all.n;
}

/* Only the UID and the priority of a Pod are kept. */
static void read_victim(struct jread *j, struct arena *a, struct args *args,
                        struct target *t)
{
    bool full = args->full;
    struct jread_str key;
    struct victim v = {0};
    struct pod pod = {0};
    if (full) {
        uint64_t charged = 0;
        args->failed |= verb_read_pod(j, &args->scratch, args->limits.budget, &pod,
                                      &charged, args->err) != 0;
        budget_give(args->limits.budget, charged);
        if (!is_inside(pod.meta.uid, args->body))
            pod.meta.uid = arena_copy(a, pod.meta.uid);
        arena_reset(&args->scratch);
        v = (struct victim){pod.meta.uid, pod.priority, true};
    } else {
        jread_object(j, "Pods[]");
        while (jread_member(j, &key)) {
            if (jread_str_eq_nocase(key, SPAN("UID")))
                jread_text(j, "Pods[].UID", a, &v.uid);
            else
                jread_skip(j);
        }
    }
    if (!v.uid.n)
        jread_fail(j, "Pods[]", "has no UID");
    check_arena(args, a);
    if (!args->failed)
        add_victim(args, t, &v);
}

static void read_victims(struct jread *j, struct arena *a, struct args *args,
                         struct target *t)
{
    struct jread_str key;
    jread_object(j, "Victims");
    while (!args->failed && jread_member(j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("NumPDBViolations"))) {
            jread_i64(j, "NumPDBViolations", &t->pdb_violations);
        } else if (jread_str_eq_nocase(key, SPAN("Pods"))) {
            t->n = 0;
            jread_array(j, "Pods");
            while (!args->failed && jread_item(j))
                read_victim(j, a, args, t);
        } else {
            jread_skip(j);
        }
    }
}

static void read_targets(struct jread *j, struct arena *a, bool full, struct args *args)
{
    struct jread_str key;
    const char *where = full ? "NodeNameToVictims" : "NodeNameToMetaVictims";
    if (args->n)
        jread_fail(j, where, "is a second set of victims");
    args->full = full;
    jread_object(j, where);
    while (!args->failed && jread_member(j, &key)) {
        struct span name = jread_span(key, a);
        if (!object_is_name(name))
            jread_fail(j, where, "has a key that is not a valid node name");
        if (args->n == args->limits.nodes) {
            args->failed = true;
            verb_too_many_nodes(&args->limits, args->err);
            return;
        }
        MEM_GROW(args->targets, args->cap, args->n + 1);
        struct target *t = &args->targets[args->n++];
        *t = (struct target){.name = name};
        read_victims(j, a, args, t);
    }
}

static int compare_names(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

/* A duplicate node would be computed twice and named twice in the reply. */
static int check_targets(const struct args *args, struct arena *a, struct err *err)
{
    struct span *names = arena_alloc(a, args->n * sizeof *names);
    for (size_t i = 0; i < args->n; i++)
        names[i] = args->targets[i].name;
    if (args->n)
        qsort(names, args->n, sizeof *names, compare_names);
    for (size_t i = 1; i < args->n; i++)
        if (span_eq(names[i], names[i - 1]))
            return err_set(err, ERR_INVALID, "%s: duplicate node %.*s",
                           args->full ? "NodeNameToVictims" : "NodeNameToMetaVictims",
                           SPAN_ARG(names[i]));
    return 0;
}

static int read_args(struct args *args, struct span body,
                     const struct request_rules *rules, struct arena *a, struct err *err)
{
    struct jread j;
    struct jread_str key;
    bool has_pod = false, has_victims = false;
    args->err = err;
    args->body = body;
    args->victims_left = args->limits.nodes * VICTIMS_PER_NODE;
    jread_init(&j, body.p, body.n);
    jread_object(&j, "body");
    while (!args->failed && jread_member(&j, &key)) {
        bool full = jread_str_eq_nocase(key, SPAN("NodeNameToVictims"));
        if (jread_peek(&j) == JREAD_NULL) {
            jread_skip(&j);
        } else if (jread_str_eq_nocase(key, SPAN("Pod"))) {
            args->failed |= verb_read_pod(&j, a, args->limits.budget, &args->pod,
                                          &args->charged, err) != 0;
            has_pod = true;
        } else if (full || jread_str_eq_nocase(key, SPAN("NodeNameToMetaVictims"))) {
            read_targets(&j, a, full, args);
            has_victims = true;
        } else {
            jread_skip(&j);
        }
    }
    if (args->failed || jread_finish(&j, err))
        return -1;
    if (!has_pod)
        return err_set(err, ERR_INVALID, "Pod is missing");
    if (!has_victims)
        return err_set(err, ERR_INVALID,
                       "NodeNameToVictims and NodeNameToMetaVictims are both missing");
    if (check_targets(args, a, err))
        return -1;
    if (request_of(&args->pod, rules, a, &args->request, &args->invalid))
        args->request.kind = REQUEST_NONE;
    return 0;
}

struct preempt {
    const struct args *args;
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
    const struct args *args = p->args;
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
    return preempt_select(&ask, node, leaving, n, p->arena, more);
}

static void answer(const struct preempt *p, const struct target *t)
{
    const struct args *args = p->args;
    const struct ledger_pod *known = ledger_pod_find(p->ledger, args->pod.meta.uid);
    struct preempt_victims more = {0};
    /* Eviction does not help a pod that has a promise or an invalid request. */
    if ((known && known->node) || args->invalid.code != ERR_NONE)
        return;
    if (!request_fits_anywhere(&args->request) && !choose(p, t, &more))
        return;
    if (t->n + more.n)
        write_target(p, t, &more);
}

/* Takes the read lock once per node: with thousands of expensive nodes, one lock for all
 * would delay watch events and the renewal of the lease. -1: not ready. */
static int answer_all(struct core_driver *driver, struct preempt *p, uint64_t *charged,
                      struct err *err)
{
    struct budget *budget = p->args->limits.budget;
    size_t i = 0;
    int rc;
    buf_adds(p->reply, "{\"NodeNameToMetaVictims\":{");
    do {
        const struct core *core = core_driver_read(driver);
        rc = core_ready(core, core_driver_now(), err);
        p->ledger = core_ledger(core);
        if (!rc && i < p->args->n)
            answer(p, &p->args->targets[i]);
        core_driver_read_end(driver);
        arena_reset(p->arena);
        if (!rc && !budget_change(budget, charged, p->reply->cap))
            rc = err_set(err, ERR_UNAVAILABLE,
                         "too many bytes of requests and replies in memory");
    } while (!rc && ++i < p->args->n);
    buf_adds(p->reply, "}}");
    return rc;
}

unsigned preempt_answer(struct verb_call *call)
{
    cleanup_arena struct arena a = {0}, scratch = {0};
    cleanup_args struct args args = {0};
    struct verbs *v = call->verbs;
    struct err err, not_ready;
    unsigned status = 200;
    bool ready = verb_limits_now(v, &args.limits, &not_ready) == 0;
    bool read = read_args(&args, call->body, &v->rules, &a, &err) == 0;
    struct preempt p = {.args = &args, .arena = &scratch, .reply = call->reply};
    if (!read && (ready || err.code == ERR_INVALID))
        status = verb_error(call->reply, 0, &err);
    else if (!ready)
        status = verb_error(call->reply, 503, &not_ready);
    else if (answer_all(v->config.driver, &p, &args.charged_reply, &err))
        status = verb_error(call->reply, 503, &err);
    budget_give(v->config.budget, args.charged + args.charged_reply);
    return status;
}
