/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/requests.h"

#include "domain/objects.h"

/* -- requests, each stored once -- */

static struct requests pool;

static struct request of_part(int64_t mib, struct request_part *part)
{
    return (struct request){.kind = REQUEST_MEMORY,
                            .cards = 1,
                            .units = mib,
                            .mib_per_card = mib,
                            .models = SPAN("A100"),
                            .parts = part,
                            .n_parts = 1};
}

static const struct request *take(const struct request *r)
{
    return requests_take(&pool, r, &(struct resources){100, 200, 1});
}

TEST(equal_requests_are_stored_once)
{
    char name[] = "main", models[] = "A100";
    struct request_part x = {.amount = 8, .name = {name, 4}}, y = x;
    struct request a = of_part(8, &x), b = of_part(8, &y);
    requests_init(&pool, 1);
    a.models.p = models;
    y.name = SPAN("main");
    const struct request *first = take(&a);
    memset(name, '?', 4); /* the pool has copies */
    memset(models, '?', 4);
    ck_assert_span_eq(first->parts[0].name, "main");
    ck_assert_span_eq(first->models, "A100");
    ck_assert_ptr_eq(take(&b), first);
    ck_assert_uint_eq(pool.shared.n, 1);
    requests_release(&pool, first);
    ck_assert_int_eq(first->units, 8); /* it has a user */
    requests_release(&pool, first);
    ck_assert_uint_eq(pool.shared.n, 0);
    requests_fini(&pool);
}

/* The pool has what of_part(8, part) and take() made. Another request is stored beside it. */
static void expect_other(const struct request *r, const struct resources *resources,
                         const char *what, size_t byte)
{
    const struct request *other = requests_take(&pool, r, resources);
    ck_assert_msg(pool.shared.n == 2, "byte %zu of struct %s makes no difference", byte,
                  what);
    ck_assert(resources_equal(requests_resources(other), resources));
    requests_release(&pool, other);
}

/* Every byte that is no padding makes a difference, so that no new member can be forgotten.
 * What a member points to is in the next test. */
TEST(every_member_makes_a_difference)
{
    struct request_part part = {.index = 1, .amount = 8, .name = SPAN("main")};
    const struct request r = of_part(8, &part);
    const struct resources amounts = {100, 200, 1};
    requests_init(&pool, 1);
    const struct request *first = requests_take(&pool, &r, &amounts);
    struct request is_member;
    memset(&is_member, 0xff, sizeof is_member);
    __builtin_clear_padding(&is_member);
    memset(&is_member.models, 0, sizeof is_member.models);
    memset(&is_member.rules, 0, sizeof is_member.rules);
    memset(&is_member.words, 0, sizeof is_member.words);
    memset(&is_member.hami, 0, sizeof is_member.hami);
    memset(&is_member.parts, 0, sizeof is_member.parts);
    memset(&is_member.n_parts, 0, sizeof is_member.n_parts);
    for (size_t i = 0; i < sizeof r; i++) {
        struct request other = r;
        ((unsigned char *)&other)[i] ^= 1;
        if (((unsigned char *)&is_member)[i])
            expect_other(&other, &amounts, "request", i);
    }
    for (size_t i = 0; i < sizeof amounts; i++) { /* without padding */
        struct resources other = amounts;
        ((unsigned char *)&other)[i] ^= 1;
        expect_other(&r, &other, "resources", i);
    }
    requests_release(&pool, first);
    requests_fini(&pool);
}

TEST(texts_and_parts_make_a_difference)
{
    struct request_part part = {.index = 1, .amount = 8, .name = SPAN("main")};
    struct request_part parts[] = {part, part, part, part, part};
    const struct resources amounts = {100, 200, 1};
    struct request r = of_part(8, &part);
    requests_init(&pool, 1);
    const struct request *first = take(&r);
    r.models = SPAN("A10");
    expect_other(&r, &amounts, "request: models", 0);
    r = of_part(8, &part);
    r.rules = SPAN("T4");
    expect_other(&r, &amounts, "request: rules", 0);
    r = of_part(8, &part);
    r.words = SPAN("T4");
    expect_other(&r, &amounts, "request: words", 0);
    r = of_part(8, NULL);
    r.n_parts = 0;
    expect_other(&r, &amounts, "request: n_parts", 0);
    parts[0].index = 2;
    parts[1].amount = 9;
    parts[2].name = SPAN("mai");
    parts[3].role = CONTAINER_INIT;
    parts[4].percent = 1;
    array_indices(i, parts) {
        r = of_part(8, &parts[i]);
        expect_other(&r, &amounts, "request_part: member", i);
    }
    requests_release(&pool, first);
    requests_fini(&pool);
}

