/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "extender/verb.h"

/*
 * prioritize: the points of all candidates. The nodes are visited VERB_LOCK_NODES under one
 * lock.
 */

void verb_score(struct verb_call *call, struct score_run *run, const uint32_t *at,
                size_t n)
{
    const struct verb_args *args = &call->work->args;
    struct core_driver *driver = call->verbs->config.driver;
    for (size_t i = 0, end; i < n;) {
        const struct ledger *l = core_ledger(core_driver_read(driver));
        for (end = n - i < VERB_LOCK_NODES ? n : i + VERB_LOCK_NODES; i < end;) {
            const struct ledger_node *nodes[MAP_BATCH];
            size_t found = verb_find_nodes(args, at, i, end, l, nodes);
            score_visit(run, i, nodes, found);
            i += found;
        }
        core_driver_read_end(driver);
    }
}

void verb_score_begin(struct verb_call *call, struct score_run *run,
                      const struct ledger *l)
{
    struct verb_work *w = call->work;
    w->scored = (struct score_pod){
        .pod = {&w->args.request, w->args.pod.priority, w->args.pod.meta.uid, NULL},
        .cpu_milli = w->args.pod.requests.cpu_milli};
    score_begin(run, call->verbs->config.policy, &w->scored, ledger_requests(l),
                &w->scratch, w->args.n);
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
        struct core_driver *driver = call->verbs->config.driver;
        struct score_run run;
        MEM_GROW(w->points, w->points_cap, w->args.n);
        verb_score_begin(call, &run, core_ledger(core_driver_read(driver)));
        core_driver_read_end(driver);
        do
            verb_score(call, &run, NULL, w->args.n);
        while (score_again(&run));
        score_end(&run, w->args.n, w->points);
        status = write_scores(call);
    }
    verb_end(call);
    return status;
}
