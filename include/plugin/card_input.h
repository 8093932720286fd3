/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/dispatcher.h"

/*
 * Samples and events of node/card_sampler.h as messages for the dispatcher.
 */

struct card_input;

/* New; its thread runs at once. `gpu` and `dispatcher` are borrowed. */
struct card_input *card_input_start(struct gpu *gpu, int64_t interval_ms,
                                    struct dispatcher *dispatcher);
/* As card_sampler_stop. NULL is accepted. */
bool card_input_stop(struct card_input *in);
void card_input_free(struct card_input *in); /* NULL is accepted */
