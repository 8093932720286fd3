/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "bench/openb_trace.h"
#include "lib/unit.h"
#include "replay/replay.h"

/* What make bench-openb computes without a cluster (test/bench/openb_trace.h). */

static struct buf texts[2];
static struct trace trace;

static void load(const char *nodes, const char *pods)
{
    struct err err = {0};
    trace = (struct trace){0};
    ck_assert_done(trace_nodes(&trace, "nodes", span_of(nodes), &err), err);
    ck_assert_done(trace_pods(&trace, "pods", span_of(pods), &err), err);
}

static void load_small(void)
{
    struct err err = {0};
    ck_assert_done(file_read("test/replay/nodes.csv", 1 << 20, &texts[0], &err), err);
    ck_assert_done(file_read("test/replay/pods.csv", 1 << 20, &texts[1], &err), err);
    load(texts[0].p, texts[1].p);
}

static void unload(void)
{
    trace_fini(&trace);
    buf_fini(&texts[0]);
    buf_fini(&texts[1]);
}

#define NODES "sn,cpu_milli,memory_mib,gpu,model\n"
#define PODS  "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"

START_TEST(each_pod_arrives_once_before_any_arrives_again)
{
    struct openb_arrivals a, again, other;
    load_small();
    openb_arrive(&a, &trace, 42);
    openb_arrive(&again, &trace, 42);
    openb_arrive(&other, &trace, 43);
    ck_assert_uint_eq(a.n, again.n);
    ck_assert_mem_eq(a.pods, again.pods, a.n * sizeof *a.pods);
    ck_assert_mem_ne(a.pods, other.pods, 100 * sizeof *a.pods);
    cleanup_free bool *seen = xcalloc(trace.n_pods, sizeof *seen);
    size_t first_pass = a.n < trace.n_pods ? a.n : trace.n_pods;
    int64_t requested = 0;
    for (size_t i = 0; i < a.n; i++) {
        size_t pod = (size_t)(a.pods[i] - trace.pods);
        ck_assert(i >= first_pass || !seen[pod]);
        seen[pod] = true;
        requested += a.pods[i]->gpu_milli * a.pods[i]->cards;
    }
    /* The load at which alloc100 ends. */
    ck_assert_int_ge(requested * 1000, trace.capacity * 1005);
    free(a.pods);
    free(again.pods);
    free(other.pods);
    unload();
}
END_TEST

START_TEST(the_order_alone_decides_what_the_replay_allocates)
{
    struct openb_arrivals a;
    load_small();
    struct replay_settings settings = {
        .policy = SCORE_FGD, .sees_cpu = true, .first_seed = 42, .seeds = 1};
    struct replay_result want;
    replay_run(&trace, &settings, &want);
    openb_arrive(&a, &trace, 42);
    struct openb_result got = openb_replay(&a, false, 42);
    /* The ties are broken differently, and the pods after the first pass differ. */
    ck_assert_msg(got.alloc100 > want.alloc100 - 3 && got.alloc100 < want.alloc100 + 3,
                  "%.2f instead of %.2f", got.alloc100, want.alloc100);
    ck_assert_double_le(got.first, 100.5);
    free(a.pods);
    unload();
}
END_TEST

START_TEST(the_rate_counts_cards_and_the_first_rejection)
{
    struct openb_arrivals a;
    load(NODES "n,64000,262144,4,A\n", PODS "a,1000,1024,1,1000\nb,1000,1024,0,0\n");
    openb_arrive(&a, &trace, 1);
    cleanup_free bool *placed = xcalloc(a.n, sizeof *placed);
    size_t cards = 0;
    for (size_t i = 0; i < a.n; i++)
        placed[i] = a.pods[i]->cards == 0 || cards++ < 3;
    struct openb_result r = openb_rate(&a, placed);
    ck_assert_double_eq(r.alloc100, 75);
    ck_assert_double_eq(r.first, 100); /* the fourth card is requested */
    ck_assert_uint_eq(r.rejected, cards - 3);
    for (size_t i = 0; i < a.n; i++)
        placed[i] = true;
    r = openb_rate(&a, placed);
    ck_assert_double_eq(r.alloc100, 100);
    ck_assert_uint_eq(r.rejected, 0);
    free(a.pods);
    trace_fini(&trace);
}
END_TEST

START_TEST(a_sum_that_fits_is_not_a_card_that_fits)
{
    struct trace_pod half = {.cards = 1, .gpu_milli = 600},
                     rest = {.cards = 1, .gpu_milli = 400};
    struct trace_pod two = {.cards = 2, .gpu_milli = 1000}, none = {0};
    load(NODES "n,64000,262144,2,A\nempty,64000,262144,0,\n", PODS "a,1,1,0,0\n");
    struct openb_cards *c = openb_cards_new(&trace);
    ck_assert(openb_cards_take(c, SPAN("n"), &half));
    ck_assert(openb_cards_take(c, SPAN("n"), &half));
    ck_assert(!openb_cards_take(c, SPAN("n"), &half)); /* 800 are free, 400 on a card */
    ck_assert(!openb_cards_take(c, SPAN("n"), &two));
    ck_assert(openb_cards_take(c, SPAN("n"), &rest));
    ck_assert(openb_cards_take(c, SPAN("n"), &rest));
    ck_assert(!openb_cards_take(c, SPAN("n"), &rest));
    ck_assert(openb_cards_take(c, SPAN("n"), &none));
    ck_assert(!openb_cards_take(c, SPAN("elsewhere"), &rest));
    ck_assert(openb_cards_take(c, SPAN("elsewhere"), &none));
    openb_cards_free(c);
    trace_fini(&trace);
}
END_TEST

UNIT_MAIN("replay/openb", each_pod_arrives_once_before_any_arrives_again,
          the_order_alone_decides_what_the_replay_allocates,
          the_rate_counts_cards_and_the_first_rejection,
          a_sum_that_fits_is_not_a_card_that_fits)
