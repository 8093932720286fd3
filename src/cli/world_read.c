/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cli/world_priv.h"

static const struct record *find(const struct world *w, enum core_kind kind,
                                 struct span key)
{
    return map_get(&w->kept[kind].by_key, key);
}

const struct world_node *world_node(const struct world *w, struct span name)
{
    const struct record *r = find(w, CORE_NODES, name);
    return r ? &r->node : NULL;
}

const struct world_beat *world_beat(const struct world *w, struct span name)
{
    const struct record *r = find(w, CORE_LEASES, name);
    return r ? &r->beat : NULL;
}

const struct world_scv *world_scv(const struct world *w, struct span name)
{
    const struct record *r = find(w, CORE_SCVS, name);
    return r ? &r->scv : NULL;
}

const struct world_pod *world_pod(const struct world *w, struct span uid)
{
    const struct record *r = find(w, CORE_PODS, uid);
    return r ? &r->pod : NULL;
}

static int by_node_name(const void *a, const void *b)
{
    return span_cmp((*(const struct world_node *const *)a)->name,
                    (*(const struct world_node *const *)b)->name);
}

static int by_pod_name(const void *a, const void *b)
{
    const struct world_pod *x = *(const struct world_pod *const *)a;
    const struct world_pod *y = *(const struct world_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

size_t world_nodes(const struct world *w, struct arena *a, const struct world_node ***out)
{
    const struct kept *k = &w->kept[CORE_NODES];
    size_t n = 0;
    *out = arena_alloc(a, k->n * sizeof **out);
    for (const struct record *r = k->first; r; r = r->next)
        (*out)[n++] = &r->node;
    if (n)
        qsort(*out, n, sizeof **out, by_node_name);
    return n;
}

size_t world_pods(const struct world *w, struct arena *a, const struct world_pod ***out)
{
    const struct kept *k = &w->kept[CORE_PODS];
    size_t n = 0;
    *out = arena_alloc(a, k->n * sizeof **out);
    for (const struct record *r = k->first; r; r = r->next)
        (*out)[n++] = &r->pod;
    if (n)
        qsort(*out, n, sizeof **out, by_pod_name);
    return n;
}

size_t world_faults(const struct world *w)
{
    return w->n_faults;
}

struct span world_fault(const struct world *w, size_t i)
{
    const char *p = w->faults.p;
    while (i--)
        p += strlen(p) + 1;
    return span_of(p);
}
