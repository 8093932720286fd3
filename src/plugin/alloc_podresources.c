/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The kubelet's view in the allocator: which pod and container a request is for, and the
 * comparison of what containers hold with what they were promised.
 */

#include "plugin/alloc_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

enum {
    UNKNOWN_PODS_MAX = 512,
    FORMER_POD_MS = 1000,
    SURE_AFTER_MS = 10 * 1000,
    LIST_RETRY_MS = 1000,
    GET_INTERVAL_MS = 50, /* the kubelet limits all podresources clients to 100 calls/s */
    RETRY_MS = 5000,
};

/* Which container a request is for */

/* The kubelet sends an entry for each resource and NUMA node. */
static bool is_of(const struct podres_devices *d, enum ids_resource resource)
{
    return span_eq(d->resource, span_of(ids_resource_name(resource)));
}

static bool shows_all_ids(const struct podres_pod *pod,
                          const struct pod_allocation_container *c)
{
    size_t n = 0;
    ARRAY_EACH_ITEM(const struct podres_container, s, pod->containers, pod->n_containers)
    {
        for (size_t k = 0; k < s->n_devices && span_eq(s->name, c->name); k++)
            n += is_of(&s->devices[k], c->resource) ? s->devices[k].n_ids : 0;
    }
    return c->role != CONTAINER_INIT && n >= (size_t)c->amount;
}

/* The first container that lacks ids in the kubelet's view; n_containers: none.
 *
 * podresources never shows plain init containers: one has its ids if an allocation of it
 * is recorded, or if a later container has ids. An allocation that the kubelet should
 * show but does not means that its checkpoint is lost: it starts again with the first
 * container. */
static size_t next_container(const struct alloc *a, const struct pod_allocation *pod,
                             const struct podres_pod *view)
{
    bool checkpoint_lost = false;
    size_t last_shown = 0, i;
    for (i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        if (shows_all_ids(view, c))
            last_shown = i + 1;
        else if (c->role != CONTAINER_INIT && alloc_of_container(a, pod, c))
            checkpoint_lost = true;
    }
    for (i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        bool done = shows_all_ids(view, c);
        if (c->role == CONTAINER_INIT)
            done = i < last_shown || (!checkpoint_lost && alloc_of_container(a, pod, c));
        if (!done)
            break;
    }
    return i;
}

bool alloc_podresources_confirm(const struct alloc *a, struct pending_request *req,
                                const struct alloc_target *t,
                                const struct alloc_kubelet_view *view)
{
    const struct pod_allocation *pod = t->local->pod;
    if (view->n_pods == 0)
        return alloc_request_explain(req, REJECTED_NO_PENDING_POD,
                                     "the kubelet no longer has pod %s", pod->full_name);
    return next_container(a, pod, view->pods) == t->container ||
           alloc_request_explain(req, REJECTED_NO_PENDING_POD,
                                 "container %.*s of pod %s is not the next one without "
                                 "ids in the kubelet's "
                                 "view",
                                 SPAN_ARG(pod->containers[t->container].name),
                                 pod->full_name);
}

static void free_unknown(struct unknown_pod *u)
{
    list_remove(&u->link);
    free(u->ns);
    free(u->name);
    free(u);
}

void alloc_podresources_forget(struct alloc *a)
{
    LIST_EACH(struct unknown_pod, u, &a->unknown_pods, link)
    {
        free_unknown(u);
    }
}

static bool is_pod(const struct unknown_pod *u, struct span ns, struct span name)
{
    return span_eq(ns, span_of(u->ns)) && span_eq(name, span_of(u->name));
}

/* Finds or adds the pod. The list is bounded: the oldest entry is dropped. */
static struct unknown_pod *unknown_pod(struct alloc *a, struct span ns, struct span name)
{
    LIST_EACH(struct unknown_pod, u, &a->unknown_pods, link)
    if (is_pod(u, ns, name))
        return u;
    size_t n = 0;
    struct unknown_pod *u = xcalloc(1, sizeof *u);
    u->ns = xmemdup0(ns.p, ns.n);
    u->name = xmemdup0(name.p, name.n);
    list_prepend(&a->unknown_pods, &u->link);
    LIST_EACH(struct unknown_pod, old, &a->unknown_pods, link)
    if (++n > UNKNOWN_PODS_MAX)
        free_unknown(old);
    return u;
}

