/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/keys.h"
#include "domain/promise.h"
#include "placement/reason.h"

/* Objects of lists and watches into the ledger, heartbeats, and when to list and watch. */

/* -- heartbeats -- */

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
 * process) the Leases are listed, and the list decides. A list after a silence may end an outage
 * of the API server, in which no scv-agent could renew, and show those that were first: then the
 * next list decides. While a list or watch fails, no node becomes stale; when it
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

static void drop_heartbeats(struct core *core, bool all)
{
    struct list *const lists[] = {&core->heartbeats.fresh, &core->heartbeats.stale};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        LIST_EACH(struct heartbeat, b, lists[i], link)
        if (all || is_orphan(core, b))
            heartbeat_drop(core, b);
    }
}

void core_sync_fini(struct core *core)
{
    for (int kind = 0; kind < CORE_ALL_KINDS; kind++)
        reflector_fini(&core->reflectors[kind]);
    drop_heartbeats(core, true);
    map_fini(&core->heartbeats.by_node);
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
static void heartbeat_seen(struct step *s, const struct lease *lease)
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
    b->renewed_ms = s->now.mono_ms;
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
static void heartbeat_scv_seen(struct step *s, const struct scv *scv)
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

static void delivered(struct step *s)
{
    struct heartbeats *h = &s->core->heartbeats;
    if (h->broken && !MUTANT(no_grace_after_outage))
        h->working_since_ms = s->now.mono_ms;
    h->broken = false;
    h->last_ms = s->now.mono_ms;
}

/* An event or bookmark of Leases. */
static void heartbeat_watch_event(struct step *s)
{
    struct heartbeats *h = &s->core->heartbeats;
    if (s->now.mono_ms > h->last_ms + PAUSE_MS)
        h->no_pause_since_ms = s->now.mono_ms;
    h->event_ms = s->now.mono_ms;
    delivered(s);
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
    const struct reflector *r = &core->reflectors[CORE_LEASES];
    bool watched = r->state == REFLECTOR_WATCHING || r->state == REFLECTOR_WATCH_DUE;
    return core->settings.node_grace_ms > 0 && r->synced && watched &&
                   !core->heartbeats.broken
               ? LIST_FIRST(&core->heartbeats.fresh, struct heartbeat, link)
               : NULL;
}

/* `n` nodes became stale, the last one at the end of the list. */
static void log_stale(struct step *s, size_t n)
{
    const struct core *core = s->core;
    struct span name =
        LIST_ITEM(core->heartbeats.stale.prev, struct heartbeat, link)->node;
    const struct ledger_node *node = ledger_node_find(core->ledger, name);
    cleanup_buf struct buf owner = {0};
    if (node)
        reason_add_foreign_lease(&owner, node);
    const char *nodes =
        n == 1 ? step_printf(s->out, "node %.*s", SPAN_ARG(name))
               : step_printf(s->out, "%zu nodes (one of them %.*s)", n, SPAN_ARG(name));
    core_log(s, ERR_TIMEOUT,
             "%s: no heartbeat from scv-agent for %lld s; %s no new pods%.*s", nodes,
             (long long)(core->settings.node_grace_ms + 999) / 1000,
             n == 1 ? "the node gets" : "they get", SPAN_ARG(buf_span(&owner)));
}

static void heartbeat_tick(struct step *s)
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
        reflector_relist(&s->core->reflectors[CORE_LEASES], now_ms);
}

/* -- pods -- */

/*
 * The state of a pod, as a list, watch or GET shows it. It may be old: the answer of a
 * call can overtake a list or an event. But for one UID three states are final: bound to
 * a node, terminal, deleted. They are always applied. "Not bound" is ignored for a pod
 * that is or may be bound.
 */

static void forget_pod(struct step *s, struct ledger_pod *pod)
{
    struct span left =
        pod->node ? arena_copy(&s->core->scratch, pod->node->name) : (struct span){0};
    struct wakeup_fits before =
        core_wakeup_before(s, left.n ? left : core_nominated_to(pod));
    ledger_pod_remove(s->core->ledger, pod);
    core_wakeup_after(s, &before);
    core_holder_review(s, left, true);
}

