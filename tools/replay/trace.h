/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * A trace in the format of openb (Alibaba's GPU trace of 2023): the nodes of a cluster,
 * and the pods that came to it.
 *
 *   nodes  sn, cpu_milli, memory_mib, gpu, model
 *   pods   name, cpu_milli, memory_mib, num_gpu, gpu_milli and, if it is there, gpu_spec
 *
 * Columns may be in any order; others are not looked at. gpu_milli is per card, in
 * thousandths of one: below 1000 only for a pod with one card, 0 for one without.
 * gpu_spec: the models that will do, with | between them; empty: any.
 */

enum {
    TRACE_MAX_BYTES = 256 << 20, /* of a file */
    TRACE_MAX_CARDS = 64,        /* of a node */
    TRACE_CARD = 1000,           /* the size of every card */
};

struct trace_node {
    struct span name, model;
    int64_t cpu_milli, memory_mib;
    uint32_t cards;
};

struct trace_pod {
    struct span name, models;
    int64_t cpu_milli, memory_mib, gpu_milli; /* gpu_milli: of each card */
    uint32_t cards;
};

struct trace {
    struct trace_node *nodes;
    struct trace_pod *pods;
    size_t n_nodes, nodes_cap, n_pods, pods_cap;
    int64_t capacity, cpu_milli; /* of all nodes; capacity: of their cards */
};

/* Adds what the text says; spans borrow from it. `name` is for errors, which say file,
 * line and column. */
int trace_nodes(struct trace *t, const char *name, struct span text, struct err *err);
int trace_pods(struct trace *t, const char *name, struct span text, struct err *err);
void trace_fini(struct trace *t);

/* May the pod run on a node with this model? */
bool trace_model_is_allowed(const struct trace_pod *pod, struct span model);
