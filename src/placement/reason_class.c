/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement_priv.h"

const char *reason_class_name(enum reason_class reason)
{
    static const char *const names[REASON_CLASSES] = {
        [REASON_MEMORY] = "memory",
        [REASON_COMPUTE] = "compute",
        [REASON_NOMINATED] = "nominated",
        [REASON_UNHEALTHY] = "unhealthy",
        [REASON_SIZE] = "size",
        [REASON_MODEL] = "model",
        [REASON_MODE] = "mode",
        [REASON_NODE] = "node",
        [REASON_PROMISED] = "promised",
        [REASON_GANG] = "gang",
        [REASON_INVALID_REQUEST] = "invalid-request",
    };
    return names[reason];
}

/* Is it compute alone that the node has too little of, or does not offer? */
static bool lacks_compute(const struct ledger_node *node, const struct request *r)
{
    if (!r->core)
        return false;
    if (!node->has_core)
        return true;
    struct request memory = *r;
    memory.core = 0;
    return placement_fit(node, &memory) == FIT_YES;
}

/* Called for every node that filter rejects. What is not in the node's first cache lines
 * is read last: its source only for requests that select cards, the cards only for requests
 * with compute. */
enum reason_class reason_class_of(const struct ledger_node *node, const struct request *r,
                                  enum fit alone)
{
    if (!node || (node->state != NODE_USABLE && r->kind != REQUEST_DEVICES))
        return REASON_NODE;
    if (!placement_mode_allows(node, r))
        return REASON_MODE;
    if (alone == FIT_YES)
        return REASON_NOMINATED;
    if (alone == FIT_NEVER)
        return request_is_selective(r) ? REASON_MODEL : REASON_SIZE;
    if (request_is_selective(r) && node->source != SOURCE_SCV)
        return REASON_MODEL;
    if (node->best_index < 0)
        return REASON_UNHEALTHY;
    return lacks_compute(node, r) ? REASON_COMPUTE : REASON_MEMORY;
}
