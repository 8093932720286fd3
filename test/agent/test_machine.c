/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rig.h"

static uint64_t node_call, list_call, lease_call;

/* The first step asks for the Node and the list. */
static void begin_calls(void)
{
    step((struct machine_input){.type = MACHINE_TICK});
    called(MACHINE_GET_NODE);
    node_call = call_id;
    called(MACHINE_LIST);
    list_call = call_id;
}

/* Everything is there: the Scv that was created with one card, its watch, the Lease. */
static void set_up(void)
{
    begin_calls();
    answer_list(list_call, "10", NULL);
    watching();
    alive();
    answer(node_call, NODE);
    sampled(CARD(0));
    called(MACHINE_CREATE);
    answer(call_id, SCV("11", ",'spec':{'updateInterval':1000},'status':{'a':1}"));
    called(MACHINE_PATCH_LEASE);
    lease_call = call_id;
    answer(lease_call, "{'metadata':{'name':'n1','ownerReferences':[" OWNER "]}}");
    event(false, SCV("11", ",'spec':{'updateInterval':1000},'status':{'a':1}"));
    ck_assert_uint_eq(outputs.n, 0);
}

START_TEST(nothing_is_made_before_the_node_is_known)
{
    begin_calls();
    answer_list(list_call, "10", NULL);
    watching();
    ck_assert_str_eq(out(MACHINE_WATCH)->version, "10");
    sampled(CARD(0));
    ck_assert_ptr_null(out(MACHINE_CREATE));
    refuse(node_call, ERR_NOT_FOUND, "nodes \"n1\" not found");
    ck_assert(noted("there is no Node n1"));
    pass(20000);
    called(MACHINE_GET_NODE);
    ck_assert(!is_well(MACHINE_PART_NODE) || now_ms < 1015000);
    answer(call_id, NODE);
    called(MACHINE_CREATE);
    ck_assert_body("'ownerReferences':[" OWNER "]");
    ck_assert_body("'spec':{'updateInterval':1000}");
    ck_assert_body("'freeMemorySum':2,'totalMemorySum':2,'updateTime':'");
    ck_assert(is_well(MACHINE_PART_NODE));
}
END_TEST

START_TEST(a_rollout_waits_a_while_for_the_first_answer_of_the_driver)
{
    struct err err;
    begin_calls();
    answer_list(list_call, "10", NULL);
    watching();
    alive();
    answer(node_call, NODE);
    ck_assert_int_eq(machine_ready(machine, rig_now(), MACHINE_PART_CARDS, &err), -1);
    ck_assert_str_eq(err.msg, "the driver has not answered yet");
    now_ms += MACHINE_FIRST_MS;
    ck_assert_int_eq(machine_ready(machine, rig_now(), MACHINE_PART_CARDS, &err), -1);
    ck_assert_int_eq(machine_ready(machine, rig_now(), MACHINE_PART_HEARTBEAT, &err), -1);
    now_ms += 1;
    ck_assert_int_eq(machine_ready(machine, rig_now(), MACHINE_PART_CARDS, &err), 1);
    ck_assert_int_eq(machine_ready(machine, rig_now(), MACHINE_PART_HEARTBEAT, &err), 1);
}
END_TEST

START_TEST(nothing_is_written_while_nothing_changes)
{
    set_up();
    for (int i = 0; i < 9; i++) {
        now_ms += 1000;
        sampled(CARD(0));
        ck_assert_uint_eq(outputs.n, 0);
    }
    sampled(USED(0));
    called(MACHINE_PATCH);
    ck_assert_body("'resourceVersion':'11'");
    ck_assert_body("'freeMemory':1,");
    ck_assert_no_body("spec");
    ck_assert_no_body("ownerReferences");
    ck_assert_no_body("annotations");
    ck_assert_body("'podList':null"); /* what an earlier one may have had */
}
END_TEST

START_TEST(what_changes_during_a_write_is_written_after_it)
{
    set_up();
    sampled(USED(0));
    called(MACHINE_PATCH);
    uint64_t first = call_id;
    sampled(CARD(0));
    ck_assert_uint_eq(outputs.n, 0);
    answer(first, SCV("12", ",'status':{'a':2}"));
    called(MACHINE_PATCH);
    ck_assert_body("'resourceVersion':'12'");
    ck_assert_body("'freeMemory':2,");
}
END_TEST

