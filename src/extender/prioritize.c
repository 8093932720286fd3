/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "extender/verb.h"

/*
 * prioritize: the points of all candidates; and the best candidates, for a filter that
 * answers with them. Policies need the values of all nodes before they rate the first, so the
 * nodes are visited twice, VERB_LOCK_NODES under one lock. Pointers from the first visit are
 * used again if the ledger is unchanged.
 */

/* Scores n candidates, at[0..n) or the first n. Only score_end or score_best is left to do.
 */
static void score(struct verb_call *call, const uint32_t *at, size_t n,
                  const struct score_pod *pod, struct score_run *run)
{
    struct verb_work *w = call->work;
    struct core_driver *driver = call->verbs->config.driver;
    uint64_t generation = 0; /* of the ledger, when the nodes were found */
    bool changed = false;    /* since then: they must be looked up again */
    MEM_GROW(w->nodes, w->nodes_cap, n);
    for (int visit = 0; visit < 2; visit++) {
        size_t i = 0;
        do {
            size_t end = n - i < VERB_LOCK_NODES ? n : i + VERB_LOCK_NODES;
            const struct ledger *l = core_ledger(core_driver_read(driver));
            if (visit == 0 && i == 0) {
                score_begin(run, call->verbs->config.policy, pod, ledger_mix(l),
                            &w->scratch, n);
                generation = ledger_generation(l);
            }
            changed |= ledger_generation(l) != generation;
            for (size_t k = i, found; (changed || visit == 0) && k < end; k += found) {
                const struct ledger_node *nodes[MAP_BATCH];
                found = verb_find_nodes(&w->args, at, k, end, l, nodes);
                for (size_t m = 0; m < found; m++)
                    w->nodes[k + m] = score_node_of(nodes[m]);
            }
            if (visit == 0)
                score_survey(run, w->nodes + i, end - i);
            else
                score_rate(run, w->nodes + i, i, end - i);
            core_driver_read_end(driver);
            i = end;
        } while (i < n);
    }
}

static struct score_pod score_pod_of(const struct verb_args *args)
{
    return (struct score_pod){
        .pod = {&args->request, args->pod.priority, args->pod.meta.uid, NULL},
        .cpu_milli = args->pod.requests.cpu_milli};
}

size_t prioritize_best(struct verb_call *call, const uint32_t *at, size_t n, size_t most,
                       size_t *best)
{
    struct verb_work *w = call->work;
    const struct score_pod pod = score_pod_of(&w->args);
    struct span *names = arena_alloc(&w->arena, n * sizeof *names);
    struct score_run run;
    for (size_t i = 0; i < n; i++)
        names[i] = w->args.nodes[at[i]].name;
    score(call, at, n, &pod, &run);
    size_t found = score_best(&run, n, names, best, most);
    for (size_t i = 0; i < found; i++)
        best[i] = at[best[i]];
    return found;
}

static unsigned write_scores(struct verb_call *call)
{
    const struct verb_work *w = call->work;
    struct buf *out = call->reply;
    size_t bytes = 2;
    for (size_t i = 0; i < w->args.n; i++)
        bytes += w->args.nodes[i].name.n + sizeof ",{\"Host\":\"\",\"Score\":10}";
    unsigned status = verb_charge(call, bytes);
    if (status != 200)
        return status;
    buf_reserve(out, bytes);
    buf_addc(out, '[');
    for (size_t i = 0; i < w->args.n; i++) {
        buf_adds(out, i ? ",{\"Host\":" : "{\"Host\":");
        if (w->args.full)
            buf_add_json(out, w->args.nodes[i].name);
        else
            buf_add_span(out, w->args.nodes[i].raw);
        buf_adds(out, ",\"Score\":");
        buf_add_i64(out, w->points[i]);
        buf_addc(out, '}');
    }
    buf_addc(out, ']');
    return verb_charge(call, 0); /* what escapes in names take */
}

unsigned prioritize_answer(struct verb_call *call)
{
    unsigned status = verb_read(call, &verb_candidates, NULL);
    if (status == 200) {
        struct verb_work *w = call->work;
        const struct score_pod pod = score_pod_of(&w->args);
        struct score_run run;
        MEM_GROW(w->points, w->points_cap, w->args.n);
        score(call, NULL, w->args.n, &pod, &run);
        score_end(&run, w->args.n, w->points);
        status = write_scores(call);
    }
    verb_end(call);
    return status;
}
