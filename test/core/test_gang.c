/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rig.h"

enum { CARD_MIB = 16276 };

/* A leader that knows nodes n1, n2, ... with one card each. */
static void start(int nodes)
{
    rig_start();
    rig_lead();
    for (int i = 1; i <= nodes; i++)
        rig_cards(rig_text("n%d", i).p, 1, CARD_MIB);
    rig_reset();
}

static struct pod member_in(const char *ns, const char *uid, const char *gang, int mib)
{
    return rig_json("{'metadata':{'namespace':'%s','name':'pod-%s','uid':'%s','labels':{"
                    "'" KEY_COSCHEDULING "':'%s'}},'spec':{'containers':[{'resources':{"
                    "'limits':{'" KEY_GPU_MEM "':'%d'}}}]}}",
                    ns, uid, uid, gang, mib);
}

static struct pod member(const char *uid, const char *gang, int mib)
{
    return member_in("default", uid, gang, mib);
}

/* Of the gang g with a minimum of three. It was created so long ago. */
static struct pod member_of(const char *uid, int64_t age_s)
{
    struct pod pod = member(uid, "g", 10850);
    pod.gang.minimum = SPAN("3");
    pod.meta.created_s = r.now.wall_ns / 1000000000 - age_s;
    return pod;
}

/* The watch shows the pods p1, p2, ... of the gang g. */
static void show(int n, int mib)
{
    for (int i = 1; i <= n; i++)
        rig_see(member(rig_text("p%d", i).p, "g", mib));
    rig_reset();
}

static char text[512];

/* filter of the pod with the first `n` nodes from n`first` on: the node where cards are
 * reserved, or "" with the reason in `text`. */
static const char *ask(struct pod pod, int first, int n)
{
    struct span nodes[8];
    for (int i = 0; i < n; i++)
        nodes[i] = rig_text("n%d", first + i);
    struct core_output o = rig_reserve(pod, nodes, (size_t)n);
    snprintf(text, sizeof text, "%s", o.text ? o.text : "");
    ck_assert(o.reserve == CORE_RESERVE_DONE || o.reserve == CORE_RESERVE_PROMISED ||
              !o.node);
    ck_assert_int_eq(o.reserve == CORE_RESERVE_GANG_REJECTED ||
                         o.reserve == CORE_RESERVE_GANG_WAITS,
                     o.text != NULL);
    return o.reserve == CORE_RESERVE_DONE ? o.node : "";
}

static const char *node_of(const char *uid)
{
    const struct ledger_reservation *own =
        ledger_reservation_find(core_ledger(r.core), span_of(uid));
    return own ? own->node->name.p : "";
}

#define ck_asks(pod, first, n, node) ck_assert_str_eq(ask(pod, first, n), node)
/* filter of a member of g with the first `n` nodes. */
#define ck_ask(uid, mib, n, node) ck_asks(member(uid, "g", mib), 1, n, node)

TEST(a_gang_that_does_not_fit_gets_nothing)
{
    start(2);
    show(3, 10850);
    for (int i = 1; i <= 3; i++) {
        ck_ask(rig_text("p%d", i).p, 10850, 2, "");
        ck_assert_str_eq(text, "gang g: 1 of 3 members finds no place beside the others; "
                               "needs 10850 MiB on one card; none starts before all can");
        ck_reserved(0);
    }
}

TEST(the_first_member_reserves_for_all)
{
    start(2);
    show(2, 10850);
    ck_ask("p2", 10850, 2, "n2");
    ck_assert_str_eq(text, "");
    ck_reserved(2);
    ck_assert_str_eq(node_of("p1"), "n1");
    rig_pass(1000);
    ck_ask("p1", 10850, 2, "n1");
    ck_ask("p2", 10850, 2, "n2");
    ck_asks(member("x", "", 10850), 1, 2, "");
    ck_reserved(2);
    rig_bind(1, "p1", "n1");
    rig_bind(2, "p2", "n2");
    ck_count(CORE_CALL_BIND, 2);
    ck_reserved(0);
}

TEST(a_pod_that_no_watch_has_shown_yet_is_a_member)
{
    start(2);
    show(2, 10850);
    ck_ask("p3", 10850, 2, "");
    ck_ask("p3", 1000, 2, "n1");
    ck_reserved(3);
}

/* Otherwise a gang that gains members could keep its cards forever. */
TEST(a_new_member_does_not_extend_the_time_limit)
{
    start(2);
    show(1, 10850);
    ck_ask("p1", 10850, 2, "n1");
    rig_pass(CORE_GANG_RESERVATION_MS - 1000);
    show(2, 10850);
    ck_assert_str_ne(ask(member("p1", "g", 10850), 1, 2), "");
    ck_reserved(2);
    rig_pass(1000);
    ck_reserved(0);
}

