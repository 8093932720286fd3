/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * Certificates and TLS servers for tests, made with the `openssl` program.
 */

/* dir/NAME.crt and dir/NAME.key of an authority. */
void tls_make_ca(const char *dir, const char *name);
/* The same of a server or client, signed by the authority `ca`; `names` is a list as in
 * subjectAltName: "DNS:api.test,IP:127.0.0.1". */
void tls_make_cert(const char *dir, const char *ca, const char *name, const char *names);
/* One that is for servers only, and one that was over yesterday. */
void tls_make_server_cert(const char *dir, const char *ca, const char *name,
                          const char *names);
void tls_make_expired_cert(const char *dir, const char *ca, const char *name,
                           const char *names);

/* `openssl s_server -www` with these further arguments (ends with NULL) on the port, 0
 * for a free one. It answers each GET with a page about the connection. */
struct tls_server;
struct tls_server *tls_server_start(const char *dir, unsigned port,
                                    const char *const *args);
void tls_server_stop(struct tls_server *s);
unsigned tls_server_port(const struct tls_server *s);
