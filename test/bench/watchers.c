/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "lib/raw.h"

/*
 * make bench-watchers: the effect of hundreds of watches of gpunodes and gpupods on
 * filter. The cluster changes at a steady rate; filter is measured in alternating turns
 * without watches and with all of them, and the result is the ratio within each round. A
 * low-priority thread reads the watches, because in a cluster their clients are on other
 * machines.
 */

struct config {
    int64_t nodes, watchers, changes, rounds, calls;
};

/* -- the watches -- */

struct watch {
    struct raw raw;
    char last; /* last byte received */
    uint64_t lines;
};

struct crowd {
    struct watch *all;
    size_t n;
    int epoll;
    atomic_size_t begun; /* have received the initial state, which a blank line ends */
    atomic_bool stop;
    pthread_t thread;
};

/* The chunk of a blank line is "1\r\n\n\r\n"; other lines end with one '\n' too. */
static void watch_read(struct crowd *c, struct watch *w)
{
    static char bytes[64 * 1024];
    ssize_t n = read(w->raw.fd, bytes, sizeof bytes);
    ck_assert_msg(n > 0, "a watch ended");
    for (ssize_t i = 0; i < n; i++) {
        char before = i ? bytes[i - 1] : w->last;
        w->lines += bytes[i] == '\n' && before == '}';
        if (bytes[i] == '\n' && before == '\n') {
            atomic_fetch_add(&c->begun, 1);
            w->lines = 0;
        }
    }
    w->last = bytes[n - 1];
}

static void *read_all(void *arg)
{
    struct crowd *c = arg;
    struct epoll_event events[256];
    setpriority(PRIO_PROCESS, 0, 12); /* of this thread, on Linux */
    while (!atomic_load(&c->stop)) {
        int n = epoll_wait(c->epoll, events, ARRAY_LEN(events), 100);
        for (int i = 0; i < n; i++)
            watch_read(c, events[i].data.ptr);
    }
    return NULL;
}

static void crowd_open(struct crowd *c, size_t n, unsigned port)
{
    *c = (struct crowd){
        .all = xcalloc(n, sizeof *c->all), .n = n, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    for (size_t i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &c->all[i]};
        raw_open(&c->all[i].raw, port);
        raw_sendf(&c->all[i].raw,
                  "GET /apis/nvidia-gpu-scheduler/v1/gpu%s?watch=true HTTP/1.1\r\n"
                  "Host: localhost\r\n\r\n",
                  i % 2 ? "pods" : "nodes");
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->all[i].raw.fd, &event);
    }
    pthread_create(&c->thread, NULL, read_all, c);
    lib_wait(atomic_load(&c->begun) == n);
}

/* Returns the fewest lines that a watch of nodes got. */
static uint64_t crowd_close(struct crowd *c)
{
    uint64_t least = UINT64_MAX;
    atomic_store(&c->stop, true);
    pthread_join(c->thread, NULL);
    for (size_t i = 0; i < c->n; i++) {
        if (i % 2 == 0 && c->all[i].lines < least)
            least = c->all[i].lines;
        raw_close(&c->all[i].raw);
    }
    close(c->epoll);
    free(c->all);
    return least;
}

/* -- changes -- */

struct change {
    const struct config *config;
    const struct peer *api;
    atomic_bool stop;
    atomic_ullong done;
};

/* The first card of a node becomes unhealthy, and healthy again in the next turn. */
static void *change_all(void *arg)
{
    struct change *c = arg;
    for (uint64_t i = 0; !atomic_load(&c->stop); i++) {
        int64_t node = (int64_t)i % c->config->nodes;
        cleanup_buf struct buf body = {0};
        cleanup_free char *path =
            xasprintf("/apis/core.run-linux.com/v1/scvs/node-%05d", (int)node);
        for (int k = 0; k < 4; k++)
            buf_printf(&body,
                       "%s{\"id\":%d,\"health\":\"%s\",\"totalMemory\":81920,"
                       "\"freeMemory\":81920,\"model\":\"NVIDIA A100-SXM4-80GB\","
                       "\"uuid\":\"GPU-%08llx-0000-4000-8000-%012d\"}",
                       k ? "," : "{\"status\":{\"cardList\":[", k,
                       k == 0 && (int64_t)i / c->config->nodes % 2 == 0 ? "Unhealthy"
                                                                        : "Healthy",
                       (unsigned long long)node, k);
        buf_adds(&body, "]}}");
        json_decref(peer_json(c->api, "PATCH", path, body.p));
        atomic_fetch_add(&c->done, 1);
        usleep((useconds_t)(1000000 / c->config->changes));
    }
    return NULL;
}

