/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <glob.h>
#include <wordexp.h>

#include "lib/doc.h"
#include "lib/network.h"
#include "lib/sim.h"

/*
 * The documents: links lead to a file and a heading; files, functions and options exist;
 * docs/reasons.md has each reason and event of the sources; the programs parse every command;
 * the commands marked `sh sim` run.
 */

enum { RUN_MS = 60 * 1000 };

static struct buf faults;

static void each_file(const char *pattern, void (*each)(const char *path, void *ctx),
                      void *ctx)
{
    for (const char *const *file = lib_glob(pattern); *file; file++)
        each(*file, ctx);
}

static void report(void)
{
    ck_assert_msg(!faults.n, "\n%s", faults.p);
    buf_fini(&faults);
}

#define FAULT(part, fmt, ...)                                                            \
    buf_printf(&faults, "%s:%u: " fmt "\n", (part)->path, (part)->line, __VA_ARGS__)

/* -- links -- */

static void find_heading(const struct doc_part *part, void *ctx)
{
    struct span *anchor = ctx;
    if (part->kind == DOC_HEADING && span_eq(part->text, *anchor))
        *anchor = (struct span){0};
}

static void check_link(const struct doc_part *part, void *ctx)
{
    struct span anchor = part->text, target = span_cut(&anchor, '#');
    (void)ctx;
    if (part->kind != DOC_LINK || memmem(target.p, target.n, "://", 3))
        return;
    const char *slash = strrchr(part->path, '/');
    int folder = slash ? (int)(slash + 1 - part->path) : 0;
    const char *path =
        target.n ? lib_fmt("%.*s%.*s", folder, part->path, SPAN_ARG(target)) : part->path;
    if (access(path, F_OK) != 0) {
        FAULT(part, "there is no such file: %.*s", SPAN_ARG(part->text));
    } else if (anchor.n) {
        doc_read(path, find_heading, &anchor);
        if (anchor.n)
            FAULT(part, "there is no such heading: %.*s", SPAN_ARG(part->text));
    }
}

TEST(each_link_has_a_target)
{
    doc_each(check_link, NULL);
    report();
}

/* -- paths -- */

/* `src/core/core.c:core_step`: the file has the function, and `:core_step` alone, that of the
 * path before. `src/domain/ledger*.c`: files. */
static void check_path(const struct doc_part *part, void *ctx)
{
    static const char *const folders[] = {"src/",     "include/",   "test/",  "tools/",
                                          "scripts/", "manifests/", "policy/"};
    static struct span before;
    struct span name = part->text, path = span_cut(&name, ':');
    bool ours = false;
    (void)ctx;
    if (part->kind == DOC_CODE && !path.n && name.n && *name.p != ':') /* not ::1 */
        path = before;
    array_items(folder, folders)
        ours |= span_starts(path, span_of(*folder));
    if (part->kind != DOC_CODE || !ours || memchr(path.p, ' ', path.n) ||
        memchr(path.p, '\n', path.n) || memchr(path.p, '<', path.n) ||
        strcmp(part->path, "CHANGELOG.md") == 0)
        return;
    before = (struct span){lib_fmt("%.*s", SPAN_ARG(path)), path.n};
    glob_t files;
    int rc = glob(lib_fmt("%.*s", SPAN_ARG(path)), 0, NULL, &files);
    if (rc != 0 || (name.n && !strstr(lib_file(files.gl_pathv[0]),
                                      lib_fmt("%.*s(", SPAN_ARG(name)))))
        FAULT(part, "there is no %.*s", SPAN_ARG(part->text));
    globfree(&files);
}

TEST(each_path_exists)
{
    doc_each(check_path, NULL);
    report();
}

/* -- options -- */

static void add_help(const char *manual, void *ctx)
{
    struct span name = span_of(strchr(manual, '/') + 1);
    name = span_cut(&name, '.');
    buf_adds(ctx, doc_help(lib_fmt("%.*s", SPAN_ARG(name))));
}

