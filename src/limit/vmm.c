/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/calls.h"
#include "limit/limit.h"
#include "limit/sys.h"

/*
 * Virtual memory management: cuMemCreate makes physical memory and a handle. The memory lives
 * as long as a handle, a mapping, a tile of a sparse array or a multicast object refers to it;
 * KIND_MEMORY counts them. Memory of another process counts there, and is only said to be
 * imported: see process_keep. A multicast object is memory without bytes.
 */

enum { EXPORTED = 1, IMPORTED = 2, MULTICAST = 4, GRANULARITY = 64 << 10 };
/* The size of imported memory that was never mapped: the driver does not say it. */
#define UNKNOWN_SIZE (1ull << 50)

/* Records a reference to the memory. Locked. */
static struct entry *refer(struct process *p, enum kind kind, uint64_t key,
                           uint64_t memory)
{
    struct entry *e = table_add(&p->table, kind, key);
    if (!e)
        return NULL;
    e->a = memory;
    if ((e = table_find(&p->table, KIND_MEMORY, memory)))
        e->a++;
    return table_find(&p->table, kind, key);
}

static void drop(struct process *p, uint64_t memory);

/* The entry refers to memory no more. Locked. */
static void forget(struct process *p, struct entry *e)
{
    uint64_t memory = e->a;
    p->bound -= e->kind == KIND_TILE || e->kind == KIND_BOUND;
    table_remove(&p->table, e);
    drop(p, memory);
}

/* Drops the references of an array or multicast object, of those at [from, to). Locked. */
static void unbind(struct process *p, enum kind kind, uint64_t owner, uint64_t from,
                   uint64_t to)
{
    struct table *t = &p->table;
    for (size_t i = 0; i < t->size; i++)
        while (t->at[i].kind == kind && t->at[i].b == owner && t->at[i].at >= from &&
               t->at[i].at < to)
            forget(p, &t->at[i]); /* another entry can move here */
}

/* One reference less. Locked. */
static void drop(struct process *p, uint64_t memory)
{
    struct entry *e = table_find(&p->table, KIND_MEMORY, memory);
    if (!e || --e->a)
        return;
    struct entry gone = *e;
    table_remove(&p->table, e);
    if (gone.b & IMPORTED)
        process_import_locked(p, gone.at, 0);
    if (gone.card >= 0 && gone.b & EXPORTED)
        process_keep_locked(p, gone.card, gone.bytes);
    else if (gone.card >= 0)
        process_release_locked(p, gone.card, gone.bytes);
    if (p->bound && gone.b & (IMPORTED | MULTICAST))
        unbind(p, KIND_BOUND, memory, 0, UINT64_MAX);
}

static uint64_t next(struct process *p)
{
    sys_lock(&p->lock);
    uint64_t number = ++p->next_memory;
    sys_unlock(&p->lock);
    return number;
}

static void add_handle(struct process *p, CUallocation handle, uint64_t memory)
{
    sys_lock(&p->lock);
    struct entry *e = refer(p, KIND_HANDLE, handle, memory);
    if (e)
        e->b = 1;
    sys_unlock(&p->lock);
}

LIMIT_EXPORT CUresult cuMemCreate(CUallocation *handle, size_t bytes,
                                  const CUmemProp *prop, unsigned long long flags)
{
    LIMIT_REAL(cuMemCreate);
    struct account a;
    if (!prop || prop->location.type != CU_LOCATION_DEVICE ||
        !account_begin_device(&a, prop->location.id))
        return real(handle, bytes, prop, flags);
    LIMIT_RESERVE(&a, bytes);
    CUresult rc = LIMIT_CALL(real(handle, bytes, prop, flags));
    uint64_t memory = next(a.process);
    rc = account_end(&a, rc, KIND_MEMORY, memory);
    if (rc == CUDA_SUCCESS)
        add_handle(a.process, *handle, memory);
    return rc;
}

