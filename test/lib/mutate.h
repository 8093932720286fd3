/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "base/str.h"

/*
 * Input spoilt at random, but the same for the same seed: bytes changed, removed,
 * repeated and moved, and pieces of `words` (ends with NULL) put in.
 */
void mutate(struct rng *rng, const char *const *words, struct buf *bytes);