#define HOT(t, u)                                                                        \
    "{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':2097152,'temperature':" t        \
    ",'utilization':" u "}"

START_TEST(the_slow_fields_alone_wait_for_a_minute)
{
    set_up();
    sampled(HOT("40", "0")); /* not known before */
    ck_assert_uint_eq(outputs.n, 0);
    for (int i = 0; i < 59; i++) {
        now_ms += 1000;
        sampled(HOT("70", "99"));
        const struct machine_output *lease = out(MACHINE_PATCH_LEASE);
        ck_assert_ptr_null(out(MACHINE_PATCH));
        if (lease)
            answer(lease->call,
                   "{'metadata':{'name':'n1','ownerReferences':[" OWNER "]}}");
    }
    now_ms += 1000;
    sampled(HOT("70", "99"));
    called(MACHINE_PATCH);
    ck_assert_body("'temperature':70");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    for (int i = 0; i < 200; i++) { /* little moves are none */
        now_ms += 1000;
        sampled(i % 2 ? HOT("71", "97") : HOT("72", "95"));
        ck_assert_ptr_null(out(MACHINE_PATCH));
        if (out(MACHINE_PATCH_LEASE))
            answer(out(MACHINE_PATCH_LEASE)->call, NULL);
    }
    sampled("{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':1048576,"
            "'temperature':72}"); /* they go along with what counts */
    called(MACHINE_PATCH);
    ck_assert_body("'temperature':72");
}
END_TEST

START_TEST(a_deleted_scv_is_made_again_after_a_look_at_the_node)
{
    set_up();
    now_ms += 5;
    event(true, SCV("12", ""));
    ck_assert(noted("deleted"));
    ck_assert_ptr_null(out(MACHINE_CREATE));
    called(MACHINE_GET_NODE);
    answer(call_id, NODE);
    called(MACHINE_CREATE);
    answer(call_id, SCV("13", ",'spec':{'updateInterval':1000},'status':{'a':1}"));
    ck_assert_ptr_null(out(MACHINE_PATCH));
    event(false, SCV("13", ",'spec':{'updateInterval':1000},'status':{'a':1}"));
    ck_assert_uint_eq(outputs.n, 0);
}
END_TEST

START_TEST(a_removed_node_leaves_nothing_behind)
{
    set_up();
    now_ms++;
    event(true, SCV("12", ""));
    called(MACHINE_GET_NODE);
    refuse(call_id, ERR_NOT_FOUND, "no");
    for (int i = 0; i < 100; i++) {
        pass(1000);
        ck_assert_ptr_null(out(MACHINE_CREATE));
        ck_assert_ptr_null(out(MACHINE_CREATE_LEASE));
        if (out(MACHINE_GET_NODE))
            refuse(out(MACHINE_GET_NODE)->call, ERR_NOT_FOUND, "no");
        if (out(MACHINE_PATCH_LEASE))
            refuse(out(MACHINE_PATCH_LEASE)->call, ERR_NOT_FOUND, "no");
    }
    pass(20000);
    called(MACHINE_GET_NODE);
    answer(call_id, "{'metadata':{'name':'n1','uid':'another'}}");
    called(MACHINE_CREATE);
    ck_assert_body("'uid':'another'");
}
END_TEST

START_TEST(an_older_deletion_is_not_believed)
{
    set_up();
    sampled(USED(0));
    called(MACHINE_PATCH);
    answer(call_id, SCV("20", ",'status':{'a':2}"));
    event(true, SCV("15", ""));
    ck_assert_uint_eq(outputs.n, 0);
    ck_assert(!noted("deleted"));
}
END_TEST

START_TEST(a_conflict_is_redone_on_the_newer_object)
{
    set_up();
    sampled(USED(0));
    called(MACHINE_PATCH);
    refuse(call_id, ERR_CONFLICT, "the object has been modified");
    called(MACHINE_LIST);
    answer_list(call_id, "14", SCV("14", ",'status':{'a':1}"));
    called(MACHINE_PATCH);
    ck_assert_body("'resourceVersion':'14'");
    for (int i = 0; i < 3; i++) { /* again and again: it slows down, and is told */
        refuse(call_id, ERR_CONFLICT, "the object has been modified");
        if (out(MACHINE_LIST)) {
            called(MACHINE_LIST);
            answer_list(call_id, "14", SCV("14", ",'status':{'a':1}"));
        }
        if (out(MACHINE_PATCH))
            called(MACHINE_PATCH);
    }
    ck_assert_ptr_null(out(MACHINE_LIST));
    ck_assert_ptr_null(out(MACHINE_PATCH));
}
END_TEST

