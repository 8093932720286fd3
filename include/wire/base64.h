/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* Base64 (RFC 4648, section 4), by GnuTLS. Decoding is strict: padding is required, unused
 * bits must be zero, and only white space is ignored. Both append to out, which is unchanged
 * if base64_decode returns false. */
bool base64_decode(struct span s, struct buf *out);
void base64_encode(struct span s, struct buf *out);
