/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation nodes of graphs, whose memory later nodes use again. */
#include "limit/limit.h"

#include "limit/calls.h"
#include "limit/sys.h"

static uint64_t key_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

/* The number of a graph: a handle can be used again while executable graphs of the old graph
 * live. 0: out of memory. Locked. */
static uint64_t number_of(struct process *p, CUgraph graph)
{
    struct entry *e = table_find(&p->table, KIND_GRAPH, key_of(graph));
    if (e)
        return e->a;
    uint64_t number = ++p->next_number;
    if (!(e = table_add(&p->table, KIND_NUMBER, number)))
        return 0;
    e->a = 1;
    if (!(e = table_add(&p->table, KIND_GRAPH, key_of(graph))))
        return 0;
    return e->a = number;
}

/*
 * What the nodes on the way to a new one have freed, `bytes` at most. take: it is used up. A
 * graph that is too wide to look at counts as one that frees nothing. Locked.
 */
enum { WALK_NODES = 256 };
static uint64_t freed_before(struct process *p, CUgraph graph, const CUgraphNode *from,
                             size_t n, uint64_t bytes, bool take)
{
    const struct entry *g = table_find(&p->table, KIND_GRAPH, key_of(graph));
    uint64_t number = g ? g->a : 0;
    CUgraphNode seen[WALK_NODES];
    size_t have = 0;
    uint64_t sum = 0;
    __typeof__(&cuGraphNodeGetDependencies) get = DRIVER(cuGraphNodeGetDependencies);
    for (size_t i = 0; from && i < n && have < WALK_NODES; i++)
        seen[have++] = from[i];
    for (size_t i = 0; i < have && sum < bytes; i++) {
        struct entry *e = table_find(&p->table, KIND_FREED, key_of(seen[i]));
        if (e && e->a == number) {
            uint64_t part = e->b < bytes - sum ? e->b : bytes - sum;
            sum += part;
            e->b -= take ? part : 0;
        }
        CUgraphNode next[WALK_NODES];
        size_t k = WALK_NODES;
        if (!get || LIMIT_CALL(get(seen[i], next, &k)) != CUDA_SUCCESS)
            continue;
        for (size_t j = 0; j < k && have < WALK_NODES; j++) {
            size_t old = 0;
            while (old < have && seen[old] != next[j])
                old++;
            if (old == have)
                seen[have++] = next[j];
        }
    }
    return sum;
}

CUresult graph_reserve(struct account *a, CUgraph graph, uint64_t bytes,
                       const CUgraphNode *from, size_t n)
{
    sys_lock(&a->process->lock);
    uint64_t again = freed_before(a->process, graph, from, n, bytes, false);
    sys_unlock(&a->process->lock);
    return account_reserve(a, bytes - again);
}

CUresult graph_end(struct account *a, CUresult rc, CUgraph graph, uint64_t bytes,
                   const CUgraphNode *from, size_t n, const CUdeviceptr *pointer)
{
    CUdeviceptr at = rc == CUDA_SUCCESS ? *pointer : 0;
    uint64_t again = bytes - a->bytes;
    a->context = 0;
    rc = account_end(a, rc, KIND_NODE, at);
    if (rc != CUDA_SUCCESS)
        return rc;
    sys_lock(&a->process->lock);
    freed_before(a->process, graph, from, n, again, true);
    uint64_t number = number_of(a->process, graph);
    struct entry *e = table_find(&a->process->table, KIND_NODE, at);
    if (e) {
        e->a = number;
        e->b = bytes;
    }
    sys_unlock(&a->process->lock);
    return rc;
}

void graph_freed(struct process *p, CUgraph graph, CUdeviceptr pointer, CUgraphNode node)
{
    sys_lock(&p->lock);
    const struct entry *g = table_find(&p->table, KIND_GRAPH, key_of(graph));
    struct entry *e = table_find(&p->table, KIND_NODE, pointer);
    uint64_t number = e ? e->a : 0, bytes = e ? e->b : 0;
    if (e)
        e->b = 0;
    if (bytes && g && g->a == number &&
        (e = table_add(&p->table, KIND_FREED, key_of(node)))) {
        e->a = number;
        e->b = bytes;
    }
    sys_unlock(&p->lock);
}

