/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct suffix {
    const char *name;
    int64_t factor;
};

static int parse_scaled(struct span text, const struct suffix *suffixes,
                        const char *forms, int64_t *out, struct err *err)
{
    size_t digits = 0;
    while (digits < text.n && text.p[digits] >= '0' && text.p[digits] <= '9')
        digits++;
    struct span unit = {text.p + digits, text.n - digits};
    int64_t v;
    for (const struct suffix *s = suffixes; s->name; s++) {
        if (span_eq(unit, span_of(s->name)) &&
            span_i64((struct span){text.p, digits}, &v) &&
            !__builtin_mul_overflow(v, s->factor, out))
            return 0;
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is not of the form %s", SPAN_ARG(text),
                   forms);
}

int opt_parse_duration(struct span text, int64_t *ms, struct err *err)
{
    static const struct suffix suffixes[] = {
        {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}, {NULL, 0}};
    return parse_scaled(text, suffixes, "500ms, 10s, 2m or 1h", ms, err);
}

static int opt_parse_size(struct span text, int64_t *bytes, struct err *err)
{
    static const struct suffix suffixes[] = {
        {"", 1}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {NULL, 0}};
    return parse_scaled(text, suffixes, "4096, 64Ki, 64Mi or 1Gi", bytes, err);
}