/* Memory that is not counted: IMPORTED, perhaps a multicast object, or MULTICAST. */
static CUresult add_uncounted(CUresult rc, const CUallocation *handle, uint64_t flag)
{
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (!p)
        return rc;
    uint64_t memory = next(p);
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_HANDLE, *handle);
    if (e) { /* the driver knows the memory already */
        e->b++;
        sys_unlock(&p->lock);
        return rc;
    }
    if ((e = table_add(&p->table, KIND_MEMORY, memory))) {
        e->b = flag;
        e->at = flag == IMPORTED ? UNKNOWN_SIZE : 0;
        process_import_locked(p, 0, e->at);
    }
    sys_unlock(&p->lock);
    add_handle(p, *handle, memory);
    return rc;
}

LIMIT_EXPORT CUresult cuMemImportFromShareableHandle(CUallocation *handle, void *from,
                                                     int type)
{
    LIMIT_REAL(cuMemImportFromShareableHandle);
    return add_uncounted(real(handle, from, type), handle, IMPORTED);
}

LIMIT_EXPORT CUresult cuMulticastCreate(CUallocation *handle, const void *prop)
{
    LIMIT_REAL(cuMulticastCreate);
    return add_uncounted(real(handle, prop), handle, MULTICAST);
}

/* The memory of a handle, or 0. Locked. */
static uint64_t memory_of(const struct process *p, CUallocation handle)
{
    const struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    return e ? e->a : 0;
}

static void mark_exported(struct process *p, uint64_t memory)
{
    struct entry *e = table_find(&p->table, KIND_MEMORY, memory);
    if (e)
        e->b |= EXPORTED;
}

LIMIT_EXPORT CUresult cuMemExportToShareableHandle(void *to, CUallocation handle,
                                                   int type, unsigned long long flags)
{
    LIMIT_REAL(cuMemExportToShareableHandle);
    struct process *p = account_process();
    if (p) {
        sys_lock(&p->lock);
        mark_exported(p, memory_of(p, handle));
        sys_unlock(&p->lock);
    }
    return real(to, handle, type, flags);
}

static void released(struct process *p, CUallocation handle)
{
    struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    if (e && !--e->b)
        forget(p, e);
}

/* A call of the driver that changes references, and what follows if it succeeds. Locked, because
 * another thread can get or release the same handle or address as soon as the driver is done. */
#define CHANGE(symbol, then, ...)                                                        \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct process *p = account_process();                                           \
        if (!p)                                                                          \
            return real(__VA_ARGS__);                                                    \
        sys_lock(&p->lock);                                                              \
        CUresult rc = LIMIT_CALL(real(__VA_ARGS__));                                     \
        if (rc == CUDA_SUCCESS)                                                          \
            then;                                                                        \
        sys_unlock(&p->lock);                                                            \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuMemRelease(CUallocation handle)
{
    CHANGE(cuMemRelease, released(p, handle), handle);
}

static void mapped(struct process *p, CUdeviceptr at, size_t bytes, CUallocation handle)
{
    uint64_t memory = memory_of(p, handle);
    struct entry *e = memory ? refer(p, KIND_MAPPING, at, memory) : NULL;
    if (e)
        e->b = bytes;
    e = table_find(&p->table, KIND_MEMORY, memory);
    if (e && e->b & IMPORTED && (e->at == UNKNOWN_SIZE || bytes > e->at)) {
        process_import_locked(p, e->at, bytes);
        e->at = bytes;
    }
}

LIMIT_EXPORT CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
                               CUallocation handle, unsigned long long flags)
{
    CHANGE(cuMemMap, mapped(p, at, bytes, handle), at, bytes, offset, handle, flags);
}

/* The driver unmaps whole mappings only. */
static void unmapped(struct process *p, CUdeviceptr at, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        struct entry *e = table_find(&p->table, KIND_MAPPING, at + done);
        done += e && e->b ? e->b : GRANULARITY;
        if (e)
            forget(p, e);
    }
}

LIMIT_EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    CHANGE(cuMemUnmap, unmapped(p, at, bytes), at, bytes);
}

