/* SPDX-License-Identifier: Apache-2.0 */

#include "node/identify.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"

enum {
    UNKNOWN_PODS_MAX = 512,
    FORMER_POD_MS = 1000,
};

/* A pod in the kubelet's view that the state does not have. */
struct unknown_pod {
    struct list link;
    char *ns, *name;
    uint64_t serial; /* of the first request that met it; 0: none yet */
    bool former;     /* the API server has sent this name before, and its deletion */
};

struct identify {
    struct alloc_state *state;
    struct list unknown_pods; /* newest first */
    uint64_t kubelet_epoch;   /* number of kubelet starts */
    /* Of the last GetPreferredAllocation answer, which Allocate must follow; local NULL: none */
    struct alloc_target preferred;
    enum ids_resource preferred_resource;
};

/* How many ids of the resource the view has of the container, or, without a name, of all
 * containers. The kubelet sends an entry for each resource and NUMA node. */
static size_t count_ids(const struct podres_pod *view, struct span container,
                        enum ids_resource resource)
{
    size_t n = 0;
    ARRAY_EACH_ITEM(const struct podres_container, c, view->containers,
                    view->n_containers)
    {
        for (size_t k = 0; k < c->n_devices; k++)
            if ((!container.p || span_eq(c->name, container)) &&
                span_eq(c->devices[k].resource, span_of(ids_resource_name(resource))))
                n += c->devices[k].n_ids;
    }
    return n;
}

static bool shows_all_ids(const struct podres_pod *view,
                          const struct pod_allocation_container *c)
{
    return c->role != CONTAINER_INIT &&
           count_ids(view, c->name, c->resource) >= (size_t)c->amount;
}

bool identify_is_settled(const struct alloc_state *s, const struct pod_allocation *pod,
                         const struct pod_allocation_container *c)
{
    int64_t boot_ms = clock_offset_ms(s->now.mono_ms, s->now.wall_ns);
    bool runs = c->started_s && c->started_s * 1000 > boot_ms &&
                c->started_s * 1000 <= s->now.wall_ns / 1000000;
    return runs && driver_node_is_since(&s->driver_node, 27) &&
           alloc_state_allocation(s, pod, c);
}

/* The first container that lacks ids in the kubelet's view; n_containers: none. Without the
 * `settled` ones, or with them.
 *
 * podresources never shows plain init containers: one has its ids if an allocation of it
 * is recorded, or if a later container has ids. An allocation that the kubelet should
 * show but does not means that its checkpoint is lost: it starts again with the first
 * container. */
static size_t next_container(const struct alloc_state *s,
                             const struct pod_allocation *pod,
                             const struct podres_pod *view, bool settled)
{
    bool checkpoint_lost = false;
    size_t last_shown = 0, i;
    for (i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        if (shows_all_ids(view, c))
            last_shown = i + 1;
        else if (c->role != CONTAINER_INIT && alloc_state_allocation(s, pod, c))
            checkpoint_lost = true;
    }
    for (i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        bool done =
            shows_all_ids(view, c) || (!settled && identify_is_settled(s, pod, c));
        if (c->role == CONTAINER_INIT)
            done =
                i < last_shown || (!checkpoint_lost && alloc_state_allocation(s, pod, c));
        if (!done)
            break;
    }
    return i;
}

bool identify_confirm(const struct identify *id, struct kubelet_request *req,
                      const struct alloc_target *t, const struct alloc_kubelet_view *view)
{
    const struct alloc_state *s = id->state;
    const struct pod_allocation *pod = t->local->pod;
    if (view->n_pods == 0)
        return rejection_set(&req->rejection, REJECTED_NO_PENDING_POD,
                             "the kubelet no longer has pod %s", pod->full_name);
    return next_container(s, pod, view->pods, false) == t->container ||
           next_container(s, pod, view->pods, true) == t->container ||
           rejection_set(
               &req->rejection, REJECTED_NO_PENDING_POD,
               "container %.*s of pod %s is not the next one without ids in the "
               "kubelet's view",
               SPAN_ARG(alloc_target_container(t)->name), pod->full_name);
}

/* Unknown pods */

static void free_unknown(struct unknown_pod *u)
{
    list_remove(&u->link);
    free(u->ns);
    free(u->name);
    free(u);
}

static bool is_pod(const struct unknown_pod *u, struct span ns, struct span name)
{
    return span_eq(ns, span_of(u->ns)) && span_eq(name, span_of(u->name));
}

/* Finds or adds the pod. The list is bounded: the oldest entry is dropped. */
static struct unknown_pod *unknown_pod(struct identify *id, struct span ns,
                                       struct span name)
{
    size_t n = 0;
    LIST_EACH(struct unknown_pod, u, &id->unknown_pods, link)
    {
        if (is_pod(u, ns, name))
            return u;
        if (++n == UNKNOWN_PODS_MAX)
            free_unknown(u);
    }
    struct unknown_pod *u = xcalloc(1, sizeof *u);
    u->ns = xmemdup0(ns.p, ns.n);
    u->name = xmemdup0(name.p, name.n);
    list_prepend(&id->unknown_pods, &u->link);
    return u;
}

