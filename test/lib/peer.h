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
/* With TLS; the server must show a certificate of this authority (a file). */
void peer_init_tls(struct peer *p, unsigned port, const char *ca);
/* And shows one itself (files). */
void peer_init_cert(struct peer *p, unsigned port, const char *ca, const char *cert,
                    const char *key);
/* The same of a server whose certificate is for the name SERVER.test; `cert` and `key`
 * may be NULL. */
void peer_init_server(struct peer *p, unsigned port, const char *ca, const char *server,
                      const char *cert, const char *key);
void peer_fini(struct peer *p);
/* Sends and returns the status; 0 when no answer came. The body of the answer replaces
 * what is in *reply. `body` NULL: none. From any thread. */
unsigned peer_call(const struct peer *p, const char *method, const char *path,
                   const char *body, struct buf *reply);
/* The same with an answer of 2xx that is JSON. New. */
json_t *peer_json(const struct peer *p, const char *method, const char *path,
                  const char *body);
unsigned peer_status(const struct peer *p, const char *path); /* of a GET */
