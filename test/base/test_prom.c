/* SPDX-License-Identifier: Apache-2.0 */
#include "base/prom.h"

#include <pthread.h>
#include <time.h>

#include "lib/promtool.h"
#include "lib/unit.h"

static struct buf out;

static void ck_text(const char *want)
{
    ck_assert_str_eq(out.p, want);
    buf_fini(&out);
}

TEST(hostile_values_of_labels_are_escaped)
{
    static const char bytes[] = "q\"b\\n\n\xff\xc3\xa9\x01}";
    struct prom_label l = {"v", {bytes, sizeof bytes - 1}};
    prom_family(&out, "m", PROM_GAUGE, "A gauge.");
    prom_sample(&out, "m", &l, 1, 1);
    promtool_check_metrics(buf_span(&out));
    ck_text("# HELP m A gauge.\n# TYPE m gauge\n"
            "m{v=\"q\\\"b\\\\n\\n\xef\xbf\xbd\xc3\xa9\x01}\"} 1\n");
}

TEST(an_observation_is_in_its_bucket)
{
    struct prom_histogram h = {0};
    prom_observe(&h, 25000); /* bounds are inclusive */
    prom_observe(&h, 25001);
    prom_observe(&h, -5); /* negative: the clock was set back */
    prom_observe(&h, INT64_C(15000000000));
    prom_observe(&h, INT64_C(15000000001));
    prom_histogram(&out, "h", &(struct prom_label){"v", SPAN("x")}, 1, &h);
    ck_assert_contains(out.p, "h_bucket{v=\"x\",le=\"0.000025\"} 2\n");
    ck_assert_contains(out.p, "h_bucket{v=\"x\",le=\"0.00005\"} 3\n");
    ck_assert_contains(out.p, "h_bucket{v=\"x\",le=\"5\"} 3\n");
    ck_assert_contains(out.p, "h_bucket{v=\"x\",le=\"15\"} 4\n");
    ck_assert_contains(out.p, "h_bucket{v=\"x\",le=\"+Inf\"} 5\n");
    ck_assert_contains(out.p, "h_sum{v=\"x\"} 30.000050002\n");
    ck_assert_contains(out.p, "h_count{v=\"x\"} 5\n");
    buf_fini(&out);
}

enum { THREADS = 4, EACH = 20000 };

static void *observe(void *h)
{
    for (int i = 0; i < EACH; i++)
        prom_observe(h, i);
    return NULL;
}

TEST(concurrent_observations_are_not_lost)
{
    static struct prom_histogram h;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, observe, &h), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    prom_histogram(&out, "h", NULL, 0, &h);
    ck_assert_contains(out.p, "h_count 80000\n");
    ck_assert_contains(out.p, "h_sum 0.79996\n");
    buf_fini(&out);
}

static double value_of(const char *name)
{
    cleanup_free char *line = xasprintf("\n%s ", name);
    const char *at = strstr(out.p, line);
    ck_assert_msg(at != NULL, "no %s", name);
    return strtod(at + strlen(line), NULL);
}

TEST(process_metrics_are_written)
{
    prom_process(&out);
    promtool_check_metrics(buf_span(&out));
    ck_assert_double_gt(value_of("process_resident_memory_bytes"), 1 << 20);
    ck_assert_double_gt(value_of("process_virtual_memory_bytes"),
                        value_of("process_resident_memory_bytes"));
    ck_assert_double_ge(value_of("process_open_fds"), 3);
    ck_assert_double_ge(value_of("process_max_fds"), value_of("process_open_fds"));
    ck_assert_double_ge(value_of("process_cpu_seconds_total"), 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)now.tv_sec - value_of("process_start_time_seconds");
    ck_assert_msg(age > -5 && age < 300, "it started %f s ago", age);
    buf_fini(&out);
}
