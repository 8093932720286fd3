/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    BIND_WAIT_MS = 15000,
};

/* A bind whose thread waits for the outcome. */
struct pending {
    uint64_t token;
    bool done;
    enum core_bind_outcome outcome;
    struct err err;
    struct pending *next;
};

struct store {
    struct store_io io;
    void (*changed)(void *ctx); /* or NULL */
    void *changed_ctx;
    pthread_rwlock_t lock; /* protects core */
    struct core *core;

    pthread_mutex_t wait_lock; /* protects the members below; never held with `lock` */
    pthread_cond_t wait_cond;  /* CLOCK_MONOTONIC */
    struct pending *pending;
    uint64_t last_token;
    unsigned may_bind_waiters;
    bool stopped;
};

struct core_time store_now(void)
{
    return (struct core_time){clock_mono_ms(), clock_wall_ns()};
}

static void lock_init(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(lock, &attr);
    pthread_rwlockattr_destroy(&attr);
}

static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct store *store_new(const struct core_settings *settings, const struct store_io *io)
{
    struct store *store = xcalloc(1, sizeof *store);
    store->io = *io;
    store->core = core_new(settings);
    lock_init(&store->lock);
    pthread_mutex_init(&store->wait_lock, NULL);
    cond_init(&store->wait_cond);
    return store;
}

void store_on_change(struct store *store, void (*fn)(void *ctx), void *ctx)
{
    store->changed = fn;
    store->changed_ctx = ctx;
}

void store_free(struct store *store)
{
    if (!store)
        return;
    assert(!store->pending);
    core_free(store->core);
    pthread_rwlock_destroy(&store->lock);
    pthread_mutex_destroy(&store->wait_lock);
    pthread_cond_destroy(&store->wait_cond);
    free(store);
}

void store_advertise(struct store *store, const char *address)
{
    pthread_rwlock_wrlock(&store->lock);
    core_advertise(store->core, address);
    pthread_rwlock_unlock(&store->lock);
}

const struct core *store_read(struct store *store)
{
    pthread_rwlock_rdlock(&store->lock);
    return store->core;
}

void store_read_end(struct store *store)
{
    pthread_rwlock_unlock(&store->lock);
}

static const struct core *read_core(void *ctx)
{
    return store_read(ctx);
}

static void end_read(void *ctx)
{
    store_read_end(ctx);
}

struct view_source store_source(struct store *store)
{
    return (struct view_source){.read = read_core, .read_end = end_read, .ctx = store};
}

void store_each_node(struct store *store, view_source_node_fn fn, void *ctx)
{
    struct view_source source = store_source(store);
    view_source_each_node(&source, fn, ctx);
}

int64_t store_due(struct store *store)
{
    int64_t due = core_due(store_read(store));
    store_read_end(store);
    return due;
}

static void answer_pending(struct store *store, const struct core_output *reply)
{
    pthread_mutex_lock(&store->wait_lock);
    for (struct pending *p = store->pending; p; p = p->next) {
        if (p->token != reply->token)
            continue;
        p->done = true;
        p->outcome = reply->bind;
        err_set(&p->err, reply->code, "%s", reply->text);
        pthread_cond_broadcast(&store->wait_cond);
        break;
    }
    pthread_mutex_unlock(&store->wait_lock);
}

static void log_note(const struct core_output *o)
{
    if (o->code == ERR_NONE)
        log_info("core", o->text);
    else
        log_warn("core", o->text, LOG_S("code", err_code_name(o->code)));
}

/* What the caller's own thread takes of the outputs. */
struct own_outputs {
    struct span uid; /* of a bind, whose API calls its thread makes itself */
    struct core_output *calls[4];
    size_t n;
    struct core_output *reserved; /* of a reservation; new */
};

