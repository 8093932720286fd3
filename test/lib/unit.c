/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

/* A busy machine is slower by so much. */
enum { BUSY = 2 };

int unit_run(const char *name, const TTest *const *tests, size_t n, double seconds)
{
    return unit_run_with(name, tests, n, seconds, &(struct unit_fixtures){0});
}

/* Takes tcase. */
static int run(const char *name, TCase *tcase)
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
        tcase_add_test(tcase, tests[i]);
    return run(name, tcase);
}

int unit_run_loops(const char *name, const struct unit_loop *tests, size_t n,
                   double seconds)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, seconds * BUSY * LIB_SLOWER);
    for (size_t i = 0; i < n; i++)
        tcase_add_loop_test(tcase, tests[i].test, 0, tests[i].loops);
    return run(name, tcase);
}
