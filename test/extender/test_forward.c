/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/forward.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "lib/unit.h"

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
