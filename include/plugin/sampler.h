/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"
#include "plugin/brain.h"

/*
 * The thread that looks at the cards, and waits for events of them in between.
 */

struct sampler;

/* New; the thread runs at once. `gpu` and `brain` are borrowed. */
struct sampler *sampler_start(struct gpu *gpu, int64_t interval_ms, struct brain *brain);
/* Joins the thread. False: it hangs in the driver, and the process has to be ended as it
 * is. NULL is accepted. */
bool sampler_stop(struct sampler *s);
void sampler_free(struct sampler *s); /* NULL is accepted */

/* What is seen of a card; false: it is split into MIG instances, and not ours. */
bool sampler_card(const struct gpu_card *card, struct card_seen *seen);
