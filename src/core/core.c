/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/diagnosis.h"

/* The core: new, a step, due, queries; and what its parts share. */

/* -- outputs -- */

uint64_t core_next_id(struct core *core)
{
    return ++core->last_id;
}

struct core_output *core_output_add(struct step *s, enum core_output_type type)
{
    struct core_output *o = step_add(s->out, sizeof *o);
    o->type = type;
    return o;
}

struct core_output *core_call(struct step *s, enum core_output_type type, uint64_t *call,
                              struct span ns, struct span name, struct span uid)
{
    struct core_output *o = core_output_add(s, type);
    o->call = *call = core_next_id(s->core);
    o->ns = step_text(s->out, ns);
    o->name = step_text(s->out, name);
    o->uid = step_text(s->out, uid);
    return o;
}

struct core_output *core_output_dup(const struct core_output *from)
{
    struct core_output o = *from;
    const char **const strings[] = {&o.version, &o.ns,          &o.name, &o.uid,
                                    &o.node,    &o.annotations, &o.body, &o.value,
                                    &o.text,    &o.preemptor};
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        bytes += *strings[i] ? strlen(*strings[i]) + 1 : 0;
    struct core_output *copy = xmalloc(sizeof *copy + bytes);
    char *at = (char *)(copy + 1);
    for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
        if (!*strings[i])
            continue;
        char *end = stpcpy(at, *strings[i]);
        *strings[i] = at;
        at = end + 1;
    }
    *copy = o;
    return copy;
}

/* -- the core -- */

static const char *const kind_names[CORE_ALL_KINDS] = {
    [CORE_NODES] = "nodes",
    [CORE_PODS] = "pods",
    [CORE_SCVS] = "scvs",
    [CORE_LEASES] = "leases",
    [CORE_CONFIGMAPS] = "configmaps",
    [CORE_QUOTAS] = "resourcequotas",
};

const char *core_kind_name(enum core_kind kind)
{
    return kind_names[kind];
}

struct span core_own(struct span s)
{
    return (struct span){xmemdup0(s.p, s.n), s.n};
}

void core_disown(struct span *s)
{
    free((char *)s->p);
    *s = (struct span){0};
}

/* NULL in an observer. */
static char *name_copy(const char *name)
{
    return xstrdup(name ? name : "");
}

static void init(struct core *core, uint64_t ledger_seed)
{
    uint64_t seed = core->settings.seed;
    core->ledger = ledger_new(&core->settings.ledger, ledger_seed);
    list_init(&core->heartbeats.fresh);
    list_init(&core->heartbeats.stale);
    list_init(&core->wakeups);
    list_init(&core->preempt.pods);
    list_init(&core->bind_ops);
    list_init(&core->gangs.list);
    list_init(&core->holders.now);
    list_init(&core->holders.later);
    map_init(&core->heartbeats.by_node, seed, offsetof(struct heartbeat, node));
    map_init(&core->wakeups_by_node, seed, offsetof(struct wakeup, node));
    map_init(&core->holders.by_node, seed, offsetof(struct holder_check, node));
    map_init(&core->gangs.by_key, seed, offsetof(struct core_gang, key));
    map_init(&core->bind_ops_by_uid, seed, offsetof(struct bind_op, uid));
}

struct core *core_new(const struct core_settings *settings)
{
    struct core *core = xcalloc(1, sizeof *core);
    core->settings = *settings;
    core->settings.lease_ms = settings->lease_ms ?: CORE_LEASE_MS;
    core->identity = name_copy(settings->identity);
    core->lease_namespace = name_copy(settings->lease_namespace);
    core->lease_name = name_copy(settings->lease_name);
    rng_init(&core->rng, settings->seed);
    init(core, settings->seed);
    return core;
}

/* Frees what the core knows of the cluster. */
static void fini(struct core *core)
{
    struct leader *leader = &core->leader;
    buf_fini(&leader->uid);
    buf_fini(&leader->version);
    buf_fini(&leader->logged_holder);
    buf_fini(&leader->holder);
    buf_fini(&leader->acquire_time);
    core_bind_fini(core);
    core_gang_fini(core);
    core_sync_fini(core);
    core_preempt_fini(core);
    core_holder_fini(core);
    core_wakeup_fini(core);
    ledger_free(core->ledger);
}

