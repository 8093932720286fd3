/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/pod_group.h"

#include "base/clock.h"
#include "lib/unit.h"

static struct buf paths;  /* that were requested, each with a space */
static const char *found; /* the object in the last version; NULL: there is none */
static unsigned status = 404;
static int64_t now_ms;

static int answer(void *ctx, const struct kube_request *request,
                  struct httpc_reply *reply, struct err *err)
{
    (void)ctx;
    buf_printf(&paths, "%s ", request->path);
    bool last = strstr(request->path, "volcano") ||
                (!strstr(request->path, "beta1") && !strstr(request->path, "alpha3"));
    *reply = (struct httpc_reply){.status = found && last ? 200 : status};
    buf_adds(&reply->body, found ? found : "");
    now_ms += 400;
    return kube_reply_check(reply->status, buf_span(&reply->body), err);
}

static int64_t read_clock(void)
{
    return now_ms;
}

static int read_group(enum gang_kind kind, const char *ns, struct span name,
                      const char *body, uint32_t *minimum, struct err *err)
{
    const struct pod_group_reader from = {answer, NULL, read_clock};
    const struct gang gang = {.kind = kind, .name = name, .group = SPAN("b")};
    buf_clear(&paths);
    buf_adds(&paths, "");
    found = body;
    return pod_group_read(&from, span_of(ns), &gang, 1000, minimum, err);
}

static void end(void)
{
    buf_fini(&paths);
}

