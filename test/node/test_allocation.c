/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation.h"

#include "lib/unit.h"

static struct allocation *new_allocation(const char *uid, const char *container,
                                         enum ids_resource r)
{
    return allocation_new(span_of(uid), SPAN("default"), SPAN("p\"1"), span_of(container),
                          CONTAINER_INIT, r);
}

TEST(an_allocation_holds_its_units)
{
    struct allocation *al = new_allocation("u", "c", IDS_MEM);
    static const int64_t units[] = {7, 0, 3, 2, 1, 143770};
    array_items(unit, units)
        ck_assert(allocation_add(al, SPAN("GPU-a"), 1, *unit));
    ck_assert(!allocation_add(al, SPAN("GPU-a"), 1, 3));
    ck_assert(allocation_add(al, SPAN("GPU-b"), 2, 3));
    array_items(u, units)
        ck_assert(allocation_holds(al, SPAN("GPU-a"), *u));
    ck_assert(!allocation_holds(al, SPAN("GPU-a"), 4));
    ck_assert(!allocation_holds(al, SPAN("GPU-b"), 7));
    ck_assert(!allocation_holds(al, SPAN("GPU-c"), 7));
    ck_assert(allocation_holds(al, SPAN("GPU-a"), -1)); /* any part of the card */
    ck_assert_int_eq(allocation_amount(al), 7);
    allocation_free(al);
    allocation_free(NULL);

    al = new_allocation("u", "c", IDS_COUNT);
    ck_assert(allocation_add(al, SPAN("GPU-a"), 1, -1));
    ck_assert(!allocation_add(al, SPAN("GPU-a"), 1, -1));
    ck_assert(allocation_holds(al, SPAN("GPU-a"), -1));
    ck_assert_int_eq(allocation_amount(al), 1);
    allocation_free(al);
}

TEST(one_allocation_per_container_and_resource)
{
    struct allocation_set set = {0};
    allocation_set_put(&set, new_allocation("u1", "a", IDS_MEM));
    allocation_set_put(&set, new_allocation("u1", "a", IDS_COUNT));
    allocation_set_put(&set, new_allocation("u1", "b", IDS_MEM));
    allocation_set_put(&set, new_allocation("u2", "a", IDS_MEM));
    ck_assert_uint_eq(set.n, 4);
    struct allocation *again = new_allocation("u1", "a", IDS_MEM);
    allocation_set_put(&set, again);
    ck_assert_uint_eq(set.n, 4);
    ck_assert_ptr_eq(allocation_set_find(&set, SPAN("u1"), SPAN("a"), IDS_MEM), again);
    ck_assert_ptr_null(allocation_set_find(&set, SPAN("u2"), SPAN("b"), IDS_MEM));
    allocation_set_drop(&set, again);
    ck_assert_uint_eq(set.n, 3);
    ck_assert_span_eq(set.items[2]->uid, "u2");
    ck_assert_ptr_null(allocation_set_find(&set, SPAN("u1"), SPAN("a"), IDS_MEM));
    allocation_set_fini(&set);
}

static void sample(struct allocation_set *set)
{
    struct allocation *al = new_allocation("u1", "init", IDS_MEM);
    static const int64_t units[] = {0, 1, 2, 7, 9, 10};
    array_items(unit, units)
        allocation_add(al, SPAN("GPU-a"), 4, *unit);
    allocation_add(al, SPAN("GPU-b"), 5, 12);
    allocation_set_put(set, al);
    al = new_allocation("u2", "c", IDS_COUNT);
    allocation_add(al, SPAN("GPU-c"), 6, -1);
    al->role = CONTAINER_APP;
    allocation_set_put(set, al);
}

TEST(the_state_file_has_a_fixed_format)
{
    struct allocation_set set = {0};
    cleanup_buf struct buf b = {0};
    sample(&set);
    allocation_set_write(&b, &set, SPAN("n1"));
    ck_assert_str_eq(
        b.p,
        "{\"version\":1,\"node\":\"n1\",\"grants\":[\n"
        "{\"uid\":\"u1\",\"namespace\":\"default\",\"pod\":\"p\\\"1\","
        "\"container\":\"init\",\"role\":\"init\",\"resource\":\"aliyun.com/gpu-mem\","
        "\"cards\":[{\"uuid\":\"GPU-a\",\"index\":4,"
        "\"units\":\"0-2,7,9-10\"},{\"uuid\":\"GPU-b\",\"index\":5,\"units\":\"12\"}]}\n"
        ",{\"uid\":\"u2\",\"namespace\":\"default\",\"pod\":\"p\\\"1\","
        "\"container\":\"c\",\"role\":\"app\",\"resource\":\"aliyun.com/gpu-count\","
        "\"cards\":[{\"uuid\":\"GPU-c\",\"index\":6}]}]}\n");
    allocation_set_fini(&set);
}

