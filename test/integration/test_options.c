/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"
#include "lib/sim.h"

/*
 * Invalid options, option files and kubeconfigs: the extender exits with status 1 and a
 * message that says what is wrong and where.
 */

static void check_start(const char *kubeconfig, const char *const *more, const char *text,
                        const char *where)
{
    const char *options[PROGRAM_ARGS] = {
        "--listen",       "127.0.0.1", "--port",       "0",
        "--observe-port", "0",         "--kubeconfig", kubeconfig};
    program_args(options, kubeconfig ? 8 : 6, more);
    const char *said = lib_output_of(1, "gpushare-extender", options);
    ck_assert_msg(strstr(said, text), "%s: no \"%s\" in: %s", where, text, said);
}

#define YAML_BOMB                                                                        \
    "a: &a [l,l,l,l,l,l,l,l,l]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"                    \
    "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"           \
    "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"

TEST(invalid_options_are_rejected_with_cause_and_position)
{
    static const char *const options[][3] = {
        {"--nope", NULL, "unknown option --nope"},
        {"--port", NULL, "--port needs a value"},
        {"--port", "99999", "--port: \"99999\" is not within 0..65535"},
        {"--port", "-1", "--port: \"-1\" is not"},
        {"--memory-unit", "3 apples", "--memory-unit: \"3 apples\" is none of GiB"},
        {"--body-limit", "1", "--body-limit: \"1\" is not within"},
        {"--drain-timeout", "soon", "--drain-timeout: \"soon\" is not"},
        {"extra", NULL, "unexpected argument \"extra\""},
        {"--config", "/nonexistent.yaml", "/nonexistent.yaml: No such file"},
        {"--config", "/", "/: Is a directory"},
        {"--node-score", "best",
         "--node-score: \"best\" is not one of binpack|spread|scv|fgd"},
        {"--requests-of", "kai", "--requests-of: \"kai\" is not hami or empty"},
        {"--hami-values", "gpu=1", "--hami-values: \"gpu\" is not resourceName, "},
        {"--hami-values", "resourceName=a.io/g",
         "resourceName: gpushare-node serves only"},
        {"--advertise", "a/b",
         "--advertise: \"a/b\" is neither an IP address nor a host name"},
        {"--advertise", "10.0.0.7:12345",
         "--advertise: \"10.0.0.7:12345\" is neither an IP address nor a host name"},
        {"--advertise", "[::1]",
         "--advertise: \"[::1]\" is neither an IP address nor a host name"},
        {"--advertise", "::1:x",
         "--advertise: \"::1:x\" is neither an IP address nor a host name"},
        {"--advertise", "fe80::1%lo",
         "--advertise: \"fe80::1%lo\" is neither an IP address nor a host name"},
        {"--listen", "999.1.1.1", "listen on 999.1.1.1:0: expected an IP address"},
    };
    static const char *const files[][2] = {
        {"port: x\n", ":1: port: \"x\" is not an integer"},
        {"log-level: info\nport: 70000\n", ":2: port: \"70000\" is not within 0..65535"},
        {"nonsense: 1\n", ":1: unknown option \"nonsense\""},
        {"port: [1, 2]\n", ":1: port: expected one value, got a list"},
        {"port: {a: b}\n", ":1: \"port\": expected a value or a list of values"},
        {"- port\n", ":1: expected `name: value`"},
        {"port: 1\nport: 2\n", ":2: duplicate key \"port\""},
        {"port: \"unterminated\n", "while scanning a quoted scalar"},
        {"\t- : :\n", ":1: while scanning for the next token"},
        {"port: 1\n---\nport: 2\n", "expected one YAML document"},
        {"require-scv: maybe\n", ":1: require-scv: \"maybe\" is neither true nor false"},
        {"\xff\xfe\n", "options.yaml: byte"},
        {YAML_BOMB, ":1: anchors are not allowed"},
    };
    cleanup_free char *kubeconfig = lib_kubeconfig("kubeconfig", "http", 1, "", "");
    array_indices(i, options)
        check_start(kubeconfig, ARGV(options[i][0], options[i][1]), options[i][2],
                    options[i][0]);
    array_indices(i, files) {
        temp_write(lib_dir, "options.yaml", files[i][0]);
        check_start(kubeconfig, ARGV("--config", lib_path("options.yaml")), files[i][1],
                    files[i][0]);
    }
}

