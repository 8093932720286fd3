/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * A table as comma-separated values: a line of column names, then a line per row, each
 * with as many fields. Lines end with LF or CRLF, the last one may lack its end, and
 * empty lines at the end count for nothing. Quotes are refused, not interpreted: no trace
 * has them.
 *
 *     csv_open ... while (csv_row(&c) > 0) csv_int(&c, column, ...), csv_text(...)
 *
 * An error names the file, the line and the column. The first one stays.
 */

enum {
    CSV_COLUMNS = 32,
    CSV_FIELD = 256, /* bytes of a field, at most */
};

struct csv {
    const char *name; /* of the file, for errors; borrowed */
    struct span rest; /* what has not been read */
    unsigned line;    /* the one that was read last; the first is 1 */
    struct span columns[CSV_COLUMNS], fields[CSV_COLUMNS];
    size_t n; /* columns */
    struct err err;
};

/* Reads the line with the names. -1: see c->err. Spans borrow from `text`. */
int csv_open(struct csv *c, const char *name, struct span text);
/* The position of a column, or -1, which is an error if it is needed. */
int csv_column(struct csv *c, const char *name, bool needed);
/* The next row: 1; 0 at the end; -1 on an error. */
int csv_row(struct csv *c);
/* A field of the row. After an error it is 0, or empty. */
struct span csv_text(struct csv *c, int column);
int64_t csv_int(struct csv *c, int column, int64_t min, int64_t max);
/* What is wrong with a field of the row. Always -1. */
int csv_fail(struct csv *c, int column, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
