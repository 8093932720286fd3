/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>
#include <sys/socket.h>

#include "wire/httpd_fixture.h"

struct drain {
    int64_t timeout_ms;
    bool all_ended;
    pthread_t thread;
};

static void *drain_main(void *arg)
{
    struct drain *drain = arg;
    drain->all_ended = httpd_drain(kit.d, drain->timeout_ms);
    return NULL;
}

static bool is_refused(void)
{
    struct raw c;
    if (!raw_try_open(&c, kit.port))
        return true;
    raw_close(&c);
    return false;
}

/* Returns when connect fails. */
static void drain_begin(struct drain *drain, int64_t timeout_ms)
{
    *drain = (struct drain){.timeout_ms = timeout_ms};
    pthread_create(&drain->thread, NULL, drain_main, drain);
    lib_wait(is_refused());
}

static bool drain_end(struct drain *drain)
{
    pthread_join(drain->thread, NULL);
    return drain->all_ended;
}

TEST(a_request_in_flight_gets_its_whole_reply)
{
    struct drain drain;
    fixture_start(HTTPD_THREADS, NULL);
    struct raw a, idle;
    struct raw_reply r = {0};
    raw_open(&idle, kit.port);
    raw_call(&idle, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    raw_open(&a, kit.port);
    raw_sendf(&a, "GET /block HTTP/1.1\r\nHost: x\r\n\r\n");
    fixture_wait_blocked(1);
    drain_begin(&drain, LIB_WAIT_MS);
    ck_assert(raw_ended(&idle)); /* while the request is in flight */
    lib_wait(metric("connections") == 1);
    ck_assert_int_eq(metric("requests_in_flight"), 1);
    int64_t begin = lib_now_ms();
    ck_assert(!httpd_drain(kit.d, 200)); /* it gives up at its deadline */
    ck_assert_int_ge(lib_now_ms() - begin, 190);
    fixture_release();
    ck_assert_int_eq(raw_read(&a, &r), RAW_OK);
    ck_assert_body(r, "unblocked");
    ck_assert_span_eq(raw_header(&r, "Connection"), "close");
    ck_assert(raw_ended(&a));
    ck_assert(drain_end(&drain));
    raw_reply_fini(&r);
    raw_close(&a);
    raw_close(&idle);
    fixture_fini();
}

TEST(a_connection_in_the_backlog_is_served)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct rlimit limit;
        struct raw used, late;
        raw_open(&used, kit.port);
        raw_call(&used, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        /* No descriptor is left to accept with. */
        getrlimit(RLIMIT_NOFILE, &limit);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct rlimit none = {(rlim_t)fd + 1, limit.rlim_max}; /* all below are taken */
        setrlimit(RLIMIT_NOFILE, &none);
        raw_connect(&late, fd, kit.port);
        raw_sendf(&late, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_call(&used, &r, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        setrlimit(RLIMIT_NOFILE, &limit);
        ck_assert(httpd_drain(kit.d, LIB_WAIT_MS));
        ck_assert_int_eq(raw_read(&late, &r), RAW_OK);
        ck_assert_body(r, "hello\n");
        raw_close(&used);
        raw_close(&late);
    }
}

TEST(waiting_streams_end_cleanly)
{
    FOR_BOTH_SERVERS(NULL)
    {
        struct drain drain;
        struct raw c[30];
        for (int i = 0; i < 30; i++) {
            raw_open(&c[i], kit.port);
            raw_sendf(&c[i], "GET /stream?a HTTP/1.1\r\nHost: x\r\n\r\n");
            ck_assert_int_eq(raw_read_head(&c[i], &r), RAW_OK);
        }
        drain_begin(&drain, LIB_WAIT_MS);
        for (int i = 0; i < 30; i++) {
            bool last = false;
            buf_clear(&r.body);
            while (!last)
                ck_assert_int_eq(raw_read_chunk(&c[i], &r, &last), RAW_OK);
            ck_assert_body(r, "a");
            ck_assert(raw_ended(&c[i]));
            raw_close(&c[i]);
        }
        ck_assert(drain_end(&drain));
        ck_assert_int_eq(atomic_load(&kit.closed), 30);
    }
}

TEST(nothing_can_be_started_after_a_drain)
{
    fixture_start(HTTPD_THREADS, NULL);
    ck_assert(httpd_drain(kit.d, LIB_WAIT_MS));
    ck_assert(httpd_drain(kit.d, LIB_WAIT_MS));
    struct httpd_listener_config listener = fixture_listener(HTTPD_THREADS);
    struct err err = {0};
    ck_assert_int_eq(httpd_listen(kit.d, &listener, NULL, &err), -1);
    ck_assert_str_eq(err.msg, "listen on 127.0.0.1:0: server is stopping");
    fixture_fini();
    fixture_init(NULL);
    ck_assert(httpd_drain(kit.d, LIB_WAIT_MS)); /* nothing was listening */
    fixture_fini();
    httpd_free(NULL);
}

/* A client that sends requests in a loop. */
struct busy {
    unsigned port;
    pthread_t thread;
    atomic_int calls;
    bool told_to_close; /* the last reply said so */
    bool was_slow;      /* it was idle long enough to be closed without a reply */
    const char *wrong;
};

static void *busy_main(void *arg)
{
    struct busy *b = arg;
    struct raw c;
    struct raw_reply r = {0};
    cleanup_free char *body = xcalloc(87000, 1);
    raw_open(&c, b->port);
    int64_t last = lib_now_ms(); /* the server started to wait after this */
    while (!b->told_to_close) {
        int64_t start = lib_now_ms();
        bool sent = raw_sendf(&c, "POST /echo HTTP/1.1\r\nHost: x\r\n"
                                  "Content-Length: 87000\r\n\r\n") &&
                    raw_send(&c, body, 87000);
        enum raw_result rc = raw_read(&c, &r);
        b->was_slow = lib_now_ms() - last > 200;
        last = start;
        if (!sent || rc != RAW_OK || r.body.n != 87000) {
            b->wrong = !sent ? "not sent" : rc != RAW_OK ? "no answer" : "half an answer";
            break;
        }
        atomic_fetch_add(&b->calls, 1);
        b->told_to_close = span_eq(raw_header(&r, "Connection"), SPAN("close"));
    }
    raw_reply_fini(&r);
    raw_close(&c);
    return NULL;
}

TEST(a_drain_under_load_loses_no_request)
{
    enum { N = 8, ROUNDS = 5 };
    for (int i = 0; i < 2 * ROUNDS; i++) {
        struct busy busy[N] = {0};
        fixture_start(i % 2 ? HTTPD_EVENTS : HTTPD_THREADS, NULL);
        for (int k = 0; k < N; k++) {
            busy[k].port = kit.port;
            pthread_create(&busy[k].thread, NULL, busy_main, &busy[k]);
        }
        for (int k = 0; k < N; k++)
            while (atomic_load(&busy[k].calls) < 5)
                nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        bool ended = httpd_drain(kit.d, LIB_WAIT_MS);
        for (int k = 0; k < N; k++) {
            pthread_join(busy[k].thread, NULL);
            ck_assert_msg(!busy[k].wrong || busy[k].was_slow, "%s", busy[k].wrong);
        }
        ck_assert(ended);
        fixture_fini();
    }
}

TEST(stopping_without_a_drain_closes_all_connections)
{
    static const char *const begun[] = {
        "",
        "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
        "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /big?64 HTTP/1.1\r\nHost: x\r\n\r\n",
    };
    FOR_BOTH_MODES(mode)
    {
        unsigned before = raw_count_fds();
        fixture_start(mode, NULL);
        struct raw c[ARRAY_LEN(begun)];
        struct raw_reply r = {0};
        array_indices(i, c) {
            raw_open(&c[i], kit.port);
            raw_send(&c[i], begun[i], strlen(begun[i]));
        }
        ck_assert_int_eq(raw_read_head(&c[4], &r), RAW_OK);
        lib_wait(atomic_load(&kit.opened) == 1);
        fixture_fini();
        ck_assert_int_eq(atomic_load(&kit.closed), 1);
        array_items(p, c) {
            cleanup_buf struct buf rest = {0};
            ck_assert_int_eq(raw_read_all(p, &rest), RAW_OK);
            ck_assert_uint_lt(rest.n, (size_t)64 << 20);
            raw_close(p);
        }
        raw_reply_fini(&r);
        ck_assert_uint_eq(raw_count_fds(), before);
    }
}
