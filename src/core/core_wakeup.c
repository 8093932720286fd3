/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "placement/reason.h"

/*
 * kube-scheduler retries a pod that an extender rejected only after events of Pods, Nodes
 * or storage, else after five minutes. It misses other causes of free memory (a card
 * recovered, an Scv returned, a bind failed), and it may retry after a pod left before
 * this process has seen that. Before 1.33 it misses the end of a nomination, too. So when a
 * change makes filter say yes of a node to a pending pod, the leader changes an annotation of
 * the Node, at most once a second per node. filter is asked before and after each change: for
 * each class of pending pods, and for each pod that is nominated to the node.
 *
 * The objects of the first lists cause no wakeups: a cluster of 5,000 nodes would get 5,000
 * PATCHes. A new leader does not know why pods were rejected before, or what has changed
 * since. So once it may bind, it wakes kube-scheduler for a few nodes of each request that
 * fits somewhere. One would do with SchedulerQueueingHints (on by default since 1.32): then
 * kube-scheduler retries a pod that an extender rejected after the event of any node. Before,
 * the node must admit the pod (preCheckForNode in its eventhandlers.go). So the nodes are far
 * from each other in the order of their names, and cordoned ones are chosen besides.
 *
 * Cordoned nodes are included: a pending pod may tolerate the taint, which is not known
 * here. Uncordoning is an event by itself.
 *
 * A gang (core_reserve.c) was rejected because its members do not fit together. So while
 * members of gangs are pending, every node that gains memory for one counts. So
 * does every node that a pod without GPU has left and whose cards suffice for a member,
 * because members need CPU, too. (A single pod is never rejected for CPU here.)
 *
 * In a large cluster kube-scheduler offers only some of the nodes, and others next time. So it
 * is woken as well for a pod that fits on a node that was not offered. That node may be one
 * that its other filters reject, so these retries are limited.
 */

enum {
    RETRY_MS = 2000,
    RETRY_FIRST_MS = 250, /* doubled at each retry for the pod */
    RETRY_LAST_MS = 8000,
    CLASSES_AT_ONCE = 256,    /* these bound the time of a step */
    CHECKS_AT_ONCE = 1 << 16, /* of a class and a node */
    BEGIN_NODES = 8,          /* for each class, and as many cordoned ones */
    STRIDE = 7919,            /* a prime number */
    NOMINATED_MAX = 64, /* pods that are nominated to a node, of which each is judged */
};

#define NO_ROOM INT64_MIN
#define NO_POD  INT64_MAX

/* What filter would answer: NO_ROOM, or that the pod fits. For a member of a gang that is the
 * free memory that it sees: where one member fitted before, two may fit now. */
static int64_t room_for(const struct ledger_node *node, const struct select_pod *pod,
                        bool member)
{
    struct select_view view;
    if (!node || select_fit_pod(node, pod) != FIT_YES)
        return NO_ROOM;
    if (!member)
        return 0;
    select_view(&view, node, pod, SELECT_ALL);
    int64_t room = -(int64_t)view.claimed * node->largest_mib;
    for (uint32_t i = 0; i < node->n_cards; i++)
        room += view.cards[i].free_mib;
    return room;
}

/* For the pods of class i that are not nominated to the node; NO_POD: none. */
static int64_t room_for_class(const struct ledger_node *node, const struct requests *all,
                              size_t i)
{
    const struct request_class *class = &all->classes[i];
    const struct select_pod pod = {class->request, class->priority, {0}, NULL};
    size_t pods = class->pods;
    for (const struct ledger_nomination *m = node ? node->nominated : NULL; m;
         m = m->next)
        pods -= m->pod->class == i;
    return pods ? room_for(node, &pod, class->members > 0) : NO_POD;
}

/* For the pod itself, its own nomination takes nothing. */
static int64_t room_for_nominated(const struct ledger_pod *pod)
{
    const struct select_pod asks = select_pod_of(pod);
    return pod->request->kind == REQUEST_NONE
               ? NO_ROOM
               : room_for(pod->nomination->node, &asks, pod->member != NULL);
}

