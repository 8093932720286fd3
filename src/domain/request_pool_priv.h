/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "domain/request.h"
#include "domain/resources.h"

/*
 * The requests of pods, of GPUs and of the node. Many pods make equal requests, so each
 * different request is stored once, with the number of its users. Equal ones also have
 * equal parts.
 */

struct request_pool {
    struct shared_request **buckets;
    size_t n, cap; /* cap is a power of two, or 0 */
    uint64_t seed;
};

void request_pool_init(struct request_pool *p, uint64_t seed);
/* All requests must have been released. */
void request_pool_fini(struct request_pool *p);
/* A copy, which does not change and lives until each user has released it. */
const struct request *request_pool_take(struct request_pool *p,
                                        const struct request *request,
                                        const struct resources *resources);
const struct resources *request_pool_resources(const struct request *request);
void request_pool_release(struct request_pool *p, const struct request *request);
