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

/* The nodes that a node depends on: of very many, the first. 0: also if the driver does not say.
 * Without room for the data of edges, it refuses nodes that have some. */
enum { DEPENDENCIES = 256 };
static size_t read_dependencies(uint64_t node, uint64_t *into)
{
    uint64_t edges[DEPENDENCIES];
    size_t n = DEPENDENCIES;
    CUresult rc = resolve_real(CALL_cuGraphNodeGetDependencies_v2)
                      ? DRIVER(cuGraphNodeGetDependencies_v2, node, WORD(into),
                               WORD(edges), WORD(&n))
                      : DRIVER(cuGraphNodeGetDependencies, node, WORD(into), WORD(&n));
    return rc == CUDA_SUCCESS && n <= DEPENDENCIES ? n : 0;
}

/* Adds the node to those that are looked at: by its handle, and by its place. */
static void look_at(struct table *seen, size_t *n, uint64_t node)
{
    struct entry *e = table_find(seen, KIND_NODE, node) ? NULL
                      : table_add(seen, KIND_NODE, node)
                          ? table_add(seen, KIND_NUMBER, *n)
                          : NULL;
    if (e) {
        e->a = node;
        ++*n;
    }
}

/*
 * What the nodes on the way to a new one have freed, `bytes` at most. take: it is used up. Locked.
 */
static uint64_t freed_before(struct process *p, uint64_t graph, const uint64_t *from,
                             size_t n, uint64_t bytes, bool take)
{
    const struct entry *g = table_find(&p->table, KIND_GRAPH, graph);
    struct entry *number = g ? table_find(&p->table, KIND_NUMBER, g->a) : NULL;
    uint64_t sum = 0, left = number ? number->b : 0; /* ... and are not found yet */
    struct table seen = {0};
    uint64_t next[DEPENDENCIES];
    size_t have = 0;
    for (size_t i = 0; left && from && i < n; i++)
        look_at(&seen, &have, from[i]);
    for (size_t i = 0; i < have && sum < bytes && left; i++) {
        uint64_t node = table_find(&seen, KIND_NUMBER, i)->a;
        struct entry *e = table_find(&p->table, KIND_FREED, node);
        if (e && e->a == number->key) {
            uint64_t part = smaller(e->b, bytes - sum);
            left -= smaller(e->b, left);
            sum += part;
            e->b -= take ? part : 0;
            number->b -= take ? smaller(part, number->b) : 0;
        }
        for (size_t k = left ? read_dependencies(node, next) : 0; k > 0; k--)
            look_at(&seen, &have, next[k - 1]);
    }
    if (seen.size)
        sys_unmap(seen.at, seen.size * sizeof *seen.at);
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
    CUresult rc = resolve_call(call, words);
    sys_lock(&p->lock);
    account_landed(a);
    struct entry *e = NULL;
    if (rc == CUDA_SUCCESS) {
        freed_before(p, graph, from, n, again, true);
        uint64_t number = number_of(p, graph);
        if ((e = table_add(&p->table, KIND_NODE, *pointer))) {
            e->a = number;
            e->b = bytes;
            e->at = a->bytes;
            e->card = a->card;
            p->cards[a->card].graphs += a->bytes;
            p->graph_changes++;
        }
    } else {
        process_release_locked(p, a->card, a->bytes);
    }
    sys_unlock(&p->lock);
    return rc == CUDA_SUCCESS && !e ? CUDA_ERROR_OUT_OF_MEMORY : rc;
}

/* Memory that another graph frees lives from a launch of the one to a launch of the other. */
void graph_freed(struct process *p, uint64_t graph, uint64_t pointer, uint64_t node)
{
    const struct entry *g = table_find(&p->table, KIND_GRAPH, graph);
    struct entry *e = table_find(&p->table, KIND_NODE, pointer), *f;
    uint64_t number = e ? e->a : 0, bytes = e ? e->b : 0;
    if (!bytes || !g || g->a != number)
        return;
    e->b = 0;
    p->graph_changes++;
    if (!(f = table_add(&p->table, KIND_FREED, node)))
        return;
    f->a = number;
    f->b = bytes;
    if ((e = table_find(&p->table, KIND_NUMBER, number)))
        e->b += bytes;
}

static struct entry *number_of_node(const struct process *p, const struct entry *node)
{
    return table_find(&p->table, KIND_NUMBER, node->a);
}

/*
 * What the graphs of a card need. Each for itself: the sum. If they share: the driver uses the
 * memory of one again for the next in the same stream, as far as a graph frees what it allocates.
 * So that is the largest of the graphs, and what each does not free.
 */
static void needs(struct process *p, int card, uint64_t *sum, uint64_t *shared)
{
    struct table *t = &p->table;
    struct entry *number;
    uint64_t largest = 0;
    *sum = *shared = 0;
    for (struct entry *e = NULL; (e = table_next(t, e));)
        if (e->kind == KIND_NUMBER)
            e->at = e->bytes = 0; /* counted; not freed in the graph */
    for (struct entry *e = NULL; (e = table_next(t, e));)
        if (e->kind == KIND_NODE && e->card == card && (number = number_of_node(p, e))) {
            *sum += e->at;
            number->at += e->at;
            number->bytes += e->b;
        }
    for (struct entry *e = NULL; (e = table_next(t, e));)
        if (e->kind == KIND_NUMBER) {
            uint64_t stays = smaller(e->at, e->bytes);
            *shared += stays;
            largest = e->at - stays > largest ? e->at - stays : largest;
            e->bytes = 0;
        }
    *shared += largest;
}