static bool take_own(struct own_outputs *own, const struct core_output *o)
{
    if (!own || own->n == ARRAY_LEN(own->calls) || !o->uid ||
        !span_eq(own->uid, span_of(o->uid)))
        return false;
    own->calls[own->n++] = core_output_dup(o);
    return true;
}

static void execute(struct store *store, const struct core_outputs *outputs,
                    struct own_outputs *own)
{
    for (size_t i = 0; i < outputs->n; i++) {
        const struct core_output *o = &outputs->items[i];
        if (o->type == CORE_REPLY)
            answer_pending(store, o);
        else if (o->type == CORE_LOG)
            log_note(o);
        else if (o->type == CORE_RESERVED)
            own->reserved = core_output_dup(o);
        else if (!apisync_is_call(o))
            store->io.stream(store->io.ctx, o);
        else if (!take_own(own, o))
            store->io.defer(store->io.ctx, o);
    }
}

/* Wakes store_wait_may_bind and store_stop. */
static void wake(struct store *store, bool may_bind, bool stopped)
{
    pthread_mutex_lock(&store->wait_lock);
    store->stopped |= stopped;
    if (stopped || (store->may_bind_waiters && may_bind))
        pthread_cond_broadcast(&store->wait_cond);
    pthread_mutex_unlock(&store->wait_lock);
}

static void step(struct store *store, const struct core_input *in,
                 struct own_outputs *own)
{
    struct core_outputs outputs = {0};
    struct core_time now = store_now();
    pthread_rwlock_wrlock(&store->lock);
    int64_t due_before = core_due(store->core);
    uint64_t generation = ledger_generation(core_ledger(store->core));
    core_step(store->core, now, in, &outputs);
    bool sooner = core_due(store->core) < due_before;
    bool timers = in->type != CORE_OBJECT; /* an object alone changes neither flag */
    bool may_bind = timers && core_may_bind(store->core, now, NULL) == 0;
    bool stopped = timers && core_stopped(store->core);
    bool changed = ledger_generation(core_ledger(store->core)) != generation;
    pthread_rwlock_unlock(&store->lock);

    execute(store, &outputs, own);
    core_outputs_fini(&outputs);
    if (changed && store->changed)
        store->changed(store->changed_ctx);
    if (may_bind || stopped)
        wake(store, may_bind, stopped);
    if (sooner)
        store->io.hurry(store->io.ctx);
}

void store_input(struct store *store, const struct core_input *in)
{
    step(store, in, NULL);
}

