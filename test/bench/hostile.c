/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <curl/curl.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/rng.h"
#include "kube/secret.h"

/*
 * make bench-hostile: one honest kube-scheduler calls filter, a kubelet probes, and the
 * leader renews its Lease, first alone and then while hostile clients do their worst. Fails
 * if a call of the honest clients fails, a probe takes longer than a second, the Lease is
 * not renewed in time, the memory limit is exceeded, or descriptors stay open afterwards.
 */

enum {
    FILTER_PAUSE_MS = 20,
    PROBE_PAUSE_MS = 250,
    PROBE_LIMIT_MS = 1000,
    LEASE_LIMIT_MS = 5000, /* leaseDurationSeconds of the extender's Lease */
    SETTLE_MS = 30000,     /* for the last hostile connections to close */
    CALL_LIMIT_MS = 30000,
    SLOWER = 5, /* aim: the p99 of filter, to that of the quiet phase */
    MIB = 256,  /* aim: resident memory of the extender */
};

struct config {
    int64_t quiet_ms, siege_ms, nodes, clients, pause_ms;
    char *only;
    bool tls, apart;
};
static const struct config *config;
static unsigned main_port, observe_port;

/* == The hostile clients ==
 *
 * One thread each: silent, slow, huge, malformed and many connections, with and without TLS.
 * None of them has a credential. They run at the lowest priority, so that on a small machine
 * the server's work is measured and not theirs; and in a process of their own: in that of the
 * honest clients, a thousand threads would hold the locks of malloc.
 */

enum {
    STACK = 128 * 1024,
    HOLD_MS = 5000, /* how long a client keeps a connection that does nothing */
    STEP_MS = 100,
    SMALL_BUFFER = 4096,
    RECORD = 16384,
};

/* What a client sends, and what it does then; on a new connection each time. */
struct kind {
    const char *name;
    const char *texts[5]; /* one of them at random; "" is random bytes */
    size_t repeat;        /* the text so many times; 0: once */
    bool main_port;       /* else one of the ports at random */
    bool no_handshake;    /* without TLS */
    bool random_token;    /* after the text, and the end of the headers */
    const struct buf
        *body;        /* after the text, which ends with the header Content-Length */
    const char *drip; /* every DRIP_MS until the server closes the connection */
    enum { CLOSE, READ, HOLD, READ_AND_HOLD, RESET } then;
};
enum { DRIP_MS = 100 };

static struct buf large, tiny, models; /* bodies of filter */
#define POST_JSON(path)                                                                  \
    "POST " path " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
static const struct kind kinds[] = {
    {"silent", .no_handshake = true, .then = HOLD},
    /* The first bytes of a ClientHello. */
    {"half-handshake",
     {"\x16\x03\x01\x02\x01\x01\x01\x01"},
     .no_handshake = true,
     .then = HOLD},
    {"slow-header",
     {"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Slow: "},
     .drip = "a"},
    {"announced-body",
     {POST_JSON("/filter") "Content-Length: 67108863\r\n\r\n{"},
     .main_port = true,
     .then = HOLD},
    {"large-filter",
     {POST_JSON("/filter")},
     .main_port = true,
     .body = &large,
     .then = READ},
    {"tiny-names",
     {POST_JSON("/filter")},
     .main_port = true,
     .body = &tiny,
     .then = READ},
    {"many-models",
     {POST_JSON("/filter")},
     .main_port = true,
     .body = &models,
     .then = READ},
    {"malformed",
     {"GET  HTTP/1.1\r\n\r\n", "POST /bind HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{\"Pod\":[[",
      "PUT / HTTP/9.9\r\n\r\n", ""},
     .then = READ},
    {"idle-keep-alive",
     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"},
     .then = READ_AND_HOLD},
    {"unread-view",
     {"GET /inspect HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /inspect?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /apis/nvidia-gpu-scheduler/v1/gpupods HTTP/1.1\r\nHost: localhost\r\n\r\n"},
     .then = HOLD},
    {"forged-token",
     {"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "},
     .random_token = true,
     .then = READ},
    {"reset", .no_handshake = true, .then = RESET},
    {"pipelined",
     {"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"},
     .repeat = 100,
     .then = READ},
    {"endless-chunks",
     {POST_JSON("/bind") "Transfer-Encoding: chunked\r\n\r\n"},
     .main_port = true,
     .drip = "1\r\n \r\n"},
};
static struct count {
    atomic_uint connects, refused;
    atomic_uint replies; /* status lines read */
    atomic_uint ok;      /* ... with status 200 */
} counts[ARRAY_LEN(kinds)];
static atomic_bool siege_ends;
static gnutls_certificate_credentials_t credentials;

