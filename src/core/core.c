/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

static const char *const kind_names[CORE_KINDS] = {
    [CORE_NODES] = "nodes",
    [CORE_PODS] = "pods",
    [CORE_SCVS] = "scvs",
    [CORE_LEASES] = "leases",
    [CORE_CONFIGMAPS] = "configmaps",
};

const char *core_kind_name(enum core_kind kind)
{
    return kind_names[kind];
}

/* An observer has none. */
static char *name_copy(const char *name)
{
    return xstrdup(name ? name : "");
}

struct core *core_new(const struct core_settings *settings)
{
    struct core *core = xcalloc(1, sizeof *core);
    core->settings = *settings;
    core->identity = name_copy(settings->identity);
    core->lease_namespace = name_copy(settings->lease_namespace);
    core->lease_name = name_copy(settings->lease_name);
    core->ledger = ledger_new(&settings->ledger, settings->seed);
    rng_init(&core->rng, settings->seed);
    heartbeat_init(core);
    map_init(&core->bind_ops_by_uid, settings->seed, offsetof(struct bind_op, uid));
    return core;
}

static void cursor_fini(struct cursor *c)
{
    buf_fini(&c->version);
    buf_fini(&c->last_error);
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (struct bind_op *op = core->bind_ops, *next; op; op = next) {
        next = op->next;
        bind_op_free(op);
    }
    for (size_t i = 0; i < core->n_wakeups; i++)
        free((char *)core->wakeups[i].node.p);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        cursor_fini(&core->cursors[kind]);
    struct leader *leader = &core->leader;
    buf_fini(&leader->uid);
    buf_fini(&leader->version);
    buf_fini(&leader->logged_holder);
    buf_fini(&leader->holder);
    buf_fini(&leader->renew_time);
    buf_fini(&leader->acquire_time);
    buf_fini(&leader->written);
    buf_fini(&leader->last_error);
    heartbeat_fini(core);
    map_fini(&core->bind_ops_by_uid);
    ledger_free(core->ledger);
    arena_fini(&core->scratch);
    free(core->wakeups);
    free(core->identity);
    free(core->lease_namespace);
    free(core->lease_name);
    free(core);
}

static void tick(struct step *s)
{
    leader_tick(s);
    heartbeat_tick(s);
    sync_tick(s);
    bind_tick(s);
    wakeup_tick(s);
}

static void answered(struct step *s)
{
    /* An answer that nobody waits for any more belongs to none of them. */
    (void)(bind_answered(s) || leader_answered(s) || wakeup_answered(s));
}

static void take(struct step *s)
{
    struct core *core = s->core;
    const struct core_input *in = s->in;
    arena_reset(&core->scratch);
    if (!core->started) {
        core->started = true;
        leader_start(s);
        sync_start(s);
    }
    leader_check_expiry(s);
    switch (in->type) {
    case CORE_TICK:
        break;
    case CORE_OBJECT:
        sync_object(s);
        return; /* thousands come in a row: timers can wait for the next tick */
    case CORE_LIST_ENDED:
        sync_list_ended(s);
        break;
    case CORE_LIST_FAILED:
        sync_list_failed(s);
        break;
    case CORE_WATCH_PROGRESS:
        sync_watch_progress(s);
        return;
    case CORE_WATCH_ENDED:
        sync_watch_ended(s);
        break;
    case CORE_BIND:
        bind_requested(s);
        break;
    case CORE_ANSWER:
        answered(s);
        break;
    case CORE_REFRESH_LEASE:
        leader_refresh(s);
        break;
    case CORE_HEARTBEAT_STALE:
        heartbeat_set_stale(s);
        break;
    case CORE_STOP:
        core->stopping = true;
        core->leader.due_ms =
            s->now.mono_ms; /* give the lease back now, not when it is due */
        break;
    }
    tick(s);
}

