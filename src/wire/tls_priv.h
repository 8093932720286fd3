/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <gnutls/gnutls.h>

#include "wire/tls.h"

/* What tls.c does for the server. */

/* One connection. */
struct tls_client {
    struct tls *tls;
    struct tls_material *material;
    bool trusted[TLS_GROUPS]; /* the group verifies the certificate and allows its name */
    char *name; /* common name, or first alternative name; NULL: no valid certificate */
    void (*on_flight)(struct tls_client *client);
};

/* To be called before the handshake. `client` must not move until tls_client_fini.
 * `on_flight` is called when the handshake has nothing more to compute until the client
 * answers. */
void tls_client_init(struct tls_client *client, struct tls *t, gnutls_session_t session,
                     void (*on_flight)(struct tls_client *client));
void tls_client_fini(struct tls_client *client);
