/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/lib.h"

/*
 * What scripts/run-tests makes of a program that fails, with TEST_AGAIN=1 and without: only a
 * failed check of a program of processes and sockets gets a second chance, and twice.
 */

static void begin(void)
{
    temp_mkdir(lib_dir, "test");
    temp_mkdir(lib_dir, "test/core");
    temp_mkdir(lib_dir, "test/integration");
    temp_mkdir(lib_dir, "test/e2e-node");
}

/* Fails in the runs whose numbers the pattern names ("1", "[13]", "*"), with that line. */
static const char *run(const char *folder, const char *fails, const char *line,
                       const char *again, int status)
{
    const char *path = lib_fmt("test/%s", folder);
    temp_write(lib_dir, "runs", "");
    temp_script(lib_path(path), "test_x",
                lib_fmt("echo >>%s\n"
                        "case $(wc -l <%s) in\n"
                        "%s) echo '%s'; echo '1 passed, 1 failed'; exit 1 ;;\n"
                        "esac\n"
                        "echo '2 passed, 0 failed'\n",
                        lib_path("runs"), lib_path("runs"), fails, line));
    return lib_output(status, ARGV("env", again, "scripts/run-tests", lib_dir,
                                   lib_fmt("%s/%s/test_x", lib_dir, path)));
}

static size_t runs(void)
{
    return strlen(lib_read("runs"));
}

#define FAILED "test/x.c:1:F:x:y:0: timeout"

TEST(a_failure_that_does_not_come_back_is_flaky)
{
    const char *said = run("integration", "1", FAILED, "TEST_AGAIN=1", 0);
    ck_assert_contains(said, "  FAIL  test/integration/test_x ");
    ck_assert_contains(said, FAILED);
    ck_assert_contains(said, "  FLAKY test/integration/test_x: ");
    ck_assert_contains(said, "\n2 passed, 0 failed\n");
    ck_assert_uint_eq(runs(), 3);
    run("e2e-node", "1", FAILED, "TEST_AGAIN=1", 0);
}

TEST(one_that_comes_back_fails)
{
    ck_assert_contains(run("integration", "*", FAILED, "TEST_AGAIN=1", 1),
                       "\n1 passed, 1 failed\n");
    ck_assert_uint_eq(runs(), 2);
    ck_assert_lacks(run("integration", "[13]", FAILED, "TEST_AGAIN=1", 1), "FLAKY");
    ck_assert_uint_eq(runs(), 3);
}

TEST(what_is_no_matter_of_time_fails_at_once)
{
    static const char *const lines[] = {
        "test/x.c:1:E:x:y:0: (after this point) Received signal 11 (Segmentation fault)",
        "==1==ERROR: AddressSanitizer: heap-use-after-free",
        "src/x.c:1:2: runtime error: signed integer overflow",
        "test/x.c:1:F:x:y:0: c1 has 4 units, but 8 are promised",
        "test/x.c:1:F:x:y:0: annotations say {}, inspect says {\"n1\":1}",
    };
    array_items(line, lines) {
        ck_assert_lacks(run("integration", "1", *line, "TEST_AGAIN=1", 1), "FLAKY");
        ck_assert_uint_eq(runs(), 1);
    }
    /* The log of a program may speak of promises. */
    run("integration", "1", FAILED "\nlevel=info msg=\"8 MiB are promised\"",
        "TEST_AGAIN=1", 0);
}

TEST(units_and_people_get_no_second_chance)
{
    run("core", "1", FAILED, "TEST_AGAIN=1", 1);
    ck_assert_uint_eq(runs(), 1);
    run("integration", "1", FAILED, "TEST_AGAIN=", 1);
    ck_assert_uint_eq(runs(), 1);
}

LIB_MAIN_AROUND(60, begin, NULL)