struct client {
    size_t kind;
    pthread_t thread;
    struct rng rng;
    int fd;
    gnutls_session_t tls; /* NULL: plain, or the handshake has not begun */
};

static bool dial(struct client *c, unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 1};
    const int small = SMALL_BUFFER;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    atomic_fetch_add(&counts[c->kind].connects, 1);
    bool good = connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0;
    if (good && config->tls && !kinds[c->kind].no_handshake) {
        gnutls_init(&c->tls, GNUTLS_CLIENT);
        gnutls_set_default_priority(c->tls);
        gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, credentials);
        gnutls_transport_set_int(c->tls, c->fd);
        int rc;
        do
            rc = gnutls_handshake(c->tls);
        while (rc == GNUTLS_E_INTERRUPTED && !atomic_load(&siege_ends));
        good = rc == GNUTLS_E_SUCCESS;
    }
    atomic_fetch_add(&counts[c->kind].refused, !good);
    return good;
}

static bool put(struct client *c, struct span text)
{
    while (text.n && !atomic_load(&siege_ends)) {
        ssize_t n =
            c->tls ? gnutls_record_send(c->tls, text.p, text.n < RECORD ? text.n : RECORD)
                   : send(c->fd, text.p, text.n, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        text.p += n;
        text.n -= (size_t)n;
    }
    return !text.n;
}

/* Reads a reply until the server is silent or closes; counts its status. */
static void get_reply(struct client *c)
{
    char piece[4096];
    bool first = true;
    ssize_t n;
    do {
        n = c->tls ? gnutls_record_recv(c->tls, piece, sizeof piece)
                   : recv(c->fd, piece, sizeof piece, 0);
        atomic_fetch_add(&counts[c->kind].replies, first && n > 0);
        atomic_fetch_add(&counts[c->kind].ok,
                         first && n > 12 && !memcmp(piece, "HTTP/1.1 200", 12));
        first = false;
    } while (n == (ssize_t)sizeof piece && !atomic_load(&siege_ends));
}

/* Waits until the server closes the connection, for at most `ms`. */
static bool closes_within(struct client *c, int ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    for (; ms > 0 && !atomic_load(&siege_ends); ms -= STEP_MS)
        if (poll(&p, 1, STEP_MS) > 0)
            return true;
    return false;
}

static void attempt(struct client *c, const struct kind *kind)
{
    cleanup_buf struct buf out = {0};
    size_t n = 0;
    while (n < ARRAY_LEN(kind->texts) && kind->texts[n])
        n++;
    const char *text = n ? kind->texts[rng_below(&c->rng, n)] : NULL;
    for (size_t i = 0; text && i < (kind->repeat ? kind->repeat : 1); i++)
        buf_adds(&out, text);
    for (int i = 0; text && !*text && i < 256; i++)
        buf_addc(&out, (char)rng_next(&c->rng));
    if (kind->random_token)
        buf_printf(&out, "%llx%llx\r\n\r\n", (unsigned long long)rng_next(&c->rng),
                   (unsigned long long)rng_next(&c->rng));
    if (kind->body)
        buf_printf(&out, "Content-Length: %zu\r\n\r\n", kind->body->n);
    bool main = kind->main_port || rng_below(&c->rng, 2);
    if (!dial(c, main ? main_port : observe_port) || !put(c, buf_span(&out)))
        return;
    if (kind->body)
        put(c, buf_span(kind->body));
    for (int i = 0; kind->drip && i < HOLD_MS / DRIP_MS; i++)
        if (!put(c, span_of(kind->drip)) || closes_within(c, DRIP_MS))
            return;
    if (kind->then == READ || kind->then == READ_AND_HOLD)
        get_reply(c);
    if (kind->then == HOLD || kind->then == READ_AND_HOLD)
        closes_within(c, HOLD_MS);
    if (kind->then == RESET)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                   sizeof(struct linger));
}

static void *attack(void *arg)
{
    struct client *c = arg;
    setpriority(PRIO_PROCESS, 0, 19); /* of this thread, on Linux */
    while (!atomic_load(&siege_ends)) {
        attempt(c, &kinds[c->kind]);
        if (c->tls)
            gnutls_deinit(c->tls);
        c->tls = NULL;
        close(c->fd);
        for (int64_t ms = config->pause_ms; ms > 0 && !atomic_load(&siege_ends);
             ms -= STEP_MS)
            clock_sleep_ms(ms < STEP_MS ? ms : STEP_MS);
    }
    return NULL;
}

