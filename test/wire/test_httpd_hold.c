/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "base/file.h"
#include "lib/lib.h"
#include "lib/temp.h"
#include "lib/tls.h"
#include "wire/httpc.h"
#include "wire/httpd_fixture.h"

/*
 * Requests that wait for others, as the binds of a gang do. They leave the handlers to others,
 * and keep their connections.
 */

enum { NEVER_MS = 10 * 60 * 1000 };

static const struct httpd_limits never = {.first_request_ms = NEVER_MS,
                                          .idle_ms = NEVER_MS};
static const char *const probes[] = {"/hello", NULL};

static atomic_int waiting, gone;

/* Waits for fixture_release, or until nobody can get the reply. */
static void wait_for_others(const struct httpd_request *req, struct httpd_reply *reply)
{
    bool has_gone = false, released = false;
    atomic_fetch_add(&waiting, 1);
    while (!has_gone && !released) {
        lib_pause();
        has_gone = httpd_client_gone(req);
        pthread_mutex_lock(&kit.lock);
        released = kit.released;
        pthread_mutex_unlock(&kit.lock);
    }
    atomic_fetch_sub(&waiting, 1);
    atomic_fetch_add(&gone, has_gone);
    buf_adds(&reply->body, "released");
}

static void on_hold(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    httpd_hold(req);
    wait_for_others(req, reply);
}

static void on_run(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    wait_for_others(req, reply);
}

/* Holds twice, as no handler should. */
static void on_odd(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    (void)ctx;
    httpd_hold(req);
    httpd_hold(req);
    buf_adds(&reply->body, "odd");
}

static bool trusts_header(void *ctx, const struct httpd_request *req,
                          struct httpd_reply *reply)
{
    (void)ctx, (void)reply;
    if (httpd_header(req, "X-Trust"))
        httpd_trust(req);
    return true;
}

static const struct httpd_route routes[] = {{"GET", "/hello", fixture_on_hello},
                                            {"GET", "/show", fixture_on_show},
                                            {"GET", "/hold", on_hold},
                                            {"GET", "/run", on_run},
                                            {"GET", "/odd", on_odd},
                                            {0}};

