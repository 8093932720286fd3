/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/commands.h"
#include "lib/lib.h"

/*
 * The manual pages as `make install` takes them: each program has one, groff finds
 * nothing wrong with it, and it says of options and environment what the program does.
 */

enum { PROGRAMS = 32, FILE_MAX = 256 << 20 };

static const char *const sections[] = {"NAME",        "SYNOPSIS",    "DESCRIPTION",
                                       "OPTIONS",     "ENVIRONMENT", "FILES",
                                       "EXIT STATUS", "EXAMPLES",    "SEE ALSO"};
/* What our code asks the environment for beside what --help names. */
static const char *const asked[] = {"HOME", "KUBERNETES_SERVICE_HOST",
                                    "KUBERNETES_SERVICE_PORT", "NO_COLOR", "TERM"};

/* What a line of shell says; it must end with exit status 0. New. */
static char *said_by(const char *line)
{
    struct program p;
    program_start(&p, lib_dir, ARGV("sh", "-c", line));
    ck_assert_msg(program_wait(&p) == 0, "%s: %s", line, program_output(&p));
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    return said;
}

/* As a terminal shows it, in lines that are never broken; `complaints`: those of groff
 * instead. */
static char *shown(const char *page, bool complaints)
{
    cleanup_free char *path = program_path(page);
    cleanup_free char *line =
        xasprintf("groff -man -Tutf8 -ww -rLL=5000n -P-cbou '%s' %s", path,
                  complaints ? "2>&1 >/dev/null" : "");
    return said_by(line);
}

/* The lines below a heading, up to the next one. */
static struct span section(const char *text, const char *heading)
{
    cleanup_free char *line = xasprintf("\n%s\n", heading);
    const char *from = strstr(text, line), *p;
    ck_assert_msg(from != NULL, "there is no section %s in: %s", heading, text);
    from += strlen(line);
    for (p = from; p && (*p == ' ' || *p == '\n'); p = strchr(p, '\n') + 1)
        if (*p == '\n')
            continue;
    return (struct span){from, (size_t)(p - from)};
}

/* White space of any kind and length is one blank. */
static char *words(struct span text)
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

/* The page that a program's manual has: "man/NAME.8" or "man/NAME.1". New. */
static char *page_of(const char *program)
{
    struct err err = {0};
    for (int chapter = 1; chapter <= 8; chapter += 7) {
        cleanup_free char *name = xasprintf("man/%s.%d", program, chapter);
        cleanup_free char *path = program_path(name);
        cleanup_buf struct buf text = {0};
        if (file_read(path, FILE_MAX, &text, &err) == 0)
            return steal(&name);
    }
    ck_abort_msg("%s has no manual: %s", program, err.msg);
    return NULL;
}

/* Those that `make install` installs: as the Makefile lists them, and scripts/install.
 * Returns how many. */
static size_t programs(char *names[PROGRAMS])
{
    size_t n = 0;
    cleanup_free char *text = said_by("sed -n '/^PROGRAMS  *:=/,/[^\\\\]$/p' Makefile");
    struct span all = span_of(text);
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
        cleanup_free char *page = page_of(names[i]);
        check(names[i], page);
        free(names[i]);
    }
}

static void check_form(const char *program, const char *page)
{
    cleanup_free char *complaints = shown(page, true), *text = shown(page, false);
    ck_assert_msg(!*complaints, "%s: %s", page, complaints);
    size_t last = 0;
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        struct span s = section(text, sections[i]);
        ck_assert_msg((size_t)(s.p - text) > last, "%s: %s comes too early", page,
                      sections[i]);
        ck_assert_msg(s.n > 1, "%s: %s is empty", page, sections[i]);
        last = (size_t)(s.p - text);
    }
    cleanup_free char *name = words(section(text, "NAME"));
    ck_assert_msg(strncmp(name, program, strlen(program)) == 0, "%s is about %s", page,
                  name);
}

START_TEST(each_program_has_a_page_and_groff_likes_it)
{
    each_program(check_form);
}
END_TEST

