/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

TEST(nothing_is_answered_before_the_first_full_list)
{
    rig_start();
    rig_lease_read("other", "1");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct err err = {0};
        ck_assert_int_eq(core_ready(r.core, r.now, &err), -1);
        ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
        ck_assert_contains(err.msg, core_kind_name((enum core_kind)kind));
        rig_list_end((enum core_kind)kind);
    }
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
}

TEST(not_ready_gives_the_reason)
{
    struct err err = {0};
    rig_start();
    rig_lease_read("other", "1");
    rig_lists_end_but(CORE_SCVS);
    rig_list_failed(CORE_SCVS, ERR_FORBIDDEN, -1);
    core_ready(r.core, r.now, &err);
    ck_assert_str_eq(err.msg, "not ready: the first list of scvs has not finished: why");
    rig_tick(60000);
    rig_list_end(CORE_SCVS);
    rig_watch_ended(CORE_SCVS, ERR_UNAVAILABLE);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    r.now.mono_ms += CORE_STALE_MS + 1;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (kind != CORE_SCVS)
            rig_progress((enum core_kind)kind);
    core_ready(r.core, r.now, &err);
    ck_assert_str_eq(err.msg,
                     "not ready: the watch of scvs has delivered nothing for 150 s: why");
}

static int64_t stale_ms(const char *why)
{
    struct err err = {0};
    int64_t since_ns;
    if (core_current(r.core, r.now, &since_ns, &err) == 0)
        return -1;
    ck_assert_contains(err.msg, why);
    return since_ns ? (r.now.wall_ns - since_ns) / 1000000 : 0;
}

TEST(a_failure_that_lasts_makes_the_ledger_stale_since_it_began)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_lists_end_but(CORE_SCVS);
    ck_assert_int_eq(stale_ms("the first list of scvs delivers nothing"),
                     0); /* since: unknown */
    rig_list_failed(CORE_SCVS, ERR_FORBIDDEN, -1);
    ck_assert_int_eq(stale_ms("the first list of scvs delivers nothing: why"), 0);
    rig_tick(60000);
    rig_list_end(CORE_SCVS);
    rig_progress(CORE_SCVS); /* the watch was opened */
    ck_assert_int_eq(stale_ms(""), -1);
    rig_tick(5000);
    rig_watch_ended(CORE_SCVS, ERR_NONE); /* watches end now and then */
    rig_tick(CORE_OUTDATED_MS + 1);
    ck_assert_int_eq(stale_ms(""), -1);
    rig_watch_ended(CORE_SCVS, ERR_UNAVAILABLE);
    r.now.mono_ms += CORE_OUTDATED_MS;
    ck_assert_int_eq(stale_ms(""), -1); /* not for every interruption */
    r.now.mono_ms += 1;
    ck_assert_int_eq(stale_ms("the watch of scvs delivers nothing: why"),
                     CORE_OUTDATED_MS + 1);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    rig_tick(1000); /* a further failure does not begin again */
    rig_list_failed(CORE_SCVS, ERR_UNAUTHORIZED, -1);
    ck_assert_int_eq(stale_ms("nothing: why"), CORE_OUTDATED_MS + 1001);
    rig_tick(60000);
    rig_list_end(CORE_SCVS);
    rig_progress(CORE_SCVS); /* the watch was opened */
    ck_assert_int_eq(stale_ms(""), -1);
}

TEST(a_silent_watch_makes_the_ledger_stale_since_its_last_event)
{
    rig_start();
    rig_lease_read("other", "1");
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end((enum core_kind)kind);
    r.now.mono_ms += CORE_STALE_MS;
    ck_assert_int_eq(stale_ms(""), -1);
    r.now.mono_ms += 1;
    ck_assert_int_eq(stale_ms("the watch of nodes delivers nothing"), CORE_STALE_MS + 1);
}

/* A stopped API server: the connections stay. */
TEST(a_watch_that_stalls_makes_the_ledger_stale_since_its_last_event)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_lists_end();
    for (int i = 0; i < 5; i++) { /* an idle cluster */
        rig_tick(70000);
        for (int kind = 0; kind < CORE_KINDS; kind++)
            rig_watch_ended((enum core_kind)kind, ERR_NONE);
        ck_assert_int_eq(stale_ms(""), -1);
    }
    rig_tick(1000); /* the next watches */
    rig_tick(84000);
    ck_assert_int_eq(stale_ms(""), -1);
    rig_watch_ended(CORE_PODS, ERR_TIMEOUT);
    ck_assert_int_eq(stale_ms("the watch of pods delivers nothing: why"), 85000);
    rig_watch_ended(CORE_NODES, ERR_UNAVAILABLE); /* later */
    rig_tick(5000);
    ck_assert_int_eq(stale_ms("the watch of pods delivers nothing: why"), 90000);
}

