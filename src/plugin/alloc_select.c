/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/* A card is identified by its UUID, and by its index only if it has none. */
const struct plugin_card *alloc_select_card(const struct alloc *a,
                                            const struct pod_allocation_share *s)
{
    return s->uuid.n ? cards_by_uuid(&a->cards, s->uuid)
                     : cards_by_index(&a->cards, s->index);
}

static const struct pod_allocation_container *container_of(const struct alloc_target *t)
{
    return &t->local->pod->containers[t->container];
}

static bool has_card(const struct alloc *a, const struct pod_allocation *pod,
                     const struct plugin_card *card)
{
    for (size_t i = 0; i < pod->n_cards; i++)
        if (alloc_select_card(a, &pod->cards[i]) == card)
            return true;
    return false;
}

/* Is the allocation that of the target container or a later one of its pod? The kubelet
 * then lost its checkpoint, and the allocation is void. */
static bool comes_later(const struct alloc_target *t, const struct allocation *al)
{
    const struct pod_allocation *pod = t->local->pod;
    for (size_t i = t->container; i < pod->n_containers; i++)
        if (span_eq(pod->containers[i].name, al->container) &&
            pod->containers[i].resource == al->resource)
            return true;
    return false;
}

/* May the target take over ids of the allocation? It may those of its pod's plain init
 * containers, which have ended. */
static bool may_take_over(const struct alloc_target *t, const struct allocation *al)
{
    return span_eq(al->uid, t->local->pod->uid) &&
           (al->role == CONTAINER_INIT || comes_later(t, al));
}

const struct allocation *alloc_select_holder(const struct alloc *a,
                                             const struct alloc_target *t,
                                             const struct device_id *unit)
{
    bool whole = container_of(t)->resource == IDS_COUNT;
    struct span uuid = span_of(unit->card->uuid);
    for (size_t i = 0; i < a->allocations.n; i++) {
        const struct allocation *al = a->allocations.items[i];
        bool whole_card = whole || al->resource == IDS_COUNT;
        if (allocation_holds(al, uuid, whole_card ? -1 : unit->number) &&
            !may_take_over(t, al))
            return al;
    }
    return NULL;
}

/* Another pod that can use the card without a recorded allocation: one started by the Go
 * plugin, or one whose allocation is not known. */
static const struct local_pod *unrecorded_user(const struct alloc *a,
                                               const struct alloc_target *t,
                                               const struct plugin_card *card)
{
    bool whole = container_of(t)->resource == IDS_COUNT;
    for (const struct local_pod *p = a->local_pods; p; p = p->next) {
        const struct pod_allocation *pod = p->pod;
        if (p != t->local && !pod->terminal && pod->started &&
            (whole || pod->request.kind == REQUEST_CARDS) && has_card(a, pod, card))
            return p;
    }
    return NULL;
}