void core_sync_pod_deleted(struct step *s, struct span uid)
{
    struct ledger_pod *pod = ledger_pod_find(s->core->ledger, uid);
    if (pod && pod->member)
        core_gang_member_left(s, pod);
    struct bind_op *op = core_bind_find(s->core, uid);
    if (pod)
        forget_pod(s, pod);
    const struct ledger_node *left = ledger_nongpu_deleted(s->core->ledger, uid);
    core_wakeup_gangs(s, left);
    if (left)
        core_holder_review(s, left->name, true);
    if (!MUTANT(reservation_outlives_pod))
        core_reserve_end(s, uid, (struct span){0});
    if (op)
        core_bind_deleted(s, op);
}

/* Has a bind by another replica promised something else than this process knows of, because of
 * other labels or another annotation gpushare/memory? Limits cannot be edited. Or has the bind
 * settled a percentage? */
static bool is_promised_otherwise(const struct ledger_pod *entry,
                                  const struct promise *promise)
{
    const struct request *r = entry->request;
    bool whole = r->kind == REQUEST_CARDS;
    if (!entry->node || entry->final || !(r->by_label || r->slots || r->dialect) ||
        !promise->n)
        return false;
    return promise->whole != whole || (!whole && promise->card_mib != r->mib_per_card);
}

static bool asks_for_cards(const struct request *r)
{
    return r->kind == REQUEST_MEMORY || r->kind == REQUEST_CARDS;
}

/* Does the promise name other cards than the pod has? */
static bool is_edited(const struct ledger_pod *entry, const struct promise *promise)
{
    bool edited = promise->n != entry->n_shares;
    for (uint32_t i = 0; i < entry->n_shares && !edited; i++) {
        struct span uuid = entry->shares[i].uuid, named = promise->shares[i].uuid;
        edited = entry->shares[i].card != promise->shares[i].card ||
                 (named.n && uuid.n && !span_eq(named, uuid));
    }
    return edited;
}

/* Records how the annotations differ from the request, and from the promise of the bind.
 * `request`: what the pod asks for now. */
static void note_differences(struct step *s, struct ledger_pod *entry,
                             const struct pod *pod, const struct promise *promise,
                             const struct request *request, bool invalid)
{
    struct core *core = s->core;
    cleanup_buf struct buf text = {0};
    promise_differences(&text, pod, promise, request, invalid,
                        core->settings.ledger.unit_mib);
    if (entry->final && asks_for_cards(entry->request) && is_edited(entry, promise)) {
        buf_adds(&text, text.n ? "; " : "");
        buf_adds(&text, "the annotations were edited after the bind; the cards of the "
                        "bind count until the extender restarts");
    }
    ledger_pod_set_differences(core->ledger, entry, buf_span(&text));
}

static void place_pod(struct step *s, struct ledger_pod *entry, const struct pod *pod,
                      const struct promise *promise)
{
    struct core *core = s->core;
    int64_t unit = core->settings.ledger.unit_mib;
    /* The kubelet chooses the cards of nvidia.com/gpu, unless it is a word of HAMi's on the node.
     * What the node is may not be known yet, but only a bind there writes a record. */
    const struct request *r = entry->asks;
    if (promise->whole || promise->card_mib > 0)
        r = request_on(r, SCV_DIALECT_HAMI);
    size_t n = asks_for_cards(r) ? promise->n : 0;
    struct ledger_share *shares = arena_zalloc(&core->scratch, n * sizeof *shares);
    for (size_t i = 0; i < n; i++)
        shares[i] = (struct ledger_share){
            .card = promise->shares[i].card,
            .mib = promise_share_mib(promise, i, r, unit),
            .unit_mib = (int32_t)promise->unit_mib,
            .card_units = (int32_t)promise->shares[i].card_units,
            .percent = promise->shares[i].percent,
            .compute_percent = promise->shares[i].compute_percent,
            .uuid = promise->shares[i].uuid,
        };
    struct wakeup_fits before =
        core_wakeup_before(s, entry->node ? entry->node->name : pod->node);
    /* Edits of the annotations do not change a promise. */
    bool known = entry->final && entry->node && span_eq(entry->node->name, pod->node);
    if (!known || (MUTANT(edits_of_bound_trusted) && n))
        core_promise_place(s, entry, pod->node, shares, (uint32_t)n);
    entry->final = entry->n_shares > 0;
    if (pod->phase != POD_PENDING)
        ledger_pod_running(core->ledger, entry, !core->reflectors[CORE_PODS].synced);
    core_wakeup_after(s, &before);
}

