/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "placement/placement.h"

/*
 * Which nodes are alive: scv-agent renews a Lease for its node. When its renewTime has
 * not changed for the grace, as far as this process can tell, the node gets no new pods
 * until it changes. The time in the Lease is only compared with the one before: no clock
 * of another machine counts. A Lease that is deleted is one that is not renewed. A node
 * that never had one, whose Scv another daemon writes, is left alone; and so is one whose
 * Lease was deleted because another daemon has taken over, as its Scv shows.
 *
 * Not having heard of a renewal proves something only if it would have been heard of. So
 * a node is judged when the watch has delivered something, of whatever node, after the
 * renewal was due, and never paused for long since the last renewal: news come in order,
 * but after a pause those that piled up come late. Otherwise (few nodes, a dead
 * connection, a process that stood still) the Leases are listed, and the list judges. A
 * watch or list that failed makes nobody silent, and when it works again everybody has
 * the whole grace anew.
 *
 * Those heard of are listed by when that was, so that a tick looks at the first alone.
 */

enum {
    CONFIRM_MS = 2000, /* after a renewal was due: for other news to come first */
    PAUSE_MS = 5000,   /* of the watch: what comes after it may have piled up */
};

static void list_add(struct beats *list, struct beat *b)
{
    b->next = NULL;
    b->prev = list->last;
    if (list->last)
        list->last->next = b;
    else
        list->first = b;
    list->last = b;
}

static void list_remove(struct beats *list, struct beat *b)
{
    if (b->prev)
        b->prev->next = b->next;
    else
        list->first = b->next;
    if (b->next)
        b->next->prev = b->prev;
    else
        list->last = b->prev;
}

static struct beats *list_of(struct core *core, const struct beat *b)
{
    return b->silent ? &core->alive.silent : &core->alive.fresh;
}

static void beat_free(struct beat *b)
{
    free((char *)b->node.p);
    free(b);
}

static void beat_drop(struct core *core, struct beat *b)
{
    ledger_node_silent(core->ledger, b->node, 0);
    list_remove(list_of(core, b), b);
    map_remove(&core->alive.by_node, b->node);
    beat_free(b);
}

void alive_init(struct core *core)
{
    map_init(&core->alive.by_node, core->settings.seed, offsetof(struct beat, node));
}

void alive_fini(struct core *core)
{
    struct beats *lists[] = {&core->alive.fresh, &core->alive.silent};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        while (lists[i]->first)
            beat_drop(core, lists[i]->first);
    map_fini(&core->alive.by_node);
}

/* For so many seconds; 0: it is heard of. */
static void set_silent(struct step *s, struct beat *b, int64_t seconds)
{
    struct core *core = s->core;
    list_remove(list_of(core, b), b);
    b->silent = seconds > 0;
    b->scv_s = 0;
    list_add(list_of(core, b), b);
    ledger_node_silent(core->ledger, b->node, seconds);
}

static struct beat *beat_new(struct core *core, struct span node)
{
    struct beat *b = xcalloc(1, sizeof *b);
    b->node.n = node.n;
    b->node.p = xmemdup0(node.p, node.n);
    list_add(&core->alive.fresh, b);
    map_set(&core->alive.by_node, b);
    return b;
}

/* A Lease as a list or watch shows it. */
void alive_seen(struct step *s, const struct lease *lease)
{
    struct core *core = s->core;
    struct beat *b = map_get(&core->alive.by_node, lease->meta.name);
    uint64_t renewed =
        hash_bytes(core->settings.seed, lease->renew_time.p, lease->renew_time.n);
    if (b && b->renewed == renewed)
        return;
    if (!b)
        b = beat_new(core, lease->meta.name);
    if (b->silent)
        out_note(s, ERR_NONE, "scv-agent on node %.*s is heard of again",
                 SPAN_ARG(b->node));
    b->renewed = renewed;
    b->heard_ms = s->now.mono_ms;
    set_silent(s, b, 0);
}

/* A node without a Lease may have had one. One of which nothing is known is left alone:
 * nobody would forget it again. */
void alive_told(struct step *s)
{
    struct core *core = s->core;
    struct beat *b = map_get(&core->alive.by_node, s->in->node_name);
    if (!b && s->in->silent_s > 0 &&
        ledger_node_has(core->ledger, s->in->node_name, LEDGER_SCV))
        b = beat_new(core, s->in->node_name);
    if (!b)
        return;
    if (s->in->silent_s <= 0) /* in the order of when that was */
        b->heard_ms = s->now.mono_ms;
    set_silent(s, b, s->in->silent_s);
}

/* Somebody writes the Scv of a silent node whose Lease is gone. One new updateTime can be
 * the agent's last, which a list shows late; a second one cannot. */
