/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_client.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "feed/stream.h"

struct cluster_client {
    struct cluster_state *world;
    struct httpc_loop *loop;
    struct feed_stream streams[CORE_KINDS];
};

struct cluster_client *cluster_client_new(const struct cluster_state_config *config, struct kube_client *client)
{
    struct cluster_client *l = xcalloc(1, sizeof *l);
    l->world = cluster_state_new(config);
    l->loop = httpc_loop_new();
    for (int kind = 0; kind < CORE_KINDS; kind++)
        l->streams[kind] = (struct feed_stream){
            .client = client,
            .loop = l->loop,
            .gzip = true,
            .sink = &cluster_state_sink,
            .ctx = l->world,
        };
    return l;
}

void cluster_client_free(struct cluster_client *l)
{
    if (!l)
        return;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        feed_stream_cancel(&l->streams[kind]);
    httpc_loop_free(l->loop);
    cluster_state_free(l->world);
    free(l);
}

struct cluster_state *cluster_client_world(struct cluster_client *l)
{
    return l->world;
}

static void start_wishes(struct cluster_client *l)
{
    cleanup_free struct core_output *wish = NULL;
    while (free(wish), (wish = cluster_state_take_request(l->world)))
        feed_stream_begin(&l->streams[wish->kind], wish);
}

/* Moves everything on, until `until_ms` at the latest. */
static void run(struct cluster_client *l, int64_t until_ms)
{
    cluster_state_tick(l->world);
    start_wishes(l);
    int64_t due = cluster_state_due(l->world), at = clock_mono_ms();
    if (due > until_ms)
        due = until_ms;
    httpc_loop_run(l->loop, due > at ? due - at : 0);
}

int cluster_client_load(struct cluster_client *l, int64_t timeout_ms, struct err *err)
{
    int64_t from_ms = clock_mono_ms(), until_ms = from_ms + timeout_ms;
    struct err why;
    while (cluster_state_check_ready(l->world, &why)) {
        if (why.code != ERR_NONE) {
            *err = why;
            return -1;
        }
        if (clock_mono_ms() >= until_ms)
            return err_set(err, ERR_TIMEOUT,
                           "the API server has not listed everything after %lld s",
                           (long long)(timeout_ms / 1000));
        run(l, until_ms);
    }
    cluster_state_check_heartbeats(l->world, l->streams[CORE_LEASES].date_s,
                (clock_mono_ms() - from_ms + 999) / 1000);
    return 0;
}

void cluster_client_wait(struct cluster_client *l, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    uint64_t seen = cluster_state_generation(l->world);
    do
        run(l, until_ms);
    while (clock_mono_ms() < until_ms && cluster_state_generation(l->world) == seen);
}
