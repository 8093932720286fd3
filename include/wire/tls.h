/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * What a listener proves itself with, and which clients it believes: certificate, key and
 * authorities, from PEM files that are read again when they change.
 *
 * A connection keeps what it began with; the next one gets what is there then. New files
 * are taken only if they are good: a key that is not the certificate's, a file that
 * cannot be read or parsed, a certificate that is over while the one before is not, leave
 * in use what was, and say so in the log and in tls_report. The two files of a pair are
 * changed one after the other by whoever writes them, so only what is found twice is
 * complained of.
 *
 * TLS 1.2 and 1.3. Safe from any thread, but for tls_refresh.
 */

struct tls;

struct tls_config {
    const char *name;                 /* for logs: that of the listener */
    const char *cert_file, *key_file; /* the certificate with its chain, and its key */
    /* Clients are asked for a certificate of these authorities, meant for clients (or not
     * restricted); NULL: they are not asked. Without one, or with another one, no request
     * is answered, unless `optional`: then they are strangers. */
    const char *client_ca_file;
    bool optional;
    /* Whom to believe: the common name or an alternative name (DNS, IP, URI, e-mail).
     * None: every client of the authorities. Borrowed. */
    const char *const *client_names;
    size_t n_client_names;
    bool common_name_only; /* compare nothing but the common name */
    /* Further authorities; needs `optional`. Their clients, whatever their names, are
     * guests, and told apart from those above. NULL: none. */
    const char *secondary_ca_file;
};

/* New; reads the files. The error names the file. */
struct tls *tls_new(const struct tls_config *config, struct err *err);
/* When no connection is left. NULL is accepted. */
void tls_free(struct tls *t);

/* Looks at the files; to be called once a second or so, by one thread. */
void tls_refresh(struct tls *t);
/* Appends a line for each thing that somebody should see to: new files that are not
 * taken, a certificate that is over. Nothing when all is well. */
void tls_report(struct tls *t, struct buf *out);

/* Appends the file with the authorities to believe when we are the client; checks that it
 * is one. The error names the file. */
int tls_read_ca(const char *file, struct buf *pem, struct err *err);

/* A copy of what is in use, for example to prove the same process as a client. Wipe the
 * key with tls_wipe. */
void tls_copy_pair(struct tls *t, struct buf *cert_pem, struct buf *key_pem);
void tls_wipe(struct buf *secret); /* and frees it */
