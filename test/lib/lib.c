/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/lib.h"

#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/file.h"

const char *lib_dir;

static char
    *base; /* parent of the tests' directories, removed also after a failed test */
static struct unit_fixtures inner;

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
    call(inner.begin_all);
}

static void end_all(void)
{
    call(inner.end_all);
    lib_release(0);
    temp_dir_remove(base);
    free(base);
    base = NULL;
}

static size_t kept; /* before the test */

static void begin(void)
{
    kept = lib_mark();
    lib_dir = temp_dir();
    call(inner.begin);
}

static void end(void)
{
    call(inner.end);
    lib_release(kept);
    temp_dir_remove(lib_dir);
    free((char *)lib_dir);
    lib_dir = NULL;
}

int lib_run(double seconds, struct unit_fixtures more)
{
    inner = more;
    return unit_run(seconds, (struct unit_fixtures){begin_all, end_all, begin, end});
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

void lib_on_interrupt(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    array_items(number, numbers)
        signal(*number, handler);
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
    return lib_keep(program_end(&p, status), free);
}

char *lib_output_of(int status, const char *program, const char *const *options)
{
    struct program p;
    lib_program(&p, program, NULL, options);
    return lib_keep(program_end(&p, status), free);
}

char *lib_path(const char *name)
{
    return lib_fmt("%s/%s", lib_dir, name);
}

char *lib_file(const char *path)
{
    struct buf b = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, &b, &err), err);
    return lib_keep(buf_take(&b), free);
}

static void release_glob(void *files)
{
    globfree(files);
    free(files);
}

const char *const *lib_glob(const char *pattern)
{
    glob_t *files = xcalloc(1, sizeof *files);
    ck_assert_msg(glob(pattern, GLOB_BRACE, NULL, files) == 0, "no file %s", pattern);
    lib_keep(files, release_glob);
    return (const char *const *)files->gl_pathv;
}

char *lib_read(const char *name)
{
    return lib_file(lib_path(name));
}

char *lib_swap(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "no \"%s\" in: %s", from, text);
    return lib_fmt("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

void lib_edit(const char *name, const char *from, const char *to)
{
    temp_write(lib_dir, name, lib_swap(lib_read(name), from, to));
}

char *lib_built(const char *name)
{
    return lib_keep(program_path(name), free);
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

json_int_t lib_int(const json_t *j, const char *path)
{
    return json_integer_value(lib_at(j, path));
}

size_t lib_size(const json_t *j, const char *path)
{
    return json_array_size(lib_at(j, path));
}

json_t *lib_find(const json_t *array, const char *path, const char *value)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (strcmp(lib_str(json_array_get(array, i), path), value) == 0)
            return json_array_get(array, i);
    return NULL;
}

char *lib_text(const json_t *j, const char *path)
{
    char *text =
        json_dumps(lib_at(j, path), JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    return lib_keep(text ? text : xstrdup(""), free);
}

static void release_json(void *j)
{
    json_decref(j);
}

json_t *lib_own(json_t *j)
{
    ck_assert_ptr_nonnull(j);
    return lib_keep(j, release_json);
}

json_t *lib_parse(const char *p, size_t n)
{
    json_t *j = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    ck_assert_msg(j != NULL, "no JSON: %.*s", (int)n, p);
    return lib_own(j);
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
