/* SPDX-License-Identifier: Apache-2.0 */
#include "node/metrics.h"

#include "lib/promtool.h"
#include "lib/temp.h"
#include "node/fixture.h"

static struct metrics metrics;
static struct buf text;

static void write_text(void)
{
    buf_clear(&text);
    metrics_write_agent(&metrics, publisher, fixture_now(), &text);
    promtool_check_metrics(buf_span(&text));
}

static void ck_line(const char *line)
{
    cleanup_free char *want = xasprintf("\n%s\n", line);
    ck_assert_msg(strstr(text.p, want) != NULL, "no \"%s\" in %s", line, text.p);
}

TEST(the_published_cards_have_metrics)
{
    sampled("{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':1048576,"
            "'temperature':41},{'uuid':'GPU-1','state':'lost','why':'gone'}");
    write_text();
    ck_line("scv_agent_cards 2");
    ck_line("scv_agent_card_healthy{card=\"0\",uuid=\"GPU-0\"} 1");
    ck_line("scv_agent_card_healthy{card=\"1\",uuid=\"GPU-1\"} 0");
    ck_line("scv_agent_card_memory_free_bytes{card=\"0\",uuid=\"GPU-0\"} 1048576");
    ck_line("scv_agent_healthcheck{name=\"cards\"} 1");
}

TEST(events_that_are_not_watched_have_a_metric)
{
    const struct gpu_sample *s = sample_of(
        "{'uuid':'GPU-0','memoryTotal':2097152},{'uuid':'GPU-1','memoryTotal':2097152}");
    s->cards[0].events = true;
    step((struct publisher_input){.type = PUBLISHER_SAMPLED, .sample = s});
    write_text();
    ck_line("scv_agent_card_events_watched{card=\"0\",uuid=\"GPU-0\"} 1");
    ck_line("scv_agent_card_events_watched{card=\"1\",uuid=\"GPU-1\"} 0");
}

/* Between the limit and the next tick, which makes the cards Unhealthy. */
TEST(a_stale_sample_is_not_shown)
{
    sampled("{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':1048576}");
    now_ms += 31001;
    write_text();
    ck_line("scv_agent_card_healthy{card=\"0\",uuid=\"GPU-0\"} 0");
    ck_line("scv_agent_healthcheck{name=\"cards\"} 0");
    ck_assert_lacks(text.p, "free_bytes{");
}

TEST(samples_and_calls_are_counted)
{
    metrics.samples = 2;
    metrics.failed_samples = 1;
    metrics.calls[ERR_NONE] = 1;
    metrics.calls[ERR_CONFLICT] = 1;
    write_text();
    ck_line("scv_agent_samples_total 2");
    ck_line("scv_agent_sample_failures_total 1");
    ck_line("scv_agent_api_requests_total{code=\"ok\"} 1");
    ck_line("scv_agent_api_requests_total{code=\"conflict\"} 1");
}

/* The time of links.c; linked with --wrap=clock_mono_ms (test/rules.mk). */
static int64_t clock_ms;
int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return clock_ms;
}

/* The metrics with these cards of the fake NVML (test/gpu/fake_nvml.c), `ms` later. */
static struct gpu *gpu;
static char *dir;
static void later(int64_t ms, const char *cards)
{
    static struct gpu_sample sample;
    struct err err;
    clock_ms += ms;
    temp_write(dir, "script", cards);
    ck_assert_done(gpu_sample(gpu, &sample, &err), err);
    step((struct publisher_input){.type = PUBLISHER_SAMPLED, .sample = &sample});
    gpu_sample_fini(&sample);
    write_text();
}

TEST(links_that_are_down_are_counted_every_ten_minutes)
{
#define LINKED(bus, more)                                                                \
    "card uuid=GPU-" bus ";bus=" bus ";total=1000;free=1000;path=0,10;" more "\n"
#define ALL_UP   LINKED("1a", "links=2:1b") LINKED("1b", "links=2:1a")
#define ONE_DOWN LINKED("1a", "links=1:1b,1:down") LINKED("1b", "links=1:1a,1:down")
#define DOWN(n)  "gpushare_card_links_down{card=\"0\",uuid=\"GPU-1a\"} " #n
    enum { TEN_MINUTES = 600000 };
    const char *build = getenv("GPUSHARE_BUILD");
    cleanup_free char *library =
        xasprintf("%s/fake-nvml/libnvidia-ml.so.1", build ? build : "build");
    dir = temp_dir();
    cleanup_free char *script = temp_path(dir, "script");
    setenv("FAKE_NVML", script, 1);
    gpu = gpu_nvml_new(library, 0);
    later(1, ALL_UP);
    ck_assert_lacks(text.p, "links_down{");
    later(TEN_MINUTES - 1, ONE_DOWN);
    ck_assert_lacks(text.p, "links_down{");
    later(1, ONE_DOWN);
    ck_line(DOWN(1));
    ck_line("gpushare_card_links_down{card=\"1\",uuid=\"GPU-1b\"} 1");
    later(TEN_MINUTES, ALL_UP);
    ck_assert_lacks(text.p, "links_down{");
    later(1, LINKED("1a", "links=2:down") LINKED("1b", "open=15"));
    ck_assert_lacks(text.p, "links_down{");
    later(1, LINKED("1a", "links=2:down") LINKED("1b", "links=2:down"));
    ck_line(DOWN(2)); /* read when the card returned */
    gpu_free(gpu);
    temp_dir_remove(dir);
    free(dir);
}

