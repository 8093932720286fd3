/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/mem.h"
#include "extender/view_metrics.h"

/* The part about nodes and cards. `mix`: what pods ask for, for what is stranded. */
void view_metrics_cards_write(struct store *store, const struct mix *mix,
                              enum view_metrics_detail detail, struct buf *out);
