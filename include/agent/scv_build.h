/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/card_health.h"
#include "domain/scv.h"

/*
 * From what the cards say to what the Scv object says; pure.
 *
 * Bytes become MiB, floored for each card. A card that is split into MIG instances is
 * left out. A card that cannot be reached keeps what was known of it, without free
 * memory. What is unknown is left out.
 */

/* Fills the cards and versions of *scv, and leaves the rest alone. Strings are borrowed
 * from the sample, the arrays are in the arena. Without `h`, a card is healthy when its
 * state is GPU_OK. */
void scv_build_cards(const struct gpu_sample *s, const struct card_health *h, struct arena *a,
                  struct scv *scv);