static void add_text(const char *path, void *ctx)
{
    buf_adds(ctx, lib_file(path));
}

/* Of other programs. */
#define FOREIGN                                                                          \
    " --dry-run --policy-config-file --take-ownership --config --validate "              \
    "--no-hooks --api-versions --kube-version --set --disable-eviction "

static void check_option(const struct doc_part *part, void *ctx)
{
    const struct buf *known = ctx;
    if (strcmp(part->path, "CHANGELOG.md") == 0) /* it names options that went */
        return;
    if (part->kind != DOC_CODE || part->text.n < 3 ||
        !span_starts(part->text, SPAN("--")))
        return;
    size_t n = 2;
    while (n < part->text.n &&
           (isalnum((unsigned char)part->text.p[n]) || part->text.p[n] == '-'))
        n++;
    for (const char *at = known->p;
         (at = memmem(at, (size_t)(known->p + known->n - at), part->text.p, n)); at++)
        if (!isalnum((unsigned char)at[n]) && at[n] != '-')
            return;
    FAULT(part, "no program has the option %.*s", (int)n, part->text.p);
}

TEST(each_option_exists)
{
    cleanup_buf struct buf known = {0};
    each_file("man/*.in", add_help, &known);
    each_file("scripts/[a-z]*[!e]", add_text, &known);
    each_file("test/*/main.c", add_text, &known);
    buf_adds(&known, FOREIGN);
    doc_each(check_option, &known);
    report();
}

/* -- reasons -- */

static const char *page;
static size_t found;

static void want(const char *path, struct span text)
{
    static const char around[] = " ;:,.()\"";
    while (text.n && strchr(around, text.p[0]))
        text = (struct span){text.p + 1, text.n - 1};
    while (text.n && strchr(around, text.p[text.n - 1]))
        text.n--;
    if (!memchr(text.p, ' ', text.n))
        return;
    found++;
    if (!memmem(page, strlen(page), text.p, text.n))
        buf_printf(&faults, "docs/reasons.md lacks \"%.*s\" of %s\n", SPAN_ARG(text),
                   path);
}

/* Each string literal, without its conversions: "needs %d MiB on one card". The page of
 * explain says itself what its words mean. */
static void check_texts(const char *path, void *ctx)
{
    (void)ctx;
    for (const char *p = lib_file(path); *p; p++) {
        static const char explain[] = "/* Of a card, in explain alone: */";
        if (strncmp(p, explain, sizeof explain - 1) == 0)
            p = strstr(p, "};");
        else if (strncmp(p, "/*", 2) == 0)
            p = strstr(p, "*/");
        else if (*p == '#')
            p += strcspn(p, "\"\n");
        else if (*p == '\'')
            p += p[1] == '\\' ? 3 : 2;
        if (*p != '"')
            continue;
        const char *from = ++p;
        for (; *p != '"'; p++)
            if (*p == '%' || *p == '\\') {
                want(path, (struct span){from, (size_t)(p - from)});
                if (*p == '%')
                    p += strspn(p + 1, ".*0123456789lz");
                p += p[1] != '"' || *p == '\\';
                from = p + 1;
            }
        want(path, (struct span){from, (size_t)(p - from)});
    }
}

