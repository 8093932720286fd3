/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A libcuda.so.1 without a card, for the tests of libgpushare-limit.so. It keeps books of its
 * own on what each process holds, so that a mistake of the library is seen. Its declarations are
 * its own, after "CUDA Driver API", so that a mistake in those of src/limit does not cancel
 * itself out.
 *
 *     FAKE_CUDA_BOOKS   a file of struct fake_books, shared by processes. Without it a process
 *                       counts for itself, and quickly
 *     FAKE_CUDA_ALIAS   cuGetProcAddress answers with addresses that are not exported
 *
 * Device 0 is GPU-00010203-0405-0607-0809-0a0b0c0d0e0f, device 1 is GPU-10010203-... In a
 * container with NVIDIA_VISIBLE_DEVICES=GPU-... device 0 is that card.
 *     FAKE_CUDA_CHUNK_MIB    by how much a pool grows. Without it: 2
 *     FAKE_CUDA_CONTEXT_MIB  the size of a context. Without it: FAKE_CONTEXT bytes
 *
 * A module has variables of the size that its image says: "globals BYTES". A pool takes pages of 2 MiB, and returns unused ones at a
 * synchronization or trim. A graph's nodes take memory at the first launch.
 */

#include "gpu/fake_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The functions have the parameters of the driver, and a fake uses some of them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500
};
enum { DEVICES = 2, OBJECTS = 4096 };

typedef unsigned long long dptr;
typedef struct object *handle;

/* -- The books -- */

static struct fake_books own_books = {.capacity = 1ull << 40, .watch = UINT64_MAX};
static struct fake_books *books;
static struct fake_entry *entry;
static int books_fd = -1;
static bool is_open;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock_file(short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    while (books_fd >= 0 && fcntl(books_fd, F_OFD_SETLKW, &l) != 0)
        if (errno != EINTR)
            abort();
}

/* A process that ends holds no memory: PF_EXITING is bit 2 of field 9 of its stat. */
static bool has_ended(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return true;
    text[n] = '\0';
    char state = 'Z';
    unsigned flags = 0;
    const char *p = strrchr(text, ')');
    return !p || sscanf(p, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2 ||
           state == 'Z' || state == 'X' || (flags & 4);
}

static void reap(void)
{
    for (int i = 0; i < FAKE_PROCESSES; i++)
        if (books->entries[i].pid && books->entries[i].pid != getpid() &&
            has_ended(books->entries[i].pid))
            books->entries[i] = (struct fake_entry){0};
}

static unsigned long long sum(void)
{
    unsigned long long n = 0;
    for (int i = 0; i < FAKE_PROCESSES; i++)
        n += books->entries[i].used;
    return n;
}

static void take_entry(void)
{
    lock_file(F_WRLCK);
    for (int tries = 0; !entry && tries < 2; tries++) {
        for (int i = 0; i < FAKE_PROCESSES && !entry; i++)
            if (!books->entries[i].pid)
                entry = &books->entries[i];
        if (!entry)
            reap();
    }
    if (!entry)
        abort();
    *entry = (struct fake_entry){.pid = getpid()};
    lock_file(F_UNLCK);
}

static void open_books(void)
{
    const char *path = getenv("FAKE_CUDA_BOOKS");
    is_open = true;
    entry = NULL;
    books = &own_books;
    if (path) {
        books_fd = open(path, O_RDWR | O_CLOEXEC);
        books =
            mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED, books_fd, 0);
        if (books_fd < 0 || books == MAP_FAILED)
            abort();
        take_entry();
    } else {
        entry = &own_books.entries[0];
    }
}

/* Takes the lock of the books. Another process can have reaped this one while it is killed: a
 * thread that still runs then must not change the entry of the next process. */
static void lock_books(void)
{
    lock_file(F_WRLCK);
    if (books != &own_books && entry->pid != getpid())
        for (lock_file(F_UNLCK);;)
            pause();
}

/* The process takes bytes of device 0. Called with the mutex. */
static int take(unsigned long long bytes)
{
    if (books == &own_books) {
        entry->used += bytes;
        return OK;
    }
    lock_books();
    unsigned long long now = sum() + bytes;
    if (now > books->watch || now > books->capacity) {
        reap();
        now = sum() + bytes;
    }
    int rc = now > books->capacity || now < bytes ? OUT_OF_MEMORY : OK;
    if (rc == OK)
        __atomic_store_n(&entry->used, entry->used + bytes, __ATOMIC_SEQ_CST);
    if (rc == OK && now > books->peak)
        books->peak = now;
    lock_file(F_UNLCK);
    return rc;
}

static void give(unsigned long long bytes)
{
    lock_books();
    if (bytes > entry->used)
        abort();
    __atomic_store_n(&entry->used, entry->used - bytes, __ATOMIC_SEQ_CST);
    lock_file(F_UNLCK);
}

/* -- Objects -- */

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
    unsigned long long limits[3]; /* of a context: stack, printf, heap */
    dptr owner, place; /* of a tile or binding: the array or object, and where */
    int fd;            /* of exported and imported memory: importers hold a lock of it */
    int refs, maps;
    bool destroyed, launched, zombie;
};

static struct object objects[OBJECTS];
static dptr next_address = 0x700000000000;
static struct object primary[DEVICES];
static __thread struct object *current;
static int n_free_hint;

/* A child begins without memory. */
static void in_child(void)
{
    is_open = false;
    memset(objects, 0, sizeof objects);
    memset(primary, 0, sizeof primary);
    own_books.entries[0].used = 0;
    pthread_mutex_init(&mutex, NULL);
}

static void enter(void)
{
    static bool registered;
    pthread_mutex_lock(&mutex);
    if (!is_open)
        open_books();
    if (!registered)
        registered = pthread_atfork(NULL, NULL, in_child) == 0;
}

