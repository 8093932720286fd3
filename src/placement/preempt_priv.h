/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement_priv.h"
#include "placement/preempt.h"

/* A pod of the node. */
struct tenant {
    const struct ledger_pod *pod;
    int64_t *mib;    /* on each card; -1: nothing */
    int64_t all_mib; /* on all cards of the node */
    int64_t claims;  /* cards that it gets through nvidia.com/gpu, nobody knows which */
    bool may;        /* may be taken */
    bool gone;       /* leaves */
    bool chosen;     /* of those that leave: because we say so */
};

/* A node as it would be without those that are gone. */
struct look {
    const struct preemptor *ask;
    const struct ledger_node *node;
    struct arena *arena;
    struct tenant *tenants;
    size_t n;
    struct card *empty; /* as they would be without any tenant */
    struct card *cards; /* before those in line have taken theirs */
    uint64_t held; /* bit c: the podList shows card c as held through nvidia.com/... */
    uint64_t line_claims; /* cards that those in line get through nvidia.com/gpu */
    int64_t line_mib[SCV_MAX_CARDS];
    uint32_t line_pods[SCV_MAX_CARDS];
};

/* Some tenants, and what it means that they leave one card: how many pods more, and how
 * much memory beyond what was missing there. */
struct choice {
    size_t *who; /* positions in tenants; in the arena */
    size_t n;
    int64_t beyond_mib;
};

/* Works out cards and line for those that are gone now. */
void look_again(struct look *look);

/* For a request of nvidia.com/gpu: whose the cards are that the podList shows as held.
 * `unknown`: somebody leaves of whom the ledger does not know what he has. */
void look_at_holders(struct look *look, bool unknown);
/* How many of `cards`, which are those of the node by now, others certainly get through
 * nvidia.com/gpu, of those that would do for the request. */
uint64_t claims_on(const struct look *look, const struct card *cards);

/* The cheapest set with priorities up to `limit` that frees card c for the request.
 * False: none does. n is 0 when the card is free enough already. */
bool card_choose(struct look *look, uint32_t c, int64_t limit, struct choice *choice);
