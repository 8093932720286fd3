/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/unit.h"

int unit_run(const char *name, const TTest *const *tests, size_t n, double seconds)
{
    return unit_run_with(name, tests, n, seconds, &(struct unit_fixtures){0});
}

int unit_run_with(const char *name, const TTest *const *tests, size_t n, double seconds,
                  const struct unit_fixtures *around)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, seconds);
    tcase_add_unchecked_fixture(tcase, around->begin_all, around->end_all);
    tcase_add_checked_fixture(tcase, around->begin, around->end);
    for (size_t i = 0; i < n; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