static int parse_bool(struct span text, bool *out, struct err *err)
{
    static const char *const words[][2] = {
        {"true", "false"}, {"on", "off"}, {"yes", "no"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        for (int no = 0; no < 2; no++) {
            if (span_eq_nocase(text, span_of(words[i][no]))) {
                *out = !no;
                return 0;
            }
        }
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is neither true nor false",
                   SPAN_ARG(text));
}

static int parse_choice(struct span text, const char *choices, int *out, struct err *err)
{
    struct span rest = span_of(choices);
    for (int i = 0; rest.n; i++) {
        if (span_eq_nocase(text, span_cut(&rest, '|'))) {
            *out = i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is not one of %s", SPAN_ARG(text),
                   choices);
}

static int parse_number(const struct opt *o, struct span text, int64_t *out,
                        struct err *err)
{
    int64_t v = 0, min = o->min, max = o->max ? o->max : INT64_MAX;
    int rc = 0;
    if (o->type == OPT_DURATION)
        rc = opt_parse_duration(text, &v, err);
    else if (o->type == OPT_SIZE)
        rc = opt_parse_size(text, &v, err);
    else if (!span_i64(text, &v))
        rc = err_set(err, ERR_INVALID, "\"%.*s\" is not an integer", SPAN_ARG(text));
    if (rc)
        return -1;
    if (v < min || v > max)
        return err_set(err, ERR_INVALID, "\"%.*s\" is not within %lld..%lld%s",
                       SPAN_ARG(text), (long long)min, (long long)max,
                       o->type == OPT_DURATION ? " ms" : "");
    *out = v;
    return 0;
}

static bool is_shared(const struct opt_program *p, const struct opt *o)
{
    const struct opt *s = p->shared;
    while (s && s->name && s != o)
        s++;
    return s && s == o;
}

const struct opt *opt_next(const struct opt_program *p, const struct opt *o)
{
    bool shared = o && is_shared(p, o);
    o = o ? o + 1 : p->table;
    if (!o->name && !shared && p->shared)
        o = p->shared;
    return o->name ? o : NULL;
}

static const struct opt *find(const struct opt_program *p, struct span name)
{
    const struct opt *o = NULL;
    while ((o = opt_next(p, o)) && !span_eq(name, span_of(o->name)))
        ;
    return o;
}

void *opt_field(const struct opt_program *p, const struct opt *o, void *config)
{
    return (char *)config + o->offset + (is_shared(p, o) ? p->shared_at : 0);
}

static void list_add(struct opt_list *list, struct span text)
{
    MEM_GROW(list->items, list->cap, list->n + 1);
    list->items[list->n++] = xmemdup0(text.p, text.n);
}

static int set_value(const struct opt_program *p, const struct opt *o, void *config,
                     struct span text, struct err *err)
{
    void *field = opt_field(p, o, config);
    switch (o->type) {
    case OPT_STRING: {
        char **s = field;
        free(*s);
        *s = xmemdup0(text.p, text.n);
        return 0;
    }
    case OPT_LIST:
        list_add(field, text);
        return 0;
    case OPT_BOOL:
        return parse_bool(text, field, err);
    case OPT_SWITCH: {
        bool on = false;
        if (parse_bool(text, &on, err))
            return -1;
        *(int *)field = on ? OPT_ON : OPT_OFF;
        return 0;
    }
    case OPT_CHOICE:
        return parse_choice(text, o->arg, field, err);
    case OPT_CUSTOM:
        return o->parse(text, field, err);
    default:
        return parse_number(o, text, field, err);
    }
}

static int load_defaults(const struct opt_program *p, void *config, struct err *err)
{
    for (const struct opt *o = NULL; (o = opt_next(p, o));)
        if (o->init && set_value(p, o, config, span_of(o->init), err))
            return err_wrap(err, "default of --%s", o->name);
    return 0;
}

static const char *env_get(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

static int load_env(const struct opt_program *p, void *config, char *const *env,
                    struct err *err)
{
    for (const struct opt *o = NULL; (o = opt_next(p, o));) {
        const char *value = o->env ? env_get(env, o->env) : NULL;
        if (value && *value && set_value(p, o, config, span_of(value), err))
            return err_wrap(err, "environment variable %s", o->env);
    }
    return 0;
}

struct file_load {
    const struct opt_program *program;
    void *config;
    const char *path;
    const struct opt
        *last; /* of the previous pair: the items of a list are consecutive */
};

static int file_pair(void *ctx, const char *key, const char *value, unsigned line,
                     struct err *err)
{
    struct file_load *load = ctx;
    const struct opt *o = find(load->program, span_of(key));
    if (!o)
        return err_set(err, ERR_INVALID, "%s:%u: unknown option \"%s\"", load->path, line,
                       key);
    if (o == load->last && o->type != OPT_LIST)
        return err_set(err, ERR_INVALID, "%s:%u: %s: expected one value, got a list",
                       load->path, line, key);
    load->last = o;
    if (set_value(load->program, o, load->config, span_of(value), err))
        return err_wrap(err, "%s:%u: %s", load->path, line, key);
    return 0;
}

/* One parsed option of the command line. */
struct flag {
    struct span text; /* as given, without its value: "--port" */
    struct span value;
    bool has_value;
    const struct opt *o; /* NULL: --config */
};

/* Position of an iteration over the arguments. */
struct args {
    const struct opt_program *program;
    int argc, i;
    char *const *argv;
    struct span letters; /* unread short options of "-dw" */
    bool only_rest;      /* after "--" */
};

enum arg { ARG_END, ARG_FLAG, ARG_REST, ARG_BAD = -1 };

static const struct opt *find_letter(const struct opt_program *p, char letter)
{
    const struct opt *o = NULL;
    while ((o = opt_next(p, o)) && o->letter != letter)
        ;
    return o;
}

static bool has_letters(const struct opt_program *p)
{
    const struct opt *o = NULL;
    while ((o = opt_next(p, o)) && !o->letter)
        ;
    return o != NULL;
}

/* Takes the next argument as the value if the option needs one and has none yet. */
static int take_value(struct args *a, struct flag *f, struct err *err)
{
    bool wants = !f->o || !opt_is_flag(f->o);
    if (!f->has_value && wants && a->i < a->argc) {
        f->value = span_of(a->argv[a->i++]);
        f->has_value = true;
    }
    if (!f->has_value && wants)
        return err_set(err, ERR_INVALID, "%.*s needs a value", SPAN_ARG(f->text));
    return 0;
}

static int read_letter(struct args *a, struct flag *f, struct err *err)
{
    f->text = (struct span){a->letters.p, 1};
    f->o = find_letter(a->program, a->letters.p[0]);
    if (!f->o)
        return err_set(err, ERR_INVALID, "unknown option -%c (try --help)",
                       a->letters.p[0]);
    a->letters.p++;
    a->letters.n--;
    bool joined = a->letters.n && a->letters.p[0] == '=';
    if (a->letters.n && (joined || !opt_is_flag(f->o))) {
        f->value = (struct span){a->letters.p + joined, a->letters.n - joined};
        f->has_value = true;
        a->letters.n = 0;
    }
    if (take_value(a, f, err))
        return err_set(err, ERR_INVALID, "-%c needs a value", f->o->letter);
    return 0;
}

static int read_name(struct args *a, struct span rest, struct flag *f, struct err *err)
{
    rest.p += 2;
    rest.n -= 2;
    bool joined = memchr(rest.p, '=', rest.n) != NULL;
    struct span name = span_cut(&rest, '=');
    f->text = (struct span){name.p - 2, name.n + 2};
    f->o = find(a->program, name);
    if (joined) {
        f->value = rest;
        f->has_value = true;
    }
    if (!f->o && !span_eq(name, SPAN("config")))
        return err_set(err, ERR_INVALID, "unknown option --%.*s (try --help)",
                       SPAN_ARG(name));
    return take_value(a, f, err);
}

/* Reads the next option, or the next operand into f->value. */
static enum arg next_arg(struct args *a, struct flag *f, struct err *err)
{
    *f = (struct flag){0};
    if (a->letters.n)
        return read_letter(a, f, err) ? ARG_BAD : ARG_FLAG;
    if (a->i >= a->argc)
        return ARG_END;
    struct span text = span_of(a->argv[a->i++]);
    if (!a->only_rest && a->program->rest && span_eq(text, SPAN("--"))) {
        a->only_rest = true;
        return next_arg(a, f, err);
    }
    if (!a->only_rest && span_starts(text, SPAN("--")) && text.n > 2)
        return read_name(a, text, f, err) ? ARG_BAD : ARG_FLAG;
    if (!a->only_rest && has_letters(a->program) && text.n > 1 && text.p[0] == '-' &&
        text.p[1] != '-') {
        a->letters = (struct span){text.p + 1, text.n - 1};
        return next_arg(a, f, err);
    }
    f->value = text;
    if (a->program->rest)
        return ARG_REST;
    err_set(err, ERR_INVALID, "unexpected argument \"%.*s\" (options are --name=value)",
            SPAN_ARG(text));
    return ARG_BAD;
}

static struct args args_of(const struct opt_program *p, int argc, char *const *argv)
{
    return (struct args){.program = p, .argc = argc, .i = 1, .argv = argv};
}

static int load_flags(const struct opt_program *p, void *config, int argc,
                      char *const *argv, struct err *err)
{
    struct args args = args_of(p, argc, argv);
    struct flag f;
    enum arg arg;
    while ((arg = next_arg(&args, &f, err)) != ARG_END) {
        if (arg == ARG_BAD)
            return -1;
        if (arg == ARG_REST)
            list_add((struct opt_list *)(void *)((char *)config + p->rest_at), f.value);
        else if (f.o &&
                 set_value(p, f.o, config, f.has_value ? f.value : SPAN("true"), err))
            return err_wrap(err, "--%s", f.o->name);
    }
    return 0;
}

static bool is_arg(const struct args *a, const char *text)
{
    return !a->letters.n && !a->only_rest && a->i < a->argc &&
           !strcmp(a->argv[a->i], text);
}

/* Finds --config, --help and --version among the flags. */
static enum opt_result look_ahead(const struct opt_program *program, int argc,
                                  char *const *argv, char **config_path, FILE *out,
                                  struct err *err)
{
    struct args args = args_of(program, argc, argv);
    struct flag f;
    for (;;) {
        if (is_arg(&args, "--help") || (program->rest && is_arg(&args, "-h"))) {
            opt_help(program, out);
            return OPT_DONE;
        }
        if (is_arg(&args, "--version")) {
            fprintf(out, "%s %s\n", program->name, program->version);
            return OPT_DONE;
        }
        enum arg arg = next_arg(&args, &f, err);
        if (arg == ARG_END)
            return OPT_RUN;
        if (arg == ARG_BAD)
            return OPT_FAILED;
        if (arg == ARG_FLAG && !f.o) {
            free(*config_path);
            *config_path = xmemdup0(f.value.p, f.value.n);
        }
    }
}

enum opt_result opt_load(const struct opt_program *program, void *config, int argc,
                         char *const *argv, char *const *env, opt_file_fn read_file,
                         FILE *out, struct err *err)
{
    cleanup_free char *path = NULL;
    enum opt_result r = look_ahead(program, argc, argv, &path, out, err);
    if (r != OPT_RUN)
        return r;
    if (load_defaults(program, config, err))
        return OPT_FAILED;
    if (path) {
        struct file_load load = {program, config, path, NULL};
        if (read_file(path, file_pair, &load, err))
            return OPT_FAILED;
    }
    if (load_env(program, config, env, err))
        return OPT_FAILED;
    if (load_flags(program, config, argc, argv, err))
        return OPT_FAILED;
    return OPT_RUN;
}

static void list_free(struct opt_list *list)
{
    while (list->n)
        free(list->items[--list->n]);
    free(list->items);
    *list = (struct opt_list){0};
}

void opt_free(const struct opt_program *program, void *config)
{
    for (const struct opt *o = NULL; (o = opt_next(program, o));) {
        if (o->type == OPT_STRING) {
            char **s = opt_field(program, o, config);
            free(*s);
            *s = NULL;
        } else if (o->type == OPT_LIST) {
            list_free(opt_field(program, o, config));
        }
    }
    if (program->rest)
        list_free((struct opt_list *)(void *)((char *)config + program->rest_at));
}

static void help_text(const char *text, FILE *out)
{
    struct span rest = span_of(text);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        fprintf(out, "        %.*s\n", SPAN_ARG(line));
    }
}

void opt_help(const struct opt_program *program, FILE *out)
{
    fprintf(out, "%s: %s\n\nUsage: %s [OPTION]...%s%s\n\n", program->name,
            program->summary, program->name, program->rest ? " " : "",
            program->rest ? program->rest : "");
    for (const struct opt *o = NULL; (o = opt_next(program, o));) {
        if (o->letter)
            fprintf(out, "  -%c,", o->letter);
        fprintf(out, "%s--%s%s%s", o->letter ? " " : "  ", o->name,
                opt_is_flag(o) ? "" : " ", opt_is_flag(o) ? "[=on|off]" : o->arg);
        if (o->env)
            fprintf(out, "  (environment: %s)", o->env);
        if (o->init || o->type == OPT_BOOL)
            fprintf(out, "  [default: %s]", o->init ? o->init : "off");
        fputc('\n', out);
        help_text(o->help, out);
    }
    fputs("  --config FILE\n"
          "        YAML file that sets options, one `name: value` per line.\n"
          "  --help\n        Print the options and exit.\n"
          "  --version\n        Print the program's name and version and exit.\n"
          "\nFlags override the environment; the environment overrides the file.\n",
          out);
}
