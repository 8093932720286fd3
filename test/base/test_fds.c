/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fds.h"

#include <sys/resource.h>

#include "lib/unit.h"

static void set(rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {soft, hard};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static rlim_t soft(void)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur;
}

START_TEST(the_soft_limit_becomes_the_hard_one)
{
    set(64, 512);
    fds_raise_limit();
    ck_assert_uint_eq(soft(), 512);
    fds_raise_limit();
    ck_assert_uint_eq(soft(), 512);
}
END_TEST

UNIT_MAIN("fds", the_soft_limit_becomes_the_hard_one)