#define POLICY(text)  "{\"spec\":{\"schedulingPolicy\":{" text "}}}"
#define MEMBERS(text) "{\"spec\":{\"minMember\":" text "}}"
#define GROUPS(text)  "{\"spec\":{\"podGroups\":" text "}}"
#define COUNT(n)      "\"gang\":{\"minCount\":" n "}"
static const struct {
    enum gang_kind kind;
    const char *body;
    uint32_t minimum;
    const char *invalid; /* the end of the message; NULL: it can be read */
} objects[] = {
    {GANG_POD_GROUP, POLICY(COUNT("3")), 3, NULL},
    {GANG_POD_GROUP, POLICY("\"basic\":{}"), 1, NULL},
    {GANG_POD_GROUP, POLICY("\"basic\":null," COUNT("3")), 3, NULL},
    {GANG_POD_GROUP, POLICY("\"gang\":{}"), 0, NULL},
    {GANG_POD_GROUP, POLICY("\"gang\":null"), 0, NULL},
    {GANG_POD_GROUP, POLICY("\"gang\":{\"minCount\":null}"), 0, NULL},
    {GANG_POD_GROUP, POLICY("\"other\":{\"minCount\":3}"), 0, NULL},
    {GANG_POD_GROUP, MEMBERS("3"), 0, NULL},
    {GANG_POD_GROUP, "{}", 0, NULL},
    {GANG_POD_GROUP, "{\"spec\":null}", 0, NULL},
    {GANG_POD_GROUP, NULL, 0, NULL},
    {GANG_WORKLOAD,
     GROUPS("[{\"name\":\"a\",\"policy\":{" COUNT("2") "}},{\"policy\":{" COUNT(
         "5") "},\"name\":\"b\"},{\"name\":\"c\",\"policy\":{\"basic\":{}}}]"),
     5, NULL},
    {GANG_WORKLOAD, GROUPS("[{\"name\":\"a\",\"policy\":{}}]"), 0, NULL},
    {GANG_WORKLOAD,
     GROUPS("[{\"name\":\"a\",\"policy\":{" COUNT("0") "}},{\"name\":\"b\"}]"), 0, NULL},
    {GANG_COSCHEDULING, MEMBERS("4"), 4, NULL},
    {GANG_COSCHEDULING,
     "{\"metadata\":{\"name\":\"\\u0000\"},\"spec\":{\"minMember\":4}}", 4, NULL},
    {GANG_COSCHEDULING, POLICY(COUNT("3")), 0, NULL},
    {GANG_COSCHEDULING, MEMBERS("null"), 0, NULL},
    {GANG_COSCHEDULING, MEMBERS("2147483647"), INT32_MAX, NULL},
    {GANG_COSCHEDULING, MEMBERS("1e3"), 1000, NULL},
    /* Tenants write these objects. "four" must not start one pod of a gang of four. */
    {GANG_COSCHEDULING, MEMBERS("0"), 99, "minMember: 0"},
    {GANG_COSCHEDULING, MEMBERS("-1"), 99, "minMember: -1"},
    {GANG_COSCHEDULING, MEMBERS("1.5"), 99, "minMember: 1.5"},
    {GANG_COSCHEDULING, MEMBERS("2147483648"), 99, "minMember: 2147483648"},
    {GANG_COSCHEDULING, MEMBERS("4294967297"), 99, "minMember: 4294967297"},
    {GANG_COSCHEDULING, MEMBERS("99999999999999999999"), 99, "minMember: 1e+20"},
    {GANG_COSCHEDULING, MEMBERS("\"four\""), 99, "minMember: \"four\""},
    {GANG_COSCHEDULING, MEMBERS("\"3\""), 99, "minMember: \"3\""},
    {GANG_COSCHEDULING, MEMBERS("\"\""), 99, "minMember: \"\""},
    {GANG_COSCHEDULING, MEMBERS("[3]"), 99, "minMember: [3.0]"},
    {GANG_COSCHEDULING, MEMBERS("{\"n\":3}"), 99, "minMember: {\"n\": 3.0}"},
    {GANG_COSCHEDULING, MEMBERS("true"), 99, "minMember: true"},
    {GANG_VOLCANO, MEMBERS("-1"), 99, "minMember: -1"},
    {GANG_VOLCANO, MEMBERS("4294967297"), 99, "minMember: 4294967297"},
    {GANG_POD_GROUP, POLICY(COUNT("0")), 99, "minCount: 0"},
    {GANG_POD_GROUP, POLICY(COUNT("\"four\"")), 99, "minCount: \"four\""},
    {GANG_POD_GROUP, POLICY("\"gang\":4"), 99, "gang: 4"},
    {GANG_POD_GROUP, POLICY("\"basic\":true"), 99, "basic: true"},
    {GANG_POD_GROUP, "{\"spec\":{\"schedulingPolicy\":[]}}", 99, "schedulingPolicy: []"},
    {GANG_WORKLOAD, GROUPS("[{\"name\":\"b\",\"policy\":{" COUNT("-1") "}}]"), 99,
     "minCount: -1"},
    {GANG_WORKLOAD, GROUPS("[{\"name\":\"b\",\"policy\":\"gang\"}]"), 99,
     "policy: \"gang\""},
    {GANG_WORKLOAD, GROUPS("{\"name\":\"b\"}"), 99, "podGroups: {\"name\": \"b\"}"},
    {GANG_COSCHEDULING, "{\"spec\":\"minMember\"}", 99, "spec: \"minMember\""},
};

TEST(an_object_says_how_many_members_wait_for_each_other)
{
    array_items(object, objects) {
        uint32_t minimum = 99;
        struct err err = {0};
        int rc = read_group(object->kind, "ns", SPAN("g"), object->body, &minimum, &err);
        ck_assert_msg(rc == (object->invalid ? -1 : 0), "%s: %s", object->body, err.msg);
        ck_assert_msg(minimum == object->minimum, "%s: %u", object->body, minimum);
        if (!object->invalid)
            continue;
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_msg(strstr(err.msg, object->invalid), "%s", err.msg);
        ck_assert_msg(strstr(err.msg, "ns/g: "), "%s", err.msg);
    }
}

/* It is what a proxy answers, and no word of the pod's owner. */
TEST(what_is_no_object_cannot_be_read)
{
    static const char *const bodies[] = {"{\"spec\":{\"minMember\":4}", "[]", "", "4",
                                         "<html>"};
    array_items(body, bodies) {
        uint32_t minimum = 99;
        struct err err = {0};
        ck_assert_int_eq(read_group(GANG_VOLCANO, "ns", SPAN("g"), *body, &minimum, &err),
                         -1);
        ck_assert_int_eq(err.code, ERR_INTERNAL);
        ck_assert_uint_eq(minimum, 99);
    }
}

