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

int opt_parse_size(struct span text, int64_t *bytes, struct err *err)
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
        rc = err_set(err, ERR_INVALID, "\"%.*s\" is not a whole number", SPAN_ARG(text));
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
    case OPT_LIST: {
        struct opt_list *list = field;
        MEM_GROW(list->items, list->cap, list->n + 1);
        list->items[list->n++] = xmemdup0(text.p, text.n);
        return 0;
    }
    case OPT_BOOL:
        return parse_bool(text, field, err);
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
    const struct opt *last; /* a list comes as one pair after the other */
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
        return err_set(err, ERR_INVALID, "%s:%u: %s: one value is wanted, not a list",
                       load->path, line, key);
    load->last = o;
    if (set_value(load->program, o, load->config, span_of(value), err))
        return err_wrap(err, "%s:%u: %s", load->path, line, key);
    return 0;
}

/* One argument of the command line, taken apart. */
struct flag {
    struct span name, value;
    bool has_value;
    int used; /* 1, or 2 when the value was an argument of its own */
};

static int flag_read(const struct opt_program *p, int argc, char *const *argv, int i,
                     struct flag *f, const struct opt **o, struct err *err)
{
    struct span rest = span_of(argv[i]);
    if (!span_starts(rest, SPAN("--")) || rest.n == 2)
        return err_set(err, ERR_INVALID,
                       "unexpected argument \"%s\" (options are --name=value)", argv[i]);
    rest.p += 2;
    rest.n -= 2;
    bool joined = memchr(rest.p, '=', rest.n) != NULL;
    *f = (struct flag){.used = 1};
    f->name = span_cut(&rest, '=');
    *o = find(p, f->name);
    bool builtin = span_eq(f->name, SPAN("config"));
    if (joined) {
        f->value = rest;
        f->has_value = true;
    } else if ((builtin || (*o && (*o)->type != OPT_BOOL)) && i + 1 < argc) {
        f->value = span_of(argv[i + 1]);
        f->has_value = true;
        f->used = 2;
    }
    if (!*o && !builtin)
        return err_set(err, ERR_INVALID, "unknown option --%.*s (try --help)",
                       SPAN_ARG(f->name));
    if (!f->has_value && (builtin || (*o)->type != OPT_BOOL))
        return err_set(err, ERR_INVALID, "--%.*s needs a value", SPAN_ARG(f->name));
    return 0;
}

static int load_flags(const struct opt_program *p, void *config, int argc,
                      char *const *argv, struct err *err)
{
    const struct opt *o = NULL;
    struct flag f;
    for (int i = 1; i < argc; i += f.used) {
        if (flag_read(p, argc, argv, i, &f, &o, err))
            return -1;
        if (!o)
            continue;
        if (set_value(p, o, config, f.has_value ? f.value : SPAN("true"), err))
            return err_wrap(err, "--%s", o->name);
    }
    return 0;
}

/* Finds --config, --help and --version among the flags. */
static enum opt_result look_ahead(const struct opt_program *program, int argc,
                                  char *const *argv, char **config_path, FILE *out,
                                  struct err *err)
{
    const struct opt *o = NULL;
    struct flag f;
    for (int i = 1; i < argc; i += f.used) {
        if (!strcmp(argv[i], "--help")) {
            opt_help(program, out);
            return OPT_DONE;
        }
        if (!strcmp(argv[i], "--version")) {
            fprintf(out, "%s %s\n", program->name, program->version);
            return OPT_DONE;
        }
        if (flag_read(program, argc, argv, i, &f, &o, err))
            return OPT_FAILED;
        if (!o) {
            free(*config_path);
            *config_path = xmemdup0(f.value.p, f.value.n);
        }
    }
    return OPT_RUN;
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

void opt_free(const struct opt_program *program, void *config)
{
    for (const struct opt *o = NULL; (o = opt_next(program, o));) {
        if (o->type == OPT_STRING) {
            char **s = opt_field(program, o, config);
            free(*s);
            *s = NULL;
        } else if (o->type == OPT_LIST) {
            struct opt_list *list = opt_field(program, o, config);
            while (list->n)
                free(list->items[--list->n]);
            free(list->items);
            *list = (struct opt_list){0};
        }
    }
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
    fprintf(out, "%s: %s\n\nUsage: %s [OPTION]...\n\n", program->name, program->summary,
            program->name);
    for (const struct opt *o = NULL; (o = opt_next(program, o));) {
        fprintf(out, "  --%s%s%s", o->name, o->type == OPT_BOOL ? "" : " ",
                o->type == OPT_BOOL ? "[=on|off]" : o->arg);
        if (o->env)
            fprintf(out, "  (environment: %s)", o->env);
        if (o->init)
            fprintf(out, "  [default: %s]", o->init);
        fputc('\n', out);
        help_text(o->help, out);
    }
    fputs("  --config FILE\n"
          "        YAML file with any of these options as `name: value`.\n"
          "  --help\n        Print this.\n"
          "  --version\n        Print name and version.\n"
          "\nA flag wins over the environment, the environment over the file.\n",
          out);
}
