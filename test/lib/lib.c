/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/lib.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

const char *lib_dir;

static char
    *base; /* parent of the tests' directories, removed also after a failed test */
static const struct unit_fixtures *inner;

static void call(void (*fn)(void))
{
    if (fn)
        fn();
}

static void begin_all(void)
{
    json_object_seed(1); /* not thread-safe, so before the first thread */
    base = temp_dir();
    setenv("TMPDIR", base, 1);
    call(inner->begin_all);
}

static void end_all(void)
{
    call(inner->end_all);
    temp_dir_remove(base);
    free(base);
    base = NULL;
}

static void begin(void)
{
    lib_dir = temp_dir();
    call(inner->begin);
}

static void end(void)
{
    call(inner->end);
    temp_dir_remove(lib_dir);
    free((char *)lib_dir);
    lib_dir = NULL;
}

int lib_run(const char *name, const TTest *const *tests, size_t n, double seconds)
{
    return lib_run_with(name, tests, n, seconds, &(struct unit_fixtures){0});
}

int lib_run_with(const char *name, const TTest *const *tests, size_t n, double seconds,
                 const struct unit_fixtures *more)
{
    static const struct unit_fixtures around = {begin_all, end_all, begin, end};
    inner = more;
    return unit_run_with(name, tests, n, seconds, &around);
}

struct thread {
    void (*fn)(void *ctx, size_t i);
    void *ctx;
    size_t i;
    pthread_t id;
};

static void *thread_run(void *arg)
{
    struct thread *t = arg;
    t->fn(t->ctx, t->i);
    return NULL;
}

void lib_threads(size_t n, void (*fn)(void *ctx, size_t i), void *ctx)
{
    cleanup_free struct thread *threads = xcalloc(n, sizeof *threads);
    for (size_t i = 0; i < n; i++) {
        threads[i] = (struct thread){fn, ctx, i, 0};
        ck_assert_int_eq(pthread_create(&threads[i].id, NULL, thread_run, &threads[i]),
                         0);
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i].id, NULL);
}

double lib_now_exact_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void lib_sort(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
}

void lib_program(struct program *p, const char *name, const char *const *first,
                 const char *const *more)
{
    cleanup_free char *path = program_path(name);
    const char *argv[PROGRAM_ARGS] = {path};
    program_args(argv, program_args(argv, 1, first), more);
    program_start(p, lib_dir, argv);
}

char *lib_output(int status, const char *const *argv)
{
    struct program p;
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

json_t *lib_at(const json_t *j, const char *path)
{
    struct span rest = span_of(path);
    while (j && rest.n) {
        struct span key = span_cut(&rest, '.');
        j = json_is_array(j) ? json_array_get(j, strtoul(key.p, NULL, 10))
                             : json_object_getn(j, key.p, key.n);
    }
    return (json_t *)j;
}

const char *lib_str(const json_t *j, const char *path)
{
    const char *s = json_string_value(lib_at(j, path));
    return s ? s : "";
}

const char *lib_in(const json_t *j, const char *path, const char *key)
{
    const char *s = json_string_value(json_object_get(lib_at(j, path), key));
    return s ? s : "";
}

const char *lib_annotation(const json_t *object, const char *key)
{
    return lib_in(object, "metadata.annotations", key);
}
