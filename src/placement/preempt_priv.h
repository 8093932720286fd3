/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement_priv.h"
#include "placement/preempt.h"

/* A pod on the node. */
struct preempt_pod {
    const struct ledger_pod *pod;
    int64_t *mib;    /* on each card; -1: no promise there */
    uint16_t *core;  /* percent of the compute of each card */
    int64_t all_mib; /* on all cards of the node */
    int64_t claims;  /* cards that it gets through nvidia.com/gpu, unknown which */
    bool eligible;   /* may become a victim */
    bool removed;    /* a victim, or leaves in any case */
    bool victim;     /* selected by this module */
};

/* A dry run: the node as it would be without the removed pods. */
struct preempt_state {
    const struct preemptor *preemptor;
    const struct ledger_node *node;
    struct arena *arena;
    struct preempt_pod *pods;
    size_t n;
    struct card *empty; /* the cards without any pod */
    struct card *cards; /* before the nominated pods have taken their part */
    uint64_t held; /* bit c: the podList shows card c as allocated by nvidia.com/... */
    uint64_t nominated_claims; /* cards that nominated pods get through nvidia.com/gpu */
    int64_t nominated_mib[SCV_MAX_CARDS];
    uint32_t nominated_pods[SCV_MAX_CARDS];
    int32_t nominated_core[SCV_MAX_CARDS];
};

/* Some pods of one card, and what removing them costs: their number, and the memory that
 * they free beyond what was missing on the card. */
struct preempt_choice {
    size_t *indexes; /* into the state's pods; in the arena */
    size_t n;
    int64_t beyond_mib;
};

/* Computes cards and nominated_* for the pods that are removed now. */
void preempt_recompute(struct preempt_state *state);

/* For a request of nvidia.com/gpu: assigns the cards that the podList shows as allocated
 * to their pods. `unknown`: a pod leaves that the ledger does not know. */
void preempt_held_cards_read(struct preempt_state *state, bool unknown);
/* How many of the cards that suit the request other pods certainly get through
 * nvidia.com/gpu. `cards` are the node's cards in the current dry run. */
uint64_t preempt_held_cards_claimed(const struct preempt_state *state,
                                    const struct card *cards);

/* The cheapest set of pods with priorities up to `limit` whose removal frees card c for
 * the request. False: no such set. n is 0 if the card has enough free memory already. */
bool preempt_card_select(struct preempt_state *state, uint32_t c, int64_t limit,
                         struct preempt_choice *choice);