struct wakeup_fits core_wakeup_before(struct step *s, struct span node_name)
{
    struct core *core = s->core;
    struct wakeup_fits fits = {0};
    const struct requests *all = ledger_requests(core->ledger);
    size_t n = all->n_classes, at = 0;
    if (!core->wakeups_begun || !n || !node_name.n)
        return fits;
    const struct ledger_node *node = ledger_node_find(core->ledger, node_name);
    const struct ledger_nomination *m = node ? node->nominated : NULL;
    fits.node = arena_copy(&core->scratch, node_name);
    fits.fits = arena_alloc(&core->scratch, (n + NOMINATED_MAX) * sizeof *fits.fits);
    for (; at < n; at++)
        fits.fits[at] = (struct wakeup_fit){.class = all->classes[at].id,
                                            .room = room_for_class(node, all, at)};
    for (; m && at < n + NOMINATED_MAX; m = m->next, at++)
        fits.fits[at] =
            (struct wakeup_fit){.pod = m->pod, .room = room_for_nominated(m->pod)};
    fits.n = at;
    return fits;
}

/* Had the class, or the nominated pod, less room before the change? What did not exist has just
 * become pending or nominated: kube-scheduler has yet to try it, or knows that its bind
 * failed. */
static bool had_less(const struct wakeup_fits *before, size_t i, uint64_t class,
                     const struct ledger_pod *pod, int64_t room)
{
    const struct wakeup_fit *all = before->fits;
    if (i >= before->n || all[i].class != class || all[i].pod != pod)
        for (i = 0; i < before->n && (all[i].class != class || all[i].pod != pod);)
            i++;
    return i < before->n && all[i].room < room;
}

static struct wakeup *wakeup_of(struct core *core, struct span node)
{
    struct wakeup *wakeup = map_get(&core->wakeups_by_node, node);
    if (wakeup)
        return wakeup;
    wakeup = xcalloc(1, sizeof *wakeup);
    wakeup->node = core_own(node);
    list_append(&core->wakeups, &wakeup->link);
    map_set(&core->wakeups_by_node, wakeup);
    return wakeup;
}

static void wakeup_end(struct core *core, struct wakeup *wakeup)
{
    list_remove(&wakeup->link);
    core_disown(&wakeup->pod);
    map_remove(&core->wakeups_by_node, wakeup->node);
    core_disown(&wakeup->node);
    free(wakeup);
}

void core_wakeup_fini(struct core *core)
{
    LIST_EACH(struct wakeup, wakeup, &core->wakeups, link)
    wakeup_end(core, wakeup);
    map_fini(&core->wakeups_by_node);
}

/* Does filter say yes of the node for a pending pod: one for which there was less room `before`,
 * if that is not NULL, and for a member of a gang, if `members`? */
static bool fits_any(const struct core *core, const struct ledger_node *node,
                     const struct wakeup_fits *before, bool members)
{
    const struct requests *all = ledger_requests(core->ledger);
    size_t n = all->n_classes, at = 0;
    const struct ledger_nomination *m = node ? node->nominated : NULL;
    for (; node && at < n; at++) {
        const struct request_class *class = &all->classes[at];
        int64_t room =
            !members || class->members ? room_for_class(node, all, at) : NO_ROOM;
        if (room != NO_ROOM && room != NO_POD &&
            (!before || had_less(before, at, class->id, NULL, room)))
            return true;
    }
    for (; m && at < n + NOMINATED_MAX; m = m->next, at++) {
        int64_t room = !members || m->pod->member ? room_for_nominated(m->pod) : NO_ROOM;
        if (room != NO_ROOM && (!before || had_less(before, at, 0, m->pod, room)))
            return true;
    }
    return false;
}

void core_wakeup_after(struct step *s, const struct wakeup_fits *before)
{
    struct core *core = s->core;
    if (before->n &&
        fits_any(core, ledger_node_find(core->ledger, before->node), before, false))
        wakeup_of(core, before->node)->due = true;
}

void core_wakeup_gangs(struct step *s, const struct ledger_node *node)
{
    struct core *core = s->core;
    if (core->wakeups_begun && fits_any(core, node, NULL, true))
        wakeup_of(core, node->name)->due = true;
}

void core_wakeup_node(struct step *s, struct span node)
{
    if (s->core->wakeups_begun && ledger_requests(s->core->ledger)->n_classes)
        wakeup_of(s->core, node)->due = true;
}

