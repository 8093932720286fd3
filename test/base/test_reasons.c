/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <glob.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/unit.h"

/*
 * docs/reasons.md explains every reason of the extender. The texts are read from the
 * string literals of the sources, so a new text without a row fails, and so does a row
 * whose text was removed from the sources.
 */

#define DOC "docs/reasons.md"

enum { FILE_MAX = 1 << 20, TEXTS = 1024 };

/* The sources of texts that users read. Log lines of the verbs are not documented. */
static const char *const sources[] = {"src/core/*.c",
                                      "src/placement/reason*.c",
                                      "src/placement/preempt*.c",
                                      "src/placement/gang*.c",
                                      "src/domain/request.c",
                                      "src/domain/template_node.c",
                                      "src/extender/verb_filter.c",
                                      "src/extender/verb_filter_template.c",
                                      "src/extender/verb_bind.c",
                                      "src/extender/verb_preempt.c",
                                      "src/extender/verb_prioritize.c",
                                      "src/extender/forward.c",
                                      "src/extender/event_pod.c",
                                      "src/extender/event_card.c",
                                      "src/extender/verbs.c"};
/* The sources of event reasons. */
static const char *const with_events[] = {"src/agent/*.c", "src/extender/*.c",
                                          "src/plugin/*.c"};

static struct arena arena;
static struct span texts[TEXTS];
static size_t n_texts;

static bool has(struct span text, struct span part)
{
    return memmem(text.p, text.n, part.p, part.n) != NULL;
}

/* The file with each run of white space replaced by one blank. */
static struct span read_flat(const char *path)
{
    cleanup_buf struct buf raw = {0}, flat = {0};
    struct err err;
    ck_assert_done(file_read(path, FILE_MAX, &raw, &err), err);
    for (size_t i = 0; i < raw.n; i++)
        if (!isspace((unsigned char)raw.p[i]))
            buf_addc(&flat, raw.p[i]);
        else if (flat.n && flat.p[flat.n - 1] != ' ')
            buf_addc(&flat, ' ');
    return arena_copy(&arena, buf_span(&flat));
}

/* -- string literals of C -- */

typedef void literal_fn(struct span text, void *use);

static const char *skip_quoted(const char *p, struct buf *text)
{
    for (char quote = *p++; *p != quote; p++) {
        ck_assert_msg(*p != '\0', "unterminated literal");
        p += *p == '\\';
        if (text)
            buf_addc(text, *p);
    }
    return p + 1;
}

/* p is at a quote. Adjacent literals are joined. */
static const char *read_literal(const char *p, struct buf *text)
{
    do {
        p = skip_quoted(p, text);
        p += strspn(p, " \n");
    } while (*p == '"');
    return p;
}

static bool is_logged(const char *statement, const char *end)
{
    struct span s = {statement, (size_t)(end - statement)};
    return has(s, SPAN("log_")) || has(s, SPAN("LOG_"));
}

static void each_literal(const char *path, literal_fn *fn, void *use)
{
    cleanup_buf struct buf source = {0};
    struct err err;
    ck_assert_done(file_read(path, FILE_MAX, &source, &err), err);
    const char *statement = source.p;
    for (const char *p = source.p; *p;) {
        if (strncmp(p, "/*", 2) == 0) {
            p = strstr(p, "*/") + 2;
        } else if (*p == '#' && strncmp(p, "#define", 7) != 0 &&
                   (p == source.p || p[-1] == '\n')) {
            p += strcspn(p, "\n");
        } else if (*p == '\'') {
            p = skip_quoted(p, NULL);
        } else if (*p == '"') {
            cleanup_buf struct buf text = {0};
            bool logged = is_logged(statement, p);
            p = read_literal(p, &text);
            if (!logged && text.n)
                fn(buf_span(&text), use);
        } else {
            statement = strchr(";{}", *p) ? p : statement;
            p++;
        }
    }
}

static void each_source(const char *pattern, literal_fn *fn)
{
    glob_t files;
    ck_assert_msg(glob(pattern, 0, NULL, &files) == 0, "%s: no such file", pattern);
    for (size_t i = 0; i < files.gl_pathc; i++)
        each_literal(files.gl_pathv[i], fn, files.gl_pathv[i]);
    globfree(&files);
}