static int leave(int rc)
{
    pthread_mutex_unlock(&mutex);
    return rc;
}

static int zombies;
static void end(struct object *o);

static struct object *make(enum kind kind, int device, unsigned long long bytes)
{
    for (int i = 0; zombies && i < OBJECTS; i++)
        if (objects[i].zombie)
            end(&objects[i]);
    for (int i = 0; i < OBJECTS; i++) {
        struct object *o = &objects[(n_free_hint + i) % OBJECTS];
        if (o->kind != NONE)
            continue;
        if (device == 0 && take(bytes) != OK)
            return NULL;
        n_free_hint = (int)(o - objects);
        *o = (struct object){.kind = kind, .device = device, .bytes = bytes, .refs = 1};
        o->address = next_address;
        next_address += (bytes + 0x1fffff) & ~0x1fffffull;
        next_address += 0x200000;
        return o;
    }
    return NULL;
}

/* Memory that another process has imported lives on. */
static bool is_imported(const struct object *o)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return o->fd > 0 && o->bytes && fcntl(o->fd, F_OFD_GETLK, &l) == 0 &&
           l.l_type != F_UNLCK;
}

static void end(struct object *o)
{
    zombies -= o->zombie;
    o->zombie = is_imported(o);
    zombies += o->zombie;
    if (o->zombie) {
        o->kind = OPENED; /* nobody finds it by its address */
        o->address = 0;
        return;
    }
    if (o->fd > 0)
        close(o->fd);
    if (o->device == 0)
        give(o->bytes);
    n_free_hint = (int)(o - objects);
    *o = (struct object){0};
}

/* The address says which object it was for a process that has few: those before the hint. */
static struct object *find(enum kind kind, dptr address)
{
    for (int i = 0; i < OBJECTS; i++) {
        struct object *o = &objects[(n_free_hint + i) % OBJECTS];
        if (o->kind == kind && o->address == address)
            return o;
    }
    return NULL;
}

static bool is(const struct object *o, enum kind kind)
{
    return o && o->kind == kind && !o->destroyed;
}

/* FN(symbol, (parameters), (arguments)): the exported function calls the one behind it, so that
 * cuGetProcAddress has two addresses to answer with. */
#define FN(name, params, args)                                                           \
    static int impl_##name params;                                                       \
    EXPORT int name params;                                                              \
    EXPORT int name params                                                               \
    {                                                                                    \
        return impl_##name args;                                                         \
    }                                                                                    \
    static int impl_##name params

#define WITH_CONTEXT                                                                     \
    do {                                                                                 \
        if (!current)                                                                    \
            return INVALID_CONTEXT;                                                      \
        enter();                                                                         \
    } while (0)

/* -- Devices and contexts -- */

static bool is_init;

FN(cuInit, (unsigned flags), (flags))
{
    enter();
    is_init = true;
    return leave(OK);
}

#define NEEDS_INIT                                                                       \
    do {                                                                                 \
        if (!is_init)                                                                    \
            return NOT_INITIALIZED;                                                      \
    } while (0)

FN(cuDriverGetVersion, (int *version), (version))
{
    *version = 13000;
    return OK;
}

FN(cuDeviceGetCount, (int *n), (n))
{
    *n = DEVICES;
    return OK;
}

FN(cuDeviceGet, (int *device, int i), (device, i))
{
    *device = i;
    return i < DEVICES ? OK : INVALID;
}

static void read_uuid(unsigned char *uuid, const char *text)
{
    for (int i = 0; i < 16 && *text; i++) {
        text += *text == '-';
        unsigned byte = 0;
        sscanf(text, "%2x", &byte);
        uuid[i] = (unsigned char)byte;
        text += strnlen(text, 2);
    }
}

FN(cuDeviceGetUuid_v2, (unsigned char *uuid, int device), (uuid, device))
{
    NEEDS_INIT;
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)i;
    uuid[0] = (unsigned char)(device << 4);
    const char *visible = getenv("NVIDIA_VISIBLE_DEVICES");
    if (device == 0 && visible && strncmp(visible, "GPU-", 4) == 0)
        read_uuid(uuid, visible + 4);
    return OK;
}

FN(cuDeviceGetUuid, (unsigned char *uuid, int device), (uuid, device))
{
    return impl_cuDeviceGetUuid_v2(uuid, device);
}

FN(cuDeviceTotalMem_v2, (size_t * total, int device), (total, device))
{
    enter();
    *total = books->capacity;
    return leave(OK);
}

FN(cuDeviceTotalMem, (unsigned *total, int device), (total, device))
{
    *total = 0xffffffff;
    return OK;
}

static unsigned long long context_bytes(void)
{
    const char *mib = getenv("FAKE_CUDA_CONTEXT_MIB");
    return mib ? strtoull(mib, NULL, 10) << 20 : FAKE_CONTEXT;
}

enum { STACK = 1024, THREADS = 132 * 2048 };

static int make_context(handle *context, int device)
{
    NEEDS_INIT;
    enter();
    *context = make(CONTEXT, device, context_bytes());
    if (*context)
        (*context)->limits[0] = STACK;
    current = *context ? *context : current;
    return leave(*context ? OK : OUT_OF_MEMORY);
}

FN(cuCtxCreate, (handle * c, unsigned flags, int device), (c, flags, device))
{
    return make_context(c, device);
}

FN(cuCtxCreate_v2, (handle * c, unsigned flags, int device), (c, flags, device))
{
    return make_context(c, device);
}

FN(cuCtxCreate_v3, (handle * c, void *affinity, int n, unsigned flags, int device),
   (c, affinity, n, flags, device))
{
    return make_context(c, device);
}

