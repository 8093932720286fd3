/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/x509.h"

/*
 * The TLS configuration of a listener: certificate, key and certificate authorities for
 * client certificates, from PEM files that are reloaded when they change, or from memory
 * (tls_set).
 *
 * A client certificate is requested, never required: a client without a valid one is
 * unauthenticated, and the handlers decide what it may do. So a probe of the kubelet,
 * which has no certificate, can use the same listener.
 *
 * A connection keeps the configuration that it began with; a reload applies to later
 * connections. A reload of certificate and key, or of the authorities, is rejected, and the
 * old files stay in use, if the key does not match the certificate, a file cannot be read
 * or parsed, or the new certificate has expired while the old one has not; then the log and
 * tls_report say so. Certificate and key are usually written one after the other, so an
 * error is reported only if the next check fails in the same way.
 *
 * TLS 1.2 and 1.3. All functions except tls_refresh may be called from any thread.
 */

struct tls;

/* Groups of certificate authorities for client certificates, which must allow the purpose
 * client authentication. A client can be of several. */
enum tls_group {
    TLS_CLIENTS,   /* of a file */
    TLS_SECONDARY, /* of another file */
    TLS_OWN,       /* of tls_set */
    TLS_GROUPS,
    TLS_ANY = TLS_GROUPS, /* httpd_client_name: any authority, whatever the name is */
};

/* Strings, and the arrays `names` of strings, are borrowed until tls_free. */
struct tls_config {
    const char *name;                 /* of the listener, for logs */
    const char *cert_file, *key_file; /* the certificate chain, and its key; NULL: */
    struct span cert_pem, key_pem;    /* the first pair in memory; copied */
    /* Without a file and names in any group, no certificate is requested. */
    struct tls_names {
        const char *ca_file; /* NULL: the group is empty, unless it is TLS_OWN */
        /* Allowed: common name or subject alternative name (DNS, IP, URI, e-mail). None:
         * every name. */
        const char *const *names;
        size_t n;
        bool common_name_only; /* ignore subject alternative names */
    } groups[TLS_GROUPS];
};

/* New; reads the files. The error names the file. */
struct tls *tls_new(const struct tls_config *config, struct err *err);
/* Only when no connection uses it. NULL is accepted. */
void tls_free(struct tls *t);

/* Checks the files and reloads changed ones; to be called about once a second, by one
 * thread. */
void tls_refresh(struct tls *t);
/* Replaces the certificate in memory, its key, and the certificate authorities of TLS_OWN
 * (PEM; empty: none) for later connections. -1: one of them is invalid, and
 * the old ones stay in use. To be called by the thread of tls_refresh. */
int tls_set(struct tls *t, struct span cert_pem, struct span key_pem, struct span own_ca,
            struct err *err);
/* Appends a line per problem: a rejected reload, an expired certificate. Appends nothing
 * if there is no problem. */
void tls_report(struct tls *t, struct buf *out);

/* Appends x509_sample of the certificate in use and of each group; `names` has their labels
 * (NULL: none), first that of the certificate. */
void tls_samples(struct tls *t, enum x509_metric metric,
                 const char *const names[1 + TLS_GROUPS], struct buf *out);

/* Appends a file of certificate authorities, for a TLS client; checks that it contains a
 * certificate. The error names the file. */
int tls_read_ca(const char *file, struct buf *pem, struct err *err);

/* Appends the certificate and key in use, for example for a client certificate of the
 * same process. Release the key with buf_wipe. */
void tls_copy_pair(struct tls *t, struct buf *cert_pem, struct buf *key_pem);
/* Appends the certificate authorities of TLS_OWN. */
void tls_copy_own_ca(struct tls *t, struct buf *pem);
