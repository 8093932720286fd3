/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/grants.h"

#include "base/mem.h"
#include "lib/unit.h"

static struct grant *made(const char *uid, const char *container, enum ids_resource r)
{
    return grant_new(span_of(uid), SPAN("default"), SPAN("p\"1"), span_of(container),
                     CONTAINER_INIT, r);
}

START_TEST(a_grant_knows_its_units)
{
    struct grant *g = made("u", "c", IDS_MEM);
    static const int64_t units[] = {7, 0, 3, 2, 1, 143770};
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        ck_assert(grant_add(g, SPAN("GPU-a"), 1, units[i]));
    ck_assert(!grant_add(g, SPAN("GPU-a"), 1, 3));
    ck_assert(grant_add(g, SPAN("GPU-b"), 2, 3));
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        ck_assert(grant_holds(g, SPAN("GPU-a"), units[i]));
    ck_assert(!grant_holds(g, SPAN("GPU-a"), 4));
    ck_assert(!grant_holds(g, SPAN("GPU-b"), 7));
    ck_assert(!grant_holds(g, SPAN("GPU-c"), 7));
    ck_assert(grant_holds(g, SPAN("GPU-a"), -1)); /* any of it */
    ck_assert_int_eq(grant_amount(g), 7);
    grant_free(g);
    grant_free(NULL);

    g = made("u", "c", IDS_COUNT);
    ck_assert(grant_add(g, SPAN("GPU-a"), 1, -1));
    ck_assert(!grant_add(g, SPAN("GPU-a"), 1, -1));
    ck_assert(grant_holds(g, SPAN("GPU-a"), -1));
    ck_assert_int_eq(grant_amount(g), 1);
    grant_free(g);
}
END_TEST

START_TEST(one_grant_per_container_and_resource)
{
    struct grants gs = {0};
    grants_put(&gs, made("u1", "a", IDS_MEM));
    grants_put(&gs, made("u1", "a", IDS_COUNT));
    grants_put(&gs, made("u1", "b", IDS_MEM));
    grants_put(&gs, made("u2", "a", IDS_MEM));
    ck_assert_uint_eq(gs.n, 4);
    struct grant *again = made("u1", "a", IDS_MEM);
    grants_put(&gs, again);
    ck_assert_uint_eq(gs.n, 4);
    ck_assert_ptr_eq(grants_find(&gs, SPAN("u1"), SPAN("a"), IDS_MEM), again);
    ck_assert_ptr_null(grants_find(&gs, SPAN("u2"), SPAN("b"), IDS_MEM));
    ck_assert_uint_eq(grants_drop(&gs, again), 1);
    ck_assert_uint_eq(grants_drop_pod(&gs, SPAN("u1")), 2);
    ck_assert_uint_eq(gs.n, 1);
    ck_assert_span_eq(gs.items[0]->uid, "u2");
    grants_fini(&gs);
}
END_TEST

static void sample(struct grants *gs)
{
    struct grant *g = made("u1", "init", IDS_MEM);
    static const int64_t units[] = {0, 1, 2, 7, 9, 10};
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        grant_add(g, SPAN("GPU-a"), 4, units[i]);
    grant_add(g, SPAN("GPU-b"), 5, 12);
    g->time_ns = 1700000000123456789;
    grants_put(gs, g);
    g = made("u2", "c", IDS_COUNT);
    grant_add(g, SPAN("GPU-c"), 6, -1);
    g->role = CONTAINER_APP;
    grants_put(gs, g);
}

START_TEST(the_state_file_has_a_fixed_form)
{
    struct grants gs = {0};
    cleanup_buf struct buf b = {0};
    sample(&gs);
    grants_write(&b, &gs, SPAN("n1"));
    ck_assert_str_eq(
        b.p,
        "{\"version\": 1, \"node\": \"n1\", \"grants\": [\n"
        "{\"uid\": \"u1\", \"namespace\": \"default\", \"pod\": \"p\\\"1\", "
        "\"container\": \"init\", \"role\": \"init\", \"resource\": "
        "\"aliyun.com/gpu-mem\", \"time\": 1700000000123456789, \"cards\": [{\"uuid\": "
        "\"GPU-a\", \"index\": 4, \"units\": \"0-2,7,9-10\"}, {\"uuid\": \"GPU-b\", "
        "\"index\": 5, \"units\": \"12\"}]},\n"
        "{\"uid\": \"u2\", \"namespace\": \"default\", \"pod\": \"p\\\"1\", "
        "\"container\": \"c\", \"role\": \"app\", \"resource\": "
        "\"aliyun.com/gpu-count\", "
        "\"time\": 0, \"cards\": [{\"uuid\": \"GPU-c\", \"index\": 6}]}\n"
        "]}\n");
    grants_fini(&gs);
}
END_TEST

