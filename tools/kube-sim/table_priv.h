/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/object_priv.h"

/*
 * Tables: the form of objects that `kubectl get` asks for, with the columns made by the
 * server.
 */

enum table_rows {
    TABLE_METADATA, /* each row carries the object's metadata */
    TABLE_OBJECTS,  /* ... the object */
    TABLE_CELLS,    /* ... nothing */
};

struct table {
    const struct kind *kind;
    int64_t now_ms; /* ages are counted from here */
    enum table_rows rows;
};

/* Does the Accept header prefer a table? */
bool sim_table_wanted(const char *accept);
/* `include` is the value of ?includeObject=. */
struct table sim_table_of(const struct kind *kind, int64_t now_ms, struct span include);

/* Begins a table, up to the bracket behind which the rows go; "]}" ends it. */
void sim_table_begin(const struct table *t, bool with_columns, struct span metadata,
                     struct buf *out);
void sim_table_add_row(const struct table *t, const struct object *o, struct buf *out);
/* A whole table with one row. */
void sim_table_add(const struct table *t, bool with_columns, const struct object *o,
                   struct buf *out);