/*
 * The end of a takeover: from the creation of the ConfigMap KEY_TAKEOVER on, another system's
 * annotations are no promise of pods that were bound later, so that a tenant cannot block cards
 * with them. The times of the ConfigMap and of the pod are the API server's, which nobody can
 * write, all replicas read the same, and a restart changes neither. Without the ConfigMap, or a
 * time, they are a promise.
 *
 * A pod that is known keeps what it counts for until it ends or the process restarts: those that
 * were seen before the ConfigMap was created were bound before, and what was bound later counts
 * rather too much when it is deleted, by its limits on every card.
 */
static void takeover_seen(struct step *s, const struct object_meta *map, bool deleted)
{
    struct core *core = s->core;
    cleanup_buf struct buf time = {0};
    int64_t before = core->takeover_s;
    core->takeover_s = deleted ? 0 : map->created_s;
    core->takeover_run = s->in->run;
    if (core->takeover_s == before)
        return;
    clock_format_s(&time, core->takeover_s);
    core_log(s, ERR_NONE, "ConfigMap " KEY_TAKEOVER ": annotations of HAMi count on %s%s",
             core->takeover_s ? "pods that were bound until " : "all pods",
             core->takeover_s ? time.p : "");
}

/* Is it certain that the pod was bound after that? */
static bool is_bound_later(const struct core *core, const struct pod *pod)
{
    int64_t at_s =
        pod->bound_s > pod->meta.created_s ? pod->bound_s : pod->meta.created_s;
    return core->takeover_s && at_s > core->takeover_s;
}

/* What the state shows the pod to request and to have. */
struct observed {
    struct request request;
    struct promise promise; /* annotations of an unbound pod are no promise */
    bool invalid;           /* the request; `why` says why */
    bool asks;              /* for cards, or it has a promise, which is reported */
    struct err why;
};

static void read_request(struct step *s, const struct pod *pod, struct observed *o)
{
    struct core *core = s->core;
    struct request_rules rules = ledger_rules(&core->settings.ledger);
    bool bound = pod->node.n > 0;
    *o = (struct observed){0};
    if (bound) {
        int bad = 0;
        if (!rules.dialect ||
            !promise_of_hami(pod, rules.dialect, !is_bound_later(core, pod),
                             &core->scratch, &o->promise, &bad, &o->why))
            promise_of(pod, &core->scratch, &o->promise);
        bad |= promise_of_bound(pod, &o->promise, &rules, &core->scratch, &o->request,
                                &o->why);
        o->invalid = bad;
    } else {
        o->invalid = request_of(pod, &rules, &core->scratch, &o->request, &o->why) != 0;
    }
    o->asks = o->invalid || o->request.kind != REQUEST_NONE || o->request.hami ||
              (bound && (pod->idx.p || pod->allocation.p));
}

