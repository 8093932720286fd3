/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "lib/raw.h"

enum { PIECE = 256 << 10, CONNECTIONS = 16 };

struct conn {
    struct raw raw;
    struct span out;  /* unsent bytes */
    size_t head, all; /* lengths of the reply's head, and of the reply; 0: unknown */
    double sent_ms;
};

/* Sends as much as the socket accepts. */
static void conn_push(struct conn *c)
{
    while (c->out.n) {
        ssize_t n = send(c->raw.fd, c->out.p, c->out.n, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        ck_assert_msg(n >= 0, "send: %s", strerror(errno));
        c->out.p += n;
        c->out.n -= (size_t)n;
    }
}

static void conn_send(struct conn *c, struct load *load)
{
    buf_clear(&c->raw.in);
    c->head = c->all = 0;
    c->out = load->requests[load->next++ % load->n_requests];
    c->sent_ms = lib_now_exact_ms();
    conn_push(c);
}

/* Reads the available bytes. True: the reply is complete. */
static bool conn_pull(struct conn *c)
{
    struct buf *in = &c->raw.in;
    for (;;) {
        buf_reserve(in, PIECE);
        ssize_t n = recv(c->raw.fd, in->p + in->n, PIECE, 0);
        if (n < 0 && errno == EAGAIN)
            return false;
        ck_assert_msg(n > 0, "the server closed the connection: %s", strerror(errno));
        in->n += (size_t)n;
        in->p[in->n] = '\0';
        const char *end = c->all ? NULL : strstr(in->p, "\r\n\r\n");
        const char *length = end ? strcasestr(in->p, "\r\nContent-Length:") : NULL;
        if (length) {
            c->head = (size_t)(end - in->p) + 4;
            c->all = c->head + strtoul(strchr(length, ':') + 1, NULL, 10);
        }
        if (c->all && in->n >= c->all)
            return true;
    }
}

/* Verbs report an error with status 200, in the first member. */
static bool is_failure(const struct conn *c)
{
    struct span body = {c->raw.in.p + c->head, c->all - c->head};
    return c->raw.in.p[strlen("HTTP/1.1 ")] != '2' ||
           (span_starts(body, SPAN("{\"Error\":")) &&
            !span_starts(body, SPAN("{\"Error\":\"\"")));
}

void load_run(struct load *load, unsigned connections, size_t calls)
{
    struct conn conns[CONNECTIONS] = {0};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    size_t end = load->next + calls;
    load->ms.n = 0;
    MEM_GROW(load->ms.of, load->ms.cap, calls);
    for (unsigned i = 0; i < connections; i++) {
        raw_open(&conns[i].raw, load->port);
        fcntl(conns[i].raw.fd, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                    .data.ptr = &conns[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].raw.fd, &event);
    }
    double start = lib_now_exact_ms();
    for (unsigned i = 0; i < connections && load->next < end; i++)
        conn_send(&conns[i], load);
    while (load->ms.n < calls) {
        struct epoll_event events[CONNECTIONS];
        int got = epoll_wait(epoll, events, CONNECTIONS, LIB_WAIT_MS);
        ck_assert_msg(got > 0 || errno == EINTR, "no answer for a minute");
        for (int i = 0; i < got; i++) {
            struct conn *c = events[i].data.ptr;
            conn_push(c);
            if (!conn_pull(c))
                continue;
            series_note(&load->ms, lib_now_exact_ms() - c->sent_ms);
            load->failed += is_failure(c);
            if (load->next < end)
                conn_send(c, load);
        }
    }
    load->seconds = (lib_now_exact_ms() - start) / 1e3;
    for (unsigned i = 0; i < connections; i++)
        raw_close(&conns[i].raw);
    close(epoll);
}

struct span load_request(struct arena *a, const char *method, const char *path,
                         struct span body)
{
    cleanup_buf struct buf b = {0};
    buf_printf(&b,
               "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               method, path, body.n);
    buf_add_span(&b, body);
    return arena_copy(a, buf_span(&b));
}
