/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    BIND_WAIT_MS =
        20000,     /* CORE_HOLD_MS, and the Binding; from each core_driver_bind on */
    GONE_MS = 200, /* between two looks at the caller of a bind that waits */
};

/* What the caller's own thread takes of the outputs. */
struct own_outputs {
    struct span uid; /* of a bind, whose thread makes its Binding and GET; empty: none */
    uint64_t token;  /* of its reply */
    struct core_output *calls[4];
    size_t n;
    struct core_output *reply; /* of a bind or a reservation; new */
};

/* A bind whose thread waits for the outcome. The last bind of a gang starts all of them: the
 * thread of each makes its own calls. */
struct pending {
    struct list link;
    pthread_cond_t cond;
    struct own_outputs given; /* by the steps of other threads; under wait_lock */
};

struct core_driver {
    struct core_driver_io io;
    struct view_source source;
    pthread_rwlock_t lock; /* protects core */
    struct core *core;

    pthread_mutex_t wait_lock; /* protects the members below; never held with `lock` */
    pthread_cond_t wait_cond;
    struct list pending;
    uint64_t last_token;
    unsigned may_bind_waiters;
    bool stopped;
};

struct step_time core_driver_now(void)
{
    return step_now();
}

static const struct core *read_core(void *ctx)
{
    return core_driver_read(ctx);
}

static void end_read(void *ctx)
{
    core_driver_read_end(ctx);
}

struct core_driver *core_driver_new(const struct core_settings *settings,
                                    const struct core_driver_io *io)
{
    struct core_driver *driver = xcalloc(1, sizeof *driver);
    pthread_rwlockattr_t attr;
    driver->io = *io;
    driver->source =
        (struct view_source){.read = read_core, .read_end = end_read, .ctx = driver};
    driver->core = core_new(settings);
    list_init(&driver->pending);
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&driver->lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&driver->wait_lock, NULL);
    pthread_cond_init(&driver->wait_cond, NULL);
    return driver;
}

void core_driver_free(struct core_driver *driver)
{
    if (!driver)
        return;
    assert(list_is_empty(&driver->pending));
    core_free(driver->core);
    pthread_rwlock_destroy(&driver->lock);
    pthread_mutex_destroy(&driver->wait_lock);
    pthread_cond_destroy(&driver->wait_cond);
    free(driver);
}

void core_driver_advertise(struct core_driver *driver, const char *address)
{
    pthread_rwlock_wrlock(&driver->lock);
    core_advertise(driver->core, address);
    pthread_rwlock_unlock(&driver->lock);
}

const struct core *core_driver_read(struct core_driver *driver)
{
    pthread_rwlock_rdlock(&driver->lock);
    return driver->core;
}

void core_driver_read_end(struct core_driver *driver)
{
    pthread_rwlock_unlock(&driver->lock);
}

int core_driver_ready(struct core_driver *driver, struct err *err)
{
    int rc = core_ready(core_driver_read(driver), core_driver_now(), err);
    core_driver_read_end(driver);
    return rc;
}

const struct view_source *core_driver_source(const struct core_driver *driver)
{
    return &driver->source;
}

int64_t core_driver_due(struct core_driver *driver)
{
    int64_t due = core_due(core_driver_read(driver));
    core_driver_read_end(driver);
    return due;
}

static bool take_own(struct own_outputs *own, const struct core_output *o)
{
    if (!own)
        return false;
    if (o->type == CORE_REPLY || o->type == CORE_RESERVED) {
        if (o->token == own->token && !own->reply)
            own->reply = core_output_dup(o);
        return o->token == own->token;
    }
    bool of_bind = o->type == CORE_CALL_BIND || o->type == CORE_CALL_GET_POD;
    if (!of_bind || !own->uid.n || own->n == ARRAY_LEN(own->calls) ||
        !span_eq(own->uid, span_of(o->uid)))
        return false;
    own->calls[own->n++] = core_output_dup(o);
    return true;
}

