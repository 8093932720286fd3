/* SPDX-License-Identifier: Apache-2.0 */

#include "node/reconcile.h"

#include "base/array.h"
#include "base/mem.h"
#include "node/device_ids.h"

enum {
    SURE_AFTER_MS = 10 * 1000,
    LIST_RETRY_MS = 1000,
    GET_INTERVAL_MS = 50, /* the kubelet limits all podresources clients to 100 calls/s */
    RETRY_MS = 5000,
};

/* Adds the ids that the kubelet shows for the container of `al`, but those of the Go plugin,
 * which do not name a card. *unknown: the last one that is of no card of this node. Of slots, those
 * of another plugin count as well: it served the resource before. */
static void add_shown(const struct alloc_state *s, struct allocation *al,
                      const struct podres_pod *view, struct span *unknown)
{
    ARRAY_EACH_ITEM(const struct podres_container, c, view->containers,
                    view->n_containers)
    {
        for (size_t d = 0; d < c->n_devices && span_eq(c->name, al->container); d++) {
            const struct podres_devices *shown = &c->devices[d];
            bool is_of =
                span_eq(shown->resource, span_of(ids_resource_name(al->resource)));
            for (size_t k = 0; k < shown->n_ids && is_of; k++) {
                struct device_id id;
                struct ids_id parsed;
                if (device_ids_read(s, al->resource, shown->ids[k], &id))
                    allocation_add(al, span_of(id.card->uuid), id.card->index, id.number);
                else if (ids_are_slots(al->resource) &&
                         (al->resource != IDS_DIALECT || s->cards.settings.dialect) &&
                         !ids_read(al->resource, shown->ids[k], &parsed))
                    allocation_add_other(al, shown->ids[k]);
                else if (!ids_name_no_card(shown->ids[k]))
                    *unknown = shown->ids[k];
            }
        }
    }
}

