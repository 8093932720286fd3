/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/str.h"

/*
 * The results of a benchmark: the same value in several rounds.
 */

enum { RESULT_ROUNDS = 51 };

struct result {
    double of[RESULT_ROUNDS];
    size_t n;
};

void result_note(struct result *f, double value);

struct spread {
    double median, min, max;
};

/* Of a result with at least one value. */
struct spread result_spread(const struct result *f);
/* The ratio of a to b in each round. */
struct spread result_ratio(const struct result *a, const struct result *b);

/* "name":{"median":...,"min":...,"max":...}, with the comma. */
void result_json(struct buf *out, const char *name, struct spread s);
