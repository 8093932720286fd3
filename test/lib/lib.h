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

/* unit_run with the fixtures `inner` inside those of lib. */
int lib_run(double seconds, struct unit_fixtures inner);
#define LIB_MAIN_WITH(seconds, ...)                                                      \
    int main(void)                                                                       \
    {                                                                                    \
        return lib_run(seconds, (struct unit_fixtures){__VA_ARGS__});                    \
    }
#define LIB_MAIN(seconds) LIB_MAIN_WITH(seconds, NULL)
#define LIB_MAIN_AROUND(seconds, begin, end)                                             \
    LIB_MAIN_WITH(seconds, NULL, NULL, begin, end)
#define LIB_MAIN_ONCE(seconds, begin_all, end_all)                                       \
    LIB_MAIN_WITH(seconds, begin_all, end_all, NULL, NULL)

void lib_on_interrupt(void (*handler)(int)); /* SIGINT, SIGTERM, SIGHUP */
/* Runs fn(ctx, 0) ... fn(ctx, n - 1) in n threads and waits for them. */
void lib_threads(size_t n, void (*fn)(void *ctx, size_t i), void *ctx);

double lib_now_exact_ms(void); /* with fractions, for short durations */
void lib_sort(double *values, size_t n);

/* Starts a program of this project in lib_dir with the options `first` and `more`, each a
 * list that ends with NULL, or NULL. */
void lib_program(struct program *p, const char *name, const char *const *first,
                 const char *const *more);

/* Runs a command in lib_dir, which must end with the status (-1: any). Returns its output,
 * kept. */
char *lib_output(int status, const char *const *argv);
/* The same with a program of this project. */
char *lib_output_of(int status, const char *program, const char *const *options);

/* Kept texts: the path of a file of lib_dir, its content, and a path of the build folder. */
char *lib_path(const char *name);
char *lib_read(const char *name);
char *lib_built(const char *name);
char *lib_file(const char *path); /* the content of any file */
/* The files that match, which may be {several,patterns}. Ends with NULL; kept. */
const char *const *lib_glob(const char *pattern);
/* The text with the first `from` replaced, which it must contain. Kept. */
char *lib_swap(const char *text, const char *from, const char *to);
void lib_edit(const char *name, const char *from, const char *to); /* a file of lib_dir */

static inline void lib_json_free(json_t **j)
{
    json_decref(*j);
}
#define cleanup_json __attribute__((cleanup(lib_json_free)))
/* The value behind a path such as "metadata.name" or "spec.containers.0"; borrowed, NULL if
 * there is none. */
json_t *lib_at(const json_t *j, const char *path);
const char *lib_str(const json_t *j, const char *path); /* "" if there is none */
#define ck_assert_at(j, path, want) ck_assert_str_eq(lib_str(j, path), want)
json_int_t lib_int(const json_t *j, const char *path); /* 0 if there is none */
size_t lib_size(const json_t *j, const char *path);    /* of an array, or 0 */
/* The first element of the array with this string at the path; borrowed, NULL: none. */
json_t *lib_find(const json_t *array, const char *path, const char *value);
char *lib_text(const json_t *j, const char *path); /* compact and sorted JSON; "": none */
/* Loops over an array, which is evaluated once; `element`: a variable. */
struct lib_each {
    const json_t *of;
    size_t i;
};
#define LIB_PASTE_(a, b) a##b
#define LIB_PASTE(a, b)  LIB_PASTE_(a, b)
#define lib_each(element, array)                                                         \
    for (struct lib_each LIB_PASTE(each_, __LINE__) = {array, 0};                        \
         (element = json_array_get(LIB_PASTE(each_, __LINE__).of,                        \
                                   LIB_PASTE(each_, __LINE__).i++));)
json_t *lib_own(json_t *j);                 /* takes, returns it kept; not NULL */
json_t *lib_parse(const char *p, size_t n); /* kept; fails the test if it is no JSON */
/* The string `key`, which may have dots, of the object behind the path; "" if there is
 * none. */
const char *lib_in(const json_t *j, const char *path, const char *key);
const char *lib_annotation(const json_t *object, const char *key);