static struct timespec deadline_in(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

struct store_route store_route(struct store *store, bool forwarded, bool *ready,
                               struct err *err)
{
    const struct core *core = store_read(store);
    struct core_time now = store_now();
    struct store_route out = {.route = BIND_ROUTE_REJECT,
                              .stopping = core_is_stopping(core)};
    *ready = core_ready(core, now, err) == 0;
    if (*ready) {
        struct bind_route found = core_bind_route(core, now, forwarded, err);
        out.route = found.route;
        out.until_ms = found.until_ms;
        if (found.address.n >= sizeof out.address)
            out.route = BIND_ROUTE_WAIT;
        else if (found.address.n)
            memcpy(out.address, found.address.p, found.address.n);
    }
    store_read_end(store);
    return out;
}

void store_refresh_lease(struct store *store)
{
    step(store, &(struct core_input){.type = CORE_REFRESH_LEASE}, NULL);
}

void store_wait_may_bind(struct store *store, int64_t ms)
{
    struct timespec until = deadline_in(ms);
    pthread_mutex_lock(&store->wait_lock);
    store->may_bind_waiters++;
    pthread_cond_timedwait(&store->wait_cond, &store->wait_lock, &until);
    store->may_bind_waiters--;
    pthread_mutex_unlock(&store->wait_lock);
}

static void pending_add(struct store *store, struct pending *p)
{
    pthread_mutex_lock(&store->wait_lock);
    p->token = ++store->last_token;
    p->next = store->pending;
    store->pending = p;
    pthread_mutex_unlock(&store->wait_lock);
}

/* Waits for the outcome, then removes the bind from the list. */
static void pending_finish(struct store *store, struct pending *p, struct timespec until)
{
    int timed_out = 0;
    pthread_mutex_lock(&store->wait_lock);
    while (!p->done && !timed_out)
        timed_out = pthread_cond_timedwait(&store->wait_cond, &store->wait_lock, &until);
    struct pending **at = &store->pending;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    pthread_mutex_unlock(&store->wait_lock);
}

static bool passed(struct timespec until)
{
    struct timespec now = deadline_in(0);
    return now.tv_sec != until.tv_sec ? now.tv_sec > until.tv_sec
                                      : now.tv_nsec >= until.tv_nsec;
}

/* Makes the API calls of a bind, and those that follow from their answers. Calls left at
 * the deadline are deferred. */
static void make_calls(struct store *store, struct own_outputs *own,
                       struct timespec until)
{
    cleanup_arena struct arena arena = {0};
    while (own->n) {
        cleanup_free struct core_output *call = own->calls[--own->n];
        struct apisync_answer answer;
        if (passed(until)) {
            store->io.defer(store->io.ctx, call);
            continue;
        }
        arena_reset(&arena);
        store->io.perform(store->io.ctx, call, &arena, &answer);
        step(store, &answer.input, own);
    }
}

int store_bind(struct store *store, const struct store_bind *bind, bool *not_leader,
               struct err *err)
{
    struct pending p = {0};
    struct own_outputs own = {.uid = bind->uid};
    struct core_input in = {.type = CORE_BIND,
                            .ns = bind->ns,
                            .name = bind->name,
                            .uid = bind->uid,
                            .node_name = bind->node};
    struct timespec until = deadline_in(BIND_WAIT_MS);
    pending_add(store, &p);
    in.token = p.token;
    step(store, &in, &own);
    make_calls(store, &own, until);
    pending_finish(store, &p, until);
    *not_leader = p.done && p.outcome == CORE_BIND_NOT_LEADER;
    if (!p.done)
        return err_set(err, ERR_TIMEOUT,
                       "the outcome of the bind is unknown after %d s; the memory stays "
                       "promised until it is known",
                       BIND_WAIT_MS / 1000);
    *err = p.err;
    return p.outcome == CORE_BOUND ? 0 : -1;
}

enum core_reserve_outcome store_reserve(struct store *store,
                                        const struct store_reserve *reserve, size_t *at)
{
    struct own_outputs own = {0};
    struct core_input in = {.type = CORE_RESERVE,
                            .ns = reserve->ns,
                            .name = reserve->name,
                            .uid = reserve->uid,
                            .request = reserve->request,
                            .priority = reserve->priority,
                            .requests = reserve->requests,
                            .gang = reserve->gang,
                            .nodes = reserve->nodes,
                            .n_nodes = reserve->n};
    step(store, &in, &own);
    cleanup_free struct core_output *reserved = own.reserved;
    if (reserve->why && reserved->text)
        buf_adds(reserve->why, reserved->text);
    *at = 0;
    while (*at < reserve->n &&
           !(reserved->node && span_eq(reserve->nodes[*at], span_of(reserved->node))))
        ++*at;
    return reserved->reserve;
}

void store_begin_stop(struct store *store)
{
    step(store, &(struct core_input){.type = CORE_STOP}, NULL);
}

bool store_stop(struct store *store, int64_t timeout_ms)
{
    struct timespec until = deadline_in(timeout_ms);
    int timed_out = 0;
    store_begin_stop(store);
    pthread_mutex_lock(&store->wait_lock);
    while (!store->stopped && !timed_out)
        timed_out = pthread_cond_timedwait(&store->wait_cond, &store->wait_lock, &until);
    bool stopped = store->stopped;
    pthread_mutex_unlock(&store->wait_lock);
    return stopped;
}
