/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"
#include "gpu/gpu.h"

/*
 * The status of the Scv from a sample. Pure.
 *
 * Bytes become MiB, rounded down per card. Cards in MIG mode are left out. A card that
 * cannot be reached keeps its last known values, without free memory. Unknown values are
 * left out.
 */

/* Sets the cards and versions of *scv; leaves its other members alone. Strings are
 * borrowed from the sample, arrays are in the arena. `healthy` has one value per card of
 * the sample; NULL: a card is healthy when its state is GPU_OK. */
void scv_build_cards(const struct gpu_sample *s, const bool *healthy, struct arena *a,
                     struct scv *scv);
