/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Probes and metrics of a node program over HTTP.
 *
 *   /livez     503 when a thread hangs: only a restart helps
 *   /readyz    503 when a check fails that a rolling update must wait for
 *   /healthz   503 when any check fails
 *   /metrics   in Prometheus' text format, with the process's own metrics
 *   /version
 *
 * The body of the first three has a line "NAME: ok" or "NAME: reason" for each name of a check.
 * Checks of publishing and of allocating can have the same name: the line says why one fails.
 */

enum status_probe { STATUS_LIVEZ, STATUS_READYZ, STATUS_HEALTHZ };

struct status_report;

/* Adds a check. `name` is a static string. `rc` 0: ok; else `err` has the reason. `required`: a
 * failure fails the probe; without it the line says that readiness does not depend on it. */
void status_report_add(struct status_report *report, const char *name, int rc,
                       const struct err *err, bool required);

struct status_server_fns {
    /* Adds every check of the probe. Called from the server's thread. */
    void (*checks)(void *ctx, enum status_probe probe, struct status_report *report);
    void (*metrics)(void *ctx, struct buf *out); /* appends the program's metrics */
    void *ctx;
};

struct status_server;

/* New; answers at once. Prints "listening on ADDRESS:PORT" to standard error; port 0
 * takes a free one. `fns` is copied. */
struct status_server *status_server_start(const char *address, unsigned port,
                                          const struct status_server_fns *fns,
                                          struct err *err);
void status_server_stop(struct status_server *s); /* NULL is accepted */
