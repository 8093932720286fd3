/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "base/str.h"

/*
 * Mutates input at random, reproducibly from the seed: changes, removes, repeats and moves
 * bytes, and inserts pieces of `words` (ends with NULL).
 */
void mutate(struct rng *rng, const char *const *words, struct buf *bytes);
