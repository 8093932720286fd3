/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/log.h"
#include "extender/event_pod_priv.h"
#include "extender/forward.h"
#include "placement/placement.h"
#include "placement/preempt.h"

/*
 * filter. Names of nodes that fit are copied from the body straight into the reply. Each
 * rejected node goes to one of two lists, with its reason.
 */

/* Nodes where the eviction of pods of lower priority could help the pod, for layout
 * preemption. */
struct victims_nodes {
    bool wanted;
    struct span names[CORE_PREEMPT_NODES]; /* borrowed from the arguments */
    size_t n;
    struct arena scratch;
};

enum { FORWARD_MS = 1000 }; /* kube-scheduler waits for the answer */

struct filter {
    const struct verb_args *args;
    const struct ledger *ledger;
    const struct ledger_node *promised; /* node of the pod's promise, or NULL */
    bool has_promise;                   /* of any of the reads so far */
    struct prepared_reason reasons;
    uint32_t *rejected; /* number of nodes, by reason */
    struct buf *passed, *failed, *never;
    struct victims_nodes *victims;
};

static void add_comma(struct buf *out)
{
    if (out->n && out->p[out->n - 1] != '[' && out->p[out->n - 1] != '{')
        buf_addc(out, ',');
}

/* Writes "<node>": and leaves the reason to the caller. */
static void begin_reason(const struct filter *f, struct buf *out,
                         const struct verb_candidate *c)
{
    add_comma(out);
    if (f->args->full)
        buf_add_json(out, c->name);
    else
        buf_add_span(out, c->raw);
    buf_addc(out, ':');
}

static void reject(const struct filter *f, struct buf *out,
                   const struct verb_candidate *c, enum reason_class class,
                   const char *text)
{
    f->rejected[class]++;
    begin_reason(f, out, c);
    buf_add_json(out, span_of(text));
}

static void pass(const struct filter *f, const struct verb_candidate *c)
{
    add_comma(f->passed);
    buf_add_span(f->passed, c->raw);
}

/* A pod with a promise fits only on the node of the promise: its Binding may have taken
 * effect. */
static void check_promised(const struct filter *f, const struct verb_candidate *c)
{
    if (span_eq(f->promised->name, c->name)) {
        pass(f, c);
        return;
    }
    cleanup_buf struct buf why = {0};
    buf_adds(&why, "the pod has a promise on node ");
    buf_add_span(&why, f->promised->name);
    buf_adds(&why, " whose Binding is not confirmed yet");
    reject(f, f->failed, c, REASON_PROMISED, why.p);
}

static void note_victims(const struct filter *f, const struct verb_candidate *c,
                         const struct ledger_node *node)
{
    struct victims_nodes *v = f->victims;
    const struct verb_args *args = f->args;
    struct preemptor preemptor = {.request = &args->request,
                                  .priority = args->pod.priority,
                                  .uid = args->pod.meta.uid};
    if (!v->wanted || v->n == CORE_PREEMPT_NODES)
        return;
    if (preempt_could_help(&preemptor, node, &v->scratch))
        v->names[v->n++] = c->name;
    arena_reset(&v->scratch);
}

/* `alone`: the fit without regard to nominated pods. */
static void check(const struct filter *f, const struct verb_candidate *c,
                  const struct ledger_node *node, enum fit alone)
{
    const struct verb_args *args = f->args;
    const struct request *r = &args->request;
    if (!node) {
        reject(f, f->failed, c, REASON_NODE, "the GPUs of this node are not known yet");
        return;
    }
    enum fit fit = alone;
    if (alone == FIT_YES && node->has_nominated)
        fit = placement_fit_nominated(node, r, args->pod.priority, args->pod.meta.uid);
    if (fit == FIT_YES) {
        pass(f, c);
        return;
    }
    struct buf *out = fit == FIT_NEVER ? f->never : f->failed;
    f->rejected[reason_class_of(node, r, alone)]++;
    if (fit == FIT_LATER)
        note_victims(f, c, node);
    begin_reason(f, out, c);
    buf_addc(out, '"');
    reason_add_prepared(out, &f->reasons, node, alone);
    buf_addc(out, '"');
}

static void check_by_ledger(const struct filter *f, size_t i, size_t end)
{
    const struct verb_args *args = f->args;
    for (; i < end; i += MAP_BATCH) {
        const struct ledger_node *nodes[MAP_BATCH];
        size_t n = verbs_find_nodes(args, i, end, f->ledger, nodes);
        enum fit fits[MAP_BATCH] = {FIT_YES};
        for (size_t k = 0; k < n; k++) {
            if (nodes[k])
                fits[k] = placement_fit(nodes[k], &args->request);
            if (fits[k] != FIT_YES) /* the reason needs the second cache line */
                __builtin_prefetch((const char *)nodes[k] + LEDGER_LINE);
        }
        for (size_t k = 0; k < n; k++)
            check(f, &args->nodes[i + k], nodes[k], fits[k]);
    }
}

