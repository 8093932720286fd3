/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_client.h"

#include <stdlib.h>

#include "apisync/reflector.h"
#include "base/clock.h"
#include "base/mem.h"

struct cluster_client {
    struct cluster_state *state;
    struct httpc_loop *loop;
    struct reflector streams[CORE_KINDS];
};

struct cluster_client *cluster_client_new(const struct cluster_state_config *config,
                                          struct kube_client *client)
{
    struct cluster_client *c = xcalloc(1, sizeof *c);
    c->state = cluster_state_new(config);
    c->loop = httpc_loop_new();
    for (int kind = 0; kind < CORE_KINDS; kind++)
        c->streams[kind] = (struct reflector){
            .client = client,
            .loop = c->loop,
            .gzip = true,
            .sink = &cluster_state_sink,
            .ctx = c->state,
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
    cluster_state_tick(c->state);
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