/* What it means elsewhere is a part of a request, and is stored with it. */
TEST(another_meaning_is_stored_once)
{
    struct request_part part = {.amount = 9, .name = SPAN("main")}, same = part;
    struct request x = of_part(9, &part), y = of_part(9, &same), r = of_part(8, &part);
    requests_init(&pool, 1);
    const struct request *without = take(&r);
    r.hami = &x;
    const struct request *first = take(&r);
    ck_assert_ptr_ne(first, without);
    ck_assert_ptr_ne(first->hami, &x);
    r.hami = &y;
    ck_assert_ptr_eq(take(&r), first);
    ck_assert_ptr_eq(take(first), first);
    ck_assert_ptr_eq(take(&x), first->hami);
    requests_release(&pool, first->hami);
    y.mib_per_card = 7;
    const struct request *other = take(&r);
    ck_assert_ptr_ne(other, first);
    ck_assert(!request_equal(other, first) && !request_equal(without, first));
    for (int i = 0; i < 3; i++)
        requests_release(&pool, first);
    requests_release(&pool, other);
    requests_release(&pool, without);
    ck_assert_uint_eq(pool.shared.n, 0);
    requests_fini(&pool);
}

/* -- classes -- */

static struct request memory(int64_t mib, uint32_t cards)
{
    return (struct request){
        .kind = REQUEST_MEMORY, .cards = cards, .mib_per_card = mib, .units = mib};
}

TEST(pending_pods_of_equal_requests_and_priorities_are_one_class)
{
    char models[] = "A100";
    struct request_part part = {.amount = 8, .name = SPAN("main")};
    struct request a = of_part(8, &part), b = a, none = {0};
    a.models.p = models;
    b.n_parts = 0; /* whichever containers */
    requests_init(&pool, 1);
    requests_pend(&pool, &a, 1, 1, 0);
    memset(models, '?', 4); /* it has a copy */
    requests_pend(&pool, &b, 1, 1, 1);
    ck_assert_uint_eq(requests_pend(&pool, &none, 1, 1, 0), UINT32_MAX);
    ck_assert_uint_eq(pool.n_classes, 1);
    ck_assert_uint_eq(pool.classes[0].pods, 2);
    ck_assert_uint_eq(pool.classes[0].members, 1);
    ck_assert_uint_eq(pool.classes[0].request->n_parts, 0);
    ck_assert_uint_eq(requests_pend(&pool, &b, 2, 1, 0), 1);
    ck_assert_uint_eq(pool.n_classes, 2);
    ck_assert_uint_eq(requests_pend(&pool, &b, 1, -2, -1), 0);
    ck_assert_uint_eq(pool.n_classes, 2); /* the other one stays where it is */
    ck_assert_uint_eq(pool.classes[0].pods, 0);
    ck_assert_uint_eq(requests_pend(&pool, &b, 2, 1, 0), 1);
    ck_assert_uint_eq(requests_pend(&pool, &b, 3, 1, 0), 0); /* instead of the first one */
    ck_assert_uint_eq(pool.classes[0].id, 3);
    requests_pend(&pool, &b, 3, -1, 0);
    requests_pend(&pool, &b, 2, -2, 0);
    ck_assert_uint_eq(pool.n_classes, 0);
    ck_assert_uint_eq(pool.shared.n, 0);
    requests_fini(&pool);
}

/* -- the mix -- */

static int64_t weight_of(const struct requests *mix, int64_t mib)
{
    for (size_t i = 0; i < mix->n_shapes; i++)
        if (mix->shapes[i].request->kind == REQUEST_MEMORY &&
            mix->shapes[i].request->mib_per_card == mib)
            return mix->shapes[i].weight;
    return 0;
}