/* -- texts -- */

/* Two words or more: keys and single words are not reasons. */
static bool is_prose(struct span s)
{
    for (size_t i = 1; i + 1 < s.n; i++)
        if (s.p[i] == ' ' && isalpha((unsigned char)s.p[i - 1]) &&
            isalpha((unsigned char)s.p[i + 1]))
            return true;
    return false;
}

static struct span trim(struct span s)
{
    static const char around[] = " \n;:,.()\"";
    while (s.n && strchr(around, s.p[0]))
        s = (struct span){s.p + 1, s.n - 1};
    while (s.n && strchr(around, s.p[s.n - 1]))
        s.n--;
    return s;
}

static void add_text(struct span text, void *use)
{
    struct span s = trim(text);
    (void)use;
    if (!is_prose(s))
        return;
    ck_assert_uint_lt(n_texts, TEXTS);
    texts[n_texts++] = arena_copy(&arena, s);
}

/* Adds the pieces between the conversions of a format. */
static void add_pieces(struct span text, void *use)
{
    size_t from = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != '%')
            continue;
        add_text((struct span){text.p + from, i - from}, use);
        i += strspn(text.p + i, "%-.*0123456789lz");
        from = i + 1;
    }
    if (from < text.n)
        add_text((struct span){text.p + from, text.n - from}, use);
}

static void read_texts(void)
{
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        each_source(sources[i], add_pieces);
    each_source("include/placement/placement.h", add_pieces); /* REASON_NO_HEARTBEAT */
    ck_assert_uint_gt(n_texts, 100);
}

START_TEST(every_reason_has_a_row)
{
    struct span doc = read_flat(DOC);
    read_texts();
    for (size_t i = 0; i < n_texts; i++)
        ck_assert_msg(has(doc, texts[i]), "%s has no row for \"%.*s\"", DOC,
                      SPAN_ARG(texts[i]));
    arena_fini(&arena);
}
END_TEST

/* The first cell of a row contains a text of the sources, unless it is a single word. */
static void check_row(struct span row)
{
    const char *end = memmem(row.p, row.n, " | ", 3);
    struct span cell = {row.p, end ? (size_t)(end - row.p) : row.n};
    size_t i = 0;
    while (i < n_texts && !has(cell, texts[i]))
        i++;
    ck_assert_msg(i < n_texts || !is_prose(cell), "%s: no source has the text %.*s", DOC,
                  SPAN_ARG(cell));
}

START_TEST(every_row_has_a_reason)
{
    cleanup_buf struct buf doc = {0};
    struct err err;
    size_t rows = 0;
    ck_assert_done(file_read(DOC, FILE_MAX, &doc, &err), err);
    read_texts();
    for (struct span rest = buf_span(&doc); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (!span_starts(line, SPAN("| `")))
            continue;
        check_row((struct span){line.p + 2, line.n - 2});
        rows++;
    }
    ck_assert_uint_gt(rows, 50);
    arena_fini(&arena);
}
END_TEST

/* "GPUPlaced": the reason of an event. */
static void check_event(struct span text, void *use)
{
    bool is_name =
        text.n > 4 && span_starts(text, SPAN("GPU")) && isupper((unsigned char)text.p[3]);
    for (size_t i = 0; i < text.n; i++)
        is_name &= isalpha((unsigned char)text.p[i]) != 0;
    if (!is_name)
        return;
    cleanup_free char *word = xasprintf("`%.*s`", SPAN_ARG(text));
    ck_assert_msg(has(read_flat(DOC), span_of(word)),
                  "%s has no row for the event %s of %s", DOC, word, (const char *)use);
    n_texts++;
}

START_TEST(every_event_has_a_row)
{
    for (size_t i = 0; i < ARRAY_LEN(with_events); i++)
        each_source(with_events[i], check_event);
    ck_assert_uint_ge(n_texts, 10);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("reasons", every_reason_has_a_row, every_row_has_a_reason,
          every_event_has_a_row)
