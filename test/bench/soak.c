/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/opt.h"
#include "bench/churn.h"
#include "bench/load.h"
#include "bench/series.h"
#include "bench/vitals.h"

/*
 * make soak: runs the extender under churn and faults with constant filter calls. Memory,
 * descriptors and threads must not grow: their values at the end are compared with the
 * maximum of the first half. Filter must stay about as fast as in the quiet phase at the
 * start, and at the end the ledger must match the objects.
 */

enum {
    NODES = 500,
    CARD_MIB = 81920,
    QUIET_MS = 10000,
    TROUBLE_MS = 4000,
    SAMPLE_MS = 5000,
    AGREE_MS = 60000,
    SAMPLES_MAX = 20000,
    FILTERS = 400, /* calls per round */
    SLOWER = 10,   /* allowed slowdown relative to the quiet phase */
};

struct config {
    int64_t ms;
    char *build;
};

#define AT(field) offsetof(struct config, field)
static const struct opt options[] = {
    {.name = "time",
     .arg = "TIME",
     .init = "10m",
     .type = OPT_DURATION,
     .min = 40000, /* long enough for each fault */
     .max = 24 * 3600 * 1000,
     .offset = AT(ms),
     .help = "Duration of the run."},
    {.name = "build",
     .arg = "DIR",
     .init = "build",
     .type = OPT_STRING,
     .offset = AT(build),
     .help = "Folder of the built programs."},
    {0},
};
static const struct opt_program program = {
    .name = "soak",
    .summary = "run the extender under churn and faults",
    .version = GPUSHARE_VERSION,
    .table = options,
};

