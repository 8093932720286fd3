/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/mutate.h"

#include <stdlib.h>

#include "base/mem.h"

static void insert(struct buf *b, size_t at, const char *p, size_t n)
{
    buf_reserve(b, n);
    memmove(b->p + at + n, b->p + at, b->n - at + 1);
    memcpy(b->p + at, p, n);
    b->n += n;
}

static void remove_at(struct buf *b, size_t at, size_t n)
{
    memmove(b->p + at, b->p + at + n, b->n - at - n + 1);
    b->n -= n;
}

static void mutate_once(struct rng *rng, const char *const *words, size_t n_words,
                        struct buf *b)
{
    size_t at = rng_below(rng, b->n + 1), left = b->n - at;
    size_t n = left ? 1 + rng_below(rng, left < 40 ? left : 40) : 0;
    switch (rng_below(rng, 5)) {
    case 0:
        if (left)
            b->p[at] = (char)rng_next(rng);
        break;
    case 1:
        remove_at(b, at, n);
        break;
    case 2: {
        cleanup_free char *piece = xmemdup0(b->p + at, n);
        insert(b, rng_below(rng, b->n + 1), piece, n);
        break;
    }
    default: {
        const char *word = words[rng_below(rng, n_words)];
        insert(b, at, word, strlen(word));
        break;
    }
    }
}

void mutate(struct rng *rng, const char *const *words, struct buf *bytes)
{
    size_t n_words = 0;
    while (words[n_words])
        n_words++;
    buf_reserve(bytes, 1);
    bytes->p[bytes->n] = '\0';
    for (uint64_t times = 1 + rng_below(rng, 8); times; times--)
        mutate_once(rng, words, n_words, bytes);
}
