/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/api.h"
#include "plugin/brain.h"

/*
 * Health and metrics over HTTP: /healthz and /readyz (registered, and the pods of the
 * node are known), /livez (the thread that decides comes by), /metrics, /version.
 */

struct server;

/* New; answers at once, and prints where it listens. What it shows is borrowed. */
struct server *server_start(const char *address, unsigned port, struct err *err);
/* From now on there is something to show. */
void server_show(struct server *s, struct brain *brain, struct api *api);
void server_stop(struct server *s); /* NULL is accepted */

/* The text of /metrics. */
void metrics_write(struct buf *out, const struct brain_stats *brain,
                   const struct api_stats *api);