void core_free(struct core *core)
{
    if (!core)
        return;
    fini(core);
    arena_fini(&core->scratch);
    free(core->identity);
    free(core->lease_namespace);
    free(core->lease_name);
    free(core);
}

void core_restored(struct step *s, const char *shows)
{
    if (MUTANT(restored_list_is_ignored))
        return;
    if (!s->core->restored)
        core_log(s, ERR_CONFLICT,
                 "the API server has an older state than before, as after a restore from "
                 "a backup: %s; listing everything again",
                 shows);
    s->core->restored = true;
}

/* Back to the state of a new core. Calls in flight are nobody's any more, and Bindings that
 * this process or the previous leader has sent end before this process leads again. */
static void forget(struct step *s)
{
    struct core *core = s->core;
    core->leader.leading = false;
    core_bind_fail_all(s);
    fini(core);
    const struct core old = *core;
    *core = (struct core){
        .settings = old.settings,
        .identity = old.identity,
        .lease_namespace = old.lease_namespace,
        .lease_name = old.lease_name,
        .rng = old.rng,
        .stopping = old.stopping,
        .last_id = old.last_id,
        .last_assume_ns = old.last_assume_ns,
        .overcommits = old.overcommits,
        .preempt = {.counts = old.preempt.counts},
        .gangs = {.failed = old.gangs.failed},
        .leader = {.longest_ms = old.leader.longest_ms,
                   .lead_from_ms = s->now.mono_ms + core_leader_wait_ms(&old)},
        .scratch = old.scratch};
    init(core, rng_next(&core->rng));
}

/* In the order of a tick: reservations end before the wakeups that this causes. */
static const struct part {
    void (*tick)(struct step *s);
    int64_t (*due)(const struct core *core);
    bool (*answered)(struct step *s); /* false: not a call of this part */
} parts[] = {
    {core_leader_tick, core_leader_due, core_leader_answered},
    {core_sync_tick, core_sync_due, NULL},
    {core_bind_tick, core_bind_due, core_bind_answered},
    {core_gang_tick, core_gang_due, NULL},
    {core_holder_tick, core_holder_due, core_holder_answered},
    {core_preempt_tick, core_preempt_due, core_preempt_answered},
    {core_reserve_tick, core_reserve_due, NULL},
    {core_wakeup_tick, core_wakeup_due, core_wakeup_answered},
};

/* The owner of the call may have ended since: then nobody takes the answer. */
static void answered(struct step *s)
{
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].answered && parts[i].answered(s))
            return;
}

static void stop(struct step *s)
{
    s->core->stopping = true;
    core_gang_drop_all(s);
    s->core->leader.due_ms = s->now.mono_ms; /* release the lease now */
}

static void rejected(struct step *s)
{
    core_wakeup_rejected(s);
    core_preempt_rejected(s);
}

static void dispatch(struct step *s)
{
    static void (*const handlers[])(struct step *) = {
        [CORE_OBJECT] = core_sync_object,
        [CORE_LIST_ENDED] = core_sync_ended,
        [CORE_LIST_FAILED] = core_sync_ended,
        [CORE_WATCH_PROGRESS] = core_sync_watch_progress,
        [CORE_WATCH_ENDED] = core_sync_ended,
        [CORE_BIND] = core_bind_requested,
        [CORE_BIND_GONE] = core_bind_gone,
        [CORE_RESERVE] = core_reserve_requested,
        [CORE_ANSWER] = answered,
        [CORE_STOP] = stop,
        [CORE_REFRESH_LEASE] = core_leader_refresh,
        [CORE_REJECTED] = rejected,
        [CORE_HEARTBEAT_STALE] = core_heartbeat_set_stale,
    };
    struct core *core = s->core;
    enum core_input_type type = s->in->type;
    arena_reset(&core->scratch);
    if (!core->started) {
        core->started = true;
        core_leader_start(s);
        core_sync_start(s);
    }
    core_leader_check_expiry(s);
    if (type != CORE_TICK)
        handlers[type](s);
    /* There are thousands of objects in a row, and what is reserved for a filter must be there when
     * it is answered: timers can wait for the next tick. */
    bool ticks =
        type != CORE_OBJECT && type != CORE_WATCH_PROGRESS && type != CORE_RESERVE;
    for (size_t i = 0; ticks && i < ARRAY_LEN(parts); i++)
        parts[i].tick(s);
    core_reserve_review(s);
}

