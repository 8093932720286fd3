/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/parts.h"

#include "base/mem.h"
#include "plugin/gauges.h"
#include "support/unit.h"

enum { NOW = 1000 * 1000, LATE = 15 * 1000 };

static struct dispatcher_stats dispatcher;
static struct plugin_api_stats api;
static struct parts parts;
static struct err err;

/* All is well. */
static void start(void)
{
    dispatcher = (struct dispatcher_stats){.cards = 2,
                                           .healthy = 2,
                                           .listed = true,
                                           .up = {true, true},
                                           .wanted = {true, true},
                                           .alive_ms = NOW};
    api = (struct plugin_api_stats){.alive_ms = NOW};
    parts = (struct parts){&dispatcher, &api, NOW, NOW, LATE};
    err = (struct err){0};
}

static struct failure trouble(int64_t since_ms, const char *words)
{
    struct failure t = {.since_ms = since_ms};
    err_set(&t.err, ERR_UNAVAILABLE, "%s", words);
    return t;
}

static void check_says(int rc, const char *words)
{
    ck_assert_int_eq(rc, -1);
    ck_assert_str_eq(err.msg, words);
}

START_TEST(all_is_well)
{
    start();
    for (int i = 0; i < PART_THREADS; i++)
        ck_assert_done(parts_alive(&parts, (enum part_thread)i, &err), err);
    for (int i = 0; i < PARTS; i++)
        ck_assert_done(parts_check(&parts, (enum part)i, &err), err);
    for (int i = 0; i < IDS_RESOURCES; i++)
        ck_assert_done(parts_registered(&parts, (enum ids_resource)i, &err), err);
}
END_TEST

START_TEST(threads_that_do_not_come_by)
{
    start();
    dispatcher.alive_ms = NOW - 31000;
    check_says(parts_alive(&parts, PART_THREAD_DISPATCHER, &err),
               "the thread has not come by for 31 s");
    api.alive_ms = NOW - 31000; /* it waits for others now and then */
    ck_assert_done(parts_alive(&parts, PART_THREAD_PODS, &err), err);
    api.alive_ms = NOW - 300000;
    check_says(parts_alive(&parts, PART_THREAD_PODS, &err),
               "the thread has not come by for 300 s");
}
END_TEST

START_TEST(trouble_counts_when_it_lasts)
{
    start();
    api.watch = trouble(NOW - LATE + 1, "503");
    api.node = trouble(NOW - LATE + 1, "404");
    dispatcher.podresources = trouble(NOW - LATE + 1, "refused");
    for (int i = 0; i < PARTS; i++)
        ck_assert_done(parts_check(&parts, (enum part)i, &err), err);
    parts.now_ms++;
    check_says(parts_check(&parts, PART_PODS, &err),
               "the API server has told nothing of them for 15 s: 503");
    check_says(parts_check(&parts, PART_NODE, &err),
               "it could not be read for 15 s: 404");
    check_says(parts_check(&parts, PART_PODRESOURCES, &err),
               "the kubelet shows nothing for 15 s: refused");
    ck_assert_done(parts_check(&parts, PART_CARDS, &err), err);
    err_set(&dispatcher.cards_err, ERR_TIMEOUT, "blind");
    check_says(parts_check(&parts, PART_CARDS, &err), "blind");
}
END_TEST

START_TEST(a_first_list_is_not_there_at_once)
{
    start();
    dispatcher.listed = false;
    check_says(parts_check(&parts, PART_PODS, &err),
               "the API server has not told yet which there are");
    api.watch = trouble(NOW - 1, "HTTP 403");
    check_says(parts_check(&parts, PART_PODS, &err),
               "the API server has not told yet which there are: HTTP 403");
}
END_TEST

START_TEST(an_update_does_not_wait_for_a_driver)
{
    start();
    ck_assert(parts_waits(&parts, PART_PODS) && parts_waits(&parts, PART_PODRESOURCES));
    ck_assert(!parts_waits(&parts, PART_NODE));
    ck_assert(!parts_waits(&parts, PART_CARDS));
    /* But a version that sees no cards must not run through the cluster at once. */
    dispatcher.cards = 0;
    ck_assert(parts_waits(&parts, PART_CARDS));
    parts.now_ms += PARTS_CARDS_MS - 1;
    ck_assert(parts_waits(&parts, PART_CARDS));
    parts.now_ms++;
    ck_assert(!parts_waits(&parts, PART_CARDS));
    ck_assert(parts_waits_for_resource(&parts, IDS_MEM));
    dispatcher.wanted[IDS_MEM] = false;
    ck_assert(!parts_waits_for_resource(&parts, IDS_MEM));
}
END_TEST

START_TEST(metrics_say_the_same)
{
    cleanup_buf struct buf text = {0};
    start();
    api.watch = trouble(NOW - LATE, "503");
    gauges_write(&text, &parts);
    static const char *const lines[] = {"cards\"} 1\n", "pods\"} 0\n", "node\"} 1\n",
                                        "podresources\"} 1\n"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        cleanup_free char *line =
            xasprintf("\ngpushare_plugin_part_ok{part=\"%s", lines[i]);
        ck_assert_msg(strstr(text.p, line) != NULL, "%s is not in %s", line, text.p);
    }
}
END_TEST

UNIT_MAIN("parts", all_is_well, threads_that_do_not_come_by, trouble_counts_when_it_lasts,
          a_first_list_is_not_there_at_once, an_update_does_not_wait_for_a_driver,
          metrics_say_the_same)
