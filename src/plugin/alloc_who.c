/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/alloc_priv.h"

#include <stdlib.h>

#include "base/mem.h"

enum {
    STRANGERS_MAX = 512,
    FORMER_MS = 1000,
};

/* How many ids of its resource the kubelet shows for the container. */
static size_t shown_ids(const struct shown_pod *pod, const struct plan_container *c)
{
    size_t n = 0;
    for (size_t i = 0; i < pod->n_containers; i++)
        if (span_eq(pod->containers[i].name, c->name))
            n += pod->containers[i].n_ids[c->resource];
    return n;
}

static bool is_shown(const struct shown_pod *pod, const struct plan_container *c)
{
    return c->role != CONTAINER_INIT && shown_ids(pod, c) >= (size_t)c->amount;
}

/* Plain init containers are never shown: what we granted counts for them, and a later
 * container that has its ids. Unless the kubelet has forgotten one that it would show:
 * then its checkpoint is lost, and it begins anew with the first. */
bool who_lacks(const struct alloc *a, const struct pupil *p,
               const struct shown_pod *shown, size_t *next)
{
    const struct plan *plan = p->plan;
    bool forgotten = false;
    size_t last_shown = 0;
    for (size_t i = 0; i < plan->n_containers; i++) {
        const struct plan_container *c = &plan->containers[i];
        if (is_shown(shown, c))
            last_shown = i + 1;
        else if (c->role != CONTAINER_INIT &&
                 grants_find(&a->grants, plan->uid, c->name, c->resource))
            forgotten = true;
    }
    for (size_t i = 0; i < plan->n_containers; i++) {
        const struct plan_container *c = &plan->containers[i];
        bool done = is_shown(shown, c);
        if (c->role == CONTAINER_INIT)
            done = i < last_shown || (!forgotten && grants_find(&a->grants, plan->uid,
                                                                c->name, c->resource));
        if (!done) {
            *next = i;
            return true;
        }
    }
    return false;
}

static void free_stranger(struct stranger *s)
{
    free(s->ns);
    free(s->name);
    free(s);
}

struct stranger *who_add_stranger(struct alloc *a, struct span ns, struct span name)
{
    struct stranger *s = xcalloc(1, sizeof *s), **at = &s->next;
    s->ns = xmemdup0(ns.p, ns.n);
    s->name = xmemdup0(name.p, name.n);
    s->next = a->strangers;
    a->strangers = s;
    for (int i = 1; *at && i < STRANGERS_MAX; i++)
        at = &(*at)->next;
    if (*at) {
        free_stranger(*at);
        *at = NULL;
    }
    return s;
}

void who_forget_strangers(struct alloc *a)
{
    for (struct stranger *s = a->strangers, *next; s; s = next) {
        next = s->next;
        free_stranger(s);
    }
    a->strangers = NULL;
}

static struct stranger *stranger_of(struct alloc *a, const struct shown_pod *pod,
                                    uint64_t serial)
{
    for (struct stranger *s = a->strangers; s; s = s->next)
        if (span_eq(pod->ns, span_of(s->ns)) && span_eq(pod->name, span_of(s->name)))
            return s;
    struct stranger *s = who_add_stranger(a, pod->ns, pod->name);
    s->serial = serial;
    return s;
}

void who_met(struct alloc *a, const struct plan *pod, uint64_t serial)
{
    const struct shown_pod shown = {.ns = pod->ns, .name = pod->name};
    struct stranger *s = stranger_of(a, &shown, serial);
    s->serial = serial;
    s->former = true;
}

static bool is_among(const struct stranger *s, const struct alloc_shown *shown)
{
    for (size_t i = 0; i < shown->n_pods; i++)
        if (span_eq(shown->pods[i].name, span_of(s->name)) &&
            span_eq(shown->pods[i].ns, span_of(s->ns)))
            return true;
    return false;
}

