/* SPDX-License-Identifier: Apache-2.0 */
#include "limit/calls.h"
#include "limit/limit.h"
#include "limit/sys.h"

/*
 * Contexts. The driver takes memory for each context that a process makes, and does not say how
 * much: the plugin gives the number (struct limit_file). A destroyed context frees its
 * allocations.
 */

static uint64_t context_bytes(const struct account *a)
{
    return __atomic_load_n(&a->process->cards[a->card].file->context, __ATOMIC_SEQ_CST);
}

#define CREATE(symbol, ...)                                                              \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct account a;                                                                \
        if (!account_begin_device(&a, device))                                           \
            return real(__VA_ARGS__);                                                    \
        LIMIT_RESERVE(&a, context_bytes(&a));                                            \
        CUresult rc = LIMIT_CALL(real(__VA_ARGS__));                                     \
        uint64_t key = rc == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*context : 0;           \
        a.context = key;                                                                 \
        return account_end(&a, rc, KIND_CONTEXT, key);                                   \
    } while (0)

LIMIT_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    CREATE(cuCtxCreate, context, flags, device);
}

LIMIT_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    CREATE(cuCtxCreate_v2, context, flags, device);
}

LIMIT_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int n,
                                     unsigned flags, CUdevice device)
{
    CREATE(cuCtxCreate_v3, context, affinity, n, flags, device);
}

LIMIT_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags,
                                     CUdevice device)
{
    CREATE(cuCtxCreate_v4, context, params, flags, device);
}

/* Takes everything that ends with the context out of the table, and returns its bytes. Locked. */
static uint64_t take_all(struct process *p, uint64_t context)
{
    struct table *t = &p->table;
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->size; i++)
        while (t->at[i].kind && t->at[i].context == context) {
            bytes += t->at[i].bytes;
            table_remove(t, &t->at[i]); /* another entry can move here */
        }
    return bytes;
}

/* The card of a context of this process, or -1. */
static int card_of(struct process *p, uint64_t context)
{
    sys_lock(&p->lock);
    struct entry *e = context ? table_find(&p->table, KIND_CONTEXT, context) : NULL;
    int card = e ? e->card : -1;
    sys_unlock(&p->lock);
    return card;
}

/* The context and its memory are gone, unless the driver says that it does not know the context.
 * The table is emptied first: the driver can give the handle to another thread at once. */
#define DESTROY(p, context, ...)                                                         \
    do {                                                                                 \
        int card = card_of(p, context);                                                  \
        sys_lock(&(p)->lock);                                                            \
        uint64_t bytes = card >= 0 ? take_all(p, context) : 0;                           \
        __atomic_fetch_add(&(p)->contexts_ended, 1, __ATOMIC_RELEASE);                   \
        sys_unlock(&(p)->lock);                                                          \
        rc = real(__VA_ARGS__);                                                          \
        if (card >= 0 && rc != CUDA_ERROR_INVALID_VALUE &&                               \
            rc != CUDA_ERROR_INVALID_CONTEXT)                                            \
            process_release(p, card, bytes);                                             \
    } while (0)

#define DESTROY_CONTEXT(symbol)                                                          \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct process *p = resolve_nested() ? NULL : process_get();                     \
        CUresult rc;                                                                     \
        if (!p)                                                                          \
            return real(context);                                                        \
        DESTROY(p, (uint64_t)(uintptr_t)context, context);                               \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY_CONTEXT(cuCtxDestroy);
}

LIMIT_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY_CONTEXT(cuCtxDestroy_v2);
}

/* -- Primary contexts: one of a device, with a count of its users -- */

/* Another user of a context that counts already. */
static bool add_user(struct account *a, uint64_t context)
{
    sys_lock(&a->process->lock);
    struct entry *e = table_find(&a->process->table, KIND_CONTEXT, context);
    bool counts = e && e->a > 0;
    if (e)
        e->a++;
    sys_unlock(&a->process->lock);
    return counts;
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    LIMIT_REAL(cuDevicePrimaryCtxRetain);
    struct account a;
    if (device < 0 || device >= PROCESS_DEVICES || !account_begin_device(&a, device))
        return real(context, device);
    uint64_t *primary = &a.process->primary[device];
    bool counts = card_of(a.process, __atomic_load_n(primary, __ATOMIC_RELAXED)) >= 0;
    if (!counts)
        LIMIT_RESERVE(&a, context_bytes(&a));
    CUresult rc = LIMIT_CALL(real(context, device));
    if (rc != CUDA_SUCCESS)
        return account_end(&a, rc, KIND_CONTEXT, 0);
    uint64_t key = (uint64_t)(uintptr_t)*context;
    __atomic_store_n(primary, key, __ATOMIC_RELAXED);
    if (add_user(&a, key)) { /* another thread was first */
        process_release(a.process, a.card, a.bytes);
        return rc;
    }
    a.context = key;
    rc = account_end(&a, rc, KIND_CONTEXT, key);
    add_user(&a, key);
    return rc;
}

/* Is this the last user of the primary context? */
static bool drop_user(struct process *p, uint64_t context)
{
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_CONTEXT, context);
    bool last = e && (e->a == 0 || --e->a == 0);
    sys_unlock(&p->lock);
    return last;
}

#define END_PRIMARY(symbol, ends)                                                        \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct process *p = resolve_nested() ? NULL : process_get();                     \
        CUresult rc;                                                                     \
        if (!p || device < 0 || device >= PROCESS_DEVICES)                               \
            return real(device);                                                         \
        uint64_t context = __atomic_load_n(&p->primary[device], __ATOMIC_RELAXED);       \
        if (!(ends))                                                                     \
            return real(device);                                                         \
        DESTROY(p, context, device);                                                     \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease, drop_user(p, context));
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, drop_user(p, context));
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxReset, true);
}

LIMIT_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, true);
}
