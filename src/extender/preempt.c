/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/preempt.h"

#include <stdlib.h>

#include "base/mem.h"
#include "extender/verbs_priv.h"

/*
 * preempt. kube-scheduler has found candidate nodes, each with pods that could leave, by
 * what it counts for a node as a whole. It keeps of the reply what is named there: so
 * each node is named with all that were proposed (they may be there for CPU) and those
 * who have to leave besides, or not at all when nothing helps there. A node without any
 * victim must not be named: it would end the preemption with an error.
 */

/* Somebody who is to leave a node. */
struct victim {
    struct span uid;
    int64_t priority;
    bool known; /* its priority is */
};

/* A candidate node. */
struct target {
    struct span name;
    struct victim *victims; /* by falling priority, as they came */
    size_t n, cap;
    int64_t pdb_violations;
};

struct args {
    struct pod pod;
    struct request request;
    struct err bad;
    struct target *targets;
    size_t n, cap;
    bool full; /* victims came as pods */
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
        jread_fail(j, where, "comes beside other victims");
    args->full = full;
    jread_object(j, where);
    while (jread_member(j, &key)) {
        struct span name = jread_span(key, a);
        if (!object_is_name(name))
            jread_fail(j, where, "has a key that is not the name of a node");
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

/* A node that comes twice would be worked out twice, and named twice in the reply. */
static int check_targets(const struct args *args, struct arena *a, struct err *err)
{
    struct span *names = arena_alloc(a, args->n * sizeof *names);
    for (size_t i = 0; i < args->n; i++)
        names[i] = args->targets[i].name;
    if (args->n)
        qsort(names, args->n, sizeof *names, compare_names);
    for (size_t i = 1; i < args->n; i++)
        if (span_eq(names[i], names[i - 1]))
            return err_set(err, ERR_INVALID, "%s: node %.*s comes twice",
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
        return err_set(err, ERR_INVALID, "there is no Pod");
    if (!has_victims)
        return err_set(err, ERR_INVALID,
                       "there are neither NodeNameToVictims nor NodeNameToMetaVictims");
    if (check_targets(args, a, err))
        return -1;
    if (request_of(&args->pod, rules, a, &args->request, &args->bad))
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

/* What is known of the priority of somebody who came as a UID alone. */
static bool is_lower(const struct preempt *p, const struct victim *v, int64_t priority)
{
    const struct ledger_pod *pod = ledger_pod_find(p->ledger, v->uid);
    if (v->known)
        return v->priority < priority;
    return pod && pod->priority < priority;
}

/* kube-scheduler takes the first for the most important. What it proposed is in order;
 * of pods that only it knows (they use no GPU) it sends no priority, and they keep their
 * place. */
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

/* Who has to leave besides. False: nothing helps on that node. */
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
    /* Who is promised a place, or asks for what cannot be meant, is helped by nobody. */
    if ((known && known->node) || args->bad.code != ERR_NONE)
        return;
    if (!request_fits_anywhere(&args->request) && !choose(p, t, &more))
        return;
    if (t->n + more.n)
        write_target(p, t, &more);
}

/* Each node by itself: there may be thousands, each with much to try, and who brings news
 * or renews the lease must not wait for all of them. -1: not ready. */
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
    if (read_args(&args, body, verbs_rules(v), &a, &err))
        return reply_error(reply, 400, &err);
    struct preempt p = {.args = &args, .arena = &a, .reply = reply};
    if (answer_all(verbs_store(v), &p, &err))
        return reply_error(reply, 503, &err);
    return 200;
}
