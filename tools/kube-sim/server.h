/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "kube-sim/api.h"

/*
 * The HTTP server of the API: one lock, a thread per connection, watches that sleep until
 * an event arrives. Requests under /kube-sim/ inject faults (docs/testing.md).
 */

struct sim_server;

struct sim_server_config {
    const char *address;            /* "127.0.0.1" */
    unsigned port;                  /* 0: a free one */
    const char *token;              /* NULL: no authentication */
    const char *cert_pem, *key_pem; /* PEM text; both NULL: plain HTTP */
    unsigned connections;           /* maximum; 0: 1024 */
};

/* Serves `api`, which is borrowed; only the server uses it until sim_server_stop. Sets
 * *port. NULL on error. */
struct sim_server *sim_server_start(struct api *api,
                                    const struct sim_server_config *config,
                                    unsigned *port, struct err *err);
/* api_tick under the lock. */
void sim_server_tick(struct sim_server *s, int64_t now_ms);
/* Ends all requests and watches, and frees the server. NULL is accepted. */
void sim_server_stop(struct sim_server *s);
