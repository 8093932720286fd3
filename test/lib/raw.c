/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/raw.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "lib/unit.h"

bool raw_connect(struct raw *c, int fd, unsigned port)
{
    const int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *c = (struct raw){.fd = fd};
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        raw_close(c);
        return false;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return true;
}

bool raw_try_open(struct raw *c, unsigned port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    return raw_connect(c, fd, port);
}

bool raw_try_open_from(struct raw *c, const char *address, unsigned port)
{
    const int on = 1;
    struct sockaddr_in from = {.sin_family = AF_INET};
    ck_assert_int_eq(inet_pton(AF_INET, address, &from.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    return raw_connect(c, fd, port);
}

void raw_open(struct raw *c, unsigned port)
{
    ck_assert_msg(raw_try_open(c, port), "cannot connect to port %u", port);
}

void raw_close(struct raw *c)
{
    if (c->fd >= 0)
        close(c->fd);
    buf_fini(&c->in);
    c->fd = -1;
}

void raw_reset(struct raw *c)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    raw_close(c);
}

bool raw_send(struct raw *c, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(c->fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

bool raw_sendf(struct raw *c, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    return raw_send(c, text.p, text.n);
}

/* Receives at least one byte. */
static enum raw_result receive(struct raw *c)
{
    struct pollfd fd = {.fd = c->fd, .events = POLLIN};
    if (poll(&fd, 1, LIB_WAIT_MS) <= 0)
        return RAW_TIMEOUT;
    buf_reserve(&c->in, 64 * 1024);
    ssize_t n = recv(c->fd, c->in.p + c->in.n, 64 * 1024, 0);
    if (n <= 0)
        return RAW_CLOSED;
    c->in.n += (size_t)n;
    c->in.p[c->in.n] = '\0';
    return RAW_OK;
}

static void drop(struct raw *c, size_t n)
{
    memmove(c->in.p, c->in.p + n, c->in.n - n + 1);
    c->in.n -= n;
}

enum raw_result raw_take(struct raw *c, struct buf *out, size_t n)
{
    enum raw_result rc = RAW_OK;
    while (rc == RAW_OK && c->in.n < n)
        rc = receive(c);
    size_t got = c->in.n < n ? c->in.n : n;
    buf_add(out, c->in.p, got);
    if (got)
        drop(c, got);
    return rc;
}

/* Moves the bytes up to and including `mark` to `out`. */
static enum raw_result take_to(struct raw *c, struct buf *out, const char *mark)
{
    char *at;
    while (!c->in.n || !(at = memmem(c->in.p, c->in.n, mark, strlen(mark)))) {
        enum raw_result rc = receive(c);
        if (rc != RAW_OK)
            return rc;
    }
    return raw_take(c, out, (size_t)(at - c->in.p) + strlen(mark));
}

enum raw_result raw_read_head(struct raw *c, struct raw_reply *r)
{
    raw_reply_fini(r);
    enum raw_result rc = take_to(c, &r->head, "\r\n\r\n");
    if (rc == RAW_OK && r->head.n > 12)
        r->status = (unsigned)strtoul(r->head.p + 9, NULL, 10);
    return rc;
}

enum raw_result raw_read_chunk(struct raw *c, struct raw_reply *r, bool *last)
{
    cleanup_buf struct buf line = {0}, end = {0};
    *last = false;
    enum raw_result rc = take_to(c, &line, "\r\n");
    if (rc != RAW_OK)
        return rc;
    size_t n = strtoul(line.p, NULL, 16);
    rc = raw_take(c, &r->body, n);
    if (rc == RAW_OK)
        rc = raw_take(c, &end, 2);
    *last = rc == RAW_OK && n == 0;
    return rc;
}

enum raw_result raw_read(struct raw *c, struct raw_reply *r)
{
    enum raw_result rc = raw_read_head(c, r);
    while (rc == RAW_OK && r->status == 100)
        rc = raw_read_head(c, r);
    if (rc != RAW_OK)
        return rc;
    if (span_eq_nocase(raw_header(r, "Transfer-Encoding"), SPAN("chunked"))) {
        bool last = false;
        while (rc == RAW_OK && !last)
            rc = raw_read_chunk(c, r, &last);
        return rc;
    }
    int64_t n;
    if (span_i64(raw_header(r, "Content-Length"), &n))
        return raw_take(c, &r->body, (size_t)n);
    return raw_read_all(c, &r->body);
}

void raw_call(struct raw *c, struct raw_reply *r, const char *request)
{
    ck_assert_msg(raw_send(c, request, strlen(request)), "cannot send %s", request);
    enum raw_result rc = raw_read(c, r);
    ck_assert_msg(rc == RAW_OK, "incomplete reply (%d) to %s", (int)rc, request);
}

struct span raw_header(const struct raw_reply *r, const char *name)
{
    struct span rest = buf_span(&r->head);
    span_cut(&rest, '\n');
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        struct span key = span_cut(&line, ':');
        if (line.p && span_eq_nocase(key, span_of(name)))
            return span_trim(line);
    }
    return (struct span){NULL, 0};
}

void raw_reply_fini(struct raw_reply *r)
{
    buf_fini(&r->head);
    buf_fini(&r->body);
    r->status = 0;
}

enum raw_result raw_read_all(struct raw *c, struct buf *out)
{
    enum raw_result rc = raw_take(c, out, SIZE_MAX / 2);
    return rc == RAW_CLOSED ? RAW_OK : rc;
}

bool raw_ended(struct raw *c)
{
    return c->in.n == 0 && receive(c) == RAW_CLOSED;
}

bool raw_until(bool (*is_true)(void *ctx), void *ctx)
{
    for (int64_t end = lib_now_ms() + LIB_WAIT_MS; lib_now_ms() < end;) {
        if (is_true(ctx))
            return true;
        lib_pause();
    }
    return is_true(ctx);
}

unsigned raw_count_fds(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}
