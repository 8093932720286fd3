/* SPDX-License-Identifier: Apache-2.0 */
#include <ftw.h>
#include <regex.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/temp.h"
#include "lib/unit.h"

/*
 * The language of the project: denied_words.txt lists words that no source, document,
 * manifest or script uses, and a log line begins with the subject that it is about. The
 * help texts of options are checked by test/integration/test_options.c, which runs the
 * programs.
 */

#define LIST "test/base/denied_words.txt"

enum { FILE_MAX = 4 << 20, WORDS_MAX = 256, SHOWN_MAX = 5000, DEPTH = 16 };

static const char *const roots[] = {
    "src",          "include",   "tools",           "docs",
    "man",          "manifests", "policy",          "scripts",
    "README.md",    "Makefile",  "CONTRIBUTING.md", "SECURITY.md",
    "Containerfile"};

struct denied {
    regex_t regex;
    char *pattern, *instead;
};

static struct denied denied[WORDS_MAX];
static size_t n_denied, n_files, n_faults;
static struct buf faults;

static void add_fault(const char *path, unsigned line, const char *what,
                      const char *instead)
{
    if (n_faults++ < SHOWN_MAX)
        buf_printf(&faults, "%s:%u: %s%s%s\n", path, line, what,
                   instead ? "; write: " : "", instead ? instead : "");
}

static void add_denied(struct span line)
{
    struct denied *d = &denied[n_denied++];
    ck_assert_uint_lt(n_denied, WORDS_MAX);
    struct span pattern = span_cut(&line, '\t');
    ck_assert_msg(line.n > 0, LIST ": \"%.*s\" has no replacement", SPAN_ARG(pattern));
    d->pattern = xmemdup0(pattern.p, pattern.n);
    d->instead = xmemdup0(line.p, line.n);
    cleanup_free char *whole =
        xasprintf("(^|[^[:alnum:]])(%s)([^[:alnum:]]|$)", d->pattern);
    ck_assert_msg(regcomp(&d->regex, whole, REG_EXTENDED | REG_ICASE) == 0,
                  LIST ": %s is no regular expression", d->pattern);
}

static void load_denied(void)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(LIST, FILE_MAX, &text, &err), err);
    for (struct span rest = buf_span(&text); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (line.n && line.p[0] != '#')
            add_denied(line);
    }
    ck_assert_uint_gt(n_denied, 20);
}

static void free_denied(void)
{
    while (n_denied) {
        struct denied *d = &denied[--n_denied];
        regfree(&d->regex);
        free(d->pattern);
        free(d->instead);
    }
    buf_fini(&faults);
    n_faults = n_files = 0;
}

/* -- words -- */

/* A word may be split by the end of a line: "cannot be\n * meant". So a line is matched
 * together with the first word of each line behind it, without the comment's frame. */
static void check_words(const char *path, struct span text)
{
    cleanup_buf struct buf flat = {0};
    unsigned line_no = 0;
    while (text.n) {
        struct span line = span_cut(&text, '\n');
        struct span next = text;
        line_no++;
        buf_clear(&flat);
        buf_add(&flat, line.p, line.n);
        size_t own = flat.n;
        while (next.n && strchr(" *#/\t|>", next.p[0]))
            next = (struct span){next.p + 1, next.n - 1};
        struct span follows = span_cut(&next, '\n');
        buf_addc(&flat, ' ');
        buf_add(&flat, follows.p, follows.n < 24 ? follows.n : 24);
        for (size_t i = 0; i < n_denied; i++) {
            regmatch_t m[3];
            if (regexec(&denied[i].regex, flat.p, 3, m, 0) == 0 &&
                (size_t)m[2].rm_so < own) {
                cleanup_free char *what =
                    xasprintf("\"%.*s\" is a denied word", (int)(m[2].rm_eo - m[2].rm_so),
                              flat.p + m[2].rm_so);
                add_fault(path, line_no, what, denied[i].instead);
            }
        }
    }
}

/* -- log lines -- */

/* What a log message does not begin with: the reader of one line has no antecedent. */
static const char *const no_subject[] = {"it ",   "its ",    "they ",     "them ",
                                         "this ", "that ",   "he ",       "who ",
                                         "what ", "nobody ", "somebody ", "there "};

