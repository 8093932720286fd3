/* SPDX-License-Identifier: Apache-2.0 */
#include "walk/heap.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REGION = 4 << 20,
    STEP = 64, /* sizes of blocks are multiples; xzalloc_cacheline needs that alignment */
    CLASSES = HEAP_LARGE / STEP + 1,
};

/* Header of each block; STEP bytes, for alignment. */
struct block {
    size_t class;
    struct block *next; /* in the free list */
    char pad[STEP - 2 * sizeof(void *)];
};

/* Part of every copy, up to the used part of the blocks. */
static struct {
    size_t used;
    struct block *free[CLASSES];
    char blocks[REGION] __attribute__((aligned(STEP)));
} heap;
static bool is_on;
static size_t large; /* live blocks outside the region */

void *__real_malloc(size_t n);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t count, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static void die(const char *why)
{
    fprintf(stderr, "walk: %s\n", why);
    abort();
}

void heap_open(void)
{
    memset(&heap, 0, sizeof heap);
}

void heap_on(bool on)
{
    is_on = on;
}

static bool inside(const void *p)
{
    return (uintptr_t)p - (uintptr_t)heap.blocks < REGION;
}

static struct block *block_of(void *p)
{
    return (struct block *)((char *)p - sizeof(struct block));
}

static void *give(size_t n)
{
    size_t class = (n + STEP - 1) / STEP, size = sizeof(struct block) + class * STEP;
    struct block *b = heap.free[class];
    if (b) {
        heap.free[class] = b->next;
    } else {
        if (heap.used + size > REGION)
            die("the heap is full");
        b = (struct block *)(heap.blocks + heap.used);
        heap.used += size;
    }
    b->class = class;
    return b + 1;
}

void *__wrap_malloc(size_t n)
{
    if (is_on && n < HEAP_LARGE)
        return give(n);
    large += is_on;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    size_t whole;
    if (__builtin_mul_overflow(count, n, &whole))
        return NULL;
    void *p = __wrap_malloc(whole);
    return p ? memset(p, 0, whole) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    if (!p)
        return __wrap_malloc(n);
    if (!inside(p))
        return __real_realloc(p, n);
    size_t had = block_of(p)->class * STEP;
    if (n <= had)
        return p;
    void *q = __wrap_malloc(n);
    if (!q)
        return NULL;
    memcpy(q, p, had);
    __wrap_free(p);
    return q;
}

void *__wrap_reallocarray(void *p, size_t count, size_t n)
{
    size_t whole;
    return __builtin_mul_overflow(count, n, &whole) ? NULL : __wrap_realloc(p, whole);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    if (is_on && n < HEAP_LARGE && align <= STEP)
        return give(n);
    large += is_on;
    return __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = __wrap_malloc(n);
    return p ? memcpy(p, s, n) : NULL;
}

void __wrap_free(void *p)
{
    if (!inside(p)) {
        large -= is_on && p;
        __real_free(p);
        return;
    }
    struct block *b = block_of(p);
    b->next = heap.free[b->class];
    heap.free[b->class] = b;
}

void heap_save(struct buf *copy)
{
    if (large)
        die("a large block lives: the copy would not be whole");
    buf_set(copy, (struct span){(char *)&heap,
                                (size_t)(heap.blocks + heap.used - (char *)&heap)});
}

void heap_restore(const struct buf *copy)
{
    memcpy(&heap, copy->p, copy->n);
}
