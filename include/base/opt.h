/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The options of a program: one table that defines the flags, the environment variables,
 * the keys of the configuration file and the text of --help. Sources of a value, highest
 * precedence first: `--name VALUE` or `--name=VALUE`, the environment, the YAML file
 * named by --config, the default. Every program also has --config, --help and --version.
 *
 * The help of an option is one sentence of at most OPT_HELP_MAX characters that names the
 * unit and stands on its own; --help prints the default. The layout of --help is fixed,
 * so that scripts/man and the tests can parse it. Per option:
 *
 *     "  --name ARG  (environment: NAME)  [default: VALUE]"
 *     "        The sentence."
 */

enum { OPT_HELP_MAX = 100 };

enum opt_type {
    OPT_STRING,   /* char *, owned by the config; NULL when not given */
    OPT_LIST,     /* struct opt_list; collects the values of all sources */
    OPT_BOOL,     /* bool: true|false, on|off, yes|no; a flag alone means true */
    OPT_SWITCH,   /* int, enum opt_switch: OPT_BOOL that can also be unset; no default */
    OPT_INT,      /* int64_t within min..max */
    OPT_DURATION, /* int64_t milliseconds: 500ms, 10s, 2m, 1h; within min..max */
    OPT_SIZE,     /* int64_t bytes: 64Ki, 64Mi, 1Gi, 1000; within min..max */
    OPT_CHOICE,   /* int: index of the word in `arg`, "min|exact"; ignores case */
    OPT_CUSTOM,   /* defined by `parse` */
};

enum opt_switch { OPT_UNSET, OPT_ON, OPT_OFF };

struct opt_list {
    char **items;
    size_t n, cap;
};

struct opt {
    const char *name; /* without dashes: "log-level" */
    const char *env;  /* environment variable, or NULL */
    const char *arg;  /* placeholder of the value in --help: "FILE" */
    const char *init; /* default, parsed like any value; NULL: zero */
    const char *help; /* see above; '\n' starts a new line */
    enum opt_type type;
    size_t offset;    /* of the field in the config struct */
    int64_t min, max; /* both 0: any non-negative value */
    int (*parse)(struct span text, void *field, struct err *err); /* OPT_CUSTOM */
    char letter; /* short option: -o VALUE, -oVALUE, -o=VALUE. 0: none */
    unsigned
        names; /* bits of the names of the program that have the option; 0: every one */
    const struct opt *more; /* in the last entry: a table that continues this one */
};

/*
 * The entries of a table, by type. `field` is a member of OPT_CONFIG, a macro for the
 * config struct that the file of the table defines; `preset` is the default. The last
 * argument is the help, which further members of struct opt may follow:
 *
 *     #define OPT_CONFIG struct server_config
 *     OPT_INT("port", port, "N", "80", 0, 65535, "TCP port.", .env = "PORT"),
 */
#define OPT_ENTRY(kind, option, field, value, preset, ...)                               \
    {                                                                                    \
        .name = option, .type = kind, .offset = offsetof(OPT_CONFIG, field),             \
        .arg = value, .init = preset, .help = __VA_ARGS__                                \
    }
#define OPT_STRING(option, field, value, preset, ...)                                    \
    OPT_ENTRY(OPT_STRING, option, field, value, preset, __VA_ARGS__)
#define OPT_LIST(option, field, value, ...)                                              \
    OPT_ENTRY(OPT_LIST, option, field, value, NULL, __VA_ARGS__)
#define OPT_BOOL(option, field, preset, ...)                                             \
    OPT_ENTRY(OPT_BOOL, option, field, NULL, preset, __VA_ARGS__)
#define OPT_INT(option, field, value, preset, low, high, ...)                            \
    OPT_ENTRY(OPT_INT, option, field, value, preset, __VA_ARGS__, .min = low, .max = high)
#define OPT_DURATION(option, field, preset, low, high, ...)                              \
    OPT_ENTRY(OPT_DURATION, option, field, "TIME", preset, __VA_ARGS__, .min = low,      \
              .max = high)
#define OPT_SIZE(option, field, preset, low, high, ...)                                  \
    OPT_ENTRY(OPT_SIZE, option, field, "SIZE", preset, __VA_ARGS__, .min = low,          \
              .max = high)
#define OPT_CHOICE(option, field, value, preset, ...)                                    \
    OPT_ENTRY(OPT_CHOICE, option, field, value, preset, __VA_ARGS__)
#define OPT_CUSTOM(option, field, value, preset, parser, ...)                            \
    OPT_ENTRY(OPT_CUSTOM, option, field, value, preset, __VA_ARGS__, .parse = parser)

struct opt_program {
    const char *name, *summary, *version;
    const struct opt *table; /* ends with a NULL name */
    unsigned name_bit;       /* of `name`, for a table that several names share */
    /* Placeholder of the operands in --help: "[NODE]"; NULL: the program takes none.
     * Operands go to the struct opt_list at offset `rest_at`; after "--" every argument
     * is an operand. */
    const char *rest;
    size_t rest_at;
};

/* Called once per entry of the file; for a list, once per item, in order. A non-zero
 * result stops the reader, which returns it. */
typedef int (*opt_pair_fn)(void *ctx, const char *key, const char *value, unsigned line,
                           struct err *err);
/* Reads a file of `key: value` lines, calling `pair` for each entry. */
typedef int (*opt_file_fn)(const char *path, opt_pair_fn pair, void *ctx,
                           struct err *err);

enum opt_result { OPT_RUN = 0, OPT_DONE = 1, OPT_FAILED = -1 };

/* Fills *config, which must be zeroed. OPT_DONE: --help or --version was given and its
 * text is printed to `out`. OPT_FAILED: err names the option and its source. `env` is an
 * array like environ. `read_file` NULL: --config is an error. Release *config with opt_free
 * in every case. */
enum opt_result opt_load(const struct opt_program *program, void *config, int argc,
                         char *const *argv, char *const *env, opt_file_fn read_file,
                         FILE *out, struct err *err);
void opt_free(const struct opt_program *program, void *config);

/* Iterates over the options. NULL starts the iteration and ends it. */
const struct opt *opt_next(const struct opt_program *program, const struct opt *o);

/* The parsers behind OPT_BOOL, OPT_DURATION and OPT_SIZE. */
int opt_parse_bool(struct span text, bool *out, struct err *err);
int opt_parse_duration(struct span text, int64_t *ms, struct err *err);
