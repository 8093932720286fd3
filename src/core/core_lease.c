/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_priv.h"

#include "base/clock.h"

/*
 * The Lease that says who may bind. As in client-go's leader election, a foreign holder's
 * time is counted from when this process first saw the Lease in its present state; the
 * times in the object are not compared with any clock. Unlike there, the holder counts
 * its own time from when the last successful renewal was sent, and who holds a Lease that
 * was deleted and made anew does not lead before the lease's time is over: the process
 * that held the one before may not know yet that it is gone. (Waiting before it is made
 * would not do: it could be made and deleted again between two looks.)
 */

enum {
    RETRY_MS = 500,
    LOOK_MS = 50, /* between two looks, however often somebody asks for one */
    NOTE_AGAIN_MS = 60 * 1000, /* the same failure is told again after so long */
    DURATION_MAX_S = 3600,     /* a holder that claims more is not believed */
};

void lock_start(struct step *s)
{
    s->core->lock.due_ms = s->core->settings.observer ? INT64_MAX : s->now.mono_ms;
    s->core->lock.settled = s->core->settings.observer;
}

static void set(struct buf *b, struct span text)
{
    buf_clear(b);
    buf_add_span(b, text);
}

static bool holds(const struct core *core)
{
    return span_eq(buf_span(&core->lock.holder), span_of(core->identity));
}

static struct core_output *call(struct step *s, enum core_output_type type)
{
    struct core *core = s->core;
    core->lock.call = next_id(core);
    const char *ns = out_str(s, span_of(core->lease_namespace));
    const char *name = out_str(s, span_of(core->lease_name));
    struct core_output *o = out_add(s, type);
    o->call = core->lock.call;
    o->ns = ns;
    o->name = name;
    return o;
}

static void get(struct step *s)
{
    s->core->lock.state = LOCK_GETTING;
    s->core->lock.asked_ms = s->now.mono_ms;
    call(s, CORE_CALL_LEASE_GET);
}

/* Writes the Lease: with our name in it, or with none to give it back. */
static void put(struct step *s, bool give_back)
{
    struct core *core = s->core;
    struct lock *lock = &core->lock;
    cleanup_buf struct buf body = {0};
    bool renews = lock->known && holds(core);

    buf_clear(&lock->written);
    clock_format_us(&lock->written, s->now.wall_ns / 1000);
    struct lease lease = {
        .meta = {.ns = span_of(core->lease_namespace), .name = span_of(core->lease_name)},
        .holder = give_back ? SPAN("") : span_of(core->identity),
        .duration_s = give_back ? 1 : CORE_LEASE_MS / 1000,
        .renew_time = buf_span(&lock->written),
        .acquire_time = renews ? buf_span(&lock->acquire_time) : buf_span(&lock->written),
        .transitions = lock->transitions + !renews,
    };
    if (lock->known)
        lease.meta.version = buf_span(&lock->version);
    lease_write(&body, &lease);
    lock->state = LOCK_WRITING;
    lock->sent = s->now;
    const char *text = out_str(s, buf_span(&body));
    struct core_output *o = call(s, CORE_CALL_LEASE_WRITE);
    o->body = text;
    o->create = !lock->known;
}

static void lose(struct step *s, enum err_code code, const char *why)
{
    struct lock *lock = &s->core->lock;
    if (lock->leader)
        out_note(s, code, "no longer the one who binds: %s", why);
    lock->leader = false;
}

/* Who could not renew for the lease's time may have a successor, whatever the Lease says
 * or does not say any more. */
void lock_lapse(struct step *s)
{
    const struct lock *lock = &s->core->lock;
    if (lock->leader && s->now.mono_ms >= lock->valid.mono_ms + CORE_LEASE_MS)
        lose(s, ERR_TIMEOUT, "the lease could not be renewed in time");
}

void lock_tick(struct step *s)
{
    struct core *core = s->core;
    struct lock *lock = &core->lock;
    if (lock->state != LOCK_IDLE)
        return;
    if (core->stopping && lock->leader && core->n_ops)
        return; /* not to be given back yet */
    if (lock->due_ms > s->now.mono_ms)
        return;
    if (lock->known && holds(core))
        put(s, core->stopping);
    else
        get(s);
}

