/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/gang.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/quantity.h"
#include "placement/reason.h"

/* Places for the members of a gang, and the verdict whether it can start. */

/* A node of this attempt, as the view of it, once it has a member. */
struct seen_node {
    struct card *cards;     /* NULL: no member yet */
    uint64_t claimed;       /* through nvidia.com/gpu */
    struct resources taken; /* by the members */
    bool devices;           /* by a member: any of the free cards can be one of those */
};

/* Does a member fit on the node beside no other member? Found out once, for all attempts. */
enum known { UNKNOWN, FITS, FITS_NOT };

/* The members with equal requests. */
struct shape {
    const struct request *request;
    struct resources requests; /* of each member */
    struct gang_plan_member *members[GANG_PLAN_MEMBERS];
    size_t n;
    size_t alone;     /* number of nodes where one of them fits */
    bool lacks_space; /* on a node of this attempt that has cards for one */
    bool asked;       /* of the pod asked about alone, which the offered nodes are for */
    uint8_t *on_node; /* enum known, by position in plan->nodes */
};

struct search {
    const struct gang_plan *plan;
    struct arena *a;
    struct shape *shapes;
    size_t n_shapes;
    struct seen_node *seen; /* by position in plan->nodes */
    bool *full;             /* has no place left for the shape */
    bool backward;
};

/* Only the pod asked about is bound to the offered nodes, if there are others. */
static bool is_asked(const struct search *s, const struct gang_plan_member *m)
{
    return !m->pod && s->plan->n_others;
}

static struct shape *shape_find(const struct search *s, const struct gang_plan_member *m)
{
    for (size_t i = 0; i < s->n_shapes; i++) {
        struct shape *shape = &s->shapes[i];
        if (shape->asked == is_asked(s, m) &&
            resources_equal(&shape->requests, &m->requests) &&
            request_equal(shape->request, m->request))
            return shape;
    }
    return NULL;
}

/* False: too many members or shapes. */
static bool group_shapes(struct search *s, struct gang_plan_member *members, size_t n)
{
    s->n_shapes = 0;
    for (size_t i = 0; i < n && n <= GANG_PLAN_MEMBERS; i++) {
        struct shape *shape = shape_find(s, &members[i]);
        if (!shape && s->n_shapes == GANG_PLAN_SHAPES + (size_t)is_asked(s, &members[i]))
            return false;
        if (!shape) {
            shape = &s->shapes[s->n_shapes++];
            shape->request = members[i].request;
            shape->requests = members[i].requests;
            shape->asked = is_asked(s, &members[i]);
            shape->n = shape->alone = 0;
            shape->on_node = arena_zalloc(s->a, s->plan->n_nodes + 1);
        }
        shape->members[shape->n++] = &members[i];
    }
    return n <= GANG_PLAN_MEMBERS;
}

/* Has the node the CPU, memory and slot for one more member? */
static bool has_space(const struct search *s, const struct ledger_node *node,
                      const struct seen_node *seen, const struct resources *requests)
{
    struct resources sum =
        ledger_requests_seen(node, s->plan->pod.priority, s->plan->pod.uid);
    resources_add(&sum, &seen->taken);
    return ledger_requests_fit(node, &sum, requests);
}

/* Does a member fit on the node beside no other member? */
static bool fits_alone(const struct search *s, size_t at, const struct shape *shape)
{
    uint8_t *known = &shape->on_node[at];
    if (*known == UNKNOWN) {
        struct select_pod pod = s->plan->pod;
        pod.request = shape->request;
        bool fits = (!shape->asked || at < s->plan->n_nodes - s->plan->n_others) &&
                    select_fit_pod(s->plan->nodes[at], &pod) == FIT_YES;
        *known = fits ? FITS : FITS_NOT;
    }
    return *known == FITS;
}

static bool fits_beside(const struct search *s, size_t at, struct shape *shape)
{
    const struct ledger_node *node = s->plan->nodes[at];
    const struct seen_node *seen = &s->seen[at];
    const struct request *r = request_on(shape->request, node->dialect);
    bool fit = fits_alone(s, at, shape);
    if (fit && seen->devices && r->kind != REQUEST_DEVICES) {
        fit = false;
    } else if (fit && seen->cards && !request_needs_nothing(r)) {
        struct select_view view;
        select_view_cards(&view, node, seen->cards, seen->claimed);
        fit = select_cards(&view, r, SELECT_ALL_CARDS, NULL) == FIT_YES;
    }
    if (!fit || has_space(s, node, seen, &shape->requests))
        return fit;
    shape->lacks_space = true;
    return false;
}