FN(cuCtxCreate_v4, (handle * c, void *params, unsigned flags, int device),
   (c, params, flags, device))
{
    return make_context(c, device);
}

static unsigned long long settings(const struct object *c)
{
    return (c->limits[0] - STACK) * THREADS + c->limits[1] + c->limits[2];
}

static void end_context(struct object *context)
{
    for (int i = 0; i < OBJECTS; i++)
        if ((objects[i].kind == LINEAR || objects[i].kind == ARRAY ||
             objects[i].kind == MODULE) &&
            objects[i].of == context)
            end(&objects[i]);
    if (context->device == 0)
        give(settings(context));
    if (current == context)
        current = NULL;
}

/* The context of a green one is the primary. */
static struct object *whole(struct object *context)
{
    return context && context->kind == GREEN ? context->of : context;
}

FN(cuCtxGetLimit, (size_t * value, int limit), (value, limit))
{
    if (!current || limit < 0 || limit > 2)
        return INVALID;
    *value = whole(current)->limits[limit];
    return OK;
}

FN(cuCtxSetLimit, (int limit, size_t value), (limit, value))
{
    if (!current || limit < 0 || limit > 2 || (limit == 0 && value < STACK))
        return INVALID;
    enter();
    struct object *c = whole(current);
    unsigned long long before = settings(c), old = c->limits[limit];
    c->limits[limit] = value;
    unsigned long long now = settings(c);
    if (c->device == 0 && now < before)
        give(before - now);
    if (c->device == 0 && now > before && take(now - before) != OK) {
        c->limits[limit] = old;
        return leave(OUT_OF_MEMORY);
    }
    return leave(OK);
}

FN(cuDeviceGetAttribute, (int *value, int attribute, int device),
   (value, attribute, device))
{
    *value = attribute == 16 ? 132 : attribute == 39 ? 2048 : 0;
    return OK;
}

FN(cuCtxDestroy_v2, (handle context), (context))
{
    enter();
    if (!is(context, CONTEXT) || context->refs == 0)
        return leave(INVALID_CONTEXT);
    end_context(context);
    end(context);
    return leave(OK);
}

FN(cuCtxDestroy, (handle context), (context))
{
    return impl_cuCtxDestroy_v2(context);
}

static int use_primary(int device)
{
    struct object *o = &primary[device];
    if (o->refs == 0 && device == 0 && take(context_bytes()) != OK)
        return OUT_OF_MEMORY;
    if (o->refs++ == 0)
        *o = (struct object){.kind = CONTEXT,
                             .device = device,
                             .refs = 1,
                             .bytes = context_bytes(),
                             .limits = {STACK}};
    return OK;
}

FN(cuDevicePrimaryCtxRetain, (handle * context, int device), (context, device))
{
    NEEDS_INIT;
    enter();
    int rc = use_primary(device);
    *context = rc == OK ? &primary[device] : *context;
    return leave(rc);
}

FN(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active),
   (device, flags, active))
{
    enter();
    *flags = 0;
    *active = primary[device].refs > 0;
    return leave(OK);
}

static int end_primary(int device)
{
    if (primary[device].refs == 0)
        return leave(OK);
    end_context(&primary[device]);
    if (device == 0)
        give(primary[device].bytes);
    primary[device].refs = 0;
    return leave(OK);
}

static int drop_primary(int device)
{
    if (primary[device].refs > 1) {
        primary[device].refs--;
        return leave(OK);
    }
    return end_primary(device);
}

FN(cuDevicePrimaryCtxRelease_v2, (int device), (device))
{
    enter();
    return primary[device].refs ? drop_primary(device) : leave(INVALID_CONTEXT);
}

/* A green context is a part of the primary one, and keeps it alive. */
FN(cuGreenCtxCreate, (handle * green, void *resources, int device, unsigned flags),
   (green, resources, device, flags))
{
    NEEDS_INIT;
    enter();
    if (use_primary(device) != OK)
        return leave(OUT_OF_MEMORY);
    *green = make(GREEN, device, 0);
    (*green)->of = &primary[device];
    return leave(OK);
}

FN(cuGreenCtxDestroy, (handle green), (green))
{
    enter();
    int device = green->device;
    current = current == green ? NULL : current;
    end(green);
    return drop_primary(device);
}

FN(cuCtxFromGreenCtx, (handle * context, handle green), (context, green))
{
    *context = green;
    return OK;
}

FN(cuDevicePrimaryCtxRelease, (int device), (device))
{
    return impl_cuDevicePrimaryCtxRelease_v2(device);
}

FN(cuDevicePrimaryCtxReset_v2, (int device), (device))
{
    enter();
    return end_primary(device);
}

FN(cuDevicePrimaryCtxReset, (int device), (device))
{
    return impl_cuDevicePrimaryCtxReset_v2(device);
}

FN(cuCtxSetCurrent, (handle context), (context))
{
    current = context;
    return OK;
}

FN(cuCtxGetCurrent, (handle * context), (context))
{
    *context = current;
    return OK;
}

static __thread struct object *pushed;

FN(cuCtxPushCurrent_v2, (handle context), (context))
{
    pushed = current;
    current = context;
    return OK;
}

FN(cuCtxPopCurrent_v2, (handle * context), (context))
{
    *context = current;
    current = pushed;
    return OK;
}

FN(cuStreamCreate, (handle * stream, unsigned flags), (stream, flags))
{
    WITH_CONTEXT;
    *stream = make(STREAM, 1, 0);
    (*stream)->of = current;
    return leave(OK);
}

FN(cuStreamGetCtx, (handle stream, handle *context), (stream, context))
{
    *context = (size_t)stream > 2 ? stream->of : current;
    return OK;
}

