/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/podfeed.h"

#include "domain/objects.h"

static struct podfeed feed;
static struct buf heard;

static void on_seen(void *ctx, struct plan *plan)
{
    (void)ctx;
    buf_printf(&heard, "seen %.*s %zu%s\n", SPAN_ARG(plan->uid), plan->n_containers,
               plan->over ? " over" : "");
    plan_free(plan);
}

static void on_gone(void *ctx, struct span uid)
{
    (void)ctx;
    buf_printf(&heard, "gone %.*s\n", SPAN_ARG(uid));
}

static void on_list(void *ctx, bool ended)
{
    (void)ctx;
    buf_adds(&heard, ended ? "listed\n" : "list\n");
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    buf_printf(&heard, "fault %s\n", err->msg);
}

static const struct podfeed_sink sink = {on_seen, on_gone, on_list, on_fault};

static void start(void)
{
    buf_clear(&heard);
    buf_adds(&heard, "");
    podfeed_init(&feed, "n 1", 1024, &sink, NULL);
}

/* One request and its answer; the body in pieces of so many bytes. Returns when the next
 * one is due; the path is checked for a part. */
static int64_t turn(const char *path_has, unsigned status, const char *json, size_t piece,
                    const struct err *why, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    struct span body = quoted(&a, "%s", json);
    podfeed_request(&feed, &a, &request);
    ck_assert_msg(strstr(request.path, path_has) != NULL, "%s", request.path);
    ck_assert_ptr_nonnull(strstr(request.path, "fieldSelector=spec.nodeName%3Dn%201"));
    if (status)
        podfeed_begin(&feed, status, -1);
    for (size_t i = 0; i < body.n && status; i += piece)
        if (!podfeed_data(&feed, body.p + i, body.n - i < piece ? body.n - i : piece))
            break;
    return podfeed_end(&feed, why, err);
}

#define POD(uid, rest)                                                                   \
    "{'metadata':{'name':'p-" uid "','namespace':'d','uid':'" uid                        \
    "','resourceVersion':'7'}," rest "}"
#define SPEC                                                                             \
    "'spec':{'containers':[{'name':'a','resources':{'limits':{'" KEY_GPU_MEM "':'1'}}}]" \
    "}"
#define LIST(version, next, items)                                                       \
    "{'kind':'PodList','metadata':{'resourceVersion':'" version "','continue':'" next    \
    "'},'items':[" items "]}"

START_TEST(pages_and_then_a_watch)
{
    struct err err;
    for (size_t piece = 1; piece < 200; piece += 33) {
        start();
        ck_assert_int_eq(
            turn("limit=500", 200, LIST("5", "more", POD("u1", SPEC)), piece, NULL, &err),
            0);
        ck_assert_int_eq(turn("continue=more", 200,
                              LIST("5", "", POD("u2", "'status':{'phase':'Failed'}")),
                              piece, NULL, &err),
                         0);
        ck_assert_int_gt(
            turn("watch=1&allowWatchBookmarks=true", 200,
                 "{'type':'ADDED','object':" POD(
                     "u3", SPEC) "}"
                                 "{'type':'BOOKMARK','object':{'metadata':{'"
                                 "resourceVersion':'99'}}}"
                                 "{'type':'DELETED','object':" POD("u1", SPEC) "}",
                 piece, NULL, &err),
            0);
        ck_assert_int_eq(err.code, ERR_NONE);
        turn("resourceVersion=7", 200, "", piece, NULL, &err); /* of the last event */
        ck_assert_str_eq(heard.p, "list\nseen u1 1\nseen u2 0 over\nlisted\nseen u3 1\n"
                                  "gone u1\n");
        podfeed_fini(&feed);
    }
}
END_TEST

START_TEST(a_version_that_is_gone_is_listed_anew)
{
    struct err err;
    start();
    turn("limit=", 200, LIST("5", "", ""), 100, NULL, &err);
    ck_assert_int_gt(turn("resourceVersion=5", 200,
                          "{'type':'ERROR','object':{'kind':'Status','code':410,"
                          "'message':'too old'}}",
                          100, NULL, &err),
                     0);
    ck_assert_int_eq(err.code, ERR_GONE);
    turn("limit=", 200, LIST("9", "", POD("u1", SPEC)), 100, NULL, &err);
    ck_assert_str_eq(heard.p, "list\nlisted\nlist\nseen u1 1\nlisted\n");
    podfeed_fini(&feed);
}
END_TEST