static const char *pod_name(struct pending_request *req, const struct pod_allocation *pod)
{
    cleanup_buf struct buf b = {0};
    buf_printf(&b, "%.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    return arena_copy(&req->arena, buf_span(&b)).p;
}

/* Users who can read the pod's events may have no access to other namespaces. */
static const char *user_name(struct pending_request *req, const struct alloc_target *t,
                             struct span ns, struct span name)
{
    cleanup_buf struct buf b = {0};
    if (!span_eq(ns, t->local->pod->ns))
        return "a pod of another namespace";
    buf_printf(&b, "pod %.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
    return arena_copy(&req->arena, buf_span(&b)).p;
}

static enum verdict explain_held(struct pending_request *req,
                                 const struct alloc_target *t,
                                 const struct device_id *unit,
                                 const struct allocation *al)
{
    cleanup_buf struct buf id = {0};
    alloc_output_id(&id, unit);
    return alloc_request_explain(
        req, VERDICT_WAIT, REJECTED_IN_USE, "id %s of card %s is held by %s%s%s", id.p,
        unit->card->uuid, user_name(req, t, al->ns, al->name),
        al->resource == req->resource ? "" : ", through ",
        al->resource == req->resource ? "" : ids_resource_name(al->resource));
}

/* An unpromised pod gets cards without promises and allocations; the smallest that fit,
 * so that large ones stay free. */
static bool is_untouched(const struct alloc *a, const struct plugin_card *card)
{
    for (const struct local_pod *p = a->local_pods; p; p = p->next)
        if (!p->pod->terminal && has_card(a, p->pod, card))
            return false;
    for (size_t i = 0; i < a->allocations.n; i++)
        if (allocation_card(a->allocations.items[i], span_of(card->uuid)))
            return false;
    return true;
}

static const struct plugin_card *smallest_untouched(const struct alloc *a, int64_t units,
                                                    const bool *taken)
{
    const struct plugin_card *best = NULL;
    for (size_t i = 0; i < a->cards.n; i++) {
        const struct plugin_card *c = &a->cards.items[i];
        if (!taken[i] && c->health.healthy && c->units >= units &&
            (!best || c->units < best->units) && is_untouched(a, c))
            best = c;
    }
    return best;
}

static enum verdict assign_untouched(struct alloc *a, struct pending_request *req,
                                     struct local_pod *p)
{
    struct pod_allocation_share shares[CARDS_MAX];
    bool taken[CARDS_MAX] = {false};
    const struct request *r = &p->pod->request;
    int64_t units = r->kind == REQUEST_MEMORY ? r->units / r->cards : 0;
    for (uint32_t i = 0; i < r->cards && r->cards <= CARDS_MAX; i++) {
        const struct plugin_card *c = smallest_untouched(a, units, taken);
        if (!c)
            return alloc_request_explain(req, VERDICT_WAIT, REJECTED_NO_PROMISE,
                                         "pod %s has no promised card, and fewer than %u "
                                         "cards of %lld units have no promises",
                                         pod_name(req, p->pod), r->cards,
                                         (long long)units);
        taken[c - a->cards.items] = true;
        shares[i] = (struct pod_allocation_share){
            .uuid = span_of(c->uuid), .index = c->index, .units = units};
    }
    pod_allocation_assign(p->pod, shares, r->cards);
    p->assigned_here = true;
    return p->pod->promise == POD_ALLOCATION_PROMISED
               ? VERDICT_YES
               : alloc_request_explain(req, VERDICT_NO, REJECTED_INVALID_REQUEST,
                                       "pod %s: %.*s", pod_name(req, p->pod),
                                       SPAN_ARG(p->pod->why_not));
}

enum verdict alloc_select_check_promise(struct alloc *a, struct pending_request *req,
                                        const struct alloc_target *t)
{
    struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = container_of(t);
    enum verdict v = VERDICT_YES;
    if (pod->promise == POD_ALLOCATION_INVALID || pod->promise == POD_ALLOCATION_DAMAGED)
        return alloc_request_explain(req, VERDICT_NO, REJECTED_INVALID_REQUEST,
                                     "pod %s: %.*s", pod_name(req, pod),
                                     SPAN_ARG(pod->why_not));
    if (c->own_devices && a->settings.strict_env)
        return alloc_request_explain(
            req, VERDICT_NO, REJECTED_ENV_OVERRIDE,
            "container %.*s of pod %s sets NVIDIA_VISIBLE_DEVICES itself",
            SPAN_ARG(c->name), pod_name(req, pod));
    if (pod->promise == POD_ALLOCATION_UNPROMISED && !a->settings.allow_unpromised &&
        !pod->mirror)
        return alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_NO_PROMISE,
            "pod %s has no promised card: the extender did not bind it. Set "
            "schedulerName "
            "to a kube-scheduler that calls the extender, and create the pod again",
            pod_name(req, pod));
    if (pod->promise == POD_ALLOCATION_UNPROMISED)
        v = assign_untouched(a, req, t->local);
    for (size_t i = 0; i < c->n_shares && v == VERDICT_YES; i++) {
        const struct plugin_card *card = alloc_select_card(a, &c->shares[i]);
        if (!card)
            return alloc_request_explain(
                req, VERDICT_NO, REJECTED_UNHEALTHY_CARD,
                "pod %s is promised card %d %.*s, which is not on this node",
                pod_name(req, pod), c->shares[i].index, SPAN_ARG(c->shares[i].uuid));
        if (!card->health.healthy)
            return alloc_request_explain(
                req, VERDICT_NO, REJECTED_UNHEALTHY_CARD,
                "pod %s is promised card %s, which is unhealthy: %s", pod_name(req, pod),
                card->uuid, card->health.reason);
        const struct local_pod *user = unrecorded_user(a, t, card);
        if (user)
            return alloc_request_explain(
                req, VERDICT_WAIT, REJECTED_IN_USE, "card %s is used by %s", card->uuid,
                user_name(req, t, user->pod->ns, user->pod->name));
    }
    return v;
}

/* Whole cards of a pod with plain init containers: the kubelet reuses their ids in no
 * order, so any card of the pod is valid for each of its containers. */
static bool any_order(const struct alloc_target *t)
{
    const struct pod_allocation *pod = t->local->pod;
    if (container_of(t)->resource != IDS_COUNT)
        return false;
    for (size_t i = 0; i < pod->n_containers; i++)
        if (pod->containers[i].role == CONTAINER_INIT)
            return true;
    return false;
}

static int by_unit(const void *pa, const void *pb)
{
    const struct device_id *x = pa, *y = pb;
    if (x->card != y->card)
        return (x->card > y->card) - (x->card < y->card);
    return (x->number > y->number) - (x->number < y->number);
}

static void sort_units(struct device_id *units, size_t n)
{
    if (n)
        qsort(units, n, sizeof *units, by_unit);
}

/* `units` must be sorted. */
static bool is_among(const struct device_id *units, size_t n, const struct device_id *u)
{
    return n && bsearch(u, units, n, sizeof *units, by_unit);
}

static size_t on_card(const struct device_id *units, size_t n,
                      const struct plugin_card *card)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += units[i].card == card;
    return count;
}

