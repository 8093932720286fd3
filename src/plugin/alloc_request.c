/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The life of a kubelet request in the allocator: which ids the container gets, whether it
 * may hold those of Allocate, the record, the answer or the rejection.
 */

#include "plugin/alloc_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "domain/keys.h"

enum {
    RETRY_MS = 100, /* between two podresources calls of a waiting request */
    RELIST_AFTER_MS = 1000,
};

static const struct {
    const char *name;
    bool waits; /* a later event can change it */
} rejections[REJECTIONS] = {
    [REJECTED_NOT_SYNCED] = {"not-synced", true},
    [REJECTED_NO_PENDING_POD] = {"no-pending-pod", true},
    [REJECTED_AMBIGUOUS] = {"ambiguous", true},
    [REJECTED_UNKNOWN_POD] = {"unknown-pod", true},
    [REJECTED_NO_PROMISE] = {"no-promise", false}, /* but see can_change */
    [REJECTED_INVALID_REQUEST] = {"invalid-request", false},
    [REJECTED_WRONG_CARD] = {"wrong-card", false},
    [REJECTED_IN_USE] = {"in-use", true},
    [REJECTED_UNHEALTHY_CARD] = {"unhealthy-card", false},
    [REJECTED_NO_CDI_NAME] = {"no-cdi-name", false},
    [REJECTED_INSUFFICIENT_IDS] = {"insufficient-ids", false},
    [REJECTED_UNKNOWN_ID] = {"unknown-id", false},
    [REJECTED_NOT_PREFERRED] = {"not-preferred", false},
    [REJECTED_ENV_OVERRIDE] = {"env-override", false},
    [REJECTED_PODRESOURCES] = {"podresources", true},
};

const char *alloc_rejection_name(enum alloc_rejection r)
{
    return rejections[r].name;
}

const char *alloc_request_name(enum alloc_request_type type)
{
    static const char *const names[ALLOC_REQUEST_TYPES] = {"GetPreferredAllocation",
                                                           "Allocate"};
    return names[type];
}

bool alloc_request_explain(struct pending_request *req, enum alloc_rejection why,
                           const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(req->text, sizeof req->text, fmt, ap);
    va_end(ap);
    req->names[0] = '\0';
    req->why = why;
    return false;
}

/* Which ids the container may hold */

static const struct pod_allocation_container *container_of(const struct alloc_target *t)
{
    return &t->local->pod->containers[t->container];
}

static bool has_card(const struct alloc *a, const struct pod_allocation *pod,
                     const struct plugin_card *card)
{
    for (size_t i = 0; i < pod->n_cards; i++)
        if (pod_allocation_card(&a->state.cards, &pod->cards[i]) == card)
            return true;
    return false;
}

/* May the target take over ids of the allocation? It may those of its pod's plain init
 * containers, which have ended, and its own and those of later containers: if there are any,
 * the kubelet has lost its checkpoint, and they are void. */
static bool may_take_over(const struct alloc_target *t, const struct allocation *al)
{
    const struct pod_allocation *pod = t->local->pod;
    bool may = al->role == CONTAINER_INIT;
    for (size_t i = t->container; i < pod->n_containers; i++)
        may |= span_eq(pod->containers[i].name, al->container) &&
               pod->containers[i].resource == al->resource;
    return may && span_eq(al->uid, pod->uid);
}

const struct allocation *alloc_request_holder(const struct alloc *a,
                                              const struct alloc_target *t,
                                              const struct device_id *unit)
{
    bool whole = container_of(t)->resource == IDS_COUNT;
    struct span uuid = span_of(unit->card->uuid);
    for (size_t i = 0; i < a->state.allocations.n; i++) {
        const struct allocation *al = a->state.allocations.items[i];
        bool whole_card = whole || al->resource == IDS_COUNT;
        if (allocation_holds(al, uuid, whole_card ? -1 : unit->number) &&
            !may_take_over(t, al))
            return al;
    }
    return NULL;
}

/* Another pod that can use the card without a recorded allocation: one started by the Go
 * plugin, or one whose allocation is not known. */
static const struct pod_allocation *unrecorded_user(const struct alloc *a,
                                                    const struct alloc_target *t,
                                                    const struct plugin_card *card)
{
    bool whole = container_of(t)->resource == IDS_COUNT;
    LIST_EACH(const struct local_pod, p, &a->local_pods, link)
    {
        const struct pod_allocation *pod = p->pod;
        if (p != t->local && !pod->terminal && pod->started &&
            (whole || pod->request.kind == REQUEST_CARDS) && has_card(a, pod, card))
            return pod;
    }
    return NULL;
}