/* Overcommitment by other programs cannot be prevented, so it is reported. While pods are
 * being listed the ledger has new pods beside deleted ones, and before the first list of Scvs the
 * cards of a node have one size: nothing is reported then. */
static void log_overcommits(struct step *s)
{
    struct core *core = s->core;
    const struct reflector *pods = &core->reflectors[CORE_PODS];
    size_t n = ledger_totals(core->ledger).overcommitted;
    if (n == core->n_overcommitted || !pods->synced || pods->state == REFLECTOR_LISTING ||
        !core->reflectors[CORE_NODES].synced || !core->reflectors[CORE_SCVS].synced)
        return;
    for (uint32_t i = 0; n > core->n_overcommitted && i < ledger_node_slots(core->ledger);
         i++) {
        const struct ledger_node *node = ledger_node_at(core->ledger, i);
        for (uint32_t k = 0; node && k < node->n_cards; k++) {
            cleanup_buf struct buf text = {0};
            struct disagreement over;
            if (!diagnosis_overcommit(&node->cards[k], &over))
                continue;
            disagreement_write(&text, node, &over);
            core_log(s, ERR_CONFLICT, "node %.*s: %s", SPAN_ARG(node->name), text.p);
        }
    }
    core->overcommits += n > core->n_overcommitted ? n - core->n_overcommitted : 0;
    core->n_overcommitted = n;
}

/* Once, when everything is known: which promises are in another unit than ours? */
static void log_units(struct step *s)
{
    struct core *core = s->core;
    const struct ledger_pod *one = NULL;
    size_t n = 0;
    if (core->units_compared || core_ready(core, s->now, NULL))
        return;
    core->units_compared = true;
    for (const struct ledger_pod *p = ledger_first_pod(core->ledger); p;
         p = ledger_next_pod(core->ledger, p)) {
        bool other = p->node && ledger_pod_other_unit(p);
        n += other;
        one = other ? p : one;
    }
    if (n)
        core_log(s, ERR_CONFLICT,
                 "%zu promise%s not in units of %lld MiB (--memory-unit), as that of pod "
                 "%.*s/%.*s, in units of %lld MiB: each counts in its own unit",
                 n, n == 1 ? " is" : "s are", (long long)core->settings.ledger.unit_mib,
                 SPAN_ARG(one->ns), SPAN_ARG(one->name),
                 (long long)ledger_pod_other_unit(one));
}

void core_step(struct core *core, struct step_time now, const struct core_input *in,
               struct step_outputs *outputs)
{
    struct step s = {core, now, in, in->err ? in->err->code : ERR_NONE, outputs};
    dispatch(&s);
    log_overcommits(&s);
    log_units(&s);
    if (core->restored)
        forget(&s);
}

int64_t core_due(const struct core *core)
{
    int64_t due = INT64_MAX;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        step_due(&due, parts[i].due(core));
    return due;
}

const struct ledger *core_ledger(const struct core *core)
{
    return core->ledger;
}

static int kind_ready(const struct core *core, struct step_time now, enum core_kind kind,
                      struct err *err)
{
    const struct reflector *r = &core->reflectors[kind];
    int64_t age_ms = core_watch_age_ms(core, now, kind);
    if (age_ms < 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "not ready: the first list of %s has not finished%s%s",
                       kind_names[kind], CORE_FAILURE(r->failure));
    if (age_ms > CORE_STALE_MS)
        return err_set(err, ERR_UNAVAILABLE,
                       "not ready: the watch of %s has delivered nothing for %lld s%s%s",
                       kind_names[kind], (long long)(age_ms / 1000),
                       CORE_FAILURE(r->failure));
    return 0;
}

int core_ready(const struct core *core, struct step_time now, struct err *err)
{
    for (int kind = 0; kind < core_kinds(core); kind++)
        if (kind_ready(core, now, (enum core_kind)kind, err))
            return -1;
    return 0;
}

int core_quotas_ready(const struct core *core, struct step_time now, struct err *err)
{
    return core->settings.quotas ? kind_ready(core, now, CORE_QUOTAS, err) : 0;
}

const struct quotas *core_quotas(const struct core *core)
{
    return core->settings.quotas ? ledger_quotas(core->ledger) : NULL;
}