/* May a pending pod fit the node? Those of higher priority see what is reserved as free. */
static bool may_fit_any(const struct core *core, struct span node_name)
{
    const struct ledger_node *node = ledger_node_find(core->ledger, node_name);
    return node && (node->has_reserved ||
                    ledger_requests(core->ledger)->n_classes > CLASSES_AT_ONCE ||
                    fits_any(core, node, NULL, false));
}

/* Marks nodes for those of the classes [from, to) that are due, cordoned ones apart. */
static void begin_classes(struct core *core, size_t from, size_t to)
{
    const struct requests *all = ledger_requests(core->ledger);
    uint32_t slots = ledger_node_slots(core->ledger);
    uint32_t stride = slots % STRIDE ? STRIDE : 1;
    for (uint32_t k = 0; k < slots; k++) {
        uint32_t slot = (uint32_t)((uint64_t)k * stride % slots);
        const struct ledger_node *node = ledger_node_at(core->ledger, slot);
        bool due = false;
        for (size_t i = from; node && i < to; i++) {
            uint8_t *n = &all->classes[i].due[node->cordoned];
            int64_t room = *n ? room_for_class(node, all, i) : NO_ROOM;
            if (room == NO_ROOM || room == NO_POD)
                continue;
            --*n;
            due = true;
        }
        for (const struct ledger_nomination *m = node ? node->nominated : NULL; m && !due;
             m = m->next)
            due = room_for_nominated(m->pod) != NO_ROOM;
        if (due)
            wakeup_of(core, node->name)->due = true;
    }
    for (size_t i = from; i < to; i++)
        memset(all->classes[i].due, 0, sizeof all->classes[i].due);
}

/* begin() is to look at the class. */
static void class_is_due(struct core *core, size_t class)
{
    const struct requests *all = ledger_requests(core->ledger);
    if (class >= all->n_classes)
        return;
    memset(all->classes[class].due, BEGIN_NODES, sizeof all->classes[class].due);
    core->wakeup_classes = all->n_classes;
}

void core_wakeup_gang(struct step *s, const struct ledger_gang *gang)
{
    for (const struct ledger_member *m = gang ? gang->members : NULL;
         m && s->core->wakeups_begun; m = m->next)
        if (!m->pod->node)
            class_is_due(s->core, m->pod->class);
}

static int64_t quotas_due(const struct core *core)
{
    return core->wakeups_begun && !core->wakeup_classes &&
                   ledger_quotas(core->ledger)->freed
               ? core->quotas_woken_ms + CORE_WAKEUP_INTERVAL_MS
               : INT64_MAX;
}

/* Pods that their quotas allow: kube-scheduler does not know when these have something left. */
static void wake_for_quotas(struct step *s)
{
    struct core *core = s->core;
    const struct ledger_pod *pod = ledger_first_pending(core->ledger);
    if (s->now.mono_ms < quotas_due(core))
        return;
    core->quotas_woken_ms = s->now.mono_ms;
    if (core_quotas_ready(core, s->now, NULL)) /* once they are, what is free counts */
        return;
    ledger_quotas(core->ledger)->freed = false;
    for (; pod; pod = pod->next)
        if (quota_counts(request_on(pod->request, SCV_DIALECT_HAMI)) &&
            !core_quota_check(core, s->now, pod->ns, pod->uid, pod->request, NULL, 0,
                              NULL))
            class_is_due(core, pod->class);
}

/* Looks at few classes at once, the last ones first. */
static void begin(struct step *s)
{
    struct core *core = s->core;
    const struct requests *all = ledger_requests(core->ledger);
    if (!core->wakeups_begun) {
        if (core_check_may_bind(core, s->now, NULL))
            return;
        core->wakeups_begun = true;
        ledger_quotas(core->ledger)->freed = false;
        for (size_t i = 0; i < all->n_classes; i++)
            class_is_due(core, i);
    }
    size_t most = CHECKS_AT_ONCE / (ledger_node_slots(core->ledger) + 1) + 1;
    size_t to =
        core->wakeup_classes < all->n_classes ? core->wakeup_classes : all->n_classes;
    while (to && !all->classes[to - 1].due[0])
        to--;
    size_t from = to > most ? to - most : 0;
    if (from < to)
        begin_classes(core, from, to);
    core->wakeup_classes = from;
}

