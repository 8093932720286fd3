/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/fake_cuda.h"

#include <stdbool.h>
#include <stddef.h>

/* What the files of the driver without a card share: the objects of a process. */

/* The functions have the parameters of the driver, and a fake uses some of them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    LOSSY_QUERY = 402,
    NOT_SUPPORTED = 801,
    NOT_FOUND = 500
};
enum { DEVICES = 2, NOWHERE = DEVICES, OBJECTS = 32768 };

typedef unsigned long long dptr;
typedef struct object *handle;

enum kind {
    NONE,
    CONTEXT,
    LINEAR,
    ARRAY,
    POOL,
    POOLED,
    MEMORY,
    MAPPING,
    GRAPH,
    EXEC,
    NODE,
    STREAM,
    MODULE,
    OPENED,
    TILE,
    BINDING,
    GREEN
};

struct object {
    enum kind kind;
    int device;
    dptr address;
    unsigned long long bytes;     /* taken */
    unsigned long long size;      /* of a pool: in use */
    struct object *of;            /* the context, pool, memory, graph or graph's copy */
    unsigned long long limits[5]; /* of a context: stack, printf, heap, depth, launches */
    dptr owner, place; /* of a tile or binding: the array or object, and where */
    int fd;            /* of exported and imported memory: importers hold a lock of it */
    int refs, maps;
    int location; /* of MEMORY: 1 + device, -1: the host, 0: none */
    bool destroyed, launched, zombie, dependent, managed;
};

extern struct object objects[OBJECTS];
/* Objects of that kind have had smaller indexes; NONE: of any kind. */
extern int tops[GREEN + 1];
extern __thread struct object *current; /* context */
extern bool is_init;

/* Around each call: the lock of the process. leave returns rc. */
void enter(void);
int leave(int rc);
/* The process takes or gives bytes of the device. NOWHERE has none. */
int take(int device, unsigned long long bytes);
void give(int device, unsigned long long bytes);
/* An object that takes bytes of the device; NULL: they do not fit. end gives them back, unless
 * another process has imported the memory. */
struct object *make(enum kind kind, int device, unsigned long long bytes);
void end(struct object *o);
struct object *find(enum kind kind, dptr address);
bool is(const struct object *o, enum kind kind);
/* The context of a green one is the primary. */
struct object *whole(struct object *context);
int free_pooled(dptr p);

/* Does FAKE_CUDA_REFUSES name the function? */
extern bool refuses_any;
bool refuses(const char *function);

/* FN(symbol, (parameters), (arguments)): the exported function calls the one behind it, so that
 * cuGetProcAddress has two addresses to answer with. */
#define FN(name, params, args)                                                           \
    int impl_##name params;                                                              \
    EXPORT int name params;                                                              \
    EXPORT int name params                                                               \
    {                                                                                    \
        if (refuses_any && refuses(#name))                                               \
            return NOT_SUPPORTED;                                                        \
        return impl_##name args;                                                         \
    }                                                                                    \
    int impl_##name params

#define WITH_CONTEXT                                                                     \
    do {                                                                                 \
        if (!current)                                                                    \
            return INVALID_CONTEXT;                                                      \
        enter();                                                                         \
    } while (0)

#define NEEDS_INIT                                                                       \
    do {                                                                                 \
        if (!is_init)                                                                    \
            return NOT_INITIALIZED;                                                      \
    } while (0)
