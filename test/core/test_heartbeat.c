/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/* Heartbeats: when a node is silent, and when it must not be. */

enum { GRACE = 40000 };

static struct rig r;

static void beat_of(const char *node, const char *renewed, bool gone)
{
    struct lease lease = {.meta = {.name = span_of(node), .version = SPAN("7")},
                          .holder = span_of(node),
                          .node = span_of(node),
                          .renew_time = span_of(renewed)};
    rig_step(&r, (struct core_input){.type = CORE_OBJECT,
                                     .kind = CORE_LEASES,
                                     .run = r.runs[CORE_LEASES],
                                     .version = SPAN("7"),
                                     .lease = &lease,
                                     .deleted = gone});
}

/* As another system leaves it behind. */
static void foreign(const char *node, const char *renewed)
{
    struct lease lease = {.meta = {.name = span_of(node), .version = SPAN("7")},
                          .holder = span_of(node),
                          .renew_time = span_of(renewed)};
    rig_step(&r, (struct core_input){.type = CORE_OBJECT,
                                     .kind = CORE_LEASES,
                                     .run = r.runs[CORE_LEASES],
                                     .version = SPAN("7"),
                                     .lease = &lease});
}

static void beat(const char *node, const char *renewed)
{
    beat_of(node, renewed, false);
}

static void bookmark(void)
{
    rig_step(&r, (struct core_input){.type = CORE_WATCH_PROGRESS,
                                     .kind = CORE_LEASES,
                                     .run = r.runs[CORE_LEASES],
                                     .version = SPAN("9")});
}

/* The watch is there: an open, which has no version. */
static void opened(void)
{
    rig_step(&r, (struct core_input){.type = CORE_WATCH_PROGRESS,
                                     .kind = CORE_LEASES,
                                     .run = r.runs[CORE_LEASES]});
}

static void ended(enum err_code code)
{
    struct err err = {.code = code, .msg = "why"};
    rig_step(&r, (struct core_input){.type = CORE_WATCH_ENDED,
                                     .kind = CORE_LEASES,
                                     .run = r.runs[CORE_LEASES],
                                     .retry_after_ms = -1,
                                     .err = code == ERR_NONE ? NULL : &err});
}

static void list_failed(void)
{
    struct err err = {.code = ERR_UNAVAILABLE, .msg = "why"};
    rig_step(&r, (struct core_input){.type = CORE_LIST_FAILED,
                                     .kind = CORE_LEASES,
                                     .run = r.runs[CORE_LEASES],
                                     .retry_after_ms = -1,
                                     .err = &err});
}

static bool silent(const char *node)
{
    const struct ledger_node *n = ledger_node_find(core_ledger(r.core), span_of(node));
    return n && n->state == NODE_STALE;
}

static void scv_gone(const char *node)
{
    struct scv scv = object_scv_even(&r.arena, node, 1, 16);
    rig_step(&r, (struct core_input){.type = CORE_OBJECT,
                                     .kind = CORE_SCVS,
                                     .run = r.runs[CORE_SCVS],
                                     .scv = &scv,
                                     .deleted = true});
}

/* n1 and n2 have agents, n3 has the Scv of another daemon. */
static void begin(void)
{
    rig_new(&r, (struct core_settings){.node_grace_ms = GRACE});
    rig_lead(&r);
    opened();
    for (int i = 1; i <= 3; i++) {
        char name[4] = {'n', (char)('0' + i)};
        rig_scv(&r, object_scv_even(&r.arena, name, 1, 16));
    }
    beat("n1", "t1");
    beat("n2", "t1");
    rig_pass(&r, 3000);
    core_outputs_reset(&r.out);
}

/* Lets time pass while the watch delivers renewals of another node. */
static void pass(int64_t ms)
{
    for (int64_t t = 0; t < ms; t += 1000) {
        char renewed[32];
        rig_pass(&r, ms - t < 1000 ? ms - t : 1000);
        snprintf(renewed, sizeof renewed, "%lld", (long long)r.now.mono_ms);
        beat("other", renewed);
        rig_tick(&r, 0);
    }
}

