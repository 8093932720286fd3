/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/parts.h"

/*
 * Health and metrics over HTTP: /livez, /readyz and /healthz (plugin/parts.h), a line for
 * each part and 503 when one is in trouble; /metrics, /version.
 */

struct gauges;

/* New; answers at once, and prints where it listens. What it shows is borrowed. */
struct gauges *gauges_start(const char *address, unsigned port, struct err *err);
/* From now on there is something to show. Trouble younger than `late_ms` is none. */
void gauges_show(struct gauges *s, struct dispatcher *dispatcher, struct plugin_api *api,
                 int64_t late_ms);
void gauges_stop(struct gauges *s); /* NULL is accepted */

/* The text of /metrics. */
void gauges_write(struct buf *out, const struct parts *parts);