FN(cuCtxGetDevice, (int *device), (device))
{
    *device = current ? current->device : 0;
    return current ? OK : INVALID_CONTEXT;
}

/* -- Memory -- */

FN(cuMemGetInfo_v2, (size_t * available, size_t *total), (available, total))
{
    WITH_CONTEXT;
    *total = books->capacity;
    *available = books->capacity - sum();
    return leave(OK);
}

FN(cuMemGetInfo, (unsigned *available, unsigned *total), (available, total))
{
    *available = *total = 0xffffffff;
    return OK;
}

static int make_linear(enum kind kind, unsigned long long bytes, dptr *p)
{
    WITH_CONTEXT;
    if (!bytes)
        return leave(INVALID);
    struct object *o = make(kind, current->device, bytes);
    if (!o)
        return leave(OUT_OF_MEMORY);
    o->of = whole(current);
    *p = o->address;
    return leave(OK);
}

FN(cuMemAlloc_v2, (dptr * p, size_t bytes), (p, bytes))
{
    return make_linear(LINEAR, bytes, p);
}

FN(cuMemAlloc, (unsigned *p, unsigned bytes), (p, bytes))
{
    dptr wide = 0;
    int rc = make_linear(LINEAR, bytes, &wide);
    *p = (unsigned)wide;
    return rc;
}

FN(cuMemAllocManaged, (dptr * p, size_t bytes, unsigned flags), (p, bytes, flags))
{
    return make_linear(LINEAR, bytes, p);
}

FN(cuMemAllocPitch_v2,
   (dptr * p, size_t *pitch, size_t width, size_t height, unsigned element),
   (p, pitch, width, height, element))
{
    *pitch = (width + 1023) / 1024 * 1024; /* longer than the library expects */
    return make_linear(LINEAR, *pitch * height, p);
}

FN(cuMemAllocPitch,
   (unsigned *p, unsigned *pitch, unsigned width, unsigned height, unsigned e),
   (p, pitch, width, height, e))
{
    dptr wide = 0;
    size_t long_pitch = 0;
    int rc = impl_cuMemAllocPitch_v2(&wide, &long_pitch, width, height, e);
    *p = (unsigned)wide;
    *pitch = (unsigned)long_pitch;
    return rc;
}

static int free_pooled(dptr p);

FN(cuMemFree_v2, (dptr p), (p))
{
    if (!p)
        return OK;
    enter();
    struct object *o = find(LINEAR, p);
    if (!o)
        return leave(free_pooled(p));
    end(o);
    return leave(OK);
}

FN(cuMemFree, (unsigned p), (p))
{
    enter();
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].kind == LINEAR && (unsigned)objects[i].address == p) {
            end(&objects[i]);
            return leave(OK);
        }
    return leave(INVALID);
}

/* -- Modules -- */

static int load(handle *module, const char *image)
{
    unsigned long long bytes = 0;
    WITH_CONTEXT;
    sscanf(image, "globals %llu", &bytes);
    *module = make(MODULE, current->device, bytes);
    if (*module)
        (*module)->of = whole(current);
    return leave(*module ? OK : OUT_OF_MEMORY);
}

static int unload(handle module)
{
    enter();
    if (!is(module, MODULE))
        return leave(INVALID);
    end(module);
    return leave(OK);
}

FN(cuModuleLoad, (handle * m, const char *path), (m, path))
{
    char image[64] = "";
    FILE *f = fopen(path, "re");
    if (f && fgets(image, sizeof image, f) == NULL)
        image[0] = '\0';
    if (f)
        fclose(f);
    return f ? load(m, image) : INVALID;
}

FN(cuModuleLoadData, (handle * m, const char *image), (m, image))
{
    return load(m, image);
}

FN(cuModuleLoadDataEx, (handle * m, const char *image, unsigned n, int *o, void **v),
   (m, image, n, o, v))
{
    return load(m, image);
}

FN(cuModuleLoadFatBinary, (handle * m, const char *image), (m, image))
{
    return load(m, image);
}

FN(cuModuleUnload, (handle m), (m))
{
    return unload(m);
}

FN(cuLibraryLoadData,
   (handle * m, const char *image, int *j, void **jv, unsigned nj, int *o, void **v,
    unsigned n),
   (m, image, j, jv, nj, o, v, n))
{
    return load(m, image);
}

FN(cuLibraryLoadFromFile,
   (handle * m, const char *path, int *j, void **jv, unsigned nj, int *o, void **v,
    unsigned n),
   (m, path, j, jv, nj, o, v, n))
{
    return impl_cuModuleLoad(m, path);
}

FN(cuLibraryUnload, (handle m), (m))
{
    return unload(m);
}

/* -- Arrays of 4 bytes for each element and channel -- */

