/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    UNKNOWN_PODS_MAX = 512,
    FORMER_MS = 1000,
};

/* How many ids of its resource the kubelet shows for the container. */
static size_t shown_ids(const struct alloc_kubelet_pod *pod,
                        const struct pod_allocation_container *c)
{
    size_t n = 0;
    for (size_t i = 0; i < pod->n_containers; i++)
        if (span_eq(pod->containers[i].name, c->name))
            n += pod->containers[i].n_ids[c->resource];
    return n;
}

static bool is_shown(const struct alloc_kubelet_pod *pod,
                     const struct pod_allocation_container *c)
{
    return c->role != CONTAINER_INIT && shown_ids(pod, c) >= (size_t)c->amount;
}

/* Plain init containers are never view: what we granted counts for them, and a later
 * container that has its ids. Unless the kubelet has forgotten one that it would show:
 * then its checkpoint is lost, and it begins anew with the first. */
bool alloc_identify_next_container(const struct alloc *a, const struct local_pod *p,
                                   const struct alloc_kubelet_pod *view, size_t *next)
{
    const struct pod_allocation *pod = p->pod;
    bool forgotten = false;
    size_t last_shown = 0;
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        if (is_shown(view, c))
            last_shown = i + 1;
        else if (c->role != CONTAINER_INIT &&
                 allocation_set_find(&a->allocations, pod->uid, c->name, c->resource))
            forgotten = true;
    }
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        bool done = is_shown(view, c);
        if (c->role == CONTAINER_INIT)
            done = i < last_shown ||
                   (!forgotten &&
                    allocation_set_find(&a->allocations, pod->uid, c->name, c->resource));
        if (!done) {
            *next = i;
            return true;
        }
    }
    return false;
}

static void free_unknown(struct unknown_pod *s)
{
    free(s->ns);
    free(s->name);
    free(s);
}

struct unknown_pod *alloc_identify_add_unknown(struct alloc *a, struct span ns,
                                               struct span name)
{
    struct unknown_pod *s = xcalloc(1, sizeof *s), **at = &s->next;
    s->ns = xmemdup0(ns.p, ns.n);
    s->name = xmemdup0(name.p, name.n);
    s->next = a->unknown_pods;
    a->unknown_pods = s;
    for (int i = 1; *at && i < UNKNOWN_PODS_MAX; i++)
        at = &(*at)->next;
    if (*at) {
        free_unknown(*at);
        *at = NULL;
    }
    return s;
}

void alloc_identify_forget_unknown(struct alloc *a)
{
    for (struct unknown_pod *s = a->unknown_pods, *next; s; s = next) {
        next = s->next;
        free_unknown(s);
    }
    a->unknown_pods = NULL;
}

static struct unknown_pod *
find_unknown(struct alloc *a, const struct alloc_kubelet_pod *pod, uint64_t serial)
{
    for (struct unknown_pod *s = a->unknown_pods; s; s = s->next)
        if (span_eq(pod->ns, span_of(s->ns)) && span_eq(pod->name, span_of(s->name)))
            return s;
    struct unknown_pod *s = alloc_identify_add_unknown(a, pod->ns, pod->name);
    s->serial = serial;
    return s;
}

void alloc_identify_answered(struct alloc *a, const struct pod_allocation *pod,
                             uint64_t serial)
{
    const struct alloc_kubelet_pod view = {.ns = pod->ns, .name = pod->name};
    struct unknown_pod *s = find_unknown(a, &view, serial);
    s->serial = serial;
    s->former = true;
}

static bool is_among(const struct unknown_pod *s, const struct alloc_kubelet_view *view)
{
    for (size_t i = 0; i < view->n_pods; i++)
        if (span_eq(view->pods[i].name, span_of(s->name)) &&
            span_eq(view->pods[i].ns, span_of(s->ns)))
            return true;
    return false;
}

