/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include "base/mem.h"

enum {
    SURE_AFTER_MS = 10 * 1000,
    LIST_RETRY_MS = 1000,
    GET_INTERVAL_MS = 50, /* the kubelet limits all podresources clients to 100 calls/s */
    RETRY_MS = 5000,
    ANSWER_MS = 10 * 1000, /* longer than the timeout of a call */
};

/* The ids that the kubelet shows for a container. NULL: none, or ids of the Go plugin,
 * which do not name a card. */
static struct allocation *shown_allocation(const struct alloc *a,
                                           const struct pod_allocation *pod,
                                           const struct pod_allocation_container *c,
                                           const struct alloc_kubelet_pod *view,
                                           struct span *unknown)
{
    struct allocation *al = NULL;
    for (size_t i = 0; i < view->n_containers; i++) {
        const struct alloc_kubelet_container *s = &view->containers[i];
        for (size_t k = 0; k < s->n_ids[c->resource] && span_eq(s->name, c->name); k++) {
            struct span id = s->ids[c->resource][k];
            struct device_id unit;
            if (ids_is_of_go_plugin(id))
                continue;
            if (!alloc_read_id(a, c->resource, id, &unit)) {
                *unknown = id;
                continue;
            }
            if (!al)
                al = allocation_new(pod->uid, pod->ns, pod->name, c->name, c->role,
                                    c->resource);
            allocation_add(al, span_of(unit.card->uuid), unit.card->index, unit.number);
        }
    }
    return al;
}

static bool is_same(const struct allocation *x, const struct allocation *y)
{
    if (allocation_amount(x) != allocation_amount(y))
        return false;
    for (size_t i = 0; i < x->n_cards; i++) {
        const struct allocation_card *c = &x->cards[i];
        if (!allocation_holds(y, c->uuid, -1))
            return false;
        for (size_t k = 0; k < c->n_units; k++)
            if (!allocation_holds(y, c->uuid, c->units[k]))
                return false;
    }
    return true;
}

static bool is_shown(const struct alloc *a, const struct allocation *al,
                     const struct alloc_kubelet_view *view)
{
    const struct pod_allocation pod = {.uid = al->uid, .ns = al->ns, .name = al->name};
    const struct pod_allocation_container c = {
        .name = al->container, .role = al->role, .resource = al->resource};
    struct span unknown;
    for (size_t i = 0; i < view->n_pods; i++) {
        if (!span_eq(view->pods[i].name, al->name) || !span_eq(view->pods[i].ns, al->ns))
            continue;
        struct allocation *is = shown_allocation(a, &pod, &c, &view->pods[i], &unknown);
        bool same = is && is_same(is, al);
        allocation_free(is);
        if (same)
            return true;
    }
    return false;
}

/* Drops allocations of deleted pods that have left the kubelet's view. */
static void drop_deleted(struct alloc *a, const struct alloc_kubelet_view *view)
{
    for (size_t i = a->allocations.n; i-- > 0;) {
        const struct allocation *al = a->allocations.items[i];
        if (!al->pod_deleted || is_shown(a, al, view))
            continue;
        allocation_set_drop(&a->allocations, al);
        a->dirty = true;
    }
}

