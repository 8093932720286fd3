/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench/bench.h"

/*
 * make bench-watchers: the effect of hundreds of watches of gpunodes and gpupods on
 * filter. The cluster changes at a steady rate; filter is measured in alternating turns
 * without watches and with all of them, and the result is the ratio within each round. The
 * watches are in a low-priority process of their own, because in a cluster they are on
 * other machines.
 */

enum { PODS = 4, READ = 64 * 1024 };

struct config {
    char *build;
    int64_t nodes, watchers, changes, rounds, calls;
};

/* -- the watch process: reads 'o' (open all), 'c' (close all) or 'q' (quit), and replies; when
 * they close, with the fewest lines that a watch got -- */

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
    char request[128];
    int n = snprintf(request, sizeof request, ask, pods ? "pods" : "nodes");
    *w = (struct watch){.fd = load_connect(port)};
    if (write(w->fd, request, (size_t)n) != n)
        bench_die("watch: %s", strerror(errno));
}

/* The chunk of a blank line is "1\r\n\n\r\n"; other lines end with one '\n' too. */
static void watch_read(struct watch *w)
{
    static char bytes[READ];
    ssize_t n = read(w->fd, bytes, sizeof bytes);
    if (n <= 0)
        bench_die("a watch ended");
    for (ssize_t i = 0; i < n; i++) {
        char before = i ? bytes[i - 1] : w->last;
        if (bytes[i] == '\n' && before == '}')
            w->lines++;
        if (bytes[i] == '\n' && before == '\n')
            w->begun = true;
    }
    w->last = bytes[n - 1];
}

static void crowd_poll(int epoll, int wait_ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(epoll, events, 256, wait_ms);
    for (int i = 0; i < n; i++)
        watch_read(events[i].data.ptr);
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

struct crowd {
    size_t n;
    unsigned port;
};

static void crowd_run(int from, int to, const void *ctx)
{
    size_t n = ((const struct crowd *)ctx)->n;
    unsigned port = ((const struct crowd *)ctx)->port;
    struct watch *all = xcalloc(n, sizeof *all);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 12);
    for (;;) {
        struct pollfd order = {.fd = from, .events = POLLIN};
        char what = 0;
        crowd_poll(epoll, 100);
        if (poll(&order, 1, 0) != 1)
            continue;
        bench_get(from, &what, 1);
        if (what == 'q')
            _exit(0);
        uint64_t least = 0;
        if (what == 'o')
            crowd_open(all, n, epoll, port);
        else
            least = crowd_close(all, n);
        bench_put(to, &least, sizeof least);
    }
}

static uint64_t crowd_do(struct bench_child *c, char what)
{
    uint64_t answer;
    bench_put(c->to, &what, 1);
    bench_get(c->from, &answer, sizeof answer);
    return answer;
}

/* -- changes -- */

struct change {
    const struct config *config;
    unsigned port;
    atomic_bool stop;
    atomic_ullong done;
};

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
    for (uint64_t i = 0; !atomic_load(&c->stop); i++) {
        uint64_t nodes = (uint64_t)c->config->nodes;
        cleanup_buf struct buf body = {0};
        cleanup_free char *path =
            xasprintf("/apis/core.run-linux.com/v1/scvs/node-%05d", (int)(i % nodes));
        cards_write(&body, i % nodes, i / nodes % 2 == 0);
        if (ask("PATCH", c->port, path, body.p, NULL) == 200)
            atomic_fetch_add(&c->done, 1);
        usleep((useconds_t)(1000000 / c->config->changes));
    }
    return NULL;
}

/* -- the rounds -- */

enum { ALONE, WATCHED };

/* Of each round, without and with the watches. */
struct results {
    struct series p50[2], p99[2];
};

static void measure(const struct config *config, const struct server *server,
                    const struct bodies *b, int turn, struct results *f)
{
    struct load_result r;
    struct load load = {.port = server->port,
                        .connections = 1,
                        .requests = b->filter[BODIES_SCHEDULER],
                        .n_requests = BODIES_ORDERS,
                        .calls = (size_t)config->calls};
    load_run(&load, &r);
    if (r.failed)
        bench_die("calls failed");
    if (f) {
        series_note(&f->p50[turn], series_quantile(&r.ms, 0.5));
        series_note(&f->p99[turn], series_quantile(&r.ms, 0.99));
    }
    series_fini(&r.ms);
}

