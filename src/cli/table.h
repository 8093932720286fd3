/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>

#include "base/str.h"

/*
 * Text in columns, as Go's text/tabwriter lays it out (minimum width 0, padding 2,
 * spaces), because scripts parse the Go plugin's output byte for byte:
 *
 * - a tab ends a cell; text after the last tab of a line belongs to no column;
 * - a column is a block of adjacent lines that have this cell. It is as wide as its
 *   widest cell plus the padding. A line without the cell ends the block.
 *
 * Color codes have no width. Control characters, which objects of the cluster may
 * contain and which could control the terminal, are written as '?'.
 */

enum color { PLAIN, BOLD, DIM, RED, GREEN, YELLOW };

struct table {
    struct buf text; /* all cells, concatenated */
    struct table_cell *cells;
    size_t n, cap;
    size_t above, line; /* first cells of the last complete line and of this one */
    size_t *widths;     /* of the columns */
    size_t n_widths, widths_cap;
    bool colors;
};

void table_fini(struct table *t);
#define cleanup_table __attribute__((cleanup(table_fini)))

/* Adds a cell, which ends with a tab unless it is the last of its line. */
void table_cell(struct table *t, enum color color, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void table_span(struct table *t, enum color color, struct span text);
/* Ends the line. A line without cells has an empty one. */
void table_end(struct table *t);
/* Adds a line of bold cells, which tabs of the text separate. */
void table_header(struct table *t, const char *names);
void table_write(const struct table *t, struct buf *out);

/* Each appends text, made printable. A line ends with a newline of its own. */
void table_text(struct buf *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void table_line(struct buf *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void table_vtext(struct buf *out, const char *fmt, va_list ap);
