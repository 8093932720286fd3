/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include "domain/objects.h"

static struct map pool;

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

TEST(equal_requests_are_stored_once)
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
    map_fini(&pool);
}

/* The pool has what memory(8, part) and take() made. Another request is stored beside it. */
static void expect_other(const struct request *r, const struct resources *resources,
                         const char *what, size_t byte)
{
    const struct request *other = request_pool_take(&pool, r, resources);
    ck_assert_msg(pool.n == 2, "byte %zu of struct %s makes no difference", byte, what);
    ck_assert(resources_equal(request_pool_resources(other), resources));
    request_pool_release(&pool, other);
}

/* Every byte that is no padding makes a difference, so that no new member can be forgotten.
 * What a member points to is in the next test. */
TEST(every_member_makes_a_difference)
{
    struct request_part part = {.index = 1, .amount = 8, .name = SPAN("main")};
    const struct request r = memory(8, &part);
    const struct resources amounts = {100, 200, 1};
    start();
    const struct request *first = request_pool_take(&pool, &r, &amounts);
    struct request is_member;
    memset(&is_member, 0xff, sizeof is_member);
    __builtin_clear_padding(&is_member);
    memset(&is_member.models, 0, sizeof is_member.models);
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
    request_pool_release(&pool, first);
    map_fini(&pool);
}

TEST(texts_and_parts_make_a_difference)
{
    struct request_part part = {.index = 1, .amount = 8, .name = SPAN("main")};
    struct request_part parts[] = {part, part, part};
    const struct resources amounts = {100, 200, 1};
    struct request r = memory(8, &part);
    start();
    const struct request *first = take(&r);
    r.models = SPAN("A10");
    expect_other(&r, &amounts, "request: models", 0);
    r = memory(8, NULL);
    r.n_parts = 0;
    expect_other(&r, &amounts, "request: n_parts", 0);
    parts[0].index = 2;
    parts[1].amount = 9;
    parts[2].name = SPAN("mai");
    array_indices(i, parts) {
        r = memory(8, &parts[i]);
        expect_other(&r, &amounts, "request_part: member", i);
    }
    request_pool_release(&pool, first);
    map_fini(&pool);
}
