/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"

/* What filter does not decide: nodes that kube-scheduler leaves out by itself. */

enum fit placement_fit_offered(const struct ledger_node *node, const struct request *r,
                               int64_t priority, struct span uid)
{
    enum fit fit = placement_fit_in_line(node, r, priority, uid);
    return node->cordoned && fit == FIT_YES ? FIT_LATER : fit;
}

void placement_reason_offered(struct buf *out, const struct ledger_node *node,
                              const struct request *request, int64_t priority,
                              struct span uid)
{
    bool fits = placement_fit_in_line(node, request, priority, uid) == FIT_YES;
    if (node->cordoned)
        buf_adds(out, "cordoned: kube-scheduler offers it only to pods that tolerate "
                      "that");
    if (node->cordoned && !fits)
        buf_adds(out, "; ");
    if (!fits)
        placement_reason(out, node, request, placement_fit(node, request));
}
