/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/result.h"

#include <stdlib.h>

void result_note(struct result *f, double value)
{
    f->of[f->n++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread result_spread(const struct result *f)
{
    struct result sorted = *f;
    qsort(sorted.of, f->n, sizeof *f->of, compare);
    return (struct spread){sorted.of[f->n / 2], sorted.of[0], sorted.of[f->n - 1]};
}

struct spread result_ratio(const struct result *a, const struct result *b)
{
    struct result ratio = {.n = a->n};
    for (size_t i = 0; i < a->n; i++)
        ratio.of[i] = a->of[i] / b->of[i];
    return result_spread(&ratio);
}

void result_json(struct buf *out, const char *name, struct spread s)
{
    buf_printf(out, "\"%s\":{\"median\":%.4f,\"min\":%.4f,\"max\":%.4f},", name, s.median,
               s.min, s.max);
}
