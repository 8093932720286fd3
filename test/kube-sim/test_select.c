/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"
#include "lib/unit.h"

static struct object *pod(const char *labels, const char *node)
{
    cleanup_json_value json_t *l = sim_jsonx_parse(span_of(labels), NULL);
    cleanup_json_value json_t *root =
        json_pack("{s:{s:s,s:s,s:O},s:{s:s}}", "metadata", "name", "p", "namespace", "ns",
                  "labels", l, "spec", "nodeName", node);
    return sim_object_new(sim_kind_by_resource(SPAN("pods")), root, 1);
}

/* 1: matches, 0: does not, -1: malformed. */
static int match(const char *labels, const char *fields, const char *have)
{
    struct selector s;
    struct object *o = pod(have, "n1");
    int rc = sim_selector_init(&s, o->kind, (struct span){NULL, 0}, span_of(labels),
                               span_of(fields), NULL);
    if (rc == 0)
        rc = sim_selector_match(&s, o);
    sim_selector_fini(&s);
    sim_object_unref(o);
    return rc;
}

START_TEST(label_selectors_match_as_in_kubernetes)
{
    static const struct {
        const char *selector;
        int x_is_1, x_is_empty, none; /* labels {"x":"1"}, {"x":""}, {} */
    } cases[] = {
        {"", 1, 1, 1},        {"x", 1, 1, 0},        {"!x", 0, 0, 1},
        {"x=1", 1, 0, 0},     {"x==1", 1, 0, 0},     {" x = 1 ", 1, 0, 0},
        {"x=", 0, 1, 0},      {"x!=1", 0, 1, 1},     {"x in (1)", -1, -1, -1},
        {"x>0", -1, -1, -1},  {"x,x=1", 1, 0, 0},    {"x=1,y", 0, 0, 0},
        {"x=1,!y", 1, 0, 0},  {"a.b/c!=d", 1, 1, 1}, {"x y", -1, -1, -1},
        {"!x=1", -1, -1, -1}, {"=1", -1, -1, -1},    {"x=1,", -1, -1, -1},
        {",x", -1, -1, -1},   {"x=1=2", -1, -1, -1}, {"x=-", -1, -1, -1},
        {"-x", -1, -1, -1},   {"x=1 2", -1, -1, -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *s = cases[i].selector;
        ck_assert_msg(match(s, "", "{\"x\":\"1\"}") == cases[i].x_is_1, "%s: 1", s);
        ck_assert_msg(match(s, "", "{\"x\":\"\"}") == cases[i].x_is_empty, "%s: \"\"", s);
        ck_assert_msg(match(s, "", "{}") == cases[i].none, "%s: none", s);
    }
}

START_TEST(field_selectors_accept_the_fields_of_the_kind)
{
    ck_assert_int_eq(match("", "spec.nodeName=n1", "{}"), 1);
    ck_assert_int_eq(match("", "spec.nodeName==n1", "{}"), 1);
    ck_assert_int_eq(match("", "spec.nodeName!=n1", "{}"), 0);
    ck_assert_int_eq(match("", "spec.nodeName!=n2,metadata.name=p", "{}"), 1);
    ck_assert_int_eq(match("", "spec.nodeName=n1,metadata.name=q", "{}"), 0);
    ck_assert_int_eq(match("", "metadata.namespace=ns", "{}"), 1);
    ck_assert_int_eq(match("", "spec.hostNetwork=false", "{}"), 1);
    ck_assert_int_eq(match("", "status.phase=", "{}"), 1);
    ck_assert_int_eq(match("", "spec.other=1", "{}"), -1);
    ck_assert_int_eq(match("", "spec.nodeName", "{}"), -1);
    ck_assert_int_eq(match("", "=", "{}"), -1);
}

START_TEST(a_namespace_must_match_completely)
{
    struct selector s;
    struct object *o = pod("{}", "");
    ck_assert_int_eq(sim_selector_init(&s, o->kind, SPAN("ns"), SPAN(""), SPAN(""), NULL),
                     0);
    ck_assert(sim_selector_match(&s, o));
    sim_selector_fini(&s);
    ck_assert_int_eq(sim_selector_init(&s, o->kind, SPAN("n"), SPAN(""), SPAN(""), NULL),
                     0);
    ck_assert(!sim_selector_match(&s, o));
    sim_selector_fini(&s);
    sim_object_unref(o);
}

START_TEST(queries_are_decoded)
{
    struct query q;
    int64_t n;
    sim_query_init(&q, "a=1&b=x%20y+z&c&d=&=e&a=2&bad=%zz%4&t=1m30s");
    ck_assert_span_eq(sim_query_get(&q, "a"), "1");
    ck_assert_span_eq(sim_query_get(&q, "b"), "x y z");
    ck_assert_span_eq(sim_query_get(&q, "bad"), "%zz%4");
    ck_assert(sim_query_has(&q, "c") && sim_query_bool(&q, "c") &&
              !sim_query_get(&q, "c").p);
    ck_assert(sim_query_bool(&q, "d") && !sim_query_bool(&q, "none"));
    ck_assert_int_eq(sim_query_int(&q, "a", 0, &n, NULL), 0);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(sim_query_int(&q, "b", 0, &n, NULL), -1);
    sim_query_fini(&q);
    static const struct {
        const char *query;
        int64_t ns; /* -1: refused */
    } times[] = {{"timeout=3s", 3000000000},
                 {"timeout=1m30s", 90000000000},
                 {"timeout=500ms", 500000000},
                 {"timeout=1.5us", 1500},
                 {"timeout=.5%C2%B5s2ns", 502},
                 {"timeout=%2B3s", 3000000000},
                 {"", 0},
                 {"timeout=0", 0},
                 {"timeout=-3s", 0},
                 {"timeout=-", -1},
                 {"timeout=3", -1},
                 {"timeout=s", -1},
                 {"timeout=.s", -1},
                 {"timeout=1s2", -1},
                 {"timeout=1x", -1},
                 {"timeout=99999999999999999999h", -1}};
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        sim_query_init(&q, times[i].query);
        int rc = sim_query_timeout_ns(&q, &n, NULL);
        ck_assert_msg(rc ? times[i].ns == -1 : n == times[i].ns, "%s", times[i].query);
        sim_query_fini(&q);
    }
}

