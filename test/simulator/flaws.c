/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Invalid requests that the API server accepts. The extender binds no such pod, but other
 * programs do, and users edit bound pods.
 */

static const struct {
    const char *member; /* the new value; null: removed */
    bool in_labels;
} edits[] = {
    /* The first ones make most requests invalid. */
    {"\"aliyun.com/gpu-count\":\"3\"", true},
    {"\"aliyun.com/gpu-count\":\"x\"", true},
    {"\"scv/memory\":\"8Gi\"", true},
    {"\"scv/number\":\"0\"", true},
    {"\"gpushare/placement\":\"best\"", false},
    {"\"nvidia-gpu-scheduler/gpu.model\":\" , \"", false},
    {"\"aliyun.com/gpu-count\":\"1.5\"", false},
    /* These are other requests, or a repair. */
    {"\"scv/memory\":\"500\"", true},
    {"\"scv/memory\":\"8100\"", true}, /* in units as much as a whole P4 */
    {"\"scv/memory\":\"9000\"", true},
    {"\"scv/number\":\"1\"", true},
    {"\"aliyun.com/gpu-count\":\"2\"", true},
    {"\"aliyun.com/gpu-count\":null", true},
    {"\"scv/memory\":null", true},
    {"\"scv/number\":null,\"scv/memory\":null,\"scv/clock\":null", true},
    {"\"gpushare/placement\":null", false},
    {"\"nvidia-gpu-scheduler/gpu.model\":null", false},
    {"\"aliyun.com/gpu-count\":null", false},
};
enum { FLAWS = 7 };

const char *flaw_pick(struct world *w, bool *in_labels)
{
    size_t i = rng_below(&w->rng, FLAWS);
    *in_labels = edits[i].in_labels;
    return edits[i].member;
}

/* Pods that request by labels are rare, and edits matter most for them. */
static const struct oracle_pod *pick_pod(struct world *w)
{
    bool bound = rng_below(&w->rng, 4) != 0;
    const struct oracle_pod *p = oracle_pick(w, bound);
    for (int i = 0; p && !p->labeled && i < 3; i++)
        p = oracle_pick(w, bound);
    return p;
}

static void edit(struct world *w, const struct oracle_pod *p)
{
    size_t i = rng_below(&w->rng, ARRAY_LEN(edits));
    char body[256];
    snprintf(body, sizeof body, "{\"metadata\":{\"%s\":{%s}}}",
             edits[i].in_labels ? "labels" : "annotations", edits[i].member);
    trace(w, "users: edit %s: %s", p->uid, edits[i].member);
    unsigned status = policy_patch(w, p->name, body);
    if (status != 200 && !(w->policy && status == 403))
        violated(w, "cannot edit the pod: %u %s", status, body);
    w->stats.edits++;
}

void flaws_edit(struct world *w)
{
    const struct oracle_pod *p = pick_pod(w);
    if (p)
        edit(w, p);
}

static void on_edit(struct world *w, void *arg)
{
    char *uid = arg;
    const struct oracle_pod *p = oracle_find(w, uid);
    if (p)
        edit(w, p);
    free(uid);
}

void flaws_edit_soon(struct world *w, const char *uid)
{
    at(w, w->now_ms + between(w, 0, 500), on_edit, xstrdup(uid), free);
}
