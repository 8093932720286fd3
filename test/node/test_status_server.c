/* SPDX-License-Identifier: Apache-2.0 */
#include "node/status_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "lib/unit.h"

static unsigned port;
static struct status_server *server;
static struct buf answer;
static bool cards_fail;

static void checks(void *ctx, enum status_probe probe, struct status_report *report)
{
    struct err err;
    (void)ctx;
    err_set(&err, ERR_TIMEOUT, "no response");
    status_report_add(report, "threads", 0, &err, true);
    if (probe != STATUS_LIVEZ)
        status_report_add(report, "cards", cards_fail ? -1 : 0, &err,
                          probe == STATUS_HEALTHZ);
    status_report_add(report, "threads", 0, &err, true); /* of another part */
}

static void metrics(void *ctx, struct buf *out)
{
    (void)ctx;
    buf_adds(out, "our_metric 1\n");
}

/* A port that is free now. */
static unsigned free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void begin(void)
{
    static const struct status_server_fns fns = {checks, metrics, NULL};
    struct err err;
    port = free_port();
    server = status_server_start("127.0.0.1", port, &fns, &err);
    ck_assert_msg(server != NULL, "%s", err.msg);
}

static void end(void)
{
    status_server_stop(server);
    buf_fini(&answer);
}

/* The status of GET; the answer with its headers is in `answer`. */
static int get(const char *path)
{
    cleanup_free char *request = xasprintf("GET %s HTTP/1.0\r\nHost: test\r\n\r\n", path);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    char piece[4096];
    ssize_t n;
    int status = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    buf_clear(&answer);
    while ((n = read(fd, piece, sizeof piece)) > 0)
        buf_add(&answer, piece, (size_t)n);
    close(fd);
    ck_assert_int_eq(sscanf(answer.p, "HTTP/1.%*d %d", &status), 1);
    return status;
}

static void ck_has(const char *text)
{
    ck_assert_msg(strstr(answer.p, text) != NULL, "no \"%s\" in %s", text, answer.p);
}

TEST(probes_fail_with_their_required_checks)
{
    cards_fail = false;
    ck_assert_int_eq(get("/healthz"), 200);
    ck_has("\r\n\r\nthreads: ok\ncards: ok\n");
    cards_fail = true;
    ck_assert_int_eq(get("/healthz"), 503);
    ck_has("\r\n\r\nthreads: ok\ncards: no response\n");
    ck_assert_int_eq(get("/readyz"), 200);
    ck_has("cards: no response (not required for readiness)\n");
    ck_assert_int_eq(get("/livez"), 200);
    ck_assert_lacks(answer.p, "cards");
}

TEST(the_metrics_and_the_version)
{
    ck_assert_int_eq(get("/metrics"), 200);
    ck_has("our_metric 1\n");
    ck_assert_int_eq(get("/version"), 200);
    ck_has("{\"version\":\"" GPUSHARE_VERSION "\"}");
    ck_assert_int_eq(get("/other"), 404);
}

UNIT_MAIN_AROUND(begin, end)
