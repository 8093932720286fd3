/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "kube-sim/jsonx_priv.h"

/* The columns of the tables: one array per kind. */

enum column_type {
    COLUMN_TEXT,
    COLUMN_NUMBER,
    COLUMN_DATE, /* of a custom resource; the cell contains text */
};

struct column {
    const char *name;
    int priority; /* 0: always; 1: only with -o wide */
    enum column_type type;
    void (*cell)(const json_t *object, int64_t now_ms, struct buf *out);
};

extern const struct column sim_columns_namespace[], sim_columns_node[], sim_columns_pod[],
    sim_columns_event[], sim_columns_event_v1[], sim_columns_configmap[],
    sim_columns_secret[], sim_columns_lease[], sim_columns_scv[];

/* Appends a duration as kubectl prints it: "5s", "2m30s", "3h", "4d". */
void sim_columns_add_age(struct buf *out, int64_t seconds);