/* Names, values, variables, defaults and what they do: all that --help says, no more. */
static void check_options(const char *program, const char *page)
{
    cleanup_free char *help = commands_help(program), *text = shown(page, false);
    const char *first = strstr(help, "\n  -");
    ck_assert_ptr_nonnull(first);
    cleanup_free char *wanted = words(span_of(first + 1));
    cleanup_free char *got = words(section(text, "OPTIONS"));
    ck_assert_str_eq(got, wanted);
    /* Some stand in front of the others, in the usage. */
    for (const char *p = help; (p = strstr(p, "--"));) {
        cleanup_free char *name = xmemdup0(p, strspn(p, "-abcdefghijklmnopqrstuvwxyz"));
        ck_assert_msg(strstr(text, name) != NULL, "%s says nothing of %s", page, name);
        p += strlen(name);
    }
}

START_TEST(options_are_those_of_help)
{
    each_program(check_options);
}
END_TEST

static bool names_it(const char *text, const char *variable)
{
    cleanup_free char *part = xasprintf("(environment: %s)", variable);
    return strstr(text, part);
}

/* Has the program's file a string that is this one? */
static bool has_string(const struct buf *file, const char *text)
{
    cleanup_buf struct buf whole = {0};
    buf_addc(&whole, '\0');
    buf_add(&whole, text, strlen(text) + 1);
    return memmem(file->p, file->n, whole.p, whole.n);
}

/* A line of the section that has only this word, or begins with it as a term. */
static bool lists(struct span section, const char *variable)
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
    cleanup_free char *help = commands_help(program), *text = shown(page, false);
    cleanup_free char *path = program_path(
        strcmp(program, "gpushare-install") == 0 ? "gpushare-setup" : program);
    cleanup_buf struct buf file = {0};
    struct span listed = section(text, "ENVIRONMENT");
    ck_assert_done(file_read(path, FILE_MAX, &file, &err), err);
    for (const char *p = help; (p = strstr(p, "(environment: "));) {
        p += strlen("(environment: ");
        cleanup_free char *variable = xmemdup0(p, strcspn(p, ")"));
        ck_assert_msg(lists(listed, variable), "%s says nothing of %s", page, variable);
    }
    for (size_t i = 0; i < ARRAY_LEN(asked); i++)
        ck_assert_msg(lists(listed, asked[i]) == has_string(&file, asked[i]),
                      "%s of %s: the program asks for it, or the page lists it: not both",
                      asked[i], page);
    /* Nothing that it does not read. */
    for (struct span line; listed.n;) {
        line = span_trim(span_cut(&listed, '\n'));
        size_t n = 0;
        while (n < line.n && (isupper((unsigned char)line.p[n]) || line.p[n] == '_'))
            n++;
        cleanup_free char *variable = xmemdup0(line.p, n);
        if (n > 1 && (n == line.n || line.p[n] == ' '))
            ck_assert_msg(names_it(help, variable) || has_string(&file, variable),
                          "%s lists %s, which the program does not read", page, variable);
    }
}

START_TEST(variables_are_those_that_are_read)
{
    each_program(check_environment);
}
END_TEST

/* `asked` is complete. */
START_TEST(no_other_variable_is_asked_for)
{
    cleanup_free char *found =
        said_by("grep -rhoE 'getenv\\(\"[A-Z_]+\"' src | cut -d'\"' -f2 | sort -u");
    struct span rest = span_of(found);
    size_t n = 0;
    while (rest.n) {
        cleanup_free char *name = NULL;
        struct span line = span_cut(&rest, '\n');
        bool known = line.n == 0;
        for (size_t i = 0; i < ARRAY_LEN(asked); i++)
            known |= span_eq(line, span_of(asked[i]));
        name = xmemdup0(line.p, line.n);
        ck_assert_msg(known, "%s is asked for: add it to the manual and to this test",
                      name);
        n += line.n > 0;
    }
    ck_assert_uint_eq(n, ARRAY_LEN(asked));
}
END_TEST

LIB_MAIN("man", 60, each_program_has_a_page_and_groff_likes_it, options_are_those_of_help,
         variables_are_those_that_are_read, no_other_variable_is_asked_for)
