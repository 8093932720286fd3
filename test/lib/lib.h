/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "lib/program.h"
#include "lib/temp.h"
#include "lib/unit.h"

/*
 * The base of the suites that start the real programs: fixtures, waiting, JSON. An error in
 * any function of test/lib fails the test.
 */

extern const char *lib_dir; /* a temporary directory of the running test */

/* Runs the tests. `seconds`: as unit_run has them. */
int lib_run(const char *name, const TTest *const *tests, size_t n, double seconds);
/* lib_run with fixtures, which run inside those of lib_run. */
int lib_run_with(const char *name, const TTest *const *tests, size_t n, double seconds,
                 const struct unit_fixtures *inner);
#define LIB_MAIN(name, seconds, ...)                                                     \
    int main(void)                                                                       \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        return lib_run(name, tests, sizeof tests / sizeof *tests, seconds);              \
    }

/* Runs fn(ctx, 0) ... fn(ctx, n - 1) in n threads and waits for them. */
void lib_threads(size_t n, void (*fn)(void *ctx, size_t i), void *ctx);

double lib_now_exact_ms(void); /* with fractions, for short durations */
void lib_sort(double *values, size_t n);

/* Starts a program of this project in lib_dir with the options `first` and `more`, which
 * end with NULL. */
void lib_program(struct program *p, const char *name, const char *const *first,
                 const char *const *more);

/* Runs a command in lib_dir, which must end with the status (-1: any). Returns its output,
 * new. */
char *lib_output(int status, const char *const *argv);

static inline void lib_json_free(json_t **j)
{
    json_decref(*j);
}
#define cleanup_json __attribute__((cleanup(lib_json_free)))
/* The value behind a path such as "metadata.name" or "spec.containers.0"; borrowed, NULL if
 * there is none. */
json_t *lib_at(const json_t *j, const char *path);
const char *lib_str(const json_t *j, const char *path); /* "" if there is none */
/* The string `key`, which may have dots, of the object behind the path; "" if there is
 * none. */
const char *lib_in(const json_t *j, const char *path, const char *key);
const char *lib_annotation(const json_t *object, const char *key);
