/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "lib/burst.h"
#include "lib/cluster.h"

/*
 * Three extenders behind a Service. The leader stops in the middle of a burst, in each
 * possible way, without notice to kube-scheduler.
 */

enum { REPLICAS = 3, AT = 90 /* bound pods of the burst at that moment */ };
static const char *const names[REPLICAS] = {"gpushare-extender", "gpushare-extender-2",
                                            "gpushare-extender-3"};

static struct extender replicas[REPLICAS]; /* their ports */

static bool find_leader(size_t *leader)
{
    for (*leader = 0; *leader < REPLICAS; ++*leader)
        if (extender_leads(&replicas[*leader]))
            return true;
    return false;
}

static bool all_are_ready(void)
{
    for (size_t i = 0; i < REPLICAS; i++)
        if (!extender_ready(&replicas[i]))
            return false;
    return true;
}

static void begin(void)
{
    for (size_t i = 0; i < REPLICAS; i++)
        cluster_extender(names[i], &replicas[i]);
    size_t leader;
    lib_wait(all_are_ready() && find_leader(&leader));
    burst_add_nodes();
}

static void check(void)
{
    burst_check();
    lib_wait(all_are_ready());
    for (size_t i = 0; i < REPLICAS; i++) /* each knows all promises */
        oracle_agrees(&cluster.api, &replicas[i]);
    cluster_settle();
    for (size_t i = 0; i < REPLICAS; i++) {
        peer_fini(&replicas[i].verbs);
        peer_fini(&replicas[i].observers);
    }
}

static void (*trouble)(size_t leader);

static void trouble_the_leader(void)
{
    size_t leader;
    while (burst_bound() < AT)
        lib_pause();
    lib_wait(find_leader(&leader));
    trouble(leader);
}

static void burst_with(void (*make)(size_t leader), const char *what)
{
    trouble = make;
    begin();
    burst_meanwhile(trouble_the_leader, what);
    check();
}

TEST(all_three_answer_and_one_binds)
{
    size_t leader;
    begin();
    burst_add_pods();
    cluster_report("280 pods, three extenders", burst_wait_bound(BURST_FIT));
    lib_wait(find_leader(&leader));
    for (size_t i = 0; i < REPLICAS; i++)
        ck_assert(i == leader || !extender_leads(&replicas[i]));
    check();
}

static void kill_it(size_t leader)
{
    cluster_stop(names[leader], "KILL");
    cluster_start(names[leader]);
}

TEST(the_leader_is_killed)
{
    burst_with(kill_it, "280 pods, and the holder is killed");
}

/* Pauses it until another replica is the leader and has bound pods. When it resumes, it
 * still believes for a moment that it holds the Lease. */
static void freeze_it(size_t leader)
{
    pid_t pid = cluster_pid(names[leader]);
    size_t other, bound = burst_bound();
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    do {
        lib_pause();
        for (other = 0; other < REPLICAS; other++)
            if (other != leader && extender_leads(&replicas[other]))
                break;
    } while (other == REPLICAS || (burst_bound() == bound && bound < BURST_FIT));
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
}

TEST(the_leader_is_paused_and_resumes)
{
    burst_with(freeze_it, "280 pods, and the holder stands still until another leads");
}

static void update_all(size_t leader)
{
    (void)leader;
    for (size_t i = 0; i < REPLICAS; i++) {
        cluster_stop(names[i], "TERM");
        cluster_start(names[i]);
        lib_wait(extender_ready(&replicas[i]));
    }
}

TEST(a_rolling_update_replaces_all_replicas)
{
    burst_with(update_all, "280 pods, and each of the three is replaced in turn");
}

CLUSTER_MAIN(120, "--extenders", "3")
