/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/api.h"

#include "lib/unit.h"

static void request_is(enum publisher_output_type type, const char *method,
                       const char *path, const char *content_type)
{
    cleanup_arena struct arena a = {0};
    struct publisher_output o = {
        .type = type, .run = 7, .version = "12", .body = "{\"a\":1}"};
    struct kube_request r;
    api_request("n1", &o, &a, &r);
    ck_assert_str_eq(r.method, method);
    ck_assert_str_eq(r.path, path);
    ck_assert_pstr_eq(r.content_type, content_type);
    ck_assert_span_eq(r.body, "{\"a\":1}");
    ck_assert_int_eq(r.timeout_ms, type == PUBLISHER_WATCH ? 0 : PUBLISHER_CALL_MS);
    ck_assert_int_eq(r.stall_ms, type == PUBLISHER_WATCH ? 90000 : 0);
}

#define MERGE "application/merge-patch+json"
#define SCVS  "/apis/core.run-linux.com/v1/scvs"
#define LEASE                                                                            \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"

TEST(each_call_has_its_request)
{
    request_is(PUBLISHER_WATCH, "GET",
               SCVS "?fieldSelector=metadata.name%3Dn1&watch=1&allowWatchBookmarks=true&"
                    "timeoutSeconds=57&resourceVersion=12",
               NULL);
    /* What comes from elsewhere cannot add to a request. */
    cleanup_arena struct arena a = {0};
    struct publisher_output o = {.type = PUBLISHER_WATCH, .version = "1&x=\r\n"};
    struct kube_request r;
    api_request("n1", &o, &a, &r);
    ck_assert_contains(r.path, "&resourceVersion=1%26x%3D%0D%0A");
    request_is(PUBLISHER_LIST, "GET", SCVS "?fieldSelector=metadata.name%3Dn1", NULL);
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
    answered(PUBLISHER_LIST, 200, -1, "{\"metadata\":{\"resourceVersion\":\"4\"}}");
    ck_assert_int_eq(answer.input.err->code, ERR_NONE);
    ck_assert_ptr_null(answer.input.object);
    ck_assert_span_eq(answer.input.version, "4");
    answered(PUBLISHER_LIST, 200, -1,
             "{\"items\":[{\"metadata\":{\"name\":\"n1\",\"annotations\":{"
             "\"gpushare/message\":\"m\"}},\"spec\":{\"updateInterval\":9},"
             "\"status\":{\"cardList\":[{\"id\":3}]}}]}");
    ck_assert_span_eq(answer.input.object->meta.name, "n1");
    ck_assert_span_eq(answer.input.object->message, "m");
    ck_assert_int_eq(answer.input.object->interval_ms, 9);
    ck_assert_uint_eq(answer.input.object->scv.n_cards, 1);
    ck_assert_span_eq(answer.input.object->status, "{\"cardList\":[{\"id\":3}]}");
    /* A malformed status is written again. */
    answered(PUBLISHER_LIST, 200, -1,
             "{\"items\":[{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"updateInterval\":"
             "\"x\"},\"status\":{\"cardList\":[{\"id\":-3}]}}]}");
    ck_assert_int_eq(answer.input.err->code, ERR_NONE);
    ck_assert_uint_eq(answer.input.object->scv.n_cards, 0);
    ck_assert_int_eq(answer.input.object->interval_ms, 0);
    answered(PUBLISHER_PATCH, 200, -1, "{\"metadata\":{\"name\":\"\"}}");
    ck_assert_int_eq(answer.input.err->code, ERR_INTERNAL);
    answered(PUBLISHER_PATCH, 200, -1, "<html>");
    ck_assert_int_eq(answer.input.err->code, ERR_INTERNAL);
    answered(PUBLISHER_PATCH, 409, -1, "{}");
    ck_assert_int_eq(answer.input.err->code, ERR_CONFLICT);
    ck_assert_int_eq(answer.input.retry_after_ms, -1);
    answered(PUBLISHER_PATCH, 429, 3, "{}");
    ck_assert_int_eq(answer.input.retry_after_ms, 3000);
    answered(PUBLISHER_PATCH, 429, 100000, "{}");
    ck_assert_int_eq(answer.input.retry_after_ms, 60000);
}

