/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"
#include "domain/pod.h"

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
    int64_t mem;             /* aliyun.com/gpu-mem, units */
    int64_t cards;           /* aliyun.com/gpu-count */
    int64_t devices;         /* nvidia.com/gpu */
    int64_t compute_percent; /* aliyun.com/gpu-core.percentage */
    int64_t slots;           /* aliyun.com/gpu-share */
};

struct node {
    struct object_meta meta;
    struct span terms[TERMS_TEXTS];
    enum node_mode mode;
    struct node_resources capacity, allocatable;
    struct resources room; /* allocatable of cpu, memory and pods; 0: not stated */
    struct span address;   /* the first InternalIP; empty: none */
    struct span cards_label, cards_note; /* gpushare.io/cards (see below) */
    struct span cordon;                  /* annotation hami.io/device-cordon: UUIDs */
    struct span runtime, kubelet; /* status.nodeInfo: "containerd://2.1.4", "v1.35.0" */
    struct span dialect;          /* label gpushare/dialect */
    bool cgpu_disable;            /* label cgpu.disable.isolation=true */
    bool left_out, included;      /* label gpushare=false, =true */
    bool cordoned;                /* spec.unschedulable */
    bool damaged;                 /* it had a fault: ignore all but its name */
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
void node_unhealthy_read(struct jread *j, struct arena *a, struct unhealthy_cards *u);

/*
 * A template Node: a node that an autoscaler could create. Its object is in the body of a
 * call and not in the API, so no Scv lists its cards. A label or annotation does:
 *
 *     gpushare.io/cards: 4x16384MiB     four cards of 16384 MiB each
 *
 * They are healthy and empty, because no pod can be there, and their model is unknown.
 * Without the key the object says nothing about single cards. Its capacity of
 * aliyun.com/gpu-mem is not used: a real Node that this process has not seen yet has one,
 * too.
 */

enum {
    NODE_CARD_MIB_MAX = 1 << 24, /* of a card: 16 TiB. (At most SCV_MAX_CARDS cards) */
};

struct node_cards {
    uint32_t n;  /* 0: the key is absent */
    int64_t mib; /* of each */
};

/* Parses "4x16384MiB". */
int node_cards_parse(struct span text, struct node_cards *cards, struct err *err);
/* The cards that label and annotation name; `n` is 0 if neither is there. -1: malformed, or
 * they differ. */
int node_cards_named(const struct node *node, struct node_cards *cards, struct err *err);
