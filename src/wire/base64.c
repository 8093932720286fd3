/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/base64.h"

#include <gnutls/gnutls.h>
#include <stdlib.h>

typedef int convert_fn(const gnutls_datum_t *from, gnutls_datum_t *to);

/* The result may be a private key: no copy of it remains. */
static bool convert(convert_fn *with, struct span s, struct buf *out)
{
    const gnutls_datum_t from = {(unsigned char *)(s.n ? s.p : ""), (unsigned)s.n};
    gnutls_datum_t to = {0};
    if (s.n > UINT32_MAX || with(&from, &to))
        return false;
    buf_add(out, to.data, to.size);
    explicit_bzero(to.data, to.size);
    gnutls_free(to.data);
    return true;
}

bool base64_decode(struct span s, struct buf *out)
{
    return convert(gnutls_base64_decode2, s, out);
}

void base64_encode(struct span s, struct buf *out)
{
    if (!convert(gnutls_base64_encode2, s, out))
        abort(); /* out of memory, as in base/mem.h */
}
