/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt.h"

#include <stdlib.h>

#include "base/mem.h"
#include "extender/verbs_priv.h"

/*
 * preempt. kube-scheduler proposes candidate nodes, each with victims, from what it
 * counts for a node as a whole. It keeps only the nodes and victims of the reply. So the
 * reply names each node with all proposed victims (they may be needed for CPU) and the
 * additional ones, and omits a node where eviction cannot help. A node without victims
 * must be omitted: kube-scheduler would end the preemption with an error.
 */

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
};

static void args_fini(struct args *args)
{
    for (size_t i = 0; i < args->n; i++)
        free(args->targets[i].victims);
    free(args->targets);
}
#define cleanup_args __attribute__((cleanup(args_fini)))

static void read_victim(struct jread *j, struct arena *a, bool full, struct target *t)
{
    struct jread_str key;
    struct victim v = {0};
    struct pod pod = {0};
    if (full) {
        pod_read(j, a, &pod);
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
    MEM_GROW(t->victims, t->cap, t->n + 1);
    t->victims[t->n++] = v;
}

static void read_victims(struct jread *j, struct arena *a, bool full, struct target *t)
{
    struct jread_str key;
    jread_object(j, "Victims");
    while (jread_member(j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("NumPDBViolations"))) {
            jread_i64(j, "NumPDBViolations", &t->pdb_violations);
        } else if (jread_str_eq_nocase(key, SPAN("Pods"))) {
            t->n = 0;
            jread_array(j, "Pods");
            while (jread_item(j))
                read_victim(j, a, full, t);
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
    while (jread_member(j, &key)) {
        struct span name = jread_span(key, a);
        if (!object_is_name(name))
            jread_fail(j, where, "has a key that is not a valid node name");
        MEM_GROW(args->targets, args->cap, args->n + 1);
        struct target *t = &args->targets[args->n++];
        *t = (struct target){.name = name};
        read_victims(j, a, full, t);
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
    jread_init(&j, body.p, body.n);
    jread_object(&j, "body");
    while (jread_member(&j, &key)) {
        bool full = jread_str_eq_nocase(key, SPAN("NodeNameToVictims"));
        if (jread_peek(&j) == JREAD_NULL) {
            jread_skip(&j);
        } else if (jread_str_eq_nocase(key, SPAN("Pod"))) {
            pod_read(&j, a, &args->pod);
            has_pod = true;
        } else if (full || jread_str_eq_nocase(key, SPAN("NodeNameToMetaVictims"))) {
            read_targets(&j, a, full, args);
            has_victims = true;
        } else {
            jread_skip(&j);
        }
    }
    if (jread_finish(&j, err))
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
    struct preemptor ask = {.request = &args->request,
                            .priority = args->pod.priority,
                            .uid = args->pod.meta.uid};
    if (!node)
        return false;
    struct span *leaving = arena_alloc(p->arena, t->n * sizeof *leaving);
    for (size_t i = 0; i < t->n; i++)
        leaving[i] = t->victims[i].uid;
    return preempt_select(&ask, node, leaving, t->n, p->arena, more);
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
static int answer_all(struct store *store, struct preempt *p, struct err *err)
{
    size_t i = 0;
    int rc;
    buf_adds(p->reply, "{\"NodeNameToMetaVictims\":{");
    do {
        const struct core *core = store_read(store);
        rc = core_ready(core, store_now(), err);
        p->ledger = core_ledger(core);
        if (!rc && i < p->args->n)
            answer(p, &p->args->targets[i]);
        store_read_end(store);
    } while (!rc && ++i < p->args->n);
    buf_adds(p->reply, "}}");
    return rc;
}

unsigned verb_preempt(struct verbs *v, struct span body, struct buf *reply)
{
    cleanup_arena struct arena a = {0};
    cleanup_args struct args args = {0};
    struct err err;
    if (read_args(&args, body, &v->rules, &a, &err))
        return verbs_reply_error(reply, 400, &err);
    struct preempt p = {.args = &args, .arena = &a, .reply = reply};
    if (answer_all(v->config.store, &p, &err))
        return verbs_reply_error(reply, 503, &err);
    return 200;
}
