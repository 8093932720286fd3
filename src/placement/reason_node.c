/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason_priv.h"

#include "domain/keys.h"

void reason_add_plain(struct buf *out, struct span text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        buf_addc(out, c < ' ' || c == '"' || c == '\\' || c == 0x7f ? '?' : (char)c);
    }
}

void reason_add_foreign_lease(struct buf *out, const struct ledger_node *node)
{
    const struct ledger_foreign_lease *foreign = ledger_node_info(node).foreign;
    if (!foreign)
        return;
    buf_adds(out, "; Lease " KEY_LEASE_NAMESPACE "/");
    buf_add_span(out, node->name);
    buf_adds(out, " does not belong to scv-agent (holder: ");
    reason_add_plain(out, foreign->holder.n ? foreign->holder : SPAN("none"));
    buf_adds(out, "; last renewed: ");
    reason_add_plain(out, foreign->renewed.n ? foreign->renewed : SPAN("never"));
    buf_adds(out, "): delete it if another system left it behind");
}

bool reason_add_state(struct buf *out, const struct ledger_node *node)
{
    switch (node->state) {
    case NODE_UNKNOWN:
        buf_adds(out, "the GPUs of this node are not known yet");
        return true;
    case NODE_SCV_MISSING:
        buf_adds(out, "the node's Scv object is missing, so its cards are unknown");
        reason_add_foreign_lease(out, node);
        return true;
    case NODE_SCV_DAMAGED:
        buf_adds(out, "the node's Scv object is invalid; see the extender's log");
        return true;
    case NODE_SCV_EMPTY:
        buf_adds(out, "the node's Scv object lists no cards");
        return true;
    case NODE_STALE:
        buf_adds(out, REASON_NO_HEARTBEAT);
        buf_add_i64(out, node->stale_s);
        buf_adds(out, " s");
        reason_add_foreign_lease(out, node);
        return true;
    case NODE_NO_GPU:
        buf_adds(out, "the node has no GPU memory (no Scv object, no capacity)");
        return true;
    case NODE_NO_COUNT:
        buf_adds(out, "the node's capacity has aliyun.com/gpu-mem but no "
                      "aliyun.com/gpu-count");
        return true;
    case NODE_ALLOCATABLE_LOW:
        buf_adds(out, "allocatable GPU memory is below capacity, and no ConfigMap "
                      "unhealthy-gpu-");
        buf_add_span(out, node->name);
        buf_adds(out, " names the unhealthy card");
        return true;
    case NODE_LIST_DAMAGED:
        buf_adds(out, "ConfigMap unhealthy-gpu-");
        buf_add_span(out, node->name);
        buf_adds(out, " is not a comma-separated list of card indexes");
        return true;
    case NODE_MISSING:
        buf_adds(out, "no Node object of this name exists, only an Scv object");
        return true;
    case NODE_DAMAGED:
        buf_adds(out, "the Node object cannot be decoded");
        return true;
    case NODE_USABLE:
        break;
    }
    return false;
}
