/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/str.h"

/*
 * Nodes of the benchmarks with the real kube-scheduler. No kubelet runs, and nothing simulates
 * one: a node is created Ready and stays so, because controllers and kwok are stopped. So 5,000
 * nodes cost their creation, and no heartbeats.
 */

struct kube_node {
    struct span name, model; /* borrowed */
    int64_t cpu_milli, memory_mib;
    int pods;
    uint32_t cards;      /* 0: no Scv */
    uint32_t card_units; /* of aliyun.com/gpu-mem */
    int card_mib;
};

/* Creates an object. */
void kube_node_post(const char *path, const char *body);

/* Stops all programs but etcd and kube-apiserver. */
void kube_node_stop_programs(void);
/* Creates the Node, and the Scv of its cards. */
void kube_node_create(const struct kube_node *n);
/* Replaces the taints of the Node by this JSON list; "null": none. */
void kube_node_taint(struct span name, const char *taints);
