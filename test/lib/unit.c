/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <time.h>

#include "base/str.h"

/* A busy machine is slower by so much. */
enum { BUSY = 2 };

/* What the linker makes of TEST; both are 0 in a program without tests. */
extern const struct unit_test *__start_unit_tests[] __attribute__((weak)),
    *__stop_unit_tests[] __attribute__((weak));

const char *unit_name(void)
{
    const char *name = program_invocation_short_name;
    return name + (strncmp(name, "test_", 5) == 0 ? 5 : 0);
}

/* Compilers do not promise an order. */
static int compare_lines(const void *a, const void *b)
{
    const struct unit_test *const *x = a, *const *y = b;
    int file = strcmp((*x)->test.file, (*y)->test.file);
    return file ? file : (*x)->test.line - (*y)->test.line;
}

/* A run without any test fails in scripts/run-tests. */
int unit_run(double seconds, struct unit_fixtures around)
{
    const char *wanted = getenv("UNIT_TEST");
    size_t n = (size_t)(__stop_unit_tests - __start_unit_tests);
    const struct unit_test **tests = __start_unit_tests;
    TCase *tcase = tcase_create(unit_name());
    tcase_set_timeout(tcase, seconds * BUSY * LIB_SLOWER);
    tcase_add_unchecked_fixture(tcase, around.begin_all, around.end_all);
    tcase_add_checked_fixture(tcase, around.begin, around.end);
    qsort(tests, n, sizeof *tests, compare_lines);
    for (size_t i = 0; i < n; i++)
        if (!wanted || !wanted[0] || strcmp(wanted, tests[i]->test.name) == 0)
            tcase_add_loop_test(tcase, &tests[i]->test, 0, tests[i]->loops);
    Suite *suite = suite_create(unit_name());
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static _Thread_local struct kept {
    void *p;
    void (*release)(void *p);
} * kept;
static _Thread_local size_t n_kept, cap_kept;

static pthread_key_t at_thread_end;

static void release_all(void *arg)
{
    (void)arg;
    lib_release(0);
}

static void make_key(void)
{
    pthread_key_create(&at_thread_end, release_all);
}

void *lib_keep(void *p, void (*release)(void *p))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    pthread_setspecific(at_thread_end, &kept);
    MEM_GROW(kept, cap_kept, n_kept + 1);
    kept[n_kept++] = (struct kept){p, release};
    return p;
}

char *lib_fmt(const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    return lib_keep(buf_take(&text), free);
}

size_t lib_mark(void)
{
    return n_kept;
}

void lib_release(size_t mark)
{
    while (n_kept > mark) {
        n_kept--;
        kept[n_kept].release(kept[n_kept].p);
    }
    if (mark)
        return;
    free(kept);
    kept = NULL;
    cap_kept = 0;
}

int64_t lib_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void lib_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}
