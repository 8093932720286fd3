/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/* prioritize: the points of all candidates. */

static void add_score(struct buf *reply, const struct verbs_work *w, size_t i)
{
    static const struct span ends[SCORE_MAX + 1] = {
        SPAN(",\"Score\":0}"), SPAN(",\"Score\":1}"), SPAN(",\"Score\":2}"),
        SPAN(",\"Score\":3}"), SPAN(",\"Score\":4}"), SPAN(",\"Score\":5}"),
        SPAN(",\"Score\":6}"), SPAN(",\"Score\":7}"), SPAN(",\"Score\":8}"),
        SPAN(",\"Score\":9}"), SPAN(",\"Score\":10}")};
    const struct verb_candidate *c = &w->args.nodes[i];
    buf_adds(reply, i ? ",{\"Host\":" : "{\"Host\":");
    if (w->args.full)
        buf_add_json(reply, c->name);
    else
        buf_add_span(reply, c->raw);
    buf_add_span(reply, ends[w->points[i]]);
}

static unsigned answer(struct verbs *v, struct verbs_work *w, struct buf *reply)
{
    const struct score_pod pod = {.request = &w->args.request,
                                  .cpu_milli = w->args.pod.requests.cpu_milli};
    struct score_run run;
    unsigned status = 200;
    MEM_GROW(w->points, w->points_cap, w->args.n);
    verbs_score(v, w, NULL, w->args.n, &pod, &run);
    score_end(&run, w->args.n, w->points);
    buf_addc(reply, '[');
    for (size_t i = 0; i < w->args.n && status == 200; i++) {
        add_score(reply, w, i);
        if (i % VERBS_LOCK_NODES == VERBS_LOCK_NODES - 1)
            status = verbs_charge(v, w, reply, 0);
    }
    if (status == 200)
        buf_addc(reply, ']');
    return status;
}

unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply)
{
    struct verbs_work *w = verbs_work_take(v);
    unsigned status = verbs_begin(v, w, body, reply);
    if (status == 200)
        status = answer(v, w, reply);
    verbs_work_release(v, w);
    return status;
}
