/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools and stream-ordered allocations. */
#include "limit/limit.h"

#include "limit/calls.h"
#include "limit/sys.h"

#include <string.h>

/* The smallest unit of physical memory: cuMemGetAllocationGranularity on today's cards. */
enum { PAGE = 2 << 20, BATCH = 32 };
/* By how much a pool grows until the processes of the pod have seen it. */
enum { USUAL_CHUNK = 32 << 20 };

static bool read_attribute(uint64_t pool, int which, uint64_t *value)
{
    __typeof__(&cuMemPoolGetAttribute) get = DRIVER(cuMemPoolGetAttribute);
    return get && get((CUmemoryPool)(uintptr_t)pool, which, value) == CUDA_SUCCESS;
}

/* Counts what the pool holds now, after `done` reserved bytes became part of it. False: it took
 * more than that, and this does not fit; with `force` it counts nevertheless. The caller holds
 * pool_lock: two threads must not count in another order than that in which they read. */
static bool settle_locked(struct process *p, uint64_t pool, uint64_t done, bool force)
{
    bool fits = true;
    uint64_t held;
    bool known = read_attribute(pool, CU_POOL_RESERVED_CURRENT, &held);
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->pools, KIND_POOL, pool);
    if (e && e->card >= 0) {
        e->a -= done < e->a ? done : e->a;
        held = (known ? held : e->b) + e->a;
        if (held <= e->bytes)
            process_release_locked(p, e->card, e->bytes - held);
        else if (force)
            process_force_locked(p, e->card, held - e->bytes);
        else
            fits = process_reserve_locked(p, e->card, held - e->bytes);
        e->bytes = fits ? held : e->bytes;
    }
    sys_unlock(&p->lock);
    return fits;
}

static bool settle(struct process *p, uint64_t pool, uint64_t done, bool force)
{
    sys_lock(&p->pool_lock);
    bool fits = settle_locked(p, pool, done, force);
    sys_unlock(&p->pool_lock);
    return fits;
}

/* The pools of a card (-1: of all), from place `*at` of their table on. */
static int list(struct process *p, int card, size_t *at, uint64_t pools[static BATCH])
{
    int n = 0;
    sys_lock(&p->lock);
    for (; *at < p->pools.size && n < BATCH; ++*at) {
        const struct entry *e = &p->pools.at[*at];
        if (e->kind && e->card >= 0 && (card < 0 || e->card == card))
            pools[n++] = e->key;
    }
    sys_unlock(&p->lock);
    return n;
}

static void trim(uint64_t pool)
{
    __typeof__(&cuMemPoolTrimTo) real = DRIVER(cuMemPoolTrimTo);
    if (real)
        LIMIT_CALL(real((CUmemoryPool)(uintptr_t)pool, 0));
}

static void settle_all(struct process *p, int card, bool trim_first)
{
    uint64_t pools[BATCH];
    size_t at = 0;
    for (int n; (n = list(p, card, &at, pools)) > 0;)
        for (int i = 0; i < n; i++) {
            if (trim_first)
                trim(pools[i]);
            settle(p, pools[i], 0, true);
        }
}

void pool_trim(struct process *p, int card)
{
    if (__atomic_load_n(&p->pools.n, __ATOMIC_RELAXED))
        settle_all(p, card, true);
}

/* -- Allocation -- */

/* An allocation from a pool. `held`: bytes reserved for it. `in_room`: nothing is reserved,
 * because the pool has room, and this thread holds pool_lock until the allocation is counted. */
struct request {
    struct account a;
    uint64_t pool, bytes, held, before; /* before: what the pool had, 0: not known */
    bool in_room;
};