START_TEST(who_is_not_renewed_is_silent_after_the_grace)
{
    begin();
    pass(20000);
    beat("n2", "t2");
    pass(GRACE - 23000 - 1);
    ck_assert(!silent("n1"));
    rig_tick(&r, 1);
    ck_assert(!silent("n1")); /* a renewal may still be on its way */
    beat("n2", "t3");         /* this is what proves it */
    rig_tick(&r, 0);
    ck_assert(silent("n1") && !silent("n2") && !silent("n3"));
    const struct core_output *o = NULL;
    for (size_t i = 0; i < r.out.n; i++)
        if (r.out.items[i].type == CORE_LOG)
            o = &r.out.items[i];
    ck_assert_str_eq(o->text, "scv-agent on node n1 has not been heard of for 40 s: the "
                              "node gets no new pods");
    rig_pod(&r, object_pod_mem(&r.arena, "a", 8), false);
    rig_bind(&r, 1, "a", "n1");
    ck_assert_str_eq(rig_take(&r, CORE_REPLY).text,
                     "no card of node n1 fits: scv-agent on this node has not been heard "
                     "of for 40 s");
    ck_assert_uint_eq(rig_count(&r, CORE_CALL_WAKEUP), 0);
    beat("n1", "t1"); /* not a renewal */
    ck_assert(silent("n1"));
    beat("n1", "t2");
    ck_assert(!silent("n1"));
    /* A pod waits that fits now. */
    rig_tick(&r, 0);
    ck_assert_str_eq(rig_take(&r, CORE_CALL_WAKEUP).node, "n1");
    rig_free(&r);
}
END_TEST

static const char *last_note(void)
{
    const char *text = "";
    for (size_t i = 0; i < r.out.n; i++)
        if (r.out.items[i].type == CORE_LOG)
            text = r.out.items[i].text;
    return text;
}

#define LEFT_BEHIND                                                                      \
    "; its Lease nvidia-gpu-scheduler-node-lease/n3 is not scv-agent's (holder: n3; "    \
    "last renewed: 2026-11-20T09:00:00Z): delete it if another system has left it "      \
    "behind"

/* n3 has an Scv that somebody keeps up, and a Lease that nobody renews. */
START_TEST(a_lease_that_another_system_left_behind_is_named)
{
    begin();
    foreign("n3", "2026-11-20T09:00:00Z");
    pass(GRACE + 2000);
    ck_assert(silent("n3"));
    rig_pod(&r, object_pod_mem(&r.arena, "a", 8), false);
    rig_bind(&r, 1, "a", "n3");
    ck_assert_str_eq(rig_take(&r, CORE_REPLY).text,
                     "no card of node n3 fits: scv-agent on this node has not been heard "
                     "of for 40 s" LEFT_BEHIND);
    /* Our agent takes it over: the node is heard of again. */
    beat("n3", "2026-11-22T09:00:00Z");
    ck_assert(!silent("n3"));
    pass(GRACE + 2000);
    rig_bind(&r, 2, "a", "n3");
    ck_assert_str_eq(rig_take(&r, CORE_REPLY).text,
                     "no card of node n3 fits: scv-agent on this node has not been heard "
                     "of for 40 s");
    rig_free(&r);
}
END_TEST

/* The log says it, too; of several nodes, of the one that it names. */
START_TEST(the_note_says_whose_lease_it_is)
{
    begin();
    pass(GRACE - 10000);
    beat("n1", "t2");
    beat("n2", "t2");
    foreign("n3", "2026-11-20T09:00:00Z");
    for (int i = 0; i < 30 && !silent("n3"); i++) {
        pass(2000);
        if (!silent("n3")) {
            beat("n1", i % 2 ? "a" : "b");
            beat("n2", i % 2 ? "a" : "b");
        }
    }
    ck_assert(silent("n3") && !silent("n1") && !silent("n2"));
    ck_assert_str_eq(last_note(), "scv-agent on node n3 has not been heard of for 40 s: "
                                  "the node gets no new pods" LEFT_BEHIND);
    rig_free(&r);
}
END_TEST

