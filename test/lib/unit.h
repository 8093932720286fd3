/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { LIB_SLOWER = 4 };
#else
enum { LIB_SLOWER = 1 };
#endif

/*
 * A test: TEST(name) { ... }. TEST_LOOP runs it n times, with _i = 0 ... n - 1. Tests register
 * themselves: a program needs no list of them, and no main function, because that of test/lib
 * runs them in the order of the file. Each runs in a process of its own, unless CK_FORK=no.
 * The environment variable UNIT_TEST selects the test of that name.
 */
struct unit_test {
    TTest test;
    int loops;
};
#define TEST_LOOP(name, n)                                                               \
    static void name(int _i);                                                            \
    static const struct unit_test name##_test = {{#name, name, __FILE__, __LINE__}, n};  \
    __attribute__((section("unit_tests"),                                                \
                   used)) static const struct unit_test *name##_entry = &name##_test;    \
    static void name(int _i __attribute__((unused)))
#define TEST(name) TEST_LOOP(name, 1)

/* Loops over an array, by index or with a pointer to the item. */
#define array_indices(i, array) for (size_t i = 0; i < ARRAY_LEN(array); i++)
#define array_items(item, array)                                                         \
    for (__typeof__(&(array)[0]) item = (array); item < (array) + ARRAY_LEN(array);      \
         item++)

/* Functions around the tests; each may be NULL. */
struct unit_fixtures {
    void (*begin_all)(void), (*end_all)(void); /* once, in the process of main */
    void (*begin)(void), (*end)(void);         /* in the process of each test */
};
/*
 * Runs the tests of the program and returns the exit status. `seconds`: what one test may take
 * on a quiet machine; its time limit is twice that, times LIB_SLOWER. end_all runs also after
 * failed tests.
 */
int unit_run(double seconds, struct unit_fixtures around);
/* The name of the program without "test_". */
const char *unit_name(void);

/* The main function of a program whose tests need fixtures, or another time than the 60
 * seconds that the main function of test/lib gives them. */
#define UNIT_MAIN_WITH(seconds, ...)                                                     \
    int main(void)                                                                       \
    {                                                                                    \
        return unit_run(seconds, (struct unit_fixtures){__VA_ARGS__});                   \
    }
#define UNIT_MAIN(seconds) UNIT_MAIN_WITH(seconds, 0)
#define UNIT_MAIN_AROUND(begin_test, end_test)                                           \
    UNIT_MAIN_WITH(60, NULL, NULL, begin_test, end_test)

/* Waits until the condition holds; fails the test with the message after LIB_WAIT_MS, or after
 * that many milliseconds. */
enum { LIB_WAIT_MS = 60 * 1000 };
#define lib_wait_within(ms, condition, ...)                                              \
    do {                                                                                 \
        int64_t lib_end_ = lib_now_ms() + (ms);                                          \
        size_t lib_mark_ = lib_mark();                                                   \
        while (!(condition)) {                                                           \
            ck_assert_msg(lib_now_ms() < lib_end_, __VA_ARGS__);                         \
            lib_release(lib_mark_);                                                      \
            lib_pause();                                                                 \
        }                                                                                \
    } while (0)
#define lib_wait_saying(condition, ...)                                                  \
    lib_wait_within(LIB_WAIT_MS, condition, __VA_ARGS__)
#define lib_wait(condition) lib_wait_saying(condition, "timeout: %s is false", #condition)
int64_t lib_now_ms(void);
void lib_pause(void); /* a few milliseconds */

/*
 * Memory that a thread keeps until its end, or that of the test: functions with such a
 * result say "kept". A condition of lib_wait keeps nothing while it is false.
 */
void *lib_keep(void *p, void (*release)(void *p)); /* takes p, returns it */
char *lib_fmt(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* kept */
size_t lib_mark(void);
void lib_release(size_t mark); /* what was kept since */

#define ck_assert_contains(text, part)                                                   \
    do {                                                                                 \
        const char *ck_text_ = (text), *ck_part_ = (part);                               \
        ck_assert_msg(strstr(ck_text_, ck_part_) != NULL, "no \"%s\" in: %s", ck_part_,  \
                      ck_text_);                                                         \
    } while (0)

#define ck_assert_lacks(text, part)                                                      \
    do {                                                                                 \
        const char *ck_text_ = (text), *ck_part_ = (part);                               \
        ck_assert_msg(!strstr(ck_text_, ck_part_), "\"%s\" in: %s", ck_part_, ck_text_); \
    } while (0)

/* Is the span equal to the C string? */
#define ck_assert_span_eq(s, str)                                                        \
    do {                                                                                 \
        struct span ck_s_ = (s);                                                         \
        const char *ck_want_ = (str);                                                    \
        ck_assert_msg(span_eq(ck_s_, span_of(ck_want_)), "%s is \"%.*s\", not \"%s\"",   \
                      #s, SPAN_ARG(ck_s_), ck_want_);                                    \
    } while (0)

/* Fails with err.msg unless the call returns 0. `err`: the struct err passed to it. */
#define ck_assert_done(call, err)                                                        \
    do {                                                                                 \
        int ck_rc_ = (call);                                                             \
        ck_assert_msg(ck_rc_ == 0, "%s: %s", #call, (err).msg);                          \
    } while (0)