static void used(struct usage_container *containers, size_t n,
                 struct usage_process *outside, size_t n_outside)
{
    static struct usage_card cards[] = {
        {.index = 2, .uuid = SPAN("GPU-2"), .complete = true},
        {.index = 3, .uuid = SPAN("GPU-3")}};
    struct usage usage = {.cards = cards,
                          .n_cards = 2,
                          .containers = containers,
                          .n_containers = n,
                          .outside = outside,
                          .n_outside = n_outside};
    step((struct publisher_input){.type = PUBLISHER_USAGE, .usage = &usage});
    write_text();
}

TEST(what_containers_use)
{
#define OF(card, uid, id, ns, pod, name, used, sm, promised)                             \
    {                                                                                    \
        card, SPAN(uid), SPAN(id), SPAN(ns), SPAN(pod), SPAN(name), used, sm, promised,  \
            .init = false                                                                \
    }
    struct usage_container c[] = {
        OF(0, "u", "c1", "", "", "", 5, 1, -1),
        OF(0, "u", "c2", "", "", "", 6, 1, -1),
        OF(0, "v", "c3", "n", "p", "c", 10, 60, 20),
        OF(0, "v", "c4", "n", "p", "c", 3, 70, 20),
        OF(1, "v", "c4", "n", "p", "c", -1, 7, 0),
    };
    struct usage_process outside[] = {
        {.card = 0, .used_mib = 2},
        {.card = 0, .used_mib = 3},
        {.card = 1, .used_mib = -1},
        {.card = 1, .pid.pid = 7, .unmapped = true, .name = "python", .used_mib = 4}};
    c[3].unlimited_mib = 2;
    used(c, ARRAY_LEN(c), outside, ARRAY_LEN(outside));
#define OF_P(card) "{namespace=\"n\",pod=\"p\",container=\"c\"," card "} "
#define CARD_2     "card=\"2\",uuid=\"GPU-2\""
#define CARD_3     "card=\"3\",uuid=\"GPU-3\""
    ck_line("gpushare_container_gpu_memory_used_bytes" OF_P(CARD_2) "13631488");
    ck_line("gpushare_container_gpu_memory_promised_bytes" OF_P(CARD_2) "20971520");
    ck_line("gpushare_container_gpu_sm_utilization_ratio" OF_P(CARD_2) "1");
    ck_line("gpushare_container_gpu_sm_utilization_ratio" OF_P(CARD_3) "0.07");
    ck_line("gpushare_container_gpu_memory_promised_bytes" OF_P(CARD_3) "0");
    ck_line("gpushare_container_gpu_memory_unlimited_bytes" OF_P(CARD_2) "2097152");
    ck_assert_lacks(text.p, "memory_used_bytes" OF_P(CARD_3));
    ck_line("gpushare_container_gpu_memory_used_bytes{namespace=\"\",pod=\"u\","
            "container=\"\"," CARD_2 "} 11534336");
    ck_line("scv_agent_card_memory_outside_bytes{" CARD_2 "} 5242880");
    ck_assert_lacks(text.p, "memory_outside_bytes{" CARD_3);
    ck_line("scv_agent_cards_usage_incomplete 1");
}

static size_t lines_with(const char *word)
{
    size_t lines = 0;
    for (const char *at = text.p; (at = strstr(at, word)) != NULL; at++)
        lines++;
    return lines;
}

/* Somebody who starts thousands of containers does not fill Prometheus. */
TEST(the_number_of_series_is_bounded)
{
    enum { N = 5000 };
    struct usage_container *c = xcalloc(N, sizeof *c);
    char(*names)[8] = xcalloc(N, sizeof *names);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "p%04d", i);
        c[i] = (struct usage_container){.ns = SPAN("n"), .pod = span_of(names[i])};
    }
    used(c, N, NULL, 0);
    ck_assert_uint_eq(lines_with("_memory_used_bytes{"), 2048);
    free(names);
    free(c);
}

/* A node of 8 cards with two containers on each (docs/metrics.md, "Series"). */
TEST(nine_series_per_card)
{
    enum { CARDS = 8, PER_CARD = 9 };
    struct usage_card cards[CARDS] = {{0}};
    struct usage_container c[2 * CARDS];
    cleanup_buf struct buf list = {0};
    for (int i = 0; i < CARDS; i++) {
        buf_printf(&list,
                   "%s{'uuid':'GPU-%d','memoryTotal':2097152,'memoryFree':1048576,"
                   "'temperature':41}",
                   i ? "," : "", i);
        cards[i] = (struct usage_card){.index = i, .uuid = SPAN("GPU"), .complete = true};
        for (int k = 0; k < 2; k++)
            c[2 * i + k] = (struct usage_container){.card = (uint32_t)i,
                                                    .ns = SPAN("n"),
                                                    .pod = k ? SPAN("p") : SPAN("q"),
                                                    .name = SPAN("c"),
                                                    .used_mib = 5,
                                                    .sm_percent = 1,
                                                    .promised_mib = 6};
    }
    struct usage usage = {
        .cards = cards, .n_cards = CARDS, .containers = c, .n_containers = 2 * CARDS};
    sampled(list.p);
    step((struct publisher_input){.type = PUBLISHER_USAGE, .usage = &usage});
    write_text();
    ck_assert_uint_eq(lines_with("card=\""), CARDS * PER_CARD);
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