static void show(const char *what, struct series *s)
{
    struct series ratio = series_ratio(&s[WATCHED], &s[ALONE]);
    printf("  %-28s %8.3f %8.3f   ratio %.3f (%.3f-%.3f)\n", what,
           series_quantile(&s[ALONE], 0.5), series_quantile(&s[WATCHED], 0.5),
           series_quantile(&ratio, 0.5), series_quantile(&ratio, 0),
           series_quantile(&ratio, 1));
    series_fini(&ratio);
    series_fini(&s[ALONE]);
    series_fini(&s[WATCHED]);
}

static void run_rounds(const struct config *config, const struct server *extender,
                       struct bench_child *crowd, const struct bodies *b,
                       struct change *change)
{
    struct results f = {0};
    uint64_t least = UINT64_MAX;
    measure(config, extender, b, ALONE, NULL); /* warm-up */
    for (int64_t r = 0; r < config->rounds; r++)
        for (int i = 0; i < 2; i++) {
            int turn = i ^ (r & 1);
            if (turn == WATCHED)
                crowd_do(crowd, 'o');
            measure(config, extender, b, turn, &f);
            uint64_t lines = turn == WATCHED ? crowd_do(crowd, 'c') : UINT64_MAX;
            if (lines < least)
                least = lines;
        }
    printf("  %-28s %8s %8s\n", "filter, milliseconds", "alone", "watched");
    show("p50", f.p50);
    show("p99", f.p99);
    printf("  each watch of nodes got at least %llu lines in its half of a round; %llu "
           "changes in all; the extender has %.1f MiB\n",
           (unsigned long long)least, (unsigned long long)atomic_load(&change->done),
           vitals_now(extender).mib);
}

static int run(void *arg)
{
    const struct config *config = arg;
    struct testbed w;
    struct bench_child crowd;
    struct bodies bodies;
    pthread_t changer;
    cleanup_free char *what =
        xasprintf("nodes=%lld,cards=4,pods=2,full=30,uuid=1", (long long)config->nodes);
    testbed_start(&w, config->build, what, false);
    testbed_extender(&w, (const char *const[]){"--filter-answer", "all", NULL});
    server_wait(&w.extender, "/readyz");
    server_wait(&w.extender, "/apis/nvidia-gpu-scheduler/v1/gpunodes");
    bench_fork(
        &crowd, crowd_run,
        &(struct crowd){(size_t)config->watchers, server_observe_port(&w.extender)});
    bodies_make(&bodies, &w, (size_t)config->nodes, PODS);
    struct change change = {.config = config, .port = w.sim.port};
    pthread_create(&changer, NULL, change_all, &change);
    printf("%lld nodes, %lld watches, %lld changes per second\n",
           (long long)config->nodes, (long long)config->watchers,
           (long long)config->changes);
    run_rounds(config, &w.extender, &crowd, &bodies, &change);
    atomic_store(&change.stop, true);
    pthread_join(changer, NULL);
    bench_put(crowd.to, "q", 1);
    waitpid(crowd.pid, NULL, 0);
    bodies_fini(&bodies);
    testbed_stop(&w);
    return 0;
}

static const struct opt options[] = {
    BENCH_OPT("nodes", "N", INT, "1000", 1, 20000, nodes,
              "Number of nodes with four cards each."),
    BENCH_OPT("watchers", "N", INT, "500", 1, 512, watchers,
              "Number of watches, half of gpunodes and half of gpupods."),
    BENCH_OPT("changes", "N", INT, "20", 1, 1000, changes,
              "Health changes of cards per second."),
    BENCH_OPT("rounds", "N", INT, "11", 1, 99, rounds, "Number of rounds."),
    BENCH_OPT("calls", "N", INT, "3000", 1, 1000000, calls,
              "Filter calls in each half of a round."),
    BENCH_BUILD,
    {0},
};
const struct bench_command bench_watchers = {"watchers",
                                             "measure the effect of watches on filter",
                                             options, sizeof(struct config), run};
