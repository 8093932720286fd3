/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

/* Folded 64x64 -> 128 bit multiplication: each step mixes 16 bytes of input. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, p, n);
    return v;
}

uint64_t hash_bytes(uint64_t seed, const void *data, size_t n)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd1b54a32d192ed03u;
    const unsigned char *p = data;
    uint64_t h = mix(seed ^ k0, n ^ k1);
    size_t left = n;
    for (; left >= 16; left -= 16, p += 16)
        h = mix(load(p, 8) ^ h ^ k0, load(p + 8, 8) ^ seed ^ k1);
    if (left > 8)
        h = mix(load(p, 8) ^ h ^ k0, load(p + 8, left - 8) ^ seed ^ k1);
    else if (left)
        h = mix(load(p, left) ^ h ^ k1, seed ^ k0);
    return mix(h ^ k1, seed ^ k0);
}

/* Open addressing with linear probing; a removal closes the gap by moving what follows.
 */
struct map_slot {
    uint64_t hash;
    struct span key;
    void *value; /* NULL: free */
};

void map_init(struct map *m, uint64_t seed)
{
    *m = (struct map){.seed = seed};
}

void map_fini(struct map *m)
{
    free(m->slots);
    *m = (struct map){0};
}

/* The slot of the key, or the free one where it belongs. cap must not be 0. */
static struct map_slot *find(const struct map *m, uint64_t hash, struct span key)
{
    size_t mask = m->cap - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct map_slot *slot = &m->slots[i];
        if (!slot->value || (slot->hash == hash && span_eq(slot->key, key)))
            return slot;
    }
}

static uint64_t hash_key(const struct map *m, struct span key)
{
    return hash_bytes(m->seed, key.p, key.n);
}

void *map_get(const struct map *m, struct span key)
{
    return m->n ? find(m, hash_key(m, key), key)->value : NULL;
}

static void grow(struct map *m)
{
    struct map old = *m;
    m->cap = old.cap ? old.cap * 2 : 16;
    m->slots = xcalloc(m->cap, sizeof *m->slots);
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].value)
            *find(m, old.slots[i].hash, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

void map_set(struct map *m, struct span key, void *value)
{
    assert(value);
    if (m->n + 1 > m->cap / 4 * 3)
        grow(m);
    uint64_t hash = hash_key(m, key);
    struct map_slot *slot = find(m, hash, key);
    m->n += !slot->value;
    *slot = (struct map_slot){hash, key, value};
}

void *map_remove(struct map *m, struct span key)
{
    if (!m->n)
        return NULL;
    struct map_slot *gap = find(m, hash_key(m, key), key);
    void *value = gap->value;
    if (!value)
        return NULL;
    m->n--;
    size_t mask = m->cap - 1, hole = (size_t)(gap - m->slots);
    for (size_t i = (hole + 1) & mask; m->slots[i].value; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct map_slot){0};
    return value;
}