/* The input arrives before the tick that is due. */
static void reserve_again(const char *uid, int mib, size_t members)
{
    start(2);
    show(2, 10850);
    ck_ask("p1", 10850, 2, "n1");
    rig_pass(CORE_GANG_RESERVATION_MS - 1);
    r.now.mono_ms += 1;
    ck_asks(member(uid, "g", mib), 1, 2, "n1");
    ck_reserved(members);
    rig_pass(CORE_GANG_RESERVATION_MS - 1);
    ck_reserved(members);
    rig_pass(1);
    ck_reserved(0);
}

TEST(a_filter_just_after_the_time_limit_reserves_again)
{
    reserve_again("p1", 10850, 2);
    reserve_again("p3", 5000, 3); /* only the others have reservations */
}

TEST(the_other_members_keep_their_cards_when_one_is_deleted)
{
    start(3);
    show(3, 10850);
    ck_ask("p1", 10850, 3, "n1");
    rig_pass(1000);
    rig_delete(member("p1", "g", 10850));
    ck_reserved(2);
    ck_ask("p4", 10850, 3, "n1"); /* its replacement */
    ck_reserved(3);
    rig_pass(CORE_GANG_RESERVATION_MS - 1000); /* one limit for all */
    ck_reserved(0);
}

TEST(a_member_whose_node_is_not_offered_gets_another)
{
    start(3);
    show(2, 10850);
    ck_ask("p1", 10850, 2, "n1");
    ck_assert_str_eq(node_of("p2"), "n2");
    ck_asks(member("p2", "g", 10850), 3, 1, "n3");
    ck_assert_str_eq(node_of("p1"), "n1");
    ck_ask("p2", 10850, 1, "n1"); /* that of p1, which is planned again */
    ck_assert_str_ne(node_of("p1"), "n1");
    ck_reserved(2);
}

TEST(a_node_that_is_offered_twice_has_its_cards_once)
{
    start(1);
    show(2, 10850);
    const struct span nodes[] = {SPAN("n1"), SPAN("n1")};
    ck_assert_ptr_null(rig_reserve(member("p1", "g", 10850), nodes, 2).node);
}

/* A member of a gang of which two must start. */
static struct pod one_of_two(const char *uid)
{
    struct pod pod = member(uid, "g", 10850);
    pod.gang.minimum = SPAN("2");
    return pod;
}

static void start_with_minimum(void)
{
    start(2);
    for (int i = 1; i <= 3; i++)
        rig_see(one_of_two(rig_text("p%d", i).p));
}

/* Whichever member is asked about first, and however often. */
TEST(a_minimum_lets_the_members_start_that_arrived_first)
{
    start(2);
    for (int i = 1; i <= 3; i++) { /* the UIDs are in another order */
        struct pod pod = one_of_two(rig_text("p%d", 4 - i).p);
        pod.meta.created_s = 1000 + i;
        rig_see(pod);
    }
    for (int round = 0; round < 2; round++) {
        ck_asks(one_of_two("p1"), 1, 2, "");
        ck_assert_contains(text, "as many members as must start have a place");
        ck_asks(one_of_two("p2"), 1, 2, "n2");
        ck_asks(one_of_two("p3"), 1, 2, "n1");
        ck_asks(one_of_two("new"), 1, 2, "");
        ck_reserved(2);
        rig_pass(CORE_GANG_RESERVATION_MS / 2 + 1000); /* once they end */
    }
    rig_delete(one_of_two("p3"));
    ck_assert_str_ne(ask(one_of_two("p1"), 1, 2), "");
    ck_reserved(2);
}

/* A finalizer holds them; the API server does not bind them. */
TEST(pending_members_that_are_deleted_hold_nothing)
{
    start(2);
    show(3, 10850);
    struct pod pod = member("p3", "g", 10850);
    ck_ask("p1", 10850, 2, "");
    pod.meta.deleting = true;
    rig_see(pod);
    ck_ask("p1", 10850, 2, "n1");
    ck_reserved(2);
    pod = member("p2", "g", 10850);
    pod.meta.deleting = true;
    rig_see(pod);
    ck_reserved(1);
    ck_total(pending, 1);
}

/* kube-scheduler asks about the members in any order, and offers the nodes that its own
 * count of what they request leaves. */
