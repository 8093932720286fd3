/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/reflector_thread.h"

#include <pthread.h>
#include <stdlib.h>

#include "apisync/reflector.h"
#include "base/log.h"
#include "base/mem.h"

struct reflector_thread {
    struct store *store;
    struct counters *counters;
    struct httpc_loop *loop;
    struct reflector reflectors[CORE_KINDS];
    pthread_t thread;
    pthread_mutex_t lock;                   /* protects the members below */
    struct core_output *queued[CORE_KINDS]; /* the newest request of each kind, or NULL */
    uint64_t newest[CORE_KINDS];            /* run of the newest request so far */
    bool stop;
};

static void on_input(void *ctx, const struct core_input *in)
{
    struct reflector_thread *t = ctx;
    if (in->type == CORE_LIST_ENDED || in->type == CORE_LIST_FAILED ||
        in->type == CORE_WATCH_ENDED)
        counters_api_call(t->counters,
                          in->type == CORE_WATCH_ENDED ? COUNTERS_API_WATCH
                                                       : COUNTERS_API_LIST,
                          in->err ? in->err->code : ERR_NONE);
    store_input(t->store, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("reflector", "invalid object", LOG_ERR(err));
}

static const struct apisync_sink apisync_sink = {.input = on_input, .fault = on_fault};

/* Starts the queued lists and watches. False: stop. */
static bool start_queued(struct reflector_thread *t)
{
    struct core_output *queued[CORE_KINDS];
    pthread_mutex_lock(&t->lock);
    bool stop = t->stop;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        queued[kind] = steal(&t->queued[kind]);
    pthread_mutex_unlock(&t->lock);
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        if (queued[kind] && !stop)
            reflector_start(&t->reflectors[kind], queued[kind]);
        free(queued[kind]);
    }
    return !stop;
}

static void *run(void *arg)
{
    struct reflector_thread *t = arg;
    while (start_queued(t))
        httpc_loop_run(t->loop, 1000);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        reflector_cancel(&t->reflectors[kind]);
    return NULL;
}

struct reflector_thread *reflector_thread_start(struct store *store,
                                                struct kube_client *client,
                                                struct counters *counters, bool gzip)
{
    struct reflector_thread *t = xcalloc(1, sizeof *t);
    t->store = store;
    t->counters = counters;
    t->loop = httpc_loop_new();
    for (int kind = 0; kind < CORE_KINDS; kind++)
        t->reflectors[kind] = (struct reflector){
            .client = client,
            .loop = t->loop,
            .gzip = gzip,
            .sink = &apisync_sink,
            .ctx = t,
        };
    pthread_mutex_init(&t->lock, NULL);
    if (pthread_create(&t->thread, NULL, run, t))
        abort();
    pthread_setname_np(t->thread, "watch");
    return t;
}

void reflector_thread_add(struct reflector_thread *t, const struct core_output *output)
{
    pthread_mutex_lock(&t->lock);
    /* Two threads may get here out of order: an older request must not replace a newer
     * one, whether that is queued or started. */
    if (output->run > t->newest[output->kind]) {
        t->newest[output->kind] = output->run;
        free(t->queued[output->kind]);
        t->queued[output->kind] = core_output_dup(output);
    }
    pthread_mutex_unlock(&t->lock);
    httpc_loop_wake(t->loop);
}

void reflector_thread_stop(struct reflector_thread *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_mutex_unlock(&t->lock);
    httpc_loop_wake(t->loop);
    pthread_join(t->thread, NULL);
}

void reflector_thread_free(struct reflector_thread *t)
{
    if (!t)
        return;
    httpc_loop_free(t->loop);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(t->queued[kind]);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
