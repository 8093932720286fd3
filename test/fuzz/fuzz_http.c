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

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extender/server.h"
#include "fuzz/replies.h"
#include "fuzz/verbs_driver.h"
#include "kube-sim/sim.h"

enum {
    LIMIT_MS = 8000, /* a connection still open then never ends */
    READ_WAIT_US = 2000,
    PAUSE_US = 20,
    PIECES_MAX = 64, /* the rest is one piece */
    RUNS_MAX = 256,
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

static unsigned logged_port(const char *text, const char *words)
{
    const char *at = strstr(text, words), *colon = at ? strchr(at, ':') : NULL;
    if (!colon)
        fuzz_fail("a server that does not log its address");
    return (unsigned)strtoul(colon + 1, NULL, 10);
}

/* The extender's server reports its addresses only in its log on standard error. */
static struct server *start_extender(struct core_driver *driver, struct gpuapi *observe,
                                     unsigned *ports)
{
    char said[512] = "";
    struct err err = {0};
    struct server_config config = {.address = "127.0.0.1",
                                   .connections = 16,
                                   .max_body = 1 << 20,
                                   .gpuapi = observe,
                                   .verbs = {.driver = driver}};
    int before = dup(STDERR_FILENO), file = memfd_create("said", MFD_CLOEXEC);
    dup2(file, STDERR_FILENO);
    struct server *s = server_start(&config, &err);
    dup2(before, STDERR_FILENO);
    if (!s || pread(file, said, sizeof said - 1, 0) <= 0)
        fuzz_fail(err.msg);
    close(file);
    close(before);
    ports[0] = logged_port(said, "listening on ");
    ports[1] = logged_port(said, "observing on ");
    return s;
}

/* All three servers, restarted now and then, because requests can change their state. */
struct fixture {
    struct api *api;
    struct sim_server *sim;
    struct core_driver *driver;
    struct gpuapi *observe;
    struct server *extender;
    unsigned ports[PORT_KINDS];
    struct buf first_reply[PORT_KINDS]; /* the reply to valid_requests[] */
    unsigned runs;
    int64_t until_ms;
};

static const char object[] =
    "[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}},"
    "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"large\","
    "\"namespace\":\"default\"},\"data\":{\"k\":\"%0*d\"}}]";

static struct fixture fixture;

static void stop_servers(void)
{
    struct fixture *w = &fixture;
    sim_server_stop(w->sim);
    api_free(w->api);
    server_stop(w->extender);
    gpuapi_free(w->observe);
    core_driver_free(w->driver);
    for (size_t i = 0; i < PORT_KINDS; i++)
        buf_fini(&w->first_reply[i]);
    *w = (struct fixture){0};
}

static void start_servers(void)
{
    struct fixture *w = &fixture;
    struct err err = {0};
    struct api_config ac = {.seed = 1, .history = 1000};
    struct sim_server_config sc = {.address = "127.0.0.1"};
    cleanup_buf struct buf objects = {0};
    w->api = api_new(&ac);
    buf_printf(&objects, object, LARGE, 0); /* its reply is compressed */
    if (api_load(w->api, 0, buf_span(&objects), &err) ||
        !(w->sim = sim_server_start(w->api, &sc, &w->ports[SIM], &err)))
        fuzz_fail(err.msg);
    w->driver = verbs_driver_new();
    w->observe = gpuapi_new(w->driver, &(struct gpuapi_config){0});
    w->extender = start_extender(w->driver, w->observe, &w->ports[VERBS]);
    w->until_ms = clock_mono_ms() + VERBS_DRIVER_MS;
}

/* -- the client -- */

static int connect_to(unsigned port)
{
    const int on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        fuzz_fail("cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void send_all(int fd, struct span bytes)
{
    while (bytes.n) {
        ssize_t n = send(fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the server may close the connection */
        bytes.p += n;
        bytes.n -= (size_t)n;
    }
}

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
static void send_pieces(int fd, unsigned cuts, struct span bytes)
{
    struct rng rng;
    rng_init(&rng, cuts);
    bool was_read = cuts > 0;
    for (int pieces = 1; was_read && bytes.n && pieces < PIECES_MAX; pieces++) {
        size_t most = 1 + rng_below(&rng, 1 + cuts);
        size_t n = 1 + rng_below(&rng, most);
        n = n < bytes.n ? n : bytes.n;
        send_all(fd, (struct span){bytes.p, n});
        was_read = await_read();
        bytes.p += n;
        bytes.n -= n;
    }
    send_all(fd, bytes);
}

/* Reads until the connection ends. Returns false if it is reset. */
static bool read_all(int fd, struct buf *out)
{
    int64_t until = clock_mono_ms() + LIMIT_MS;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = until - clock_mono_ms();
        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            fuzz_fail("the connection does not end");
        buf_reserve(out, 64 * 1024);
        ssize_t n = recv(fd, out->p + out->n, 64 * 1024, 0);
        if (n <= 0)
            return n == 0;
        out->n += (size_t)n;
    }
}

/* The connection may be reset if the client sends after the server has closed it; then an
 * incomplete reply is no error. Input that is sent at once arrives before the close. */
static bool run_connection(unsigned port, unsigned cuts, struct span bytes,
                           struct buf *out)
{
    atomic_store(&accepted, -1);
    int fd = connect_to(port);
    send_pieces(fd, cuts, bytes);
    shutdown(fd, SHUT_WR);
    bool whole = read_all(fd, out);
    close(fd);
    if (!whole && !cuts && bytes.n <= AT_ONCE)
        fuzz_fail("the connection is reset");
    return whole;
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
    char *date = out->n ? memmem(out->p, out->n, "Date: ", 6) : NULL;
    if (!span_starts(buf_span(out), SPAN("HTTP/1.1 200 OK\r\n")) || !date)
        fuzz_fail("a valid request fails");
    memset(date, '-', strcspn(date, "\r"));
}

/* The reply to a valid request is the same as after the start. */
static void check_valid_request(enum port_kind kind)
{
    cleanup_buf struct buf now = {0};
    get_reply(fixture.ports[kind], valid_requests[kind], &now);
    if (!fixture.first_reply[kind].n)
        buf_add_span(&fixture.first_reply[kind], buf_span(&now));
    if (!span_eq(buf_span(&now), buf_span(&fixture.first_reply[kind])))
        fuzz_fail("the reply to a valid request has changed");
}

/* The state has the number of watches of each resource. */
static bool has_watch(const char *state)
{
    static const char key[] = "\"watches\":{";
    const char *at = strstr(state, key);
    if (!at)
        fuzz_fail("the state has no watches");
    at += strlen(key);
    return strcspn(at, "123456789") < strcspn(at, "}");
}

/* A watch ends shortly after its client. */
static void check_no_watch(void)
{
    int64_t until = clock_mono_ms() + LIMIT_MS;
    cleanup_buf struct buf state = {0};
    for (;;) {
        get_reply(fixture.ports[SIM], GET("/kube-sim/state"), &state);
        buf_addc(&state, '\0');
        if (!has_watch(state.p))
            return;
        if (clock_mono_ms() > until)
            fuzz_fail("a watch is left open");
    }
}

/* Reverts the effect that requests under /kube-sim/ have on later requests. */
static void reset_sim(void)
{
    cleanup_buf struct buf out = {0};
    get_reply(fixture.ports[SIM],
              "DELETE /kube-sim/faults HTTP/1.1\r\nHost: x\r\n"
              "Connection: close\r\n\r\n",
              &out);
    get_reply(fixture.ports[SIM],
              POST("/kube-sim/watches", "{\"action\":\"release\"}", "20"), &out);
}

/* The fault "hang" takes a minute. */
static bool may_hang(struct span bytes)
{
    return memmem(bytes.p, bytes.n, "hang", 4) || memmem(bytes.p, bytes.n, "\\u", 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    static const char names[] = "svo";
    const char *name = size < 2 ? NULL : memchr(names, data[0], PORT_KINDS);
    if (!name)
        return -1;
    enum port_kind kind = (enum port_kind)(name - names);
    struct span bytes = {(const char *)data + 2, size - 2};
    if (kind == SIM && may_hang(bytes))
        return -1;
    if (!started)
        atexit(stop_servers); /* for the leak checker */
    started = true;
    if (clock_mono_ms() >= fixture.until_ms || fixture.runs >= RUNS_MAX) {
        stop_servers();
        start_servers();
        check_valid_request(SIM);
        check_valid_request(VERBS);
        check_valid_request(OBSERVERS);
    }
    fixture.runs++;
    cleanup_buf struct buf replies = {0};
    if (run_connection(fixture.ports[kind], data[1], bytes, &replies))
        replies_check(buf_span(&replies), memmem(bytes.p, bytes.n, "HEAD", 4));
    if (kind == SIM) {
        check_no_watch();
        reset_sim();
    }
    check_valid_request(kind);
    return 0;
}
