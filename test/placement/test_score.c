/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/score.h"

#include "base/rng.h"
#include "placement/fixture.h"

/* A card in an Scv. */
struct card_facts {
    int64_t bandwidth, clock, core, power, total, used;
    bool unhealthy;
};
static const struct card_facts titan = {15760, 5705, 1911, 250, 12194, 0, false};
static const struct card_facts t4 = {15760, 5001, 1590, 70, 15109, 0, false};

static const struct ledger_node *
node_with_cards(const char *name, const struct card_facts *facts, uint32_t n)
{
    struct scv_card cards[16] = {0};
    struct scv scv = {.meta = {.name = span_of(name)},
                      .cards = cards,
                      .n_cards = n,
                      .has_update_time = true,
                      .update_time = 100};
    for (uint32_t i = 0; i < n; i++) {
        cards[i].id = (int32_t)i;
        cards[i].healthy = !facts[i].unhealthy;
        cards[i].total_mib = facts[i].total;
        cards[i].free_mib = facts[i].total - facts[i].used;
        cards[i].used_mib = facts[i].used;
        cards[i].has_used = true;
        cards[i].spec = (struct scv_spec){.power_w = facts[i].power,
                                          .clock_mhz = facts[i].clock,
                                          .sm_clock_mhz = facts[i].core,
                                          .bandwidth = facts[i].bandwidth};
    }
    ledger_scv_seen(ledger, &scv, 0);
    return node_of(name);
}

/* Adds a pod with `mib` on a card that ran before the Scv was written. */
static void promise(const char *node, int card, int64_t mib)
{
    static int last;
    const char *uid = quoted(&arena, "pod-%d", last++).p;
    ledger_pod_running(ledger, bound_pod(node, uid, memory(mib, 1), card), true);
}

static void promise_whole(const char *node, int card)
{
    static int last;
    bound_pod(node, quoted(&arena, "whole-%d", last++).p, whole(1), card);
}

/* A node with cards of 16000 MiB with this much free memory; -1 ends the list. */
static const struct ledger_node *node_with_free(const char *name, const int *free_mib)
{
    struct card_facts facts[16] = {0};
    uint32_t n = 0;
    for (; free_mib[n] >= 0; n++)
        facts[n] = (struct card_facts){.total = 16000, .used = 16000 - free_mib[n]};
    node_with_cards(name, facts, n);
    for (uint32_t i = 0; i < n; i++)
        if (free_mib[i] < 16000)
            promise(name, (int)i, 16000 - free_mib[i]);
    return node_of(name);
}
#define NODE_WITH_FREE(name, ...) node_with_free(name, (const int[]){__VA_ARGS__, -1})

enum { MOST = 32 };

/* The node with that much allocatable CPU, and free CPU. */
static const struct ledger_node *set_cpu(const struct ledger_node *node,
                                         int32_t cpu_milli, int32_t cpu_free)
{
    struct ledger_node *n = (struct ledger_node *)node;
    n->cpu_milli = cpu_milli;
    n->cpu_free = cpu_free;
    return n;
}

/* The values of the policy. */
static void rate(struct score_run *run, enum score_policy policy,
                 const struct score_pod *pod, const struct requests *mix,
                 struct score_scratch *scratch, const struct ledger_node *const *nodes,
                 size_t n)
{
    score_begin(run, policy, pod, mix, scratch, n);
    do
        score_visit(run, 0, nodes, n);
    while (score_again(run));
}

static int points[MOST];

/* Scores these nodes into `points`; NULL is an unknown node. */
static void score_with(enum score_policy policy, const struct requests *mix,
                       struct request r, const struct ledger_node *const *nodes, size_t n)
{
    struct score_scratch scratch = {0};
    struct score_pod pod = {.pod.request = &r};
    score_nodes(policy, &pod, mix, nodes, n, &scratch, points);
    score_scratch_fini(&scratch);
    for (size_t i = 0; i < n; i++)
        ck_assert(points[i] >= 0 && points[i] <= SCORE_MAX);
}
#define SCORE(policy, mix, r, ...)                                                       \
    score_with(policy, mix, r, (const struct ledger_node *const[]){__VA_ARGS__},         \
               ARRAY_LEN(((const struct ledger_node *const[]){__VA_ARGS__})))

