/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/request_pool_priv.h"

#include "domain/objects.h"

static struct request_pool pool;

static void start(void)
{
    request_pool_init(&pool, 1);
}

static struct request memory(int64_t mib, struct request_part *part)
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
    return request_pool_take(&pool, r, &(struct resources){100, 200, 1});
}

START_TEST(equal_requests_are_stored_once)
{
    char name[] = "main", models[] = "A100";
    struct request_part x = {.amount = 8, .name = {name, 4}}, y = x;
    struct request a = memory(8, &x), b = memory(8, &y);
    start();
    a.models.p = models;
    y.name = SPAN("main");
    const struct request *first = take(&a);
    memset(name, '?', 4); /* the pool has copies */
    memset(models, '?', 4);
    ck_assert_span_eq(first->parts[0].name, "main");
    ck_assert_span_eq(first->models, "A100");
    ck_assert_ptr_eq(take(&b), first);
    ck_assert_uint_eq(pool.n, 1);
    request_pool_release(&pool, first);
    ck_assert_int_eq(first->units, 8); /* it has a user */
    request_pool_release(&pool, first);
    ck_assert_uint_eq(pool.n, 0);
    request_pool_fini(&pool);
}
END_TEST

START_TEST(every_field_makes_a_difference)
{
    struct request_part x = {.index = 1, .amount = 8, .name = SPAN("main")}, parts[3];
    struct request r[16];
    const struct request *taken[16];
    start();
    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        r[i] = memory(8, &x);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        parts[i] = x;
    r[1].kind = REQUEST_CARDS;
    r[2].placement = PLACE_SPREAD;
    r[3].cards = 2;
    r[4].devices = 1;
    r[5].units = 9;
    r[6].mib_per_card = 9;
    r[7].by_label = true;
    r[8].recorded = true;
    r[9].clock_exact = true;
    r[10].core = 5;
    r[11].clock_mhz = 5;
    r[12].models = SPAN("A10");
    parts[0].index = 2;
    parts[1].amount = 9;
    parts[2].name = SPAN("mai");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        r[13 + i].parts = &parts[i];
    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        taken[i] = take(&r[i]);
    ck_assert_uint_eq(pool.n, ARRAY_LEN(r));
    r[0].n_parts = 0;
    const struct request *none = take(&r[0]);
    ck_assert_uint_eq(pool.n, ARRAY_LEN(r) + 1);
    request_pool_release(&pool, none);
    static const struct resources amounts[] = {{101, 200, 1}, {100, 201, 1}};
    for (size_t i = 0; i < ARRAY_LEN(amounts); i++) {
        const struct request *other = request_pool_take(&pool, &r[1], &amounts[i]);
        ck_assert_ptr_ne(other, taken[1]);
        ck_assert(resources_equal(request_pool_resources(other), &amounts[i]));
        request_pool_release(&pool, other);
    }
    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        request_pool_release(&pool, taken[i]);
    request_pool_fini(&pool);
}
END_TEST

/* Tenants can make every request a different one. */
START_TEST(the_table_grows_and_shrinks)
{
    enum { MANY = 5000 };
    static const struct request *taken[MANY];
    struct request_part part = {.name = SPAN("main")};
    start();
    for (int i = 0; i < MANY; i++) {
        struct request r = memory(i + 1, &part);
        taken[i] = take(&r);
    }
    ck_assert_uint_eq(pool.n, MANY);
    ck_assert_uint_ge(pool.cap, MANY);
    for (int i = 0; i < MANY; i++) {
        struct request r = memory(i + 1, &part);
        ck_assert_ptr_eq(take(&r), taken[i]);
        request_pool_release(&pool, taken[i]);
    }
    for (int i = 1; i < MANY; i++)
        request_pool_release(&pool, taken[i]);
    ck_assert_uint_le(pool.cap, 64);
    ck_assert_int_eq(taken[0]->units, 1);
    request_pool_release(&pool, taken[0]);
    request_pool_fini(&pool);
}
END_TEST

UNIT_MAIN("request_pool", equal_requests_are_stored_once, every_field_makes_a_difference,
          the_table_grows_and_shrinks)