static bool is_same(const struct allocation *x, const struct allocation *y)
{
    if (allocation_amount(x) != allocation_amount(y) || x->n_others != y->n_others)
        return false;
    for (size_t i = 0; i < x->n_others; i++) {
        size_t k = 0;
        while (k < y->n_others && !span_eq(x->others[i], y->others[k]))
            k++;
        if (k == y->n_others)
            return false;
    }
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
static bool is_shown(const struct alloc_state *s, const struct allocation *al,
                     const struct alloc_kubelet_view *view)
{
    struct span unknown;
    bool same = false;
    for (size_t i = 0; i < view->n_pods && !same; i++) {
        if (!span_eq(view->pods[i].name, al->name) || !span_eq(view->pods[i].ns, al->ns))
            continue;
        struct allocation *is = allocation_new(al->uid, al->ns, al->name, al->container,
                                               al->role, al->resource);
        add_shown(s, is, &view->pods[i], &unknown);
        same = allocation_amount(is) && is_same(is, al);
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
static void adopt(struct alloc_state *s, struct allocation *al)
{
    allocation_set_put(&s->allocations, al);
    s->stats.recovered++;
    s->dirty = true;
}

/* A pod that the API server does not have (yet, or any more) holds its ids for as long as
 * the kubelet shows them. */
static void hold_shown(struct alloc_state *s, const struct podres_pod *view)
{
    cleanup_free char *uid = uid_of_shown(view->ns, view->name);
    struct span unknown;
    ALLOCATION_EACH(al, &s->allocations)
    if (span_eq(al->name, view->name) && span_eq(al->ns, view->ns))
        return;
    for (size_t i = 0; i < view->n_containers * IDS_CARD_RESOURCES; i++) {
        struct allocation *al =
            allocation_new(span_of(uid), view->ns, view->name,
                           view->containers[i / IDS_CARD_RESOURCES].name, CONTAINER_APP,
                           (enum ids_resource)(i % IDS_CARD_RESOURCES));
        add_shown(s, al, view, &unknown);
        al->pod_deleted = true;
        if (allocation_amount(al))
            adopt(s, al);
        else
            allocation_free(al);
    }
}

static void report_mismatch(struct alloc_state *s, struct local_pod *p, const char *fmt,
                            ...) __attribute__((format(printf, 3, 4)));
static void report_mismatch(struct alloc_state *s, struct local_pod *p, const char *fmt,
                            ...)
{
    if (p->mismatch_reported)
        return;
    va_list ap;
    va_start(ap, fmt);
    const char *what = arena_vprintf(&s->out->arena, fmt, ap);
    va_end(ap);
    p->mismatch_reported = true;
    s->stats.mismatches++;
    alloc_state_log(s, LOG_ERROR, "pod %s: %s", p->pod->full_name, what);
    alloc_state_event(s, p->pod, "GPUMismatch", "%s", what);
}

/* Checks that each id is of a promised card and that no other container holds it. Users who
 * can read the event of the pod may have no access to other namespaces. */
static void check_held(struct alloc_state *s, const struct alloc_target *t,
                       const struct allocation *al)
{
    struct local_pod *p = t->local;
    struct span name = alloc_target_container(t)->name;
    ARRAY_EACH_ITEM(const struct allocation_card, c, al->cards, al->n_cards)
    {
        const struct plugin_card *card = cards_by_uuid(&s->cards, c->uuid);
        bool whole = al->resource == IDS_COUNT;
        size_t units = whole ? 1 : c->n_units;
        const struct allocation *holder = NULL;
        if (!card)
            continue;
        if (p->pod->promise == POD_ALLOCATION_PROMISED &&
            units > device_ids_limit(s, t, card))
            report_mismatch(s, p,
                            "container %.*s holds %zu ids of card %s, more than the "
                            "promise allows",
                            SPAN_ARG(name), units, card->uuid);
        for (size_t k = 0; k < units && !holder; k++) {
            const struct device_id unit = {card, whole ? -1 : (int64_t)c->units[k],
                                           al->resource};
            holder = device_ids_holder(s, t, &unit);
        }
        if (!holder)
            continue;
        bool foreign = !span_eq(holder->ns, p->pod->ns);
        const char *who = step_printf(s->out, "container %.*s of pod %.*s/%.*s",
                                      SPAN_ARG(holder->container), SPAN_ARG(holder->ns),
                                      SPAN_ARG(holder->name));
        if (foreign && !p->mismatch_reported)
            alloc_state_log(s, LOG_ERROR, "card %s: %s holds an id of pod %s", card->uuid,
                            who, p->pod->full_name);
        report_mismatch(s, p, "container %.*s and %s hold the same id of card %s",
                        SPAN_ARG(name),
                        foreign ? "a container of another namespace" : who, card->uuid);
    }
}

/* podresources shows names, not UIDs: shortly after a pod is created the kubelet can
 * still show its predecessor of the same name. Its ids are held, but prove no mismatch. */
static void reconcile_container(struct alloc_state *s, const struct alloc_target *t,
                                const struct podres_pod *view)
{
    struct local_pod *p = t->local;
    const struct pod_allocation_container *c = alloc_target_container(t);
    bool too_new = !p->pod->started && s->now.mono_ms - p->first_seen_ms < SURE_AFTER_MS;
    struct span unknown = {0};
    struct allocation *al = allocation_new(p->pod->uid, p->pod->ns, p->pod->name, c->name,
                                           c->role, c->resource);
    const struct allocation *known = alloc_state_allocation(s, p->pod, c);
    add_shown(s, al, view, &unknown);
    if (unknown.p && !too_new)
        report_mismatch(
            s, p, "container %.*s holds %.*s, which is not a device id of this node",
            SPAN_ARG(c->name), SPAN_ARG(unknown));
    if (known && is_same(known, al)) {
        allocation_free(al);
    } else if (!allocation_amount(al) || (known && too_new)) {
        allocation_free(al);
        return;
    } else {
        if (known)
            report_mismatch(s, p,
                            "the kubelet gave container %.*s other ids than those "
                            "allocated",
                            SPAN_ARG(c->name));
        al->slot_mib = pod_allocation_slot_mib(c, known ? known->slot_mib : 0);
        if (known) { /* the container's answer stays what it was */
            al->driver_limit_mib = known->driver_limit_mib;
            al->limit_device = known->limit_device;
            al->limit_needed = known->limit_needed;
        }
        adopt(s, al);
        known = al;
    }
    /* The pod is now known: its own allocation replaces the one held for its name. */
    cleanup_free char *uid = uid_of_shown(p->pod->ns, p->pod->name);
    struct allocation *held =
        allocation_set_find(&s->allocations, span_of(uid), c->name, c->resource);
    if (held && is_same(held, known))
        alloc_state_drop(s, held);
    if (!too_new)
        check_held(s, t, known);
}

void reconcile_view(struct alloc_state *s, const struct alloc_kubelet_view *view,
                    bool all)
{
    s->surveyed |= all && s->listed;
    /* Allocations of deleted pods that have left the kubelet's view. Nothing else says that a
     * static pod has gone; while one is admitted, the view has those admitted before. */
    for (size_t i = s->allocations.n; all && i-- > 0;) {
        struct allocation *al = s->allocations.items[i];
        bool may_be_gone =
            al->pod_deleted || (s->admits && alloc_state_is_static(al->uid));
        if (may_be_gone && !is_shown(s, al, view))
            alloc_state_drop(s, al);
    }
    for (size_t i = 0; i < view->n_pods; i++) {
        struct alloc_target t = {
            alloc_state_pod_by_name(s, view->pods[i].ns, view->pods[i].name), 0};
        struct local_pod *p = t.local;
        if (!p)
            hold_shown(s, &view->pods[i]);
        if (!p || p->pod->terminal)
            continue;
        s->stats.reconciled++;
        p->reconciled_ms = s->now.mono_ms;
        for (; t.container < p->pod->n_containers; t.container++)
            reconcile_container(s, &t, &view->pods[i]);
        alloc_state_assign_held(s, p->pod);
        alloc_state_annotate(s, p);
    }
}

/* The next pod that is due. If none has been due for an interval, any pod: whether
 * podresources answers must be known on a node without GPU pods too. */
static struct local_pod *next_pod(const struct reconcile *r, const struct alloc_state *s)
{
    struct local_pod *any = NULL;
    int64_t now_ms = s->now.mono_ms, interval = s->settings.reconcile_interval_ms;
    int64_t wait = s->podresources.failures ? RETRY_MS : interval;
    LIST_EACH(struct local_pod, p, &s->pods, link)
    {
        if (p->pod->terminal)
            continue;
        if (interval && p->pod->n_containers > 0 &&
            (p->reconciled_ms == 0 || now_ms - p->reconciled_ms >= interval))
            return p;
        any = p;
    }
    return now_ms - r->answered_ms >= wait ? any : NULL;
}

/* An id of another plugin is listed for its pod alone, which has ended. */
static bool lists_ended(const struct alloc_state *s)
{
    ALLOCATION_EACH(al, &s->allocations)
    if (al->pod_deleted && al->n_others)
        return true;
    return false;
}

/* One pod at a time where the kubelet implements Get, else a List. List can make the
 * kubelet forget ids in flight, as any exporter's List can: Allocate checks the holders
 * of ids itself. */
void reconcile_tick(struct reconcile *r, struct alloc_state *s, uint64_t serial)
{
    int64_t now_ms = s->now.mono_ms, interval = s->settings.reconcile_interval_ms;
    const bool survey = s->cards.settings.slots && (!s->surveyed || lists_ended(s));
    const bool all = survey || s->no_get;
    /* Before the first card is known, no id is one of this node. */
    if ((!interval && !s->podresources.failures && !survey) || !s->listed ||
        !s->cards.n || r->query)
        return;
    struct local_pod *p = now_ms < r->next_ms ? NULL : next_pod(r, s);
    if (p || (survey && now_ms >= r->next_ms)) {
        r->query = alloc_state_query(s, all ? NULL : p->pod);
        r->serial = serial;
        r->all = all;
        if (!all)
            p->reconciled_ms = now_ms;
        r->next_ms = now_ms + (!s->surveyed ? LIST_RETRY_MS
                               : survey     ? RETRY_MS
                               : s->no_get  ? interval
                                            : GET_INTERVAL_MS);
    }
    if (now_ms < r->next_ms)
        step_due(&s->due_ms, r->next_ms);
}

void reconcile_answered(struct reconcile *r, struct alloc_state *s, uint64_t serial,
                        const struct alloc_kubelet_view *view)
{
    int64_t now_ms = s->now.mono_ms;
    r->query = 0;
    if (view->err) {
        s->no_get |= view->unsupported;
        step_due(&r->next_ms, now_ms + RETRY_MS);
        return;
    }
    if (serial == r->serial) {
        reconcile_view(s, view, r->all);
        return;
    }
    /* The view may or may not contain allocations made while the call was in flight. */
    if (r->all)
        r->next_ms = now_ms + LIST_RETRY_MS;
    for (size_t i = 0; i < view->n_pods; i++) {
        struct local_pod *p =
            alloc_state_pod_by_name(s, view->pods[i].ns, view->pods[i].name);
        if (p)
            p->reconciled_ms = 0;
    }
}
