/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include "base/mem.h"
#include "lib/unit.h"

struct config {
    char *listen;
    int64_t port, wait_ms, body;
    bool bind_any;
    struct opt_list loads;
    int64_t unit;
    int clock, insecure;
    struct opt_list rest;
};

static int parse_unit(struct span text, void *field, struct err *err)
{
    int64_t *unit = field;
    if (!span_eq(text, SPAN("GiB")))
        return err_set(err, ERR_INVALID, "\"%.*s\" is not a unit", SPAN_ARG(text));
    *unit = 1024;
    return 0;
}

#define AT(f) offsetof(struct config, f)
static const struct opt table[] = {
    {.name = "listen",
     .letter = 'l',
     .arg = "ADDRESS",
     .init = "127.0.0.1",
     .help = "Where to listen.",
     .type = OPT_STRING,
     .offset = AT(listen)},
    {.name = "port",
     .env = "PORT",
     .arg = "N",
     .init = "12345",
     .help = "Port.\n0 takes a free one.",
     .type = OPT_INT,
     .offset = AT(port),
     .max = 65535},
    {.name = "wait",
     .arg = "TIME",
     .init = "10s",
     .help = "How long.",
     .type = OPT_DURATION,
     .offset = AT(wait_ms)},
    {.name = "body",
     .arg = "SIZE",
     .init = "64Mi",
     .help = "How much.",
     .type = OPT_SIZE,
     .offset = AT(body)},
    {.name = "bind-any",
     .letter = 'b',
     .help = "Bind.",
     .type = OPT_BOOL,
     .offset = AT(bind_any)},
    {.name = "insecure",
     .help = "Ask for nothing.",
     .type = OPT_SWITCH,
     .offset = AT(insecure)},
    {.name = "load",
     .arg = "FILE",
     .help = "Load.",
     .type = OPT_LIST,
     .offset = AT(loads)},
    {.name = "unit",
     .arg = "UNIT",
     .init = "GiB",
     .help = "Unit.",
     .type = OPT_CUSTOM,
     .offset = AT(unit),
     .parse = parse_unit},
    {.name = "clock",
     .arg = "min|exact|any",
     .init = "min",
     .help = "Clock.",
     .type = OPT_CHOICE,
     .offset = AT(clock)},
    {0},
};
static const struct opt_program program = {
    .name = "prog", .summary = "does things", .version = "1.2", .table = table};
static const struct opt_program with_rest = {
    .name = "prog",
    .summary = "does things",
    .version = "1.2",
    .table = table,
    .rest = "[THING]...",
    .rest_at = AT(rest),
};

static int read_file(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    if (strcmp(path, "good.yaml") == 0)
        return pair(ctx, "port", "1", 1, err) || pair(ctx, "listen", "file", 2, err);
    if (strcmp(path, "list.yaml") == 0) /* port: [1, 2] */
        return pair(ctx, "port", "1", 3, err) || pair(ctx, "port", "2", 3, err);
    return pair(ctx, "prot", "1", 7, err);
}

static enum opt_result load(struct config *c, char *const *env, struct err *err,
                            const char *first, const char *second, const char *third)
{
    const char *argv[] = {"prog", first, second, third};
    int argc = 1 + (first != NULL) + (second != NULL) + (third != NULL);
    *c = (struct config){0};
    FILE *out = fopen("/dev/null", "w");
    enum opt_result r =
        opt_load(&program, c, argc, (char *const *)argv, env, read_file, out, err);
    fclose(out);
    return r;
}

START_TEST(a_switch_can_be_unset)
{
    static const struct {
        const char *arg;
        int value;
    } cases[] = {{NULL, OPT_UNSET},          {"--insecure", OPT_ON},
                 {"--insecure=on", OPT_ON},  {"--insecure=off", OPT_OFF},
                 {"--insecure=No", OPT_OFF}, {"--insecure=true", OPT_ON}};
    struct config c;
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ck_assert_int_eq(load(&c, NULL, &err, cases[i].arg, NULL, NULL), OPT_RUN);
        ck_assert_int_eq(c.insecure, cases[i].value);
        opt_free(&program, &c);
    }
    ck_assert_int_eq(load(&c, NULL, &err, "--insecure=maybe", NULL, NULL), OPT_FAILED);
    opt_free(&program, &c);
}
END_TEST

START_TEST(defaults_then_file_then_environment_then_flags)
{
    struct config c;
    struct err err = {0};
    char port[] = "PORT=2", *env[] = {port, NULL};
    ck_assert_int_eq(load(&c, NULL, &err, NULL, NULL, NULL), OPT_RUN);
    ck_assert_str_eq(c.listen, "127.0.0.1");
    ck_assert_int_eq(c.port, 12345);
    ck_assert_int_eq(c.wait_ms, 10000);
    ck_assert_int_eq(c.body, 64 << 20);
    ck_assert_int_eq(c.unit, 1024);
    ck_assert(!c.bind_any);
    opt_free(&program, &c);

    ck_assert_int_eq(load(&c, NULL, &err, "--config=good.yaml", NULL, NULL), OPT_RUN);
    ck_assert_int_eq(c.port, 1);
    ck_assert_str_eq(c.listen, "file");
    opt_free(&program, &c);

    ck_assert_int_eq(load(&c, env, &err, "--config", "good.yaml", NULL), OPT_RUN);
    ck_assert_int_eq(c.port, 2);
    opt_free(&program, &c);

    ck_assert_int_eq(load(&c, env, &err, "--config=good.yaml", "--port", "3"), OPT_RUN);
    ck_assert_int_eq(c.port, 3);
    ck_assert_str_eq(c.listen, "file");
    opt_free(&program, &c);
}
END_TEST

