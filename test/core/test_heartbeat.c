/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "core/rig.h"

/* Heartbeats: when a node is stale, and when it must not be. */

enum { GRACE = 40000 };

/* `owner`: the node whose heartbeat it is; "": none, as left behind by another system. */
static void lease_seen(const char *name, const char *owner, const char *renewed,
                       bool gone)
{
    struct lease lease = {.meta = {.name = span_of(name), .version = SPAN("100")},
                          .holder = span_of(name),
                          .node = span_of(owner),
                          .renew_time = span_of(renewed)};
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_LEASES,
                                 .run = r.runs[CORE_LEASES],
                                 .version = SPAN("100"),
                                 .lease = &lease,
                                 .deleted = gone});
}

static void renew(const char *node, const char *renewed)
{
    lease_seen(node, node, renewed, false);
}

static void bookmark(void)
{
    rig_step((struct core_input){.type = CORE_WATCH_PROGRESS,
                                 .kind = CORE_LEASES,
                                 .run = r.runs[CORE_LEASES],
                                 .version = SPAN("100")});
}

static bool is_stale(const char *node)
{
    const struct ledger_node *n = rig_ledger_node(node);
    return n && n->state == NODE_STALE;
}

/* n1 and n2 have an scv-agent, n3 has the Scv of another daemon. */
static void begin(void)
{
    rig_new((struct core_settings){.node_grace_ms = GRACE});
    rig_lead();
    rig_progress(CORE_LEASES);
    for (int i = 1; i <= 3; i++) {
        char name[4] = {'n', (char)('0' + i)};
        rig_cards(name, 1, 16);
    }
    renew("n1", "t1");
    renew("n2", "t1");
    rig_pass(3000);
    rig_reset();
}

/* Lets time pass while the watch delivers renewals of another node. */
static void pass(int64_t ms)
{
    for (int64_t t = 0; t < ms; t += 1000) {
        char renewed[32];
        rig_pass(ms - t < 1000 ? ms - t : 1000);
        snprintf(renewed, sizeof renewed, "%lld", (long long)r.now.mono_ms);
        renew("other", renewed);
        rig_tick(0);
    }
}

TEST(a_node_without_renewal_is_stale_after_the_grace)
{
    begin();
    pass(20000);
    renew("n2", "t2");
    pass(GRACE - 23000 - 1);
    ck_assert(!is_stale("n1"));
    rig_tick(1);
    ck_assert(!is_stale("n1")); /* a renewal may still arrive */
    renew("n2", "t3");          /* this proves it */
    rig_tick(0);
    ck_assert(is_stale("n1") && !is_stale("n2") && !is_stale("n3"));
    ck_assert_str_eq(rig_log(), "node n1: no heartbeat from scv-agent for 40 s; the "
                                "node gets no new pods");
    rig_pending("a", 8);
    rig_bind(1, "a", "n1");
    ck_assert_str_eq(rig_take(CORE_REPLY).text,
                     "no card of node n1 fits: no heartbeat from scv-agent on this node "
                     "for 40 s");
    ck_count(CORE_CALL_WAKEUP, 0);
    renew("n1", "t1"); /* not a renewal */
    ck_assert(is_stale("n1"));
    renew("n1", "t2");
    ck_assert(!is_stale("n1"));
    /* A pending pod fits now. */
    rig_tick(0);
    ck_assert_str_eq(rig_take(CORE_CALL_WAKEUP).node, "n1");
}

#define LEFT_BEHIND                                                                      \
    "; Lease nvidia-gpu-scheduler-node-lease/n3 does not belong to scv-agent (holder: "  \
    "n3; last renewed: 2026-11-20T09:00:00Z): delete it if another system left it "      \
    "behind"

/* The Scv of n3 is updated, but its Lease is not renewed. */
TEST(a_lease_that_another_system_left_behind_is_named)
{
    begin();
    lease_seen("n3", "", "2026-11-20T09:00:00Z", false);
    pass(GRACE + 2000);
    ck_assert(is_stale("n3"));
    ck_assert_str_eq(rig_log(), "node n3: no heartbeat from scv-agent for 40 s; the "
                                "node gets no new pods" LEFT_BEHIND);
    rig_pending("a", 8);
    rig_bind(1, "a", "n3");
    ck_assert_str_eq(rig_take(CORE_REPLY).text,
                     "no card of node n3 fits: no heartbeat from scv-agent on this node "
                     "for 40 s" LEFT_BEHIND);
    /* scv-agent takes over: the heartbeat is back. */
    renew("n3", "2026-11-22T09:00:00Z");
    ck_assert(!is_stale("n3"));
    pass(GRACE + 2000);
    rig_bind(2, "a", "n3");
    ck_assert_str_eq(rig_take(CORE_REPLY).text,
                     "no card of node n3 fits: no heartbeat from scv-agent on this node "
                     "for 40 s");
}