/* A pod that counts for cards. */
static void observe_pod(struct step *s, const struct pod *pod, const struct observed *o,
                        enum core_pod_source from)
{
    struct ledger *l = s->core->ledger;
    const char *why = o->invalid ? o->why.msg : NULL;
    ledger_nongpu_deleted(l, pod->meta.uid);
    struct wakeup_fits before =
        core_wakeup_before(s, core_nominated_to(ledger_pod_find(l, pod->meta.uid)));
    struct ledger_pod *entry = ledger_pod_add(l, pod, &o->request, why);
    core_wakeup_after(s, &before);
    if (is_promised_otherwise(entry, &o->promise))
        ledger_pod_set_request(l, entry, &o->request, why);
    entry->unconfirmed = false;
    const struct reflector *r = &s->core->reflectors[CORE_PODS];
    if (entry->member) {
        /* When the member was created, by the monotonic clock. A watch shows a new pod at once. A
         * list has old ones, too; only there the clock of the API server, in seconds, counts,
         * within the limits of gang_wait_ms. */
        int64_t now_ms = s->now.mono_ms, wait_ms = s->core->settings.gang_wait_ms;
        int64_t age_ms = s->now.wall_ns / 1000000 - (pod->meta.created_s + 1) * 1000;
        if (r->state == REFLECTOR_LISTING && age_ms > 0)
            now_ms -= age_ms < wait_ms ? age_ms : wait_ms;
        step_due(&entry->member->since_ms, now_ms);
    }
    /* A list is consistent, and no pod is ever unbound. */
    if (from == CORE_POD_FROM_WATCH && r->state == REFLECTOR_LISTING && entry->node &&
        !pod->node.n && entry->confirmed_ms < r->requested_ms &&
        !core_bind_find(s->core, pod->meta.uid))
        core_restored(s, "the list of pods has one unbound that was bound");
    if (from == CORE_POD_FROM_WATCH)
        entry->seen = s->in->run;
    else
        entry->confirmed_ms = s->now.mono_ms;
    if (MUTANT(annotation_without_node) && !pod->node.n && !entry->node) {
        struct promise noted = {0};
        promise_of(pod, &s->core->scratch, &noted);
        if (noted.n)
            ledger_pod_place(
                l, entry, SPAN("n0"),
                &(struct ledger_share){.card = noted.shares[0].card, .mib = 1024}, 1);
    }
    if (pod->node.n) {
        place_pod(s, entry, pod, &o->promise);
        note_differences(s, entry, pod, &o->promise,
                         request_on(&o->request, entry->node->dialect), o->invalid);
    } else if (MUTANT(old_event_frees) && entry->node &&
               !core_bind_find(s->core, pod->meta.uid)) {
        ledger_pod_unplace(l, entry);
    }
}

void core_sync_pod(struct step *s, const struct pod *pod, bool deleted,
                   enum core_pod_source from)
{
    struct ledger *l = s->core->ledger;
    struct span uid = pod->meta.uid;
    bool bound = pod->node.n > 0;
    struct observed o;

    /* The API server binds no pod that has a deletionTimestamp: what a finalizer holds back
     * is as good as gone. */
    bool ends = deleted || pod_is_terminal(pod) || (pod->meta.deleting && !bound);
    core_holder_pod(s, pod, bound && !ends);
    if (ends) {
        core_sync_pod_deleted(s, uid);
        return;
    }
    read_request(s, pod, &o);
    struct bind_op *op = core_bind_find(s->core, uid);
    if (bound)
        core_reserve_end(s, uid, pod->node);
    /* A pending pod whose labels were removed requests nothing, and no bind ends its
     * reservation. A bound pod keeps its promise. */
    struct ledger_pod *known = ledger_pod_find(l, uid);
    if (known && !known->node && !o.asks) {
        forget_pod(s, known);
        core_reserve_end(s, uid, (struct span){0});
        known = NULL;
    }
    bool leaves = known && known->member && !known->terminating && pod->meta.deleting;
    if (known || o.asks)
        observe_pod(s, pod, &o, from);
    else if (bound && from == CORE_POD_FROM_WATCH)
        /* Only what the watch shows: it also shows the end of the pod. */
        ledger_nongpu_seen(l, uid, pod->node, &pod->requests, s->in->run);
    if (op && bound)
        core_bind_bound(s, op, pod->node);
    core_gang_member_seen(s, uid);
    known = ledger_pod_find(l, uid);
    if (leaves && known && known->member)
        core_gang_member_left(s, known);
    else if (bound && known && known->member)
        core_gang_review(s, known->member->gang);
}

