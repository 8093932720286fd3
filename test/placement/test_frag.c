/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/frag.h"

#include "base/rng.h"
#include "lib/unit.h"

/* The measure by its definition, shape by shape. */
static int64_t unused_by(const struct mix_shape *s, const struct frag_node *node)
{
    int64_t free = 0, too_small = 0;
    uint32_t usable = 0;
    for (uint32_t i = 0; i < node->n; i++) {
        bool ok = s->kind == REQUEST_CARDS ? node->whole[i]
                                           : node->free_mib[i] >= s->mib_per_card;
        free += node->free_mib[i];
        too_small += ok ? 0 : node->free_mib[i];
        usable += ok;
    }
    return s->cpu_milli > node->cpu_free || usable < s->cards ? free : too_small;
}

static int64_t by_definition(const struct mix *mix, const struct frag_node *node)
{
    int64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < mix->n; i++)
        total += mix->shapes[i].weight;
    for (uint32_t i = 0; i < mix->n; i++)
        if (mix->shapes[i].kind != REQUEST_NONE)
            sum += (mix->shapes[i].weight << FRAG_SHIFT) / total *
                   unused_by(&mix->shapes[i], node);
    return sum;
}

static struct mix random_mix(struct rng *rng)
{
    struct mix mix = {0};
    uint64_t pods = rng_below(rng, 60), cpus = 1 + rng_below(rng, 6);
    for (uint64_t i = 0; i < pods; i++) {
        struct request r = {.kind = (enum request_kind)rng_below(rng, 3)};
        r.cards = rng_below(rng, 4) ? 1 : 1 + (uint32_t)rng_below(rng, 4);
        r.mib_per_card = 1 + (int64_t)rng_below(rng, 11) * 100;
        mix_add(&mix, &r, (int64_t)rng_below(rng, cpus) * 1000);
    }
    return mix;
}

static struct frag_node random_node(struct rng *rng)
{
    struct frag_node node = {.n = (uint32_t)rng_below(rng, 9)};
    node.cpu_free = (int64_t)rng_below(rng, 7000);
    for (uint32_t i = 0; i < node.n; i++) {
        node.whole[i] = rng_below(rng, 3) == 0;
        node.free_mib[i] = node.whole[i] ? 1000 : (int64_t)rng_below(rng, 1000);
    }
    return node;
}

START_TEST(measure_matches_its_definition)
{
    struct rng rng;
    struct frag frag = {0};
    rng_init(&rng, 7);
    int64_t largest = 0;
    for (int m = 0; m < 400; m++) {
        struct mix mix = random_mix(&rng);
        frag_prepare(&frag, &mix);
        for (int i = 0; i < 50; i++) {
            struct frag_node node = random_node(&rng);
            int64_t sum = frag_measure(&frag, &node);
            ck_assert_int_eq(sum, by_definition(&mix, &node));
            largest = sum > largest ? sum : largest;
            uint32_t first = (uint32_t)rng_below(&rng, 4), n = 0, cards[8];
            for (uint32_t k = first; k < node.n && n < 3; k++)
                cards[n++] = k;
            int64_t mib = rng_below(&rng, 3) ? (int64_t)rng_below(&rng, 900) : INT64_MAX;
            int64_t drop =
                frag_take(&frag, &node, cards, n, mib,
                          (int64_t)rng_below(&rng, 2 * (uint64_t)node.cpu_free + 1));
            ck_assert_int_eq(drop, sum - by_definition(&mix, &node));
        }
    }
    ck_assert_int_gt(largest, 1000 << FRAG_SHIFT); /* not all measures were 0 */
    frag_fini(&frag);
}
END_TEST

/* The ledger can know more requests than the node has CPU: of pods that another program
 * bound, or of a node that shrank. */
START_TEST(a_node_with_more_requests_than_cpu_has_none_left)
{
    struct mix mix = {0};
    struct frag frag = {0};
    struct ledger_node full = {.n_cards = 0};
    struct frag_node node;
    mix_add(&mix, &(struct request){.kind = REQUEST_CARDS, .cards = 1}, 4000);
    frag_prepare(&frag, &mix);
    frag_read_node(&full, -3000, &node);
    node.n = 1;
    node.free_mib[0] = 500;
    node.whole[0] = true;
    ck_assert_int_eq(frag_measure(&frag, &node), 500 << FRAG_SHIFT);
    ck_assert_int_eq(frag_take(&frag, &node, NULL, 0, 0, 1000), 0);
    frag_read_node(&full, FRAG_CPU_UNKNOWN, &node);
    node.n = 1;
    ck_assert_int_eq(frag_measure(&frag, &node), 0);
    frag_fini(&frag);
}
END_TEST

START_TEST(measure_of_a_worked_example)
{
    struct mix mix = {0};
    struct frag frag = {0};
    struct request small = {.kind = REQUEST_MEMORY, .cards = 1, .mib_per_card = 300};
    struct request large = {.kind = REQUEST_MEMORY, .cards = 1, .mib_per_card = 800};
    struct request whole = {.kind = REQUEST_CARDS, .cards = 2};
    struct frag_node node = {.free_mib = {200, 500, 1000}, .n = 3};
    node.whole[2] = true;
    frag_prepare(&frag, &mix);
    ck_assert_int_eq(frag_measure(&frag, &node), 0); /* an empty mix */
    mix_add(&mix, &small, 0);
    frag_prepare(&frag, &mix);
    ck_assert_int_eq(frag_measure(&frag, &node), 200 << FRAG_SHIFT);
    mix_add(&mix, &large, 0);
    frag_prepare(&frag, &mix); /* (200 + 700) / 2 */
    ck_assert_int_eq(frag_measure(&frag, &node), 450 << FRAG_SHIFT);
    mix_add(&mix, &whole, 0);
    mix_add(&mix, &whole, 0);
    frag_prepare(&frag, &mix); /* (200 + 700 + 2 * 1700) / 4: no two whole cards */
    ck_assert_int_eq(frag_measure(&frag, &node), 1075 << FRAG_SHIFT);
    frag_fini(&frag);
}
END_TEST

UNIT_MAIN("frag", measure_matches_its_definition,
          a_node_with_more_requests_than_cpu_has_none_left, measure_of_a_worked_example)