/* Those that the kubelet does not have any more. */
static void forget_strangers(struct alloc *a, const struct alloc_shown *shown)
{
    struct stranger **at = &a->strangers, *s;
    while ((s = *at) != NULL) {
        if (is_among(s, shown)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free_stranger(s);
    }
}

static bool shows_ids(const struct shown_pod *pod)
{
    for (size_t i = 0; i < pod->n_containers; i++)
        for (int r = 0; r < IDS_RESOURCES; r++)
            if (pod->containers[i].n_ids[r])
                return true;
    return false;
}

/* Could the pod, which the API server did not tell of, be the one? Not if it has all it
 * needs, and not if an earlier ask met it: the kubelet has gone on since. One that the
 * API server told of, and that it is gone, may have come anew under the same name; but a
 * kubelet before 1.34 shows what has ended, too, and cannot forget it while it waits for
 * us. So much time is given to the news that it is another one. */
static bool may_be_it(struct alloc *a, int64_t age_ms, const struct ask *ask,
                      const struct shown_pod *pod, bool former)
{
    if (shows_ids(pod))
        return false;
    struct stranger *s = stranger_of(a, pod, ask->serial);
    if (s->serial == 0)
        s->serial = ask->serial;
    s->former |= former;
    return s->serial == ask->serial && !(s->former && a->no_get && age_ms >= FORMER_MS);
}

static bool ends_with(struct span s, const char *end)
{
    size_t n = strlen(end);
    return s.n > n && memcmp(s.p + s.n - n, end, n) == 0;
}

/* The name of a static pod ends with its node's. Until the kubelet has admitted it there
 * is nothing of it in the API. */
static bool may_be_static(const struct alloc *a, const struct shown_pod *pod)
{
    cleanup_free char *suffix = xasprintf("-%s", a->node);
    return ends_with(pod->name, suffix);
}

/* A plan for it, as far as it can be known: its first container. The kubelet does not
 * show what a container asks for. */
static struct pupil *take_in_static(struct alloc *a, const struct ask *ask,
                                    const struct shown_pod *pod)
{
    if (pod->n_containers != 1)
        return NULL;
    struct plan *plan = xcalloc(1, sizeof *plan);
    cleanup_free char *uid =
        xasprintf("static:%.*s/%.*s", SPAN_ARG(pod->ns), SPAN_ARG(pod->name));
    plan->uid = arena_copy(&plan->arena, span_of(uid));
    plan->ns = arena_copy(&plan->arena, pod->ns);
    plan->name = arena_copy(&plan->arena, pod->name);
    plan->mirror = true;
    plan->promise = PLAN_NONE;
    plan->request = (struct request){
        .kind = ask->resource == IDS_MEM ? REQUEST_MEMORY : REQUEST_CARDS,
        .cards = ask->resource == IDS_MEM ? 1 : (uint32_t)ask->size,
        .units = ask->resource == IDS_MEM ? ask->size : 0};
    plan->containers = arena_zalloc(&plan->arena, sizeof *plan->containers);
    plan->n_containers = 1;
    plan->containers[0] =
        (struct plan_container){.name = arena_copy(&plan->arena, pod->containers[0].name),
                                .resource = ask->resource,
                                .amount = ask->size};
    struct pupil *p = xcalloc(1, sizeof *p);
    p->plan = plan;
    p->list = a->list;
    p->next = a->pupils;
    a->pupils = p;
    return p;
}

/* Pods that can be meant, and what stands against being sure of one of them. */
struct survey {
    struct found match;
    size_t matches, strangers;
    const struct shown_pod *stranger;
    struct span other; /* name of a second match */
};

static void look_at(struct alloc *a, int64_t age_ms, struct ask *ask,
                    const struct shown_pod *shown, struct survey *s)
{
    struct pupil *p = pupil_named(a, shown->ns, shown->name);
    size_t next;
    bool done = p && (p->plan->over || p->refused_era == a->era);
    if (!p || done) {
        if (may_be_it(a, age_ms, ask, shown, done)) {
            s->strangers++;
            s->stranger = shown;
        }
        return;
    }
    if (!who_lacks(a, p, shown, &next))
        return;
    const struct plan_container *c = &p->plan->containers[next];
    if (c->resource != ask->resource || c->amount != ask->size)
        return;
    s->other = s->matches ? s->match.pupil->plan->name : s->other;
    s->match = (struct found){p, next};
    s->matches++;
}

static enum verdict nobody(struct alloc *a, struct ask *ask, const struct survey *s,
                           int64_t age_ms, struct found *found)
{
    if (s->strangers == 0)
        return ask_say(ask, VERDICT_WAIT, REFUSED_NO_POD,
                       "no pod of this node that the kubelet has waits for %lld of %s",
                       (long long)ask->size, ids_resource_name(ask->resource));
    /* Half of the time is over: it does not come from the API server any more. */
    if (s->strangers == 1 && may_be_static(a, s->stranger) &&
        age_ms * 2 >= a->settings.wait_ms &&
        (found->pupil = take_in_static(a, ask, s->stranger)) != NULL) {
        found->container = 0;
        return VERDICT_YES;
    }
    return ask_say(ask, VERDICT_WAIT, REFUSED_STRANGER,
                   "the kubelet has pod %.*s/%.*s, of which the API server has told "
                   "nothing yet",
                   SPAN_ARG(s->stranger->ns), SPAN_ARG(s->stranger->name));
}

enum verdict who_of_list(struct alloc *a, int64_t now_ms, struct ask *ask,
                         const struct alloc_shown *shown, struct found *found)
{
    struct survey s = {0};
    int64_t age_ms = now_ms - ask->began_ms;
    forget_strangers(a, shown);
    if (!a->listed)
        return ask_say(ask, VERDICT_WAIT, REFUSED_NO_NEWS,
                       "the API server has not yet told which pods are on this node");
    for (size_t i = 0; i < shown->n_pods; i++)
        look_at(a, age_ms, ask, &shown->pods[i], &s);
    if (s.matches == 0)
        return nobody(a, ask, &s, age_ms, found);
    if (s.matches > 1)
        return ask_say(ask, VERDICT_WAIT, REFUSED_AMBIGUOUS,
                       "%zu pods of this node wait for %lld of %s, among them %.*s and "
                       "%.*s, and it cannot be told which of them it is",
                       s.matches, (long long)ask->size, ids_resource_name(ask->resource),
                       SPAN_ARG(s.other), SPAN_ARG(s.match.pupil->plan->name));
    if (s.strangers)
        return ask_say(ask, VERDICT_WAIT, REFUSED_STRANGER,
                       "it may be pod %.*s/%.*s, which the kubelet has and of which the "
                       "API server has told nothing yet",
                       SPAN_ARG(s.stranger->ns), SPAN_ARG(s.stranger->name));
    *found = s.match;
    return VERDICT_YES;
}

/* The pod with a plain init container that holds the unit. */
static struct pupil *init_holder(const struct alloc *a, const struct ask *ask,
                                 const struct unit *unit)
{
    for (size_t i = 0; i < a->grants.n; i++) {
        const struct grant *g = a->grants.items[i];
        if (g->role == CONTAINER_INIT && g->resource == ask->resource &&
            grant_holds(g, span_of(unit->card->uuid), unit->number))
            return pupil_find(a, g->uid);
    }
    return NULL;
}

bool who_reuses(const struct alloc *a, const struct ask *ask, struct found *found)
{
    struct pupil *p = NULL;
    for (size_t i = 0; i < ask->n_ids; i++) {
        struct pupil *holder = init_holder(a, ask, &ask->ids[i]);
        if (!holder || (p && holder != p))
            return false;
        p = holder;
    }
    if (!p || p->plan->over || p->refused_era == a->era)
        return false;
    for (size_t i = 0; i < p->plan->n_containers; i++) {
        const struct plan_container *c = &p->plan->containers[i];
        if (grants_find(&a->grants, p->plan->uid, c->name, c->resource))
            continue;
        *found = (struct found){p, i};
        return c->resource == ask->resource && c->amount == ask->size;
    }
    return false;
}
