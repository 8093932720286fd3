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
 * - A card that cannot be read keeps its last known values, without those that change. So
 *   does a card that NVML no longer lists: it stays as lost, because pods may hold promises
 *   on it. It is dropped after NVML has worked without it for `keep_lost_ms`. It keeps its
 *   index, unless another card has that index now: then it gets the lowest free one.
 * - Cards in MIG mode are left out; their instances are cards. One that is destroyed is lost.
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

/* The health of the next card for which it changed since the last call that returned it, or
 * that is unhealthy and was not returned yet; NULL: none. Valid until the next change, as
 * *uuid, which is empty when unknown. */
const struct card_health *card_inventory_changed(struct card_inventory *inv,
                                                 int32_t *index, const char **uuid);
/* Sets the cards and versions of *scv; leaves its other members alone. Bytes are MiB,
 * rounded down per card. Unknown values are left out. The array is in the arena; strings
 * are valid until the next change. */
void card_inventory_report(const struct card_inventory *inv, struct arena *a,
                           struct scv *scv);
/* Whether a card, not an instance, is lost. NVML finds one that came back only after a reopen. */
bool card_inventory_any_lost(const struct card_inventory *inv);
bool card_inventory_is_empty(const struct card_inventory *inv);
/* Appends one clause per problem, separated by "; "; nothing when there is none. */
void card_inventory_message(const struct card_inventory *inv, struct buf *out);
