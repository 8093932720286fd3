/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"

void reason_add_schedulable(struct buf *out, const struct ledger_node *node,
                            const struct request *request, int64_t priority,
                            struct span uid)
{
    bool fits = placement_fit_nominated(node, request, priority, uid) == FIT_YES;
    if (node->cordoned)
        buf_adds(out, "cordoned: kube-scheduler offers it only to pods that tolerate "
                      "the taint");
    if (node->cordoned && !fits)
        buf_adds(out, "; ");
    if (!fits)
        reason_add(out, node, request, placement_fit(node, request));
}
