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

static void list_add(struct heartbeat_list *list, struct heartbeat *b)
{
    b->next = NULL;
    b->prev = list->last;
    if (list->last)
        list->last->next = b;
    else
        list->first = b;
    list->last = b;
}

static void list_remove(struct heartbeat_list *list, struct heartbeat *b)
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

static struct heartbeat_list *list_of(struct core *core, const struct heartbeat *b)
{
    return b->silent ? &core->heartbeats.silent : &core->heartbeats.fresh;
}

static void heartbeat_free(struct heartbeat *b)
{
    free((char *)b->node.p);
    free(b);
}

static void heartbeat_drop(struct core *core, struct heartbeat *b)
{
    ledger_node_set_stale(core->ledger, b->node, 0);
    list_remove(list_of(core, b), b);
    map_remove(&core->heartbeats.by_node, b->node);
    heartbeat_free(b);
}

void heartbeat_init(struct core *core)
{
    map_init(&core->heartbeats.by_node, core->settings.seed, offsetof(struct heartbeat, node));
}

void heartbeat_fini(struct core *core)
{
    struct heartbeat_list *lists[] = {&core->heartbeats.fresh, &core->heartbeats.silent};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        while (lists[i]->first)
            heartbeat_drop(core, lists[i]->first);
    map_fini(&core->heartbeats.by_node);
}

/* For so many seconds; 0: it is heard of. */
static void set_silent(struct step *s, struct heartbeat *b, int64_t seconds)
{
    struct core *core = s->core;
    list_remove(list_of(core, b), b);
    b->silent = seconds > 0;
    b->scv_s = 0;
    list_add(list_of(core, b), b);
    ledger_node_set_stale(core->ledger, b->node, seconds);
}

static struct heartbeat *heartbeat_new(struct core *core, struct span node)
{
    struct heartbeat *b = xcalloc(1, sizeof *b);
    b->node.n = node.n;
    b->node.p = xmemdup0(node.p, node.n);
    list_add(&core->heartbeats.fresh, b);
    map_set(&core->heartbeats.by_node, b);
    return b;
}

/* A Lease as a list or watch shows it. */
void heartbeat_seen(struct step *s, const struct lease *lease)
{
    struct core *core = s->core;
    struct heartbeat *b = map_get(&core->heartbeats.by_node, lease->meta.name);
    uint64_t renewed =
        hash_bytes(core->settings.seed, lease->renew_time.p, lease->renew_time.n);
    if (b && b->renewed == renewed)
        return;
    if (!b)
        b = heartbeat_new(core, lease->meta.name);
    if (b->silent)
        output_log(s, ERR_NONE, "scv-agent on node %.*s is heard of again",
                 SPAN_ARG(b->node));
    b->renewed = renewed;
    b->renewed_ms = s->now.mono_ms;
    set_silent(s, b, 0);
}

/* A node without a Lease may have had one. One of which nothing is known is left alone:
 * nobody would forget it again. */
void heartbeat_set_stale(struct step *s)
{
    struct core *core = s->core;
    struct heartbeat *b = map_get(&core->heartbeats.by_node, s->in->node_name);
    if (!b && s->in->stale_s > 0 &&
        ledger_node_has(core->ledger, s->in->node_name, LEDGER_SCV))
        b = heartbeat_new(core, s->in->node_name);
    if (!b)
        return;
    if (s->in->stale_s <= 0) /* in the order of when that was */
        b->renewed_ms = s->now.mono_ms;
    set_silent(s, b, s->in->stale_s);
}

/* Somebody writes the Scv of a silent node whose Lease is gone. One new updateTime can be
 * the agent's last, which a list shows late; a second one cannot. */
void heartbeat_scv_seen(struct step *s, const struct scv *scv)
{
    struct core *core = s->core;
    struct heartbeat *b = map_get(&core->heartbeats.by_node, scv->meta.name);
    if (!b || !b->silent || !scv->has_update_time ||
        ledger_node_has(core->ledger, b->node, LEDGER_LEASE))
        return;
    if (b->scv_s && b->scv_s != scv->update_time) {
        output_log(s, ERR_NONE,
                 "the Scv of node %.*s is written without a heartbeat: it is not waited "
                 "for any more",
                 SPAN_ARG(b->node));
        heartbeat_drop(core, b);
        return;
    }
    b->scv_s = scv->update_time;
}

/* Neither Scv nor Lease: what comes later begins anew, and nobody is to be judged. */
static bool is_over(const struct core *core, const struct heartbeat *b)
{
    return !ledger_node_has(core->ledger, b->node, LEDGER_SCV) &&
           !ledger_node_has(core->ledger, b->node, LEDGER_LEASE);
}