START_TEST(booleans_and_lists)
{
    struct config c;
    struct err err = {0};
    ck_assert_int_eq(load(&c, NULL, &err, "--bind-any", "--load=a", "--load=b"), OPT_RUN);
    ck_assert(c.bind_any);
    ck_assert_uint_eq(c.loads.n, 2);
    ck_assert_str_eq(c.loads.items[1], "b");
    opt_free(&program, &c);
    ck_assert_int_eq(load(&c, NULL, &err, "--bind-any=off", NULL, NULL), OPT_RUN);
    ck_assert(!c.bind_any);
    opt_free(&program, &c);
}
END_TEST

START_TEST(a_choice_is_the_index_of_its_word)
{
    struct config c;
    struct err err = {0};
    ck_assert_int_eq(load(&c, NULL, &err, NULL, NULL, NULL), OPT_RUN);
    ck_assert_int_eq(c.clock, 0);
    opt_free(&program, &c);
    ck_assert_int_eq(load(&c, NULL, &err, "--clock=exact", NULL, NULL), OPT_RUN);
    ck_assert_int_eq(c.clock, 1);
    opt_free(&program, &c);
    ck_assert_int_eq(load(&c, NULL, &err, "--clock", "Any", NULL), OPT_RUN);
    ck_assert_int_eq(c.clock, 2);
    opt_free(&program, &c);
}
END_TEST

START_TEST(an_error_names_the_option_and_its_source)
{
    static const struct {
        const char *first, *second, *env, *want;
    } cases[] = {
        {"--prot", NULL, NULL, "unknown option --prot (try --help)"},
        {"--port", NULL, NULL, "--port needs a value"},
        {"--port=x", NULL, NULL, "--port: \"x\" is not an integer"},
        {"--port=65536", NULL, NULL, "--port: \"65536\" is not within 0..65535"},
        {"--wait=10", NULL, NULL,
         "--wait: \"10\" is not of the form 500ms, 10s, 2m or 1h"},
        {"--wait=99999999999999999h", NULL, NULL,
         "--wait: \"99999999999999999h\" is not of the form 500ms, 10s, 2m or 1h"},
        {"--unit=TB", NULL, NULL, "--unit: \"TB\" is not a unit"},
        {"--clock=max", NULL, NULL, "--clock: \"max\" is not one of min|exact|any"},
        {"--clock=", NULL, NULL, "--clock: \"\" is not one of min|exact|any"},
        {"--clock=min|exact", NULL, NULL,
         "--clock: \"min|exact\" is not one of min|exact|any"},
        {"--bind-any=maybe", NULL, NULL,
         "--bind-any: \"maybe\" is neither true nor false"},
        {"port", NULL, NULL, "unexpected argument \"port\" (options are --name=value)"},
        {NULL, NULL, "PORT=abc", "environment variable PORT: \"abc\" is not an integer"},
        {"--config", "bad.yaml", NULL, "bad.yaml:7: unknown option \"prot\""},
        {"--config", "list.yaml", NULL,
         "list.yaml:3: port: expected one value, got a list"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct err err = {0};
        char *env[] = {(char *)cases[i].env, NULL};
        ck_assert_int_eq(load(&c, env, &err, cases[i].first, cases[i].second, NULL),
                         OPT_FAILED);
        ck_assert_str_eq(err.msg, cases[i].want);
        opt_free(&program, &c);
    }
}
END_TEST

/* The layout that opt.h promises to scripts and to the checker of the help texts. */
static void ck_help_layout(const struct opt_program *p, const char *text)
{
    const struct opt *o = NULL;
    size_t documented = 0, lines = 0;
    for (; (o = opt_next(p, o)); documented++) {
        cleanup_free char *head =
            xasprintf("--%s%s%s", o->name, opt_is_flag(o) ? "[=on|off]" : " ",
                      opt_is_flag(o) ? "" : o->arg);
        ck_assert_msg(strstr(text, head), "%s", head);
    }
    for (const char *at = text; (at = strstr(at, "\n  -")); at++)
        lines++;
    ck_assert_uint_eq(lines, documented + 3); /* --config, --help, --version */
}

START_TEST(help_lists_every_option)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    opt_help(&program, out);
    fclose(out);
    ck_help_layout(&program, text);
    ck_assert_ptr_nonnull(strstr(text, "--port N  (environment: PORT)  [default: 12345]\n"
                                       "        Port.\n        0 takes a free one.\n"));
    free(text);
}
END_TEST

/* -- shared options -- */