/* Gives a reply, or a call, to the thread of the bind that waits for it. False: none waits. */
static bool give_output(struct core_driver *driver, const struct core_output *o)
{
    bool given = false;
    pthread_mutex_lock(&driver->wait_lock);
    LIST_EACH(struct pending, p, &driver->pending, link)
    if (!given && !p->given.reply && take_own(&p->given, o)) {
        given = true;
        pthread_cond_signal(&p->cond);
    }
    pthread_mutex_unlock(&driver->wait_lock);
    return given;
}

static void execute(struct core_driver *driver, const struct step_outputs *outputs,
                    struct own_outputs *own)
{
    step_write_logs(outputs);
    STEP_EACH(struct core_output, o, outputs)
    {
        if (take_own(own, o) || give_output(driver, o))
            continue;
        if (apisync_is_call(o))
            driver->io.defer(driver->io.ctx, o);
        else if (o->type != CORE_REPLY && o->type != CORE_RESERVED)
            driver->io.stream(driver->io.ctx, o);
    }
}

static void step(struct core_driver *driver, const struct core_input *in,
                 struct own_outputs *own)
{
    struct step_outputs outputs = {0};
    struct step_time now = core_driver_now();
    pthread_rwlock_wrlock(&driver->lock);
    int64_t due_before = core_due(driver->core);
    core_step(driver->core, now, in, &outputs);
    bool sooner = core_due(driver->core) < due_before;
    bool may_bind = core_check_may_bind(driver->core, now, NULL) == 0;
    bool stopped = core_stopped(driver->core);
    pthread_rwlock_unlock(&driver->lock);

    execute(driver, &outputs, own);
    step_outputs_fini(&outputs);
    if (may_bind || stopped) { /* see core_driver_wait_may_bind and core_driver_stop */
        pthread_mutex_lock(&driver->wait_lock);
        driver->stopped |= stopped;
        if (stopped || driver->may_bind_waiters)
            pthread_cond_broadcast(&driver->wait_cond);
        pthread_mutex_unlock(&driver->wait_lock);
    }
    if (sooner)
        driver->io.hurry(driver->io.ctx);
}

void core_driver_input(struct core_driver *driver, const struct core_input *in)
{
    step(driver, in, NULL);
}

struct core_driver_route core_driver_route(struct core_driver *driver, bool forwarded,
                                           bool *ready, struct err *err)
{
    const struct core *core = core_driver_read(driver);
    struct step_time now = core_driver_now();
    struct core_driver_route out = {.route = BIND_ROUTE_REJECT,
                                    .stopping = core_stopping(core)};
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
    core_driver_read_end(driver);
    return out;
}

void core_driver_refresh_lease(struct core_driver *driver)
{
    step(driver, &(struct core_input){.type = CORE_REFRESH_LEASE}, NULL);
}

void core_driver_wait_may_bind(struct core_driver *driver, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    pthread_mutex_lock(&driver->wait_lock);
    driver->may_bind_waiters++;
    thread_wait_until(&driver->wait_cond, &driver->wait_lock, until_ms);
    driver->may_bind_waiters--;
    pthread_mutex_unlock(&driver->wait_lock);
}

/* Makes the API calls of a bind, and those that follow from their answers. Calls left at
 * the deadline are deferred: after 0, all. */
static void make_calls(struct core_driver *driver, struct own_outputs *own,
                       int64_t until_ms)
{
    cleanup_arena struct arena arena = {0};
    while (own->n) {
        cleanup_free struct core_output *call = own->calls[--own->n];
        struct apisync_answer answer;
        if (clock_mono_ms() >= until_ms) {
            driver->io.defer(driver->io.ctx, call);
            continue;
        }
        arena_reset(&arena);
        driver->io.perform(driver->io.ctx, call, &arena, &answer);
        step(driver, &answer.input, own);
    }
}

/* `own` is what the steps of this thread put out, and only this thread sees it. `p.given` is what
 * steps of other threads put out for this bind (give_output): a reply, the Binding of a gang that
 * another bind has started, or a GET that was due. The loop moves given calls to `own`, which is
 * empty after make_calls, and makes them without the lock. A pass waits only if nothing was given;
 * the first never does, so that the handler slot is given back (`waits`) at once. When this thread
 * stops waiting, the calls that were given last are deferred to a worker: each call is made
 * once. */