TEST(renew_time_is_compared_only_with_its_previous_value)
{
    begin();
    pass(GRACE - 4000);
    renew("n1", "an hour ago, by the clock of that machine");
    renew("n2", "t2");
    pass(10000);
    renew("n2", "t3");
    rig_tick(0);
    ck_assert(!is_stale("n1"));
    pass(GRACE - 10000);
    ck_assert(is_stale("n1") && !is_stale("n2"));
}

TEST(promises_of_a_stale_node_stay)
{
    begin();
    rig_see(rig_bound_pod(
        "a", 5, "n1", "{'ALIYUN_COM_GPU_MEM_IDX':'0','ALIYUN_COM_GPU_MEM_DEV':'16'}"));
    pass(GRACE);
    ck_assert(is_stale("n1") && is_stale("n2"));
    ck_assert_int_eq(rig_free_mib("n1", 0), 11);
}

TEST(a_lease_that_is_deleted_is_not_renewed)
{
    begin();
    lease_seen("n1", "n1", "t1", true);
    ck_assert(!is_stale("n1"));
    pass(20000);
    renew("n2", "t2");
    pass(GRACE - 20000);
    ck_assert(is_stale("n1") && !is_stale("n2"));
    renew("n1", "t2");
    ck_assert(!is_stale("n1"));
    /* The same when a list lacks it. */
    rig_watch_ended(CORE_LEASES, ERR_GONE);
    rig_tick(2000);
    renew("n2", "t3");
    rig_list_end(CORE_LEASES);
    ck_assert(!is_stale("n1"));
    pass(GRACE + 3000);
    ck_assert(is_stale("n1"));
    /* Its Scv is deleted too: later objects start from scratch. */
    rig_scv_gone("n1");
    rig_cards("n1", 1, 16);
    ck_assert(!is_stale("n1"));
    pass(3 * GRACE);
    ck_assert(!is_stale("n1"));
}

static void scv_written(const char *node, int64_t update_time)
{
    struct scv scv = object_scv_even(&r.arena, node, 1, 16);
    scv.update_time = update_time;
    rig_scv(scv);
}

/* Another daemon replaces scv-agent: it writes the Scv, and the Lease is deleted. */
TEST(another_daemon_may_take_over)
{
    begin();
    pass(GRACE + 3000);
    for (int t = 1; t < 5; t++)
        scv_written("n1", t);
    ck_assert(is_stale("n1")); /* the Lease exists */
    lease_seen("n1", "n1", "t1", true);
    scv_written("n1", 5);
    scv_written("n1", 5);
    ck_assert(is_stale("n1") && is_stale("n2"));
    scv_written("n1", 6);
    ck_assert(!is_stale("n1") && is_stale("n2"));
    pass(3 * GRACE);
    ck_assert(!is_stale("n1"));
    /* scv-agent returns, and counts. */
    renew("n1", "t2");
    pass(GRACE + 3000);
    ck_assert(is_stale("n1"));
    /* An updateTime from before a renewal does not count. */
    lease_seen("n1", "n1", "t2", true);
    scv_written("n1", 7);
    renew("n1", "t3");
    lease_seen("n1", "n1", "t3", true);
    pass(GRACE + 3000);
    scv_written("n1", 8);
    ck_assert(is_stale("n1"));
    scv_written("n1", 9);
    ck_assert(!is_stale("n1"));
}

TEST(a_recreated_node_is_not_stale)
{
    begin();
    struct node node = object_node(&r.arena, rig_text("{'metadata':{'name':"
                                                      "'n1'},'status':{}}"));
    rig_node(node);
    pass(GRACE);
    ck_assert(is_stale("n1"));
    lease_seen("n1", "n1", "t1", true);
    rig_scv_gone("n1"); /* the Node stays */
    rig_cards("n1", 1, 16);
    ck_assert(!is_stale("n1"));
}

/* A watch without any event may be dead: a list decides. */
TEST(without_any_event_a_list_decides)
{
    begin();
    rig_pass(GRACE - 3000);
    ck_assert(!is_stale("n1") && !is_stale("n2"));
    rig_reset();
    rig_pass(2000);
    ck_count(CORE_LIST, 1);
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_LEASES);
    renew("n1", "t1");
    rig_tick(100); /* n2 may still arrive */
    ck_assert(!is_stale("n1") && !is_stale("n2"));
    renew("n2", "t2");
    rig_list_end(CORE_LEASES);
    ck_assert(!is_stale("n1") && !is_stale("n2")); /* an outage may have ended just now */
    rig_reset();
    rig_pass(2000);
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_LEASES);
    rig_list_end(CORE_LEASES);
    ck_assert(is_stale("n1") && !is_stale("n2"));
    rig_pass(10000);
    ck_count(CORE_LIST, 0);
}

