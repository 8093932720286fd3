/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/fragmentation.h"

#include "base/rng.h"
#include "lib/unit.h"

static struct requests mix;
static struct frag frag;

static const struct card_kind *taken[MIX_KINDS];
static size_t n_taken;

static uint8_t add_kind(struct span model, int64_t total_mib)
{
    struct card_kind kind = {.model = model, .total_mib = total_mib};
    return (taken[n_taken++] = requests_take_kind(&mix, &kind))->id;
}

static void end(void)
{
    while (n_taken)
        requests_release_kind(&mix, taken[--n_taken]);
    frag_fini(&frag);
    requests_fini(&mix);
    mix = (struct requests){0};
}

/* The measure of the node for the mix, which changed. */
static int64_t measured(const struct frag_node *node, bool by_scarcity)
{
    frag_prepare(&frag, &mix, by_scarcity);
    return frag_measure(&frag, node);
}

/* The measure by its definition, shape by shape. */
static int64_t unused_by(const struct request_shape *s, const struct frag_node *node)
{
    int64_t free = 0, too_small = 0;
    uint32_t usable = 0;
    for (uint32_t i = 0; i < node->n; i++) {
        int64_t amount = s->amounts[node->kind[i]];
        bool ok = s->request->kind == REQUEST_MEMORY ? node->free_mib[i] >= amount
                                                     : node->whole >> i & 1;
        ok &= amount >= 0;
        free += node->free_mib[i];
        too_small += ok ? 0 : node->free_mib[i];
        usable += ok;
    }
    return s->cpu_milli > node->cpu_free || usable < s->request->cards ? free : too_small;
}

static int64_t by_definition(const struct frag_node *node)
{
    int64_t total = 0, sum = 0;
    for (size_t i = 0; i < mix.n_shapes; i++)
        total += mix.shapes[i].weight;
    for (size_t i = 0; i < mix.n_shapes; i++)
        sum += (mix.shapes[i].weight << FRAG_SHIFT) / total *
               unused_by(&mix.shapes[i], node);
    return sum;
}

static void fill_mix(struct rng *rng)
{
    static const char *const models[] = {"A", "B", "C", "D", "A,B", "C,B,D", "X"};
    uint64_t selective = rng_below(rng, 3);
    end();
    for (const char *model = "ABCDE"; *model; model++)
        add_kind((struct span){model, 1}, 1000);
    uint64_t pods = rng_below(rng, 60), cpus = 1 + rng_below(rng, 6);
    for (uint64_t i = 0; i < pods; i++) {
        struct request r = {.kind = (enum request_kind)(1 + rng_below(rng, 3))};
        r.cards = rng_below(rng, 4) ? 1 : 1 + (uint32_t)rng_below(rng, 4);
        r.mib_per_card = 1 + (int64_t)rng_below(rng, 11) * 100;
        if (rng_below(rng, 3) < selective)
            r.models = span_of(models[rng_below(rng, ARRAY_LEN(models))]);
        if (rng_below(rng, 40) == 0) /* far beyond the others, or close to them */
            r.mib_per_card = INT64_C(1) << rng_below(rng, 60);
        requests_weigh(&mix, &r, (int64_t)rng_below(rng, cpus) * 1000);
    }
}

static struct frag_node random_node(struct rng *rng)
{
    struct frag_node node = {.n = (uint32_t)rng_below(rng, 9)};
    node.cpu_free = (int64_t)rng_below(rng, 7000);
    uint64_t kinds = 1 + rng_below(rng, 6);
    for (uint32_t i = 0; i < node.n; i++) {
        node.kind[i] = (uint8_t)rng_below(rng, kinds);
        bool whole = rng_below(rng, 3) == 0;
        node.whole |= (uint64_t)whole << i;
        node.free_mib[i] = whole ? 1000 : (int64_t)rng_below(rng, 1000);
    }
    return node;
}

TEST(measure_matches_its_definition)
{
    struct rng rng;
    rng_init(&rng, 7);
    int64_t largest = 0;
    for (int m = 0; m < 400; m++) {
        fill_mix(&rng);
        frag_prepare(&frag, &mix, false);
        for (int i = 0; i < 50; i++) {
            struct frag_node node = random_node(&rng);
            int64_t sum = frag_measure(&frag, &node);
            ck_assert_int_eq(sum, by_definition(&node));
            largest = sum > largest ? sum : largest;
            uint32_t first = (uint32_t)rng_below(&rng, 4);
            uint64_t cards = UINT64_C(7) << first & ((UINT64_C(1) << node.n) - 1);
            int64_t mib = rng_below(&rng, 3) ? (int64_t)rng_below(&rng, 900) : INT64_MAX;
            int64_t drop =
                frag_take(&frag, &node, cards, mib,
                          (int64_t)rng_below(&rng, 2 * (uint64_t)node.cpu_free + 1));
            ck_assert_int_eq(drop, sum - by_definition(&node));
        }
    }
    ck_assert_int_gt(largest, 1000 << FRAG_SHIFT); /* not all measures were 0 */
}

