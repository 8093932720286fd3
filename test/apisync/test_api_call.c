/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/apisync.h"

#include "base/mem.h"
#include "lib/unit.h"

static struct arena a;

START_TEST(a_binding_has_uid_annotations_and_a_time_limit)
{
    struct core_output call = {.type = CORE_CALL_BIND,
                               .call = 3,
                               .ns = "default",
                               .name = "p1",
                               .uid = "u-1",
                               .node = "n1",
                               .annotations = "{\"k\":\"v\"}",
                               .send_by = {99, 7}};
    struct kube_request r;
    apisync_call(&call, &a, &r);
    ck_assert_str_eq(r.method, "POST");
    ck_assert_str_eq(r.path, "/api/v1/namespaces/default/pods/p1/binding?timeout=3s");
    ck_assert_span_eq(
        r.body, "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":"
                "\"p1\",\"namespace\":\"default\",\"uid\":\"u-1\",\"annotations\":"
                "{\"k\":\"v\"}},\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\","
                "\"name\":\"n1\"}}");
    ck_assert_int_eq(r.tcp_user_timeout_ms, CORE_DELIVERY_MS);
    ck_assert_int_eq(r.send_by.mono_ms, 99);
    ck_assert_int_eq(r.send_by.offset_ms, 7);
    /* The client timeout must exceed the server's time limit. */
    ck_assert_int_ge(r.timeout_ms, CORE_BIND_LIMIT_MS);
}
END_TEST

START_TEST(requests_of_the_other_calls)
{
    struct kube_request r;
    struct core_output get = {.type = CORE_CALL_GET_POD, .ns = "ns", .name = "p"};
    apisync_call(&get, &a, &r);
    ck_assert_str_eq(
        r.path, "/api/v1/namespaces/ns/pods/p"); /* consistent read: no resourceVersion */
    struct core_output lease = {
        .type = CORE_CALL_LEASE_GET, .ns = "kube-system", .name = "l"};
    apisync_call(&lease, &a, &r);
    ck_assert_str_eq(r.path,
                     "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l");
    lease.type = CORE_CALL_LEASE_WRITE;
    lease.body = "{}";
    apisync_call(&lease, &a, &r);
    ck_assert_str_eq(r.method, "PATCH"); /* keeps members of other writers */
    ck_assert_str_eq(r.content_type, "application/merge-patch+json");
    ck_assert_span_eq(r.body, "{}");
    lease.create = true;
    apisync_call(&lease, &a, &r);
    ck_assert_str_eq(r.method, "POST");
    ck_assert_str_eq(r.path,
                     "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
    struct core_output mark = {.type = CORE_CALL_WAKEUP, .node = "n1", .value = "t"};
    apisync_call(&mark, &a, &r);
    ck_assert_str_eq(r.method, "PATCH");
    ck_assert_str_eq(r.content_type, "application/merge-patch+json");
    ck_assert_span_eq(r.body, "{\"metadata\":{\"annotations\":{\"gpushare/room-since\":"
                              "\"t\"}}}");
}
END_TEST

START_TEST(a_nomination_and_an_eviction_name_the_uid)
{
    struct kube_request r;
    struct core_output call = {.type = CORE_CALL_NOMINATE,
                               .ns = "ns",
                               .name = "p",
                               .uid = "u-1",
                               .node = "n1",
                               .send_by = {99, 7}};
    apisync_call(&call, &a, &r);
    ck_assert_str_eq(r.method, "PATCH");
    ck_assert_str_eq(r.path, "/api/v1/namespaces/ns/pods/p/status");
    ck_assert_str_eq(r.content_type, "application/merge-patch+json");
    ck_assert_span_eq(r.body, "{\"metadata\":{\"uid\":\"u-1\"},\"status\":{"
                              "\"nominatedNodeName\":\"n1\"}}");
    ck_assert_int_eq(r.send_by.mono_ms, 99);
    call.node = NULL;
    apisync_call(&call, &a, &r);
    ck_assert_span_eq(r.body, "{\"metadata\":{\"uid\":\"u-1\"},\"status\":{"
                              "\"nominatedNodeName\":null}}");
    call.type = CORE_CALL_EVICT;
    ck_assert(apisync_is_call(&call));
    apisync_call(&call, &a, &r);
    ck_assert_str_eq(r.method, "POST");
    ck_assert_str_eq(r.path, "/api/v1/namespaces/ns/pods/p/eviction");
    ck_assert_span_eq(r.body,
                      "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{"
                      "\"name\":\"p\",\"namespace\":\"ns\"},\"deleteOptions\":{"
                      "\"preconditions\":{\"uid\":\"u-1\"}}}");
    ck_assert_int_eq(r.send_by.mono_ms, 99);
}
END_TEST

/* The answers of kube-apiserver 1.37 to an eviction. */
START_TEST(a_disruption_budget_is_not_an_overload)
{
    struct core_output call = {.type = CORE_CALL_EVICT, .call = 5};
    struct apisync_answer answer;
    struct apisync_result budget = {
        .status = 429,
        .body = SPAN(
            "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"Cannot evict pod "
            "as "
            "it would violate the pod's disruption budget.\",\"reason\":"
            "\"TooManyRequests\",\"details\":{\"causes\":[{\"reason\":"
            "\"DisruptionBudget\",\"message\":\"The disruption budget b needs 1 healthy "
            "pods and has 1 currently\"}]},\"code\":429}")};
    apisync_answer(&call, &budget, &a, &answer);
    ck_assert(answer.input.disruption_budget);
    ck_assert_int_eq(answer.input.retry_after_ms, -1);

    struct apisync_result overload = {.status = 429,
                                       .retry_after_s = 2,
                                       .body = SPAN("{\"kind\":\"Status\",\"details\":{"
                                                    "\"retryAfterSeconds\":2}}")};
    apisync_answer(&call, &overload, &a, &answer);
    ck_assert(!answer.input.disruption_budget);
    ck_assert_int_eq(answer.input.retry_after_ms, 2000);

    static const char *const odd[] = {"", "Too many requests", "{\"details\":null}",
                                      "{\"details\":{\"causes\":[3]}}",
                                      "{\"details\":{\"causes\":[{\"reason\":7}]}}"};
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        struct apisync_result other = {.status = 429, .body = span_of(odd[i])};
        apisync_answer(&call, &other, &a, &answer);
        ck_assert(!answer.input.disruption_budget);
        ck_assert_int_eq(answer.input.err->code, ERR_UNAVAILABLE);
    }
}
END_TEST

