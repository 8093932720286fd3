/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/request_mix.h"

#include "domain/objects.h"

static struct request memory(int64_t mib, uint32_t cards)
{
    return (struct request){
        .kind = REQUEST_MEMORY, .cards = cards, .mib_per_card = mib, .units = mib};
}

static int64_t weight_of(const struct request_mix *mix, int64_t mib)
{
    for (size_t i = 0; i < mix->n; i++)
        if (mix->shapes[i].request.kind == REQUEST_MEMORY &&
            mix->shapes[i].request.mib_per_card == mib)
            return mix->shapes[i].weight;
    return 0;
}

TEST(equal_requests_are_one_shape)
{
    cleanup_mix struct request_mix mix = {0};
    struct request a = memory(100, 1), b = memory(100, 2), none = {.cards = 7};
    struct request whole = {.kind = REQUEST_CARDS, .cards = 2};
    struct request devices = {.kind = REQUEST_DEVICES, .cards = 2};
    for (int i = 0; i < 3; i++)
        request_mix_add(&mix, &a, 0);
    a.placement = PLACE_SPREAD; /* the placement does not matter */
    request_mix_add(&mix, &a, 0);
    ck_assert_uint_eq(mix.n, 1);
    request_mix_add(&mix, &b, 0);
    request_mix_add(&mix, &a, 500);
    request_mix_add(&mix, &none, 0);
    ck_assert_uint_eq(mix.n, 4);
    request_mix_add(&mix, &whole, 0);
    /* Whole cards, whichever device plugin allocates them. */
    request_mix_add(&mix, &devices, 0);
    ck_assert_uint_eq(mix.n, 5);
    ck_assert_int_eq(mix.shapes[0].weight, 4 * mix.shapes[1].weight);
    ck_assert_int_eq(mix.shapes[4].weight, 2 * mix.shapes[1].weight);
}

TEST(old_requests_fade)
{
    cleanup_mix struct request_mix mix = {0};
    struct request old = memory(100, 1), new = memory(200, 1);
    for (int i = 0; i < MIX_HALF_LIFE; i++)
        request_mix_add(&mix, &old, 0);
    for (int i = 0; i < MIX_HALF_LIFE; i++)
        request_mix_add(&mix, &new, 0);
    ck_assert_int_eq(weight_of(&mix, 200), 2 * weight_of(&mix, 100));
    for (int i = 0; i < 40 * MIX_HALF_LIFE; i++)
        request_mix_add(&mix, &new, 0);
    ck_assert_uint_eq(mix.n, 1); /* and vanishes */
    ck_assert_int_gt(weight_of(&mix, 200), 0);
    /* The weight is bounded: it cannot overflow. */
    ck_assert_int_lt(weight_of(&mix, 200), INT64_C(1) << 40);
}

TEST(a_full_mix_replaces_the_lightest)
{
    cleanup_mix struct request_mix mix = {0};
    for (int i = 0; i < MIX_SHAPES; i++) {
        struct request r = memory(i + 1, 1);
        for (int k = 0; k < (i == 70 ? 1 : 2); k++)
            request_mix_add(&mix, &r, 0);
    }
    struct request one_more = memory(9999, 1);
    request_mix_add(&mix, &one_more, 0);
    ck_assert_uint_eq(mix.n, MIX_SHAPES);
    ck_assert_int_gt(weight_of(&mix, 9999), 0);
    ck_assert_int_eq(weight_of(&mix, 71), 0);
    request_mix_add(&mix, &one_more, 0);
    one_more.mib_per_card = 8888; /* the oldest of equals: 1 MiB */
    request_mix_add(&mix, &one_more, 0);
    ck_assert_int_eq(weight_of(&mix, 1), 0);
    ck_assert_int_gt(weight_of(&mix, 2), 0);
}

/* -- models -- */

static struct request of_models(const char *models)
{
    struct request r = memory(100, 1);
    r.models = span_of(models);
    return r;
}

static void add_models(struct request_mix *mix, const char *models)
{
    struct request r = of_models(models);
    request_mix_add(mix, &r, 0);
}

TEST(models_are_part_of_a_shape)
{
    cleanup_mix struct request_mix mix = {0};
    char text[] = "T4,A10"; /* the mix has a copy */
    add_models(&mix, text);
    text[1] = '5';
    add_models(&mix, "a10, t4 ,T4,"); /* the same set */
    ck_assert_uint_eq(mix.n, 1);
    struct request first = request_mix_request(&mix.shapes[0]);
    ck_assert_span_eq(first.models, "a10,t4");
    add_models(&mix, "T4");
    add_models(&mix, "");
    ck_assert_uint_eq(mix.n, 3);
    struct request r = of_models("T4");
    r.clock_mhz = 5001;
    request_mix_add(&mix, &r, 0);
    r.clock_exact = true;
    request_mix_add(&mix, &r, 0);
    ck_assert_uint_eq(mix.n, 5);
    r = (struct request){.kind = REQUEST_CARDS, .cards = 1};
    request_mix_add(&mix, &r, 0);
    r.mib_per_card = 40000; /* a whole card of at least that size */
    request_mix_add(&mix, &r, 0);
    ck_assert_uint_eq(mix.n, 7);
}

/* Adds the request. What it takes of a card of that kind. */
static int64_t amount_on(struct request_mix *mix, const struct request *r, uint8_t kind)
{
    struct request_mix_shape before[MIX_SHAPES] = {0};
    for (size_t i = 0; i < mix->n; i++)
        before[i] = mix->shapes[i];
    request_mix_add(mix, r, 0);
    for (size_t i = 0; i < mix->n; i++)
        if (mix->shapes[i].weight != before[i].weight)
            return mix->shapes[i].amounts[kind];
    ck_abort_msg("no shape has a new weight");
}

