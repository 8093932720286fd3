/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/health_checks.h"

#include "base/mem.h"
#include "lib/unit.h"
#include "plugin/plugin_metrics.h"

enum { NOW = 1000 * 1000, LATE = 15 * 1000 };

static struct dispatcher_stats dispatcher;
static struct plugin_api_stats api;
static struct health_checks checks;
static struct err err;

/* Every check passes. */
static void start(void)
{
    dispatcher = (struct dispatcher_stats){.cards = 2,
                                           .healthy = 2,
                                           .listed = true,
                                           .up = {true, true},
                                           .wanted = {true, true},
                                           .alive_ms = NOW};
    api = (struct plugin_api_stats){.alive_ms = NOW};
    checks = (struct health_checks){&dispatcher, &api, NOW, NOW, LATE};
    err = (struct err){0};
}

static struct failure failure(int64_t since_ms, const char *reason)
{
    struct failure t = {.since_ms = since_ms};
    err_set(&t.err, ERR_UNAVAILABLE, "%s", reason);
    return t;
}

static void check_says(int rc, const char *reason)
{
    ck_assert_int_eq(rc, -1);
    ck_assert_str_eq(err.msg, reason);
}

START_TEST(every_check_passes)
{
    start();
    for (int i = 0; i < HEALTH_CHECK_THREADS; i++)
        ck_assert_done(health_checks_thread(&checks, (enum health_check_thread)i, &err),
                       err);
    for (int i = 0; i < HEALTH_CHECKS; i++)
        ck_assert_done(health_checks_run(&checks, (enum health_check)i, &err), err);
    for (int i = 0; i < IDS_RESOURCES; i++)
        ck_assert_done(health_checks_registered(&checks, (enum ids_resource)i, &err),
                       err);
}
END_TEST

START_TEST(threads_that_hang)
{
    start();
    dispatcher.alive_ms = NOW - 31000;
    check_says(health_checks_thread(&checks, HEALTH_CHECK_DISPATCHER, &err),
               "thread hangs for 31s");
    api.alive_ms = NOW - 31000; /* it blocks in DNS and connects */
    ck_assert_done(health_checks_thread(&checks, HEALTH_CHECK_WATCH, &err), err);
    api.alive_ms = NOW - 300000;
    check_says(health_checks_thread(&checks, HEALTH_CHECK_WATCH, &err),
               "thread hangs for 300s");
}
END_TEST

START_TEST(failures_count_after_late_ms)
{
    start();
    api.watch = failure(NOW - LATE + 1, "503");
    api.node = failure(NOW - LATE + 1, "404");
    dispatcher.podresources = failure(NOW - LATE + 1, "refused");
    for (int i = 0; i < HEALTH_CHECKS; i++)
        ck_assert_done(health_checks_run(&checks, (enum health_check)i, &err), err);
    checks.now_ms++;
    check_says(health_checks_run(&checks, HEALTH_CHECK_PODS, &err),
               "the pod watch fails for 15s: 503");
    check_says(health_checks_run(&checks, HEALTH_CHECK_NODE, &err),
               "GET of the Node fails for 15s: 404");
    check_says(health_checks_run(&checks, HEALTH_CHECK_PODRESOURCES, &err),
               "podresources calls fail for 15s: refused");
    ck_assert_done(health_checks_run(&checks, HEALTH_CHECK_CARDS, &err), err);
    err_set(&dispatcher.cards_err, ERR_TIMEOUT, "blind");
    check_says(health_checks_run(&checks, HEALTH_CHECK_CARDS, &err), "blind");
}
END_TEST

START_TEST(the_first_list_is_required)
{
    start();
    dispatcher.listed = false;
    check_says(health_checks_run(&checks, HEALTH_CHECK_PODS, &err),
               "the pods are not listed yet");
    api.watch = failure(NOW - 1, "HTTP 403");
    check_says(health_checks_run(&checks, HEALTH_CHECK_PODS, &err),
               "the pods are not listed yet: HTTP 403");
}
END_TEST

START_TEST(readiness_does_not_require_a_driver)
{
    start();
    ck_assert(health_checks_required(&checks, HEALTH_CHECK_PODS) &&
              health_checks_required(&checks, HEALTH_CHECK_PODRESOURCES));
    ck_assert(!health_checks_required(&checks, HEALTH_CHECK_NODE));
    ck_assert(!health_checks_required(&checks, HEALTH_CHECK_CARDS));
    /* A version that sees no cards must not replace every pod at once. */
    dispatcher.cards = 0;
    ck_assert(health_checks_required(&checks, HEALTH_CHECK_CARDS));
    checks.now_ms += HEALTH_CHECKS_CARDS_MS - 1;
    ck_assert(health_checks_required(&checks, HEALTH_CHECK_CARDS));
    checks.now_ms++;
    ck_assert(!health_checks_required(&checks, HEALTH_CHECK_CARDS));
    ck_assert(health_checks_resource_required(&checks, IDS_MEM));
    dispatcher.wanted[IDS_MEM] = false;
    ck_assert(!health_checks_resource_required(&checks, IDS_MEM));
}
END_TEST

START_TEST(metrics_agree)
{
    cleanup_buf struct buf text = {0};
    start();
    api.watch = failure(NOW - LATE, "503");
    plugin_metrics_write(&text, &checks);
    static const char *const lines[] = {"cards\"} 1\n", "pods\"} 0\n", "node\"} 1\n",
                                        "podresources\"} 1\n"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        cleanup_free char *line =
            xasprintf("\ngpushare_plugin_healthcheck{name=\"%s", lines[i]);
        ck_assert_msg(strstr(text.p, line) != NULL, "%s is not in %s", line, text.p);
    }
}
END_TEST

UNIT_MAIN("health_checks", every_check_passes, threads_that_hang,
          failures_count_after_late_ms, the_first_list_is_required,
          readiness_does_not_require_a_driver, metrics_agree)
