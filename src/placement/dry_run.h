/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/select.h"

/*
 * A dry run: a node without some of its pods. Preemption and defragmentation search for the
 * pods that have to leave.
 */

struct dry_pod {
    const struct ledger_pod *pod;
    int64_t *mib;    /* on each card of the node; -1: none */
    uint16_t *core;  /* percent of the compute of each card */
    int64_t all_mib; /* on all cards */
    uint32_t cards;  /* number of cards that it is on */
    bool may_leave;
    bool removed;
    /* For preempt: cards that it gets through nvidia.com/gpu, unknown which; selected there. */
    int64_t claims;
    bool victim;
    /* For defrag: what it takes of a node beside cards; the first node that has room for it. */
    struct resources room;
    size_t from;
};

struct dry_run {
    const struct ledger_node *node;
    struct dry_pod *pods; /* all of the node */
    size_t n;
    uint64_t claimed; /* of the node; 0 with `held` */
    /* Each of node->n_cards cards: without any pod; without the removed pods; when the
     * nominated pods have taken their part of those. */
    struct card *empty, *cards, *after;
};

/* The cards are as `pod` sees them. `held`: a pod counts in full on the cards, too, that it
 * has through nvidia.com/... The arena gets all memory. */
void dry_run_begin(struct dry_run *run, const struct ledger_node *node,
                   const struct select_pod *pod, bool held, struct arena *a);
/* Computes `cards` and `after` for the pods that are removed now, and the view of the latter.
 * Nominated pods count if they precede `pod`. */
void dry_run_view(struct dry_run *run, const struct select_pod *pod,
                  struct select_view *view);
