/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/api.h"
#include "plugin/brain.h"

/*
 * Health and metrics over HTTP: /healthz and /readyz (registered, and the pods of the
 * node are known), /livez (the thread that decides comes by), /metrics, /version.
 */

struct gauges;

/* New; answers at once, and prints where it listens. What it shows is borrowed. */
struct gauges *gauges_start(const char *address, unsigned port, struct err *err);
/* From now on there is something to show. */
void gauges_show(struct gauges *s, struct brain *brain, struct api *api);
void gauges_stop(struct gauges *s); /* NULL is accepted */

/* The text of /metrics. */
void gauges_write(struct buf *out, const struct brain_stats *brain,
                  const struct plugin_api_stats *api);