void lock_look(struct step *s)
{
    struct lock *lock = &s->core->lock;
    int64_t soon = lock->asked_ms + LOOK_MS;
    if (soon < s->now.mono_ms)
        soon = s->now.mono_ms;
    if (s->core->settings.observer)
        return;
    if (lock->state == LOCK_IDLE && !lock->leader && soon < lock->due_ms)
        lock->due_ms = soon;
}

/* Is it another object than the one that was seen before? */
static void see_uid(struct step *s, const struct lease *lease)
{
    struct lock *lock = &s->core->lock;
    bool other = lock->looked && !span_eq(buf_span(&lock->uid), lease->meta.uid);
    if (lock->absent || other)
        lock->lead_from_ms = s->now.mono_ms + CORE_LEASE_MS;
    lock->absent = false;
    set(&lock->uid, lease->meta.uid);
}

/* It was written, by us or by somebody else. (That it can be read is not enough.) */
static void went_well(struct step *s)
{
    struct lock *lock = &s->core->lock;
    if (lock->trouble.n)
        sync_hurry(s);
    lock->noted = ERR_NONE;
    keep_trouble(&lock->trouble, NULL);
}

/* Takes over what the Lease looks like now. */
static void observe(struct step *s, const struct lease *lease)
{
    struct lock *lock = &s->core->lock;
    see_uid(s, lease);
    if (!span_eq(buf_span(&lock->version), lease->meta.version))
        went_well(s);
    if (!lock->known || !span_eq(buf_span(&lock->version), lease->meta.version)) {
        lock->observed_ms = s->now.mono_ms;
        lock->duration_s = lease->duration_s;
        lock->transitions = lease->transitions;
        set(&lock->version, lease->meta.version);
        set(&lock->holder, lease->holder);
        set(&lock->renew_time, lease->renew_time);
        set(&lock->acquire_time, lease->acquire_time);
    }
    lock->known = true;
    if (holds(s->core))
        return;
    if (lock->holder.n == 0)
        lose(s, ERR_NONE, "the lease is given back");
    else
        lose(s, ERR_CONFLICT, "somebody else holds the lease");
}

int64_t lock_free_at(const struct core *core)
{
    const struct lock *lock = &core->lock;
    if (!lock->known || lock->holder.n == 0)
        return INT64_MIN;
    int64_t seconds = lock->duration_s;
    if (seconds <= 0)
        seconds = CORE_LEASE_MS / 1000;
    if (seconds > DURATION_MAX_S)
        seconds = DURATION_MAX_S;
    return lock->observed_ms + seconds * 1000;
}

/* Said once for each holder. */
static void note_waiting(struct step *s)
{
    struct lock *lock = &s->core->lock;
    struct span holder = buf_span(&lock->holder);
    if (span_eq(buf_span(&lock->waits_for), holder))
        return;
    set(&lock->waits_for, holder);
    out_note(s, ERR_NONE, "waiting for the lease %s/%s, held by %.*s",
             s->core->lease_namespace, s->core->lease_name, SPAN_ARG(holder));
}

/* The Lease was looked at: take it if it is free, otherwise look again. */
static void decide(struct step *s)
{
    struct core *core = s->core;
    struct lock *lock = &core->lock;
    if (core->stopping) {
        /* Who holds it next gets the binds that still come. */
        lock->due_ms = s->now.mono_ms + (lock->known && holds(core) ? 0 : RETRY_MS);
        return;
    }
    if ((lock->known && holds(core)) || lock_free_at(core) <= s->now.mono_ms) {
        put(s, false);
        return;
    }
    lock->settled = true;
    note_waiting(s);
    lock->due_ms = s->now.mono_ms + RETRY_MS;
    if (lock_free_at(core) < lock->due_ms)
        lock->due_ms = lock_free_at(core);
}

/* It fails twice a second for as long as the API server is away: once a minute is told.
 */
