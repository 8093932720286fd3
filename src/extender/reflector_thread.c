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
    struct reflector lines[CORE_KINDS];
    pthread_t thread;
    pthread_mutex_t lock;                   /* protects what follows */
    struct core_output *wanted[CORE_KINDS]; /* the newest wish of each kind, or NULL */
    uint64_t newest[CORE_KINDS];            /* run of the newest wish that ever came */
    bool stop;
};

static void on_input(void *ctx, const struct core_input *in)
{
    struct reflector_thread *sync = ctx;
    if (in->type == CORE_LIST_ENDED || in->type == CORE_LIST_FAILED ||
        in->type == CORE_WATCH_ENDED)
        counters_api_call(sync->counters,
                          in->type == CORE_WATCH_ENDED ? COUNTERS_API_WATCH
                                                       : COUNTERS_API_LIST,
                          in->err ? in->err->code : ERR_NONE);
    store_input(sync->store, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("sync", "object with a fault", LOG_ERR(err));
}

static const struct apisync_sink apisync_sink = {.input = on_input, .fault = on_fault};

/* Takes the wishes and starts them. False: it is time to stop. */
static bool take_wishes(struct reflector_thread *sync)
{
    struct core_output *wanted[CORE_KINDS];
    pthread_mutex_lock(&sync->lock);
    bool stop = sync->stop;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        wanted[kind] = steal(&sync->wanted[kind]);
    pthread_mutex_unlock(&sync->lock);
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        if (wanted[kind] && !stop)
            reflector_start(&sync->lines[kind], wanted[kind]);
        free(wanted[kind]);
    }
    return !stop;
}

static void *run(void *arg)
{
    struct reflector_thread *sync = arg;
    while (take_wishes(sync))
        httpc_loop_run(sync->loop, 1000);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        reflector_cancel(&sync->lines[kind]);
    return NULL;
}

struct reflector_thread *reflector_thread_start(struct store *store,
                                                struct kube_client *client,
                                                struct counters *counters, bool gzip)
{
    struct reflector_thread *sync = xcalloc(1, sizeof *sync);
    sync->store = store;
    sync->counters = counters;
    sync->loop = httpc_loop_new();
    for (int kind = 0; kind < CORE_KINDS; kind++)
        sync->lines[kind] = (struct reflector){
            .client = client,
            .loop = sync->loop,
            .gzip = gzip,
            .sink = &apisync_sink,
            .ctx = sync,
        };
    pthread_mutex_init(&sync->lock, NULL);
    if (pthread_create(&sync->thread, NULL, run, sync))
        abort();
    pthread_setname_np(sync->thread, "watch");
    return sync;
}

void reflector_thread_add(struct reflector_thread *sync, const struct core_output *output)
{
    pthread_mutex_lock(&sync->lock);
    /* Threads may pass each other on the way here: an older wish must not end a newer
     * one, whether that still waits or has begun. */
    if (output->run > sync->newest[output->kind]) {
        sync->newest[output->kind] = output->run;
        free(sync->wanted[output->kind]);
        sync->wanted[output->kind] = core_output_dup(output);
    }
    pthread_mutex_unlock(&sync->lock);
    httpc_loop_wake(sync->loop);
}

void reflector_thread_stop(struct reflector_thread *sync)
{
    if (!sync)
        return;
    pthread_mutex_lock(&sync->lock);
    sync->stop = true;
    pthread_mutex_unlock(&sync->lock);
    httpc_loop_wake(sync->loop);
    pthread_join(sync->thread, NULL);
}

void reflector_thread_free(struct reflector_thread *sync)
{
    if (!sync)
        return;
    httpc_loop_free(sync->loop);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(sync->wanted[kind]);
    pthread_mutex_destroy(&sync->lock);
    free(sync);
}
