/* SPDX-License-Identifier: Apache-2.0 */
/* Binds of gangs wait for each other, and what was planned for a gang rests on what still holds. */
#include "core/rig.h"

enum { CARD_MIB = 16276 };

static struct pod member_of(const char *uid, const char *gang, int minimum)
{
    struct pod pod = rig_json(
        "{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s','labels':{"
        "'" KEY_COSCHEDULING "':'%s'},'annotations':{'" KEY_GANG_MINIMUM "':'%d'}},"
        "'spec':{'schedulerName':'default-scheduler','containers':[{'resources':{"
        "'limits':{'" KEY_GPU_MEM "':'10000'}}}]}}",
        uid, uid, gang, minimum);
    return pod;
}

static struct pod member(const char *uid)
{
    return member_of(uid, "g", 3);
}

static void show_node(const char *name, const char *spec)
{
    rig_node(object_node(&r.arena, rig_text("{'metadata':{'name':'%s',%s}", name, spec)));
}

/* Nodes n1, n2, ... with one card each. */
static void start(int nodes)
{
    rig_new((struct core_settings){
        .ledger.require_node = true, .node_grace_ms = 10000, .gang_wait_ms = 1000});
    rig_lead();
    for (int i = 1; i <= nodes; i++) {
        show_node(rig_text("n%d", i).p, "'labels':{}}");
        rig_cards(rig_text("n%d", i).p, 1, CARD_MIB);
    }
    rig_reset();
}

static char text[512];

/* filter with the nodes from first to last: the node, or "". */
static const char *ask(struct pod pod, int first, int last)
{
    struct span nodes[8];
    size_t n = 0;
    for (int i = first; i <= last; i++)
        nodes[n++] = rig_text("n%d", i);
    struct core_output o = rig_reserve(pod, nodes, n);
    snprintf(text, sizeof text, "%s", o.text ? o.text : "");
    return o.reserve == CORE_RESERVE_DONE ? o.node : "";
}

static const char *const wait_text =
    "gang g: waits until enough of its members can start together";

/* The reply of a bind. */
static struct core_output reply(uint64_t token)
{
    struct core_output o = rig_take(CORE_REPLY);
    ck_assert_uint_eq(o.token, token);
    return o;
}

static void ck_failed(uint64_t token)
{
    struct core_output o = reply(token);
    ck_assert_int_eq(o.bind, CORE_BIND_REJECTED);
    ck_assert_str_eq(o.text, wait_text);
}

static size_t held(void)
{
    return core_stats(r.core).binds_held;
}

static size_t wakeups(void)
{
    size_t n = 0;
    for (; rig_count(CORE_CALL_WAKEUP); n++)
        rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    return n;
}

/* -- what was planned rests on what still holds -- */

static void node_deleted(void)
{
    struct node node = object_node(&r.arena, rig_text("{'metadata':{'name':'n2'}}"));
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_NODES,
                                 .run = r.runs[CORE_NODES],
                                 .node = &node,
                                 .deleted = true});
}
static void node_cordoned(void)
{
    show_node("n2", "'labels':{}},'spec':{'unschedulable':true}");
}
static void card_unhealthy(void)
{
    rig_sick("n2", 1, 0);
}
static void card_listed(void)
{
    struct unhealthy_cards u = {.node = SPAN("n2"), .cards = (int32_t[]){0}, .n = 1};
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_CONFIGMAPS,
                                 .run = r.runs[CORE_CONFIGMAPS],
                                 .unhealthy = &u});
}
static void mode_card(void)
{
    show_node("n2", "'labels':{'" KEY_MODE "':'card'}}");
}
static void scv_deleted(void)
{
    rig_scv_gone("n2");
}
static void card_smaller(void)
{
    rig_cards("n2", 1, 8192);
}
static void card_replaced(void)
{
    struct scv scv = object_scv_even(&r.arena, "n2", 1, CARD_MIB);
    scv.cards[0].uuid = SPAN("another");
    rig_scv(scv);
}
static void used_outside(void)
{
    struct scv scv = object_scv_even(&r.arena, "n2", 1, CARD_MIB);
    scv.cards[0].free_mib = CARD_MIB - 14000;
    rig_scv(scv);
}
static void bound_elsewhere(void)
{
    rig_see(rig_bound_pod("x", 9000, "n2", "{}"));
}
static void heartbeat_stale(void)
{
    rig_step((struct core_input){
        .type = CORE_HEARTBEAT_STALE, .node_name = SPAN("n2"), .stale_s = 60});
}

