/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/show.h"

/* The tables of show_table (show_table.c, show_details.c). */
struct page {
    const struct cluster_state *cs;
    const struct show *show;
    int64_t unit;
    struct arena arena;
    struct table table;
};

/* Adds a cell with MiB in units; "-" below 0. */
void show_page_amount(struct page *p, enum color color, int64_t mib);
/* Writes the table and empties it. */
void show_page_write(struct page *p, struct buf *out);
/* Writes the tables of pods, of other use and of pending pods. */
void show_page_details(struct page *p, struct buf *out, const struct ledger_node **nodes,
                       size_t n);
