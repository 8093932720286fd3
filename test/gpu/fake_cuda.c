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
 *     FAKE_CUDA_REFUSES      functions that answer CUDA_ERROR_NOT_SUPPORTED, with spaces between
 *     FAKE_CUDA_SLOW_MIB     cuMemAlloc of this size takes a tenth of a second, and a context is not
 *                            made meanwhile
 *     FAKE_CUDA_DESTROY_WAITS  cuCtxDestroy waits for another thread's cuMemAlloc
 *
 * The limits of test/gpu/fake_limits.h hold for both.
 *
 * A module has variables of the size that its image says: "globals BYTES". A pool takes pages of 2 MiB, and returns unused ones at a
 * synchronization or trim. A graph's nodes take memory at the first launch.
 */

#include "gpu/fake_cuda_objects.h"
#include "gpu/fake_limits.h"

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

static void reap(void)
{
    for (int i = 0; i < FAKE_PROCESSES; i++)
        if (books->entries[i].pid && books->entries[i].pid != getpid() &&
            fake_has_ended(books->entries[i].pid))
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
    reap();
    for (int i = 0; i < FAKE_PROCESSES && !entry; i++)
        if (!books->entries[i].pid)
            entry = &books->entries[i];
    if (!entry)
        abort();
    *entry = (struct fake_entry){.pid = getpid()};
    lock_file(F_UNLCK);
}

/* -- The limits of cgroups -- */

static struct fake_limits *limits;
static struct fake_member *member;
static int limits_fd = -1;
static __thread bool is_managed;

static void uuid_of(unsigned char *uuid, int device);

static void join_cgroup(void)
{
    unsigned char id[16];
    member = NULL;
    limits = fake_limits_open(&limits_fd);
    if (!limits)
        return;
    fake_limits_lock(limits_fd, F_WRLCK);
    fake_limits_expire(limits); /* a process later sees no folder, in another root */
    fake_limits_reap(limits);
    for (int i = 0; i < FAKE_MEMBERS && !member; i++)
        if (!limits->members[i].pid)
            member = &limits->members[i];
    if (!member)
        abort();
    *member = (struct fake_member){.pid = getpid()};
    fake_own_cgroup(member->path);
    for (int i = 0; i < FAKE_CARDS; i++) {
        char *at = member->cards[i].uuid;
        uuid_of(id, i);
        at += sprintf(at, "GPU");
        for (int k = 0; k < 16; k++)
            at += sprintf(at,
                          k == 0 || (k >= 4 && k <= 10 && k % 2 == 0) ? "-%02x" : "%02x",
                          id[k]);
    }
    fake_limits_lock(limits_fd, F_UNLCK);
}

/* As lock_books. */
static void lock_limits(void)
{
    fake_limits_lock(limits_fd, F_WRLCK);
    if (member->pid != getpid())
        for (fake_limits_lock(limits_fd, F_UNLCK);;)
            pause();
}

/* Do the bytes fit into the limits of the process's cgroup and its ancestors? Then it has them. */
static bool charge(int device, unsigned long long bytes)
{
    bool fits = true;
    if (!limits || is_managed)
        return true;
    lock_limits();
    for (int again = 0; again < 2; again++) {
        fits = true;
        for (int i = 0; i < FAKE_LIMITS; i++) {
            const struct fake_limit *l = &limits->limits[i];
            unsigned long long used;
            if (!*l->path || !fake_is_below(member->path, l->path) ||
                strcmp(l->uuid, member->cards[device].uuid) != 0)
                continue;
            used = fake_limits_used(limits, l->path, l->uuid);
            fits &= used <= l->hard && bytes <= l->hard - used;
        }
        if (fits)
            break;
        fake_limits_reap(limits);
    }
    member->cards[device].used += fits ? bytes : 0;
    fake_limits_lock(limits_fd, F_UNLCK);
    return fits;
}

static void uncharge(int device, unsigned long long bytes)
{
    if (!limits || is_managed)
        return;
    lock_limits();
    if (bytes > member->cards[device].used)
        abort();
    member->cards[device].used -= bytes;
    fake_limits_lock(limits_fd, F_UNLCK);
}