/* The process, to be started before any thread. The clients attack from SIGUSR1 to SIGUSR2. */
static pid_t attackers_fork(const cpu_set_t *processors)
{
    enum { LARGE = 7 << 20, TINY = 16 << 20 };
    size_t pick[ARRAY_LEN(kinds)], n = 0;
    struct client *clients = xcalloc((size_t)config->clients, sizeof *clients);
    pthread_attr_t attr;
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (CPU_COUNT(processors))
        sched_setaffinity(0, sizeof *processors, processors);
    array_indices(i, kinds)
        if (!config->only || strcmp(config->only, kinds[i].name) == 0)
            pick[n++] = i;
    bodies_filter(&large, "{}", (size_t)config->nodes, LARGE);
    bodies_filter(
        &models,
        "{\"nvidia-gpu-scheduler/gpu.model\":\"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,"
        "r,s,t,u,v,w,x,y,z,a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r\"}",
        (size_t)config->nodes, LARGE);
    bodies_filter(&tiny, "{}", 1, 0);
    for (tiny.n -= 2; tiny.n < TINY;)
        buf_adds(&tiny, ",\"a\"");
    buf_adds(&tiny, "]}");
    gnutls_certificate_allocate_credentials(&credentials);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    sigwait(&signals, &number);
    for (size_t i = 0; i < (size_t)config->clients; i++) {
        clients[i].kind = pick[i % n];
        rng_init(&clients[i].rng, i + 1);
        ck_assert_int_eq(pthread_create(&clients[i].thread, &attr, attack, &clients[i]),
                         0);
    }
    sigwait(&signals, &number);
    printf("%-16s %10s %10s %10s %10s\n", "hostile clients", "connects", "refused",
           "replies", "status 200");
    array_indices(i, kinds)
        printf("  %-14s %10u %10u %10u %10u\n", kinds[i].name, counts[i].connects,
               counts[i].refused, counts[i].replies, counts[i].ok);
    atomic_store(&siege_ends, true);
    for (size_t i = 0; i < (size_t)config->clients; i++)
        pthread_join(clients[i].thread, NULL);
    _exit(0);
}

/* Hostile clients are other machines: they take no processor from the extender. */
static void part_processors(cpu_set_t *theirs)
{
    cpu_set_t all, ours;
    CPU_ZERO(&ours);
    CPU_ZERO(theirs);
    sched_getaffinity(0, sizeof all, &all);
    int left = CPU_COUNT(&all) - CPU_COUNT(&all) / 2;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, left-- > 0 ? &ours : theirs);
    sched_setaffinity(0, sizeof ours, &ours); /* also for the programs that it starts */
}

/* == The honest clients, a thread each == */

enum { QUIET, SIEGE, AFTERWARDS /* not reported */, PHASES };

struct latencies {
    struct series ms;
    size_t failed;
};

struct siege {
    struct sim sim;
    struct extender extender;
    char *cert, *key; /* files of kube-scheduler's client certificate, or NULL */
    struct buf filter;
    atomic_bool end;
    atomic_int phase;
    struct latencies filters[PHASES], probes[PHASES];
    int64_t lease_gap_ms[PHASES]; /* longest time between two renewals of the Lease */
    struct vitals peak[PHASES];
};

static size_t discard(char *p, size_t size, size_t n, void *ctx)
{
    (void)p;
    (void)ctx;
    return size * n;
}

/* Segments as on a network of 1500-byte packets. With those of the loopback interface, of
 * 64 KiB, a request that is larger than the window can wait for TCP's persist timer. */
static int on_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    const int mss = 1448;
    (void)ctx, (void)purpose;
    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss);
    return CURL_SOCKOPT_OK;
}

static CURL *client(unsigned port, const char *path, long limit_ms)
{
    cleanup_free char *url =
        xasprintf("%s://127.0.0.1:%u%s", config->tls ? "https" : "http", port, path);
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, limit_ms);
    return curl;
}

static void call(CURL *curl, struct latencies *l)
{
    double seconds = 0;
    long status = 0;
    bool ok = curl_easy_perform(curl) == CURLE_OK;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_TOTAL_TIME, &seconds);
    if ((!ok || status != 200) && l->failed++ < 5)
        fprintf(stderr, "bench: status %ld after %.0f ms\n", status, seconds * 1e3);
    series_note(&l->ms, seconds * 1e3);
}

