/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "placement/defrag.h"
#include "placement/fixture.h"
#include "placement/gang.h"
#include "placement/preempt.h"
#include "placement/score.h"

/*
 * Memory in percent is one more way to make the same request: on cards of one size, whatever is
 * computed for it is the same as for so many MiB. Then cards of different sizes, and slots.
 */

enum { CARD_MIB = 1000, ROUNDS = 400 };

static struct request percent_of(uint32_t percent, uint32_t cards)
{
    struct request r = memory(0, cards);
    r.slots = 1;
    r.percent = percent;
    return r;
}

static bool any_pod(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return pod->priority < 5;
}

static bool any_node(void *ctx, const struct ledger_pod *pod,
                     const struct ledger_node *node)
{
    (void)ctx, (void)pod, (void)node;
    return true;
}

static struct resources node_room(void *ctx, const struct ledger_node *node)
{
    (void)ctx, (void)node;
    return (struct resources){0};
}

static struct resources pod_room(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx, (void)pod;
    return (struct resources){0};
}

/* Appends what each part of placement says of the request on these nodes. */
static void ask_all(struct buf *out, const struct ledger_node *const *nodes, size_t n,
                    const struct request *r)
{
    static struct score_scratch scratch;
    const struct preemptor who = {.pod = {r, 9, SPAN("asks"), NULL}};
    const struct score_pod pod = {.pod = who.pod};
    const struct defrag_world world = {ledger,   NULL,      any_pod,
                                       any_node, node_room, pod_room};
    for (size_t i = 0; i < n; i++) {
        struct preempt_victims victims = {0};
        enum fit fit = select_fit(nodes[i], r);
        bool helps = preempt_select(&who, nodes[i], NULL, 0, &arena, &victims);
        buf_printf(out, "n%zu fit %d cards %lx class %d lacks %lld", i, fit,
                   chosen_cards(nodes[i], r), reason_class_of(nodes[i], r, fit),
                   (long long)nearest_node_shortfall(nodes[i], r));
        buf_printf(out, " victims %d:", helps);
        for (size_t k = 0; k < victims.n; k++)
            buf_printf(out, " %.*s", SPAN_ARG(victims.pods[k]->uid));
        buf_addc(out, '\n');
    }
    for (int policy = 0; policy < SCORE_POLICIES; policy++) {
        int points[8];
        score_nodes((enum score_policy)policy, &pod, ledger_requests(ledger), nodes, n,
                    &scratch, points);
        for (size_t i = 0; i < n; i++)
            buf_printf(out, "%d ", points[i]);
    }
    struct defrag_plan plan = {0};
    const struct defrag_target target = {.pod = who.pod};
    bool found = defrag_find(&world, &target, &arena, &plan);
    buf_printf(out, "\ndefrag %d: %lx,", found, plan.cards);
    for (size_t k = 0; k < plan.n && found; k++)
        buf_printf(out, " %.*s to %.*s %lx", SPAN_ARG(plan.moves[k].pod->uid),
                   SPAN_ARG(plan.moves[k].to->name), plan.moves[k].cards);
    struct gang_plan_member members[3];
    const struct gang_plan gang = {.nodes = nodes, .n_nodes = n, .pod = who.pod};
    for (size_t k = 0; k < ARRAY_LEN(members); k++)
        members[k] = (struct gang_plan_member){
            .request = r, .uid = span_of(quoted(&arena, "m%zu", k).p)};
    bool too_large;
    gang_plan_place(&gang, members, ARRAY_LEN(members), &arena, &too_large);
    for (size_t k = 0; k < ARRAY_LEN(members); k++)
        buf_printf(out, "\nmember %d %lx", members[k].placed, members[k].cards);
}

