/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core_priv.h"
#include "placement/preempt.h"

/* The entry of the pod; NULL: none. */
struct core_preempt_pod *core_preempt_find(const struct core *core, struct span uid);
void core_preempt_restart_search(struct core_preempt_pod *e);
/* preempt_select with what the core knows: terminating pods leave, and so do the `more`
 * UIDs; pods that must not or cannot be evicted are spared. */
bool core_preempt_select(struct step *s, const struct ledger_pod *pod,
                         const struct ledger_node *node, const struct span *more,
                         size_t n_more, struct preempt_victims *victims);

/* core_preempt_evict.c: from the choice of a node to the last eviction */

/* Nominates the pod to the node and keeps the cards, if that still helps. */
void core_preempt_begin(struct step *s, struct core_preempt_pod *e,
                        struct span node_name);
/* Sends the next eviction that is still needed, or ends the preemption. */
void core_preempt_evict(struct step *s, struct core_preempt_pod *e);
/* Keeps the cards again, after a failed bind of the pod. */
void core_preempt_keep(struct step *s, const struct core_preempt_pod *e);
/* Other pods may use the cards again. */
void core_preempt_release(struct step *s, struct core_preempt_pod *e);
/* Frees the victims and the node. */
void core_preempt_clear(struct core_preempt_pod *e);