static const struct loss {
    const char *how;
    void (*happens)(void);
} losses[] = {
    {"node deleted", node_deleted},
    {"node cordoned", node_cordoned},
    {"card unhealthy", card_unhealthy},
    {"card listed", card_listed},
    {"mode card", mode_card},
    {"Scv deleted", scv_deleted},
    {"card smaller", card_smaller},
    {"card replaced", card_replaced},
    {"used outside", used_outside},
    {"bound elsewhere", bound_elsewhere},
    {"heartbeat stale", heartbeat_stale},
};

TEST(a_reservation_ends_with_what_it_rests_on)
{
    for (size_t i = 0; i < ARRAY_LEN(losses); i++) {
        start(2);
        struct pod one = rig_mem("s", 10000);
        rig_see(one);
        ck_assert_str_eq(ask(one, 2, 2), "n2");
        ck_reserved(1);
        losses[i].happens();
        ck_assert_msg(ledger_totals(core_ledger(r.core)).reservations == 0, "%s",
                      losses[i].how);
    }
}

TEST(a_member_whose_reservation_has_ended_has_no_place)
{
    for (size_t i = 0; i < ARRAY_LEN(losses); i++) {
        start(2);
        for (int k = 1; k <= 2; k++)
            rig_see(member_of(rig_text("p%d", k).p, "g", 2));
        ck_assert_str_eq(ask(member_of("p1", "g", 2), 1, 2), "n1");
        ck_reserved(2);
        losses[i].happens();
        ck_assert_msg(ledger_totals(core_ledger(r.core)).reservations == 0, "%s",
                      losses[i].how);
        if (losses[i].happens == card_replaced) /* the new one suits as well */
            continue;
        ck_assert_str_eq(ask(member_of("p1", "g", 2), 1, 1), "");
        ck_assert_str_eq(text,
                         "gang g: 1 of 2 members finds no place beside the others; needs "
                         "10000 MiB on one card; none starts before all can");
    }
}

TEST(a_held_bind_fails_with_the_card_of_a_member)
{
    for (size_t i = 0; i < ARRAY_LEN(losses); i++) {
        start(3);
        for (int k = 1; k <= 3; k++)
            rig_see(member(rig_text("p%d", k).p));
        ck_assert_str_eq(ask(member("p1"), 1, 3), "n1");
        ck_assert_str_eq(ask(member("p2"), 2, 2), "n2");
        rig_bind(1, "p1", "n1");
        rig_bind(2, "p2", "n2");
        ck_assert_uint_eq(held(), 2);
        rig_reset();
        losses[i].happens();
        ck_assert_msg(held() == 0, "%s", losses[i].how);
        ck_count(CORE_REPLY, 2);
        ck_count(CORE_CALL_BIND, 0);
        ck_reserved(0);
    }
}

/* A pod that tolerates the taint is offered a cordoned node. */
TEST(a_node_that_was_cordoned_before_keeps_its_reservation)
{
    start(2);
    node_cordoned();
    struct pod one = rig_mem("s", 10000);
    rig_see(one);
    ck_assert_str_eq(ask(one, 2, 2), "n2");
    rig_cards("n2", 1, CARD_MIB);
    ck_reserved(1);
    card_unhealthy();
    ck_reserved(0);
}

