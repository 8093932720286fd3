/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/metrics.h"

#include "agent/fixture.h"
#include "lib/promtool.h"

static struct metrics metrics;
static struct buf text;

static void write_text(void)
{
    buf_clear(&text);
    metrics_write(&metrics, publisher, fixture_now(), &text);
    promtool_check_metrics(buf_span(&text));
}

static void ck_line(const char *line)
{
    cleanup_free char *want = xasprintf("\n%s\n", line);
    ck_assert_msg(strstr(text.p, want) != NULL, "no \"%s\" in %s", line, text.p);
}

START_TEST(the_published_cards_have_metrics)
{
    sampled("{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':1048576,"
            "'temperature':41},{'uuid':'GPU-1','state':'lost','why':'gone'}");
    write_text();
    ck_line("scv_agent_cards 2");
    ck_line("scv_agent_card_healthy{card=\"0\",uuid=\"GPU-0\"} 1");
    ck_line("scv_agent_card_healthy{card=\"1\",uuid=\"GPU-1\"} 0");
    ck_line("scv_agent_card_memory_capacity_bytes{card=\"0\",uuid=\"GPU-0\"} 2097152");
    ck_line("scv_agent_card_memory_free_bytes{card=\"0\",uuid=\"GPU-0\"} 1048576");
    ck_line("scv_agent_card_temperature_celsius{card=\"0\",uuid=\"GPU-0\"} 41");
    ck_assert_ptr_null(strstr(text.p, "temperature_celsius{card=\"1\""));
    ck_line("scv_agent_healthcheck{name=\"cards\"} 1");
}
END_TEST

START_TEST(samples_and_calls_are_counted)
{
    struct err err;
    err_set(&err, ERR_TIMEOUT, "late");
    metrics_input(&metrics, &(struct publisher_input){.type = PUBLISHER_SAMPLED});
    metrics_input(&metrics, &(struct publisher_input){.type = PUBLISHER_SAMPLED});
    metrics_input(&metrics,
                  &(struct publisher_input){.type = PUBLISHER_SAMPLED, .err = &err});
    metrics_input(&metrics, &(struct publisher_input){.type = PUBLISHER_TICK});
    metrics_call(&metrics, PUBLISHER_PATCH_LEASE, ERR_NONE);
    metrics_call(&metrics, PUBLISHER_PATCH, ERR_CONFLICT);
    write_text();
    ck_line("scv_agent_samples_total 2");
    ck_line("scv_agent_sample_failures_total 1");
    ck_line("scv_agent_api_requests_total{call=\"lease-patch\",code=\"ok\"} 1");
    ck_line("scv_agent_api_requests_total{call=\"scv-patch\",code=\"conflict\"} 1");
    ck_line("scv_agent_api_requests_total{call=\"scv-list\",code=\"ok\"} 0");
}
END_TEST

int main(void)
{
    static const struct unit_fixtures around = {.begin = fixture_begin,
                                                .end = fixture_end};
    const TTest *const tests[] = {the_published_cards_have_metrics,
                                  samples_and_calls_are_counted};
    return unit_run_with("metrics", tests, ARRAY_LEN(tests), 60, &around);
}
