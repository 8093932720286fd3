/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>

#include "base/file.h"
#include "lib/doc.h"
#include "lib/lib.h"

/*
 * The manual pages that `make install` installs: each program has one, groff accepts it
 * without warnings, and it documents the options and environment variables of the
 * program.
 */

enum { PROGRAMS = 32, FILE_MAX = 256 << 20 };

static const char *const sections[] = {"NAME",        "SYNOPSIS",    "DESCRIPTION",
                                       "OPTIONS",     "ENVIRONMENT", "FILES",
                                       "EXIT STATUS", "EXAMPLES",    "SEE ALSO"};
/* Environment variables that the programs read besides those that --help names. */
static const char *const env_variables[] = {"HOME",
                                            "KUBECTL",
                                            "KUBERNETES_SERVICE_HOST",
                                            "KUBERNETES_SERVICE_PORT",
                                            "NO_COLOR",
                                            "PATH",
                                            "TERM",
                                            "TMPDIR"};

/* Runs a shell command, which must exit with status 0. Returns its output, new. */
static char *output_of(const char *line)
{
    return lib_output(0, ARGV("sh", "-c", line));
}

/* Returns the page as formatted for a terminal with unlimited width, or with `warnings`
 * what groff prints on stderr. New. */
static char *formatted(const char *page, bool warnings)
{
    return output_of(lib_fmt("groff -man -Tutf8 -ww -rLL=5000n -P-cbou '%s' %s",
                             lib_built(page), warnings ? "2>&1 >/dev/null" : ""));
}

/* The lines between a heading and the next one. */
static struct span section(const char *text, const char *heading)
{
    char *line = lib_fmt("\n%s\n", heading);
    const char *from = strstr(text, line), *p;
    ck_assert_msg(from != NULL, "there is no section %s in: %s", heading, text);
    from += strlen(line);
    for (p = from; p && (*p == ' ' || *p == '\n'); p = strchr(p, '\n') + 1)
        if (*p == '\n')
            continue;
    return (struct span){from, (size_t)(p - from)};
}

/* Replaces each run of white space by one blank. New. */
static char *normalize_space(struct span text)
{
    struct buf out = {0};
    buf_adds(&out, "");
    for (size_t i = 0; i < text.n; i++) {
        if (!isspace((unsigned char)text.p[i]))
            buf_addc(&out, text.p[i]);
        else if (out.n && out.p[out.n - 1] != ' ')
            buf_addc(&out, ' ');
    }
    return buf_take(&out);
}

/* The manual page of a program: "man/NAME.8" or "man/NAME.1". New. */
static char *manual_of(const char *program)
{
    struct err err = {0};
    for (int chapter = 1; chapter <= 8; chapter += 7) {
        cleanup_free char *name = xasprintf("man/%s.%d", program, chapter);
        cleanup_buf struct buf text = {0};
        if (file_read(lib_built(name), FILE_MAX, &text, &err) == 0)
            return steal(&name);
    }
    ck_abort_msg("%s has no manual: %s", program, err.msg);
    return NULL;
}

/* The programs that `make install` installs, from the Makefile, and scripts/install.
 * Returns how many. */
static size_t programs(char *names[PROGRAMS])
{
    size_t n = 0;

    struct span all =
        span_of(output_of("sed -n '/^PROGRAMS  *:=/,/[^\\\\]$/p' Makefile"));
    span_cut(&all, '=');
    for (const char *p = all.p; *(p += strspn(p, " \\\n"));) {
        size_t length = strcspn(p, " \\\n");
        ck_assert_uint_lt(n, PROGRAMS);
        names[n++] = xmemdup0(p, length);
        p += length;
    }
    ck_assert_uint_gt(n, 5);
    ck_assert_uint_lt(n, PROGRAMS);
    names[n++] = xstrdup("gpushare-install");
    return n;
}

static void each_program(void (*check)(const char *program, const char *page))
{
    char *names[PROGRAMS];
    size_t n = programs(names);
    for (size_t i = 0; i < n; i++) {
        cleanup_free char *page = manual_of(names[i]);
        check(names[i], page);
        free(names[i]);
    }
}

static void check_form(const char *program, const char *page)
{
    char *warnings = formatted(page, true);
    char *text = formatted(page, false);
    ck_assert_msg(!*warnings, "%s: %s", page, warnings);
    size_t last = 0;
    array_items(c, sections) {
        struct span s = section(text, *c);
        ck_assert_msg((size_t)(s.p - text) > last, "%s: %s is not in the usual order",
                      page, *c);
        ck_assert_msg(s.n > 1, "%s: %s is empty", page, *c);
        last = (size_t)(s.p - text);
    }
    cleanup_free char *name = normalize_space(section(text, "NAME"));
    ck_assert_msg(strncmp(name, program, strlen(program)) == 0,
                  "%s begins with the name %s", page, name);
}

