/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "extender/verb.h"

/*
 * prioritize: the points of all candidates.
 */

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
