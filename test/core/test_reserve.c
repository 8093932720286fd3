/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

/* A leader that knows nodes n1 and n2, each with a card of 16000 MiB. */
static void start(void)
{
    rig_start();
    rig_lead();
    rig_cards("n1", 1, 16000);
    rig_cards("n2", 1, 16000);
    rig_reset();
}

static struct request memory(int64_t mib)
{
    return (struct request){
        .kind = REQUEST_MEMORY, .units = mib, .mib_per_card = mib, .cards = 1};
}

static enum core_reserve_outcome outcome; /* of the last reserve_for */

/* The node on which cards are reserved for the pod; "": none. */
static const char *reserve_for(const char *uid, struct request request, int64_t priority,
                               const char *first, const char *second)
{
    const struct span nodes[] = {span_of(first), span_of(second ? second : "")};
    rig_step((struct core_input){.type = CORE_RESERVE,
                                 .token = 9,
                                 .ns = SPAN("default"),
                                 .name = span_of(uid),
                                 .uid = span_of(uid),
                                 .request = &request,
                                 .priority = priority,
                                 .nodes = nodes,
                                 .n_nodes = second   ? 2
                                            : *first ? 1
                                                     : 0});
    struct core_output o = rig_take(CORE_RESERVED);
    ck_assert_uint_eq(o.token, 9);
    outcome = o.reserve;
    return o.reserve == CORE_RESERVE_DONE ? o.node : "";
}

static const char *reserve(const char *uid, int64_t mib)
{
    return reserve_for(uid, memory(mib), 0, "n1", "n2");
}

/* Reserves on this node alone; `on`: the node or "". */
#define ck_reserves(uid, mib, priority, node, on)                                        \
    ck_assert_str_eq(reserve_for(uid, memory(mib), priority, node, NULL), on)

static struct pod pod_of(const char *uid, int mib, int64_t priority)
{
    struct pod pod = rig_mem(uid, mib);
    pod.priority = priority;
    return pod;
}

static int64_t free_on(const char *node)
{
    return rig_free_mib(node, 0);
}

TEST(a_reservation_takes_free_memory_and_is_no_promise)
{
    start();
    ck_assert_str_eq(reserve("a", 10000), "n1");
    const struct card *card = &rig_ledger_node("n1")->cards[0];
    ck_assert_int_eq(card->free_mib, 6000);
    ck_assert_int_eq(card->reserved_mib, 10000);
    ck_assert_int_eq(card->promised_mib, 0);
    ck_assert_uint_eq(card->pods, 0);
    ck_assert(!card_is_free(card));
}

TEST(the_second_pod_gets_the_next_node_before_the_first_is_bound)
{
    start();
    ck_assert_str_eq(reserve("a", 10000), "n1");
    ck_assert_str_eq(reserve("b", 10000), "n2");
    ck_assert_str_eq(reserve("c", 10000), "");
    ck_assert_int_eq(outcome, CORE_RESERVE_NO_NODE);
    ck_assert_str_eq(reserve("d", 6000), "n1");
    ck_reserved(3);
}

TEST(a_bind_turns_the_reservation_into_the_promise_on_the_same_card)
{
    start();
    rig_cards("n3", 2, 16000);
    rig_pending("a", 4000);
    rig_pending("b", 14000);
    ck_reserves("a", 4000, 0, "n3", "n3");
    ck_reserves("b", 14000, 0, "n3", "n3");
    rig_bind(1, "b", "n3");
    ck_assert_int_eq(rig_free_mib("n3", 0), 12000);
    ck_assert_int_eq(rig_free_mib("n3", 1), 2000);
    ck_reserved(1);
    rig_bind(2, "a", "n3");
    ck_assert_int_eq(rig_free_mib("n3", 0), 12000);
    ck_reserved(0);
    ck_count(CORE_CALL_BIND, 2);
    ck_assert_contains(rig_take(CORE_CALL_BIND).annotations, "\"" KEY_MEM_IDX "\":\"1\"");
}

TEST(the_reserved_card_is_kept_when_the_policy_would_choose_another)
{
    start();
    struct request spread = memory(9000);
    spread.placement = PLACE_SPREAD;
    rig_cards("n3", 2, 16000);
    rig_pending("a", 4000);
    ck_reserves("a", 4000, 0, "n3", "n3");                           /* GPU0 */
    ck_assert_str_eq(reserve_for("y", spread, 0, "n3", NULL), "n3"); /* GPU1 */
    /* Without its reservation, a would join y on the fuller card. */
    rig_bind(1, "a", "n3");
    ck_assert_int_eq(rig_free_mib("n3", 0), 12000);
    ck_assert_int_eq(rig_free_mib("n3", 1), 7000);
}