/* The card of a pool that the program did not make: the pool of a device, else `other`. */
static int card_of(struct process *p, uint64_t pool, int other)
{
    __typeof__(&cuDeviceGetMemPool) of[] = {DRIVER(cuDeviceGetMemPool),
                                            DRIVER(cuDeviceGetDefaultMemPool)};
    __typeof__(&cuDeviceGetCount) count = DRIVER(cuDeviceGetCount);
    CUmemoryPool found;
    CUresult read;
    int n = 0;
    if (!count || count(&n) != CUDA_SUCCESS)
        n = 0;
    for (CUdevice d = 0; d < n; d++)
        for (int i = 0; i < 2; i++)
            if (of[i] && LIMIT_CALL(of[i](&found, d)) == CUDA_SUCCESS &&
                (uint64_t)(uintptr_t)found == pool)
                return account_card(p, d, &read);
    return other;
}

/* Finds or makes the entry of the pool. False: its memory is that of the host. */
static bool find_pool(struct request *r)
{
    struct process *p = r->a.process;
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->pools, KIND_POOL, r->pool);
    if (e)
        r->a.card = e->card;
    sys_unlock(&p->lock);
    if (e)
        return r->a.card >= 0;
    int card = r->pool ? card_of(p, r->pool, r->a.card) : CARD_NONE;
    sys_lock(&p->lock);
    if (card != CARD_NONE && (e = table_add(&p->pools, KIND_POOL, r->pool)))
        e->card = card;
    sys_unlock(&p->lock);
    r->a.card = e ? card : CARD_NONE;
    return true;
}

/* Is the allocation possible with memory that the pool holds already? While the caller holds
 * pool_lock, the bytes that count for the pool do not fall. If other threads use the room first,
 * the pool grows by no more than the bytes that they reserved. */
static bool has_room(const struct request *r)
{
    uint64_t held, used;
    return read_attribute(r->pool, CU_POOL_RESERVED_CURRENT, &held) &&
           read_attribute(r->pool, CU_POOL_USED_CURRENT, &used) && used <= held &&
           r->bytes <= held - used;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

static uint64_t *chunk_of(struct process *p, int card)
{
    struct limit_state *s = process_state(p, card);
    return s ? &s->chunk : NULL;
}

/* The pool grew for a small allocation. Other threads can make it grow more meanwhile, so that
 * the least counts. */
static void learn_chunk(const struct request *r)
{
    uint64_t after, *chunk = chunk_of(r->a.process, r->a.card);
    if (!chunk || !r->before || r->bytes > PAGE ||
        !read_attribute(r->pool, CU_POOL_RESERVED_CURRENT, &after) || after < r->before)
        return;
    uint64_t grown = after - (r->before - 1);
    uint64_t known = __atomic_load_n(chunk, __ATOMIC_RELAXED);
    if (grown && (!known || grown < known))
        __atomic_store_n(chunk, grown, __ATOMIC_RELAXED);
}

/* Reserves what the pool will take. Where it grows by more than a page, its free memory is looked
 * at first, so that nothing is reserved in vain. */
static CUresult request_begin(struct request *r)
{
    struct process *p = r->a.process;
    uint64_t *chunk = chunk_of(p, r->a.card);
    uint64_t known = chunk ? __atomic_load_n(chunk, __ATOMIC_RELAXED) : PAGE;
    uint64_t unit = known ? known : USUAL_CHUNK;
    unit = unit < PAGE ? PAGE : unit;
    uint64_t pages = round_up(r->bytes, unit);
    if (unit > PAGE || !process_reserve(p, r->a.card, pages)) {
        sys_lock(&p->pool_lock);
        r->in_room = has_room(r);
        if (r->in_room)
            return CUDA_SUCCESS;
        if (!known && read_attribute(r->pool, CU_POOL_RESERVED_CURRENT, &r->before))
            r->before++;
        sys_unlock(&p->pool_lock);
        CUresult rc = CUDA_SUCCESS;
        if (unit == PAGE || known)
            rc = account_reserve(&r->a, pages);
        else if (!process_reserve(p, r->a.card, pages)) /* perhaps it grows by less */
            rc = account_reserve(&r->a, pages = round_up(r->bytes, PAGE));
        if (rc != CUDA_SUCCESS)
            return rc;
    }
    r->held = pages;
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->pools, KIND_POOL, r->pool);
    if (e) {
        e->a += r->held;
        e->bytes += r->held;
    }
    sys_unlock(&p->lock);
    return CUDA_SUCCESS;
}

