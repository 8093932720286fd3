/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/opt.h"
#include "base/str.h"

/*
 * What the subcommands of bench share. An error ends the program with a message.
 */

/* -- Subcommands (bench.c) -- */

struct bench_command {
    const char *name, *summary;
    const struct opt *options;
    size_t size;              /* of the config that the options fill */
    int (*run)(void *config); /* returns the exit status */
};
extern const struct bench_command bench_serve, bench_watchers, bench_hostile, bench_soak,
    bench_cluster, bench_openb, bench_floor;

#define BENCH_OPT(n, a, t, i, low, high, at, text)                                       \
    {                                                                                    \
        .name = n, .arg = a, .type = OPT_##t, .init = i, .min = low, .max = high,        \
        .offset = offsetof(struct config, at), .help = text                              \
    }
#define BENCH_BUILD                                                                      \
    BENCH_OPT("build", "DIR", STRING, "build", 0, 0, build,                              \
              "Folder of the built programs.")

_Noreturn __attribute__((format(printf, 1, 2))) void bench_die(const char *format, ...);
int64_t bench_now_ns(void);

/* A process of its own for clients that must not disturb the measuring ones. */
struct bench_child {
    pid_t pid;
    int to, from; /* pipes */
};
/* To be called before any thread is started; `run` does not return. */
void bench_fork(struct bench_child *c, void (*run)(int from, int to, const void *ctx),
                const void *ctx);
/* All of the bytes, or the process ends. */
void bench_get(int fd, void *p, size_t n);
void bench_put(int fd, const void *p, size_t n);

/* A series of measured values. {0} is empty. */
struct series {
    double *of;
    size_t n, cap;
};
void series_note(struct series *s, double value);
/* The quantile of a share; sorts the values. 0 if there are none. */
double series_quantile(struct series *s, double share);
/* a / b, value by value, before either is sorted. New. */
struct series series_ratio(const struct series *a, const struct series *b);
void series_fini(struct series *s);

/* -- HTTP clients (load.c) -- */

/* Load for a server on the loopback: keep-alive connections with prepared requests. A
 * connection sends its next request after the reply to the last one. */
struct load {
    unsigned port;
    unsigned connections;
    const struct span *requests; /* borrowed: head and body */
    size_t n_requests;           /* used in rotation, starting at `first` */
    size_t first;
    size_t calls; /* total number */
};
struct load_result {
    struct series ms; /* of each call, from the first byte sent to the last byte read */
    double seconds;
    size_t failed; /* status other than 2xx, or a verb's Error */
};
void load_run(const struct load *load, struct load_result *result);
/* Builds a request; the body may be empty. New. */
struct span load_request(const char *method, const char *path, struct span body);
/* A socket that is connected to the port. */
int load_connect(unsigned port);

/* Sequential calls; each thread has one keep-alive connection. Returns the status; 0: no
 * reply. `body`: JSON, or NULL; a PATCH sends a merge patch. *answer (`answer` may be NULL)
 * gets the JSON of a 2xx reply (new), otherwise NULL. */
long ask(const char *method, unsigned port, const char *path, const char *body,
         json_t **answer);
/* Sends a tree. Takes `body`. */
long ask_send(const char *method, unsigned port, const char *path, json_t *body);

/* -- The measured programs (testbed.c) -- */

/* A program that prints "listening on ADDRESS:PORT" to standard error, which goes to a file. */
struct server {
    pid_t pid;
    unsigned port;
    char *log; /* path; owned */
    int64_t started_ns;
};
/* Starts argv[0] and waits for its port. */
void server_start(struct server *s, const char *log, const char *const *argv);
unsigned server_observe_port(const struct server *s); /* of the extender */
void server_stop(struct server *s, int signal);
double server_cpu_ms(const struct server *s); /* of all threads since the start */
/* Calls GET `path` until the status is 200. Returns the milliseconds since the start. */
double server_wait(const struct server *s, const char *path);

/* Resources of a process that can leak. */
struct vitals {
    double mib; /* resident */
    unsigned fds, threads;
};
struct vitals vitals_now(const struct server *s);
struct vitals vitals_peak(const struct vitals *samples, size_t n); /* maximum of each */

/* kube-sim with a generated cluster, and an extender. */
struct testbed {
    const char *build;    /* folder of the programs; borrowed */
    const char *generate; /* option of kube-sim; borrowed */
    bool run_pods;
    char *dir;         /* own folder: logs, kubeconfig, saved objects */
    char *kubeconfig;
    struct server sim, extender;
};
/* Starts kube-sim. `generate`: its option; `run_pods`: bound pods run, and the history of
 * events is short, so that it does not count as growth. */
void testbed_start(struct testbed *w, const char *build, const char *generate,
                   bool run_pods);
/* Starts the extender, or restarts it; options end with NULL. */
void testbed_extender(struct testbed *w, const char *const *options);
void testbed_stop(struct testbed *w);
char *testbed_path(const struct testbed *w, const char *file); /* in `dir`; new */
/* Kills kube-sim and restarts it on the same port with the objects of its start, at higher
 * versions. */
void testbed_restart_sim(struct testbed *w);
/* Repeats kubectl-inspect-gpushare --check until ledger, annotations, Scvs and the extender's
 * view agree, for at most `limit_ms`. Prints its last output. */
bool testbed_agrees(const struct testbed *w, int64_t limit_ms);

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
    size_t n_nodes;
    struct span filter[BODIES_KINDS][BODIES_ORDERS];
    /* With the nodes that passed filter. */
    struct span prioritize[BODIES_ORDERS];
    struct span full[2];  /* filter with whole Nodes */
    struct span *bind;    /* to the extender */
    struct span *binding; /* the resulting call to the API server */
    size_t n_pods;        /* of `bind` and of `binding` */
};

/* Creates 2 * n_pods pending pods in kube-sim, and builds the requests. Calls filter once,
 * for the nodes of prioritize and bind. */
void bodies_make(struct bodies *b, const struct testbed *w, size_t n_nodes,
                 size_t n_pods);
void bodies_fini(struct bodies *b);
/* A filter call for a pod of 2 units with the names of all nodes, in order. New. */
char *bodies_filter(size_t n_nodes);
