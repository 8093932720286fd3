/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum {
    UNKNOWN_PODS_MAX = 512,
    FORMER_POD_MS = 1000,
};

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

/* podresources never shows plain init containers: one has its ids if an allocation of it
 * is recorded, or if a later container has ids. An allocation that the kubelet should
 * show but does not means that its checkpoint is lost: it starts again with the first
 * container. */
bool alloc_identify_next_container(const struct alloc *a, const struct local_pod *p,
                                   const struct alloc_kubelet_pod *view, size_t *next)
{
    const struct pod_allocation *pod = p->pod;
    bool checkpoint_lost = false;
    size_t last_shown = 0;
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        if (is_shown(view, c))
            last_shown = i + 1;
        else if (c->role != CONTAINER_INIT &&
                 allocation_set_find(&a->allocations, pod->uid, c->name, c->resource))
            checkpoint_lost = true;
    }
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        bool done = is_shown(view, c);
        if (c->role == CONTAINER_INIT)
            done = i < last_shown ||
                   (!checkpoint_lost &&
                    allocation_set_find(&a->allocations, pod->uid, c->name, c->resource));
        if (!done) {
            *next = i;
            return true;
        }
    }
    return false;
}

static void free_unknown(struct unknown_pod *u)
{
    free(u->ns);
    free(u->name);
    free(u);
}

struct unknown_pod *alloc_identify_add_unknown(struct alloc *a, struct span ns,
                                               struct span name)
{
    struct unknown_pod *u = xcalloc(1, sizeof *u), **at = &u->next;
    u->ns = xmemdup0(ns.p, ns.n);
    u->name = xmemdup0(name.p, name.n);
    u->next = a->unknown_pods;
    a->unknown_pods = u;
    for (int i = 1; *at && i < UNKNOWN_PODS_MAX; i++)
        at = &(*at)->next;
    if (*at) {
        free_unknown(*at);
        *at = NULL;
    }
    return u;
}

void alloc_identify_forget_unknown(struct alloc *a)
{
    for (struct unknown_pod *u = a->unknown_pods, *next; u; u = next) {
        next = u->next;
        free_unknown(u);
    }
    a->unknown_pods = NULL;
}

static struct unknown_pod *
find_unknown(struct alloc *a, const struct alloc_kubelet_pod *pod, uint64_t serial)
{
    for (struct unknown_pod *u = a->unknown_pods; u; u = u->next)
        if (span_eq(pod->ns, span_of(u->ns)) && span_eq(pod->name, span_of(u->name)))
            return u;
    struct unknown_pod *u = alloc_identify_add_unknown(a, pod->ns, pod->name);
    u->serial = serial;
    return u;
}

void alloc_identify_answered(struct alloc *a, const struct pod_allocation *pod,
                             uint64_t serial)
{
    const struct alloc_kubelet_pod view = {.ns = pod->ns, .name = pod->name};
    struct unknown_pod *u = find_unknown(a, &view, serial);
    u->serial = serial;
    u->former = true;
}

static bool is_among(const struct unknown_pod *u, const struct alloc_kubelet_view *view)
{
    for (size_t i = 0; i < view->n_pods; i++)
        if (span_eq(view->pods[i].name, span_of(u->name)) &&
            span_eq(view->pods[i].ns, span_of(u->ns)))
            return true;
    return false;
}

