/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/view_namespaces.h"

#include <string.h>

struct names {
    struct arena *arena;
    struct span *items; /* sorted */
    size_t n, max;
};

static void add(struct names *all, struct span name)
{
    size_t low = 0, high = all->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (span_cmp(all->items[middle], name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if ((low < all->n && span_eq(all->items[low], name)) || all->n == all->max)
        return;
    memmove(all->items + low + 1, all->items + low, (all->n - low) * sizeof *all->items);
    all->items[low] = arena_copy(all->arena, name);
    all->n++;
}

static void add_node(void *ctx, const struct ledger *l, const struct ledger_node *node)
{
    struct names *all = ctx;
    struct ledger_node_info info = ledger_node_info(node);
    (void)l;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        add(all, pod->ns);
    for (size_t i = 0; i < info.n_held; i++)
        if (info.held[i].pod.n)
            add(all, info.held[i].ns);
}

size_t view_namespaces_list(void *ctx, struct arena *a, struct span *out, size_t max)
{
    struct store *store = ctx;
    struct names all = {.arena = a, .items = out, .max = max};
    store_each_node(store, add_node, &all);
    const struct ledger *l = core_ledger(store_read(store));
    for (const struct ledger_pod *pod = ledger_first_pending(l); pod; pod = pod->next)
        add(&all, pod->ns);
    store_read_end(store);
    return all.n;
}
