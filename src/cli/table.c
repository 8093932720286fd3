/* SPDX-License-Identifier: Apache-2.0 */

/* Text in columns, as Go's text/tabwriter lays it out. */

#include "cli/table.h"

#include <stdlib.h>

#include "base/mem.h"

enum { PADDING = 2 };

struct table_cell {
    size_t at, n;        /* in the text */
    size_t width;        /* code points */
    size_t column_width; /* with padding */
    uint32_t column;     /* index in its line */
    bool last;           /* ends the line */
    enum color color;
};

void table_fini(struct table *t)
{
    buf_fini(&t->text);
    free(t->cells);
    *t = (struct table){0};
}

/* C0 and C1 control characters, and DEL. */
void table_plain(struct buf *out, struct span text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        bool c1 = c == 0xc2 && i + 1 < text.n && (unsigned char)text.p[i + 1] < 0xa0;
        i += c1;
        buf_addc(out, c < ' ' || c == 0x7f || c1 ? '?' : (char)c);
    }
}

static size_t width_of(const char *p, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)p[i] & 0xc0) != 0x80;
    return width;
}

static void add(struct table *t, enum color color, struct span text, bool last)
{
    struct table_cell cell = {.at = t->text.n, .last = last, .color = color};
    if (t->n && !t->cells[t->n - 1].last)
        cell.column = t->cells[t->n - 1].column + 1;
    table_plain(&t->text, text);
    cell.n = t->text.n - cell.at;
    cell.width = width_of(t->text.p + cell.at, cell.n);
    MEM_GROW(t->cells, t->cap, t->n + 1);
    t->cells[t->n++] = cell;
}

void table_span(struct table *t, enum color color, struct span text)
{
    add(t, color, text, false);
}

void table_cell(struct table *t, enum color color, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    add(t, color, buf_span(&text), false);
}

void table_end(struct table *t, enum color color, const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    add(t, color, buf_span(&text), true);
}

/* A block of one column that has not ended yet. */
struct block {
    size_t width;
    size_t *cells; /* indexes */
    size_t n, cap;
};

static void close_block(struct table_cell *cells, struct block *b)
{
    for (size_t i = 0; i < b->n; i++)
        cells[b->cells[i]].column_width = b->width + PADDING;
    b->n = b->width = 0;
}

static void measure(const struct table *t)
{
    struct block *blocks = NULL;
    size_t n_blocks = 0, cap = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct table_cell *cell = &t->cells[i];
        if (cell->last) { /* columns that this line does not have end here */
            for (size_t k = cell->column; k < n_blocks; k++)
                close_block(t->cells, &blocks[k]);
            continue;
        }
        while (n_blocks <= cell->column) {
            MEM_GROW(blocks, cap, n_blocks + 1);
            blocks[n_blocks++] = (struct block){0};
        }
        struct block *b = &blocks[cell->column];
        MEM_GROW(b->cells, b->cap, b->n + 1);
        b->cells[b->n++] = i;
        if (cell->width > b->width)
            b->width = cell->width;
    }
    for (size_t k = 0; k < n_blocks; k++) {
        close_block(t->cells, &blocks[k]);
        free(blocks[k].cells);
    }
    free(blocks);
}

static const char *const codes[] = {
    [PLAIN] = "",       [BOLD] = "\033[1m",   [DIM] = "\033[2m",
    [RED] = "\033[31m", [GREEN] = "\033[32m", [YELLOW] = "\033[33m",
};

void table_write(const struct table *t, struct buf *out)
{
    measure(t);
    for (size_t i = 0; i < t->n; i++) {
        const struct table_cell *cell = &t->cells[i];
        bool colored = t->colors && cell->color != PLAIN && cell->n;
        buf_adds(out, colored ? codes[cell->color] : "");
        buf_add(out, t->text.p + cell->at, cell->n);
        buf_adds(out, colored ? "\033[0m" : "");
        if (cell->last)
            buf_addc(out, '\n');
        for (size_t k = cell->width; !cell->last && k < cell->column_width; k++)
            buf_addc(out, ' ');
    }
}

void table_vtext(struct buf *out, const char *fmt, va_list ap)
{
    cleanup_buf struct buf text = {0};
    buf_vprintf(&text, fmt, ap);
    table_plain(out, buf_span(&text));
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