/* Those that the kubelet does not have any more. */
static void drop_unknown(struct alloc *a, const struct alloc_kubelet_view *view)
{
    struct unknown_pod **at = &a->unknown_pods, *s;
    while ((s = *at) != NULL) {
        if (is_among(s, view)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free_unknown(s);
    }
}

static bool shows_ids(const struct alloc_kubelet_pod *pod)
{
    for (size_t i = 0; i < pod->n_containers; i++)
        for (int r = 0; r < IDS_RESOURCES; r++)
            if (pod->containers[i].n_ids[r])
                return true;
    return false;
}

/* Could the pod, which the API server did not tell of, be the one? Not if it has all it
 * needs, and not if an earlier req met it: the kubelet has gone on since. One that the
 * API server told of, and that it is gone, may have come anew under the same name; but a
 * kubelet before 1.34 shows what has ended, too, and cannot forget it while it waits for
 * us. So much time is given to the news that it is another one. */
static bool may_be_requester(struct alloc *a, int64_t age_ms,
                             const struct pending_request *req,
                             const struct alloc_kubelet_pod *pod, bool former)
{
    if (shows_ids(pod))
        return false;
    struct unknown_pod *s = find_unknown(a, pod, req->serial);
    if (s->serial == 0)
        s->serial = req->serial;
    s->former |= former;
    return s->serial == req->serial && !(s->former && a->no_get && age_ms >= FORMER_MS);
}

static bool ends_with(struct span s, const char *end)
{
    size_t n = strlen(end);
    return s.n > n && memcmp(s.p + s.n - n, end, n) == 0;
}

/* The name of a static pod ends with its node's. Until the kubelet has admitted it there
 * is nothing of it in the API. */
static bool may_be_static(const struct alloc *a, const struct alloc_kubelet_pod *pod)
{
    cleanup_free char *suffix = xasprintf("-%s", a->node);
    return ends_with(pod->name, suffix);
}

/* A pod for it, as far as it can be known: its first container. The kubelet does not
 * show what a container requests for. */
static struct local_pod *take_in_static(struct alloc *a,
                                        const struct pending_request *req,
                                        const struct alloc_kubelet_pod *view)
{
    if (view->n_containers != 1)
        return NULL;
    struct pod_allocation *pod = xcalloc(1, sizeof *pod);
    cleanup_free char *uid =
        xasprintf("static:%.*s/%.*s", SPAN_ARG(view->ns), SPAN_ARG(view->name));
    pod->uid = arena_copy(&pod->arena, span_of(uid));
    pod->ns = arena_copy(&pod->arena, view->ns);
    pod->name = arena_copy(&pod->arena, view->name);
    pod->mirror = true;
    pod->promise = POD_ALLOCATION_UNPROMISED;
    pod->request = (struct request){
        .kind = req->resource == IDS_MEM ? REQUEST_MEMORY : REQUEST_CARDS,
        .cards = req->resource == IDS_MEM ? 1 : (uint32_t)req->size,
        .units = req->resource == IDS_MEM ? req->size : 0};
    pod->containers = arena_zalloc(&pod->arena, sizeof *pod->containers);
    pod->n_containers = 1;
    pod->containers[0] = (struct pod_allocation_container){
        .name = arena_copy(&pod->arena, view->containers[0].name),
        .resource = req->resource,
        .amount = req->size};
    struct local_pod *p = xcalloc(1, sizeof *p);
    p->pod = pod;
    p->list = a->list;
    p->next = a->local_pods;
    a->local_pods = p;
    return p;
}

/* Pods that can be meant, and what stands against being sure of one of them. */
struct survey {
    struct alloc_target match;
    size_t matches, unknown_pods;
    const struct alloc_kubelet_pod *unknown_pod;
    struct span other; /* name of a second match */
};

static void look_at(struct alloc *a, int64_t age_ms, struct pending_request *req,
                    const struct alloc_kubelet_pod *view, struct survey *s)
{
    struct local_pod *p = alloc_pod_by_name(a, view->ns, view->name);
    size_t next;
    bool done = p && (p->pod->terminal || p->rejected_epoch == a->kubelet_epoch);
    if (!p || done) {
        if (may_be_requester(a, age_ms, req, view, done)) {
            s->unknown_pods++;
            s->unknown_pod = view;
        }
        return;
    }
    if (!alloc_identify_next_container(a, p, view, &next))
        return;
    const struct pod_allocation_container *c = &p->pod->containers[next];
    if (c->resource != req->resource || c->amount != req->size)
        return;
    s->other = s->matches ? s->match.local->pod->name : s->other;
    s->match = (struct alloc_target){p, next};
    s->matches++;
}

static enum verdict nobody(struct alloc *a, struct pending_request *req,
                           const struct survey *s, int64_t age_ms,
                           struct alloc_target *target)
{
    if (s->unknown_pods == 0)
        return alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_NO_PENDING_POD,
            "no pod of this node that the kubelet has waits for %lld of %s",
            (long long)req->size, ids_resource_name(req->resource));
    /* Half of the time is over: it does not come from the API server any more. */
    if (s->unknown_pods == 1 && may_be_static(a, s->unknown_pod) &&
        age_ms * 2 >= a->settings.wait_ms &&
        (target->local = take_in_static(a, req, s->unknown_pod)) != NULL) {
        target->container = 0;
        return VERDICT_YES;
    }
    return alloc_request_explain(
        req, VERDICT_WAIT, REJECTED_UNKNOWN_POD,
        "the kubelet has pod %.*s/%.*s, of which the API server has told "
        "nothing yet",
        SPAN_ARG(s->unknown_pod->ns), SPAN_ARG(s->unknown_pod->name));
}

