/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Parses a duration or a size, which opt.h describes. */
static int parse_scaled(enum opt_type type, struct span text, int64_t *out,
                        struct err *err)
{
    static const struct {
        enum opt_type type;
        const char *name;
        int64_t factor;
    } units[] = {
        {OPT_DURATION, "ms", 1},
        {OPT_DURATION, "s", 1000},
        {OPT_DURATION, "m", 60 * 1000},
        {OPT_DURATION, "h", 3600 * 1000},
        {OPT_SIZE, "", 1},
        {OPT_SIZE, "Ki", 1 << 10},
        {OPT_SIZE, "Mi", 1 << 20},
        {OPT_SIZE, "Gi", 1 << 30},
    };
    size_t digits = 0;
    while (digits < text.n && text.p[digits] >= '0' && text.p[digits] <= '9')
        digits++;
    struct span unit = {text.p + digits, text.n - digits};
    int64_t v;
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].type == type && span_eq(unit, span_of(units[i].name)) &&
            span_i64((struct span){text.p, digits}, &v) &&
            !__builtin_mul_overflow(v, units[i].factor, out))
            return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is not of the form %s", SPAN_ARG(text),
                   type == OPT_SIZE ? "4096, 64Ki, 64Mi or 1Gi" : "500ms, 10s, 2m or 1h");
}

int opt_parse_duration(struct span text, int64_t *ms, struct err *err)
{
    return parse_scaled(OPT_DURATION, text, ms, err);
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

int opt_parse_bool(struct span text, bool *out, struct err *err)
{
    int word;
    if (parse_choice(text, "true|false|on|off|yes|no", &word, NULL))
        return err_set(err, ERR_INVALID, "\"%.*s\" is neither true nor false",
                       SPAN_ARG(text));
    *out = word % 2 == 0;
    return 0;
}

const struct opt *opt_next(const struct opt_program *p, const struct opt *o)
{
    do {
        o = o ? o + 1 : p->table;
        if (!o->name && o->more)
            o = o->more;
    } while (o->names && !(o->names & p->name_bit));
    return o->name ? o : NULL;
}

static const struct opt *find(const struct opt_program *p, struct span name)
{
    const struct opt *o = NULL;
    while ((o = opt_next(p, o)) && !span_eq(name, span_of(o->name)))
        ;
    return o;
}

static void list_add(struct opt_list *list, struct span text)
{
    MEM_GROW(list->items, list->cap, list->n + 1);
    list->items[list->n++] = xmemdup0(text.p, text.n);
}

static int set_value(const struct opt *o, void *config, struct span text, struct err *err)
{
    void *field = (char *)config + o->offset;
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
        return opt_parse_bool(text, field, err);
    case OPT_SWITCH: {
        bool on = false;
        if (opt_parse_bool(text, &on, err))
            return -1;
        *(int *)field = on ? OPT_ON : OPT_OFF;
        return 0;
    }
    case OPT_CHOICE:
        return parse_choice(text, o->arg, field, err);
    case OPT_CUSTOM:
        return o->parse(text, field, err);
    default:
        break;
    }
    int64_t v = 0, min = o->min, max = o->max ? o->max : INT64_MAX;
    if (o->type != OPT_INT) {
        if (parse_scaled(o->type, text, &v, err))
            return -1;
    } else if (!span_i64(text, &v)) {
        return err_set(err, ERR_INVALID, "\"%.*s\" is not an integer", SPAN_ARG(text));
    }
    if (v < min || v > max)
        return err_set(err, ERR_INVALID, "\"%.*s\" is not within %lld..%lld%s",
                       SPAN_ARG(text), (long long)min, (long long)max,
                       o->type == OPT_DURATION ? " ms"
                       : o->type == OPT_SIZE   ? " bytes (8 GiB are 8Gi)"
                                               : "");
    *(int64_t *)field = v;
    return 0;
}

static int load_defaults(const struct opt_program *p, void *config, struct err *err)
{
    for (const struct opt *o = NULL; (o = opt_next(p, o));)
        if (o->init && set_value(o, config, span_of(o->init), err))
            return err_wrap(err, "default of --%s", o->name);
    return 0;
}