START_TEST(the_time_in_a_lease_is_only_compared_with_the_one_before)
{
    begin();
    pass(GRACE - 4000);
    beat("n1", "an hour ago, by the clock of that machine");
    beat("n2", "t2");
    pass(10000);
    beat("n2", "t3");
    rig_tick(&r, 0);
    ck_assert(!silent("n1"));
    pass(GRACE - 10000);
    ck_assert(silent("n1") && !silent("n2"));
    rig_free(&r);
}
END_TEST

START_TEST(promises_stay)
{
    begin();
    rig_pod(&r, rig_bound_pod(&r, "a", 5, "n1", "{'ALIYUN_COM_GPU_MEM_IDX':'0'}"), false);
    pass(GRACE);
    ck_assert(silent("n1") && silent("n2"));
    ck_assert_int_eq(rig_free_mib(&r, "n1", 0), 11);
    rig_free(&r);
}
END_TEST

START_TEST(a_lease_that_is_deleted_is_not_renewed)
{
    begin();
    beat_of("n1", "t1", true);
    ck_assert(!silent("n1"));
    pass(20000);
    beat("n2", "t2");
    pass(GRACE - 20000);
    ck_assert(silent("n1") && !silent("n2"));
    beat("n1", "t2");
    ck_assert(!silent("n1"));
    /* The same when a list does not show it any more. */
    ended(ERR_GONE);
    rig_tick(&r, 2000);
    beat("n2", "t3");
    rig_list_end(&r, CORE_LEASES);
    ck_assert(!silent("n1"));
    pass(GRACE + 3000);
    ck_assert(silent("n1"));
    /* Its Scv goes too: whatever comes later begins anew. */
    scv_gone("n1");
    rig_scv(&r, object_scv_even(&r.arena, "n1", 1, 16));
    ck_assert(!silent("n1"));
    pass(3 * GRACE);
    ck_assert(!silent("n1"));
    rig_free(&r);
}
END_TEST

static void scv_written(const char *node, int64_t update_time)
{
    struct scv scv = object_scv_even(&r.arena, node, 1, 16);
    scv.update_time = update_time;
    rig_scv(&r, scv);
}

/* Back from scv-agent to another daemon: it writes the Scv, and somebody deletes the
 * Lease. */
START_TEST(another_daemon_may_take_over)
{
    begin();
    pass(GRACE + 3000);
    for (int t = 1; t < 5; t++)
        scv_written("n1", t);
    ck_assert(silent("n1")); /* the Lease is there */
    beat_of("n1", "t1", true);
    scv_written("n1", 5);
    scv_written("n1", 5);
    ck_assert(silent("n1") && silent("n2"));
    scv_written("n1", 6);
    ck_assert(!silent("n1") && silent("n2"));
    pass(3 * GRACE);
    ck_assert(!silent("n1"));
    /* The agent comes back, and counts. */
    beat("n1", "t2");
    pass(GRACE + 3000);
    ck_assert(silent("n1"));
    /* What was seen before a renewal is no sign of another one. */
    beat_of("n1", "t2", true);
    scv_written("n1", 7);
    beat("n1", "t3");
    beat_of("n1", "t3", true);
    pass(GRACE + 3000);
    scv_written("n1", 8);
    ck_assert(silent("n1"));
    scv_written("n1", 9);
    ck_assert(!silent("n1"));
    rig_free(&r);
}
END_TEST

