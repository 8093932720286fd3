/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/object_priv.h"

/*
 * Tables: the representation that `kubectl get` requests, with columns from the server.
 */

enum table_rows {
    TABLE_METADATA, /* each row contains the object's metadata */
    TABLE_OBJECTS,  /* each row contains the object */
    TABLE_CELLS,    /* only cells */
};

struct table {
    const struct kind *kind;
    int64_t now_ms; /* ages are relative to this time */
    enum table_rows rows;
};

/* Does the Accept header prefer a table? */
bool sim_table_wanted(const char *accept);
/* `include` is the value of ?includeObject=. */
struct table sim_table_of(const struct kind *kind, int64_t now_ms, struct span include);

/* Appends the start of a table, up to the "[" of the rows; the caller ends it with "]}". */
void sim_table_begin(const struct table *t, bool with_columns, struct span metadata,
                     struct buf *out);
void sim_table_add_row(const struct table *t, const struct object *o, struct buf *out);
/* Appends a table with one row. */
void sim_table_add(const struct table *t, bool with_columns, const struct object *o,
                   struct buf *out);
