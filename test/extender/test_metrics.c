/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /metrics against golden files: test/golden/metrics/objects.json has the objects of the
 * API server, <detail>.txt the expected metrics. Times are not compared.
 */

#include "extender/metrics.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "extender/core_driver_rig.h"
#include "lib/promtool.h"

static struct core_driver_rig rig;
static struct counters *counters;
static struct event_recorder *recorder;

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    (void)request;
    return err_set(err, ERR_FORBIDDEN, "no");
}

/* Increments every counter. */
static void count(void)
{
    uint32_t refused[REASON_CLASSES];
    for (uint32_t i = 0; i < REASON_CLASSES; i++)
        refused[i] = i + 1;
    counters_verb(counters, COUNTERS_FILTER, 200, 30000);
    counters_verb(counters, COUNTERS_FILTER, 200, 60000);
    counters_verb(counters, COUNTERS_FILTER, 503, 1000);
    counters_verb(counters, COUNTERS_PRIORITIZE, 400, 2000000);
    counters_verb(counters, COUNTERS_PREEMPT, 418, 3000000);
    counters_verb(counters, COUNTERS_BIND, 421, INT64_C(20000000000));
    for (int i = 0; i < 6; i++)
        counters_filter_call(counters, (const char[]){'c', (char)('0' + i % 5), '\0'});
    counters_filter(counters, refused, true);
    counters_filter(counters, refused, false);
    counters_filter(counters, refused, false);
    counters_unreserved(counters, CORE_RESERVE_FULL);
    counters_unreserved(counters, CORE_RESERVE_NO_NODE);
    counters_unreserved(counters, CORE_RESERVE_NO_NODE);
    counters_bind(counters, ERR_NONE);
    counters_bind(counters, ERR_CONFLICT);
    counters_bind_forwarded(counters);
    counters_api_call(counters, COUNTERS_API_LIST, ERR_NONE);
    counters_api_call(counters, COUNTERS_API_WATCH, ERR_GONE);
    counters_api_call(counters, COUNTERS_API_EVENT, ERR_FORBIDDEN);
}

static void begin(void)
{
    struct ledger_settings ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024};
    struct event_recorder_settings settings = {.post = post, .instance = "i"};
    json_t *objects = json_load_file("test/golden/metrics/objects.json", 0, NULL);
    ck_assert_ptr_nonnull(objects);
    log_set_level(LOG_ERROR);
    rig_start(&rig, &ledger, false);
    rig_deliver(&rig, objects);
    counters = counters_new();
    recorder = event_recorder_start(&settings);
    count();
}

static void end(void)
{
    event_recorder_stop(recorder, INT64_MAX);
    event_recorder_free(recorder);
    counters_free(counters);
    rig_stop(&rig);
    recorder = NULL;
    counters = NULL;
}

/* Replaces times, which a test cannot predict, with *. */
static void hide_times(struct buf *text)
{
    static const char *const names[] = {"\ngpushare_watch_age_seconds{",
                                        "\ngpushare_filter_last_call_timestamp_seconds{"};
    array_items(name, names) {
        cleanup_buf struct buf out = {0};
        const char *from = text->p, *at;
        while ((at = strstr(from, *name))) {
            at = strstr(at, "} ") + 2;
            buf_add(&out, from, (size_t)(at - from));
            buf_addc(&out, '*');
            from = strchr(at, '\n');
        }
        buf_adds(&out, from);
        buf_clear(text);
        buf_add_span(text, buf_span(&out));
    }
}

/* Reports only the first different line. */
static void same_lines(const char *path, const char *got, const char *want)
{
    for (int line = 1; *got || *want; line++) {
        int g = (int)strcspn(got, "\n"), w = (int)strcspn(want, "\n");
        ck_assert_msg(g == w && memcmp(got, want, (size_t)g) == 0,
                      "%s, line %d: it says\n%.*s\ninstead of\n%.*s", path, line, g, got,
                      w, want);
        got += g + (got[g] == '\n');
        want += w + (want[w] == '\n');
    }
}

/* All metrics; promtool accepts them. */
static void write_all(enum metrics_detail detail, struct buf *out)
{
    struct metrics_source source = {rig.driver, counters, recorder, detail};
    metrics_write(&source, out);
    metrics_write_ledger(&source, out);
    promtool_check_metrics(buf_span(out));
}

