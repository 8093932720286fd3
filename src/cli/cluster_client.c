/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_client.h"

#include <pthread.h>
#include <stdlib.h>

#include "apisync/reflector.h"
#include "base/clock.h"
#include "base/mem.h"

struct cluster_client {
    struct cluster_state *state;
    struct httpc_loop *loop;
    struct reflector streams[CORE_KINDS];
    pthread_mutex_t lock; /* held while the state changes; only this thread changes it */
};

static void on_input(void *ctx, const struct core_input *in)
{
    struct cluster_client *c = ctx;
    pthread_mutex_lock(&c->lock);
    cluster_state_sink.input(c->state, in);
    pthread_mutex_unlock(&c->lock);
}

/* Faults and Scvs change copies of the objects, which other threads do not read. */
static void on_fault(void *ctx, const struct err *err)
{
    struct cluster_client *c = ctx;
    cluster_state_sink.fault(c->state, err);
}

static void on_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
{
    struct cluster_client *c = ctx;
    cluster_state_sink.scv(c->state, scv, run, gone);
}

static const struct apisync_sink sink = {on_input, on_fault, on_scv};

struct cluster_client *cluster_client_new(const struct cluster_state_config *config,
                                          struct kube_client *client)
{
    struct cluster_client *c = xcalloc(1, sizeof *c);
    c->state = cluster_state_new(config);
    c->loop = httpc_loop_new();
    pthread_mutex_init(&c->lock, NULL);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        c->streams[kind] = (struct reflector){
            .client = client,
            .loop = c->loop,
            .gzip = true,
            .sink = &sink,
            .ctx = c,
        };
    return c;
}

void cluster_client_free(struct cluster_client *c)
{
    if (!c)
        return;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        reflector_cancel(&c->streams[kind]);
    httpc_loop_free(c->loop);
    cluster_state_free(c->state);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct cluster_state *cluster_client_state(struct cluster_client *c)
{
    return c->state;
}

static void start_requests(struct cluster_client *c)
{
    cleanup_free struct core_output *request = NULL;
    while (free(request), (request = cluster_state_take_request(c->state)))
        reflector_start(&c->streams[request->kind], request);
}

/* Runs until the next timer or I/O, at most until `until_ms`. */
static void run(struct cluster_client *c, int64_t until_ms)
{
    pthread_mutex_lock(&c->lock);
    cluster_state_tick(c->state);
    pthread_mutex_unlock(&c->lock);
    start_requests(c);
    int64_t due = cluster_state_due(c->state), now = clock_mono_ms();
    if (due > until_ms)
        due = until_ms;
    httpc_loop_run(c->loop, due > now ? due - now : 0);
}

int cluster_client_load(struct cluster_client *c, int64_t timeout_ms, struct err *err)
{
    int64_t from_ms = clock_mono_ms(), until_ms = from_ms + timeout_ms;
    struct err why;
    while (cluster_state_check_ready(c->state, &why)) {
        if (why.code != ERR_NONE) {
            *err = why;
            return -1;
        }
        if (clock_mono_ms() >= until_ms)
            return err_set(err, ERR_TIMEOUT,
                           "the API server did not list all objects within %lld s",
                           (long long)(timeout_ms / 1000));
        run(c, until_ms);
    }
    cluster_state_check_heartbeats(c->state, c->streams[CORE_LEASES].date_s,
                                   (clock_mono_ms() - from_ms + 999) / 1000);
    return 0;
}

void cluster_client_wait(struct cluster_client *c, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    uint64_t seen = cluster_state_generation(c->state);
    do
        run(c, until_ms);
    while (clock_mono_ms() < until_ms && cluster_state_generation(c->state) == seen);
}

static const struct core *read_core(void *ctx)
{
    struct cluster_client *c = ctx;
    pthread_mutex_lock(&c->lock);
    return cluster_state_core(c->state);
}

static void end_read(void *ctx)
{
    struct cluster_client *c = ctx;
    pthread_mutex_unlock(&c->lock);
}

struct view_source cluster_client_source(struct cluster_client *c)
{
    return (struct view_source){
        .read = read_core, .read_end = end_read, .ctx = c, .observer = true};
}