static void check_some(const struct filter *f, size_t i, size_t end)
{
    const struct verb_args *args = f->args;
    bool requests = args->invalid.code == ERR_NONE && args->request.kind != REQUEST_NONE;
    if (!f->promised && !request_fits_anywhere(&args->request)) {
        check_by_ledger(f, i, end);
        return;
    }
    for (; i < end; i++) {
        if (args->invalid.code != ERR_NONE)
            reject(f, f->never, &args->nodes[i], REASON_INVALID_REQUEST,
                   args->invalid.msg);
        else if (requests && f->promised)
            check_promised(f, &args->nodes[i]);
        else
            pass(f, &args->nodes[i]);
    }
}

/* The end of the part from i on that is checked under one lock. Whole Node objects are
 * copied there. */
static size_t part_end(const struct verb_args *args, size_t i)
{
    enum { BYTES = 256 << 10 };
    size_t end = i, bytes = 0;
    if (!args->full)
        return args->n - i < VERBS_LOCK_NODES ? args->n : i + VERBS_LOCK_NODES;
    while (end < args->n && end - i < VERBS_LOCK_NODES && bytes < BYTES)
        bytes += args->nodes[end++].raw.n;
    return end;
}

/* Returns 200, or the status of the error reply. */
static unsigned check_all(struct verbs *v, struct verbs_work *w, struct filter *f)
{
    struct store *store = v->config.store;
    const struct verb_args *args = f->args;
    unsigned status = 200;
    for (size_t i = 0, end; i < args->n && status == 200; i = end) {
        end = part_end(args, i);
        f->ledger = core_ledger(store_read(store));
        const struct ledger_pod *known = ledger_pod_find(f->ledger, args->pod.meta.uid);
        f->promised = known ? known->node : NULL;
        f->has_promise |= f->promised != NULL;
        check_some(f, i, end);
        store_read_end(store);
        status = verbs_charge(v, w, f->passed, 0);
    }
    if (status == 200) /* the reasons are about to be copied into the reply */
        status = verbs_charge(v, w, f->passed, w->failed.n + w->never.n);
    return status;
}

/* Writes the reply up to the nodes that fit, and counts. Returns 200, or the status of
 * the error reply. *fits: a node fits, or the pod has a promise. */
static unsigned answer(struct verbs *v, struct verbs_work *w,
                       struct victims_nodes *victims, struct buf *reply, bool *fits)
{
    uint32_t rejected[REASON_CLASSES] = {0};
    struct filter f = {.args = &w->args,
                       .rejected = rejected,
                       .passed = reply,
                       .failed = &w->failed,
                       .never = &w->never,
                       .victims = victims};
    reason_prepare(&f.reasons, &w->args.request);
    buf_adds(reply, w->args.full ? "{\"Nodes\":{\"metadata\":{},\"items\":["
                                 : "{\"Nodes\":null,\"NodeNames\":[");
    size_t before = reply->n;
    unsigned status = check_all(v, w, &f);
    if (status != 200)
        return status;
    bool passed = reply->n > before;
    counters_filter(v->config.counters, rejected, passed);
    *fits = passed || f.has_promise;
    return status;
}

/* The leader remembers the pod (core/core.h, "Layout preemption"). kube-scheduler may have
 * called a follower: the leader then gets the same call. If that fails, the next attempt of
 * kube-scheduler gives another chance. */
static void tell_leader(struct verbs *v, const struct verbs_work *w, struct span body,
                        const struct victims_nodes *victims, bool forwarded)
{
    const struct verbs_config *config = &v->config;
    bool ready;
    struct err err = {0};
    if (!victims->n)
        return;
    struct store_route route = store_route(config->store, forwarded, &ready, NULL);
    if (route.route == BIND_ROUTE_LOCAL)
        store_input(config->store, &(struct core_input){.type = CORE_REJECTED,
                                                        .uid = w->args.pod.meta.uid,
                                                        .nodes = victims->names,
                                                        .n_nodes = victims->n});
    else if (route.route == BIND_ROUTE_FORWARD && config->forward &&
             forward_filter(config->forward, route.address, body, FORWARD_MS, &err) == 0)
        log_debug("filter", "cannot report a rejected pod to the leader",
                  LOG_SPAN("pod", w->args.pod.meta.name), LOG_ERR(&err));
}

static unsigned run(struct verbs *v, struct span body, bool forwarded, struct buf *reply)
{
    struct verbs_work *w = verbs_work_take(v);
    struct victims_nodes victims = {.wanted = v->config.preempts};
    bool fits = false;
    unsigned status = verbs_begin(v, w, body, reply);
    if (w->args.pod.never_preempts)
        victims.wanted = false;
    if (status == 200)
        status = answer(v, w, &victims, reply, &fits);
    if (status == 200 && !fits)
        tell_leader(v, w, body, &victims, forwarded);
    arena_fini(&victims.scratch);
    if (status == 200) {
        if (!fits)
            event_pod_rejected(v->config.recorder, v->config.store, &w->args,
                               w->failed.n > 0);
        buf_adds(reply, w->args.full ? "]},\"NodeNames\":null" : "]");
        buf_adds(reply, ",\"FailedNodes\":{");
        buf_add_span(reply, buf_span(&w->failed));
        buf_adds(reply, "},\"FailedAndUnresolvableNodes\":{");
        buf_add_span(reply, buf_span(&w->never));
        buf_adds(reply, "},\"Error\":\"\"}");
    }
    verbs_work_release(v, w);
    return status;
}

unsigned verb_filter(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, false, reply);
}

unsigned verb_filter_forwarded(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, true, reply);
}