TEST(a_kind_that_is_not_listed_is_not_stale)
{
    rig_new((struct core_settings){.observer = true, .only_pods = true});
    ck_count(CORE_LIST, 2);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), -1);
    rig_list_end(CORE_NODES);
    rig_list_end(CORE_PODS);
    ck_count(CORE_WATCH, 2);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    ck_assert_int_eq(core_due(r.core), INT64_MAX);
    rig_tick(CORE_STALE_MS);
    for (int i = 0; i < 2; i++) {
        rig_progress(CORE_NODES);
        rig_progress(CORE_PODS);
        ck_assert_int_eq(stale_ms(""), -1);
        ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
        rig_tick(1);
    }
}

TEST(a_watch_continues_from_the_last_version)
{
    rig_start();
    rig_list_end(CORE_SCVS);
    struct core_output watch = rig_take(CORE_WATCH);
    ck_assert_int_eq(watch.kind, CORE_SCVS);
    ck_assert_str_eq(watch.version, "100");
    rig_tick(1000);
    struct scv scv = object_scv_even(&r.arena, "n1", 1, 100);
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_SCVS,
                                 .run = watch.run,
                                 .scv = &scv,
                                 .version = SPAN("105")});
    rig_watch_ended(CORE_SCVS, ERR_NONE);
    watch = rig_take(CORE_WATCH);
    ck_assert_str_eq(watch.version, "105");
    rig_step((struct core_input){.type = CORE_WATCH_PROGRESS,
                                 .kind = CORE_SCVS,
                                 .run = watch.run,
                                 .version = SPAN("110")});
    rig_tick(1000);
    rig_watch_ended(CORE_SCVS, ERR_NONE);
    ck_assert_str_eq(rig_take(CORE_WATCH).version, "110");
}

/* test/domain/test_reflector.c has the rules of lists and watches. */
TEST(failures_back_off_and_honor_retry_after)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_reset();
    rig_list_failed(CORE_NODES, ERR_FORBIDDEN, -1);
    ck_assert_str_eq(rig_log(), "list of nodes failed: why");
    rig_tick(799);
    ck_count(CORE_LIST, 0);
    rig_tick(801);
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_NODES);
    rig_reset();
    rig_list_failed(CORE_NODES, ERR_FORBIDDEN, 60000);
    ck_assert_str_eq(rig_log(), ""); /* once a minute */
    rig_tick(59999);
    ck_count(CORE_LIST, 0);
    rig_tick(4000);
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_NODES);
}

TEST(a_kind_that_is_not_served_is_an_empty_list)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_lists_end_but(CORE_SCVS);
    rig_reset();
    rig_list_failed(CORE_SCVS, ERR_NOT_FOUND, -1);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    ck_count(CORE_LIST, 0);
    rig_tick(30000); /* the CRD may have been installed */
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_SCVS);
}

TEST(a_404_for_nodes_is_an_error)
{
    rig_start();
    rig_lease_read("other", "1");
    rig_lists_end_but(CORE_NODES);
    rig_list_failed(CORE_NODES, ERR_NOT_FOUND, -1);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), -1);
}

TEST(inputs_of_an_old_run_are_ignored)
{
    rig_start();
    rig_list_end(CORE_SCVS);
    uint64_t old = r.runs[CORE_SCVS];
    rig_watch_ended(CORE_SCVS, ERR_GONE);
    struct scv scv = object_scv_even(&r.arena, "n1", 1, 100);
    rig_step((struct core_input){
        .type = CORE_OBJECT, .kind = CORE_SCVS, .run = old, .scv = &scv});
    ck_assert_ptr_null(rig_ledger_node("n1"));
    rig_step((struct core_input){.type = CORE_LIST_ENDED, .kind = CORE_SCVS, .run = old});
    rig_watch_ended(CORE_SCVS, ERR_NONE); /* the run of the list: no watch is running */
    ck_assert_uint_eq(r.runs[CORE_SCVS] > old, true);
}

TEST(an_invalid_pod_keeps_its_promise)
{
    rig_start();
    rig_lead();
    rig_cards("n1", 1, 16000);
    rig_see(rig_bound_pod("a", 9000, "n1",
                          "{'" KEY_MEM_IDX "':'0','" KEY_MEMORY_UNIT "':'1'}"));
    rig_see(rig_bound_pod("b", 4000, "n1",
                          "{'" KEY_MEM_IDX "':'0','" KEY_MEMORY_UNIT "':'1'}"));
    ck_assert_int_eq(rig_free_mib("n1", 0), 3000);
    rig_watch_ended(CORE_PODS, ERR_GONE);
    rig_tick(60000); /* a new list has an invalid a, and no b */
    struct pod a = {.meta = {.uid = SPAN("a"), .name = SPAN("pod-a")}};
    struct core_input in = {.type = CORE_OBJECT,
                            .kind = CORE_PODS,
                            .run = r.runs[CORE_PODS],
                            .pod = &a,
                            .invalid = true};
    rig_step(in);
    rig_list_end(CORE_PODS);
    ck_assert_int_eq(rig_free_mib("n1", 0), 7000);
    in.run = r.runs[CORE_PODS];
    in.deleted = true; /* a deletion needs only the UID */
    rig_step(in);
    ck_assert_int_eq(rig_free_mib("n1", 0), 16000);
}

