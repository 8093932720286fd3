/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools and stream-ordered allocations. */
#include "limit/limit.h"

#include "limit/sys.h"

#include <string.h>

/* The smallest unit of physical memory: cuMemGetAllocationGranularity on today's cards. */
enum { PAGE = 2 << 20 };
/* By how much a pool grows until the processes of the pod have seen it. */
enum { USUAL_CHUNK = 32 << 20 };

static bool read_attribute(uint64_t pool, int which, uint64_t *value)
{
    return DRIVER(cuMemPoolGetAttribute, pool, which, WORD(value)) == CUDA_SUCCESS;
}

/* Counts what the pool holds now, after `done` reserved bytes became part of it. False: it took
 * more than that, and this does not fit; with `force` it counts nevertheless. The caller holds
 * pool_lock: two threads must not count in another order than that in which they read. */
static bool settle_locked(struct process *p, uint64_t pool, uint64_t done, bool force)
{
    bool fits = true, silent = false;
    uint64_t held;
    bool known = read_attribute(pool, CU_POOL_RESERVED_CURRENT, &held);
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->pools, KIND_POOL, pool);
    if (e && e->card >= 0) {
        silent = !known;
        e->a = minus(e->a, done);
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
    if (silent)
        process_uncounted(p, LIMIT_UNCOUNTED, "cuMemPoolGetAttribute");
    return fits;
}

static bool settle(struct process *p, uint64_t pool, uint64_t done, bool force)
{
    sys_lock(&p->pool_lock);
    bool fits = settle_locked(p, pool, done, force);
    sys_unlock(&p->pool_lock);
    return fits;
}

/* The next pool of the card (-1: of any) from place `*at` of their table on, or 0. */
static uint64_t next_pool(struct process *p, int card, size_t *at)
{
    uint64_t pool = 0;
    sys_lock(&p->lock);
    while (*at < p->pools.size && !pool) {
        const struct entry *e = &p->pools.at[(*at)++];
        if (e->kind && e->card >= 0 && (card < 0 || e->card == card))
            pool = e->key;
    }
    sys_unlock(&p->lock);
    return pool;
}

