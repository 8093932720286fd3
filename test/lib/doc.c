/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/doc.h"

#include <ctype.h>
#include <glob.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/unit.h"

enum { DOC_MAX = 4 << 20 };

/* -- helpers -- */

void doc_fault(struct buf *faults, const struct doc *d, unsigned line, const char *fmt,
               ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_printf(faults, "%s:%u: ", d->path, line);
    buf_vprintf(faults, fmt, ap);
    buf_addc(faults, '\n');
    va_end(ap);
}

static void add_word(struct doc_words *w, unsigned line, struct span text)
{
    MEM_GROW(w->items, w->cap, w->n + 1);
    w->items[w->n++] = (struct doc_word){line, xmemdup0(text.p, text.n)};
}

static void words_fini(struct doc_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->items[i].text);
    free(w->items);
}

void doc_fini(struct doc *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->blocks[i].text);
        free(d->blocks[i].seen_in);
    }
    free(d->blocks);
    words_fini(&d->links);
    words_fini(&d->code);
    words_fini(&d->anchors);
    free(d->path);
    *d = (struct doc){0};
}

/* The next line of *rest with its end, if it has one. */
static struct span take_line(struct span *rest)
{
    const char *end = memchr(rest->p, '\n', rest->n);
    struct span line = {rest->p, end ? (size_t)(end - rest->p) + 1 : rest->n};
    rest->p += line.n;
    rest->n -= line.n;
    return line;
}

static size_t count(struct span s, char c)
{
    size_t n = 0;
    while (n < s.n && s.p[n] == c)
        n++;
    return n;
}

static struct span skip(struct span s, size_t n)
{
    return (struct span){s.p + n, s.n - n};
}

/* -- blocks -- */

/* False: unknown info string. */
static bool read_use(struct span info, struct doc_block *b)
{
    struct span language = span_cut(&info, ' ');
    info = span_trim(info);
    static const char *const names[] = {"sh", "yaml", "json", "text"};
    static const enum doc_use plain[] = {DOC_SH, DOC_YAML, DOC_JSON, DOC_TEXT};
    size_t i = 0;
    while (i < ARRAY_LEN(names) && !span_eq(language, span_of(names[i])))
        i++;
    if (i == ARRAY_LEN(names))
        return false;
    b->use = plain[i];
    if (b->use == DOC_SH && span_eq(info, SPAN("sim"))) {
        b->use = DOC_SIM;
    } else if (b->use <= DOC_YAML && span_starts(info, SPAN("seen-in=")) &&
               info.n > SPAN("seen-in=").n && !memchr(info.p, ' ', info.n)) {
        info = skip(info, SPAN("seen-in=").n);
        b->seen_in = xmemdup0(info.p, info.n);
        b->use = b->use == DOC_SH ? DOC_SEEN : DOC_PART;
    } else if (info.n) {
        return false;
    }
    return true;
}

static struct doc_block *add_block(struct doc *d, unsigned line, struct span info,
                                   struct buf *faults)
{
    struct doc_block b = {.use = DOC_TEXT, .line = line};
    if (!read_use(info, &b))
        doc_fault(faults, d, line,
                  "\"%.*s\" is no use of a block: see \"Commands in the docs\" in "
                  "docs/testing.md",
                  SPAN_ARG(info));
    MEM_GROW(d->blocks, d->cap, d->n + 1);
    d->blocks[d->n] = b;
    return &d->blocks[d->n++];
}

struct fence {
    char mark; /* '`' or '~'; 0: none */
    size_t n, indent;
    struct span info;
};

/* Does this line start a block? In a list it is indented. */
static struct fence open_fence(struct span line)
{
    struct fence f = {.indent = count(line, ' ')};
    struct span s = skip(line, f.indent);
    char mark = s.n ? s.p[0] : '\0';
    f.n = count(s, mark);
    f.info = span_trim(skip(s, f.n));
    if (f.n >= 3 && (mark == '~' || (mark == '`' && !memchr(f.info.p, '`', f.info.n))))
        f.mark = mark;
    return f;
}

static bool closes(const struct fence *f, struct span line)
{
    struct span s = span_trim(line);
    return s.n >= f->n && count(s, f->mark) == s.n;
}

