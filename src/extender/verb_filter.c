/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verb_filter_priv.h"

#include "base/log.h"
#include "extender/event_pod_priv.h"
#include "extender/forward.h"
#include "extender/gang_minimum.h"
#include "placement/preempt.h"
#include "placement/reason.h"

/*
 * filter. Names of nodes that fit are copied from the body straight into the reply. Each
 * rejected node goes to one of two lists, with its reason (verb_filter_reply.c).
 */

enum {
    UID_MAX = 253,
    FORWARD_MS = 2000, /* for the leader's answer; the call is then answered here */
};

/* A pod with a promise fits only on the node of the promise: its Binding may have taken
 * effect. */
static bool check_promised(struct verb_filter *f, const struct verb_candidate *c)
{
    if (span_eq(f->promised->name, c->name))
        return true;
    cleanup_buf struct buf why = {0};
    buf_adds(&why, "the pod has a promise on node ");
    buf_add_span(&why, f->promised->name);
    buf_adds(&why, " whose Binding is not confirmed yet");
    verb_filter_reject(f, f->failed, c, REASON_PROMISED, why.p);
    return false;
}

/* For layout preemption. */
static void note_victims(const struct verb_filter *f, const struct verb_candidate *c,
                         const struct ledger_node *node)
{
    struct verbs_work *w = f->report;
    cleanup_arena struct arena scratch = {0};
    struct preemptor preemptor = {
        .pod = {&w->args.request, w->args.pod.priority, w->args.pod.meta.uid, NULL}};
    if (w->n_victims < CORE_PREEMPT_NODES &&
        preempt_could_help(&preemptor, node, &scratch))
        w->victims[w->n_victims++] = c->name;
}

/* Does the pod fit on the node? If not, the node is rejected. */
static bool check(struct verb_filter *f, const struct verb_candidate *c,
                  const struct ledger_node *node)
{
    const struct verb_args *args = f->args;
    const struct request *r = &args->request;
    if (!node && f->simulated)
        return verb_filter_template(f, c);
    if (!node) {
        verb_filter_reject(f, f->failed, c, REASON_NODE,
                           "the GPUs of this node are not known yet");
        return false;
    }
    enum fit alone = select_fit(node, r), fit = alone; /* alone: without nominated pods */
    if ((alone == FIT_YES && node->has_nominated) ||
        (alone == FIT_LATER && node->has_reserved))
        fit = select_fit_pod(
            node, &(struct select_pod){r, args->pod.priority, args->pod.meta.uid, NULL});
    if (fit == FIT_YES)
        return true;
    f->rejected[reason_class_of(node, r, alone)]++;
    if (fit == FIT_LATER && f->report && !f->n_fitting)
        note_victims(f, c, node);
    if (!f->n_fitting)
        verb_filter_explain(f, fit == FIT_NEVER ? f->never : f->failed, c, node, alone);
    return false;
}

static void check_by_ledger(struct verb_filter *f, size_t i, size_t end)
{
    const struct verb_args *args = f->args;
    for (; i < end; i += MAP_BATCH) {
        const struct ledger_node *nodes[MAP_BATCH];
        bool fits[MAP_BATCH];
        uint8_t others[MAP_BATCH], n_others = 0;
        size_t n = verbs_find_nodes(args, i, end, f->ledger, nodes);
        /* Which node fits cannot be predicted, so no branch depends on it. */
        for (size_t k = 0; k < n; k++) {
            fits[k] = nodes[k] && select_fits_one(nodes[k], f->least_mib);
            others[n_others] = (uint8_t)k;
            n_others += !fits[k];
        }
        for (size_t k = 0; k < n_others; k++) /* a reason needs the second cache line */
            __builtin_prefetch(
                (const void *)((uintptr_t)nodes[others[k]] + LEDGER_LINE)); /* or NULL */
        for (size_t k = 0; k < n_others; k++)
            fits[others[k]] = check(f, &args->nodes[i + others[k]], nodes[others[k]]);
        verb_filter_pass(f, &args->nodes[i], nodes, fits, n);
    }
}

