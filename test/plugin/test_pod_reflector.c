/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pod_reflector.h"

#include "domain/objects.h"

static struct pod_reflector reflector;
static struct buf received;

static void on_input(void *ctx, const struct alloc_input *in)
{
    (void)ctx;
    switch (in->type) {
    case ALLOC_IN_POD:
        buf_printf(&received, "seen %.*s %zu%s\n", SPAN_ARG(in->pod->uid),
                   in->pod->n_containers, in->pod->terminal ? " terminal" : "");
        pod_allocation_free(in->pod);
        break;
    case ALLOC_IN_POD_DELETED:
        buf_printf(&received, "deleted %.*s\n", SPAN_ARG(in->uid));
        break;
    default:
        buf_adds(&received, in->type == ALLOC_IN_LIST_ENDED ? "listed\n" : "list\n");
        break;
    }
}

static void on_invalid(void *ctx, const struct err *err)
{
    (void)ctx;
    buf_printf(&received, "fault %s\n", err->msg);
}

static void on_opened(void *ctx)
{
    (void)ctx;
}

static const struct pod_reflector_sink sink = {on_input, on_invalid, on_opened};

static void start(void)
{
    buf_clear(&received);
    buf_adds(&received, "");
    pod_reflector_init(&reflector, "n 1", 1024, &sink, NULL);
}

/* One request and its answer, delivered in pieces of `piece` bytes. Returns the delay of
 * the next request. The request's path must contain `path_has`. */
static int64_t turn(const char *path_has, unsigned status, const char *json, size_t piece,
                    const struct err *why, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    struct span body = quoted(&a, "%s", json);
    pod_reflector_request(&reflector, &a, &request);
    ck_assert_msg(strstr(request.path, path_has) != NULL, "%s", request.path);
    ck_assert_ptr_nonnull(strstr(request.path, "fieldSelector=spec.nodeName%3Dn%201"));
    if (status)
        list_watch_begin(&reflector.in, status, -1);
    for (size_t i = 0; i < body.n && status; i += piece)
        if (!list_watch_data(&reflector.in, body.p + i,
                             body.n - i < piece ? body.n - i : piece))
            break;
    return pod_reflector_end(&reflector, why, err);
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

START_TEST(a_paged_list_is_followed_by_a_watch)
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
        turn("resourceVersion=7", 200, "", piece, NULL,
             &err); /* version of the last event */
        ck_assert_str_eq(received.p,
                         "list\nseen u1 1\nseen u2 0 terminal\nlisted\nseen u3 1\n"
                         "deleted u1\n");
        pod_reflector_fini(&reflector);
    }
}
END_TEST

START_TEST(an_expired_version_is_relisted)
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
    ck_assert_str_eq(received.p, "list\nlisted\nlist\nseen u1 1\nlisted\n");
    pod_reflector_fini(&reflector);
}
END_TEST

/* A list that succeeds proves nothing about the watch after it. */
START_TEST(a_watch_that_always_gets_410_backs_off)
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
    pod_reflector_fini(&reflector);
}
END_TEST

START_TEST(a_broken_watch_resumes_at_its_version)
{
    struct err err, broke;
    err_set(&broke, ERR_UNAVAILABLE, "reset");
    start();
    turn("limit=", 200, LIST("5", "", ""), 100, NULL, &err);
    ck_assert_int_gt(turn("watch=1", 200, "{'type':'ADDED','obj", 100, &broke, &err), 0);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    turn("resourceVersion=5", 200, "{'type':'ADDED','object':" POD("u1", SPEC) "}", 100,
         NULL, &err);
    pod_reflector_relist(&reflector); /* a request needs a fresh list */
    turn("limit=", 200, LIST("9", "", ""), 100, NULL, &err);
    ck_assert_str_eq(received.p, "list\nlisted\nseen u1 1\nlist\nlisted\n");
    pod_reflector_fini(&reflector);
}
END_TEST

START_TEST(errors_are_retried_with_backoff)
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
    ck_assert_ptr_null(strstr(received.p, "listed"));
    pod_reflector_fini(&reflector);
}
END_TEST

START_TEST(an_invalid_pod_is_passed_on_without_containers)
{
    struct err err;
    start();
    turn("limit=", 200,
         LIST("5", "", POD("u1", "'spec':{'containers':7}") "," POD("u2", SPEC)), 100,
         NULL, &err);
    ck_assert_int_eq(err.code, ERR_NONE);
    ck_assert_ptr_nonnull(strstr(received.p,
                                 "fault pod d/p-u1: spec.containers: expected an "
                                 "array"));
    ck_assert_ptr_nonnull(strstr(received.p, "seen u1 0\nseen u2 1\nlisted\n"));
    pod_reflector_fini(&reflector);
}
END_TEST

UNIT_MAIN("pod_reflector", a_paged_list_is_followed_by_a_watch,
          an_expired_version_is_relisted, a_watch_that_always_gets_410_backs_off,
          a_broken_watch_resumes_at_its_version, errors_are_retried_with_backoff,
          an_invalid_pod_is_passed_on_without_containers)
