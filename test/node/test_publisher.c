/* SPDX-License-Identifier: Apache-2.0 */
#include "node/fixture.h"

/* A card with a temperature and a utilization. */
#define HOT(t, u)                                                                        \
    "{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':2097152,'temperature':" t        \
    ",'utilization':" u "}"

static bool blocks_readiness(enum publisher_check check, struct err *err)
{
    bool required = false;
    return publisher_check(publisher, fixture_now(), check, &required, err) && required;
}

TEST(nothing_is_created_before_the_node_is_known)
{
    begin_calls();
    listed(NULL);
    sampled(CARD(0));
    ck_assert_ptr_null(out(PUBLISHER_CREATE));
    refuse(node_call, ERR_NOT_FOUND, "nodes \"n1\" not found");
    ck_assert(logged("cannot get Node n1"));
    ck_assert(is_well(PUBLISHER_CHECK_NODE));
    now_ms += 15001;
    ck_assert(!is_well(PUBLISHER_CHECK_NODE));
    tick(0);
    answered(PUBLISHER_GET_NODE, NODE);
    called(PUBLISHER_CREATE);
    ck_assert_body("'ownerReferences':[" OWNER "]");
    ck_assert_body("'spec':{'updateInterval':1000}");
    ck_assert_body("'freeMemorySum':2,'totalMemorySum':2,'updateTime':'");
    ck_assert(is_well(PUBLISHER_CHECK_NODE));
}

TEST(a_rollout_waits_for_the_first_sample)
{
    struct err err;
    begin_calls();
    listed(NULL);
    answer(node_call, NODE);
    ck_assert(blocks_readiness(PUBLISHER_CHECK_CARDS, &err));
    ck_assert_str_eq(err.msg, "no card was sampled yet");
    tick(PUBLISHER_FIRST_MS / 2); /* all cards are Unhealthy by now */
    ck_assert(blocks_readiness(PUBLISHER_CHECK_CARDS, &err));
    now_ms += PUBLISHER_FIRST_MS / 2;
    ck_assert(blocks_readiness(PUBLISHER_CHECK_CARDS, &err));
    ck_assert(blocks_readiness(PUBLISHER_CHECK_HEARTBEAT, &err));
    now_ms += 1;
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_CARDS, &err));
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_HEARTBEAT, &err));
    ck_assert(!is_well(PUBLISHER_CHECK_CARDS));
}

TEST(a_rollout_waits_until_all_is_accepted)
{
    struct err err;
    begin_calls();
    listed(NULL);
    sampled(CARD(0));
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_CARDS, &err));
    ck_assert(blocks_readiness(PUBLISHER_CHECK_NODE, &err));
    ck_assert_str_eq(err.msg, "the Node is not known yet");
    answer(node_call, NODE);
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_NODE, &err));
    refused(PUBLISHER_CREATE, ERR_FORBIDDEN, "scvs is forbidden");
    ck_assert(blocks_readiness(PUBLISHER_CHECK_SCV, &err));
    ck_assert_str_eq(err.msg, "the Scv is not written yet");
    tick(15000);
    answered(PUBLISHER_CREATE, FIRST);
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_SCV, &err));
    refused(PUBLISHER_PATCH_LEASE, ERR_FORBIDDEN, "leases is forbidden");
    ck_assert(blocks_readiness(PUBLISHER_CHECK_HEARTBEAT, &err));
    ck_assert_str_eq(err.msg, "the Lease is not renewed yet");
    ck_assert(is_well(PUBLISHER_CHECK_HEARTBEAT));
    tick(15000);
    answered(PUBLISHER_PATCH_LEASE, LEASE);
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_HEARTBEAT, &err));
}

TEST(nothing_is_written_while_nothing_changes)
{
    set_up();
    for (int i = 0; i < 9; i++) {
        now_ms += 1000;
        sampled(CARD(0));
        is_quiet();
    }
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'resourceVersion':'11'");
    ck_assert_body("'freeMemory':1,");
    ck_assert_no_body("spec");
    ck_assert_no_body("ownerReferences");
    ck_assert_body("'podList':null"); /* what an earlier one may have had */
}

