/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { LIB_SLOWER = 4 };
#else
enum { LIB_SLOWER = 1 };
#endif

/*
 * The main function of a test program: a list of START_TEST tests. Each test runs in a
 * process of its own, unless CK_FORK=no. `seconds` is what one test may take on a quiet
 * machine; its time limit is twice that, times LIB_SLOWER. The environment variable
 * UNIT_TEST selects the test of that name.
 */
int unit_run(const char *name, const TTest *const *tests, size_t n, double seconds);

/* Functions around the tests; each may be NULL. */
struct unit_fixtures {
    void (*begin_all)(void), (*end_all)(void); /* once, in the process of main */
    void (*begin)(void), (*end)(void);         /* in the process of each test */
};
/* unit_run with fixtures. end_all runs also after failed tests. */
int unit_run_with(const char *name, const TTest *const *tests, size_t n, double seconds,
                  const struct unit_fixtures *around);

/* A test that runs `loops` times, with _i = 0 ... loops - 1. */
struct unit_loop {
    const TTest *test;
    int loops;
};
/* unit_run of loop tests. */
int unit_run_loops(const char *name, const struct unit_loop *tests, size_t n,
                   double seconds);

#define UNIT_MAIN_SECONDS(name, seconds, ...)                                            \
    int main(void)                                                                       \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        return unit_run(name, tests, sizeof tests / sizeof *tests, seconds);             \
    }
#define UNIT_MAIN(name, ...) UNIT_MAIN_SECONDS(name, 60, __VA_ARGS__)
/* The two functions run around each test, in its process. */
#define UNIT_MAIN_AROUND(name, begin_test, end_test, ...)                                \
    int main(void)                                                                       \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        return unit_run_with(                                                            \
            name, tests, sizeof tests / sizeof *tests, 60,                               \
            &(struct unit_fixtures){.begin = begin_test, .end = end_test});              \
    }

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
