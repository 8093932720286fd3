/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * A Node, cut down to what it says about GPU memory.
 */

enum node_mode {
    NODE_ANY,        /* no label gpushare/mode */
    NODE_MEMORY,     /* "memory": shared memory only */
    NODE_CARDS,      /* "card": whole cards only */
    NODE_MODE_WRONG, /* some other value */
};

/* Capacity or allocatable: -1 when not stated. */
struct node_resources {
    int64_t mem;   /* aliyun.com/gpu-mem, units */
    int64_t cards; /* aliyun.com/gpu-count */
};

struct node {
    struct object_meta meta;
    enum node_mode mode;
    struct node_resources capacity, allocatable;
    struct span address; /* the first InternalIP; empty: it has none */
    bool cordoned;       /* spec.unschedulable */
};

void node_read(struct jread *j, struct arena *a, struct node *node);

/* Is that, given as --node-name, the name of a Node, which can stand in a request? */
int node_name_check(const char *name, struct err *err);
