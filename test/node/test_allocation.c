/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation.h"

#include "domain/fields.h"
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
    al->driver_limit_mib = 6144;
    al->limit_device = al->limit_needed = true;
    allocation_set_put(set, al);
    al = new_allocation("u2", "c", IDS_COUNT);
    allocation_add(al, SPAN("GPU-c"), 6, -1);
    al->role = CONTAINER_APP;
    allocation_set_put(set, al);
}

/* And one with slots, which 1.0 does not know. */
static void sample_with_slots(struct allocation_set *set)
{
    sample(set);
    struct allocation *al = new_allocation("u3", "c", IDS_SHARE);
    allocation_add(al, SPAN("GPU-a"), 4, 31);
    al->slot_mib = 4000;
    allocation_set_put(set, al);
}

TEST(the_state_file_has_a_fixed_format)
{
    struct allocation_set set = {0};
    cleanup_buf struct buf b = {0};
    sample_with_slots(&set);
    allocation_set_write(&b, &set, SPAN("n1"));
    ck_assert_str_eq(
        b.p,
        "{\"version\":1,\"node\":\"n1\",\"grants\":[\n"
        "{\"uid\":\"u1\",\"namespace\":\"default\",\"pod\":\"p\\\"1\","
        "\"container\":\"init\",\"role\":\"init\",\"resource\":\"aliyun.com/gpu-mem\","
        "\"driverLimitMiB\":6144,\"limitDevice\":true,\"limitNeeded\":true,"
        "\"cards\":[{\"uuid\":\"GPU-a\",\"index\":4,"
        "\"units\":\"0-2,7,9-10\"},{\"uuid\":\"GPU-b\",\"index\":5,\"units\":\"12\"}]}\n"
        ",{\"uid\":\"u2\",\"namespace\":\"default\",\"pod\":\"p\\\"1\","
        "\"container\":\"c\",\"role\":\"app\",\"resource\":\"aliyun.com/gpu-count\","
        "\"cards\":[{\"uuid\":\"GPU-c\",\"index\":6}]}],\"slots\":[\n"
        "{\"uid\":\"u3\",\"namespace\":\"default\",\"pod\":\"p\\\"1\","
        "\"container\":\"c\",\"role\":\"init\",\"resource\":\"aliyun.com/gpu-share\","
        "\"slotMiB\":4000,"
        "\"cards\":[{\"uuid\":\"GPU-a\",\"index\":4,\"units\":\"31\"}]}]}\n");
    allocation_set_fini(&set);
}

TEST(a_written_state_file_is_read_back)
{
    struct allocation_set set = {0}, back = {0};
    struct err err = {0};
    cleanup_buf struct buf b = {0}, c = {0};
    sample_with_slots(&set);
    allocation_set_write(&b, &set, SPAN("n1"));
    ck_assert_done(allocation_set_read(&back, buf_span(&b), SPAN("n1"), &err), err);
    allocation_set_write(&c, &back, SPAN("n1"));
    ck_assert_str_eq(b.p, c.p);
    ck_assert_int_eq(back.items[0]->driver_limit_mib, 6144);
    ck_assert(back.items[0]->limit_device && back.items[0]->limit_needed);
    ck_assert_int_eq(back.items[1]->driver_limit_mib, 0);
    ck_assert(!back.items[1]->limit_device && !back.items[1]->limit_needed);
    ck_assert_int_eq(back.items[2]->slot_mib, 4000);
    ck_assert_int_eq(back.items[2]->resource, IDS_SHARE);
    allocation_set_fini(&set);
    allocation_set_fini(&back);
}

/* The tables of 1.0's reader. */
struct entry_1_0 {
    struct span uid, ns, name, container, role, resource;
    int64_t cards;
};
struct state_1_0 {
    int64_t version;
    struct span node;
    struct entry_1_0 grants[4];
    size_t n;
};

static void read_cards_1_0(struct field_reader *r, const struct field *f, void *at)
{
    jread_array(r->j, f->where);
    for (; jread_item(r->j); ++*(int64_t *)at)
        jread_skip(r->j);
}

static const struct field entry_fields_1_0[] = {
    {FIELD("", "uid", entry_1_0, uid)},
    {FIELD("", "namespace", entry_1_0, ns)},
    {FIELD("", "pod", entry_1_0, name)},
    {FIELD("", "container", entry_1_0, container)},
    {FIELD("", "role", entry_1_0, role)},
    {FIELD("", "resource", entry_1_0, resource)},
    {FIELD("", "cards", entry_1_0, cards), .type = FIELD_OTHER, .read = read_cards_1_0},
    FIELDS_END,
};

static void read_grant_1_0(struct field_reader *r, const struct field *f, void *at)
{
    struct state_1_0 *state = at;
    fields_read(r, f->where, entry_fields_1_0, &state->grants[state->n++]);
}

static const struct field state_fields_1_0[] = {
    {FIELD("", "version", state_1_0, version), FIELD_IS_NUMBER},
    {FIELD("", "node", state_1_0, node)},
    {FIELD("", "grants", state_1_0, version), .type = FIELD_LIST, .read = read_grant_1_0},
    FIELDS_END,
};

TEST(release_1_0_reads_the_state_file_after_a_rollback)
{
    struct allocation_set set = {0};
    struct state_1_0 is = {0};
    struct err err = {0};
    struct jread j;
    cleanup_buf struct buf b = {0};
    cleanup_arena struct arena a = {0};
    sample_with_slots(&set);
    allocation_set_write(&b, &set, SPAN("n1"));
    jread_init(&j, b.p, b.n);
    fields_read(&(struct field_reader){.j = &j, .a = &a}, "state", state_fields_1_0, &is);
    ck_assert_done(jread_finish(&j, &err), err);
    ck_assert_int_eq(is.version, 1);
    ck_assert_span_eq(is.node, "n1");
    ck_assert_uint_eq(is.n, 2);
    ck_assert_span_eq(is.grants[0].uid, "u1");
    ck_assert_span_eq(is.grants[0].container, "init");
    ck_assert_span_eq(is.grants[0].resource, "aliyun.com/gpu-mem");
    ck_assert_int_eq(is.grants[0].cards, 2);
    ck_assert_span_eq(is.grants[1].resource, "aliyun.com/gpu-count");
    allocation_set_fini(&set);
}

/* Bytes of 1.0. */
TEST(a_state_file_of_1_0_has_no_limit_of_the_driver)
{
    static const char file[] =
        "{\"version\":1,\"node\":\"n1\",\"grants\":[\n"
        "{\"uid\":\"u1\",\"namespace\":\"default\",\"pod\":\"p\",\"container\":\"c\","
        "\"role\":\"app\",\"resource\":\"aliyun.com/"
        "gpu-mem\",\"cards\":[{\"uuid\":\"GPU-a\","
        "\"index\":0,\"units\":\"0-3,7\"}]}]}\n";
    struct allocation_set set = {0};
    struct err err = {0};
    cleanup_buf struct buf again = {0};
    ck_assert_done(allocation_set_read(&set, span_of(file), SPAN("n1"), &err), err);
    ck_assert_uint_eq(set.n, 1);
    ck_assert_int_eq(set.items[0]->driver_limit_mib, 0);
    ck_assert(!set.items[0]->limit_device);
    allocation_set_write(&again, &set, SPAN("n1"));
    ck_assert_str_eq(again.p, file); /* as long as there is no limit */
    allocation_set_fini(&set);
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
        {"6144", "-6144", "driverLimitMiB"},
        {"6144", "6144000000000", "driverLimitMiB"},
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