TEST(the_slow_fields_alone_wait_for_a_minute)
{
    set_up();
    sampled(HOT("40", "0")); /* not known before */
    is_quiet();
    for (int i = 0; i < 59; i++) {
        now_ms += 1000;
        sampled(HOT("70", "99"));
        ck_assert_ptr_null(out(PUBLISHER_PATCH));
        if (out(PUBLISHER_PATCH_LEASE))
            answer(out(PUBLISHER_PATCH_LEASE)->call, LEASE);
    }
    now_ms += 1000;
    sampled(HOT("70", "99"));
    called(PUBLISHER_PATCH);
    ck_assert_body("'temperature':70");
}

TEST(an_older_deletion_is_not_believed)
{
    set_up();
    sampled(USED(0));
    answered(PUBLISHER_PATCH, SCV("20", ",'status':{'a':2}"));
    event(true, SCV("15", ""));
    is_quiet();
    ck_assert(!logged("deleted"));
}

TEST(a_conflict_is_redone_on_the_newer_object)
{
    set_up();
    sampled(USED(0));
    refused(PUBLISHER_PATCH, ERR_CONFLICT, "the object has been modified");
    ck_assert_ptr_nonnull(out(PUBLISHER_RELIST));
    listed(SCV("14", ",'status':{'a':1}"));
    called(PUBLISHER_PATCH);
    ck_assert_body("'resourceVersion':'14'");
    for (int i = 0; i < 2; i++) {
        refused(PUBLISHER_PATCH, ERR_CONFLICT, "the object has been modified");
        ck_assert_ptr_nonnull(out(PUBLISHER_RELIST));
        listed(SCV("14", ",'status':{'a':1}"));
        called(PUBLISHER_PATCH);
    }
    refused(PUBLISHER_PATCH, ERR_CONFLICT, "the object has been modified");
    ck_assert(logged("the object has been modified"));
    listed(SCV("14", ",'status':{'a':1}"));
    ck_assert_ptr_null(out(PUBLISHER_PATCH)); /* with backoff */
}

/* After etcd was restored from a backup, versions begin below those that were seen. */
TEST(a_list_is_believed_although_its_version_is_lower)
{
    set_up();
    sampled(USED(0));
    refused(PUBLISHER_PATCH, ERR_CONFLICT, "the object has been modified");
    listed(SCV("5", ",'status':{'a':1}"));
    called(PUBLISHER_PATCH);
    ck_assert_body("'resourceVersion':'5'");
    answer(call_id, SCV("7", ",'status':{'a':2}"));
    event(true, SCV("8", ""));
    ck_assert(logged("deleted"));
}

TEST(an_owner_of_another_kind_stays_alone)
{
    begin_calls();
    listed("{'metadata':{'name':'n1','uid':'u1','resourceVersion':'9',"
           "'ownerReferences':[{'kind':'Zone','name':'z','uid':'z'}]}}");
    answer(node_call, NODE);
    sampled(CARD(0));
    called(PUBLISHER_PATCH);
    ck_assert_no_body("ownerReferences");
}