/* The limit of the process's own cgroup is its size of the card; that of a parent is not seen. */
static void limit_size(int device, size_t *total, size_t *available)
{
    if (!limits)
        return;
    lock_limits();
    fake_limits_reap(limits);
    const struct fake_limit *l =
        fake_limits_find(limits, member->path, member->cards[device].uuid);
    if (l && l->hard < *total) {
        unsigned long long used = fake_limits_used(limits, l->path, l->uuid);
        *total = l->hard;
        *available = used < l->hard ? l->hard - used : 0;
    }
    fake_limits_lock(limits_fd, F_UNLCK);
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

/* The books are those of device 0. Called with the mutex. */
int take(int device, unsigned long long bytes)
{
    if (device >= DEVICES)
        return OK;
    if (!charge(device, bytes))
        return OUT_OF_MEMORY;
    if (device != 0)
        return OK;
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
    if (rc != OK)
        uncharge(device, bytes);
    return rc;
}

/* The books first: another process takes what is given back, and must not find it there. */
void give(int device, unsigned long long bytes)
{
    if (device >= DEVICES)
        return;
    if (device == 0) {
        lock_books();
        if (bytes > entry->used)
            abort();
        __atomic_store_n(&entry->used, entry->used - bytes, __ATOMIC_SEQ_CST);
        lock_file(F_UNLCK);
    }
    uncharge(device, bytes);
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
    if (!is_open) {
        open_books();
        join_cgroup();
    }
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
        if (take(device, bytes) != OK)
            return NULL;
        n_free_hint = (int)(o - objects);
        if (tops[kind] <= n_free_hint)
            tops[kind] = n_free_hint + 1;
        if (tops[NONE] <= n_free_hint)
            tops[NONE] = n_free_hint + 1;
        *o = (struct object){.kind = kind,
                             .device = device,
                             .bytes = bytes,
                             .refs = 1,
                             .managed = is_managed};
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
    is_managed = o->managed;
    give(o->device, o->bytes);
    is_managed = false;
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

bool refuses_any;

__attribute__((constructor)) static void read_refusals(void)
{
    refuses_any = getenv("FAKE_CUDA_REFUSES") != NULL;
}

bool refuses(const char *function)
{
    const char *all = getenv("FAKE_CUDA_REFUSES"),
               *at = all ? strstr(all, function) : NULL;
    size_t n = strlen(function);
    return at && (at == all || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0');
}

/* Calls of cuMemAlloc: how many take long now, and how many there were. Modules made. */
static int slow, allocations, modules;

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

static void uuid_of(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)i;
    uuid[0] = (unsigned char)(device << 4);
    const char *visible = getenv("FAKE_CUDA_UUID") ?: getenv("NVIDIA_VISIBLE_DEVICES");
    if (device == 0 && visible && strncmp(visible, "GPU-", 4) == 0)
        read_uuid(uuid, visible + 4);
}

FN(cuDeviceGetUuid_v2, (unsigned char *uuid, int device), (uuid, device))
{
    NEEDS_INIT;
    uuid_of(uuid, device);
    return OK;
}

FN(cuDeviceGetUuid, (unsigned char *uuid, int device), (uuid, device))
{
    return impl_cuDeviceGetUuid_v2(uuid, device);
}

FN(cuDeviceTotalMem_v2, (size_t * total, int device), (total, device))
{
    size_t available = 0;
    enter();
    *total = books->capacity;
    limit_size(device, total, &available);
    return leave(OK);
}

/* Another process allocates at the same time. */
static void neighbor_takes(void)
{
    if (!books->neighbor)
        return;
    lock_books();
    if (books->neighbor_skip) {
        books->neighbor_skip--;
        lock_file(F_UNLCK);
        return;
    }
    books->entries[books->neighbor_at].used += books->neighbor;
    if (books->neighbor_at + 1 < books->neighbors)
        books->neighbor_at++;
    if (books->neighbor_once)
        books->neighbor = 0;
    lock_file(F_UNLCK);
}

static unsigned long long context_bytes(void)
{
    neighbor_takes();
    const char *mib = getenv("FAKE_CUDA_CONTEXT_MIB");
    return mib ? strtoull(mib, NULL, 10) << 20 : FAKE_CONTEXT;
}

enum { STACK = 1024, THREADS = 132 * 2048, DEPTH = 2, LAUNCHES = 2048, LIMITS = 5 };

static int make_context(handle *context, int device)
{
    NEEDS_INIT;
    while (__atomic_load_n(&slow, __ATOMIC_SEQ_CST))
        usleep(1000);
    enter();
    *context = make(CONTEXT, device, context_bytes());
    if (*context) {
        (*context)->limits[0] = STACK;
        (*context)->limits[3] = DEPTH;
        (*context)->limits[4] = LAUNCHES;
        (*context)->maps = 1; /* attached */
    }
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
    return (c->limits[0] - STACK) * THREADS + c->limits[1] + c->limits[2] +
           ((c->limits[3] - DEPTH) << 20) + (c->limits[4] - LAUNCHES) * 1024;
}

static void end_context(struct object *context)
{
    for (int i = 0; i < tops[NONE]; i++)
        if ((objects[i].kind == LINEAR || objects[i].kind == ARRAY ||
             objects[i].kind == MODULE) &&
            objects[i].of == context)
            end(&objects[i]);
    give(context->device, settings(context));
    if (current == context)
        current = NULL;
}

struct object *whole(struct object *context)
{
    return context && context->kind == GREEN ? context->of : context;
}

FN(cuCtxGetLimit, (size_t * value, int limit), (value, limit))
{
    if (!current || limit < 0 || limit >= LIMITS)
        return INVALID;
    *value = whole(current)->limits[limit];
    return OK;
}

FN(cuCtxSetLimit, (int limit, size_t value), (limit, value))
{
    if (!current || limit < 0 || limit >= LIMITS || (limit == 0 && value < STACK) ||
        (limit == 3 && value < DEPTH) || (limit == 4 && value < LAUNCHES))
        return INVALID;
    enter();
    struct object *c = whole(current);
    unsigned long long before = settings(c), old = c->limits[limit];
    c->limits[limit] = value;
    unsigned long long now = settings(c);
    if (now < before)
        give(c->device, before - now);
    if (now > before && take(c->device, now - before) != OK) {
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
    int seen = __atomic_load_n(&allocations, __ATOMIC_SEQ_CST), ms = 0;
    for (; getenv("FAKE_CUDA_DESTROY_WAITS") && ms < 3000 &&
           seen == __atomic_load_n(&allocations, __ATOMIC_SEQ_CST);
         ms++)
        usleep(1000);
    if (ms == 3000)
        return NOT_SUPPORTED;
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

/* Of CUDA before 4.0: contexts that are shared by attaching to them. */
FN(cuCtxAttach, (handle * context, unsigned flags), (context, flags))
{
    *context = current;
    current->maps++;
    return OK;
}

FN(cuCtxDetach, (handle context), (context))
{
    if (!is(context, CONTEXT) || context != current)
        return INVALID_CONTEXT;
    return --context->maps ? OK : impl_cuCtxDestroy_v2(context);
}

FN(cuCtxGetApiVersion, (handle context, unsigned *version), (context, version))
{
    *version = 3020;
    return is(context, CONTEXT) ? OK : INVALID_CONTEXT;
}

#define OF_GRAPHICS(name)                                                                \
    FN(name, (handle * c, unsigned flags, int device, void *display),                    \
       (c, flags, device, display))                                                      \
    {                                                                                    \
        return make_context(c, device);                                                  \
    }
OF_GRAPHICS(cuGLCtxCreate)
OF_GRAPHICS(cuGLCtxCreate_v2)
OF_GRAPHICS(cuVDPAUCtxCreate)
OF_GRAPHICS(cuVDPAUCtxCreate_v2)

static int use_primary(int device)
{
    struct object *o = &primary[device];
    unsigned long long bytes = o->refs ? o->bytes : context_bytes();
    if (o->refs == 0 && take(device, bytes) != OK)
        return OUT_OF_MEMORY;
    if (o->refs++ == 0)
        *o = (struct object){.kind = CONTEXT,
                             .device = device,
                             .refs = 1,
                             .bytes = bytes,
                             .limits = {STACK, 0, 0, DEPTH, LAUNCHES}};
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
    give(device, primary[device].bytes);
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
    *stream = make(STREAM, NOWHERE, 0);
    (*stream)->of = current;
    return leave(OK);
}

/* A stream of a green context has no context that this version could name. */
FN(cuGreenCtxStreamCreate, (handle * stream, handle green, unsigned flags, int priority),
   (stream, green, flags, priority))
{
    enter();
    *stream = make(STREAM, NOWHERE, 0);
    (*stream)->of = green;
    return leave(OK);
}

FN(cuStreamGetCtx, (handle stream, handle *context), (stream, context))
{
    *context = (size_t)stream > 2 ? stream->of : current;
    return *context && (*context)->kind == GREEN && (size_t)stream > 2 ? NOT_SUPPORTED
                                                                       : OK;
}

FN(cuStreamGetCtx_v2, (handle stream, handle *context, handle *green),
   (stream, context, green))
{
    handle of = (size_t)stream > 2 ? stream->of : current;
    *green = of && of->kind == GREEN ? of : NULL;
    *context = whole(of);
    return OK;
}

FN(cuStreamGetDevice, (handle stream, int *device), (stream, device))
{
    handle of = (size_t)stream > 2 ? stream->of : current;
    *device = of ? of->device : 0;
    return of ? OK : INVALID_CONTEXT;
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
    limit_size(whole(current)->device, total, available);
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
    static int slow_mib = -1;
    if (slow_mib < 0)
        slow_mib = getenv("FAKE_CUDA_SLOW_MIB") ? atoi(getenv("FAKE_CUDA_SLOW_MIB")) : 0;
    bool is_slow = slow_mib && bytes >> 20 == (size_t)slow_mib;
    if (is_slow)
        __atomic_fetch_add(&slow, 1, __ATOMIC_SEQ_CST), usleep(100000);
    int rc = make_linear(LINEAR, bytes, p);
    if (is_slow)
        __atomic_fetch_sub(&slow, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&allocations, allocations + 1, __ATOMIC_RELAXED);
    return rc;
}

FN(cuMemAllocManaged, (dptr * p, size_t bytes, unsigned flags), (p, bytes, flags))
{
    is_managed = true;
    int rc = make_linear(LINEAR, bytes, p);
    is_managed = false;
    return rc;
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
    int seen = __atomic_load_n(&modules, __ATOMIC_SEQ_CST), ms = 0;
    while (getenv("FAKE_CUDA_FREE_WAITS") && ms < 1500 &&
           seen == __atomic_load_n(&modules, __ATOMIC_SEQ_CST)) {
        usleep(1000);
        ms++;
    }
    if (ms == 1500)
        return NOT_SUPPORTED;
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
    __atomic_fetch_add(&modules, 1, __ATOMIC_SEQ_CST);
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

/* As the real ones: *status is 1 for an unknown name, 2 if a newer version has it. */
static int get_proc(const char *name, void **found, int version, unsigned long long flags,
                    int *status)
{
    const struct symbol *best = NULL;
    if (flags > 2)
        return INVALID;
    *status = 1;
    for (const struct symbol *s = symbols; s->name; s++) {
        if (strcmp(s->name, name) == 0)
            *status = 2;
        if (strcmp(s->name, name) == 0 && s->since <= version &&
            s->per_thread <= ((flags & 2) != 0) &&
            (!best || s->per_thread > best->per_thread ||
             (s->per_thread == best->per_thread && s->since > best->since)))
            best = s;
    }
    if (!best)
        return NOT_FOUND;
    *status = 0;
    *found = getenv("FAKE_CUDA_ALIAS") ? best->alias : best->exported;
    return OK;
}

FN(cuGetProcAddress,
   (const char *name, void **found, int version, unsigned long long flags),
   (name, found, version, flags))
{
    int status;
    return get_proc(name, found, version, flags, &status);
}

/* Answers that there is no function by NULL, not by an error. */
FN(cuGetProcAddress_v2,
   (const char *name, void **found, int version, unsigned long long flags, int *status),
   (name, found, version, flags, status))
{
    int answer, rc = get_proc(name, found, version, flags, &answer);
    if (rc == NOT_FOUND)
        *found = NULL;
    if (status && (rc == OK || rc == NOT_FOUND))
        *status = answer;
    return rc == NOT_FOUND ? OK : rc;
}

#define ROW(symbol, name, since, per_thread) extern int symbol(), impl_##symbol();
FAKE_CUDA_SYMBOLS
#undef ROW
#define ROW(symbol, name, since, per_thread)                                             \
    {name, since, per_thread, (void *)(size_t)symbol, (void *)(size_t)impl_##symbol},
static const struct symbol symbols[] = {FAKE_CUDA_SYMBOLS{0}};
#undef ROW
