/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/card_health.h"
#include "domain/scv.h"

/*
 * The cards of the node as they are published; pure. What the samples say, and on top:
 *
 * - A card that cannot be read is let be for `unhealthy_after_ms`, with its last
 *   readings, and so are all of them when no sample can be taken. One that is lost, or
 *   has to be reset, is ill at once. How it gets well again is told in agent/health.h.
 * - A card that was there once stays in the list, as lost, when NVML lists it no more:
 *   pods may hold promises on it. It is dropped when NVML has worked without it for
 *   `keep_lost_ms`. It keeps its index, unless another card has that now: then it gets
 *   the lowest one that is free.
 * - Cards that are split into MIG instances are left out.
 */

struct card_inventory_settings {
    int64_t unhealthy_after_ms, keep_lost_ms;
    struct card_health_settings health;
};

struct card_inventory;

struct card_inventory *card_inventory_new(const struct card_inventory_settings *settings); /* new */
void card_inventory_free(struct card_inventory *inv); /* NULL is fine */

/* A new sample. `now_ms` is of a clock that never goes back. */
void card_inventory_sample(struct card_inventory *inv, int64_t now_ms, const struct gpu_sample *s);
/* There is none, and why. `at_once`: nothing more is known of the cards from now on. */
void card_inventory_failed(struct card_inventory *inv, int64_t now_ms, const char *why,
                      bool at_once);
/* As card_health_event. */
bool card_inventory_event(struct card_inventory *inv, int64_t now_ms,
                     const struct gpu_event *event);
/* What was published before this process began. Cards that are not known yet are added,
 * and those that were Unhealthy have to show first that they are not. */
void card_inventory_adopt(struct card_inventory *inv, int64_t now_ms, const struct scv *scv);

size_t card_inventory_count(const struct card_inventory *inv);
/* By rising index; with their health. Valid until the next change. */
const struct gpu_card *card_inventory_card(const struct card_inventory *inv, size_t i,
                                      bool *healthy, const char **why);
/* Fills *scv as scv_build_cards does. */
void card_inventory_report(const struct card_inventory *inv, struct arena *a, struct scv *scv);
/* Is a card lost? NVML sees it come back only after it was initialised anew. */
bool card_inventory_any_lost(const struct card_inventory *inv);
const char *card_inventory_driver(const struct card_inventory *inv); /* version, or "" */
/* What people should know, one clause behind the other; nothing when all is well. */
void card_inventory_message(const struct card_inventory *inv, struct buf *out);
