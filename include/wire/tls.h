/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The TLS configuration of a listener: certificate, key and certificate authorities for
 * client certificates, from PEM files that are reloaded when they change.
 *
 * A connection keeps the configuration that it began with; a reload applies to later
 * connections. A reload is rejected, and the old files stay in use, if the key does not
 * match the certificate, a file cannot be read or parsed, or the new certificate has
 * expired while the old one has not; then the log and tls_report say so. Certificate and
 * key are usually written one after the other, so an error is reported only if the next
 * check finds the same files.
 *
 * TLS 1.2 and 1.3. All functions except tls_refresh may be called from any thread.
 */

struct tls;

struct tls_config {
    const char *name;                 /* of the listener, for logs */
    const char *cert_file, *key_file; /* the certificate chain, and its key */
    /* Certificate authorities for client certificates, which must allow the purpose
     * client authentication; NULL: no certificate is requested. A client without a valid
     * certificate fails in the handshake, or, if `optional`, is unauthenticated. */
    const char *client_ca_file;
    bool optional;
    /* Allowed names: common name or subject alternative name (DNS, IP, URI, e-mail).
     * None: every name. Copied. */
    const char *const *client_names;
    size_t n_client_names;
    bool common_name_only; /* ignore subject alternative names */
    /* More certificate authorities, whose clients may have any name and are reported by
     * httpd_secondary_client_name; needs `optional`. NULL: none. */
    const char *secondary_ca_file;
};

/* New; reads the files. The error names the file. */
struct tls *tls_new(const struct tls_config *config, struct err *err);
/* Only when no connection uses it. NULL is accepted. */
void tls_free(struct tls *t);

/* Checks the files and reloads changed ones; to be called about once a second, by one
 * thread. */
void tls_refresh(struct tls *t);
/* Appends a line per problem: a rejected reload, an expired certificate. Appends nothing
 * if there is no problem. */
void tls_report(struct tls *t, struct buf *out);

/* Appends a file of certificate authorities, for a TLS client; checks that it contains a
 * certificate. The error names the file. */
int tls_read_ca(const char *file, struct buf *pem, struct err *err);

/* Appends the certificate and key in use, for example for a client certificate of the
 * same process. Release the key with tls_wipe. */
void tls_copy_pair(struct tls *t, struct buf *cert_pem, struct buf *key_pem);
void tls_wipe(struct buf *secret); /* overwrites and frees it */