void alloc_podresources_rule_out(struct alloc *a, const struct pod_allocation *pod,
                                 uint64_t serial)
{
    struct unknown_pod *u = unknown_pod(a, pod->ns, pod->name);
    u->serial = serial;
    u->former = true;
}

/* Drops pods that have left the kubelet's view. */
static void drop_unknown(struct alloc *a, const struct alloc_kubelet_view *view)
{
    LIST_EACH(struct unknown_pod, u, &a->unknown_pods, link)
    {
        size_t i = 0;
        while (i < view->n_pods && !is_pod(u, view->pods[i].ns, view->pods[i].name))
            i++;
        if (i == view->n_pods)
            free_unknown(u);
    }
}

/* Could a pod that the API server has not sent be the requester? Not if it has ids, and
 * not if an earlier request met it: the kubelet has moved on since. A pod known as
 * deleted or terminal may have been recreated under its name. But a kubelet before 1.34
 * shows terminal pods too, and cannot drop them while it waits for this answer; there
 * such a pod is ruled out after FORMER_POD_MS. */
static bool may_be_requester(struct alloc *a, const struct pending_request *req,
                             const struct podres_pod *pod, bool former)
{
    ARRAY_EACH_ITEM(const struct podres_container, c, pod->containers, pod->n_containers)
    {
        for (size_t k = 0; k < c->n_devices; k++)
            if (c->devices[k].n_ids &&
                (is_of(&c->devices[k], IDS_MEM) || is_of(&c->devices[k], IDS_COUNT)))
                return false;
    }
    struct unknown_pod *u = unknown_pod(a, pod->ns, pod->name);
    if (u->serial == 0)
        u->serial = req->serial;
    u->former |= former;
    return u->serial == req->serial &&
           !(u->former && a->no_get && a->now.mono_ms - req->began_ms >= FORMER_POD_MS);
}

/* The name of a static pod ends with the node's name. The API server has no object of it
 * until the kubelet has admitted it. podresources does not show what a container requests,
 * so only a static pod with a single container can be described: by the request at hand.
 * NULL: it is none. */
