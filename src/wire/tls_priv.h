/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>

#include "wire/tls.h"

/*
 *   tls.c         the files, and what is made of them
 *   tls_client.c  one connection: who is there?
 *
 * libmicrohttpd gives every session its own credentials, which never change; ours take
 * their place before the handshake begins.
 */

/* In use by the sessions that began with it. */
struct tls_material {
    atomic_uint refs;
    gnutls_certificate_credentials_t cred;
    /* With guests: the authorities of the clients, or NULL, and theirs. */
    gnutls_x509_trust_list_t lists[2];
};

/* Files that are good or bad together. */
struct tls_part {
    struct buf used[2]; /* the bytes in use */
    struct buf seen[2]; /* of the last look, when they differ */
    unsigned looks;     /* that saw the same */
    struct err problem; /* code NONE: none, or not yet sure */
};

struct tls {
    struct tls_config conf;  /* all strings owned */
    atomic_llong refused_ms; /* when a refused client was last logged */
    atomic_uint refused;     /* since then */

    pthread_mutex_t lock; /* protects what follows; held for a copy */
    struct tls_material *material;
    struct tls_part pair, ca; /* written by tls_refresh only */
    int64_t expires_s;        /* the certificate in use */
};

/* What is known of a client. */
enum tls_trust {
    TLS_UNAUTHENTICATED, /* no certificate, or none that counts */
    TLS_NOT_ALLOWED,     /* a good certificate of somebody who is not on the list */
    TLS_ALLOWED,
};

/* One connection. */
struct tls_client {
    struct tls *tls;
    struct tls_material *material;
    enum tls_trust trust;
    bool guest;
    char *name; /* the common name, or the first alternative one; NULL: a stranger */
};

/* Is a certificate asked for? */
static inline bool tls_asks(const struct tls_config *conf)
{
    return conf->client_ca_file || conf->secondary_ca_file;
}

/* Before the handshake. `client` must stay where it is until tls_client_fini. */
void tls_client_init(struct tls_client *client, struct tls *t, gnutls_session_t session);
void tls_client_fini(struct tls_client *client);
/* May it be answered? */
bool tls_client_admitted(const struct tls_client *client);
