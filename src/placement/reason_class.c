/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"

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
    if (!r->core || !node->has_core)
        return r->core > 0;
    struct request memory = *r;
    memory.core = 0;
    return placement_fit(node, &memory) == FIT_YES;
}

/* Called for every node that filter rejects: reads only the node's first cache lines. */
enum reason_class reason_class_of(const struct ledger_node *node, const struct request *r,
                                  enum fit alone)
{
    if (!node || (node->state != NODE_USABLE && r->kind != REQUEST_DEVICES))
        return REASON_NODE;
    if (r->kind != REQUEST_DEVICES && node->mode != NODE_ANY &&
        node->mode != (r->kind == REQUEST_CARDS ? NODE_CARDS : NODE_MEMORY))
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