static struct local_pod *add_static_pod(struct alloc *a,
                                        const struct pending_request *req,
                                        const struct podres_pod *view)
{
    cleanup_free char *suffix = xasprintf("-%s", a->settings.node);
    size_t n = strlen(suffix);
    if (view->n_containers != 1 || view->name.n <= n ||
        memcmp(view->name.p + view->name.n - n, suffix, n) != 0)
        return NULL;
    struct pod_allocation *pod = xcalloc(1, sizeof *pod);
    pod->ns = arena_copy(&pod->arena, view->ns);
    pod->name = arena_copy(&pod->arena, view->name);
    pod->full_name =
        arena_printf(&pod->arena, "%.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    pod->uid = span_of(arena_printf(&pod->arena, "static:%s", pod->full_name));
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
    list_prepend(&a->local_pods, &p->link);
    return p;
}

/* The pods in the kubelet's view that the request could be for. */
struct survey {
    struct alloc_target match;
    size_t matches, unknown_pods;
    const struct podres_pod *unknown_pod;
    const struct pod_allocation *other; /* a second match */
    struct span ns;                     /* of the last of all these */
    bool several_ns;                    /* they are of several namespaces */
};

static void survey_pod(struct alloc *a, const struct pending_request *req,
                       const struct podres_pod *view, struct survey *s)
{
    struct local_pod *p = alloc_pod_by_name(a, view->ns, view->name);
    bool former = p && (p->pod->terminal || p->rejected_epoch == a->kubelet_epoch);
    bool first = s->matches + s->unknown_pods == 0;
    if (!p || former) {
        if (!may_be_requester(a, req, view, former))
            return;
        s->unknown_pods++;
        s->unknown_pod = view;
    } else {
        size_t next = next_container(a, p->pod, view);
        if (next == p->pod->n_containers)
            return;
        const struct pod_allocation_container *c = &p->pod->containers[next];
        if (c->resource != req->resource || c->amount != req->size)
            return;
        s->other = s->matches ? s->match.local->pod : s->other;
        s->match = (struct alloc_target){p, next};
        s->matches++;
    }
    s->several_ns |= !first && !span_eq(s->ns, view->ns);
    s->ns = view->ns;
}

/* The kubelet writes the text into the status of the pod that the request is for, which is one
 * of those in the survey. Users who can read that status may have no access to the namespaces
 * of the others. */
static bool explain_survey(struct pending_request *req, const struct survey *s)
{
    cleanup_free char *names = NULL;
    if (s->matches > 1) {
        names = xasprintf(", among them %s and %s", s->other->full_name,
                          s->match.local->pod->full_name);
        alloc_request_explain(
            req, REJECTED_AMBIGUOUS,
            "cannot identify the pod: %zu pods of this node lack %lld ids of %s%s",
            s->matches, (long long)req->size, ids_resource_name(req->resource),
            s->several_ns ? "" : names);
    } else {
        names = xasprintf(": %.*s/%.*s", SPAN_ARG(s->unknown_pod->ns),
                          SPAN_ARG(s->unknown_pod->name));
        alloc_request_explain(
            req, REJECTED_UNKNOWN_POD,
            "the request can be for a pod that the kubelet has and the API "
            "server has not sent yet%s",
            s->several_ns ? "" : names);
    }
    if (s->several_ns)
        snprintf(req->names, sizeof req->names, "%s", names);
    return false;
}

bool alloc_podresources_identify(struct alloc *a, struct pending_request *req,
                                 const struct alloc_kubelet_view *view,
                                 struct alloc_target *target)
{
    struct survey s = {0};
    drop_unknown(a, view);
    if (!a->state.listed)
        return alloc_request_explain(
            req, REJECTED_NOT_SYNCED,
            "the API server has not yet listed the pods of this node");
    for (size_t i = 0; i < view->n_pods; i++)
        survey_pod(a, req, &view->pods[i], &s);
    if (s.matches + s.unknown_pods == 0)
        return alloc_request_explain(req, REJECTED_NO_PENDING_POD,
                                     "no pod in the kubelet's view lacks %lld ids of %s",
                                     (long long)req->size,
                                     ids_resource_name(req->resource));
    *target = s.match;
    /* After half of the wait the API server is unlikely to send it: a static pod. */
    if (s.matches == 0 && s.unknown_pods == 1 &&
        (a->now.mono_ms - req->began_ms) * 2 >= a->settings.wait_ms)
        target->local = add_static_pod(a, req, s.unknown_pod);
    return (target->local && s.matches + s.unknown_pods == 1) || explain_survey(req, &s);
}

/* The pod whose plain init container holds the id. */
static struct local_pod *init_holder(const struct alloc *a,
                                     const struct pending_request *req,
                                     const struct device_id *unit)
{
    for (size_t i = 0; i < a->state.allocations.n; i++) {
        const struct allocation *al = a->state.allocations.items[i];
        if (al->role == CONTAINER_INIT && al->resource == req->resource &&
            allocation_holds(al, span_of(unit->card->uuid), unit->number))
            return alloc_pod_find(a, al->uid);
    }
    return NULL;
}

bool alloc_podresources_identify_reuse(const struct alloc *a,
                                       const struct pending_request *req,
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
        if (alloc_of_container(a, p->pod, c))
            continue;
        *target = (struct alloc_target){p, i};
        return c->resource == req->resource && c->amount == req->size;
    }
    return false;
}

/* Comparison */

/* Adds the ids that the kubelet shows for the container of `al`, but those of the Go plugin,
 * which do not name a card. *unknown: the last one that is of no card of this node. */