/* The memory of the mapping with this address, or 0. Locked. */
static uint64_t memory_at(const struct process *p, uint64_t at)
{
    CUdeviceptr base;
    size_t size;
    __typeof__(&cuMemGetAddressRange_v2) get = DRIVER(cuMemGetAddressRange_v2);
    struct entry *e = table_find(&p->table, KIND_MAPPING, at);
    if (!e && get && LIMIT_CALL(get(&base, &size, at)) == CUDA_SUCCESS)
        e = table_find(&p->table, KIND_MAPPING, base);
    if (!e) /* the driver does not know the address by its mapping */
        while ((e = table_next(&p->table, e)) &&
               !(e->kind == KIND_MAPPING && at >= e->key && at - e->key < e->b))
            ;
    return e ? e->a : 0;
}

static void retained(struct process *p, CUallocation handle, uint64_t at)
{
    uint64_t memory = memory_at(p, at);
    struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    if (e || (memory && (e = refer(p, KIND_HANDLE, handle, memory))))
        e->b++;
}

LIMIT_EXPORT CUresult cuMemRetainAllocationHandle(CUallocation *handle, void *at)
{
    CHANGE(cuMemRetainAllocationHandle, retained(p, *handle, (uint64_t)(uintptr_t)at),
           handle, at);
}

/* -- sparse arrays and multicast objects -- */

static uint64_t hash(const void *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return h >> 1; /* below UINT64_MAX */
}

/* The owner refers to the memory, at this place. Locked. Returns the key. */
static uint64_t bind(struct process *p, enum kind kind, uint64_t owner, uint64_t at,
                     uint64_t memory)
{
    uint64_t key = ++p->next_memory;
    struct entry *e = memory ? refer(p, kind, key, memory) : NULL;
    if (e) {
        e->b = owner;
        e->at = at;
        p->bound++;
    }
    return key;
}

/* A place is unmapped as it was mapped; otherwise its memory counts until the array ends. */
static void map_arrays(struct process *p, const CUarrayMapInfo *list, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t array = (uint64_t)(uintptr_t)list[i].array;
        uint64_t at = hash(list[i].place, sizeof list[i].place);
        uint64_t memory =
            list[i].operation == CU_OPERATION_MAP ? memory_of(p, list[i].handle) : 0;
        uint64_t key = bind(p, KIND_TILE, array, UINT64_MAX - 1, memory);
        unbind(p, KIND_TILE, array, at, at + 1);
        struct entry *e = table_find(&p->table, KIND_TILE, key);
        if (e)
            e->at = at;
    }
}

LIMIT_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned n, CUstream s)
{
    CHANGE(cuMemMapArrayAsync, map_arrays(p, list, n), list, n, s);
}

LIMIT_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned n,
                                              CUstream s)
{
    CHANGE(cuMemMapArrayAsync_ptsz, map_arrays(p, list, n), list, n, s);
}

void vmm_array_ended(uint64_t array)
{
    struct process *p = process_get();
    if (!p)
        return;
    sys_lock(&p->lock);
    if (p->bound)
        unbind(p, KIND_TILE, array, 0, UINT64_MAX);
    sys_unlock(&p->lock);
}

/* The driver can wait in a bind until other processes are ready: the reference is there before,
 * and no lock is held. */
static uint64_t bind_begin(struct process *p, CUallocation object, size_t at,
                           uint64_t memory)
{
    uint64_t owner = memory_of(p, object);
    return owner ? bind(p, KIND_BOUND, owner, at, memory) : 0;
}

static CUresult bind_end(struct process *p, uint64_t key, CUresult rc)
{
    sys_lock(&p->lock);
    struct entry *e = rc == CUDA_SUCCESS ? NULL : table_find(&p->table, KIND_BOUND, key);
    if (e)
        forget(p, e);
    sys_unlock(&p->lock);
    return rc;
}

#define BIND(symbol, memory, ...)                                                        \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct process *p = account_process();                                           \
        if (!p)                                                                          \
            return real(__VA_ARGS__);                                                    \
        sys_lock(&p->lock);                                                              \
        uint64_t key = bind_begin(p, object, at, memory);                                \
        sys_unlock(&p->lock);                                                            \
        return bind_end(p, key, LIMIT_CALL(real(__VA_ARGS__)));                          \
    } while (0)

