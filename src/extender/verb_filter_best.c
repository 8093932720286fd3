/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "extender/verb_filter_priv.h"

/*
 * A filter that answers with the best nodes only collects those that fit, scores them, and
 * has cards reserved on the best one. Between the judgment, which reads the ledger in
 * parts, and the reservation, which is one step of the core, other pods can take the cards.
 * So the core gets several nodes in the order of their scores, and if none of them fits any
 * more, the nodes are judged again.
 */

enum {
    OFFERED = 8,  /* nodes that the core tries, the best first */
    ATTEMPTS = 3, /* to judge and reserve; then the best is answered as it is */
};

static struct store_reserve reservation_of(const struct verb_args *args)
{
    return (struct store_reserve){.ns = args->pod.meta.ns,
                                  .name = args->pod.meta.name,
                                  .uid = args->pod.meta.uid,
                                  .request = &args->request,
                                  .requests = args->pod.requests,
                                  .priority = args->pod.priority};
}

/* The pod fits nowhere, not even where an earlier filter has reserved cards for it. */
static void end_reservation(struct verbs *v, const struct verb_args *args)
{
    struct store *store = v->config.store;
    const struct ledger *l = core_ledger(store_read(store));
    bool has = ledger_reservation_find(l, args->pod.meta.uid) != NULL;
    store_read_end(store);
    struct store_reserve none = reservation_of(args);
    size_t at;
    if (has)
        store_reserve(store, &none, &at);
}

/* Judges all candidates. f->fitting gets those that fit; if there is none, w->failed and
 * w->never have the reasons. */
static unsigned judge(struct verbs *v, struct verbs_work *w, struct buf *reply,
                      struct verb_filter *f)
{
    *f = verb_filter_begin(v, w, reply);
    MEM_GROW(w->fitting, w->fitting_cap, w->args.n);
    MEM_GROW(w->nodes, w->nodes_cap, w->args.n);
    f->fitting = w->fitting;
    f->nodes = w->nodes;
    buf_clear(&w->failed);
    buf_clear(&w->never);
    unsigned status = verb_filter_check(v, w, f);
    if (f->n_fitting) { /* reasons of the nodes before the first that fits */
        buf_clear(&w->failed);
        buf_clear(&w->never);
    }
    return status;
}

/* Fills names[0..most) and best[0..most), the indexes of these candidates. Returns how many
 * there are. */
static size_t rank(struct verbs *v, struct verbs_work *w, const struct verb_filter *f,
                   size_t most, size_t *best, struct span *names)
{
    const struct score_pod pod = {
        .pod = {&w->args.request, w->args.pod.priority, w->args.pod.meta.uid, NULL},
        .cpu_milli = w->args.pod.requests.cpu_milli};
    struct span *all = arena_alloc(&w->arena, f->n_fitting * sizeof *all);
    struct score_run run;
    for (size_t i = 0; i < f->n_fitting; i++)
        all[i] = w->args.nodes[f->fitting[i]].name;
    const struct verbs_scored these = {.at = f->fitting,
                                       .n = f->n_fitting,
                                       .found = f->found,
                                       .generation = f->generation};
    verbs_score(v, w, &these, &pod, &run);
    size_t n = score_best(&run, f->n_fitting, all, best, most);
    for (size_t i = 0; i < n; i++) {
        names[i] = all[best[i]];
        best[i] = f->fitting[best[i]];
    }
    return n;
}

unsigned verb_filter_best(struct verbs *v, struct verbs_work *w, bool reserve,
                          struct buf *reply)
{
    size_t answer = (size_t)v->config.answer, n = 0, first = 0, best[VERBS_BEST_MAX];
    struct span names[VERBS_BEST_MAX];
    struct store_reserve wanted = reservation_of(&w->args);
    struct verb_filter f;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        unsigned status = judge(v, w, reply, &f);
        if (status != 200)
            return status;
        n = f.n_fitting ? rank(v, w, &f, reserve ? OFFERED : answer, best, names) : 0;
        if (!n || !reserve || f.has_promise)
            break;
        wanted.nodes = names;
        wanted.n = n;
        enum core_reserve_outcome outcome =
            store_reserve(v->config.store, &wanted, &first);
        if (first < n)
            break;
        first = 0; /* without a reservation */
        if (outcome == CORE_RESERVE_NOT_NOW || outcome == CORE_RESERVE_FULL)
            break;
    }
    if (!n && reserve)
        end_reservation(v, &w->args);
    verb_filter_record(v, w, &f, n > 0);
    verb_filter_begin_reply(w, reply);
    for (size_t i = first; i < n && i < first + answer; i++)
        verb_filter_answer(&f, &w->args.nodes[best[i]]);
    verb_filter_end_reply(w, reply);
    return 200;
}

/* The names of all candidates, the best for the pod first; some may be there twice. Nodes
 * where the pod does not fit can take another member of its gang. Returns their number. */
static size_t order_for_gang(struct verbs *v, struct verbs_work *w,
                             const struct verb_filter *f, size_t *at, struct span *names)
{
    size_t n = f->n_fitting ? rank(v, w, f, VERBS_BEST_MAX, at, names) : 0;
    for (size_t i = 0; i < w->args.n; i++, n++) {
        at[n] = i;
        names[n] = w->args.nodes[i].name;
    }
    return n;
}

/* kube-scheduler retries the pod after a back-off. Nodes for single members would start half
 * of the gang. */
unsigned verb_filter_no_gang(const struct gang *gang, const char *why, struct buf *reply)
{
    struct err err;
    err_set(&err, ERR_UNAVAILABLE, "gang %.*s: %s", SPAN_ARG(gang->name), why);
    return verbs_reply_error(reply, 503, &err);
}

unsigned verb_filter_gang(struct verbs *v, struct verbs_work *w, const struct gang *gang,
                          struct buf *reply)
{
    cleanup_buf struct buf why = {0};
    struct verb_filter f;
    unsigned status = judge(v, w, reply, &f);
    if (status != 200)
        return status;
    size_t most = w->args.n + VERBS_BEST_MAX;
    size_t *at = arena_alloc(&w->arena, most * sizeof *at);
    struct span *names = arena_alloc(&w->arena, most * sizeof *names);
    struct store_reserve wanted = reservation_of(&w->args);
    wanted.gang = gang;
    wanted.why = &why;
    wanted.nodes = names;
    wanted.n = order_for_gang(v, w, &f, at, names);
    size_t first = 0;
    enum core_reserve_outcome outcome =
        f.has_promise ? CORE_RESERVE_PROMISED
                      : store_reserve(v->config.store, &wanted, &first);
    if (outcome == CORE_RESERVE_NOT_NOW)
        return verb_filter_no_gang(gang, VERB_FILTER_NO_LEADER, reply);
    if (outcome == CORE_RESERVE_FULL)
        return verb_filter_no_gang(gang, "too many pods have reservations", reply);
    if (outcome == CORE_RESERVE_PROMISED && first == wanted.n)
        return verb_filter_no_gang(gang, "a bind of this pod is in flight", reply);
    bool fits = f.n_fitting && first < wanted.n;
    if (f.n_fitting && outcome == CORE_RESERVE_GANG_REJECTED) {
        f = verb_filter_begin(v, w, &w->failed);
        f.gang = why.p;
        status = verb_filter_check(v, w, &f);
    }
    if (status != 200)
        return status;
    verb_filter_record(v, w, &f, fits);
    verb_filter_begin_reply(w, reply);
    if (fits)
        verb_filter_answer(&f, &w->args.nodes[at[first]]);
    verb_filter_end_reply(w, reply);
    return 200;
}
