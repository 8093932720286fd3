/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"

/*
 * The cards of a sample beside what `nvidia-smi -q -x` says of them.
 */

struct smi_result {
    unsigned same, different, unknown; /* unknown: one of the two does not know it */
};

/* Appends a line per comparison. Values that move (free memory, temperature) may differ a
 * little. A card that only one of the two knows is different. */
struct smi_result smi_compare(struct buf *out, const struct gpu_sample *s,
                              struct span xml);