/* Stands for the UID of a pod that only the kubelet has. To free. */
static char *uid_of_shown(struct span ns, struct span name)
{
    return xasprintf("shown:%.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
}

/* A pod that the API server does not have (yet, or any more) holds its ids for as long as
 * the kubelet shows them. */
static void hold_shown(struct alloc *a, struct alloc_time now,
                       const struct alloc_kubelet_pod *view)
{
    cleanup_free char *uid = uid_of_shown(view->ns, view->name);
    const struct pod_allocation pod = {
        .uid = span_of(uid), .ns = view->ns, .name = view->name};
    for (size_t i = 0; i < a->allocations.n; i++)
        if (span_eq(a->allocations.items[i]->name, pod.name) &&
            span_eq(a->allocations.items[i]->ns, pod.ns))
            return;
    for (size_t i = 0; i < view->n_containers; i++) {
        for (int r = 0; r < IDS_CARD_RESOURCES; r++) {
            const struct pod_allocation_container c = {.name = view->containers[i].name,
                                                       .resource = (enum ids_resource)r};
            struct span unknown;
            struct allocation *al = shown_allocation(a, &pod, &c, view, &unknown);
            if (!al)
                continue;
            al->pod_deleted = true;
            al->time_ns = now.wall_ns;
            allocation_set_put(&a->allocations, al);
            a->stats.recovered++;
            a->dirty = true;
        }
    }
}

/* The pod is now known: its own allocation replaces the one held for its name. */
static void drop_held_for_name(struct alloc *a, const struct allocation *own)
{
    cleanup_free char *uid = uid_of_shown(own->ns, own->name);
    const struct allocation *held =
        allocation_set_find(&a->allocations, span_of(uid), own->container, own->resource);
    if (!held || !is_same(held, own))
        return;
    allocation_set_drop(&a->allocations, held);
    a->dirty = true;
}

static void report_mismatch(struct alloc *a, struct local_pod *p, const char *what,
                            struct alloc_outputs *out)
{
    if (p->mismatch_reported)
        return;
    p->mismatch_reported = true;
    a->stats.mismatches++;
    alloc_output_log(out, LOG_ERROR, "pod %.*s/%.*s: %s", SPAN_ARG(p->pod->ns),
                     SPAN_ARG(p->pod->name), what);
    alloc_output_event(out, p->pod, "GPUMismatch", what);
}

/* Another container holds an id that the container holds, too. Users who can read the event
 * of the pod may have no access to other namespaces. */
static void report_shared(struct alloc *a, struct local_pod *p, struct span container,
                          const struct allocation *holder, const char *card,
                          struct alloc_outputs *out)
{
    bool foreign = !span_eq(holder->ns, p->pod->ns);
    const char *name = alloc_output_printf(out, "container %.*s of pod %.*s/%.*s",
                                           SPAN_ARG(holder->container),
                                           SPAN_ARG(holder->ns), SPAN_ARG(holder->name));
    if (foreign && !p->mismatch_reported)
        alloc_output_log(out, LOG_ERROR, "card %s: %s holds an id of pod %.*s/%.*s", card,
                         name, SPAN_ARG(p->pod->ns), SPAN_ARG(p->pod->name));
    report_mismatch(
        a, p,
        alloc_output_printf(out, "container %.*s and %s hold the same id of card %s",
                            SPAN_ARG(container),
                            foreign ? "a container of another namespace" : name, card),
        out);
}

/* Checks that each id is of a promised card and that no other container holds it. */
static void compare(struct alloc *a, struct local_pod *p, size_t container,
                    const struct allocation *al, struct alloc_outputs *out)
{
    const struct alloc_target t = {p, container};
    const struct pod_allocation_container *c = &p->pod->containers[container];
    for (size_t i = 0; i < al->n_cards; i++) {
        const struct plugin_card *card = cards_by_uuid(&a->cards, al->cards[i].uuid);
        size_t units = al->resource == IDS_COUNT ? 1 : al->cards[i].n_units;
        if (!card)
            continue;
        if (p->pod->promise == POD_ALLOCATION_PROMISED &&
            units > alloc_select_limit(a, &t, card))
            report_mismatch(
                a, p,
                alloc_output_printf(out,
                                    "container %.*s holds %zu ids of card %s, more than "
                                    "the promise allows",
                                    SPAN_ARG(c->name), units, card->uuid),
                out);
        for (size_t k = 0; k < units; k++) {
            int64_t number =
                al->resource == IDS_COUNT ? -1 : (int64_t)al->cards[i].units[k];
            struct device_id unit = {card, number};
            const struct allocation *holder = alloc_select_holder(a, &t, &unit);
            if (!holder)
                continue;
            report_shared(a, p, c->name, holder, card->uuid, out);
            break;
        }
    }
}

/* podresources shows names, not UIDs: shortly after a pod is created the kubelet can
 * still show its predecessor of the same name. Its ids are held, but prove no mismatch.
 */
static bool is_too_new(const struct local_pod *p, int64_t now_ms)
{
    return !p->pod->started && now_ms - p->first_seen_ms < SURE_AFTER_MS;
}

/* The kubelet is the authority on what a container holds, the annotations on what it may
 * hold. */
static void reconcile_container(struct alloc *a, struct alloc_time now,
                                struct local_pod *p, size_t i,
                                const struct alloc_kubelet_pod *view,
                                struct alloc_outputs *out)
{
    const struct pod_allocation_container *c = &p->pod->containers[i];
    struct span unknown = {0};
    struct allocation *al = shown_allocation(a, p->pod, c, view, &unknown);
    const struct allocation *known =
        allocation_set_find(&a->allocations, p->pod->uid, c->name, c->resource);
    if (unknown.p && !is_too_new(p, now.mono_ms))
        report_mismatch(
            a, p,
            alloc_output_printf(out,
                                "container %.*s holds %.*s, which is not a device id of "
                                "this node",
                                SPAN_ARG(c->name), SPAN_ARG(unknown)),
            out);
    if (!al || (known && is_too_new(p, now.mono_ms))) {
        allocation_free(al);
        return;
    }
    if (known && is_same(known, al)) {
        drop_held_for_name(a, known);
        compare(a, p, i, known, out);
        allocation_free(al);
        return;
    }
    if (known)
        report_mismatch(
            a, p,
            alloc_output_printf(out,
                                "the kubelet gave container %.*s other ids than those "
                                "allocated",
                                SPAN_ARG(c->name)),
            out);
    al->time_ns = now.wall_ns;
    allocation_set_put(&a->allocations, al);
    a->dirty = true;
    a->stats.recovered++;
    drop_held_for_name(a, al);
    if (!is_too_new(p, now.mono_ms))
        compare(a, p, i, al, out);
}

void alloc_reconcile_view(struct alloc *a, struct alloc_time now,
                          const struct alloc_kubelet_view *view, bool all,
                          struct alloc_outputs *out)
{
    if (all)
        drop_deleted(a, view);
    for (size_t i = 0; i < view->n_pods; i++) {
        struct local_pod *p = alloc_pod_by_name(a, view->pods[i].ns, view->pods[i].name);
        if (!p)
            hold_shown(a, now, &view->pods[i]);
        if (!p || p->pod->terminal)
            continue;
        a->stats.reconciled++;
        p->reconciled_ms = now.mono_ms;
        for (size_t k = 0; k < p->pod->n_containers; k++)
            reconcile_container(a, now, p, k, &view->pods[i], out);
        alloc_pod_assign_from_allocations(a, p);
        alloc_pod_mark_assigned(a, now, p, out);
    }
}

static bool is_due(const struct alloc *a, const struct local_pod *p, int64_t now_ms)
{
    return a->settings.reconcile_interval_ms && !p->pod->terminal &&
           p->pod->n_containers > 0 &&
           (p->reconciled_ms == 0 ||
            now_ms - p->reconciled_ms >= a->settings.reconcile_interval_ms);
}

/* One pod at a time where the kubelet implements Get, else a List. List can make the
 * kubelet forget ids in flight, as any exporter's List can: Allocate checks the holders
 * of ids itself. */
static void query_pod(struct alloc *a, struct alloc_time now, struct local_pod *p,
                      struct alloc_outputs *out)
{
    const char *ns = alloc_output_text(out, p->pod->ns);
    const char *name = alloc_output_text(out, p->pod->name);
    struct alloc_output *o = alloc_output_add(out, a->no_get ? ALLOC_LIST : ALLOC_GET);
    o->ns = ns;
    o->name = name;
    o->query = a->reconcile_query = ++a->queries;
    a->reconcile_asked_ms = now.mono_ms;
    a->reconcile_serial = a->serial;
    a->reconcile_all = a->no_get;
    if (!a->no_get)
        p->reconciled_ms = now.mono_ms;
    a->reconcile_next_ms =
        now.mono_ms + (a->no_get ? a->settings.reconcile_interval_ms : GET_INTERVAL_MS);
    alloc_wake_at(a, a->reconcile_next_ms);
}

/* The next pod that is due. If none has been due for an interval, any pod: whether
 * podresources answers must be known on a node without GPU pods too. */
static struct local_pod *next_local_pod(const struct alloc *a, int64_t now_ms)
{
    struct local_pod *any = NULL;
    int64_t wait =
        a->podresources_failure.since_ms ? RETRY_MS : a->settings.reconcile_interval_ms;
    for (struct local_pod *p = a->local_pods; p; p = p->next) {
        if (is_due(a, p, now_ms))
            return p;
        if (!p->pod->terminal)
            any = p;
    }
    return now_ms - a->answered_ms >= wait ? any : NULL;
}

/* A second call cannot be sent while one is outstanding, but the failure is recorded. */
static void check_answer_overdue(struct alloc *a, int64_t now_ms)
{
    struct err err;
    if (now_ms - a->reconcile_asked_ms < ANSWER_MS)
        return;
    err_set(&err, ERR_TIMEOUT, "podresources call neither answered nor failed");
    failure_record(&a->podresources_failure, a->reconcile_asked_ms, &err);
}

void alloc_reconcile_tick(struct alloc *a, struct alloc_time now,
                          struct alloc_outputs *out)
{
    if (a->reconcile_query)
        check_answer_overdue(a, now.mono_ms);
    bool wanted = a->settings.reconcile_interval_ms || a->podresources_failure.since_ms;
    /* Before the first card is known, no id is one of this node. */
    if (!wanted || !a->listed || !a->cards.n || a->requests || a->reconcile_query)
        return;
    if (now.mono_ms < a->reconcile_next_ms) {
        alloc_wake_at(a, a->reconcile_next_ms);
        return;
    }
    struct local_pod *p = next_local_pod(a, now.mono_ms);
    if (p)
        query_pod(a, now, p, out);
}

/* The view may or may not contain allocations made while the call was in flight. */
static void reconcile_later(struct alloc *a, struct alloc_time now,
                            const struct alloc_kubelet_view *view)
{
    if (a->reconcile_all)
        a->reconcile_next_ms = now.mono_ms + LIST_RETRY_MS;
    for (size_t i = 0; i < view->n_pods; i++) {
        struct local_pod *p = alloc_pod_by_name(a, view->pods[i].ns, view->pods[i].name);
        if (p)
            p->reconciled_ms = 0;
    }
}

void alloc_reconcile_answered(struct alloc *a, struct alloc_time now,
                              const struct alloc_kubelet_view *view,
                              struct alloc_outputs *out)
{
    a->reconcile_query = 0;
    if (view->err && view->unsupported)
        a->no_get = true;
    if (view->err && a->reconcile_next_ms > now.mono_ms + RETRY_MS)
        a->reconcile_next_ms = now.mono_ms + RETRY_MS;
    if (view->err)
        return;
    if (a->serial == a->reconcile_serial)
        alloc_reconcile_view(a, now, view, a->reconcile_all, out);
    else
        reconcile_later(a, now, view);
}
