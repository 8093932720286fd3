/* SPDX-License-Identifier: Apache-2.0 */
#include "node/calls.h"

#include "base/clock.h"
#include "domain/objects.h"

/* The watch of the node's pods. When it lists and watches, test/domain/test_reflector tests. */

static struct informer *watch;
static struct buf received;
static int64_t now_ms;

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return now_ms;
}

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
    now_ms = 1000000;
    buf_set(&received, SPAN(""));
    static struct pods_settings settings = {
        .node = "n 1", .unit_mib = 1024, .input = on_input};
    watch = pods_informer_new(&settings, NULL);
}

static void end(void)
{
    informer_free(watch);
}

/* Waits until a request is due. Returns for how long. */
static int64_t wait(void)
{
    int64_t from = now_ms, ms;
    while ((ms = informer_fns.tick(watch)) < 1000000)
        now_ms += ms;
    return now_ms - from;
}

/* The next page of a list, or what is due: its path must contain `path_has`. Its answer in pieces
 * of `piece` bytes; status 0: none. Returns whether the list has another page. */
static bool more;
static void turn_in(size_t piece, const char *path_has, unsigned status, const char *json)
{
    static const struct err reset = {ERR_UNAVAILABLE, "reset"};
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    struct span body = quoted(&a, "%s", json);
    if (!more) {
        wait();
        informer_fns.start(watch, 0, NULL);
    }
    struct list_watch *in = informer_fns.request(watch, 0, &a, &request);
    ck_assert_contains(request.path, path_has);
    ck_assert_contains(request.path, "fieldSelector=spec.nodeName%3Dn%201");
    if (status)
        list_watch_begin(in, status, status == 429 ? 20 : -1);
    for (size_t i = 0; i < body.n && status; i += piece)
        if (!list_watch_data(in, body.p + i, body.n - i < piece ? body.n - i : piece))
            break;
    more = informer_fns.end(watch, 0, status ? NULL : &reset);
}

static void turn(const char *path_has, unsigned status, const char *json)
{
    turn_in(100, path_has, status, json);
}

static enum err_code failure(void)
{
    const struct step_failure f = informer_status(watch).failure;
    return f.failures ? f.err.code : ERR_NONE;
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
        turn_in(piece, "limit=500", 200, LIST("5", "more", POD("u1", SPEC)));
        ck_assert(more);
        turn_in(piece, "continue=more", 200,
                LIST("5", "", POD("u2", "'status':{'phase':'Failed'}")));
        ck_assert(!more);
        ck_assert_int_eq(wait(), 0);
        turn_in(piece, "watch=1&allowWatchBookmarks=true", 200,
                ADDED("u3") "{'type':'BOOKMARK','object':{'metadata':{"
                            "'resourceVersion':'7'}}}"
                            "{'type':'DELETED','object':" POD("u1", SPEC) "}");
        ck_assert_int_eq(failure(), ERR_NONE);
        turn_in(piece, "resourceVersion=7", 200, ""); /* version of the last event */
        ck_assert_str_eq(received.p,
                         "list\nseen u1 1\nseen u2 0 terminal\nlisted\nseen u3 1\n"
                         "deleted u1\n");
        end();
        begin();
    }
}

TEST(a_list_that_fails_begins_again)
{
    turn("limit=", 200, LIST("5", "more", POD("u1", SPEC)));
    turn("continue=more", 410, "{'kind':'Status','message':'expired'}");
    ck_assert_int_eq(failure(), ERR_GONE);
    ck_assert_int_eq(wait(), 0);
    turn("limit=", 200, LIST("5", "more", POD("u1", SPEC)));
    turn("continue=more", 500, "");
    turn("limit=", 200, "{'items':[{'metadata'");
    turn("limit=", 403, "{'kind':'Status','message':'not you'}");
    ck_assert_contains(informer_status(watch).failure.err.msg, "not you");
    turn("limit=", 200, LIST("5", "", POD("u1", SPEC)));
    ck_assert_str_eq(received.p, "list\nseen u1 1\nlist\nseen u1 1\nlist\nlist\n"
                                 "list\nseen u1 1\nlisted\n");
    turn("watch=1", 200, "");
    ck_assert_int_eq(failure(), ERR_NONE);
}

TEST(what_needs_a_list)
{
    turn("limit=", 200, LIST("5", "", ""));
    turn("watch=1", 0, ""); /* the connection broke */
    ck_assert_int_eq(failure(), ERR_UNAVAILABLE);
    turn("limit=", 200, LIST("4", "", "")); /* the API server may have been restored */
    turn("resourceVersion=4", 200, ADDED("u1"));
    informer_relist(watch); /* a request needs a fresh list */
    turn("limit=", 200, LIST("9", "", ""));
    ck_assert_str_eq(received.p, "list\nlisted\nlist\nlisted\nseen u1 1\nlist\nlisted\n");
    turn("resourceVersion=9", 200, ADDED("u1")); /* 7 */
    ck_assert_str_eq(received.p,
                     "list\nlisted\nlist\nlisted\nseen u1 1\nlist\nlisted\nseen u1 1\n");
    turn("limit=", 200, LIST("8", "", ""));
}

TEST(retry_after_passes_first)
{
    turn("limit=", 200, LIST("5", "", ""));
    turn("watch=1", 429, "");
    informer_relist(watch);
    ck_assert_int_eq(wait(), 20000);
    turn("limit=", 200, LIST("5", "", ""));
    turn("watch=1", 429, "");
    ck_assert_int_gt(wait(), 20000);
}

TEST(an_invalid_pod_is_passed_on_without_containers)
{
    turn("limit=", 200,
         LIST("5", "", POD("u1", "'spec':{'containers':7}") "," POD("u2", SPEC)));
    ck_assert_int_eq(failure(), ERR_NONE);
    ck_assert_str_eq(received.p, "list\nseen u1 0\nseen u2 1\nlisted\n");
}

UNIT_MAIN_AROUND(begin, end)