struct soak {
    const struct config *config;
    struct testbed testbed;
    struct churn *churn;
    atomic_bool quiet, end;
    struct vitals samples[SAMPLES_MAX];
    size_t n_samples;
    /* Used by the filter thread until it has ended. */
    struct series p99[2]; /* of rounds of filter calls, ms; [1]: in the quiet phase */
    size_t filters, filters_failed;
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* -- filter calls -- */

static struct span filter_request(void)
{
    cleanup_buf struct buf body = {0};
    buf_adds(&body,
             "{\"Pod\":{\"metadata\":{\"name\":\"f\",\"namespace\":\"default\","
             "\"uid\":\"f\"},\"spec\":{\"containers\":[{\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"2\"}}}]}},\"NodeNames\":[");
    for (int i = 0; i < NODES; i++)
        buf_printf(&body, "%s\"node-%05d\"", i ? "," : "", i);
    buf_adds(&body, "]}");
    return load_request("POST", "/filter", buf_span(&body));
}

static void *ask_filter(void *arg)
{
    struct soak *s = arg;
    struct span request = filter_request();
    struct load load = {.port = s->testbed.extender.port,
                        .connections = 4,
                        .requests = &request,
                        .n_requests = 1,
                        .calls = FILTERS};
    while (!atomic_load(&s->end)) {
        struct load_result r;
        bool quiet = atomic_load(&s->quiet);
        load_run(&load, &r);
        series_note(&s->p99[quiet], load_quantile(&r, 0.99));
        s->filters += r.calls;
        s->filters_failed += r.failed;
        load_result_fini(&r);
        pause_ms(50);
    }
    free((char *)request.p);
    return NULL;
}

/* -- the churn -- */

static void churn(struct soak *s)
{
    int64_t start = clock_mono_ms(), sampled = start, troubled = start;
    while (clock_mono_ms() - start < s->config->ms) {
        churn_step(s->churn);
        if (clock_mono_ms() - troubled > TROUBLE_MS) {
            churn_trouble(s->churn);
            troubled = clock_mono_ms();
        }
        if (clock_mono_ms() - sampled > SAMPLE_MS && s->n_samples < SAMPLES_MAX) {
            sampled = clock_mono_ms();
            s->samples[s->n_samples++] = vitals_now(&s->testbed.extender);
        }
    }
}

static void run(struct soak *s)
{
    pthread_t asker;
    atomic_store(&s->quiet, true);
    if (pthread_create(&asker, NULL, ask_filter, s))
        abort();
    pause_ms(QUIET_MS);
    atomic_store(&s->quiet, false);
    churn(s);
    atomic_store(&s->end, true);
    pthread_join(asker, NULL);
    churn_settle(s->churn);
}

/* -- the end -- */

static void show_counts(const struct soak *s)
{
    const struct churn_counts *n = churn_counts(s->churn);
    printf("pods %zu, bound %zu, not bound %zu; cards unhealthy %zu, shrunk %zu, "
           "recovered %zu; Nodes "
           "gone %zu, Scvs gone %zu, back %zu\nwatches cut %zu, kube-sim killed %zu, "
           "outages %zu; filter calls %zu, %zu of them refused\n",
           n->created, n->bound, n->refused, n->unhealthy, n->shrunk, n->recovered,
           n->nodes_gone, n->scvs_gone, n->back, n->cuts, n->restarts, n->outages,
           s->filters, s->filters_failed);
}

static bool all_came(const struct churn_counts *n)
{
    return n->unhealthy && n->shrunk && n->recovered && n->nodes_gone && n->scvs_gone &&
           n->back == n->nodes_gone + n->scvs_gone && n->cuts && n->restarts &&
           n->outages;
}

static int judge(struct soak *s)
{
    const struct churn_counts *n = churn_counts(s->churn);
    size_t half = s->n_samples / 2;
    struct vitals a = vitals_peak(s->samples, half);
    struct vitals b = vitals_peak(s->samples + half, s->n_samples - half);
    double quiet = series_quantile(&s->p99[1], 0.5),
           quiet_high = series_quantile(&s->p99[1], 0.99);
    double busy = series_quantile(&s->p99[0], 0.5),
           busy_high = series_quantile(&s->p99[0], 0.99);
    show_counts(s);
    printf("                 first half  second half\n"
           "  resident MiB   %10.1f  %11.1f\n  descriptors    %10u  %11u\n"
           "  threads        %10u  %11u\n",
           a.mib, b.mib, a.fds, b.fds, a.threads, b.threads);
    printf("  filter of %d names, p99 of %d calls: quiet %.2f ms (1 in 100 above %.2f), "
           "then %.2f ms (1 in 100 above %.2f)\n",
           NODES, FILTERS, quiet, quiet_high, busy, busy_high);
    struct {
        const char *what;
        bool ok;
    } checks[] = {
        {"memory is flat", b.mib <= a.mib * 1.05 + 2},
        {"descriptors are flat", b.fds <= a.fds + 4},
        {"threads are flat", b.threads <= a.threads + 4},
        {"all that can happen did", all_came(n)},
        {"pods were bound", n->bound > n->refused},
        {"filter was answered", s->filters > s->filters_failed * 10},
        {"filter is as fast as in the quiet", busy <= SLOWER * quiet + 1},
        {"one round in a hundred, too", busy_high <= SLOWER * (quiet_high + 10)},
        {"ledger and objects agree", testbed_agrees(&s->testbed, AGREE_MS)},
    };
    int failed = 0;
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        printf("  %-4s %s\n", checks[i].ok ? "ok" : "FAIL", checks[i].what);
        failed += !checks[i].ok;
    }
    printf("%d passed, %d failed\n", (int)ARRAY_LEN(checks) - failed, failed);
    return failed;
}

int main(int argc, char **argv)
{
    struct config config = {0};
    struct err err;
    static struct soak s;
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum opt_result r =
        opt_load(&program, &config, argc, argv, (char *[]){NULL}, NULL, stdout, &err);
    if (r == OPT_FAILED)
        fprintf(stderr, "soak: %s\n", err.msg);
    if (r != OPT_RUN)
        return r == OPT_FAILED ? 2 : 0;
    cleanup_free char *what =
        xasprintf("nodes=%d,cards=8,pods=4,full=10,uuid=1,mib=%d", NODES, CARD_MIB);
    s.config = &config;
    testbed_start(&s.testbed, config.build, what, (const char *const[]){NULL});
    server_wait(&s.testbed.extender, "/readyz");
    s.churn = churn_new(&s.testbed, NODES, CARD_MIB);
    run(&s);
    int failed = judge(&s);
    churn_free(s.churn);
    testbed_stop(&s.testbed);
    series_fini(&s.p99[0]);
    series_fini(&s.p99[1]);
    opt_free(&program, &config);
    return failed != 0;
}
