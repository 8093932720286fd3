/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/* What preempt shares with placement: the same rules, asked of cards that are not (yet)
 * as the ledger has them. `cards` has node->n_cards. */

/* Does the request fit on the node if its cards are these? */
enum fit placement_fit_cards(const struct ledger_node *node, const struct card *cards,
                             const struct request *request);
/* May this card be one of those that the request gets? */
bool placement_card_fits(const struct card *card, const struct request *request);
/* Takes from the cards what pods nominated to the node with no lower priority will get.
 */
void placement_line_takes(const struct ledger_node *node, struct card *cards,
                          int64_t priority, struct span uid);
