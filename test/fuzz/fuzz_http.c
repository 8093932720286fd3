/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The bytes of one connection over the loopback to a server of ours: kube-sim, the
 * extender's main port or its observe port. The first byte selects the server ('s', 'v',
 * 'o'); the second says how the rest is cut into pieces: each piece is sent once the
 * server has read the one before. Then the client closes its sending side and reads.
 * Invariants:
 *   - the connection ends, in time;
 *   - the output is well-formed replies, the last one complete; only a chunked body, such
 *     as that of a watch, may end early, between two chunks;
 *   - no watch is left open, and a new connection works as usual.
 * This also tests how libmicrohttpd parses a request.
 */

#include "fuzz/fuzz.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "extender/server.h"
#include "fuzz/verbs_driver.h"
#include "kube-sim/sim.h"
#include "lib/raw.h"

enum {
    LIMIT_MS = 8000, /* a connection still open then never ends */
    READ_WAIT_US = 2000,
    PAUSE_US = 20,
    PIECES_MAX = 64, /* the rest is one piece */
    LARGE = 140000,
    AT_ONCE = 16 * 1024,
};

enum port_kind { SIM, VERBS, OBSERVERS, PORT_KINDS };

/* -- the servers -- */

/* The server's descriptor of the last accepted connection. */
static atomic_int accepted = -1;

int __real_accept4(int fd, struct sockaddr *addr, socklen_t *n, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *n, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *n, int flags)
{
    int got = __real_accept4(fd, addr, n, flags);
    if (got >= 0)
        atomic_store(&accepted, got);
    return got;
}

/* All three servers, restarted now and then, because requests can change their state. */
static struct {
    struct api *api;
    struct sim_server *sim;
    struct core_driver *driver;
    struct server *extender;
    unsigned ports[PORT_KINDS];
    struct buf first_reply[PORT_KINDS]; /* the reply to valid_requests[] */
    int64_t until_ms;
} servers;

static void stop_servers(void)
{
    sim_server_stop(servers.sim);
    api_free(servers.api);
    server_stop(servers.extender);
    server_free(servers.extender);
    core_driver_free(servers.driver);
    for (size_t i = 0; i < PORT_KINDS; i++)
        buf_fini(&servers.first_reply[i]);
    memset(&servers, 0, sizeof servers);
}

static unsigned logged_port(const char *text, const char *words)
{
    const char *at = strstr(text, words), *colon = at ? strchr(at, ':') : NULL;
    fuzz_fail_if(!colon, "a server that does not log its address");
    return (unsigned)strtoul(colon + 1, NULL, 10);
}

static void start_servers(void)
{
    char said[512] = "";
    struct err err = {0};
    cleanup_buf struct buf objects = {0};
    servers.api = api_new(&(struct api_config){.seed = 1, .history = 1000});
    buf_printf(
        &objects, /* its reply is compressed */
        "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}},"
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
        "\"large\",\"namespace\":\"default\"},\"data\":{\"k\":\"%0*d\"}}]",
        LARGE, 0);
    fuzz_fail_if(api_load(servers.api, 0, buf_span(&objects), &err), err.msg);
    servers.sim =
        sim_server_start(servers.api, &(struct sim_server_config){.address = "127.0.0.1"},
                         &servers.ports[SIM], &err);
    fuzz_fail_if(!servers.sim, err.msg);
    servers.driver = verbs_driver_new();
    struct server_config config = {.address = "127.0.0.1",
                                   .connections = 16,
                                   .max_body = 1 << 20,
                                   .verbs = {.driver = servers.driver}};
    /* It reports its addresses only in its log on standard error. */
    int before = dup(STDERR_FILENO), file = memfd_create("said", MFD_CLOEXEC);
    dup2(file, STDERR_FILENO);
    servers.extender = server_start(&config, &err);
    dup2(before, STDERR_FILENO);
    fuzz_fail_if(!servers.extender || pread(file, said, sizeof said - 1, 0) <= 0,
                 err.msg);
    close(file);
    close(before);
    servers.ports[VERBS] = logged_port(said, "listening on ");
    servers.ports[OBSERVERS] = logged_port(said, "observing on ");
    servers.until_ms = clock_mono_ms() + VERBS_DRIVER_MS;
}

/* -- the client -- */

/* Waits until the server has read the bytes that were sent. Returns false if it does not,
 * because it sends a reply or has closed the connection. */
static bool await_read(void)
{
    for (int us = 0; us < READ_WAIT_US; us += PAUSE_US) {
        int left, fd = atomic_load(&accepted);
        if (fd >= 0 && ioctl(fd, FIONREAD, &left) != 0)
            return false;
        if (fd >= 0 && left == 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_US * 1000}, NULL);
    }
    return false;
}

