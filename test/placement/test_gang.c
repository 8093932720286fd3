/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/gang.h"

#include "base/rng.h"
#include "placement/fixture.h"

enum { CARD_MIB = 16276, NODES_MAX = 64, MEMBERS_MAX = 300 };

static struct arena work;
static const struct ledger_node *nodes[NODES_MAX];
static size_t n_nodes;
static struct request requests[MEMBERS_MAX];
static struct gang_plan_member members[MEMBERS_MAX];
static size_t n_members;
static char uids[MEMBERS_MAX][8];

static void start(void)
{
    restart();
    n_nodes = n_members = 0;
}

static void stop(void)
{
    end();
    arena_fini(&work);
}

/* Adds a node with `cards` cards, of which `taken` MiB are promised on the first. */
static void add_node(int cards, int64_t card_mib, int64_t taken)
{
    const char *name = quoted(&arena, "n%zu", n_nodes).p;
    nodes[n_nodes++] = even_node(name, cards, card_mib);
    if (taken)
        bound_pod(name, quoted(&arena, "on-%s", name).p, memory(taken, 1), 0);
}

static void add(struct request r, int times)
{
    for (; times > 0; times--) {
        snprintf(uids[n_members], sizeof uids[0], "m%zu", n_members);
        requests[n_members] = r;
        members[n_members] = (struct gang_plan_member){.request = &requests[n_members],
                                                       .requests.pods = 1,
                                                       .uid = span_of(uids[n_members])};
        n_members++;
    }
}

static bool too_large;

static size_t place(bool spread)
{
    const struct gang_plan plan = {
        .nodes = nodes, .n_nodes = n_nodes, .pod.uid = SPAN("m0"), .spread = spread};
    arena_reset(&work);
    return gang_plan_place(&plan, members, n_members, &work, &too_large);
}

/* Puts the placed members into the ledger: each must fit on its cards, and no card may be
 * overcommitted at the end. */
static void check_valid(void)
{
    for (size_t i = 0; i < n_members; i++) {
        struct gang_plan_member *m = &members[i];
        struct ledger_share shares[REQUEST_MAX_CARDS];
        uint32_t n = 0;
        if (!m->placed || m->request->kind == REQUEST_DEVICES)
            continue;
        for (uint32_t c = 0; c < m->node->n_cards; c++)
            if (m->cards >> c & 1)
                shares[n++] = (struct ledger_share){
                    .card = m->node->cards[c].index,
                    .mib = m->request->kind == REQUEST_CARDS ? m->node->cards[c].total_mib
                                                             : m->request->mib_per_card};
        ck_assert_uint_eq(n, m->request->cards);
        struct pod pod = object_pod_mem(&arena, quoted(&arena, "%s", uids[i]).p, 1);
        ledger_pod_place(ledger, ledger_pod_add(ledger, &pod, m->request, NULL),
                         m->node->name, shares, n);
    }
    ck_assert_uint_eq(ledger_totals(ledger).overcommitted, 0);
}

TEST(members_fill_the_first_node_unless_they_are_spread)
{
    add_node(2, CARD_MIB, 0);
    add_node(2, CARD_MIB, 0);
    add(memory(8000, 1), 4);
    ck_assert_uint_eq(place(false), 4);
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_eq(members[i].node, nodes[0]);
    ck_assert_uint_eq(place(true), 4);
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_eq(members[i].node, nodes[i % 2]);
    check_valid();
}

TEST(large_members_choose_first)
{
    add_node(2, CARD_MIB, 0);
    add_node(1, CARD_MIB, 0);
    add(memory(8000, 1), 2); /* on the single card of the second node, or none is left */
    add(whole(2), 1);
    ck_assert_uint_eq(place(false), 3);
    ck_assert_ptr_eq(members[2].node, nodes[0]);
    ck_assert_ptr_eq(members[0].node, nodes[1]);
    check_valid();
}

TEST(a_second_attempt_finds_what_the_first_missed)
{
    add_node(1, CARD_MIB, 0);
    add_node(1, 2 * CARD_MIB, 0);
    struct scv scv = object_scv(
        &arena, quoted(&arena, "{'metadata':{'name':'n0'},'status':{'updateTime':"
                               "'2026-11-21T09:00:00Z','cardList':[{'id':0,'health':"
                               "'Healthy','totalMemory':16276,'freeMemory':16276,"
                               "'model':'V100'}]}}"));
    ledger_scv_seen(ledger, &scv, 0);
    add(memory(16000, 1), 1); /* the first node is preferred, but only it has a V100 */
    struct request v100 = memory(1000, 1);
    v100.models = SPAN("V100");
    add(v100, 1);
    ck_assert_uint_eq(place(false), 2);
    ck_assert_ptr_eq(members[0].node, nodes[1]);
    ck_assert_ptr_eq(members[1].node, nodes[0]);
}

