/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/commands.h"

#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/lib.h"
#include "lib/shwords.h"

enum { FILE_MAX = 16 << 20 };
#define INSTALL "gpushare-install" /* the installed scripts/install */

/* Programs of others that documents may name. */
static const char *const foreign[] = {
    "awk",    "cat",        "cd",         "chmod",   "cp",      "crictl", "ctr",
    "curl",   "echo",       "export",     "grep",    "head",    "helm",   "hostname",
    "jq",     "journalctl", "kill",       "kubectl", "less",    "ls",     "man",
    "mkdir",  "mv",         "nvidia-smi", "openssl", "printf",  "pwd",    "rm",
    "base64", "sha256sum",  "sed",        "set",     "sleep",   "sort",   "ssh",
    "source", "systemctl",  "tail",       "tar",     "tee",     "test",   "true",
    "unset",  "wait",       "docker",     "podman",  "buildah", "git",    "scp",
    "skopeo", "[",          ".",          "kubeadm", "crane",   "trap",   "eval",
    "diff",   "wc"};

/* Options of other programs that documents name. */
static const char *const foreign_options[] = {"--dry-run", "--policy-config-file",
                                              "--take-ownership"};

/* The folders of the repository. */
static const char *const folders[] = {"docs/", "manifests/", "policy/",  "scripts/",
                                      "test/", "src/",       "include/", "tools/",
                                      "man/",  ".ci/"};

struct check {
    struct buf *faults;
    const struct doc *doc;
    unsigned line;       /* of the command, in the document */
    const char *seen_in; /* or NULL */
};

#define FAULT(c, ...) doc_fault((c)->faults, (c)->doc, (c)->line, __VA_ARGS__)

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The bytes of a file of the repository; "" if there is none. New. */
static char *text_of(const char *path)
{
    struct buf text = {0};
    buf_adds(&text, "");
    file_read(path, FILE_MAX, &text, NULL);
    return buf_take(&text);
}

static bool is_name(char c)
{
    return c == '-' || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

/* Does the text contain this word, not only as a part of a longer word? */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p++)
        if ((p == text || !is_name(p[-1])) && !is_name(p[n]))
            return true;
    return false;
}

/* -- files -- */

static bool exists(const char *path)
{
    glob_t found;
    int rc = glob(path, 0, NULL, &found);
    if (rc == 0)
        globfree(&found);
    return rc == 0;
}

/* The part of a word that is a path of the repository: "--config=policy/x", "@docs/y",
 * "file:test/z". NULL: no part. */
static const char *path_in(const char *word)
{
    for (const char *p = word; p && *p;
         p = strpbrk(p, "=@:,") ? strpbrk(p, "=@:,") + 1 : NULL)
        for (size_t i = 0; i < ARRAY_LEN(folders); i++)
            if (starts(starts(p, "./") ? p + 2 : p, folders[i]))
                return starts(p, "./") ? p + 2 : p;
    return NULL;
}

static void check_path(const struct check *c, const char *word)
{
    const char *path = path_in(word);
    if (!path || strpbrk(path, "$<{"))
        return;
    cleanup_free char *one = xmemdup0(path, strcspn(path, ",:#"));
    cleanup_free char *source = xasprintf("%s.c", one); /* a suite is named without .c */
    if (!exists(one) && !exists(source))
        FAULT(c, "there is no %s", one);
}

/* -- programs -- */

/* Is `name` named in one of the `seen_in` files? */
static void check_seen(const struct check *c, const char *name)
{
    cleanup_free char *list = c->seen_in ? xstrdup(c->seen_in) : NULL;
    char *rest = list;
    for (const char *path; (path = strsep(&rest, ","));) {
        cleanup_free char *text = text_of(path);
        if (has_word(text, name))
            return;
    }
    if (list)
        FAULT(c, "%s is not in %s", name, c->seen_in);
}

/* Does the program's --help, or the script's text, have this option? */
static void check_options(const struct check *c, const char *name, const char *known,
                          char *const *args, size_t n)
{
    for (size_t i = 0; i < n && strcmp(args[i], "--") != 0; i++) {
        const char *a = args[i];
        size_t length = strcspn(a, "=[");
        char letter[] = {'-', a[0] ? a[1] : '\0', ',', '\0'};
        cleanup_free char *option = xmemdup0(a, length);
        if (starts(a, "--") ? !has_word(known, option)
                            : a[0] == '-' && a[1] && !strstr(known, letter))
            FAULT(c, "%s has no option %s", name, option);
    }
}

char *commands_help(const char *name)
{
    struct program p;
    cleanup_free char *page = xasprintf("man/%s.8.in", name);
    cleanup_free char *user_page = xasprintf("man/%s.1.in", name);
    if (strchr(name, '/') || (!exists(page) && !exists(user_page)))
        return NULL;
    cleanup_free char *path =
        strcmp(name, INSTALL) == 0 ? xstrdup("scripts/install") : program_path(name);
    program_start(&p, lib_dir, ARGV(path, "--help"));
    ck_assert_msg(program_wait(&p) == 0, "%s --help: %s", name, program_output(&p));
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    return said;
}

/* "build/NAME": a target of the Makefile. */
static void check_built(const struct check *c, const char *path)
{
    cleanup_free char *makefile = text_of("Makefile");
    const char *name = path + strlen("build/");
    cleanup_free char *source = xasprintf("%s.c", name);
    cleanup_free char *target = xasprintf("$(B)/%s", name);
    if (starts(name, "fuzzer/") || strpbrk(name, "$<*"))
        return;
    if (!exists(source) && !strstr(makefile, target) && !has_word(makefile, name))
        FAULT(c, "unknown build target %s", path);
}