/* `cuts` 0: one piece. */
static void send_pieces(struct raw *c, unsigned cuts, struct span bytes)
{
    struct rng rng;
    rng_init(&rng, cuts);
    bool cut = cuts > 0;
    for (int pieces = 1; bytes.n; pieces++) {
        struct span part = fuzz_cut(
            &bytes, cut ? 1 + rng_below(&rng, 1 + rng_below(&rng, 1 + cuts)) : bytes.n);
        if (!raw_send(c, part.p, part.n))
            return; /* the server may close the connection */
        cut = cut && pieces < PIECES_MAX && await_read();
    }
}

/* The connection may be reset if the client sends after the server has closed it; then an
 * incomplete reply is no error, and the result is false. Input that is sent at once arrives
 * before the close. */
static bool run_connection(unsigned port, unsigned cuts, struct span bytes,
                           struct buf *out)
{
    struct raw c;
    int64_t until = clock_mono_ms() + LIMIT_MS;
    ssize_t n;
    atomic_store(&accepted, -1);
    fuzz_fail_if(!raw_connect(&c, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port),
                 "cannot connect");
    send_pieces(&c, cuts, bytes);
    shutdown(c.fd, SHUT_WR);
    do {
        struct pollfd p = {.fd = c.fd, .events = POLLIN};
        int64_t left = until - clock_mono_ms();
        fuzz_fail_if(left <= 0 || poll(&p, 1, (int)left) == 0,
                     "the connection does not end");
        buf_reserve(out, 64 * 1024);
        n = recv(c.fd, out->p + out->n, 64 * 1024, 0);
        out->n += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    raw_close(&c);
    fuzz_fail_if(n < 0 && !cuts && bytes.n <= AT_ONCE, "the connection is reset");
    return n == 0;
}

/* -- all bytes that a server sent on one connection: consecutive replies -- */

static bool take_line(struct span *rest, struct span *line)
{
    const char *end = memmem(rest->p, rest->n, "\r\n", 2);
    if (!end)
        return false;
    *line = (struct span){rest->p, (size_t)(end - rest->p)};
    rest->n -= line->n + 2;
    rest->p = end + 2;
    return true;
}

static uint64_t number_of(struct span digits, int base)
{
    static const char all[] = "0123456789", hex[] = "0123456789abcdefABCDEF";
    char text[10] = "";
    memcpy(text, digits.p, digits.n < sizeof text ? digits.n : 0);
    fuzz_fail_if(!*text || strspn(text, base == 10 ? all : hex) != digits.n,
                 "a length that is not a number");
    return strtoull(text, NULL, base);
}

struct head {
    unsigned status;
    bool has_length, chunked, closes;
    uint64_t length; /* 0 without one */
};

static struct head read_head(struct span *rest)
{
    struct head h = {0};
    struct span line;
    fuzz_fail_if(!take_line(rest, &line), "an unterminated status line");
    fuzz_fail_if(line.n < 13 || line.p[12] != ' ' ||
                     !(span_starts(line, SPAN("HTTP/1.1 ")) ||
                       span_starts(line, SPAN("HTTP/1.0 "))),
                 "a malformed status line");
    h.status = (unsigned)number_of((struct span){line.p + 9, 3}, 10);
    fuzz_fail_if(h.status < 100 || h.status > 599, "a malformed status");
    while (take_line(rest, &line) && line.n) {
        struct span value = line, name = span_cut(&value, ':');
        fuzz_fail_if(!name.n || !value.p || memchr(name.p, ' ', name.n),
                     "a malformed header");
        for (size_t i = 0; i < value.n; i++)
            fuzz_fail_if((unsigned char)value.p[i] < ' ' && value.p[i] != '\t',
                         "a control character in a header");
        value = span_trim(value);
        if (span_eq_nocase(name, SPAN("Content-Length"))) {
            fuzz_fail_if(h.has_length, "two Content-Length headers");
            h.has_length = true;
            h.length = number_of(value, 10);
        }
        h.chunked |= span_eq_nocase(name, SPAN("Transfer-Encoding"));
        h.closes |= span_eq_nocase(name, SPAN("Connection")) &&
                    span_eq_nocase(value, SPAN("close"));
    }
    fuzz_fail_if(line.n, "unterminated headers");
    fuzz_fail_if(h.chunked && h.has_length, "both Content-Length and Transfer-Encoding");
    return h;
}

static void skip(struct span *rest, uint64_t n)
{
    fuzz_fail_if(rest->n < n, "an incomplete body or chunk");
    fuzz_cut(rest, n);
}

/* `may_be_head`: a request may have been a HEAD, so a reply may have a length but no body. */
static void check_replies(struct span rest, bool may_be_head)
{
    while (rest.n) {
        struct span head = rest, line;
        struct head h = read_head(&rest);
        head.n -= rest.n;
        /* libmicrohttpd 0.9.75 sends the head of its reply twice when it rejects a
         * Content-Length that is too large or not a number, and closes the connection. */
        if ((h.status == 400 || h.status == 413) && h.closes && span_starts(rest, head))
            h = read_head(&rest);
        bool whole = h.has_length || h.chunked;
        bool bodiless =
            may_be_head && whole && (!rest.n || span_starts(rest, SPAN("HTTP/1.")));
        if (bodiless || h.status < 200 || h.status == 204 || h.status == 304)
            continue;
        fuzz_fail_if(!whole && !h.closes, "a body without a length");
        if (!whole)
            return; /* the body ends with the connection */
        skip(&rest, h.length);
        for (uint64_t n = 1; h.chunked && n && rest.n;) {
            fuzz_fail_if(!take_line(&rest, &line), "a chunk without a length");
            n = number_of(line, 16);
            skip(&rest, n);
            fuzz_fail_if(!take_line(&rest, &line) || line.n, "an incomplete chunk");
        }
    }
}

/* -- checks after a connection -- */

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
#define POST(path, body, length)                                                         \
    "POST " path                                                                         \
    " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " length  \
    "\r\nConnection: close\r\n\r\n" body

static const char *const valid_requests[PORT_KINDS] = {
    GET("/version"),
    POST("/filter",
         "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":\"u\"},"
         "\"spec\":"
         "{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"aliyun.com/"
         "gpu-mem\":\"2\"}}}]}},\"NodeNames\":[\"n1\",\"n2\",\"n3\"]}",
         "175"),
    GET("/inspect/n1"),
};

static void get_reply(unsigned port, const char *request, struct buf *out)
{
    buf_clear(out);
    run_connection(port, 0, span_of(request), out);
    buf_addc(out, '\0');
    char *date = memmem(out->p, out->n, "Date: ", 6);
    fuzz_fail_if(!span_starts(buf_span(out), SPAN("HTTP/1.1 200 OK\r\n")) || !date,
                 "a valid request fails");
    memset(date, '-', strcspn(date, "\r"));
}

/* The reply to a valid request is the same as after the start. */
static void check_valid_request(enum port_kind kind)
{
    cleanup_buf struct buf now = {0};
    struct buf *first = &servers.first_reply[kind];
    get_reply(servers.ports[kind], valid_requests[kind], &now);
    if (!first->n)
        buf_set(first, buf_span(&now));
    fuzz_check_same(&now, first, "the reply to a valid request has changed");
}

/* A watch ends shortly after its client. The state has the number of watches of each
 * resource. */
static void check_no_watch(void)
{
    static const char key[] = "\"watches\":{";
    int64_t until = clock_mono_ms() + LIMIT_MS;
    cleanup_buf struct buf state = {0};
    const char *at;
    do {
        fuzz_fail_if(clock_mono_ms() > until, "a watch is left open");
        get_reply(servers.ports[SIM], GET("/kube-sim/state"), &state);
        at = strstr(state.p, key);
        fuzz_fail_if(!at, "the state has no watches");
        at += strlen(key);
    } while (strcspn(at, "123456789") < strcspn(at, "}"));
}

void fuzz_input(struct span in)
{
    static bool started;
    static const char names[] = "svo";
    const char *name = in.n < 2 ? NULL : memchr(names, *in.p, PORT_KINDS);
    if (!name)
        return;
    enum port_kind kind = (enum port_kind)(name - names);
    struct span bytes = {in.p + 2, in.n - 2};
    /* The fault "hang" takes a minute. */
    if (kind == SIM &&
        (memmem(bytes.p, bytes.n, "hang", 4) || memmem(bytes.p, bytes.n, "\\u", 2)))
        return;
    if (!started)
        atexit(stop_servers); /* for the leak checker */
    started = true;
    if (clock_mono_ms() >= servers.until_ms) {
        stop_servers();
        start_servers();
        for (int i = 0; i < PORT_KINDS; i++)
            check_valid_request((enum port_kind)i);
    }
    cleanup_buf struct buf out = {0};
    if (run_connection(servers.ports[kind], (unsigned char)in.p[1], bytes, &out))
        check_replies(buf_span(&out), memmem(bytes.p, bytes.n, "HEAD", 4));
    if (kind == SIM) {
        check_no_watch();
        /* Reverts the effect that requests under /kube-sim/ have on later requests. */
        get_reply(servers.ports[SIM],
                  "DELETE /kube-sim/faults HTTP/1.1\r\nHost: x\r\n"
                  "Connection: close\r\n\r\n",
                  &out);
        get_reply(servers.ports[SIM],
                  POST("/kube-sim/watches", "{\"action\":\"release\"}", "20"), &out);
    }
    check_valid_request(kind);
}
