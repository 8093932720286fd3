/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"

#define SCV_MIB_MAX (INT64_C(1) << 40)

/* Reads a number of 0..most; another one is the fault `why`. True when the value is a
 * number; null leaves *out unchanged. */
bool scv_read_number(struct jread *j, const char *where, int64_t most, const char *why,
                     int64_t *out);

/* Reads podList and processList (scv_pods.c); `all` as in scv_read_all. */
void scv_pods_read(struct jread *j, struct arena *a, bool all, struct scv *scv);
void scv_pods_read_processes(struct jread *j, struct arena *a, bool all, struct scv *scv);