START_TEST(one_that_is_there_already_is_taken_over)
{
    begin_calls();
    answer_list(list_call, "10",
                "{'metadata':{'name':'n1','uid':'u1','resourceVersion':'9',"
                "'labels':{'a':'b'},'ownerReferences':[{'kind':'Zone','name':'z',"
                "'uid':'z'},{'kind':'Node','name':'n1','uid':'old'}]},"
                "'spec':{'updateInterval':5000},'status':{'cardList':["
                "{'id':0,'uuid':'GPU-0','health':'Unhealthy'},"
                "{'id':1,'uuid':'GPU-7','health':'Healthy','model':'T4',"
                "'totalMemory':9,'bandwidth':15760}]}}");
    answer(node_call, NODE);
    ck_assert_int_eq(machine_interval(machine), 5000);
    sampled(CARD(0));
    called(MACHINE_PATCH);
    ck_assert_body("'ownerReferences':[{'kind':'Zone','name':'z','uid':'z'}," OWNER "]");
    ck_assert_no_body("labels");
    ck_assert_body("{'freeMemory':2,'health':'Unhealthy','id':0,");
    ck_assert_body("{'bandwidth':15760,'health':'Unhealthy','id':1,'model':'T4',"
                   "'totalMemory':9,'uuid':'GPU-7'}");
    ck_assert_body(
        "'gpushare/message':'GPU0 is Unhealthy: it was so before scv-agent was "
        "started; GPU1 is Unhealthy: NVML does not list it any more'");
}
END_TEST

START_TEST(the_interval_is_the_users)
{
    set_up();
    event(false, SCV("12", ",'spec':{'updateInterval':250},'status':{'a':1}"));
    ck_assert_int_eq(machine_interval(machine), 250);
    ck_assert(noted("every 250 ms"));
    event(false, SCV("13", ",'spec':{'updateInterval':1},'status':{'a':1}"));
    ck_assert_int_eq(machine_interval(machine), MACHINE_MIN_INTERVAL_MS);
    ck_assert(noted("not within 100..3600000"));
    event(false, SCV("14", ",'spec':{'updateInterval':-5},'status':{'a':1}"));
    ck_assert_int_eq(machine_interval(machine), 1000);
    event(false, SCV("15", ",'spec':{'updateInterval':99999999999},'status':{'a':1}"));
    ck_assert_int_eq(machine_interval(machine), MACHINE_MAX_INTERVAL_MS);
    event(false, SCV("16", ",'status':{'a':1}"));
    ck_assert_int_eq(machine_interval(machine), 1000);
    sampled(USED(0));
    called(MACHINE_PATCH);
    ck_assert_no_body("updateInterval");
}
END_TEST

START_TEST(what_somebody_else_changes_is_put_right_once_per_interval)
{
    set_up();
    event(false, SCV("12", ",'spec':{'updateInterval':1000},'status':{'a':9}"));
    ck_assert_uint_eq(outputs.n, 0);
    now_ms += 1000;
    sampled(CARD(0));
    called(MACHINE_PATCH);
    ck_assert_body("'resourceVersion':'12'");
}
END_TEST

START_TEST(the_kind_that_is_not_installed_is_waited_for)
{
    begin_calls();
    answer(node_call, NODE);
    sampled(CARD(0));
    refuse(list_call, ERR_NOT_FOUND, "the server could not find the requested resource");
    ck_assert(noted("scvs.core.run-linux.com is not installed"));
    int notes = 0, lists = 0;
    for (int i = 0; i < 120; i++) {
        now_ms += 1000;
        sampled(CARD(0));
        notes += noted("not installed");
        if (!out(MACHINE_LIST))
            continue;
        lists++;
        refuse(out(MACHINE_LIST)->call, ERR_NOT_FOUND, "none");
        notes += noted("not installed");
    }
    ck_assert_int_ge(lists, 8);
    ck_assert_int_le(lists, 24);
    ck_assert_int_le(notes, 2);
    ck_assert(!is_well(MACHINE_PART_WATCH));
    ck_assert(!is_well(MACHINE_PART_SCV));
    ck_assert(!is_well(MACHINE_PART_HEARTBEAT));
    ck_assert_ptr_null(out(MACHINE_PATCH_LEASE));
    pass(15000);
    called(MACHINE_LIST);
    answer_list(call_id, "1", NULL);
    ck_assert(noted("works again"));
    called(MACHINE_GET_NODE);
    answer(call_id, NODE);
    called(MACHINE_CREATE);
}
END_TEST