static void start(unsigned connections, unsigned handlers, struct tls *tls)
{
    atomic_store(&gone, 0);
    fixture_start(HTTPD_THREADS, &never, .connections = connections, .handlers = handlers,
                  .probes = probes, .authorize = trusts_header, .routes = routes,
                  .tls = tls);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static void send_new(struct raw *c, const char *request)
{
    raw_open(c, kit.port);
    raw_send(c, request, strlen(request));
}

static void expect_reply(struct raw *c, const char *body)
{
    cleanup_raw_reply struct raw_reply r = {0};
    ck_assert_int_eq(raw_read(c, &r), RAW_OK);
    ck_assert_uint_eq(r.status, 200);
    ck_assert_body(r, body);
}

/* A new client, so that a full server closes another connection for it. */
static void call_new(const char *request, const char *body)
{
    struct raw c;
    send_new(&c, request);
    expect_reply(&c, body);
    raw_close(&c);
}

/* The numbers are those of the extender's defaults: a gang of 256 and more. */
TEST(hundreds_are_held_while_others_are_served)
{
    enum { CONNECTIONS = 512, HANDLERS = 128, HELD = 304, OTHERS = 29, FLOOD = 400 };
    static struct raw held[HELD], idle[FLOOD];
    file_raise_limit();
    start(CONNECTIONS, HANDLERS, NULL);
    for (int i = 0; i < HELD; i++)
        send_new(&held[i], GET("/hold"));
    lib_wait(metric("requests_held") == HELD);
    for (int i = 0; i < OTHERS; i++) {
        call_new(GET("/show"), "GET [/show] [] [(none)]");
        call_new(GET("/hello"), "hello\n");
    }
    for (int i = 0; i < FLOOD; i++)
        raw_open(&idle[i], kit.port);
    lib_wait(metric("connections_evicted_total") > 0);
    call_new(GET("/show"), "GET [/show] [] [(none)]");
    call_new(GET("/hello"), "hello\n");
    ck_assert_int_eq(metric("requests_held"), HELD);
    fixture_release();
    for (int i = 0; i < HELD; i++) {
        expect_reply(&held[i], "released");
        raw_close(&held[i]);
    }
    ck_assert_int_eq(metric("requests_rejected_total"), 0);
    ck_assert_int_eq(metric("requests_held"), 0);
    ck_assert_int_eq(atomic_load(&gone), 0);
    for (int i = 0; i < FLOOD; i++)
        raw_close(&idle[i]);
    lib_wait(fixture_is_empty());
    fixture_fini();
}

/* An eighth of the connections is left for what can give way. */
TEST(more_requests_than_can_be_held_do_not_keep_a_probe_out)
{
    enum { FULL = 16, HANDLERS = 4, MOST = 13, TRUSTED = 1 }; /* a handler is reserved */
    struct raw c[FULL], trusted;
    struct raw_reply r = {0};
    start(FULL, HANDLERS, NULL);
    for (int i = 0; i < MOST; i++)
        send_new(&c[i], GET("/hold"));
    lib_wait(metric("requests_held") == MOST);
    for (int i = MOST; i < FULL; i++)
        send_new(&c[i], GET("/hold"));
    lib_wait(metric("requests_in_flight") == FULL);
    ck_assert_int_eq(metric("requests_held"), MOST);
    for (int i = 0; i < 3; i++)
        call_new(GET("/hello"), "hello\n");
    send_new(&trusted, "GET /hold HTTP/1.1\r\nHost: x\r\nX-Trust: 1\r\n\r\n");
    lib_wait(metric("requests_held") == MOST + TRUSTED);
    for (int i = 0; i < 3; i++)
        call_new(GET("/hello"), "hello\n");
    ck_assert_int_ge(metric("requests_rejected_total"), 1);
    fixture_release();
    for (int i = 0; i < FULL; i++) {
        ck_assert_int_eq(raw_read(&c[i], &r), RAW_OK);
        ck_assert_uint_eq(r.status, i >= MOST && r.status == 503 ? 503 : 200);
        raw_close(&c[i]);
    }
    expect_reply(&trusted, "released");
    raw_close(&trusted);
    raw_reply_fini(&r);
    lib_wait(fixture_is_empty());
    call_new(GET("/show"), "GET [/show] [] [(none)]"); /* all places are free again */
    fixture_fini();
}

TEST(a_place_is_given_back_once_whatever_the_handler_does)
{
    struct raw c;
    start(8, 1, NULL);
    raw_open(&c, kit.port);
    for (int i = 0; i < 20; i++) {
        raw_sendf(&c, GET("/odd"));
        expect_reply(&c, "odd");
        call_new(GET("/show"), "GET [/show] [] [(none)]");
        ck_assert_int_eq(metric("requests_held"), 0);
    }
    raw_sendf(&c, GET("/run"));
    lib_wait(atomic_load(&waiting) == 1);
    struct raw queued;
    send_new(&queued, GET("/show")); /* one handler runs, no more */
    lib_wait(metric("requests_in_flight") == 2);
    ck_assert(!fixture_is_readable(&queued));
    fixture_release();
    expect_reply(&c, "released");
    expect_reply(&queued, "GET [/show] [] [(none)]");
    raw_close(&c);
    raw_close(&queued);
    fixture_fini();
}

/* Probes, and the handlers of the other mode, have no place that they could give back. */
TEST(a_hold_without_a_place_does_nothing)
{
    static const char *const odd[] = {"/odd", NULL};
    FOR_BOTH_MODES(mode)
    {
        fixture_start(mode, &never, .connections = 8, .handlers = 1, .probes = odd,
                      .routes = routes);
        for (int i = 0; i < 3; i++) {
            call_new(GET("/odd"), "odd");
            call_new(GET("/show"), "GET [/show] [] [(none)]");
        }
        fixture_fini();
    }
}

static void half_close(struct raw *c)
{
    shutdown(c->fd, SHUT_WR);
}

TEST(a_client_that_has_gone_is_seen)
{
    void (*const leave[])(struct raw *) = {raw_close, raw_reset, half_close};
    const char *const requests[] = {GET("/hold"), GET("/run"),
                                    GET("/hold") GET("/hello")}; /* pipelined, not read */
    start(64, 32, NULL);
    struct raw stays;
    send_new(&stays, GET("/hold"));
    lib_wait(atomic_load(&waiting) == 1);
    int n = 0;
    array_items(request, requests) {
        array_items(fn, leave) {
            struct raw c;
            send_new(&c, *request);
            lib_wait(atomic_load(&waiting) == 2);
            (*fn)(&c);
            lib_wait(atomic_load(&gone) == n + 1);
            n++;
            if (*fn == half_close)
                raw_close(&c);
        }
    }
    ck_assert_int_eq(metric("requests_held"), 1);
    fixture_release();
    expect_reply(&stays, "released");
    raw_close(&stays);
    fixture_fini();
}

static bool is_one_more_waiting(void *ctx)
{
    return atomic_load(&waiting) > *(int *)ctx;
}

static void *call_main(void *arg)
{
    const struct httpc_request req = {
        .method = "GET", .path = "/hold", .timeout_ms = LIB_WAIT_MS};
    struct httpc_reply reply;
    struct err err = {0};
    ck_assert_done(httpc_call(arg, &req, 100, &reply, &err), err);
    ck_assert_span_eq(buf_span(&reply.body), "released");
    httpc_reply_fini(&reply);
    return NULL;
}

TEST(a_tls_client_that_has_gone_is_seen)
{
    char *dir = temp_dir();
    struct err err = {0};
    pthread_t thread;
    tls_make_ca(dir, "ca");
    tls_make_cert(dir, "ca", "server", "IP:127.0.0.1");
    cleanup_free char *crt = temp_read(dir, "server.crt"),
                      *key = temp_read(dir, "server.key"), *ca = temp_read(dir, "ca.crt");
    struct tls *tls = tls_new(&(struct tls_config){.name = "test",
                                                   .cert_pem = span_of(crt),
                                                   .key_pem = span_of(key)},
                              &err);
    start(64, 32, tls);
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", kit.port);
    struct httpc *c =
        httpc_new(&(struct httpc_config){.url = url, .ca_pem = span_of(ca)}, &err);
    pthread_create(&thread, NULL, call_main, c); /* this one stays */
    lib_wait(atomic_load(&waiting) == 1);
    const char *const paths[] = {"/hold", "/run"};
    for (int i = 0; i < 2; i++) {
        int others = 1;
        const struct httpc_request req = {.method = "GET",
                                          .path = paths[i],
                                          .timeout_ms = LIB_WAIT_MS,
                                          .gone = is_one_more_waiting,
                                          .gone_ctx = &others};
        struct httpc_reply reply;
        ck_assert_int_eq(httpc_call(c, &req, 100, &reply, &err), -1);
        httpc_reply_fini(&reply);
        lib_wait(atomic_load(&gone) == i + 1);
    }
    lib_wait(atomic_load(&waiting) == 1);
    fixture_release();
    pthread_join(thread, NULL);
    httpc_free(c);
    fixture_fini();
    tls_free(tls);
    temp_dir_remove(dir);
    free(dir);
}

static void *drain_main(void *arg)
{
    *(bool *)arg = httpd_drain(kit.d, LIB_WAIT_MS);
    return NULL;
}

TEST(a_drain_waits_for_held_requests_as_for_running_ones)
{
    enum { HELD = 20 };
    struct raw c[HELD];
    struct raw_reply r = {0};
    bool all_ended = false;
    pthread_t thread;
    start(64, 4, NULL);
    for (int i = 0; i < HELD; i++)
        send_new(&c[i], GET("/hold"));
    lib_wait(metric("requests_held") == HELD);
    int64_t begin = lib_now_ms();
    ck_assert(!httpd_drain(kit.d, 200)); /* it gives up at its deadline */
    ck_assert_int_ge(lib_now_ms() - begin, 190);
    pthread_create(&thread, NULL, drain_main, &all_ended);
    fixture_release();
    for (int i = 0; i < HELD; i++) {
        ck_assert_int_eq(raw_read(&c[i], &r), RAW_OK);
        ck_assert_body(r, "released");
        ck_assert_span_eq(raw_header(&r, "Connection"), "close");
        raw_close(&c[i]);
    }
    pthread_join(thread, NULL);
    ck_assert(all_ended);
    raw_reply_fini(&r);
    fixture_fini();
}

/* Nobody releases them. */
TEST(a_stop_ends_held_requests)
{
    enum { HELD = 20 };
    struct raw c[HELD];
    start(64, 4, NULL);
    for (int i = 0; i < HELD; i++)
        send_new(&c[i], GET("/hold"));
    lib_wait(metric("requests_held") == HELD);
    fixture_fini();
    ck_assert_int_eq(atomic_load(&gone), HELD);
    for (int i = 0; i < HELD; i++)
        raw_close(&c[i]);
}