void core_wakeup_rejected(struct step *s)
{
    struct core *core = s->core;
    struct ledger_pod unseen = {0}; /* the watch may show the pod before the retry */
    struct ledger_pod *pod = ledger_pod_find(core->ledger, s->in->uid) ?: &unseen;
    int64_t now = s->now.mono_ms;
    if (!core->wakeups_begun || !s->in->node_name.n || pod->node || pod->retry_ms > now)
        return;
    if (now - pod->retry_ms > CORE_RETRIES_MS)
        pod->retries = 0;
    if (pod->retries >= CORE_RETRIES)
        return;
    struct wakeup *wakeup = wakeup_of(core, s->in->node_name);
    int64_t at =
        now + (pod->retries < 5 ? RETRY_FIRST_MS << pod->retries : RETRY_LAST_MS);
    if (wakeup->pod.n)
        step_due(&at, wakeup->retry_ms);
    wakeup->several =
        wakeup->pod.n && (wakeup->several || !span_eq(wakeup->pod, s->in->uid));
    core_disown(&wakeup->pod);
    wakeup->pod = core_own(s->in->uid);
    wakeup->retry_ms = at;
    pod->retries++;
    pod->retry_ms = at > wakeup->not_before_ms ? at : wakeup->not_before_ms;
}

/* Is a pod pending for which the node is due? Of several, any that is pending counts. */
static bool retries(const struct core *core, const struct wakeup *wakeup)
{
    const struct ledger_pod *pod = ledger_pod_find(core->ledger, wakeup->pod);
    return wakeup->several ? ledger_totals(core->ledger).pending > 0 : pod && !pod->node;
}

static void send_wakeup(struct step *s, struct wakeup *wakeup)
{
    cleanup_buf struct buf value = {0};
    struct core_output *o = core_call(s, CORE_CALL_WAKEUP, &wakeup->call,
                                      (struct span){0}, wakeup->node, (struct span){0});
    clock_format_us(&value, s->now.wall_ns / 1000);
    wakeup->not_before_ms = s->now.mono_ms + CORE_WAKEUP_INTERVAL_MS;
    o->node = o->name;
    o->value = step_text(s->out, buf_span(&value));
}

void core_wakeup_tick(struct step *s)
{
    struct core *core = s->core;
    wake_for_quotas(s);
    begin(s);
    LIST_EACH(struct wakeup, wakeup, &core->wakeups, link)
    {
        if (wakeup->call || wakeup->not_before_ms > s->now.mono_ms)
            continue;
        bool retry = wakeup->pod.n && wakeup->retry_ms <= s->now.mono_ms,
             wanted = retry && retries(core, wakeup);
        if (wanted || (wakeup->due && may_fit_any(core, wakeup->node))) /* still */
            send_wakeup(s, wakeup);
        wakeup->due = false;
        if (wanted)
            wakeup->retry_ms = INT64_MAX;
        else if (retry)
            core_disown(&wakeup->pod);
        if (!wakeup->call && !wakeup->pod.n)
            wakeup_end(core, wakeup);
    }
}

bool core_wakeup_answered(struct step *s)
{
    LIST_EACH(struct wakeup, wakeup, &s->core->wakeups, link)
    {
        if (wakeup->call != s->in->call)
            continue;
        wakeup->call = 0;
        if (s->code != ERR_NONE && s->code != ERR_NOT_FOUND) {
            wakeup->due = true;
            wakeup->not_before_ms = s->now.mono_ms + RETRY_MS;
            step_due(&wakeup->retry_ms, wakeup->not_before_ms);
            core_log(s, s->code,
                     "node %.*s: cannot wake up kube-scheduler: %s; retrying in %d s",
                     SPAN_ARG(wakeup->node), s->in->err->msg, RETRY_MS / 1000);
        } else if (wakeup->retry_ms == INT64_MAX) {
            core_disown(&wakeup->pod);
        }
        return true;
    }
    return false;
}

int64_t core_wakeup_due(const struct core *core)
{
    int64_t due =
        core->wakeups_begun && core->wakeup_classes ? INT64_MIN : quotas_due(core);
    LIST_EACH(struct wakeup, wakeup, &core->wakeups, link)
    {
        int64_t at = wakeup->due     ? INT64_MIN
                     : wakeup->pod.n ? wakeup->retry_ms
                                     : INT64_MAX;
        if (!wakeup->call)
            step_due(&due, at > wakeup->not_before_ms ? at : wakeup->not_before_ms);
    }
    return due;
}