START_TEST(a_refusal_is_told_and_tried_again)
{
    set_up();
    sampled(USED(0));
    called(MACHINE_PATCH);
    refuse(call_id, ERR_FORBIDDEN, "scvs is forbidden");
    ck_assert(noted("the Scv cannot be written: scvs is forbidden"));
    pass(2000);
    called(MACHINE_PATCH);
    refuse(call_id, ERR_FORBIDDEN, "scvs is forbidden");
    ck_assert(!noted("forbidden"));
    now_ms += 20000;
    ck_assert(!is_well(MACHINE_PART_SCV));
    pass(1);
    called(MACHINE_PATCH);
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    ck_assert(noted("works again"));
    ck_assert(is_well(MACHINE_PART_SCV));
}
END_TEST

START_TEST(the_heartbeat_is_made_where_it_is_missing)
{
    set_up();
    pass(10000);
    called(MACHINE_PATCH_LEASE);
    ck_assert_body("'holderIdentity':'n1','leaseDurationSeconds':40,'renewTime':'2026-");
    ck_assert_no_body("acquireTime");
    now_ms += 2;
    refuse(call_id, ERR_NOT_FOUND, "leases \"n1\" not found");
    called(MACHINE_GET_NODE);
    answer(call_id, NODE);
    called(MACHINE_CREATE_LEASE);
    ck_assert_body("'ownerReferences':[" OWNER "]");
    ck_assert_body("'acquireTime':'");
    refuse(call_id, ERR_NOT_FOUND, "namespaces \"leases\" not found");
    ck_assert(noted("there is no namespace leases"));
    pass(5000);
    called(MACHINE_CREATE_LEASE);
    answer(call_id, "{'metadata':{'name':'n1','ownerReferences':[" OWNER "]}}");
    ck_assert(noted("the Lease leases/n1 is there"));
}
END_TEST

START_TEST(the_heartbeat_stops_when_the_driver_hangs)
{
    set_up();
    now_ms += 9999;
    pass(20500); /* a heartbeat was due */
    called(MACHINE_PATCH_LEASE);
    answer(call_id, "{'metadata':{'name':'n1','ownerReferences':[" OWNER "]}}");
    ck_assert(is_well(MACHINE_PART_CARDS));
    event(false, SCV("11", ",'spec':{'updateInterval':1000},'status':{'a':1}"));
    now_ms += 21000;
    step((struct machine_input){.type = MACHINE_TICK});
    ck_assert(noted("the driver has not answered for"));
    for (int part = 0; part < MACHINE_PARTS; part++)
        ck_assert_int_eq(machine_ready(machine, rig_now(), (enum machine_part)part, NULL),
                         part == MACHINE_PART_CARDS || part == MACHINE_PART_HEARTBEAT);
    ck_assert(noted("GPU0 GPU-0 is Unhealthy: the driver does not answer any more"));
    ck_assert(!is_well(MACHINE_PART_CARDS));
    ck_assert_ptr_null(out(MACHINE_PATCH_LEASE));
    called(MACHINE_PATCH);
    ck_assert_body("'health':'Unhealthy'");
    ck_assert_body("'gpushare/message':'the driver does not answer any more'");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    pass(30000);
    ck_assert_ptr_null(out(MACHINE_PATCH_LEASE));
    ck_assert_int_eq(machine_alive(machine, rig_now(), NULL), 0);
    sampled(CARD(0)); /* it has come back */
    ck_assert(is_well(MACHINE_PART_CARDS));
    ck_assert_int_eq(machine_ready(machine, rig_now(), MACHINE_PART_CARDS, NULL), 0);
    called(MACHINE_PATCH_LEASE);
    called(MACHINE_PATCH);
    ck_assert_body("'health':'Unhealthy'"); /* for a while */
    now_ms += 700000;
    ck_assert_int_eq(machine_alive(machine, rig_now(), NULL), -1);
}
END_TEST

