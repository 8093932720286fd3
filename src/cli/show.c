/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "placement/reason.h"

static int by_node(const void *a, const void *b)
{
    return span_cmp((*(const struct ledger_node *const *)a)->name,
                    (*(const struct ledger_node *const *)b)->name);
}

static int by_pod(const void *a, const void *b)
{
    const struct ledger_pod *x = *(const struct ledger_pod *const *)a;
    const struct ledger_pod *y = *(const struct ledger_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

static bool is_relevant(const struct ledger_node *node)
{
    bool plain = node->state == NODE_NO_GPU || node->state == NODE_UNKNOWN;
    return !plain || node->pods || node->n_cards || node->unknown_listed_card >= 0;
}

size_t show_nodes(const struct ledger *l, struct span only, struct arena *a,
                  const struct ledger_node ***out)
{
    uint32_t slots = ledger_node_slots(l);
    size_t n = 0;
    *out = arena_alloc(a, (slots + 1) * sizeof **out);
    if (only.n) {
        (*out)[0] = ledger_node_find(l, only);
        return (*out)[0] != NULL;
    }
    for (uint32_t i = 0; i < slots; i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && is_relevant(node))
            (*out)[n++] = node;
    }
    if (n)
        qsort(*out, n, sizeof **out, by_node);
    return n;
}

static size_t sorted(const struct ledger_pod *first, struct arena *a,
                     const struct ledger_pod ***out)
{
    size_t n = 0, i = 0;
    for (const struct ledger_pod *pod = first; pod; pod = pod->next)
        n++;
    *out = arena_alloc(a, n * sizeof **out);
    for (const struct ledger_pod *pod = first; pod; pod = pod->next)
        (*out)[i++] = pod;
    if (n)
        qsort(*out, n, sizeof **out, by_pod);
    return n;
}

size_t show_pods_on(const struct ledger_node *node, struct arena *a,
                    const struct ledger_pod ***out)
{
    return sorted(node->pods, a, out);
}

size_t show_pending(const struct ledger *l, struct arena *a,
                    const struct ledger_pod ***out)
{
    return sorted(ledger_first_pending(l), a, out);
}

const char *show_health(enum card_state out)
{
    static const char *const names[] = {[CARD_AVAILABLE] = "Healthy",
                                        [CARD_UNHEALTHY] = "Unhealthy",
                                        [CARD_LISTED] = "Excluded",
                                        [CARD_HELD] = "OtherPlugin",
                                        [CARD_DUPLICATE] = "DuplicateUUID"};
    return names[out];
}

void show_amount(struct buf *out, int64_t mib, int64_t unit)
{
    int64_t tenths = mib / unit * 10 + mib % unit * 10 / unit;
    buf_add_i64(out, tenths / 10);
    if (mib % unit == 0)
        return;
    buf_addc(out, '.');
    buf_add_i64(out, tenths % 10);
}

void show_unit_assumed(struct buf *out, int64_t unit_mib)
{
    buf_adds(out,
             "! cannot derive the unit of " KEY_GPU_MEM " from the nodes' capacity, and "
             "the extender is unavailable: assuming ");
    quantity_write_unit(out, unit_mib);
    buf_adds(out, " (set --memory-unit)\n");
}

void show_state(struct buf *out, const struct ledger_node *node)
{
    struct request any = {.kind = REQUEST_MEMORY, .cards = 1};
    if (node->state != NODE_USABLE || node->mode == NODE_MODE_WRONG)
        reason_add(out, node, &any, select_fit(node, &any));
}

bool show_is_other_use(const struct ledger_node *node, const struct scv_process *p)
{
    for (const struct ledger_pod *pod = node->pods; pod && !p->pid; pod = pod->next)
        if (span_eq(pod->name, p->pod) && span_eq(pod->ns, p->ns))
            return false;
    return true;
}

bool show_write(struct buf *out, const struct cluster_state *cs, const struct show *show)
{
    if (show->format == SHOW_TABLE || show->format == SHOW_WIDE)
        return show_table(out, cs, show);
    json_t *j = show_json(cs, show);
    if (!j)
        return false;
    show_dump(out, j, show->format == SHOW_YAML);
    json_decref(j);
    return true;
}
