/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "bench/attackers.h"

enum {
    STACK = 128 * 1024,
    HOLD_MS = 5000, /* how long a client keeps a connection that does nothing */
    STEP_MS = 100,
    SMALL_BUFFER = 4096,
    RECORD = 16384,
};

struct count {
    _Atomic uint64_t connects, refused;
    _Atomic uint64_t replies; /* status lines read */
    _Atomic uint64_t ok;      /* ... with status 200 */
};

struct hostile {
    struct hostile_config config;
    gnutls_certificate_credentials_t credentials;
    struct buf large, tiny, model; /* bodies of filter */
    atomic_bool stop;
    struct client *clients;
    size_t n;
    struct count *counts; /* of each kind */
};

struct client {
    struct hostile *h;
    size_t kind;
    pthread_t thread;
    struct rng rng;
    int fd;
    gnutls_session_t tls; /* NULL: plain, or the handshake has not begun */
};

/* -- one connection -- */

static bool stopped(const struct client *c)
{
    return atomic_load(&c->h->stop);
}

/* False: stopped. */
static bool pause_for(const struct client *c, int64_t ms)
{
    for (; ms > 0 && !stopped(c); ms -= STEP_MS)
        nanosleep(&(struct timespec){.tv_nsec = (ms < STEP_MS ? ms : STEP_MS) * 1000000},
                  NULL);
    return !stopped(c);
}

static bool dial(struct client *c, unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 1};
    const int small = SMALL_BUFFER;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return false;
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    atomic_fetch_add(&c->h->counts[c->kind].connects, 1);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0)
        return true;
    atomic_fetch_add(&c->h->counts[c->kind].refused, 1);
    return false;
}

static void hang_up(struct client *c)
{
    if (c->tls)
        gnutls_deinit(c->tls);
    c->tls = NULL;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* Connects, with a complete handshake. */
static bool open_conn(struct client *c, unsigned port)
{
    if (!dial(c, port))
        return false;
    if (!c->h->config.tls)
        return true;
    gnutls_init(&c->tls, GNUTLS_CLIENT);
    gnutls_set_default_priority(c->tls);
    gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, c->h->credentials);
    gnutls_transport_set_int(c->tls, c->fd);
    int rc;
    do
        rc = gnutls_handshake(c->tls);
    while (rc == GNUTLS_E_INTERRUPTED && !stopped(c));
    if (rc != GNUTLS_E_SUCCESS)
        atomic_fetch_add(&c->h->counts[c->kind].refused, 1);
    return rc == GNUTLS_E_SUCCESS;
}

static ssize_t put_some(struct client *c, const char *p, size_t n)
{
    if (!c->tls)
        return send(c->fd, p, n, MSG_NOSIGNAL);
    return gnutls_record_send(c->tls, p, n < RECORD ? n : RECORD);
}

static bool put(struct client *c, struct span text)
{
    while (text.n && !stopped(c)) {
        ssize_t n = put_some(c, text.p, text.n);
        if (n <= 0)
            return false;
        text.p += n;
        text.n -= (size_t)n;
    }
    return !text.n;
}

static ssize_t get(struct client *c, char *p, size_t n)
{
    return c->tls ? gnutls_record_recv(c->tls, p, n) : recv(c->fd, p, n, 0);
}

/* Reads a reply until the server is silent or closes; counts its status. */
static void get_reply(struct client *c)
{
    char piece[4096];
    ssize_t n = get(c, piece, sizeof piece - 1);
    if (n <= 0)
        return;
    piece[n] = '\0';
    atomic_fetch_add(&c->h->counts[c->kind].replies, 1);
    if (strncmp(piece, "HTTP/1.1 200", 12) == 0)
        atomic_fetch_add(&c->h->counts[c->kind].ok, 1);
    while (n == (ssize_t)sizeof piece - 1 && !stopped(c))
        n = get(c, piece, sizeof piece - 1);
}

/* Waits until the server closes the connection, for at most HOLD_MS. */
static void hold(struct client *c)
{
    for (int ms = 0; ms < HOLD_MS && !stopped(c); ms += STEP_MS) {
        struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
        if (poll(&p, 1, STEP_MS) > 0)
            return;
    }
}

/* -- kinds: each makes one attempt on a new connection -- */

static unsigned any_port(struct client *c)
{
    return rng_next(&c->rng) & 1 ? c->h->config.main_port : c->h->config.observe_port;
}

static void silent(struct client *c)
{
    if (dial(c, any_port(c)))
        hold(c);
}

/* The first bytes of a ClientHello, or of a request line. */
static void half_handshake(struct client *c)
{
    static const char hello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01};
    if (!dial(c, any_port(c)))
        return;
    ssize_t n = send(c->fd, c->h->config.tls ? hello : "POST /fi", 8, MSG_NOSIGNAL);
    if (n > 0)
        hold(c);
}

