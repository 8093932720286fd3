/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <glob.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/unit.h"

/*
 * docs/reasons.md explains every reason that the extender gives: the words are taken from
 * the string literals of the sources that have them, so that a new one without a line
 * fails, and a line whose words are not there any more does too.
 */

#define DOC "docs/reasons.md"

enum { FILE_MAX = 1 << 20, WORDS = 1024 };

/* What people are told, by folder or file. The log of a verb is not among it. */
static const char *const sources[] = {
    "src/core/*.c",           "src/placement/reason*.c",   "src/placement/preempt*.c",
    "src/domain/request.c",   "src/extender/filter.c",     "src/extender/bind.c",
    "src/extender/preempt.c", "src/extender/prioritize.c", "src/extender/forward.c",
    "src/extender/told.c",    "src/extender/nodewatch.c",  "src/extender/verbs.c",
    "include/placement/placement.h"};
/* Where events get their one word. */
static const char *const with_events[] = {"src/extender/*.c", "src/plugin/*.c"};

static struct arena arena;
static struct span words[WORDS];
static size_t n_words;

static bool has(struct span text, struct span part)
{
    return memmem(text.p, text.n, part.p, part.n) != NULL;
}

/* The file, with one blank for any white space. */
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

/* -- literals of C -- */

typedef void literal_fn(struct span text, void *use);

static const char *skip_quoted(const char *p, struct buf *text)
{
    for (char quote = *p++; *p != quote; p++) {
        ck_assert_msg(*p != '\0', "a literal has no end");
        p += *p == '\\';
        if (text)
            buf_addc(text, *p);
    }
    return p + 1;
}

/* p is at a quote; literals that follow each other are one. */
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
        } else if (strncmp(p, "#include", 8) == 0) {
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
    ck_assert_msg(glob(pattern, 0, NULL, &files) == 0, "there is no %s", pattern);
    for (size_t i = 0; i < files.gl_pathc; i++)
        each_literal(files.gl_pathv[i], fn, files.gl_pathv[i]);
    globfree(&files);
}

/* -- words -- */

/* Two words at least: keys and single words are no reason. */
static bool is_speech(struct span s)
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

static void add_word(struct span text, void *use)
{
    struct span s = trim(text);
    (void)use;
    if (!is_speech(s))
        return;
    ck_assert_uint_lt(n_words, WORDS);
    words[n_words++] = arena_copy(&arena, s);
}

/* The pieces between the conversions of a format. */
static void add_words(struct span text, void *use)
{
    size_t from = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != '%')
            continue;
        add_word((struct span){text.p + from, i - from}, use);
        i += strspn(text.p + i, "%-.*0123456789lz");
        from = i + 1;
    }
    if (from < text.n)
        add_word((struct span){text.p + from, text.n - from}, use);
}

static void read_words(void)
{
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        each_source(sources[i], add_words);
    ck_assert_uint_gt(n_words, 100);
}

START_TEST(every_reason_has_its_line)
{
    struct span doc = read_flat(DOC);
    read_words();
    for (size_t i = 0; i < n_words; i++)
        ck_assert_msg(has(doc, words[i]), "%s says nothing of \"%.*s\"", DOC,
                      SPAN_ARG(words[i]));
    arena_fini(&arena);
}
END_TEST

/* Has the first cell of a row words of the sources, where it has more than one? */
static void check_row(struct span row)
{
    const char *end = memmem(row.p, row.n, " | ", 3);
    struct span cell = {row.p, end ? (size_t)(end - row.p) : row.n};
    size_t i = 0;
    while (i < n_words && !has(cell, words[i]))
        i++;
    ck_assert_msg(i < n_words || !is_speech(cell), "%s: nobody says %.*s", DOC,
                  SPAN_ARG(cell));
}

START_TEST(every_line_has_its_reason)
{
    cleanup_buf struct buf doc = {0};
    struct err err;
    size_t rows = 0;
    ck_assert_done(file_read(DOC, FILE_MAX, &doc, &err), err);
    read_words();
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
                  "%s says nothing of the event %s of %s", DOC, word, (const char *)use);
    n_words++;
}

START_TEST(every_event_has_its_line)
{
    for (size_t i = 0; i < ARRAY_LEN(with_events); i++)
        each_source(with_events[i], check_event);
    ck_assert_uint_ge(n_words, 10);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("reasons", every_reason_has_its_line, every_line_has_its_reason,
          every_event_has_its_line)