TEST(equal_requests_are_one_shape)
{
    cleanup_requests struct requests mix = {0};
    struct request_part part = {.amount = 100, .name = SPAN("main")};
    struct request a = memory(100, 1), b = memory(100, 2), c = a;
    struct request whole = {.kind = REQUEST_CARDS, .cards = 2}, devices = whole;
    devices.kind = REQUEST_DEVICES;
    c.parts = &part; /* whichever containers have it */
    c.n_parts = 1;
    for (int i = 0; i < 3; i++)
        requests_weigh(&mix, &a, 0);
    c.placement = PLACE_SPREAD;
    requests_weigh(&mix, &c, 0);
    ck_assert_uint_eq(mix.n_shapes, 1);
    requests_weigh(&mix, &b, 0);
    requests_weigh(&mix, &a, 500);
    ck_assert_uint_eq(mix.n_shapes, 3);
    ck_assert_int_eq(mix.shapes[2].cpu_milli, 500);
    requests_weigh(&mix, &whole, 0);
    requests_weigh(&mix, &devices, 0); /* whichever plugin allocates them */
    ck_assert_uint_eq(mix.n_shapes, 4);
    ck_assert_int_eq(mix.shapes[3].weight, 2 * mix.shapes[1].weight);
    ck_assert_int_eq(mix.shapes[0].weight, 4 * mix.shapes[1].weight);
}

TEST(old_requests_fade)
{
    cleanup_requests struct requests mix = {0};
    struct request old = memory(100, 1), new = memory(200, 1);
    for (int i = 0; i < MIX_HALF_LIFE; i++)
        requests_weigh(&mix, &old, 0);
    for (int i = 0; i < MIX_HALF_LIFE; i++)
        requests_weigh(&mix, &new, 0);
    ck_assert_int_eq(weight_of(&mix, 200), 2 * weight_of(&mix, 100));
    for (int i = 0; i < 40 * MIX_HALF_LIFE; i++)
        requests_weigh(&mix, &new, 0);
    ck_assert_uint_eq(mix.n_shapes, 1); /* and vanishes */
    ck_assert_int_gt(weight_of(&mix, 200), 0);
    /* The weight is bounded: it cannot overflow. */
    ck_assert_int_lt(weight_of(&mix, 200), INT64_C(1) << 40);
}

