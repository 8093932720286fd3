/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"

/*
 * Which cards of a node a request goes to, whether it fits there at all, and if not, why:
 * one answer for filter, prioritize, bind and everybody who explains.
 *
 * A request goes to the cards that can take it, in the order of the pod's policy:
 *   binpack  least free memory first (what is left stays in large pieces)
 *   spread   most free memory first
 * The lowest index wins a tie.
 *
 * For nvidia.com/gpu nothing is chosen: the node fits when it has enough cards that will
 * do, are neither held nor promised, and are not claimed by pods that came before.
 */

enum fit {
    FIT_YES,
    FIT_LATER, /* not now: memory is taken, a card is out, an object is missing */
    FIT_NEVER, /* not on this node, whoever leaves: too small, too few cards, wrong mode
                */
};

/* Does the request fit on the node, as promises stand? */
enum fit placement_fit(const struct ledger_node *node, const struct request *request);

/* The same for a pod that waits in line: pods nominated to the node with no lower
 * priority count as promised there (kube-scheduler does the same with what it counts).
 * `uid` is the asking pod's own. */
enum fit placement_fit_nominated(const struct ledger_node *node,
                               const struct request *request, int64_t priority,
                               struct span uid);

/* Chooses request->cards cards; picks[i] is a position in node->cards, by rising index.
 * False when it does not fit, and for REQUEST_DEVICES; picks is undefined then. */
bool placement_choose(const struct ledger_node *node, const struct request *request,
                      uint32_t picks[REQUEST_MAX_CARDS]);

/* A node whose heartbeat has stopped: the reason begins so, then comes "N s". */
#define REASON_NO_HEARTBEAT "no heartbeat from scv-agent on this node for "

/* Why requests do not fit, in terms of cards: what was asked, what is free on the best
 * card, which cards are out. What it says of the request is put together once for all
 * nodes. */
struct prepared_reason {
    const struct request *request; /* borrowed */
    char need[512];
    size_t need_n;
};

void reason_prepare(struct prepared_reason *r, const struct request *request);
/* Appends the reason for a node. `alone` is what placement_fit has answered; FIT_YES: it
 * would fit but for nominated pods. */
void reason_add_prepared(struct buf *out, const struct prepared_reason *r, const struct ledger_node *node,
                 enum fit alone);
/* The same for a single node. */
void reason_add(struct buf *out, const struct ledger_node *node,
                      const struct request *request, enum fit alone);

/* For those who ask about nodes that kube-scheduler may not offer: it leaves a cordoned
 * one out before filter. As placement_fit_nominated, but a cordoned node fits later at the
 * earliest; and why it does not fit, with what else is in the way. */
enum fit placement_fit_schedulable(const struct ledger_node *node,
                               const struct request *request, int64_t priority,
                               struct span uid);
void reason_add_schedulable(struct buf *out, const struct ledger_node *node,
                              const struct request *request, int64_t priority,
                              struct span uid);

/* Whose the Lease of the node is, if it is not scv-agent's, and what to do about it; ""
 * otherwise. Follows on what was said before. */
void reason_add_foreign_lease(struct buf *out, const struct ledger_node *node);

/* Why, in one word: for counting. */
enum reason_class {
    REASON_MEMORY,    /* cards would do, but what is free on them is too little */
    REASON_NOMINATED, /* it is enough, but kept for pods nominated to the node */
    REASON_UNHEALTHY,    /* no card that would do is in */
    REASON_SIZE,      /* never here: too few cards, or too small ones */
    REASON_MODEL,     /* ... or of other models and clocks, or nobody knows of which */
    REASON_MODE,      /* the label gpushare/mode does not let such pods in */
    REASON_NODE,      /* the node gives nothing out: see enum node_state */
    REASON_PROMISED,  /* the pod is promised to another node, and that is not settled */
    REASON_INVALID_REQUEST,   /* the pod asks for what cannot be meant */
    REASON_CLASSES
};
const char *reason_class_name(enum reason_class reason);
/* The class of a refusal, up to REASON_NODE; `node` NULL: it is not known. */
enum reason_class reason_class_of(const struct ledger_node *node,
                                  const struct request *request, enum fit alone);
