/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What this process holds: a hash table of allocations, contexts, pools, ... by kind and handle.
 * The caller holds the lock of the process.
 */

enum kind {
    KIND_NONE, /* a free place of the table */
    KIND_CONTEXT,
    KIND_LINEAR, /* a pointer of cuMemAlloc and its like */
    KIND_ARRAY,  /* an array or a mipmapped array */
    KIND_POOL, /* a pool. a: bytes that threads are reserving; b: bytes of its pointers */
    KIND_POOLED, /* a pointer of a pool. a: the pool; b: its bytes */
    KIND_HANDLE, /* a handle of cuMemCreate. a: its memory; b: references of the handle */
    KIND_MEMORY, /* physical memory. The key is a number; a: handles and mappings */
    KIND_MAPPING, /* an address of cuMemMap. a: its memory; b: its size */
    KIND_GRAPH,   /* a graph with allocation nodes. a: its number */
    KIND_EXEC,    /* an executable graph. a: the number of its graph */
    KIND_NUMBER,  /* the number of a graph. a: graphs and executable graphs with it */
    KIND_NODE     /* an address of an allocation node. a: the number of its graph */
};

struct entry {
    uint64_t key;
    uint64_t bytes;   /* that the limit counts for this entry */
    uint64_t context; /* whose end frees the entry; 0: none */
    uint64_t a, b;    /* see enum kind */
    uint32_t kind;
    int32_t card; /* of struct process; -1: a card without a limit, or the host */
};

struct table {
    struct entry *at;
    size_t n, size; /* size: a power of 2, or 0 */
};

/* NULL: there is none. The entry is valid until the next change of the table. */
struct entry *table_find(const struct table *t, enum kind kind, uint64_t key);

/* A new entry, or the one that exists. NULL: out of memory. */
struct entry *table_add(struct table *t, enum kind kind, uint64_t key);

void table_remove(struct table *t, struct entry *e);

/* Every entry once, if the loop removes none: begin with NULL, ends with NULL. */
struct entry *table_next(const struct table *t, struct entry *e);
