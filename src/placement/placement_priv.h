/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/* Is the card of a model and clock that the request names? */
bool card_suits(const struct card *card, const struct request *r);
/* Can the card take the request's part now? Could it, were it empty and in? */
bool card_fits(const struct card *card, const struct request *r);
bool card_could_fit(const struct card *card, const struct request *r);
/* How many of these cards pass the test? */
uint32_t count_cards(const struct card *cards, uint32_t n, const struct request *r,
                     bool (*test)(const struct card *, const struct request *));

/* Does the node's mode allow such requests? */
bool node_takes(const struct ledger_node *node, const struct request *r);

/* What preempt shares with placement: the same rules, asked of cards that are not (yet)
 * as the ledger has them. `cards` has node->n_cards. */

/* Does the request fit on the node if its cards are these, so many of which others are
 * about to get through nvidia.com/gpu? */
enum fit placement_fit_cards(const struct ledger_node *node, const struct card *cards,
                             uint64_t claimed, const struct request *request);
/* Takes from the cards what pods nominated to the node with no lower priority will get.
 * Returns how many cards they will get through nvidia.com/gpu, nobody knows which. */
uint64_t placement_line_takes(const struct ledger_node *node, struct card *cards,
                              int64_t priority, struct span uid);