/* -- the watch -- */

static struct buf heard;

static void on_input(void *ctx, const struct publisher_input *in)
{
    (void)ctx;
    ck_assert_uint_eq(in->run, 7);
    if (in->type == PUBLISHER_OBJECT)
        buf_printf(&heard, "%s %.*s %zu\n", in->gone ? "gone" : "seen",
                   SPAN_ARG(in->object->meta.name), in->object->scv.n_cards);
    else if (in->type == PUBLISHER_WATCH_ALIVE)
        buf_printf(&heard, "alive %.*s\n", SPAN_ARG(in->version));
    else
        buf_printf(&heard, "ended %s %lld\n", err_code_name(in->err->code),
                   (long long)in->retry_after_ms);
}

/* All of a watch; the body in pieces of so many bytes. */
static void heard_is(unsigned status, const char *body, const struct err *why,
                     const char *want)
{
    for (size_t piece = 1; piece < 100; piece = piece * 3 + 1) {
        size_t n = strlen(body);
        bool go_on = true;
        buf_clear(&heard);
        struct api_feed *w = api_feed_new("n1", on_input, NULL);
        cleanup_arena struct arena a = {0};
        struct kube_request request;
        const struct list_watch_fns *fns = &api_feed_fns;
        fns->start(w, 0, &(struct list_watch_run){7, true, "1"});
        struct list_watch *in = fns->request(w, 0, &a, &request);
        if (status)
            list_watch_begin(in, status, status == 429 ? 100 : -1);
        for (size_t i = 0; i < n && status && go_on; i += piece)
            go_on = list_watch_data(in, body + i, n - i < piece ? n - i : piece);
        fns->end(w, 0, why);
        api_feed_free(w);
        ck_assert_str_eq(heard.p, want);
    }
}

#define OBJECT "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"updateInterval\":9}}"

TEST(each_event_is_an_input)
{
    heard_is(200,
             "{\"type\":\"ADDED\",\"object\":" OBJECT "}\n"
             "{\"object\":" OBJECT ",\"type\":\"DELETED\"}\n"
             "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":"
             "\"8\"}}}\n",
             NULL, "alive \nseen n1 0\ngone n1 0\nalive 8\nended ok -1\n");
    heard_is(200, "{\"type\":\"NEWS\",\"object\":7}\n", NULL, "alive \nended ok -1\n");
}

TEST(what_cannot_be_understood_ends_the_watch)
{
    static const char *const bad[] = {
        "{\"type\":\"ADDED\",\"object\":{}}\n", /* it has no name */
        "{\"type\":7,\"object\":" OBJECT "}\n",
        "[]\n",
        "7\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a/b\"}}}\n",
    };
    array_items(c, bad) {
        cleanup_free char *body =
            xasprintf("%s{\"type\":\"ADDED\",\"object\":" OBJECT "}\n", *c);
        heard_is(200, body, NULL, "alive \nended invalid -1\n");
    }
}

TEST(an_end_says_how)
{
    const struct err lost = {ERR_UNAVAILABLE, "the connection was lost"};
    heard_is(200,
             "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}\n",
             NULL, "alive \nended gone -1\n");
    heard_is(200, "{\"type\":\"ADDED\",\"obj", &lost, "alive \nended unavailable -1\n");
    heard_is(200, "{\"type\":\"ADDED\",\"obj", NULL, "alive \nended ok -1\n");
    heard_is(403, "{}", NULL, "ended forbidden -1\n");
    heard_is(429, "{}", NULL, "ended unavailable 60000\n");
    heard_is(0, "", &lost, "ended unavailable -1\n");
}
