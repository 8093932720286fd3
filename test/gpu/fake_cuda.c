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

#include "gpu/fake_cuda_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
int take(unsigned long long bytes)
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

void give(unsigned long long bytes)
{
    lock_books();
    if (bytes > entry->used)
        abort();
    __atomic_store_n(&entry->used, entry->used - bytes, __ATOMIC_SEQ_CST);
    lock_file(F_UNLCK);
}

/* -- Objects -- */

struct object objects[OBJECTS];
int tops[GREEN + 1];
static dptr next_address = 0x700000000000;
static struct object primary[DEVICES];
__thread struct object *current;
static int n_free_hint;

/* A child begins without memory. */
static void in_child(void)
{
    is_open = false;
    memset(objects, 0, sizeof *objects * (size_t)tops[NONE]);
    memset(tops, 0, sizeof tops);
    n_free_hint = 0;
    memset(primary, 0, sizeof primary);
    own_books.entries[0].used = 0;
    pthread_mutex_init(&mutex, NULL);
}

void enter(void)
{
    static bool registered;
    pthread_mutex_lock(&mutex);
    if (!is_open)
        open_books();
    if (!registered)
        registered = pthread_atfork(NULL, NULL, in_child) == 0;
}

int leave(int rc)
{
    pthread_mutex_unlock(&mutex);
    return rc;
}

static int zombies;
struct object *make(enum kind kind, int device, unsigned long long bytes)
{
    for (int i = 0; zombies && i < tops[NONE]; i++)
        if (objects[i].zombie)
            end(&objects[i]);
    for (int i = 0; i < OBJECTS; i++) {
        struct object *o = &objects[(n_free_hint + i) % OBJECTS];
        if (o->kind != NONE)
            continue;
        if (device == 0 && take(bytes) != OK)
            return NULL;
        n_free_hint = (int)(o - objects);
        if (tops[kind] <= n_free_hint)
            tops[kind] = n_free_hint + 1;
        if (tops[NONE] <= n_free_hint)
            tops[NONE] = n_free_hint + 1;
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

void end(struct object *o)
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
struct object *find(enum kind kind, dptr address)
{
    for (int i = 0; i < tops[NONE]; i++) {
        struct object *o = &objects[(n_free_hint + i) % tops[NONE]];
        if (o->kind == kind && o->address == address)
            return o;
    }
    return NULL;
}

bool is(const struct object *o, enum kind kind)
{
    return o && o->kind == kind && !o->destroyed;
}

/* -- Devices and contexts -- */

bool is_init;

FN(cuInit, (unsigned flags), (flags))
{
    enter();
    is_init = true;
    return leave(OK);
}

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

/* Another process allocates at the same time. */
static void neighbor_takes(void)
{
    if (!books->neighbor)
        return;
    lock_books();
    books->entries[0].used += books->neighbor;
    lock_file(F_UNLCK);
}

static unsigned long long context_bytes(void)
{
    neighbor_takes();
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
    for (int i = 0; i < tops[NONE]; i++)
        if ((objects[i].kind == LINEAR || objects[i].kind == ARRAY ||
             objects[i].kind == MODULE) &&
            objects[i].of == context)
            end(&objects[i]);
    if (context->device == 0)
        give(settings(context));
    if (current == context)
        current = NULL;
}

struct object *whole(struct object *context)
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

/* Of CUDA before 3.2: nothing calls them under a limit. */
#define OLD(name)                                                                        \
    FN(name, (void), ())                                                                 \
    {                                                                                    \
        return OK;                                                                       \
    }
OLD(cuMemAlloc)
OLD(cuMemAllocPitch)
OLD(cuMemFree)
OLD(cuMemGetInfo)
OLD(cuDeviceTotalMem)
OLD(cuArrayCreate)
OLD(cuArray3DCreate)

/* -- Modules -- */

static int load(handle *module, const char *image)
{
    unsigned long long bytes = 0;
    WITH_CONTEXT;
    sscanf(image, "globals %llu", &bytes);
    neighbor_takes();
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

#define ROW(symbol, name, since, per_thread) extern int symbol(), impl_##symbol();
FAKE_CUDA_SYMBOLS
#undef ROW
#define ROW(symbol, name, since, per_thread)                                             \
    {name, since, per_thread, (void *)(size_t)symbol, (void *)(size_t)impl_##symbol},
static const struct symbol symbols[] = {FAKE_CUDA_SYMBOLS{0}};
#undef ROW