static void add_shown(const struct alloc *a, struct allocation *al,
                      const struct podres_pod *view, struct span *unknown)
{
    ARRAY_EACH_ITEM(const struct podres_container, s, view->containers,
                    view->n_containers)
    {
        for (size_t d = 0; d < s->n_devices && span_eq(s->name, al->container); d++) {
            const struct podres_devices *shown = &s->devices[d];
            for (size_t k = 0; k < shown->n_ids && is_of(shown, al->resource); k++) {
                struct device_id id;
                if (ids_is_of_go_plugin(shown->ids[k]))
                    continue;
                if (alloc_read_id(a, al->resource, shown->ids[k], &id))
                    allocation_add(al, span_of(id.card->uuid), id.card->index, id.number);
                else
                    *unknown = shown->ids[k];
            }
        }
    }
}

static bool is_same(const struct allocation *x, const struct allocation *y)
{
    if (allocation_amount(x) != allocation_amount(y))
        return false;
    ARRAY_EACH_ITEM(const struct allocation_card, c, x->cards, x->n_cards)
    {
        if (!allocation_holds(y, c->uuid, -1))
            return false;
        for (size_t k = 0; k < c->n_units; k++)
            if (!allocation_holds(y, c->uuid, c->units[k]))
                return false;
    }
    return true;
}

/* Several pods of a name can be shown: each is compared by itself. */
static bool is_shown(const struct alloc *a, const struct allocation *al,
                     const struct alloc_kubelet_view *view)
{
    struct span unknown;
    bool same = false;
    for (size_t i = 0; i < view->n_pods && !same; i++) {
        if (!span_eq(view->pods[i].name, al->name) || !span_eq(view->pods[i].ns, al->ns))
            continue;
        struct allocation *is = allocation_new(al->uid, al->ns, al->name, al->container,
                                               al->role, al->resource);
        add_shown(a, is, &view->pods[i], &unknown);
        same = is->n_cards && is_same(is, al);
        allocation_free(is);
    }
    return same;
}

