/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <jansson.h>

#include "lib/unit.h"

static struct fault check(struct faults *f, const char *method, const char *path)
{
    struct api_request req = {.method = method, .path = path, .query = ""};
    struct api_target target;
    ck_assert(api_classify(&req, &target));
    return faults_check(f, method, &target);
}

static enum fault_action bind_action(struct faults *f)
{
    return check(f, "POST", "/api/v1/namespaces/default/pods/p-1/binding").action;
}

static void add(struct faults *f, const char *rule)
{
    struct err err = {0};
    ck_assert_done(faults_add(f, span_of(rule), &err), err);
}

TEST(nth_fires_once)
{
    struct faults *f = faults_new();
    add(f, "{\"verb\":\"create\",\"resource\":\"pods\",\"subresource\":\"binding\","
           "\"nth\":3,\"action\":\"apply-cut\"}");
    ck_assert_int_eq(bind_action(f), FAULT_NONE);
    ck_assert_int_eq(check(f, "GET", "/api/v1/pods").action, FAULT_NONE);
    ck_assert_int_eq(check(f, "POST", "/api/v1/namespaces/default/pods").action,
                     FAULT_NONE);
    ck_assert_int_eq(bind_action(f), FAULT_NONE);
    ck_assert_int_eq(bind_action(f), FAULT_APPLY_CUT);
    ck_assert_int_eq(bind_action(f), FAULT_NONE);
    faults_free(f);
}

TEST(a_rule_fires_for_a_number_of_requests_or_always)
{
    struct faults *f = faults_new();
    add(f, "{\"nth\":2,\"times\":2,\"action\":\"cut\"}");
    enum fault_action want[] = {FAULT_NONE, FAULT_CUT, FAULT_CUT, FAULT_NONE};
    array_items(c, want)
        ck_assert_int_eq(bind_action(f), *c);
    faults_clear(f);
    add(f, "{\"action\":\"cut\"}");
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(bind_action(f), FAULT_CUT);
    faults_clear(f);
    ck_assert_int_eq(bind_action(f), FAULT_NONE);
    faults_free(f);
}

TEST(each_member_of_a_rule_restricts_its_matches)
{
    static const struct {
        const char *rule;
        bool hits;
    } cases[] = {
        {"{\"action\":\"cut\"}", true},
        {"{\"action\":\"cut\",\"method\":\"POST\"}", true},
        {"{\"action\":\"cut\",\"method\":\"GET\"}", false},
        {"{\"action\":\"cut\",\"verb\":\"create\"}", true},
        {"{\"action\":\"cut\",\"verb\":\"patch\"}", false},
        {"{\"action\":\"cut\",\"resource\":\"nodes\"}", false},
        {"{\"action\":\"cut\",\"subresource\":\"\"}", false},
        {"{\"action\":\"cut\",\"subresource\":\"binding\"}", true},
        {"{\"action\":\"cut\",\"namespace\":\"default\"}", true},
        {"{\"action\":\"cut\",\"namespace\":\"def\"}", false},
        {"{\"action\":\"cut\",\"name\":\"p-\"}", true},
        {"{\"action\":\"cut\",\"name\":\"q\"}", false},
    };
    array_items(c, cases) {
        struct faults *f = faults_new();
        add(f, c->rule);
        ck_assert_msg((bind_action(f) == FAULT_CUT) == c->hits, "%s", c->rule);
        faults_free(f);
    }
}

TEST(the_first_rule_that_fires_applies)
{
    struct faults *f = faults_new();
    add(f, "[{\"nth\":2,\"action\":\"answer\",\"status\":503,\"retryAfter\":1},"
           "{\"action\":\"hang\",\"hangMs\":20}]");
    ck_assert_int_eq(bind_action(f), FAULT_HANG);
    struct fault second = check(f, "GET", "/api/v1/pods");
    ck_assert_int_eq(second.action, FAULT_ANSWER);
    ck_assert_uint_eq(second.status, 503);
    ck_assert_int_eq(second.retry_after_s, 1);
    struct fault third = check(f, "GET", "/api/v1/pods");
    ck_assert_int_eq(third.action, FAULT_HANG);
    ck_assert_int_eq(third.hang_ms, 20);
    faults_free(f);
}

TEST(an_array_with_a_malformed_rule_is_refused_as_a_whole)
{
    static const char *const bad[] = {
        "",
        "5",
        "{}",
        "{\"action\":\"explode\"}",
        "{\"action\":\"cut\",\"nth\":0}",
        "{\"action\":\"cut\",\"nth\":\"3\"}",
        "{\"action\":\"cut\",\"status\":99}",
        "{\"action\":\"cut\",\"methd\":\"GET\"}",
        "{\"action\":\"cut\",\"resource\":5}",
        "[{\"action\":\"cut\"},{\"action\":\"explode\"}]",
        "[{\"action\":\"cut\"},5]",
    };
    struct faults *f = faults_new();
    array_items(c, bad) {
        struct err err = {0};
        ck_assert_msg(faults_add(f, span_of(*c), &err) == -1, "%s", *c);
        ck_assert_int_ne(err.msg[0], '\0');
    }
    ck_assert_int_eq(bind_action(f), FAULT_NONE);
    faults_free(f);
}

TEST(rules_and_counters_can_be_read)
{
    struct faults *f = faults_new();
    cleanup_buf struct buf out = {0};
    add(f, "{\"verb\":\"create\",\"nth\":2,\"action\":\"cut\"}");
    bind_action(f);
    bind_action(f);
    check(f, "GET", "/api/v1/nodes/n");
    faults_write(f, &out);
    json_t *j = json_loads(out.p, 0, NULL);
    json_t *rule = json_array_get(json_object_get(j, "rules"), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(rule, "matched")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(rule, "fired")), 1);
    json_decref(j);
    buf_clear(&out);
    faults_write_counters(f, &out);
    ck_assert_str_eq(
        out.p, "{\"requests\":[{\"method\":\"POST\",\"verb\":\"create\",\"resource\":"
               "\"pods\",\"group\":\"\",\"subresource\":\"binding\",\"count\":2},"
               "{\"method\":\"GET\",\"verb\":\"get\",\"resource\":\"nodes\","
               "\"group\":\"\",\"subresource\":\"\",\"count\":1}]}\n");
    faults_free(f);
}