void alive_scv_seen(struct step *s, const struct scv *scv)
{
    struct core *core = s->core;
    struct beat *b = map_get(&core->alive.by_node, scv->meta.name);
    if (!b || !b->silent || !scv->has_update_time ||
        ledger_node_has(core->ledger, b->node, LEDGER_LEASE))
        return;
    if (b->scv_s && b->scv_s != scv->update_time) {
        out_note(s, ERR_NONE,
                 "the Scv of node %.*s is written without a heartbeat: it is not waited "
                 "for any more",
                 SPAN_ARG(b->node));
        beat_drop(core, b);
        return;
    }
    b->scv_s = scv->update_time;
}

/* Neither Scv nor Lease: what comes later begins anew, and nobody is to be judged. */
static bool is_over(const struct core *core, const struct beat *b)
{
    return !ledger_node_has(core->ledger, b->node, LEDGER_SCV) &&
           !ledger_node_has(core->ledger, b->node, LEDGER_LEASE);
}

void alive_gone(struct step *s, struct span node)
{
    struct beat *b = map_get(&s->core->alive.by_node, node);
    if (b && is_over(s->core, b))
        beat_drop(s->core, b);
}

void alive_swept(struct step *s)
{
    struct core *core = s->core;
    struct beats *lists[] = {&core->alive.fresh, &core->alive.silent};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        for (struct beat *b = lists[i]->first, *next; b; b = next) {
            next = b->next;
            if (is_over(core, b))
                beat_drop(core, b);
        }
    }
}

static void came(struct step *s)
{
    struct alive *alive = &s->core->alive;
    if (alive->broken)
        alive->since_ms = s->now.mono_ms;
    alive->broken = false;
    alive->came_ms = s->now.mono_ms;
}

void alive_watch_spoke(struct step *s)
{
    struct alive *alive = &s->core->alive;
    if (s->now.mono_ms > alive->came_ms + PAUSE_MS)
        alive->lively_ms = s->now.mono_ms;
    alive->spoke_ms = s->now.mono_ms;
    came(s);
}

void alive_listed(struct step *s, int64_t asked_ms)
{
    s->core->alive.listed_ms = asked_ms;
    came(s);
}

void alive_broken(struct step *s)
{
    s->core->alive.broken = true;
}

static bool can_judge(const struct core *core)
{
    const struct cursor *c = &core->cursors[CORE_LEASES];
    bool watched = c->state == CURSOR_WATCHING || c->state == CURSOR_WATCH_DUE;
    return core->settings.node_grace_ms > 0 && c->synced && watched &&
           !core->alive.broken;
}

/* When the next renewal of the node is missing. */
static int64_t missing_at(const struct core *core, const struct beat *b)
{
    int64_t from = b->heard_ms;
    if (core->alive.since_ms > from)
        from = core->alive.since_ms;
    return from + core->settings.node_grace_ms;
}

/* Would the renewal that is missing have been heard of? */
static bool is_proven(const struct core *core, const struct beat *b)
{
    const struct alive *alive = &core->alive;
    int64_t at = missing_at(core, b);
    return alive->listed_ms >= at ||
           (alive->spoke_ms >= at &&
            alive->lively_ms <= at - core->settings.node_grace_ms);
}

static void note_silent(struct step *s, size_t n, const struct beat *last)
{
    long long grace_s = (s->core->settings.node_grace_ms + 999) / 1000;
    cleanup_buf struct buf whose = {0};
    const struct ledger_node *node =
        n ? ledger_node_find(s->core->ledger, last->node) : NULL;
    if (node)
        reason_add_foreign_lease(&whose, node);
    if (n == 1)
        out_note(s, ERR_TIMEOUT,
                 "scv-agent on node %.*s has not been heard of for %lld s: the node gets "
                 "no new pods%.*s",
                 SPAN_ARG(last->node), grace_s, SPAN_ARG(buf_span(&whose)));
    else if (n > 1)
        out_note(s, ERR_TIMEOUT,
                 "scv-agent on %zu nodes, %.*s among them, has not been heard of for "
                 "%lld s: they get no new pods%.*s",
                 n, SPAN_ARG(last->node), grace_s, SPAN_ARG(buf_span(&whose)));
}

void alive_tick(struct step *s)
{
    struct core *core = s->core;
    struct alive *alive = &core->alive;
    struct beat *b;
    int64_t grace_s = (core->settings.node_grace_ms + 999) / 1000;
    size_t n = 0;
    if (!can_judge(core))
        return;
    while ((b = alive->fresh.first) && missing_at(core, b) <= s->now.mono_ms) {
        if (!is_proven(core, b))
            break;
        set_silent(s, b, grace_s);
        n++;
    }
    note_silent(s, n, alive->silent.last);
    if (b && s->now.mono_ms >= missing_at(core, b) + CONFIRM_MS)
        sync_relist(s, CORE_LEASES);
}

int64_t alive_due(const struct core *core)
{
    const struct beat *b = core->alive.fresh.first;
    if (!b || !can_judge(core))
        return INT64_MAX;
    return missing_at(core, b) + (is_proven(core, b) ? 0 : CONFIRM_MS);
}