static void expect_points(int first, int second)
{
    ck_assert_int_eq(points[0], first);
    ck_assert_int_eq(points[1], second);
}

/* Filter lets the pod pass, so prioritize gives the node points. */
TEST(a_reservation_of_lower_priority_costs_no_points)
{
    const struct ledger_node *n = node_with_cards("n1", &t4, 1);
    struct ledger_share share = {.card = 0, .mib = t4.total};
    struct request r = memory(8000, 1);
    struct score_scratch scratch = {0};
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = SPAN("weak"),
                                                .priority = 1,
                                                .request = &r,
                                                .shares = &share,
                                                .n_shares = 1},
                   SPAN("n1"));
    for (int64_t priority = 1; priority <= 2; priority++) {
        const struct score_pod pod = {{&r, priority, SPAN("me"), NULL}, 0};
        bool fits = select_fit_pod(n, &pod.pod) == FIT_YES;
        ck_assert_int_eq(fits, priority == 2);
        for (int policy = 0; policy < SCORE_POLICIES; policy++) {
            score_nodes((enum score_policy)policy, &pod, ledger_requests(ledger), &n, 1,
                        &scratch, points);
            ck_assert_int_eq(points[0] > 0, fits);
        }
    }
    score_scratch_fini(&scratch);
}

TEST(policy_names_are_parsed_and_others_rejected)
{
    enum score_policy policy = SCORE_SPREAD;
    struct err err = {0};
    for (int i = 0; i < SCORE_POLICIES; i++) {
        const char *name = score_policy_name((enum score_policy)i);
        ck_assert_done(score_policy_parse(span_of(name), &policy, &err), err);
        ck_assert_int_eq(policy, i);
    }
    ck_assert_int_eq(score_policy_parse(SPAN("best"), &policy, &err), -1);
    ck_assert_str_eq(err.msg, "\"best\" is not one of binpack|spread|scv|fgd");
}

TEST(binpack_prefers_full_nodes_and_spread_empty_ones)
{
    const struct ledger_node *tight = NODE_WITH_FREE("n1", 1000, 16000);
    const struct ledger_node *empty = NODE_WITH_FREE("n2", 16000, 16000);
    struct request r = memory(1000, 1), apart = r;
    apart.placement = PLACE_SPREAD;
    SCORE(SCORE_BINPACK, NULL, r, tight, empty, NULL);
    ck_assert(points[0] == 10 && points[1] == 1 && points[2] == 0);
    /* A pod that says spread is also spread over nodes. */
    SCORE(SCORE_BINPACK, NULL, apart, tight, empty);
    expect_points(9, 9);
    SCORE(SCORE_SPREAD, NULL, r, tight, empty);
    expect_points(0, 9);
    SCORE(SCORE_SPREAD, NULL, apart, tight, empty);
    expect_points(9, 9);
    SCORE(SCORE_BINPACK, NULL, whole(1), tight, empty);
    expect_points(10, 5);
    SCORE(SCORE_SPREAD, NULL, whole(1), tight, empty);
    expect_points(0, 5);
}

TEST(no_points_without_fit_or_request)
{
    cleanup_requests struct requests mix = {0};
    const struct ledger_node *small = NODE_WITH_FREE("n1", 1000, 2000);
    const struct ledger_node *large = NODE_WITH_FREE("n2", 9000);
    for (int p = 0; p < SCORE_POLICIES; p++) {
        SCORE((enum score_policy)p, &mix, memory(5000, 1), small, large, NULL);
        ck_assert(points[0] == 0 && points[1] > 0 && points[2] == 0);
        SCORE((enum score_policy)p, &mix, (struct request){0}, small, large);
        expect_points(0, 0);
        SCORE((enum score_policy)p, &mix, whole(1), small, large);
        expect_points(0, 0);
    }
}

/* -- fgd -- */