TEST(another_card_of_the_node_changes_nothing)
{
    start(0);
    show_node("n1", "'labels':{}}");
    rig_cards("n1", 2, CARD_MIB);
    struct pod one = rig_mem("s", 10000);
    rig_see(one);
    ck_assert_str_eq(ask(one, 1, 1), "n1");
    rig_sick("n1", 2, 1);
    ck_reserved(1);
    rig_sick("n1", 2, 0);
    ck_reserved(0);
}

/* -- the barrier -- */

/* A gang of three, planned on three nodes. */
static void plan(void)
{
    start(3);
    for (int k = 1; k <= 3; k++)
        rig_see(member(rig_text("p%d", k).p));
    for (int k = 1; k <= 3; k++)
        ck_assert_str_eq(ask(member(rig_text("p%d", k).p), k, k), rig_text("n%d", k).p);
    rig_reset();
}

TEST(the_last_bind_starts_all)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_pass(5000);
    rig_bind(2, "p2", "n2");
    ck_count(CORE_CALL_BIND, 0);
    ck_count(CORE_REPLY, 0);
    ck_assert_uint_eq(held(), 2);
    rig_bind(3, "p3", "n3");
    ck_count(CORE_CALL_BIND, 3);
    ck_assert_uint_eq(held(), 0);
    ck_reserved(0);
    for (int i = 0; i < 3; i++)
        rig_end(CORE_CALL_BIND, ERR_NONE);
    ck_count(CORE_REPLY, 3);
    /* A fourth waits for nobody. */
    rig_see(member("p4"));
    rig_cards("n4", 1, CARD_MIB);
    show_node("n4", "'labels':{}}");
    rig_bind(4, "p4", "n4");
    ck_count(CORE_CALL_BIND, 1);
}

TEST(held_binds_fail_ten_seconds_after_the_first)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_pass(9000);
    rig_bind(2, "p2", "n2");
    rig_reset();
    rig_pass(900);
    ck_count(CORE_REPLY, 0);
    rig_pass(100);
    ck_count(CORE_CALL_BIND, 0);
    ck_failed(2);
    ck_failed(1);
    ck_reserved(0);
    ck_assert_uint_eq(core_stats(r.core).gangs_failed, 1);
}

/* kube-scheduler does not know the plan, but where it sends a member must have a card. */
TEST(a_held_bind_has_cards_without_a_filter)
{
    start(3);
    for (int k = 1; k <= 3; k++)
        rig_see(member(rig_text("p%d", k).p));
    rig_bind(1, "p1", "n1");
    ck_reserved(1);
    rig_see(rig_mem("x", 10000));
    ck_assert_str_eq(ask(rig_mem("x", 10000), 1, 1), "");
    rig_bind(2, "p2", "n1"); /* two of them on one card */
    ck_count(CORE_REPLY, 2);
    ck_reserved(0);
    ck_assert_uint_eq(held(), 0);
}

TEST(held_binds_fail_when_a_member_ends)
{
    for (int how = 0; how < 4; how++) {
        plan();
        rig_bind(1, "p1", "n1");
        rig_bind(2, "p2", "n2");
        struct pod pod = member(how % 2 ? "p3" : "p1");
        if (how < 2) {
            rig_delete(pod);
        } else {
            pod.meta.deleting = true;
            rig_see(pod);
        }
        ck_count(CORE_REPLY, 2);
        ck_failed(2);
        ck_failed(1);
        ck_count(CORE_CALL_BIND, 0);
        ck_reserved(0);
    }
}

