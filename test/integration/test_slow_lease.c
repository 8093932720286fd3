/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"

/*
 * An API server that is slow for the Lease alone, with several values of --lease-duration. Each
 * row of the table in docs/operations.md is a test that prints what it measured; those that take
 * minutes run with SLOW_LEASE=1.
 */

static int pods;

/* Binds a new pod, with calls as from kube-scheduler until one succeeds. *calls: how many. Returns
 * how long that took. */
static int64_t bind_pod(const struct extender *e, int *calls)
{
    const char *name = lib_fmt("p%d", ++pods);
    int64_t since_ms = lib_now_ms();
    cleanup_buf struct buf why = {0};
    sim_add_pod(&sim, name, 1);
    for (*calls = 1; !extender_bind(e, name, "n1", &why); ++*calls) {
        ck_assert_msg(*calls < 20, "%s", why.p);
        buf_clear(&why);
    }
    int64_t took_ms = lib_now_ms() - since_ms;
    sim_delete_pod(&sim, name);
    return took_ms;
}

/* Each request for the Lease takes `ms`. */
static void slow_down(int64_t ms)
{
    sim_fault(
        &sim,
        "{\"resource\":\"leases\",\"name\":\"gpushare-extender\",\"action\":\"hang\","
        "\"hangMs\":%lld}",
        (long long)ms);
}

/* From the kill of the leader to the first bind by the follower, which starts here. */
static int64_t fail_over(struct extender *leader, struct extender *follower)
{
    int calls;
    extender_kill(leader);
    int64_t ms = bind_pod(follower, &calls);
    lib_wait(extender_leads(follower));
    return ms;
}

static void measure(int seconds, int64_t slow_ms)
{
    struct extender a, b, c;
    const char *const *options =
        ARGV("--lease-duration", lib_fmt("%ds", seconds), "--drain-delay", "0s");
    int calls;
    pods = 0;
    sim_add_node(&sim, "n1", 8, 1000);
    extender_start(&a, &sim, options);
    extender_wait_ready(&a);
    lib_wait(extender_leads(&a));
    extender_start(&b, &sim, options);
    extender_wait_ready(&b);
    bind_pod(&b, &calls); /* forwarded: it knows the leader */
    int64_t fast_ms = fail_over(&a, &b);
    extender_start(&c, &sim, options);
    extender_wait_ready(&c);
    bind_pod(&c, &calls);
    slow_down(slow_ms);
    int64_t most_ms = 0, end_ms = lib_now_ms() + seconds * 2000;
    int lost = 0;
    while (lib_now_ms() < end_ms) {
        int64_t ms = bind_pod(&b, &calls);
        most_ms = ms > most_ms ? ms : most_ms;
        lost += calls - 1;
    }
    int64_t then_ms = fail_over(&b, &c);
    sim_no_faults(&sim);
    printf("measured: lease %d s: killed leader replaced after %.1f s; with %.1f s per "
           "Lease "
           "request binds take %.1f s at most, %d calls failed, replaced after %.1f s\n",
           seconds, (double)fast_ms / 1000, (double)slow_ms / 1000,
           (double)most_ms / 1000, lost, (double)then_ms / 1000);
    ck_assert_int_eq(lost, 0);
    ck_assert_int_lt(fast_ms, seconds * 1000 + 5000 * LIB_SLOWER);
    extender_stop(&c);
}

TEST(a_lease_of_5_s_bears_1_2_s)
{
    measure(5, 1200);
}

TEST(a_lease_of_10_s_bears_4_3_s)
{
    measure(10, 4300);
}

/* With the default, no bind leaves. */
TEST(a_lease_of_5_s_does_not_bear_2_2_s)
{
    cleanup_buf struct buf why = {0};
    sim_add_node(&sim, "n1", 1, 16);
    suite_extender(NULL);
    lib_wait(extender_leads(&extender));
    slow_down(2200);
    lib_wait(!extender_leads(&extender));
    sim_add_pod(&sim, "p1", 1);
    ck_assert(!extender_bind(&extender, "p1", "n1", &why));
    ck_assert_contains(why.p, "lease kube-system/gpushare-extender");
    sim_no_faults(&sim);
    lib_wait(extender_bind(&extender, "p1", "n1", NULL));
}

TEST(a_lease_of_15_s_bears_6_8_s)
{
    if (getenv("SLOW_LEASE"))
        measure(15, 6800);
}

TEST(a_lease_of_30_s_bears_14_s)
{
    if (getenv("SLOW_LEASE"))
        measure(30, 14000);
}

TEST(a_lease_of_60_s_bears_29_s)
{
    if (getenv("SLOW_LEASE"))
        measure(60, 29000);
}

SUITE_MAIN(400, NULL)