START_TEST(answers_become_inputs)
{
    struct core_output call = {.type = CORE_CALL_GET_POD, .call = 5};
    struct apisync_answer answer;
    struct apisync_result ok = {.status = 200,
                                 .body = SPAN("{\"metadata\":{\"name\":\"p\","
                                              "\"uid\":\"u\"}}")};
    apisync_answer(&call, &ok, &a, &answer);
    ck_assert_int_eq(answer.input.type, CORE_ANSWER);
    ck_assert_uint_eq(answer.input.call, 5);
    ck_assert_ptr_null(answer.input.err);
    ck_assert_span_eq(answer.input.pod->meta.uid, "u");

    struct apisync_result broken = {.status = 200, .body = SPAN("{\"metadata\":")};
    apisync_answer(&call, &broken, &a, &answer);
    ck_assert_int_eq(answer.input.err->code, ERR_INTERNAL);
    ck_assert_ptr_null(answer.input.pod);

    struct apisync_result absent = {.status = 404,
                                     .body = SPAN("{\"kind\":\"Status\","
                                                  "\"message\":\"gone\"}")};
    apisync_answer(&call, &absent, &a, &answer);
    ck_assert_int_eq(answer.input.err->code, ERR_NOT_FOUND);
    ck_assert(!answer.input.not_sent);

    struct err why = {.code = ERR_UNAVAILABLE, .msg = "connection refused"};
    struct apisync_result none = {.status = 0, .why = &why};
    apisync_answer(&call, &none, &a, &answer);
    ck_assert(answer.input.not_sent);
    ck_assert_str_eq(answer.input.err->msg, "connection refused");
    none.sent = true;
    apisync_answer(&call, &none, &a, &answer);
    ck_assert(!answer.input.not_sent);
}
END_TEST

START_TEST(a_copied_output_owns_its_strings)
{
    char ns[] = "default", text[] = "why";
    struct core_output o = {.type = CORE_REPLY, .token = 9, .ns = ns, .text = text};
    cleanup_free struct core_output *copy = core_output_dup(&o);
    memset(ns, 'x', sizeof ns - 1);
    memset(text, 'x', sizeof text - 1);
    ck_assert_str_eq(copy->ns, "default");
    ck_assert_str_eq(copy->text, "why");
    ck_assert_ptr_null(copy->uid);
    ck_assert_uint_eq(copy->token, 9);
}
END_TEST

UNIT_MAIN("api_call", a_binding_has_uid_annotations_and_a_time_limit,
          requests_of_the_other_calls, a_nomination_and_an_eviction_name_the_uid,
          a_disruption_budget_is_not_an_overload, answers_become_inputs,
          a_copied_output_owns_its_strings)
