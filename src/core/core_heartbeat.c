/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "placement/reason.h"

/*
 * Heartbeats: scv-agent renews a Lease for its node. A node whose renewTime has not
 * changed for the grace period is stale: it gets no new pods until renewTime changes.
 * renewTime is compared only with its previous value, never with a clock. A deleted Lease
 * is one that is not renewed. A node that never had a Lease (another daemon writes its
 * Scv) is never stale, nor is one whose Lease was deleted because another daemon took
 * over, as new updates of the Scv show.
 *
 * A missed renewal counts only if the watch was healthy enough to deliver it. So a node
 * becomes stale when the watch has delivered an event of any node after the renewal was
 * due, and had no long pause since the last renewal: events arrive in order, but after a
 * pause a backlog may arrive late. Otherwise (few nodes, a dead connection, a suspended
 * process) the Leases are listed, and the list decides. A list after a silence that shows
 * no renewal at all may end an outage of the API server, in which no scv-agent could renew:
 * then the next list decides. While a list or watch fails, no node becomes stale; when it
 * works again, every node has the whole grace period.
 *
 * Fresh heartbeats are ordered by renewal, so a tick looks at the first one only.
 */

enum {
    CONFIRM_MS = 2000, /* after a renewal was due, for another event to arrive */
    PAUSE_MS =
        5000, /* a silence: what arrives after it may be a backlog or end an outage */
};

static void heartbeat_drop(struct core *core, struct heartbeat *b)
{
    ledger_node_set_stale(core->ledger, b->node, 0);
    list_remove(&b->link);
    map_remove(&core->heartbeats.by_node, b->node);
    core_disown(&b->node);
    free(b);
}

/* Neither Scv nor Lease exists: a later object starts from scratch. */
static bool is_orphan(const struct core *core, const struct heartbeat *b)
{
    return !ledger_node_has(core->ledger, b->node, LEDGER_SCV) &&
           !ledger_node_has(core->ledger, b->node, LEDGER_LEASE);
}

static void drop_list(struct core *core, struct list *list, bool all)
{
    LIST_EACH(struct heartbeat, b, list, link)
    if (all || is_orphan(core, b))
        heartbeat_drop(core, b);
}

void core_heartbeat_init(struct core *core)
{
    struct heartbeats *h = &core->heartbeats;
    list_init(&h->fresh);
    list_init(&h->stale);
    map_init(&h->by_node, core->settings.seed, offsetof(struct heartbeat, node));
}

void core_heartbeat_fini(struct core *core)
{
    drop_list(core, &core->heartbeats.fresh, true);
    drop_list(core, &core->heartbeats.stale, true);
    map_fini(&core->heartbeats.by_node);
}

void core_heartbeat_swept(struct step *s)
{
    drop_list(s->core, &s->core->heartbeats.fresh, false);
    drop_list(s->core, &s->core->heartbeats.stale, false);
}

/* `seconds`: age of the heartbeat; 0: fresh. */
static void set_age(struct step *s, struct heartbeat *b, int64_t seconds)
{
    struct core *core = s->core;
    list_remove(&b->link);
    b->stale = seconds > 0;
    b->scv_s = 0;
    list_append(b->stale ? &core->heartbeats.stale : &core->heartbeats.fresh, &b->link);
    ledger_node_set_stale(core->ledger, b->node, seconds);
}

static struct heartbeat *heartbeat_new(struct core *core, struct span node)
{
    struct heartbeat *b = xcalloc(1, sizeof *b);
    b->node = core_own(node);
    list_append(&core->heartbeats.fresh, &b->link);
    map_set(&core->heartbeats.by_node, b);
    return b;
}

/* A Lease as a list or watch shows it. */
void core_heartbeat_seen(struct step *s, const struct lease *lease)
{
    struct core *core = s->core;
    struct heartbeat *b = map_get(&core->heartbeats.by_node, lease->meta.name);
    uint64_t renewed =
        hash_bytes(core->settings.seed, lease->renew_time.p, lease->renew_time.n);
    if (b && b->renewed == renewed)
        return;
    if (!b)
        b = heartbeat_new(core, lease->meta.name);
    if (b->stale)
        core_log(s, ERR_NONE, "node %.*s: the heartbeat from scv-agent is back",
                 SPAN_ARG(b->node));
    b->renewed = renewed;
    b->renewed_ms = core->heartbeats.renewed_ms = s->now.mono_ms;
    set_age(s, b, 0);
}

/* A node without a Lease may have had one. A node without an Scv is ignored: nothing would
 * remove its heartbeat again. */
void core_heartbeat_set_stale(struct step *s)
{
    struct core *core = s->core;
    struct heartbeat *b = map_get(&core->heartbeats.by_node, s->in->node_name);
    if (!b && s->in->stale_s > 0 &&
        ledger_node_has(core->ledger, s->in->node_name, LEDGER_SCV))
        b = heartbeat_new(core, s->in->node_name);
    if (!b)
        return;
    if (s->in->stale_s <= 0) /* the fresh list is ordered by this */
        b->renewed_ms = s->now.mono_ms;
    set_age(s, b, s->in->stale_s);
}

/* Another daemon may write the Scv of a stale node whose Lease was deleted. The first new
 * updateTime can be the last one of scv-agent, which a list shows late; a second cannot. */