TEST(each_version_has_a_path)
{
    uint32_t minimum;
    struct err err = {0};
    read_group(GANG_POD_GROUP, "ns", SPAN("g"), NULL, &minimum, &err);
    ck_assert_str_eq(paths.p,
                     "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups/g "
                     "/apis/scheduling.k8s.io/v1alpha3/namespaces/ns/podgroups/g "
                     "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups/g ");
    read_group(GANG_WORKLOAD, "ns", SPAN("w"), NULL, &minimum, &err);
    ck_assert_str_eq(paths.p,
                     "/apis/scheduling.k8s.io/v1alpha1/namespaces/ns/workloads/w ");
    read_group(GANG_KUEUE, "ns", SPAN("g"), NULL, &minimum, &err);
    ck_assert_str_eq(paths.p, "");
}

TEST(an_error_and_a_late_answer_change_nothing)
{
    uint32_t minimum = 99;
    struct err err = {0};
    status = 503;
    ck_assert_int_eq(read_group(GANG_POD_GROUP, "ns", SPAN("g"), NULL, &minimum, &err),
                     -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    status = 400; /* no word of the object */
    ck_assert_int_eq(read_group(GANG_POD_GROUP, "ns", SPAN("g"), NULL, &minimum, &err),
                     -1);
    ck_assert_int_eq(err.code, ERR_INTERNAL);
    status = 404;
    const struct pod_group_reader from = {answer, NULL, read_clock};
    const struct gang gang = {.kind = GANG_POD_GROUP, .name = SPAN("g")};
    ck_assert_int_eq(pod_group_read(&from, SPAN("ns"), &gang, 400, &minimum, &err), -1);
    ck_assert_int_eq(err.code, ERR_TIMEOUT); /* of the second version */
    ck_assert_uint_eq(minimum, 99);
}

/* Volcano's annotation is free text that a tenant writes. */
TEST(a_name_that_no_object_can_have_gets_no_path)
{
    static const struct span bad[] = {
        SPAN("g?watch=1"), SPAN("x%2F.."), SPAN(".."),  SPAN("."),   SPAN("a..b"),
        SPAN(".g"),        SPAN("g."),     SPAN("-g"),  SPAN("g-"),  SPAN("_g"),
        SPAN("g#f"),       SPAN("g&a"),    SPAN("g;a"), SPAN("g:a"), SPAN("g@a"),
        SPAN("g+a"),       SPAN("g,a"),    SPAN("g*"),  SPAN("g~"),  SPAN("g=a"),
        SPAN("\xc3\xa9"),  SPAN(""),       SPAN("g\0"), SPAN("a/b"), SPAN("../../pods/x"),
    };
    static const char *const good[] = {"g", "G1", "a.b-c_d", "0", "my-job-1f2e.v2"};
    uint32_t minimum;
    struct err err = {0};
    char most[254];
    memset(most, 'a', sizeof most);
    array_items(c, bad) {
        err.code = ERR_NONE;
        ck_assert_int_eq(read_group(GANG_VOLCANO, "ns", *c, NULL, &minimum, &err), -1);
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_msg(!paths.n, "%.*s", SPAN_ARG(*c));
    }
    read_group(GANG_VOLCANO, "a/b", SPAN("g"), NULL, &minimum, &err);
    ck_assert_uint_eq(paths.n, 0);
    read_group(GANG_VOLCANO, "ns", (struct span){most, 254}, NULL, &minimum, &err);
    ck_assert_uint_eq(paths.n, 0);
    read_group(GANG_VOLCANO, "ns", (struct span){most, 253}, NULL, &minimum, &err);
    ck_assert_uint_gt(paths.n, 0);
    array_items(g, good) {
        read_group(GANG_VOLCANO, "ns", span_of(*g), NULL, &minimum, &err);
        ck_assert_msg(strstr(paths.p, *g), "%s", *g);
    }
}

UNIT_MAIN_AROUND(NULL, end)