void heartbeat_deleted(struct step *s, struct span node)
{
    struct heartbeat *b = map_get(&s->core->heartbeats.by_node, node);
    if (b && is_over(s->core, b))
        heartbeat_drop(s->core, b);
}

void heartbeat_swept(struct step *s)
{
    struct core *core = s->core;
    struct heartbeat_list *lists[] = {&core->heartbeats.fresh, &core->heartbeats.silent};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        for (struct heartbeat *b = lists[i]->first, *next; b; b = next) {
            next = b->next;
            if (is_over(core, b))
                heartbeat_drop(core, b);
        }
    }
}

static void came(struct step *s)
{
    struct heartbeats *h = &s->core->heartbeats;
    if (h->broken)
        h->working_since_ms = s->now.mono_ms;
    h->broken = false;
    h->last_ms = s->now.mono_ms;
}

void heartbeat_watch_event(struct step *s)
{
    struct heartbeats *h = &s->core->heartbeats;
    if (s->now.mono_ms > h->last_ms + PAUSE_MS)
        h->no_pause_since_ms = s->now.mono_ms;
    h->event_ms = s->now.mono_ms;
    came(s);
}

void heartbeat_listed(struct step *s, int64_t requested_ms)
{
    s->core->heartbeats.listed_ms = requested_ms;
    came(s);
}

void heartbeat_broken(struct step *s)
{
    s->core->heartbeats.broken = true;
}

static bool can_judge(const struct core *core)
{
    const struct cursor *c = &core->cursors[CORE_LEASES];
    bool watched = c->state == CURSOR_WATCHING || c->state == CURSOR_WATCH_DUE;
    return core->settings.node_grace_ms > 0 && c->synced && watched &&
           !core->heartbeats.broken;
}

/* When the next renewal of the node is missing. */
static int64_t missing_at(const struct core *core, const struct heartbeat *b)
{
    int64_t from = b->renewed_ms;
    if (core->heartbeats.working_since_ms > from)
        from = core->heartbeats.working_since_ms;
    return from + core->settings.node_grace_ms;
}

/* Would the renewal that is missing have been heard of? */
static bool is_proven(const struct core *core, const struct heartbeat *b)
{
    const struct heartbeats *h = &core->heartbeats;
    int64_t at = missing_at(core, b);
    return h->listed_ms >= at ||
           (h->event_ms >= at &&
            h->no_pause_since_ms <= at - core->settings.node_grace_ms);
}

static void log_stale(struct step *s, size_t n, const struct heartbeat *last)
{
    long long grace_s = (s->core->settings.node_grace_ms + 999) / 1000;
    cleanup_buf struct buf whose = {0};
    const struct ledger_node *node =
        n ? ledger_node_find(s->core->ledger, last->node) : NULL;
    if (node)
        placement_foreign_lease(&whose, node);
    if (n == 1)
        output_log(s, ERR_TIMEOUT,
                 "scv-agent on node %.*s has not been heard of for %lld s: the node gets "
                 "no new pods%.*s",
                 SPAN_ARG(last->node), grace_s, SPAN_ARG(buf_span(&whose)));
    else if (n > 1)
        output_log(s, ERR_TIMEOUT,
                 "scv-agent on %zu nodes, %.*s among them, has not been heard of for "
                 "%lld s: they get no new pods%.*s",
                 n, SPAN_ARG(last->node), grace_s, SPAN_ARG(buf_span(&whose)));
}

void heartbeat_tick(struct step *s)
{
    struct core *core = s->core;
    struct heartbeats *h = &core->heartbeats;
    struct heartbeat *b;
    int64_t grace_s = (core->settings.node_grace_ms + 999) / 1000;
    size_t n = 0;
    if (!can_judge(core))
        return;
    while ((b = h->fresh.first) && missing_at(core, b) <= s->now.mono_ms) {
        if (!is_proven(core, b))
            break;
        set_silent(s, b, grace_s);
        n++;
    }
    log_stale(s, n, h->silent.last);
    if (b && s->now.mono_ms >= missing_at(core, b) + CONFIRM_MS)
        sync_relist(s, CORE_LEASES);
}

int64_t heartbeat_due(const struct core *core)
{
    const struct heartbeat *b = core->heartbeats.fresh.first;
    if (!b || !can_judge(core))
        return INT64_MAX;
    return missing_at(core, b) + (is_proven(core, b) ? 0 : CONFIRM_MS);
}