/* A new ledger of three nodes with pods. */
static void random_nodes(struct rng *rng, struct span dialect,
                         const struct ledger_node *nodes[3])
{
    restart();
    for (int i = 0; i < 3; i++) {
        const char *name = quoted(&arena, "n%d", i).p;
        int cards = 1 + (int)rng_below(rng, 4);
        struct scv scv = object_scv_even(&arena, name, cards, CARD_MIB);
        scv.dialect = dialect;
        ledger_scv_seen(ledger, &scv, 0);
        for (int k = (int)rng_below(rng, 6); k > 0; k--) {
            int card = (int)rng_below(rng, (uint64_t)cards);
            int64_t mib = 1 + (int64_t)rng_below(rng, 500);
            if (node_of(name)->cards[card].free_mib < mib)
                continue;
            struct ledger_pod *pod =
                bound_pod(name, quoted(&arena, "p%d-%d", i, k).p, memory(mib, 1), card);
            pod->priority = (int32_t)rng_below(rng, 8);
        }
    }
    for (int i = 0; i < 3; i++)
        nodes[i] = node_of(quoted(&arena, "n%d", i).p);
}

static bool same_answers(const struct ledger_node *const *nodes, const struct request *x,
                         const struct request *y)
{
    cleanup_buf struct buf a = {0}, b = {0};
    ask_all(&a, nodes, 3, x);
    ask_all(&b, nodes, 3, y);
    ck_assert_str_eq(a.p, b.p);
    return select_fit(nodes[0], x) == FIT_YES;
}

TEST(a_percentage_of_equal_cards_is_so_many_mib)
{
    struct rng rng;
    rng_init(&rng, 7);
    int fits = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const struct ledger_node *nodes[3];
        random_nodes(&rng, SPAN(""), nodes);
        uint32_t percent = 1 + (uint32_t)rng_below(&rng, 100);
        struct request r = percent_of(percent, 1 + (uint32_t)rng_below(&rng, 3));
        r.placement = rng_below(&rng, 2) ? PLACE_SPREAD : PLACE_BINPACK;
        struct request same = r;
        request_settle(&same, percent * CARD_MIB / 100, 0);
        fits += same_answers(nodes, &r, &same);
    }
    ck_assert(fits > ROUNDS / 10 && fits < ROUNDS);
}

/* A request in a dialect is that of slots or of whole cards; nvidia.com/gpu alone is on each node what
 * it means there. */
TEST(a_request_in_a_dialect_is_what_it_means_on_the_node)
{
    struct rng rng;
    rng_init(&rng, 9);
    int fits = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const struct ledger_node *nodes[3];
        const uint8_t percent = (uint8_t)(1 + rng_below(&rng, 100));
        const uint32_t cards = 1 + (uint32_t)rng_below(&rng, 3);
        struct request_part part = {.percent = percent};
        struct request slots = percent_of(percent, cards), all = whole(cards),
                       devices = {.kind = REQUEST_DEVICES, .cards = cards};
        slots.placement = rng_below(&rng, 2) ? PLACE_SPREAD : PLACE_BINPACK;
        struct request words = slots, alone = all, gpus = devices;
        words.dialect = alone.dialect = SCV_DIALECT_HAMI;
        words.parts = alone.parts = &part;
        words.n_parts = alone.n_parts = 1;
        gpus.hami = &alone;
        random_nodes(&rng, SPAN("hami"), nodes);
        fits += same_answers(nodes, &words, &slots);
        same_answers(nodes, &alone, &all);
        same_answers(nodes, &gpus, &all);
        random_nodes(&rng, SPAN(""), nodes);
        same_answers(nodes, &gpus, &devices);
        for (int i = 0; i < 3; i++) {
            expect_fit(nodes[i], words, FIT_NEVER);
            ck_assert_int_eq(reason_class_of(nodes[i], &words, FIT_NEVER), REASON_MODE);
        }
        random_nodes(&rng, SPAN("kai"), nodes);
        for (int i = 0; i < 3; i++) {
            expect_fit(nodes[i], gpus, FIT_LATER);
            expect_fit(nodes[i], devices, FIT_LATER);
        }
    }
    ck_assert(fits > ROUNDS / 10 && fits < ROUNDS);
}

