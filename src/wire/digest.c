/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/digest.h"

#include <gnutls/crypto.h>
#include <stdlib.h>

#include "base/mem.h"

struct digest_key {
    unsigned char bytes[DIGEST_BYTES];
};

struct digest_key *digest_key_new(struct err *err)
{
    struct digest_key *key = xcalloc(1, sizeof *key);
    int rc = gnutls_rnd(GNUTLS_RND_KEY, key->bytes, sizeof key->bytes);
    if (rc == 0)
        return key;
    err_set(err, ERR_INTERNAL, "gnutls_rnd: %s", gnutls_strerror(rc));
    digest_key_free(key);
    return NULL;
}

void digest_key_free(struct digest_key *key)
{
    if (key)
        explicit_bzero(key->bytes, sizeof key->bytes);
    free(key);
}

struct digest digest_of(const struct digest_key *key, struct span text)
{
    struct digest d;
    if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, key->bytes, sizeof key->bytes, text.p, text.n,
                         d.bytes))
        abort(); /* only if SHA-256 does not exist */
    return d;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return gnutls_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