/* Drops pods that have left the kubelet'u view. */
static void drop_unknown(struct alloc *a, const struct alloc_kubelet_view *view)
{
    struct unknown_pod **at = &a->unknown_pods, *u;
    while ((u = *at) != NULL) {
        if (is_among(u, view)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        free_unknown(u);
    }
}

static bool shows_ids(const struct alloc_kubelet_pod *pod)
{
    for (size_t i = 0; i < pod->n_containers; i++)
        for (int r = 0; r < IDS_CARD_RESOURCES; r++)
            if (pod->containers[i].n_ids[r])
                return true;
    return false;
}

/* Could a pod that the API server has not sent be the requester? Not if it has ids, and
 * not if an earlier request met it: the kubelet has moved on since. A pod known as
 * deleted or terminal may have been recreated under its name. But a kubelet before 1.34
 * shows terminal pods too, and cannot drop them while it waits for this answer; there
 * such a pod is ruled out after FORMER_POD_MS. */
static bool may_be_requester(struct alloc *a, int64_t age_ms,
                             const struct pending_request *req,
                             const struct alloc_kubelet_pod *pod, bool former)
{
    if (shows_ids(pod))
        return false;
    struct unknown_pod *u = find_unknown(a, pod, req->serial);
    if (u->serial == 0)
        u->serial = req->serial;
    u->former |= former;
    return u->serial == req->serial &&
           !(u->former && a->no_get && age_ms >= FORMER_POD_MS);
}

static bool ends_with(struct span s, const char *end)
{
    size_t n = strlen(end);
    return s.n > n && memcmp(s.p + s.n - n, end, n) == 0;
}

/* The name of a static pod ends with the node's name. The API server has no object of it
 * until the kubelet has admitted it. */
static bool may_be_static(const struct alloc *a, const struct alloc_kubelet_pod *pod)
{
    cleanup_free char *suffix = xasprintf("-%s", a->node);
    return ends_with(pod->name, suffix);
}

/* podresources does not show what a container requests, so only a static pod with a
 * single container can be described: by the request at hand. */
static struct local_pod *add_static_pod(struct alloc *a,
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

/* The pods in the kubelet's view that the request could be for. */
struct survey {
    struct alloc_target match;
    size_t matches, unknown_pods;
    const struct alloc_kubelet_pod *unknown_pod;
    const struct pod_allocation *other; /* a second match */
    struct span ns;                     /* of the last of all these */
    bool several_ns;                    /* they are of several namespaces */
};

static void add_namespace(struct survey *s, struct span ns)
{
    bool first = s->matches + s->unknown_pods == 0;
    s->several_ns |= !first && !span_eq(s->ns, ns);
    s->ns = ns;
}

static void survey_pod(struct alloc *a, int64_t age_ms, struct pending_request *req,
                       const struct alloc_kubelet_pod *view, struct survey *s)
{
    struct local_pod *p = alloc_pod_by_name(a, view->ns, view->name);
    size_t next;
    bool former = p && (p->pod->terminal || p->rejected_epoch == a->kubelet_epoch);
    if (!p || former) {
        if (may_be_requester(a, age_ms, req, view, former)) {
            add_namespace(s, view->ns);
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
    add_namespace(s, view->ns);
    s->other = s->matches ? s->match.local->pod : s->other;
    s->match = (struct alloc_target){p, next};
    s->matches++;
}

/* The kubelet writes the text into the status of the pod that the request is for, which is one
 * of those in the survey. Users who can read that status may have no access to the namespaces
 * of the others. */
static enum verdict explain_unknown(struct pending_request *req, const struct survey *s)
{
    const struct alloc_kubelet_pod *pod = s->unknown_pod;
    cleanup_free char *name =
        xasprintf(": %.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    alloc_request_explain(req, VERDICT_WAIT, REJECTED_UNKNOWN_POD,
                          "the request can be for a pod that the kubelet has and the API "
                          "server has not sent yet%s",
                          s->several_ns ? "" : name);
    if (s->several_ns)
        snprintf(req->names, sizeof req->names, "%s", name);
    return VERDICT_WAIT;
}

static enum verdict explain_ambiguous(struct pending_request *req, const struct survey *s)
{
    const struct pod_allocation *a = s->other, *b = s->match.local->pod;
    cleanup_free char *names =
        xasprintf(", among them %.*s/%.*s and %.*s/%.*s", SPAN_ARG(a->ns),
                  SPAN_ARG(a->name), SPAN_ARG(b->ns), SPAN_ARG(b->name));
    alloc_request_explain(
        req, VERDICT_WAIT, REJECTED_AMBIGUOUS,
        "cannot identify the pod: %zu pods of this node lack %lld ids of %s%s",
        s->matches, (long long)req->size, ids_resource_name(req->resource),
        s->several_ns ? "" : names);
    if (s->several_ns)
        snprintf(req->names, sizeof req->names, "%s", names);
    return VERDICT_WAIT;
}

static enum verdict no_match(struct alloc *a, struct pending_request *req,
                             const struct survey *s, int64_t age_ms,
                             struct alloc_target *target)
{
    if (s->unknown_pods == 0)
        return alloc_request_explain(req, VERDICT_WAIT, REJECTED_NO_PENDING_POD,
                                     "no pod in the kubelet's view lacks %lld ids of %s",
                                     (long long)req->size,
                                     ids_resource_name(req->resource));
    /* After half of the wait the API server is unlikely to send it: a static pod. */
    if (s->unknown_pods == 1 && may_be_static(a, s->unknown_pod) &&
        age_ms * 2 >= a->settings.wait_ms &&
        (target->local = add_static_pod(a, req, s->unknown_pod)) != NULL) {
        target->container = 0;
        return VERDICT_YES;
    }
    return explain_unknown(req, s);
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
            "the API server has not yet listed the pods of this node");
    for (size_t i = 0; i < view->n_pods; i++)
        survey_pod(a, age_ms, req, &view->pods[i], &s);
    if (s.matches == 0)
        return no_match(a, req, &s, age_ms, target);
    if (s.matches > 1)
        return explain_ambiguous(req, &s);
    if (s.unknown_pods)
        return explain_unknown(req, &s);
    *target = s.match;
    return VERDICT_YES;
}

/* The pod whose plain init container holds the id. */
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
