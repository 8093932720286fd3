/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "wire/httpc.h"

/* Requests to a server on 127.0.0.1. */

struct peer {
    unsigned port;
    struct httpc *http;
    const char *authorization; /* or NULL */
};

void peer_init(struct peer *p, unsigned port);
/* With TLS. `ca`: file of the authority that must have signed the server's certificate. */
void peer_init_tls(struct peer *p, unsigned port, const char *ca);
/* With a client certificate, too (files). */
void peer_init_cert(struct peer *p, unsigned port, const char *ca, const char *cert,
                    const char *key);
/* For a server whose certificate has the name SERVER.test; `cert` and `key` may be NULL. */
void peer_init_server(struct peer *p, unsigned port, const char *ca, const char *server,
                      const char *cert, const char *key);
void peer_fini(struct peer *p);
/* Sends a request and returns the status, 0 if there was no reply. The reply's body replaces
 * *reply. `body` may be NULL. Thread-safe. */
unsigned peer_call(const struct peer *p, const char *method, const char *path,
                   const char *body, struct buf *reply);
/* Sends a request that must be answered with 2xx and JSON. New. */
json_t *peer_json(const struct peer *p, const char *method, const char *path,
                  const char *body);
unsigned peer_status(const struct peer *p, const char *path); /* of a GET */
