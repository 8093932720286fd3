/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "placement/placement.h"

/*
 * kube-scheduler retries a pod that an extender rejected only after events of Pods, Nodes
 * or storage, else after five minutes. It misses other causes of free memory (a card
 * recovered, an Scv returned, a bind failed), and it may retry after a pod left before
 * this process has seen that. So when a change makes a node fit for a class of pending
 * pods, the leader changes an annotation of the Node, at most once a second per node.
 *
 * A new leader does not know why pods were rejected before, or what has changed since.
 * So once it may bind, it wakes kube-scheduler for one node for each request that fits
 * somewhere: one is enough, because kube-scheduler retries a pod that an extender rejected
 * after the event of any node (with SchedulerQueueingHints, on by default since 1.32; before,
 * of any node that admits it). What its first lists bring is no change, and wakes for no node:
 * in a cluster of 5,000 nodes these would be 5,000 PATCHes.
 *
 * Cordoned nodes are included: a pending pod may tolerate the taint, which is not known
 * here. Uncordoning is an event by itself.
 *
 * A gang (core_gang.c) was rejected because its members do not fit together. So while
 * members of gangs are pending, every node that gains memory for a pending pod counts. So
 * does every node that a pod without GPU has left and whose cards suffice for a member,
 * because members need CPU, too. (A single pod is never rejected for CPU here.)
 */

enum {
    RETRY_MS = 2000,
    BEGIN_CLASSES_MAX = 256, /* of a new leader; bounds the time of that step */
};

static int64_t free_mib_of(const struct ledger_node *node)
{
    int64_t sum = 0;
    for (uint32_t i = 0; node && i < node->n_cards; i++)
        sum += node->cards[i].free_mib;
    return sum;
}

struct wakeup_fits wakeup_before(struct step *s, struct span node_name)
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
            .fits = node && placement_fit(node, &classes[i].request) == FIT_YES,
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
    wakeup->node = (struct span){xmemdup0(node.p, node.n), node.n};
    MEM_GROW(core->wakeups, core->wakeups_cap, core->n_wakeups + 1);
    core->wakeups[core->n_wakeups++] = wakeup;
    map_set(&core->wakeups_by_node, wakeup);
    return wakeup;
}

static void wakeup_free(struct wakeup *wakeup)
{
    free((char *)wakeup->node.p);
    free(wakeup);
}

void wakeup_init(struct core *core)
{
    map_init(&core->wakeups_by_node, core->settings.seed, offsetof(struct wakeup, node));
}

void wakeup_fini(struct core *core)
{
    for (size_t i = 0; i < core->n_wakeups; i++)
        wakeup_free(core->wakeups[i]);
    map_fini(&core->wakeups_by_node);
    free(core->wakeups);
}

void wakeup_after(struct step *s, const struct wakeup_fits *before)
{
    struct core *core = s->core;
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    const struct ledger_node *node =
        before->n ? ledger_node_find(core->ledger, before->node) : NULL;
    /* Where one member fitted before, two may fit now. */
    bool gangs =
        ledger_pending_members(core->ledger) > 0 && free_mib_of(node) > before->free_mib;
    for (size_t i = 0; node && i < n; i++) {
        if ((!gangs && !did_not_fit(before, i, classes[i].id)) ||
            placement_fit(node, &classes[i].request) != FIT_YES)
            continue;
        wakeup_of(core, before->node)->due = true;
        return;
    }
}

void wakeup_gangs(struct step *s, const struct ledger_node *node)
{
    struct core *core = s->core;
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    if (!core->wakeups_begun || !node || !ledger_pending_members(core->ledger))
        return;
    const struct wakeup *known = map_get(&core->wakeups_by_node, node->name);
    for (size_t i = 0; i < n && !(known && known->due); i++) {
        if (!classes[i].members || placement_fit(node, &classes[i].request) != FIT_YES)
            continue;
        wakeup_of(core, node->name)->due = true;
        return;
    }
}

