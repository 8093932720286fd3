/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "sim/jsonx_priv.h"

/* The columns of the tables: one list for each kind. */

struct column {
    const char *name;
    int priority; /* 0: always shown; 1: with -o wide */
    bool is_number;
    void (*cell)(const json_t *object, int64_t now_ms, struct buf *out);
};

extern const struct column columns_namespace[], columns_node[], columns_pod[],
    columns_event[], columns_event_v1[], columns_configmap[], columns_lease[],
    columns_scv[];

/* A span of time as kubectl writes it: "5s", "2m30s", "3h", "4d". */
void columns_add_age(struct buf *out, int64_t seconds);
