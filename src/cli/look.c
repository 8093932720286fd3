/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/look.h"

#include <stdlib.h>

#include "apisync/reflector.h"
#include "base/clock.h"
#include "base/mem.h"

struct look {
    struct world *world;
    struct httpc_loop *loop;
    struct reflector streams[CORE_KINDS];
};

struct look *look_new(const struct world_config *config, struct kube_client *client)
{
    struct look *l = xcalloc(1, sizeof *l);
    l->world = world_new(config);
    l->loop = httpc_loop_new();
    for (int kind = 0; kind < CORE_KINDS; kind++)
        l->streams[kind] = (struct reflector){
            .client = client,
            .loop = l->loop,
            .gzip = true,
            .sink = &world_sink,
            .ctx = l->world,
        };
    return l;
}

void look_free(struct look *l)
{
    if (!l)
        return;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        reflector_cancel(&l->streams[kind]);
    httpc_loop_free(l->loop);
    world_free(l->world);
    free(l);
}

struct world *look_world(struct look *l)
{
    return l->world;
}

static void start_wishes(struct look *l)
{
    cleanup_free struct core_output *wish = NULL;
    while (free(wish), (wish = world_wish(l->world)))
        reflector_start(&l->streams[wish->kind], wish);
}

/* Moves everything on, until `until_ms` at the latest. */
static void run(struct look *l, int64_t until_ms)
{
    world_tick(l->world);
    start_wishes(l);
    int64_t due = world_due(l->world), at = clock_mono_ms();
    if (due > until_ms)
        due = until_ms;
    httpc_loop_run(l->loop, due > at ? due - at : 0);
}

int look_load(struct look *l, int64_t timeout_ms, struct err *err)
{
    int64_t from_ms = clock_mono_ms(), until_ms = from_ms + timeout_ms;
    struct err why;
    while (world_ready(l->world, &why)) {
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
    world_judge(l->world, l->streams[CORE_LEASES].date_s,
                (clock_mono_ms() - from_ms + 999) / 1000);
    return 0;
}

void look_wait(struct look *l, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    uint64_t seen = world_generation(l->world);
    do
        run(l, until_ms);
    while (clock_mono_ms() < until_ms && world_generation(l->world) == seen);
}
