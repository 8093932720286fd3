/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Kubernetes quantities, as far as extended resources use them: whole numbers, which the
 * API server writes in the shortest form ("16k" for 16000), and the unit of gpu-mem.
 * Grammar: k8s.io/apimachinery/pkg/api/resource, "Quantity".
 */

/* The whole number that the quantity stands for. A fraction, a negative number and one
 * that does not fit into 63 bits are errors. */
int quantity_read(struct span text, int64_t *value, struct err *err);
/* The same number with a fraction rounded up, as Quantity.Value() does. INT64_MAX when it
 * does not fit into 63 bits, is negative, or is no quantity at all. */
int64_t quantity_ceil(struct span text);

/* "GiB", "MiB" or "<n>MiB": how many MiB one unit of aliyun.com/gpu-mem is. */
int quantity_read_unit(struct span text, int64_t *mib, struct err *err);
/* The name of a unit: "GiB", "MiB" or "256MiB", appended. */
void quantity_write_unit(struct buf *out, int64_t mib);