START_TEST(paths_are_routed)
{
    static const struct {
        const char *path, *plural, *ns, *name, *sub; /* plural NULL: no resource */
    } cases[] = {
        {"/api/v1/nodes", "nodes", NULL, NULL, NULL},
        {"/api/v1/nodes/n", "nodes", NULL, "n", NULL},
        {"/api/v1/nodes/n/status", "nodes", NULL, "n", "status"},
        {"/api/v1/pods", "pods", NULL, NULL, NULL},
        {"/api/v1/namespaces/d/pods", "pods", "d", NULL, NULL},
        {"/api/v1/namespaces/d/pods/p/binding", "pods", "d", "p", "binding"},
        {"/api/v1/namespaces", "namespaces", NULL, NULL, NULL},
        {"/api/v1/namespaces/d", "namespaces", NULL, "d", NULL},
        {"/apis/core.run-linux.com/v1/scvs/s", "scvs", NULL, "s", NULL},
        {"/apis/coordination.k8s.io/v1/namespaces/d/leases", "leases", "d", NULL, NULL},
        {"/api/v1/pods/p", NULL, NULL, NULL, NULL},
        {"/api/v1/namespaces/d/nodes", NULL, NULL, NULL, NULL},
        {"/api/v1/namespaces//pods", NULL, NULL, NULL, NULL},
        {"/api/v1/namespaces/d/pods/", "pods", "d", NULL, NULL},
        {"/api/v1/nodes/n/", "nodes", NULL, "n", NULL},
        {"/api/v1/nodes//", NULL, NULL, NULL, NULL},
        {"/api/v1/nodes/n/a/b", NULL, NULL, NULL, NULL},
        {"/api/v1/namespaces/d/pods/p/a/b", NULL, NULL, NULL, NULL},
        {"/api/v2/nodes", NULL, NULL, NULL, NULL},
        {"/apis/apps/v1/nodes", NULL, NULL, NULL, NULL},
        {"/apis", NULL, NULL, NULL, NULL},
        {"/", NULL, NULL, NULL, NULL},
        {"", NULL, NULL, NULL, NULL},
        {"api/v1/nodes", NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route r = sim_route_parse(cases[i].path);
        ck_assert_msg(!r.kind == !cases[i].plural, "%s", cases[i].path);
        if (!r.kind)
            continue;
        ck_assert_str_eq(r.kind->plural, cases[i].plural);
        ck_assert_msg(span_eq(r.ns, span_of(cases[i].ns)), "%s", cases[i].path);
        ck_assert_msg(span_eq(r.name, span_of(cases[i].name)), "%s", cases[i].path);
        ck_assert_msg(span_eq(r.sub, span_of(cases[i].sub)), "%s", cases[i].path);
    }
}

START_TEST(continue_tokens_are_read_back)
{
    cleanup_buf struct buf text = {0};
    struct token t;
    sim_token_write(&text, 77, SPAN("default/p-1"));
    ck_assert(sim_token_read(buf_span(&text), &t));
    ck_assert_int_eq(t.rv, 77);
    ck_assert_uint_eq(t.start.n, strlen("default/p-1") + 1);
    ck_assert_str_eq(t.start.p, "default/p-1");
    ck_assert_int_gt(span_cmp(buf_span(&t.start), SPAN("default/p-1")), 0);
    buf_fini(&t.start);
    static const char *const bad[] = {"", "!", "e30", "bm9uc2Vuc2U", "eyJ2IjoxfQ"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ck_assert_msg(!sim_token_read(span_of(bad[i]), &t), "%s", bad[i]);
        buf_fini(&t.start);
    }
}

UNIT_MAIN("select", label_selectors_match_as_in_kubernetes,
          field_selectors_accept_the_fields_of_the_kind,
          a_namespace_must_match_completely, queries_are_decoded, paths_are_routed,
          continue_tokens_are_read_back)