struct array_desc {
    size_t width, height;
    int format;
    unsigned channels;
};
struct array_desc_v1 {
    unsigned width, height;
    int format;
    unsigned channels;
};
struct array3d_desc {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct array3d_desc_v1 {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
};

static int make_array(handle *array, unsigned long long bytes)
{
    WITH_CONTEXT;
    *array = make(ARRAY, current->device, bytes);
    if (*array)
        (*array)->of = whole(current);
    return leave(*array ? OK : OUT_OF_MEMORY);
}

/* NV12 has a plane of half the height, BC1 8 bytes for 4 x 4 elements. */
static unsigned long long elements(unsigned long long w, unsigned long long h,
                                   unsigned long long d, unsigned channels, int format)
{
    if (format == 0xb0)
        return w * h * 3 / 2;
    if (format == 0x91)
        return (w + 3) / 4 * ((h + 3) / 4) * 8;
    return 4 * channels * w * (h ? h : 1) * (d ? d : 1);
}

FN(cuArrayCreate_v2, (handle * a, const struct array_desc *d), (a, d))
{
    return make_array(a, elements(d->width, d->height, 1, d->channels, d->format));
}

FN(cuArrayCreate, (handle * a, const struct array_desc_v1 *d), (a, d))
{
    return make_array(a, elements(d->width, d->height, 1, d->channels, d->format));
}

FN(cuArray3DCreate_v2, (handle * a, const struct array3d_desc *d), (a, d))
{
    return make_array(a, (d->flags & 0xc0) ? 0
                                           : elements(d->width, d->height, d->depth,
                                                      d->channels, d->format));
}

FN(cuArray3DCreate, (handle * a, const struct array3d_desc_v1 *d), (a, d))
{
    return make_array(a, elements(d->width, d->height, d->depth, d->channels, d->format));
}

FN(cuMipmappedArrayCreate, (handle * a, const struct array3d_desc *d, unsigned levels),
   (a, d, levels))
{
    unsigned long long bytes = 0;
    for (unsigned i = 0; i < levels; i++)
        bytes += elements(d->width >> i ? d->width >> i : 1, d->height >> i,
                          d->depth >> i, d->channels, d->format);
    return make_array(a, bytes);
}

static void end_bound(enum kind kind, dptr owner, dptr from, dptr to);

static int end_array(handle a)
{
    enter();
    if (!is(a, ARRAY))
        return leave(INVALID);
    end_bound(TILE, (dptr)(size_t)a, 0, ~0ull);
    end(a);
    return leave(OK);
}

FN(cuArrayDestroy, (handle a), (a))
{
    return end_array(a);
}

FN(cuMipmappedArrayDestroy, (handle a), (a))
{
    return end_array(a);
}

/* -- Pools -- */

struct pool_props {
    int type, handle_types;
    struct {
        int type, id;
    } location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};

static struct object *default_pool(int device)
{
    static struct object *pools[DEVICES];
    if (!pools[device])
        pools[device] = make(POOL, device, 0);
    return pools[device];
}

FN(cuMemPoolCreate, (handle * pool, const struct pool_props *props), (pool, props))
{
    enter();
    *pool = make(POOL, props->location.type == 1 ? props->location.id : 1, 0);
    return leave(OK);
}

static unsigned long long in_chunks(unsigned long long bytes)
{
    static unsigned long long chunk;
    const char *mib = getenv("FAKE_CUDA_CHUNK_MIB");
    if (!chunk)
        chunk = (mib ? strtoull(mib, NULL, 10) : 2) << 20;
    return (bytes + chunk - 1) / chunk * chunk;
}

static void shrink(struct object *pool, unsigned long long keep)
{
    unsigned long long need = in_chunks(pool->size);
    need = need < keep && keep < pool->bytes ? keep : need;
    if (need < pool->bytes && pool->device == 0)
        give(pool->bytes - need);
    pool->bytes = need < pool->bytes ? need : pool->bytes;
    if (pool->destroyed && !pool->size)
        end(pool);
}

FN(cuMemPoolDestroy, (handle pool), (pool))
{
    enter();
    if (!is(pool, POOL))
        return leave(INVALID);
    pool->destroyed = true;
    shrink(pool, 0);
    return leave(OK);
}

FN(cuMemPoolTrimTo, (handle pool, size_t keep), (pool, keep))
{
    enter();
    if (!is(pool, POOL))
        return leave(INVALID);
    shrink(pool, keep);
    return leave(OK);
}

FN(cuMemPoolGetAttribute, (handle pool, int which, unsigned long long *value),
   (pool, which, value))
{
    enter();
    if (!is(pool, POOL) || (which != 5 && which != 7))
        return leave(INVALID);
    *value = which == 5 ? pool->bytes : pool->size;
    return leave(OK);
}

FN(cuDeviceGetMemPool, (handle * pool, int device), (pool, device))
{
    enter();
    *pool = default_pool(device);
    return leave(OK);
}

FN(cuDeviceGetDefaultMemPool, (handle * pool, int device), (pool, device))
{
    return impl_cuDeviceGetMemPool(pool, device);
}

struct location {
    int type, id;
};

FN(cuMemGetDefaultMemPool, (handle * pool, struct location *at, int type),
   (pool, at, type))
{
    return impl_cuDeviceGetMemPool(pool, at->type == 1 ? at->id : 1);
}

static int alloc_pooled(dptr *p, unsigned long long bytes, struct object *pool)
{
    if (!is(pool, POOL) || !bytes)
        return INVALID;
    unsigned long long need = in_chunks(pool->size + bytes);
    if (need > pool->bytes && pool->device == 0 && take(need - pool->bytes) != OK)
        return OUT_OF_MEMORY;
    pool->bytes = need > pool->bytes ? need : pool->bytes;
    struct object *o = make(POOLED, 1, bytes);
    if (!o)
        return OUT_OF_MEMORY;
    pool->size += bytes;
    o->of = pool;
    *p = o->address;
    return OK;
}

static int free_pooled(dptr p)
{
    struct object *o = find(POOLED, p);
    if (!o)
        return INVALID;
    struct object *pool = o->of;
    pool->size -= o->bytes;
    end(o);
    if (pool->destroyed)
        shrink(pool, 0);
    return OK;
}

/* The graph of the stream (void *)1, while it is captured, and its last node. */
static struct object *captured, *last_node;

/* A node after another one uses the memory that is free by then; one without counts for itself.
 * place: what is free; limits[0]: what the graph takes. */
static struct object *add_node(struct object *graph, struct object *from,
                               unsigned long long bytes, dptr freed)
{
    struct object *gone = freed ? find(NODE, freed) : NULL, *o = make(NODE, 1, bytes);
    o->of = graph;
    o->owner = (dptr)(size_t)from;
    if (gone)
        graph->place += gone->bytes;
    unsigned long long again = !from ? 0 : bytes < graph->place ? bytes : graph->place;
    graph->place -= again;
    graph->limits[0] += bytes - again;
    return o;
}

FN(cuGraphNodeGetDependencies, (handle node, handle *from, size_t *n), (node, from, n))
{
    *n = node->owner != 0;
    *from = (handle)(size_t)node->owner;
    return OK;
}

static int alloc_async(dptr *p, size_t bytes, handle pool, void *stream)
{
    sched_yield(); /* another thread may use the memory that this one expects to be free */
    struct object *context = (size_t)stream > 2 ? ((handle)stream)->of : current;
    if (!context)
        return INVALID_CONTEXT;
    enter();
    if (stream == (void *)1 && captured) {
        last_node = add_node(captured, last_node, bytes, 0);
        *p = last_node->address;
        return leave(OK);
    }
    return leave(alloc_pooled(p, bytes, pool ? pool : default_pool(context->device)));
}

#define STREAM_FNS(suffix)                                                               \
    FN(cuMemAllocAsync##suffix, (dptr * p, size_t bytes, void *stream),                  \
       (p, bytes, stream))                                                               \
    {                                                                                    \
        return alloc_async(p, bytes, NULL, stream);                                      \
    }                                                                                    \
    FN(cuMemAllocFromPoolAsync##suffix,                                                  \
       (dptr * p, size_t bytes, handle pool, void *stream), (p, bytes, pool, stream))    \
    {                                                                                    \
        return pool ? alloc_async(p, bytes, pool, stream) : INVALID;                     \
    }                                                                                    \
    FN(cuMemFreeAsync##suffix, (dptr p, void *stream), (p, stream))                      \
    {                                                                                    \
        enter();                                                                         \
        struct object *o = find(LINEAR, p);                                              \
        if (!o && stream == (void *)1 && captured) {                                     \
            last_node = add_node(captured, last_node, 0, p);                             \
            return leave(OK);                                                            \
        }                                                                                \
        if (!o)                                                                          \
            return leave(free_pooled(p));                                                \
        end(o);                                                                          \
        return leave(OK);                                                                \
    }                                                                                    \
    FN(cuStreamSynchronize##suffix, (void *stream), (stream))                            \
    {                                                                                    \
        return impl_cuCtxSynchronize();                                                  \
    }                                                                                    \
    FN(cuStreamGetCaptureInfo_v2##suffix,                                                \
       (void *stream, int *status, unsigned long long *id, handle *graph,                \
        const handle **nodes, size_t *n),                                                \
       (stream, status, id, graph, nodes, n))                                            \
    {                                                                                    \
        *status = stream == (void *)1 && captured;                                       \
        *graph = captured;                                                               \
        *nodes = &last_node;                                                             \
        *n = last_node != NULL;                                                          \
        return OK;                                                                       \
    }

FN(cuCtxSynchronize, (void), ())
{
    enter();
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].kind == POOL)
            shrink(&objects[i], 0);
    return leave(OK);
}

FN(cuEventSynchronize, (void *event), (event))
{
    return impl_cuCtxSynchronize();
}

STREAM_FNS()
STREAM_FNS(_ptsz)

/* -- Virtual memory management -- */

struct memory_prop {
    int type, handle_types;
    struct {
        int type, id;
    } location;
    void *win32;
    unsigned char flags[8];
};

FN(cuMemCreate,
   (dptr * h, size_t bytes, const struct memory_prop *prop, unsigned long long flags),
   (h, bytes, prop, flags))
{
    NEEDS_INIT;
    enter();
    struct object *o =
        make(MEMORY, prop->location.type == 1 ? prop->location.id : 1, bytes);
    *h = o ? o->address : 0;
    return leave(o ? OK : OUT_OF_MEMORY);
}

/* A version of the future, with parameters of its own. */
FN(cuMemCreate_v2, (size_t bytes, dptr *h), (bytes, h))
{
    NEEDS_INIT;
    enter();
    struct object *o = make(MEMORY, 0, bytes);
    *h = o ? o->address : 0;
    return leave(o ? OK : OUT_OF_MEMORY);
}

static void drop_memory(struct object *o)
{
    if (o->refs || o->maps)
        return;
    end_bound(BINDING, o->address, 0, ~0ull);
    end(o);
}

static void end_bound(enum kind kind, dptr owner, dptr from, dptr to)
{
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].kind == kind && objects[i].owner == owner &&
            objects[i].place >= from && objects[i].place < to) {
            struct object *memory = objects[i].of;
            end(&objects[i]);
            memory->maps--;
            drop_memory(memory);
        }
}