/* test/kube/test_config.c has all of them. */
TEST(invalid_kubeconfigs_are_rejected_with_cause_and_position)
{
    static const char *const files[][2] = {
        {"", "no current-context in "},
        {"x: [\n", "kubeconfig:2: while parsing a flow node"},
        {YAML_BOMB, "kubeconfig:1: anchors are not allowed"},
    };
    array_indices(i, files) {
        temp_write(lib_dir, "kubeconfig", files[i][0]);
        check_start(lib_path("kubeconfig"), NULL, files[i][1], files[i][0]);
    }
    check_start("/nonexistent/k", NULL, "kubeconfig /nonexistent/k does not exist",
                "missing");
    check_start(lib_dir, NULL, "Is a directory", "directory");
    check_start(NULL, ARGV("--kubeconfig="), " does not exist", "none at all");
}

/* -- the help texts -- */

static const char *const programs[] = {
    "gpushare-extender", "gpushare-device-plugin",   "gpushare-node",
    "scv-agent",         "kubectl-inspect-gpushare", "gpushare-setup",
    "kube-sim",          "gpushare-replay"};

/* One sentence: it begins with a capital letter, ends with its only period, and states the
 * default, unless the line of the option shows one. */
static void check_help(const char *program, struct span option, struct span help)
{
    bool one =
        help.n > 1 && help.p[0] >= 'A' && help.p[0] <= 'Z' && help.p[help.n - 1] == '.';
    for (size_t i = 0; one && i + 2 < help.n; i++)
        one = help.p[i] != '.' || help.p[i + 1] != ' ' || help.p[i + 2] < 'A' ||
              help.p[i + 2] > 'Z';
    ck_assert_msg(one, "%s --help: not one sentence: %.*s: \"%.*s\"", program,
                  SPAN_ARG(option), SPAN_ARG(help));
    ck_assert_msg(help.n <= OPT_HELP_MAX, "%s --help: longer than %d: %.*s", program,
                  OPT_HELP_MAX, SPAN_ARG(help));
    ck_assert_msg(memmem(option.p, option.n, "[default: ", 10) ||
                      memmem(help.p, help.n, "default", 7) ||
                      memmem(help.p, help.n, "required", 8) ||
                      span_starts(option, SPAN("  --config ")) ||
                      span_eq(option, SPAN("  --help")) ||
                      span_eq(option, SPAN("  --version")),
                  "%s --help: no default: %.*s", program, SPAN_ARG(option));
}

/* Checks each option of --help: a line with two blanks, then lines with eight. */
static unsigned check_helps(const char *program, struct span text)
{
    unsigned n = 0;
    struct span option = {0};
    cleanup_buf struct buf help = {0};
    while (text.n) {
        struct span line = span_cut(&text, '\n');
        if (span_starts(line, SPAN("        "))) {
            struct span part = span_trim(line);
            buf_adds(&help, help.n ? " " : "");
            buf_add_span(&help, part);
            continue;
        }
        if (help.n)
            check_help(program, option, buf_span(&help));
        n += help.n > 0;
        buf_clear(&help);
        option = line;
    }
    return n;
}

TEST(every_help_text_is_one_short_sentence_with_its_default)
{
    array_items(program, programs) {
        const char *said = lib_output_of(0, *program, ARGV("--help"));
        ck_assert_uint_ge(check_helps(*program, span_of(said)), 5);
    }
}

LIB_MAIN(150)
