/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/card_set.h"

#include "base/rng.h"
#include "lib/unit.h"
#include "placement/links_fixture.h"

static uint8_t widths[LINKS_MAX_CARDS * LINKS_MAX_CARDS];
static int32_t numa[LINKS_MAX_CARDS];

static struct list pool = {&pool, &pool};

static const struct links *links_of(const struct machine *m)
{
    const char *p = m->rows;
    for (unsigned i = 0; i < m->n * m->n; i++) {
        size_t n = strcspn(p, " ");
        widths[i] = link_width((struct span){p, n});
        ck_assert_uint_ne(widths[i], LINK_UNKNOWN);
        p += n + (p[n] != '\0');
    }
    ck_assert_str_eq(p, "");
    for (unsigned i = 0; i < m->n; i++)
        numa[i] = m->numa[i] == '-' ? -1 : m->numa[i] - '0';
    const struct links *l = links_take(&pool, widths, numa, m->n);
    ck_assert_ptr_nonnull(l);
    return l;
}

/* -- the oracle: all orders of a set, all sets -- */

static unsigned cards; /* of the machine */
static int rings[1 << 8];

static int width_of(unsigned a, unsigned b)
{
    int x = widths[a * cards + b], y = widths[b * cards + a];
    return x < y ? x : y;
}

static int try_orders(unsigned *order, unsigned n, unsigned at, int narrowest)
{
    int best = 0;
    if (at == n) {
        int close = width_of(order[n - 1], order[0]);
        return close < narrowest ? close : narrowest;
    }
    for (unsigned i = at; i < n; i++) {
        unsigned card = order[i];
        order[i] = order[at];
        order[at] = card;
        int w = width_of(order[at - 1], card);
        int ring = try_orders(order, n, at + 1, w < narrowest ? w : narrowest);
        best = ring > best ? ring : best;
        order[at] = order[i];
        order[i] = card;
    }
    return best;
}

static int ring_by_orders(uint32_t set)
{
    unsigned order[8], n = 0;
    for (unsigned i = 0; i < cards; i++)
        if (set >> i & 1)
            order[n++] = i;
    return n == 1 ? LINK_MAX : try_orders(order, n, 1, LINK_MAX);
}

static void learn(const struct machine *m)
{
    cards = m->n;
    for (uint32_t set = 1; set < 1U << cards; set++)
        rings[set] = ring_by_orders(set);
}

/* Of the sets of 2, 4 and 8 of the free cards, the best ring; added. */
static int worth_of(uint32_t free)
{
    int best[9] = {0}, sum = 0;
    for (uint32_t set = 1; set < 1U << cards; set++) {
        int size = __builtin_popcount(set);
        if ((set & ~free) == 0 && size > 1 && rings[set] > best[size])
            best[size] = rings[set];
    }
    for (int i = 2; i <= 8; i *= 2)
        sum += best[i];
    return sum;
}

struct rated {
    int64_t by[5];
};

static struct rated rate(const struct card_set_ask *ask, uint32_t set)
{
    struct rated r = {{0}};
    int64_t ring = 0, pairs = 0, mib = 0;
    for (unsigned i = 0; i < cards; i++)
        for (unsigned k = 0; k < i; k++)
            if ((set >> i & 1) && (set >> k & 1))
                pairs += 1000 * width_of(i, k) + (numa[i] >= 0 && numa[i] == numa[k]);
    for (unsigned i = 0; i < cards; i++)
        mib += set >> i & 1 ? ask->free_mib[i] : 0;
    ring = rings[set];
    mib = ask->spread ? mib : -mib;
    int64_t worth = worth_of(ask->free & ~set);
    if (ask->k > 1)
        r = (struct rated){{ring, pairs, worth, mib, 0}};
    else
        r = (struct rated){{mib, worth, 0, 0, 0}};
    return r;
}

static bool is_better(const struct rated *a, const struct rated *b)
{
    for (int i = 0; i < 5; i++)
        if (a->by[i] != b->by[i])
            return a->by[i] > b->by[i];
    return false;
}