static int bind(enum kind kind, dptr owner, dptr place, struct object *memory)
{
    struct object *o = memory ? make(kind, 1, 0) : NULL;
    if (!o)
        return INVALID;
    o->owner = owner;
    o->place = place;
    o->of = memory;
    memory->maps++;
    return OK;
}

FN(cuMulticastCreate, (dptr * h, void *prop), (h, prop))
{
    enter();
    *h = make(MEMORY, 1, 0)->address;
    return leave(OK);
}

FN(cuMulticastAddDevice, (dptr h, int device), (h, device))
{
    return OK;
}

FN(cuMulticastBindMem,
   (dptr mc, size_t at, dptr h, size_t from, size_t n, unsigned long long flags),
   (mc, at, h, from, n, flags))
{
    enter();
    return leave(bind(BINDING, mc, at, find(MEMORY, h)));
}

FN(cuMulticastBindAddr, (dptr mc, size_t at, dptr p, size_t n, unsigned long long flags),
   (mc, at, p, n, flags))
{
    enter();
    struct object *mapping = find(MAPPING, p);
    return leave(bind(BINDING, mc, at, mapping ? mapping->of : NULL));
}

FN(cuMulticastUnbind, (dptr mc, int device, size_t at, size_t n), (mc, device, at, n))
{
    enter();
    end_bound(BINDING, mc, at, at + n);
    return leave(OK);
}

