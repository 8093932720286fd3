/* SPDX-License-Identifier: Apache-2.0 */
#include "walk/heap.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* At the start of the region: part of every copy. */
struct head {
    size_t used;
    struct block *free[CLASSES];
};

static struct head *region;
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
    void *p =
        mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("no memory");
    region = p;
    region->used = (sizeof *region + STEP - 1) / STEP * STEP;
}

void heap_close(void)
{
    munmap(region, REGION);
    region = NULL;
}

void heap_on(bool on)
{
    is_on = on;
}

static bool inside(const void *p)
{
    return region && (uintptr_t)p - (uintptr_t)region < REGION;
}

static struct block *block_of(void *p)
{
    return (struct block *)((char *)p - sizeof(struct block));
}

static void *give(size_t n)
{
    size_t class = (n + STEP - 1) / STEP;
    struct block *b = region->free[class];
    if (b) {
        region->free[class] = b->next;
    } else {
        size_t size = sizeof *b + class * STEP;
        if (region->used + size > REGION)
            die("the heap is full");
        b = (struct block *)((char *)region + region->used);
        region->used += size;
    }
    b->class = class;
    b->next = NULL;
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
    b->next = region->free[b->class];
    region->free[b->class] = b;
}

void *heap_zalloc(size_t n)
{
    size_t size = (n + STEP - 1) / STEP * STEP;
    if (region->used + size > REGION)
        die("the heap is full");
    void *p = (char *)region + region->used;
    region->used += size;
    return memset(p, 0, n);
}

size_t heap_used(void)
{
    return region->used;
}

void heap_save(void *copy)
{
    if (large)
        die("a large block lives: the copy would not be whole");
    memcpy(copy, region, region->used);
}

void heap_restore(const void *copy, size_t n)
{
    memcpy(region, copy, n);
}