/* Labels and annotations of pending pods can be edited. */
TEST(held_binds_fail_when_a_member_leaves_the_gang)
{
    for (int how = 0; how < 4; how++) {
        plan();
        rig_bind(1, "p1", "n1");
        rig_bind(2, "p2", "n2");
        struct pod pod = how == 0   ? member_of("p1", "other", 3)
                         : how == 1 ? rig_mem("p1", 10000)
                         : how == 2
                             ? rig_json("{'metadata':{'namespace':'default','name':"
                                        "'pod-p1','uid':'p1'},'spec':{}}")
                             : member("p1");
        pod.gated = how == 3;
        rig_see(pod);
        ck_count(CORE_REPLY, 2);
        ck_failed(2);
        ck_failed(1);
        rig_bind(3, "p3", "n3");
        ck_count(CORE_CALL_BIND, 0);
    }
}

TEST(a_bound_member_that_terminates_ends_the_hold)
{
    plan();
    struct pod bound = member("p3");
    bound.node = SPAN("n3");
    rig_see(bound);
    rig_bind(1, "p1", "n1");
    ck_assert_uint_eq(held(), 1);
    bound.meta.deleting = true;
    rig_see(bound);
    ck_failed(1);
}

TEST(a_member_that_is_rejected_ends_the_hold)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    rig_reset();
    ck_assert_str_eq(ask(member("p3"), 2, 2), ""); /* only a node that is taken */
    ck_failed(2);
    ck_failed(1);
    ck_reserved(0);
}

TEST(a_member_bound_by_others_counts)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    struct pod bound = member("p3");
    bound.node = SPAN("n3");
    rig_see(bound);
    ck_count(CORE_CALL_BIND, 2);
}

TEST(a_second_bind_or_a_filter_ends_the_held_bind)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    rig_bind(11, "p1", "n1");
    ck_assert_int_eq(reply(1).bind, CORE_BIND_REJECTED);
    ck_assert_uint_eq(held(), 2);
    ck_assert_str_eq(ask(member("p2"), 2, 2), "n2");
    ck_assert_int_eq(reply(2).bind, CORE_BIND_REJECTED);
    ck_assert_uint_eq(held(), 1);
    rig_bind(3, "p3", "n3");
    ck_count(CORE_CALL_BIND, 0);
    rig_bind(12, "p2", "n2");
    ck_count(CORE_CALL_BIND, 3);
}

/* Else a member whose calls are cut off before the time is held for ever, and its gang never takes
 * turns. */
TEST(a_hold_that_is_asked_for_again_ends_at_its_first_time)
{
    plan();
    for (uint64_t token = 1; token <= 4; token++) {
        rig_bind(token, "p1", "n1");
        rig_step((struct core_input){.type = CORE_BIND_GONE, .token = token});
        rig_pass(2000);
    }
    rig_bind(5, "p1", "n1");
    rig_pass(1900);
    ck_count(CORE_REPLY, 0);
    rig_pass(100);
    ck_failed(5);
    ck_assert_uint_eq(core_stats(r.core).gangs_in_turn, 1);
}

/* The lease was not renewed, and the watch shows the last member bound by another program. */
TEST(held_binds_stay_while_none_may_leave)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    r.now.mono_ms += 2000;
    r.now.wall_ns += INT64_C(2000) * 1000000;
    struct pod bound = member("p3");
    bound.node = SPAN("n3");
    rig_see(bound);
    ck_count(CORE_CALL_BIND, 0);
    ck_assert_uint_eq(held(), 2);
}

/* Those that do not exist stop counting. */
TEST(a_hold_is_judged_again_with_time)
{
    start(3);
    for (int k = 1; k <= 2; k++)
        rig_see(member(rig_text("p%d", k).p));
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    ck_count(CORE_CALL_BIND, 0);
    rig_pass(2000);
    ck_count(CORE_CALL_BIND, 2);
}

TEST(a_caller_that_has_gone_leaves_the_barrier)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    rig_step((struct core_input){.type = CORE_BIND_GONE, .token = 1});
    ck_assert_uint_eq(held(), 1);
    rig_bind(3, "p3", "n3");
    ck_count(CORE_CALL_BIND, 0);
    ck_count(CORE_REPLY, 0);
}