static struct requests mix_of(const int64_t *mib, size_t n)
{
    struct requests mix = {0};
    for (size_t i = 0; i < n; i++) {
        struct request r = memory(mib[i], 1);
        requests_weigh(&mix, &r, 0);
    }
    return mix;
}
#define MIX(...)                                                                         \
    mix_of((const int64_t[]){__VA_ARGS__}, ARRAY_LEN(((const int64_t[]){__VA_ARGS__})))

TEST(fgd_leaves_memory_that_other_pods_can_use)
{
    cleanup_requests struct requests mix = MIX(8000, 8000, 8000, 3000);
    const struct ledger_node *a = NODE_WITH_FREE("a", 11000); /* 8000 stay free */
    const struct ledger_node *b = NODE_WITH_FREE("b", 8000); /* 5000, which few request */
    SCORE(SCORE_BINPACK, &mix, memory(3000, 1), a, b);
    ck_assert_int_lt(points[0], points[1]);
    SCORE(SCORE_FGD, &mix, memory(3000, 1), a, b);
    expect_points(10, 0);
    /* If all requests are small, nothing is stranded: the fuller node is better. */
    cleanup_requests struct requests little = MIX(1000, 1000);
    SCORE(SCORE_FGD, &little, memory(3000, 1), a, b);
    expect_points(8, 10);
}

/* Between nodes that hardly differ: only the best has all points, and the others have at
 * most one less, so that kube-scheduler's own plugins decide. */
TEST(fgd_does_not_stretch_small_differences)
{
    cleanup_requests struct requests mix = MIX(4000);
    const struct ledger_node *used = NODE_WITH_FREE("a", 16000, 15999);
    const struct ledger_node *empty = NODE_WITH_FREE("b", 16000, 16000);
    const struct ledger_node *full = NODE_WITH_FREE("c", 16000, 0);
    SCORE(SCORE_FGD, &mix, whole(1), empty, used, empty);
    ck_assert(points[0] == 9 && points[1] == 10 && points[2] == 9);
    SCORE(SCORE_FGD, &mix, whole(1), empty, empty);
    expect_points(10, 10);
    SCORE(SCORE_FGD, &mix, whole(1), empty, used, full);
    ck_assert(points[0] == 5 && points[1] == 5 && points[2] == 10);
}

/* With known CPU: the fuller node would keep half of its memory and hardly any CPU, the
 * other one half of both. The CPU requests of the shapes enter the measure. */
TEST(fgd_balances_cpu_and_memory)
{
    struct score_scratch scratch = {0};
    cleanup_requests struct requests mix = {0};
    struct request r = whole(1), none = {0};
    const struct ledger_node *nodes[] = {
        set_cpu(NODE_WITH_FREE("a", 16000, 16000), 100000, 60000),
        set_cpu(NODE_WITH_FREE("b", 16000, 16000), 100000, 15000)};
    struct score_pod pod = {{.request = &r}, 10000}, other = {{.request = &none}, 10000};
    score_nodes(SCORE_FGD, &pod, &mix, nodes, 2, &scratch, points);
    expect_points(10, 7);
    /* A pod without a GPU goes where it does not cut off cards from CPU. */
    requests_weigh(&mix, &r, 40000);
    set_cpu(nodes[0], 100000, 45000);
    set_cpu(nodes[1], 100000, 55000);
    score_nodes(SCORE_FGD, &other, &mix, nodes, 2, &scratch, points);
    expect_points(0, 10);
    score_scratch_fini(&scratch);
}

/* Pods that request no CPU are not spread over the nodes because all CPU is free; but they
 * go first where no CPU is left for others. */
TEST(fgd_fills_nodes_with_pods_that_request_no_cpu)
{
    struct score_scratch scratch = {0};
    cleanup_requests struct requests mix = {0};
    struct request r = memory(4000, 1);
    struct score_pod pod = {{.request = &r}, 0};
    const struct ledger_node *nodes[] = {
        set_cpu(NODE_WITH_FREE("a", 16000, 8000), 100000, 100000),
        set_cpu(NODE_WITH_FREE("b", 16000, 16000), 100000, 100000)};
    score_nodes(SCORE_FGD, &pod, &mix, nodes, 2, &scratch, points);
    ck_assert(points[0] == 10 && points[1] < 10);
    requests_weigh(&mix, &r, 10000);
    set_cpu(nodes[1], 100000, 0);
    score_nodes(SCORE_FGD, &pod, &mix, nodes, 2, &scratch, points);
    ck_assert(points[0] < 10 && points[1] == 10);
    score_scratch_fini(&scratch);
}