TEST(a_pending_pod_that_loses_its_labels_ends_its_reservation)
{
    start();
    struct pod pod = pod_of("a", 10000, 0);
    pod.n_containers = 0;
    pod.scv_memory = SPAN("10000");
    rig_see(pod);
    ck_assert_ptr_nonnull(rig_ledger_pod("a"));
    ck_assert_str_eq(reserve("a", 10000), "n1");
    pod.scv_memory = (struct span){0};
    rig_see(pod);
    ck_reserved(0);
    ck_assert_int_eq(free_on("n1"), 16000);
}

TEST(a_reservation_of_higher_priority_ends_only_the_weakest_that_it_needs)
{
    start();
    ck_reserves("a", 6000, 2, "n1", "n1");
    ck_reserves("b", 6000, 1, "n1", "n1");
    ck_reserves("c", 3000, 1, "n1", "n1");
    ck_reserves("d", 5000, 1, "n1", "");
    ck_reserves("d", 4000, 2, "n1", "n1");
    const struct ledger *l = core_ledger(r.core);
    ck_assert_ptr_nonnull(ledger_reservation_find(l, SPAN("a")));
    ck_assert_ptr_nonnull(ledger_reservation_find(l, SPAN("b")));
    ck_assert_ptr_null(ledger_reservation_find(l, SPAN("c"))); /* the later of the two */
    ck_assert_ptr_nonnull(ledger_reservation_find(l, SPAN("d")));
    ck_assert_int_eq(free_on("n1"), 0);
}

TEST(a_reservation_ends_when_the_node_cannot_enforce_it_any_more)
{
    start();
    struct request strict = memory(8000);
    struct scv scv = object_scv_even(&r.arena, "n2", 1, 16000);
    strict.isolation = SCV_ISOLATION_DRIVER;
    ck_assert_str_eq(reserve_for("a", strict, 0, "n1", "n2"), "");
    scv.isolation = SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER;
    rig_scv(scv);
    ck_assert_str_eq(reserve_for("a", strict, 0, "n1", "n2"), "n2");
    ck_reserved(1);
    scv.isolation = SCV_ISOLATION_KNOWN;
    rig_scv(scv);
    ck_reserved(0);
}

TEST(a_reservation_ends_after_its_time_limit_and_wakes_the_scheduler)
{
    start();
    rig_pending("waits", 16000);
    ck_reserves("b", 1, 0, "n2", "n2");
    reserve("a", 10000);
    rig_pass(CORE_RESERVATION_MS - 1);
    ck_reserved(2);
    ck_assert_int_le(core_due(r.core), r.now.mono_ms + 1);
    rig_reset();
    rig_pass(1);
    ck_reserved(0);
    ck_count(CORE_CALL_WAKEUP, 2);
}

/* A pod of higher priority sees what is reserved as free, so it may fit. */
TEST(a_node_whose_room_is_reserved_meanwhile_wakes_the_scheduler)
{
    start();
    rig_see(pod_of("waits", 16000, 10));
    for (int i = 0; i < 2; i++) {
        rig_sick("n2", 1, 0);
        rig_cards("n2", 1, 16000);
        if (i == 1) /* before the second since the first wakeup has passed */
            ck_reserves("a", 10000, 0, "n2", "n2");
        rig_pass(i ? CORE_WAKEUP_INTERVAL_MS : 1);
        struct core_output o = rig_take(CORE_CALL_WAKEUP);
        ck_assert_str_eq(o.node, "n2");
        rig_answer(o.call, ERR_NONE);
    }
}

TEST(a_bind_wakes_nobody)
{
    start();
    rig_pending("waits", 6000);
    rig_pending("a", 10000);
    reserve("a", 10000);
    rig_reset();
    rig_bind(1, "a", "n1");
    rig_see(rig_bound_pod("a", 10000, "n1", "{'" KEY_MEM_IDX "':'0'}"));
    rig_pass(100);
    ck_count(CORE_CALL_WAKEUP, 0);
}

TEST(only_the_leader_reserves)
{
    rig_start();
    rig_lease_read("other", "1");
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        rig_tick(0);
        rig_list_end((enum core_kind)kind);
    }
    rig_cards("n1", 1, 16000);
    ck_assert_str_eq(reserve("a", 1000), "");
    ck_assert_int_eq(outcome, CORE_RESERVE_NOT_NOW);
}