/* Of two sets, the one with the lower index where they differ first. */
static bool is_lower(uint32_t a, uint32_t b)
{
    uint32_t differ = a ^ b;
    return differ && (a & (differ & -differ));
}

static int narrowest_of(uint32_t set)
{
    int least = LINK_MAX;
    for (unsigned i = 0; i < cards; i++)
        for (unsigned k = 0; k < i; k++)
            if ((set >> i & 1) && (set >> k & 1) && width_of(i, k) < least)
                least = width_of(i, k);
    return least;
}

static uint32_t choose_by_trying(const struct card_set_ask *ask)
{
    uint32_t best = 0;
    struct rated of_best = {{0}};
    for (uint32_t set = 1; set < 1U << cards; set++) {
        if ((set & ~ask->fit) || (unsigned)__builtin_popcount(set) != ask->k ||
            narrowest_of(set) < ask->min_link)
            continue;
        struct rated r = rate(ask, set);
        if (!best || is_better(&r, &of_best) ||
            (!is_better(&of_best, &r) && is_lower(set, best))) {
            best = set;
            of_best = r;
        }
    }
    return best;
}

static void compare_choices(const struct machine *m, int rounds)
{
    struct rng rng;
    const struct links *l = links_of(m);
    rng_init(&rng, m->n);
    learn(m);
    for (int round = 0; round < rounds; round++) {
        int64_t mib[8];
        for (unsigned i = 0; i < m->n; i++)
            mib[i] = (int64_t)rng_below(&rng, 3) * 1000;
        uint32_t fit = 1 + (uint32_t)rng_below(&rng, (1U << m->n) - 1);
        struct card_set_ask ask = {
            .links = l,
            .fit = fit,
            .free = (uint32_t)rng_below(&rng, 2) ? fit
                                                 : (uint32_t)rng_below(&rng, 1U << m->n),
            .k = 1 + (unsigned)rng_below(&rng, (uint64_t)__builtin_popcount(fit)),
            .free_mib = mib,
            .spread = rng_below(&rng, 2),
            .min_link = rng_below(&rng, 2) ? 0 : (uint8_t)rng_below(&rng, LINK_NV + 1),
        };
        uint32_t chosen = card_set_choose(&ask);
        ck_assert_msg(chosen == choose_by_trying(&ask),
                      "%s: fit %x free %x k %u: %x, not %x", m->name, ask.fit, ask.free,
                      ask.k, chosen, choose_by_trying(&ask));
    }
    links_release(l);
}

TEST(choice_is_the_best_of_all_sets)
{
    const char *rounds = getenv("CARD_SET_ROUNDS");
    array_items(machine, machines)
        compare_choices(machine, rounds ? atoi(rounds) : 2000);
}

static void expect_ring(const struct links *l, uint32_t set)
{
    uint8_t order[LINKS_MAX_CARDS];
    uint8_t ring = links_ring_order(l, set, order), narrowest = LINK_MAX;
    uint32_t seen = 0;
    unsigned n = (unsigned)__builtin_popcount(set);
    for (unsigned i = 0; i < n; i++) {
        uint8_t w = n > 1 ? links_pair(l, order[i], order[(i + 1) % n]) : LINK_MAX;
        narrowest = w < narrowest ? w : narrowest;
        seen |= UINT32_C(1) << order[i];
    }
    ck_assert_uint_eq(seen, set);
    ck_assert_uint_eq(order[0], (unsigned)__builtin_ctz(set));
    ck_assert_uint_eq(narrowest, ring);
    ck_assert_uint_eq(ring, links_ring(l, set));
}

static void compare_rings(const struct machine *m)
{
    const struct links *l = links_of(m);
    learn(m);
    for (uint32_t set = 1; set < 1U << cards; set++) {
        expect_ring(l, set);
        ck_assert_int_eq(links_ring(l, set), rings[set]);
        ck_assert_uint_eq(links_worth(l, set), (unsigned)worth_of(set));
    }
    links_release(l);
}

