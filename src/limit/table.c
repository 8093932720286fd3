/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table of what this process holds. */
#include "limit/limit.h"

#include "limit/sys.h"

enum { FIRST_SIZE = 64 };

static size_t place(const struct table *t, uint32_t kind, uint64_t key)
{
    uint64_t h = (key ^ (uint64_t)kind << 57) * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32) & (t->size - 1);
}

struct entry *table_find(const struct table *t, enum kind kind, uint64_t key)
{
    if (!t->size)
        return NULL;
    for (size_t i = place(t, kind, key); t->at[i].kind; i = (i + 1) & (t->size - 1))
        if (t->at[i].kind == kind && t->at[i].key == key)
            return &t->at[i];
    return NULL;
}

static struct entry *insert(struct table *t, uint32_t kind, uint64_t key)
{
    size_t i = place(t, kind, key);
    while (t->at[i].kind)
        i = (i + 1) & (t->size - 1);
    t->n++;
    return &t->at[i];
}

static bool resize(struct table *t, size_t size)
{
    struct table other = {.size = size};
    other.at = sys_map(other.size * sizeof *other.at);
    if (!other.at)
        return false;
    for (struct entry *e = NULL; (e = table_next(t, e));)
        *insert(&other, e->kind, e->key) = *e;
    if (t->size)
        sys_unmap(t->at, t->size * sizeof *t->at);
    *t = other;
    return true;
}

struct entry *table_add(struct table *t, enum kind kind, uint64_t key)
{
    struct entry *e = table_find(t, kind, key);
    if (e)
        return e;
    if (t->n >= t->size / 2 && !resize(t, t->size ? t->size * 2 : FIRST_SIZE))
        return NULL;
    if (t->size > FIRST_SIZE && t->n < t->size / 16)
        resize(t, t->size / 4); /* it may stay as it is */
    e = insert(t, kind, key);
    *e = (struct entry){.kind = kind, .key = key, .card = -1};
    return e;
}

/* Moves the entries behind the free place forward, so that none is cut off from its place. */
void table_remove(struct table *t, struct entry *e)
{
    size_t mask = t->size - 1, hole = (size_t)(e - t->at);
    for (size_t i = (hole + 1) & mask; t->at[i].kind; i = (i + 1) & mask) {
        size_t home = place(t, t->at[i].kind, t->at[i].key);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            t->at[hole] = t->at[i];
            hole = i;
        }
    }
    t->at[hole] = (struct entry){0};
    t->n--;
}

struct entry *table_next(const struct table *t, struct entry *e)
{
    for (size_t i = e ? (size_t)(e - t->at) + 1 : 0; i < t->size; i++)
        if (t->at[i].kind)
            return &t->at[i];
    return NULL;
}