/* Appends the lowest `want` free units of the card to `picked`, and returns the new
 * length. *holder and *held name a unit that was skipped because it is held. */
static size_t take_units(const struct alloc *a, const struct pending_request *req,
                         const struct alloc_target *t, const struct plugin_card *card,
                         size_t want, struct device_id *picked, size_t n,
                         const struct allocation **holder, struct device_id *held)
{
    for (size_t i = 0; i < req->n_ids && want > 0; i++) {
        const struct device_id *u = &req->ids[i];
        if (u->card != card || is_among(req->must, req->n_must, u) ||
            (i && by_unit(u - 1, u) == 0))
            continue;
        const struct allocation *al = alloc_select_holder(a, t, u);
        if (al) {
            *holder = al;
            *held = *u;
            continue;
        }
        picked[n++] = *u;
        want--;
    }
    return n;
}

static enum verdict explain_shortage(struct pending_request *req,
                                     const struct alloc_target *t,
                                     const struct plugin_card *card, size_t missing,
                                     const struct allocation *holder,
                                     const struct device_id *held)
{
    if (holder)
        return explain_held(req, t, held, holder);
    return alloc_request_explain(
        req, VERDICT_NO, REJECTED_INSUFFICIENT_IDS,
        "the kubelet offers too few free ids of card %s: %zu missing", card->uuid,
        missing);
}

/* Selects the ids that the kubelet says must be included, and then, for each card of the
 * promise, the ids that are still missing. */