static void note_failure(struct step *s, const char *what)
{
    struct lock *lock = &s->core->lock;
    const struct err *err = s->in->err;
    keep_trouble(&lock->trouble, err);
    if (lock->noted == err->code && s->now.mono_ms < lock->noted_ms + NOTE_AGAIN_MS)
        return;
    lock->noted = err->code;
    lock->noted_ms = s->now.mono_ms;
    out_note(s, err->code, "%s of the lease failed: %s", what, err->msg);
}

static void got(struct step *s)
{
    const struct core_input *in = s->in;
    struct lock *lock = &s->core->lock;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    if (code == ERR_NOT_FOUND) {
        lock->known = false;
        lock->absent = true;
    } else if (code == ERR_NONE) {
        observe(s, in->lease);
    } else {
        lock->settled = true;
        lock->due_ms = s->now.mono_ms + RETRY_MS;
        note_failure(s, "get");
        return;
    }
    lock->looked = true;
    decide(s);
}

/* It is ours, but not yet to be used. */
static void note_made_anew(struct step *s)
{
    struct core *core = s->core;
    struct lock *lock = &core->lock;
    lock->settled = true;
    if (lock->lead_from_ms < lock->due_ms)
        lock->due_ms = lock->lead_from_ms;
    if (span_eq(buf_span(&lock->waits_for), buf_span(&lock->holder)))
        return;
    set(&lock->waits_for, buf_span(&lock->holder));
    out_note(
        s, ERR_NONE,
        "the lease %s/%s was absent and has been made; binding starts in %lld s, when "
        "nobody can hold an older one",
        core->lease_namespace, core->lease_name,
        (long long)((lock->lead_from_ms - s->now.mono_ms + 999) / 1000));
}

static void acquired(struct step *s)
{
    struct core *core = s->core;
    struct lock *lock = &core->lock;
    lock->leader = lock->settled = true;
    buf_clear(&lock->waits_for);
    lock->acquired_ms = s->now.mono_ms;
    out_note(s, ERR_NONE, "holding the lease %s/%s", core->lease_namespace,
             core->lease_name);
    /* What the last holder bound must be known before the first bind. */
    if (core->cursors[CORE_PODS].run)
        sync_relist(s, CORE_PODS);
}

static void write_answered(struct step *s)
{
    const struct core_input *in = s->in;
    struct lock *lock = &s->core->lock;
    enum err_code code = in->err ? in->err->code : ERR_NONE;
    if (code != ERR_NONE) {
        /* It may have taken effect all the same; a look tells. */
        lock->due_ms = s->now.mono_ms + (code == ERR_CONFLICT ? 0 : RETRY_MS);
        lock->known = false;
        lock->settled = true;
        if (code != ERR_CONFLICT)
            note_failure(s, "write");
        return;
    }
    went_well(s);
    observe(s, in->lease);
    if (!holds(s->core)) {
        lock->due_ms = s->now.mono_ms + RETRY_MS;
        return;
    }
    lock->valid = lock->sent;
    lock->due_ms = lock->sent.mono_ms + CORE_RENEW_MS;
    if (!lock->leader && s->now.mono_ms >= lock->lead_from_ms)
        acquired(s);
    else if (!lock->leader)
        note_made_anew(s);
}

bool lock_answered(struct step *s)
{
    struct lock *lock = &s->core->lock;
    if (lock->state == LOCK_IDLE || lock->call != s->in->call)
        return false;
    enum lock_state state = lock->state;
    lock->state = LOCK_IDLE;
    if (state == LOCK_GETTING)
        got(s);
    else
        write_answered(s);
    return true;
}

int64_t lock_due(const struct core *core)
{
    const struct lock *lock = &core->lock;
    if (lock->state != LOCK_IDLE || (core->stopping && lock->leader && core->n_ops))
        return INT64_MAX;
    return lock->due_ms;
}

struct clock_deadline lock_bind_until(const struct core *core)
{
    const struct lock *lock = &core->lock;
    const struct core_time *from = &lock->valid;
    if (!lock->leader)
        return (struct clock_deadline){.mono_ms = INT64_MIN};
    return (struct clock_deadline){
        .mono_ms = from->mono_ms + CORE_LEASE_MS - CORE_BIND_LIMIT_MS - CORE_SLACK_MS,
        .offset_ms = clock_offset_ms(from->mono_ms, from->wall_ns)};
}