TEST(a_member_beyond_the_minimum_does_not_end_the_others)
{
    start_with_minimum();
    ck_asks(one_of_two("p1"), 1, 2, "n1");
    ck_reserved(2);
    ck_assert_str_eq(node_of("p2"), "n2");
    ck_asks(one_of_two("p3"), 2, 1, "");
    ck_assert_str_eq(text, "gang g: as many members as must start have a place; this one "
                           "finds none; needs 10850 MiB on one card");
    ck_reserved(2);
    ck_asks(one_of_two("p2"), 2, 1, "n2");
}

TEST(a_gang_that_is_too_large_is_rejected)
{
    start(1);
    for (int i = 0; i < 257; i++)
        rig_see(member(rig_text("p%d", i).p, "g", 1));
    ck_ask("p0", 1, 1, "");
    ck_assert_str_eq(text,
                     "gang g: more than 256 of its members wait, or they have more than "
                     "16 different requests, so they are not placed together; none "
                     "starts before all can");
    rig_delete(member("p256", "g", 1));
    ck_ask("p0", 1, 1, "n1");
    ck_reserved(256);
}

/* A card with a place for one member gets a place for two. */
TEST(a_waiting_gang_is_retried_when_a_node_gains_memory)
{
    start(1);
    struct pod big = member("x", "", 8000), plain = member("y", "", 8000);
    ck_asks(big, 1, 1, "n1");
    rig_see(plain);
    rig_pass(CORE_RESERVATION_MS);
    ck_reserved(0);
    ck_count(CORE_CALL_WAKEUP, 0); /* it fitted before */
    show(2, 8000);
    ck_asks(big, 1, 1, "n1");
    ck_ask("p1", 8000, 1, "");
    rig_pass(CORE_RESERVATION_MS);
    ck_reserved(0);
    ck_count(CORE_CALL_WAKEUP, 1);
}

