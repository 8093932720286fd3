/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/forward.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "lib/lib.h"
#include "lib/raw.h"
#include "lib/unit.h"
#include "wire/httpd.h"

/* A leader that accepts connections and answers when the test says so. */
static int leader;
static char address[32];
static struct forward *fwd;

/* A report waits much longer for its answer than the test runs. */
enum { WAIT_MS = 3600 * 1000 };

static void start_leader(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    struct err err = {0};
    leader = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(leader, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(leader, 32), 0);
    ck_assert_int_eq(getsockname(leader, (struct sockaddr *)&at, &n), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", ntohs(at.sin_port));
    fwd = forward_new(&(struct forward_config){0}, &err);
    ck_assert_msg(fwd, "%s", err.msg);
}

static void stop_leader(void)
{
    forward_free(fwd);
    close(leader);
}

/* Reads one request to its end, which is the body. */
static int receive(const char *body)
{
    char text[4096];
    size_t n = 0;
    int s = accept4(leader, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(s, 0);
    do {
        ssize_t more = recv(s, text + n, sizeof text - 1 - n, 0);
        ck_assert_int_gt(more, 0);
        n += (size_t)more;
        text[n] = '\0';
    } while (!strstr(text, body));
    ck_assert_contains(text, "POST /gpushare-scheduler/filter ");
    ck_assert_contains(text, REPORT_HEADER);
    return s;
}

static void answer(int s)
{
    static const char text[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    ck_assert_int_eq(send(s, text, sizeof text - 1, MSG_NOSIGNAL), sizeof text - 1);
    close(s);
}

/* If add waited for the leader, it would not return before WAIT_MS. */
TEST(a_leader_that_hangs_delays_nobody)
{
    struct budget budget = {.max = 1 << 20};
    start_leader();
    struct forward_reports *r = forward_reports_start(fwd, &budget, WAIT_MS);
    ck_assert(forward_reports_add(r, address, SPAN("{\"report\":0}")));
    int s = receive("{\"report\":0}");
    for (int i = 1; i < FORWARD_REPORTS; i++)
        ck_assert(forward_reports_add(r, address, SPAN("{\"report\":1}")));
    ck_assert(!forward_reports_add(r, address, SPAN("{\"report\":2}")));
    ck_assert_uint_eq(budget.used, 12 * FORWARD_REPORTS);
    answer(s);
    answer(receive("{\"report\":1}")); /* the next one is sent */
    for (int i = 2; i < FORWARD_REPORTS; i++)
        answer(receive("{\"report\":1}"));
    forward_reports_free(r);
    ck_assert_uint_eq(budget.used, 0);
    stop_leader();
}

TEST(queued_bodies_are_limited)
{
    struct budget budget = {.max = 2 * FORWARD_REPORTS_BYTES};
    cleanup_free char *half = xcalloc(2, FORWARD_REPORTS_BYTES);
    struct span body = {half, FORWARD_REPORTS_BYTES / 2};
    start_leader();
    struct forward_reports *r = forward_reports_start(fwd, &budget, WAIT_MS);
    ck_assert(
        !forward_reports_add(r, address, (struct span){half, FORWARD_REPORTS_BYTES + 1}));
    ck_assert(forward_reports_add(r, address, SPAN("{\"report\":0}")));
    int s = receive("{\"report\":0}");
    ck_assert(forward_reports_add(r, address, body));
    ck_assert(!forward_reports_add(r, address, body)); /* above FORWARD_REPORTS_BYTES */
    close(leader);                                     /* the queued report fails */
    answer(s);
    forward_reports_free(r);
    ck_assert_uint_eq(budget.used, 0);
    forward_free(fwd);
}

/* -- A client that goes while its bind is forwarded -- */

static atomic_int ended;

static bool has_gone(void *request)
{
    return httpd_client_gone(request);
}

static void on_bind(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    const struct forward_call call = {"bind",  FORWARD_HEADER, address,    req->body,
                                      WAIT_MS, has_gone,       (void *)req};
    struct err err = {0};
    bool sent;
    (void)ctx;
    ck_assert_uint_eq(forward_verb(fwd, &call, &reply->body, &sent, &err), 0);
    ck_assert(sent);
    ck_assert_contains(err.msg, "given up");
    atomic_fetch_add(&ended, 1);
}

TEST(a_bind_whose_client_has_gone_is_given_up)
{
    static const struct httpd_route routes[] = {{"POST", "/bind", on_bind}, {0}};
    struct httpd_listener_config listener = {
        .address = "127.0.0.1", .max_body = 100, .routes = routes};
    struct httpd *d = httpd_new(NULL);
    struct err err = {0};
    struct raw c;
    char text[4096] = "";
    start_leader();
    ck_assert_done(httpd_listen(d, &listener, &listener.port, &err), err);
    raw_open(&c, listener.port);
    raw_sendf(&c,
              "POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n{\"a\":11}");
    int s = accept4(leader, NULL, NULL, SOCK_CLOEXEC);
    for (size_t n = 0; !strstr(text, "{\"a\":11}");) {
        ssize_t more = recv(s, text + n, sizeof text - 1 - n, 0);
        ck_assert_int_gt(more, 0);
        n += (size_t)more;
    }
    raw_close(&c);
    ck_assert_int_eq(recv(s, text, sizeof text, 0), 0); /* the leader sees it */
    lib_wait(atomic_load(&ended) == 1);
    close(s);
    httpd_free(d);
    stop_leader();
}
