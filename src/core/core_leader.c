/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <string.h>

#include "base/clock.h"
#include "base/mutant.h"
#include "domain/quantity.h"

/*
 * Leader election. As in client-go, the lease of another holder is counted from when this
 * process first saw this version of it; the times in the object are not compared with any
 * clock. Unlike client-go:
 *
 * - The leader counts its own lease from when the last successful renewal was sent.
 * - The holder of a recreated Lease does not lead for one lease duration: the holder of
 *   the previous one may not know yet that it was deleted. (Waiting before creating it
 *   would not help: it can be created and deleted again between two GETs.)
 */

enum {
    RETRY_MS = 500,
    /* Of half a lease, what a request does not get. A renewal is sent when the one before was
     * answered. So with requests of up to this limit it is answered within the lease, and a
     * process that waits sees each renewal within it (test_leader.c). */
    REQUEST_LESS_MS = 500,
    REFRESH_MIN_MS = 50,   /* at least, between two GETs of core_leader_refresh */
    DURATION_MAX_S = 3600, /* longer leases of other holders are cut to this */
};

void core_leader_start(struct step *s)
{
    s->core->leader.due_ms = s->core->settings.observer ? INT64_MAX : s->now.mono_ms;
    s->core->leader.settled = s->core->settings.observer;
}

/* Does the Lease name this process as its holder? */
static bool leader_is_holder(const struct core *core)
{
    return core->leader.known &&
           span_eq(buf_span(&core->leader.holder), span_of(core->identity));
}

static struct core_output *call(struct step *s, enum core_output_type type)
{
    struct core *core = s->core;
    struct core_output *o =
        core_call(s, type, &core->leader.call, span_of(core->lease_namespace),
                  span_of(core->lease_name), (struct span){0});
    o->limit_ms = core->settings.lease_ms / 2 - REQUEST_LESS_MS;
    return o;
}

int64_t core_leader_wait_ms(const struct core *core)
{
    int64_t own_ms = core->settings.lease_ms, longest_ms = core->leader.longest_ms;
    return own_ms > longest_ms || MUTANT(longest_lease_forgotten) ? own_ms : longest_ms;
}

/* Writes the Lease: with our identity as holder, or with none to release it. */
static void put(struct step *s, bool release)
{
    struct core *core = s->core;
    struct leader *leader = &core->leader;
    cleanup_buf struct buf body = {0}, now = {0};
    bool renews = leader_is_holder(core);

    clock_format_us(&now, s->now.wall_ns / 1000);
    struct lease lease = {
        .meta = {.ns = span_of(core->lease_namespace), .name = span_of(core->lease_name)},
        .holder = release ? SPAN("") : span_of(core->identity),
        .duration_s = release ? 1 : core->settings.lease_ms / 1000,
        .renew_time = buf_span(&now),
        .acquire_time = renews ? buf_span(&leader->acquire_time) : buf_span(&now),
        .transitions = leader->transitions + !renews,
    };
    if (leader->known)
        lease.meta.version = buf_span(&leader->version);
    lease_write(&body, &lease);
    leader->state = LEADER_WRITING;
    leader->sent = s->now;
    struct core_output *o = call(s, CORE_CALL_LEASE_WRITE);
    o->body = step_text(s->out, buf_span(&body));
    o->create = !leader->known;
}

static void stop_leading(struct step *s, enum err_code code, const char *why)
{
    struct leader *leader = &s->core->leader;
    if (leader->leading)
        core_log(s, code, "lease %s/%s: stopped leading: %s", s->core->lease_namespace,
                 s->core->lease_name, why);
    leader->leading = false;
    s->core->wakeups_begun = false;
    if (!MUTANT(reservation_survives_leadership))
        core_reserve_drop_all(s);
    core_gang_drop_all(s);
}

/* A leader that has not renewed for a whole lease duration may have a successor, whatever
 * the Lease says. */
void core_leader_check_expiry(struct step *s)
{
    const struct leader *leader = &s->core->leader;
    if (leader->leading && !MUTANT(lapsed_lease_binds) &&
        s->now.mono_ms >= leader->valid.mono_ms + s->core->settings.lease_ms)
        stop_leading(s, ERR_TIMEOUT, "the lease was not renewed in time");
}

void core_leader_tick(struct step *s)
{
    struct core *core = s->core;
    struct leader *leader = &core->leader;
    if (core_leader_due(core) > s->now.mono_ms)
        return;
    if (leader_is_holder(core)) {
        put(s, core->stopping);
        return;
    }
    leader->state = LEADER_GETTING;
    leader->requested_ms = s->now.mono_ms;
    call(s, CORE_CALL_LEASE_GET);
}

