/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/*
 * The API server was restored from a backup: what it shows is older than what it showed. The
 * core forgets everything, lists everything, and says yes to nothing before.
 */

#define NOTE                                                                             \
    "{'ALIYUN_COM_GPU_MEM_IDX':'0','ALIYUN_COM_GPU_MEM_ASSIGNED':'true',"                \
    "'ALIYUN_COM_GPU_MEM_DEV':'16000'}"

static struct pod pending(const char *uid)
{
    return rig_mem(uid, 8000);
}

/* A leader; the pod p1 is bound to n1. */
static void start(void)
{
    rig_start();
    rig_lead();
    rig_cards("n1", 1, 16000);
    rig_see(rig_bound_pod("p1", 8000, "n1", NOTE));
    ck_assert_ptr_nonnull(rig_ledger_pod("p1")->node);
    rig_reset();
}

/* Nothing is known any more, and all kinds are listed again. */
static void ck_forgotten(void)
{
    ck_assert_contains(rig_log(), "older state than before");
    ck_total(nodes, 0);
    ck_assert_ptr_null(rig_ledger_pod("p1"));
    ck_assert(!core_is_leader(r.core));
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), -1);
    rig_reset();
    rig_tick(0);
    rig_acquire();
    ck_count(CORE_LIST, CORE_KINDS);
}

TEST(a_pod_that_the_api_shows_unbound_gets_no_yes)
{
    start();
    rig_bind(7, "p1", "n1");
    ck_count(CORE_REPLY, 0);
    rig_show_pod(pending("p1"));
    struct core_output reply = rig_take(CORE_REPLY);
    ck_assert_int_eq(reply.bind, CORE_BIND_NOT_NOW);
    ck_forgotten();
}

TEST(a_pod_that_the_api_shows_bound_gets_a_yes)
{
    start();
    rig_bind(7, "p1", "n1");
    rig_show_pod(rig_bound_pod("p1", 8000, "n1", NOTE));
    ck_assert_int_eq(rig_take(CORE_REPLY).bind, CORE_BOUND);
    rig_bind(8, "p1", "n2");
    rig_show_pod(rig_bound_pod("p1", 8000, "n1", NOTE));
    ck_assert_int_eq(rig_take(CORE_REPLY).code, ERR_CONFLICT);
}

TEST(a_list_that_shows_a_bound_pod_unbound)
{
    start();
    rig_tick(1000);
    rig_watch_ended(CORE_PODS, ERR_GONE);
    rig_tick(60000);
    rig_see(pending("p1"));
    ck_forgotten();
}

/* An event can be older than what a GET or a Binding has shown. */
TEST(an_event_that_shows_a_bound_pod_unbound_is_old)
{
    start();
    rig_see(pending("p1"));
    ck_assert_ptr_nonnull(rig_ledger_pod("p1")->node);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
}

static void progress(const char *version)
{
    rig_step((struct core_input){.type = CORE_WATCH_PROGRESS,
                                 .kind = CORE_SCVS,
                                 .run = r.runs[CORE_SCVS],
                                 .version = span_of(version)});
}

/* It does so without a restore when kube-apiserver has turned to a member of etcd that lags: a
 * list decides. */
static void watch_goes_back(void)
{
    progress("110");
    rig_reset();
    progress("109");
    rig_tick(1000);
    ck_assert_str_eq(rig_log(), "");
    ck_assert_int_eq(rig_take(CORE_LIST).kind, CORE_SCVS);
    progress("111"); /* of the watch that has ended */
}

TEST(a_version_of_a_watch_goes_back_and_the_list_does_not)
{
    start();
    watch_goes_back();
    rig_list_end_at(CORE_SCVS, "110");
    ck_assert_str_eq(rig_log(), "");
    ck_assert(core_is_leader(r.core));
    ck_assert_ptr_nonnull(rig_ledger_pod("p1")->node);
    ck_assert_int_eq(core_ready(r.core, r.now, NULL), 0);
}

TEST(a_version_of_a_watch_goes_back_and_so_does_the_list)
{
    start();
    watch_goes_back();
    rig_list_end_at(CORE_SCVS, "109");
    ck_forgotten();
}

TEST(a_version_of_a_list_goes_back)
{
    start();
    progress("110");
    rig_watch_ended(CORE_SCVS, ERR_GONE);
    rig_list_end(CORE_SCVS); /* 100 */
    ck_count(CORE_WATCH, 0); /* whose events would be lost */
    ck_forgotten();
}

/* Another process may still hold the lease that was restored away. */
TEST(the_lease_goes_back)
{
    start();
    rig_tick(CORE_RENEW_MS);
    rig_end(CORE_CALL_LEASE_WRITE, ERR_CONFLICT);
    rig_lease_read("me", "1");
    ck_forgotten();
    rig_lists_end();
    ck_assert_int_eq(core_check_may_bind(r.core, r.now, NULL), -1);
    rig_pass(CORE_LEASE_MS - 200);
    ck_assert_int_eq(core_check_may_bind(r.core, r.now, NULL), -1);
    rig_pass(1000);
    rig_list_end(CORE_PODS);
    ck_assert_int_eq(core_check_may_bind(r.core, r.now, NULL), 0);
}

/* etcdutl --bump-revision: versions do not go back. */
TEST(the_number_of_leaders_goes_back)
{
    start();
    for (int64_t transitions = 3; transitions >= 2; transitions--) {
        struct lease lease = {.holder = SPAN("me"),
                              .duration_s = 5,
                              .transitions = transitions,
                              .meta = {.version = SPAN("9000")}};
        ck_assert(core_is_leader(r.core));
        rig_tick(CORE_RENEW_MS);
        rig_step((struct core_input){.type = CORE_ANSWER,
                                     .call = rig_take(CORE_CALL_LEASE_WRITE).call,
                                     .lease = &lease});
    }
    ck_forgotten();
}

/* The Binding may take effect; the list that follows shows it. */
TEST(a_bind_in_flight_is_tried_again)
{
    start();
    rig_pending("p2", 8000);
    rig_bind(7, "p2", "n1");
    uint64_t call = rig_take(CORE_CALL_BIND).call;
    progress("110");
    rig_watch_ended(CORE_SCVS, ERR_GONE);
    rig_list_end(CORE_SCVS); /* 100 */
    ck_assert_int_eq(rig_take(CORE_REPLY).bind, CORE_BIND_NOT_NOW);
    ck_forgotten();
    rig_answer(call, ERR_NONE);
    ck_assert_ptr_null(rig_ledger_pod("p2"));
}

/* Versions that were seen before the backup do not go back, and the watch would be silent. */
TEST(a_broken_watch_is_not_resumed)
{
    start();
    for (enum core_kind kind = 0; kind < CORE_KINDS; kind++) {
        rig_watch_ended(kind, ERR_UNAVAILABLE);
        rig_tick(2000);
        ck_assert_int_eq(rig_take(CORE_LIST).kind, kind);
        ck_count(CORE_WATCH, 0);
        rig_list_end(kind);
        rig_reset();
    }
}