TEST(a_shape_takes_an_amount_of_each_kind)
{
    static const struct card_kind kinds[] = {
        {.model = SPAN("A10"), .spec.clock_mhz = 6251, .total_mib = 23028},
        {.model = SPAN(" t4 "), .spec.clock_mhz = 5001, .total_mib = 15109},
        {.total_mib = 15109}};
    static const struct {
        const char *models;
        int64_t clock_mhz;
        bool exact;
        int64_t whole_mib; /* not 0: a whole card of that size */
        const char *accepted;
    } cases[] = {
        {"T4", 0, false, 0, "b"},       {"", 0, false, 0, "0ab?"},
        {"t4,A10", 0, false, 0, "ab"},  {"", 5001, false, 0, "ab"},
        {"A10,T4", 5001, true, 0, "b"}, {"", 0, false, 16000, "a"},
    };
    cleanup_mix struct request_mix mix = {0};
    uint8_t of[4] = {0};
    /* The first shape comes before the kinds, the others after them. */
    array_indices(i, cases) {
        struct request r = of_models(cases[i].models);
        r.clock_mhz = cases[i].clock_mhz;
        r.clock_exact = cases[i].exact;
        if (cases[i].whole_mib)
            r = (struct request){
                .kind = REQUEST_CARDS, .cards = 1, .mib_per_card = cases[i].whole_mib};
        request_mix_add(&mix, &r, 0);
        for (size_t k = 0; i == 0 && k < 3; k++)
            of[k + 1] = request_mix_add_kind(&mix, &kinds[k]);
        for (size_t k = 0; k < 4; k++) {
            bool accepted = strchr(cases[i].accepted, "0ab?"[k]);
            ck_assert_msg(amount_on(&mix, &r, of[k]) == (accepted ? r.mib_per_card : -1),
                          "case %zu, kind %zu", i, k);
        }
    }
}

/* Only so many kinds are distinguished. The others are kind 0, which nothing selective accepts. */
TEST(a_removed_kind_leaves_its_place)
{
    static const struct card_kind is_t4 = {.model = SPAN("T4")}, is_other;
    cleanup_mix struct request_mix mix = {0};
    struct request t4 = of_models("T4"), any = of_models("");
    uint8_t kind = request_mix_add_kind(&mix, &is_t4);
    ck_assert_int_eq(amount_on(&mix, &t4, kind), 100);
    for (int i = 2; i < MIX_KINDS; i++)
        ck_assert_uint_ne(request_mix_add_kind(&mix, &is_other), 0);
    ck_assert_uint_eq(request_mix_add_kind(&mix, &is_t4), 0);
    ck_assert_int_eq(amount_on(&mix, &t4, 0), -1);
    ck_assert_int_eq(amount_on(&mix, &any, 0), 100);
    request_mix_remove_kind(&mix, kind);
    ck_assert_uint_eq(request_mix_add_kind(&mix, &is_other), kind);
    ck_assert_int_eq(amount_on(&mix, &t4, kind), -1);
    ck_assert_int_eq(amount_on(&mix, &any, kind), 100);
}

static struct arena arena;

/* -1: there is no such kind. */
static int64_t free_of_kind(const struct ledger *l, int64_t total_mib)
{
    const struct request_mix *mix = ledger_mix(l);
    for (int i = 1; i < MIX_KINDS; i++)
        if (mix->kinds[i].kind && mix->kinds[i].kind->total_mib == total_mib)
            return mix->kinds[i].free_mib;
    return -1;
}

TEST(the_ledger_counts_the_free_memory_of_each_kind)
{
    struct ledger_settings settings = {.unit_mib = 1};
    struct ledger *l = ledger_new(&settings, 1);
    struct scv a = object_scv_even(&arena, "a", 2, 16276);
    struct scv b = object_scv_even(&arena, "b", 4, 16276);
    ledger_scv_seen(l, &a, 1);
    ledger_scv_seen(l, &b, 1);
    ck_assert_int_eq(free_of_kind(l, 16276), INT64_C(6) * 16276);
    struct pod pod = object_pod_mem(&arena, "p", 6276);
    struct request r = object_request(&arena, &pod, 1);
    struct ledger_share share = {.card = 1, .mib = 6276};
    struct ledger_pod *p = ledger_pod_add(l, &pod, &r, NULL);
    ledger_pod_place(l, p, SPAN("a"), &share, 1);
    ck_assert_int_eq(free_of_kind(l, 16276), INT64_C(5) * 16276 + 10000);
    b = object_scv_even(&arena, "b", 3, 40000); /* other cards */
    ledger_scv_seen(l, &b, 1);
    ck_assert_int_eq(free_of_kind(l, 16276), 16276 + 10000);
    ck_assert_int_eq(free_of_kind(l, 40000), 120000);
    ledger_node_set_stale(l, SPAN("b"), 60); /* takes no pods */
    ck_assert_int_eq(free_of_kind(l, 40000), 0);
    ledger_object_deleted(l, LEDGER_SCV, SPAN("a"));
    ck_assert_int_eq(free_of_kind(l, 16276), -1);
    ledger_free(l);
    arena_fini(&arena);
}

static void see(struct ledger *l, const char *uid, int units)
{
    struct pod pod = object_pod_mem(&arena, uid, units);
    struct request r = object_request(&arena, &pod, 1);
    ledger_pod_add(l, &pod, &r, NULL);
}

TEST(the_ledger_counts_each_pod_once)
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
