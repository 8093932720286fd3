/* SPDX-License-Identifier: Apache-2.0 */
#include "node/api.h"

#include "lib/unit.h"

static void request_is(enum publisher_output_type type, const char *method,
                       const char *path, const char *content_type)
{
    cleanup_arena struct arena a = {0};
    struct publisher_output o = {.type = type, .body = "{\"a\":1}"};
    struct kube_request r;
    api_request("n1", &o, &a, &r);
    ck_assert_str_eq(r.method, method);
    ck_assert_str_eq(r.path, path);
    ck_assert_pstr_eq(r.content_type, content_type);
    ck_assert_span_eq(r.body, "{\"a\":1}");
    ck_assert_int_eq(r.timeout_ms, PUBLISHER_CALL_MS);
}

#define MERGE "application/merge-patch+json"
#define SCVS  "/apis/core.run-linux.com/v1/scvs"
#define LEASE                                                                            \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"

TEST(each_call_has_its_request)
{
    request_is(PUBLISHER_CREATE, "POST", SCVS, NULL);
    request_is(PUBLISHER_PATCH, "PATCH", SCVS "/n1", MERGE);
    request_is(PUBLISHER_GET_NODE, "GET", "/api/v1/nodes/n1", NULL);
    request_is(PUBLISHER_CREATE_LEASE, "POST", LEASE, NULL);
    request_is(PUBLISHER_PATCH_LEASE, "PATCH", LEASE "/n1", MERGE);
}

static struct api_answer answer;
static struct arena arena;

static void answered(enum publisher_output_type type, unsigned status, int64_t retry_s,
                     const char *body)
{
    static struct buf copy;
    struct publisher_output o = {.type = type, .call = 5};
    buf_clear(&copy);
    buf_adds(&copy, body);
    struct httpc_reply reply = {.status = status, .body = copy, .retry_after_s = retry_s};
    arena_reset(&arena);
    api_answer(&o, &reply, NULL, &arena, &answer);
    ck_assert_uint_eq(answer.input.call, 5);
}

TEST(each_answer_is_an_input)
{
    answered(PUBLISHER_PATCH, 200, -1,
             "{\"metadata\":{\"name\":\"n1\",\"annotations\":{"
             "\"gpushare/message\":\"m\"}},\"spec\":{\"updateInterval\":9},"
             "\"status\":{\"cardList\":[{\"id\":3}]}}");
    ck_assert_span_eq(answer.input.object->meta.name, "n1");
    ck_assert_span_eq(answer.input.object->message, "m");
    ck_assert_int_eq(answer.input.object->interval_ms, 9);
    ck_assert_uint_eq(answer.input.object->scv.n_cards, 1);
    ck_assert_span_eq(answer.input.object->status, "{\"cardList\":[{\"id\":3}]}");
    /* A malformed status is written again. */
    answered(PUBLISHER_PATCH, 200, -1,
             "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"updateInterval\":"
             "\"x\"},\"status\":{\"cardList\":[{\"id\":-3}]}}");
    ck_assert_int_eq(answer.input.err->code, ERR_NONE);
    ck_assert_uint_eq(answer.input.object->scv.n_cards, 0);
    ck_assert_int_eq(answer.input.object->interval_ms, 0);
    answered(PUBLISHER_PATCH, 200, -1, "{\"metadata\":{\"name\":\"\"}}");
    ck_assert_int_eq(answer.input.err->code, ERR_INTERNAL);
    answered(PUBLISHER_PATCH, 200, -1, "7");
    ck_assert_int_eq(answer.input.err->code, ERR_INTERNAL);
    answered(PUBLISHER_PATCH, 200, -1, "<html>"); /* a login page */
    ck_assert_int_eq(answer.input.err->code, ERR_INVALID);
    answered(PUBLISHER_PATCH, 409, -1, "{}");
    ck_assert_int_eq(answer.input.err->code, ERR_CONFLICT);
    ck_assert_int_eq(answer.input.retry_after_ms, 0);
    answered(PUBLISHER_PATCH, 429, 3, "{}");
    ck_assert_int_eq(answer.input.retry_after_ms, 3000);
    answered(PUBLISHER_PATCH, 429, 100000, "{}");
    ck_assert_int_eq(answer.input.retry_after_ms, 60000);
}
