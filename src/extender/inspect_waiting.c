/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "extender/inspect_priv.h"
#include "placement/nearest.h"

/*
 * What a pod waits for: the node where least is missing, in the words of filter. Many
 * pods wait for the same, and pods of the same request and priority have one answer.
 */

enum { SLOTS_MAX = 1024 }; /* nodes that are looked at under one lock */

/* What is to be said of a pod; copied out of the ledger. */
struct waiting {
    struct span ns, name, uid, why_not;
    struct request request; /* without parts */
    int64_t priority;
    bool nominated; /* its own nomination does not count against it */
};

struct answer {
    const struct waiting *pod; /* the first that waits for it */
    uint32_t seen, fits;
    bool never; /* no node could ever take it as they are */
    struct span node, reason;
};

struct line {
    struct arena arena;
    struct waiting *pods;
    size_t n;
    int64_t unit_mib;
    struct answer answers[INSPECT_WHY];
    size_t n_answers;
};

static int by_name(const void *a, const void *b)
{
    const struct waiting *x = a, *y = b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

static void take_all(struct line *line, struct store *store)
{
    struct arena *a = &line->arena;
    const struct ledger *l = core_ledger(store_read(store));
    line->unit_mib = ledger_settings(l)->unit_mib;
    line->pods = arena_zalloc(a, ledger_pending(l) * sizeof *line->pods);
    for (const struct ledger_pod *pod = ledger_first_pending(l); pod; pod = pod->next) {
        struct waiting *w = &line->pods[line->n++];
        *w = (struct waiting){.ns = arena_copy(a, pod->ns),
                              .name = arena_copy(a, pod->name),
                              .uid = arena_copy(a, pod->uid),
                              .why_not = arena_copy(a, pod->invalid_reason),
                              .request = pod->request,
                              .priority = pod->priority,
                              .nominated = pod->nominated_node != NULL};
        w->request.models = arena_copy(a, pod->request.models);
        w->request.parts = NULL;
        w->request.n_parts = 0;
    }
    store_read_end(store);
    if (line->n)
        qsort(line->pods, line->n, sizeof *line->pods, by_name);
}

/* From *slot on. What is nearest until now is kept by name, because the lock is given
 * back in between and the node may go. False: that was the end. */
static bool look(struct store *store, struct arena *a, uint32_t *slot, struct nearest *n,
                 struct answer *answer)
{
    const struct ledger *l = core_ledger(store_read(store));
    uint32_t slots = ledger_node_slots(l), end = slots;
    if (slots - *slot > SLOTS_MAX)
        end = *slot + SLOTS_MAX;
    n->node = answer->node.n ? ledger_node_find(l, answer->node) : NULL;
    const struct ledger_node *before = n->node;
    for (; *slot < end; ++*slot)
        if (ledger_node_at(l, *slot))
            nearest_look(n, ledger_node_at(l, *slot));
    if (n->node && n->node != before)
        answer->node = arena_copy(a, n->node->name);
    else if (!n->node)
        answer->node = SPAN("");
    bool more = *slot < slots;
    if (!more && n->node && n->fit != FIT_YES) {
        cleanup_buf struct buf why = {0};
        placement_reason_offered(&why, n->node, n->request, n->priority, n->uid);
        answer->reason = arena_copy(a, buf_span(&why));
    }
    store_read_end(store);
    return more;
}

static void find_out(struct line *line, struct store *store, struct answer *answer)
{
    const struct waiting *pod = answer->pod;
    struct nearest n;
    uint32_t slot = 0;
    nearest_init(&n, &pod->request, pod->priority, pod->uid);
    while (look(store, &line->arena, &slot, &n, answer))
        ;
    answer->seen = n.seen;
    answer->fits = n.fits;
    answer->never = n.node && n.fit == FIT_NEVER;
}

/* NULL: too many wait for something else each. */
static const struct answer *answer_for(struct line *line, struct store *store,
                                       const struct waiting *pod)
{
    for (size_t i = 0; i < line->n_answers; i++) {
        const struct waiting *other = line->answers[i].pod;
        if (!pod->nominated && !other->nominated && pod->priority == other->priority &&
            request_equal(&pod->request, &other->request))
            return &line->answers[i];
    }
    if (line->n_answers == ARRAY_LEN(line->answers))
        return NULL;
    struct answer *answer = &line->answers[line->n_answers++];
    *answer = (struct answer){.pod = pod};
    find_out(line, store, answer);
    return answer;
}

static void write_why(struct buf *out, const struct answer *answer)
{
    inspect_number(out, "fitsOn", answer->fits);
    if (answer->never)
        inspect_truth(out, "fitsNever", true);
    inspect_text(out, "nearest", answer->node);
    if (!answer->seen)
        inspect_text(out, "reason", SPAN("no node is known"));
    else
        inspect_text(out, "reason", answer->reason);
}

static void write_pod(struct line *line, struct store *store, const struct waiting *pod,
                      struct buf *out)
{
    inspect_comma(out);
    buf_addc(out, '{');
    inspect_text(out, "name", pod->name);
    inspect_text(out, "namespace", pod->ns);
    inspect_text(out, "uid", pod->uid);
    if (pod->why_not.n) {
        inspect_text(out, "error", pod->why_not);
    } else {
        cleanup_buf struct buf asks = {0};
        request_write(&asks, &pod->request, line->unit_mib);
        inspect_text(out, "asks", buf_span(&asks));
        const struct answer *answer = answer_for(line, store, pod);
        if (answer)
            write_why(out, answer);
    }
    buf_addc(out, '}');
}

void inspect_waiting(struct store *store, struct buf *out)
{
    struct line line = {0};
    take_all(&line, store);
    inspect_key(out, "waiting");
    buf_addc(out, '[');
    for (size_t i = 0; i < line.n; i++)
        write_pod(&line, store, &line.pods[i], out);
    buf_addc(out, ']');
    arena_fini(&line.arena);
}
