/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cli/cluster_state_priv.h"

static const struct record *find(const struct cluster_state *cs, enum core_kind kind,
                                 struct span key)
{
    return map_get(&cs->tables[kind].by_key, key);
}

const struct cluster_state_node *cluster_state_node(const struct cluster_state *cs,
                                                    struct span name)
{
    const struct record *r = find(cs, CORE_NODES, name);
    return r ? &r->node : NULL;
}

const struct cluster_state_heartbeat *
cluster_state_heartbeat(const struct cluster_state *cs, struct span name)
{
    const struct record *r = find(cs, CORE_LEASES, name);
    return r ? &r->heartbeat : NULL;
}

const struct cluster_state_scv *cluster_state_scv(const struct cluster_state *cs,
                                                  struct span name)
{
    const struct record *r = find(cs, CORE_SCVS, name);
    return r ? &r->scv : NULL;
}

const struct cluster_state_pod *cluster_state_pod(const struct cluster_state *cs,
                                                  struct span uid)
{
    const struct record *r = find(cs, CORE_PODS, uid);
    return r ? &r->pod : NULL;
}

static int by_node_name(const void *a, const void *b)
{
    return span_cmp((*(const struct cluster_state_node *const *)a)->name,
                    (*(const struct cluster_state_node *const *)b)->name);
}

static int by_pod_name(const void *a, const void *b)
{
    const struct cluster_state_pod *x = *(const struct cluster_state_pod *const *)a;
    const struct cluster_state_pod *y = *(const struct cluster_state_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

size_t cluster_state_nodes(const struct cluster_state *cs, struct arena *a,
                           const struct cluster_state_node ***out)
{
    const struct record_table *t = &cs->tables[CORE_NODES];
    size_t n = 0;
    *out = arena_alloc(a, t->n * sizeof **out);
    for (const struct record *r = t->first; r; r = r->next)
        (*out)[n++] = &r->node;
    if (n)
        qsort(*out, n, sizeof **out, by_node_name);
    return n;
}

size_t cluster_state_pods(const struct cluster_state *cs, struct arena *a,
                          const struct cluster_state_pod ***out)
{
    const struct record_table *t = &cs->tables[CORE_PODS];
    size_t n = 0;
    *out = arena_alloc(a, t->n * sizeof **out);
    for (const struct record *r = t->first; r; r = r->next)
        (*out)[n++] = &r->pod;
    if (n)
        qsort(*out, n, sizeof **out, by_pod_name);
    return n;
}

size_t cluster_state_errors(const struct cluster_state *cs)
{
    return cs->n_errors;
}

struct span cluster_state_error(const struct cluster_state *cs, size_t i)
{
    const char *p = cs->errors.p;
    while (i--)
        p += strlen(p) + 1;
    return span_of(p);
}