/* Users who can read the pod's events may have no access to other namespaces. */
static const char *user_name(struct alloc *a, const struct alloc_target *t,
                             struct span ns, struct span name)
{
    if (!span_eq(ns, t->local->pod->ns))
        return "a pod of another namespace";
    return step_printf(a->out, "pod %.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
}

static const char *id_text(struct alloc *a, const struct device_id *unit)
{
    cleanup_buf struct buf b = {0};
    ids_write(&b, &(struct ids_id){unit->card->tag, unit->number});
    return step_text(a->out, buf_span(&b));
}

static bool explain_held(struct alloc *a, struct pending_request *req,
                         const struct alloc_target *t, const struct device_id *unit,
                         const struct allocation *al)
{
    bool other = al->resource != req->resource;
    return alloc_request_explain(
        req, REJECTED_IN_USE, "id %s of card %s is held by %s%s%s", id_text(a, unit),
        unit->card->uuid, user_name(a, t, al->ns, al->name), other ? ", through " : "",
        other ? ids_resource_name(al->resource) : "");
}

/* No promise and no allocation is on the card. */
static bool is_untouched(const struct alloc *a, const struct plugin_card *card)
{
    LIST_EACH(const struct local_pod, p, &a->local_pods, link)
    if (!p->pod->terminal && has_card(a, p->pod, card))
        return false;
    for (size_t i = 0; i < a->state.allocations.n; i++)
        if (allocation_card(a->state.allocations.items[i], span_of(card->uuid)))
            return false;
    return true;
}

/* An unpromised pod gets untouched cards; the smallest that fit, so that large ones stay
 * free. */
static bool assign_untouched(struct alloc *a, struct pending_request *req,
                             struct pod_allocation *pod)
{
    struct promise_share shares[CARDS_MAX];
    bool taken[CARDS_MAX] = {false};
    const struct cards *cards = &a->state.cards;
    const struct request *r = &pod->request;
    int64_t units = r->kind == REQUEST_MEMORY ? r->units / r->cards : 0;
    for (uint32_t i = 0; i < r->cards && r->cards <= CARDS_MAX; i++) {
        const struct plugin_card *best = NULL;
        for (size_t k = 0; k < cards->n; k++) {
            const struct plugin_card *c = &cards->items[k];
            bool instance_suits = r->kind == REQUEST_MEMORY && r->cards == 1;
            if (!taken[k] && c->health.healthy && c->units >= units &&
                (!c->parent[0] || instance_suits) && (!best || c->units < best->units) &&
                is_untouched(a, c))
                best = c;
        }
        if (!best)
            return alloc_request_explain(req, REJECTED_NO_PROMISE,
                                         "pod %s has no promised card, and fewer than %u "
                                         "cards of %lld units have no promises",
                                         pod->full_name, r->cards, (long long)units);
        taken[best - cards->items] = true;
        shares[i] = (struct promise_share){
            .uuid = span_of(best->uuid), .card = best->index, .units = units};
    }
    pod_allocation_assign(pod, shares, r->cards);
    return pod->promise == POD_ALLOCATION_PROMISED ||
           alloc_request_explain(req, REJECTED_INVALID_REQUEST, "pod %s: %.*s",
                                 pod->full_name, SPAN_ARG(pod->why_not));
}

/* Has the container a promise, and can its cards be used? */
static bool check_promise(struct alloc *a, struct pending_request *req,
                          const struct alloc_target *t)
{
    struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = container_of(t);
    const char *name = pod->full_name;
    if (pod->promise == POD_ALLOCATION_INVALID)
        return alloc_request_explain(req, REJECTED_INVALID_REQUEST, "pod %s: %.*s", name,
                                     SPAN_ARG(pod->why_not));
    if (c->own_devices && a->settings.strict_env)
        return alloc_request_explain(
            req, REJECTED_ENV_OVERRIDE,
            "container %.*s of pod %s sets NVIDIA_VISIBLE_DEVICES itself",
            SPAN_ARG(c->name), name);
    if (pod->promise == POD_ALLOCATION_UNPROMISED && !a->settings.allow_unpromised &&
        !pod->mirror)
        return alloc_request_explain(
            req, REJECTED_NO_PROMISE,
            "pod %s " KEY_NO_PROMISE ": the extender did not bind it. Make its "
            "kube-scheduler call the extender (scripts/install --check), or set "
            "schedulerName to one that does, and create the pod again",
            name);
    if (pod->promise == POD_ALLOCATION_UNPROMISED && !assign_untouched(a, req, pod))
        return false;
    for (size_t i = 0; i < c->n_shares; i++) {
        const struct plugin_card *card =
            pod_allocation_card(&a->state.cards, &c->shares[i]);
        if (!card)
            return alloc_request_explain(
                req, REJECTED_UNHEALTHY_CARD,
                "pod %s is promised card %d %.*s, which is not on this node", name,
                c->shares[i].card, SPAN_ARG(c->shares[i].uuid));
        if (!card->health.healthy)
            return alloc_request_explain(
                req, REJECTED_UNHEALTHY_CARD,
                "pod %s is promised card %s, which is unhealthy: %s", name, card->uuid,
                card->health.reason);
        const struct pod_allocation *user = unrecorded_user(a, t, card);
        if (user)
            return alloc_request_explain(req, REJECTED_IN_USE, "card %s is used by %s",
                                         card->uuid,
                                         user_name(a, t, user->ns, user->name));
    }
    return true;
}

size_t alloc_request_limit(const struct alloc *a, const struct alloc_target *t,
                           const struct plugin_card *card)
{
    const struct pod_allocation_container *c = container_of(t);
    for (size_t k = 0; k < c->n_shares; k++)
        if (pod_allocation_card(&a->state.cards, &c->shares[k]) == card)
            return (size_t)c->shares[k].units;
    return 0;
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

static bool explain_wrong_card(struct alloc *a, struct pending_request *req,
                               const struct alloc_target *t, const struct device_id *unit)
{
    const struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = container_of(t);
    cleanup_buf struct buf cards = {0};
    for (size_t i = 0; i < c->n_shares; i++)
        buf_printf(&cards, "%s%lld of card %d%s%.*s", i ? ", " : "",
                   (long long)c->shares[i].units, c->shares[i].card,
                   c->shares[i].uuid.n ? " " : "", SPAN_ARG(c->shares[i].uuid));
    return alloc_request_explain(
        req, REJECTED_WRONG_CARD,
        "id %s belongs to card %s; container %.*s of pod %s is promised %s",
        id_text(a, unit), unit->card->uuid, SPAN_ARG(c->name), pod->full_name,
        cards.p ? cards.p : "nothing");
}

/* May the container hold these ids? Sorts them. */
static bool check_ids(struct alloc *a, struct pending_request *req,
                      const struct alloc_target *t, struct device_id *ids, size_t n)
{
    const struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = container_of(t);
    if (n != (size_t)c->amount)
        return alloc_request_explain(
            req, REJECTED_WRONG_CARD,
            "%zu ids for container %.*s of pod %s, which requests %lld", n,
            SPAN_ARG(c->name), pod->full_name, (long long)c->amount);
    sort_units(ids, n);
    for (size_t i = 0, on_card = 0; i < n; i++) {
        on_card = i && ids[i - 1].card == ids[i].card ? on_card + 1 : 1;
        if (on_card > alloc_request_limit(a, t, ids[i].card))
            return explain_wrong_card(a, req, t, &ids[i]);
        if (i && by_unit(&ids[i - 1], &ids[i]) == 0)
            return alloc_request_explain(req, REJECTED_WRONG_CARD, "duplicate id");
        const struct allocation *al = alloc_request_holder(a, t, &ids[i]);
        if (al)
            return explain_held(a, req, t, &ids[i], al);
    }
    return true;
}

/* Selects the ids that the kubelet says must be included, and then, for each card of the
 * promise, the lowest ones that are still missing and that nobody holds. */
static bool select_ids(struct alloc *a, struct pending_request *req,
                       const struct alloc_target *t, struct device_id **ids, size_t *n)
{
    const struct pod_allocation_container *c = container_of(t);
    size_t amount = (size_t)c->amount;
    struct device_id *picked =
        arena_alloc(&req->arena, (amount + req->n_must) * sizeof *picked);
    const struct allocation *holder = NULL;
    const struct device_id *held = NULL;
    const struct plugin_card *lacking = NULL;
    *ids = picked;
    *n = req->n_must;
    sort_units(req->ids, req->n_ids);
    sort_units(req->must, req->n_must);
    if (req->n_must)
        memcpy(picked, req->must, req->n_must * sizeof *picked);
    for (size_t i = 0; i < c->n_shares && *n < amount; i++) {
        const struct plugin_card *card =
            pod_allocation_card(&a->state.cards, &c->shares[i]);
        size_t want = (size_t)c->shares[i].units;
        for (size_t k = 0; k < req->n_must; k++)
            want -= want > 0 && req->must[k].card == card;
        for (size_t k = 0; k < req->n_ids && want > 0 && *n < amount; k++) {
            const struct device_id *u = &req->ids[k];
            if (u->card != card || (k && by_unit(u - 1, u) == 0) ||
                (req->n_must && bsearch(u, req->must, req->n_must, sizeof *u, by_unit)))
                continue;
            const struct allocation *al = alloc_request_holder(a, t, u);
            if (al) {
                holder = al;
                held = u;
                continue;
            }
            picked[(*n)++] = *u;
            want--;
        }
        lacking = want ? card : lacking;
    }
    if (*n >= amount)
        return check_ids(a, req, t, picked, *n);
    if (holder)
        return explain_held(a, req, t, held, holder);
    return alloc_request_explain(
        req, REJECTED_INSUFFICIENT_IDS,
        "the kubelet offers too few free ids of card %s: %zu missing", lacking->uuid,
        amount - *n);
}

/* The record */

/* The container sees its cards in the order of the promise. */
static struct allocation *new_allocation(const struct alloc *a,
                                         const struct pending_request *req,
                                         const struct alloc_target *t)
{
    const struct pod_allocation *pod = t->local->pod;
    const struct pod_allocation_container *c = container_of(t);
    struct allocation *al =
        allocation_new(pod->uid, pod->ns, pod->name, c->name, c->role, c->resource);
    for (size_t k = 0; k <= c->n_shares; k++) {
        const struct plugin_card *card =
            k < c->n_shares ? pod_allocation_card(&a->state.cards, &c->shares[k]) : NULL;
        ARRAY_EACH_ITEM(const struct device_id, u, req->ids, req->n_ids)
        {
            if (!card || u->card == card)
                allocation_add(al, span_of(u->card->uuid), u->card->index, u->number);
        }
    }
    return al;
}

/* Records that the container holds the ids of the request, saves that, and answers. */
static bool commit(struct alloc *a, struct pending_request *req,
                   const struct alloc_target *t)
{
    struct local_pod *p = t->local;
    const struct pod_allocation *pod = p->pod;
    const struct pod_allocation_container *c = container_of(t);
    struct err err;
    struct allocation *al = new_allocation(a, req, t);
    const struct response *r = response_of(&a->settings.response, &a->state.cards, pod, c,
                                           al, &a->out->arena, &err);
    if (!r) {
        allocation_free(al);
        return alloc_request_explain(
            req,
            err.code == ERR_UNAVAILABLE ? REJECTED_NO_CDI_NAME : REJECTED_UNHEALTHY_CARD,
            "%s", err.msg);
    }
    /* If the kubelet lost its checkpoint it admits the pod's containers again from the
     * first: allocations of this container and later ones are void. */
    for (size_t i = t->container; i < pod->n_containers; i++) {
        struct allocation *later = alloc_of_container(a, pod, &pod->containers[i]);
        if (later)
            alloc_drop(a, later);
    }
    allocation_set_put(&a->state.allocations, al);
    a->dirty = true;
    a->state.stats.allocated[req->resource]++;
    alloc_save(a);
    struct alloc_output *o = alloc_add_of_pod(a, ALLOC_ALLOCATED, pod);
    o->token = req->token;
    o->response = r;
    alloc_log(a, LOG_INFO, "pod %s: container %.*s got %lld %s of %s%s", pod->full_name,
              SPAN_ARG(al->container), (long long)req->size,
              ids_resource_name(req->resource), al->cards[0].uuid.p,
              al->n_cards > 1 ? " and others" : "");
    if (c->own_devices && !p->env_override_reported &&
        a->settings.response.strategy <= DRIVER_ENVVAR) {
        p->env_override_reported = true;
        alloc_event(a, pod, "GPUEnvOverridden",
                    "container %.*s sets NVIDIA_VISIBLE_DEVICES itself, which overrides "
                    "the card allocated to it",
                    SPAN_ARG(c->name));
    }
    if (r->not_isolated && !p->isolation_reported)
        alloc_event(a, pod, "GPUIsolationFailed", "%s", r->not_isolated);
    p->isolation_reported |= r->not_isolated != NULL;
    a->state.stats.not_isolated += r->not_isolated != NULL;
    alloc_pod_annotate(a, p);
    return true;
}

/* The life cycle */

void alloc_request_free(struct pending_request *req)
{
    struct arena arena = req->arena;
    list_remove(&req->link);
    free(req);
    arena_fini(&arena);
}

static struct alloc_output *answer(struct alloc *a, const struct pending_request *req,
                                   enum alloc_output_type type)
{
    struct alloc_output *o = alloc_add(a, type);
    o->token = req->token;
    return o;
}

/* With --legacy-no-gpu-env a rejection is a success that names no card, or an empty
 * preference. */
static void reject(struct alloc *a, struct pending_request *req, struct local_pod *p)
{
    a->state.stats.rejected[req->why]++;
    alloc_log(a, LOG_WARN, "%s of %lld %s rejected (%s): %s%s",
              alloc_request_name(req->type), (long long)req->size,
              ids_resource_name(req->resource), alloc_rejection_name(req->why), req->text,
              req->names);
    if (p) {
        p->rejected_epoch = a->kubelet_epoch;
        alloc_podresources_rule_out(a, p->pod, req->serial);
        alloc_event(a, p->pod, "GPUAllocationFailed", "%s", req->text);
    }
    if (!a->settings.legacy_env) {
        struct alloc_output *o = answer(a, req, ALLOC_REJECTED);
        o->rejection = req->why;
        o->text = step_text(a->out, span_of(req->text));
    } else if (req->type == ALLOC_REQUEST_PREFERRED) {
        answer(a, req, ALLOC_PREFERRED);
    } else {
        answer(a, req, ALLOC_ALLOCATED)->response =
            response_without(&a->settings.response, req->size, &a->out->arena);
    }
    if (req->type == ALLOC_REQUEST_ALLOCATE)
        a->preferred.local = NULL;
    alloc_request_free(req);
}

/* Can a later event change it? The extender writes node and annotations at once: a bound pod
 * without them never gets a promise, but with allow_unpromised other cards may become free. */
static bool can_change(const struct alloc *a, const struct pending_request *req,
                       const struct local_pod *p)
{
    bool any_card = a->settings.allow_unpromised || (p && p->pod->mirror);
    return req->why == REJECTED_NO_PROMISE ? any_card : rejections[req->why].waits;
}

/* Waits for a change if that can help, or rejects the request. A watch on a dead connection
 * stays silent for a long time; a list uses a new one. */
static void conclude(struct alloc *a, struct pending_request *req, struct local_pod *p)
{
    int64_t now_ms = a->now.mono_ms;
    if (!can_change(a, req, p) || now_ms >= req->until_ms || req->canceled) {
        reject(a, req, p);
        return;
    }
    if (!req->relist_sent && now_ms - req->began_ms >= RELIST_AFTER_MS &&
        req->why != REJECTED_PODRESOURCES) {
        req->relist_sent = true;
        alloc_add(a, ALLOC_RELIST);
    }
    req->retry_ms = now_ms + RETRY_MS;
    step_due(&a->state.due_ms, req->retry_ms);
}

static void prefer(struct alloc *a, struct pending_request *req,
                   const struct alloc_target *t)
{
    struct device_id *ids = NULL;
    size_t n = 0;
    if (!check_promise(a, req, t) || !select_ids(a, req, t, &ids, &n)) {
        conclude(a, req, t->local);
        return;
    }
    struct span *texts = arena_alloc(&a->out->arena, n * sizeof *texts);
    for (size_t i = 0; i < n; i++)
        texts[i] = span_of(id_text(a, &ids[i]));
    struct alloc_output *o = answer(a, req, ALLOC_PREFERRED);
    o->ids = texts;
    o->n_ids = n;
    a->preferred = *t;
    a->preferred_resource = req->resource;
    alloc_request_free(req);
}

static void allocate(struct alloc *a, struct pending_request *req,
                     const struct alloc_target *t)
{
    if (!check_promise(a, req, t) || !check_ids(a, req, t, req->ids, req->n_ids) ||
        !commit(a, req, t)) {
        conclude(a, req, t->local);
        return;
    }
    a->preferred.local = NULL;
    alloc_request_free(req);
}

/* The container of the preceding GetPreferredAllocation. Only without one can the request
 * be for reused ids of an init container. */
static bool find_preferred(struct alloc *a, const struct pending_request *req,
                           struct alloc_target *t)
{
    if (!a->preferred.local)
        return alloc_podresources_identify_reuse(a, req, t);
    *t = a->preferred;
    return a->preferred_resource == req->resource &&
           t->container < t->local->pod->n_containers;
}

static void try_request(struct alloc *a, struct pending_request *req)
{
    struct alloc_target t = {0};
    if (req->type == ALLOC_REQUEST_PREFERRED) {
        req->query = alloc_query(a, NULL);
    } else if (!find_preferred(a, req, &t)) {
        alloc_request_explain(
            req, REJECTED_NOT_PREFERRED,
            "Allocate without a GetPreferredAllocation before: cannot identify the pod");
        conclude(a, req, NULL);
    } else if (!a->node_read) {
        alloc_request_explain(
            req, REJECTED_NOT_SYNCED,
            "the API server has not yet sent the Node, whose labels the container needs");
        conclude(a, req, t.local);
    } else if (a->no_get || req->get_confirmed) {
        allocate(a, req, &t);
    } else {
        req->query = alloc_query(a, t.local->pod);
    }
}

void alloc_request_kubelet_answered(struct alloc *a, struct pending_request *req,
                                    const struct alloc_kubelet_view *view)
{
    struct alloc_target t = {0};
    bool is_allocate = req->type == ALLOC_REQUEST_ALLOCATE;
    req->query = 0;
    if (is_allocate && view->unsupported)
        a->no_get = true;
    if (view->err && !(is_allocate && view->unsupported)) {
        alloc_request_explain(req, REJECTED_PODRESOURCES, "podresources: %s",
                              view->err->msg);
        conclude(a, req, NULL);
    } else if (is_allocate && (a->no_get || !find_preferred(a, req, &t))) {
        try_request(a, req); /* without Get, or the pod was deleted meanwhile */
    } else if (is_allocate) {
        req->get_confirmed = alloc_podresources_confirm(a, req, &t, view);
        if (req->get_confirmed)
            allocate(a, req, &t);
        else
            conclude(a, req, NULL);
    } else {
        alloc_podresources_reconcile(a, view, true);
        if (alloc_podresources_identify(a, req, view, &t))
            prefer(a, req, &t);
        else
            conclude(a, req, NULL);
    }
}

void alloc_request_retry(struct alloc *a, bool all)
{
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        if (req->query)
            continue;
        if (all || a->now.mono_ms >= req->retry_ms)
            try_request(a, req);
        else
            step_due(&a->state.due_ms, req->retry_ms);
    }
}

/* `all`: every id must belong to a card of this node; else the others are left out. */
static bool read_ids(struct alloc *a, struct pending_request *req, bool all,
                     const struct span *ids, size_t n, struct device_id **units,
                     size_t *n_units)
{
    *units = arena_alloc(&req->arena, n * sizeof **units);
    for (size_t i = 0; i < n; i++) {
        if (alloc_read_id(a, req->resource, ids[i], &(*units)[*n_units]))
            ++*n_units;
        else if (all)
            return alloc_request_explain(req, REJECTED_UNKNOWN_ID,
                                         "\"%.*s\" is not a device id of this node",
                                         ids[i].n < 60 ? (int)ids[i].n : 60, ids[i].p);
    }
    return true;
}

void alloc_request_take(struct alloc *a, const struct alloc_request *in)
{
    struct pending_request *req = xcalloc(1, sizeof *req);
    bool is_allocate = in->type == ALLOC_REQUEST_ALLOCATE;
    list_append(&a->requests, &req->link);
    req->type = in->type;
    req->resource = in->resource;
    req->token = in->token;
    req->serial = ++a->serial;
    req->began_ms = a->now.mono_ms;
    req->until_ms = a->now.mono_ms + a->settings.wait_ms;
    req->size = is_allocate ? (int64_t)in->n_ids : in->size;
    /* A new GetPreferredAllocation means that the last one's Allocate will not come. */
    if (!is_allocate)
        a->preferred.local = NULL;
    if (read_ids(a, req, is_allocate, in->ids, in->n_ids, &req->ids, &req->n_ids) &&
        read_ids(a, req, true, in->must, in->n_must, &req->must, &req->n_must))
        try_request(a, req);
    else
        conclude(a, req, NULL);
}

void alloc_request_cancel(struct alloc *a, uint64_t token)
{
    LIST_EACH(struct pending_request, req, &a->requests, link)
    {
        if (req->token != token)
            continue;
        req->canceled = true;
        if (!req->query)
            try_request(a, req);
        return;
    }
}