static int load_env(const struct opt_program *p, void *config, char *const *env,
                    struct err *err)
{
    for (const struct opt *o = NULL; (o = opt_next(p, o));) {
        const size_t n = o->env ? strlen(o->env) : 0;
        char *const *at = env;
        while (n && at && *at && (strncmp(*at, o->env, n) || (*at)[n] != '='))
            at++;
        const char *value = n && at && *at ? *at + n + 1 : "";
        if (*value && set_value(o, config, span_of(value), err))
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
    if (set_value(o, load->config, span_of(value), err))
        return err_wrap(err, "%s:%u: %s", load->path, line, key);
    return 0;
}

/* -- the command line -- */

/* The options that every program has. */
enum { CONFIG, HELP, VERSION };
static const struct opt builtin[] = {
    [CONFIG] = {.name = "config", .type = OPT_STRING},
    [HELP] = {.name = "help", .letter = 'h', .type = OPT_BOOL},
    [VERSION] = {.name = "version", .type = OPT_BOOL},
};

/* An argument: an option and its value, or an operand. */
struct arg {
    const struct opt *o; /* NULL: an operand */
    struct span value;   /* NUL-terminated */
};

/* Whether the option can be given without a value. */
static bool is_flag(const struct opt *o)
{
    return o->type == OPT_BOOL || o->type == OPT_SWITCH;
}

/* Reads the arguments, up to --help or --version. Returns their number or -1. */
static int read_args(const struct opt_program *p, int argc, char *const *argv,
                     struct arg *args, struct err *err)
{
    bool only_rest = false; /* after "--" */
    int n = 0;
    for (int i = 1; i < argc; i++) {
        struct span text = span_of(argv[i]), name = text, value = {0};
        int dashes = span_starts(text, SPAN("--")) ? 2 : 1;
        if (!only_rest && p->rest && span_eq(text, SPAN("--"))) {
            only_rest = true;
            continue;
        }
        if (only_rest || text.p[0] != '-' || text.n <= (size_t)dashes) {
            if (!p->rest)
                return err_set(err, ERR_INVALID,
                               "unexpected argument \"%s\" (options are --name=value)",
                               argv[i]);
            args[n++] = (struct arg){NULL, text};
            continue;
        }
        name.p += dashes;
        name.n -= (size_t)dashes;
        if (dashes == 2) {
            value = name;
            name = span_cut(&value, '=');
        } else if (name.n > 1) {
            value = span_of(name.p + 1 + (name.p[1] == '='));
            name.n = 1;
        }
        /* The option of the letter, or of the name if there is none. */
        char letter = dashes == 1 ? name.p[0] : 0;
        const struct opt *o = letter ? NULL : find(p, name);
        if (letter)
            while ((o = opt_next(p, o)) && o->letter != letter)
                ;
        for (size_t k = 0; !o && k < ARRAY_LEN(builtin); k++)
            if (letter ? builtin[k].letter == letter
                       : span_eq(name, span_of(builtin[k].name)))
                o = &builtin[k];
        if (!o)
            return err_set(err, ERR_INVALID, "unknown option %.*s%.*s (try --help)",
                           dashes, "--", SPAN_ARG(name));
        if (!value.p && is_flag(o))
            value = SPAN("true");
        else if (!value.p && i + 1 < argc)
            value = span_of(argv[++i]);
        if (!value.p)
            return err_set(err, ERR_INVALID, "%.*s%.*s needs a value", dashes, "--",
                           SPAN_ARG(name));
        args[n++] = (struct arg){o, value};
        if (o == &builtin[HELP] || o == &builtin[VERSION])
            break;
    }
    return n;
}

static void print_help(const struct opt_program *program, FILE *out);

enum opt_result opt_load(const struct opt_program *program, void *config, int argc,
                         char *const *argv, char *const *env, opt_file_fn read_file,
                         FILE *out, struct err *err)
{
    cleanup_free struct arg *args = xcalloc((size_t)argc, sizeof *args);
    struct file_load load = {.program = program, .config = config};
    int n = read_args(program, argc, argv, args, err);
    if (n < 0)
        return OPT_FAILED;
    for (int i = 0; i < n; i++) {
        if (args[i].o == &builtin[HELP]) {
            print_help(program, out);
            return OPT_DONE;
        }
        if (args[i].o == &builtin[VERSION]) {
            fprintf(out, "%s %s\n", program->name, program->version);
            return OPT_DONE;
        }
        if (args[i].o == &builtin[CONFIG])
            load.path = args[i].value.p;
    }
    if (load.path && !read_file) {
        err_set(err, ERR_INVALID, "%s: option files are not supported", load.path);
        return OPT_FAILED;
    }
    if (load_defaults(program, config, err) ||
        (load.path && read_file(load.path, file_pair, &load, err)) ||
        load_env(program, config, env, err))
        return OPT_FAILED;
    for (int i = 0; i < n; i++) {
        const struct opt *o = args[i].o;
        if (!o)
            list_add((void *)((char *)config + program->rest_at), args[i].value);
        else if (o != &builtin[CONFIG] && set_value(o, config, args[i].value, err)) {
            err_wrap(err, "--%s", o->name);
            return OPT_FAILED;
        }
    }
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
        void *field = (char *)config + o->offset;
        if (o->type == OPT_STRING) {
            mem_cleanup_free(field);
        } else if (o->type == OPT_LIST) {
            list_free(field);
        }
    }
    if (program->rest)
        list_free((void *)((char *)config + program->rest_at));
}

static void print_help(const struct opt_program *program, FILE *out)
{
    fprintf(out, "%s: %s\n\nUsage: %s [OPTION]...%s%s\n\n", program->name,
            program->summary, program->name, program->rest ? " " : "",
            program->rest ? program->rest : "");
    for (const struct opt *o = NULL; (o = opt_next(program, o));) {
        if (o->letter)
            fprintf(out, "  -%c,", o->letter);
        fprintf(out, "%s--%s%s%s", o->letter ? " " : "  ", o->name, is_flag(o) ? "" : " ",
                is_flag(o) ? "[=on|off]" : o->arg);
        if (o->env)
            fprintf(out, "  (environment: %s)", o->env);
        if (o->init || o->type == OPT_BOOL)
            fprintf(out, "  [default: %s]", o->init ? o->init : "off");
        fputc('\n', out);
        struct span rest = span_of(o->help);
        while (rest.n) {
            struct span line = span_cut(&rest, '\n');
            fprintf(out, "        %.*s\n", SPAN_ARG(line));
        }
    }
    fputs("  --config FILE\n"
          "        YAML file that sets options, one `name: value` per line.\n"
          "  --help\n        Print the options and exit.\n"
          "  --version\n        Print the program's name and version and exit.\n"
          "\nFlags override the environment; the environment overrides the file.\n",
          out);
}