TEST(held_binds_go_to_the_next_leader)
{
    plan();
    rig_bind(1, "p1", "n1");
    rig_stop();
    ck_assert_int_eq(reply(1).bind, CORE_BIND_NOT_NOW);
    plan();
    rig_bind(1, "p1", "n1");
    rig_tick(20000); /* the lease was not renewed */
    ck_assert_int_eq(reply(1).bind, CORE_BIND_NOT_NOW);
}

TEST(a_pod_that_no_watch_has_shown_is_held_too)
{
    start(3);
    rig_see(member("p1"));
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    rig_show_pod(member("p2"));
    ck_assert_uint_eq(held(), 2);
    rig_bind(3, "p3", "n3");
    rig_show_pod(member("p3"));
    ck_count(CORE_CALL_BIND, 3);
}

TEST(members_that_do_not_wait_are_bound_alone)
{
    plan();
    rig_step((struct core_input){.type = CORE_BIND,
                                 .token = 1,
                                 .ns = SPAN("default"),
                                 .name = SPAN("pod-p1"),
                                 .uid = SPAN("p1"),
                                 .node_name = SPAN("n1"),
                                 .gang_minimum = 1});
    ck_count(CORE_CALL_BIND, 1);
}

/* -- members that are not tried -- */

static struct pod gated(const char *uid)
{
    struct pod pod = member(uid);
    pod.gated = true;
    return pod;
}

TEST(a_gang_waits_for_gates_without_limit)
{
    start(3);
    rig_see(member("p1"));
    rig_see(member("p2"));
    rig_see(gated("p3"));
    rig_pass(60000);
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(ask(member("p1"), 1, 3), "");
        ck_assert_str_eq(text, "gang g: waits for 1 more member: 3 of 3 exist, 1 with "
                               "scheduling gates");
        ck_reserved(0);
    }
    rig_see(member("p3"));
    ck_assert_str_eq(ask(member("p1"), 1, 3), "n1");
    ck_reserved(3);
}

TEST(more_members_than_must_start_can_have_gates)
{
    start(3);
    for (int k = 1; k <= 3; k++)
        rig_see(member(rig_text("p%d", k).p));
    rig_see(gated("p4"));
    ck_assert_str_eq(ask(member("p1"), 1, 3), "n1");
    ck_reserved(3);
}

TEST(nothing_is_reserved_for_members_of_another_scheduler)
{
    start(3);
    rig_see(member("p1"));
    rig_see(member("p2"));
    struct pod other = member("p3");
    other.scheduler = SPAN("another");
    rig_see(other);
    ck_assert_str_eq(ask(member("p1"), 1, 3), "n1");
    ck_reserved(2);
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    ck_count(CORE_CALL_BIND, 0);
    rig_bind(3, "p3", "n3");
    ck_count(CORE_CALL_BIND, 3);
}

/* kube-scheduler offers to each what its node selector leaves. */
TEST(a_gang_starts_over_several_pools)
{
    start(3);
    for (int k = 1; k <= 3; k++)
        rig_see(member(rig_text("p%d", k).p));
    ck_assert_str_eq(ask(member("p1"), 1, 1), "n1");
    ck_reserved(3);
    ck_assert_str_eq(ask(member("p2"), 2, 3), "n2");
    ck_assert_str_eq(ask(member("p3"), 2, 3), "n3");
}

/* -- turns -- */

/* Two gangs of two on three nodes: g holds n1, h holds n2, and no other node is offered to
 * either, until both have expired. */
static void expire_both(void)
{
    start(3);
    for (int k = 1; k <= 2; k++) {
        rig_see(member_of(rig_text("g%d", k).p, "g", 2));
        rig_see(member_of(rig_text("h%d", k).p, "h", 2));
    }
    rig_bind(1, "g1", "n1");
    rig_pass(100);
    rig_bind(2, "h1", "n2");
    rig_reset();
    rig_pass(10000);
    ck_count(CORE_REPLY, 2);
    wakeups();
    rig_pass(1000);
    wakeups();
    rig_reset();
}

