/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/csv.h"

#include <stdarg.h>
#include <stdio.h>

/* Makes a field printable and short, for an error message. */
static void show(struct span field, char out[48])
{
    size_t n = 0;
    for (size_t i = 0; i < field.n && n < 40; i++)
        out[n++] = field.p[i] >= ' ' && field.p[i] <= '~' ? field.p[i] : '?';
    if (n < field.n)
        for (int dots = 0; dots < 3; dots++)
            out[n++] = '.';
    out[n] = '\0';
}

static int fail_line(struct csv *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int fail_line(struct csv *c, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    if (c->err.code != ERR_NONE)
        return -1;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(&c->err, ERR_INVALID, "%s:%u: %s", c->name, c->line, what);
}

int csv_fail(struct csv *c, int column, const char *fmt, ...)
{
    char what[256], name[48];
    va_list ap;
    if (c->err.code != ERR_NONE)
        return -1;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    show(c->columns[column], name);
    return fail_line(c, "column %s: %s", name, what);
}

static bool is_empty(struct span rest)
{
    for (size_t i = 0; i < rest.n; i++)
        if (rest.p[i] != '\n' && rest.p[i] != '\r')
            return false;
    return true;
}

/* Splits the next line into fields. Returns their number, or -1. */
static int split(struct csv *c, struct span fields[CSV_COLUMNS])
{
    struct span line = span_cut(&c->rest, '\n');
    int n = 0;
    c->line++;
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    if (!line.n)
        return fail_line(c, "the line is empty");
    do {
        struct span field = span_cut(&line, ',');
        if (n == CSV_COLUMNS)
            return fail_line(c, "more than %d fields", CSV_COLUMNS);
        if (field.n > CSV_FIELD)
            return fail_line(c, "field %d has more than %d bytes", n + 1, CSV_FIELD);
        for (size_t i = 0; i < field.n; i++)
            if (field.p[i] == '"' || (unsigned char)field.p[i] < ' ')
                return fail_line(c, "field %d contains %s", n + 1,
                                 field.p[i] == '"' ? "a quote" : "a control character");
        fields[n++] = field;
    } while (line.p); /* an empty field follows a trailing comma */
    return n;
}

int csv_open(struct csv *c, const char *name, struct span text)
{
    static const struct span mark = SPAN("\xef\xbb\xbf"); /* byte order mark */
    *c = (struct csv){.name = name, .rest = text};
    if (span_starts(text, mark))
        c->rest = (struct span){text.p + mark.n, text.n - mark.n};
    if (is_empty(c->rest))
        return err_set(&c->err, ERR_INVALID, "%s: the file is empty", name);
    int n = split(c, c->columns);
    if (n < 0)
        return -1;
    c->n = (size_t)n;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < i; k++)
            if (span_eq(c->columns[i], c->columns[k]))
                return csv_fail(c, (int)i, "duplicate");
    return 0;
}

int csv_column(struct csv *c, const char *name, bool needed)
{
    for (size_t i = 0; i < c->n; i++)
        if (span_eq(c->columns[i], span_of(name)))
            return (int)i;
    if (needed)
        fail_line(c, "column %s is missing", name);
    return -1;
}

int csv_row(struct csv *c)
{
    if (c->err.code != ERR_NONE)
        return -1;
    if (is_empty(c->rest))
        return 0;
    int n = split(c, c->fields);
    if (n < 0)
        return -1;
    if ((size_t)n != c->n)
        return fail_line(c, "%d fields, expected %zu", n, c->n);
    return 1;
}

struct span csv_text(struct csv *c, int column)
{
    return c->err.code == ERR_NONE && column >= 0 ? c->fields[column] : (struct span){0};
}

int64_t csv_int(struct csv *c, int column, int64_t min, int64_t max)
{
    struct span text = csv_text(c, column);
    int64_t value = 0;
    char shown[48];
    if (c->err.code != ERR_NONE)
        return 0;
    if (span_i64(text, &value) && value >= min && value <= max)
        return value;
    show(text, shown);
    csv_fail(c, column, "\"%s\": expected a whole number from %lld to %lld", shown,
             (long long)min, (long long)max);
    return 0;
}
