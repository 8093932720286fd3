/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/gang_judge.h"

#include <stdlib.h>

#include "base/mem.h"

static bool has_place(const struct ledger *l, const struct ledger_pod *pod)
{
    return pod->node || ledger_reservation_find(l, pod->uid);
}

static uint32_t needed_of(uint32_t minimum, uint32_t total)
{
    return minimum && minimum < total ? minimum : total;
}

bool gang_judge_is_settled(const struct ledger *l, const struct gang_asker *asker)
{
    uint32_t total = 1, placed = 1, minimum = asker->minimum;
    const struct ledger_member *m = asker->gang ? asker->gang->members : NULL;
    for (; m; m = m->next) {
        if (m->minimum > minimum)
            minimum = m->minimum;
        if (span_eq(m->pod->uid, asker->uid))
            continue;
        total++;
        placed += has_place(l, m->pod);
    }
    return placed >= needed_of(minimum, total);
}

static int compare_uid(const void *a, const void *b)
{
    const struct gang_plan_member *x = a, *y = b;
    return span_cmp(x->uid, y->uid);
}

/* Counts the members, and lists those without a place after the asker. Their order does
 * not depend on the order in which the pods were seen. */
static void list_members(const struct ledger *l, const struct gang_asker *asker,
                         struct gang_verdict *v, int64_t *priority)
{
    const struct ledger_member *m = asker->gang ? asker->gang->members : NULL;
    for (; m; m = m->next) {
        const struct ledger_pod *pod = m->pod;
        if (m->minimum > v->needed)
            v->needed = m->minimum;
        if (span_eq(pod->uid, asker->uid))
            continue;
        v->total++;
        if (has_place(l, pod)) {
            v->placed++;
            /* Reservations below the plan's priority do not count. This one must. */
            if (!pod->node && pod->priority < *priority)
                *priority = pod->priority;
        } else if (pod->invalid_reason) {
            continue;
        } else if (v->n_members > GANG_PLAN_MEMBERS) {
            v->too_large = true;
        } else {
            v->members[v->n_members++] =
                (struct gang_plan_member){.request = pod->request,
                                          .requests = ledger_pod_requests(pod),
                                          .uid = pod->uid,
                                          .pod = pod};
            if (pod->priority < *priority)
                *priority = pod->priority;
        }
    }
    qsort(v->members + 1, v->n_members - 1, sizeof *v->members, compare_uid);
}

void gang_judge(const struct ledger *l, const struct gang_asker *asker,
                const struct ledger_node *const *nodes, size_t n_nodes, bool spread,
                struct arena *a, struct gang_verdict *v)
{
    *v = (struct gang_verdict){.total = 1, .needed = asker->minimum};
    v->members = arena_alloc(a, (GANG_PLAN_MEMBERS + 1) * sizeof *v->members);
    v->members[v->n_members++] = (struct gang_plan_member){
        .request = asker->request, .requests = asker->requests, .uid = asker->uid};
    struct gang_plan plan = {.nodes = nodes,
                             .n_nodes = n_nodes,
                             .priority = asker->priority,
                             .uid = asker->uid,
                             .gang = asker->gang,
                             .spread = spread};
    list_members(l, asker, v, &plan.priority);
    v->needed = needed_of(v->needed, v->total);
    v->too_large |= !gang_plan_is_bounded(v->members, v->n_members);
    if (v->too_large)
        return;
    v->found = (uint32_t)gang_plan_place(&plan, v->members, v->n_members, a);
    for (size_t i = v->n_members; i > 0; i--) {
        if (v->members[i - 1].placed)
            continue;
        v->missing = v->members[i - 1].request;
        v->lacks_space = v->members[i - 1].lacks_space;
    }
    v->fits = v->placed + v->found >= v->needed && v->members[0].placed;
}

void gang_judge_reason(struct buf *out, const struct gang_asker *asker,
                       const struct gang_verdict *v)
{
    buf_adds(out, "gang ");
    buf_add_span(out, asker->name);
    if (v->too_large) {
        buf_printf(out,
                   ": more than %d of its members wait, or they have more than %d "
                   "different requests, so they are not placed together",
                   GANG_PLAN_MEMBERS, GANG_PLAN_SHAPES);
        return;
    }
    uint32_t have = v->placed + v->found;
    if (v->placed >= v->needed)
        buf_adds(out,
                 ": as many members as must start have a place; this one finds none");
    else
        buf_printf(out, ": %u of %u members %s no place beside the others",
                   have < v->needed ? v->needed - have : 1, v->needed,
                   have + 1 < v->needed ? "find" : "finds");
    if (v->missing) {
        struct prepared_reason reason;
        reason_prepare(&reason, v->missing);
        buf_adds(out, "; ");
        buf_add_span(out, (struct span){reason.need, reason.need_n});
        if (v->lacks_space)
            buf_adds(out, ", with the CPU, memory and pod slot that it requests");
    }
}