static void place_member(const struct search *s, size_t at, struct gang_plan_member *m)
{
    const struct ledger_node *node = s->plan->nodes[at];
    struct seen_node *seen = &s->seen[at];
    struct select_view view;
    if (!seen->cards) {
        size_t size = node->n_cards * sizeof *seen->cards;
        select_view(&view, node, &s->plan->pod, SELECT_ALL);
        seen->cards = arena_alloc(s->a, size + 1);
        if (size)
            memcpy(seen->cards, view.cards, size);
        seen->claimed = view.claimed;
    }
    select_view_cards(&view, node, seen->cards, seen->claimed);
    m->cards = 0;
    const struct request *r = request_on(m->request, node->dialect);
    if (r->kind == REQUEST_DEVICES) {
        seen->claimed += r->cards;
        seen->devices = true;
    } else if (select_cards(&view, r, SELECT_ALL_CARDS, &m->cards) == FIT_YES) {
        select_take(&view, r, m->cards);
    }
    resources_add(&seen->taken, &m->requests);
    m->node = node;
    m->placed = true;
}

/* Places the members of the shape; returns how many found a place. */
static size_t place_shape(const struct search *s, struct shape *shape)
{
    size_t n_nodes = s->plan->n_nodes, failed = 0, done = 0;
    bool spread = s->plan->spread || shape->request->placement == PLACE_SPREAD;
    memset(s->full, 0, n_nodes * sizeof *s->full);
    shape->lacks_space = false;
    size_t at = 0;
    while (failed < n_nodes && done < shape->n) {
        size_t i = s->backward ? n_nodes - 1 - at : at;
        bool fit = !s->full[i] && fits_beside(s, i, shape);
        if (fit)
            place_member(s, i, shape->members[done++]);
        failed += !fit && !s->full[i];
        s->full[i] |= !fit;
        if (!fit || spread)
            at = (at + 1) % n_nodes;
    }
    for (size_t i = done; i < shape->n; i++)
        shape->members[i]->lacks_space = shape->lacks_space;
    return done;
}

static size_t place_all(struct search *s, struct gang_plan_member *members, size_t n)
{
    size_t placed = 0;
    memset(s->seen, 0, s->plan->n_nodes * sizeof *s->seen);
    for (size_t i = 0; i < n; i++) {
        members[i].node = NULL;
        members[i].cards = 0;
        members[i].lacks_space = false;
        members[i].placed = request_fits_anywhere(members[i].request);
    }
    for (size_t i = 0; i < s->n_shapes; i++)
        placed += request_fits_anywhere(s->shapes[i].request)
                      ? s->shapes[i].n
                      : place_shape(s, &s->shapes[i]);
    return placed;
}

/* Whole cards before parts of cards, then the larger amount. */
static int compare_size(const void *a, const void *b)
{
    const struct request *x = ((const struct shape *)a)->request;
    const struct request *y = ((const struct shape *)b)->request;
    bool x_part = x->kind == REQUEST_MEMORY, y_part = y->kind == REQUEST_MEMORY;
    int by_mib = quantity_compare(y->mib_per_card, x->mib_per_card);
    return (x_part - y_part) ?: (x_part ? by_mib : 0)
               ?: quantity_compare(y->cards, x->cards)
               ?: by_mib;
}

static int compare_alone(const void *a, const void *b)
{
    const struct shape *x = a, *y = b;
    return quantity_compare((int64_t)x->alone, (int64_t)y->alone) ?: compare_size(a, b);
}

static void count_alone(struct search *s)
{
    for (size_t k = 0; k < s->n_shapes; k++)
        for (size_t i = 0; i < s->plan->n_nodes; i++)
            s->shapes[k].alone += fits_alone(s, i, &s->shapes[k]);
}

/* One node for all members, with the cards of one set. False: no node has room for all. */
static bool place_together(const struct search *s, struct gang_plan_member *members,
                           size_t n)
{
    const struct gang_plan *plan = s->plan;
    const struct ledger_node *best = NULL;
    struct request all = *members[0].request;
    struct seen_node others = {0};
    struct select_view view;
    uint64_t best_cards = 0;
    uint8_t best_ring = 0, order[SCV_MAX_CARDS];
    if (s->n_shapes != 1 || !all.near_gang || all.cards != 1 || n > SCV_MAX_CARDS ||
        (all.kind != REQUEST_MEMORY && all.kind != REQUEST_CARDS))
        return false;
    all.cards = (uint32_t)n;
    for (size_t i = 1; i < n; i++)
        resources_add(&others.taken, &members[i].requests);
    for (size_t i = 0; i < plan->n_nodes && (!best || best != plan->beside); i++) {
        const struct ledger_node *node = plan->nodes[i];
        uint64_t cards;
        if (!fits_alone(s, i, &s->shapes[0]) ||
            !has_space(s, node, &others, &members[0].requests))
            continue;
        select_view(&view, node, &plan->pod, SELECT_ALL);
        if (select_cards(&view, &all, SELECT_ALL_CARDS, &cards) != FIT_YES)
            continue;
        uint8_t ring = node->has_links ? links_ring(node->links, (uint32_t)cards) : 0;
        ring = ring < LINK_NV ? ring : LINK_NV;
        if (best && ring <= best_ring && node != plan->beside)
            continue;
        best = node;
        best_ring = ring;
        best_cards = cards;
    }
    if (best && best->has_links && n > 1)
        links_ring_order(best->links, (uint32_t)best_cards, order);
    else
        for (size_t i = 0; i < n && best_cards; i++, best_cards &= best_cards - 1)
            order[i] = (uint8_t)__builtin_ctzll(best_cards);
    for (size_t i = 0; i < n && best; i++) {
        members[i].node = best;
        members[i].cards = UINT64_C(1) << order[i];
        members[i].placed = true;
    }
    return best;
}

