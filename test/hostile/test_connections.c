/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "hostile/tls_world.h"
#include "lib/agent.h"
#include "lib/plugin.h"
#include "lib/raw.h"

/*
 * Hostile clients fill every port of the real programs: with idle and slow connections,
 * bodies that never arrive, clients that do not read, TLS handshakes that never end,
 * resets. Meanwhile no probe may hang, and each filter of an honest client is answered.
 * Afterwards all descriptors are back. How long the replies take is printed, and
 * `make bench-hostile` measures it: here, the attackers share the processors with
 * everything else that runs.
 */

/* Under a sanitizer, a port is filled by fewer connections, because the programs take
 * their limits from that of descriptors; and new ones come more slowly, because the probe's
 * waits behind those that the program has not replaced yet, and a thread begins and ends
 * slowly. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ATTACK_MS = 300, FDS_MAX = 700, PART = 2, PAUSE_NS = 10000000 };
#else
enum { ATTACK_MS = 500, FDS_MAX = 1 << 20, PART = 1, PAUSE_NS = 0 };
#endif

enum {
    /* A probe hangs: more than a busy machine takes (11 s were seen), and less than the idle
     * limit of the ports, 60 s, which is what a probe without room waits for. */
    HANG_MS = 45 * 1000,
    ATTACKERS_MAX = 6000,
    FDS_SPARE = 100, /* of this process */
};

#define HOST      "Host: localhost\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"
#define TEN(text) text text text text text text text text text text

/* A TLS 1.2 ClientHello. The server answers it with a signature, and waits. */
static const char client_hello[] =
    "\x16\x03\x01\x00\x53\x01\x00\x00\x4f\x03\x03"
    "0123456789abcdef0123456789abcdef"
    "\x00\x00\x06\xc0\x2b\xc0\x2f\x00\xff\x01\x00\x00\x20"
    "\x00\x0a\x00\x06\x00\x04\x00\x17\x00\x1d"                          /* groups */
    "\x00\x0b\x00\x02\x01\x00"                                          /* points */
    "\x00\x0d\x00\x0c\x00\x0a\x04\x03\x08\x04\x04\x01\x05\x03\x08\x05"; /* signatures */

struct attack {
    const char *name;
    const char *begin; /* what each connection sends */
    size_t n;
    enum { HOLD, SLOW, STORM, RESETS, SLOW_RESETS } kind;
    bool one_address;
};
#define TEXT(s) s, sizeof(s) - 1

static const struct attack plain[] = {
    {"connections without a request", TEXT(""), HOLD, false},
    {"idle after one GET, one address", TEXT(GET("/version")), HOLD, true},
    {"idle after one GET, many addresses", TEXT(GET("/version")), HOLD, false},
    {"slow headers", TEXT("GET /version HTTP/1.1\r\n" HOST "X: "), HOLD, false},
    {"one byte of 64 MiB",
     TEXT("POST /filter HTTP/1.1\r\n" HOST "Content-Length: 67108863\r\n\r\n{"), HOLD,
     true},
    {"watches", TEXT(GET("/inspect?watch=true")), HOLD, false},
    {"pipelined requests, the last one cut", TEXT(TEN(GET("/version")) "GET /ver"), SLOW,
     false},
    {"connect and close", TEXT(GET("/version")), STORM, false},
    {"connect and reset", TEXT(GET("/version")), RESETS, false},
    {"pages that are not read", TEXT(TEN(TEN(GET("/page.js")))), SLOW, false},
};

/* Of the node's programs, which have no pages. */
static const struct attack unread_metrics = {
    "metrics that are not read", TEXT(TEN(TEN(GET("/metrics")))), SLOW, false};

static const struct attack tls[] = {
    {"handshakes that never begin", TEXT(""), HOLD, false},
    {"half a ClientHello", client_hello, 40, HOLD, false},
    /* Not faster than a busy machine computes handshakes: no server keeps all of those. */
    {"handshakes that never end", TEXT(client_hello), SLOW, false},
    {"handshakes that never end, one address", TEXT(client_hello), SLOW, true},
    {"ClientHello and reset", TEXT(client_hello), SLOW_RESETS, false},
    {"no TLS", TEXT(GET("/version")), HOLD, false},
};

struct run {
    const struct attack *attack;
    unsigned port;
    size_t connections;
    atomic_bool filled, stop;
    size_t opened;
};