TEST(a_percentage_of_several_cards_is_of_one_size)
{
    struct scv scv = object_scv_even(&arena, "n1", 4, CARD_MIB);
    scv.cards[1].total_mib = scv.cards[3].total_mib = 4 * CARD_MIB;
    scv.cards[1].free_mib = scv.cards[3].free_mib = 4 * CARD_MIB;
    ledger_scv_seen(ledger, &scv, 0);
    const struct ledger_node *n1 = node_of("n1");
    struct request two = percent_of(60, 2);
    expect_choice(n1, &two, CARDS(0, 2)); /* the smallest size that has enough */
    bound_pod("n1", "a", memory(500, 1), 0);
    expect_choice(n1, &two, CARDS(1, 3));
    bound_pod("n1", "b", memory(3000, 1), 3);
    expect_reason(
        n1, two, FIT_LATER,
        "needs 60 percent of the memory on each of 2 cards; cards with enough free "
        "memory: 2; most free: 4000 of 4000 MiB on GPU1");
    struct request one = percent_of(60, 1);
    expect_choice(n1, &one, CARD(2));
    expect_reason(
        n1, percent_of(1, 3), FIT_NEVER,
        "needs 1 percent of the memory on each of 3 cards; too few cards of one size; "
        "the largest has 4000 MiB");
}

/* The first size that has enough cards need not have connected ones. */
TEST(a_percentage_of_connected_cards_is_of_one_size)
{
    static const char *const rows[] = {"X NV2 SYS SYS", "NV2 X SYS NV1", "SYS SYS X SYS",
                                       "SYS NV1 SYS X"};
    struct scv scv = object_scv_even(&arena, "n1", 4, CARD_MIB);
    for (int i = 0; i < 4; i++) {
        scv.cards[i].links = span_of(rows[i]);
        scv.cards[i].total_mib = scv.cards[i].free_mib = i % 2 ? 2 * CARD_MIB : CARD_MIB;
    }
    ledger_scv_seen(ledger, &scv, 0);
    struct request two = percent_of(60, 2);
    expect_choice(node_of("n1"), &two, CARDS(0, 2));
    two.min_link = LINK_NV;
    expect_choice(node_of("n1"), &two, CARDS(1, 3));
    bound_pod("n1", "a", memory(1500, 1), 3);
    expect_fit(node_of("n1"), two, FIT_LATER);
}

TEST(a_node_offers_slots)
{
    even_node("n1", 2, CARD_MIB);
    struct node node = object_node(
        &arena, quoted(&arena, "{'metadata':{'name':'n1'},'status':{'allocatable':{'cpu':"
                               "'4'},'capacity':{'" KEY_GPU_COUNT "':'2','" KEY_GPU_MEM
                               "':'2000'}}}"));
    ledger_node_seen(ledger, &node, 0);
    expect_reason(
        node_of("n1"), percent_of(10, 1), FIT_LATER,
        "needs 10 percent of the memory on one card; the node's device plugin does "
        "not offer " KEY_GPU_SHARE);
    expect_fit(node_of("n1"), memory(100, 1), FIT_YES);
    node.capacity.slots = node.allocatable.slots = 2; /* one of each card */
    ledger_node_seen(ledger, &node, 0);
    expect_fit(node_of("n1"), percent_of(10, 2), FIT_YES);
    bound_pod("n1", "a", percent_of(10, 1), 1);
    struct request r = percent_of(10, 1);
    expect_choice(node_of("n1"), &r, CARD(0));
    expect_fit(node_of("n1"), percent_of(10, 2), FIT_LATER);
    /* A node that listed the slots of fewer cards has too many pods now: no new ones. */
    node.capacity.slots = 1;
    ledger_node_seen(ledger, &node, 0);
    expect_fit(node_of("n1"), r, FIT_LATER);
}

UNIT_MAIN_AROUND(begin, end)