size_t gang_plan_place(const struct gang_plan *plan, struct gang_plan_member *members,
                       size_t n, struct arena *a, bool *too_large)
{
    struct search s = {.plan = plan, .a = a};
    s.shapes = arena_alloc(a, (GANG_PLAN_SHAPES + 1) * sizeof *s.shapes);
    *too_large = !group_shapes(&s, members, n);
    if (*too_large)
        return 0;
    s.seen = arena_alloc(a, (plan->n_nodes + 1) * sizeof *s.seen);
    s.full = arena_alloc(a, plan->n_nodes + 1);
    struct gang_plan_member *best = arena_alloc(a, (n + 1) * sizeof *best);
    size_t most = 0;
    if (place_together(&s, members, n))
        return n;
    for (int i = 0; i < 4 && most < n; i++) {
        if (i == 2)
            count_alone(&s);
        if (i == 0 || i == 2)
            qsort(s.shapes, s.n_shapes, sizeof *s.shapes,
                  i == 0 ? compare_size : compare_alone);
        s.backward = i & 1;
        size_t placed = place_all(&s, members, n);
        if (placed <= most)
            continue;
        most = placed;
        memcpy(best, members, n * sizeof *members);
    }
    if (most)
        memcpy(members, best, n * sizeof *members);
    return most;
}

/* -- The verdict -- */

static int compare_arrival(const void *a, const void *b)
{
    const struct gang_plan_member *x = a, *y = b;
    return quantity_compare(x->created_s, y->created_s) ?: span_cmp(x->uid, y->uid);
}

/* The members without a place are listed in the order of their arrival. That does not depend on
 * the asker, or on the order in which the pods were seen. `plan` gets what the members say of
 * it. */
static void list_members(const struct ledger *l, const struct gang_asker *asker,
                         struct arena *a, struct gang_verdict *v, struct gang_plan *plan)
{
    const struct ledger_member *m = asker->pod.gang ? asker->pod.gang->members : NULL;
    int64_t *priority = &plan->pod.priority;
    uint32_t minimum = asker->minimum;
    *v = (struct gang_verdict){.total = 1};
    v->members = arena_alloc(a, (GANG_PLAN_MEMBERS + 1) * sizeof *v->members);
    v->members[v->n_members++] =
        (struct gang_plan_member){.request = asker->pod.request,
                                  .requests = asker->requests,
                                  .uid = asker->pod.uid,
                                  .created_s = UINT32_MAX}; /* no watch has shown it */
    for (; m; m = m->next) {
        const struct ledger_pod *pod = m->pod;
        if (pod->terminating) /* no member any more */
            continue;
        if (m->minimum > minimum)
            minimum = m->minimum;
        if (span_eq(pod->uid, asker->pod.uid)) {
            v->members[0].created_s = pod->created_s;
            v->asker_gated = pod->gated;
            v->gated += pod->gated;
            continue;
        }
        const struct ledger_reservation *has =
            pod->node ? NULL : ledger_reservation_find(l, pod->uid);
        const struct ledger_node *on = has ? has->node : pod->node;
        v->total++;
        if (on) {
            v->placed++;
            if (!plan->beside || span_cmp(on->name, plan->beside->name) < 0)
                plan->beside = on;
            /* Reservations below the plan's priority do not count. This one must. */
            if (!pod->node && pod->priority < *priority)
                *priority = pod->priority;
        } else if (pod->gated && !MUTANT(gated_member_counts)) {
            v->gated++;
        } else if (pod->invalid_reason) {
            continue;
        } else if (pod->scheduler != asker->scheduler) {
            v->elsewhere++;
        } else if (v->n_members > GANG_PLAN_MEMBERS) {
            v->too_large = true;
        } else {
            v->members[v->n_members++] =
                (struct gang_plan_member){.request = pod->request,
                                          .requests = ledger_pod_requests(pod),
                                          .uid = pod->uid,
                                          .pod = pod,
                                          .created_s = pod->created_s};
            if (pod->priority < *priority)
                *priority = pod->priority;
        }
    }
    v->absent = minimum > v->total ? minimum - v->total : 0;
    bool all = !minimum || (v->absent && (!asker->waits || MUTANT(gang_of_those_there)));
    v->needed = all ? v->total : minimum;
    qsort(v->members, v->n_members, sizeof *v->members, compare_arrival);
}