TEST(one_that_is_there_already_is_taken_over)
{
    begin_calls();
    listed("{'metadata':{'name':'n1','uid':'u1','resourceVersion':'9',"
           "'labels':{'a':'b'},'ownerReferences':[{'kind':'Node','name':'n1',"
           "'uid':'old'}]},"
           "'spec':{'updateInterval':5000},'status':{'cardList':["
           "{'id':0,'uuid':'GPU-0','health':'Unhealthy'},"
           "{'id':1,'uuid':'GPU-7','health':'Healthy','model':'T4',"
           "'totalMemory':9,'bandwidth':15760}]}}");
    answer(node_call, NODE);
    ck_assert_int_eq(publisher_interval(publisher), 5000);
    sampled(CARD(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'ownerReferences':[" OWNER "]");
    ck_assert_no_body("labels");
    ck_assert_body("{'freeMemory':2,'health':'Unhealthy','id':0,");
    ck_assert_body("{'bandwidth':15760,'health':'Unhealthy','id':1,'model':'T4',"
                   "'totalMemory':9,'uuid':'GPU-7'}");
    ck_assert_body("'gpushare/message':'GPU0 is Unhealthy: unhealthy before scv-agent "
                   "started; GPU1 is Unhealthy: NVML no longer lists the card'");
}

TEST(the_interval_belongs_to_the_user)
{
    set_up();
    event(false, SCV("12", ",'spec':{'updateInterval':250},'status':{'a':1}"));
    ck_assert_int_eq(publisher_interval(publisher), 250);
    ck_assert(logged("sampling every 250 ms"));
    event(false, SCV("13", ",'spec':{'updateInterval':1},'status':{'a':1}"));
    ck_assert_int_eq(publisher_interval(publisher), PUBLISHER_MIN_INTERVAL_MS);
    ck_assert(logged("spec.updateInterval: 1 is not within 100..3600000"));
    event(false, SCV("13", ",'spec':{'updateInterval':1},'status':{'a':1}"));
    ck_assert(!logged("not within")); /* once */
    event(false, SCV("14", ",'spec':{'updateInterval':-5},'status':{'a':1}"));
    ck_assert_int_eq(publisher_interval(publisher), 1000);
    event(false, SCV("15", ",'spec':{'updateInterval':99999999999},'status':{'a':1}"));
    ck_assert_int_eq(publisher_interval(publisher), PUBLISHER_MAX_INTERVAL_MS);
    event(false, SCV("16", ",'status':{'a':1}"));
    ck_assert_int_eq(publisher_interval(publisher), 1000);
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    ck_assert_no_body("updateInterval");
}

TEST(nothing_is_written_before_the_scv_is_listed)
{
    begin_calls();
    answer(node_call, NODE);
    sampled(CARD(0));
    step((struct publisher_input){.type = PUBLISHER_LIST_STARTED}); /* it fails */
    step_failed(&watch.failure, now_ms,
                &(struct err){ERR_NOT_FOUND, "the CRD is not installed"});
    tick(20000);
    struct err err = {0};
    ck_assert_int_eq(
        publisher_check(publisher, fixture_now(), PUBLISHER_CHECK_WATCH, NULL, &err), -1);
    ck_assert_str_eq(err.msg, "the Scv is not watched for 20s: the CRD is not installed");
    ck_assert(!is_well(PUBLISHER_CHECK_SCV));
    ck_assert_ptr_null(out(PUBLISHER_CREATE));
    watch.failure = (struct step_failure){0};
    listed(NULL);
    answered(PUBLISHER_GET_NODE, NODE);
    called(PUBLISHER_CREATE);
}

TEST(a_rejected_write_is_logged_and_retried)
{
    set_up();
    sampled(USED(0));
    refused(PUBLISHER_PATCH, ERR_FORBIDDEN, "scvs is forbidden");
    ck_assert(logged("cannot patch Scv n1: scvs is forbidden"));
    pass(2000);
    refused(PUBLISHER_PATCH, ERR_FORBIDDEN, "scvs is forbidden");
    ck_assert(!logged("forbidden"));
    now_ms += 20000;
    ck_assert(!is_well(PUBLISHER_CHECK_SCV));
    pass(1);
    answered(PUBLISHER_PATCH, SCV("12", ",'status':{'a':2}"));
    ck_assert(logged(" again"));
    ck_assert(is_well(PUBLISHER_CHECK_SCV));
}

TEST(the_heartbeat_is_made_where_it_is_missing)
{
    set_up();
    pass(10000);
    called(PUBLISHER_PATCH_LEASE);
    ck_assert_body("'holderIdentity':'n1','leaseDurationSeconds':40,'renewTime':'2026-");
    ck_assert_no_body("acquireTime");
    now_ms += 2;
    refuse(call_id, ERR_NOT_FOUND, "leases \"n1\" not found");
    answered(PUBLISHER_GET_NODE, NODE);
    called(PUBLISHER_CREATE_LEASE);
    ck_assert_body("'ownerReferences':[" OWNER "]");
    ck_assert_body("'acquireTime':'");
    refuse(call_id, ERR_NOT_FOUND, "namespaces \"leases\" not found");
    ck_assert(logged("namespace nvidia-gpu-scheduler-node-lease is missing"));
    pass(5000);
    answered(PUBLISHER_CREATE_LEASE, LEASE);
    ck_assert(logged("created Lease nvidia-gpu-scheduler-node-lease/n1"));
}

TEST(a_heartbeat_that_another_client_created_keeps_its_owner)
{
    set_up();
    pass(10000);
    refused(PUBLISHER_PATCH_LEASE, ERR_NOT_FOUND, "leases \"n1\" not found");
    now_ms++;
    answered(PUBLISHER_GET_NODE, NODE);
    refused(PUBLISHER_CREATE_LEASE, ERR_CONFLICT, "leases \"n1\" already exists");
    called(PUBLISHER_PATCH_LEASE);
    ck_assert_no_body("ownerReferences");
    answer(call_id, "{'metadata':{'name':'n1'}}");
    pass(10000);
    called(PUBLISHER_PATCH_LEASE);
    ck_assert_body("'ownerReferences':[" OWNER "]");
}

/* The driver that limits memory can come and go, also under cards that stay. */
TEST(what_the_node_can_enforce_is_that_of_the_last_sample)
{
    static const struct {
        uint8_t isolation;
        const char *why, *list, *message;
    } cases[] = {
        {SCV_ISOLATION_KNOWN, "cgroup v1", "[]", "'cgroup v1'"},
        {SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER | SCV_ISOLATION_LIBRARY, "",
         "['driver','library']", "null"},
        {SCV_ISOLATION_KNOWN | SCV_ISOLATION_LIBRARY, "", "['library']", "null"},
    };
    set_up();
    array_indices(i, cases) {
        now_ms += 1000;
        step((struct publisher_input){.type = PUBLISHER_SAMPLED,
                                      .sample = sample_of(CARD(0)),
                                      .isolation = cases[i].isolation,
                                      .no_isolation = span_of(cases[i].why)});
        called(PUBLISHER_PATCH);
        cleanup_free char *list = xasprintf("'isolation':%s", cases[i].list),
                          *message = xasprintf("'gpushare/message':%s", cases[i].message),
                          *scv = xasprintf("{'metadata':{'name':'n1','uid':'u1',"
                                           "'resourceVersion':'%zu','ownerReferences':"
                                           "[" OWNER "]},'status':{'a':%zu}}",
                                           20 + i, i);
        ck_assert_body(list);
        ck_assert_body(message);
        answer(call_id, scv);
    }
}

/* A node of HAMi's dialect, of which the kubelet does not yet say who serves nvidia.com/gpu. */
static void sampled_unserved(void)
{
    now_ms += 1000;
    step((struct publisher_input){
        .type = PUBLISHER_SAMPLED, .sample = sample_of(CARD(0)), .unserved = true});
}

TEST(a_dialect_that_waits_is_never_none)
{
    begin_calls();
    listed(NULL);
    answer(node_call, NODE);
    sampled_unserved();
    called(PUBLISHER_CREATE);
    ck_assert_body("'dialect':'unserved'");
}

TEST(a_dialect_that_waits_changes_no_other)
{
    static const char *const words[] = {"", "hami", "kai"};
    array_items(word, words) {
        fixture_end();
        fixture_begin();
        sampled_unserved();
        listed(
            arena_printf(&arena, SCV("10", ",'status':{'dialect':'%s','a':1}"), *word));
        called(PUBLISHER_PATCH);
        ck_assert_body(
            arena_printf(&arena, "'dialect':'%s'", **word ? *word : "unserved"));
    }
}

/* What the process before published stays until the Node is read. */
TEST(the_dialect_of_the_node_is_published)
{
    static const struct {
        struct span dialect;
        const char *member; /* NULL: nothing is written */
    } cases[] = {
        {{NULL, 0}, "'dialect':'kai'"},
        {SPAN("hami"), "'dialect':'hami'"},
        {{NULL, 0}, NULL},
        {SPAN("hami"), NULL},
        {SPAN(""), "'dialect':null"},
    };
    listed(SCV("10", ",'status':{'dialect':'kai','a':1}"));
    array_items(c, cases) {
        now_ms += 1000;
        step((struct publisher_input){.type = PUBLISHER_SAMPLED,
                                      .sample = sample_of(CARD(0)),
                                      .dialect = c->dialect});
        if (!c->member) {
            ck_assert_ptr_null(out(PUBLISHER_PATCH));
            continue;
        }
        called(PUBLISHER_PATCH);
        ck_assert_body(c->member);
        cleanup_free char *scv =
            xasprintf("{'metadata':{'name':'n1','uid':'u1','resourceVersion':'%d'},"
                      "'status':{'a':%d,%s}}",
                      20 + (int)(c - cases), (int)(c - cases), c->member);
        answer(call_id, scv);
    }
}

/* The CRD of version 1.0 has no such field, and the node would be NVIDIA's. */
TEST(a_dialect_that_is_not_stored_is_reported)
{
    static const char message[] = "'gpushare/message':'the API server does not store "
                                  "status.dialect: update the CRD of Scvs'";
    listed(SCV("10", ",'status':{}"));
    step((struct publisher_input){.type = PUBLISHER_SAMPLED,
                                  .sample = sample_of(CARD(0)),
                                  .dialect = SPAN("hami")});
    answered(PUBLISHER_PATCH, SCV("11", ",'status':{'a':1}"));
    ck_assert(logged("does not store status.dialect"));
    called(PUBLISHER_PATCH);
    ck_assert_body(message);
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    is_quiet();
    now_ms += 1000;
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    ck_assert_body(message);
    answer(call_id, SCV("13", ",'status':{'dialect':'hami'}"));
    called(PUBLISHER_PATCH);
    ck_assert_body("'gpushare/message':null");
}

TEST(the_heartbeat_stops_when_the_driver_hangs)
{
    set_up();
    now_ms += 9999;
    pass(20500); /* a heartbeat was due */
    answered(PUBLISHER_PATCH_LEASE, LEASE);
    ck_assert(is_well(PUBLISHER_CHECK_CARDS));
    event(false, FIRST);
    tick(21000);
    ck_assert(logged("no response from the driver for"));
    for (int part = 0; part < PUBLISHER_CHECKS; part++)
        ck_assert(!blocks_readiness((enum publisher_check)part, NULL));
    ck_assert(logged("GPU0 GPU-0 is Unhealthy: the driver does not respond"));
    ck_assert(!is_well(PUBLISHER_CHECK_CARDS));
    ck_assert_ptr_null(out(PUBLISHER_PATCH_LEASE));
    called(PUBLISHER_PATCH);
    ck_assert_body("'health':'Unhealthy'");
    ck_assert_body("'gpushare/message':'the driver does not respond'");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    pass(30000);
    ck_assert_ptr_null(out(PUBLISHER_PATCH_LEASE));
    ck_assert_int_eq(publisher_live(publisher, fixture_now(), NULL), 0);
    sampled(CARD(0)); /* it has come back */
    ck_assert(is_well(PUBLISHER_CHECK_CARDS));
    ck_assert(!blocks_readiness(PUBLISHER_CHECK_CARDS, NULL));
    called(PUBLISHER_PATCH_LEASE);
    called(PUBLISHER_PATCH);
    ck_assert_body("'health':'Unhealthy'"); /* for a while */
    now_ms += 700000;
    ck_assert_int_eq(publisher_live(publisher, fixture_now(), NULL), -1);
}

TEST(a_call_without_an_answer_is_seen)
{
    set_up();
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    now_ms += 15000 + 1;
    struct err err;
    ck_assert_int_eq(
        publisher_check(publisher, fixture_now(), PUBLISHER_CHECK_SCV, NULL, &err), -1);
    ck_assert_int_eq(publisher_live(publisher, fixture_now(), &err), 0);
}

/* Its lane goes on without it, and a late answer changes nothing. */
TEST(a_call_that_does_not_return_is_given_up)
{
    struct err err;
    set_up();
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    uint64_t first = call_id;
    for (int i = 1; i <= PUBLISHER_ABANDONED; i++) {
        ck_assert_int_eq(publisher_live(publisher, fixture_now(), &err), 0);
        ck_assert(publisher_awaits(publisher, call_id));
        tick(PUBLISHER_STUCK_MS + 1);
        ck_assert_int_eq(out(PUBLISHER_ABANDON)->lane, PUBLISHER_LANE_SCV);
        ck_assert(!publisher_awaits(publisher, call_id));
        answer(first, SCV("99", ",'status':{'a':9}"));
        do
            tick(15000);
        while (!out(PUBLISHER_PATCH));
        called(PUBLISHER_PATCH);
        ck_assert_body("'resourceVersion':'11'");
    }
    ck_assert_int_eq(publisher_live(publisher, fixture_now(), &err), -1);
    ck_assert_contains(err.msg, "thread scv hangs");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    sampled(CARD(0));
    ck_assert_int_eq(publisher_live(publisher, fixture_now(), &err), 0);
}

TEST(writes_that_succeed_one_after_the_other_are_no_delay)
{
    set_up();
    for (int i = 0; i < 60; i++) {
        now_ms += 500;
        sampled(i % 2 ? CARD(0) : USED(0));
        if (out(PUBLISHER_PATCH_LEASE))
            answer(out(PUBLISHER_PATCH_LEASE)->call, NULL);
        if (i == 0)
            called(PUBLISHER_PATCH);
        now_ms += 500;
        cleanup_free char *object = xasprintf(SCV("%d", ",'status':{'a':1}"), 100 + i);
        sampled(i % 2 ? USED(0) : CARD(0)); /* changed again before the answer */
        answer(call_id, object);
        called(PUBLISHER_PATCH);
        ck_assert(is_well(PUBLISHER_CHECK_SCV));
    }
}

TEST(what_is_not_watched_is_not_vouched_for)
{
    set_up();
    watch.unknown_since_ms = now_ms;
    tick(15000);
    ck_assert(is_well(PUBLISHER_CHECK_WATCH));
    answered(PUBLISHER_PATCH_LEASE, LEASE);
    now_ms += 10000; /* a heartbeat is due */
    sampled(CARD(0));
    ck_assert(logged("heartbeat withheld: the Scv is not watched for 25s"));
    ck_assert(!is_well(PUBLISHER_CHECK_WATCH));
    ck_assert_ptr_null(out(PUBLISHER_PATCH_LEASE));
    watch.unknown_since_ms = -1;
    tick(0);
    called(PUBLISHER_PATCH_LEASE);
    now_ms += PUBLISHER_HANGS_MS;
    sampled(CARD(0));
    struct err err;
    ck_assert_int_eq(publisher_live(publisher, fixture_now(), &err), -1);
    ck_assert_contains(err.msg, "thread watch hangs");
}

/* The answer came between the list and its end. */
TEST(an_item_that_is_older_than_an_answer_does_not_count)
{
    set_up();
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    uint64_t patch = call_id;
    step((struct publisher_input){.type = PUBLISHER_LIST_STARTED});
    answer(patch, SCV("20", ",'status':{'a':2}"));
    event(false, FIRST); /* 11 */
    step((struct publisher_input){.type = PUBLISHER_LIST_ENDED});
    now_ms += 1000;
    sampled(CARD(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'resourceVersion':'20'");
    /* And so does not its absence. */
    step((struct publisher_input){.type = PUBLISHER_LIST_STARTED});
    answer(call_id, SCV("21", ",'status':{'a':3}"));
    step((struct publisher_input){.type = PUBLISHER_LIST_ENDED});
    ck_assert_ptr_null(out(PUBLISHER_GET_NODE));
}

TEST(one_that_a_list_lacks_is_created)
{
    set_up();
    tick(1);
    listed(NULL);
    answered(PUBLISHER_GET_NODE, NODE);
    called(PUBLISHER_CREATE);
}

TEST(pods_are_published_and_forgotten)
{
    const struct span ids[] = {SPAN("GPU-0"), SPAN("GPU-0::1"), SPAN("GPU-00"),
                               SPAN("GPU-0-_-3")};
    const struct podresources_entry entries[] = {
        {SPAN("ns"), SPAN("p"), SPAN("c"), SPAN("nvidia.com/gpu"), ids, 2, 0},
        {SPAN("ns"), SPAN("q"), SPAN("c"), SPAN("aliyun.com/gpu-mem"), ids + 2, 2, 0}};
    set_up();
    struct podresources pods = {
        .refs = 1, .entries = entries, .n = 2, .asked_ms = now_ms};
    step((struct publisher_input){.type = PUBLISHER_PODS, .pods = &pods});
    called(PUBLISHER_PATCH);
    ck_assert_body(
        "'podList':[{'cards':['GPU-0'],'container':'c','name':'p','namespace':'ns',"
        "'resource':'nvidia.com/gpu','units':2},{'cards':[],'container':'c',"
        "'name':'q','namespace':'ns','resource':'aliyun.com/gpu-mem','units':2}]");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    ck_assert(is_well(PUBLISHER_CHECK_PODS));
    now_ms += 60001;
    ck_assert(!is_well(PUBLISHER_CHECK_PODS));
    sampled(CARD(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'podList':null");
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