/* The ledger can know more requests than the node has CPU: of pods that another program
 * bound, or of a node that shrank. */
TEST(a_node_with_more_requests_than_cpu_has_none_left)
{
    struct ledger_node full = {.n_cards = 0};
    struct select_view view;
    struct frag_node node;
    select_view(&view, &full, NULL, SELECT_AS_IS);
    requests_weigh(&mix, &(struct request){.kind = REQUEST_CARDS, .cards = 1}, 4000);
    frag_prepare(&frag, &mix, false);
    frag_read(&view, -3000, &node);
    node.n = 1;
    node.free_mib[0] = 500;
    node.whole |= 1;
    ck_assert_int_eq(frag_measure(&frag, &node), 500 << FRAG_SHIFT);
    ck_assert_int_eq(frag_take(&frag, &node, 0, 0, 1000), 0);
    frag_read(&view, FRAG_CPU_UNKNOWN, &node);
    node.n = 1;
    node.whole |= 1;
    ck_assert_int_eq(frag_measure(&frag, &node), 0);
}

/* Half of the pods name A and the others any model. The less memory is free on cards of A,
 * the more a GiB there is worth to the pods that need it. */
TEST(scarce_models_weigh_more)
{
    uint8_t a = add_kind(SPAN("A"), 1000);
    uint8_t b = add_kind(SPAN("B"), 1000);
    struct request any = {.kind = REQUEST_MEMORY, .cards = 1, .mib_per_card = 100};
    struct request only_a = any, nowhere = any;
    struct frag_node node = {.free_mib = {1000}, .n = 1, .kind = {b}};
    only_a.models = SPAN("A");
    nowhere.models = SPAN("X");
    requests_weigh(&mix, &any, 0);
    requests_weigh(&mix, &only_a, 0);
    static const struct {
        int64_t free_a, free_b, scarcity;
    } cases[] = {{100, 0, 1}, {100, 100, 2}, {100, 300, 4}, {1, 9999, 64}, {0, 100, 1}};
    array_items(c, cases) {
        mix.kinds[a].free_mib = c->free_a;
        mix.kinds[b].free_mib = c->free_b;
        ck_assert_int_eq(measured(&node, true), c->scarcity * 500 << FRAG_SHIFT);
        /* the share of the memory itself */
        ck_assert_int_eq(measured(&node, false), 500 << FRAG_SHIFT);
    }
    requests_weigh(&mix, &nowhere, 0); /* a model that no card has makes no difference */
    requests_weigh(&mix, &nowhere, 0);
    frag_prepare(&frag, &mix, true);
    int64_t on_b = frag_measure(&frag, &node);
    node.kind[0] = a;
    ck_assert_int_eq(on_b - frag_measure(&frag, &node), 250 << FRAG_SHIFT);
}

/* A node of the largest cards, and shapes with the largest weights: the sanitizers check. */
TEST(the_largest_sum_does_not_overflow)
{
    uint8_t rare = add_kind(SPAN("A"), 1);
    uint8_t other = add_kind(SPAN("B"), INT64_MAX);
    struct request r = {.kind = REQUEST_CARDS, .cards = 2, .models = SPAN("A")};
    struct frag_node node = {.n = SCV_MAX_CARDS};
    requests_weigh(&mix, &r, 0);
    r.cards = 1;
    requests_weigh(&mix, &r, 0);
    mix.kinds[rare].free_mib = 1;
    mix.kinds[other].free_mib = INT64_C(1) << 60;
    frag_prepare(&frag, &mix, true);
    for (uint32_t i = 0; i < node.n; i++) {
        node.free_mib[i] = frag_clamp(INT64_MAX);
        node.kind[i] = other;
    }
    ck_assert_int_eq(frag_measure(&frag, &node), INT64_C(1) << 62);
}

/* Tables for each model cost nothing while no pod names one. */
TEST(kinds_that_the_same_shapes_accept_are_one_class)
{
    struct request r = {.kind = REQUEST_CARDS, .cards = 1};
    for (int64_t i = 1; i <= 20; i++)
        add_kind(SPAN("A"), i);
    add_kind(SPAN("B"), 1);
    requests_weigh(&mix, &r, 0);
    frag_prepare(&frag, &mix, false);
    ck_assert_uint_eq(frag.n_classes, 1);
    r.models = SPAN("A");
    requests_weigh(&mix, &r, 0);
    frag_prepare(&frag, &mix, false);
    ck_assert_uint_eq(frag.n_classes, 2);
}

UNIT_MAIN_AROUND(NULL, end)