START_TEST(what_was_written_is_read_back)
{
    struct grants gs = {0}, back = {0};
    struct err err = {0};
    cleanup_buf struct buf b = {0}, c = {0};
    sample(&gs);
    grants_write(&b, &gs, SPAN("n1"));
    ck_assert_done(grants_read(&back, buf_span(&b), SPAN("n1"), &err), err);
    grants_write(&c, &back, SPAN("n1"));
    ck_assert_str_eq(b.p, c.p);
    /* What is known already is not replaced. */
    const struct grant *first = back.items[0];
    ck_assert_done(grants_read(&back, buf_span(&b), SPAN("n1"), &err), err);
    ck_assert_ptr_eq(back.items[0], first);
    ck_assert_uint_eq(back.n, 2);
    grants_fini(&gs);
    grants_fini(&back);
}
END_TEST

START_TEST(a_damaged_state_file_is_said_and_changes_nothing)
{
    struct grants gs = {0};
    cleanup_buf struct buf good = {0};
    struct err err = {0};
    sample(&gs);
    grants_write(&good, &gs, SPAN("n1"));
    /* Cut off anywhere, or with any byte gone wrong: an error or the same, never a crash.
     */
    for (size_t i = 0; i + 2 < good.n; i++) {
        struct grants back = {0};
        ck_assert_int_eq(grants_read(&back, (struct span){good.p, i}, SPAN("n1"), &err),
                         -1);
        ck_assert_uint_eq(back.n, 0);
    }
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"version\": 1", "\"version\": 2", "version: 2"},
        {"\"n1\"", "\"n2\"", "it is that of node \"n2\""},
        {"0-2", "2-0", "cards cannot be read"},
        {"0-2", "a-2", "cards cannot be read"},
        {"0-2", "7-9", "cards cannot be read"}, /* twice */
        {"\"app\"", "\"ape\"", "are missing or unknown"},
        {"gpu-count", "gpu-counts", "are missing or unknown"},
        {"\"uid\"", "\"uie\"", "are missing or unknown"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grants back = {0};
        cleanup_buf struct buf b = {0};
        const char *at = strstr(good.p, cases[i].from);
        ck_assert_ptr_nonnull(at);
        buf_add(&b, good.p, (size_t)(at - good.p));
        buf_adds(&b, cases[i].to);
        buf_adds(&b, at + strlen(cases[i].from));
        ck_assert_int_eq(grants_read(&back, buf_span(&b), SPAN("n1"), &err), -1);
        ck_assert_msg(strstr(err.msg, cases[i].says) != NULL, "%s", err.msg);
        ck_assert_uint_eq(back.n, 0);
    }
    grants_fini(&gs);
}
END_TEST

START_TEST(a_state_file_that_no_node_can_have)
{
    struct grants gs = {0};
    struct err err = {0};
    cleanup_buf struct buf units = {0}, many = {0}, enough = {0};
    const char *head = "{\"version\":1,\"node\":\"n1\",\"grants\":[";
    /* Some hundred bytes that mean three million units. */
    buf_printf(&units,
               "%s{\"uid\":\"u\",\"container\":\"c\",\"role\":\"app\",\"resource\":"
               "\"aliyun.com/gpu-mem\",\"cards\":[",
               head);
    for (int i = 0; i < 3; i++)
        buf_printf(&units, "%s{\"uuid\":\"GPU-%d\",\"index\":0,\"units\":\"0-999999\"}",
                   i ? "," : "", i);
    buf_adds(&units, "]}]}");
    ck_assert_int_eq(grants_read(&gs, buf_span(&units), SPAN("n1"), &err), -1);
    ck_assert_msg(strstr(err.msg, "cards cannot be read") != NULL, "%s", err.msg);
    for (int i = 0; i <= GRANTS_MAX; i++) {
        buf_printf(&many,
                   "%s{\"uid\":\"u%d\",\"container\":\"c\",\"role\":\"app\","
                   "\"resource\":\"aliyun.com/gpu-count\",\"cards\":[]}",
                   i ? "," : head, i);
        if (i == GRANTS_MAX - 1)
            buf_add_span(&enough, buf_span(&many));
    }
    buf_adds(&many, "]}");
    buf_adds(&enough, "]}");
    ck_assert_int_eq(grants_read(&gs, buf_span(&many), SPAN("n1"), &err), -1);
    ck_assert_msg(strstr(err.msg, "more than a node can have") != NULL, "%s", err.msg);
    ck_assert_uint_eq(gs.n, 0);
    ck_assert_done(grants_read(&gs, buf_span(&enough), SPAN("n1"), &err), err);
    ck_assert_uint_eq(gs.n, GRANTS_MAX);
    grants_fini(&gs);
}
END_TEST

UNIT_MAIN("grants", a_grant_knows_its_units, one_grant_per_container_and_resource,
          the_state_file_has_a_fixed_form, what_was_written_is_read_back,
          a_damaged_state_file_is_said_and_changes_nothing,
          a_state_file_that_no_node_can_have)