struct map_info {
    int type;
    handle array;
    dptr place[5];
    int operation, handle_type;
    dptr h;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
};

/* A tile is known by its level and offset. */
FN(cuMemMapArrayAsync, (struct map_info * list, unsigned n, void *stream),
   (list, n, stream))
{
    int rc = OK;
    enter();
    for (unsigned i = 0; i < n && rc == OK; i++) {
        dptr array = (dptr)(size_t)list[i].array, place = list[i].place[1];
        end_bound(TILE, array, place, place + 1);
        if (list[i].operation == 1)
            rc = bind(TILE, array, place, find(MEMORY, list[i].h));
    }
    return leave(rc);
}

FN(cuMemMapArrayAsync_ptsz, (struct map_info * list, unsigned n, void *stream),
   (list, n, stream))
{
    return impl_cuMemMapArrayAsync(list, n, stream);
}

/* What is shared is a file, with its size as text. */
static int share(struct object *o)
{
    if (o->fd <= 0 && (o->fd = memfd_create("memory", MFD_CLOEXEC)) >= 0)
        dprintf(o->fd, "%llu", o->bytes);
    return o->fd;
}

static struct object *import(const char *path, enum kind kind)
{
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    char text[32] = "";
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct object *o = fd < 0 ? NULL : make(kind, 1, 0);
    if (!o || fcntl(fd, F_OFD_SETLK, &l) || pread(fd, text, sizeof text - 1, 0) < 0)
        return NULL;
    o->fd = fd;
    o->size = strtoull(text, NULL, 10);
    return o;
}

FN(cuMemExportToShareableHandle, (int *fd, dptr h, int type, unsigned long long flags),
   (fd, h, type, flags))
{
    enter();
    struct object *o = find(MEMORY, h);
    *fd = o ? fcntl(share(o), F_DUPFD_CLOEXEC, 0) : -1;
    return leave(*fd >= 0 ? OK : INVALID);
}

FN(cuMemImportFromShareableHandle, (dptr * h, void *fd, int type), (h, fd, type))
{
    char path[64];
    enter();
    snprintf(path, sizeof path, "/proc/self/fd/%d", (int)(size_t)fd);
    struct object *o = import(path, MEMORY);
    *h = o ? o->address : 0;
    return leave(o ? OK : INVALID);
}

FN(cuIpcGetMemHandle, (char *handle64, dptr p), (handle64, p))
{
    enter();
    struct object *o = find(LINEAR, p);
    if (o)
        snprintf(handle64, 64, "/proc/%d/fd/%d", (int)getpid(), share(o));
    return leave(o ? OK : INVALID);
}

struct ipc_handle {
    char bytes[64];
};

FN(cuIpcOpenMemHandle_v2, (dptr * p, struct ipc_handle handle64, unsigned flags),
   (p, handle64, flags))
{
    enter();
    struct object *o = import(handle64.bytes, OPENED);
    *p = o ? o->address : 0;
    return leave(o ? OK : INVALID);
}

FN(cuIpcOpenMemHandle, (dptr * p, struct ipc_handle handle64, unsigned flags),
   (p, handle64, flags))
{
    return impl_cuIpcOpenMemHandle_v2(p, handle64, flags);
}

FN(cuIpcCloseMemHandle, (dptr p), (p))
{
    enter();
    struct object *o = find(OPENED, p);
    if (!o)
        return leave(INVALID);
    end(o);
    return leave(OK);
}

FN(cuMemGetAddressRange_v2, (dptr * base, size_t *size, dptr p), (base, size, p))
{
    enter();
    for (int i = 0; i < OBJECTS; i++) {
        const struct object *o = &objects[i];
        unsigned long long n =
            o->kind == OPENED || o->kind == MAPPING ? o->size : o->bytes;
        if ((o->kind == LINEAR || o->kind == OPENED || o->kind == MAPPING) &&
            !o->zombie && p >= o->address && p - o->address < n) {
            *base = o->address;
            *size = n;
            return leave(OK);
        }
    }
    return leave(INVALID);
}

FN(cuMemRelease, (dptr h), (h))
{
    enter();
    struct object *o = find(MEMORY, h);
    if (!o || !o->refs)
        return leave(INVALID);
    o->refs--;
    drop_memory(o);
    return leave(OK);
}

FN(cuMemMap, (dptr at, size_t bytes, size_t offset, dptr h, unsigned long long flags),
   (at, bytes, offset, h, flags))
{
    enter();
    struct object *o = find(MEMORY, h), *m = o ? make(MAPPING, 1, 0) : NULL;
    if (!m)
        return leave(INVALID);
    m->size = bytes;
    m->address = at;
    m->of = o;
    o->maps++;
    return leave(OK);
}

FN(cuMemUnmap, (dptr at, size_t bytes), (at, bytes))
{
    enter();
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].kind == MAPPING && objects[i].address >= at &&
            objects[i].address < at + bytes) {
            struct object *o = objects[i].of;
            end(&objects[i]);
            o->maps--;
            drop_memory(o);
        }
    return leave(OK);
}

FN(cuMemRetainAllocationHandle, (dptr * h, void *at), (h, at))
{
    enter();
    struct object *m = find(MAPPING, (dptr)(size_t)at);
    if (!m)
        return leave(INVALID);
    m->of->refs++;
    *h = m->of->address;
    return leave(OK);
}

/* -- Graphs -- */

