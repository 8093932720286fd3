/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "placement/reason.h"
#include "view/inspect_priv.h"

/*
 * Why a pod is pending: the closest node, with the reason that filter gives. Pods of the
 * same request and priority share one answer.
 */

enum { SLOTS_MAX = 1024 }; /* nodes scanned under one lock */

/* A pending pod; copied from the ledger. */
struct pending_pod {
    struct span ns, name, uid, invalid_reason;
    struct request request; /* without parts */
    int64_t priority;
    bool nominated; /* its own nomination does not count against it */
};

struct answer {
    const struct pending_pod *pod; /* the first one with this answer */
    uint32_t seen, fits;
    bool never; /* no node can take it, even when empty */
    struct span node, reason;
};

struct pending_pods {
    struct arena arena;
    struct pending_pod *pods;
    size_t n;
    struct core_preempt_status *preemptions; /* by UID */
    size_t n_preemptions;
    int64_t unit_mib;
    const struct view_scope *scope;
    struct answer answers[VIEW_INSPECT_REASONS];
    size_t n_answers;
};

static int by_name(const void *a, const void *b)
{
    const struct pending_pod *x = a, *y = b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

static void take_all(struct pending_pods *all, const struct view_source *source)
{
    struct arena *a = &all->arena;
    const struct core *core = source->read(source->ctx);
    const struct ledger *l = core_ledger(core);
    all->unit_mib = ledger_settings(l)->unit_mib;
    all->n_preemptions = core_preempt_list(core, a, &all->preemptions);
    all->pods = arena_zalloc(a, ledger_pending(l) * sizeof *all->pods);
    for (const struct ledger_pod *pod = ledger_first_pending(l); pod; pod = pod->next) {
        struct pending_pod *p = &all->pods[all->n++];
        *p = (struct pending_pod){.ns = arena_copy(a, pod->ns),
                                  .name = arena_copy(a, pod->name),
                                  .uid = arena_copy(a, pod->uid),
                                  .invalid_reason =
                                      arena_copy(a, span_of(pod->invalid_reason)),
                                  .request = *pod->request,
                                  .priority = pod->priority,
                                  .nominated = pod->nomination != NULL};
        p->request.models = arena_copy(a, pod->request->models);
        p->request.parts = NULL;
        p->request.n_parts = 0;
    }
    source->read_end(source->ctx);
    if (all->n)
        qsort(all->pods, all->n, sizeof *all->pods, by_name);
}

/* Scans nodes from *slot on. The closest node so far is kept by name, because it may be
 * deleted between two calls. False: *slot is at the end. */
static bool scan(const struct view_source *source, struct arena *a, uint32_t *slot,
                 struct nearest_node *n, struct answer *answer)
{
    const struct ledger *l = core_ledger(source->read(source->ctx));
    uint32_t slots = ledger_node_slots(l), end = slots;
    if (slots - *slot > SLOTS_MAX)
        end = *slot + SLOTS_MAX;
    n->node = answer->node.n ? ledger_node_find(l, answer->node) : NULL;
    const struct ledger_node *before = n->node;
    for (; *slot < end; ++*slot)
        if (ledger_node_at(l, *slot))
            nearest_node_visit(n, ledger_node_at(l, *slot));
    if (n->node && n->node != before)
        answer->node = arena_copy(a, n->node->name);
    else if (!n->node)
        answer->node = SPAN("");
    bool more = *slot < slots;
    if (!more && n->node && n->fit != FIT_YES) {
        cleanup_buf struct buf why = {0};
        reason_add_schedulable(&why, n->node, &n->pod);
        answer->reason = arena_copy(a, buf_span(&why));
    }
    source->read_end(source->ctx);
    return more;
}

static void compute_answer(struct pending_pods *all, const struct view_source *source,
                           struct answer *answer)
{
    const struct pending_pod *pod = answer->pod;
    struct nearest_node n;
    uint32_t slot = 0;
    nearest_node_init(&n,
                      &(struct select_pod){&pod->request, pod->priority, pod->uid, NULL});
    while (scan(source, &all->arena, &slot, &n, answer))
        ;
    answer->seen = n.seen;
    answer->fits = n.fits;
    answer->never = n.node && n.fit == FIT_NEVER;
}

/* NULL: there are too many different requests. */
static const struct answer *answer_for(struct pending_pods *all,
                                       const struct view_source *source,
                                       const struct pending_pod *pod)
{
    for (size_t i = 0; i < all->n_answers; i++) {
        const struct pending_pod *other = all->answers[i].pod;
        if (!pod->nominated && !other->nominated && pod->priority == other->priority &&
            request_equal(&pod->request, &other->request))
            return &all->answers[i];
    }
    if (all->n_answers == ARRAY_LEN(all->answers))
        return NULL;
    struct answer *answer = &all->answers[all->n_answers++];
    *answer = (struct answer){.pod = pod};
    compute_answer(all, source, answer);
    return answer;
}

static void write_why(struct buf *out, const struct answer *answer)
{
    view_inspect_number(out, "fittingNodes", answer->fits);
    if (answer->never)
        view_inspect_bool(out, "neverFits", true);
    view_inspect_string(out, "closestNode", answer->node);
    if (!answer->seen)
        view_inspect_string(out, "reason", SPAN("no nodes are known"));
    else
        view_inspect_string(out, "reason", answer->reason);
}

static int compare_uid(const void *uid, const void *status)
{
    const struct core_preempt_status *s = status;
    return span_cmp(*(const struct span *)uid, s->uid);
}

static void write_time(struct buf *out, const char *name, int64_t ns)
{
    cleanup_buf struct buf text = {0};
    clock_format_s(&text, ns / 1000000000);
    view_inspect_string(out, name, buf_span(&text));
}

/* What layout preemption does for the pod. */
static void write_preemption(struct buf *out, const struct core_preempt_status *s)
{
    static const char *const states[] = {[CORE_PREEMPT_WAITING] = "waiting",
                                         [CORE_PREEMPT_NOMINATING] = "nominating",
                                         [CORE_PREEMPT_EVICTING] = "evicting",
                                         [CORE_PREEMPT_DONE] = "limited"};
    static const char *const found[] = {[CORE_PREEMPT_UNSEARCHED] = "",
                                        [CORE_PREEMPT_NO_VICTIMS] = "no-victims",
                                        [CORE_PREEMPT_NOT_NEEDED] = "not-needed",
                                        [CORE_PREEMPT_VICTIMS] = "victims"};
    view_inspect_key(out, "preemption");
    buf_addc(out, '{');
    view_inspect_string(out, "state", span_of(states[s->state]));
    write_time(out, "since", s->since_ns);
    if (s->state == CORE_PREEMPT_WAITING)
        write_time(out, "searchAfter", s->search_ns);
    view_inspect_string(out, "lastSearch", span_of(found[s->found]));
    view_inspect_number(out, "candidateNodes", (int64_t)s->candidates);
    view_inspect_string(out, "node", s->node);
    if (s->node.n) {
        view_inspect_number(out, "victims", (int64_t)s->victims);
        view_inspect_number(out, "victimsLeft", (int64_t)s->left);
    }
    if (s->refused) {
        view_inspect_number(out, "refusedEvictions", s->refused);
        view_inspect_bool(out, "refusedByBudget", s->by_budget);
    }
    if (s->state == CORE_PREEMPT_DONE)
        write_time(out, "noEvictionBefore", s->until_ns);
    buf_addc(out, '}');
}

static void write_pod(struct pending_pods *all, const struct view_source *source,
                      const struct pending_pod *pod, struct buf *out)
{
    bool shown = view_scope_shows(all->scope, pod->ns);
    view_inspect_comma(out);
    buf_addc(out, '{');
    if (shown) {
        view_inspect_string(out, "name", pod->name);
        view_inspect_string(out, "namespace", pod->ns);
        view_inspect_string(out, "uid", pod->uid);
    } else {
        view_inspect_bool(out, "hidden", true);
    }
    if (pod->invalid_reason.n) {
        if (shown) /* the reason quotes labels and annotations */
            view_inspect_string(out, "error", pod->invalid_reason);
    } else {
        cleanup_buf struct buf request = {0};
        request_write(&request, &pod->request, all->unit_mib);
        view_inspect_string(out, "request", buf_span(&request));
        const struct answer *answer = answer_for(all, source, pod);
        if (answer)
            write_why(out, answer);
    }
    const struct core_preempt_status *preemption =
        all->n_preemptions ? bsearch(&pod->uid, all->preemptions, all->n_preemptions,
                                     sizeof *all->preemptions, compare_uid)
                           : NULL;
    if (preemption)
        write_preemption(out, preemption);
    buf_addc(out, '}');
}

void view_inspect_pending(const struct view_source *source,
                          const struct view_scope *scope, struct buf *out)
{
    struct pending_pods all = {.scope = scope};
    take_all(&all, source);
    view_inspect_key(out, "pendingPods");
    buf_addc(out, '[');
    for (size_t i = 0; i < all.n; i++)
        write_pod(&all, source, &all.pods[i], out);
    buf_addc(out, ']');
    arena_fini(&all.arena);
}