START_TEST(a_node_that_is_gone_and_back_is_not_silent)
{
    begin();
    struct node node = object_node(&r.arena, quoted(&r.arena, "{'metadata':{'name':"
                                                              "'n1'},'status':{}}"));
    rig_step(&r, (struct core_input){.type = CORE_OBJECT,
                                     .kind = CORE_NODES,
                                     .run = r.runs[CORE_NODES],
                                     .node = &node});
    pass(GRACE);
    ck_assert(silent("n1"));
    beat_of("n1", "t1", true);
    scv_gone("n1"); /* the Node stays */
    rig_scv(&r, object_scv_even(&r.arena, "n1", 1, 16));
    ck_assert(!silent("n1"));
    rig_free(&r);
}
END_TEST

/* A watch that says nothing at all may be dead: a list judges. */
START_TEST(where_all_is_silent_a_list_judges)
{
    begin();
    rig_pass(&r, GRACE - 3000);
    ck_assert(!silent("n1") && !silent("n2"));
    core_outputs_reset(&r.out);
    rig_pass(&r, 2000);
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), 1);
    ck_assert_int_eq(rig_take(&r, CORE_LIST).kind, CORE_LEASES);
    beat("n1", "t1");
    rig_tick(&r, 100); /* n2 is still to come */
    ck_assert(!silent("n1") && !silent("n2"));
    beat("n2", "t2");
    rig_list_end(&r, CORE_LEASES);
    ck_assert(silent("n1") && !silent("n2"));
    rig_pass(&r, 10000);
    ck_assert_uint_eq(rig_count(&r, CORE_LIST), 0);
    rig_free(&r);
}
END_TEST

START_TEST(a_watch_that_is_open_proves_nothing)
{
    begin();
    rig_pass(&r, GRACE - 4000);
    ended(ERR_NONE);
    opened();
    rig_pass(&r, 2000);
    opened();
    rig_tick(&r, 0);
    ck_assert(!silent("n1"));
    rig_free(&r);
}
END_TEST

START_TEST(a_broken_watch_makes_nobody_silent)
{
    begin();
    for (int i = 0; i < 20; i++) {
        ended(ERR_UNAVAILABLE);
        rig_pass(&r, GRACE);
        opened();
        rig_pass(&r, 1000);
    }
    ck_assert(!silent("n1") && !silent("n2"));
    /* It works again: both have the whole grace. */
    bookmark();
    pass(GRACE - 1);
    ck_assert(!silent("n1"));
    pass(1000);
    ck_assert(silent("n1") && silent("n2"));
    rig_free(&r);
}
END_TEST

START_TEST(a_list_that_fails_makes_nobody_silent)
{
    begin();
    rig_pass(&r, GRACE + 2000);
    for (int i = 0; i < 20; i++) {
        list_failed();
        ck_assert(!silent("n1"));
        rig_pass(&r, 60000);
    }
    core_outputs_reset(&r.out);
    rig_list_end(&r, CORE_LEASES);
    ck_assert(!silent("n1"));
    rig_free(&r);
}
END_TEST

/* This process stood still for a minute: the renewals of that minute wait to be read. */
START_TEST(what_has_piled_up_is_read_first)
{
    begin();
    rig_pass(&r, 10000);
    beat("n1", "t2");
    beat("n2", "t2");
    r.now.mono_ms += 60000;
    r.now.wall_ns += 60000000000;
    beat("n1", "t3");
    rig_tick(&r, 10); /* what was read first proves nothing about the rest */
    ck_assert(!silent("n2"));
    ck_assert_int_eq(rig_take(&r, CORE_LIST).kind, CORE_LEASES);
    beat("n1", "t3");
    rig_tick(&r, 10);
    beat("n2", "t3");
    rig_list_end(&r, CORE_LEASES);
    rig_pass(&r, 5000);
    ck_assert(!silent("n1") && !silent("n2"));
    rig_free(&r);
}
END_TEST