static void check_make(const struct check *c, char *const *args, size_t n)
{
    cleanup_free char *makefile = text_of("Makefile");
    for (size_t i = 0; i < n; i++) {
        cleanup_free char *name = xmemdup0(args[i], strcspn(args[i], "="));
        cleanup_free char *rule = xasprintf("\n%s:", name);
        bool variable = strchr(args[i], '=');
        if (args[i][0] == '-')
            continue;
        if (starts(name, "build/"))
            check_built(c, name);
        else if (variable ? !has_word(makefile, name) : !strstr(makefile, rule))
            FAULT(c, "the Makefile has no %s %s", variable ? "variable" : "target", name);
        if (!variable)
            check_seen(c, starts(name, "build/") ? name + strlen("build/") : name);
    }
}

/* The words of one command. */
static void check_command(const struct check *c, char **words, size_t n)
{
    if (n > 2 && strcmp(words[0], "kubectl") == 0 && strcmp(words[1], "inspect") == 0) {
        static char plugin[] = "kubectl-inspect-gpushare";
        char *rest[SHWORDS_MAX];
        memcpy(rest, words + 2, (n - 2) * sizeof *words);
        rest[0] = plugin;
        if (strcmp(words[2], "gpushare") != 0)
            FAULT(c, "unknown: kubectl inspect %s", words[2]);
        check_command(c, rest, n - 2);
        return;
    }
    const char *name = words[0];
    bool built = starts(name, "build/") && !strchr(name + 6, '/');
    cleanup_free char *help = commands_help(built ? name + 6 : name);
    if (strcmp(name, "make") == 0) {
        check_make(c, words + 1, n - 1);
    } else if (help) {
        check_options(c, name, help, words + 1, n - 1);
        check_seen(c, built                        ? name + 6
                      : strcmp(name, INSTALL) == 0 ? "scripts/install"
                                                   : name);
    } else if (starts(name, "scripts/") || starts(name, "./scripts/")) {
        cleanup_free char *script = text_of(name);
        check_options(c, name, script, words + 1, n - 1);
        check_seen(c, strstr(name, "scripts/"));
    } else if (starts(name, "build/")) {
        check_built(c, name);
        check_seen(c, name + strlen("build/"));
    } else if (!path_in(name) && name[0] != '-' && name[0] != '/' && name[0] != '$') {
        size_t i = 0;
        while (i < ARRAY_LEN(foreign) && strcmp(name, foreign[i]) != 0)
            i++;
        if (i == ARRAY_LEN(foreign))
            FAULT(c, "unknown program \"%s\"", name);
    }
    for (size_t i = 0; i < n; i++)
        check_path(c, words[i]);
}

void commands_check(struct buf *faults, const struct doc *d, unsigned line,
                    const char *text, const char *seen_in)
{
    struct check c = {faults, d, line, seen_in};
    struct shwords s;
    struct shcommand command;
    shwords_init(&s, text);
    while (shwords_next(&s, &command)) {
        c.line = line + 1 + command.line;
        check_command(&c, command.words, command.n);
        shcommand_fini(&command);
    }
    shwords_fini(&s);
}

/* Is it a command of this project? */
static bool is_ours(const char *text)
{
    static const char *const begin[] = {"make ",           "scripts/",   "build/",
                                        "gpushare-",       "scv-agent ", "kube-sim ",
                                        "kubectl inspect "};
    for (size_t i = 0; i < ARRAY_LEN(begin); i++)
        if (starts(text, begin[i]) && strchr(text, ' '))
            return true;
    return false;
}

char *commands_options(void)
{
    static const char *const places[] = {"man/*.in", "scripts/*", "test/walk/*.c",
                                         "test/simulator/*.c", "test/bench/*.c"};
    struct buf all = {0};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        glob_t files;
        ck_assert_int_eq(glob(places[i], 0, NULL, &files), 0);
        for (size_t k = 0; k < files.gl_pathc; k++) {
            const char *path = files.gl_pathv[k], *name = strrchr(path, '/') + 1;
            cleanup_free char *program = xmemdup0(name, strcspn(name, "."));
            cleanup_free char *text = i ? text_of(path) : commands_help(program);
            buf_adds(&all, text);
        }
        globfree(&files);
    }
    return buf_take(&all);
}

static void check_option(const struct check *c, const char *text, const char *options)
{
    cleanup_free char *name = xmemdup0(text, strcspn(text, "=[ /|"));
    bool known = has_word(options, name);
    for (size_t i = 0; i < ARRAY_LEN(foreign_options); i++)
        known |= strcmp(name, foreign_options[i]) == 0;
    if (!known)
        FAULT(c, "unknown option %s", name);
}

void commands_check_code(struct buf *faults, const struct doc *d,
                         const struct doc_word *code, const char *options)
{
    struct check c = {faults, d, code->line, NULL};
    struct shwords s;
    struct shcommand command;
    if (starts(code->text, "--") && code->text[2])
        check_option(&c, code->text, options);
    if (!strchr(code->text, ' ')) {
        check_path(&c, code->text);
        return;
    }
    if (!is_ours(code->text))
        return;
    shwords_init(&s, code->text);
    if (shwords_next(&s, &command))
        check_command(&c, command.words, command.n);
    shcommand_fini(&command);
    shwords_fini(&s);
}