void wakeup_node(struct step *s, struct span node)
{
    size_t n;
    ledger_classes(s->core->ledger, &n);
    if (s->core->wakeups_begun && n)
        wakeup_of(s->core, node)->due = true;
}

static bool fits_any(const struct core *core, struct span node_name)
{
    size_t n;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    const struct ledger_node *node = ledger_node_find(core->ledger, node_name);
    for (size_t i = 0; node && i < n; i++)
        if (placement_fit(node, &classes[i].request) == FIT_YES)
            return true;
    return false;
}

static void begin(struct step *s)
{
    struct core *core = s->core;
    size_t n;
    struct err err;
    const struct ledger_class *classes = ledger_classes(core->ledger, &n);
    if (core_may_bind(core, s->now, &err))
        return;
    core->wakeups_begun = true;
    n = n < BEGIN_CLASSES_MAX ? n : BEGIN_CLASSES_MAX;
    bool *done = arena_zalloc(&core->scratch, n * sizeof *done);
    size_t left = n;
    for (uint32_t slot = 0; left && slot < ledger_node_slots(core->ledger); slot++) {
        const struct ledger_node *node = ledger_node_at(core->ledger, slot);
        size_t before = left;
        for (size_t i = 0; node && i < n; i++)
            if (!done[i] && placement_fit(node, &classes[i].request) == FIT_YES) {
                done[i] = true;
                left--;
            }
        if (left < before)
            wakeup_of(core, node->name)->due = true;
    }
}

static void send_wakeup(struct step *s, struct wakeup *wakeup)
{
    cleanup_buf struct buf value = {0};
    clock_format_us(&value, s->now.wall_ns / 1000);
    wakeup->due = false;
    wakeup->call = core_next_id(s->core);
    wakeup->not_before_ms = s->now.mono_ms + CORE_WAKEUP_INTERVAL_MS;
    const char *node = output_str(s, wakeup->node),
               *text = output_str(s, buf_span(&value));
    struct core_output *o = output_add(s, CORE_CALL_WAKEUP);
    o->call = wakeup->call;
    o->node = node;
    o->value = text;
}

void wakeup_tick(struct step *s)
{
    struct core *core = s->core;
    size_t kept = 0;
    if (!core->wakeups_begun)
        begin(s);
    for (size_t i = 0; i < core->n_wakeups; i++) {
        struct wakeup *wakeup = core->wakeups[i];
        if (wakeup->due && !wakeup->call && wakeup->not_before_ms <= s->now.mono_ms) {
            wakeup->due = fits_any(core, wakeup->node); /* still */
            if (wakeup->due)
                send_wakeup(s, wakeup);
        }
        if (wakeup->due || wakeup->call || wakeup->not_before_ms > s->now.mono_ms) {
            core->wakeups[kept++] = wakeup;
            continue;
        }
        map_remove(&core->wakeups_by_node, wakeup->node);
        wakeup_free(wakeup);
    }
    core->n_wakeups = kept;
}

bool wakeup_answered(struct step *s)
{
    const struct core_input *in = s->in;
    for (size_t i = 0; i < s->core->n_wakeups; i++) {
        struct wakeup *wakeup = s->core->wakeups[i];
        if (wakeup->call != in->call)
            continue;
        wakeup->call = 0;
        enum err_code code = in->err ? in->err->code : ERR_NONE;
        if (code != ERR_NONE && code != ERR_NOT_FOUND) {
            wakeup->due = true;
            wakeup->not_before_ms = s->now.mono_ms + RETRY_MS;
            output_log(s, code,
                       "node %.*s: cannot wake up kube-scheduler: %s; retrying in %d s",
                       SPAN_ARG(wakeup->node), in->err->msg, RETRY_MS / 1000);
        }
        return true;
    }
    return false;
}

int64_t wakeup_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < core->n_wakeups; i++) {
        const struct wakeup *wakeup = core->wakeups[i];
        if (wakeup->due && !wakeup->call && wakeup->not_before_ms < due)
            due = wakeup->not_before_ms;
    }
    return due;
}
