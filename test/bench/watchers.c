/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/opt.h"
#include "bench/bodies.h"
#include "bench/load.h"
#include "bench/server.h"

/*
 * make bench-watchers: the effect of hundreds of watches of gpunodes and gpupods on
 * filter. The cluster changes at a steady rate; filter is measured in alternating turns
 * without watches and with all of them, and the result is the ratio within each round. The
 * watches are in a low-priority process of their own, because in a cluster they are on
 * other machines.
 */

enum { ROUNDS_MAX = 99, PODS = 4, READ = 64 * 1024, IDLE_MS = 4000 };

struct config {
    char *build;
    int64_t nodes, watchers, changes, rounds, calls;
};

#define AT(field) offsetof(struct config, field)
#define COUNT(n, i, m, field, text)                                                      \
    {                                                                                    \
        .name = n, .arg = "N", .init = i, .type = OPT_INT, .min = 1, .max = m,           \
        .offset = AT(field), .help = text                                                \
    }
static const struct opt options[] = {
    COUNT("nodes", "1000", 20000, nodes, "Number of nodes with four cards each."),
    COUNT("watchers", "500", 512, watchers,
          "Number of watches, half of gpunodes and half of gpupods."),
    COUNT("changes", "20", 1000, changes, "Health changes of cards per second."),
    COUNT("rounds", "11", ROUNDS_MAX, rounds, "Number of rounds."),
    COUNT("calls", "3000", 1000000, calls, "Filter calls in each half of a round."),
    {.name = "build",
     .arg = "DIR",
     .init = "build",
     .type = OPT_STRING,
     .offset = AT(build),
     .help = "Folder of the built programs."},
    {0},
};
static const struct opt_program program = {
    .name = "bench-watchers",
    .summary = "measure the effect of watches on filter",
    .version = GPUSHARE_VERSION,
    .table = options,
};

static void die(const char *what)
{
    fprintf(stderr, "bench-watchers: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* -- the watch process: reads 'o' (open all), 'n' (count), 'c' (close all) or 'q' (quit), and
 * replies with the lines of all watches, or of the one with the fewest when they close -- */

struct crowd {
    pid_t pid;
    int to, from;
};

struct watch {
    int fd;
    bool begun; /* has received the initial state, which a blank line ends */
    char last;  /* last byte received */
    uint64_t lines;
};

static void watch_open(struct watch *w, unsigned port, bool pods)
{
    static const char ask[] =
        "GET /apis/nvidia-gpu-scheduler/v1/gpu%s?watch=true HTTP/1.1\r\nHost: x\r\n\r\n";
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char request[128];
    int n = snprintf(request, sizeof request, ask, pods ? "pods" : "nodes");
    *w = (struct watch){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (w->fd < 0 || connect(w->fd, (struct sockaddr *)&at, sizeof at) ||
        write(w->fd, request, (size_t)n) != n)
        die("watch");
}

/* The chunk of a blank line is "1\r\n\n\r\n"; other lines end with one '\n' too. */
static void watch_read(struct watch *w)
{
    static char bytes[READ];
    ssize_t n = read(w->fd, bytes, sizeof bytes);
    if (n <= 0)
        die("a watch ended");
    for (ssize_t i = 0; i < n; i++) {
        char before = i ? bytes[i - 1] : w->last;
        if (bytes[i] == '\n' && before == '}')
            w->lines++;
        if (bytes[i] == '\n' && before == '\n')
            w->begun = true;
    }
    w->last = bytes[n - 1];
}

static size_t crowd_poll(int epoll, int wait_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(epoll, events, 256, wait_ms);
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr)
            watch_read(events[i].data.ptr);
    return n > 0 ? (size_t)n : 0;
}

static void crowd_open(struct watch *all, size_t n, int epoll, unsigned port)
{
    for (size_t i = 0; i < n; i++) {
        watch_open(&all[i], port, i % 2);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event);
    }
    for (size_t i = 0; i < n; i++)
        while (!all[i].begun)
            crowd_poll(epoll, 1000);
    for (size_t i = 0; i < n; i++)
        all[i].lines = 0;
}

static uint64_t crowd_close(struct watch *all, size_t n)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0 && all[i].lines < least)
            least = all[i].lines;
        close(all[i].fd);
    }
    return least;
}

