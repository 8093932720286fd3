/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * A trace in the format of openb (Alibaba's GPU trace of 2023): the nodes and the pods of a
 * cluster.
 *
 *   nodes  sn, cpu_milli, memory_mib, gpu, model
 *   pods   name, cpu_milli, memory_mib, num_gpu, gpu_milli and optionally gpu_spec
 *
 * Columns may be in any order; other columns are ignored. gpu_milli is in thousandths of a
 * card, per card: 0 for a pod without cards, 1000 for a pod with several cards. gpu_spec
 * lists the allowed models, separated by |; empty allows any model.
 *
 * Or a cluster alone, of nodes that know what connects their cards: a line for each card of a
 * kind of node, in their order.
 *
 *   links  nodes (how many of the kind), numa (NUMA node; -1: unknown), links (a row of
 *          `nvidia-smi topo -m`, its words separated by one space)
 */

enum {
    TRACE_MAX_BYTES = 256 << 20, /* maximum size of a file */
    TRACE_MAX_CARDS = 64,        /* maximum cards of a node */
    TRACE_CARD = 1000,           /* the size of every card */
    TRACE_LINKED = 8,            /* maximum cards of a node with links */
    TRACE_LINKED_NODES = 10000,  /* maximum number of them */
};

struct trace_links {
    struct span row;
    int64_t numa; /* -1: unknown */
};

struct trace_node {
    struct span name, model;
    int64_t cpu_milli, memory_mib;
    uint32_t cards;
    const struct trace_links *links; /* of each card; in the arena; NULL: unknown */
};

struct trace_pod {
    struct span name;
    struct span models; /* as in struct request: separated by commas; in the arena */
    int64_t cpu_milli, memory_mib, gpu_milli; /* gpu_milli: per card */
    uint32_t cards;
};

struct trace {
    struct trace_node *nodes;
    struct trace_pod *pods;
    size_t n_nodes, nodes_cap, n_pods, pods_cap;
    struct arena arena;
    int64_t capacity, cpu_milli; /* of all nodes; capacity: in thousandths of a card */
};

/* Adds the nodes or pods of the text; spans borrow from it. `name` is the file name for
 * errors, which name file, line and column. */
int trace_nodes(struct trace *t, const char *name, struct span text, struct err *err);
int trace_pods(struct trace *t, const char *name, struct span text, struct err *err);
int trace_links(struct trace *t, const char *name, struct span text, struct err *err);
void trace_fini(struct trace *t);
