/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "domain/pod.h"

/*
 * The raw limits of a pod: the amount of each resource in its spec, without any
 * validation. Labels and annotations are ignored. This is the minimum that a bound pod
 * counts for.
 *
 * Containers add up as in Kubernetes (k8s.io/component-helpers/resource, PodRequests):
 * app containers and sidecars run concurrently; a plain init container runs only beside
 * the sidecars that started before it; the larger sum counts. Pod-level resources
 * (spec.resources) are ignored: the API server accepts only cpu, memory and hugepages
 * there.
 *
 * A fraction is rounded up, as in Quantity.Value(). A sum is never above LIMITS_MAX,
 * which is far above any node. An invalid quantity also counts as LIMITS_MAX: no API
 * server stores one, and too much is safe.
 */

#define LIMITS_MAX ((int64_t)1 << 40)

struct limits {
    int64_t mem;      /* units of aliyun.com/gpu-mem */
    int64_t cards;    /* whole cards: aliyun.com/gpu-count */
    int64_t devices;  /* nvidia.com/gpu */
    int64_t core;     /* aliyun.com/gpu-core.percentage */
    bool mem_in_init; /* a plain init container requests gpu-mem */
};

struct limits limits_of(const struct pod *pod);

/* Compute alone is no limit: it is a share of the cards that the others give. */
static inline bool limits_any(const struct limits *l)
{
    return l->mem || l->cards || l->devices;
}
