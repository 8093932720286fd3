/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * The results of a benchmark: the same value in several rounds.
 */

enum { FIGURE_ROUNDS = 51 };

struct figure {
    double of[FIGURE_ROUNDS];
    size_t n;
};

void figure_note(struct figure *f, double value);

struct spread {
    double median, min, max;
};

/* Of a result with at least one value. */
struct spread figure_spread(const struct figure *f);
/* The ratio of a to b in each round. */
struct spread figure_ratio(const struct figure *a, const struct figure *b);

/* "name":{"median":...,"min":...,"max":...}, with the comma. */
void figure_json(struct buf *out, const char *name, struct spread s);