static void check_some(struct verb_filter *f, size_t i, size_t end)
{
    static const struct ledger_node *const unknown[1];
    const struct verb_args *args = f->args;
    bool requests = args->invalid.code == ERR_NONE && args->request.kind != REQUEST_NONE;
    if (!f->promised && !request_fits_anywhere(&args->request)) {
        check_by_ledger(f, i, end);
        return;
    }
    for (; i < end; i++) {
        bool fits = true;
        if (args->invalid.code != ERR_NONE) {
            verb_filter_reject(f, f->never, &args->nodes[i], REASON_INVALID_REQUEST,
                               args->invalid.msg);
            fits = false;
        } else if (requests && f->promised) {
            fits = check_promised(f, &args->nodes[i]);
        }
        verb_filter_pass(f, &args->nodes[i], unknown, &fits, 1);
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

unsigned verb_filter_check(struct verbs *v, struct verbs_work *w, struct verb_filter *f)
{
    struct store *store = v->config.store;
    const struct verb_args *args = f->args;
    unsigned status = 200;
    for (size_t i = 0, end; i < args->n && status == 200; i = end) {
        end = part_end(args, i);
        f->ledger = core_ledger(store_read(store));
        if (i == 0)
            f->generation = ledger_generation(f->ledger);
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

struct verb_filter verb_filter_begin(const struct verbs *v, struct verbs_work *w,
                                     struct buf *passed)
{
    struct verb_filter f = {.args = &w->args,
                            .passed = passed,
                            .failed = &w->failed,
                            .never = &w->never,
                            .found = true,
                            .simulated = w->simulated};
    f.least_mib = select_least_mib(&w->args.request);
    reason_prepare(&f.reasons, &w->args.request);
    bool reports = v->config.preempts && !w->args.pod.never_preempts && !w->waits;
    f.report = reports ? w : NULL;
    w->n_victims = 0;
    return f;
}

void verb_filter_record(struct verbs *v, struct verbs_work *w,
                        const struct verb_filter *f, bool fits)
{
    if (fits || f->has_promise || w->simulated)
        w->n_victims = 0;
    if (w->simulated)
        return;
    counters_filter(v->config.counters, f->rejected, fits);
    if (!fits && !f->has_promise)
        event_pod_rejected(v->config.recorder, v->config.store, &w->args, w->failed.n > 0,
                           f->gang);
}

/* All nodes that fit, unless `gang` says why the pod's gang cannot start. Returns 200, or
 * the status of the error reply. */
static unsigned answer_all(struct verbs *v, struct verbs_work *w, const char *gang,
                           struct buf *reply)
{
    struct verb_filter f = verb_filter_begin(v, w, reply);
    f.gang = gang;
    verb_filter_begin_reply(w, reply);
    size_t before = reply->n;
    unsigned status = verb_filter_check(v, w, &f);
    if (status != 200)
        return status;
    verb_filter_record(v, w, &f, reply->n > before);
    verb_filter_end_reply(w, reply);
    return 200;
}

/* Can cards be reserved for the pod? The kubelet chooses those of nvidia.com/gpu. The UID is
 * kept, so a caller cannot make it of any length. */
static bool is_reservable(const struct verb_args *args)
{
    enum request_kind kind = args->request.kind;
    size_t n = args->pod.meta.uid.n;
    return (kind == REQUEST_MEMORY || kind == REQUEST_CARDS) && n > 0 && n <= UID_MAX;
}

/* Has the leader answer the call. 0: it does not. */
static unsigned forward(struct verbs *v, struct span body, const char *address,
                        struct buf *reply)
{
    struct err err;
    bool sent;
    unsigned status = forward_verb(v->config.forward, "filter", FORWARD_HEADER, address,
                                   body, FORWARD_MS, reply, &sent, &err);
    if (status == 200)
        return status;
    log_debug("filter",
              "the leader did not answer; this replica answers without a "
              "reservation, and a gang gets an error",
              LOG_S("to", address), LOG_I("status", status));
    buf_clear(reply);
    store_refresh_lease(v->config.store);
    return 0;
}

/* The gang of a pod for which cards of ours count, or of nvidia.com/gpu. */
static bool is_in_gang(const struct verb_args *args, struct gang *gang)
{
    size_t n = args->pod.meta.uid.n;
    return n > 0 && n <= UID_MAX && args->invalid.code == ERR_NONE &&
           !request_fits_anywhere(&args->request) && gang_of(&args->pod, gang);
}

/* Must other members of its gang have a place, too? Reads what the pod does not say. */
static bool waits_for_others(struct verbs *v, const struct verb_args *args,
                             struct gang *gang)
{
    if (v->config.gangs && !gang->minimum)
        gang->minimum = gang_minimum_of(v->config.gangs, args->pod.meta.ns, gang);
    return gang->minimum != 1;
}

/* For layout preemption, where no reservation asks for the gang of the pod. */
static void note_gang(struct verbs *v, struct verbs_work *w)
{
    struct gang gang;
    w->waits = v->config.preempts && !w->args.pod.never_preempts &&
               is_in_gang(&w->args, &gang) && waits_for_others(v, &w->args, &gang);
}

/* Nothing can be reserved on template Nodes, and nothing that is reserved ends. */
static unsigned simulate(struct verbs *v, struct verbs_work *w, struct gang *gang,
                         struct buf *reply)
{
    cleanup_buf struct buf why = {0};
    if (gang && waits_for_others(v, &w->args, gang))
        buf_printf(&why, "gang %.*s: its members need places on nodes that exist",
                   SPAN_ARG(gang->name));
    return answer_all(v, w, why.p, reply);
}

/* Does the policy know a best node for the pod? For one without GPU only fgd, by the CPU
 * that it takes. */
static bool is_scored(const struct verbs *v, const struct verb_args *args)
{
    if (args->invalid.code != ERR_NONE)
        return false;
    return args->request.kind != REQUEST_NONE ||
           (v->config.policy == SCORE_FGD && args->pod.requests.cpu_milli > 0);
}

/* Preferences of a pod are kept by answering with all nodes, except for a member of a gang:
 * its gang would start half. */
static unsigned answer(struct verbs *v, struct verbs_work *w, struct span body,
                       bool forwarded, struct buf *reply)
{
    const struct verb_args *args = &w->args;
    struct gang gang;
    w->simulated = verb_filter_is_simulation(v, args);
    bool best = v->config.answer == 1, in_gang = best && is_in_gang(args, &gang);
    bool ready, reserve = in_gang || (best && is_reservable(args));
    if (w->simulated)
        return simulate(v, w, in_gang ? &gang : NULL, reply);
    bool all = v->config.answer == VERBS_ALL || !is_scored(v, args) ||
               (args->pod.prefers && !in_gang);
    if (all || !reserve)
        note_gang(v, w);
    if (all)
        return answer_all(v, w, NULL, reply);
    if (!reserve)
        return verb_filter_best(v, w, false, reply);
    struct store_route route = store_route(v->config.store, forwarded, &ready, NULL);
    if (route.route == BIND_ROUTE_FORWARD && v->config.forward) {
        unsigned status = forward(v, body, route.address, reply);
        if (status)
            return status;
    }
    bool local = route.route == BIND_ROUTE_LOCAL;
    w->waits = in_gang && waits_for_others(v, args, &gang);
    if (w->waits)
        return local ? verb_filter_gang(v, w, &gang, reply)
                     : verb_filter_no_gang(&gang, VERB_FILTER_NO_LEADER, reply);
    if (args->pod.prefers)
        return answer_all(v, w, NULL, reply);
    return verb_filter_best(v, w, local && is_reservable(args), reply);
}

/* The leader remembers the pod (core/core.h, "Layout preemption"). If kube-scheduler has
 * called a follower, the leader gets the same call after the answer. */
static void report_rejected(struct verbs *v, const struct verbs_work *w, struct span body,
                            bool forwarded)
{
    bool ready;
    struct store_route route = store_route(v->config.store, forwarded, &ready, NULL);
    if (route.route == BIND_ROUTE_LOCAL)
        store_input(v->config.store, &(struct core_input){.type = CORE_REJECTED,
                                                          .uid = w->args.pod.meta.uid,
                                                          .nodes = w->victims,
                                                          .n_nodes = w->n_victims});
    else if (route.route == BIND_ROUTE_FORWARD && v->report &&
             !verb_report_add(v->report, route.address, body))
        log_debug("filter", "a rejected pod is not reported: the leader is slow",
                  LOG_SPAN("pod", w->args.pod.meta.name));
}

enum source { SCHEDULER, FORWARDED, REPORT };

static unsigned run(struct verbs *v, struct span body, enum source source,
                    struct buf *reply)
{
    bool forwarded = source != SCHEDULER;
    struct verbs_work *w = verbs_work_take(v);
    w->n_victims = 0;
    w->simulated = w->waits = false;
    unsigned status = verbs_begin(v, w, body, reply);
    if (status == 200 && source == REPORT)
        note_gang(v, w);
    if (status == 200)
        status = source == REPORT ? answer_all(v, w, NULL, reply)
                                  : answer(v, w, body, forwarded, reply);
    if (status == 200 && w->n_victims)
        report_rejected(v, w, body, forwarded);
    verbs_work_release(v, w);
    return status;
}

unsigned verb_filter(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, SCHEDULER, reply);
}

unsigned verb_filter_forwarded(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, FORWARDED, reply);
}

unsigned verb_filter_report(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, REPORT, reply);
}
