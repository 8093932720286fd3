/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/gang.h"
#include "domain/keys.h"
#include "domain/ledger.h"
#include "extender/event_pod.h"
#include "extender/filter_mode.h"
#include "extender/gang_minimum.h"
#include "extender/tried.h"
#include "extender/verb.h"
#include "placement/preempt.h"
#include "placement/reason.h"

/*
 * The verb filter. Read it from filter_answer at the end upwards: settle_mode says how the call is
 * answered; then choose_best has all nodes judged (judge, judge_some, judge_node), rates those that
 * fit (best_of) and has cards reserved on the best; write_reply answers.
 *
 * Between the judgment, which reads the ledger in parts, and a reservation, which is one step
 * of the core, other pods can take the cards. So the core gets several nodes in the order of
 * their scores, and if none of them fits any more, the nodes are judged again.
 *
 * A pod that asks again did not start on the node that it got. That node comes last
 * (extender/tried.h).
 *
 * Each special case is in a function that a reader of the path skips: an autoscaler's template
 * Nodes (judge_template, is_simulation), a ResourceQuota (read_quotas, over_quota), a pod that has
 * a promise or an invalid request (judge_by_pod), a gang (choose_for_gang), a follower
 * (ask_leader), what follows a rejection (follow_rejection, find_elsewhere).
 */

enum {
    UID_MAX = 253,
    FORWARD_MS = 2000, /* for the leader's answer; the call is then answered here */
    OFFERED = 8,       /* nodes that the core tries, the best first */
    ATTEMPTS = 3,      /* to judge and reserve; then the best is answered as it is */
    /* minFeasibleNodesToFind of kube-scheduler: it offers fewer nodes only if its other filters
     * reject all others. */
    SAMPLE_MIN = 100,
    ELSEWHERE_MAX = 8192, /* slots that a search reads */
    STRIDE = 7919,        /* a prime number */
};

struct filter_mode {
    struct filter_row is;
    size_t most;      /* BEST: nodes answered */
    struct gang gang; /* if other members need places, too */
    const char
        *reject_all;     /* why the pod's gang cannot start, on nodes that fit; or NULL */
    bool template_nodes; /* a simulation: unknown candidates are template Nodes */
    struct tried_nodes tried; /* BEST, with one node answered: they come last */
};

/* The judgment of a call, and what it has found. w->failed and w->never have the rejected nodes,
 * each with its reason and a comma; with FILTER_BEST only if no node fits. */
struct filter {
    struct verb_call *call;
    const struct filter_mode *mode;
    const struct verb_args *args; /* of the call */
    const struct core *core;
    const struct ledger *ledger;
    const struct ledger_node *promised; /* node of the pod's promise, or NULL */
    bool is_bound;                      /* that promise's Binding took effect */
    bool has_promise;                   /* of any of the reads so far */
    struct select_pod pod;
    int64_t least_mib; /* select_least_mib */
    struct prepared_reason reasons;
    uint32_t rejected[REASON_CLASSES]; /* number of nodes, by reason */
    uint32_t *fitting;                 /* indexes of the candidates that fit */
    size_t n_fitting;
    struct score_run run; /* of those, for FILTER_BEST */
    const char *why_all;  /* why not even nodes that fit: mode->reject_all, or a quota */
    const char *quota;    /* why its quotas do not allow the pod on any node; or NULL */
    bool limited;         /* its quotas must allow what it takes of each node */
    struct step_time now;
    struct span victims[CORE_PREEMPT_NODES]; /* nodes where evictions could help */
    size_t n_victims;
};

/* -- the judgment -- */

static void begin_reason(const struct filter *f, struct buf *out,
                         const struct verb_candidate *c)
{
    if (f->args->full)
        buf_add_json(out, c->name);
    else
        buf_add_span(out, c->raw);
    buf_addc(out, ':');
}

/* Are the reasons of rejected nodes answered, as far as is known? */
static bool gives_reasons(const struct filter *f)
{
    return f->mode->is.answer == FILTER_ALL || !f->n_fitting;
}

static void reject(struct filter *f, const struct verb_candidate *c, bool never,
                   enum reason_class class, const char *text)
{
    struct verb_work *w = f->call->work;
    struct buf *out = never ? &w->never : &w->failed;
    f->rejected[class]++;
    if (!gives_reasons(f))
        return;
    begin_reason(f, out, c);
    buf_add_json(out, span_of(text));
    buf_addc(out, ',');
}