bool graph_has(struct process *p, CUdeviceptr pointer)
{
    sys_lock(&p->lock);
    bool has = table_find(&p->table, KIND_NODE, pointer);
    sys_unlock(&p->lock);
    return has;
}

static bool lives(const struct process *p, const struct entry *node)
{
    return table_find(&p->table, KIND_NUMBER, node->a) != NULL;
}

/* Releases the nodes of destroyed graphs, except for what the driver still holds. Locked. */
static void release_nodes(struct process *p, int card, uint64_t held)
{
    struct table *t = &p->table;
    uint64_t living = 0, ended = 0;
    for (struct entry *e = NULL; (e = table_next(t, e));)
        if (e->kind == KIND_NODE && e->card == card)
            *(lives(p, e) ? &living : &ended) += e->bytes;
    uint64_t keep = held > living ? held - living : 0;
    for (size_t i = 0; i < t->size; i++) {
        struct entry *e = &t->at[i];
        while (((e->kind == KIND_NODE && e->card == card) || e->kind == KIND_FREED) &&
               !lives(p, e) && ended >= keep + e->bytes) {
            ended -= e->bytes;
            process_release_locked(p, card, e->bytes);
            table_remove(t, e); /* another entry can move here */
        }
    }
}

/* pool_lock: a graph that is launched and destroyed after the driver's answer must not count as
 * destroyed, because the answer does not include its memory. */
static void settle(struct process *p, CUdevice device, int card)
{
    uint64_t held;
    __typeof__(&cuDeviceGetGraphMemAttribute) get = DRIVER(cuDeviceGetGraphMemAttribute);
    sys_lock(&p->pool_lock);
    if (get && get(device, CU_GRAPH_MEM_RESERVED_CURRENT, &held) == CUDA_SUCCESS) {
        sys_lock(&p->lock);
        release_nodes(p, card, held);
        sys_unlock(&p->lock);
    }
    sys_unlock(&p->pool_lock);
}

void graph_trim(struct process *p, int card)
{
    __typeof__(&cuDeviceGraphMemTrim) real = DRIVER(cuDeviceGraphMemTrim);
    if (!real || !__atomic_load_n(&p->next_number, __ATOMIC_RELAXED))
        return; /* without a graph, the driver's function must not make a context */
    for (CUdevice d = 0; d < PROCESS_DEVICES; d++)
        if (__atomic_load_n(&p->device_card[d], __ATOMIC_RELAXED) == card + 1) {
            LIMIT_CALL(real(d));
            settle(p, d, card);
        }
}

LIMIT_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    LIMIT_REAL(cuDeviceGraphMemTrim);
    struct account a;
    CUresult rc = real(device);
    if (rc == CUDA_SUCCESS && account_begin_device(&a, device))
        settle(a.process, device, a.card);
    return rc;
}

/* -- Nodes -- */

/* After a node that frees `pointer`. */
static CUresult add_free(CUresult rc, CUgraph graph, const CUgraphNode *node,
                         CUdeviceptr pointer)
{
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (p && pointer)
        graph_freed(p, graph, pointer, *node);
    return rc;
}

#define ADD_NODE(symbol, params, freed, ...)                                             \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        CUallocNode *alloc = (params);                                                   \
        CUdeviceptr pointer = (freed);                                                   \
        struct account a;                                                                \
        if (!alloc || alloc->pool.location.type != CU_LOCATION_DEVICE ||                 \
            !account_begin_device(&a, alloc->pool.location.id))                          \
            return add_free(real(__VA_ARGS__), graph, node, pointer);                    \
        CUresult rc = graph_reserve(&a, graph, alloc->bytes, from, n);                   \
        if (rc != CUDA_SUCCESS)                                                          \
            return rc;                                                                   \
        rc = LIMIT_CALL(real(__VA_ARGS__));                                              \
        return graph_end(&a, rc, graph, alloc->bytes, from, n, &alloc->pointer);         \
    } while (0)

