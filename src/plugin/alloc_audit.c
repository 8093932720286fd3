/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include "base/mem.h"

enum {
    SURE_AFTER_MS = 10 * 1000,
    LIST_AGAIN_MS = 1000,
    GET_EVERY_MS = 50, /* the kubelet takes 100 calls a second, of everybody together */
    TRY_AGAIN_MS = 5000,
    ANSWER_MS = 10 * 1000, /* each call has a shorter limit of its own */
};

/* What the kubelet shows for a container, as a grant. NULL: nothing, or ids of the Go
 * plugin, which say nothing of the card. */
static struct grant *grant_shown(const struct alloc *a, const struct plan *plan,
                                 const struct plan_container *c,
                                 const struct shown_pod *shown, struct span *unknown)
{
    struct grant *g = NULL;
    for (size_t i = 0; i < shown->n_containers; i++) {
        const struct shown_container *s = &shown->containers[i];
        for (size_t k = 0; k < s->n_ids[c->resource] && span_eq(s->name, c->name); k++) {
            struct span id = s->ids[c->resource][k];
            struct unit unit;
            if (ids_is_of_go_plugin(id))
                continue;
            if (!read_unit(a, c->resource, id, &unit)) {
                *unknown = id;
                continue;
            }
            if (!g)
                g = grant_new(plan->uid, plan->ns, plan->name, c->name, c->role,
                              c->resource);
            grant_add(g, span_of(unit.card->uuid), unit.card->index, unit.number);
        }
    }
    return g;
}

static bool is_same(const struct grant *x, const struct grant *y)
{
    if (grant_amount(x) != grant_amount(y))
        return false;
    for (size_t i = 0; i < x->n_cards; i++) {
        const struct grant_card *c = &x->cards[i];
        if (!grant_holds(y, c->uuid, -1))
            return false;
        for (size_t k = 0; k < c->n_units; k++)
            if (!grant_holds(y, c->uuid, c->units[k]))
                return false;
    }
    return true;
}

/* Does the kubelet still show that the container holds this? */
static bool is_shown(const struct alloc *a, const struct grant *g,
                     const struct alloc_shown *shown)
{
    const struct plan pod = {.uid = g->uid, .ns = g->ns, .name = g->name};
    const struct plan_container c = {
        .name = g->container, .role = g->role, .resource = g->resource};
    struct span unknown;
    for (size_t i = 0; i < shown->n_pods; i++) {
        if (!span_eq(shown->pods[i].name, g->name) || !span_eq(shown->pods[i].ns, g->ns))
            continue;
        struct grant *is = grant_shown(a, &pod, &c, &shown->pods[i], &unknown);
        bool same = is && is_same(is, g);
        grant_free(is);
        if (same)
            return true;
    }
    return false;
}

/* Those whose pods have gone, and now from the kubelet too. */
static void drop_gone(struct alloc *a, const struct alloc_shown *shown)
{
    for (size_t i = a->grants.n; i-- > 0;) {
        const struct grant *g = a->grants.items[i];
        if (!g->leaving || is_shown(a, g, shown))
            continue;
        grants_drop(&a->grants, g);
        a->dirty = true;
    }
}