static uint64_t crowd_lines(const struct watch *all, size_t n)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += all[i].lines;
    return lines;
}

static void crowd_run(size_t n, unsigned port, int from, int to)
{
    struct watch *all = xcalloc(n, sizeof *all);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    int before = getpriority(PRIO_PROCESS, 0);
    setpriority(PRIO_PROCESS, 0, before + 12);
    epoll_ctl(epoll, EPOLL_CTL_ADD, from, &event);
    for (;;) {
        fd_set ready;
        struct timeval now = {0};
        FD_ZERO(&ready);
        FD_SET(from, &ready);
        char what = 0;
        crowd_poll(epoll, 100);
        if (select(from + 1, &ready, NULL, NULL, &now) != 1)
            continue;
        if (read(from, &what, 1) != 1 || what == 'q')
            _exit(0);
        uint64_t answer = 0;
        if (what == 'o')
            crowd_open(all, n, epoll, port);
        else
            answer = what == 'n' ? crowd_lines(all, n) : crowd_close(all, n);
        if (write(to, &answer, sizeof answer) != sizeof answer)
            _exit(1);
    }
}

static void crowd_start(struct crowd *c, size_t n, unsigned port)
{
    int down[2], up[2];
    if (pipe(down) || pipe(up))
        die("pipe");
    c->pid = fork();
    if (c->pid < 0)
        die("fork");
    if (c->pid == 0) {
        close(down[1]);
        crowd_run(n, port, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    c->to = down[1];
    c->from = up[0];
}

static uint64_t crowd_do(struct crowd *c, char what)
{
    uint64_t answer;
    if (write(c->to, &what, 1) != 1 ||
        read(c->from, &answer, sizeof answer) != sizeof answer)
        die("the watch process has ended");
    return answer;
}

/* -- changes -- */

struct change {
    const struct config *config;
    unsigned port;
    atomic_bool stop;
    atomic_ullong done;
};

static size_t drop_bytes(char *p, size_t size, size_t n, void *ctx)
{
    (void)p, (void)ctx;
    return size * n;
}

/* The Scv of a node with four cards; the first may be unhealthy. */
static void cards_write(struct buf *out, uint64_t node, bool unhealthy)
{
    buf_adds(out, "{\"status\":{\"cardList\":[");
    for (int i = 0; i < 4; i++)
        buf_printf(out,
                   "%s{\"id\":%d,\"health\":\"%s\",\"totalMemory\":81920,"
                   "\"freeMemory\":81920,\"model\":\"NVIDIA A100-SXM4-80GB\","
                   "\"uuid\":\"GPU-%08llx-0000-4000-8000-%012d\"}",
                   i ? "," : "", i, i == 0 && unhealthy ? "Unhealthy" : "Healthy",
                   (unsigned long long)node, i);
    buf_adds(out, "]}}");
}

static void *change_all(void *arg)
{
    struct change *c = arg;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/merge-patch+json");
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PATCH");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_bytes);
    for (uint64_t i = 0; !atomic_load(&c->stop); i++) {
        uint64_t nodes = (uint64_t)c->config->nodes;
        cleanup_buf struct buf body = {0};
        cleanup_free char *url =
            xasprintf("http://127.0.0.1:%u/apis/core.run-linux.com/v1/scvs/node-%05d",
                      c->port, (int)(i % nodes));
        curl_easy_setopt(curl, CURLOPT_URL, url);
        cards_write(&body, i % nodes, i / nodes % 2 == 0);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.p);
        long status = 0;
        if (curl_easy_perform(curl) == CURLE_OK)
            curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        if (status == 200)
            atomic_fetch_add(&c->done, 1);
        usleep((useconds_t)(1000000 / c->config->changes));
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return NULL;
}

/* -- the rounds -- */

struct results {
    double p50[2], p99[2];
    double idle_cpu, cpu; /* of the extender in percent: without and with filter calls */
    double line_us;       /* of the extender for a line, without filter calls */
};

static void measure_idle(const struct server *server, struct crowd *crowd,
                         struct results *f)
{
    uint64_t lines = crowd ? crowd_do(crowd, 'n') : 0;
    double cpu = server_cpu_ms(server);
    usleep(IDLE_MS * 1000);
    cpu = server_cpu_ms(server) - cpu;
    if (crowd)
        lines = crowd_do(crowd, 'n') - lines;
    f->idle_cpu = cpu * 100 / IDLE_MS;
    f->line_us = lines ? cpu * 1000 / (double)lines : 0;
}

/* `crowd` is NULL without watches. */
static void measure(const struct config *config, const struct server *server,
                    const struct bodies *b, struct crowd *crowd, struct results *f)
{
    static const unsigned connections[2] = {1, 16};
    measure_idle(server, crowd, f);
    double seconds = 0, cpu = server_cpu_ms(server);
    for (int i = 0; i < 2; i++) {
        struct load_result r;
        struct load load = {.port = server->port,
                            .connections = connections[i],
                            .requests = b->filter[BODIES_SCHEDULER],
                            .n_requests = BODIES_ORDERS,
                            .calls = (size_t)config->calls};
        load_run(&load, &r);
        f->p50[i] = load_quantile(&r, 0.5);
        f->p99[i] = load_quantile(&r, 0.99);
        seconds += r.seconds;
        if (r.failed)
            die("calls failed");
        load_result_fini(&r);
    }
    f->cpu = (server_cpu_ms(server) - cpu) / seconds / 10;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *what, const struct results (*f)[2], int64_t n, size_t at)
{
    double ratio[ROUNDS_MAX], without[ROUNDS_MAX], with[ROUNDS_MAX];
    for (int64_t i = 0; i < n; i++) {
        without[i] = *(const double *)((const char *)&f[i][0] + at);
        with[i] = *(const double *)((const char *)&f[i][1] + at);
        ratio[i] = with[i] / without[i];
    }
    qsort(ratio, (size_t)n, sizeof *ratio, compare);
    qsort(without, (size_t)n, sizeof *without, compare);
    qsort(with, (size_t)n, sizeof *with, compare);
    printf("  %-28s %8.3f %8.3f   ratio %.3f (%.3f-%.3f)\n", what, without[n / 2],
           with[n / 2], ratio[n / 2], ratio[0], ratio[n - 1]);
}

static void show_lines(const struct results (*f)[2], int64_t n)
{
    double us[ROUNDS_MAX];
    for (int64_t i = 0; i < n; i++)
        us[i] = f[i][1].line_us;
    qsort(us, (size_t)n, sizeof *us, compare);
    printf(
        "  processor time of the extender for a line of a watch: %.1f us (%.1f-%.1f)\n",
        us[n / 2], us[0], us[n - 1]);
}

static void run_rounds(const struct config *config, const struct server *extender,
                       struct crowd *crowd, const struct bodies *b, struct change *change)
{
    struct results f[ROUNDS_MAX][2];
    uint64_t least = UINT64_MAX;
    measure(config, extender, b, NULL, &f[0][0]); /* warm-up */
    for (int64_t r = 0; r < config->rounds; r++)
        for (int turn = 0; turn < 2; turn++) {
            int with = turn ^ (r & 1);
            if (with)
                crowd_do(crowd, 'o');
            measure(config, extender, b, with ? crowd : NULL, &f[r][with]);
            uint64_t lines = with ? crowd_do(crowd, 'c') : UINT64_MAX;
            if (lines < least)
                least = lines;
        }
    printf("  %-28s %8s %8s\n", "filter, milliseconds", "alone", "watched");
    show("p50, 1 connection", f, config->rounds, offsetof(struct results, p50[0]));
    show("p99, 1 connection", f, config->rounds, offsetof(struct results, p99[0]));
    show("p50, 16 connections", f, config->rounds, offsetof(struct results, p50[1]));
    show("p99, 16 connections", f, config->rounds, offsetof(struct results, p99[1]));
    show("extender, % of a CPU", f, config->rounds, offsetof(struct results, cpu));
    show("... without filter calls", f, config->rounds,
         offsetof(struct results, idle_cpu));
    show_lines(f, config->rounds);
    printf("  each watch of nodes got at least %llu lines in its half of a round; the "
           "extender has %.1f MiB\n",
           (unsigned long long)least, server_mib(extender));
    printf("  %llu changes in all\n", (unsigned long long)atomic_load(&change->done));
}

/* -- the programs -- */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        die(path);
}

static void start_servers(const struct config *config, const char *dir,
                          struct server *sim, struct server *extender)
{
    cleanup_free char *sim_exe = xasprintf("%s/kube-sim", config->build),
                      *exe = xasprintf("%s/gpushare-extender", config->build),
                      *sim_log = xasprintf("%s/kube-sim.log", dir),
                      *log = xasprintf("%s/extender.log", dir),
                      *lease = xasprintf("%s/lease.yaml", dir),
                      *kubeconfig = xasprintf("%s/kubeconfig", dir),
                      *what = xasprintf("nodes=%lld,cards=4,pods=2,full=30,uuid=1",
                                        (long long)config->nodes);
    write_file(lease,
               "apiVersion: coordination.k8s.io/v1\nkind: Lease\n"
               "metadata: {name: gpushare-extender, namespace: kube-system}\nspec: {}\n");
    server_start(sim, sim_log,
                 (const char *const[]){sim_exe, "--port", "0", "--generate", what,
                                       "--load", lease, NULL});
    cleanup_free char *text =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: sim\n"
                  "clusters: [{name: sim, cluster: {server: \"http://127.0.0.1:%u\"}}]\n"
                  "users: [{name: sim, user: {}}]\n"
                  "contexts: [{name: sim, context: {cluster: sim, user: sim}}]\n",
                  sim->port);
    write_file(kubeconfig, text);
    server_start(extender, log,
                 (const char *const[]){exe, "--kubeconfig", kubeconfig, "--listen",
                                       "127.0.0.1", "--port", "0", "--observe-port", "0",
                                       "--filter-answer", "all", NULL});
    server_wait(extender, "/readyz");
    server_wait(extender, "/apis/nvidia-gpu-scheduler/v1/gpunodes");
}

