/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pod_reflector.h"

#include "base/clock.h"
#include "domain/objects.h"

static struct pod_reflector *reflector;
static struct buf received;
static const struct err *broken; /* the connection; NULL: it is not */
static struct err failure;       /* of the last request; code ERR_NONE: none */

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

static void begin(void)
{
    buf_set(&received, SPAN(""));
    reflector =
        pod_reflector_new(&(struct pod_reflector_settings){"n 1", 1024, on_input, NULL});
}

static void end(void)
{
    pod_reflector_free(reflector);
}

/* One request, whose path must contain `path_has`, and its answer in pieces of `piece` bytes;
 * status 0: none. Returns the milliseconds until the next request. */
static int64_t turn_in(size_t piece, const char *path_has, unsigned status,
                       const char *json)
{
    const struct list_watch_fns *fns = &pod_reflector_fns;
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    struct span body = quoted(&a, "%s", json);
    struct list_watch *in = fns->request(reflector, 0, &a, &request);
    ck_assert_contains(request.path, path_has);
    ck_assert_contains(request.path, "fieldSelector=spec.nodeName%3Dn%201");
    if (status)
        list_watch_begin(in, status, -1);
    for (size_t i = 0; i < body.n && status; i += piece)
        if (!list_watch_data(in, body.p + i, body.n - i < piece ? body.n - i : piece))
            break;
    int64_t before = clock_mono_ms();
    bool at_once = fns->end(reflector, 0, broken);
    const struct pod_reflector_status s = pod_reflector_status(reflector);
    failure = s.failure.failures ? s.failure.err : (struct err){0};
    return at_once ? 0 : s.due_ms - before;
}

static int64_t turn(const char *path_has, unsigned status, const char *json)
{
    return turn_in(100, path_has, status, json);
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
#define ADDED(uid) "{'type':'ADDED','object':" POD(uid, SPEC) "}"
#define GONE       "{'type':'ERROR','object':{'kind':'Status','code':410,'message':'too old'}}"

TEST(a_paged_list_is_followed_by_a_watch)
{
    for (size_t piece = 1; piece < 200; piece += 33) {
        ck_assert_int_eq(
            turn_in(piece, "limit=500", 200, LIST("5", "more", POD("u1", SPEC))), 0);
        ck_assert_int_eq(turn_in(piece, "continue=more", 200,
                                 LIST("5", "", POD("u2", "'status':{'phase':'Failed'}"))),
                         0);
        ck_assert_int_gt(
            turn_in(piece, "watch=1&allowWatchBookmarks=true", 200,
                    ADDED("u3") "{'type':'BOOKMARK','object':{'metadata':{"
                                "'resourceVersion':'7'}}}"
                                "{'type':'DELETED','object':" POD("u1", SPEC) "}"),
            0);
        ck_assert_int_eq(failure.code, ERR_NONE);
        turn_in(piece, "resourceVersion=7", 200, ""); /* version of the last event */
        ck_assert_str_eq(received.p,
                         "list\nseen u1 1\nseen u2 0 terminal\nlisted\nseen u3 1\n"
                         "deleted u1\n");
        end();
        begin();
    }
}

/* A list that succeeds proves nothing about the watch after it; an event does. */
TEST(an_expired_version_is_relisted_with_backoff)
{
    int64_t wait = 0, total = 0;
    for (int i = 0; i < 12; i++) {
        turn("limit=", 200, LIST("5", "", ""));
        wait = turn("resourceVersion=5", 200, GONE);
        ck_assert_int_eq(failure.code, ERR_GONE);
        total += wait;
    }
    ck_assert_int_ge(wait, 5000);
    ck_assert_int_ge(total, 30 * 1000);
    buf_clear(&received);
    turn("limit=", 200, LIST("9", "", POD("u1", SPEC)));
    ck_assert_int_lt(turn("watch=1", 200, ADDED("u2") GONE), 5000);
    ck_assert_str_eq(received.p, "list\nseen u1 1\nlisted\nseen u2 1\n");
}

TEST(a_broken_watch_and_an_older_version_need_a_list)
{
    struct err reset;
    err_set(&reset, ERR_UNAVAILABLE, "reset");
    turn("limit=", 200, LIST("5", "", ""));
    broken = &reset;
    ck_assert_int_gt(turn("watch=1", 200, "{'type':'ADDED','obj"), 0);
    ck_assert_int_eq(failure.code, ERR_UNAVAILABLE);
    broken = NULL;
    turn("limit=", 200, LIST("4", "", "")); /* the API server may have been restored */
    turn("resourceVersion=4", 200, ADDED("u1"));
    pod_reflector_relist(reflector); /* a request needs a fresh list */
    turn("limit=", 200, LIST("9", "", ""));
    ck_assert_str_eq(received.p, "list\nlisted\nlist\nlisted\nseen u1 1\nlist\nlisted\n");
    turn("resourceVersion=9", 200, ADDED("u1")); /* 7 */
    turn("limit=", 200, LIST("8", "", ""));
}

/* An API server that restarts breaks the watches of all nodes at the same time. */
TEST(lists_after_a_broken_watch_are_spread)
{
    struct err reset;
    int64_t least = INT64_MAX, most = 0;
    err_set(&reset, ERR_UNAVAILABLE, "reset");
    for (int i = 0; i < 30; i++) {
        turn("limit=", 200, LIST("5", "", ""));
        broken = &reset;
        int64_t wait = turn("watch=1", 200, ADDED("u1"));
        broken = NULL;
        least = wait < least ? wait : least;
        most = wait > most ? wait : most;
    }
    ck_assert_int_lt(least, 2000);
    ck_assert_int_gt(most, 8000);
    ck_assert_int_le(most, 10 * 1000);
}

TEST(errors_are_retried_with_backoff)
{
    int64_t last = 0;
    for (int i = 0; i < 12; i++) {
        int64_t wait = turn("limit=", 403, "{'kind':'Status','message':'not you'}");
        ck_assert_int_eq(failure.code, ERR_FORBIDDEN);
        ck_assert_contains(failure.msg, "not you");
        ck_assert_int_ge(wait, last < 5000 ? last : 5000);
        ck_assert_int_lt(wait, 15000);
        last = wait / 2; /* of a wait at most half is random */
    }
    ck_assert_int_gt(turn("limit=", 0, ""), 0);
    ck_assert_int_eq(failure.code, ERR_UNAVAILABLE);
    ck_assert_int_gt(turn("limit=", 200, "{'items':[{'metadata'"), 0);
    ck_assert_int_ne(failure.code, ERR_NONE);
    /* The next page of a list that failed is its first one. */
    turn("limit=", 200, LIST("5", "more", ""));
    turn("continue=more", 500, "");
    ck_assert_lacks(received.p, "listed");
    buf_clear(&received);
    turn("limit=", 410, "");
    ck_assert_str_eq(received.p, "list\n");
}

TEST(an_invalid_pod_is_passed_on_without_containers)
{
    turn("limit=", 200,
         LIST("5", "", POD("u1", "'spec':{'containers':7}") "," POD("u2", SPEC)));
    ck_assert_int_eq(failure.code, ERR_NONE);
    ck_assert_str_eq(received.p, "list\nseen u1 0\nseen u2 1\nlisted\n");
}

UNIT_MAIN_AROUND(begin, end)