/* kube-scheduler: one connection that stays open. */
static void *call_filter(void *arg)
{
    struct siege *s = arg;
    CURL *curl = client(main_port, "/filter", CALL_LIMIT_MS);
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, s->filter.p);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, s->cert);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, s->key);
    while (!atomic_load(&s->end)) {
        call(curl, &s->filters[atomic_load(&s->phase)]);
        clock_sleep_ms(FILTER_PAUSE_MS);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return NULL;
}

/* A kubelet: a new connection for each probe. */
static void *probe(void *arg)
{
    struct siege *s = arg;
    CURL *probes[] = {client(main_port, "/readyz", PROBE_LIMIT_MS),
                      client(observe_port, "/healthz", PROBE_LIMIT_MS)};
    while (!atomic_load(&s->end)) {
        array_items(p, probes) {
            curl_easy_setopt(*p, CURLOPT_FORBID_REUSE, 1L);
            call(*p, &s->probes[atomic_load(&s->phase)]);
        }
        clock_sleep_ms(PROBE_PAUSE_MS);
    }
    array_items(c, probes)
        curl_easy_cleanup(*c);
    return NULL;
}

/* The time between two changes of the Lease, and the process. */
static void *watch_process(void *arg)
{
    struct siege *s = arg;
    cleanup_free char *last = xstrdup("");
    int64_t renewed_ms = lib_now_ms();
    while (!atomic_load(&s->end)) {
        int phase = atomic_load(&s->phase);
        cleanup_json json_t *lease =
            peer_json(&s->sim.api, "GET",
                      "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
                      "gpushare-extender",
                      NULL);
        const char *renew = lib_str(lease, "spec.renewTime");
        int64_t now = lib_now_ms();
        if (now - renewed_ms > s->lease_gap_ms[phase])
            s->lease_gap_ms[phase] = now - renewed_ms;
        if (strcmp(renew, last) != 0) {
            free(last);
            last = xstrdup(renew);
            renewed_ms = now;
        }
        s->peak[phase] = vitals_peak(s->peak[phase], vitals_now(&s->extender.program));
        clock_sleep_ms(50);
    }
    return NULL;
}

/* kube-scheduler's certificate, from the Secret that the extender made. */
static void take_certificate(struct siege *s)
{
    static const char path[] =
        "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls";
    cleanup_buf struct buf json = {0};
    struct secret secret = {0};
    struct err err = {0};
    lib_wait(peer_call(&s->sim.api, "GET", path, NULL, &json) == 200);
    ck_assert_done(secret_decode(buf_span(&json), &secret, &err), err);
    temp_write_bytes(lib_dir, "client.crt", buf_span(&secret.data[SECRET_CERT]));
    temp_write_bytes(lib_dir, "client.key", buf_span(&secret.data[SECRET_KEY]));
    secret_fini(&secret);
    s->cert = temp_path(lib_dir, "client.crt");
    s->key = temp_path(lib_dir, "client.key");
}

static void set_up(struct siege *s)
{
    cleanup_free char *what =
        xasprintf("nodes=%lld,cards=8,mib=16384", (long long)config->nodes);
    sim_start(&s->sim, ARGV("--generate", what, "--run-pods", "--history", "20000"));
    cleanup_free char *to = lib_kubeconfig("config", "http", s->sim.api.port, "", "");
    extender_start_at(
        &s->extender, to,
        ARGV("--log-level", "error", config->tls ? "--insecure=off" : "--insecure=on"));
    main_port = s->extender.verbs.port;
    observe_port = s->extender.observers.port;
    if (config->tls)
        take_certificate(s);
    bodies_filter(&s->filter, "{}", (size_t)config->nodes, 0);
    CURL *curl = client(main_port, "/readyz", CALL_LIMIT_MS);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    lib_wait(curl_easy_perform(curl) == CURLE_OK);
    curl_easy_cleanup(curl);
}