static struct span name_of(const void *names, size_t i)
{
    return span_of(((const char *const *)names)[i]);
}

/* The points by exact value; equal nodes by their names. */
TEST(the_best_nodes_are_in_exact_order)
{
    static const int free_mib[] = {9000, 8990, 100, 9000, 8980};
    static const char *const names[] = {"d", "e", "full", "b", "c"};
    const struct ledger_node *nodes[5];
    struct request r = memory(1000, 1);
    const struct score_pod pod = {.pod.request = &r};
    cleanup_requests struct requests mix = {0};
    struct score_scratch scratch = {0};
    struct score_run run;
    size_t best[6];
    for (size_t i = 0; i < 5; i++)
        nodes[i] = node_with_free(names[i], (const int[]){free_mib[i], -1});
    rate(&run, SCORE_BINPACK, &pod, &mix, &scratch, nodes, 5);
    const size_t order[] = {4, 1, 3, 0, 2};
    for (size_t most = 0; most <= 6; most++) {
        size_t n = score_best(&run, 5, name_of, names, best, most);
        ck_assert_uint_eq(n, most < 5 ? most : 5);
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(best[i], order[i]);
    }
    score_scratch_fini(&scratch);
}

/* A node of 1 to 10 cards, with pods on some of them. */
static const struct ledger_node *random_node(struct rng *rng, const char *name)
{
    struct card_facts facts[10];
    uint32_t n = 1 + (uint32_t)rng_below(rng, ARRAY_LEN(facts));
    int64_t size = rng_below(rng, 8) ? 16000 : INT64_C(1) << (25 + rng_below(rng, 16));
    for (uint32_t i = 0; i < n; i++)
        facts[i] = (struct card_facts){.total = size,
                                       .used = (int64_t)rng_below(rng, 3000),
                                       .unhealthy = rng_below(rng, 8) == 0};
    node_with_cards(name, facts, n);
    for (uint32_t i = 0; i < n; i++) {
        if (rng_below(rng, 2))
            promise(name, (int)i, (int64_t)(1 + rng_below(rng, 4)) * 4000);
        else if (rng_below(rng, 4) == 0)
            promise_whole(name, (int)i);
    }
    return node_of(name);
}

static struct request random_request(struct rng *rng)
{
    uint32_t cards = 1 + (uint32_t)rng_below(rng, 3);
    struct request r = rng_below(rng, 3)
                           ? memory((int64_t)rng_below(rng, 5) * 3000, cards)
                           : whole(cards);
    r.placement = rng_below(rng, 2) ? PLACE_SPREAD : PLACE_BINPACK;
    if (r.kind == REQUEST_CARDS && rng_below(rng, 4) == 0)
        r.mib_per_card = 20000;
    r.clock_mhz = rng_below(rng, 8) == 0 ? 5000 : 0;
    r.compute_percent = r.kind == REQUEST_MEMORY && rng_below(rng, 4) == 0 ? 30 : 0;
    return r;
}

/* Values of nodes with and without their rows. */
static void compare_values(const struct score_pod *pod, const struct requests *mix,
                           const struct ledger_node *const *with,
                           const struct ledger_node *const *without, size_t n)
{
    struct score_scratch a = {0}, b = {0};
    struct score_run run;
    for (int p = 0; p < SCORE_POLICIES; p++) {
        rate(&run, (enum score_policy)p, pod, mix, &a, with, n);
        rate(&run, (enum score_policy)p, pod, mix, &b, without, n);
        for (size_t i = 0; i < n; i++)
            ck_assert_mem_eq(&a.values[i], &b.values[i], sizeof *a.values);
    }
    score_scratch_fini(&a);
    score_scratch_fini(&b);
}

