/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/*
 * A table as comma-separated values: a line of column names, then a line per row with the
 * same number of fields. Lines end with LF or CRLF; the last line may lack its end; empty
 * lines at the end are ignored. Quotes are refused, because no trace has them.
 *
 *     csv_open ... while (csv_row(&c) > 0) csv_int(&c, column, ...), csv_text(...)
 *
 * An error names file, line and column. Only the first error is kept.
 */

enum {
    CSV_COLUMNS = 32,
    CSV_FIELD = 256, /* maximum bytes of a field */
};

struct csv {
    const char *name; /* of the file, for errors; borrowed */
    struct span rest; /* unread text */
    unsigned line;    /* number of the last line read; the first is 1 */
    struct span columns[CSV_COLUMNS], fields[CSV_COLUMNS];
    size_t n; /* columns */
    struct err err;
};

/* Reads the line of column names. -1: see c->err. Spans borrow from `text`. */
int csv_open(struct csv *c, const char *name, struct span text);
/* Index of a column; -1 if it is absent, with an error if it is `needed`. */
int csv_column(struct csv *c, const char *name, bool needed);
/* Reads the next row. 1: a row; 0: the end; -1: an error. */
int csv_row(struct csv *c);
/* A field of the row; 0 or empty after an error. */
struct span csv_text(struct csv *c, int column);
int64_t csv_int(struct csv *c, int column, int64_t min, int64_t max);
/* Sets the error of a field of the row. Returns -1. */
int csv_fail(struct csv *c, int column, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