/* A pod that a complete list lacks is deleted if the list was requested after the pod was
 * last known to exist. Otherwise a GET decides, because the watch that follows never
 * shows a pod that was deleted before it: at once, or when the bind in flight ends. */
static void sweep_pods(struct step *s, uint64_t list, int64_t requested_ms)
{
    struct core *core = s->core;
    struct ledger *l = core->ledger;
    uint8_t *woken = arena_zalloc(&core->scratch, ledger_node_slots(l) + 1);
    const struct ledger_node *left;
    core_bind_listed(s, list);
    for (size_t at = 0;
         !MUTANT(plain_pod_survives_list) && ledger_nongpu_sweep(l, list, &at, &left);) {
        if (!left || woken[left->id]++) /* once: thousands of pods can have left it */
            continue;
        core_wakeup_gangs(s, left);
        core_holder_review(s, left->name, true);
    }
    for (struct ledger_pod *pod = ledger_first_pod(l), *next; pod; pod = next) {
        next = ledger_next_pod(l, pod);
        const struct bind_op *op = core_bind_find(core, pod->uid);
        bool in_flight = op && op->state != BIND_OP_HELD; /* that has no promise */
        if (pod->seen == list)
            continue;
        if (!in_flight && (!pod->node || pod->confirmed_ms < requested_ms ||
                           MUTANT(absent_in_older_list)))
            core_sync_pod_deleted(s, arena_copy(&core->scratch, pod->uid));
        else if (!in_flight)
            core_bind_check(s, pod);
        else
            pod->unconfirmed = true;
    }
}

/* -- lists and watches: domain/reflector.h says when -- */

/* The first list of pods starts once the lease is known: a new leader lists them again. */
enum { PODS_WAIT_MS = 500 };

/* A cluster need not serve Scvs and Leases: 404 counts as an empty list. */
static const struct reflector_kind reflector_kinds[CORE_ALL_KINDS] = {
    [CORE_NODES] = {.watch_s = REFLECTOR_WATCH_S},
    [CORE_PODS] = {.watch_s = REFLECTOR_WATCH_S},
    [CORE_SCVS] = {.watch_s = REFLECTOR_WATCH_S, .optional = true},
    [CORE_LEASES] = {.watch_s = REFLECTOR_WATCH_S, .optional = true},
    [CORE_CONFIGMAPS] = {.watch_s = REFLECTOR_WATCH_S},
    [CORE_QUOTAS] = {.watch_s = REFLECTOR_WATCH_S},
};

void core_sync_start(struct step *s)
{
    struct core *core = s->core;
    for (int kind = 0; kind < core_all_kinds(core); kind++)
        reflector_start(&core->reflectors[kind], &reflector_kinds[kind],
                        s->now.mono_ms + (kind == CORE_PODS ? PODS_WAIT_MS : 0));
}

/* Which annotations are a promise is known with the ConfigMaps. */
static bool pods_wait(const struct core *core, int kind)
{
    return kind == CORE_PODS && core->settings.ledger.dialect &&
           !core->settings.only_pods && !core->reflectors[CORE_CONFIGMAPS].synced;
}

void core_sync_tick(struct step *s)
{
    struct core *core = s->core;
    if (core->restored) /* what is requested now would be unknown after the step */
        return;
    heartbeat_tick(s);
    if (core->leader.settled && !core->reflectors[CORE_PODS].run)
        reflector_relist(&core->reflectors[CORE_PODS], s->now.mono_ms);
    for (int kind = 0; kind < core_all_kinds(core); kind++) {
        struct reflector *r = &core->reflectors[kind];
        if (pods_wait(core, kind))
            continue;
        enum reflector_request request =
            reflector_tick(r, s->now.mono_ms, core->last_id + 1);
        if (request == REFLECTOR_WAIT)
            continue;
        bool watch = request == REFLECTOR_WATCH;
        struct core_output *o = core_output_add(s, watch ? CORE_WATCH : CORE_LIST);
        o->kind = (enum core_kind)kind;
        o->run = core_next_id(core);
        if (watch)
            o->version = step_text(s->out, buf_span(&r->version));
    }
}