TEST(a_pod_with_a_promise_gets_no_reservation)
{
    start();
    rig_pending("a", 10000);
    rig_bind(1, "a", "n1");
    ck_assert_str_eq(reserve("a", 1000), "");
    ck_assert_int_eq(outcome, CORE_RESERVE_PROMISED);
    rig_end(CORE_CALL_BIND, ERR_NONE);
    ck_assert_str_eq(reserve("a", 1000), "");
    ck_assert_int_eq(outcome, CORE_RESERVE_PROMISED);
}

/* The input arrives before the tick that is due. */
TEST(a_filter_just_after_the_time_limit_gets_a_new_one)
{
    start();
    reserve("a", 10000);
    rig_pass(CORE_RESERVATION_MS - 1);
    r.now.mono_ms += 1;
    ck_assert_str_eq(reserve("a", 10000), "n1");
    ck_reserved(1);
    rig_pass(CORE_RESERVATION_MS - 1);
    ck_reserved(1);
    rig_pass(1);
    ck_reserved(0);
}

TEST(a_filter_that_keeps_the_place_wakes_nobody)
{
    start();
    rig_pending("waits", 10000);
    reserve_for("b", memory(16000), 0, "n2", NULL);
    reserve("a", 10000);
    rig_reset();
    ck_assert_str_eq(reserve("a", 10000), "n1");
    rig_pass(100);
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* The names come from callers of filter. */
TEST(the_number_of_reservations_is_limited)
{
    enum { NODES = 1024 };
    start();
    for (int i = 0; i <= CORE_RESERVATIONS_MAX; i++) {
        char uid[16], node[16];
        snprintf(uid, sizeof uid, "u%d", i);
        snprintf(node, sizeof node, "m%d", i % NODES);
        if (i < NODES)
            rig_cards(node, 1, 2000);
        const char *on = reserve_for(uid, memory(1), 0, node, NULL);
        ck_assert_str_eq(on, i < CORE_RESERVATIONS_MAX ? node : "");
        ck_assert_int_eq(outcome, i < CORE_RESERVATIONS_MAX ? CORE_RESERVE_DONE
                                                            : CORE_RESERVE_FULL);
        rig_reset();
    }
    ck_reserved(CORE_RESERVATIONS_MAX);
    ck_reserves("u0", 1, 0, "m0", "m0"); /* it has one */
    struct pod pod = rig_mem("member", 1);
    pod.gang.coscheduling = SPAN("g");
    ck_assert_int_eq(rig_reserve(pod, &SPAN("m1"), 1).reserve, CORE_RESERVE_FULL);
}

TEST(a_nominated_pod_with_a_reservation_counts_once)
{
    start();
    struct pod nominated = pod_of("n", 8000, 1);
    nominated.nominated_node = SPAN("n1");
    rig_see(nominated);
    ck_reserves("a", 9000, 0, "n1", "");
    ck_reserves("n", 8000, 1, "n1", "n1");
    ck_reserves("a", 8000, 0, "n1", "n1");
}

/* The victims of a preemption leave one after the other, and what they leave is no other pod's. */
TEST(the_room_of_a_nominated_pod_is_given_to_no_weaker_pod)
{
    start();
    rig_cards("n3", 2, 16000);
    ck_reserves("early", 4000, 0, "n3", "n3"); /* before the nomination */
    rig_see(pod_of("early", 4000, 0));
    struct pod victim = rig_bound_pod(
        "v", 15000, "n3", "{'" KEY_MEM_IDX "':'1','" KEY_MEM_POD "':'15000'}");
    rig_see(victim);
    struct pod hi =
        rig_json("{'metadata':{'name':'hi','namespace':'default','uid':'hi'},"
                 "'spec':{'priority':100,'containers':[{'resources':{'limits':{"
                 "'aliyun.com/gpu-count':'2'}}}]},"
                 "'status':{'nominatedNodeName':'n3'}}");
    rig_see(hi);
    victim.meta.deleting = true;
    rig_see(victim);
    ck_reserves("lo", 4000, 0, "n3", "");
    rig_see(pod_of("lo", 4000, 0));
    for (int i = 0; i < 2; i++) {
        rig_bind(1, i ? "early" : "lo", "n3");
        struct core_output o = rig_take(CORE_REPLY);
        ck_assert_str_eq(o.text, "no card of node n3 fits: needs 4000 MiB on one card; "
                                 "free, but reserved for pods nominated to this node");
    }
    rig_delete(victim);
    ck_reserves("lo", 4000, 0, "n3", "");
    hi.nominated_node = (struct span){0};
    rig_see(hi);
    ck_reserves("lo", 4000, 0, "n3", "n3");
}