static void slow_header(struct client *c)
{
    if (!open_conn(c, any_port(c)) ||
        !put(c, SPAN("GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: ")))
        return;
    for (int i = 0; i < HOLD_MS / 200 && put(c, SPAN("a")); i++)
        if (!pause_for(c, 200))
            return;
}

static bool post_filter(struct client *c, unsigned long length)
{
    cleanup_buf struct buf head = {0};
    buf_printf(&head,
               "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
               "Content-Length: %lu\r\n\r\n",
               length);
    return open_conn(c, c->h->config.main_port) && put(c, buf_span(&head));
}

static void announced_body(struct client *c)
{
    if (post_filter(c, 67108863) && put(c, SPAN("{")))
        hold(c);
}

static void body(struct client *c, const struct buf *text)
{
    if (post_filter(c, text->n)) {
        put(c, buf_span(text));
        get_reply(c);
    }
}

static void large_filter(struct client *c)
{
    body(c, &c->h->large);
}

static void tiny_names(struct client *c)
{
    body(c, &c->h->tiny);
}

static void many_models(struct client *c)
{
    body(c, &c->h->model);
}

static void malformed(struct client *c)
{
    char noise[256];
    static const char *const texts[] = {
        "GET  HTTP/1.1\r\n\r\n", "POST /bind HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{\"Pod\":[[",
        "PUT / HTTP/9.9\r\n\r\n"};
    if (!open_conn(c, any_port(c)))
        return;
    uint64_t pick = rng_next(&c->rng) % (ARRAY_LEN(texts) + 1);
    if (pick < ARRAY_LEN(texts)) {
        put(c, span_of(texts[pick]));
    } else {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (char)rng_next(&c->rng);
        put(c, (struct span){noise, sizeof noise});
    }
    get_reply(c);
}