struct alloc_node {
    struct pool_props pool;
    const void *access;
    size_t n_access, bytes;
    dptr pointer;
};
struct node_params {
    int type, reserved[3];
    union {
        struct alloc_node alloc;
        long long room[29];
    };
    long long reserved2;
};

FN(cuGraphCreate, (handle * graph, unsigned flags), (graph, flags))
{
    enter();
    *graph = make(GRAPH, 1, 0);
    return leave(OK);
}

FN(cuStreamBeginCapture, (void *stream, int mode), (stream, mode))
{
    enter();
    captured = make(GRAPH, 1, 0);
    last_node = NULL;
    return leave(OK);
}

FN(cuStreamEndCapture, (void *stream, handle *graph), (stream, graph))
{
    *graph = captured;
    captured = NULL;
    return OK;
}

FN(cuGraphAddMemAllocNode,
   (handle * node, handle graph, const handle *from, size_t n, struct alloc_node *params),
   (node, graph, from, n, params))
{
    enter();
    *node = add_node(graph, n ? *from : NULL, params->bytes, 0);
    params->pointer = (*node)->address;
    return leave(OK);
}

FN(cuGraphAddMemFreeNode,
   (handle * node, handle graph, const handle *from, size_t n, dptr p),
   (node, graph, from, n, p))
{
    enter();
    *node = add_node(graph, n ? *from : NULL, 0, p);
    return leave(OK);
}

FN(cuGraphAddNode,
   (handle * node, handle graph, const handle *from, size_t n,
    struct node_params *params),
   (node, graph, from, n, params))
{
    return params->type == 10
               ? impl_cuGraphAddMemAllocNode(node, graph, from, n, &params->alloc)
               : INVALID;
}

FN(cuGraphAddNode_v2,
   (handle * node, handle graph, const handle *from, const void *edges, size_t n,
    struct node_params *params),
   (node, graph, from, edges, n, params))
{
    return impl_cuGraphAddNode(node, graph, from, n, params);
}

FN(cuGraphDestroy, (handle graph), (graph))
{
    enter();
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].kind == NODE && objects[i].of == graph)
            end(&objects[i]);
    end(graph);
    return leave(OK);
}

/* An executable graph holds the size of its nodes, and takes it at the first launch. */
static int instantiate(handle *exec, handle graph)
{
    enter();
    *exec = make(EXEC, 1, 0);
    (*exec)->size = graph->limits[0];
    return leave(OK);
}

FN(cuGraphInstantiate, (handle * e, handle g, handle *node, char *log, size_t n),
   (e, g, node, log, n))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiate_v2, (handle * e, handle g, handle *node, char *log, size_t n),
   (e, g, node, log, n))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiateWithFlags, (handle * e, handle g, unsigned long long flags),
   (e, g, flags))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiateWithParams, (handle * e, handle g, void *params), (e, g, params))
{
    return instantiate(e, g);
}

FN(cuGraphInstantiateWithParams_ptsz, (handle * e, handle g, void *params),
   (e, g, params))
{
    return instantiate(e, g);
}

static unsigned long long graph_held; /* by all executable graphs */
static unsigned long long graph_idle; /* of it by ended ones */

FN(cuGraphLaunch, (handle exec, void *stream), (exec, stream))
{
    enter();
    if (!exec->launched && take(exec->size) != OK)
        return leave(OUT_OF_MEMORY);
    if (!exec->launched)
        graph_held += exec->size;
    exec->launched = true;
    return leave(OK);
}

FN(cuGraphExecDestroy, (handle exec), (exec))
{
    enter();
    if (exec->launched)
        graph_idle += exec->size;
    end(exec);
    return leave(OK);
}

FN(cuDeviceGraphMemTrim, (int device), (device))
{
    enter();
    give(graph_idle);
    graph_held -= graph_idle;
    graph_idle = 0;
    return leave(OK);
}

FN(cuDeviceGetGraphMemAttribute, (int device, int which, unsigned long long *value),
   (device, which, value))
{
    enter();
    *value = graph_held;
    return leave(which == 2 ? OK : INVALID);
}

/* -- Memory that is not counted twice, or is not the device's -- */

FN(cuMemHostAlloc, (void **p, size_t bytes, unsigned flags), (p, bytes, flags))
{
    *p = malloc(bytes);
    return OK;
}

/* -- cuGetProcAddress -- */

static const struct symbol {
    const char *name;
    int since, per_thread;
    void *exported, *alias;
} symbols[];

static int get_proc(const char *name, void **found, int version, unsigned long long flags)
{
    const struct symbol *best = NULL;
    for (const struct symbol *s = symbols; s->name; s++)
        if (strcmp(s->name, name) == 0 && s->since <= version &&
            s->per_thread <= ((flags & 2) != 0) &&
            (!best || s->per_thread > best->per_thread ||
             (s->per_thread == best->per_thread && s->since > best->since)))
            best = s;
    *found = !best ? NULL : getenv("FAKE_CUDA_ALIAS") ? best->alias : best->exported;
    return best ? OK : NOT_FOUND;
}

FN(cuGetProcAddress,
   (const char *name, void **found, int version, unsigned long long flags),
   (name, found, version, flags))
{
    return get_proc(name, found, version, flags);
}

FN(cuGetProcAddress_v2,
   (const char *name, void **found, int version, unsigned long long flags, int *status),
   (name, found, version, flags, status))
{
    int rc = get_proc(name, found, version, flags);
    if (status)
        *status = rc == OK ? 0 : 1;
    return rc;
}

#define ROW(symbol, name, since, per_thread)                                             \
    {name, since, per_thread, (void *)(size_t)symbol, (void *)(size_t)impl_##symbol},
static const struct symbol symbols[] = {FAKE_CUDA_SYMBOLS{0}};
#undef ROW
