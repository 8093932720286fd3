/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/links.h"

/*
 * Which of the cards that fit a pod of several cards gets, if it is known what connects them.
 * Of two sets the better one has, in this order:
 *   1. the wider best ring (domain/links.h)
 *   2. the larger sum of the widths of its pairs, then more pairs on one NUMA node
 *   3. the smaller loss for the sets that remain among the free cards
 *   4. the memory that the policy of the pod takes first
 *   5. the lower index
 * For one card the order is 4, 3, 5: its policy decides, and of equal cards the pod gets one that
 * breaks no good set.
 */

struct card_set_ask {
    const struct links *links;
    uint32_t fit;            /* the cards that can take their part of the request */
    uint32_t free;           /* the cards that are wholly free */
    unsigned k;              /* of the request, at least 1 */
    uint8_t min_link;        /* every pair is at least so wide; LINK_UNKNOWN: any */
    const int64_t *free_mib; /* of each card */
    bool spread;             /* most free memory first, else least */
};

/* 0: no set has such links. Exact where links_sets knows the node's sets, but that of sets which
 * are equal by 1 and 2 the first 512 are compared. Elsewhere, the best of the sets that begin with
 * each card and take, one after the other, the card that is connected best to those taken; that can
 * miss the only set with such links. */
uint32_t card_set_choose(const struct card_set_ask *ask);