/* The sums of a node, its rows and its cards say the same about a request. */
static void compare_fits(const struct ledger_node *with,
                         const struct ledger_node *without, const struct request *r)
{
    struct select_view rows, cards;
    uint64_t by_rows, by_cards;
    select_view(&rows, with, NULL, SELECT_AS_IS);
    select_view(&cards, without, NULL, SELECT_AS_IS);
    enum fit fit = select_cards(&cards, r, SELECT_ALL_CARDS, &by_cards);
    ck_assert_int_eq(select_cards(&rows, r, SELECT_ALL_CARDS, &by_rows), fit);
    ck_assert_uint_eq(by_rows, by_cards);
    ck_assert_int_eq(select_fit(with, r), fit);
    enum fit one = select_fit_one(with, select_least_mib(r));
    ck_assert(one == FIT_ASK || one == fit);
}

/* A node's rows and its cards give the same values, after any changes of the node. */
TEST(rows_score_as_the_cards_do)
{
    struct rng rng;
    size_t valid = 0, most = 0;
    rng_init(&rng, 17);
    for (int round = 0; round < 300; round++) {
        const struct ledger_node *with[MOST], *without[MOST];
        struct ledger_node copies[MOST];
        char name[16];
        for (size_t i = 0; i < MOST; i++) {
            snprintf(name, sizeof name, "n%zu", i);
            const struct ledger_node *node =
                set_cpu(random_node(&rng, name), rng_below(&rng, 2) ? 64000 : 0,
                        (int32_t)rng_below(&rng, 70000) - 5000);
            with[i] = node;
            without[i] = &copies[i];
            copies[i] = *node;
            copies[i].rows.valid = false;
            valid += node->rows.valid;
            most += node->rows.valid && node->n_cards == LEDGER_ROWS;
        }
        cleanup_requests struct requests mix = {0};
        memcpy(mix.kinds, ledger_requests(ledger)->kinds, sizeof mix.kinds);
        for (int i = 0; i < 5; i++) {
            struct request r = random_request(&rng);
            requests_weigh(&mix, &r, (int64_t)rng_below(&rng, 3) * 20000);
        }
        struct request r = random_request(&rng);
        struct score_pod pod = {{.request = &r}, (int64_t)rng_below(&rng, 3) * 8000};
        compare_values(&pod, &mix, with, without, MOST);
        for (size_t i = 0; i < MOST; i++)
            compare_fits(with[i], without[i], &r);
    }
    ck_assert(valid > 300 * MOST / 2 && valid < 300 * MOST && most > 0);
}

static const struct ledger_node *node_of_model(const char *name, const char *model, int n)
{
    struct scv scv = object_scv_even(&arena, name, n, 16000);
    for (int i = 0; i < n; i++)
        scv.cards[i].model = span_of(model);
    ledger_scv_seen(ledger, &scv, 0);
    return node_of(name);
}

/* Most pods name B, but a card of A is scarcer. */
TEST(fgd_spares_the_models_that_other_pods_need)
{
    const struct ledger_node *a = node_of_model("a", "A", 2);
    const struct ledger_node *b[] = {
        node_of_model("b0", "B", 8), node_of_model("b1", "B", 8),
        node_of_model("b2", "B", 8), node_of_model("b3", "B", 8)};
    cleanup_requests struct requests mix = {0};
    memcpy(mix.kinds, ledger_requests(ledger)->kinds, sizeof mix.kinds);
    struct request only_a = memory(8000, 1), only_b = only_a;
    only_a.models = SPAN("A");
    only_b.models = SPAN("A,B");
    requests_weigh(&mix, &only_a, 0);
    for (int i = 0; i < 3; i++)
        requests_weigh(&mix, &only_b, 0);
    SCORE(SCORE_FGD, &mix, memory(8000, 1), a, b[0], b[1]);
    expect_points(0, SCORE_MAX);
    only_b.models = SPAN("B");
    for (int i = 0; i < 3; i++)
        requests_weigh(&mix, &only_b, 0);
    SCORE(SCORE_FGD, &mix, memory(8000, 1), a, b[0], b[1]);
    expect_points(0, SCORE_MAX);
    for (int i = 0; i < 4; i++) /* until nothing else is left of B */
        for (int card = 0; card < 8; card++)
            promise(b[i]->name.p, card, i ? 15900 : 7000);
    memcpy(mix.kinds, ledger_requests(ledger)->kinds, sizeof mix.kinds);
    for (int i = 0; i < 40; i++)
        requests_weigh(&mix, &only_b, 0);
    SCORE(SCORE_FGD, &mix, memory(8000, 1), a, b[0]);
    ck_assert_int_eq(points[0], SCORE_MAX);
}

