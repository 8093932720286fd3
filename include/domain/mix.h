/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/request.h"

/*
 * What the pods of a cluster ask for: the shapes of requests that were seen, each with a
 * weight. A pod counts once, when it is first seen, and fades as others come: behind
 * MIX_HALF_LIFE more pods it counts half. So the mix follows the workload at the pace of
 * the workload, and needs no clock.
 *
 * At most MIX_SHAPES are kept; a new one takes the place of the lightest (of equals the
 * one that came first). The same pods in the same order give the same mix.
 */

enum {
    MIX_SHAPES = 128,
    MIX_HALF_LIFE = 4096, /* pods */
};

struct mix_shape {
    enum request_kind kind; /* NONE: no GPU at all */
    uint32_t cards;
    int64_t mib_per_card; /* MEMORY */
    int64_t cpu_milli;    /* 0 where nobody knows */
    int64_t weight;       /* more than 0 */
};

struct mix {
    struct mix_shape shapes[MIX_SHAPES]; /* in the order of their places */
    uint32_t n;
    uint32_t since; /* pods since the weights were last halved */
};

/* Counts a pod that was not seen before. `cpu_milli`: what it asks for of CPU, or 0. */
void mix_add(struct mix *mix, const struct request *request, int64_t cpu_milli);
