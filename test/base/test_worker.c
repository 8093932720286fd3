/* SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop_flag.h"
#include "lib/unit.h"

struct gate {
    struct stop_flag entered, leave;
    int done;
};

static void pass(void *ctx, void *job)
{
    struct gate *g = ctx;
    (void)job;
    stop_flag_set(&g->entered);
    stop_flag_wait(&g->leave, 60000);
    g->done++;
}

START_TEST(a_stop_returns_when_its_time_is_up)
{
    struct gate g = {0};
    stop_flag_init(&g.entered);
    stop_flag_init(&g.leave);
    struct worker *w = worker_start("test", pass, &g);
    worker_add(w, xmalloc(1));
    worker_add(w, xmalloc(1)); /* queued: never runs */
    ck_assert(stop_flag_wait(&g.entered, 60000));
    ck_assert(!worker_stop_until(w, clock_mono_ms() + 20));
    ck_assert(!worker_stop_until(w, 0)); /* a time in the past */
    stop_flag_set(&g.leave);
    ck_assert(worker_stop_until(w, clock_mono_ms() + 60000));
    ck_assert_int_eq(g.done, 1);
    worker_free(w);
    stop_flag_fini(&g.entered);
    stop_flag_fini(&g.leave);
    ck_assert(worker_stop_until(NULL, 0));
}
END_TEST

UNIT_MAIN("worker", a_stop_returns_when_its_time_is_up)
