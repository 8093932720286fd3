/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "kube-sim/api.h"

/*
 * HTTP in front of an API server: one lock over it, a thread per connection, watches that
 * sleep until they have something. Under /kube-sim/ it can be told to misbehave; see
 * docs/kube-sim.md.
 */

struct sim_server;

struct sim_server_config {
    const char *address;            /* "127.0.0.1" */
    unsigned port;                  /* 0: a free one */
    const char *token;              /* NULL: nobody is asked who he is */
    const char *cert_pem, *key_pem; /* PEM text; both NULL: plain HTTP */
    unsigned connections;           /* at most; 0: 1024 */
};

/* Starts to serve `api`, which belongs to the server until sim_server_stop, and is
 * borrowed. *port gets the port. NULL on failure. */
struct sim_server *sim_server_start(struct api *api,
                                    const struct sim_server_config *config,
                                    unsigned *port, struct err *err);
/* Lets time pass (api_tick). */
void sim_server_tick(struct sim_server *s, int64_t now_ms);
/* Ends all requests and watches, and frees the server. NULL is accepted. */
void sim_server_stop(struct sim_server *s);
