/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Facts about certificates in PEM, for the checks; pure. A certificate file may hold a
 * chain: its first certificate counts.
 */

/* The end of the validity, in seconds since 1970. -1: `cert` holds no certificate. */
int certificate_expiry(struct span cert, int64_t *expires_s, struct err *err);
/* Does one of the certificates in `ca` sign the chain in `cert`? The validity in time is
 * not considered. */
bool certificate_is_signed_by(struct span cert, struct span ca);
/* Is `key` the private key of the certificate? */
bool certificate_has_key(struct span cert, struct span key);
/* Does `bundle` hold every certificate of `ca`? False if `ca` holds none. */
bool certificate_bundle_holds(struct span bundle, struct span ca);
