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
/* With a client certificate, too (files); `cert` and `key` may be NULL. */
void peer_init_cert(struct peer *p, unsigned port, const char *ca, const char *cert,
                    const char *key);
void peer_fini(struct peer *p);
/* Sends a request and returns the status, 0 if there was no reply. The reply's body replaces
 * *reply. `body` may be NULL. Thread-safe. */
unsigned peer_call(const struct peer *p, const char *method, const char *path,
                   const char *body, struct buf *reply);
/* Sends a request that must be answered with 2xx and JSON. New. */
json_t *peer_json(const struct peer *p, const char *method, const char *path,
                  const char *body);
json_t *peer_get(const struct peer *p, const char *path); /* the same with GET, kept */
json_t *peer_post(const struct peer *p, const char *path,
                  const char *body); /* POST, kept */
/* The same without the reply. */
void peer_do(const struct peer *p, const char *method, const char *path,
             const char *body);
unsigned peer_status(const struct peer *p, const char *path); /* of a GET */
/* Does it answer GET with this status, and a body that contains the text? */
bool peer_says(const struct peer *p, const char *path, unsigned status, const char *text);
/* The value of a sample of the metrics at the path: "gpushare_binds_total{result=\"ok\"}". -1:
 * none, or no answer. */
double peer_metric_at(const struct peer *p, const char *path, const char *sample);
double peer_metric(const struct peer *p, const char *sample); /* at /metrics */