/* Judges a candidate of a simulation by its Node object (domain/ledger.h). */
static bool judge_template(struct filter *f, const struct verb_candidate *c)
{
    const struct request *request = &f->args->request;
    struct node_cards cards = {0};
    struct err err;
    struct ledger *own =
        ledger_of_template(c->raw, ledger_settings(f->ledger), &cards, &err);
    if (!own) {
        reject(f, c, false, REASON_NODE, err.msg);
        return false;
    }
    const struct ledger_node *node = ledger_node_at(own, 0); /* the only one */
    enum fit fit = select_fit(node, request);
    cleanup_buf struct buf why = {0};
    if (fit != FIT_YES) {
        reason_add_prepared(&why, &f->reasons, node, fit);
        buf_printf(&why, "; judged as a template Node by " KEY_CARDS "=%lldx%lldMiB",
                   (long long)cards.n, (long long)cards.mib);
        reject(f, c, fit == FIT_NEVER, reason_class_of(node, request, fit), why.p);
    }
    ledger_free(own);
    return fit == FIT_YES;
}

/* Sets whether quotas of its namespace limit the pod, and why they allow it nowhere. */
static void read_quotas(struct filter *f)
{
    const struct verb_args *args = f->args;
    const struct quotas *quotas = core_quotas(f->core);
    struct err why;
    f->limited = quotas && quota_counts(request_on(&args->request, SCV_DIALECT_HAMI)) &&
                 (core_quotas_ready(f->core, f->now, NULL) ||
                  map_get(&quotas->by_name, args->pod.meta.ns));
    if (!f->promised && !f->quota &&
        core_quota_check(f->core, f->now, args->pod.meta.ns, f->pod.uid, &args->request,
                         NULL, 0, &why))
        f->why_all = f->quota = arena_copy(&f->call->work->arena, span_of(why.msg)).p;
}

/* Why the quotas of its namespace do not allow the pod on a node where it fits; NULL: they do. A
 * percentage is of the card that it gets there. */
static const char *over_quota(struct filter *f, const struct ledger_node *node)
{
    uint64_t cards;
    struct err why;
    if (!f->limited || !node || !select_bind(node, &f->pod, &cards) ||
        !core_quota_check(f->core, f->now, f->args->pod.meta.ns, f->pod.uid,
                          &f->args->request, node, cards, &why))
        return NULL;
    return f->why_all = arena_copy(&f->call->work->arena, span_of(why.msg)).p;
}

/* Does the pod fit on the node (NULL: unknown)? If not, the node is rejected. */
static bool judge_node(struct filter *f, const struct verb_candidate *c,
                       const struct ledger_node *node)
{
    struct verb_work *w = f->call->work;
    const struct request *request = &f->args->request;
    if (!node && request_fits_anywhere(request))
        return true;
    if (!node && f->mode->template_nodes)
        return request_needs_nothing(request) || judge_template(f, c);
    if (!node) {
        reject(f, c, false, REASON_NODE, "the GPUs of this node are not known yet");
        return false;
    }
    enum reason_class class = REASON_MEMORY; /* the only one that select_fit_one finds */
    enum fit fit = select_fit_one(node, f->least_mib), alone = fit;
    if (fit == FIT_ASK) {
        fit = select_fit_beside(node, &f->pod, &alone);
        class = fit == FIT_YES ? class : reason_class_of(node, request, alone);
    }
    if (fit == FIT_YES)
        return true;
    f->rejected[class]++;
    if (!gives_reasons(f))
        return false;
    if (fit == FIT_LATER && f->mode->is.find_victims &&
        f->n_victims < CORE_PREEMPT_NODES) {
        cleanup_arena struct arena scratch = {0};
        if (preempt_could_help(&(struct preemptor){.pod = f->pod}, node, &scratch))
            f->victims[f->n_victims++] = c->name;
    }
    struct buf *out = fit == FIT_NEVER ? &w->never : &w->failed;
    begin_reason(f, out, c);
    buf_addc(out, '"');
    reason_add_prepared(out, &f->reasons, node, alone);
    buf_adds(out, "\",");
    return false;
}

