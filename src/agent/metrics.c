/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/metrics.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/prom.h"

#define NAME(rest) "scv_agent_" rest

enum { DIGITS = 12 };

void metrics_input(struct metrics *m, const struct publisher_input *in)
{
    if (in->type != PUBLISHER_SAMPLED)
        return;
    bool failed = in->err && in->err->code != ERR_NONE;
    atomic_fetch_add(failed ? &m->failed_samples : &m->samples, 1);
}

void metrics_call(struct metrics *m, enum publisher_output_type call, enum err_code code)
{
    atomic_fetch_add(&m->calls[call][code], 1);
}

static const struct {
    enum publisher_output_type call;
    const char *name;
} calls[] = {
    {PUBLISHER_LIST, "scv-list"},
    {PUBLISHER_CREATE, "scv-create"},
    {PUBLISHER_PATCH, "scv-patch"},
    {PUBLISHER_GET_NODE, "node-get"},
    {PUBLISHER_CREATE_LEASE, "lease-create"},
    {PUBLISHER_PATCH_LEASE, "lease-patch"},
};

static void write_calls(const struct metrics *m, struct buf *out)
{
    prom_family(out, NAME("api_requests_total"), PROM_COUNTER,
                "Requests to the API server, by call and result.");
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        for (int code = 0; code < METRICS_CODES; code++) {
            uint64_t n = atomic_load(&m->calls[calls[i].call][code]);
            const char *result =
                code == ERR_NONE ? "ok" : err_code_name((enum err_code)code);
            struct prom_label l[] = {{"call", span_of(calls[i].name)},
                                     {"code", span_of(result)}};
            if (n || code == ERR_NONE)
                prom_sample(out, NAME("api_requests_total"), l, 2, (int64_t)n);
        }
}

static void write_checks(const struct publisher *p, struct publisher_time now,
                         struct buf *out)
{
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "Whether a check of /healthz passes, by name.");
    for (int check = 0; check < PUBLISHER_CHECKS; check++) {
        const char *name = publisher_check_name((enum publisher_check)check);
        prom_sample(out, NAME("healthcheck"), &(struct prom_label){"name", span_of(name)},
                    1, publisher_check(p, now, (enum publisher_check)check, NULL) == 0);
    }
}

/* A family with one sample per card that has the metric; `metric` < 0: its health. */
static void write_per_card(const struct card_inventory *cards, const char *name,
                           const char *help, int metric, struct buf *out)
{
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < card_inventory_count(cards); i++) {
        bool healthy;
        const char *reason;
        const struct gpu_card *card = card_inventory_card(cards, i, &healthy, &reason);
        char index[DIGITS];
        snprintf(index, sizeof index, "%d", card->index);
        struct prom_label l[] = {{"card", span_of(index)}, {"uuid", span_of(card->uuid)}};
        if (metric < 0)
            prom_sample(out, name, l, 2, healthy);
        else if (gpu_knows(card, (enum gpu_metric)metric))
            prom_sample(out, name, l, 2, card->value[metric]);
    }
}

void metrics_write(const struct metrics *m, const struct publisher *p,
                   struct publisher_time now, struct buf *out)
{
    const struct card_inventory *cards = publisher_cards(p);
    prom_family(out, NAME("build_info"), PROM_GAUGE, "The version of this process.");
    prom_sample(out, NAME("build_info"),
                &(struct prom_label){"version", SPAN(GPUSHARE_VERSION)}, 1, 1);
    write_checks(p, now, out);
    prom_one(out, NAME("cards"), PROM_GAUGE, "Cards in the Scv.",
             (int64_t)card_inventory_count(cards));
    write_per_card(cards, NAME("card_healthy"), "Whether a card is Healthy in the Scv.",
                   -1, out);
    write_per_card(cards, NAME("card_memory_capacity_bytes"), "Memory size of a card.",
                   GPU_MEM_TOTAL, out);
    write_per_card(cards, NAME("card_memory_free_bytes"),
                   "Measured free memory of a card.", GPU_MEM_FREE, out);
    write_per_card(cards, NAME("card_temperature_celsius"), "Temperature of a card.",
                   GPU_TEMPERATURE, out);
    prom_one(out, NAME("samples_total"), PROM_COUNTER, "Successful samples of the cards.",
             (int64_t)atomic_load(&m->samples));
    prom_one(out, NAME("sample_failures_total"), PROM_COUNTER,
             "Failed samples of the cards.", (int64_t)atomic_load(&m->failed_samples));
    write_calls(m, out);
}
