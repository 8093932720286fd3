/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>

void rng_init(struct rng *r, uint64_t seed)
{
    r->state = seed;
}

/* splitmix64, by Steele, Lea and Flood (OOPSLA 2014). */
uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    assert(n > 0);
    uint64_t first = -n % n; /* smaller values would bias the result */
    uint64_t v;
    do
        v = rng_next(r);
    while (v < first);
    return v % n;
}

uint64_t rng_entropy(void)
{
    uint64_t v;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
        abort();
    return v;
}