/* The API server was out of reach for the scv-agents, too, and nothing failed here. */
TEST(the_first_list_after_a_silence_may_end_an_outage)
{
    begin();
    rig_pass(GRACE);
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_LEASES);
    rig_reset();
    renew("n1", "t1");
    renew("n2", "t1");
    rig_list_end(CORE_LEASES);
    ck_assert(!is_stale("n1") && !is_stale("n2"));
    rig_progress(CORE_LEASES);
    rig_tick(1000);
    ck_count(CORE_LIST, 0);
    renew("n1", "t2");
    rig_pass(2000);
    ck_assert(!is_stale("n1") && !is_stale("n2"));
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_LEASES);
    renew("n1", "t2");
    renew("n2", "t1");
    rig_list_end(CORE_LEASES); /* decides */
    ck_assert(!is_stale("n1") && is_stale("n2"));
}

/* This process was suspended for a minute: the renewals of that minute are unread. */
TEST(a_backlog_is_read_first)
{
    begin();
    rig_pass(10000);
    renew("n1", "t2");
    renew("n2", "t2");
    r.now.mono_ms += 60000;
    r.now.wall_ns += 60000000000;
    renew("n1", "t3");
    rig_tick(10); /* the first event proves nothing about the others */
    ck_assert(!is_stale("n2"));
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_LEASES);
    renew("n1", "t3");
    rig_tick(10);
    renew("n2", "t3");
    rig_list_end(CORE_LEASES);
    rig_pass(5000);
    ck_assert(!is_stale("n1") && !is_stale("n2"));
}

TEST(without_a_grace_no_node_is_stale)
{
    rig_start();
    rig_lead();
    rig_progress(CORE_LEASES);
    rig_cards("n1", 1, 16);
    renew("n1", "t1");
    rig_pass(10 * GRACE);
    bookmark();
    rig_pass(5000);
    ck_assert(!is_stale("n1"));
}

/* The time of the processor for a renewal and a tick, in microseconds. */
static double many(int nodes, int renewals)
{
    rig_new((struct core_settings){.node_grace_ms = GRACE});
    rig_lead();
    rig_progress(CORE_LEASES);
    char name[16], renewed[16];
    for (int i = 0; i < nodes; i++) {
        snprintf(name, sizeof name, "node-%d", i);
        renew(name, "t");
    }
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (int i = 0; i < renewals; i++) {
        snprintf(name, sizeof name, "node-%d", i % nodes);
        snprintf(renewed, sizeof renewed, "t%d", i);
        renew(name, renewed);
        rig_tick(0);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    double us = (double)(end.tv_sec - start.tv_sec) * 1e6 +
                (double)(end.tv_nsec - start.tv_nsec) / 1e3;
    return us / renewals;
}

static void set_age(const char *node, int64_t stale_s)
{
    rig_step((struct core_input){
        .type = CORE_HEARTBEAT_STALE, .node_name = span_of(node), .stale_s = stale_s});
}

/* n3 has no Lease; `nobody` is no node. */
TEST(a_driver_can_set_the_age_of_a_heartbeat)
{
    begin();
    set_age("n1", 172800);
    set_age("n3", 41);
    set_age("nobody", 41);
    ck_assert(is_stale("n1") && !is_stale("n2") && is_stale("n3"));
    ck_assert_int_eq(rig_ledger_node("n1")->stale_s, 172800);
    ck_assert_ptr_null(rig_ledger_node("nobody"));
    renew("n1", "t1"); /* not a renewal */
    ck_assert(is_stale("n1"));
    renew("n1", "t2");
    ck_assert(!is_stale("n1"));
    set_age("n3", 0);
    ck_assert(!is_stale("n3"));
    /* From then on it has the whole grace period. */
    set_age("n2", 50);
    pass(GRACE - 10000);
    set_age("n2", 0);
    renew("n1", "t3");
    pass(20000);
    ck_assert(!is_stale("n1") && !is_stale("n2"));
    pass(GRACE);
    ck_assert(is_stale("n1") && is_stale("n2") && is_stale("n3"));
}

TEST(the_cost_of_a_renewal_does_not_depend_on_the_number_of_nodes)
{
    double few = many(200, 40000), lots = many(20000, 40000);
    printf("measured: a renewal and a tick take %.2f us with 200 nodes, %.2f us with "
           "20000\n",
           few, lots);
    ck_assert_msg(lots < few * 20 + 5, "%.2f us and %.2f us", few, lots);
}