void pool_settle(struct process *p, int card, bool trim)
{
    size_t at = 0;
    if (!__atomic_load_n(&p->pools.n, __ATOMIC_RELAXED))
        return;
    for (uint64_t pool; (pool = next_pool(p, card, &at));) {
        if (trim)
            DRIVER(cuMemPoolTrimTo, pool, 0);
        settle(p, pool, 0, true);
    }
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
    uint64_t found;
    CUresult read;
    int n = 0;
    if (DRIVER(cuDeviceGetCount, WORD(&n)) != CUDA_SUCCESS)
        n = 0;
    for (CUdevice d = 0; d < n; d++)
        if ((DRIVER(cuDeviceGetMemPool, WORD(&found), d) == CUDA_SUCCESS &&
             found == pool) ||
            (DRIVER(cuDeviceGetDefaultMemPool, WORD(&found), d) == CUDA_SUCCESS &&
             found == pool))
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
    bool done = unit == PAGE && process_reserve(p, r->a.card, pages);
    r->a.under_way = done;
    if (!done) {
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
        else if (process_reserve(p, r->a.card, pages))
            r->a.under_way = 1;
        else /* perhaps it grows by less */
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

static bool record(const struct request *r, uint64_t pointer)
{
    struct process *p = r->a.process;
    const struct account a = {.process = p, .card = r->a.card};
    sys_lock(&p->lock);
    struct entry *e = account_add(&a, KIND_LINEAR, pointer);
    if (e) {
        e->a = r->pool;
        e->b = r->bytes;
    }
    struct entry *pool = e ? table_find(&p->pools, KIND_POOL, r->pool) : NULL;
    if (pool)
        pool->b += r->bytes;
    sys_unlock(&p->lock);
    return e != NULL;
}

static bool request_settle(struct request *r, bool force)
{
    struct process *p = r->a.process;
    if (!r->in_room)
        sys_lock(&p->pool_lock);
    bool fits = settle_locked(p, r->pool, r->held, force);
    sys_unlock(&p->pool_lock);
    if (r->a.under_way) {
        sys_lock(&p->lock);
        account_landed(&r->a);
        sys_unlock(&p->lock);
    }
    return fits;
}

/* The driver answered rc. The pool may have taken more than was reserved. */
static CUresult request_end(struct request *r, CUresult rc, uint64_t pointer,
                            uint64_t stream)
{
    struct process *p = r->a.process;
    if (rc != CUDA_SUCCESS) {
        request_settle(r, true);
        return rc;
    }
    learn_chunk(r);
    bool recorded = record(r, pointer);
    if (request_settle(r, false) && recorded)
        return rc;
    account_free(CALL_cuMemFreeAsync, (const uint64_t[LIMIT_WORDS]){pointer, stream},
                 KIND_LINEAR);
    DRIVER(cuMemPoolTrimTo, r->pool, 0);
    settle(p, r->pool, 0, true);
    process_refused(p, r->a.card);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Is the stream being captured? Then the call becomes a node of this graph, which depends on
 * those of `capture`. */
enum { CAPTURE_NODES = 64 };
struct capture {
    uint64_t graph;
    uint64_t from[CAPTURE_NODES]; /* more are not looked at */
    size_t count;
};
static bool is_captured(struct process *p, uint64_t stream, struct capture *c)
{
    int status = 0;
    uint64_t id;
    const uint64_t *from = NULL, *edges;
    /* Without room for the data of edges, the driver refuses a capture that has some. */
    CUresult rc =
        resolve_real(CALL_cuStreamGetCaptureInfo_v3)
            ? DRIVER(cuStreamGetCaptureInfo_v3, stream, WORD(&status), WORD(&id),
                     WORD(&c->graph), WORD(&from), WORD(&edges), WORD(&c->count))
            : DRIVER(cuStreamGetCaptureInfo_v2, stream, WORD(&status), WORD(&id),
                     WORD(&c->graph), WORD(&from), WORD(&c->count));
    if (rc == CUDA_ERROR_NOT_SUPPORTED || rc == CUDA_ERROR_NOT_INITIALIZED)
        process_uncounted(p, LIMIT_UNCOUNTED, "cuStreamGetCaptureInfo");
    if (rc != CUDA_SUCCESS || status != 1)
        return false;
    c->count = !from ? 0 : c->count < CAPTURE_NODES ? c->count : CAPTURE_NODES;
    memcpy(c->from, from, c->count * sizeof *from);
    return true;
}

/* Finds the card, and the pool unless the call names it: those of the stream's device, which need
 * not be the current one. False: the driver refuses the call, or there is no limit, or `*rc` says
 * why the card is not known. Streams of green contexts have no context for cuStreamGetCtx. */
static bool request_find(struct request *r, uint64_t stream, CUresult *rc)
{
    uint64_t context = 0, green;
    CUdevice device = -1;
    *rc = CUDA_SUCCESS;
    if (!account_process())
        return false;
    /* The special handles are streams of the current context. */
    bool of_current = stream <= CU_STREAM_PER_THREAD, pushed = false, found;
    if (!of_current) {
        *rc = resolve_real(CALL_cuStreamGetCtx_v2)
                  ? DRIVER(cuStreamGetCtx_v2, stream, WORD(&context), WORD(&green))
                  : DRIVER(cuStreamGetCtx, stream, WORD(&context));
        if (*rc == CUDA_SUCCESS)
            *rc = DRIVER(cuCtxPushCurrent_v2, context);
        pushed = *rc == CUDA_SUCCESS;
    }
    if (of_current || pushed) {
        found = account_begin(&r->a);
        if (DRIVER(cuCtxGetDevice, WORD(&device)) != CUDA_SUCCESS)
            device = -1;
    } else if (DRIVER(cuStreamGetDevice, stream, WORD(&device)) == CUDA_SUCCESS) {
        *rc = CUDA_SUCCESS;
        found = account_begin_device(&r->a, device);
    } else {
        return false;
    }
    if (found && !r->pool &&
        DRIVER(cuDeviceGetMemPool, WORD(&r->pool), device) != CUDA_SUCCESS)
        r->pool = 0;
    if (pushed)
        DRIVER(cuCtxPopCurrent_v2, WORD(&context));
    return found;
}

/* The functions with per-thread streams understand the default stream so. */
static uint64_t stream_of(uint64_t stream, int flags)
{
    return !stream && flags & POOL_PER_THREAD ? CU_STREAM_PER_THREAD : stream;
}

/* Parameters: where to write the address, bytes, perhaps the pool, stream. */
CUresult pool_alloc(enum call call, const uint64_t *words, int flags)
{
    bool named = flags & POOL_NAMED;
    uint64_t stream = stream_of(words[named ? 3 : 2], flags);
    const uint64_t *pointer = (const uint64_t *)words[0];
    struct request r = {.bytes = words[1], .pool = named ? words[2] : 0};
    struct capture c;
    CUresult rc;
    if (!request_find(&r, stream, &rc))
        return rc == CUDA_SUCCESS ? resolve_call(call, words) : rc;
    if (!find_pool(&r))
        return resolve_call(call, words);
    if (is_captured(r.a.process, stream, &c))
        return graph_alloc(call, words, &r.a, c.graph, r.bytes, c.from, c.count, pointer);
    rc = request_begin(&r);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = resolve_call(call, words);
    return request_end(&r, rc, rc == CUDA_SUCCESS ? *pointer : 0, stream);
}

/* -- Frees -- */

void pool_freed(struct process *p, const struct entry *taken)
{
    sys_lock(&p->lock);
    struct entry *pool = table_find(&p->pools, KIND_POOL, taken->a);
    if (pool)
        pool->b = minus(pool->b, taken->b);
    sys_unlock(&p->lock);
    settle(p, taken->a, 0, true);
}

/* Parameters: address, stream. A pointer of cuMemAlloc can be freed in stream order too. A
 * captured free is the last node of its stream afterwards. */
CUresult pool_free(enum call call, const uint64_t *words, int flags)
{
    struct entry taken;
    struct process *p = account_process();
    struct capture c;
    if (account_free_begin(&taken, KIND_LINEAR, words[0]))
        return account_free_end(&taken, resolve_pass(call, words));
    CUresult rc = resolve_pass(call, words);
    if (rc == CUDA_SUCCESS && p && is_captured(p, stream_of(words[1], flags), &c) &&
        c.count == 1) {
        sys_lock(&p->lock);
        graph_freed(p, c.graph, words[0], c.from[0]);
        sys_unlock(&p->lock);
    }
    return rc;
}

/* -- Pools and synchronization -- */

/* A pool of the location. Managed memory without a preferred one is that of the stream's card,
 * which the first allocation says. */
static void record_pool(struct process *p, uint64_t pool, const CUmemLocation *location,
                        bool managed)
{
    CUresult read = CUDA_SUCCESS;
    bool on_card = location->type == CU_LOCATION_DEVICE;
    int card = on_card ? account_card(p, location->id, &read) : -1;
    if (p->closed || read != CUDA_SUCCESS || (managed && !on_card))
        return;
    struct entry *e = table_add(&p->pools, KIND_POOL, pool);
    if (e)
        e->card = card;
}

void pool_created(struct process *p, const uint64_t *words)
{
    const CUpoolProps *props = (const void *)words[1];
    record_pool(p, word_at(words[0]), &props->location, props->type == CU_MANAGED);
}

/* Parameters: where to write the pool, location, type. */
void pool_got(struct process *p, const uint64_t *words)
{
    record_pool(p, word_at(words[0]), (const void *)words[1],
                (int)words[2] == CU_MANAGED);
}

/* The memory of a destroyed pool lives as long as its pointers: each counts for itself. */
void pool_destroyed(struct process *p, const uint64_t *words)
{
    for (struct entry *e = NULL; (e = table_next(&p->table, e));)
        if (e->kind == KIND_LINEAR && e->a == words[0]) {
            e->a = 0;
            e->bytes = e->card >= 0 ? e->b : 0;
        }
    struct entry *e = table_find(&p->pools, KIND_POOL, words[0]);
    if (e && e->card >= 0) {
        if (e->bytes >= e->b)
            process_release_locked(p, e->card, e->bytes - e->b);
        else
            process_force_locked(p, e->card, e->b - e->bytes);
    }
    if (e)
        table_remove(&p->pools, e);
}

/* The driver returned what the pools need not keep. */
CUresult pool_synchronize(enum call call, const uint64_t *words)
{
    CUresult rc = resolve_pass(call, words);
    struct process *p = account_process();
    if (p) {
        pool_settle(p, -1, false);
        graph_settle(p);
    }
    return rc;
}