static bool record(const struct request *r, CUdeviceptr pointer)
{
    struct process *p = r->a.process;
    sys_lock(&p->lock);
    struct entry *e = table_add(&p->table, KIND_POOLED, pointer);
    if (e) {
        e->card = r->a.card;
        e->a = r->pool;
        e->b = r->bytes;
    }
    struct entry *pool = e ? table_find(&p->pools, KIND_POOL, r->pool) : NULL;
    if (pool)
        pool->b += r->bytes;
    sys_unlock(&p->lock);
    return e != NULL;
}

static bool request_settle(const struct request *r, bool force)
{
    struct process *p = r->a.process;
    if (!r->in_room)
        sys_lock(&p->pool_lock);
    bool fits = settle_locked(p, r->pool, r->held, force);
    sys_unlock(&p->pool_lock);
    return fits;
}

/* The driver answered rc. The pool may have taken more than was reserved. */
static CUresult request_end(const struct request *r, CUresult rc,
                            const CUdeviceptr *pointer, CUstream stream,
                            __typeof__(&cuMemFreeAsync) release)
{
    struct process *p = r->a.process;
    if (rc != CUDA_SUCCESS) {
        request_settle(r, true);
        return rc;
    }
    learn_chunk(r);
    bool recorded = record(r, *pointer);
    if (request_settle(r, !release) && recorded)
        return rc;
    struct entry taken = {0};
    bool found = account_free_begin(&taken, KIND_POOLED, *pointer);
    rc = release ? LIMIT_CALL(release(*pointer, stream)) : CUDA_SUCCESS;
    trim(r->pool);
    if (found)
        account_free_end(&taken, rc);
    settle(p, r->pool, 0, true);
    process_refused(p, r->a.card);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Is the stream being captured? Then the call becomes a node of this graph, which depends on
 * those of `capture`. */
enum { CAPTURE_NODES = 8 };
struct capture {
    CUgraph graph;
    CUgraphNode from[CAPTURE_NODES]; /* more are not looked at */
    size_t count;
};
static bool is_captured(__typeof__(&cuStreamGetCaptureInfo_v2) info, CUstream stream,
                        struct capture *c)
{
    int status = 0;
    uint64_t id;
    const CUgraphNode *from = NULL;
    if (!info ||
        info(stream, &status, &id, &c->graph, &from, &c->count) != CUDA_SUCCESS ||
        status != 1)
        return false;
    c->count = !from ? 0 : c->count < CAPTURE_NODES ? c->count : CAPTURE_NODES;
    memcpy(c->from, from, c->count * sizeof *from);
    return true;
}

/* The pool that cuMemAllocAsync takes: that of the current device. */
static CUmemoryPool current_pool(void)
{
    __typeof__(&cuDeviceGetMemPool) get = DRIVER(cuDeviceGetMemPool);
    __typeof__(&cuCtxGetDevice) get_device = DRIVER(cuCtxGetDevice);
    CUdevice device;
    CUmemoryPool pool = NULL;
    if (!get || !get_device || get_device(&device) != CUDA_SUCCESS ||
        get(&pool, device) != CUDA_SUCCESS)
        return NULL;
    return pool;
}

/* Finds the card, and the pool unless the call names it: those of the stream's context, which
 * need not be the current one. False: the driver refuses the call, or there is no limit. */
static bool request_find(struct request *r, CUstream stream)
{
    CUcontext context = NULL;
    __typeof__(&cuStreamGetCtx) get = DRIVER(cuStreamGetCtx);
    __typeof__(&cuCtxPushCurrent_v2) push = DRIVER(cuCtxPushCurrent_v2);
    __typeof__(&cuCtxPopCurrent_v2) pop = DRIVER(cuCtxPopCurrent_v2);
    if (resolve_nested() || !process_get())
        return false;
    /* The special handles are streams of the current context. */
    bool pushed = (uintptr_t)stream > CU_STREAM_PER_THREAD && get && push && pop &&
                  LIMIT_CALL(get(stream, &context)) == CUDA_SUCCESS && context &&
                  LIMIT_CALL(push(context)) == CUDA_SUCCESS;
    bool found = account_begin(&r->a);
    if (found && !r->pool)
        r->pool = (uint64_t)(uintptr_t)current_pool();
    if (pushed)
        LIMIT_CALL(pop(&context));
    return found;
}

#define ALLOCATE(symbol, own_pool, suffix, pointer, n, stream, ...)                      \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct request r = {.bytes = n, .pool = (uint64_t)(uintptr_t)(own_pool)};        \
        struct capture c;                                                                \
        if (!request_find(&r, stream))                                                   \
            return real(__VA_ARGS__);                                                    \
        if (is_captured(DRIVER(cuStreamGetCaptureInfo_v2##suffix), stream, &c)) {        \
            CUresult captured = graph_reserve(&r.a, c.graph, n, c.from, c.count);        \
            if (captured != CUDA_SUCCESS)                                                \
                return captured;                                                         \
            captured = real(__VA_ARGS__);                                                \
            return graph_end(&r.a, captured, c.graph, n, c.from, c.count, pointer);      \
        }                                                                                \
        if (!find_pool(&r))                                                              \
            return real(__VA_ARGS__);                                                    \
        CUresult rc = request_begin(&r);                                                 \
        if (rc != CUDA_SUCCESS)                                                          \
            return rc;                                                                   \
        rc = LIMIT_CALL(real(__VA_ARGS__));                                              \
        return request_end(&r, rc, pointer, stream, DRIVER(cuMemFreeAsync##suffix));     \
    } while (0)

LIMIT_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream s)
{
    ALLOCATE(cuMemAllocAsync, NULL, , p, bytes, s, p, bytes, s);
}

LIMIT_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t bytes, CUstream s)
{
    ALLOCATE(cuMemAllocAsync_ptsz, NULL, _ptsz, p, bytes, s, p, bytes, s);
}

LIMIT_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes,
                                              CUmemoryPool pool, CUstream s)
{
    ALLOCATE(cuMemAllocFromPoolAsync, pool, , p, bytes, s, p, bytes, pool, s);
}

LIMIT_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *p, size_t bytes,
                                                   CUmemoryPool pool, CUstream s)
{
    ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pool, _ptsz, p, bytes, s, p, bytes, pool, s);
}

