/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"

/*
 * Whether a request fits on a node, on which cards, and the reason if it does not. filter,
 * prioritize, bind and the views share this code, so they cannot disagree.
 *
 * A request gets cards that fit, in the order of the pod's policy:
 *   binpack  least free memory first (keeps large free blocks)
 *   spread   most free memory first
 * Ties go to the lowest index.
 *
 * For nvidia.com/gpu no cards are chosen. The node fits if it has enough cards that suit,
 * are neither allocated nor promised, and are not claimed by pods bound earlier.
 */

enum fit {
    FIT_YES,
    FIT_LATER, /* not now: memory is taken, a card is unhealthy, an object is missing */
    FIT_NEVER, /* not even if all pods leave: too small, too few cards, wrong mode */
};

/* Does the request fit on the node, given the current promises? */
enum fit placement_fit(const struct ledger_node *node, const struct request *request);

/* The same for many nodes. placement_quick prepares a request; true: the request fits on the
 * node, and neither a nominated pod nor a reservation can change that. False: it may fit,
 * ask placement_fit. Reads the node's first cache line only. */
struct placement_quick {
    int64_t least_mib; /* free on one card; INT64_MAX: placement_fit decides about all */
};
struct placement_quick placement_quick(const struct request *request);
static inline bool placement_fits_at_once(const struct placement_quick *quick,
                                          const struct ledger_node *node)
{
    /* Nothing could predict the first condition, so there is no branch on it. */
    return (node->best_free_mib >= quick->least_mib) & (node->state == NODE_USABLE) &
           ((node->mode == NODE_ANY) | (node->mode == NODE_MEMORY)) &
           !node->has_nominated;
}

/* As placement_fit, but as the pending pod `uid` sees the node: pods nominated to the node
 * with equal or higher priority count as promised there, as in kube-scheduler;
 * reservations of lower priority, and its own, do not count. */
enum fit placement_fit_nominated(const struct ledger_node *node,
                                 const struct request *request, int64_t priority,
                                 struct span uid);

/* As placement_fit_nominated, for callers other than filter: kube-scheduler removes a
 * cordoned node before filter, so a cordoned node is FIT_LATER at best. */
enum fit placement_fit_schedulable(const struct ledger_node *node,
                                   const struct request *request, int64_t priority,
                                   struct span uid);

/* Chooses request->cards cards. picks[i] is an index into node->cards, in rising order.
 * False if the request does not fit, and for REQUEST_DEVICES; then picks is undefined. */
bool placement_choose(const struct ledger_node *node, const struct request *request,
                      uint32_t picks[REQUEST_MAX_CARDS]);

/* As placement_choose, but as the pod `uid` sees the reservations on the node; its own
 * reserved cards are preferred. Cards that are kept for other pending pods of equal or
 * higher priority (ledger_pod_keep) count as taken; other nominated pods do not count. */
bool placement_choose_seen(const struct ledger_node *node, const struct request *request,
                           int64_t priority, struct span uid,
                           uint32_t picks[REQUEST_MAX_CARDS]);

/* The reason for a node without heartbeat begins with this text; "N s" follows. */
#define REASON_NO_HEARTBEAT "no heartbeat from scv-agent on this node for "

/* Why a request does not fit, in terms of cards: what is requested, what is free on the
 * best card, which cards are excluded and why. The text about the request is written once
 * for all nodes. */
struct prepared_reason {
    const struct request *request; /* borrowed */
    char need[512];
    size_t need_n;
    size_t most_free_n; /* with "; most free: ", for the most frequent reason; or 0 */
};

void reason_prepare(struct prepared_reason *r, const struct request *request);
/* Appends the reason for a node. `alone` is the result of placement_fit; FIT_YES: only
 * nominated pods prevent the placement. */
void reason_add_prepared(struct buf *out, const struct prepared_reason *r,
                         const struct ledger_node *node, enum fit alone);
/* The same for a single node. */
void reason_add(struct buf *out, const struct ledger_node *node,
                const struct request *request, enum fit alone);
/* The reason that belongs to placement_fit_schedulable; empty if the request fits. */
void reason_add_schedulable(struct buf *out, const struct ledger_node *node,
                            const struct request *request, int64_t priority,
                            struct span uid);

/* Appends the holder of the node's Lease if that is not scv-agent, and what to do; else
 * nothing. Follows other text of the reason. */
void reason_add_foreign_lease(struct buf *out, const struct ledger_node *node);

/* The class of a reason, for metrics. */
enum reason_class {
    REASON_MEMORY,          /* cards suit, but have too little free memory */
    REASON_NOMINATED,       /* enough is free, but reserved for nominated pods */
    REASON_UNHEALTHY,       /* every card that suits is unhealthy or excluded */
    REASON_SIZE,            /* never: too few cards, or too small ones */
    REASON_MODEL,           /* other models or clocks, or unknown ones */
    REASON_MODE,            /* the label gpushare/mode excludes the request */
    REASON_NODE,            /* the node takes no pods: see enum node_state */
    REASON_PROMISED,        /* the pod has an unconfirmed promise on another node */
    REASON_GANG,            /* the other members of the pod's gang find no cards */
    REASON_INVALID_REQUEST, /* the request of the pod is invalid */
    REASON_COMPUTE,         /* memory is free, but too little compute beside it */
    REASON_CLASSES
};
const char *reason_class_name(enum reason_class reason);
/* The class of a rejection: up to REASON_NODE, or REASON_COMPUTE. `node` NULL: the node is unknown. */
enum reason_class reason_class_of(const struct ledger_node *node,
                                  const struct request *request, enum fit alone);
