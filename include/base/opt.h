/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

/*
 * The options of a program: one table, from which flags, environment, file and --help are
 * all served. A value comes from, in falling order: `--name VALUE` or `--name=VALUE`, the
 * environment, the YAML file that --config names, the default. Every program also has
 * --config, --help and --version.
 */

enum opt_type {
    OPT_STRING,   /* char *, owned by the config; NULL when not given */
    OPT_LIST,     /* struct opt_list; gathers the values of all sources */
    OPT_BOOL,     /* bool: true|false, on|off, yes|no; a flag alone means true */
    OPT_INT,      /* int64_t within min..max */
    OPT_DURATION, /* int64_t milliseconds: 500ms, 10s, 2m, 1h; within min..max */
    OPT_SIZE,     /* int64_t bytes: 64Ki, 64Mi, 1Gi, 1000; within min..max */
    OPT_CHOICE,   /* int or enum: which of the words of `arg`, "table|json", from 0 */
    OPT_CUSTOM,   /* whatever `parse` writes */
};

struct opt_list {
    char **items;
    size_t n, cap;
};

struct opt {
    const char *name; /* without dashes: "log-level" */
    const char *env;  /* environment variable, or NULL */
    const char *arg;  /* stands for the value in --help: "FILE" */
    const char *init; /* default, parsed like any value; NULL: zero */
    const char *help; /* one line or more, split by '\n' */
    enum opt_type type;
    size_t offset;    /* of the field in the config struct */
    int64_t min, max; /* both 0: any non-negative value */
    int (*parse)(struct span text, void *field, struct err *err); /* OPT_CUSTOM */
    char letter; /* -o VALUE, -oVALUE, -o=VALUE; several OPT_BOOL can stand together: -dw;
                    0: there is none */
};

struct opt_program {
    const char *name, *summary, *version;
    const struct opt *table; /* ends with a NULL name */
    /* Options that several programs have, as `table`; or NULL. Their offsets are those of
     * a struct that is at `shared_at` in the config. */
    const struct opt *shared;
    size_t shared_at;
    /* Stands for the arguments that are no options in --help: "[NODE]". NULL: there are
     * none. They go to the struct opt_list at `rest_at`; behind "--" all do. */
    const char *rest;
    size_t rest_at;
};

/* Called once per entry of the file, and of a list once per item, one after the other;
 * what it returns is passed on by the reader. */
typedef int (*opt_pair_fn)(void *ctx, const char *key, const char *value, unsigned line,
                           struct err *err);
/* Reads a file of `key: value` lines, calling `pair` for each entry. */
typedef int (*opt_file_fn)(const char *path, opt_pair_fn pair, void *ctx,
                           struct err *err);

enum opt_result { OPT_RUN = 0, OPT_DONE = 1, OPT_FAILED = -1 };

/* Fills *config, which must be zeroed. OPT_DONE: --help or --version was asked for and
 * has been printed to `out`. OPT_FAILED: err names the option and where it came from.
 * `env` is an array like environ. Release with opt_free in every case. */
enum opt_result opt_load(const struct opt_program *program, void *config, int argc,
                         char *const *argv, char *const *env, opt_file_fn read_file,
                         FILE *out, struct err *err);
void opt_free(const struct opt_program *program, void *config);

/* One option after the other, from NULL to NULL: the program's own, then the shared. And
 * where its value is in the config. */
const struct opt *opt_next(const struct opt_program *program, const struct opt *o);
void *opt_field(const struct opt_program *program, const struct opt *o, void *config);

/* The text of --help. */
void opt_help(const struct opt_program *program, FILE *out);

/* The parsers behind OPT_DURATION and OPT_SIZE. */
int opt_parse_duration(struct span text, int64_t *ms, struct err *err);
int opt_parse_size(struct span text, int64_t *bytes, struct err *err);