/* Two members fit on the cards of each node, but only one beside the node's CPU. */
TEST(members_share_the_cpu_memory_and_slots_of_a_node)
{
    add_node(2, CARD_MIB, 0);
    add_node(2, CARD_MIB, 0);
    for (int i = 0; i < 2; i++) {
        struct node node = object_node(
            &arena, quoted(&arena,
                           "{'metadata':{'name':'n%d'},'status':{'allocatable':{"
                           "'cpu':'4','memory':'8Gi','pods':'%d'}}}",
                           i, 2 - i));
        ledger_node_seen(ledger, &node, 0);
    }
    add(memory(8000, 1), 3);
    ck_assert_uint_eq(place(false), 3); /* two slots, then one */
    ck_assert_ptr_eq(members[2].node, nodes[1]);
    for (int i = 0; i < 3; i++)
        members[i].requests.cpu_milli = 2500;
    ck_assert_uint_eq(place(false), 2);
    members[2].requests.cpu_milli = 1500;
    ck_assert_uint_eq(place(false), 3);
    members[2].requests.memory = (int64_t)9 << 30;
    ck_assert_uint_eq(place(false), 2);
}

TEST(members_without_a_need_of_ours_always_have_a_place)
{
    add((struct request){.kind = REQUEST_NONE}, 2);
    add(memory(1, 1), 1);
    ck_assert_uint_eq(place(false), 2);
    ck_assert(members[0].placed && !members[0].node && !members[2].placed);
}

TEST(devices_leave_no_card_to_others)
{
    add_node(2, CARD_MIB, 0);
    struct request device = {.kind = REQUEST_DEVICES, .cards = 1, .mib_per_card = 1};
    add(device, 2);
    add(memory(100, 1), 1);
    ck_assert_uint_eq(place(false), 2);
    add_node(1, CARD_MIB, 0);
    ck_assert_uint_eq(place(false), 3);
}

TEST(the_work_is_bounded)
{
    for (int i = 0; i < NODES_MAX; i++)
        add_node(8, CARD_MIB, 0);
    add(memory(100, 1), GANG_PLAN_MEMBERS);
    ck_assert_uint_eq(place(true), GANG_PLAN_MEMBERS);
    check_valid();
    add(memory(100, 1), 1);
    ck_assert_uint_eq(place(false), 0);
    ck_assert(too_large);
    n_members = 0;
    for (int i = 0; i < GANG_PLAN_SHAPES; i++)
        add(memory(100 + i, 1), 1);
    ck_assert_uint_eq(place(false), GANG_PLAN_SHAPES);
    ck_assert(!too_large);
    add(memory(99, 1), 1);
    ck_assert_uint_eq(place(false), 0);
    ck_assert(too_large);
}

/* Members with equal requests for one card: the number of places is a sum. */
TEST(equal_requests_for_one_card_find_every_place)
{
    struct rng rng;
    rng_init(&rng, 16);
    for (int round = 0; round < 300; round++) {
        start();
        size_t want = 0, n = 1 + rng_below(&rng, 6);
        int64_t mib = 1 + (int64_t)rng_below(&rng, 9000);
        for (size_t i = 0; i < n; i++) {
            int64_t taken = (int64_t)rng_below(&rng, CARD_MIB);
            int cards = 1 + (int)rng_below(&rng, 3);
            add_node(cards, CARD_MIB, taken);
            want += (size_t)((CARD_MIB - taken) / mib + (cards - 1) * (CARD_MIB / mib));
        }
        add(memory(mib, 1), 1 + (int)rng_below(&rng, 60));
        want = want < n_members ? want : n_members;
        ck_assert_uint_eq(place(rng_below(&rng, 2)), want);
        check_valid();
    }
}

TEST(every_placement_of_a_mixed_gang_is_valid)
{
    struct rng rng;
    size_t placed = 0;
    rng_init(&rng, 17);
    for (int round = 0; round < 500; round++) {
        start();
        for (size_t i = 0, n = 1 + rng_below(&rng, 5); i < n; i++)
            add_node(1 + (int)rng_below(&rng, 8), CARD_MIB,
                     (int64_t)rng_below(&rng, CARD_MIB));
        for (size_t i = 0, n = 1 + rng_below(&rng, 6); i < n; i++)
            add(rng_below(&rng, 3) ? memory(1 + (int64_t)rng_below(&rng, CARD_MIB),
                                            1 + rng_below(&rng, 2))
                                   : whole(1 + (uint32_t)rng_below(&rng, 4)),
                1 + (int)rng_below(&rng, 3));
        size_t found = place(rng_below(&rng, 2)), counted = 0;
        for (size_t i = 0; i < n_members; i++)
            counted += members[i].placed;
        ck_assert_uint_eq(found, counted);
        check_valid();
        placed += found;
    }
    ck_assert_uint_gt(placed, 500);
}

UNIT_MAIN_AROUND(begin, stop)