/* A pod for which its node in the ledger does not count: with a promise it fits only there,
 * because its Binding may have taken effect. */
static bool judge_by_pod(struct filter *f, const struct verb_candidate *c)
{
    const struct verb_args *args = f->args;
    if (args->invalid.code != ERR_NONE || f->quota) {
        reject(f, c, true, f->quota ? REASON_QUOTA : REASON_INVALID_REQUEST,
               f->quota ?: args->invalid.msg);
        return false;
    }
    if (!f->promised || args->request.kind == REQUEST_NONE ||
        span_eq(f->promised->name, c->name))
        return true;
    cleanup_buf struct buf why = {0};
    buf_printf(
        &why,
        f->is_bound
            ? "the pod is bound to node %.*s"
            : "the pod has a promise on node %.*s whose Binding is not confirmed yet",
        SPAN_ARG(f->promised->name));
    reject(f, c, false, REASON_PROMISED, why.p);
    return false;
}

/* The candidates from i up to the end-th, under the lock. */
static void judge_some(struct filter *f, size_t i, size_t end)
{
    const struct verb_args *args = f->args;
    const char *reject_all = f->mode->reject_all;
    bool by_ledger = !f->promised && !f->quota &&
                     (args->request.kind == REQUEST_DEVICES ||
                      !request_fits_anywhere(&args->request)),
         scored = f->mode->is.answer == FILTER_BEST;
    while (i < end) {
        const struct ledger_node *nodes[MAP_BATCH] = {NULL}, *fitting[MAP_BATCH];
        size_t n = 1, first = f->n_fitting;
        if (by_ledger || scored)
            n = verb_find_nodes(args, NULL, i, end, f->ledger, nodes);
        for (size_t k = 0; k < n && nodes[k] && f->least_mib == INT64_MAX; k++) {
            __builtin_prefetch(&nodes[k]->cards); /* beyond the first cache line */
            __builtin_prefetch(&nodes[k]->rows);
        }
        for (size_t k = 0; k < n; k++, i++) {
            const struct verb_candidate *c = &args->nodes[i];
            bool fits = by_ledger ? judge_node(f, c, nodes[k]) : judge_by_pod(f, c);
            const char *quota = fits && by_ledger ? over_quota(f, nodes[k]) : NULL;
            if (quota) {
                reject(f, c, true, REASON_QUOTA, quota);
            } else if (fits && reject_all) {
                reject(f, c, false, REASON_GANG, reject_all);
            } else if (fits) {
                fitting[f->n_fitting - first] = nodes[k];
                f->fitting[f->n_fitting++] = (uint32_t)i;
            }
        }
        if (scored)
            score_visit(&f->run, first, fitting, f->n_fitting - first);
    }
}

/* The end of the part from i on that is judged under one lock. Whole Node objects may be
 * read there. */
static size_t part_end(const struct verb_args *args, size_t i)
{
    enum { BYTES = 256 << 10 };
    size_t end = args->n - i < VERB_LOCK_NODES ? args->n : i + VERB_LOCK_NODES, bytes = 0;
    for (size_t at = i; args->full && at < end; at++) {
        bytes += args->nodes[at].raw.n;
        end = bytes < BYTES ? end : at + 1;
    }
    return end;
}

/* Judges all candidates. Returns 200, or the status of the error reply. */
static unsigned judge(struct filter *f)
{
    struct verb_call *call = f->call;
    const struct filter_mode *mode = f->mode;
    struct verb_work *w = call->work;
    struct core_driver *driver = call->verbs->config.driver;
    const struct verb_args *args = &w->args;
    unsigned status = 200;
    MEM_GROW(w->fitting, w->fitting_cap, args->n);
    buf_clear(&w->failed);
    buf_clear(&w->never);
    *f = (struct filter){
        .call = call,
        .mode = mode,
        .args = args,
        .fitting = w->fitting,
        .why_all = mode->reject_all,
        .pod = {&args->request, args->pod.priority, args->pod.meta.uid, NULL},
        .now = core_driver_now(),
        .least_mib = select_least_mib(&args->request)};
    reason_prepare(&f->reasons, &args->request);
    for (size_t i = 0, end; i < args->n && status == 200; i = end) {
        end = part_end(args, i);
        f->core = core_driver_read(driver);
        f->ledger = core_ledger(f->core);
        if (i == 0 && mode->is.answer == FILTER_BEST)
            verb_score_begin(call, &f->run, f->ledger);
        const struct ledger_pod *known = ledger_pod_find(f->ledger, args->pod.meta.uid);
        f->promised = known ? known->node : NULL;
        f->is_bound = known && known->final;
        f->has_promise |= f->promised != NULL;
        read_quotas(f);
        judge_some(f, i, end);
        core_driver_read_end(driver);
        status = verb_charge(call, 0);
    }
    if (!gives_reasons(f)) { /* of the nodes before the first that fits */
        buf_clear(&w->failed);
        buf_clear(&w->never);
    }
    return status;
}