START_TEST(a_call_without_an_answer_is_seen)
{
    set_up();
    sampled(USED(0));
    called(MACHINE_PATCH);
    now_ms += 15000 + 1;
    struct err err;
    ck_assert_int_eq(machine_check(machine, rig_now(), MACHINE_PART_SCV, &err), -1);
    ck_assert_int_eq(machine_alive(machine, rig_now(), &err), 0);
    now_ms += MACHINE_STUCK_MS;
    ck_assert_int_eq(machine_alive(machine, rig_now(), &err), -1);
    ck_assert_ptr_nonnull(strstr(err.msg, "the thread scv hangs in a call"));
}
END_TEST

START_TEST(writes_that_succeed_one_after_the_other_are_no_delay)
{
    set_up();
    for (int i = 0; i < 60; i++) {
        now_ms += 500;
        sampled(i % 2 ? CARD(0) : USED(0));
        if (out(MACHINE_PATCH_LEASE))
            answer(out(MACHINE_PATCH_LEASE)->call, NULL);
        if (i == 0)
            called(MACHINE_PATCH);
        now_ms += 500;
        cleanup_buf struct buf object = {0};
        buf_printf(&object, SCV("%d", ",'status':{'a':1}"), 100 + i);
        sampled(i % 2 ? USED(0) : CARD(0)); /* changed again before the answer */
        answer(call_id, object.p);
        called(MACHINE_PATCH);
        ck_assert(is_well(MACHINE_PART_SCV));
    }
}
END_TEST

START_TEST(a_silent_watch_is_seen)
{
    set_up();
    now_ms += MACHINE_SILENT_MS + 1;
    ck_assert(!is_well(MACHINE_PART_WATCH));
    alive();
    ck_assert(is_well(MACHINE_PART_WATCH));
}
END_TEST

START_TEST(a_watch_ends_and_goes_on)
{
    set_up();
    uint64_t old = watch_run;
    now_ms += 1000;
    step((struct machine_input){.type = MACHINE_WATCH_ENDED, .run = watch_run});
    watching(); /* at once, from where it was */
    ck_assert_str_eq(out(MACHINE_WATCH)->version, "11");
    ck_assert_uint_gt(watch_run, old);
    struct err err;
    now_ms++;
    err_set(&err, ERR_GONE, "too old");
    step((struct machine_input){
        .type = MACHINE_WATCH_ENDED, .run = watch_run, .err = &err});
    called(MACHINE_LIST);
    answer_list(call_id, "30", NULL); /* it was deleted meanwhile */
    watching();
    ck_assert_str_eq(out(MACHINE_WATCH)->version, "30");
    called(MACHINE_GET_NODE);
    answer(call_id, NODE);
    called(MACHINE_CREATE);
    step((struct machine_input){.type = MACHINE_WATCH_ENDED, .run = old, .err = &err});
    ck_assert_uint_eq(outputs.n, 0);
}
END_TEST

START_TEST(a_watch_that_always_gets_410_lists_at_growing_intervals)
{
    struct err err;
    err_set(&err, ERR_GONE, "too old");
    set_up();
    int64_t from = now_ms, longest = 0;
    for (int lists = 0; lists < 7; lists++) {
        int64_t last = now_ms;
        alive(); /* the watch was opened, and the 410 came as an event */
        step((struct machine_input){
            .type = MACHINE_WATCH_ENDED, .run = watch_run, .err = &err});
        while (!out(MACHINE_LIST)) {
            now_ms += 100;
            sampled(CARD(0));
        }
        called(MACHINE_LIST);
        answer_list(call_id, "11",
                    SCV("11", ",'spec':{'updateInterval':1000},'status':{'a':1}"));
        watching();
        longest = now_ms - last > longest ? now_ms - last : longest;
    }
    ck_assert_int_ge(now_ms - from, 15 * 500);
    ck_assert_int_ge(longest, 8 * 500);
}
END_TEST