/* A list that succeeds proves nothing about the watch after it. */
START_TEST(a_watch_that_always_gets_410_does_not_list_at_full_speed)
{
    struct err err;
    int64_t wait = 0, total = 0;
    start();
    for (int i = 0; i < 12; i++) {
        turn("limit=", 200, LIST("5", "", ""), 100, NULL, &err);
        wait = turn("watch=1", 200,
                    "{'type':'ERROR','object':{'kind':'Status','code':410,"
                    "'message':'too old'}}",
                    100, NULL, &err);
        total += wait;
    }
    ck_assert_int_ge(wait, 5000);
    ck_assert_int_ge(total, 30 * 1000);
    /* An event proves that the watch works. */
    turn("limit=", 200, LIST("5", "", ""), 100, NULL, &err);
    wait = turn("watch=1", 200,
                "{'type':'ADDED','object':" POD(
                    "u1", SPEC) "}"
                                "{'type':'ERROR','object':{'kind':'Status','code':410}}",
                100, NULL, &err);
    ck_assert_int_le(wait, 250);
    podfeed_fini(&feed);
}
END_TEST

START_TEST(a_connection_that_broke_is_taken_up)
{
    struct err err, broke;
    err_set(&broke, ERR_UNAVAILABLE, "reset");
    start();
    turn("limit=", 200, LIST("5", "", ""), 100, NULL, &err);
    ck_assert_int_gt(turn("watch=1", 200, "{'type':'ADDED','obj", 100, &broke, &err), 0);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    turn("resourceVersion=5", 200, "{'type':'ADDED','object':" POD("u1", SPEC) "}", 100,
         NULL, &err);
    podfeed_anew(&feed); /* somebody presses for news */
    turn("limit=", 200, LIST("9", "", ""), 100, NULL, &err);
    ck_assert_str_eq(heard.p, "list\nlisted\nseen u1 1\nlist\nlisted\n");
    podfeed_fini(&feed);
}
END_TEST

START_TEST(what_is_refused_is_tried_with_patience)
{
    struct err err;
    int64_t last = 0;
    start();
    for (int i = 0; i < 12; i++) {
        int64_t wait =
            turn("limit=", 403, "{'kind':'Status','message':'not you'}", 100, NULL, &err);
        ck_assert_int_eq(err.code, ERR_FORBIDDEN);
        ck_assert_msg(strstr(err.msg, "not you") != NULL, "%s", err.msg);
        ck_assert_int_ge(wait, last < 5000 ? last : 5000);
        ck_assert_int_le(wait, 10000);
        last = wait;
    }
    ck_assert_int_gt(turn("limit=", 0, "", 1, NULL, &err), 0);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    ck_assert_int_gt(turn("limit=", 200, "{'items':[{'metadata'", 5, NULL, &err), 0);
    ck_assert_int_ne(err.code, ERR_NONE);
    ck_assert_ptr_null(strstr(heard.p, "listed"));
    podfeed_fini(&feed);
}
END_TEST

START_TEST(a_pod_with_a_fault_is_known_all_the_same)
{
    struct err err;
    start();
    turn("limit=", 200,
         LIST("5", "", POD("u1", "'spec':{'containers':7}") "," POD("u2", SPEC)), 100,
         NULL, &err);
    ck_assert_int_eq(err.code, ERR_NONE);
    ck_assert_ptr_nonnull(strstr(heard.p,
                                 "fault pod d/p-u1: spec.containers: expected an "
                                 "array"));
    ck_assert_ptr_nonnull(strstr(heard.p, "seen u1 0\nseen u2 1\nlisted\n"));
    podfeed_fini(&feed);
}
END_TEST

UNIT_MAIN("podfeed", pages_and_then_a_watch, a_version_that_is_gone_is_listed_anew,
          a_watch_that_always_gets_410_does_not_list_at_full_speed,
          a_connection_that_broke_is_taken_up, what_is_refused_is_tried_with_patience,
          a_pod_with_a_fault_is_known_all_the_same)
