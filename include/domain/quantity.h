/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Kubernetes quantities of extended resources: whole numbers, which the API server writes
 * in the shortest form ("16k" for 16000), and the unit of gpu-mem.
 * Grammar: k8s.io/apimachinery/pkg/api/resource, "Quantity".
 */

/* Parses a whole number. A fraction, a negative number or one above 63 bits is an error. */
int quantity_read(struct span text, int64_t *value, struct err *err);
/* Rounds a fraction up, like Quantity.Value(). INT64_MAX for a value above 63 bits, a
 * negative one, or an invalid text. */
int64_t quantity_ceil(struct span text);

/* Thousandths, rounded up; `most` for a larger value, a negative one, or an invalid text.
 */
int64_t quantity_milli(struct span text, int64_t most);

/* Parses the unit of aliyun.com/gpu-mem: "GiB", "MiB" or "<n>MiB". */
int quantity_read_unit(struct span text, int64_t *mib, struct err *err);
/* Appends the name of a unit: "GiB", "MiB" or "256MiB". */
void quantity_write_unit(struct buf *out, int64_t mib);

static inline int64_t quantity_at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* For qsort: below, at or above 0. */
static inline int quantity_compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}
