/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/stub.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <time.h>

enum { CONNS_MAX = 256, WAIT_S = 60 };

struct slot {
    struct stub_conn conn;
    pthread_t thread;
};

struct stub {
    stub_fn serve;
    void *ctx;
    int fd;
    unsigned port;
    char *url;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    struct slot *slots[CONNS_MAX];
    unsigned n;
    bool stopping;
    char **requests;
    size_t n_requests, cap;
};

static void *run_conn(void *arg)
{
    struct slot *slot = arg;
    struct stub *s = slot->conn.server;
    s->serve(&slot->conn, s->ctx);
    pthread_mutex_lock(&s->lock); /* stub_stop must not shut down a reused descriptor */
    close(slot->conn.fd);
    slot->conn.fd = -1;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void add_conn(struct stub *s, int fd)
{
    struct timeval limit = {.tv_sec = WAIT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    pthread_mutex_lock(&s->lock);
    if (s->stopping || s->n == CONNS_MAX) {
        close(fd);
    } else {
        struct slot *slot = xcalloc(1, sizeof *slot);
        slot->conn = (struct stub_conn){.server = s, .fd = fd, .index = s->n};
        s->slots[s->n++] = slot;
        if (pthread_create(&slot->thread, NULL, run_conn, slot))
            abort();
    }
    pthread_mutex_unlock(&s->lock);
}

static void *run_accept(void *arg)
{
    struct stub *s = arg;
    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd >= 0)
            add_conn(s, fd);
        else if (errno != EINTR && errno != ECONNABORTED)
            return NULL;
    }
}

static struct stub *start(stub_fn serve, void *ctx, int rcvbuf)
{
    struct stub *s = xcalloc(1, sizeof *s);
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->serve = serve;
    s->ctx = ctx;
    pthread_mutex_init(&s->lock, NULL);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rcvbuf)
        setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    if (bind(s->fd, (struct sockaddr *)&a, sizeof a) || listen(s->fd, 128) ||
        getsockname(s->fd, (struct sockaddr *)&a, &n))
        abort();
    s->port = ntohs(a.sin_port);
    s->url = xasprintf("http://127.0.0.1:%u", s->port);
    if (pthread_create(&s->thread, NULL, run_accept, s))
        abort();
    return s;
}

struct stub *stub_start(stub_fn serve, void *ctx)
{
    return start(serve, ctx, 0);
}

struct stub *stub_start_narrow(stub_fn serve, void *ctx)
{
    return start(serve, ctx, 4096);
}

void stub_stop(struct stub *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    for (unsigned i = 0; i < s->n; i++)
        if (s->slots[i]->conn.fd >= 0)
            shutdown(s->slots[i]->conn.fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
    for (unsigned i = 0; i < s->n; i++) {
        pthread_join(s->slots[i]->thread, NULL);
        buf_fini(&s->slots[i]->conn.in);
        free(s->slots[i]);
    }
    for (size_t i = 0; i < s->n_requests; i++)
        free(s->requests[i]);
    free(s->requests);
    free(s->url);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

unsigned stub_port(const struct stub *s)
{
    return s->port;
}

const char *stub_url(const struct stub *s)
{
    return s->url;
}

unsigned stub_connections(struct stub *s)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = s->n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

unsigned stub_requests(struct stub *s)
{
    pthread_mutex_lock(&s->lock);
    size_t n = s->n_requests;
    pthread_mutex_unlock(&s->lock);
    return (unsigned)n;
}

char *stub_request(struct stub *s, unsigned i)
{
    pthread_mutex_lock(&s->lock);
    char *copy = i < s->n_requests ? xstrdup(s->requests[i]) : NULL;
    pthread_mutex_unlock(&s->lock);
    ck_assert_msg(copy != NULL, "request %u does not exist", i);
    return copy;
}

static void record(struct stub *s, const char *p, size_t n)
{
    pthread_mutex_lock(&s->lock);
    MEM_GROW(s->requests, s->cap, s->n_requests + 1);
    s->requests[s->n_requests++] = xmemdup0(p, n);
    pthread_mutex_unlock(&s->lock);
}

bool stub_read(struct stub_conn *conn)
{
    cleanup_raw_reply struct raw_reply r = {0};
    int64_t body = 0;
    if (raw_read_head(&conn->raw, &r) != RAW_OK)
        return false;
    span_i64(raw_header(&r, "Content-Length"), &body);
    if (raw_take(&conn->raw, &r.head, (size_t)body) != RAW_OK)
        return false;
    record(conn->server, r.head.p, r.head.n);
    return true;
}

void stub_send(struct stub_conn *conn, const char *p, size_t n)
{
    raw_send(&conn->raw, p, n);
}

void stub_printf(struct stub_conn *conn, const char *fmt, ...)
{
    cleanup_buf struct buf out = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&out, fmt, ap);
    va_end(ap);
    stub_send(conn, out.p, out.n);
}

void stub_reply(struct stub_conn *conn, unsigned status, const char *headers,
                const char *body)
{
    stub_printf(conn, "HTTP/1.1 %u Some\r\nContent-Length: %zu\r\n%s\r\n%s", status,
                strlen(body), headers, body);
}

void stub_reset_at_close(struct stub_conn *conn)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

void stub_echo(struct stub_conn *conn, void *ctx)
{
    while (stub_read(conn))
        stub_reply(conn, 200, "", ctx);
}

size_t stub_drain(struct stub_conn *conn, bool *was_reset)
{
    char piece[4096];
    size_t total = 0;
    ssize_t n = recv(conn->fd, piece, sizeof piece, 0);
    for (; n > 0; n = recv(conn->fd, piece, sizeof piece, 0))
        total += (size_t)n;
    *was_reset = n < 0 && errno == ECONNRESET;
    return total;
}

struct gate {
    sem_t opened;
};

struct gate *gate_new(void)
{
    struct gate *g = xcalloc(1, sizeof *g);
    sem_init(&g->opened, 0, 0);
    return g;
}

void gate_open(struct gate *g)
{
    sem_post(&g->opened);
}

void gate_wait(struct gate *g)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    if (sem_timedwait(&g->opened, &until)) {
        fprintf(stderr, "timeout: the gate is closed\n");
        abort();
    }
    sem_post(&g->opened); /* it stays open */
}

void gate_free(struct gate *g)
{
    sem_destroy(&g->opened);
    free(g);
}