/* Adds the other nodes that may take a member: kube-scheduler offers to each pod those that its
 * own terms leave, and in a large cluster only some of these. */
static void add_all_nodes(const struct ledger *l, struct gang_plan *plan, struct arena *a)
{
    uint32_t slots = ledger_node_slots(l);
    const struct ledger_node **all =
        arena_alloc(a, (plan->n_nodes + slots + 1) * sizeof *all);
    uint8_t *offered = arena_zalloc(a, slots + 1);
    for (size_t i = 0; i < plan->n_nodes; i++) {
        all[i] = plan->nodes[i];
        offered[all[i]->id] = 1;
    }
    plan->nodes = all;
    for (uint32_t i = 0; i < slots; i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && !offered[i] && node->state == NODE_USABLE && !node->cordoned)
            all[plan->n_nodes + plan->n_others++] = node;
    }
    plan->n_nodes += plan->n_others;
}

/* The index of the pod asked about. */
static size_t asker_of(const struct gang_verdict *v)
{
    size_t at = 0;
    while (v->members[at].pod)
        at++;
    return at;
}

/* Places the members that have no place yet. */
static void find_places(const struct gang_plan *plan, struct arena *a,
                        struct gang_verdict *v)
{
    v->found =
        (uint32_t)gang_plan_place(plan, v->members, v->n_members, a, &v->too_large);
    v->fits = !v->too_large && v->members[asker_of(v)].placed &&
              v->placed + v->found + v->elsewhere >= v->needed;
}

void gang_judge(const struct ledger *l, const struct gang_asker *asker,
                const struct ledger_node *const *nodes, size_t n_nodes, bool spread,
                struct arena *a, struct gang_verdict *v)
{
    struct gang_plan plan = {
        .nodes = nodes, .n_nodes = n_nodes, .pod = asker->pod, .spread = spread};
    list_members(l, asker, a, v, &plan);
    if (v->too_large || v->asker_gated || v->needed > v->total - v->gated)
        return;
    find_places(&plan, a, v);
    if (!v->fits && !v->too_large && n_nodes) {
        add_all_nodes(l, &plan, a);
        find_places(&plan, a, v);
    }
    if (v->too_large)
        return;
    for (size_t i = v->n_members; i > 0; i--) {
        if (v->members[i - 1].placed)
            continue;
        v->missing = v->members[i - 1].request;
        v->lacks_space = v->members[i - 1].lacks_space;
    }
    const size_t at = asker_of(v);
    const struct gang_plan_member asked = v->members[at];
    memmove(v->members + 1, v->members, at * sizeof asked);
    v->members[0] = asked;
}

void gang_judge_reason(struct buf *out, const struct gang_asker *asker,
                       const struct gang_verdict *v)
{
    buf_adds(out, "gang ");
    buf_add_span(out, asker->name);
    uint32_t ready = v->total - v->gated;
    if (v->needed > ready) {
        buf_printf(out, ": waits for %u more member%s: %u of %u exist", v->needed - ready,
                   v->needed - ready == 1 ? "" : "s",
                   v->total < v->needed ? v->total : v->needed, v->needed);
        if (v->gated)
            buf_printf(out, ", %u with scheduling gates", v->gated);
        return;
    }
    if (v->too_large) {
        buf_printf(out,
                   ": more than %d of its members wait, or they have more than %d "
                   "different requests, so they are not placed together",
                   GANG_PLAN_MEMBERS, GANG_PLAN_SHAPES);
        return;
    }
    uint32_t have = v->placed + v->found + v->elsewhere;
    if (have >= v->needed)
        buf_adds(out,
                 ": as many members as must start have a place; this one finds none");
    else
        buf_printf(out, ": %u of %u members %s no place beside the others",
                   v->needed - have, v->needed, have + 1 < v->needed ? "find" : "finds");
    if (v->missing) {
        struct prepared_reason reason;
        reason_prepare(&reason, v->missing);
        buf_adds(out, "; ");
        buf_add_span(out, (struct span){reason.need, reason.need_n});
        if (v->lacks_space)
            buf_adds(out, ", with the CPU, memory and pod slot that it requests");
    }
}