TEST(ring_order_has_the_width_of_the_ring)
{
    array_items(machine, machines)
        compare_rings(machine);
}

/* A node of 20 cards: four rings of five. */
TEST(more_cards_than_can_be_tried_get_a_connected_set)
{
    enum { N = 20 };
    for (unsigned i = 0; i < N * N; i++)
        widths[i] = i / N % 4 == i % N % 4 ? LINK_NV + 2 : LINK_SYS;
    for (unsigned i = 0; i < N; i++)
        numa[i] = -1;
    const struct links *l = links_take(&pool, widths, numa, N);
    int64_t mib[N] = {0};
    struct card_set_ask ask = {
        .links = l, .fit = (1U << N) - 1, .free = (1U << N) - 1, .k = 5, .free_mib = mib};
    uint32_t set = card_set_choose(&ask);
    ck_assert_uint_eq(set, 0x11111);
    ck_assert_uint_eq(links_ring(l, set), LINK_NV + 2);
    expect_ring(l, set);
    expect_ring(l, (1U << N) - 1);
    links_release(l);
}

/* What a node writes costs little: of large nodes, few kinds and few words. */
TEST(large_nodes_are_exact_up_to_a_bound)
{
    enum { N = LINKS_EXACT, KINDS = 12, BOUND = 8 };
    const struct links *kinds[KINDS];
    unsigned exact = 0;
    uint32_t n;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        for (unsigned i = 0; i < N * N; i++)
            widths[i] = (uint8_t)(LINK_NV + 1 + (i / N + i % N) % 3 + kind);
        for (unsigned i = 0; i < N; i++)
            numa[i] = -1;
        kinds[kind] = links_take(&pool, widths, numa, N);
        exact += links_sets(kinds[kind], 8, &n) != NULL;
        expect_ring(kinds[kind], 0xffff);
    }
    ck_assert_uint_eq(exact, BOUND);
    for (unsigned kind = 0; kind < KINDS; kind++)
        links_release(kinds[kind]);
    for (unsigned i = 0; i < N * N; i++) /* 13 widths */
        widths[i] = (uint8_t)(LINK_SYS + (i / N * (i % N)) % 13);
    const struct links *many = links_take(&pool, widths, numa, N);
    ck_assert_ptr_null(links_sets(many, 8, &n));
    expect_ring(many, 0xffff);
    links_release(many);
}

TEST(words_are_those_of_nvidia_smi)
{
    static const char *const good[] = {"X",   "SYS", "NODE", "PHB",
                                       "PXB", "PIX", "NV1",  "NV18"};
    static const char *const bad[] = {"",    "NV",   "NV0",  "NV01",   "NV249", "NV-1",
                                      "nv1", "PIX ", "NV1x", "NV9999", "N/A",   "SOC"};
    char text[8];
    array_items(g, good)
        ck_assert_str_eq(link_word(link_width(span_of(*g)), text), *g);
    array_items(c, bad)
        ck_assert_msg(link_width(span_of(*c)) == LINK_UNKNOWN, "%s", *c);
    ck_assert_str_eq(link_word(LINK_UNKNOWN, text), "");
}

TEST(unknown_pairs_make_all_unknown_and_halves_that_differ_the_worse)
{
    uint8_t two[] = {0, LINK_PIX, LINK_SYS, 0};
    const struct links *l = links_take(&pool, two, numa, 2);
    ck_assert_uint_eq(links_pair(l, 0, 1), LINK_SYS);
    ck_assert_uint_eq(links_narrowest(l, 3), LINK_SYS);
    ck_assert_ptr_eq(links_take(&pool, two, numa, 2), l); /* nodes share them */
    links_release(l);
    links_release(l);
    ck_assert(list_is_empty(&pool));
    two[1] = LINK_UNKNOWN;
    ck_assert_ptr_null(links_take(&pool, two, numa, 2));
    ck_assert_ptr_null(links_take(&pool, two, numa, 1));
    ck_assert_ptr_null(links_take(&pool, two, numa, LINKS_MAX_CARDS + 1));
}
