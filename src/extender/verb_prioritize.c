/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/mem.h"

/* prioritize: the points of all candidates. */

#define BEFORE ",{\"Host\":"
#define AFTER  ",\"Score\":"

/* In one piece: there are thousands. */
static void add_score(struct buf *reply, const struct verbs_work *w, size_t i)
{
    const struct verb_candidate *c = &w->args.nodes[i];
    buf_reserve(reply, sizeof BEFORE + c->raw.n + sizeof AFTER + STR_U64 + 1);
    char *p = mempcpy(reply->p + reply->n, BEFORE, sizeof BEFORE - 1);
    p = mempcpy(p, c->raw.p, c->raw.n);
    p = mempcpy(p, AFTER, sizeof AFTER - 1);
    p = str_put_u64(p, (uint64_t)w->points[i]);
    *p++ = '}';
    *p = '\0';
    reply->n = (size_t)(p - reply->p);
}

/* The same for a Node object. */
static void add_score_full(struct buf *reply, const struct verbs_work *w, size_t i)
{
    buf_adds(reply, BEFORE);
    buf_add_json(reply, w->args.nodes[i].name);
    buf_adds(reply, AFTER);
    buf_add_i64(reply, w->points[i]);
    buf_addc(reply, '}');
}

static unsigned answer(struct verbs *v, struct verbs_work *w, struct buf *reply)
{
    const struct score_pod pod = {
        .pod = {&w->args.request, w->args.pod.priority, w->args.pod.meta.uid, NULL},
        .cpu_milli = w->args.pod.requests.cpu_milli};
    struct score_run run;
    unsigned status = 200;
    MEM_GROW(w->points, w->points_cap, w->args.n);
    verbs_score(v, w, &(struct verbs_scored){.n = w->args.n}, &pod, &run);
    score_end(&run, w->args.n, w->points);
    size_t start = reply->n;
    for (size_t i = 0; i < w->args.n && status == 200; i++) {
        if (w->args.full)
            add_score_full(reply, w, i);
        else
            add_score(reply, w, i);
        if (i % VERBS_LOCK_NODES == VERBS_LOCK_NODES - 1)
            status = verbs_charge(v, w, reply, 0);
    }
    if (status != 200)
        return status;
    if (w->args.n)
        reply->p[start] = '['; /* instead of the first comma */
    buf_adds(reply, w->args.n ? "]" : "[]");
    return 200;
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