struct shared {
    char *where;
    int64_t level;
};
struct other {
    int64_t port;
    struct shared shared;
    bool quick;
};

static const struct opt shared_table[] = {
    {.name = "where",
     .arg = "W",
     .init = "here",
     .type = OPT_STRING,
     .offset = offsetof(struct shared, where),
     .help = "Where."},
    {.name = "level",
     .env = "LEVEL",
     .arg = "N",
     .init = "3",
     .type = OPT_INT,
     .max = 9,
     .offset = offsetof(struct shared, level),
     .help = "Level."},
    {0},
};
static const struct opt other_table[] = {
    {.name = "port",
     .arg = "N",
     .type = OPT_INT,
     .offset = offsetof(struct other, port),
     .help = "Port."},
    {.name = "quick",
     .type = OPT_BOOL,
     .offset = offsetof(struct other, quick),
     .help = "Quick."},
    {0},
};
static const struct opt_program other_program = {.name = "other",
                                                 .summary = "does others",
                                                 .version = "1",
                                                 .table = other_table,
                                                 .shared = shared_table,
                                                 .shared_at =
                                                     offsetof(struct other, shared)};

static int read_other(const char *path, opt_pair_fn pair, void *ctx, struct err *err)
{
    (void)path;
    return pair(ctx, "where", "file", 1, err);
}

START_TEST(programs_share_options)
{
    struct other c = {0};
    struct err err = {0};
    char level[] = "LEVEL=7", *env[] = {level, NULL};
    const char *argv[] = {"other", "--port=5", "--config=f", "--quick"};
    const char *bad[] = {"other", "--level=10"};
    ck_assert_int_eq(opt_load(&other_program, &c, 4, (char *const *)argv, env, read_other,
                              stdout, &err),
                     OPT_RUN);
    ck_assert_int_eq(c.port, 5);
    ck_assert_str_eq(c.shared.where, "file");
    ck_assert_int_eq(c.shared.level, 7);
    ck_assert(c.quick);
    opt_free(&other_program, &c);
    ck_assert_ptr_null(c.shared.where);
    ck_assert_int_eq(
        opt_load(&other_program, &c, 2, (char *const *)bad, env, NULL, stdout, &err),
        OPT_FAILED);
    ck_assert_str_eq(err.msg, "--level: \"10\" is not within 0..9");
    opt_free(&other_program, &c);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    opt_help(&other_program, out);
    fclose(out);
    ck_assert_ptr_nonnull(
        strstr(text, "--quick[=on|off]  [default: off]\n        Quick.\n  --where W"));
    ck_assert_ptr_nonnull(strstr(text, "--level N  (environment: LEVEL)"));
    free(text);
}
END_TEST

START_TEST(short_options_and_operands)
{
    const char *good[] = {"prog", "-bl", "a",  "x",     "-l=b", "-lc",
                          "y",    "-b",  "--", "-port", "--",   "z"};
    const struct {
        const char *argv[3], *want;
    } bad[] = {
        {{"prog", "-x", NULL}, "unknown option -x (try --help)"},
        {{"prog", "-l", NULL}, "-l needs a value"},
        {{"prog", "-bx", NULL}, "unknown option -x (try --help)"},
        {{"prog", "-b=maybe", NULL}, "--bind-any: \"maybe\" is neither true nor false"},
    };
    struct config c = {0};
    struct err err = {0};
    FILE *out = fopen("/dev/null", "w");
    ck_assert_int_eq(opt_load(&with_rest, &c, ARRAY_LEN(good), (char *const *)good, NULL,
                              read_file, out, &err),
                     OPT_RUN);
    ck_assert(c.bind_any);
    ck_assert_str_eq(c.listen, "c");
    ck_assert_uint_eq(c.rest.n, 5);
    ck_assert_str_eq(c.rest.items[0], "x");
    ck_assert_str_eq(c.rest.items[1], "y");
    ck_assert_str_eq(c.rest.items[2], "-port");
    ck_assert_str_eq(c.rest.items[3], "--");
    ck_assert_str_eq(c.rest.items[4], "z");
    opt_free(&with_rest, &c);
    ck_assert_uint_eq(c.rest.n, 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int argc = bad[i].argv[1] ? 2 : 1;
        c = (struct config){0};
        ck_assert_int_eq(opt_load(&with_rest, &c, argc, (char *const *)bad[i].argv, NULL,
                                  read_file, out, &err),
                         OPT_FAILED);
        ck_assert_str_eq(err.msg, bad[i].want);
        opt_free(&with_rest, &c);
    }
    /* A program without operands rejects them, and "--" too. */
    ck_assert_int_eq(load(&c, NULL, &err, "-b", "--", NULL), OPT_FAILED);
    ck_assert_str_eq(err.msg, "unexpected argument \"--\" (options are --name=value)");
    opt_free(&program, &c);
    fclose(out);
}
END_TEST

UNIT_MAIN("opt", short_options_and_operands, a_choice_is_the_index_of_its_word,
          a_switch_can_be_unset, defaults_then_file_then_environment_then_flags,
          booleans_and_lists, an_error_names_the_option_and_its_source,
          help_lists_every_option, programs_share_options)
