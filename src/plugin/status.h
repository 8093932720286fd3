/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/health_checks.h"

/*
 * node/status_server.h with the health checks and metrics of the device plugin.
 */

struct status;

/* New; answers at once, and prints where it listens. */
struct status *status_start(const char *address, unsigned port, struct err *err);
/* The parts to report from now on; borrowed. Failures shorter than `late_ms` are not
 * reported. */
void status_set_parts(struct status *s, struct dispatcher *dispatcher,
                      struct plugin_api *api, int64_t late_ms);
void status_stop(struct status *s); /* NULL is accepted */