LIMIT_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                             const CUgraphNode *from, size_t n,
                                             CUallocNode *params)
{
    ADD_NODE(cuGraphAddMemAllocNode, params, 0, node, graph, from, n, params);
}

LIMIT_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph,
                                            const CUgraphNode *from, size_t n,
                                            CUdeviceptr pointer)
{
    LIMIT_REAL(cuGraphAddMemFreeNode);
    return add_free(real(node, graph, from, n, pointer), graph, node, pointer);
}

static CUallocNode *alloc_of(CUnodeParams *params)
{
    return params && params->type == CU_NODE_MEM_ALLOC ? &params->alloc : NULL;
}

static CUdeviceptr freed_by(const CUnodeParams *params)
{
    return params && params->type == CU_NODE_MEM_FREE ? params->freed : 0;
}

LIMIT_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *from, size_t n,
                                     CUnodeParams *params)
{
    ADD_NODE(cuGraphAddNode, alloc_of(params), freed_by(params), node, graph, from, n,
             params);
}

LIMIT_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                                        const CUgraphNode *from, const void *edges,
                                        size_t n, CUnodeParams *params)
{
    ADD_NODE(cuGraphAddNode_v2, alloc_of(params), freed_by(params), node, graph, from,
             edges, n, params);
}

/* -- Graphs and executable graphs -- */

/* After the handle was forgotten, and the driver answered rc. */
static CUresult destroyed(const struct entry *taken, CUresult rc)
{
    struct process *p = process_get();
    account_free_end(taken, rc);
    if (!p || rc != CUDA_SUCCESS)
        return rc;
    sys_lock(&p->pool_lock);
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_NUMBER, taken->a);
    if (e && --e->a == 0)
        table_remove(&p->table, e);
    sys_unlock(&p->lock);
    sys_unlock(&p->pool_lock);
    return rc;
}

/* Forgets the handle before the driver destroys it, because the driver can give it to another
 * thread at once. */
#define DESTROY(symbol, kind, handle)                                                    \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        struct entry taken;                                                              \
        if (!account_free_begin(&taken, kind, key_of(handle)))                           \
            return real(handle);                                                         \
        return destroyed(&taken, real(handle));                                          \
    } while (0)

LIMIT_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    DESTROY(cuGraphDestroy, KIND_GRAPH, graph);
}

LIMIT_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    DESTROY(cuGraphExecDestroy, KIND_EXEC, exec);
}

static CUresult instantiated(CUresult rc, const CUgraphExec *exec, CUgraph graph)
{
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (!p)
        return rc;
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_GRAPH, key_of(graph));
    uint64_t number = e ? e->a : 0; /* 0: a graph without allocation nodes */
    if (number && (e = table_add(&p->table, KIND_EXEC, key_of(*exec)))) {
        e->a = number;
        if ((e = table_find(&p->table, KIND_NUMBER, number)))
            e->a++;
    }
    sys_unlock(&p->lock);
    return rc;
}

#define INSTANTIATE(symbol, ...)                                                         \
    do {                                                                                 \
        LIMIT_REAL(symbol);                                                              \
        return instantiated(real(__VA_ARGS__), exec, graph);                             \
    } while (0)

LIMIT_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph,
                                         CUgraphNode *node, char *log, size_t max)
{
    INSTANTIATE(cuGraphInstantiate, exec, graph, node, log, max);
}

LIMIT_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph,
                                            CUgraphNode *node, char *log, size_t max)
{
    INSTANTIATE(cuGraphInstantiate_v2, exec, graph, node, log, max);
}

LIMIT_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                                  unsigned long long flags)
{
    INSTANTIATE(cuGraphInstantiateWithFlags, exec, graph, flags);
}

LIMIT_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                   void *params)
{
    INSTANTIATE(cuGraphInstantiateWithParams, exec, graph, params);
}

LIMIT_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                        void *params)
{
    INSTANTIATE(cuGraphInstantiateWithParams_ptsz, exec, graph, params);
}
