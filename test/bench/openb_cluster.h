/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "bench/openb_trace.h"

/*
 * The real cluster of make bench-openb: Nodes and Scvs of a trace, kube-scheduler and the
 * extender in one of the setups that are compared, and its pods. A card has 1,000
 * GiB, so that a thousandth of a card is a unit of aliyun.com/gpu-mem. No kubelet runs, and controllers and
 * kwok are stopped, so that nothing but kube-scheduler and the extender decides.
 */

enum { OPENB_OPTIONS = 4 };

struct openb_setup {
    const char *name;
    bool variant;   /* runs only if OPENB_SETUPS names it */
    bool extender;  /* false: kube-scheduler counts aliyun.com/gpu-mem */
    bool tainted;   /* nodes with cards take only pods with cards */
    bool all_pods;  /* the extender decides about pods without cards too */
    int weight;     /* of the extender's points */
    int percentage; /* percentageOfNodesToScore; 0: kube-scheduler's default */
    const char *options[OPENB_OPTIONS]; /* of the extender; ends with NULL */
};

/* Creates the nodes of the trace, and nodes without cards for the pods without cards of
 * `setup->tainted`. Call once, then openb_cluster_start for each setup. */
void openb_cluster_create(const struct trace *trace);
void openb_cluster_start(const struct openb_setup *setup);
void openb_cluster_stop(const struct openb_setup *setup);

/* Pod `i` of a run, as this setup asks for it. */
void openb_cluster_pod(const struct openb_setup *setup, size_t i,
                       const struct trace_pod *pod);
void openb_cluster_delete(size_t i);
/* Deletes pods 0 to n - 1, those that are left. */
void openb_cluster_delete_all(size_t n);

/* What the API server's audit log says about the pods of a run. {0} to begin. */
struct openb_log {
    long end;      /* read up to here */
    uint8_t *seen; /* of each pod: OPENB_*; borrowed, zeroed */
    size_t n;      /* pods */
    size_t settled;
    size_t *bound; /* the bound pods in the order of their Bindings; free it */
    double *times; /* of the Bindings, in seconds of the day; free it */
    size_t n_bound, bound_cap, times_cap;
};
enum { OPENB_BOUND = 1, OPENB_REJECTED = 2 }; /* REJECTED: kube-scheduler found no node */
void openb_log_begin(struct openb_log *log, uint8_t *seen, size_t n);
/* Reads what was added. */
void openb_log_read(struct openb_log *log);
void openb_log_fini(struct openb_log *log);
/* Pods per second between the Bindings of the first and the last tenth. */
double openb_log_rate(const struct openb_log *log);

/* Waits until kube-scheduler says of each pending pod that no node can take it. */
void openb_cluster_settle(void);
/* The node of each of the n pods, NULL for a pending pod. New; so is each name. */
char **openb_cluster_nodes(size_t n);
