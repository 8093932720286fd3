/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "domain/resources.h"

/*
 * Plain pods: bound pods that request no GPU. A cluster may have many, so each takes 16
 * bytes in a hash table, of which at least 3/16 is used. A pod is identified by a 64-bit hash
 * of its UID, keyed with the ledger's seed, and its amounts are stored once for all pods
 * that request the same.
 */

struct plain_pod {
    uint32_t node; /* the number that the caller gave, below 2^31 */
    struct resources requests;
};

struct plain_pods {
    struct plain_slot *slots;
    size_t n, cap; /* cap is a power of two, or 0 */
    uint64_t seed;
    uint64_t list; /* the list that the marks belong to */
    struct plain_amount *amounts;
    uint32_t n_amounts;    /* ever used */
    uint32_t free_amounts; /* first of the unused ones, + 1; 0: none */
    size_t amounts_cap;
    uint32_t *buckets; /* of amounts by hash; amounts_cap many */
};

void plain_pods_init(struct plain_pods *p, uint64_t seed);
void plain_pods_fini(struct plain_pods *p);
/* False: unknown. */
bool plain_pods_get(const struct plain_pods *p, struct span uid, struct plain_pod *pod);
/* Adds or replaces the pod, seen in that list. */
void plain_pods_set(struct plain_pods *p, struct span uid, const struct plain_pod *pod,
                    uint64_t list);
/* Marks a known pod as seen in that list. */
void plain_pods_mark(struct plain_pods *p, struct span uid, uint64_t list);
/* Removes the pod, and returns what it was. False: unknown. */
bool plain_pods_remove(struct plain_pods *p, struct span uid, struct plain_pod *pod);
/* Removes one pod that the list lacked, and returns what it was. `*at` is 0 at first.
 * False: no more. Pods must not change between the calls. */
bool plain_pods_sweep(struct plain_pods *p, uint64_t list, size_t *at,
                      struct plain_pod *pod);
/* Bytes of the tables. */
size_t plain_pods_bytes(const struct plain_pods *p);
