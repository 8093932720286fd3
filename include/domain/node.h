/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"
#include "domain/resources.h"

/*
 * A Node: the fields about GPU memory, and what it offers to pods otherwise.
 */

enum node_mode {
    NODE_ANY,        /* no label gpushare/mode */
    NODE_MEMORY,     /* "memory": shared memory only */
    NODE_CARDS,      /* "card": whole cards only */
    NODE_MODE_WRONG, /* any other value */
};

/* Capacity or allocatable: -1 when not stated. */
struct node_resources {
    int64_t mem;     /* aliyun.com/gpu-mem, units */
    int64_t cards;   /* aliyun.com/gpu-count */
    int64_t devices; /* nvidia.com/gpu */
    int64_t core;    /* aliyun.com/gpu-core.percentage */
};

struct node {
    struct object_meta meta;
    enum node_mode mode;
    struct node_resources capacity, allocatable;
    struct resources room; /* allocatable of cpu, memory and pods; 0: not stated */
    struct span address;   /* the first InternalIP; empty: none */
    struct span cards_label, cards_note; /* gpushare.io/cards (domain/template_node.h) */
    bool cordoned;                       /* spec.unschedulable */
    bool damaged;                        /* it had a fault: ignore all but its name */
};

void node_read(struct jread *j, struct arena *a, struct node *node);

/* Validates the value of --node-name: a name that can be part of a URL. */
int node_name_check(const char *name, struct err *err);

/*
 * A ConfigMap `unhealthy-gpu-<node>` of the Go extender, with which an operator makes cards
 * of a node unavailable: key "gpus", a comma-separated list of card indexes.
 */

struct unhealthy_cards {
    struct object_meta meta;
    struct span node; /* the name without the prefix; empty: another ConfigMap */
    int32_t *cards;   /* in the arena */
    size_t n;
    bool damaged; /* the list cannot be parsed */
};

/* Reads a ConfigMap. */
void unhealthy_cards_read(struct jread *j, struct arena *a, struct unhealthy_cards *u);