enum verdict alloc_identify_from_list(struct alloc *a, int64_t now_ms,
                                      struct pending_request *req,
                                      const struct alloc_kubelet_view *view,
                                      struct alloc_target *target)
{
    struct survey s = {0};
    int64_t age_ms = now_ms - req->began_ms;
    drop_unknown(a, view);
    if (!a->listed)
        return alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_NOT_SYNCED,
            "the API server has not yet told which pods are on this node");
    for (size_t i = 0; i < view->n_pods; i++)
        look_at(a, age_ms, req, &view->pods[i], &s);
    if (s.matches == 0)
        return nobody(a, req, &s, age_ms, target);
    if (s.matches > 1)
        return alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_AMBIGUOUS,
            "%zu pods of this node wait for %lld of %s, among them %.*s and "
            "%.*s, and it cannot be told which of them it is",
            s.matches, (long long)req->size, ids_resource_name(req->resource),
            SPAN_ARG(s.other), SPAN_ARG(s.match.local->pod->name));
    if (s.unknown_pods)
        return alloc_request_explain(
            req, VERDICT_WAIT, REJECTED_UNKNOWN_POD,
            "it may be pod %.*s/%.*s, which the kubelet has and of which the "
            "API server has told nothing yet",
            SPAN_ARG(s.unknown_pod->ns), SPAN_ARG(s.unknown_pod->name));
    *target = s.match;
    return VERDICT_YES;
}

/* The pod with a plain init container that holds the unit. */
static struct local_pod *init_holder(const struct alloc *a,
                                     const struct pending_request *req,
                                     const struct device_id *unit)
{
    for (size_t i = 0; i < a->allocations.n; i++) {
        const struct allocation *al = a->allocations.items[i];
        if (al->role == CONTAINER_INIT && al->resource == req->resource &&
            allocation_holds(al, span_of(unit->card->uuid), unit->number))
            return alloc_pod_find(a, al->uid);
    }
    return NULL;
}

bool alloc_identify_reuse(const struct alloc *a, const struct pending_request *req,
                          struct alloc_target *target)
{
    struct local_pod *p = NULL;
    for (size_t i = 0; i < req->n_ids; i++) {
        struct local_pod *holder = init_holder(a, req, &req->ids[i]);
        if (!holder || (p && holder != p))
            return false;
        p = holder;
    }
    if (!p || p->pod->terminal || p->rejected_epoch == a->kubelet_epoch)
        return false;
    for (size_t i = 0; i < p->pod->n_containers; i++) {
        const struct pod_allocation_container *c = &p->pod->containers[i];
        if (allocation_set_find(&a->allocations, p->pod->uid, c->name, c->resource))
            continue;
        *target = (struct alloc_target){p, i};
        return c->resource == req->resource && c->amount == req->size;
    }
    return false;
}