TEST(no_events_make_it_unready_and_progress_ready)
{
    rig_start();
    rig_lead();
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
    for (int i = 0; i <= CORE_STALE_MS / 1000; i++) {
        for (int kind = 0; kind < CORE_KINDS; kind++)
            if (kind != CORE_PODS)
                rig_progress((enum core_kind)kind);
        r.now.mono_ms += 1000;
    }
    struct err err = {0};
    ck_assert_int_eq(core_ready(r.core, r.now, &err), -1);
    ck_assert_str_eq(err.msg,
                     "not ready: the watch of pods has delivered nothing for 151 s");
    rig_progress(CORE_PODS);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
}

/* An outage: renewals and lists fail, and backoffs grow. */
static void outage(int64_t ms)
{
    for (int64_t end = r.now.mono_ms + ms; r.now.mono_ms < end; rig_tick(100)) {
        if (rig_count(CORE_CALL_LEASE_WRITE))
            rig_end(CORE_CALL_LEASE_WRITE, ERR_UNAVAILABLE);
        if (rig_count(CORE_CALL_LEASE_GET))
            rig_end(CORE_CALL_LEASE_GET, ERR_UNAVAILABLE);
        if (rig_count(CORE_LIST) && rig_take(CORE_LIST).kind == CORE_SCVS)
            rig_list_failed(CORE_SCVS, ERR_UNAVAILABLE, -1);
    }
}

TEST(a_successful_lease_write_shortens_backoffs)
{
    rig_start();
    rig_lead();
    rig_watch_ended(CORE_SCVS, ERR_UNAVAILABLE);
    outage(100 * 1000);
    while (!rig_count(CORE_CALL_LEASE_GET))
        rig_tick(100);
    rig_lease_read("me", "9");
    rig_lease_written("me", "10");
    rig_take(CORE_LIST); /* of the pods, by the new leader */
    for (int i = 0; i < 10 && !rig_count(CORE_LIST); i++)
        rig_tick(100);
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_SCVS);
}

TEST(the_due_time_is_never_missed)
{
    /* Whenever core_due is in the past, a tick must make it future or change something.
     */
    rig_start();
    rig_lead();
    for (int i = 0; i < 1000; i++) {
        int64_t due = core_due(r.core);
        if (due > r.now.mono_ms)
            r.now.mono_ms = due == INT64_MAX ? r.now.mono_ms + 1000 : due;
        rig_tick(0);
        while (rig_count(CORE_CALL_LEASE_WRITE))
            rig_lease_written("me", "5");
        rig_reset();
        ck_assert_int_gt(core_due(r.core), r.now.mono_ms);
    }
}

/* An observer lists and watches, and makes no call. */
static void ck_only_reads(void)
{
    STEP_EACH(struct core_output, o, &r.out)
    ck_assert(o->type == CORE_LIST || o->type == CORE_WATCH);
    rig_reset();
}

TEST(an_observer_lists_at_once_and_makes_no_call)
{
    struct err err;
    rig_new((struct core_settings){.node_grace_ms = 40000, .observer = true});
    ck_count(CORE_LIST, CORE_KINDS);
    rig_lists_end();
    ck_assert_int_eq(core_ready(r.core, r.now, &err), 0);
    ck_assert_int_eq(core_check_may_bind(r.core, r.now, &err), -1);
    ck_assert_str_eq(err.msg, "observer mode: binding is disabled");
    /* Neither time nor a refresh makes it touch the Lease. */
    for (int i = 0; i < 20; i++) {
        rig_step((struct core_input){.type = CORE_REFRESH_LEASE});
        rig_tick(1000);
        ck_assert_int_gt(core_due(r.core), r.now.mono_ms);
    }
    ck_only_reads();
    /* A pod that a later list lacks is removed without a GET. */
    rig_see(
        rig_bound_pod("u", 2, "n1", "{'" KEY_MEM_IDX "':'0','" KEY_MEMORY_UNIT "':'1'}"));
    ck_assert_ptr_nonnull(rig_ledger_pod("u"));
    rig_watch_ended(CORE_PODS, ERR_GONE);
    rig_tick(1000);
    rig_list_end(CORE_PODS);
    ck_assert_ptr_null(rig_ledger_pod("u"));
    ck_only_reads();
}