TEST(gangs_that_were_held_in_vain_take_turns)
{
    expire_both();
    ck_assert_uint_eq(core_stats(r.core).gangs_in_turn, 2);
    ck_assert_str_eq(ask(member_of("h1", "h", 2), 1, 3), "");
    ck_assert_str_eq(text,
                     "gang h: waits until enough of its members can start together");
    ck_assert_str_eq(ask(member_of("g1", "g", 2), 1, 3), "n1");
    rig_bind(3, "h1", "n2");
    ck_assert_str_eq(reply(3).text,
                     "gang h: waits until enough of its members can start together");
    rig_bind(4, "g1", "n1");
    rig_bind(5, "g2", "n2");
    ck_count(CORE_CALL_BIND, 2);
    rig_pass(1000);
    ck_assert_uint_ge(wakeups(), 1); /* the turn of h */
    ck_assert_uint_eq(core_stats(r.core).gangs_in_turn, 1);
}

TEST(a_turn_in_which_none_comes_is_passed_on)
{
    expire_both();
    rig_pass(2000); /* g had the turn */
    ck_assert_str_eq(ask(member_of("g1", "g", 2), 1, 3), "");
    ck_assert_str_eq(ask(member_of("h1", "h", 2), 1, 3), "n1");
    rig_bind(3, "h1", "n1");
    rig_bind(4, "h2", "n2");
    ck_count(CORE_CALL_BIND, 2);
}

TEST(a_gang_without_a_turn_keeps_no_cards_for_a_pod_that_no_watch_has_shown)
{
    expire_both();
    ck_assert_str_ne(ask(member_of("g3", "g", 2), 1, 3), "");
    ck_assert_ptr_nonnull(ledger_reservation_find(core_ledger(r.core), SPAN("g3")));
    rig_pass(11000); /* the turn of h */
    ck_assert_str_eq(ask(member_of("g3", "g", 2), 1, 3), "");
    ck_assert_str_eq(text,
                     "gang g: waits until enough of its members can start together");
    ck_reserved(0);
}

/* g can never complete. */
TEST(a_hopeless_gang_is_passed_over_for_ever_longer)
{
    expire_both();
    int64_t turns = 0, last = 0, longest = 0;
    rig_delete(member_of("h1", "h", 2));
    rig_delete(member_of("h2", "h", 2));
    for (int64_t t = 0; t < 400000; t += 500) {
        rig_pass(500);
        for (enum core_kind kind = 0; kind < CORE_KINDS; kind++)
            rig_progress(kind);
        if (!held() && *ask(member_of("g1", "g", 2), 1, 3)) {
            longest = t - last > longest ? t - last : longest;
            last = t;
            turns++;
            rig_bind(100 + (uint64_t)t, "g1", "n1");
        }
        rig_reset();
    }
    ck_assert_int_ge(turns, 7);
    ck_assert_int_le(turns, 12);
    ck_assert_int_ge(longest, 60000);
}

TEST(a_gang_that_never_expired_needs_no_turn)
{
    expire_both();
    for (int k = 1; k <= 2; k++)
        rig_see(member_of(rig_text("i%d", k).p, "i", 2));
    ck_assert_str_eq(ask(member_of("i1", "i", 2), 1, 3), "n1");
}

TEST(the_missing_members_are_woken)
{
    plan();
    rig_cards("n4", 1, CARD_MIB);
    show_node("n4", "'labels':{}}");
    rig_pass(2000);
    wakeups();
    rig_bind(1, "p1", "n1");
    rig_pass(900);
    ck_assert_uint_eq(wakeups(), 0);
    rig_pass(200);
    ck_assert_uint_eq(wakeups(), 1); /* n4: the others are reserved */
}
