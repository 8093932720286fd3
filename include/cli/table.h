/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/*
 * Text in columns, as Go's text/tabwriter sets it (least width 0, padding 2, spaces),
 * because scripts read the Go plugin's output byte for byte:
 *
 * - a cell is what a tab ends; what stands behind the last tab of a line is of no column;
 * - a column is a block of lines one below the other that have that cell, as wide as the
 *   widest of them and two more; a line without it ends the block.
 *
 * Colours take no room. Text that could steer a terminal (control characters of foreign
 * objects) is written as '?'.
 */

enum color { PLAIN, BOLD, DIM, RED, GREEN, YELLOW };

struct table {
    struct buf text; /* of all cells */
    struct table_cell *cells;
    size_t n, cap;
    bool colors;
};

void table_fini(struct table *t);
#define cleanup_table __attribute__((cleanup(table_fini)))

/* A cell, ended by a tab. */
void table_cell(struct table *t, enum color color, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void table_span(struct table *t, enum color color, struct span text);
/* What stands behind the last tab, perhaps nothing, and the end of the line. */
void table_end(struct table *t, enum color color, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void table_write(const struct table *t, struct buf *out);

/* Appends foreign text as it may stand in a line on a terminal. */
void table_plain(struct buf *out, struct span text);