START_TEST(without_nvml_the_object_says_so)
{
    begin_calls();
    answer(node_call, NODE);
    answer_list(list_call, "10", NULL);
    sample_failed("libnvidia-ml.so.1: cannot open shared object file");
    ck_assert(noted("no cards can be read: libnvidia-ml.so.1"));
    called(MACHINE_CREATE);
    ck_assert_body("'gpushare/message':'libnvidia-ml.so.1: cannot open shared object "
                   "file'");
    ck_assert_no_body("cardList");
    ck_assert_int_eq(machine_interval(machine), MACHINE_MISSING_MS);
    ck_assert(machine_any_lost(machine));
    answer(call_id, SCV("11", ""));
    ck_assert(is_well(MACHINE_PART_CARDS));
    called(MACHINE_PATCH_LEASE);
    sampled(CARD(0));
    called(MACHINE_PATCH);
    ck_assert_body("'cardList':[");
    ck_assert_no_body("gpushare/message");
}
END_TEST

START_TEST(pods_are_published_and_forgotten)
{
    const struct span ids[] = {SPAN("GPU-0"), SPAN("GPU-0::1"), SPAN("GPU-00"),
                               SPAN("GPU-0-_-3")};
    const struct pods_entry entries[] = {
        {SPAN("ns"), SPAN("p"), SPAN("c"), SPAN("nvidia.com/gpu"), ids, 2},
        {SPAN("ns"), SPAN("q"), SPAN("c"), SPAN("aliyun.com/gpu-mem"), ids + 2, 2},
        {SPAN("ns"), SPAN("p"), SPAN("c"), SPAN("example.com/fpga"), ids, 1}};
    const struct pods pods = {entries, 3};
    set_up();
    step((struct machine_input){.type = MACHINE_PODS, .pods = &pods});
    called(MACHINE_PATCH);
    ck_assert_body(
        "'podList':[{'cards':['GPU-0'],'container':'c','name':'p','namespace':'ns',"
        "'resource':'nvidia.com/gpu','units':2},{'cards':[],'container':'c',"
        "'name':'q','namespace':'ns','resource':'aliyun.com/gpu-mem','units':2}]");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    ck_assert(is_well(MACHINE_PART_PODS));
    now_ms += 60001;
    ck_assert(!is_well(MACHINE_PART_PODS));
    sampled(CARD(0));
    called(MACHINE_PATCH);
    ck_assert_body("'podList':null");
}
END_TEST

/* A machine that nobody answers does not make a ticker spin. */
START_TEST(it_is_never_due_in_the_past)
{
    begin_calls();
    ck_assert_int_gt(machine_due(machine), now_ms);
    refuse(node_call, ERR_UNAVAILABLE, "no connection");
    refuse(list_call, ERR_UNAVAILABLE, "no connection");
    for (int i = 0; i < 1000; i++) {
        int64_t due = machine_due(machine);
        ck_assert_int_gt(due, now_ms);
        now_ms = due > now_ms + 1000 ? now_ms + 1000 : due;
        step((struct machine_input){.type = MACHINE_TICK});
        for (size_t k = 0; k < outputs.n; k++)
            if (machine_is_call(&outputs.items[k])) {
                refuse(outputs.items[k].call, ERR_UNAVAILABLE, "no connection");
                break;
            }
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        nothing_is_made_before_the_node_is_known,
        a_rollout_waits_a_while_for_the_first_answer_of_the_driver,
        nothing_is_written_while_nothing_changes,
        what_changes_during_a_write_is_written_after_it,
        the_slow_fields_alone_wait_for_a_minute,
        a_deleted_scv_is_made_again_after_a_look_at_the_node,
        a_removed_node_leaves_nothing_behind,
        an_older_deletion_is_not_believed,
        a_conflict_is_redone_on_the_newer_object,
        one_that_is_there_already_is_taken_over,
        the_interval_is_the_users,
        what_somebody_else_changes_is_put_right_once_per_interval,
        the_kind_that_is_not_installed_is_waited_for,
        a_refusal_is_told_and_tried_again,
        the_heartbeat_is_made_where_it_is_missing,
        the_heartbeat_stops_when_the_driver_hangs,
        a_call_without_an_answer_is_seen,
        writes_that_succeed_one_after_the_other_are_no_delay,
        a_silent_watch_is_seen,
        a_watch_ends_and_goes_on,
        a_watch_that_always_gets_410_lists_at_growing_intervals,
        without_nvml_the_object_says_so,
        pods_are_published_and_forgotten,
        it_is_never_due_in_the_past,
    };
    const struct unit_fixtures around = {.begin = rig_begin, .end = rig_end};
    return unit_run_with("machine", tests, sizeof tests / sizeof *tests, 60, &around);
}
