/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/placement.h"

/* Has the card the model and clock that the request names? */
bool placement_card_suits(const struct card *card, const struct request *r);
/* Can the card take its part of the request now? */
bool placement_card_fits(const struct card *card, const struct request *r);
/* Could it, if it were empty and healthy? */
bool placement_card_could_fit(const struct card *card, const struct request *r);
/* The number of these cards that pass the test. */
uint32_t placement_count_cards(const struct card *cards, uint32_t n,
                               const struct request *r,
                               bool (*test)(const struct card *, const struct request *));

/* Does the node's mode allow the request? */
bool placement_mode_allows(const struct ledger_node *node, const struct request *r);

/* For preempt and gang_plan: the same rules on a copy of the node's cards that differs
 * from the ledger. `cards` has node->n_cards members. */

/* Does the request fit on these cards, if other pods are about to get `claimed` of them
 * through nvidia.com/gpu? */
enum fit placement_fit_cards(const struct ledger_node *node, const struct card *cards,
                             uint64_t claimed, const struct request *request);
/* As placement_choose, on these cards. */
bool placement_choose_cards(const struct ledger_node *node, const struct card *cards,
                            const struct request *request,
                            uint32_t picks[REQUEST_MAX_CARDS]);
/* Takes from `cards` what the pods nominated to the node with equal or higher priority
 * will get. Returns how many cards they will get through nvidia.com/gpu; which ones is
 * unknown. `gang`: its members do not count; NULL: none. */
uint64_t placement_take_nominated(const struct ledger_node *node, struct card *cards,
                                  int64_t priority, struct span uid,
                                  const struct ledger_gang *gang);
/* Chooses the request's cards among these `n` and takes its part of each; picks as in
 * placement_choose. False: it does not fit. */
bool placement_take(struct card *cards, uint32_t n, const struct request *request,
                    uint32_t picks[REQUEST_MAX_CARDS]);