static void rule_out(struct identify *id, const struct pod_allocation *pod,
                     uint64_t serial)
{
    struct unknown_pod *u = unknown_pod(id, pod->ns, pod->name);
    u->serial = serial;
    u->former = true;
}

/* The name of a static pod ends with the node's name. The API server has no object of it
 * until the kubelet has admitted it. podresources does not show what a container requests,
 * so only a static pod with a single container can be described: by the request at hand. A
 * later one without ids is of an edited manifest. NULL: it is none. */
static struct local_pod *add_static_pod(struct identify *id,
                                        const struct kubelet_request *req,
                                        const struct podres_pod *view)
{
    struct alloc_state *s = id->state;
    cleanup_free char *suffix = xasprintf("-%s", s->settings.node),
                      *amount = xasprintf("%lld", (long long)req->size),
                      *uid = alloc_state_static_uid(view->ns, view->name);
    size_t n = strlen(suffix);
    if (view->n_containers != 1 || view->name.n <= n ||
        memcmp(view->name.p + view->name.n - n, suffix, n) != 0)
        return NULL;
    struct pod_container c = {.name = view->containers[0].name};
    *(req->resource == IDS_MEM     ? &c.mem
      : req->resource == IDS_COUNT ? &c.cards
      : req->resource == IDS_SHARE ? &c.slots
                                   : &c.devices) = span_of(amount);
    const struct pod pod = {
        .meta = {.uid = span_of(uid), .ns = view->ns, .name = view->name},
        .mirror = true,
        .containers = &c,
        .n_containers = 1};
    struct local_pod *p = alloc_state_pod(s, span_of(uid));
    if (!p) {
        p = xcalloc(1, sizeof *p);
        list_prepend(&s->pods, &p->link);
    }
    pod_allocation_free(p->pod);
    p->pod =
        pod_allocation_new(&pod, s->cards.settings.unit_mib, s->cards.settings.dialect);
    p->list = s->list;
    unknown_pod(id, view->ns, view->name)->serial = 0;
    return p;
}

/* The pods in the kubelet's view that the request could be for. */
struct survey {
    bool settled; /* with containers that have what they were given */
    struct alloc_target match;
    size_t matches, unknown_pods;
    const struct podres_pod *unknown_pod;
    const struct pod_allocation *other; /* a second match */
    struct span ns;                     /* of the last of all these */
    bool several_ns;                    /* they are of several namespaces */
};

static void survey_pod(struct identify *id, const struct kubelet_request *req,
                       const struct podres_pod *view, struct survey *of)
{
    const struct alloc_state *s = id->state;
    struct local_pod *p = alloc_state_pod_by_name(s, view->ns, view->name);
    bool former = p && (p->pod->terminal || p->rejected_epoch == id->kubelet_epoch);
    bool first = of->matches + of->unknown_pods == 0;
    if (!p || former || alloc_state_is_static(p->pod->uid)) {
        /* Could a pod that the API server has not sent be the requester? Not if it has ids, and
         * not if an earlier request met it: the kubelet has moved on since. A pod known as
         * deleted or terminal may have been recreated under its name. But a kubelet before 1.34
         * shows terminal pods too, and cannot drop them while it waits for this answer; there
         * such a pod is ruled out after FORMER_POD_MS. */
        for (int r = 0; r < IDS_CARD_RESOURCES; r++)
            if (count_ids(view, (struct span){0}, (enum ids_resource)r))
                return;
        struct unknown_pod *u = unknown_pod(id, view->ns, view->name);
        u->serial = u->serial ?: req->serial;
        u->former |= former;
        if (u->serial != req->serial ||
            (u->former && s->no_get && s->now.mono_ms - req->began_ms >= FORMER_POD_MS))
            return;
        of->unknown_pods++;
        of->unknown_pod = view;
    } else {
        size_t next = next_container(s, p->pod, view, of->settled);
        const struct pod_allocation_container *c = &p->pod->containers[next];
        if (next == p->pod->n_containers || c->resource != req->resource ||
            c->amount != req->size)
            return;
        of->other = of->matches ? of->match.local->pod : of->other;
        of->match = (struct alloc_target){p, next};
        of->matches++;
    }
    of->several_ns |= !first && !span_eq(of->ns, view->ns);
    of->ns = view->ns;
}

