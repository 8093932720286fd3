/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/request.h"

/*
 * The request mix of a cluster: the shapes of requests, each with a weight. A pod counts
 * once, when it is first seen, and loses half its weight after MIX_HALF_LIFE more pods. So
 * the mix follows the workload and needs no clock.
 *
 * At most MIX_SHAPES are kept; a new one replaces the lightest (the oldest of equals). The
 * same pods in the same order give the same mix.
 */

enum {
    MIX_SHAPES = 128,
    MIX_HALF_LIFE = 4096, /* pods */
};

struct mix_shape {
    enum request_kind kind; /* NONE: no GPU */
    uint32_t cards;
    int64_t mib_per_card; /* MEMORY */
    int64_t cpu_milli;    /* 0: unknown */
    int64_t weight;       /* more than 0 */
};

struct mix {
    struct mix_shape shapes[MIX_SHAPES]; /* unordered */
    uint32_t n;
    uint32_t since; /* pods since the weights were last halved */
};

/* Counts a new pod. `cpu_milli`: its CPU request, or 0. */
void mix_add(struct mix *mix, const struct request *request, int64_t cpu_milli);