void core_heartbeat_scv_seen(struct step *s, const struct scv *scv)
{
    struct core *core = s->core;
    struct heartbeat *b = map_get(&core->heartbeats.by_node, scv->meta.name);
    if (!b || !b->stale || !scv->has_update_time ||
        ledger_node_has(core->ledger, b->node, LEDGER_LEASE))
        return;
    if (b->scv_s && b->scv_s != scv->update_time) {
        core_log(s, ERR_NONE,
                 "node %.*s: another program writes the Scv; the missing heartbeat from "
                 "scv-agent is ignored",
                 SPAN_ARG(b->node));
        heartbeat_drop(core, b);
        return;
    }
    b->scv_s = scv->update_time;
}

void core_heartbeat_deleted(struct step *s, struct span node)
{
    struct heartbeat *b = map_get(&s->core->heartbeats.by_node, node);
    if (b && is_orphan(s->core, b))
        heartbeat_drop(s->core, b);
}

static void delivered(struct step *s)
{
    struct heartbeats *h = &s->core->heartbeats;
    if (h->broken && !MUTANT(no_grace_after_outage))
        h->working_since_ms = s->now.mono_ms;
    h->broken = false;
    h->last_ms = s->now.mono_ms;
}

void core_heartbeat_watch_event(struct step *s)
{
    struct heartbeats *h = &s->core->heartbeats;
    if (s->now.mono_ms > h->last_ms + PAUSE_MS)
        h->no_pause_since_ms = s->now.mono_ms;
    h->event_ms = s->now.mono_ms;
    delivered(s);
}

void core_heartbeat_listed(struct step *s, int64_t requested_ms)
{
    struct heartbeats *h = &s->core->heartbeats;
    bool silent = requested_ms > h->last_ms + PAUSE_MS;
    if (!silent || h->renewed_ms >= requested_ms)
        h->listed_ms = requested_ms;
    else
        h->doubted_ms = h->no_pause_since_ms = s->now.mono_ms;
    delivered(s);
}

void core_heartbeat_broken(struct step *s)
{
    s->core->heartbeats.broken = true;
}

static bool can_check(const struct core *core)
{
    const struct cursor *c = &core->cursors[CORE_LEASES];
    bool watched = c->state == CURSOR_WATCHING || c->state == CURSOR_WATCH_DUE;
    return core->settings.node_grace_ms > 0 && c->synced && watched &&
           !core->heartbeats.broken;
}

/* When the heartbeat becomes stale unless it is renewed. */
static int64_t stale_at(const struct core *core, const struct heartbeat *b)
{
    int64_t from = b->renewed_ms;
    if (core->heartbeats.working_since_ms > from)
        from = core->heartbeats.working_since_ms;
    return from + core->settings.node_grace_ms;
}

/* Would a list or watch have delivered the missed renewal? */
static bool is_proven(const struct core *core, const struct heartbeat *b)
{
    const struct heartbeats *h = &core->heartbeats;
    int64_t at = stale_at(core, b);
    if (MUTANT(stale_heartbeat_without_proof))
        return at > 0;
    return h->listed_ms >= at ||
           (h->event_ms >= at &&
            h->no_pause_since_ms <= at - core->settings.node_grace_ms);
}

/* When a list is requested if nothing proves that the renewal is missing. */
static int64_t relist_at(const struct core *core, const struct heartbeat *b)
{
    int64_t from = stale_at(core, b), doubted = core->heartbeats.doubted_ms;
    return (from > doubted ? from : doubted) + CONFIRM_MS;
}

/* The heartbeat that becomes stale next; NULL: none, or that cannot be checked now. */
static struct heartbeat *first_fresh(const struct core *core)
{
    return can_check(core) ? LIST_FIRST(&core->heartbeats.fresh, struct heartbeat, link)
                           : NULL;
}

/* `n` nodes became stale, the last one at the end of the list. */
static void log_stale(struct step *s, size_t n)
{
    const struct core *core = s->core;
    const struct heartbeat *last =
        LIST_ITEM(core->heartbeats.stale.prev, struct heartbeat, link);
    long long grace_s = (core->settings.node_grace_ms + 999) / 1000;
    cleanup_buf struct buf owner = {0};
    const struct ledger_node *node = ledger_node_find(core->ledger, last->node);
    if (node)
        reason_add_foreign_lease(&owner, node);
    if (n == 1)
        core_log(s, ERR_TIMEOUT,
                 "node %.*s: no heartbeat from scv-agent for %lld s; the node gets no "
                 "new pods%.*s",
                 SPAN_ARG(last->node), grace_s, SPAN_ARG(buf_span(&owner)));
    else
        core_log(s, ERR_TIMEOUT,
                 "%zu nodes (one of them %.*s): no heartbeat from scv-agent for %lld s; "
                 "they get no new pods%.*s",
                 n, SPAN_ARG(last->node), grace_s, SPAN_ARG(buf_span(&owner)));
}

void core_heartbeat_tick(struct step *s)
{
    struct heartbeat *b;
    int64_t now_ms = s->now.mono_ms;
    size_t n = 0;
    for (; (b = first_fresh(s->core)) && stale_at(s->core, b) <= now_ms &&
           is_proven(s->core, b);
         n++)
        set_age(s, b, (s->core->settings.node_grace_ms + 999) / 1000);
    if (n)
        log_stale(s, n);
    if (b && now_ms >= relist_at(s->core, b))
        core_sync_relist(s, CORE_LEASES);
}

int64_t core_heartbeat_due(const struct core *core)
{
    const struct heartbeat *b = first_fresh(core);
    return !b ? INT64_MAX : is_proven(core, b) ? stale_at(core, b) : relist_at(core, b);
}
