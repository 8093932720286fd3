/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* Base64 (RFC 4648, section 4). Decoding is strict: padding must be there, the bits that
 * it leaves over must be zero, only white space is ignored. Both append to out; after a
 * false out is as it was. */
bool base64_decode(struct span s, struct buf *out);
void base64_encode(struct span s, struct buf *out);
