/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
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

int load_connect(unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        bench_die("connect: %s", strerror(errno));
    return fd;
}

static void conn_open(struct conn *c, unsigned port)
{
    int on = 1;
    *c = (struct conn){.fd = load_connect(port)};
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
            bench_die("send: %s", strerror(errno));
        c->out.p += n;
        c->out.n -= (size_t)n;
    }
}

static void conn_send(struct conn *c, struct span request)
{
    buf_clear(&c->in);
    c->head = c->body = c->scanned = 0;
    c->out = request;
    c->sent_ns = bench_now_ns();
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
            bench_die("the server closed the connection: %s", strerror(errno));
        c->in.n += (size_t)n;
        c->in.p[c->in.n] = '\0';
        if (!c->head)
            read_head(c);
        if (c->head && c->in.n >= c->head + c->body)
            return true;
    }
}

/* Verbs report an error with status 200, in the first member. */
static bool is_failure(const struct conn *c)
{
    struct span body = {c->in.p + c->head, c->body};
    return c->status / 100 != 2 || (span_starts(body, SPAN("{\"Error\":")) &&
                                    !span_starts(body, SPAN("{\"Error\":\"\"")));
}

void load_run(const struct load *load, struct load_result *result)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    unsigned n = load->connections;
    size_t next = load->first, end = load->first + load->calls;
    struct conn *conns = xcalloc(n, sizeof *conns);
    *result = (struct load_result){0};
    MEM_GROW(result->ms.of, result->ms.cap, load->calls);
    for (unsigned i = 0; i < n; i++) {
        conn_open(&conns[i], load->port);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                    .data.ptr = &conns[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].fd, &event);
    }
    int64_t start = bench_now_ns();
    for (unsigned i = 0; i < n && next < end; i++)
        conn_send(&conns[i], load->requests[next++ % load->n_requests]);
    while (result->ms.n < load->calls) {
        struct epoll_event events[64];
        int got = epoll_wait(epoll, events, ARRAY_LEN(events), SILENCE_MS);
        if (got <= 0 && errno != EINTR)
            bench_die("no answer for a minute");
        for (int i = 0; i < got; i++) {
            struct conn *c = events[i].data.ptr;
            conn_push(c);
            if (!conn_pull(c))
                continue;
            series_note(&result->ms, (double)(bench_now_ns() - c->sent_ns) / 1e6);
            result->failed += is_failure(c);
            if (next < end)
                conn_send(c, load->requests[next++ % load->n_requests]);
        }
    }
    result->seconds = (double)(bench_now_ns() - start) / 1e9;
    for (unsigned i = 0; i < n; i++)
        conn_close(&conns[i]);
    free(conns);
    close(epoll);
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

/* -- sequential calls -- */

static size_t take(char *p, size_t size, size_t n, void *reply)
{
    buf_add(reply, p, size * n);
    return size * n;
}

long ask(const char *method, unsigned port, const char *path, const char *body,
         json_t **answer)
{
    static _Thread_local CURL *curl; /* lives as long as the program */
    cleanup_buf struct buf reply = {0};
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u%s", port, path);
    bool patch = strcmp(method, "PATCH") == 0;
    struct curl_slist *headers =
        curl_slist_append(NULL, patch ? "Content-Type: application/merge-patch+json"
                                      : "Content-Type: application/json");
    long status = 0;
    if (!curl && !(curl = curl_easy_init()))
        abort();
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    if (body)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 40L);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    if (answer)
        *answer = status / 100 == 2 ? json_loadb(reply.p, reply.n, 0, NULL) : NULL;
    return status;
}

long ask_send(const char *method, unsigned port, const char *path, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    long status = ask(method, port, path, text, NULL);
    free(text);
    json_decref(body);
    return status;
}