enum verdict alloc_select_ids(struct alloc *a, struct pending_request *req,
                              const struct alloc_target *t, struct device_id **ids,
                              size_t *n)
{
    const struct pod_allocation_container *c = container_of(t);
    struct device_id *picked =
        arena_alloc(&req->arena, ((size_t)c->amount + req->n_must) * sizeof *picked);
    const struct allocation *holder = NULL;
    struct device_id held = {0};
    *n = req->n_must;
    *ids = picked;
    if (req->n_must)
        memcpy(picked, req->must, req->n_must * sizeof *picked);
    sort_units(req->ids, req->n_ids);
    sort_units(req->must, req->n_must);
    for (size_t i = 0; i < c->n_shares && *n < (size_t)c->amount; i++) {
        const struct plugin_card *card = alloc_select_card(a, &c->shares[i]);
        size_t there = on_card(req->must, req->n_must, card);
        size_t want = (size_t)c->shares[i].units, before = *n;
        want = there < want ? want - there : 0;
        if (any_order(t) && want > (size_t)c->amount - *n)
            want = (size_t)c->amount - *n;
        *n = take_units(a, req, t, card, want, picked, *n, &holder, &held);
        if (*n - before < want)
            return explain_shortage(req, t, card, want - (*n - before), holder, &held);
    }
    struct device_id *requested = req->ids;
    size_t n_requested = req->n_ids;
    req->ids = picked;
    req->n_ids = *n;
    enum verdict v = alloc_select_check(a, req, t);
    req->ids = requested;
    req->n_ids = n_requested;
    return v;
}

static enum verdict explain_wrong_card(struct pending_request *req,
                                       const struct alloc_target *t,
                                       const struct device_id *unit)
{
    const struct pod_allocation_container *c = container_of(t);
    cleanup_buf struct buf cards = {0}, id = {0};
    alloc_output_id(&id, unit);
    for (size_t i = 0; i < c->n_shares; i++)
        buf_printf(&cards, "%s%lld of card %d%s%.*s", i ? ", " : "",
                   (long long)c->shares[i].units, c->shares[i].index,
                   c->shares[i].uuid.n ? " " : "", SPAN_ARG(c->shares[i].uuid));
    return alloc_request_explain(
        req, VERDICT_NO, REJECTED_WRONG_CARD,
        "id %s belongs to card %s; container %.*s of pod %s is promised %s", id.p,
        unit->card->uuid, SPAN_ARG(c->name), pod_name(req, t->local->pod),
        cards.p ? cards.p : "nothing");
}

size_t alloc_select_limit(const struct alloc *a, const struct alloc_target *t,
                          const struct plugin_card *card)
{
    const struct pod_allocation_container *c = container_of(t);
    if (any_order(t) && has_card(a, t->local->pod, card))
        return 1;
    for (size_t k = 0; k < c->n_shares; k++)
        if (alloc_select_card(a, &c->shares[k]) == card)
            return (size_t)c->shares[k].units;
    return 0;
}

/* The ids are sorted, so those of a card are adjacent. */
static enum verdict check_cards(struct alloc *a, struct pending_request *req,
                                const struct alloc_target *t)
{
    for (size_t i = 0, to; i < req->n_ids; i = to) {
        for (to = i; to < req->n_ids && req->ids[to].card == req->ids[i].card;)
            to++;
        if (to - i > alloc_select_limit(a, t, req->ids[i].card))
            return explain_wrong_card(req, t, &req->ids[i]);
    }
    return VERDICT_YES;
}

enum verdict alloc_select_check(struct alloc *a, struct pending_request *req,
                                const struct alloc_target *t)
{
    const struct pod_allocation_container *c = container_of(t);
    if (req->n_ids != (size_t)c->amount)
        return alloc_request_explain(
            req, VERDICT_NO, REJECTED_WRONG_CARD,
            "%zu ids for container %.*s of pod %s, which requests %lld", req->n_ids,
            SPAN_ARG(c->name), pod_name(req, t->local->pod), (long long)c->amount);
    sort_units(req->ids, req->n_ids);
    enum verdict v = check_cards(a, req, t);
    for (size_t i = 0; i < req->n_ids && v == VERDICT_YES; i++) {
        if (i && by_unit(&req->ids[i - 1], &req->ids[i]) == 0)
            return alloc_request_explain(req, VERDICT_NO, REJECTED_IN_USE,
                                         "duplicate id");
        const struct allocation *al = alloc_select_holder(a, t, &req->ids[i]);
        if (al)
            return explain_held(req, t, &req->ids[i], al);
    }
    return v;
}