static void open_hostile(const struct run *r, struct raw *c, size_t i)
{
    char address[24];
    snprintf(address, sizeof address, "127.0.0.1");
    if (!r->attack->one_address)
        snprintf(address, sizeof address, "127.%zu.%zu.2", 1 + i / 250 % 250, i % 250);
    if (raw_try_open_from(c, address, r->port))
        send(c->fd, r->attack->begin, r->attack->n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void close_hostile(const struct run *r, struct raw *c)
{
    if (c->fd < 0)
        return;
    if (r->attack->kind == RESETS || r->attack->kind == SLOW_RESETS)
        raw_reset(c);
    else
        raw_close(c);
}

/* Opens all connections, and then replaces them one by one: at once, or, if they are to
 * be held, after a pause. */
static void *attack_run(void *arg)
{
    static const long pause_ns[] = {[HOLD] = 1000000,
                                    [SLOW] = 10000000,
                                    [STORM] = 0,
                                    [RESETS] = 0,
                                    [SLOW_RESETS] = 1000000};
    static struct raw c[ATTACKERS_MAX];
    struct run *r = arg;
    for (size_t i = 0; i < r->connections; i++)
        open_hostile(r, &c[i], i);
    r->opened = r->connections;
    atomic_store(&r->filled, true);
    while (!atomic_load(&r->stop)) {
        size_t i = r->opened++ % r->connections;
        close_hostile(r, &c[i]);
        open_hostile(r, &c[i], r->opened);
        nanosleep(&(struct timespec){.tv_nsec = pause_ns[r->attack->kind] + PAUSE_NS},
                  NULL);
    }
    for (size_t i = 0; i < r->connections; i++)
        close_hostile(r, &c[i]);
    return NULL;
}

/* -- honest clients -- */

struct times {
    double longest_ms;
    size_t n;
};

static void add(struct times *t, double begin_ms)
{
    double ms = lib_now_exact_ms() - begin_ms;
    t->n++;
    if (ms > t->longest_ms)
        t->longest_ms = ms;
}

/* What is attacked. */
struct target {
    const char *name;
    unsigned port;
    const char *path;                                  /* of the probe */
    void (*probe_init)(struct peer *p, unsigned port); /* NULL: plain HTTP */
    const struct extender *extender;                   /* to filter on, or NULL */
    pid_t pid;
    size_t connections;
};

/* A probe of the kubelet: a new connection. */
static unsigned probe_once(const struct target *t, struct times *times, struct buf *reply)
{
    struct peer p;
    if (t->probe_init)
        t->probe_init(&p, t->port);
    else
        peer_init(&p, t->port);
    double begin = lib_now_exact_ms();
    unsigned status = peer_call(&p, "GET", t->path, NULL, reply);
    add(times, begin);
    peer_fini(&p);
    return status;
}

/* A full port closes a connection now and then, and which one depends on the scheduler. So
 * clients repeat their calls: the kubelet counts failures up to failureThreshold, which is 3
 * in the manifests, and kube-scheduler schedules the pod again. */
enum { TRIES = 3 };

static void probe(const struct target *t, struct times *times)
{
    cleanup_buf struct buf reply = {0};
    for (int i = 1; probe_once(t, times, &reply) != 200; i++) {
        ck_assert_msg(i < TRIES, "%s: %d probes failed: %s", t->name, i, reply.p);
        buf_clear(&reply);
    }
}

/* A filter over a connection that is kept. */
static void filter(const struct target *t, struct times *times)
{
    cleanup_buf struct buf why = {0};
    if (!t->extender)
        return;
    double begin = lib_now_exact_ms();
    enum filter_result fit = UNANSWERED;
    for (int i = 0; i < TRIES && fit == UNANSWERED; i++)
        fit = extender_filter(t->extender, 4, "n1", &why);
    ck_assert_msg(fit == FITS, "%s: filter: %s", t->name, why.p);
    add(times, begin);
}

static void measure(const struct target *t, const char *name)
{
    struct times probes = {0}, filters = {0};
    int64_t end = lib_now_ms() + ATTACK_MS;
    while (lib_now_ms() < end) {
        probe(t, &probes);
        for (int i = 0; i < 4; i++)
            filter(t, &filters);
        lib_pause();
    }
    printf("  %-18s %-38s longest of %4zu probes %6.1f ms, of %4zu filters %6.2f ms\n",
           t->name, name, probes.n, probes.longest_ms, filters.n, filters.longest_ms);
    ck_assert_msg(probes.longest_ms < HANG_MS, "%s: a probe took %.0f ms", name,
                  probes.longest_ms);
}

static size_t count_fds(pid_t pid)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void attack(const struct target *t, const struct attack *how)
{
    struct run r = {.attack = how, .port = t->port, .connections = t->connections};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, attack_run, &r), 0);
    lib_wait(atomic_load(&r.filled));
    measure(t, how->name);
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
}

