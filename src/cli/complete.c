/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/complete.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/yaml.h"

#define NAME "kubectl-inspect-gpushare"

/* Each script runs `__complete` and drops its last line, kubectl's directive. bash splits
 * words at colons, which no completion of this program contains. */
static const struct script {
    const char *shell, *text;
} scripts[] = {
    {"bash", "# bash completion for " NAME ": source <(" NAME " completion bash)\n"
             "_kubectl_inspect_gpushare() {\n"
             "    local IFS=$'\\n'\n"
             "    COMPREPLY=($(" NAME
             " __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null |\n"
             "        grep -v '^:'))\n"
             "}\n"
             "complete -F _kubectl_inspect_gpushare " NAME "\n"},
    {"zsh",
     "#compdef " NAME "\n"
     "# zsh completion for " NAME ": source <(" NAME " completion zsh)\n"
     "_kubectl_inspect_gpushare() {\n"
     "    local -a found\n"
     "    found=(\"${(@f)$(" NAME " __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null |\n"
     "        grep -v '^:')}\")\n"
     "    compadd -- \"${found[@]}\"\n"
     "}\n"
     "compdef _kubectl_inspect_gpushare " NAME "\n"},
    {"fish", "# fish completion for " NAME ": " NAME " completion fish | source\n"
             "function __kubectl_inspect_gpushare\n"
             "    set -l words (commandline -opc) (commandline -ct)\n"
             "    " NAME " __complete $words[2..-1] 2>/dev/null | string match -v ':*'\n"
             "end\n"
             "complete -c " NAME " -f -a '(__kubectl_inspect_gpushare)'\n"},
};

int complete_script(const char *shell, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        if (strcmp(shell, scripts[i].shell) != 0)
            continue;
        buf_adds(out, scripts[i].text);
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "unknown shell \"%s\"; expected one of bash, zsh, fish", shell);
}

/* Copies the lines of `from` that begin with the prefix. */
static void add_matching(struct buf *out, struct span from, struct span prefix)
{
    while (from.n) {
        struct span line = span_cut(&from, '\n');
        if (!line.n || !span_starts(line, prefix))
            continue;
        buf_add_span(out, line);
        buf_addc(out, '\n');
    }
}

static void add_options(struct buf *all)
{
    for (const struct opt *o = NULL; (o = opt_next(&cli_program, o));)
        buf_printf(all, "--%s\n", o->name);
    buf_adds(all, "--config\n--help\n--version\n");
}

/* The option that the word names, if it needs a value; else NULL. */
static const struct opt *option_with_value(const char *word)
{
    const struct opt *o = NULL;
    while ((o = opt_next(&cli_program, o))) {
        bool letter = o->letter && word[0] == '-' && word[1] == o->letter && !word[2];
        bool name = !strncmp(word, "--", 2) && !strcmp(word + 2, o->name);
        if ((letter || name) && o->type != OPT_BOOL)
            return o;
    }
    return NULL;
}

/* The words of "GiB|MiB|<n>MiB", without placeholders in angle brackets. */
static void add_values(struct buf *all, const char *arg)
{
    struct span rest = span_of(arg);
    if (!strchr(arg, '|'))
        return;
    while (rest.n) {
        struct span word = span_cut(&rest, '|');
        if (memchr(word.p, '<', word.n))
            continue;
        buf_add_span(all, word);
        buf_addc(all, '\n');
    }
}

/* Commands, or names of the cluster, that can follow the arguments so far. */
static void add_arguments(struct buf *all, const struct cli_config *c, struct span prefix,
                          complete_names_fn names, void *ctx)
{
    const char *first = c->args.n ? c->args.items[0] : "";
    bool of_pod = !strcmp(first, "explain") || !strcmp(first, "defrag");
    if (c->args.n == 0) {
        buf_adds(all, "explain\ndefrag\nusage\ncompletion\n");
        names(ctx, c, false, prefix, all);
    } else if (c->args.n == 1 && of_pod) {
        buf_adds(all, "pod\n");
    } else if (c->args.n == 2 && of_pod) {
        names(ctx, c, true, prefix, all);
    } else if (c->args.n == 1 && !strcmp(first, "completion")) {
        buf_adds(all, "bash\nzsh\nfish\n");
    }
}

void complete_words(int argc, char *const *argv, char *const *env,
                    complete_names_fn names, void *ctx, struct buf *out)
{
    cleanup_buf struct buf all = {0};
    const char *last = argc > 1 ? argv[argc - 1] : "";
    const struct opt *previous = argc > 2 ? option_with_value(argv[argc - 2]) : NULL;
    struct cli_config config = {0};
    FILE *null = fopen("/dev/null", "w");
    if (previous) {
        add_values(&all, previous->arg);
    } else if (*last == '-') {
        add_options(&all);
    } else if (null && opt_load(&cli_program, &config, argc > 1 ? argc - 1 : 1, argv, env,
                                yaml_read_options, null, NULL) == OPT_RUN) {
        add_arguments(&all, &config, span_of(last), names, ctx);
    }
    if (null)
        fclose(null);
    add_matching(out, buf_span(&all), span_of(last));
    buf_adds(out, ":4\n");
    opt_free(&cli_program, &config);
}