/* -- Frees -- */

void pool_freed(struct process *p, const struct entry *taken)
{
    sys_lock(&p->lock);
    struct entry *pool = table_find(&p->pools, KIND_POOL, taken->a);
    if (pool)
        pool->b -= taken->b < pool->b ? taken->b : pool->b;
    sys_unlock(&p->lock);
    if (taken->a)
        settle(p, taken->a, 0, true);
}

/* A captured free is the last node of its stream now. */
static void captured_free(__typeof__(&cuStreamGetCaptureInfo_v2) info,
                          CUdeviceptr pointer, CUstream stream)
{
    struct process *p = account_process();
    struct capture c;
    if (p && graph_has(p, pointer) && is_captured(info, stream, &c) && c.count == 1)
        graph_freed(p, c.graph, pointer, c.from[0]);
}

/* A pointer of cuMemAlloc can be freed in stream order too. */
#define FREE(symbol, suffix, pointer, stream)                                            \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct entry taken;                                                              \
        if (account_free_begin(&taken, KIND_LINEAR, pointer) ||                          \
            account_free_begin(&taken, KIND_POOLED, pointer))                            \
            return account_free_end(&taken, real(pointer, stream));                      \
        CUresult rc = real(pointer, stream);                                             \
        if (rc == CUDA_SUCCESS)                                                          \
            captured_free(DRIVER(cuStreamGetCaptureInfo_v2##suffix), pointer, stream);   \
        return rc;                                                                       \
    } while (0)

LIMIT_EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
    FREE(cuMemFreeAsync, , p, s);
}

LIMIT_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s)
{
    FREE(cuMemFreeAsync_ptsz, _ptsz, p, s);
}