static bool starts_line(const char *text, const char *word)
{
    cleanup_free char *line = xasprintf("\n%s", word);
    return strncmp(text, word, strlen(word)) == 0 || strstr(text, line);
}

/* Takes the lines of the block and its end. Returns their number. */
static unsigned take_block(struct doc *d, const struct fence *f, unsigned line,
                           struct span *rest, struct buf *faults)
{
    struct doc_block *b = add_block(d, line, f->info, faults);
    struct buf text = {0};
    unsigned n = 0;
    bool closed = false;
    while (rest->n && !closed) {
        struct span l = take_line(rest);
        size_t indent = count(l, ' ');
        n++;
        closed = closes(f, l);
        if (!closed)
            buf_add_span(&text, skip(l, indent < f->indent ? indent : f->indent));
    }
    if (!closed)
        doc_fault(faults, d, line, "block without an end");
    b->text = buf_take(&text);
    if (b->use == DOC_YAML && !starts_line(b->text, "apiVersion:"))
        b->use = DOC_CONFIG;
    return n;
}

static bool is_item(struct span line)
{
    size_t indent = count(line, ' ');
    struct span s = skip(line, indent);
    size_t n = 0;
    while (n < s.n && isdigit((unsigned char)s.p[n]))
        n++;
    bool number = n && n < s.n && (s.p[n] == '.' || s.p[n] == ')');
    bool bullet = !n && s.n && strchr("-*+", s.p[0]);
    n += 1;
    return (number || bullet) && n < s.n && s.p[n] == ' ';
}

/* Splits the text: blocks into *d, everything else into `prose`, with the same line
 * numbers. */
static void split(struct doc *d, struct span rest, struct buf *prose, struct buf *faults)
{
    bool blank = true, list = false;
    for (unsigned number = 1; rest.n; number++) {
        struct span line = take_line(&rest);
        struct fence f = open_fence(line);
        if (f.mark) {
            unsigned n = take_block(d, &f, number, &rest, faults);
            number += n;
            for (n++; n; n--)
                buf_addc(prose, '\n');
            blank = true;
            continue;
        }
        bool empty = span_trim(line).n == 0;
        list = is_item(line) || (list && (empty || f.indent || !blank));
        if (blank && !empty && f.indent >= 4 && !list)
            doc_fault(faults, d, number, "indented block without an info string");
        buf_add_span(prose, line);
        blank = empty;
    }
}

/* -- prose -- */

/* The end of inline code: the next run of `n` backticks in the same paragraph. */
static const char *code_end(struct span s, size_t n)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\n' && i + 1 < s.n && s.p[i + 1] == '\n')
            return NULL;
        size_t run = count(skip(s, i), '`');
        if (run == n)
            return s.p + i;
        i += run ? run - 1 : 0;
    }
    return NULL;
}

static void add_code(struct doc *d, unsigned line, struct span text)
{
    cleanup_free char *copy = xmemdup0(text.p, text.n);
    for (char *p = copy; *p; p++)
        if (*p == '\n')
            *p = ' ';
    add_word(&d->code, line, span_trim(span_of(copy)));
}

/* "[text](target)" and "[text](target "title")". */
static void add_link(struct doc *d, unsigned line, struct span s)
{
    size_t n = 0;
    while (n < s.n && !strchr(") \n", s.p[n]))
        n++;
    add_word(&d->links, line, (struct span){s.p, n});
}

static void read_prose(struct doc *d, struct span s)
{
    unsigned line = 1;
    while (s.n) {
        size_t ticks = count(s, '`'), step = 1;
        const char *end = ticks ? code_end(skip(s, ticks), ticks) : NULL;
        if (end) {
            step = (size_t)(end - s.p) + ticks;
            add_code(d, line, (struct span){s.p + ticks, (size_t)(end - s.p) - ticks});
        } else if (ticks) {
            step = ticks;
        } else if (span_starts(s, SPAN("](")) && s.n > 2) {
            add_link(d, line, skip(s, 2));
        }
        for (size_t i = 0; i < step; i++)
            line += s.p[i] == '\n';
        s = skip(s, step);
    }
}

