/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/informer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

struct informer {
    struct informer_settings settings;
    struct list_watch_loop *loop;
    struct list_watch in;
    struct buf path;
    struct rng rng;
    atomic_bool relist;
    pthread_mutex_t lock; /* protects what follows, which only the thread changes */
    struct reflector reflector;
    int64_t alive_ms;
};

static void delivered(struct informer *i, struct span version)
{
    struct reflector *r = &i->reflector;
    bool failed = r->failure.failures > 0;
    pthread_mutex_lock(&i->lock);
    reflector_delivered(r, clock_mono_ms(), &i->rng, version);
    pthread_mutex_unlock(&i->lock);
    if (!failed || r->failure.failures)
        return;
    log_info("reflector", "list and watch work again", LOG_S("kind", i->settings.name));
    if (i->settings.recovered)
        i->settings.recovered(i->settings.ctx);
}

/* After a version that goes back a list follows, and nothing of the watch counts. */
static bool counts(const struct informer *i)
{
    return reflector_is_current(&i->reflector, i->reflector.run);
}

static void on_object(void *ctx, struct jread *j, bool deleted)
{
    struct informer *i = ctx;
    struct span version = {0};
    struct err err;
    if (!counts(i)) {
        jread_skip(j);
        return;
    }
    int rc =
        i->settings.object(i->settings.ctx, j, &i->in.arena, deleted, &version, &err);
    if (rc)
        list_watch_fail(&i->in, &err);
    else if (jread_check(j, NULL) == 0)
        delivered(i, version);
}

static void on_bookmark(void *ctx, struct span version)
{
    if (counts(ctx))
        delivered(ctx, version);
}

static void on_fault(void *ctx, const struct err *err)
{
    struct informer *i = ctx;
    list_watch_fail(&i->in, err);
}

static void start_run(void *ctx, size_t slot, const struct list_watch_run *run)
{
    struct informer *i = ctx;
    bool watch = i->reflector.state == REFLECTOR_WATCHING;
    (void)slot, (void)run; /* the newest, as in the reflector */
    list_watch_start(&i->in, watch);
    buf_set(&i->in.version, buf_span(&i->reflector.version));
    if (!watch)
        i->settings.listed(i->settings.ctx, false);
}

static struct list_watch *next_request(void *ctx, size_t slot, struct arena *a,
                                       struct kube_request *request)
{
    struct informer *i = ctx;
    int64_t watch_s = reflector_watch_s(i->settings.kind.watch_s, rng_next(&i->rng));
    (void)slot;
    list_watch_request(&i->in, i->path.p, watch_s, true, a, request);
    return &i->in;
}

static bool end_response(void *ctx, size_t slot, const struct err *why)
{
    struct informer *i = ctx;
    const struct err *err = list_watch_end(&i->in, why) ? &i->in.err : NULL;
    struct err said = err ? *err : (struct err){0};
    (void)slot;
    if (!err && i->in.next.n)
        return true;
    if (!counts(i))
        return false;
    pthread_mutex_lock(&i->lock);
    enum reflector_end end =
        reflector_ended(&i->reflector, clock_mono_ms(), &i->rng, buf_span(&i->in.version),
                        err, i->in.retry_after_ms);
    pthread_mutex_unlock(&i->lock);
    if (end == REFLECTOR_RESTORED)
        log_warn("reflector",
                 "the API server has an older state than before, as after a restore from "
                 "a backup",
                 LOG_S("kind", i->settings.name));
    if (end <= REFLECTOR_ABSENT)
        i->settings.listed(i->settings.ctx, true);
    if (said.code == ERR_FORBIDDEN && i->settings.denied)
        err_set(&said, said.code, "%s%s", err->msg, i->settings.denied);
    if (said.code == ERR_NOT_FOUND && !i->in.watch)
        err_set(&said, said.code, "%s%s", err->msg, i->settings.not_served);
    if (end == REFLECTOR_FAILED)
        log_warn("reflector",
                 i->in.watch ? "watch failed; listing" : "list failed; retrying",
                 LOG_S("kind", i->settings.name), LOG_ERR(&said));
    return false;
}

static int64_t start_what_is_due(void *ctx)
{
    struct informer *i = ctx;
    struct reflector *r = &i->reflector;
    int64_t now_ms = clock_mono_ms();
    pthread_mutex_lock(&i->lock);
    i->alive_ms = now_ms;
    if (atomic_exchange(&i->relist, false))
        reflector_relist(r, now_ms);
    enum reflector_request request = reflector_tick(r, now_ms, r->run + 1);
    pthread_mutex_unlock(&i->lock);
    if (request != REFLECTOR_WAIT)
        list_watch_loop_start(i->loop, 0, &(struct list_watch_run){.run = r->run});
    return reflector_due(r) - now_ms;
}

const struct list_watch_fns informer_fns = {start_run, next_request, end_response,
                                            start_what_is_due};

struct informer *informer_new(const struct informer_settings *settings)
{
    static const struct list_watch_handler handler = {on_object, on_bookmark, on_fault};
    struct informer *i = xcalloc(1, sizeof *i);
    i->settings = *settings;
    i->alive_ms = clock_mono_ms();
    buf_adds(&i->path, settings->path);
    list_watch_escape(&i->path, span_of(settings->value));
    buf_addc(&i->path, '&');
    pthread_mutex_init(&i->lock, NULL);
    rng_init(&i->rng, settings->seed);
    list_watch_init(&i->in, &handler, i);
    reflector_start(&i->reflector, &i->settings.kind, i->alive_ms);
    i->loop = list_watch_loop_new(settings->client, 1, &informer_fns, i);
    return i;
}

void informer_start(struct informer *i, const char *thread)
{
    list_watch_loop_thread(i->loop, thread);
}

void informer_relist(struct informer *i)
{
    atomic_store(&i->relist, true);
    list_watch_loop_wake(i->loop);
}

struct informer_status informer_status(struct informer *i)
{
    int64_t now_ms = clock_mono_ms();
    pthread_mutex_lock(&i->lock);
    struct informer_status status = {i->reflector.failure,
                                     reflector_unknown_since(&i->reflector, now_ms),
                                     i->alive_ms};
    pthread_mutex_unlock(&i->lock);
    return status;
}

void informer_stop(struct informer *i)
{
    if (i)
        list_watch_loop_stop(i->loop);
}

void informer_free(struct informer *i)
{
    if (!i)
        return;
    list_watch_loop_free(i->loop);
    list_watch_fini(&i->in);
    reflector_fini(&i->reflector);
    buf_fini(&i->path);
    pthread_mutex_destroy(&i->lock);
    free(i);
}