LIMIT_EXPORT CUresult cuMulticastBindMem(CUallocation object, size_t at,
                                         CUallocation handle, size_t from, size_t bytes,
                                         unsigned long long flags)
{
    BIND(cuMulticastBindMem, memory_of(p, handle), object, at, handle, from, bytes,
         flags);
}

LIMIT_EXPORT CUresult cuMulticastBindMem_v2(CUallocation object, CUdevice device,
                                            size_t at, CUallocation handle, size_t from,
                                            size_t bytes, unsigned long long flags)
{
    BIND(cuMulticastBindMem_v2, memory_of(p, handle), object, device, at, handle, from,
         bytes, flags);
}

LIMIT_EXPORT CUresult cuMulticastBindAddr(CUallocation object, size_t at,
                                          CUdeviceptr memory, size_t bytes,
                                          unsigned long long flags)
{
    BIND(cuMulticastBindAddr, memory_at(p, memory), object, at, memory, bytes, flags);
}

LIMIT_EXPORT CUresult cuMulticastBindAddr_v2(CUallocation object, CUdevice device,
                                             size_t at, CUdeviceptr memory, size_t bytes,
                                             unsigned long long flags)
{
    BIND(cuMulticastBindAddr_v2, memory_at(p, memory), object, device, at, memory, bytes,
         flags);
}

LIMIT_EXPORT CUresult cuMulticastUnbind(CUallocation object, CUdevice device, size_t at,
                                        size_t bytes)
{
    CHANGE(cuMulticastUnbind, unbind(p, KIND_BOUND, memory_of(p, object), at, at + bytes),
           object, device, at, bytes);
}

/* -- CUDA IPC: pointers of cuMemAlloc that other processes open -- */

LIMIT_EXPORT CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr at)
{
    LIMIT_REAL(cuIpcGetMemHandle);
    struct process *p = account_process();
    CUdeviceptr base = at;
    size_t size;
    __typeof__(&cuMemGetAddressRange_v2) get = DRIVER(cuMemGetAddressRange_v2);
    if (p && get && LIMIT_CALL(get(&base, &size, at)) == CUDA_SUCCESS) {
        sys_lock(&p->lock);
        struct entry *e = table_find(&p->table, KIND_LINEAR, base);
        if (e)
            e->b = EXPORTED;
        sys_unlock(&p->lock);
    }
    return real(handle, at);
}

static CUresult opened(CUresult rc, const CUdeviceptr *at)
{
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    CUdeviceptr base;
    size_t size = 0;
    __typeof__(&cuMemGetAddressRange_v2) get = DRIVER(cuMemGetAddressRange_v2);
    if (!p)
        return rc;
    if (!get || LIMIT_CALL(get(&base, &size, *at)) != CUDA_SUCCESS)
        size = 0;
    sys_lock(&p->lock);
    struct entry *e = table_add(&p->table, KIND_OPENED, *at);
    if (e) {
        e->b++;
        process_import_locked(p, e->at, size);
        e->at = size;
    }
    sys_unlock(&p->lock);
    return rc;
}

LIMIT_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *at, CUipcHandle handle,
                                         unsigned flags)
{
    LIMIT_REAL(cuIpcOpenMemHandle);
    return opened(real(at, handle, flags), at);
}

LIMIT_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcHandle handle,
                                            unsigned flags)
{
    LIMIT_REAL(cuIpcOpenMemHandle_v2);
    return opened(real(at, handle, flags), at);
}

static void closed(struct process *p, CUdeviceptr at)
{
    struct entry *e = table_find(&p->table, KIND_OPENED, at);
    if (!e || --e->b)
        return;
    process_import_locked(p, e->at, 0);
    table_remove(&p->table, e);
}

LIMIT_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
    CHANGE(cuIpcCloseMemHandle, closed(p, at), at);
}