TEST(each_program_has_a_valid_manual_page)
{
    each_program(check_form);
}

/* Section OPTIONS has the same names, values, variables, defaults and texts as --help. */
static void check_options(const char *program, const char *page)
{
    char *help = doc_help(program);
    char *text = formatted(page, false);
    const char *first = strstr(help, "\n  -");
    ck_assert_ptr_nonnull(first);
    cleanup_free char *wanted = normalize_space(span_of(first + 1));
    cleanup_free char *got = normalize_space(section(text, "OPTIONS"));
    ck_assert_str_eq(got, wanted);
    /* The usage line of --help names more options. */
    for (const char *p = help; (p = strstr(p, "--"));) {
        cleanup_free char *name = xmemdup0(p, strspn(p, "-abcdefghijklmnopqrstuvwxyz"));
        ck_assert_msg(strstr(text, name) != NULL, "%s does not mention %s", page, name);
        p += strlen(name);
    }
}

TEST(options_are_documented_as_in_help)
{
    each_program(check_options);
}

static bool help_names(const char *text, const char *variable)
{
    return strstr(text, lib_fmt("(environment: %s)", variable));
}

/* Does the program file contain this string, terminated by a NUL? The linker makes it the end of
 * a longer one, unless it is `whole`. */
static bool has_string(const struct buf *file, const char *text, bool whole)
{
    cleanup_buf struct buf bytes = {0};
    if (whole)
        buf_addc(&bytes, '\0');
    buf_add(&bytes, text, strlen(text) + 1);
    return memmem(file->p, file->n, bytes.p, bytes.n);
}

/* Does a line of the section consist of this word, or begin with it as a term? */
static bool has_entry(struct span section, const char *variable)
{
    size_t n = strlen(variable);
    for (struct span line; section.n;) {
        line = span_trim(span_cut(&section, '\n'));
        if (span_starts(line, span_of(variable)) && (line.n == n || line.p[n] == ' '))
            return true;
    }
    return false;
}

static void check_environment(const char *program, const char *page)
{
    struct err err = {0};
    char *help = doc_help(program);
    char *text = formatted(page, false);
    cleanup_buf struct buf file = {0};
    struct span listed = section(text, "ENVIRONMENT");
    ck_assert_done(
        file_read(lib_built(strcmp(program, "gpushare-install") == 0 ? "gpushare-setup"
                                                                     : program),
                  FILE_MAX, &file, &err),
        err);
    for (const char *p = help; (p = strstr(p, "(environment: "));) {
        p += strlen("(environment: ");
        cleanup_free char *variable = xmemdup0(p, strcspn(p, ")"));
        ck_assert_msg(has_entry(listed, variable), "%s does not list %s", page, variable);
    }
    array_items(e, env_variables)
        ck_assert_msg(
            has_entry(listed, *e) == has_string(&file, *e, !has_entry(listed, *e)),
            "%s: either the program reads it and %s does not list it, or the reverse", *e,
            page);
    /* The page lists no variable that the program does not read. */
    for (struct span line; listed.n;) {
        line = span_trim(span_cut(&listed, '\n'));
        size_t n = 0;
        while (n < line.n && (isupper((unsigned char)line.p[n]) || line.p[n] == '_'))
            n++;
        cleanup_free char *variable = xmemdup0(line.p, n);
        if (n > 1 && (n == line.n || line.p[n] == ' '))
            ck_assert_msg(help_names(help, variable) ||
                              has_string(&file, variable, false),
                          "%s lists %s, which the program does not read", page, variable);
    }
}

TEST(environment_lists_the_variables_that_are_read)
{
    each_program(check_environment);
}

/* `env_variables` is complete. */
TEST(no_other_environment_variable_is_read)
{

    struct span rest = span_of(
        output_of("grep -rhoE 'getenv\\(\"[A-Z_]+\"' src | cut -d'\"' -f2 | sort -u"));
    size_t n = 0;
    while (rest.n) {
        cleanup_free char *name = NULL;
        struct span line = span_cut(&rest, '\n');
        bool known = line.n == 0;
        array_items(e, env_variables)
            known |= span_eq(line, span_of(*e));
        name = xmemdup0(line.p, line.n);
        ck_assert_msg(known, "the source reads %s: add it to the manual and to this test",
                      name);
        n += line.n > 0;
    }
    ck_assert_uint_eq(n, ARRAY_LEN(env_variables));
}

LIB_MAIN(60)
