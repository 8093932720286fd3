/* SPDX-License-Identifier: Apache-2.0 */
#include "view/source.h"

#include <stdlib.h>

#include "base/mem.h"

static int compare_names(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

/* The names of all nodes, copied, sorted. */
static size_t node_names(const struct view_source *source, struct arena *a,
                         struct span **names)
{
    const struct ledger *l = core_ledger(source->read(source->ctx));
    uint32_t slots = ledger_node_slots(l);
    size_t n = 0;
    *names = arena_alloc(a, slots * sizeof **names);
    for (uint32_t i = 0; i < slots; i++)
        if (ledger_node_at(l, i))
            (*names)[n++] = arena_copy(a, ledger_node_at(l, i)->name);
    source->read_end(source->ctx);
    if (n)
        qsort(*names, n, sizeof **names, compare_names);
    return n;
}

void view_source_each_node(const struct view_source *source, view_source_node_fn fn,
                           void *ctx)
{
    cleanup_arena struct arena a = {0};
    struct span *names;
    size_t n = node_names(source, &a, &names);
    for (size_t i = 0; i < n; i++) {
        const struct ledger *l = core_ledger(source->read(source->ctx));
        const struct ledger_node *node = ledger_node_find(l, names[i]);
        if (node)
            fn(ctx, l, node);
        source->read_end(source->ctx);
    }
}