void core_leader_refresh(struct step *s)
{
    struct leader *leader = &s->core->leader;
    int64_t at_ms = leader->requested_ms + REFRESH_MIN_MS;
    if (at_ms < s->now.mono_ms)
        at_ms = s->now.mono_ms;
    if (s->core->settings.observer)
        return;
    if (leader->state == LEADER_IDLE && !leader->leading && at_ms < leader->due_ms)
        leader->due_ms = at_ms;
}

/* A different UID is a recreated Lease. */
static void check_uid(struct step *s, const struct lease *lease)
{
    struct leader *leader = &s->core->leader;
    bool other = leader->uid.n && !span_eq(buf_span(&leader->uid), lease->meta.uid);
    if (MUTANT(recreated_lease_is_the_old_one) ? leader->absent && !other
                                               : leader->absent || other)
        leader->lead_from_ms =
            s->now.mono_ms +
            (MUTANT(absent_lease_is_free) ? 0 : core_leader_wait_ms(s->core));
    leader->absent = false;
    buf_set(&leader->uid, lease->meta.uid);
}

/* The Lease was written, by us or by another process: the API server accepts writes. (A
 * successful GET does not show that.) */
static void write_observed(struct step *s)
{
    struct leader *leader = &s->core->leader;
    if (step_succeeded(&leader->failure))
        core_sync_retry_soon(s);
}

/* Stores the current state of the Lease. */
static void observe(struct step *s, const struct lease *lease)
{
    struct leader *leader = &s->core->leader;
    if (object_version_is_older(lease->meta.version, buf_span(&leader->version)) ||
        (span_eq(buf_span(&leader->uid), lease->meta.uid) &&
         lease->transitions < leader->transitions))
        core_restored(s, "the Lease of the leader");
    check_uid(s, lease);
    if (!span_eq(buf_span(&leader->version), lease->meta.version))
        write_observed(s);
    if (!leader->known || !span_eq(buf_span(&leader->version), lease->meta.version)) {
        leader->observed_ms = s->now.mono_ms;
        leader->duration_s = lease->duration_s;
        if (lease->duration_s > leader->longest_ms / 1000)
            leader->longest_ms =
                quantity_at_most(lease->duration_s, CORE_LEASE_MAX_MS / 1000) * 1000;
        leader->transitions = lease->transitions;
        buf_set(&leader->version, lease->meta.version);
        buf_set(&leader->holder, lease->holder);
        buf_set(&leader->acquire_time, lease->acquire_time);
    }
    leader->known = true;
    if (leader_is_holder(s->core))
        return;
    if (leader->holder.n == 0)
        stop_leading(s, ERR_NONE, "the lease was released");
    else
        stop_leading(s, ERR_CONFLICT, "another process holds the lease");
}

/* When the lease, as last seen, expires; INT64_MIN: it is free. */
static int64_t leader_lease_end(const struct core *core)
{
    const struct leader *leader = &core->leader;
    if (!leader->known || leader->holder.n == 0)
        return INT64_MIN;
    int64_t own_ms = core->settings.lease_ms, seconds = leader->duration_s;
    if (seconds <= 0 || MUTANT(own_lease_duration))
        return leader->observed_ms + own_ms;
    return leader->observed_ms + quantity_at_most(seconds, DURATION_MAX_S) * 1000;
}

/* True once per holder: log lines about a wait are not repeated. */
static bool is_new_holder(struct leader *leader)
{
    struct span holder = buf_span(&leader->holder);
    if (span_eq(buf_span(&leader->logged_holder), holder))
        return false;
    buf_set(&leader->logged_holder, holder);
    return true;
}

/* After a GET: acquires the lease if it is free, else schedules the next GET. */
static void decide(struct step *s)
{
    struct core *core = s->core;
    struct leader *leader = &core->leader;
    if (core->stopping) {
        /* The next holder gets the binds that still arrive here. */
        leader->due_ms = s->now.mono_ms + (leader_is_holder(core) ? 0 : RETRY_MS);
        return;
    }
    if (leader_is_holder(core) || leader_lease_end(core) <= s->now.mono_ms) {
        put(s, false);
        return;
    }
    leader->settled = true;
    if (is_new_holder(leader))
        core_log(s, ERR_NONE, "lease %s/%s: held by %.*s; waiting", core->lease_namespace,
                 core->lease_name, SPAN_ARG(buf_span(&leader->holder)));
    leader->due_ms = s->now.mono_ms + RETRY_MS;
    step_due(&leader->due_ms, leader_lease_end(core));
}

