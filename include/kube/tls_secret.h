/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A Secret of type kubernetes.io/tls, with the keys that cert-manager writes too (tls.crt,
 * tls.key, ca.crt): from and to JSON. Private keys are overwritten before their memory is
 * freed.
 */

enum kube_tls_key {
    KUBE_TLS_CERT, /* tls.crt */
    KUBE_TLS_KEY,  /* tls.key */
    KUBE_TLS_CA,   /* ca.crt */
    KUBE_TLS_KEYS,
};

struct kube_tls_secret {
    bool exists;
    struct buf data[KUBE_TLS_KEYS]; /* decoded; empty: missing, or not base64 */
};

void kube_tls_secret_fini(struct kube_tls_secret *s);

/* Fills *s, which must be empty, from the API server's JSON. */
int kube_tls_secret_decode(struct span json, struct kube_tls_secret *s, struct err *err);
/* Appends the body of a POST. Release it with tls_wipe. */
void kube_tls_secret_encode(const struct kube_tls_secret *s, const char *ns,
                            const char *name, struct buf *out);
