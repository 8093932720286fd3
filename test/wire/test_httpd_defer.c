/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/socket.h>

#include "lib/lib.h"
#include "wire/httpd_fixture.h"

/*
 * Requests that wait for a decision of another thread.
 */

enum { MOST = 64, NEVER_MS = 10 * 60 * 1000, SHORT_MS = 500 };

struct gate {
    pthread_mutex_t lock;
    struct httpd_deferred *deferred[MOST];
    size_t n;
    bool open, at_once, allow;
    int calls;
};

/* "/show" passes at once; all other paths wait until the gate is open. */
static bool authorize(void *ctx, const struct httpd_request *req,
                      struct httpd_reply *reply)
{
    struct gate *g = ctx;
    if (strcmp(req->path, "/show") == 0)
        return true;
    pthread_mutex_lock(&g->lock);
    g->calls++;
    bool open = g->open, at_once = g->at_once;
    if (!open && !at_once) {
        ck_assert_uint_lt(g->n, MOST);
        g->deferred[g->n++] = httpd_defer(req);
    }
    g->at_once = false;
    g->open |= at_once;
    pthread_mutex_unlock(&g->lock);
    if (at_once)
        httpd_resume(httpd_defer(req)); /* decided before authorize returns */
    if (!open)
        return false;
    if (!g->allow)
        httpd_fail(reply, 403, "refused");
    return g->allow;
}

static struct gate *gate_init(struct gate *g, enum httpd_mode mode, unsigned connections,
                              int64_t first_request_ms)
{
    *g = (struct gate){.allow = true};
    pthread_mutex_init(&g->lock, NULL);
    fixture_start(mode, &(struct httpd_limits){.first_request_ms = first_request_ms},
                  .authorize = authorize, .authorize_ctx = g, .connections = connections);
    return g;
}

/* The body runs in each mode with a server that asks the gate `g`, and a reply `r`.
 * `connections` 0: the default. */
#define FOR_GATE(connections, first_request_ms)                                          \
    FOR_BOTH_MODES(mode)                                                                 \
    for (struct gate g, *g_ = gate_init(&g, mode, connections, first_request_ms); g_;    \
         fixture_fini(), g_ = NULL)                                                      \
        for (struct raw_reply r = {0}, *r_ = &r; r_; raw_reply_fini(&r), r_ = NULL)

static size_t count(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    size_t n = g->n;
    pthread_mutex_unlock(&g->lock);
    return n;
}

static void expect_waiting(struct gate *g, size_t n)
{
    lib_wait(count(g) == n);
}

static bool is_waiting(void *ctx)
{
    return count(ctx) == 1;
}

static void end_waits(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    for (size_t i = 0; i < g->n; i++)
        httpd_resume(g->deferred[i]);
    g->n = 0;
    pthread_mutex_unlock(&g->lock);
}

#define HELLO "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"

TEST(requests_wait_while_others_are_answered)
{
    FOR_GATE(0, NEVER_MS)
    {
        struct raw c[MOST], other;
        for (size_t i = 0; i < MOST; i++) {
            raw_open(&c[i], kit.port);
            raw_sendf(&c[i], HELLO);
        }
        expect_waiting(&g, MOST);
        raw_open(&other, kit.port);
        raw_call(&other, &r, "GET /show HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 200);
        end_waits(&g);
        for (size_t i = 0; i < MOST; i++) {
            ck_assert_int_eq(raw_read(&c[i], &r), RAW_OK);
            ck_assert_body(r, "hello\n");
            raw_call(&c[i], &r, HELLO); /* the connection stays usable */
            ck_assert_body(r, "hello\n");
            raw_close(&c[i]);
        }
        g.allow = false;
        raw_call(&other, &r, HELLO);
        ck_assert_uint_eq(r.status, 403);
        raw_close(&other);
    }
}

TEST(a_decision_may_come_before_the_wait_begins)
{
    FOR_GATE(0, NEVER_MS)
    {
        struct raw c;
        g.at_once = true;
        raw_open(&c, kit.port);
        raw_call(&c, &r, HELLO);
        ck_assert_body(r, "hello\n");
        ck_assert_int_eq(g.calls, 2);
        raw_close(&c);
    }
}

TEST(a_client_may_leave_and_the_server_may_stop_while_a_request_waits)
{
    FOR_GATE(0, NEVER_MS)
    {
        struct raw gone, stays;
        raw_open(&gone, kit.port);
        raw_sendf(&gone, HELLO);
        expect_waiting(&g, 1);
        raw_close(&gone);
        end_waits(&g);
        lib_wait(fixture_is_empty());
        g.open = false;
        raw_open(&stays, kit.port);
        raw_sendf(&stays, HELLO);
        expect_waiting(&g, 1);
        httpd_free(steal(&kit.d));
        end_waits(&g); /* later than the server */
        raw_close(&stays);
    }
}

static bool is_closed_by_server(struct raw *c)
{
    struct pollfd fd = {.fd = c->fd, .events = POLLIN};
    char byte;
    return poll(&fd, 1, 0) > 0 && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

TEST(waiting_requests_do_not_keep_a_full_listener)
{
    enum { FULL = 8 };
    FOR_GATE(FULL, NEVER_MS)
    {
        struct raw c[FULL], other;
        size_t closed = 0;
        for (size_t i = 0; i < FULL; i++) {
            raw_open(&c[i], kit.port);
            raw_sendf(&c[i], HELLO);
        }
        expect_waiting(&g, FULL);
        raw_open(&other, kit.port);
        raw_call(&other, &r, "GET /show HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_uint_eq(r.status, 200);
        ck_assert_int_eq(g.calls, FULL); /* a closed one is not authorized again */
        end_waits(&g);
        for (size_t i = 0; i < FULL; i++) {
            if (is_closed_by_server(&c[i])) {
                closed++;
            } else {
                ck_assert_int_eq(raw_read(&c[i], &r), RAW_OK);
                ck_assert_body(r, "hello\n");
            }
            raw_close(&c[i]);
        }
        ck_assert_uint_eq(closed, 1);
        raw_close(&other);
    }
}

/* libmicrohttpd is still to read the body then. */
TEST(a_request_waits_without_a_deadline)
{
    FOR_GATE(0, SHORT_MS)
    {
        struct raw c;
        fixture_send_in_time(
            &c, "POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
            SHORT_MS, is_waiting, &g);
        raw_sendf(&c, HELLO);
        usleep((SHORT_MS * 3 / 2) * 1000);
        end_waits(&g);
        ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
        ck_assert_body(r, "5");
        ck_assert_int_eq(raw_read(&c, &r), RAW_OK);
        ck_assert_body(r, "hello\n");
        raw_close(&c);
    }
}
