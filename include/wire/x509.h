/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * X.509 certificates: makes them with new keys (ECDSA on P-256) and reads them, with
 * GnuTLS. Everything is PEM text. No function reads a clock. Times are seconds since
 * 1970.
 */

struct x509_pair {
    struct buf cert, key;
};
void x509_pair_fini(struct x509_pair *pair); /* overwrites the key */

struct x509_spec {
    const char *common_name;
    const char *const *names; /* DNS names and IP addresses; ends with NULL; or NULL */
    bool ca;                  /* may sign certificates, but no further authorities */
    bool server, client;      /* extended key usage of a certificate that is no CA */
    int64_t begins_s, expires_s;
};

/* Fills *out, which must be empty. `issuer` NULL: signs itself. -1: the issuer is invalid,
 * or a name is. */
int x509_make(const struct x509_spec *spec, const struct x509_pair *issuer,
              struct x509_pair *out, struct err *err);

struct x509_info {
    int64_t begins_s, expires_s;
    bool ca;
};

/* Reads the first certificate of the text. */
int x509_read(struct span cert_pem, struct x509_info *info, struct err *err);
/* As x509_read, and checks that the key belongs to the certificate. `info` may be NULL. */
int x509_read_pair(struct span cert_pem, struct span key_pem, struct x509_info *info,
                   struct err *err);

/* gpushare_certificate_expiry_timestamp_seconds and gpushare_certificate_lifetime_seconds. */
enum x509_metric { X509_EXPIRY, X509_LIFETIME, X509_N_METRICS };
/* Begins the family of the metric. */
void x509_family(struct buf *out, enum x509_metric metric);
/* Appends a sample of the metric with the label `certificate`: of the first certificate of a
 * chain that ends, or of the last of several authorities (`ca`). Appends nothing if the text has
 * no certificate. */
void x509_sample(struct buf *out, enum x509_metric metric, const char *certificate,
                 struct span pem, bool ca);
/* Whether a certificate of `ca_pem` has issued the first certificate of `cert_pem`, chain
 * included; no time is checked. */
bool x509_is_issued_by(struct span cert_pem, struct span ca_pem);

/* Appends the CA certificates of `pem` that `out` does not contain, while `out` has fewer
 * than `max`. Skips other certificates; unreadable text adds nothing. */
void x509_add_cas(struct buf *out, struct span pem, size_t max);