static void log_overcommitted(struct step *s, const struct ledger_node *node,
                      const struct card *card)
{
    output_log(s, ERR_CONFLICT, "GPU%d of node %.*s has %lld MiB, and %lld are promised",
             card->index, SPAN_ARG(node->name), (long long)card->total_mib,
             (long long)card->promised_mib);
}

/* What cannot be excluded is at least seen. A list of pods that has not ended shows new
 * ones beside old ones that are gone: that is not refreshed at. */
static void log_overcommits(struct step *s)
{
    struct core *core = s->core;
    const struct cursor *pods = &core->cursors[CORE_PODS];
    size_t n = ledger_overcommitted(core->ledger);
    if (n == core->n_over || !pods->synced || pods->state == CURSOR_LISTING)
        return;
    for (uint32_t i = 0; n > core->n_over && i < ledger_node_slots(core->ledger); i++) {
        const struct ledger_node *node = ledger_node_at(core->ledger, i);
        for (uint32_t k = 0; node && k < node->n_cards; k++)
            if (node->cards[k].overcommitted)
                log_overcommitted(s, node, &node->cards[k]);
    }
    core->overcommits += n > core->n_over ? n - core->n_over : 0;
    core->n_over = n;
}

void core_step(struct core *core, struct core_time now, const struct core_input *in,
               struct core_outputs *outputs)
{
    struct step s = {core, now, in, outputs};
    take(&s);
    log_overcommits(&s);
}

static int64_t earliest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t core_due(const struct core *core)
{
    int64_t due = earliest(leader_due(core), sync_due(core));
    due = earliest(due, earliest(bind_due(core), wakeup_due(core)));
    return earliest(due, heartbeat_due(core));
}

const struct ledger *core_ledger(const struct core *core)
{
    return core->ledger;
}

/* What does not work, and why, if that is known. */
static int unavailable(struct err *err, const struct buf *last_error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int unavailable(struct err *err, const struct buf *last_error, const char *fmt, ...)
{
    char what[sizeof err->msg];
    va_list ap;
    if (!err)
        return -1;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(err, ERR_UNAVAILABLE, "%s%s%.*s", what, last_error->n ? ": " : "",
                   (int)last_error->n, last_error->n ? last_error->p : "");
}

int core_ready(const struct core *core, struct core_time now, struct err *err)
{
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        const struct cursor *c = &core->cursors[kind];
        if (!c->synced)
            return unavailable(err, &c->last_error,
                               "not ready: the %s have not been listed yet",
                               kind_names[kind]);
        int64_t silent = now.mono_ms - c->last_event_ms;
        if (silent > CORE_STALE_MS)
            return unavailable(err, &c->last_error,
                               "not ready: nothing has been heard of the %s for %lld s",
                               kind_names[kind], (long long)(silent / 1000));
    }
    return 0;
}

static int not_leader(const struct core *core, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (leader->last_error.n)
        return unavailable(err, &leader->last_error, "the lease %s/%s cannot be had",
                           core->lease_namespace, core->lease_name);
    return err_set(err, ERR_UNAVAILABLE, "the lease %s/%s is held by \"%.*s\"",
                   core->lease_namespace, core->lease_name, (int)leader->holder.n,
                   leader->holder.n ? leader->holder.p : "");
}

int core_may_bind(const struct core *core, struct core_time now, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (core_ready(core, now, err))
        return -1;
    if (core->settings.observer)
        return err_set(err, ERR_UNAVAILABLE, "this process only looks");
    if (core->stopping)
        return err_set(err, ERR_UNAVAILABLE, "this extender is stopping");
    if (!leader->leading && now.mono_ms < leader->lead_from_ms &&
        span_eq(buf_span(&leader->holder), span_of(core->identity)))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the lease %s/%s was made anew; somebody may hold an older one for "
            "some seconds",
            core->lease_namespace, core->lease_name);
    if (!leader->leading)
        return not_leader(core, err);
    struct clock_deadline until = leader_bind_deadline(core);
    if (now.mono_ms > until.mono_ms)
        return unavailable(err, &leader->last_error,
                           "the lease %s/%s could not be renewed in time",
                           core->lease_namespace, core->lease_name);
    if (clock_late(&until, now.mono_ms, now.wall_ns))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the clock was set, or this machine stood still: the lease %s/%s is "
            "renewed first",
            core->lease_namespace, core->lease_name);
    if (core->cursors[CORE_PODS].listed_ms < leader->acquired_ms)
        return err_set(err, ERR_UNAVAILABLE,
                       "the pods have not been listed since the lease was acquired");
    return 0;
}

