/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/mem.h"
#include "extender/view_metrics.h"

/* Writes the metrics of nodes and cards. `mix`: the requests of recent pods, from which
 * stranded memory is computed. */
void view_metrics_cards_write(struct store *store, const struct request_mix *mix,
                              enum view_metrics_detail detail, struct buf *out);
