/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/opt.h"
#include "lib/sim.h"

/*
 * What the subcommands of bench share. They run in the harness of test/lib: an error fails the
 * benchmark with a message, and programs and files are gone after it.
 */

/* -- Subcommands (bench.c) -- */

struct bench_command {
    const char *name, *summary;
    bool cluster; /* runs beside the real control plane */
    const struct opt *options;
    size_t size; /* of the config that the options fill */
    void (*run)(void *config);
};
extern const struct bench_command bench_serve, bench_watchers, bench_hostile, bench_soak,
    bench_cluster, bench_openb, bench_floor;

#define BENCH_OPT(n, a, t, i, low, high, at, text)                                       \
    {                                                                                    \
        .name = n, .arg = a, .type = OPT_##t, .init = i, .min = low, .max = high,        \
        .offset = offsetof(struct config, at), .help = text                              \
    }

/* Prints whether an aim was reached; one that was not fails the benchmark at its end. */
void bench_aim(const char *what, bool reached);

/* A series of measured values. {0} is empty. */
struct series {
    double *of;
    size_t n, cap;
};
void series_note(struct series *s, double value);
/* The quantile of a share; sorts the values. 0 if there are none. */
double series_quantile(struct series *s, double share);

/* A value of each round, of both sides. */
enum { BENCH_ROUNDS = 99 };
struct rounds {
    double of[2][BENCH_ROUNDS];
    size_t n;
};
double rounds_median(double *values, size_t n);
/* Prints both medians, and the median and spread of the ratio of the first side to the second
 * within each round. */
void rounds_print(const char *what, struct rounds *r);

/* Resources of a process that can leak. */
struct vitals {
    double mib; /* resident */
    unsigned fds, threads;
};
struct vitals vitals_now(const struct program *p);
struct vitals vitals_peak(struct vitals a, struct vitals b); /* maximum of each */
double vitals_cpu_ms(pid_t pid); /* of all threads since the start */

/* -- HTTP clients (load.c) -- */

/* Load for a server on the loopback: keep-alive connections with prepared requests. A
 * connection sends its next request after the reply to the last one. */
struct load {
    unsigned port;
    const struct span *requests; /* borrowed: head and body */
    size_t n_requests;           /* used in rotation */
    size_t next;                 /* number of requests so far */
    size_t failed;               /* status other than 2xx, or a verb's Error */
    /* Of the last run. */
    struct series ms; /* of each call, from the first byte sent to the last byte read */
    double seconds;
};
void load_run(struct load *load, unsigned connections, size_t calls);
/* Builds a request; the body may be empty. Lives as long as the arena. */
struct span load_request(struct arena *a, const char *method, const char *path,
                         struct span body);

/* -- The requests of one cluster size (bodies.c) -- */

enum {
    BODIES_ORDERS = 8,  /* number of different orders of the node names, of each kind */
    BODIES_FULL = 1000, /* maximum Nodes in a body with whole objects */
};

/* kube-scheduler goes through one list of all nodes, each time from where it stopped the
 * last time (nextStartNodeIndex). Sixteen workers take chunks of sqrt(n) nodes from it, and
 * the names are in the order in which the workers are done with them
 * (findNodesThatPassFilters in pkg/scheduler/schedule_one.go, framework/parallelize). So the
 * names of up to sixteen chunks alternate. */
enum bodies_order {
    BODIES_SCHEDULER, /* the workers are equally fast, and interrupted now and then */
    BODIES_SHUFFLED,  /* worse than any scheduler */
    BODIES_KINDS
};

struct bodies {
    struct arena arena;
    struct span filter[BODIES_KINDS][BODIES_ORDERS];
    struct span prioritize[BODIES_ORDERS]; /* with the nodes that passed filter */
    struct span full;                      /* filter with whole Nodes */
    struct span *bind;                     /* to the extender */
    struct span *binding;                  /* the resulting call to the API server */
};

/* Creates 2 * n_pods pending pods of so many cards in kube-sim, and builds the requests. Calls filter once,
 * for the nodes of prioritize and bind. */
void bodies_make(struct bodies *b, const struct sim *sim, const struct extender *e,
                 size_t n_nodes, size_t n_pods, int cards);
/* Appends the body of a filter call for a pod of 2 units with annotations (a JSON object):
 * the names of n_nodes nodes in order, again and again up to `least` bytes. */
void bodies_filter(struct buf *out, const char *annotations, size_t n_nodes,
                   size_t least);