/* Calls fail twice a second while the API server is down: logs once per minute. */
static void log_failure(struct step *s, const char *what)
{
    struct leader *leader = &s->core->leader;
    if (step_failed(&leader->failure, s->now.mono_ms, s->in->err))
        core_log(s, s->code, "lease %s/%s: request failed (%s): %s; retrying",
                 s->core->lease_namespace, s->core->lease_name, what, s->in->err->msg);
}

static void get_answered(struct step *s)
{
    const struct core_input *in = s->in;
    struct leader *leader = &s->core->leader;
    if (s->code == ERR_NOT_FOUND) {
        leader->known = false;
        leader->absent = true;
    } else if (s->code == ERR_NONE) {
        observe(s, in->lease);
    } else {
        leader->settled = true;
        leader->due_ms = s->now.mono_ms + RETRY_MS;
        log_failure(s, "get");
        return;
    }
    decide(s);
}

/* This process holds the lease, but must not lead yet. */
static void log_recreated(struct step *s)
{
    struct core *core = s->core;
    struct leader *leader = &core->leader;
    leader->settled = true;
    step_due(&leader->due_ms, leader->lead_from_ms);
    if (is_new_holder(leader))
        core_log(
            s, ERR_NONE,
            "lease %s/%s: created; binding starts in %lld s, when every previous lease "
            "has expired",
            core->lease_namespace, core->lease_name,
            (long long)((leader->lead_from_ms - s->now.mono_ms + 999) / 1000));
}

static void acquired(struct step *s)
{
    struct core *core = s->core;
    struct leader *leader = &core->leader;
    leader->leading = leader->settled = true;
    buf_clear(&leader->logged_holder);
    leader->acquired_ms = s->now.mono_ms;
    core_log(s, ERR_NONE, "lease %s/%s: acquired; started leading", core->lease_namespace,
             core->lease_name);
    /* The binds of the previous leader must be known before the first bind. */
    if (!MUTANT(no_list_after_take_over))
        reflector_relist(&core->reflectors[CORE_PODS], s->now.mono_ms);
}

static void write_answered(struct step *s)
{
    const struct core_input *in = s->in;
    struct leader *leader = &s->core->leader;
    if (s->code != ERR_NONE) {
        /* The write may have taken effect anyway: GET it. */
        leader->due_ms = s->now.mono_ms + (s->code == ERR_CONFLICT ? 0 : RETRY_MS);
        leader->known = false;
        leader->settled = true;
        if (s->code != ERR_CONFLICT)
            log_failure(s, "write");
        return;
    }
    write_observed(s);
    observe(s, in->lease);
    if (!leader_is_holder(s->core)) {
        leader->due_ms = s->now.mono_ms + RETRY_MS;
        return;
    }
    leader->valid = MUTANT(renewal_counts_from_its_answer) ? s->now : leader->sent;
    leader->due_ms = leader->sent.mono_ms + CORE_RENEW_MS;
    if (!leader->leading && s->now.mono_ms >= leader->lead_from_ms)
        acquired(s);
    else if (!leader->leading)
        log_recreated(s);
}

bool core_leader_answered(struct step *s)
{
    struct leader *leader = &s->core->leader;
    if (leader->state == LEADER_IDLE || leader->call != s->in->call)
        return false;
    enum leader_state state = leader->state;
    leader->state = LEADER_IDLE;
    if (state == LEADER_GETTING)
        get_answered(s);
    else
        write_answered(s);
    return true;
}

int64_t core_leader_due(const struct core *core)
{
    const struct leader *leader = &core->leader;
    /* The lease is released when no bind is in flight. */
    if (leader->state != LEADER_IDLE ||
        (core->stopping && leader->leading && core->bind_ops_by_uid.n))
        return INT64_MAX;
    return leader->due_ms;
}

struct clock_deadline core_leader_bind_deadline(const struct core *core)
{
    const struct leader *leader = &core->leader;
    const struct step_time *from = &leader->valid;
    if (!leader->leading)
        return (struct clock_deadline){.mono_ms = INT64_MIN};
    return (struct clock_deadline){
        .mono_ms = MUTANT(lapsed_lease_binds) ? from->mono_ms + 3600 * 1000
                                              : from->mono_ms + core->settings.lease_ms -
                                                    CORE_BIND_LIMIT_MS - CORE_SLACK_MS,
        .offset_ms = clock_offset_ms(from->mono_ms, from->wall_ns)};
}