void core_sync_retry_soon(struct step *s)
{
    struct core *core = s->core;
    for (int kind = 0; kind < core_all_kinds(core); kind++)
        reflector_retry_soon(&core->reflectors[kind], s->now.mono_ms);
}

int64_t core_sync_due(const struct core *core)
{
    const struct heartbeat *b = first_fresh(core);
    int64_t due = !b                   ? INT64_MAX
                  : is_proven(core, b) ? stale_at(core, b)
                                       : relist_at(core, b);
    for (int kind = 0; kind < core_all_kinds(core); kind++)
        if (!pods_wait(core, kind))
            step_due(&due, reflector_due(&core->reflectors[kind]));
    return due;
}

/* The reflector of the input; NULL when its run has been superseded. */
static struct reflector *current(struct step *s)
{
    struct reflector *r = &s->core->reflectors[s->in->kind];
    return reflector_is_current(r, s->in->run) ? r : NULL;
}

static struct span object_node(const struct core_input *in)
{
    switch (in->kind) {
    case CORE_NODES:
        return in->node->meta.name;
    case CORE_SCVS:
        return in->scv->meta.name;
    case CORE_LEASES:
        return in->lease->meta.name;
    default:
        return in->unhealthy->node;
    }
}

static const enum ledger_kind ledger_kinds[CORE_KINDS] = {
    [CORE_NODES] = LEDGER_NODE,
    [CORE_SCVS] = LEDGER_SCV,
    [CORE_LEASES] = LEDGER_LEASE,
    [CORE_CONFIGMAPS] = LEDGER_UNHEALTHY,
};

static void apply_object(struct step *s, const struct core_input *in, struct span name)
{
    struct ledger *l = s->core->ledger;
    if (in->deleted) {
        struct heartbeat *b = map_get(&s->core->heartbeats.by_node, name);
        ledger_object_deleted(l, ledger_kinds[in->kind], name);
        if (b && is_orphan(s->core, b))
            heartbeat_drop(s->core, b);
        return;
    }
    switch (in->kind) {
    case CORE_NODES:
        ledger_node_seen(l, in->node, in->run);
        break;
    case CORE_SCVS:
        ledger_scv_seen(l, in->scv, in->run);
        core_holder_review(s, name, false);
        heartbeat_scv_seen(s, in->scv);
        break;
    case CORE_LEASES:
        ledger_lease_seen(l, in->lease, in->run);
        heartbeat_seen(s, in->lease);
        break;
    default:
        ledger_unhealthy_seen(l, in->unhealthy, in->run);
        break;
    }
}

void core_sync_object(struct step *s)
{
    const struct core_input *in = s->in;
    struct reflector *r = current(s);
    if (!r)
        return;
    if (in->kind == CORE_LEASES && r->state == REFLECTOR_WATCHING)
        heartbeat_watch_event(s);
    if (in->kind == CORE_PODS && in->invalid && !in->deleted) {
        /* The last decoded state of the pod stays: an invalid object frees nothing. */
        struct ledger_pod *entry = ledger_pod_find(s->core->ledger, in->pod->meta.uid);
        ledger_nongpu_exists(s->core->ledger, in->pod->meta.uid, in->run);
        if (entry) {
            entry->seen = in->run;
            entry->unconfirmed = false;
        }
    } else if (in->kind == CORE_PODS) {
        core_sync_pod(s, in->pod, in->deleted, CORE_POD_FROM_WATCH);
    } else if (in->kind == CORE_QUOTAS) {
        struct quota quota = *in->quota;
        if (in->deleted)
            quota.hard = (struct span){0};
        quotas_seen(ledger_quotas(s->core->ledger), &quota, in->run);
    } else if (in->kind == CORE_CONFIGMAPS &&
               span_eq(in->unhealthy->meta.name, SPAN(KEY_TAKEOVER))) {
        takeover_seen(s, &in->unhealthy->meta, in->deleted);
    } else if (object_node(in).n) {
        struct wakeup_fits before = core_wakeup_before(s, object_node(in));
        apply_object(s, in, object_node(in));
        core_wakeup_after(s, &before);
    }
    reflector_delivered(r, s->now.mono_ms, &s->core->rng, in->version);
}

