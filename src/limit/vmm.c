/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/calls.h"
#include "limit/limit.h"
#include "limit/sys.h"

/*
 * Virtual memory management: cuMemCreate makes physical memory and a handle. The memory lives
 * as long as a handle or a mapping of it; both are counted in KIND_MEMORY. An imported handle is
 * not in the table: its memory counts where it was made.
 */

/* Records a handle or mapping of the memory. Locked. */
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

/* One handle or mapping less. Locked. */
static void drop(struct process *p, uint64_t memory)
{
    struct entry *e = table_find(&p->table, KIND_MEMORY, memory);
    if (!e || --e->a)
        return;
    if (e->card >= 0)
        process_release_locked(p, e->card, e->bytes);
    table_remove(&p->table, e);
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
    sys_lock(&a.process->lock);
    uint64_t memory = ++a.process->next_memory;
    sys_unlock(&a.process->lock);
    rc = account_end(&a, rc, KIND_MEMORY, memory);
    if (rc != CUDA_SUCCESS)
        return rc;
    sys_lock(&a.process->lock);
    struct entry *e = refer(a.process, KIND_HANDLE, *handle, memory);
    if (e)
        e->b = 1;
    sys_unlock(&a.process->lock);
    return rc;
}

static void released(struct process *p, CUallocation handle)
{
    struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    if (!e || --e->b)
        return;
    uint64_t memory = e->a;
    table_remove(&p->table, e);
    drop(p, memory);
}

LIMIT_EXPORT CUresult cuMemRelease(CUallocation handle)
{
    LIMIT_REAL(cuMemRelease);
    struct process *p = resolve_nested() ? NULL : process_get();
    if (!p)
        return real(handle);
    /* Locked: another thread can get the same handle as soon as the driver freed this one. */
    sys_lock(&p->lock);
    CUresult rc = LIMIT_CALL(real(handle));
    if (rc == CUDA_SUCCESS)
        released(p, handle);
    sys_unlock(&p->lock);
    return rc;
}

LIMIT_EXPORT CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
                               CUallocation handle, unsigned long long flags)
{
    LIMIT_REAL(cuMemMap);
    struct process *p = resolve_nested() ? NULL : process_get();
    CUresult rc = real(at, bytes, offset, handle, flags);
    if (rc != CUDA_SUCCESS || !p)
        return rc;
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_HANDLE, handle);
    if (e && (e = refer(p, KIND_MAPPING, at, e->a)))
        e->b = bytes;
    sys_unlock(&p->lock);
    return rc;
}

static void unmapped(struct process *p, CUdeviceptr at, size_t bytes)
{
    struct table *t = &p->table;
    for (size_t i = 0; i < t->size; i++) {
        struct entry *e = &t->at[i];
        while (e->kind == KIND_MAPPING && e->key >= at && e->key - at < bytes) {
            uint64_t memory = e->a;
            table_remove(t, e); /* another entry can move here */
            drop(p, memory);
        }
    }
}

LIMIT_EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    LIMIT_REAL(cuMemUnmap);
    struct process *p = resolve_nested() ? NULL : process_get();
    if (!p)
        return real(at, bytes);
    sys_lock(&p->lock); /* see cuMemRelease */
    CUresult rc = LIMIT_CALL(real(at, bytes));
    if (rc == CUDA_SUCCESS)
        unmapped(p, at, bytes);
    sys_unlock(&p->lock);
    return rc;
}

/* The memory of the mapping with this address, or 0. Locked. */
static uint64_t memory_at(const struct process *p, uint64_t at)
{
    for (struct entry *e = NULL; (e = table_next(&p->table, e));)
        if (e->kind == KIND_MAPPING && at >= e->key && at - e->key < e->b)
            return e->a;
    return 0;
}

LIMIT_EXPORT CUresult cuMemRetainAllocationHandle(CUallocation *handle, void *at)
{
    LIMIT_REAL(cuMemRetainAllocationHandle);
    struct process *p = resolve_nested() ? NULL : process_get();
    CUresult rc = real(handle, at);
    if (rc != CUDA_SUCCESS || !p)
        return rc;
    sys_lock(&p->lock);
    uint64_t memory = memory_at(p, (uint64_t)(uintptr_t)at);
    struct entry *e = table_find(&p->table, KIND_HANDLE, *handle);
    if (e || (memory && (e = refer(p, KIND_HANDLE, *handle, memory))))
        e->b++;
    sys_unlock(&p->lock);
    return rc;
}