START_TEST(without_a_grace_nobody_is_silent)
{
    rig_new(&r, (struct core_settings){0});
    rig_lead(&r);
    opened();
    rig_scv(&r, object_scv_even(&r.arena, "n1", 1, 16));
    beat("n1", "t1");
    rig_pass(&r, 10 * GRACE);
    bookmark();
    rig_pass(&r, 5000);
    ck_assert(!silent("n1"));
    rig_free(&r);
}
END_TEST

/* What a tick costs does not depend on how many nodes there are: as many renewals of
 * 20,000 nodes as of 200, with a tick after each. */
static double many(int nodes, int renewals)
{
    rig_new(&r, (struct core_settings){.node_grace_ms = GRACE});
    rig_lead(&r);
    opened();
    char name[16], renewed[16];
    for (int i = 0; i < nodes; i++) {
        snprintf(name, sizeof name, "node-%d", i);
        beat(name, "t");
    }
    int64_t start = clock_wall_ns();
    for (int i = 0; i < renewals; i++) {
        snprintf(name, sizeof name, "node-%d", i % nodes);
        snprintf(renewed, sizeof renewed, "t%d", i);
        beat(name, renewed);
        rig_tick(&r, 0);
    }
    double us = (double)(clock_wall_ns() - start) / 1000 / renewals;
    rig_free(&r);
    return us;
}

static void told(const char *node, int64_t stale_s)
{
    rig_step(&r, (struct core_input){.type = CORE_HEARTBEAT_STALE,
                                     .node_name = span_of(node),
                                     .stale_s = stale_s});
}

/* n3 has no Lease; of nobody nothing is known. */
START_TEST(who_looks_for_a_moment_is_told)
{
    begin();
    told("n1", 172800);
    told("n3", 41);
    told("nobody", 41);
    ck_assert(silent("n1") && !silent("n2") && silent("n3"));
    ck_assert_int_eq(ledger_node_find(core_ledger(r.core), SPAN("n1"))->stale_s, 172800);
    ck_assert_ptr_null(ledger_node_find(core_ledger(r.core), SPAN("nobody")));
    beat("n1", "t1"); /* not a renewal */
    ck_assert(silent("n1"));
    beat("n1", "t2");
    ck_assert(!silent("n1"));
    told("n3", 0);
    ck_assert(!silent("n3"));
    /* From then on it has the whole grace. */
    told("n2", 50);
    pass(GRACE - 10000);
    told("n2", 0);
    beat("n1", "t3");
    pass(20000);
    ck_assert(!silent("n1") && !silent("n2"));
    pass(GRACE);
    ck_assert(silent("n1") && silent("n2") && silent("n3"));
    rig_free(&r);
}
END_TEST

START_TEST(a_renewal_costs_the_same_however_many_nodes_there_are)
{
    double few = many(200, 40000), lots = many(20000, 40000);
    printf("measured: a renewal and a tick take %.2f us with 200 nodes, %.2f us with "
           "20000\n",
           few, lots);
    ck_assert_msg(lots < few * 20 + 5, "%.2f us and %.2f us", few, lots);
}
END_TEST

UNIT_MAIN("alive", who_is_not_renewed_is_silent_after_the_grace,
          a_lease_that_another_system_left_behind_is_named,
          the_note_says_whose_lease_it_is,
          the_time_in_a_lease_is_only_compared_with_the_one_before, promises_stay,
          a_lease_that_is_deleted_is_not_renewed, another_daemon_may_take_over,
          a_node_that_is_gone_and_back_is_not_silent, where_all_is_silent_a_list_judges,
          a_watch_that_is_open_proves_nothing, a_broken_watch_makes_nobody_silent,
          a_list_that_fails_makes_nobody_silent, what_has_piled_up_is_read_first,
          without_a_grace_nobody_is_silent, who_looks_for_a_moment_is_told,
          a_renewal_costs_the_same_however_many_nodes_there_are)
