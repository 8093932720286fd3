/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * HMAC-SHA-256 with a random key of this process: a fingerprint of a secret, which cannot
 * be guessed, chosen or compared with one of another process.
 */

enum { DIGEST_BYTES = 32 };

struct digest {
    unsigned char bytes[DIGEST_BYTES];
};

struct digest_key; /* secret */

/* New. NULL: no random numbers. */
struct digest_key *digest_key_new(struct err *err);
void digest_key_free(struct digest_key *key); /* wipes it; NULL is accepted */
/* Two texts have the same digest only if they are equal. */
struct digest digest_of(const struct digest_key *key, struct span text);
bool digest_equal(const struct digest *a, const struct digest *b);
