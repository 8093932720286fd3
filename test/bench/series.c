/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/series.h"

#include <stdlib.h>

#include "base/mem.h"

void series_note(struct series *s, double value)
{
    MEM_GROW(s->of, s->cap, s->n + 1);
    s->of[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double series_quantile(struct series *s, double share)
{
    if (!s->n)
        return 0;
    qsort(s->of, s->n, sizeof *s->of, by_value);
    size_t i = (size_t)(share * (double)s->n);
    return s->of[i < s->n ? i : s->n - 1];
}

void series_fini(struct series *s)
{
    free(s->of);
    *s = (struct series){0};
}
