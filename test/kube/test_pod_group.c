/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/pod_group.h"

#include <string.h>

#include "base/mem.h"
#include "lib/unit.h"

#define POLICY(text) "{\"spec\":{\"schedulingPolicy\":{" text "}}}"

static const struct gang native = {.kind = GANG_POD_GROUP, .name = {"g", 1}};
static const struct gang workload = {
    .kind = GANG_WORKLOAD, .name = {"w", 1}, .group = {"b", 1}};
static const struct gang coscheduling = {.kind = GANG_COSCHEDULING, .name = {"g", 1}};

static void expect(const struct gang *gang, const char *body, uint32_t minimum)
{
    ck_assert_msg(pod_group_minimum(span_of(body), gang) == minimum, "%s: %u, not %u",
                  body, pod_group_minimum(span_of(body), gang), minimum);
}

START_TEST(the_policy_of_a_pod_group_counts)
{
    expect(&native, POLICY("\"gang\":{\"minCount\":3}"), 3);
    expect(&native, POLICY("\"basic\":{}"), 1);
    expect(&native, POLICY("\"basic\":null,\"gang\":{\"minCount\":3}"), 3);
    expect(&native, POLICY("\"gang\":{}"), 0);
    expect(&native, POLICY("\"other\":{\"minCount\":3}"), 0);
    expect(&native, "{\"spec\":{\"minMember\":3}}", 0);
    expect(&native, "{}", 0);
}
END_TEST

START_TEST(the_group_of_a_workload_counts)
{
    expect(&workload,
           "{\"spec\":{\"podGroups\":[{\"name\":\"a\",\"policy\":{\"gang\":{\"minCount\":"
           "2}}},{\"policy\":{\"gang\":{\"minCount\":5}},\"name\":\"b\"},{\"name\":\"c\","
           "\"policy\":{\"basic\":{}}}]}}",
           5);
    expect(&workload, "{\"spec\":{\"podGroups\":[{\"name\":\"a\",\"policy\":{}}]}}", 0);
    expect(&workload, "{\"spec\":{\"podGroups\":{\"name\":\"b\"}}}", 0);
}
END_TEST

START_TEST(min_member_counts)
{
    expect(&coscheduling, "{\"kind\":\"PodGroup\",\"spec\":{\"minMember\":4}}", 4);
    expect(&coscheduling,
           "{\"metadata\":{\"name\":\"\\u0000\"},\"spec\":{\"minMember\":4}}", 4);
    expect(&coscheduling, POLICY("\"gang\":{\"minCount\":3}"), 0);
}
END_TEST

/* Tenants write these objects. */
START_TEST(hostile_numbers_are_unknown)
{
    static const char *const values[] = {
        "0",     "-1",  "2147483648", "1e9", "2.5", "99999999999999999999",
        "\"3\"", "[3]", "null",       "true"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        cleanup_buf struct buf body = {0};
        buf_printf(&body, "{\"spec\":{\"minMember\":%s}}", values[i]);
        expect(&coscheduling, body.p, 0);
        buf_clear(&body);
        buf_printf(&body, POLICY("\"gang\":{\"minCount\":%s}"), values[i]);
        expect(&native, body.p, 0);
    }
    expect(&coscheduling, "{\"spec\":{\"minMember\":2147483647}}", INT32_MAX);
    expect(&coscheduling, "{\"spec\":{\"minMember\":4}", 0);
    expect(&coscheduling, "[]", 0);
    expect(&coscheduling, "", 0);
}
END_TEST

START_TEST(each_version_has_a_path)
{
    cleanup_buf struct buf path = {0};
    ck_assert(pod_group_path(&path, SPAN("ns"), &native, 0));
    ck_assert_str_eq(path.p, "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups/g");
    ck_assert(pod_group_path(&path, SPAN("ns"), &native, 2));
    ck_assert(!pod_group_path(&path, SPAN("ns"), &native, 3));
    buf_clear(&path);
    ck_assert(pod_group_path(&path, SPAN("ns"), &workload, 0));
    ck_assert_str_eq(path.p,
                     "/apis/scheduling.k8s.io/v1alpha1/namespaces/ns/workloads/w");
    ck_assert(!pod_group_path(&path, SPAN("ns"), &workload, 1));
    ck_assert(!pod_group_path(&path, SPAN("a/b"), &workload, 0));
    ck_assert(!pod_group_path(&path, SPAN("ns"),
                              &(struct gang){.kind = GANG_KUEUE, .name = SPAN("g")}, 0));
    ck_assert(!pod_group_path(
        &path, SPAN("ns"),
        &(struct gang){.kind = GANG_VOLCANO, .name = SPAN("../../pods/x")}, 0));
}
END_TEST

/* Volcano's annotation is free text that a tenant writes. */
START_TEST(a_name_that_no_object_can_have_gets_no_path)
{
    static const char *const bad[] = {
        "g?watch=1", "g?",  "x%2F..", "x%2f", "..",       ".",   "a..b", ".g",
        "g.",        "-g",  "g-",     "_g",   "g#f",      "g&a", "g;a",  "g:a",
        "g@a",       "g+a", "g,a",    "g*",   "\xc3\xa9", "g~",  "g=a",  ""};
    static const char *const good[] = {"g", "G1", "a.b-c_d", "0", "my-job-1f2e.v2"};
    char most[256];
    memset(most, 'a', sizeof most);
    cleanup_buf struct buf path = {0};
    struct gang gang = {.kind = GANG_VOLCANO};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        gang.name = span_of(bad[i]);
        ck_assert_msg(!pod_group_path(&path, SPAN("ns"), &gang, 0), "%s", bad[i]);
        ck_assert(!pod_group_path(&path, gang.name, &native, 0));
    }
    gang.name = (struct span){"g\0", 2};
    ck_assert(!pod_group_path(&path, SPAN("ns"), &gang, 0));
    gang.name = (struct span){most, 254};
    ck_assert(!pod_group_path(&path, SPAN("ns"), &gang, 0));
    ck_assert_uint_eq(path.n, 0);
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        gang.name = span_of(good[i]);
        ck_assert_msg(pod_group_path(&path, SPAN("ns"), &gang, 0), "%s", good[i]);
    }
    gang.name = (struct span){most, 253};
    ck_assert(pod_group_path(&path, SPAN("ns"), &gang, 0));
}
END_TEST

UNIT_MAIN("pod_group", a_name_that_no_object_can_have_gets_no_path,
          the_policy_of_a_pod_group_counts, the_group_of_a_workload_counts,
          min_member_counts, hostile_numbers_are_unknown, each_version_has_a_path)