/* Stands for the UID of a pod that only the kubelet has. To free. */
static char *uid_of_shown(struct span ns, struct span name)
{
    return xasprintf("shown:%.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
}

/* Takes the allocation. */
static void adopt(struct alloc *a, struct allocation *al)
{
    allocation_set_put(&a->state.allocations, al);
    a->state.stats.recovered++;
    a->dirty = true;
}

/* A pod that the API server does not have (yet, or any more) holds its ids for as long as
 * the kubelet shows them. */
static void hold_shown(struct alloc *a, const struct podres_pod *view)
{
    cleanup_free char *uid = uid_of_shown(view->ns, view->name);
    struct span unknown;
    for (size_t i = 0; i < a->state.allocations.n; i++)
        if (span_eq(a->state.allocations.items[i]->name, view->name) &&
            span_eq(a->state.allocations.items[i]->ns, view->ns))
            return;
    for (size_t i = 0; i < view->n_containers * IDS_CARD_RESOURCES; i++) {
        struct allocation *al =
            allocation_new(span_of(uid), view->ns, view->name,
                           view->containers[i / IDS_CARD_RESOURCES].name, CONTAINER_APP,
                           (enum ids_resource)(i % IDS_CARD_RESOURCES));
        add_shown(a, al, view, &unknown);
        al->pod_deleted = true;
        if (al->n_cards)
            adopt(a, al);
        else
            allocation_free(al);
    }
}

/* The pod is now known: its own allocation replaces the one held for its name. */
static void drop_held_for_name(struct alloc *a, const struct allocation *own)
{
    cleanup_free char *uid = uid_of_shown(own->ns, own->name);
    struct allocation *held = allocation_set_find(&a->state.allocations, span_of(uid),
                                                  own->container, own->resource);
    if (held && is_same(held, own))
        alloc_drop(a, held);
}

static void report_mismatch(struct alloc *a, struct local_pod *p, const char *what)
{
    if (p->mismatch_reported)
        return;
    p->mismatch_reported = true;
    a->state.stats.mismatches++;
    alloc_log(a, LOG_ERROR, "pod %s: %s", p->pod->full_name, what);
    alloc_event(a, p->pod, "GPUMismatch", "%s", what);
}

/* Another container holds an id that the container holds, too. Users who can read the event
 * of the pod may have no access to other namespaces. */
static void report_shared(struct alloc *a, struct local_pod *p, struct span container,
                          const struct allocation *holder, const char *card)
{
    bool foreign = !span_eq(holder->ns, p->pod->ns);
    const char *name = step_printf(a->out, "container %.*s of pod %.*s/%.*s",
                                   SPAN_ARG(holder->container), SPAN_ARG(holder->ns),
                                   SPAN_ARG(holder->name));
    if (foreign && !p->mismatch_reported)
        alloc_log(a, LOG_ERROR, "card %s: %s holds an id of pod %s", card, name,
                  p->pod->full_name);
    report_mismatch(
        a, p,
        step_printf(a->out, "container %.*s and %s hold the same id of card %s",
                    SPAN_ARG(container),
                    foreign ? "a container of another namespace" : name, card));
}

/* Checks that each id is of a promised card and that no other container holds it. */
static void compare(struct alloc *a, const struct alloc_target *t,
                    const struct allocation *al)
{
    struct local_pod *p = t->local;
    struct span name = p->pod->containers[t->container].name;
    ARRAY_EACH_ITEM(const struct allocation_card, c, al->cards, al->n_cards)
    {
        const struct plugin_card *card = cards_by_uuid(&a->state.cards, c->uuid);
        bool whole = al->resource == IDS_COUNT;
        size_t units = whole ? 1 : c->n_units;
        if (!card)
            continue;
        if (p->pod->promise == POD_ALLOCATION_PROMISED &&
            units > alloc_request_limit(a, t, card))
            report_mismatch(a, p,
                            step_printf(a->out,
                                        "container %.*s holds %zu ids of card %s, more "
                                        "than the promise allows",
                                        SPAN_ARG(name), units, card->uuid));
        const struct allocation *holder = NULL;
        for (size_t k = 0; k < units && !holder; k++) {
            const struct device_id unit = {card, whole ? -1 : (int64_t)c->units[k]};
            holder = alloc_request_holder(a, t, &unit);
        }
        if (holder)
            report_shared(a, p, name, holder, card->uuid);
    }
}

/* The kubelet is the authority on what a container holds, the annotations on what it may
 * hold. podresources shows names, not UIDs: shortly after a pod is created the kubelet can
 * still show its predecessor of the same name. Its ids are held, but prove no mismatch. */
static void reconcile_container(struct alloc *a, const struct alloc_target *t,
                                const struct podres_pod *view)
{
    struct local_pod *p = t->local;
    const struct pod_allocation_container *c = &p->pod->containers[t->container];
    bool too_new = !p->pod->started && a->now.mono_ms - p->first_seen_ms < SURE_AFTER_MS;
    struct span unknown = {0};
    struct allocation *al = allocation_new(p->pod->uid, p->pod->ns, p->pod->name, c->name,
                                           c->role, c->resource);
    const struct allocation *known = alloc_of_container(a, p->pod, c);
    add_shown(a, al, view, &unknown);
    if (unknown.p && !too_new)
        report_mismatch(a, p,
                        step_printf(a->out,
                                    "container %.*s holds %.*s, which is not a device "
                                    "id of this node",
                                    SPAN_ARG(c->name), SPAN_ARG(unknown)));
    if (known && is_same(known, al)) {
        allocation_free(al);
    } else if (!al->n_cards || (known && too_new)) {
        allocation_free(al);
        return;
    } else {
        if (known)
            report_mismatch(a, p,
                            step_printf(a->out,
                                        "the kubelet gave container %.*s other ids than "
                                        "those allocated",
                                        SPAN_ARG(c->name)));
        adopt(a, al);
        known = al;
    }
    drop_held_for_name(a, known);
    if (!too_new)
        compare(a, t, known);
}

void alloc_podresources_reconcile(struct alloc *a, const struct alloc_kubelet_view *view,
                                  bool all)
{
    /* Allocations of deleted pods that have left the kubelet's view. */
    for (size_t i = a->state.allocations.n; all && i-- > 0;) {
        struct allocation *al = a->state.allocations.items[i];
        if (al->pod_deleted && !is_shown(a, al, view))
            alloc_drop(a, al);
    }
    for (size_t i = 0; i < view->n_pods; i++) {
        struct alloc_target t = {
            alloc_pod_by_name(a, view->pods[i].ns, view->pods[i].name), 0};
        struct local_pod *p = t.local;
        if (!p)
            hold_shown(a, &view->pods[i]);
        if (!p || p->pod->terminal)
            continue;
        a->state.stats.reconciled++;
        p->reconciled_ms = a->now.mono_ms;
        for (; t.container < p->pod->n_containers; t.container++)
            reconcile_container(a, &t, &view->pods[i]);
        alloc_pod_assign_from_allocations(a, p->pod);
        alloc_pod_annotate(a, p);
    }
}

/* The next pod that is due. If none has been due for an interval, any pod: whether
 * podresources answers must be known on a node without GPU pods too. */
static struct local_pod *next_pod(const struct alloc *a)
{
    struct local_pod *any = NULL;
    int64_t now_ms = a->now.mono_ms, interval = a->settings.reconcile_interval_ms;
    int64_t wait = a->state.podresources.failures ? RETRY_MS : interval;
    LIST_EACH(struct local_pod, p, &a->local_pods, link)
    {
        if (p->pod->terminal)
            continue;
        if (interval && p->pod->n_containers > 0 &&
            (p->reconciled_ms == 0 || now_ms - p->reconciled_ms >= interval))
            return p;
        any = p;
    }
    return now_ms - a->answered_ms >= wait ? any : NULL;
}

/* One pod at a time where the kubelet implements Get, else a List. List can make the
 * kubelet forget ids in flight, as any exporter's List can: Allocate checks the holders
 * of ids itself. */
static void query_pod(struct alloc *a, struct local_pod *p)
{
    int64_t now_ms = a->now.mono_ms;
    a->reconcile_query = alloc_query(a, a->no_get ? NULL : p->pod);
    a->reconcile_serial = a->serial;
    a->reconcile_all = a->no_get;
    if (!a->no_get)
        p->reconciled_ms = now_ms;
    a->reconcile_next_ms =
        now_ms + (a->no_get ? a->settings.reconcile_interval_ms : GET_INTERVAL_MS);
    step_due(&a->state.due_ms, a->reconcile_next_ms);
}

void alloc_podresources_tick(struct alloc *a)
{
    bool wanted = a->settings.reconcile_interval_ms || a->state.podresources.failures;
    /* Before the first card is known, no id is one of this node. */
    if (!wanted || !a->state.listed || !a->state.cards.n ||
        !list_is_empty(&a->requests) || a->reconcile_query)
        return;
    if (a->now.mono_ms < a->reconcile_next_ms) {
        step_due(&a->state.due_ms, a->reconcile_next_ms);
        return;
    }
    struct local_pod *p = next_pod(a);
    if (p)
        query_pod(a, p);
}

void alloc_podresources_answered(struct alloc *a, const struct alloc_kubelet_view *view)
{
    int64_t now_ms = a->now.mono_ms;
    a->reconcile_query = 0;
    if (view->err && view->unsupported)
        a->no_get = true;
    if (view->err && a->reconcile_next_ms > now_ms + RETRY_MS)
        a->reconcile_next_ms = now_ms + RETRY_MS;
    if (view->err)
        return;
    if (a->serial == a->reconcile_serial) {
        alloc_podresources_reconcile(a, view, a->reconcile_all);
        return;
    }
    /* The view may or may not contain allocations made while the call was in flight. */
    if (a->reconcile_all)
        a->reconcile_next_ms = now_ms + LIST_RETRY_MS;
    for (size_t i = 0; i < view->n_pods; i++) {
        struct local_pod *p = alloc_pod_by_name(a, view->pods[i].ns, view->pods[i].name);
        if (p)
            p->reconciled_ms = 0;
    }
}
