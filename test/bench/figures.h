/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * What a bench has measured: the same figure in several rounds.
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

/* Of a figure that was noted at least once. */
struct spread figure_spread(const struct figure *f);
/* Of a to b, round by round. */
struct spread figure_ratio(const struct figure *a, const struct figure *b);

/* "name":{"median":...,"min":...,"max":...}, with the comma. */
void figure_json(struct buf *out, const char *name, struct spread s);