/* Who holds the ids of a pod whose UID is not known. To free. */
static char *uid_of_shown(struct span ns, struct span name)
{
    return xasprintf("shown:%.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
}

/* A pod that the API does not have (any more, or yet), with ids that nobody knows to be
 * its: they are held, for as long as the kubelet shows them. */
static void hold_shown(struct alloc *a, struct alloc_time now,
                       const struct shown_pod *shown)
{
    cleanup_free char *uid = uid_of_shown(shown->ns, shown->name);
    const struct plan pod = {.uid = span_of(uid), .ns = shown->ns, .name = shown->name};
    for (size_t i = 0; i < a->grants.n; i++)
        if (span_eq(a->grants.items[i]->name, pod.name) &&
            span_eq(a->grants.items[i]->ns, pod.ns))
            return;
    for (size_t i = 0; i < shown->n_containers; i++) {
        for (int r = 0; r < IDS_RESOURCES; r++) {
            const struct plan_container c = {.name = shown->containers[i].name,
                                             .resource = (enum ids_resource)r};
            struct span unknown;
            struct grant *g = grant_shown(a, &pod, &c, shown, &unknown);
            if (!g)
                continue;
            g->leaving = true;
            g->time_ns = now.wall_ns;
            grants_put(&a->grants, g);
            a->stats.adopted++;
            a->dirty = true;
        }
    }
}

/* The API has told of the pod: what was held for its name is this grant of its own. */
static void is_known_now(struct alloc *a, const struct grant *own)
{
    cleanup_free char *uid = uid_of_shown(own->ns, own->name);
    const struct grant *held =
        grants_find(&a->grants, span_of(uid), own->container, own->resource);
    if (!held || !is_same(held, own))
        return;
    grants_drop(&a->grants, held);
    a->dirty = true;
}

static void tell_mismatch(struct alloc *a, struct pupil *p, const char *what,
                          struct alloc_outputs *out)
{
    if (p->mismatch_told)
        return;
    p->mismatch_told = true;
    a->stats.mismatches++;
    alloc_out_note(out, LOG_ERROR, "%.*s/%.*s: %s", SPAN_ARG(p->plan->ns),
                   SPAN_ARG(p->plan->name), what);
    alloc_out_event(out, p->plan, "GPUMismatch", what);
}

/* Is each unit on a card that was promised, and nobody else's? */
static void compare(struct alloc *a, struct pupil *p, size_t container,
                    const struct grant *g, struct alloc_outputs *out)
{
    const struct found f = {p, container};
    const struct plan_container *c = &p->plan->containers[container];
    for (size_t i = 0; i < g->n_cards; i++) {
        const struct plugin_card *card = cards_by_uuid(&a->cards, g->cards[i].uuid);
        size_t units = g->resource == IDS_COUNT ? 1 : g->cards[i].n_units;
        if (!card)
            continue;
        if (p->plan->promise == PLAN_PROMISED && units > pick_may_have(a, &f, card))
            tell_mismatch(
                a, p,
                alloc_out_printf(out,
                                 "container %.*s holds %zu of card %s, which is not "
                                 "what was promised to it",
                                 SPAN_ARG(c->name), units, card->uuid),
                out);
        for (size_t k = 0; k < units; k++) {
            int64_t number =
                g->resource == IDS_COUNT ? -1 : (int64_t)g->cards[i].units[k];
            struct unit unit = {card, number};
            const struct grant *holder = pick_holder(a, &f, &unit);
            if (!holder)
                continue;
            tell_mismatch(a, p,
                          alloc_out_printf(
                              out,
                              "container %.*s holds what container %.*s of pod "
                              "%.*s/%.*s holds, on card %s",
                              SPAN_ARG(c->name), SPAN_ARG(holder->container),
                              SPAN_ARG(holder->ns), SPAN_ARG(holder->name), card->uuid),
                          out);
            break;
        }
    }
}

/* Podresources shows names, not UIDs: for a moment the kubelet may still have the pod
 * that had this name before. What it holds is held then, but no ground for complaint. */
static bool is_too_new(const struct pupil *p, int64_t now_ms)
{
    return !p->plan->started && now_ms - p->since_ms < SURE_AFTER_MS;
}

/* The kubelet is right about who holds what; the annotations are right about who should.
 */
static void audit_container(struct alloc *a, struct alloc_time now, struct pupil *p,
                            size_t i, const struct shown_pod *shown,
                            struct alloc_outputs *out)
{
    const struct plan_container *c = &p->plan->containers[i];
    struct span unknown = {0};
    struct grant *g = grant_shown(a, p->plan, c, shown, &unknown);
    const struct grant *known =
        grants_find(&a->grants, p->plan->uid, c->name, c->resource);
    if (unknown.p && !is_too_new(p, now.mono_ms))
        tell_mismatch(
            a, p,
            alloc_out_printf(out,
                             "container %.*s holds %.*s, which is no id of this "
                             "node's cards",
                             SPAN_ARG(c->name), SPAN_ARG(unknown)),
            out);
    if (!g || (known && is_too_new(p, now.mono_ms))) {
        grant_free(g);
        return;
    }
    if (known && is_same(known, g)) {
        is_known_now(a, known);
        compare(a, p, i, known, out);
        grant_free(g);
        return;
    }
    if (known)
        tell_mismatch(
            a, p,
            alloc_out_printf(out,
                             "the kubelet has given container %.*s other ids than "
                             "were granted",
                             SPAN_ARG(c->name)),
            out);
    g->time_ns = now.wall_ns;
    grants_put(&a->grants, g);
    a->dirty = true;
    a->stats.adopted++;
    is_known_now(a, g);
    if (!is_too_new(p, now.mono_ms))
        compare(a, p, i, g, out);
}

void audit_shown(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown,
                 bool all, struct alloc_outputs *out)
{
    if (all)
        drop_gone(a, shown);
    for (size_t i = 0; i < shown->n_pods; i++) {
        struct pupil *p = pupil_named(a, shown->pods[i].ns, shown->pods[i].name);
        if (!p)
            hold_shown(a, now, &shown->pods[i]);
        if (!p || p->plan->over)
            continue;
        a->stats.audited++;
        p->audited_ms = now.mono_ms;
        for (size_t k = 0; k < p->plan->n_containers; k++)
            audit_container(a, now, p, k, &shown->pods[i], out);
        pupil_give_from_grants(a, p);
        pupil_mark(a, now, p, out);
    }
}

static bool wants_audit(const struct alloc *a, const struct pupil *p, int64_t now_ms)
{
    return a->settings.audit_ms && !p->plan->over && p->plan->n_containers > 0 &&
           (p->audited_ms == 0 || now_ms - p->audited_ms >= a->settings.audit_ms);
}

/* One pod at a time, where the kubelet has Get. A List for all where it has not: it is
 * what every exporter asks for, and Allocate looks for itself whether ids are held. */
static void look_at(struct alloc *a, struct alloc_time now, struct pupil *p,
                    struct alloc_outputs *out)
{
    const char *ns = alloc_out_text(out, p->plan->ns);
    const char *name = alloc_out_text(out, p->plan->name);
    struct alloc_output *o = alloc_out_add(out, a->no_get ? ALLOC_LIST : ALLOC_GET);
    o->ns = ns;
    o->name = name;
    o->query = a->audit_query = ++a->queries;
    a->audit_asked_ms = now.mono_ms;
    a->audit_serial = a->serial;
    a->audit_all = a->no_get;
    if (!a->no_get)
        p->audited_ms = now.mono_ms;
    a->audit_next_ms = now.mono_ms + (a->no_get ? a->settings.audit_ms : GET_EVERY_MS);
    alloc_hurry(a, a->audit_next_ms);
}

/* Whose turn it is. When it is nobody's for long, that of any pod: on a node without pods
 * of ours, too, it is to be known whether the kubelet answers. */
static struct pupil *next_pupil(const struct alloc *a, int64_t now_ms)
{
    struct pupil *any = NULL;
    int64_t wait = a->kubelet.since_ms ? TRY_AGAIN_MS : a->settings.audit_ms;
    for (struct pupil *p = a->pupils; p; p = p->next) {
        if (wants_audit(a, p, now_ms))
            return p;
        if (!p->plan->over)
            any = p;
    }
    return now_ms - a->heard_ms >= wait ? any : NULL;
}

/* It cannot be asked again, but it can be told. */
static void miss_answer(struct alloc *a, int64_t now_ms)
{
    struct err err;
    if (now_ms - a->audit_asked_ms < ANSWER_MS)
        return;
    err_set(&err, ERR_TIMEOUT, "no answer, and no error either");
    trouble_note(&a->kubelet, a->audit_asked_ms, &err);
}

void audit_tick(struct alloc *a, struct alloc_time now, struct alloc_outputs *out)
{
    if (a->audit_query)
        miss_answer(a, now.mono_ms);
    bool wanted = a->settings.audit_ms || a->kubelet.since_ms;
    if (!wanted || !a->listed || a->asks || a->audit_query)
        return;
    if (now.mono_ms < a->audit_next_ms) {
        alloc_hurry(a, a->audit_next_ms);
        return;
    }
    struct pupil *p = next_pupil(a, now.mono_ms);
    if (p)
        look_at(a, now, p, out);
}

/* What was handed out while it was under way may or may not be in it. */
static void audit_again(struct alloc *a, struct alloc_time now,
                        const struct alloc_shown *shown)
{
    if (a->audit_all)
        a->audit_next_ms = now.mono_ms + LIST_AGAIN_MS;
    for (size_t i = 0; i < shown->n_pods; i++) {
        struct pupil *p = pupil_named(a, shown->pods[i].ns, shown->pods[i].name);
        if (p)
            p->audited_ms = 0;
    }
}

void audit_answer(struct alloc *a, struct alloc_time now, const struct alloc_shown *shown,
                  struct alloc_outputs *out)
{
    a->audit_query = 0;
    if (shown->err && shown->unsupported)
        a->no_get = true;
    if (shown->err && a->audit_next_ms > now.mono_ms + TRY_AGAIN_MS)
        a->audit_next_ms = now.mono_ms + TRY_AGAIN_MS;
    if (shown->err)
        return;
    if (a->serial == a->audit_serial)
        audit_shown(a, now, shown, a->audit_all, out);
    else
        audit_again(a, now, shown);
}