/* -- the rounds -- */

static void run(void *arg)
{
    const struct config *config = arg;
    struct sim sim;
    struct extender extender;
    struct crowd crowd;
    struct bodies bodies;
    struct rounds p50 = {.n = (size_t)config->rounds}, p99 = p50;
    pthread_t changer;
    uint64_t least = UINT64_MAX;
    cleanup_free char *what =
        xasprintf("nodes=%lld,cards=4,pods=2,full=30,uuid=1", (long long)config->nodes);
    sim_start(&sim, ARGV("--generate", what));
    extender_start(&extender, &sim, ARGV("--filter-answer", "all"));
    lib_wait(peer_status(&extender.observers, "/apis/nvidia-gpu-scheduler/v1/gpunodes") ==
             200);
    bodies_make(&bodies, &sim, &extender, (size_t)config->nodes, 1, 1);
    struct load load = {.port = extender.verbs.port,
                        .requests = bodies.filter[BODIES_SCHEDULER],
                        .n_requests = BODIES_ORDERS};
    struct change change = {.config = config, .api = &sim.api};
    pthread_create(&changer, NULL, change_all, &change);
    load_run(&load, 1, (size_t)config->calls); /* warm-up */
    for (size_t r = 0; r < p50.n; r++)
        for (size_t i = 0; i < 2; i++) {
            bool watched = i ^ (r & 1);
            if (watched)
                crowd_open(&crowd, (size_t)config->watchers, extender.observers.port);
            load_run(&load, 1, (size_t)config->calls);
            p50.of[!watched][r] = series_quantile(&load.ms, 0.5);
            p99.of[!watched][r] = series_quantile(&load.ms, 0.99);
            uint64_t lines = watched ? crowd_close(&crowd) : UINT64_MAX;
            least = lines < least ? lines : least;
        }
    ck_assert_uint_eq(load.failed, 0);
    atomic_store(&change.stop, true);
    pthread_join(changer, NULL);
    printf("%lld nodes, %lld watches, %lld changes per second; filter, ms, watched / "
           "alone\n",
           (long long)config->nodes, (long long)config->watchers,
           (long long)config->changes);
    rounds_print("p50", &p50);
    rounds_print("\n  p99", &p99);
    printf("\n  each watch of nodes got at least %llu lines in its half of a round; %llu "
           "changes in all; the extender has %.1f MiB\n",
           (unsigned long long)least, (unsigned long long)atomic_load(&change.done),
           vitals_now(&extender.program).mib);
    free(load.ms.of);
    arena_fini(&bodies.arena);
    extender_stop(&extender);
    sim_stop(&sim);
}

static const struct opt options[] = {
    BENCH_OPT("nodes", "N", INT, "1000", 1, 20000, nodes,
              "Number of nodes with four cards each."),
    BENCH_OPT("watchers", "N", INT, "500", 1, 512, watchers,
              "Number of watches, half of gpunodes and half of gpupods."),
    BENCH_OPT("changes", "N", INT, "20", 1, 1000, changes,
              "Health changes of cards per second."),
    BENCH_OPT("rounds", "N", INT, "11", 1, BENCH_ROUNDS, rounds, "Number of rounds."),
    BENCH_OPT("calls", "N", INT, "3000", 1, 1000000, calls,
              "Filter calls in each half of a round."),
    {0},
};
const struct bench_command bench_watchers = {"watchers",
                                             "measure the effect of watches on filter",
                                             false,
                                             options,
                                             sizeof(struct config),
                                             run};
