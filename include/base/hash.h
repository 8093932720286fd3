/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * Hashing for tables whose keys come from outside, and a table from names to values.
 */

/* A 64-bit hash of the bytes, keyed with `seed` (random in a program, fixed in a test).
 * Not cryptographic; the seed keeps strangers from choosing colliding names. */
uint64_t hash_bytes(uint64_t seed, const void *p, size_t n);

/* A table from names to values. It has no order and cannot be walked: what needs an order
 * keeps its own. A value holds its own key, a struct span somewhere inside, and both must
 * stay where they are and as they are while they are in the table. */
struct map {
    struct map_slot *slots;
    size_t n, cap; /* cap is a power of two, or 0 */
    uint64_t seed;
    size_t key_at;
};

/* `key_at`: where in a value its key is, as by offsetof. */
void map_init(struct map *m, uint64_t seed, size_t key_at);
void map_fini(struct map *m);                        /* the values are not touched */
void *map_get(const struct map *m, struct span key); /* NULL if absent */
/* Many at once: values[i] gets what keys[i] has, or NULL. In a large table most of a
 * look-up is waiting for memory; here the look-ups of a batch wait together, and so do
 * the first `ahead` bytes of their values, for the caller to look at. */
enum { MAP_BATCH = 16 };
void map_get_many(const struct map *m, const struct span *keys, size_t n, size_t ahead,
                  void **values);
/* Adds the value, which is borrowed, or replaces the one with an equal key. */
void map_set(struct map *m, void *value);
void *map_remove(struct map *m, struct span key); /* what was there, or NULL */
