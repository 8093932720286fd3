/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * CPU, memory and pod slots: what pods request of a node, and what a node offers to them.
 */

/* A larger amount counts as this. No node has as much; and the sum over all pods that one
 * API server can store does not overflow. */
#define RESOURCES_MAX ((int64_t)1 << 46)

struct resources {
    int64_t cpu_milli; /* thousandths of a core */
    int64_t memory;    /* bytes */
    int64_t pods;      /* slots: 1 for a pod */
};

static inline void resources_add(struct resources *sum, const struct resources *more)
{
    sum->cpu_milli += more->cpu_milli;
    sum->memory += more->memory;
    sum->pods += more->pods;
}

static inline bool resources_equal(const struct resources *a, const struct resources *b)
{
    return a->cpu_milli == b->cpu_milli && a->memory == b->memory && a->pods == b->pods;
}

/* Decides how the requests of a container add up to those of its pod. */
enum container_role {
    CONTAINER_APP,     /* spec.containers */
    CONTAINER_SIDECAR, /* spec.initContainers with restartPolicy Always */
    CONTAINER_INIT,    /* spec.initContainers that end before the others start */
};