/* -- reservations -- */

/* On none of the nodes: an earlier one of the pod ends. */
static struct core_input reservation_of(const struct verb_args *args)
{
    return (struct core_input){.type = CORE_RESERVE,
                               .ns = args->pod.meta.ns,
                               .name = args->pod.meta.name,
                               .uid = args->pod.meta.uid,
                               .request = &args->request,
                               .requests = args->pod.requests,
                               .scheduler = args->pod.scheduler,
                               .priority = args->pod.priority};
}

/* The pod fits nowhere, not even where an earlier filter has reserved cards for it. */
static void end_reservation(const struct filter *f)
{
    const struct verb_args *args = f->args;
    struct core_driver *driver = f->call->verbs->config.driver;
    size_t at;
    const struct ledger *l = core_ledger(core_driver_read(driver));
    bool has = ledger_reservation_find(l, args->pod.meta.uid) != NULL;
    core_driver_read_end(driver);
    const struct core_input none = reservation_of(args);
    if (has)
        core_driver_reserve(driver, &none, NULL, &at);
}

static struct span fitting_name(const void *work, size_t i)
{
    const struct verb_work *w = work;
    return w->args.nodes[w->fitting[i]].name;
}

/* The best of the candidates that fit: best[0..most) gets their indexes. Returns how many. */
static size_t best_of(struct filter *f, size_t *best, size_t most)
{
    if (!f->n_fitting)
        return 0;
    while (score_again(&f->run))
        verb_score(f->call, &f->run, f->fitting, f->n_fitting);
    size_t n = score_best(&f->run, f->n_fitting, fitting_name, f->call->work, best, most);
    for (size_t i = 0; i < n; i++)
        best[i] = f->fitting[best[i]];
    return n;
}

/* Moves the candidates that the pod has tried to the end, the oldest answer first and each once.
 * Returns how many. */
static size_t move_tried(const struct filter *f, size_t *at, size_t *n)
{
    const struct tried_nodes *tried = &f->mode->tried;
    size_t last[TRIED_NODES], kept = 0, moved = 0;
    if (!tried->n)
        return 0;
    for (size_t k = 0; k < tried->n; k++)
        last[k] = SIZE_MAX;
    for (size_t i = 0; i < *n; i++) {
        size_t k = tried_find(tried, f->args->nodes[at[i]].name);
        if (k < tried->n)
            last[k] = at[i];
        else
            at[kept++] = at[i];
    }
    for (size_t k = 0; k < tried->n; k++)
        if (last[k] != SIZE_MAX)
            at[kept + moved++] = last[k];
    *n = kept + moved;
    return moved;
}

/* Judges, and fills best[0..*n) with the indexes of the nodes to answer: with a reservation
 * only the one that has it. Returns 200, or the status of the error reply. */
static unsigned choose_best(struct filter *f, size_t best[VERBS_BEST_MAX], size_t *n)
{
    const struct verbs_config *config = &f->call->verbs->config;
    const struct filter_mode *mode = f->mode;
    bool reserve = mode->is.reserve == FILTER_RESERVE_POD, reserved = false;
    enum core_reserve_outcome outcome = CORE_RESERVE_NO_NODE;
    struct span names[OFFERED + TRIED_NODES];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        unsigned status = judge(f);
        if (status != 200)
            return status;
        *n = best_of(f, best, (reserve ? OFFERED : mode->most) + mode->tried.n);
        size_t n_last = move_tried(f, best, n);
        if (!*n || !reserve || f->has_promise)
            break;
        for (size_t i = 0; i < *n; i++)
            names[i] = f->args->nodes[best[i]].name;
        struct core_input wanted = reservation_of(f->args);
        wanted.nodes = names;
        wanted.n_nodes = *n;
        wanted.n_last = n_last;
        size_t at = 0;
        outcome = core_driver_reserve(config->driver, &wanted, NULL, &at);
        reserved = at < *n;
        if (reserved)
            best[0] = best[at];
        if (reserved || outcome == CORE_RESERVE_NOT_NOW || outcome == CORE_RESERVE_FULL)
            break; /* else another pod was faster; at last without a reservation */
    }
    if (!*n && reserve)
        end_reservation(f);
    else if (reserve && !reserved && !f->has_promise)
        counters_unreserved(config->counters, outcome);
    *n = *n < mode->most ? *n : mode->most;
    return 200;
}

