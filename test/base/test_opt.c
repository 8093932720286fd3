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

static void show_list(struct buf *out, const struct opt_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        buf_printf(out, " %s", list->items[i]);
}

/* Loads the words of the line. Appends the values, or the error. */
static void load(const struct opt_program *p, const char *line, const char *port,
                 struct buf *out)
{
    enum { WORDS = 16 };
    cleanup_free char *text = xasprintf("prog %s", line), *env = xasprintf("PORT=%s", port);
    char *argv[WORDS], *rest = text, *environment[] = {env, NULL};
    int argc = 0;
    for (char *word; (word = strsep(&rest, " ")) != NULL && argc < WORDS;)
        if (*word)
            argv[argc++] = word;
    struct config c = {0};
    struct err err = {0};
    if (opt_load(p, &c, argc, argv, environment, read_file, stdout, &err) == OPT_FAILED) {
        buf_adds(out, err.msg);
    } else {
        buf_printf(out, "%s:%d wait=%d body=%d any=%d insecure=%d unit=%d clock=%d",
                   c.listen, (int)c.port, (int)c.wait_ms, (int)c.body, c.bind_any,
                   c.insecure, (int)c.unit, c.clock);
        show_list(out, &c.loads);
        show_list(out, &c.rest);
    }
    opt_free(p, &c);
}

#define REST " wait=10000 body=67108864 any=0 insecure=0 unit=1024 clock=0"

static const struct {
    const char *line, *port, *want; /* port: in the environment */
    bool rest;                      /* the program takes operands */
} cases[] = {
    /* the sources: default, file, environment, flag */
    {"", "", "127.0.0.1:12345" REST, false},
    {"--config=good.yaml", "", "file:1" REST, false},
    {"--config good.yaml", "2", "file:2" REST, false},
    {"--port 3 --config good.yaml", "2", "file:3" REST, false},
    /* types */
    {"--wait 2m --body=1Gi --bind-any --insecure --clock Any", "",
     "127.0.0.1:12345 wait=120000 body=1073741824 any=1 insecure=1 unit=1024 clock=2",
     false},
    {"--bind-any --bind-any=off --insecure=No --load a --load=b", "",
     "127.0.0.1:12345 wait=10000 body=67108864 any=0 insecure=2 unit=1024 clock=0 a b",
     false},
    {"-bl a x -l=b -lc y -b -- -port -- z", "",
     "c:12345 wait=10000 body=67108864 any=1 insecure=0 unit=1024 clock=0 x y -port -- z",
     true},
    /* errors */
    {"--prot", "", "unknown option --prot (try --help)", false},
    {"--port", "", "--port needs a value", false},
    {"--port=x", "", "--port: \"x\" is not an integer", false},
    {"--port=65536", "", "--port: \"65536\" is not within 0..65535", false},
    {"--wait=10", "", "--wait: \"10\" is not of the form 500ms, 10s, 2m or 1h", false},
    {"--wait=99999999999999999h", "",
     "--wait: \"99999999999999999h\" is not of the form 500ms, 10s, 2m or 1h", false},
    {"--unit=TB", "", "--unit: \"TB\" is not a unit", false},
    {"--clock=min|exact", "", "--clock: \"min|exact\" is not one of min|exact|any", false},
    {"--bind-any=maybe", "", "--bind-any: \"maybe\" is neither true nor false", false},
    {"port", "", "unexpected argument \"port\" (options are --name=value)", false},
    {"-b --", "", "unexpected argument \"--\" (options are --name=value)", false},
    {"", "abc", "environment variable PORT: \"abc\" is not an integer", false},
    {"--config bad.yaml", "", "bad.yaml:7: unknown option \"prot\"", false},
    {"--config list.yaml", "", "list.yaml:3: port: expected one value, got a list", false},
    {"-bx", "", "unknown option -x (try --help)", true},
    {"-l", "", "-l needs a value", true},
    {"-b=maybe", "", "--bind-any: \"maybe\" is neither true nor false", true},
};

START_TEST(values_come_from_flags_environment_file_and_defaults)
{
    cleanup_buf struct buf out = {0};
    load(cases[_i].rest ? &with_rest : &program, cases[_i].line, cases[_i].port, &out);
    ck_assert_str_eq(out.p, cases[_i].want);
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
    const char *argv[] = {"other", "--port=5", "--config=f", "--quick", "--level=10"};
    for (int argc = 4; argc <= 5; argc++) {
        enum opt_result r = opt_load(&other_program, &c, argc, (char *const *)argv, env,
                                     read_other, stdout, &err);
        ck_assert_int_eq(r, argc == 4 ? OPT_RUN : OPT_FAILED);
        ck_assert_int_eq(c.port, 5);
        ck_assert_str_eq(c.shared.where, "file");
        ck_assert_int_eq(c.shared.level, 7);
        opt_free(&other_program, &c);
        ck_assert_ptr_null(c.shared.where);
    }
    ck_assert_str_eq(err.msg, "--level: \"10\" is not within 0..9");
}
END_TEST

int main(void)
{
    const struct unit_loop tests[] = {
        {values_come_from_flags_environment_file_and_defaults, ARRAY_LEN(cases)},
        {help_lists_every_option, 1},
        {programs_share_options, 1}};
    return unit_run_loops("opt", tests, ARRAY_LEN(tests), 60);
}