TEST(a_full_mix_replaces_the_lightest)
{
    cleanup_requests struct requests mix = {0};
    for (int i = 0; i < MIX_SHAPES; i++) {
        struct request r = memory(i + 1, 1);
        for (int k = 0; k < (i == 70 ? 1 : 2); k++)
            requests_weigh(&mix, &r, 0);
    }
    struct request one_more = memory(9999, 1);
    requests_weigh(&mix, &one_more, 0);
    ck_assert_uint_eq(mix.n_shapes, MIX_SHAPES);
    ck_assert_int_gt(weight_of(&mix, 9999), 0);
    ck_assert_int_eq(weight_of(&mix, 71), 0);
    requests_weigh(&mix, &one_more, 0);
    one_more.mib_per_card = 8888; /* the oldest of equals: 1 MiB */
    requests_weigh(&mix, &one_more, 0);
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

static void add_models(struct requests *mix, const char *models)
{
    struct request r = of_models(models);
    requests_weigh(mix, &r, 0);
}

TEST(models_are_part_of_a_shape)
{
    cleanup_requests struct requests mix = {0};
    char text[] = "T4,A10"; /* the mix has a copy */
    add_models(&mix, text);
    text[1] = '5';
    add_models(&mix, "a10, t4 ,T4,"); /* the same set */
    ck_assert_uint_eq(mix.n_shapes, 1);
    ck_assert_span_eq(mix.shapes[0].request->models, "a10,t4");
    add_models(&mix, "T4");
    add_models(&mix, "");
    ck_assert_uint_eq(mix.n_shapes, 3);
    struct request r = of_models("T4");
    r.clock_mhz = 5001;
    requests_weigh(&mix, &r, 0);
    r.clock_exact = true;
    requests_weigh(&mix, &r, 0);
    ck_assert_uint_eq(mix.n_shapes, 5);
    r = (struct request){.kind = REQUEST_CARDS, .cards = 1};
    requests_weigh(&mix, &r, 0);
    r.mib_per_card = 40000; /* a whole card of at least that size */
    requests_weigh(&mix, &r, 0);
    ck_assert_uint_eq(mix.n_shapes, 7);
}

/* Adds the request. What it takes of a card of that kind. */
static int64_t amount_on(struct requests *mix, const struct request *r, uint8_t kind)
{
    struct request_shape before[MIX_SHAPES] = {0};
    for (size_t i = 0; i < mix->n_shapes; i++)
        before[i] = mix->shapes[i];
    requests_weigh(mix, r, 0);
    for (size_t i = 0; i < mix->n_shapes; i++)
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
    cleanup_requests struct requests mix = {0};
    const struct card_kind *of[4] = {&card_kind_unknown};
    /* The first shape comes before the kinds, the others after them. */
    array_indices(i, cases) {
        struct request r = of_models(cases[i].models);
        r.clock_mhz = cases[i].clock_mhz;
        r.clock_exact = cases[i].exact;
        if (cases[i].whole_mib)
            r = (struct request){
                .kind = REQUEST_CARDS, .cards = 1, .mib_per_card = cases[i].whole_mib};
        requests_weigh(&mix, &r, 0);
        for (size_t k = 0; i == 0 && k < 3; k++)
            of[k + 1] = requests_take_kind(&mix, &kinds[k]);
        for (size_t k = 0; k < 4; k++) {
            bool accepted = strchr(cases[i].accepted, "0ab?"[k]);
            ck_assert_msg(amount_on(&mix, &r, of[k]->id) ==
                              (accepted ? r.mib_per_card : -1),
                          "case %zu, kind %zu", i, k);
        }
    }
    for (size_t k = 1; k < 4; k++)
        requests_release_kind(&mix, of[k]);
}

/* Only so many kinds are distinguished. The others are kind 0, which nothing selective accepts. */
TEST(a_removed_kind_leaves_its_place)
{
    static const struct card_kind is_t4 = {.model = SPAN("T4")},
                                  is_x = {.model = SPAN("X")};
    const struct card_kind *others[MIX_KINDS];
    cleanup_requests struct requests mix = {0};
    struct request t4 = of_models("T4"), any = of_models("");
    const struct card_kind *kind = requests_take_kind(&mix, &is_t4);
    uint8_t id = kind->id;
    ck_assert_ptr_eq(requests_take_kind(&mix, &is_t4), kind); /* equal kinds are one */
    requests_release_kind(&mix, kind);
    ck_assert_int_eq(amount_on(&mix, &t4, id), 100);
    for (int i = 2; i < MIX_KINDS; i++) {
        others[i] = requests_take_kind(&mix, &(struct card_kind){.total_mib = i});
        ck_assert_uint_ne(others[i]->id, 0);
    }
    const struct card_kind *late = requests_take_kind(&mix, &is_x);
    ck_assert_uint_eq(late->id, 0);
    ck_assert_int_eq(amount_on(&mix, &t4, 0), -1);
    ck_assert_int_eq(amount_on(&mix, &any, 0), 100);
    requests_release_kind(&mix, kind);
    requests_release_kind(&mix, late);
    kind = requests_take_kind(&mix, &is_x);
    ck_assert_uint_eq(kind->id, id);
    ck_assert_int_eq(amount_on(&mix, &t4, id), -1);
    ck_assert_int_eq(amount_on(&mix, &any, id), 100);
    requests_release_kind(&mix, kind);
    for (int i = 2; i < MIX_KINDS; i++)
        requests_release_kind(&mix, others[i]);
}

static struct arena arena;

/* -1: there is no such kind. */
static int64_t free_of_kind(const struct ledger *l, int64_t total_mib)
{
    const struct requests *mix = ledger_requests(l);
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
    int64_t two = weight_of(ledger_requests(l), 100),
            one = weight_of(ledger_requests(l), 200);
    ck_assert_int_gt(one, 0);
    ck_assert_int_eq(two, 2 * one);
    struct ledger_pod *a = ledger_pod_find(l, SPAN("a"));
    ledger_pod_place(l, a, SPAN("n"), NULL, 0);
    ledger_pod_unplace(l, a);
    ck_assert_int_eq(weight_of(ledger_requests(l), 100), two);
    ledger_pod_remove(l, a); /* a deleted pod still counts */
    ck_assert_int_eq(weight_of(ledger_requests(l), 100), two);
    ledger_free(l);
    arena_fini(&arena);
}