static void attack_all(const struct target *t, const struct attack *attacks, size_t n)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    struct target mine = *t;
    if (mine.connections > limit.rlim_cur - FDS_SPARE)
        mine.connections = limit.rlim_cur - FDS_SPARE;
    measure(&mine, "(quiet)");
    size_t before = count_fds(t->pid);
    for (size_t i = 0; i < n; i++)
        attack(&mine, &attacks[i]);
    lib_wait(count_fds(t->pid) <= before);
    measure(&mine, "(quiet again)");
}

static void raise_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max > FDS_MAX)
        limit.rlim_max = FDS_MAX; /* the programs raise theirs to it */
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* -- the extender -- */

/* Attacks both ports, of which each takes so many connections. */
static void attack_extender(const struct world *w, const char *protocol,
                            void (*probe_init)(struct peer *p, unsigned port),
                            const size_t connections[2], const struct attack *attacks,
                            size_t n)
{
    const struct extender *e = &w->extender;
    for (int i = 0; i < 2; i++) {
        cleanup_free char *name =
            xasprintf("%s port, %s", i ? "observe" : "main", protocol);
        struct target t = {.name = name,
                           .port = i ? e->observers.port : e->verbs.port,
                           .path = i ? "/healthz" : "/readyz",
                           .probe_init = probe_init,
                           .extender = e,
                           .pid = e->program.pid,
                           .connections = connections[i] / PART};
        attack_all(&t, attacks, n);
    }
}

static void begin(struct world *w)
{
    sim_start(&w->sim, ARGV(NULL));
    sim_add_node(&w->sim, "n1", 2, 16);
    extender_start(&w->extender, &w->sim, ARGV(NULL));
}

static void end(struct world *w)
{
    oracle_agrees(&w->sim.api, &w->extender);
    world_stop(w);
}

TEST(the_ports_of_the_extender_answer)
{
    struct world w;
    raise_limit();
    begin(&w);
    attack_extender(&w, "HTTP", NULL, (const size_t[]){700, 4500}, plain,
                    ARRAY_LEN(plain));
    end(&w);
}

/* The descriptors do not suffice for the observers that the port would take otherwise. */
TEST(few_descriptors_are_shared_by_the_ports)
{
    struct world w;
    struct rlimit few = {700, 700};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    begin(&w);
    ck_assert(program_wait_output(&w.extender.program, "connections: reduced"));
    attack_extender(&w, "few", NULL, (const size_t[]){600, 600}, plain, 3);
    end(&w);
}

TEST(tls_handshakes_that_never_end_keep_nobody_out)
{
    struct world w;
    raise_limit();
    tls_world_start(&w);
    attack_extender(&w, "TLS", tls_peer_init, (const size_t[]){700, 1000}, tls,
                    ARRAY_LEN(tls));
    world_stop(&w);
}

/* -- the node's programs -- */

static void attack_node_program(const char *name, const struct peer *health, pid_t pid)
{
    struct target t = {.name = name,
                       .port = health->port,
                       .path = "/livez",
                       .pid = pid,
                       .connections = 700 / PART};
    lib_wait(peer_status(health, "/livez") == 200);
    attack_all(&t, plain, ARRAY_LEN(plain) - 1);
    attack_all(&t, &unread_metrics, 1);
}

#define CARD                                                                             \
    "{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"                      \
    "'memoryUsed':1048576,'health':'Healthy'}"

TEST(scv_agent_answers)
{
    struct sim sim;
    struct agent agent;
    raise_limit();
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards(CARD);
    cleanup_free char *source = agent_file();
    agent_start(&agent, &sim, source, ARGV(NULL));
    attack_node_program("scv-agent", &agent.health, agent.program.pid);
    agent_stop(&agent);
    sim_stop(&sim);
}

TEST(the_device_plugin_answers)
{
    struct sim sim;
    static struct kubelet kubelet;
    struct plugin plugin;
    raise_limit();
    sim_start(&sim, ARGV(NULL));
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n1\"}}");
    agent_cards(CARD);
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV(NULL));
    kubelet_wait_registered(&kubelet, -1);
    attack_node_program("device plugin", &plugin.health, plugin.program.pid);
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
    sim_stop(&sim);
}

LIB_MAIN(120)
