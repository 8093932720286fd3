/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* A series of measured values. {0} is empty. */
struct series {
    double *of;
    size_t n, cap;
};

void series_note(struct series *s, double value);
/* The quantile of a share; sorts the values. 0 if there are none. */
double series_quantile(struct series *s, double share);
void series_fini(struct series *s);
