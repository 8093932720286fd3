/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/fake_cuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GUEST_STATIC /* the driver is in the program, and nothing is loaded */
#include <dlfcn.h>
static inline void *no_library(const char *name, int flags)
{
    return name && flags ? (void *)1 : NULL;
}
static inline void *no_symbol(void *library, const char *name)
{
    return library && !name ? library : NULL;
}
#define dlopen              no_library
#define dlsym               no_symbol
#define dlvsym(l, name, v)  no_symbol(l, name)
#define dlmopen(s, name, f) no_library(name, f)
#endif

/* What the parts of the guest share: the way to the functions of CUDA, and allocations. */

#define MIB (1ull << 20)
enum { LIMIT_MIB = 64, FITS_MIB = 40, OUT_OF_MEMORY = 2, NOT_SUPPORTED = 801 };
enum { MAPPED = 1 << 30, FLOAT = 0x20 };

typedef unsigned long long dptr;
typedef int fn();

extern const char *way;
extern int failures;
extern void *context, *stream; /* stream 0: the default one */

/* With GUEST_COUNTS_OTHERWISE, what is left of the card may be another number. */
#define CHECK(what, is, want)                                                            \
    do {                                                                                 \
        unsigned long long is_ = (is), want_ = (want);                                   \
        if (is_ != want_) {                                                              \
            printf("%s: %s: %s is %llu, not %llu (line %d)\n", way, what, #is, is_,      \
                   want_, __LINE__);                                                     \
            failures += !getenv("GUEST_COUNTS_OTHERWISE") ||                             \
                        strncmp(#is, "available()", strlen("available()")) != 0;         \
        }                                                                                \
    } while (0)

/* The upper half of a register or word with an int, which is undefined. */
#define JUNK 0x123400000000ull

/* The function with the symbol, asked for in the way of this run. Arguments have the types of the
 * parameters: none is converted. */
fn *get(const char *symbol);
#define CALL(symbol, ...) get(#symbol)(__VA_ARGS__)

struct pool_props {
    int type, handle_types, location, id;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};
struct desc2 {
    size_t width, height;
    int format;
    unsigned channels;
};
struct desc3 {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct alloc_node {
    struct pool_props pool;
    const void *access;
    size_t n_access, bytes;
    dptr pointer;
};
struct ipc_handle {
    char bytes[64];
};
struct node_params {
    int type, reserved[3];
    union {
        struct alloc_node alloc;
        struct {
            void *graph;
            int ownership;
        } child;
        long long room[29];
    };
    long long reserved2;
};

void begin(void); /* cuInit, and the primary context of device 0 */
int retain(int device);
unsigned long long available(void);
int linear(unsigned long long n, dptr *p);
int linear_free(dptr p);
int physical(unsigned long long n, dptr *p);
int physical_free(dptr p);
int array_free(dptr p);
void *new_graph(void);
/* Launches an executable graph of the graph, and destroys the graph before or after. */
int launch(int rc, void *graph, int flavor, dptr *p);
int node_trim(dptr p);
int map_memory(dptr at, unsigned long long n, dptr handle);
int unmap_memory(dptr at, unsigned long long n);

/* attack.c, tensor.c. -1: they do not know `what`; else the exit status. */
int attack_early(const char *what); /* before cuInit */
int attack(const char *what, char **argv);
int fits(const char *what); /* fits.c */
void again(void);
void deny(unsigned number);
void tensor(int n);
