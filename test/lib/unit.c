/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"

/* The main function of a test program, as lib/unit.h describes it. */

/* A busy machine is slower by so much. */
enum { BUSY = 2 };

int unit_run(const char *name, const TTest *const *tests, size_t n, double seconds)
{
    return unit_run_with(name, tests, n, seconds, &(struct unit_fixtures){0});
}

/* Adds a test unless UNIT_TEST names others, as `make check T=PROGRAM:TEST` sets it. */
static void add_wanted(TCase *tcase, const TTest *test, int loops)
{
    const char *wanted = getenv("UNIT_TEST");
    if (wanted && wanted[0] && strcmp(wanted, test->name) != 0)
        return;
    if (loops)
        tcase_add_loop_test(tcase, test, 0, loops);
    else
        tcase_add_test(tcase, test);
}

/* Takes tcase. A run without any test fails in scripts/run-tests. */
static int run_case(const char *name, TCase *tcase)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int unit_run_with(const char *name, const TTest *const *tests, size_t n, double seconds,
                  const struct unit_fixtures *around)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, seconds * BUSY * LIB_SLOWER);
    tcase_add_unchecked_fixture(tcase, around->begin_all, around->end_all);
    tcase_add_checked_fixture(tcase, around->begin, around->end);
    for (size_t i = 0; i < n; i++)
        add_wanted(tcase, tests[i], 0);
    return run_case(name, tcase);
}

int unit_run_loops(const char *name, const struct unit_loop *tests, size_t n,
                   double seconds)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, seconds * BUSY * LIB_SLOWER);
    for (size_t i = 0; i < n; i++)
        add_wanted(tcase, tests[i].test, tests[i].loops);
    return run_case(name, tcase);
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