/* kube-scheduler retries the pod after a back-off. Nodes for single members would start half
 * of the gang. */
static unsigned fail_gang(const struct verb_call *call, const struct gang *gang,
                          const char *why)
{
    struct err err;
    err_set(&err, ERR_UNAVAILABLE, "gang %.*s: %s", SPAN_ARG(gang->name), why);
    return verb_error(call->reply, 503, &err);
}

static const char no_leader[] =
    "only the leader reserves cards for all members, and no leader answers";

/* Judges, and has cards reserved for all members of the gang. *n: 1 if the pod gets a node,
 * best[0]; `why` gets the reason why the gang cannot start. Returns 200, or the status of the
 * error reply. An error with 200 is one whose text kube-scheduler shows. */
static unsigned choose_for_gang(struct filter *f, struct buf *why, size_t *best,
                                size_t *n)
{
    const struct verb_call *call = f->call;
    const struct filter_mode *mode = f->mode;
    struct verb_work *w = call->work;
    unsigned status = judge(f);
    if (status != 200)
        return status;
    /* All candidates, the best for the pod first; some are there twice. Nodes where the pod
     * does not fit can take another member of its gang. */
    size_t most = w->args.n + VERBS_BEST_MAX, first = 0;
    size_t *at = arena_alloc(&w->arena, most * sizeof *at);
    struct span *names = arena_alloc(&w->arena, most * sizeof *names);
    size_t count = best_of(f, at, VERBS_BEST_MAX);
    for (size_t i = 0; i < w->args.n; i++)
        at[count++] = i;
    size_t n_last = move_tried(f, at, &count);
    for (size_t i = 0; i < count; i++)
        names[i] = w->args.nodes[at[i]].name;
    struct core_input wanted = reservation_of(&w->args);
    wanted.gang = &mode->gang;
    wanted.nodes = names;
    wanted.n_nodes = count;
    wanted.n_last = n_last;
    enum core_reserve_outcome outcome = CORE_RESERVE_PROMISED;
    if (!f->has_promise)
        outcome = core_driver_reserve(call->verbs->config.driver, &wanted, why, &first);
    if (MUTANT(gang_member_unreserved) && outcome == CORE_RESERVE_NOT_NOW)
        outcome = CORE_RESERVE_DONE, first = 0;
    if (outcome == CORE_RESERVE_NOT_NOW)
        return fail_gang(call, &mode->gang, no_leader);
    if (outcome == CORE_RESERVE_FULL)
        return fail_gang(call, &mode->gang, "too many pods have reservations");
    if (outcome == CORE_RESERVE_GANG_WAITS) {
        struct err err;
        err_set(&err, ERR_UNAVAILABLE, "%s", why->p);
        return verb_error(call->reply, 200, &err);
    }
    if (outcome == CORE_RESERVE_PROMISED && first == count)
        return fail_gang(call, &mode->gang, "a bind of this pod is in flight");
    *n = first < count;
    if (*n) { /* also where only members of its gang had reservations */
        best[0] = at[first];
        buf_clear(&w->failed);
        buf_clear(&w->never);
    }
    if (f->n_fitting && outcome == CORE_RESERVE_GANG_REJECTED) {
        struct filter_mode none = *mode;
        none.is.answer = FILTER_ALL;
        none.reject_all = why->p;
        f->mode = &none;
        status = judge(f);
        f->mode = mode;
    }
    return status;
}

/* -- the reply -- */

/* The fitting candidates are `chosen`, or f->fitting if that is NULL. Returns 200, or the
 * status of the error reply. */