bool identify_by_list(struct identify *id, struct kubelet_request *req,
                      const struct alloc_kubelet_view *view, struct alloc_target *t)
{
    struct alloc_state *s = id->state;
    struct survey of = {0};
    LIST_EACH(struct unknown_pod, u, &id->unknown_pods, link)
    {
        size_t i = 0;
        while (i < view->n_pods && !is_pod(u, view->pods[i].ns, view->pods[i].name))
            i++;
        if (i == view->n_pods)
            free_unknown(u);
    }
    if (!s->listed)
        return rejection_set(&req->rejection, REJECTED_NOT_SYNCED,
                             "the API server has not yet listed the pods of this node");
    for (int settled = 0; settled < 2 && of.matches + of.unknown_pods == 0; settled++) {
        of.settled = settled;
        for (size_t i = 0; i < view->n_pods; i++)
            survey_pod(id, req, &view->pods[i], &of);
    }
    if (of.matches + of.unknown_pods == 0)
        return rejection_set(&req->rejection, REJECTED_NO_PENDING_POD,
                             "no pod in the kubelet's view lacks %lld ids of %s",
                             (long long)req->size, ids_resource_name(req->resource));
    /* After half of the wait the API server is unlikely to send it: a static pod. */
    if (of.matches == 0 && of.unknown_pods == 1 &&
        (s->now.mono_ms - req->began_ms) * 2 >= s->settings.wait_ms)
        of.match.local = add_static_pod(id, req, of.unknown_pod);
    if (of.match.local && of.matches + of.unknown_pods == 1) {
        *t = of.match;
        return true;
    }
    /* The kubelet writes the text into the status of the pod that the request is for, which is one
     * of those in the survey. Users who can read that status may have no access to the namespaces
     * of the others. */
    struct rejection *r = &req->rejection;
    cleanup_free char *names =
        of.matches > 1 ? xasprintf(", among them %s and %s", of.other->full_name,
                                   of.match.local->pod->full_name)
                       : xasprintf(": %.*s/%.*s", SPAN_ARG(of.unknown_pod->ns),
                                   SPAN_ARG(of.unknown_pod->name));
    const char *shown = of.several_ns ? "" : names;
    if (of.matches > 1)
        rejection_set(
            r, REJECTED_AMBIGUOUS,
            "cannot identify the pod: %zu pods of this node lack %lld ids of %s%s",
            of.matches, (long long)req->size, ids_resource_name(req->resource), shown);
    else
        rejection_set(r, REJECTED_UNKNOWN_POD,
                      "the request can be for a pod that the kubelet has and the API "
                      "server has not sent yet%s",
                      shown);
    if (of.several_ns)
        snprintf(r->names, sizeof r->names, "%s", names);
    return false;
}

/* Allocate */

void identify_set_preferred(struct identify *id, const struct kubelet_request *req,
                            const struct alloc_target *t)
{
    id->preferred = t ? *t : (struct alloc_target){0};
    id->preferred_resource = req->resource;
}

bool identify_awaits_allocate(const struct identify *id)
{
    return id->preferred.local != NULL;
}

/* The first container without an allocation, of the pod whose plain init containers hold all
 * ids. */
static bool find_reuser(const struct identify *id, const struct kubelet_request *req,
                        struct alloc_target *t)
{
    struct local_pod *p = NULL;
    for (size_t i = 0; i < req->n_ids; i++) {
        const struct device_id *unit = &req->ids[i];
        const struct allocation *of = NULL;
        ALLOCATION_EACH(al, &id->state->allocations)
        if (!of && al->role == CONTAINER_INIT && al->resource == req->resource &&
            allocation_holds(al, span_of(unit->card->uuid), unit->number))
            of = al;
        struct local_pod *holder = of ? alloc_state_pod(id->state, of->uid) : NULL;
        if (!holder || (p && holder != p))
            return false;
        p = holder;
    }
    if (!p || p->pod->terminal || p->rejected_epoch == id->kubelet_epoch)
        return false;
    for (size_t i = 0; i < p->pod->n_containers; i++) {
        const struct pod_allocation_container *c = &p->pod->containers[i];
        if (alloc_state_allocation(id->state, p->pod, c))
            continue;
        *t = (struct alloc_target){p, i};
        return c->resource == req->resource && c->amount == req->size;
    }
    return false;
}

bool identify_by_preference(const struct identify *id, struct kubelet_request *req,
                            struct alloc_target *t)
{
    struct alloc_target found = id->preferred;
    if (found.local ? id->preferred_resource != req->resource ||
                          found.container >= found.local->pod->n_containers
                    : !find_reuser(id, req, &found))
        return rejection_set(&req->rejection, REJECTED_NOT_PREFERRED,
                             "Allocate without a GetPreferredAllocation before: cannot "
                             "identify the pod");
    *t = found;
    return true;
}

/* Events */

void identify_rejected(struct identify *id, struct local_pod *p, uint64_t serial)
{
    p->rejected_epoch = id->kubelet_epoch;
    rule_out(id, p->pod, serial);
}

void identify_removed(struct identify *id, const struct local_pod *p)
{
    if (id->preferred.local == p)
        id->preferred.local = NULL;
    rule_out(id, p->pod, 0);
}

void identify_kubelet_started(struct identify *id)
{
    id->kubelet_epoch++;
    id->preferred.local = NULL;
    LIST_EACH(struct unknown_pod, u, &id->unknown_pods, link)
    {
        free_unknown(u);
    }
}

struct identify *identify_new(struct alloc_state *s)
{
    struct identify *id = xcalloc(1, sizeof *id);
    id->state = s;
    list_init(&id->unknown_pods);
    id->kubelet_epoch = 1;
    return id;
}

void identify_free(struct identify *id)
{
    identify_kubelet_started(id);
    free(id);
}