TEST_LOOP(the_metrics_are_as_written, METRICS_CARD + 1)
{
    static const char *const names[] = {
        [METRICS_CLUSTER] = "cluster", [METRICS_NODE] = "node", [METRICS_CARD] = "card"};
    cleanup_free char *path = xasprintf("test/golden/metrics/%s.txt", names[_i]);
    cleanup_buf struct buf want = {0}, got = {0};
    struct err err;
    begin();
    write_all((enum metrics_detail)_i, &got);
    hide_times(&got);
    ck_assert_done(file_read(path, 1 << 20, &want, &err), err);
    same_lines(path, got.p, want.p ? want.p : "");
    end();
}

#define HUGE "1099511627776"

/* Objects can claim any size; sums do not overflow. */
TEST(absurd_sizes_do_not_overflow)
{
    struct ledger_settings ledger = {.unit_mib = 1};
    cleanup_buf struct buf got = {0};
    log_set_level(LOG_ERROR);
    rig_start(&rig, &ledger, false);
    json_t *objects = json_array();
    for (int i = 0; i < 40; i++) {
        cleanup_free char *name = xasprintf("n%d}", i);
        json_array_append_new(
            objects, rig_scv(name,
                             "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":" HUGE
                             ",\"freeMemory\":" HUGE "},{\"id\":1,\"health\":\"Healthy\","
                             "\"totalMemory\":" HUGE "}",
                             ""));
    }
    rig_deliver(&rig, objects);
    write_all(METRICS_CARD, &got);
    ck_assert_lacks(got.p, "} -");
    rig_stop(&rig);
}

TEST(metrics_before_the_first_list)
{
    struct ledger_settings ledger = {.unit_mib = 1};
    cleanup_buf struct buf got = {0};
    rig_start(&rig, &ledger, false);
    write_all(METRICS_CARD, &got);
    ck_assert_contains(got.p, "\ngpushare_ready 0\n");
    ck_assert_contains(got.p, "\ngpushare_watch_synced{resource=\"pods\"} 0\n");
    ck_assert_lacks(got.p, "gpushare_watch_age_seconds{");
    ck_assert_lacks(got.p, "gpushare_drift");
    ck_assert_lacks(got.p, "gpushare_pending_pods");
    ck_assert_lacks(got.p, "gpushare_cards_overcommitted");
    ck_assert_lacks(got.p, "gpushare_stale_seconds"); /* nothing is known: 0 is current */
    rig_stop(&rig);
}

/* A scrape is bounded: of many pending pods, those that came first count; and few requests, with
 * one of each namespace. */
TEST(many_pending_pods)
{
    enum { OLD = 8300, REQUESTS = 40, JUDGED = 8174, OTHER = 5000 };
    const int first_s = 1767229199; /* each pod is a second older than the last one */
    struct ledger_settings ledger = {.unit_mib = 1};
    cleanup_buf struct buf got = {0};
    log_set_level(LOG_ERROR);
    rig_start(&rig, &ledger, false);
    json_t *objects =
        json_pack("[o]", rig_scv("n1",
                                 "{\"id\":0,\"health\":\"Healthy\",\"totalMemory\":900,"
                                 "\"freeMemory\":900}",
                                 ""));
    for (int i = 0; i < OLD; i++) {
        cleanup_buf struct buf at = {0};
        clock_format_us(&at, (first_s - i) * INT64_C(1000000));
        cleanup_free char *name = xasprintf("p%d", i);
        cleanup_free char *units = xasprintf("%d", i == OTHER ? 1 : i % REQUESTS + 1000);
        json_array_append_new(objects, json_pack("{ss s{ssssssss} s{s[{s{s{ss}}}]}}",
                                                 "kind", "Pod", "metadata", "name", name,
                                                 "namespace", i == OTHER ? "other" : "n",
                                                 "uid", name, "creationTimestamp", at.p,
                                                 "spec", "containers", "resources",
                                                 "limits", "aliyun.com/gpu-mem", units));
    }
    rig_deliver(&rig, objects);
    write_all(METRICS_NODE, &got);
#define OLDEST "\ngpushare_pending_oldest_timestamp_seconds{state="
    cleanup_free char *want = xasprintf(OLDEST "\"fits\"} %d" OLDEST "\"no-room\"} %d\n",
                                        first_s - OTHER, first_s - JUDGED);
    ck_assert_contains(got.p, want);
    rig_stop(&rig);
}