/* Counts what the living graphs need, or what the driver holds if that is more. pool_lock: a graph
 * that is launched and destroyed after the driver's answer must not count as destroyed, because the
 * answer does not include its memory. Programs synchronize often: while neither the answer nor the
 * graphs changed, the table is not looked through. */
static void settle(struct process *p, CUdevice device, int card)
{
    uint64_t held = 0, sum, shared;
    struct table *t = &p->table;
    struct card *c = &p->cards[card];
    sys_lock(&p->pool_lock);
    bool known = DRIVER(cuDeviceGetGraphMemAttribute, device,
                        CU_GRAPH_MEM_RESERVED_CURRENT, WORD(&held)) == CUDA_SUCCESS;
    sys_lock(&p->lock);
    uint64_t state = p->graph_changes * 2 + c->graphs_share;
    if (known && (held != c->graphs_held || state != c->graphs_state)) {
        c->graphs_held = held;
        c->graphs_state = state;
        for (size_t i = 0; i < t->size; i++)
            while (((t->at[i].kind == KIND_NODE && t->at[i].card == card) ||
                    t->at[i].kind == KIND_FREED) &&
                   !number_of_node(p, &t->at[i]))
                table_remove(t, &t->at[i]); /* another entry can move here */
        needs(p, card, &sum, &shared);
        sum = c->graphs_share ? shared : sum;
        sum = held > sum ? held : sum;
        if (sum < c->graphs)
            process_release_locked(p, card, c->graphs - sum);
        else if (c->graphs_share)
            process_force_locked(p, card, sum - c->graphs);
        c->graphs = sum < c->graphs || c->graphs_share ? sum : c->graphs;
    }
    sys_unlock(&p->lock);
    sys_unlock(&p->pool_lock);
}

static void settle_card(struct process *p, int card, bool trim)
{
    for (CUdevice d = 0; d < PROCESS_DEVICES; d++)
        if (__atomic_load_n(&p->device_card[d], __ATOMIC_RELAXED) == card + 1) {
            if (trim)
                DRIVER(cuDeviceGraphMemTrim, d);
            settle(p, d, card);
        }
}

void graph_trim(struct process *p, int card, bool share)
{
    if (!__atomic_load_n(&p->next_number, __ATOMIC_RELAXED))
        return; /* without a graph, the driver's function must not make a context */
    if (share)
        p->cards[card].graphs_share = true;
    settle_card(p, card, !share);
}

void graph_settle(struct process *p)
{
    for (uint32_t i = 0; i < p->n_cards; i++)
        if (__atomic_load_n(&p->cards[i].graphs_share, __ATOMIC_RELAXED))
            settle_card(p, (int)i, false);
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

/* The graph becomes a part of another one, which takes over what it counts. Its handle is destroyed
 * with that. Locked. */
static void move_graph(struct process *p, uint64_t parent, uint64_t child)
{
    struct entry *c = table_find(&p->table, KIND_GRAPH, child), *to, *from;
    uint64_t number = c ? c->a : 0;
    if (!c)
        return; /* without allocation nodes */
    table_remove(&p->table, c);
    struct entry *e = table_find(&p->table, KIND_GRAPH, parent);
    if (!e) {
        if ((e = table_add(&p->table, KIND_GRAPH, parent)))
            e->a = number;
        return;
    }
    from = table_find(&p->table, KIND_NUMBER, number);
    to = table_find(&p->table, KIND_NUMBER, e->a);
    if (!from || !to)
        return;
    to->a += from->a - 1;
    to->b += from->b;
    for (e = NULL; (e = table_next(&p->table, e));)
        if ((e->kind == KIND_NODE || e->kind == KIND_FREED || e->kind == KIND_EXEC) &&
            e->a == number)
            e->a = to->key;
    table_remove(&p->table, from);
    p->graph_changes++;
}

CUresult graph_add_node(enum call call, const uint64_t *words, int at)
{
    CUnodeParams *params = (void *)words[at + 1];
    int type = params ? params->type : 0;
    if (type == CU_NODE_MEM_ALLOC)
        return add_alloc(call, words, words[at], &params->alloc);
    bool moves = type == CU_NODE_GRAPH && params->child.ownership == CU_OWNERSHIP_MOVE;
    if (!moves && type != CU_NODE_MEM_FREE)
        return resolve_call(call, words);
    uint64_t free_node[] = {words[0], words[1], 0, 0, params->freed};
    CUresult rc = resolve_call(call, words);
    struct process *p = rc == CUDA_SUCCESS ? account_process() : NULL;
    if (p) {
        sys_lock(&p->lock);
        if (moves)
            move_graph(p, words[1], free_node[4]);
        else
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
    if (e && --e->a == 0) {
        table_remove(&p->table, e);
        p->graph_changes++;
    }
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
