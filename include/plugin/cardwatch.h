/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"
#include "plugin/dispatcher.h"

/*
 * The thread that looks at the cards, and waits for events of them in between.
 */

struct cardwatch;

/* New; the thread runs at once. `gpu` and `dispatcher` are borrowed. */
struct cardwatch *cardwatch_start(struct gpu *gpu, int64_t interval_ms,
                                  struct dispatcher *dispatcher);
/* Joins the thread. False: it hangs in the driver, and the process has to be ended as it
 * is. NULL is accepted. */
bool cardwatch_stop(struct cardwatch *s);
void cardwatch_free(struct cardwatch *s); /* NULL is accepted */

/* What is seen of a card; false: it is split into MIG instances, and not ours. */
bool cardwatch_card(const struct gpu_card *card, struct card_seen *seen);