/* The literal at *p, which moves behind it; or an empty span. */
static struct span take_literal(const char **p)
{
    *p += strspn(*p, " \n");
    if (**p != '"')
        return (struct span){0};
    const char *begin = ++*p;
    while (**p && **p != '"')
        *p += 1 + (**p == '\\' && (*p)[1]);
    struct span s = {begin, (size_t)(*p - begin)};
    *p += **p == '"';
    return s;
}

static void check_message(const char *path, unsigned line, struct span message)
{
    if (!message.n)
        return; /* not a literal: the text of an error or of the core */
    bool bad = message.p[message.n - 1] == '.' ||
               (message.n > 1 && memcmp(message.p + message.n - 2, "\\n", 2) == 0);
    for (size_t i = 0; i < ARRAY_LEN(no_subject); i++)
        bad |= span_starts(message, span_of(no_subject[i]));
    if (bad)
        add_fault(path, line, "a log message does not begin with its subject", NULL);
}

static void check_log_lines(const char *path, const char *text)
{
    static const char *const calls[] = {"log_error(", "log_warn(", "log_info(",
                                        "log_debug("};
    unsigned line = 1;
    for (const char *p = text; *p; line += *p == '\n', p++)
        for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
            if (strncmp(p, calls[i], strlen(calls[i])) != 0)
                continue;
            const char *at = p + strlen(calls[i]);
            struct span module = take_literal(&at);
            at += strspn(at, ", \n");
            if (module.n)
                check_message(path, line, take_literal(&at));
        }
}

/* -- files -- */

static int check_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    (void)st;
    (void)ftw;
    if (type != FTW_F)
        return 0;
    ck_assert_done(file_read(path, FILE_MAX, &text, &err), err);
    if (!text.n || memchr(text.p, '\0', text.n))
        return 0; /* a picture */
    n_files++;
    check_words(path, buf_span(&text));
    if (strcmp(path + strlen(path) - 2, ".c") == 0)
        check_log_lines(path, text.p);
    return 0;
}

static void check_tree(const char *root)
{
    ck_assert_int_eq(nftw(root, check_file, DEPTH, FTW_PHYS), 0);
}

START_TEST(no_file_has_a_denied_word_or_a_log_line_without_subject)
{
    load_denied();
    for (size_t i = 0; i < ARRAY_LEN(roots); i++)
        check_tree(roots[i]);
    ck_assert_uint_gt(n_files, 300);
    if (getenv("LANG_ALL"))
        fputs(faults.p, stdout);
    ck_assert_msg(n_faults == 0, "%zu faults of language:\n%.3000s", n_faults, faults.p);
    free_denied();
}
END_TEST

/* The checker finds what is planted, and nothing beside it. */
START_TEST(planted_faults_are_found)
{
    static const struct {
        const char *text;
        size_t faults;
    } cases[] = {
        {"/* The ledger is read once more. */\n", 0},
        {"/* The ledger is built anew. */\n", 1},
        {"int brain_step(void);\n", 1},
        {"Brainstorm and retold stories are whole words.\n", 0},
        {"A request that cannot be\n * meant is refused.\n", 1},
        {"log_info(\"kubelet\", \"registration accepted\");\n", 0},
        {"log_info(\"kubelet\", \"it listens\");\n", 1},
        {"log_warn(\n    \"kubelet\",\n    \"registration rejected.\");\n", 1},
        {"log_warn(\"core\", o->text);\n", 0},
    };
    cleanup_free char *dir = temp_dir();
    cleanup_free char *path = temp_path(dir, "planted.c");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        load_denied();
        temp_write(dir, "planted.c", cases[i].text);
        check_tree(path);
        ck_assert_msg(n_faults == cases[i].faults, "%zu faults in %s%s", n_faults,
                      cases[i].text, n_faults ? faults.p : "");
        free_denied();
    }
    temp_dir_remove(dir);
}
END_TEST

UNIT_MAIN("language", no_file_has_a_denied_word_or_a_log_line_without_subject,
          planted_faults_are_found)