static unsigned write_reply(const struct filter *f, const size_t *chosen, size_t n)
{
    const struct verb_work *w = f->call->work;
    const struct verb_args *args = f->args;
    struct buf *out = f->call->reply;
    size_t bytes = w->failed.n + w->never.n + 256;
    for (size_t i = 0; i < n; i++)
        bytes += args->nodes[chosen ? chosen[i] : f->fitting[i]].raw.n + 1;
    unsigned status = verb_charge(f->call, bytes);
    if (status != 200)
        return status;
    buf_reserve(out, bytes);
    buf_adds(out, args->full ? "{\"Nodes\":{\"metadata\":{},\"items\":["
                             : "{\"Nodes\":null,\"NodeNames\":[");
    char *p = out->p + out->n;
    for (size_t i = 0; i < n; i++) {
        struct span raw = args->nodes[chosen ? chosen[i] : f->fitting[i]].raw;
        *p = ',';
        p = mempcpy(p + (i > 0), raw.p, raw.n);
    }
    out->n = (size_t)(p - out->p);
    buf_adds(out, args->full ? "]},\"NodeNames\":null" : "]");
    buf_adds(out, ",\"FailedNodes\":{"); /* the lists without their last comma */
    buf_add(out, w->failed.p, w->failed.n - (w->failed.n > 0));
    buf_adds(out, "},\"FailedAndUnresolvableNodes\":{");
    buf_add(out, w->never.p, w->never.n - (w->never.n > 0));
    buf_adds(out, "},\"Error\":\"\"}");
    return 200;
}

/* After all candidates were rejected: a node that was not among them and on which the pod fits
 * now (of a gang, this member), or an empty name. It fits as filter would say, so also on what is
 * reserved for pods of lower priority. Each retry for the pod begins at another slot,
 * because a node that was found may be one that kube-scheduler never offers. */
static struct span find_elsewhere(const struct filter *f)
{
    struct verb_work *w = f->call->work;
    struct core_driver *driver = f->call->verbs->config.driver;
    uint32_t start = 0, slots = 1;
    struct span name = {0};
    if (w->args.n < SAMPLE_MIN || request_fits_anywhere(&w->args.request) ||
        f->pod.uid.n > UID_MAX || MUTANT(sleeps_beside_a_node))
        return name;
    for (uint32_t i = 0; i < slots && i < ELSEWHERE_MAX && !name.n;) {
        const struct ledger *l = core_ledger(core_driver_read(driver));
        const struct ledger_pod *pod = ledger_pod_find(l, f->pod.uid);
        slots = ledger_node_slots(l); /* fewer than before, after a restore of etcd */
        if (pod && (pod->node || ledger_pod_kept(pod)))
            slots = 0;
        else if (pod && !i && slots)
            start = (uint32_t)((uint64_t)pod->retries * STRIDE % slots);
        for (uint32_t end = i + VERB_LOCK_NODES; i < end && i < slots && !name.n; i++) {
            const struct ledger_node *node = ledger_node_at(l, (start + i) % slots);
            enum fit fit = node ? select_fit_one(node, f->least_mib) : FIT_LATER;
            if (fit == FIT_ASK)
                fit = select_fit_pod(node, &f->pod);
            if (fit == FIT_YES && !node->cordoned)
                name = arena_copy(&w->arena, node->name);
        }
        core_driver_read_end(driver);
    }
    return name;
}

/* kube-scheduler is about to read that all candidates were rejected. An Event says so. The leader
 * remembers the pod (core/core.h, "Layout preemption"), or has it tried again because of a node
 * elsewhere. If kube-scheduler has called a follower, a thread sends the leader the same call. */
