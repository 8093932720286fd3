/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include <string.h>

#include "base/mutant.h"

/* Whether this process may bind now, and which process executes a bind. */

static int not_leading(const struct core *core, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (leader->last_error.n)
        return core_unavailable(err, &leader->last_error, "cannot acquire lease %s/%s",
                                core->lease_namespace, core->lease_name);
    return err_set(err, ERR_UNAVAILABLE, "lease %s/%s is held by \"%.*s\"",
                   core->lease_namespace, core->lease_name, (int)leader->holder.n,
                   leader->holder.n ? leader->holder.p : "");
}

int core_may_bind(const struct core *core, struct core_time now, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (core_ready(core, now, err))
        return -1;
    if (core->settings.observer)
        return err_set(err, ERR_UNAVAILABLE, "observer mode: binding is disabled");
    if (core->stopping)
        return err_set(err, ERR_UNAVAILABLE, "this extender is stopping");
    bool leading = leader->leading || (MUTANT(lease_ignored) && leader->refreshed);
    if (!leading && now.mono_ms < leader->lead_from_ms &&
        span_eq(buf_span(&leader->holder), span_of(core->identity)))
        return err_set(
            err, ERR_UNAVAILABLE,
            "lease %s/%s was recreated; waiting for the previous lease to expire",
            core->lease_namespace, core->lease_name);
    if (!leading)
        return not_leading(core, err);
    struct clock_deadline until = leader_bind_deadline(core);
    if (MUTANT(lease_ignored))
        until =
            (struct clock_deadline){INT64_MAX, clock_offset_ms(now.mono_ms, now.wall_ns)};
    if (now.mono_ms > until.mono_ms)
        return core_unavailable(err, &leader->last_error,
                                "lease %s/%s was not renewed in time",
                                core->lease_namespace, core->lease_name);
    if (clock_deadline_passed(&until, now.mono_ms, now.wall_ns))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the clock was set or this machine was suspended; renewing lease %s/%s first",
            core->lease_namespace, core->lease_name);
    if (core->cursors[CORE_PODS].listed_ms <
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
    struct span holder = core_lease_holder(core);
    return holder.n && !span_eq(holder, span_of(core->identity))
               ? core->leader.observed_ms
               : 0;
}

/* The part of an identity after the last '@'. It becomes part of a URL: empty if it has
 * characters that host and port cannot have. */
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

struct bind_route core_bind_route(const struct core *core, struct core_time now,
                                  bool forwarded, struct err *err)
{
    const struct leader *leader = &core->leader;
    if (core_may_bind(core, now, err) == 0)
        return (struct bind_route){.route = BIND_ROUTE_LOCAL};
    if (leader->leading && !core->stopping)
        return (struct bind_route){.route = BIND_ROUTE_WAIT};
    if (forwarded)
        return (struct bind_route){.route = BIND_ROUTE_REJECT};
    struct bind_route r = {.route = BIND_ROUTE_WAIT,
                           .address = address_of(core_lease_holder(core)),
                           .until_ms = leader_lease_end(core)};
    /* Our own address may also be in the identity of a previous process here. */
    bool ours = span_eq(core_lease_holder(core), span_of(core->identity)) ||
                span_eq(r.address, address_of(span_of(core->identity)));
    /* While the API server is unreachable, renewals of the Lease are invisible: try the
     * last known holder. */
    bool api_fails = leader->last_error.n > 0;
    if (r.address.n && !ours && (r.until_ms > now.mono_ms || api_fails))
        r.route = BIND_ROUTE_FORWARD;
    return r;
}