/* The largest sizes in API objects do not overflow (the sanitizers check). */
TEST(largest_sizes_do_not_overflow)
{
    cleanup_requests struct requests mix = MIX(INT64_C(1) << 40, 1);
    struct card_facts huge[16];
    for (int i = 0; i < 16; i++)
        huge[i] = (struct card_facts){INT64_C(1) << 40,
                                      INT64_C(1) << 40,
                                      INT64_C(1) << 40,
                                      INT64_C(1) << 40,
                                      INT64_C(1) << 40,
                                      0,
                                      false};
    const struct ledger_node *a = node_with_cards("a", huge, 16);
    const struct ledger_node *b = NODE_WITH_FREE("b", 16000);
    struct node node = {.meta = {.name = SPAN("c")},
                        .capacity = {.mem = INT64_MAX / 2, .cards = 1},
                        .allocatable = {.mem = INT64_MAX / 2, .cards = 1}};
    ledger_node_seen(ledger, &node, 0);
    const struct ledger_node *c = ledger_node_find(ledger, SPAN("c"));
    for (int p = 0; p < SCORE_POLICIES; p++)
        for (int64_t mib = 1; mib > 0 && mib <= INT64_C(1) << 41; mib *= 2)
            SCORE((enum score_policy)p, &mix, memory(mib, 1), a, b, c);
}

/* -- scv -- */

/* The value of a node among others, in Yoda's points: 100 for a full term. */
static int64_t yoda_points(struct request r, const struct ledger_node *const *nodes,
                           size_t n, size_t which)
{
    struct score_pod pod = {.pod.request = &r};
    struct score_scratch scratch = {0};
    struct score_run run;
    cleanup_requests struct requests none = {0};
    rate(&run, SCORE_SCV, &pod, &none, &scratch, nodes, n);
    int64_t value = scratch.values[which].base;
    score_scratch_fini(&scratch);
    return value == INT64_MIN ? -1 : value * 100 >> 20;
}
#define NODES(...)                                                                       \
    (const struct ledger_node *const[]){__VA_ARGS__},                                    \
        ARRAY_LEN(((const struct ledger_node *const[]){__VA_ARGS__}))

/* The comments give Yoda-Scheduler's results. All of its terms are at most 100 times their
 * weight except the clock, which it divides by the largest bandwidth. */
TEST(scv_matches_worked_examples)
{
    const struct card_facts pair[] = {titan, titan};
    const struct ledger_node *one = node_with_cards("titan", &titan, 1);
    const struct ledger_node *small = node_with_cards("t4", &t4, 1);
    /* The clock has 100, not 5705 * 100 / 15760 = 36. Yoda: 1136. */
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(one), 0), 1200);
    /* 100 + 100 + 100 + 100 + 80.7 + 2 * 80.7 + 200 + 300. Yoda: 1076, clock 36. */
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(one, small), 0), 1142);
    /* 100 + 87.6 + 83.2 + 28 + 100 + 200 + 200 + 300. Yoda: 1042, clock 31. */
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(one, small), 1), 1098);
    SCORE(SCORE_SCV, NULL, memory(1000, 1), one, small);
    expect_points(10, 0);
    /* Two cards, one with 10000 MiB in use. The pod would get that one, so only that card
     * counts: 500 + 2 * 17.9 + 2 * 58.9 + 3 * 58.9. Yoda adds the other card: 1310. */
    node_with_cards("pair", pair, 2);
    promise("pair", 0, 10000);
    struct card_facts half[] = {titan, titan};
    half[0].used = 10000;
    const struct ledger_node *two = node_with_cards("pair", half, 2);
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(two), 0), 500 + 36 + 294);
    /* Under spread it would get the empty card. */
    struct request apart = memory(1000, 1);
    apart.placement = PLACE_SPREAD;
    ck_assert_int_eq(yoda_points(apart, NODES(two), 0), 700 + 294);
}