/* Nothing became free in between. */
TEST(a_member_that_is_placed_again_wakes_nobody)
{
    start(2);
    show(2, 10850);
    rig_see(member("x", "", 16000));
    ck_ask("p1", 10850, 2, "n1");
    rig_see(member("p3", "g", 1000)); /* the gang is judged again, and p1 placed again */
    ck_ask("p1", 10850, 2, "n1");
    ck_reserved(3);
    rig_pass(1000);
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* A node with `cards` cards and this CPU; `milli` 0: it states none. */
static void add_cpu_node(const char *name, int cards, int milli)
{
    struct node node = object_node(
        &r.arena,
        rig_text("{'metadata':{'name':'%s'},'status':{'allocatable':{'cpu':'%dm',"
                 "'memory':'8Gi','pods':'10'}}}",
                 name, milli));
    rig_node(node);
    rig_cards(name, cards, CARD_MIB);
    rig_reset();
}

/* A member of the gang that requests CPU, memory of its node, and memory of a card. */
static struct pod worker(const char *uid, const char *gang, int milli)
{
    struct pod pod = member(uid, gang, 4000);
    pod.requests = (struct resources){milli, (int64_t)1 << 30, 1};
    return pod;
}

/* The watch shows `n` workers: of g p1, p2, ..., of h q1, q2, ... */
static void show_workers(const char *gang, int n, int milli)
{
    for (int i = 1; i <= n; i++)
        rig_see(worker(rig_text("%c%d", *gang == 'g' ? 'p' : 'q', i).p, gang, milli));
}

/* A pod without GPU that is bound to n1, or its deletion. */
static void plain_pod(const char *uid, int milli, bool deleted)
{
    struct pod pod = rig_json("{'metadata':{'namespace':'default',"
                              "'name':'%s','uid':'%s'},'spec':{"
                              "'nodeName':'n1'}}",
                              uid, uid);
    pod.requests = (struct resources){milli, 0, 1};
    rig_pod(pod, deleted);
}

/* It takes the CPU that a gang needs. kube-scheduler can have retried the gang before this
 * process saw that the pod has left. */
TEST(a_waiting_gang_is_retried_when_a_pod_without_gpu_leaves)
{
    start(0);
    add_cpu_node("n1", 4, 4000);
    plain_pod("a", 1000, false);
    rig_pending("single", 100);
    rig_reset();
    plain_pod("b", 1000, false);
    plain_pod("b", 1000, true);
    rig_pass(10);
    ck_count(CORE_CALL_WAKEUP, 0); /* CPU rejects no single pod */
    show_workers("g", 2, 2000);
    ck_asks(worker("p1", "g", 2000), 1, 1, "");
    rig_reset();
    plain_pod("a", 1000, true);
    rig_pass(10);
    ck_count(CORE_CALL_WAKEUP, 1);
    ck_asks(worker("p1", "g", 2000), 1, 1, "n1");
}

/* CPU is not what it lacks there. */
TEST(a_pod_without_gpu_wakes_no_gang_that_finds_no_card_on_its_node)
{
    start(0);
    add_cpu_node("n1", 1, 4000);
    rig_pending("single", 100);
    struct pod grows = member("p1", "g", CARD_MIB + 1);
    rig_see(grows);
    plain_pod("a", 1000, false);
    rig_reset();
    plain_pod("a", 1000, true);
    rig_pass(10);
    ck_count(CORE_CALL_WAKEUP, 0);
    /* The single pod joins the gang. */
    struct pod joins = rig_mem("single", 100);
    joins.gang = grows.gang;
    plain_pod("b", 1000, false);
    rig_see(joins);
    plain_pod("b", 1000, true);
    rig_pass(10);
    ck_count(CORE_CALL_WAKEUP, 1);
    /* ... and leaves it. */
    rig_end(CORE_CALL_WAKEUP, ERR_NONE);
    rig_pass(CORE_WAKEUP_INTERVAL_MS);
    plain_pod("c", 1000, false);
    rig_pending("single", 100);
    plain_pod("c", 1000, true);
    rig_pass(10);
    ck_count(CORE_CALL_WAKEUP, 0);
}

/* The cards suffice for four members of each gang, the CPU for two members in all. */
TEST(a_reservation_holds_cpu_too)
{
    start(0);
    add_cpu_node("n1", 4, 4000);
    show_workers("g", 2, 2000);
    show_workers("h", 2, 500);
    const struct ledger_node *node = rig_ledger_node("n1");
    ck_asks(worker("p1", "g", 2000), 1, 1, "n1");
    ck_reserved(2);
    ck_assert_int_eq(node->cpu_free, 0);
    ck_asks(worker("q1", "h", 500), 1, 1, "");
    ck_assert_str_eq(text, "gang h: 2 of 2 members find no place beside the others; "
                           "needs 4000 MiB on one card, with the CPU, memory and pod "
                           "slot that it requests; none starts before all can");
    ck_reserved(2);
    ck_asks(worker("p1", "g", 2000), 1, 1, "n1"); /* its own is no obstacle */
    rig_pass(CORE_GANG_RESERVATION_MS);
    ck_assert_int_eq(node->cpu_free, 4000);
    ck_count(CORE_CALL_WAKEUP, 1);
    ck_asks(worker("q1", "h", 500), 1, 1, "n1");
    ck_assert_int_eq(node->cpu_free, 3000);
}

TEST(a_pod_of_higher_priority_sees_the_cpu_as_free)
{
    start(0);
    add_cpu_node("n1", 4, 4000);
    for (int i = 1; i <= 2; i++) {
        struct pod urgent = worker(rig_text("q%d", i).p, "h", 2000);
        urgent.priority = 10;
        rig_see(worker(rig_text("p%d", i).p, "g", 2000));
        rig_see(urgent);
    }
    ck_asks(worker("p1", "g", 2000), 1, 1, "n1");
    struct pod urgent = worker("q1", "h", 2000);
    urgent.priority = 10;
    ck_assert_str_eq(ask(urgent, 1, 1), "n1");
    ck_reserved(4);
    ck_asks(worker("p3", "g", 2000), 1, 1, ""); /* not the other way round */
}

/* Its members would find cards there, but no CPU. */
TEST(a_single_pod_avoids_the_cpu_that_a_gang_has_reserved)
{
    start(0);
    add_cpu_node("n1", 4, 4000);
    add_cpu_node("n2", 4, 4000);
    show_workers("g", 2, 2000);
    ck_asks(worker("p1", "g", 2000), 1, 2, "n1");
    ck_assert_str_eq(node_of("p2"), "n1");
    ck_asks(worker("x", "", 500), 1, 2, "n2");
    ck_asks(worker("y", "", 500), 1, 1, "n1"); /* it has no other node */
}

TEST(a_reservation_holds_memory_and_slots_of_the_node)
{
    start(0);
    add_cpu_node("n1", 12, 64000);
    show_workers("g", 6, 100);
    show_workers("h", 3, 100);
    for (int i = 1; i <= 5; i++) { /* requests nothing; there are ten slots */
        struct pod small = member(rig_text("s%d", i).p, "s", 1000);
        rig_see(small);
    }
    ck_asks(worker("p1", "g", 100), 1, 1, "n1");
    ck_reserved(6);
    ck_asks(worker("q1", "h", 100), 1, 1, "");  /* 9 of 8 GiB */
    ck_asks(member("s1", "s", 1000), 1, 1, ""); /* 11 of 10 slots */
    rig_delete(member("s5", "s", 1000));
    ck_asks(member("s1", "s", 1000), 1, 1, "n1");
    ck_reserved(10);
}

/* -- members that do not exist yet -- */

/* A leader with three nodes of one card. A list shows the first of three members, created so
 * long ago by a clock that may be wrong; INT64_MAX: no member. */
static void start_waiting(int64_t age_s)
{
    rig_new((struct core_settings){.gang_wait_ms = 5000});
    rig_acquire();
    struct pod first = member_of("p1", age_s);
    if (age_s < INT64_MAX)
        rig_see(first);
    rig_lists_end();
    for (int i = 1; i <= 3; i++)
        rig_cards(rig_text("n%d", i).p, 1, CARD_MIB);
    rig_reset();
}

/* Is p1 held for so many ms, and not longer? */
static void ck_waits(int64_t ms)
{
    struct span node = SPAN("n1");
    rig_pass(ms - 1);
    struct pod p1 = member_of("p1", 0);
    struct core_output o = rig_reserve(p1, &node, 1);
    ck_assert_int_eq(o.reserve, CORE_RESERVE_GANG_WAITS);
    ck_assert_str_eq(o.text, "gang g: waits for 2 more members: 1 of 3 exist");
    ck_reserved(0);
    rig_pass(1);
    ck_asks(p1, 1, 1, "n1");
    ck_reserved(1);
}

TEST(members_that_do_not_exist_yet_count_towards_the_minimum)
{
    start_waiting(INT64_MAX);
    for (int i = 1; i <= 3; i++) {
        struct pod pod = member_of(rig_text("p%d", i).p, 0);
        ck_asks(pod, 1, 3, i < 3 ? "" : "n3"); /* before the watch shows it */
        ck_reserved(i < 3 ? 0 : 3);
        rig_see(pod);
    }
    ck_asks(member_of("p1", 0), 1, 3, "n1");
    /* Its reservation ends with those of the others when a member disappears. */
    rig_delete(member_of("p2", 0));
    ck_asks(member_of("p1", 0), 1, 3, "");
    ck_assert_str_eq(text, "gang g: waits for 1 more member: 2 of 3 exist");
    ck_reserved(0);
}

TEST(a_gang_without_a_minimum_waits_for_nobody)
{
    start_waiting(INT64_MAX);
    ck_ask("p1", 10850, 1, "n1");
}

TEST(the_wait_begins_when_the_watch_shows_the_first_member)
{
    start_waiting(INT64_MAX);
    rig_see(member_of("p1", 1000)); /* the clock of this process is ahead */
    ck_waits(5000);
}

TEST(a_restart_does_not_begin_the_wait_again)
{
    start_waiting(3); /* less than four: the API server has whole seconds */
    ck_waits(3000);
}

TEST(a_clock_that_is_behind_does_not_prolong_the_wait)
{
    start_waiting(-1000);
    ck_waits(5000);
}

TEST(a_gang_that_a_list_shows_old_does_not_wait)
{
    start_waiting(60);
    ck_asks(member_of("p1", 0), 1, 1, "n1");
}

/* A controller creates the gang again beside its terminating pods, whose cards are taken. */
TEST(terminating_members_count_for_nothing)
{
    start_waiting(INT64_MAX);
    struct pod old[2], p1 = member_of("p1", 0);
    for (int i = 0; i < 2; i++) {
        old[i] = member_of(rig_text("q%d", i).p, 0);
        old[i].node = rig_text("n%d", i + 1);
        rig_see(old[i]);
        old[i].meta.deleting = true;
        rig_see(old[i]);
    }
    rig_pass(6000);
    ck_asks(p1, 3, 1, "");
    ck_assert_str_eq(text, "gang g: waits for 2 more members: 1 of 3 exist");
    rig_see(p1);
    rig_pass(4999);
    ck_asks(p1, 3, 1, "");
    ck_assert_str_eq(text, "gang g: waits for 2 more members: 1 of 3 exist");
    rig_see(member_of("p2", 0));
    rig_see(member_of("p3", 0));
    ck_asks(p1, 1, 3, "");
    ck_assert_contains(text, "2 of 3 members find no place");
    ck_reserved(0);
    for (int i = 0; i < 2; i++)
        rig_delete(old[i]);
    ck_asks(p1, 1, 3, "n1");
    ck_reserved(3);
}