static unsigned observe_port(const struct server *extender)
{
    char text[512] = "";
    FILE *f = fopen(extender->log, "r");
    if (!f || !fread(text, 1, sizeof text - 1, f))
        die(extender->log);
    fclose(f);
    const char *at = strstr(text, "observing on ");
    const char *colon = at ? strchr(at, ':') : NULL;
    if (!colon)
        die("the extender does not print its observe port");
    return (unsigned)strtoul(colon + 1, NULL, 10);
}

static void clean_up(const char *dir)
{
    static const char *const files[] = {"kubeconfig", "lease.yaml", "kube-sim.log",
                                        "extender.log"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_free char *path = xasprintf("%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

int main(int argc, char **argv)
{
    struct config config = {0};
    struct err err = {0};
    enum opt_result r =
        opt_load(&program, &config, argc, argv, (char *[]){NULL}, NULL, stdout, &err);
    if (r != OPT_RUN) {
        if (r == OPT_FAILED)
            fprintf(stderr, "bench-watchers: %s\n", err.msg);
        return r == OPT_FAILED;
    }
    char dir[] = "/tmp/gpushare-watchers-XXXXXX";
    struct server sim, extender;
    struct crowd crowd;
    struct bodies bodies;
    pthread_t changer;
    if (!mkdtemp(dir))
        die("mkdtemp");
    curl_global_init(CURL_GLOBAL_ALL);
    start_servers(&config, dir, &sim, &extender);
    crowd_start(&crowd, (size_t)config.watchers, observe_port(&extender));
    bodies_make(&bodies, sim.port, extender.port, (size_t)config.nodes, PODS);
    struct change change = {.config = &config, .port = sim.port};
    pthread_create(&changer, NULL, change_all, &change);
    printf("%lld nodes, %lld watches, %lld changes per second\n", (long long)config.nodes,
           (long long)config.watchers, (long long)config.changes);
    run_rounds(&config, &extender, &crowd, &bodies, &change);
    atomic_store(&change.stop, true);
    pthread_join(changer, NULL);
    if (write(crowd.to, "q", 1) != 1)
        die("the watch process has ended");
    waitpid(crowd.pid, NULL, 0);
    bodies_fini(&bodies);
    server_stop(&extender);
    server_stop(&sim);
    clean_up(dir);
    opt_free(&program, &config);
    return 0;
}
