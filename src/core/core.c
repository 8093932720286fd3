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

struct core *core_new(const struct core_settings *settings)
{
    struct core *core = xcalloc(1, sizeof *core);
    core->settings = *settings;
    core->identity = xstrdup(settings->identity);
    core->lease_namespace = xstrdup(settings->lease_namespace);
    core->lease_name = xstrdup(settings->lease_name);
    core->ledger = ledger_new(&settings->ledger, settings->seed);
    rng_init(&core->rng, settings->seed);
    alive_init(core);
    map_init(&core->ops_by_uid, settings->seed, offsetof(struct op, uid));
    return core;
}

static void cursor_fini(struct cursor *c)
{
    buf_fini(&c->version);
    buf_fini(&c->trouble);
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (struct op *op = core->ops, *next; op; op = next) {
        next = op->next;
        op_free(op);
    }
    for (size_t i = 0; i < core->n_marks; i++)
        free((char *)core->marks[i].node.p);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        cursor_fini(&core->cursors[kind]);
    struct lock *lock = &core->lock;
    buf_fini(&lock->uid);
    buf_fini(&lock->version);
    buf_fini(&lock->waits_for);
    buf_fini(&lock->holder);
    buf_fini(&lock->renew_time);
    buf_fini(&lock->acquire_time);
    buf_fini(&lock->written);
    buf_fini(&lock->trouble);
    alive_fini(core);
    map_fini(&core->ops_by_uid);
    ledger_free(core->ledger);
    arena_fini(&core->scratch);
    free(core->marks);
    free(core->identity);
    free(core->lease_namespace);
    free(core->lease_name);
    free(core);
}

static void tick(struct step *s)
{
    lock_tick(s);
    alive_tick(s);
    sync_tick(s);
    bind_tick(s);
    room_tick(s);
}

static void answered(struct step *s)
{
    /* An answer that nobody waits for any more belongs to none of them. */
    (void)(bind_answered(s) || lock_answered(s) || room_answered(s));
}

void core_step(struct core *core, struct core_time now, const struct core_input *in,
               struct core_outputs *outputs)
{
    struct step s = {core, now, in, outputs};
    arena_reset(&core->scratch);
    if (!core->started) {
        core->started = true;
        lock_start(&s);
        sync_start(&s);
    }
    lock_lapse(&s);
    switch (in->type) {
    case CORE_TICK:
        break;
    case CORE_OBJECT:
        sync_object(&s);
        return; /* thousands come in a row: timers can wait for the next tick */
    case CORE_LIST_ENDED:
        sync_list_ended(&s);
        break;
    case CORE_LIST_FAILED:
        sync_list_failed(&s);
        break;
    case CORE_WATCH_ALIVE:
        sync_watch_alive(&s);
        return;
    case CORE_WATCH_ENDED:
        sync_watch_ended(&s);
        break;
    case CORE_BIND:
        bind_asked(&s);
        break;
    case CORE_ANSWER:
        answered(&s);
        break;
    case CORE_STOP:
        core->stopping = true;
        core->lock.due_ms = now.mono_ms; /* give the lease back now, not when it is due */
        break;
    }
    tick(&s);
}

static int64_t earliest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t core_due(const struct core *core)
{
    int64_t due = earliest(lock_due(core), sync_due(core));
    due = earliest(due, earliest(bind_due(core), room_due(core)));
    return earliest(due, alive_due(core));
}

const struct ledger *core_ledger(const struct core *core)
{
    return core->ledger;
}

/* What does not work, and why, if that is known. */
static int unavailable(struct err *err, const struct buf *trouble, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int unavailable(struct err *err, const struct buf *trouble, const char *fmt, ...)
{
    char what[sizeof err->msg];
    va_list ap;
    if (!err)
        return -1;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(err, ERR_UNAVAILABLE, "%s%s%.*s", what, trouble->n ? ": " : "",
                   (int)trouble->n, trouble->n ? trouble->p : "");
}

int core_ready(const struct core *core, struct core_time now, struct err *err)
{
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        const struct cursor *c = &core->cursors[kind];
        if (!c->synced)
            return unavailable(err, &c->trouble,
                               "not ready: the %s have not been listed yet",
                               kind_names[kind]);
        int64_t silent = now.mono_ms - c->alive_ms;
        if (silent > CORE_STALE_MS)
            return unavailable(err, &c->trouble,
                               "not ready: nothing has been heard of the %s for %lld s",
                               kind_names[kind], (long long)(silent / 1000));
    }
    return 0;
}

static int not_leader(const struct core *core, struct err *err)
{
    const struct lock *lock = &core->lock;
    if (lock->trouble.n)
        return unavailable(err, &lock->trouble, "the lease %s/%s cannot be had",
                           core->lease_namespace, core->lease_name);
    return err_set(err, ERR_UNAVAILABLE, "the lease %s/%s is held by \"%.*s\"",
                   core->lease_namespace, core->lease_name, (int)lock->holder.n,
                   lock->holder.n ? lock->holder.p : "");
}

int core_may_bind(const struct core *core, struct core_time now, struct err *err)
{
    const struct lock *lock = &core->lock;
    if (core_ready(core, now, err))
        return -1;
    if (core->stopping)
        return err_set(err, ERR_UNAVAILABLE, "this extender is stopping");
    if (!lock->leader && now.mono_ms < lock->lead_from_ms &&
        span_eq(buf_span(&lock->holder), span_of(core->identity)))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the lease %s/%s was made anew; somebody may hold an older one for "
            "some seconds",
            core->lease_namespace, core->lease_name);
    if (!lock->leader)
        return not_leader(core, err);
    struct clock_deadline until = lock_bind_until(core);
    if (now.mono_ms > until.mono_ms)
        return unavailable(err, &lock->trouble,
                           "the lease %s/%s could not be renewed in time",
                           core->lease_namespace, core->lease_name);
    if (clock_late(&until, now.mono_ms, now.wall_ns))
        return err_set(
            err, ERR_UNAVAILABLE,
            "the clock was set, or this machine stood still: the lease %s/%s is "
            "renewed first",
            core->lease_namespace, core->lease_name);
    if (core->cursors[CORE_PODS].listed_ms < lock->acquired_ms)
        return err_set(err, ERR_UNAVAILABLE,
                       "the pods have not been listed since the lease was acquired");
    return 0;
}

bool core_is_leader(const struct core *core)
{
    return core->lock.leader;
}

bool core_stopped(const struct core *core)
{
    return core->stopping && core->n_ops == 0 && !core->lock.leader &&
           core->lock.state != LOCK_WRITING;
}

size_t core_binds_in_flight(const struct core *core)
{
    return core->n_ops;
}