TEST(a_written_state_file_is_read_back)
{
    struct allocation_set set = {0}, back = {0};
    struct err err = {0};
    cleanup_buf struct buf b = {0}, c = {0};
    sample(&set);
    allocation_set_write(&b, &set, SPAN("n1"));
    ck_assert_done(allocation_set_read(&back, buf_span(&b), SPAN("n1"), &err), err);
    allocation_set_write(&c, &back, SPAN("n1"));
    ck_assert_str_eq(b.p, c.p);
    allocation_set_fini(&set);
    allocation_set_fini(&back);
}

TEST(a_damaged_state_file_is_rejected_as_a_whole)
{
    struct allocation_set set = {0};
    cleanup_buf struct buf good = {0};
    struct err err = {0};
    sample(&set);
    allocation_set_write(&good, &set, SPAN("n1"));
    /* Truncated anywhere: an error, and nothing is read. */
    for (size_t i = 0; i + 2 < good.n; i++) {
        struct allocation_set back = {0};
        ck_assert_int_eq(
            allocation_set_read(&back, (struct span){good.p, i}, SPAN("n1"), &err), -1);
        ck_assert_uint_eq(back.n, 0);
    }
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"version\":1", "\"version\":2", "version: 2"},
        {"\"n1\"", "\"n2\"", "it belongs to node \"n2\""},
        {"0-2", "2-0", "are invalid, or too many"},
        {"0-2", "a-2", "are invalid, or too many"},
        {"0-2", "7-9", "are invalid, or too many"}, /* duplicate unit */
        {"\"app\"", "\"ape\"", "are invalid, or come later"},
        {"gpu-count", "gpu-counts", "are invalid, or come later"},
        {"\"uid\"", "\"uie\"", "are invalid, or come later"},
    };
    array_items(c, cases) {
        struct allocation_set back = {0};
        cleanup_buf struct buf b = {0};
        const char *at = strstr(good.p, c->from);
        ck_assert_ptr_nonnull(at);
        buf_add(&b, good.p, (size_t)(at - good.p));
        buf_adds(&b, c->to);
        buf_adds(&b, at + strlen(c->from));
        ck_assert_int_eq(allocation_set_read(&back, buf_span(&b), SPAN("n1"), &err), -1);
        ck_assert_contains(err.msg, c->says);
        ck_assert_uint_eq(back.n, 0);
    }
    allocation_set_fini(&set);
}

TEST(an_oversized_state_file_is_rejected)
{
    struct allocation_set set = {0};
    struct err err = {0};
    cleanup_buf struct buf units = {0}, many = {0}, enough = {0};
    const char *head = "{\"version\":1,\"node\":\"n1\",\"grants\":[";
    /* Some hundred bytes that stand for three million units. */
    buf_printf(&units,
               "%s{\"uid\":\"u\",\"container\":\"c\",\"role\":\"app\",\"resource\":"
               "\"aliyun.com/gpu-mem\",\"cards\":[",
               head);
    for (int i = 0; i < 3; i++)
        buf_printf(&units, "%s{\"uuid\":\"GPU-%d\",\"index\":0,\"units\":\"0-999999\"}",
                   i ? "," : "", i);
    buf_adds(&units, "]}]}");
    ck_assert_int_eq(allocation_set_read(&set, buf_span(&units), SPAN("n1"), &err), -1);
    ck_assert_contains(err.msg, "are invalid, or too many");
    for (int i = 0; i <= ALLOCATION_SET_MAX; i++) {
        buf_printf(&many,
                   "%s{\"uid\":\"u%d\",\"container\":\"c\",\"role\":\"app\","
                   "\"resource\":\"aliyun.com/gpu-count\",\"cards\":[]}",
                   i ? "," : head, i);
        if (i == ALLOCATION_SET_MAX - 1)
            buf_add_span(&enough, buf_span(&many));
    }
    buf_adds(&many, "]}");
    buf_adds(&enough, "]}");
    ck_assert_int_eq(allocation_set_read(&set, buf_span(&many), SPAN("n1"), &err), -1);
    ck_assert_contains(err.msg, "too many allocations");
    ck_assert_uint_eq(set.n, 0);
    ck_assert_done(allocation_set_read(&set, buf_span(&enough), SPAN("n1"), &err), err);
    ck_assert_uint_eq(set.n, ALLOCATION_SET_MAX);
    allocation_set_fini(&set);
}