void core_advertise(struct core *core, const char *address)
{
    cleanup_free char *old = core->identity;
    core->identity = xasprintf("%s@%s", old, address);
}

bool core_is_stopping(const struct core *core)
{
    return core->stopping;
}

struct span core_lease_holder(const struct core *core)
{
    return core->leader.known ? buf_span(&core->leader.holder) : (struct span){0};
}

int64_t core_other_leader_ms(const struct core *core)
{
    struct span holder = core_lease_holder(core);
    return holder.n && !span_eq(holder, span_of(core->identity)) ? core->leader.observed_ms
                                                                 : 0;
}

/* What stands behind the last '@' of an identity. It gets into a URL: nothing but what
 * host and port can have. */
static struct span address_of(struct span holder)
{
    size_t at = holder.n;
    while (at && holder.p[at - 1] != '@')
        at--;
    struct span address = {holder.p + at, at ? holder.n - at : 0};
    for (size_t i = 0; i < address.n; i++) {
        char c = address.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c >= '0' && c <= '9') || strchr("-.:[]", c)))
            return (struct span){0};
    }
    return address;
}

struct bind_route core_bind_route(const struct core *core, struct core_time now, bool forwarded,
                         struct err *err)
{
    const struct leader *leader = &core->leader;
    if (core_may_bind(core, now, err) == 0)
        return (struct bind_route){.route = BIND_ROUTE_LOCAL};
    if (leader->leading && !core->stopping)
        return (struct bind_route){.route = BIND_ROUTE_WAIT};
    if (forwarded)
        return (struct bind_route){.route = BIND_ROUTE_REJECT};
    struct bind_route way = {.route = BIND_ROUTE_WAIT,
                           .address = address_of(core_lease_holder(core)),
                           .until_ms = leader_lease_end(core)};
    /* Or of a process that was here before us. */
    bool ours = span_eq(core_lease_holder(core), span_of(core->identity)) ||
                span_eq(way.address, address_of(span_of(core->identity)));
    /* Who cannot ask for the Lease does not see that it is renewed, and can ask the one
     * that held it last. */
    bool blind = leader->last_error.n > 0;
    if (way.address.n && !ours && (way.until_ms > now.mono_ms || blind))
        way.route = BIND_ROUTE_FORWARD;
    return way;
}

bool core_is_leader(const struct core *core)
{
    return core->leader.leading;
}

bool core_stopped(const struct core *core)
{
    return core->stopping && core->n_bind_ops == 0 && !core->leader.leading &&
           core->leader.state != LEADER_WRITING;
}

uint64_t core_overcommits(const struct core *core)
{
    return core->overcommits;
}

size_t core_binds_in_flight(const struct core *core)
{
    return core->n_bind_ops;
}

size_t core_binds_unknown(const struct core *core)
{
    size_t n = 0;
    for (const struct bind_op *op = core->bind_ops; op; op = op->next)
        n += op->state == BIND_OP_UNKNOWN;
    return n;
}

int64_t core_watch_age_ms(const struct core *core, struct core_time now, enum core_kind kind)
{
    const struct cursor *c = &core->cursors[kind];
    int64_t silent = now.mono_ms - c->last_event_ms;
    return !c->synced ? -1 : silent > 0 ? silent : 0;
}
