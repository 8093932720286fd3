/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { SILENCE_MS = 60 * 1000 }; /* a server without a reply for this time has failed */

struct conn {
    int fd;
    struct span out; /* unsent bytes */
    struct buf in;
    size_t head, body; /* lengths of the reply; head 0: unknown */
    size_t scanned;
    unsigned status;
    int64_t sent_ns;
};

static void give_up(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void conn_open(struct conn *c, unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1;
    *c = (struct conn){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to))
        give_up("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

static void conn_close(struct conn *c)
{
    close(c->fd);
    buf_fini(&c->in);
}

/* Sends as much as the socket accepts. */
static void conn_push(struct conn *c)
{
    while (c->out.n) {
        ssize_t n = send(c->fd, c->out.p, c->out.n, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            give_up("send");
        c->out.p += n;
        c->out.n -= (size_t)n;
    }
}

static void conn_send(struct conn *c, struct span request)
{
    buf_clear(&c->in);
    c->head = c->body = c->scanned = 0;
    c->out = request;
    c->sent_ns = now_ns();
    conn_push(c);
}

static void read_head(struct conn *c)
{
    const char *end = memmem(c->in.p + c->scanned, c->in.n - c->scanned, "\r\n\r\n", 4);
    if (!end) {
        c->scanned = c->in.n > 3 ? c->in.n - 3 : 0;
        return;
    }
    c->head = (size_t)(end - c->in.p) + 4;
    c->status = (unsigned)strtoul(c->in.p + sizeof "HTTP/1.1", NULL, 10);
    for (const char *at = c->in.p; at && at < end; at = memchr(at, '\n', c->head)) {
        at++;
        if (strncasecmp(at, "content-length:", 15) == 0)
            c->body = strtoul(at + 15, NULL, 10);
    }
}

/* Reads the available bytes. True: the reply is complete. */
static bool conn_pull(struct conn *c)
{
    for (;;) {
        buf_reserve(&c->in, 256 << 10);
        ssize_t n = recv(c->fd, c->in.p + c->in.n, 256 << 10, 0);
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0)
            give_up("the server closed the connection");
        c->in.n += (size_t)n;
        c->in.p[c->in.n] = '\0';
        if (!c->head)
            read_head(c);
        if (c->head && c->in.n >= c->head + c->body)
            return true;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct run {
    const struct load *load;
    struct load_result *result;
    size_t started;
    int epoll;
};

static void begin(struct run *run, struct conn *c)
{
    const struct load *load = run->load;
    conn_send(c, load->requests[(load->first + run->started++) % load->n_requests]);
}

/* Verbs report an error with status 200, in the first member. */
static bool is_failure(const struct conn *c)
{
    struct span body = {c->in.p + c->head, c->body};
    return c->status / 100 != 2 || (span_starts(body, SPAN("{\"Error\":")) &&
                                    !span_starts(body, SPAN("{\"Error\":\"\"")));
}

static void finish(struct run *run, struct conn *c)
{
    struct load_result *r = run->result;
    r->ms[r->calls++] = (double)(now_ns() - c->sent_ns) / 1e6;
    r->failed += is_failure(c);
    r->bytes += c->body;
}

void load_run(const struct load *load, struct load_result *result)
{
    struct run run = {
        .load = load, .result = result, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    unsigned n = load->connections;
    struct conn *conns = xcalloc(n, sizeof *conns);
    *result = (struct load_result){.ms = xcalloc(load->calls, sizeof *result->ms)};
    for (unsigned i = 0; i < n; i++) {
        conn_open(&conns[i], load->port);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                    .data.ptr = &conns[i]};
        epoll_ctl(run.epoll, EPOLL_CTL_ADD, conns[i].fd, &event);
    }
    int64_t start = now_ns();
    for (unsigned i = 0; i < n && run.started < load->calls; i++)
        begin(&run, &conns[i]);
    while (result->calls < load->calls) {
        struct epoll_event events[64];
        int got = epoll_wait(run.epoll, events, ARRAY_LEN(events), SILENCE_MS);
        if (got <= 0 && errno != EINTR)
            give_up("no answer for a minute");
        for (int i = 0; i < got; i++) {
            struct conn *c = events[i].data.ptr;
            conn_push(c);
            if (!conn_pull(c))
                continue;
            finish(&run, c);
            if (run.started < load->calls)
                begin(&run, c);
        }
    }
    result->seconds = (double)(now_ns() - start) / 1e9;
    for (unsigned i = 0; i < n; i++)
        conn_close(&conns[i]);
    free(conns);
    close(run.epoll);
    qsort(result->ms, result->calls, sizeof *result->ms, compare);
}

void load_result_fini(struct load_result *r)
{
    free(r->ms);
    *r = (struct load_result){0};
}

double load_quantile(const struct load_result *r, double share)
{
    size_t i = (size_t)(share * (double)r->calls);
    return r->ms[i < r->calls ? i : r->calls - 1];
}

unsigned load_once(unsigned port, struct span request)
{
    struct conn c;
    conn_open(&c, port);
    conn_send(&c, request);
    for (bool done = false; !done;) {
        struct pollfd fd = {.fd = c.fd, .events = POLLIN | (c.out.n ? POLLOUT : 0)};
        if (poll(&fd, 1, SILENCE_MS) <= 0)
            give_up("no answer for a minute");
        conn_push(&c);
        done = fd.revents & POLLIN && conn_pull(&c);
    }
    conn_close(&c);
    return c.status;
}

struct span load_request(const char *method, const char *path, struct span body)
{
    struct buf b = {0};
    buf_printf(&b,
               "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               method, path, body.n);
    buf_add_span(&b, body);
    size_t n = b.n;
    return (struct span){buf_take(&b), n};
}
