/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/list_watch.h"

#include <stdatomic.h>

#include "domain/object.h"
#include "kube/kubeconfig_priv.h"
#include "lib/stub.h"
#include "lib/unit.h"

static struct list_watch feed;
static struct buf heard;
static int opened; /* watches */

static void on_object(void *ctx, struct jread *j, bool gone)
{
    struct jread_str key;
    struct object_meta meta = {0};
    struct err err;
    ck_assert_ptr_eq(ctx, &feed);
    jread_object(j, "object");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, &feed.arena, &meta, NULL, 0);
        else
            jread_skip(j);
    }
    if (jread_check(j, NULL))
        return;
    bool fault = jread_fault(j, &err);
    buf_printf(&heard, "%s %.*s%s\n", gone ? "gone" : "seen", SPAN_ARG(meta.name),
               fault ? " with a fault" : "");
    if (span_eq(meta.name, SPAN("enough"))) {
        err_set(&err, ERR_INVALID, "enough");
        list_watch_fail(&feed, &err);
    }
}

static void on_bookmark(void *ctx, struct span version)
{
    (void)ctx;
    if (version.n)
        buf_printf(&heard, "bookmark %.*s\n", SPAN_ARG(version));
    else
        opened++;
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    buf_printf(&heard, "fault: %s\n", err->msg);
}

static const struct list_watch_handler reader = {on_object, on_bookmark, on_fault};

static void begin(bool watch)
{
    buf_clear(&heard);
    buf_adds(&heard, "");
    opened = 0;
    list_watch_init(&feed, &reader, &feed);
    list_watch_start(&feed, watch);
}

/* Feeds one response in pieces of this size. Returns the result of list_watch_end. */
static int answer(unsigned status, const char *body, size_t piece, const struct err *why)
{
    size_t n = strlen(body);
    bool go_on = true;
    list_watch_begin(&feed, status, -1);
    for (size_t i = 0; i < n && go_on; i += piece)
        go_on = list_watch_data(&feed, body + i, n - i < piece ? n - i : piece);
    return list_watch_end(&feed, why);
}

static void path_is(const char *want)
{
    cleanup_arena struct arena a = {0};
    struct kube_request r;
    list_watch_request(&feed, "", 60, true, &a, &r);
    ck_assert_str_eq(r.path, want);
    ck_assert(r.gzip == !feed.watch);
    ck_assert_int_eq(r.stall_ms, feed.watch ? 75000 : 90000);
}

#define POD(name) "{\"metadata\":{\"name\":\"" name "\"}}"

