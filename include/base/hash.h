/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * Hashing for tables whose keys come from outside, and a table from names to values.
 */

/* A 64-bit hash of the bytes, keyed with `seed` (random in a program, fixed in a test).
 * Not cryptographic; the seed keeps strangers from choosing colliding names. */
uint64_t hash_bytes(uint64_t seed, const void *p, size_t n);

/* A table from names to pointers. It has no order and cannot be walked: what needs an
 * order keeps its own. Keys are borrowed: they live in what the value points to, and must
 * stay where they are while they are in the table. */
struct map {
    struct map_slot *slots;
    size_t n, cap; /* cap is a power of two, or 0 */
    uint64_t seed;
};

void map_init(struct map *m, uint64_t seed);
void map_fini(struct map *m);                        /* the values are not touched */
void *map_get(const struct map *m, struct span key); /* NULL if absent */
/* Many at once: values[i] gets what keys[i] has, or NULL. In a large table most of a
 * look-up is waiting for memory; here the look-ups of a batch wait together, and the
 * first cache line of each value is on its way when its look-up ends. */
enum { MAP_BATCH = 16 };
void map_get_many(const struct map *m, const struct span *keys, size_t n, void **values);
/* Adds key, or replaces key and value when an equal key is there. value is not NULL. */
void map_set(struct map *m, struct span key, void *value);
void *map_remove(struct map *m, struct span key); /* what was there, or NULL */
