/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/mix.h"

#include "domain/objects.h"

static struct request memory(int64_t mib, uint32_t cards)
{
    return (struct request){
        .kind = REQUEST_MEMORY, .cards = cards, .mib_per_card = mib, .units = mib};
}

static int64_t weight_of(const struct mix *mix, int64_t mib)
{
    for (uint32_t i = 0; i < mix->n; i++)
        if (mix->shapes[i].kind == REQUEST_MEMORY && mix->shapes[i].mib_per_card == mib)
            return mix->shapes[i].weight;
    return 0;
}

START_TEST(equal_requests_are_one_shape)
{
    struct mix mix = {0};
    struct request a = memory(100, 1), b = memory(100, 2), none = {.cards = 7};
    struct request whole = {.kind = REQUEST_CARDS, .cards = 2, .units = 2};
    struct request devices = {.kind = REQUEST_DEVICES, .cards = 2};
    for (int i = 0; i < 3; i++)
        mix_add(&mix, &a, 0);
    a.placement = PLACE_SPREAD; /* the placement does not matter */
    mix_add(&mix, &a, 0);
    ck_assert_uint_eq(mix.n, 1);
    mix_add(&mix, &b, 0);
    mix_add(&mix, &a, 500);
    mix_add(&mix, &none, 0);
    ck_assert_uint_eq(mix.n, 4);
    mix_add(&mix, &whole, 0);
    mix_add(&mix, &devices, 0); /* whole cards, whichever device plugin allocates them */
    ck_assert_uint_eq(mix.n, 5);
    ck_assert_int_eq(mix.shapes[0].weight, 4 * mix.shapes[1].weight);
    ck_assert_int_eq(mix.shapes[4].weight, 2 * mix.shapes[1].weight);
}
END_TEST

START_TEST(old_requests_fade)
{
    struct mix mix = {0};
    struct request old = memory(100, 1), new = memory(200, 1);
    for (int i = 0; i < MIX_HALF_LIFE; i++)
        mix_add(&mix, &old, 0);
    for (int i = 0; i < MIX_HALF_LIFE; i++)
        mix_add(&mix, &new, 0);
    ck_assert_int_eq(weight_of(&mix, 200), 2 * weight_of(&mix, 100));
    for (int i = 0; i < 40 * MIX_HALF_LIFE; i++)
        mix_add(&mix, &new, 0);
    ck_assert_uint_eq(mix.n, 1); /* and vanishes */
    ck_assert_int_gt(weight_of(&mix, 200), 0);
    /* The weight is bounded: it cannot overflow. */
    ck_assert_int_lt(weight_of(&mix, 200), INT64_C(1) << 40);
}
END_TEST

START_TEST(a_full_mix_replaces_the_lightest)
{
    struct mix mix = {0};
    for (int i = 0; i < MIX_SHAPES; i++) {
        struct request r = memory(i + 1, 1);
        for (int k = 0; k < (i == 70 ? 1 : 2); k++)
            mix_add(&mix, &r, 0);
    }
    struct request one_more = memory(9999, 1);
    mix_add(&mix, &one_more, 0);
    ck_assert_uint_eq(mix.n, MIX_SHAPES);
    ck_assert_int_gt(weight_of(&mix, 9999), 0);
    ck_assert_int_eq(weight_of(&mix, 71), 0);
    mix_add(&mix, &one_more, 0);
    one_more.mib_per_card = 8888; /* the oldest of equals: 1 MiB */
    mix_add(&mix, &one_more, 0);
    ck_assert_int_eq(weight_of(&mix, 1), 0);
    ck_assert_int_gt(weight_of(&mix, 2), 0);
}
END_TEST

static struct arena arena;

static void see(struct ledger *l, const char *uid, int units)
{
    struct pod pod = object_pod_mem(&arena, uid, units);
    struct request r = object_request(&arena, &pod, 1);
    ledger_pod_add(l, &pod, &r, NULL);
}

START_TEST(the_ledger_counts_each_pod_once)
{
    struct ledger_settings settings = {.unit_mib = 1};
    struct ledger *l = ledger_new(&settings, 1);
    see(l, "a", 100);
    see(l, "a", 100); /* seen again */
    see(l, "b", 100);
    see(l, "c", 200);
    int64_t two = weight_of(ledger_mix(l), 100), one = weight_of(ledger_mix(l), 200);
    ck_assert_int_gt(one, 0);
    ck_assert_int_eq(two, 2 * one);
    struct ledger_pod *a = ledger_pod_find(l, SPAN("a"));
    ledger_pod_place(l, a, SPAN("n"), NULL, 0);
    ledger_pod_unplace(l, a);
    ck_assert_int_eq(weight_of(ledger_mix(l), 100), two);
    ledger_pod_remove(l, a); /* a deleted pod still counts */
    ck_assert_int_eq(weight_of(ledger_mix(l), 100), two);
    ledger_free(l);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("mix", equal_requests_are_one_shape, old_requests_fade,
          a_full_mix_replaces_the_lightest, the_ledger_counts_each_pod_once)
