/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>

#include "wire/tls.h"

/*
 *   tls.c         loads and reloads the files
 *   tls_client.c  verifies the client of one connection
 *
 * libmicrohttpd sets its own, constant credentials in every session; tls_client_init
 * replaces them before the handshake.
 */

enum { TLS_FIRST, TLS_SECOND, TLS_OWN, TLS_GROUPS };

/* Credentials, shared by the sessions that began with them. */
struct tls_material {
    atomic_uint refs;
    gnutls_certificate_credentials_t cred;
    gnutls_x509_trust_list_t lists[TLS_GROUPS]; /* the CAs of each group, or NULL */
};

/* Two files that are reloaded together. */
struct tls_part {
    struct buf used[2]; /* content in use */
    struct buf seen[2]; /* content at the last check, if it is invalid */
    unsigned checks;    /* consecutive checks that found `seen` */
    struct err problem; /* code ERR_NONE: none, or not confirmed */
};

struct tls {
    struct tls_config conf;   /* all strings owned */
    atomic_llong rejected_ms; /* time of the last log line about a rejected client */
    atomic_uint rejected;     /* clients rejected since then */

    pthread_mutex_t lock; /* protects the fields below; held for a copy */
    struct tls_material *material;
    struct tls_part pair, ca; /* written by tls_refresh and tls_set only */
    struct buf own_ca;        /* written by tls_set only */
    int64_t expires_s;        /* the certificate in use */
};

/* One connection. */
struct tls_client {
    struct tls *tls;
    struct tls_material *material;
    bool trusted[TLS_GROUPS]; /* the group verifies the certificate and allows its name */
    char *name; /* common name, or first alternative name; NULL: no valid certificate */
};

/* Whether the server requests a client certificate. */
static inline bool tls_requests_cert(const struct tls_config *conf)
{
    return conf->client_ca_file || conf->secondary_ca_file || conf->n_own_names;
}

/* To be called before the handshake. `client` must not move until tls_client_fini. */
void tls_client_init(struct tls_client *client, struct tls *t, gnutls_session_t session);
void tls_client_fini(struct tls_client *client);
