/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * A pseudo-random number generator (splitmix64): the same seed gives the same numbers on
 * every machine. Not for secrets.
 */
struct rng {
    uint64_t state;
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
/* Uniformly distributed over 0 .. n-1; n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);
/* An unpredictable seed, from getrandom. */
uint64_t rng_entropy(void);
