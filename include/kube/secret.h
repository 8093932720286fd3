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

enum secret_key {
    SECRET_CERT, /* tls.crt */
    SECRET_KEY,  /* tls.key */
    SECRET_CA,   /* ca.crt */
    SECRET_KEYS,
};

struct secret {
    bool exists;
    struct buf data[SECRET_KEYS]; /* decoded; empty: missing, or not base64 */
};

void secret_fini(struct secret *s);

/* Fills *s, which must be empty, from the API server's JSON. */
int secret_decode(struct span json, struct secret *s, struct err *err);
/* Appends the body of a POST. Release it with buf_wipe. */
void secret_encode(const struct secret *s, const char *ns, const char *name,
                   struct buf *out);