static void follow_rejection(struct filter *f)
{
    struct verbs *v = f->call->verbs;
    struct core_driver *driver = v->config.driver;
    const bool limited = f->rejected[REASON_QUOTA];
    struct span elsewhere = limited ? (struct span){0} : find_elsewhere(f);
    bool ready;
    event_pod_rejected(v->config.recorder, driver, f->args,
                       f->call->work->failed.n > 0 || limited, f->why_all, elsewhere);
    if (!f->n_victims && !elsewhere.n)
        return;
    struct core_driver_route route =
        core_driver_route(driver, f->call->source != VERB_SCHEDULER, &ready, NULL);
    if (route.route == BIND_ROUTE_LOCAL)
        core_driver_input(driver, &(struct core_input){.type = CORE_REJECTED,
                                                       .uid = f->pod.uid,
                                                       .node_name = elsewhere,
                                                       .nodes = f->victims,
                                                       .n_nodes = f->n_victims});
    else if (route.route == BIND_ROUTE_FORWARD && v->reports &&
             !forward_reports_add(v->reports, route.address, f->call->body))
        log_debug("filter", "a rejected pod is not reported: the leader is slow",
                  LOG_SPAN("pod", f->args->pod.meta.name));
}

static unsigned answer_here(struct verb_call *call, struct filter_mode *mode,
                            struct buf *why)
{
    struct verbs *v = call->verbs;
    struct filter f = {.call = call, .mode = mode, .args = &call->work->args};
    struct span uid = f.args->pod.meta.uid;
    size_t best[VERBS_BEST_MAX], *chosen = best, n = 0;
    bool one = mode->is.answer == FILTER_BEST && mode->most == 1 && uid.n <= UID_MAX;
    unsigned status;
    if (one)
        tried_get(v->tried, uid, core_driver_now().mono_ms, &mode->tried);
    if (mode->is.reserve == FILTER_RESERVE_GANG) {
        status = choose_for_gang(&f, why, best, &n);
    } else if (mode->is.answer == FILTER_BEST) {
        status = choose_best(&f, best, &n);
    } else {
        status = judge(&f);
        chosen = NULL;
        n = f.n_fitting;
    }
    if (status != 200 || call->reply->n)
        return status;
    if (!mode->template_nodes) /* a simulation leaves nothing behind */
        counters_filter(v->config.counters, f.rejected, n > 0);
    status = write_reply(&f, chosen, n);
    if (status == 200 && !mode->template_nodes && !n && !f.has_promise)
        follow_rejection(&f);
    if (status == 200 && one && n)
        tried_add(v->tried, uid, f.args->nodes[best[0]].name, core_driver_now().mono_ms);
    return status;
}

/* -- the mode -- */

/* Is the call a simulation of an autoscaler: does the ledger know no candidate, and is one a
 * Node object that names its cards? A call that names a known node, too, is one of a scheduler:
 * a Node that has just joined may not be watched yet, and has the key if its node group has it.
 */
static bool is_simulation(struct verbs *v, const struct verb_args *args)
{
    bool known = false, templates = false;
    for (size_t i = 0; i < args->n && args->full && !known;) {
        const struct ledger *ledger = core_ledger(core_driver_read(v->config.driver));
        size_t end = args->n - i < VERB_LOCK_NODES ? args->n : i + VERB_LOCK_NODES;
        while (i < end && !known) {
            const struct ledger_node *nodes[MAP_BATCH];
            size_t found = verb_find_nodes(args, NULL, i, end, ledger, nodes);
            for (size_t k = 0; k < found; k++)
                known |= nodes[k] != NULL;
            i += found;
        }
        core_driver_read_end(v->config.driver);
    }
    for (size_t i = 0; i < args->n && args->full && !known && !templates; i++)
        templates = ledger_is_template(args->nodes[i].raw);
    return templates;
}

/* Can cards be reserved for the pod, on some nodes? The kubelet chooses those of nvidia.com/gpu.
 * The UID is kept, so a caller cannot make it of any length. */
