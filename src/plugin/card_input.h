/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/dispatcher.h"

/*
 * Samples and events of node/card_sampler.h as messages for the dispatcher.
 */

struct card_input;

/* New; its thread runs at once. It looks at the driver's files when the cards or the
 * driver have changed, and once a minute. `gpu`, `dispatcher` and the strings of `driver`
 * are borrowed. */
struct card_input *card_input_start(struct gpu *gpu, int64_t interval_ms,
                                    const struct driver_view_settings *driver,
                                    struct dispatcher *dispatcher);
/* As card_sampler_stop. NULL is accepted. */
bool card_input_stop(struct card_input *in);
void card_input_free(struct card_input *in); /* NULL is accepted */
