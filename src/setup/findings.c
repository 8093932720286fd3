/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/findings.h"

#include <stdlib.h>

#include "base/mem.h"

static const char *text(struct findings *f, const char *fmt, va_list ap)
{
    cleanup_buf struct buf b = {0};
    buf_vprintf(&b, fmt, ap);
    return arena_copy(&f->texts, b.n ? buf_span(&b) : SPAN("")).p;
}

struct finding *findings_add(struct findings *f, enum finding_kind kind, const char *id,
                             const char *fmt, ...)
{
    va_list ap;
    MEM_GROW(f->items, f->cap, f->n + 1);
    struct finding *to = &f->items[f->n++];
    va_start(ap, fmt);
    *to = (struct finding){.kind = kind, .id = id, .what = text(f, fmt, ap)};
    va_end(ap);
    return to;
}

void findings_why(struct findings *f, struct finding *to, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    to->why = text(f, fmt, ap);
    va_end(ap);
}

void findings_fix(struct findings *f, struct finding *to, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    to->command = text(f, fmt, ap);
    va_end(ap);
}

void findings_fini(struct findings *f)
{
    free(f->items);
    arena_fini(&f->texts);
    *f = (struct findings){0};
}

bool findings_has(const struct findings *f, const char *id)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->items[i].id, id))
            return true;
    return false;
}

size_t findings_count(const struct findings *f, enum finding_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += f->items[i].kind == kind;
    return n;
}

/* The length of the control character at `s`, or 0. Terminals also interpret U+0080 to
 * U+009F. */
static size_t control_length(const char *s)
{
    unsigned char c = (unsigned char)s[0], next = c ? (unsigned char)s[1] : 0;
    if (c == 0xc2 && next >= 0x80 && next < 0xa0)
        return 2;
    return c < ' ' || c == 127;
}

/* Indents all lines by the width of the mark, which precedes the first. */
static void add_lines(struct buf *out, const char *mark, const char *s)
{
    if (!s)
        return;
    buf_printf(out, "%-8s", mark);
    while (*s) {
        size_t n = control_length(s);
        if (*s == '\n')
            buf_adds(out, "\n        ");
        else
            buf_addc(out, n ? '?' : *s);
        s += n ? n : 1;
    }
    buf_addc(out, '\n');
}

void findings_write(const struct findings *f, struct buf *out)
{
    static const char *const marks[] = {"ok", "note", "unknown", "PROBLEM"};
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *it = &f->items[i];
        cleanup_buf struct buf first = {0};
        if (it->kind == FINDING_PROBLEM || it->kind == FINDING_UNKNOWN)
            buf_printf(&first, "%s: ", it->id);
        buf_adds(&first, it->what);
        add_lines(out, marks[it->kind], first.p);
        add_lines(out, "  why", it->why);
        add_lines(out, "  fix", it->command);
    }
}

int findings_exit_status(const struct findings *f)
{
    if (findings_count(f, FINDING_PROBLEM))
        return 1;
    return findings_count(f, FINDING_UNKNOWN) ? 2 : 0;
}
