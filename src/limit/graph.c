/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation nodes of graphs, whose memory later nodes use again. */
#include "limit/limit.h"

#include "limit/sys.h"

/* The number of a graph: a handle can be used again while executable graphs of the old graph
 * live. 0: out of memory. Locked. */
static uint64_t number_of(struct process *p, uint64_t graph)
{
    struct entry *e = table_find(&p->table, KIND_GRAPH, graph);
    if (e)
        return e->a;
    uint64_t number = ++p->next_number;
    if (!(e = table_add(&p->table, KIND_NUMBER, number)))
        return 0;
    e->a = 1;
    if (!(e = table_add(&p->table, KIND_GRAPH, graph)))
        return 0;
    return e->a = number;
}

/*
 * What the nodes on the way to a new one have freed, `bytes` at most. take: it is used up. A
 * graph that is too wide to look at counts as one that frees nothing. Locked.
 */
enum { WALK_NODES = 256 };
static uint64_t freed_before(struct process *p, uint64_t graph, const uint64_t *from,
                             size_t n, uint64_t bytes, bool take)
{
    const struct entry *g = table_find(&p->table, KIND_GRAPH, graph);
    uint64_t number = g ? g->a : 0;
    uint64_t seen[WALK_NODES];
    size_t have = 0;
    uint64_t sum = 0;
    for (size_t i = 0; from && i < n && have < WALK_NODES; i++)
        seen[have++] = from[i];
    for (size_t i = 0; i < have && sum < bytes; i++) {
        struct entry *e = table_find(&p->table, KIND_FREED, seen[i]);
        if (e && e->a == number) {
            uint64_t part = smaller(e->b, bytes - sum);
            sum += part;
            e->b -= take ? part : 0;
        }
        uint64_t next[WALK_NODES];
        size_t k = WALK_NODES;
        if (DRIVER(cuGraphNodeGetDependencies, seen[i], WORD(next), WORD(&k)) !=
            CUDA_SUCCESS)
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

CUresult graph_alloc(enum call call, const uint64_t *words, struct account *a,
                     uint64_t graph, uint64_t bytes, const uint64_t *from, size_t n,
                     const uint64_t *pointer)
{
    struct process *p = a->process;
    sys_lock(&p->lock);
    uint64_t again = freed_before(p, graph, from, n, bytes, false);
    sys_unlock(&p->lock);
    LIMIT_RESERVE(a, bytes - again);
    a->context = 0;
    CUresult rc = account_end(a, resolve_call(call, words), KIND_NODE, pointer);
    if (rc != CUDA_SUCCESS)
        return rc;
    sys_lock(&p->lock);
    freed_before(p, graph, from, n, again, true);
    uint64_t number = number_of(p, graph);
    struct entry *e = table_find(&p->table, KIND_NODE, *pointer);
    if (e) {
        e->a = number;
        e->b = bytes;
    }
    sys_unlock(&p->lock);
    return rc;
}

void graph_freed(struct process *p, uint64_t graph, uint64_t pointer, uint64_t node)
{
    const struct entry *g = table_find(&p->table, KIND_GRAPH, graph);
    struct entry *e = table_find(&p->table, KIND_NODE, pointer);
    uint64_t number = e ? e->a : 0, bytes = e ? e->b : 0;
    if (e)
        e->b = 0;
    if (bytes && g && g->a == number && (e = table_add(&p->table, KIND_FREED, node))) {
        e->a = number;
        e->b = bytes;
    }
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
    uint64_t keep = minus(held, living);
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
    sys_lock(&p->pool_lock);
    if (DRIVER(cuDeviceGetGraphMemAttribute, device, CU_GRAPH_MEM_RESERVED_CURRENT,
               WORD(&held)) == CUDA_SUCCESS) {
        sys_lock(&p->lock);
        release_nodes(p, card, held);
        sys_unlock(&p->lock);
    }
    sys_unlock(&p->pool_lock);
}

void graph_trim(struct process *p, int card)
{
    if (!__atomic_load_n(&p->next_number, __ATOMIC_RELAXED))
        return; /* without a graph, the driver's function must not make a context */
    for (CUdevice d = 0; d < PROCESS_DEVICES; d++)
        if (__atomic_load_n(&p->device_card[d], __ATOMIC_RELAXED) == card + 1) {
            DRIVER(cuDeviceGraphMemTrim, d);
            settle(p, d, card);
        }
}

CUresult graph_trim_device(enum call call, const uint64_t *words)
{
    struct account a;
    CUdevice device = (CUdevice)words[0];
    CUresult rc = resolve_pass(call, words);
    if (rc == CUDA_SUCCESS && account_begin_device(&a, device))
        settle(a.process, device, a.card);
    return rc;
}

/* -- Nodes: the parameters are where to write the node, graph, nodes before it, perhaps their
 * edges, number of nodes, and what is specific to the node -- */

static CUresult add_alloc(enum call call, const uint64_t *words, size_t n,
                          CUallocNode *node)
{
    struct account a;
    if (node->pool.location.type != CU_LOCATION_DEVICE ||
        !account_begin_device(&a, node->pool.location.id))
        return resolve_call(call, words);
    return graph_alloc(call, words, &a, words[1], node->bytes, (const uint64_t *)words[2],
                       n, &node->pointer);
}

CUresult graph_add_alloc(enum call call, const uint64_t *words)
{
    CUallocNode *node = (void *)words[4];
    return node ? add_alloc(call, words, words[3], node) : resolve_call(call, words);
}

void graph_added_free(struct process *p, const uint64_t *words)
{
    graph_freed(p, words[1], words[4], word_at(words[0]));
}

CUresult graph_add_node(enum call call, const uint64_t *words, int at)
{
    CUnodeParams *params = (void *)words[at + 1];
    if (params && params->type == CU_NODE_MEM_ALLOC)
        return add_alloc(call, words, words[at], &params->alloc);
    if (!params || params->type != CU_NODE_MEM_FREE)
        return resolve_call(call, words);
    uint64_t free_node[] = {words[0], words[1], 0, 0, params->freed};
    CUresult rc = resolve_call(call, words);
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (p) {
        sys_lock(&p->lock);
        graph_added_free(p, free_node);
        sys_unlock(&p->lock);
    }
    return rc;
}

/* -- Graphs and executable graphs -- */

/* Forgets the handle before the driver destroys it, because the driver can give it to another
 * thread at once. */
CUresult graph_destroy(enum call call, const uint64_t *words, int kind)
{
    struct entry taken;
    if (!account_free_begin(&taken, (enum kind)kind, words[0]))
        return resolve_pass(call, words);
    CUresult rc = account_free_end(&taken, resolve_pass(call, words));
    struct process *p = process_get();
    if (!p || rc != CUDA_SUCCESS)
        return rc;
    sys_lock(&p->pool_lock);
    sys_lock(&p->lock);
    struct entry *e = table_find(&p->table, KIND_NUMBER, taken.a);
    if (e && --e->a == 0)
        table_remove(&p->table, e);
    sys_unlock(&p->lock);
    sys_unlock(&p->pool_lock);
    return rc;
}

void graph_instantiated(struct process *p, const uint64_t *words)
{
    struct entry *e = table_find(&p->table, KIND_GRAPH, words[1]);
    uint64_t number = e ? e->a : 0; /* 0: a graph without allocation nodes */
    if (number && (e = table_add(&p->table, KIND_EXEC, word_at(words[0])))) {
        e->a = number;
        if ((e = table_find(&p->table, KIND_NUMBER, number)))
            e->a++;
    }
}
