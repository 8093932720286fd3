/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * A hash function and a hash table for untrusted keys.
 */

/* A 64-bit hash of the bytes, keyed with `seed` (random in a program, fixed in a test).
 * Not cryptographic; a random seed prevents clients from choosing colliding names. */
uint64_t hash_bytes(uint64_t seed, const void *p, size_t n);

/* A hash table from names to values. It is unordered and has no iterator, so that no
 * result can depend on the hash order. A value contains its own key, a struct span; key
 * and value must not move or change while they are in the table. */
struct map {
    struct map_slot *slots;
    size_t n, cap; /* cap is a power of two, or 0 */
    uint64_t seed;
    size_t key_at;
};

/* `key_at`: offset of the key in a value, from offsetof. */
void map_init(struct map *m, uint64_t seed, size_t key_at);
void map_fini(struct map *m);                        /* the values are not touched */
void *map_get(const struct map *m, struct span key); /* NULL if absent */
/* Looks up n keys: values[i] is the value of keys[i], or NULL. Most of a lookup in a
 * large table is cache misses; this function prefetches the slots of a batch of MAP_BATCH
 * keys, and the first `ahead` bytes of their values for the caller, so that the misses
 * overlap. */
enum { MAP_BATCH = 32 };
void map_get_many(const struct map *m, const struct span *keys, size_t n, size_t ahead,
                  void **values);
/* Adds the value, which is borrowed, or replaces the one with an equal key. */
void map_set(struct map *m, void *value);
void *map_remove(struct map *m, struct span key); /* the removed value, or NULL */