bool core_is_leader(const struct core *core)
{
    return core->leader.leading;
}

/* -- whether this process may bind now, and which process executes a bind -- */

static int not_leading(const struct core *core, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (leader->failure.failures)
        return err_set(err, ERR_UNAVAILABLE, "cannot acquire lease %s/%s: %s",
                       core->lease_namespace, core->lease_name, leader->failure.err.msg);
    return err_set(err, ERR_UNAVAILABLE, "lease %s/%s is held by \"%.*s\"",
                   core->lease_namespace, core->lease_name, (int)leader->holder.n,
                   leader->holder.n ? leader->holder.p : "");
}

int core_check_may_bind(const struct core *core, struct step_time now, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (core_ready(core, now, err))
        return -1;
    if (core->restored)
        return err_set(err, ERR_UNAVAILABLE, "the API server was restored from a backup");
    if (core->settings.observer)
        return err_set(err, ERR_UNAVAILABLE, "observer mode: binding is disabled");
    if (core->stopping)
        return err_set(err, ERR_UNAVAILABLE, "this extender is stopping");
    bool leading = leader->leading || (MUTANT(lease_ignored) && leader->settled);
    if (!leading && now.mono_ms < leader->lead_from_ms &&
        span_eq(buf_span(&leader->holder), span_of(core->identity)))
        return err_set(
            err, ERR_UNAVAILABLE,
            "lease %s/%s was recreated; waiting for the previous lease to expire",
            core->lease_namespace, core->lease_name);
    if (!leading)
        return not_leading(core, err);
    struct clock_deadline until = core_leader_bind_deadline(core);
    if (MUTANT(lease_ignored))
        until =
            (struct clock_deadline){INT64_MAX, clock_offset_ms(now.mono_ms, now.wall_ns)};
    if (now.mono_ms > until.mono_ms)
        return err_set(err, ERR_UNAVAILABLE, "lease %s/%s was not renewed in time%s%s",
                       core->lease_namespace, core->lease_name,
                       CORE_FAILURE(leader->failure));
    if (clock_deadline_passed(&until, now.mono_ms, now.wall_ns))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the clock was set or this machine was suspended; renewing lease %s/%s first",
            core->lease_namespace, core->lease_name);
    if (core->reflectors[CORE_PODS].listed_ms <
        (MUTANT(no_list_after_take_over) ? 0 : leader->acquired_ms))
        return err_set(err, ERR_UNAVAILABLE,
                       "the pods have not been listed since the lease was acquired");
    return 0;
}

struct span core_lease_holder(const struct core *core)
{
    return core->leader.known ? buf_span(&core->leader.holder) : (struct span){0};
}

int64_t core_other_leader_ms(const struct core *core)
{
    bool other = core_lease_holder(core).n && !leader_is_holder(core);
    return other ? core->leader.observed_ms : 0;
}

/* The part of an identity after the last '@'. It becomes part of a URL: empty if it has
 * characters that host and port cannot have. */
static struct span address_of(struct span holder)
{
    size_t at = holder.n;
    while (at && holder.p[at - 1] != '@')
        at--;
    struct span address = {holder.p + at, at ? holder.n - at : 0};
    return span_has_only(address, "-.:[]") ? address : (struct span){0};
}

struct bind_route core_bind_route(const struct core *core, struct step_time now,
                                  bool forwarded, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (core_check_may_bind(core, now, err) == 0)
        return (struct bind_route){.route = BIND_ROUTE_LOCAL};
    if (leader->leading && !core->stopping)
        return (struct bind_route){.route = BIND_ROUTE_WAIT};
    if (forwarded)
        return (struct bind_route){.route = BIND_ROUTE_REJECT};
    struct bind_route r = {.route = BIND_ROUTE_WAIT,
                           .address = address_of(core_lease_holder(core)),
                           .until_ms = leader_lease_end(core)};
    /* Our own address may also be in the identity of a previous process here. */
    bool ours =
        leader_is_holder(core) || span_eq(r.address, address_of(span_of(core->identity)));
    /* While the API server is unreachable, renewals of the Lease are invisible: try the
     * last known holder. */
    bool api_fails = leader->failure.failures > 0;
    if (r.address.n && !ours && (r.until_ms > now.mono_ms || api_fails))
        r.route = BIND_ROUTE_FORWARD;
    return r;
}
