/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/closest.h"

#include <stdlib.h>

#include "placement/placement_priv.h"

static int most_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static int64_t memory_missing(const struct ledger_node *node, const struct request *r)
{
    int64_t free_mib[SCV_MAX_CARDS] = {0}, missing = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_cards; i++)
        if ((!request_is_selective(r) || placement_card_suits(&node->cards[i], r)) &&
            card_core_left(&node->cards[i]) >= r->core)
            free_mib[n++] = node->cards[i].free_mib;
    if (r->cards > 1)
        qsort(free_mib, n, sizeof *free_mib, most_first);
    for (uint32_t i = 1; r->cards == 1 && i < n; i++)
        if (free_mib[i] > free_mib[0])
            free_mib[0] = free_mib[i];
    for (uint32_t i = 0; i < r->cards; i++) {
        int64_t has = i < n ? free_mib[i] : 0;
        missing += has < r->mib_per_card ? r->mib_per_card - has : 0;
    }
    return missing;
}

int64_t closest_shortfall(const struct ledger_node *node, const struct request *r)
{
    if (placement_fit(node, r) == FIT_YES)
        return 0;
    if (node->state != NODE_USABLE || !node->n_cards || !placement_mode_allows(node, r) ||
        (r->core && !node->has_core))
        return INT64_MAX;
    if (r->kind == REQUEST_MEMORY)
        return memory_missing(node, r);
    int64_t n_fit =
        placement_count_cards(node->cards, node->n_cards, r, placement_card_fits);
    int64_t claimed = r->kind == REQUEST_DEVICES ? node->claimed : 0;
    return r->cards + claimed - n_fit;
}

/* Is the node closer than the closest one so far? */
static bool is_closer(const struct closest *n, const struct ledger_node *node,
                      enum fit fit, int64_t missing)
{
    if (!n->node)
        return true;
    if (fit != n->fit)
        return fit < n->fit;
    if (!n->offered && node->cordoned != n->node->cordoned)
        return n->node->cordoned;
    if (missing != n->missing)
        return missing < n->missing;
    return span_cmp(node->name, n->node->name) < 0;
}

void closest_init(struct closest *n, const struct request *request, int64_t priority,
                  struct span uid)
{
    *n = (struct closest){.request = request, .priority = priority, .uid = uid};
}

void closest_visit(struct closest *n, const struct ledger_node *node)
{
    enum fit fit = (n->offered ? placement_fit_nominated : placement_fit_schedulable)(
        node, n->request, n->priority, n->uid);
    n->seen++;
    n->fits += fit == FIT_YES;
    int64_t missing = closest_shortfall(node, n->request);
    if (!is_closer(n, node, fit, missing))
        return;
    n->node = node;
    n->fit = fit;
    n->missing = missing;
}