/* -- Pools and synchronization -- */

/* A pool of the location. Managed memory without a preferred one is that of the stream's card,
 * which the first allocation says. */
static void record_pool(CUmemoryPool pool, const CUmemLocation *location, bool managed)
{
    struct process *p = account_process();
    CUresult read = CUDA_SUCCESS;
    if (!p || (managed && location->type != CU_LOCATION_DEVICE))
        return;
    int card =
        location->type == CU_LOCATION_DEVICE ? account_card(p, location->id, &read) : -1;
    if (p->closed || read != CUDA_SUCCESS)
        return;
    sys_lock(&p->lock);
    struct entry *e = table_add(&p->pools, KIND_POOL, (uint64_t)(uintptr_t)pool);
    if (e)
        e->card = card;
    sys_unlock(&p->lock);
}

LIMIT_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUpoolProps *props)
{
    LIMIT_REAL(cuMemPoolCreate);
    CUresult rc = real(pool, props);
    if (rc == CUDA_SUCCESS)
        record_pool(*pool, &props->location, props->type == CU_MANAGED);
    return rc;
}

#define GET_POOL(symbol)                                                                 \
    LIMIT_EXPORT CUresult symbol(CUmemoryPool *pool, CUmemLocation *location, int type)  \
    {                                                                                    \
        LIMIT_REAL(symbol);                                                              \
        CUresult rc = real(pool, location, type);                                        \
        if (rc == CUDA_SUCCESS)                                                          \
            record_pool(*pool, location, type == CU_MANAGED);                            \
        return rc;                                                                       \
    }
GET_POOL(cuMemGetDefaultMemPool)
GET_POOL(cuMemGetMemPool)

/* The memory of a destroyed pool lives as long as its pointers: each counts for itself. */
static void part(struct process *p, uint64_t pool)
{
    sys_lock(&p->lock);
    for (struct entry *e = NULL; (e = table_next(&p->table, e));)
        if (e->kind == KIND_POOLED && e->a == pool) {
            e->a = 0;
            e->bytes = e->card >= 0 ? e->b : 0;
        }
    struct entry *e = table_find(&p->pools, KIND_POOL, pool);
    if (e && e->card >= 0) {
        if (e->bytes >= e->b)
            process_release_locked(p, e->card, e->bytes - e->b);
        else
            process_force_locked(p, e->card, e->b - e->bytes);
    }
    if (e)
        table_remove(&p->pools, e);
    sys_unlock(&p->lock);
}

LIMIT_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    LIMIT_REAL(cuMemPoolDestroy);
    CUresult rc = real(pool);
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (p)
        part(p, (uint64_t)(uintptr_t)pool);
    return rc;
}

LIMIT_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    LIMIT_REAL(cuMemPoolTrimTo);
    CUresult rc = real(pool, keep);
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (p)
        settle(p, (uint64_t)(uintptr_t)pool, 0, true);
    return rc;
}

/* The driver returned what the pools need not keep. */
static CUresult synchronized(CUresult rc)
{
    struct process *p = account_process();
    if (p && __atomic_load_n(&p->pools.n, __ATOMIC_RELAXED))
        settle_all(p, -1, false);
    return rc;
}

#define SYNCHRONIZE(symbol, ...)                                                         \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        return synchronized(real(__VA_ARGS__));                                          \
    } while (0)

LIMIT_EXPORT CUresult cuStreamSynchronize(CUstream s)
{
    SYNCHRONIZE(cuStreamSynchronize, s);
}

LIMIT_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream s)
{
    SYNCHRONIZE(cuStreamSynchronize_ptsz, s);
}

LIMIT_EXPORT CUresult cuEventSynchronize(CUevent e)
{
    SYNCHRONIZE(cuEventSynchronize, e);
}

LIMIT_EXPORT CUresult cuCtxSynchronize(void)
{
    SYNCHRONIZE(cuCtxSynchronize);
}

LIMIT_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    SYNCHRONIZE(cuCtxSynchronize_v2, context);
}