static void idle_keep_alive(struct client *c)
{
    if (open_conn(c, any_port(c)) &&
        put(c, SPAN("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))) {
        get_reply(c);
        hold(c);
    }
}

static void unread_view(struct client *c)
{
    static const char *const paths[] = {"/inspect", "/metrics", "/inspect?watch=true",
                                        "/apis/nvidia-gpu-scheduler/v1/gpupods"};
    cleanup_buf struct buf request = {0};
    buf_printf(&request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n",
               paths[rng_next(&c->rng) % ARRAY_LEN(paths)]);
    if (open_conn(c, any_port(c)) && put(c, buf_span(&request)))
        hold(c);
}

static void forged_token(struct client *c)
{
    cleanup_buf struct buf request = {0};
    buf_printf(
        &request,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %llx%llx\r\n\r\n",
        (unsigned long long)rng_next(&c->rng), (unsigned long long)rng_next(&c->rng));
    if (open_conn(c, any_port(c)) && put(c, buf_span(&request)))
        get_reply(c);
}

static void reset_at_once(struct client *c)
{
    struct linger now = {.l_onoff = 1};
    if (dial(c, any_port(c)))
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void pipelined(struct client *c)
{
    cleanup_buf struct buf request = {0};
    for (int i = 0; i < 100; i++)
        buf_adds(&request, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
    if (open_conn(c, any_port(c)) && put(c, buf_span(&request)))
        get_reply(c);
}

static void endless_chunks(struct client *c)
{
    if (!open_conn(c, c->h->config.main_port) ||
        !put(c, SPAN("POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                     "\r\nTransfer-Encoding: chunked\r\n\r\n")))
        return;
    for (int i = 0; i < HOLD_MS / 100 && put(c, SPAN("1\r\n \r\n")); i++)
        if (!pause_for(c, 100))
            return;
}

static const struct kind {
    const char *name;
    void (*attempt)(struct client *c);
} kinds[] = {
    {"silent", silent},
    {"half-handshake", half_handshake},
    {"slow-header", slow_header},
    {"announced-body", announced_body},
    {"large-filter", large_filter},
    {"tiny-names", tiny_names},
    {"many-models", many_models},
    {"malformed", malformed},
    {"idle-keep-alive", idle_keep_alive},
    {"unread-view", unread_view},
    {"forged-token", forged_token},
    {"reset", reset_at_once},
    {"pipelined", pipelined},
    {"endless-chunks", endless_chunks},
};

/* -- all clients -- */

static void *run(void *arg)
{
    struct client *c = arg;
    setpriority(PRIO_PROCESS, 0, 19); /* of this thread, on Linux */
    while (!stopped(c)) {
        c->fd = -1;
        kinds[c->kind].attempt(c);
        hang_up(c);
        pause_for(c, c->h->config.pause_ms);
    }
    return NULL;
}

#define POD(annotations)                                                                 \
    "{\"Pod\":{\"metadata\":{\"name\":\"h\",\"namespace\":\"default\",\"uid\":\"h\","    \
    "\"annotations\":{" annotations "}},\"spec\":{\"containers\":[{\"resources\":{"      \
    "\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}},\"NodeNames\":["

static void make_bodies(struct hostile *h)
{
    enum { LARGE = 7 << 20, TINY = 16 << 20, MODEL = 250 };
    buf_adds(&h->large, POD(""));
    for (size_t i = 0; h->large.n < LARGE; i++)
        buf_printf(&h->large, "%s\"node-%05zu\"", i ? "," : "", i % h->config.names);
    buf_adds(&h->large, "]}");
    buf_adds(&h->tiny, POD(""));
    while (h->tiny.n < TINY)
        buf_adds(&h->tiny, "\"a\",");
    buf_adds(&h->tiny, "\"a\"]}");
    buf_adds(&h->model,
             POD("\"nvidia-gpu-scheduler/gpu.model\":\"a,b,c,d,e,f,g,h,i,j,k,l,m,"
                 "n,o,p,q,r,s,t,u,v,w,x,y,z,a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r\""));
    for (size_t i = 0; h->model.n < LARGE; i++)
        buf_printf(&h->model, "%s\"node-%05zu\"", i ? "," : "", i % h->config.names);
    buf_adds(&h->model, "]}");
}

static bool selected(const struct hostile_config *config, size_t kind)
{
    return !config->only || strcmp(config->only, kinds[kind].name) == 0;
}

/* New; all clients run until hostile_stop. NULL: `only` names no kind. */
static struct hostile *hostile_start(const struct hostile_config *config)
{
    size_t pick[ARRAY_LEN(kinds)], n = 0;
    pthread_attr_t attr;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (selected(config, i))
            pick[n++] = i;
    if (!n)
        return NULL;
    struct hostile *h = xcalloc(1, sizeof *h);
    h->config = *config;
    h->counts = xcalloc(ARRAY_LEN(kinds), sizeof *h->counts);
    h->clients = xcalloc(config->clients, sizeof *h->clients);
    gnutls_certificate_allocate_credentials(&h->credentials);
    make_bodies(h);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    for (h->n = 0; h->n < config->clients; h->n++) {
        struct client *c = &h->clients[h->n];
        *c = (struct client){.h = h, .kind = pick[h->n % n], .fd = -1};
        rng_init(&c->rng, h->n + 1);
        if (pthread_create(&c->thread, &attr, run, c))
            break;
    }
    pthread_attr_destroy(&attr);
    return h;
}

/* Waits for all clients, which close their connections. Frees. */
static void hostile_stop(struct hostile *h)
{
    atomic_store(&h->stop, true);
    for (size_t i = 0; i < h->n; i++)
        pthread_join(h->clients[i].thread, NULL);
    gnutls_certificate_free_credentials(h->credentials);
    buf_fini(&h->large);
    buf_fini(&h->tiny);
    buf_fini(&h->model);
    free(h->clients);
    free(h->counts);
    free(h);
}

/* -- the process -- */

static void attack(int from, int to, const void *processors)
{
    struct hostile_config config;
    char end;
    if (CPU_COUNT((const cpu_set_t *)processors))
        sched_setaffinity(0, sizeof(cpu_set_t), processors);
    bench_get(from, &config, sizeof config);
    struct hostile *h = hostile_start(&config);
    bench_put(to, &(bool){h != NULL}, sizeof(bool));
    if (!h)
        _exit(1);
    bench_get(from, &end, 1);
    bench_put(to, h->counts, ARRAY_LEN(kinds) * sizeof *h->counts);
    hostile_stop(h);
    _exit(0);
}

void attackers_fork(struct bench_child *a, const cpu_set_t *processors)
{
    bench_fork(a, attack, processors);
}

bool attackers_start(const struct bench_child *a, const struct hostile_config *config)
{
    bool ok = false;
    bench_put(a->to, config, sizeof *config);
    bench_get(a->from, &ok, sizeof ok);
    return ok;
}

void attackers_stop(const struct bench_child *a)
{
    struct count counts[ARRAY_LEN(kinds)];
    bench_put(a->to, "", 1);
    bench_get(a->from, counts, sizeof counts);
    printf("%-16s %10s %10s %10s %10s\n", "hostile clients", "connects", "refused",
           "replies", "status 200");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        printf("  %-14s %10llu %10llu %10llu %10llu\n", kinds[i].name,
               (unsigned long long)counts[i].connects,
               (unsigned long long)counts[i].refused,
               (unsigned long long)counts[i].replies, (unsigned long long)counts[i].ok);
    waitpid(a->pid, NULL, 0);
}
