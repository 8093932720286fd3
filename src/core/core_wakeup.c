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
 * this process has seen that. So when a change makes a node fit for a class of pending
 * pods, the leader changes an annotation of the Node, at most once a second per node.
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
 * members of gangs are pending, every node that gains memory for a pending pod counts. So
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
    CLASSES_AT_ONCE = 256, /* bounds the time of a step */
    BEGIN_NODES = 8,       /* for each class, and as many cordoned ones */
    STRIDE = 7919,         /* a prime number */
};

static int64_t free_mib_of(const struct ledger_node *node)
{
    int64_t sum = 0;
    for (uint32_t i = 0; node && i < node->n_cards; i++)
        sum += node->cards[i].free_mib;
    return sum;
}

struct wakeup_fits core_wakeup_before(struct step *s, struct span node_name)
{
    struct core *core = s->core;
    struct wakeup_fits fits = {0};
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    if (!core->wakeups_begun || !n || !node_name.n)
        return fits;
    const struct ledger_node *node = ledger_node_find(core->ledger, node_name);
    fits.node = arena_copy(&core->scratch, node_name);
    fits.classes = arena_zalloc(&core->scratch, n * sizeof *fits.classes);
    fits.n = n;
    fits.free_mib = free_mib_of(node);
    for (size_t i = 0; i < n; i++)
        fits.classes[i] = (struct wakeup_fit){
            .id = classes[i].id,
            .fits = node && select_fit(node, &classes[i].request) == FIT_YES,
        };
    return fits;
}

/* Did the class exist before the change without fitting? A removed class is replaced in
 * the array by the last one, so only few classes change their position. The pods of a new
 * class have just become pending: kube-scheduler has yet to try them, or knows that their
 * bind failed. */
static bool did_not_fit(const struct wakeup_fits *before, size_t i, uint64_t id)
{
    if (i < before->n && before->classes[i].id == id)
        return !before->classes[i].fits;
    for (size_t k = 0; k < before->n; k++)
        if (before->classes[k].id == id)
            return !before->classes[k].fits;
    return false;
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

/* Does the node fit a class of pending pods: one that did not fit `before`, if that is not
 * NULL, and one with members of gangs, if `members`? */
static bool fits_any(const struct core *core, const struct ledger_node *node,
                     const struct wakeup_fits *before, bool members)
{
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    for (size_t i = 0; node && i < n; i++)
        if ((!before || did_not_fit(before, i, classes[i].id)) &&
            (!members || classes[i].members) &&
            select_fit(node, &classes[i].request) == FIT_YES)
            return true;
    return false;
}

void core_wakeup_after(struct step *s, const struct wakeup_fits *before)
{
    struct core *core = s->core;
    const struct ledger_node *node =
        before->n ? ledger_node_find(core->ledger, before->node) : NULL;
    /* Where one member fitted before, two may fit now. */
    bool gangs = ledger_totals(core->ledger).pending_members > 0 &&
                 free_mib_of(node) > before->free_mib;
    if (fits_any(core, node, gangs ? NULL : before, false))
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
    size_t n;
    ledger_classes(s->core->ledger, &n);
    if (s->core->wakeups_begun && n)
        wakeup_of(s->core, node)->due = true;
}

/* May a pending pod fit the node? Those of higher priority see what is reserved as free. */
static bool may_fit_any(const struct core *core, struct span node_name)
{
    size_t n;
    const struct ledger_node *node = ledger_node_find(core->ledger, node_name);
    ledger_classes(core->ledger, &n);
    return node && (node->has_reserved || n > CLASSES_AT_ONCE ||
                    fits_any(core, node, NULL, false));
}

/* Marks nodes for the classes [from, to), cordoned ones apart. */
static void begin_classes(struct core *core, const struct ledger_class *classes,
                          size_t from, size_t to)
{
    uint8_t marked[2][CLASSES_AT_ONCE] = {0};
    uint32_t slots = ledger_node_slots(core->ledger);
    uint32_t stride = slots % STRIDE ? STRIDE : 1;
    for (uint32_t k = 0; k < slots; k++) {
        uint32_t slot = (uint32_t)((uint64_t)k * stride % slots);
        const struct ledger_node *node = ledger_node_at(core->ledger, slot);
        bool due = false;
        for (size_t i = from; node && i < to; i++) {
            uint8_t *n = &marked[node->cordoned][i - from];
            if (*n == BEGIN_NODES || select_fit(node, &classes[i].request) != FIT_YES)
                continue;
            ++*n;
            due = true;
        }
        if (due)
            wakeup_of(core, node->name)->due = true;
    }
}

/* Of many classes, the last ones come first: a class that replaces a removed one comes from
 * the end. */
static void begin(struct step *s)
{
    struct core *core = s->core;
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    if (!core->wakeups_begun) {
        if (core_may_bind(core, s->now, NULL))
            return;
        core->wakeups_begun = true;
        core->wakeup_classes = n;
    }
    size_t to = core->wakeup_classes < n ? core->wakeup_classes : n;
    size_t from = to > CLASSES_AT_ONCE ? to - CLASSES_AT_ONCE : 0;
    if (from < to)
        begin_classes(core, classes, from, to);
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
    int64_t due = core->wakeups_begun && core->wakeup_classes ? INT64_MIN : INT64_MAX;
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