/* Is it the anchor `base`, or `base` with a number? */
static bool is_same(const char *anchor, struct span base)
{
    const char *rest = anchor + base.n;
    if (strncmp(anchor, base.p, base.n) != 0)
        return false;
    return !*rest || (*rest == '-' && !rest[1 + strspn(rest + 1, "0123456789")]);
}

/* GitHub's anchor of a heading. */
static void add_anchor(struct doc *d, unsigned line, struct span text)
{
    cleanup_buf struct buf b = {0};
    size_t same = 0;
    buf_adds(&b, "");
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (span_starts(skip(text, i), SPAN("]("))) /* of a link, keep the text */
            while (i + 1 < text.n && text.p[i] != ')')
                i++;
        else if (isalnum(c) || c >= 0x80 || c == '_' || c == '-')
            buf_addc(&b, (char)tolower(c));
        else if (c == ' ')
            buf_addc(&b, '-');
    }
    for (size_t i = 0; i < d->anchors.n; i++)
        same += is_same(d->anchors.items[i].text, buf_span(&b));
    if (same)
        buf_printf(&b, "-%zu", same);
    add_word(&d->anchors, line, buf_span(&b));
}

static void read_headings(struct doc *d, struct span prose)
{
    for (unsigned number = 1; prose.n; number++) {
        struct span line = span_trim(take_line(&prose));
        size_t n = count(line, '#');
        if (n && n <= 6 && n < line.n && line.p[n] == ' ')
            add_anchor(d, number, span_trim(skip(line, n)));
    }
}

/* -- manual pages -- */

/* Converts a line of an example as groff prints it. */
static void add_shown(struct buf *out, struct span line)
{
    for (size_t i = 0; i < line.n; i++) {
        bool escape = line.p[i] == '\\' && i + 1 < line.n;
        if (escape && line.p[i + 1] == '&')
            i++;
        else if (escape && line.p[i + 1] == 'e')
            buf_addc(out, line.p[i++]);
        else if (escape)
            buf_addc(out, line.p[++i]);
        else
            buf_addc(out, line.p[i]);
    }
}

static void read_manual(struct doc *d, struct span rest, struct buf *faults)
{
    struct span before = {0};
    for (unsigned number = 1; rest.n; number++) {
        struct span line = take_line(&rest);
        if (!span_eq(span_trim(line), SPAN(".EX"))) {
            before = line;
            continue;
        }
        struct span info =
            span_starts(before, SPAN(".\\\" ")) ? skip(before, 4) : (struct span){"", 0};
        struct doc_block *b = add_block(d, number, span_trim(info), faults);
        struct buf text = {0};
        while (rest.n && !span_eq(span_trim(line = take_line(&rest)), SPAN(".EE"))) {
            add_shown(&text, line);
            number++;
        }
        number++;
        before = (struct span){0};
        b->text = buf_take(&text);
    }
}

/* -- documents -- */

void doc_parse(struct doc *d, const char *path, struct span text, struct buf *faults)
{
    cleanup_buf struct buf prose = {0};
    size_t n = strlen(path);
    *d = (struct doc){.path = xstrdup(path)};
    if (n > 3 && strcmp(path + n - 3, ".in") == 0) {
        read_manual(d, text, faults);
        return;
    }
    split(d, text, &prose, faults);
    read_prose(d, buf_span(&prose));
    read_headings(d, buf_span(&prose));
}

void doc_load(struct doc *d, const char *path, struct buf *faults)
{
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, DOC_MAX, &text, &err), err);
    doc_parse(d, path, buf_span(&text), faults);
}

void doc_each(void (*each)(const struct doc *d, void *ctx), void *ctx, struct buf *faults)
{
    static const char *const places[] = {
        "README.md",        "CONTRIBUTING.md", "docs/*.md", "manifests/*.md",
        "manifests/*/*.md", "policy/*.md",     "man/*.in"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        glob_t files;
        int rc = glob(places[i], 0, NULL, &files);
        ck_assert_msg(rc == 0, "there is no %s", places[i]);
        for (size_t k = 0; k < files.gl_pathc; k++) {
            cleanup_doc struct doc d;
            doc_load(&d, files.gl_pathv[k], faults);
            each(&d, ctx);
        }
        globfree(&files);
    }
}