struct quota_amounts core_quota_amounts(const struct request *r,
                                        const struct ledger_node *node, uint64_t cards)
{
    r = request_on(r, node ? node->dialect : SCV_DIALECT_NONE);
    int64_t mib = node ? 0 : r->mib_per_card * r->cards;
    for (; node && cards; cards &= cards - 1) {
        const struct card *card = &node->cards[__builtin_ctzll(cards)];
        mib += request_mib(r, card->total_mib, card->kind->kept_mib);
    }
    return quota_amounts(r, r->cards, mib);
}

int core_quota_check(const struct core *core, struct step_time now, struct span ns,
                     struct span uid, const struct request *r,
                     const struct ledger_node *node, uint64_t cards, struct err *err)
{
    cleanup_buf struct buf why = {0};
    struct quota_amounts own = {0};
    const struct ledger_reservation *reserved =
        ledger_reservation_find(core->ledger, uid);
    r = request_on(r, node ? node->dialect : SCV_DIALECT_NONE);
    if (!quota_counts(r))
        return 0;
    if (core_quotas_ready(core, now, err))
        return -1;
    if (reserved)
        own = ledger_quota_amounts(reserved->request, reserved->shares,
                                   reserved->n_shares, NULL);
    return quotas_allow(ledger_quotas(core->ledger), ns,
                        core_quota_amounts(r, node, cards), own, err ? &why : NULL)
               ? 0
               : err_set(err, ERR_CONFLICT, "%s", why.p);
}

int core_current(const struct core *core, struct step_time now, int64_t *since_ns,
                 struct err *err)
{
    int64_t since_ms = now.mono_ms;
    int rc = 0;
    for (int kind = 0; kind < core_kinds(core); kind++) {
        const struct reflector *r = &core->reflectors[kind];
        bool fails = r->failure.failures;
        int64_t from_ms = !r->synced ? 0 : reflector_unknown_since(r, now.mono_ms);
        if (from_ms < 0 || from_ms >= since_ms ||
            (r->synced && fails && now.mono_ms - from_ms <= CORE_OUTDATED_MS))
            continue;
        since_ms = from_ms;
        rc = err_set(err, fails ? r->failure.err.code : ERR_TIMEOUT,
                     "the %s of %s delivers nothing%s%s",
                     r->synced ? "watch" : "first list", kind_names[kind],
                     CORE_FAILURE(r->failure));
    }
    *since_ns = since_ms ? now.wall_ns - (now.mono_ms - since_ms) * 1000000 : 0;
    return rc;
}

void core_advertise(struct core *core, const char *address)
{
    cleanup_free char *old = core->identity;
    core->identity = xasprintf("%s@%s", old, address);
}

bool core_stopping(const struct core *core)
{
    return core->stopping;
}

bool core_stopped(const struct core *core)
{
    return core->stopping && core->bind_ops_by_uid.n == 0 && !core->leader.leading &&
           core->leader.state != LEADER_WRITING;
}

struct core_stats core_stats(const struct core *core)
{
    struct core_stats stats = {.overcommits = core->overcommits,
                               .binds_in_flight = core->bind_ops_by_uid.n,
                               .gangs_failed = core->gangs.failed,
                               .preempt_after_ms = core->settings.preempt_after_ms,
                               .preemptions = core->preempt.counts};
    LIST_EACH(struct bind_op, op, &core->bind_ops, link)
    {
        stats.binds_unknown += op->state == BIND_OP_UNKNOWN;
        stats.binds_held += op->state == BIND_OP_HELD;
    }
    LIST_EACH(struct core_gang, g, &core->gangs.list, link)
    stats.gangs_in_turn += g->expired;
    LIST_EACH(struct core_preempt_pod, e, &core->preempt.pods, link)
    *(e->state == CORE_PREEMPT_WAITING ? &stats.preemptions.waiting
                                       : &stats.preemptions.kept) += 1;
    return stats;
}

int64_t core_watch_age_ms(const struct core *core, struct step_time now,
                          enum core_kind kind)
{
    const struct reflector *r = &core->reflectors[kind];
    int64_t age_ms = now.mono_ms - r->seen_ms;
    return !r->synced ? -1 : age_ms > 0 ? age_ms : 0;
}