static void sweep_objects(struct step *s, enum ledger_kind kind, uint64_t list)
{
    struct ledger *l = s->core->ledger;
    const struct ledger_node *node;
    for (size_t at = 0; (node = ledger_unlisted(l, kind, list, &at));) {
        struct span name = arena_copy(&s->core->scratch, node->name);
        struct wakeup_fits before = core_wakeup_before(s, name);
        ledger_object_deleted(l, kind, name);
        core_wakeup_after(s, &before);
    }
}

/* A complete list, or that of a kind that the cluster does not serve. */
static void listed(struct step *s, const struct reflector *r)
{
    enum core_kind kind = s->in->kind;
    if (kind == CORE_PODS)
        sweep_pods(s, r->run, r->requested_ms);
    else if (kind == CORE_QUOTAS)
        quotas_sweep(ledger_quotas(s->core->ledger), r->run);
    else
        sweep_objects(s, ledger_kinds[kind], r->run);
    if (kind == CORE_CONFIGMAPS && s->core->takeover_run != r->run)
        takeover_seen(s, NULL, true);
    if (kind == CORE_SCVS || kind == CORE_LEASES)
        drop_heartbeats(s->core, false);
    if (kind != CORE_LEASES)
        return;
    struct heartbeats *h = &s->core->heartbeats;
    if (r->requested_ms <= h->last_ms + PAUSE_MS) /* no silence */
        h->listed_ms = r->requested_ms;
    else
        h->doubted_ms = h->no_pause_since_ms = s->now.mono_ms;
    delivered(s);
}

void core_sync_watch_progress(struct step *s)
{
    struct reflector *r = current(s);
    if (!r || r->state != REFLECTOR_WATCHING)
        return;
    reflector_delivered(r, s->now.mono_ms, &s->core->rng, s->in->version);
    /* An opened watch has delivered nothing yet; a bookmark has a version. */
    if (s->in->kind == CORE_LEASES && s->in->version.n)
        heartbeat_watch_event(s);
}

void core_sync_ended(struct step *s)
{
    const struct core_input *in = s->in;
    const char *kind = core_kind_name(in->kind);
    struct reflector *r = current(s);
    bool watch = in->type == CORE_WATCH_ENDED;
    if (!r || watch != (r->state == REFLECTOR_WATCHING))
        return;
    bool first = !r->synced;
    enum reflector_end end = reflector_ended(r, s->now.mono_ms, &s->core->rng,
                                             in->version, in->err, in->retry_after_ms);
    if (end == REFLECTOR_RESTORED)
        core_restored(s, kind);
    if (end <= REFLECTOR_ABSENT)
        listed(s, r);
    if (end == REFLECTOR_ABSENT && first)
        core_log(s, ERR_NOT_FOUND,
                 "list of %s: the API server does not serve this kind; retrying "
                 "every %lld s",
                 kind, (long long)(r->due_ms - s->now.mono_ms) / 1000);
    if (end < REFLECTOR_FAILED)
        return;
    if (in->kind == CORE_LEASES)
        s->core->heartbeats.broken = true;
    if (end == REFLECTOR_FAILED)
        core_log(s, s->code, watch ? "watch of %s: %s" : "list of %s failed: %s", kind,
                 in->err->msg);
}
