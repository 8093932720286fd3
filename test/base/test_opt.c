/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include "lib/unit.h"

struct config {
    char *listen;
    int64_t port, wait_ms, body;
    bool bind_any;
    struct opt_list loads;
    int64_t unit;
    int clock, insecure;
    int64_t level;
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
static const struct opt more[] = {{.name = "level",
                                   .arg = "N",
                                   .init = "3",
                                   .help = "Level.",
                                   .type = OPT_INT,
                                   .offset = AT(level),
                                   .min = 1,
                                   .max = 9},
                                  {0}};
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
    {.more = more},
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
    cleanup_free char *text = xasprintf("prog %s", line),
                      *env = xasprintf("PORT=%s", port);
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
        buf_printf(out,
                   "%s:%d wait=%d body=%d any=%d insecure=%d unit=%d clock=%d level=%d",
                   c.listen, (int)c.port, (int)c.wait_ms, (int)c.body, c.bind_any,
                   c.insecure, (int)c.unit, c.clock, (int)c.level);
        show_list(out, &c.loads);
        show_list(out, &c.rest);
    }
    opt_free(p, &c);
}

#define REST " wait=10000 body=67108864 any=0 insecure=0 unit=1024 clock=0 level=3"

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
     "127.0.0.1:12345 wait=120000 body=1073741824 any=1 insecure=1 unit=1024 clock=2 "
     "level=3",
     false},
    {"--bind-any --bind-any=off --insecure=No --load a --load=b", "",
     "127.0.0.1:12345 wait=10000 body=67108864 any=0 insecure=2 unit=1024 clock=0 "
     "level=3 a b",
     false},
    {"-b -l a x -l=b -lc y -b -- -port -- z", "",
     "c:12345 wait=10000 body=67108864 any=1 insecure=0 unit=1024 clock=0 level=3 x y "
     "-port -- z",
     true},
    {"--level 7", "",
     "127.0.0.1:12345 wait=10000 body=67108864 any=0 insecure=0 unit=1024 clock=0 "
     "level=7",
     false},
    /* errors */
    {"--level=10", "", "--level: \"10\" is not within 1..9", false},
    {"--prot", "", "unknown option --prot (try --help)", false},
    {"--port", "", "--port needs a value", false},
    {"--port=x", "", "--port: \"x\" is not an integer", false},
    {"--port=65536", "", "--port: \"65536\" is not within 0..65535", false},
    {"--wait=10", "", "--wait: \"10\" is not of the form 500ms, 10s, 2m or 1h", false},
    {"--wait=99999999999999999h", "",
     "--wait: \"99999999999999999h\" is not of the form 500ms, 10s, 2m or 1h", false},
    {"--unit=TB", "", "--unit: \"TB\" is not a unit", false},
    {"--clock=min|exact", "", "--clock: \"min|exact\" is not one of min|exact|any",
     false},
    {"--bind-any=maybe", "", "--bind-any: \"maybe\" is neither true nor false", false},
    {"port", "", "unexpected argument \"port\" (options are --name=value)", false},
    {"-b --", "", "unexpected argument \"--\" (options are --name=value)", false},
    {"", "abc", "environment variable PORT: \"abc\" is not an integer", false},
    {"--config bad.yaml", "", "bad.yaml:7: unknown option \"prot\"", false},
    {"--config list.yaml", "", "list.yaml:3: port: expected one value, got a list",
     false},
    {"-bx", "", "--bind-any: \"x\" is neither true nor false", true},
    {"-x", "", "unknown option -x (try --help)", true},
    {"-l", "", "-l needs a value", true},
    {"-b=maybe", "", "--bind-any: \"maybe\" is neither true nor false", true},
};

TEST_LOOP(values_come_from_flags_environment_file_and_defaults, ARRAY_LEN(cases))
{
    cleanup_buf struct buf out = {0};
    load(cases[_i].rest ? &with_rest : &program, cases[_i].line, cases[_i].port, &out);
    ck_assert_str_eq(out.p, cases[_i].want);
}

TEST(help_lists_every_option)
{
    static const char *const texts[] = {
        "prog: does things\n\nUsage: prog [OPTION]... [THING]...\n\n",
        "\n  --port N  (environment: PORT)  [default: 12345]\n"
        "        Port.\n        0 takes a free one.\n",
        "\n  -b, --bind-any[=on|off]  [default: off]\n        Bind.\n",
        "\n  --insecure[=on|off]\n        Ask for nothing.\n",
        "\n  --config FILE\n",
    };
    char *text = NULL;
    size_t n = 0, lines = 0;
    struct config c = {0};
    const char *const argv[] = {"prog", "x", "-h", "--no"};
    FILE *out = open_memstream(&text, &n);
    ck_assert_int_eq(
        opt_load(&with_rest, &c, 4, (char *const *)argv, NULL, read_file, out, NULL),
        OPT_DONE);
    fclose(out);
    array_items(t, texts)
        ck_assert_msg(strstr(text, *t), "%s", *t);
    for (const char *at = text; (at = strstr(at, "\n  -")); at++)
        lines++;
    ck_assert_uint_eq(lines, ARRAY_LEN(table) + ARRAY_LEN(more) - 2 +
                                 3); /* --config, --help, --version */
    free(text);
}

TEST(a_program_may_read_no_option_files)
{
    struct config c = {0};
    struct err err = {0};
    const char *const argv[] = {"prog", "--config=f"};
    ck_assert_int_eq(
        opt_load(&program, &c, 2, (char *const *)argv, NULL, NULL, stdout, &err),
        OPT_FAILED);
    ck_assert_str_eq(err.msg, "f: option files are not supported");
}