static void check_events(const char *path, void *ctx)
{
    (void)ctx;
    for (const char *p = lib_file(path); (p = strstr(p, "\"GPU")); p++) {
        size_t n =
            1 + strspn(p + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
        if (n < 6 || p[n] != '"')
            continue;
        char *name = lib_fmt("`%.*s`", (int)n - 1, p + 1);
        found++;
        if (!strstr(page, name))
            buf_printf(&faults, "docs/reasons.md lacks the event %s of %s\n", name, path);
    }
}

TEST(each_reason_and_event_is_explained)
{
    page = lib_file("docs/reasons.md");
    each_file("src/placement/reason*.c", check_texts, NULL);
    each_file("src/domain/request.c", check_texts, NULL);
    each_file("src/domain/gang.c", check_texts, NULL);
    ck_assert_uint_gt(found, 40);
    each_file("src/[aenp]*/*.c", check_events, NULL);
    ck_assert_uint_gt(found, 50);
    report();
}

/* -- commands are parsed -- */

#define MISSING "/nonexistent/file"

/* A program, how a command names it, and the options with which it ends once it has parsed all
 * arguments; its output then has the text. */
static const struct {
    const char *name, *program, *text;
    const char *const *ends;
} parsers[] = {
#define NO_API MISSING " does not exist", ARGV("--kubeconfig=" MISSING)
    {"kubectl inspect gpushare", "kubectl-inspect-gpushare", NO_API},
    {"kubectl inspect-gpushare", "kubectl-inspect-gpushare", NO_API},
    {"kubectl-inspect-gpushare", "kubectl-inspect-gpushare", NO_API},
    {"gpushare-extender", "gpushare-extender", NO_API},
    {"gpushare-device-plugin", "gpushare-device-plugin", NO_API},
    {"scv-agent", "scv-agent", MISSING,
     ARGV("--kubeconfig=" MISSING, "--gpu-source=file:" MISSING)},
    {"gpushare-setup", "gpushare-setup", MISSING,
     ARGV("--root=" MISSING, "--kubeconfig=" MISSING, "--policy=" MISSING)},
    {"gpushare-replay --links", "gpushare-replay", "ring", ARGV(NULL)},
    {"gpushare-replay", "gpushare-replay", MISSING,
     ARGV("--nodes=" MISSING, "--pods=" MISSING)},
    {"kube-sim", "kube-sim", MISSING, ARGV("--load=" MISSING)},
    {"scripts/install", NULL, "Exit status", ARGV("--help")},
    {"gpushare-install", NULL, "Exit status", ARGV("--help")},
    {"scripts/cluster", NULL, "starts the cluster", ARGV("--help")},
};

static unsigned parsed;

/* The length of the command: up to what the shell reads as its end. */
static size_t command_length(struct span text)
{
    char quote = '\0';
    size_t i = 0;
    for (; i < text.n; i++) {
        char c = text.p[i];
        if (quote)
            quote = c == quote ? '\0' : quote;
        else if (c == '\'' || c == '"')
            quote = c;
        else if (strchr(";|&<>()\n", c) || (c == '#' && (!i || text.p[i - 1] == ' ')))
            break;
    }
    return i;
}

/* The text with `with` in place of each part between the marks. Kept. */
static const char *without(struct span text, const char *from, const char *to,
                           const char *with)
{
    char *all = lib_fmt("%.*s", SPAN_ARG(text));
    for (char *at, *end; (at = strstr(all, from)) && (end = strstr(at, to));)
        all = lib_fmt("%.*s%s%s", (int)(at - all), all, with, end + strlen(to));
    return all;
}

/* `text`: the arguments, and perhaps further commands. */
static void parse_command(const struct doc_part *part, size_t parser, struct span text)
{
    const char *argv[PROGRAM_ARGS], *name = parsers[parser].name;
    const char *first = strstr(name, " --") ?: "", *program = parsers[parser].program;
    wordexp_t words;
    const char *arguments = lib_fmt("%s%.*s", first, (int)command_length(text), text.p);
    if (wordexp(arguments, &words, WRDE_NOCMD)) {
        FAULT(part, "the shell cannot read: %s%s", name, arguments);
        return;
    }
    program = program                       ? lib_built(program)
              : strncmp(name, "scripts", 7) ? "scripts/install"
                                            : name;
    size_t n = program_args(argv, 0, ARGV("env", "NODE_NAME=n", program));
    n = program_args(argv, n, (const char *const *)words.we_wordv);
    program_args(argv, n, parsers[parser].ends);
    const char *output = lib_output(-1, argv);
    parsed++;
    if (!strstr(output, parsers[parser].text) && !strstr(output, "\nUsage: "))
        FAULT(part, "%s%s: %.120s", name, arguments, output);
    wordfree(&words);
}

/* A target and variables of the Makefile; options of a script, as its first words. */
static void parse_words(const struct doc_part *part, struct span text)
{
    struct span program = span_cut(&text, ' '), word;
    bool make = span_eq(program, SPAN("make"));
    const char *path = make ? "Makefile" : lib_fmt("%.*s", SPAN_ARG(program));
    if ((!make && !span_starts(program, SPAN("scripts/"))) || access(path, F_OK) != 0)
        return;
    const char *known = lib_fmt("\n%s%s", lib_file(path), lib_file("test/rules.mk"));
    while ((word = span_cut(&text, ' ')).n) {
        struct span name = word;
        name = span_cut(&name, '=');
        parsed++;
        const char *want = lib_fmt("%s%.*s%s",
                                   !make             ? ""
                                   : name.n < word.n ? "$("
                                                     : "\n",
                                   SPAN_ARG(name),
                                   !make             ? ""
                                   : name.n < word.n ? ")"
                                                     : ":");
        if ((make || *name.p == '-') && !strstr(known, want))
            FAULT(part, "%s has no %.*s", path, SPAN_ARG(word));
        if (memchr(word.p, '"', word.n)) /* options of another program */
            break;
    }
}

/* Parses the command that the text begins with, if it is one of ours with arguments. */
static void parse_line(const struct doc_part *part, struct span text)
{
    for (size_t i = 0; i < ARRAY_LEN(parsers); i++) {
        struct span name = span_of(parsers[i].name);
        if (span_starts(text, name) && text.n > name.n && text.p[name.n] == ' ') {
            parse_command(part, i, (struct span){text.p + name.n, text.n - name.n});
            return;
        }
    }
    parse_words(part, text);
}

/* Every command of a script: at the start of a line or after another one. */
static void parse_script(const struct doc_part *part, struct span text)
{
    text = span_of(without(text, "\\", "\n", " "));
    text = span_of(without(text, "$(", ")", "x"));
    for (struct span rest = span_of(without(text, "{{", "}}", "")); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        for (size_t n; line.n; line = (struct span){line.p + n, line.n - n}) {
            n = command_length(line);
            struct span one = span_trim((struct span){line.p, n}), after = one, word;
            while (word = span_cut(&after, ' '),
                   span_eq(word, SPAN("sudo")) || memchr(word.p, '=', word.n))
                one = span_trim(after);
            parse_line(part, one);
            if (n < line.n && line.p[n] == '#')
                break;
            n += n < line.n;
        }
    }
}

/* Commands of Markdown: inline code, and the blocks of commands. */
static void parse_part(const struct doc_part *part, void *ctx)
{
    (void)ctx;
    if (strcmp(part->path, "CHANGELOG.md") == 0) /* former commands */
        return;
    if (part->kind == DOC_CODE) {
        char *code = lib_fmt("%.*s", SPAN_ARG(part->text));
        for (char *at; (at = strchr(code, '\n'));)
            *at = ' ';
        parse_script(part, span_of(code));
    } else if (part->kind == DOC_BLOCK && (span_starts(part->info, SPAN("sh")) ||
                                           span_starts(part->info, SPAN("bash")))) {
        parse_script(part, part->text);
    }
}

/* In a comment or a message without quotes: a name and options, with values that are no words
 * of a sentence. */
static void parse_prose(const struct doc_part *part, struct span line)
{
    for (size_t i = 0; i < ARRAY_LEN(parsers); i++) {
        const char *end = line.p + line.n, *at = line.p;
        struct span name = span_of(parsers[i].name);
        for (; (at = memmem(at, (size_t)(end - at), name.p, name.n)); at += name.n) {
            struct span rest = {at + name.n, (size_t)(end - at) - name.n}, word;
            cleanup_buf struct buf options = {0};
            bool own = at == line.p || strchr(" \"(`", at[-1]), value = false;
            span_cut(&rest, ' ');
            for (; (word = span_cut(&rest, ' ')).n && (*word.p == '-' || value);) {
                size_t n = 0;
                while (n < word.n && !strchr(",;)\"\\`{", word.p[n]))
                    n++;
                n -= n && word.p[n - 1] == '.';
                const char *is = lib_fmt("%.*s", (int)n, word.p);
                if (*is != '-' && !strpbrk(is, ":/%") &&
                    is[strspn(is, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")])
                    break;
                value = *word.p == '-' && n == word.n;
                buf_printf(&options, " %s", *is == '%' ? "x" : is);
                if (n < word.n)
                    break;
            }
            if (own && at[name.n] == ' ' && options.n > 2)
                parse_command(part, i, buf_span(&options));
        }
    }
}

/* Of other files: code in backticks, and prose; of a manual page, quoted text and examples. */
static void parse_file(const char *path, void *ctx)
{
    struct doc_part part = {.path = path};
    bool manual = strncmp(path, "man/", 4) == 0;
    char *text = lib_file(path), quote = manual ? '"' : '`';
    (void)ctx;
    for (char *at = text; manual && (at = strchr(at, '\\')); at++) {
        memmove(at, at + 1, strlen(at)); /* \- is a minus, \e a backslash */
        *at = *at == 'e' ? '\\' : *at;
    }
    for (struct span rest = span_of(text); rest.n;) {
        struct span line = span_cut(&rest, '\n'), code = line;
        part.line++;
        if (manual && span_eq(line, SPAN(".EX"))) {
            const char *end = strstr(rest.p, "\n.EE");
            parse_script(&part, (struct span){rest.p, (size_t)(end - rest.p)});
        }
        if (!manual)
            parse_prose(&part, line);
        while (span_cut(&code, quote), code.n && memchr(code.p, quote, code.n))
            parse_script(&part, span_cut(&code, quote));
    }
}

TEST(each_command_is_parsed_by_its_program)
{
    doc_each(parse_part, NULL);
    ck_assert_uint_gt(parsed, 40);
    each_file("man/*.in", parse_file, NULL);
    each_file("policy/*.{yaml,example}", parse_file, NULL);
    each_file("manifests/{,*/,*/*/}*.{yaml,example,tpl,txt}", parse_file, NULL);
    each_file("src/*/*.c", parse_file, NULL);
    printf("measured: %u commands are parsed\n", parsed);
    report();
}

/* -- commands run -- */

/* The pages whose commands run: kube-sim and the extender as in `make demo`, on their
 * documented ports. */
static const char *const pages[] = {"README.md", "docs/user-guide.md"};

TEST(commands_marked_sim_run)
{
    struct err err = {0};
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    array_items(p, pages) {
        struct sim sim;
        struct extender e;
        sim_start(&sim,
                  ARGV("--port", "8001", "--run-pods", "--load",
                       "manifests/namespace.yaml", "--load", "manifests/demo/filter.yaml",
                       "--load", "manifests/demo/bind.yaml", "--load",
                       "manifests/demo/scvs.yaml", "--load",
                       "manifests/demo/burst.yaml"));
        extender_start(
            &e, &sim,
            ARGV("--memory-unit", "MiB", "--port", "12345", "--observe-port", "12346"));
        char *dir = lib_keep(temp_dir(), free);
        unsigned n =
            doc_run(*p, "sh sim", NULL, dir,
                    ARGV(lib_fmt("KUBECONFIG=%s", sim_kubeconfig(&sim))), RUN_MS);
        ck_assert_msg(n > 0, "%s has no command", *p);
        printf("measured: %s: %u blocks of commands ran\n", *p, n);
        temp_dir_remove(dir);
        extender_stop(&e);
        sim_stop(&sim);
    }
}

LIB_MAIN(120)
