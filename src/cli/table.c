/* SPDX-License-Identifier: Apache-2.0 */

/* Text in columns, as Go's text/tabwriter lays it out. */

#include "cli/table.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

enum { PADDING = 2 };

struct table_cell {
    size_t at, n; /* in the text */
    size_t width; /* code points */
    size_t block; /* in table.widths; not of the last one */
    bool last;    /* ends the line */
    enum color color;
};

void table_fini(struct table *t)
{
    buf_fini(&t->text);
    free(t->cells);
    free(t->widths);
    *t = (struct table){.colors = t->colors};
}

void table_span(struct table *t, enum color color, struct span text)
{
    struct table_cell cell = {.at = t->text.n, .color = color};
    buf_add_printable(&t->text, text);
    cell.n = t->text.n - cell.at;
    for (size_t i = cell.at; i < t->text.n; i++)
        cell.width += ((unsigned char)t->text.p[i] & 0xc0) != 0x80;
    MEM_GROW(t->cells, t->cap, t->n + 1);
    t->cells[t->n++] = cell;
}

void table_cell(struct table *t, enum color color, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    table_span(t, color, buf_span(&text));
}

void table_header(struct table *t, const char *names)
{
    for (struct span rest = span_of(names); rest.n;)
        table_span(t, BOLD, span_cut(&rest, '\t'));
    table_end(t);
}

/* A cell continues the column of the cell above. */
void table_end(struct table *t)
{
    if (t->n == t->line)
        table_span(t, PLAIN, SPAN(""));
    for (size_t i = t->line, above = t->above; i + 1 < t->n; i++, above++) {
        struct table_cell *cell = &t->cells[i];
        if (above + 1 < t->line) {
            cell->block = t->cells[above].block;
        } else {
            MEM_GROW(t->widths, t->widths_cap, t->n_widths + 1);
            cell->block = t->n_widths;
            t->widths[t->n_widths++] = 0;
        }
        if (cell->width > t->widths[cell->block])
            t->widths[cell->block] = cell->width;
    }
    t->cells[t->n - 1].last = true;
    t->above = t->line;
    t->line = t->n;
}

static const char *const codes[] = {
    [PLAIN] = "",       [BOLD] = "\033[1m",   [DIM] = "\033[2m",
    [RED] = "\033[31m", [GREEN] = "\033[32m", [YELLOW] = "\033[33m",
};

void table_write(const struct table *t, struct buf *out)
{
    ARRAY_EACH_ITEM(const struct table_cell, cell, t->cells, t->n)
    {
        bool colored = t->colors && cell->color != PLAIN && cell->n;
        buf_adds(out, colored ? codes[cell->color] : "");
        buf_add(out, t->text.p + cell->at, cell->n);
        buf_adds(out, colored ? "\033[0m" : "");
        if (cell->last)
            buf_addc(out, '\n');
        else
            buf_printf(out, "%*s", (int)(t->widths[cell->block] + PADDING - cell->width),
                       "");
    }
}

void table_vtext(struct buf *out, const char *fmt, va_list ap)
{
    cleanup_buf struct buf text = {0};
    buf_vprintf(&text, fmt, ap);
    buf_add_printable(out, buf_span(&text));
}

void table_text(struct buf *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    table_vtext(out, fmt, ap);
    va_end(ap);
}

void table_line(struct buf *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    table_vtext(out, fmt, ap);
    va_end(ap);
    buf_addc(out, '\n');
}
