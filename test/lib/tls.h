/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * Certificates and TLS servers for tests, made with the `openssl` program.
 */

/* Creates dir/NAME.crt and dir/NAME.key of a certificate authority. */
void tls_make_ca(const char *dir, const char *name);
/* Creates a certificate for servers and clients, signed by the authority `ca`, with the
 * subjectAltName `names`: "DNS:api.test,IP:127.0.0.1". */
void tls_make_cert(const char *dir, const char *ca, const char *name, const char *names);
/* A certificate for ten days, one for servers only, and one that expired yesterday. */
void tls_make_short_cert(const char *dir, const char *ca, const char *name,
                         const char *names);
void tls_make_server_cert(const char *dir, const char *ca, const char *name,
                          const char *names);
void tls_make_expired_cert(const char *dir, const char *ca, const char *name,
                           const char *names);

/* Starts `openssl s_server -www` with the arguments `args` (ends with NULL) on the port, 0
 * for a free port. It answers each GET with a page that describes the connection. */
struct tls_server;
struct tls_server *tls_server_start(const char *dir, unsigned port,
                                    const char *const *args);
void tls_server_stop(struct tls_server *s);
unsigned tls_server_port(const struct tls_server *s);