static void run(void *arg)
{
    static struct siege s;
    static const char *const names[] = {"quiet", "siege"};
    pthread_t threads[3];
    struct vitals start, after;
    cpu_set_t theirs;
    CPU_ZERO(&theirs);
    config = arg;
    if (config->apart)
        part_processors(&theirs);
    signal(SIGPIPE, SIG_IGN); /* GnuTLS and libcurl write to closed connections */
    set_up(&s);
    pid_t attackers = attackers_fork(&theirs);
    pthread_create(&threads[0], NULL, call_filter, &s);
    pthread_create(&threads[1], NULL, probe, &s);
    pthread_create(&threads[2], NULL, watch_process, &s);
    clock_sleep_ms(config->quiet_ms);
    start = vitals_now(&s.extender.program);
    atomic_store(&s.phase, SIEGE);
    kill(attackers, SIGUSR1);
    clock_sleep_ms(config->siege_ms);
    atomic_store(&s.phase, AFTERWARDS);
    kill(attackers, SIGUSR2);
    waitpid(attackers, NULL, 0);
    int64_t until = lib_now_ms() + SETTLE_MS;
    do {
        lib_pause();
        after = vitals_now(&s.extender.program);
    } while (after.fds > start.fds && lib_now_ms() < until);
    atomic_store(&s.end, true);
    array_items(thread, threads)
        pthread_join(*thread, NULL);

    double p99[2], worst[2];
    printf("%-8s %8s %10s %10s %8s %10s %8s %8s %8s %10s\n", "phase", "filters", "p50 ms",
           "p99 ms", "failed", "probe max", "failed", "MiB", "fds", "lease gap");
    for (int i = QUIET; i <= SIEGE; i++) {
        p99[i] = series_quantile(&s.filters[i].ms, 0.99);
        worst[i] = series_quantile(&s.probes[i].ms, 1);
        printf("%-8s %8zu %10.2f %10.2f %8zu %10.1f %8zu %8.0f %8u %10lld\n", names[i],
               s.filters[i].ms.n, series_quantile(&s.filters[i].ms, 0.5), p99[i],
               s.filters[i].failed, worst[i], s.probes[i].failed, s.peak[i].mib,
               s.peak[i].fds, (long long)s.lease_gap_ms[i]);
    }
    printf("afterwards: %u descriptors (%u before), %.0f MiB\n", after.fds, start.fds,
           after.mib);
    bench_aim("every filter call of kube-scheduler succeeds",
              s.filters[SIEGE].ms.n && !s.filters[QUIET].failed &&
                  !s.filters[SIEGE].failed);
    bench_aim("p99 of filter within five times the quiet phase",
              p99[SIEGE] <= p99[QUIET] * SLOWER);
    bench_aim("every probe is answered within a second",
              s.probes[SIEGE].ms.n && !s.probes[SIEGE].failed &&
                  worst[SIEGE] <= PROBE_LIMIT_MS);
    bench_aim("the Lease is renewed in time", s.lease_gap_ms[SIEGE] < LEASE_LIMIT_MS);
    bench_aim("resident memory within 256 MiB", s.peak[SIEGE].mib <= MIB);
    bench_aim("all descriptors are back", after.fds <= start.fds);
    extender_stop(&s.extender);
    sim_stop(&s.sim);
}

static const struct opt options[] = {
    BENCH_OPT("quiet", "TIME", DURATION, "10s", 1000, 600 * 1000, quiet_ms,
              "Duration of the phase without hostile clients."),
    BENCH_OPT("time", "TIME", DURATION, "60s", 1000, 3600 * 1000, siege_ms,
              "Duration of the phase with hostile clients."),
    BENCH_OPT("nodes", "N", INT, "5000", 1, 20000, nodes,
              "Nodes of the cluster, with 8 cards each."),
    BENCH_OPT("clients", "N", INT, "1000", 1, 4000, clients,
              "Hostile clients, spread evenly over all kinds."),
    BENCH_OPT("pause", "TIME", DURATION, "100ms", 0, 60 * 1000, pause_ms,
              "Pause of a hostile client between two connections."),
    BENCH_OPT("only", "KIND", STRING, NULL, 0, 0, only,
              "Runs hostile clients of this kind only; default: all kinds."),
    BENCH_OPT(
        "tls", NULL, BOOL, "on", 0, 0, tls,
        "Serve HTTPS with client certificates; off: plain HTTP without credentials."),
    BENCH_OPT(
        "apart", NULL, BOOL, "on", 0, 0, apart,
        "Run the hostile clients on half of the processors, all else on the others; "
        "off: mixed."),
    {0},
};
const struct bench_command bench_hostile = {
    "hostile",
    "serve kube-scheduler while hostile clients do their worst",
    false,
    options,
    sizeof(struct config),
    run};
