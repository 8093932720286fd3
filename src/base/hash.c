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

static uint64_t load8(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load4(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t hash_of(uint64_t seed, const void *data, size_t n)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd1b54a32d192ed03u;
    const unsigned char *p = data;
    size_t left = n;
    uint64_t h = seed ^ k0, a = 0, b = 0;
    for (; left > 16; left -= 16, p += 16)
        h = mix(load8(p) ^ k1, load8(p + 8) ^ h);
    /* The last 1 to 16 bytes as two words, which may overlap; n is hashed too, so that
     * lengths differ. */
    if (left >= 8) {
        a = load8(p);
        b = load8(p + left - 8);
    } else if (left >= 4) {
        a = load4(p);
        b = load4(p + left - 4);
    } else if (left) {
        a = (uint64_t)p[0] << 16 | (uint64_t)p[left / 2] << 8 | p[left - 1];
    }
    return mix(k1 ^ n, mix(a ^ k1, b ^ h));
}

uint64_t hash_bytes(uint64_t seed, const void *data, size_t n)
{
    return hash_of(seed, data, n);
}

/* Open addressing with linear probing; map_remove shifts later entries back into the
 * gap, so that there are no tombstones. */
struct map_slot {
    uint64_t hash;
    void *value; /* NULL: free */
};

void map_init(struct map *m, uint64_t seed, size_t key_at)
{
    *m = (struct map){.seed = seed, .key_at = key_at};
}

/* span_eq, inlined for the common key lengths. */
static inline bool same_key(struct span a, struct span b)
{
    if (a.n != b.n)
        return false;
    const unsigned char *p = (const unsigned char *)a.p, *q = (const unsigned char *)b.p;
    if (a.n < 8 || a.n > 16)
        return span_eq(a, b);
    return load8(p) == load8(q) && load8(p + a.n - 8) == load8(q + a.n - 8);
}

static struct span key_of(const struct map *m, const void *value)
{
    return *(const struct span *)((const char *)value + m->key_at);
}

void map_fini(struct map *m)
{
    free(m->slots);
    *m = (struct map){0};
}

/* The slot of the key, or the free slot to insert it into. cap must not be 0. */
static struct map_slot *find(const struct map *m, uint64_t hash, struct span key)
{
    size_t mask = m->cap - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct map_slot *slot = &m->slots[i];
        if (!slot->value || (slot->hash == hash && same_key(key_of(m, slot->value), key)))
            return slot;
    }
}

static inline uint64_t hash_key(const struct map *m, struct span key)
{
    return hash_of(m->seed, key.p, key.n);
}

void *map_get(const struct map *m, struct span key)
{
    return m->n ? find(m, hash_key(m, key), key)->value : NULL;
}

/* The first slot with this hash, or a free one. It is the key's unless two keys have the
 * same 64-bit hash. Most keys are in one of the first two slots; which one is not
 * predictable, so no branch depends on it. */
static const struct map_slot *find_hash(const struct map *m, uint64_t hash)
{
    const struct map_slot *slots = m->slots;
    size_t mask = m->cap - 1, i = hash & mask;
    i = (i + (slots[i].hash != hash)) & mask;
    while (slots[i].hash != hash && slots[i].value)
        i = (i + 1) & mask;
    return &slots[i];
}

static void get_batch(const struct map *m, const struct span *keys, size_t n,
                      size_t ahead, void **values)
{
    uint64_t hashes[MAP_BATCH];
    const struct map_slot *slots[MAP_BATCH];
    for (size_t i = 0; i < n; i++) {
        hashes[i] = hash_key(m, keys[i]);
        __builtin_prefetch(&m->slots[hashes[i] & (m->cap - 1)]);
    }
    for (size_t i = 0; i < n; i++) {
        slots[i] = find_hash(m, hashes[i]);
        uintptr_t value = (uintptr_t)slots[i]->value; /* may be NULL */
        for (size_t at = 0; at < ahead; at += 64)
            __builtin_prefetch((const void *)(value + at));
    }
    for (size_t i = 0; i < n; i++) {
        if (slots[i]->value && !same_key(key_of(m, slots[i]->value), keys[i]))
            slots[i] = find(m, hashes[i], keys[i]);
        values[i] = slots[i]->value;
    }
}

void map_get_many(const struct map *m, const struct span *keys, size_t n, size_t ahead,
                  void **values)
{
    if (!m->n) {
        memset(values, 0, n * sizeof *values);
        return;
    }
    for (size_t i = 0; i < n; i += MAP_BATCH)
        get_batch(m, keys + i, n - i < MAP_BATCH ? n - i : MAP_BATCH, ahead, values + i);
}

void map_set(struct map *m, void *value)
{
    assert(value);
    struct span key = key_of(m, value);
    if (m->n + 1 > m->cap / 4 * 3) {
        struct map old = *m;
        m->cap = old.cap ? old.cap * 2 : 16;
        m->slots = xcalloc(m->cap, sizeof *m->slots);
        for (size_t i = 0; i < old.cap; i++)
            if (old.slots[i].value)
                *find(m, old.slots[i].hash, key_of(m, old.slots[i].value)) = old.slots[i];
        free(old.slots);
    }
    uint64_t hash = hash_key(m, key);
    struct map_slot *slot = find(m, hash, key);
    m->n += !slot->value;
    *slot = (struct map_slot){hash, value};
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
