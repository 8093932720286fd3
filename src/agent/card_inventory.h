/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"
#include "node/card_health.h"

/*
 * The cards of the node as the Scv publishes them: the samples, with the following rules.
 * Pure.
 *
 * - node/card_health.h decides the health of each card. While it tolerates an unreadable
 *   card, or failed samples of the whole node, the last readings are published.
 * - A card that NVML no longer lists stays as lost, because pods may hold promises on it.
 *   It is dropped after NVML has worked without it for `keep_lost_ms`. It keeps its
 *   index, unless another card has that index now: then it gets the lowest free one.
 * - Cards in MIG mode are left out.
 */

struct card_inventory_settings {
    int64_t keep_lost_ms;
    struct card_health_settings health;
};

struct card_inventory;

struct card_inventory *
card_inventory_new(const struct card_inventory_settings *settings); /* new */
void card_inventory_free(struct card_inventory *inv);               /* NULL is accepted */

/* Takes a sample. `now_ms` is of a clock that never goes back. */
void card_inventory_sample(struct card_inventory *inv, int64_t now_ms,
                           const struct gpu_sample *s);
/* Takes a failed sample. `at_once`: every card is unhealthy, without tolerance. */
void card_inventory_failed(struct card_inventory *inv, int64_t now_ms, const char *reason,
                           bool at_once);
/* Takes an event. True: it made a card unhealthy, or keeps it so. */
bool card_inventory_event(struct card_inventory *inv, int64_t now_ms,
                          const struct gpu_event *event);
/* Takes the Scv that the previous process published: adds the cards that are not known
 * yet. Cards that were Unhealthy must recover first. */
void card_inventory_adopt(struct card_inventory *inv, int64_t now_ms,
                          const struct scv *scv);

size_t card_inventory_count(const struct card_inventory *inv);
/* By rising index. *reason is empty when the card is healthy. Valid until the next
 * change. */
const struct gpu_card *card_inventory_card(const struct card_inventory *inv, size_t i,
                                           bool *healthy, const char **reason);
/* The next card whose health changed since the last call that returned it, or that is
 * unhealthy and was not returned yet; NULL: none. */
const struct gpu_card *card_inventory_changed(struct card_inventory *inv, bool *healthy,
                                              const char **reason);
/* Sets the cards and versions of *scv, as node_scv_add_cards does. */
void card_inventory_report(const struct card_inventory *inv, struct arena *a,
                           struct scv *scv);
/* Whether a card is lost. NVML finds a card that came back only after a reopen. */
bool card_inventory_any_lost(const struct card_inventory *inv);
const char *card_inventory_driver(const struct card_inventory *inv); /* version, or "" */
/* Appends one clause per problem, separated by "; "; nothing when there is none. */
void card_inventory_message(const struct card_inventory *inv, struct buf *out);