/* An unhealthy card and one without enough free memory count neither for the maximum nor
 * for the node. */
TEST(only_cards_that_fit_count)
{
    struct card_facts cards[] = {titan, titan};
    cards[1] = (struct card_facts){99999, 99999, 99999, 99999, 99999, 0, true};
    const struct ledger_node *unhealthy = node_with_cards("unhealthy", cards, 2);
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(unhealthy), 0), 1200);
    cards[1].unhealthy = false;
    cards[1].total = 500;
    const struct ledger_node *small = node_with_cards("small", cards, 2);
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(small), 0), 1200);
    /* Yoda divides by 0 if all values are unknown. */
    const struct card_facts unknown = {.total = 1000};
    const struct ledger_node *bare = node_with_cards("bare", &unknown, 1);
    ck_assert_int_eq(yoda_points(memory(1000, 1), NODES(bare), 0), 800);
}

/* Reserves a card of 16000 MiB, or memory there, with CPU that makes the node the fuller one. */
static void reserve(const char *node, const char *uid, int card, int64_t mib,
                    int priority)
{
    const struct request r = {.kind = mib == 16000 ? REQUEST_CARDS : REQUEST_MEMORY,
                              .cards = 1,
                              .mib_per_card = mib == 16000 ? 0 : mib};
    struct ledger_share share = {.card = card, .mib = mib};
    ledger_reserve(ledger,
                   &(struct ledger_reservation){.uid = span_of(uid),
                                                .ns = SPAN("default"),
                                                .name = span_of(uid),
                                                .priority = priority,
                                                .request = &r,
                                                .requests.cpu_milli = 4000,
                                                .shares = &share,
                                                .n_shares = 1,
                                                .until_ms = 1},
                   span_of(node));
}

/* Of equal nodes, the best is one where the pod takes nothing from anybody. */
TEST_LOOP(a_node_where_the_pod_takes_from_nobody_is_the_best, SCORE_POLICIES)
{
    const struct {
        const char *name;
        int cards;
        struct request asks;
        int64_t reserved_mib;
        int reserved_priority;
        bool nominated;
        const char *best; /* of the nodes e and f; f is empty */
    } cases[] = {
        {"memory", 1, memory(10000, 1), 10000, 0, false, "f"},
        {"a whole card", 1, whole(1), 16000, 0, false, "f"},
        {"memory of a whole card", 1, memory(10000, 1), 16000, 0, false, "f"},
        {"whole cards", 2, whole(2), 16000, 0, false, "f"},
        {"a nominated pod", 1, whole(1), 16000, 0, true, "f"},
    };
    array_items(c, cases) {
        restart();
        const struct ledger_node *nodes[] = {
            set_cpu(even_node("e", c->cards, 16000), 16000, 16000),
            set_cpu(even_node("f", c->cards, 16000), 16000, 16000)};
        const struct span names[] = {SPAN("e"), SPAN("f")};
        const int64_t usual[] = {4000};
        cleanup_requests struct requests mix = mix_of(usual, 1);
        const struct score_pod pod = {{&c->asks, 5, SPAN("me"), NULL}, 1000};
        struct score_scratch scratch = {0};
        struct score_run run;
        size_t best;
        if (c->nominated)
            nominated_pod("e", "low", whole(1), c->reserved_priority);
        else
            reserve("e", "low", 0, c->reserved_mib, c->reserved_priority);
        score_nodes((enum score_policy)_i, &pod, &mix, nodes, 2, &scratch, points);
        ck_assert_msg(points[1] == SCORE_MAX && points[0] < SCORE_MAX, "%s: %d and %d",
                      c->name, points[0], points[1]);
        score_begin(&run, (enum score_policy)_i, &pod, &mix, &scratch, 2);
        do
            score_visit(&run, 0, nodes, 2);
        while (score_again(&run));
        score_best(&run, 2, name_of, names, &best, 1);
        ck_assert_msg(span_eq(names[best], span_of(c->best)), "%s", c->name);
        score_scratch_fini(&scratch);
    }
}

UNIT_MAIN_AROUND(begin, end)