static bool is_reservable(const struct verb_args *args)
{
    size_t n = args->pod.meta.uid.n;
    return request_takes_cards(&args->request) && n > 0 && n <= UID_MAX &&
           !args->pod.meta.deleting;
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

/* The gang of a pod for which cards of ours count, or of nvidia.com/gpu. */
static bool is_in_gang(const struct verb_args *args, struct gang *gang)
{
    size_t n = args->pod.meta.uid.n;
    return n > 0 && n <= UID_MAX && args->invalid.code == ERR_NONE &&
           !request_fits_anywhere(&args->request) && gang_of(&args->pod, gang);
}

/* Must other members of its gang have a place, too? Reads what the pod does not say. If that
 * cannot be read, the request is invalid. */
static bool waits_for_others(struct verbs *v, struct verb_args *args, struct gang *gang)
{
    if (v->config.gangs && !gang->minimum &&
        gang_minimum_of(v->config.gangs, args->pod.meta.ns, gang, &gang->minimum,
                        &args->invalid))
        args->request = (struct request){0};
    return gang->minimum != 1;
}

/* For a call that only the leader can answer with a reservation: 0, and whether this process leads;
 * or the status, when the leader has answered for this follower. */
static unsigned ask_leader(struct verb_call *call, bool *leads)
{
    struct verbs_config *config = &call->verbs->config;
    struct err err;
    bool ready, sent;
    struct core_driver_route route =
        core_driver_route(config->driver, call->source == VERB_REPLICA, &ready, NULL);
    *leads = route.route == BIND_ROUTE_LOCAL;
    if (route.route != BIND_ROUTE_FORWARD || !config->forward)
        return 0;
    const struct forward_call wanted = {
        "filter", FORWARD_HEADER, route.address, call->body, FORWARD_MS, NULL, NULL};
    unsigned status = forward_verb(config->forward, &wanted, call->reply, &sent, &err);
    if (status == 200)
        return status;
    log_debug("filter",
              "the leader did not answer; this replica answers without a "
              "reservation, and a gang gets an error",
              LOG_S("to", route.address), LOG_I("status", status));
    buf_clear(call->reply);
    core_driver_refresh_lease(config->driver);
    return 0;
}

/* Has the leader answer what it alone can reserve for (ask_leader); else settles how the call is
 * answered here. 0: *mode says it; `why` gets the text of mode->reject_all. Else the status: the
 * leader has answered, or nobody can. */
static unsigned settle_mode(struct verb_call *call, struct filter_mode *mode,
                            struct buf *why)
{
    const struct verbs_config *config = &call->verbs->config;
    struct verb_args *args = &call->work->args;
    struct gang *gang = &mode->gang;
    bool report = call->source == VERB_REPORT,
         live = report || !is_simulation(call->verbs, args),
         one = config->answer == 1 && !report,
         preempts = config->preempts && !args->pod.never_preempts;
    struct filter_facts is = {.call = live ? FILTER_LIVE : FILTER_SIMULATED,
                              .gang = FILTER_SINGLE,
                              .replica = FILTER_FOLLOWER};
    if (report || config->answer == VERBS_ALL || !is_scored(call->verbs, args))
        is.wants = FILTER_WANTS_ALL;
    else if (one)
        is.wants = args->pod.prefers ? FILTER_WANTS_PREFERRED : FILTER_WANTS_ONE;
    else
        is.wants = args->pod.prefers ? FILTER_WANTS_ALL : FILTER_WANTS_BEST;
    bool in_gang = (one || (live && preempts)) && is_in_gang(args, gang);
    if (live && is.wants >= FILTER_WANTS_ONE &&
        (in_gang || (is.wants == FILTER_WANTS_ONE && is_reservable(args)))) {
        bool leads;
        unsigned status = ask_leader(call, &leads);
        if (status)
            return status;
        is.replica = leads ? FILTER_LEADER : FILTER_FOLLOWER;
    }
    if (in_gang && waits_for_others(call->verbs, args, gang) &&
        args->invalid.code == ERR_NONE)
        is.gang = FILTER_WAITS;
    is.pod = is_reservable(args) ? FILTER_RESERVABLE : FILTER_UNRESERVABLE;
    mode->is = *filter_row_of(&is);
    mode->is.find_victims &= preempts;
    mode->template_nodes = !live;
    mode->most = (size_t)config->answer;
    if (mode->is.reserve == FILTER_GANG_UNLED)
        return fail_gang(call, gang, no_leader);
    if (mode->is.reserve == FILTER_GANG_SIMULATED) {
        buf_printf(why, "gang %.*s: its members need places on nodes that exist",
                   SPAN_ARG(gang->name));
        mode->reject_all = why->p;
    }
    return 0;
}

unsigned filter_answer(struct verb_call *call)
{
    cleanup_buf struct buf why = {0};
    struct filter_mode mode = {0};
    unsigned status = verb_read(call, &verb_candidates, NULL);
    if (status == 200) {
        status = settle_mode(call, &mode, &why);
        if (!status)
            status = answer_here(call, &mode, &why);
    }
    verb_end(call);
    return status;
}