TEST(a_list_and_then_a_watch)
{
    for (size_t piece = 1; piece < 300; piece += 13) {
        begin(false);
        path_is("limit=500");
        ck_assert_int_eq(
            answer(
                200,
                "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"5\",\"continue\":"
                "\"a b\"},\"items\":[" POD("a") "," POD("b") "]}",
                piece, NULL),
            0);
        path_is("limit=500&continue=a%20b");
        ck_assert_int_eq(
            answer(200,
                   "{\"items\":[" POD("c") "],\"metadata\":{\"resourceVersion\":\"6&\"}}",
                   piece, NULL),
            0);
        ck_assert_uint_eq(feed.next.n, 0);
        ck_assert_span_eq(buf_span(&feed.version), "6&");
        list_watch_start(&feed, true);
        path_is(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=6%26");
        ck_assert_int_eq(
            answer(200,
                   "{\"type\":\"ADDED\",\"object\":" POD(
                       "d") "}\n"
                            "{\"object\":" POD(
                                "e") ",\"type\":\"MODIFIED\"}\n"
                                     "{\"type\":\"NEWS\",\"object\":" POD(
                                         "x") "}\n"
                                              "{\"type\":\"BOOKMARK\",\"object\":{"
                                              "\"metadata\":{"
                                              "\"resourceVersion\":\"9\"}}}{\"type\":"
                                              "\"DELETED\",\"object\":"
                                              "{\"metadata\":{\"name\":7}}}"
                                              "{\"object\":" POD(
                                                  "y") "}{\"type\":\"ADDED\",\"obj",
                   piece, NULL),
            0);
        ck_assert_str_eq(heard.p, "seen a\nseen b\nseen c\nseen d\nseen e\nbookmark 9\n"
                                  "gone  with a fault\n");
        list_watch_fini(&feed);
    }
}

TEST(the_first_error_wins)
{
    begin(true);
    ck_assert_int_eq(
        answer(200,
               "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":"
               "\"too old\"}}\n{\"type\":\"ADDED\",\"object\":" POD("a") "}}",
               400, NULL),
        -1);
    ck_assert_int_eq(feed.err.code, ERR_GONE);
    ck_assert_contains(feed.err.msg, "too old");
    ck_assert_str_eq(heard.p, "");
    /* The next start resets it, even without a response. */
    list_watch_start(&feed, true);
    ck_assert_int_eq(list_watch_end(&feed, NULL), -1);
    ck_assert_int_eq(feed.err.code, ERR_UNAVAILABLE);
    list_watch_start(&feed, true);
    ck_assert_int_eq(
        answer(200,
               "{\"type\":\"ADDED\",\"object\":" POD(
                   "enough") "}\n"
                             "{\"type\":\"ADDED\",\"object\":" POD("b") "}\n",
               400, NULL),
        -1);
    ck_assert_str_eq(feed.err.msg, "enough");
    ck_assert_str_eq(heard.p, "seen enough\n");
    list_watch_fini(&feed);
}

TEST(an_incomplete_response_is_an_error)
{
    static const struct {
        bool watch, lost;
        unsigned status;
        const char *body;
        enum err_code code;
    } cases[] = {
        {false, false, 200, "{\"items\":[", ERR_INVALID},
        {false, false, 200, "", ERR_INVALID},
        {false, false, 200, "<html>", ERR_INVALID},
        {false, false, 200, "[]", ERR_INVALID},
        {false, false, 200, "null", ERR_INVALID},
        {false, false, 200, "{\"items\":[1,2]", ERR_INVALID},
        {false, false, 200, "{\"items\":[1 2]}", ERR_INVALID},
        {false, false, 200, "{\"items\":{}}", ERR_INVALID},
        {false, false, 200, "{\"items\":[]}x", ERR_INVALID},
        {false, true, 200, "{\"items\":[]}", ERR_TIMEOUT},
        {false, false, 204, "", ERR_INTERNAL},
        {false, false, 403, "{\"message\":\"no\"}", ERR_FORBIDDEN},
        {true, false, 200, "{\"type\":\"ADDED\",\"ob", ERR_NONE},
        {true, false, 200, "", ERR_NONE},
        {true, false, 200, "what\n", ERR_INVALID},
        {true, false, 200,
         "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"a\\u0000\"}}\n",
         ERR_GONE},
        {true, true, 200, "", ERR_TIMEOUT},
        {true, false, 206, "", ERR_INTERNAL},
        {true, true, 503, "", ERR_UNAVAILABLE},
    };
    static const struct err lost = {ERR_TIMEOUT, "silence"};
    array_indices(i, cases) {
        begin(cases[i].watch);
        int rc = answer(cases[i].status, cases[i].body, 3, cases[i].lost ? &lost : NULL);
        ck_assert_msg(feed.err.code == cases[i].code, "case %zu: %s", i, feed.err.msg);
        ck_assert_int_eq(rc, cases[i].code == ERR_NONE ? 0 : -1);
        list_watch_fini(&feed);
    }
}

TEST(a_page_without_a_response_fails_the_list)
{
    begin(false);
    ck_assert_int_eq(
        answer(200, "{\"metadata\":{\"continue\":\"more\"},\"items\":[]}", 99, NULL), 0);
    ck_assert_int_eq(list_watch_end(&feed, NULL), -1);
    ck_assert_int_eq(feed.err.code, ERR_UNAVAILABLE);
    list_watch_start(&feed, false);
    path_is("limit=500"); /* restarts at the first page */
    list_watch_fini(&feed);
}

TEST(retry_after_is_at_most_a_minute)
{
    begin(false);
    ck_assert_int_eq(feed.retry_after_ms, -1);
    list_watch_begin(&feed, 429, 3);
    ck_assert_int_eq(feed.retry_after_ms, 3000);
    list_watch_begin(&feed, 429, 100000);
    ck_assert_int_eq(feed.retry_after_ms, 60000);
    list_watch_fini(&feed);
}

TEST(a_malformed_event_is_reported)
{
    begin(true);
    ck_assert_int_eq(
        answer(200,
               "{\"type\":7,\"object\":" POD("a") "}\n[]\n{\"type\":"
                                                  "\"ADDED\",\"object\":" POD("b") "}\n",
               5, NULL),
        0);
    ck_assert_contains(heard.p, "fault: event.type");
    ck_assert_contains(heard.p, "fault: event: expected an object");
    ck_assert_contains(heard.p, "seen b\n");
    list_watch_fini(&feed);
}

TEST(an_event_is_delivered_with_its_newline)
{
    static const char event[] = "{\"type\":\"ADDED\",\"object\":" POD("a") "}\n";
    begin(true);
    list_watch_begin(&feed, 200, -1);
    ck_assert_int_eq(opened, 1);
    ck_assert(list_watch_data(&feed, event, sizeof event - 3));
    ck_assert_uint_eq(heard.n, 0);
    ck_assert(list_watch_data(&feed, "}\n", 2));
    ck_assert_str_eq(heard.p, "seen a\n");
    list_watch_fini(&feed);
}

/* In linear time, however small the pieces are. */
TEST(an_item_has_a_limit)
{
    enum { MIB = 1 << 20 };
    cleanup_buf struct buf x = {0};
    for (size_t i = 0; i < MIB; i++)
        buf_addc(&x, 'x');
    begin(false);
    list_watch_begin(&feed, 200, -1);
    ck_assert(list_watch_data(&feed, "{\"items\":[{\"a\":\"", 16));
    bool ok = true;
    for (size_t i = 0; i < MIB; i++)
        ok &= list_watch_data(&feed, "x", 1);
    ck_assert(ok);
    int i = 1;
    while (list_watch_data(&feed, x.p, x.n))
        ck_assert_int_lt(++i, 40);
    ck_assert_int_ge(i, 31);
    ck_assert_int_eq(list_watch_end(&feed, NULL), -1);
    ck_assert_int_eq(feed.err.code, ERR_TOO_LARGE);
    list_watch_fini(&feed);
}

/* -- the loop: requests come from many threads, possibly out of order -- */

/* Does not answer until the gate opens. */
static void hold(struct stub_conn *conn, void *gate)
{
    if (stub_read(conn))
        gate_wait(gate);
}

static struct list_watch *loop_request(void *ctx, size_t slot, struct arena *a,
                                       struct kube_request *request)
{
    (void)ctx, (void)a;
    *request = (struct kube_request){.method = "GET", .path = slot ? "/nodes" : "/pods"};
    return &feed;
}

static bool loop_end(void *ctx, size_t slot, const struct err *why)
{
    (void)slot, (void)why;
    ++*(atomic_int *)ctx;
    return false;
}

TEST(an_older_run_does_not_cancel_a_newer_one)
{
    static const struct list_watch_fns fns = {.request = loop_request, .end = loop_end};
    struct gate *gate = gate_new();
    struct err err = {0};
    atomic_int ended = 0;
    struct stub *server = stub_start(hold, gate);
    struct kube_config config = {.server = stub_url(server)};
    struct kube_client *client = kube_client_new(&config, &err);
    ck_assert_msg(client != NULL, "%s", err.msg);
    struct list_watch_loop *loop = list_watch_loop_new(client, 2, &fns, &ended);
    list_watch_loop_thread(loop, "watch");
    list_watch_loop_start(loop, 0, &(struct list_watch_run){.run = 11});
    lib_wait(stub_requests(server) == 1);
    list_watch_loop_start(
        loop, 0, &(struct list_watch_run){.run = 10, .watch = true, .version = "5"});
    /* Requested after the older run was handled. */
    list_watch_loop_start(loop, 1, &(struct list_watch_run){.run = 12});
    lib_wait(stub_requests(server) == 2);
    cleanup_free char *first = stub_request(server, 0), *second = stub_request(server, 1);
    ck_assert_contains(first, "/pods");
    ck_assert_contains(second, "/nodes");
    ck_assert_uint_eq(stub_connections(server), 2);
    list_watch_loop_start(loop, 0, &(struct list_watch_run){.run = 13});
    lib_wait(stub_requests(server) == 3); /* a newer run cancels it */
    list_watch_loop_stop(loop);
    gate_open(gate);
    list_watch_loop_free(loop);
    stub_stop(server);
    gate_free(gate);
    kube_client_free(client);
    ck_assert_int_eq(ended, 0); /* a canceled run does not end */
}
