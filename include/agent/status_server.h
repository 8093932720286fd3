/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * How scv-agent is, over HTTP.
 *
 *   /healthz   a line for each part; 503 when one of them is in trouble
 *   /readyz    the same without what no other version of this program could cure: what a
 *              rolling update waits for
 *   /livez     503 when a thread does not move any more: then a restart helps
 *   /metrics   for Prometheus (agent/figures.h)
 *   /version
 */

struct status_server_checks {
    /* Of a publisher_check; -1: do the threads move? */
    int (*check)(void *ctx, int part, struct err *err);
    int (*ready)(void *ctx, int part, struct err *err); /* the same; 1: leave it out */
    void (*metrics)(void *ctx, struct buf *out);        /* appends the text */
    void *ctx;
};

struct probes;

/* New; answers at once. Prints where it listens. `checks` is copied. */
struct status_server *status_server_start(const char *address, unsigned port,
                            const struct status_server_checks *checks, struct err *err);
void status_server_stop(struct status_server *s); /* NULL is accepted */