int core_driver_bind(struct core_driver *driver, const struct core_driver_bind *bind,
                     bool *not_now, struct err *err)
{
    struct own_outputs own = {.uid = bind->uid};
    struct pending p = {.cond = PTHREAD_COND_INITIALIZER};
    bool waits = false, gone = false;
    struct core_input in = {.type = CORE_BIND,
                            .ns = bind->ns,
                            .name = bind->name,
                            .uid = bind->uid,
                            .node_name = bind->node,
                            .gang_minimum = bind->gang_minimum};
    int64_t until_ms = clock_mono_ms() + BIND_WAIT_MS;
    pthread_mutex_lock(&driver->wait_lock);
    in.token = own.token = ++driver->last_token;
    p.given = own;
    list_append(&driver->pending, &p.link);
    pthread_mutex_unlock(&driver->wait_lock);
    step(driver, &in, &own);
    make_calls(driver, &own, until_ms);
    pthread_mutex_lock(&driver->wait_lock);
    while (!own.reply && !p.given.reply && !gone && clock_mono_ms() < until_ms) {
        int64_t look_ms = clock_mono_ms() + GONE_MS;
        if (!p.given.n && waits)
            thread_wait_until(&p.cond, &driver->wait_lock,
                              look_ms < until_ms ? look_ms : until_ms);
        own.n = p.given.n;
        memcpy(own.calls, p.given.calls, sizeof own.calls);
        p.given.n = 0;
        pthread_mutex_unlock(&driver->wait_lock);
        make_calls(driver, &own, until_ms);
        if (!own.reply && !waits && bind->waits)
            bind->waits(bind->ctx);
        waits = true;
        gone = !own.reply && bind->gone && bind->gone(bind->ctx);
        if (gone)
            step(driver, &(struct core_input){.type = CORE_BIND_GONE, .token = in.token},
                 NULL);
        pthread_mutex_lock(&driver->wait_lock);
    }
    list_remove(&p.link);
    pthread_mutex_unlock(&driver->wait_lock);
    make_calls(driver, &p.given, 0); /* defers them */
    pthread_cond_destroy(&p.cond);
    cleanup_free struct core_output *here = own.reply, *elsewhere = p.given.reply;
    const struct core_output *reply = here ? here : elsewhere;
    *not_now = reply && reply->bind == CORE_BIND_NOT_NOW;
    if (!reply && gone)
        return err_set(err, ERR_TIMEOUT, "the caller of the bind has gone");
    if (!reply)
        return err_set(err, ERR_TIMEOUT,
                       "the outcome of the bind is unknown after %d s; the memory stays "
                       "promised until it is known",
                       BIND_WAIT_MS / 1000);
    err_set(err, reply->code, "%s", reply->text);
    return reply->bind == CORE_BOUND ? 0 : -1;
}

enum core_reserve_outcome core_driver_reserve(struct core_driver *driver,
                                              const struct core_input *reserve,
                                              struct buf *why, size_t *at)
{
    struct own_outputs own = {0};
    step(driver, reserve, &own);
    cleanup_free struct core_output *reserved = own.reply;
    if (why && reserved->text)
        buf_adds(why, reserved->text);
    *at = 0;
    while (*at < reserve->n_nodes &&
           !(reserved->node && span_eq(reserve->nodes[*at], span_of(reserved->node))))
        ++*at;
    return reserved->reserve;
}

void core_driver_begin_stop(struct core_driver *driver)
{
    step(driver, &(struct core_input){.type = CORE_STOP}, NULL);
}

bool core_driver_stop(struct core_driver *driver, int64_t timeout_ms)
{
    int64_t until_ms = clock_mono_ms() + timeout_ms;
    core_driver_begin_stop(driver);
    pthread_mutex_lock(&driver->wait_lock);
    while (!driver->stopped &&
           thread_wait_until(&driver->wait_cond, &driver->wait_lock, until_ms))
        ;
    bool stopped = driver->stopped;
    pthread_mutex_unlock(&driver->wait_lock);
    return stopped;
}
