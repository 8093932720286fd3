/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/calls.h"

#include "base/mem.h"
#include "support/unit.h"

static struct arena a;

START_TEST(a_binding_carries_uid_and_annotations_and_a_limit)
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
    call_request(&call, &a, &r);
    ck_assert_str_eq(r.method, "POST");
    ck_assert_str_eq(r.path, "/api/v1/namespaces/default/pods/p1/binding?timeout=3s");
    ck_assert_span_eq(
        r.body, "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":"
                "\"p1\",\"namespace\":\"default\",\"uid\":\"u-1\",\"annotations\":"
                "{\"k\":\"v\"}},\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\","
                "\"name\":\"n1\"}}");
    ck_assert_int_eq(r.delivery_ms, CORE_DELIVERY_MS);
    ck_assert_int_eq(r.send_by.mono_ms, 99);
    ck_assert_int_eq(r.send_by.offset_ms, 7);
    /* The client must not give up before the server can have answered. */
    ck_assert_int_ge(r.timeout_ms, CORE_BIND_LIMIT_MS);
}
END_TEST

START_TEST(the_other_calls)
{
    struct kube_request r;
    struct core_output get = {.type = CORE_CALL_GET_POD, .ns = "ns", .name = "p"};
    call_request(&get, &a, &r);
    ck_assert_str_eq(r.path, "/api/v1/namespaces/ns/pods/p"); /* consistent: no version */
    struct core_output lease = {
        .type = CORE_CALL_LEASE_GET, .ns = "kube-system", .name = "l"};
    call_request(&lease, &a, &r);
    ck_assert_str_eq(r.path,
                     "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l");
    lease.type = CORE_CALL_LEASE_WRITE;
    lease.body = "{}";
    call_request(&lease, &a, &r);
    ck_assert_str_eq(r.method, "PATCH"); /* keeps what others have put there */
    ck_assert_str_eq(r.content_type, "application/merge-patch+json");
    ck_assert_span_eq(r.body, "{}");
    lease.create = true;
    call_request(&lease, &a, &r);
    ck_assert_str_eq(r.method, "POST");
    ck_assert_str_eq(r.path,
                     "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
    struct core_output mark = {.type = CORE_CALL_WAKEUP, .node = "n1", .value = "t"};
    call_request(&mark, &a, &r);
    ck_assert_str_eq(r.method, "PATCH");
    ck_assert_str_eq(r.content_type, "application/merge-patch+json");
    ck_assert_span_eq(r.body, "{\"metadata\":{\"annotations\":{\"gpushare/room-since\":"
                              "\"t\"}}}");
}
END_TEST

START_TEST(answers_become_inputs)
{
    struct core_output call = {.type = CORE_CALL_GET_POD, .call = 5};
    struct call_answer answer;
    struct call_result ok = {.status = 200,
                             .body = SPAN("{\"metadata\":{\"name\":\"p\","
                                          "\"uid\":\"u\"}}")};
    call_answer(&call, &ok, &a, &answer);
    ck_assert_int_eq(answer.input.type, CORE_ANSWER);
    ck_assert_uint_eq(answer.input.call, 5);
    ck_assert_ptr_null(answer.input.err);
    ck_assert_span_eq(answer.input.pod->meta.uid, "u");

    struct call_result broken = {.status = 200, .body = SPAN("{\"metadata\":")};
    call_answer(&call, &broken, &a, &answer);
    ck_assert_int_eq(answer.input.err->code, ERR_INTERNAL);
    ck_assert_ptr_null(answer.input.pod);

    struct call_result absent = {.status = 404,
                                 .body = SPAN("{\"kind\":\"Status\","
                                              "\"message\":\"gone\"}")};
    call_answer(&call, &absent, &a, &answer);
    ck_assert_int_eq(answer.input.err->code, ERR_NOT_FOUND);
    ck_assert(!answer.input.not_sent);

    struct err why = {.code = ERR_UNAVAILABLE, .msg = "connection refused"};
    struct call_result none = {.status = 0, .why = &why};
    call_answer(&call, &none, &a, &answer);
    ck_assert(answer.input.not_sent);
    ck_assert_str_eq(answer.input.err->msg, "connection refused");
    none.sent = true;
    call_answer(&call, &none, &a, &answer);
    ck_assert(!answer.input.not_sent);
}
END_TEST

START_TEST(a_copy_of_an_output_stands_alone)
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

UNIT_MAIN("calls", a_binding_carries_uid_and_annotations_and_a_limit, the_other_calls,
          answers_become_inputs, a_copy_of_an_output_stands_alone)
