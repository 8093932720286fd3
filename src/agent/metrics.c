/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/metrics.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/prom.h"

#define NAME(rest) "scv_agent_" rest

enum { DIGITS = 12 };

void metrics_input(struct metrics *f, const struct publisher_input *in)
{
    if (in->type != PUBLISHER_SAMPLED)
        return;
    bool failed = in->err && in->err->code != ERR_NONE;
    atomic_fetch_add(failed ? &f->failed_samples : &f->samples, 1);
}

void metrics_call(struct metrics *f, enum publisher_output_type call, enum err_code code)
{
    atomic_fetch_add(&f->calls[call][code], 1);
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

static void write_calls(const struct metrics *f, struct buf *out)
{
    prom_family(out, NAME("api_requests_total"), PROM_COUNTER,
                "Requests to the API server, by how they ended.");
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        for (int code = 0; code < METRICS_CODES; code++) {
            uint64_t n = atomic_load(&f->calls[calls[i].call][code]);
            const char *word =
                code == ERR_NONE ? "ok" : err_code_name((enum err_code)code);
            struct prom_label l[] = {{"call", span_of(calls[i].name)},
                                     {"code", span_of(word)}};
            if (n || code == ERR_NONE)
                prom_sample(out, NAME("api_requests_total"), l, 2, (int64_t)n);
        }
}

static void write_parts(const struct publisher *m, struct publisher_time now,
                        struct buf *out)
{
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "Whether a part of the agent does its work, as /healthz says it.");
    for (int part = 0; part < PUBLISHER_CHECKS; part++) {
        const char *name = publisher_check_name((enum publisher_check)part);
        prom_sample(out, NAME("healthcheck"), &(struct prom_label){"name", span_of(name)},
                    1, publisher_check(m, now, (enum publisher_check)part, NULL) == 0);
    }
}

/* A family of one sample for each card that has it; `metric` < 0: its health. */
static void per_card(const struct card_inventory *cards, const char *name,
                     const char *help, int metric, struct buf *out)
{
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < card_inventory_count(cards); i++) {
        bool healthy;
        const char *why;
        const struct gpu_card *card = card_inventory_card(cards, i, &healthy, &why);
        char index[DIGITS];
        snprintf(index, sizeof index, "%d", card->index);
        struct prom_label l[] = {{"card", span_of(index)}, {"uuid", span_of(card->uuid)}};
        if (metric < 0)
            prom_sample(out, name, l, 2, healthy);
        else if (gpu_knows(card, (enum gpu_metric)metric))
            prom_sample(out, name, l, 2, card->value[metric]);
    }
}

void metrics_write(const struct metrics *f, const struct publisher *m,
                   struct publisher_time now, struct buf *out)
{
    const struct card_inventory *cards = publisher_cards(m);
    prom_family(out, NAME("build_info"), PROM_GAUGE, "Which version this is.");
    prom_sample(out, NAME("build_info"),
                &(struct prom_label){"version", SPAN(GPUSHARE_VERSION)}, 1, 1);
    write_parts(m, now, out);
    prom_one(out, NAME("cards"), PROM_GAUGE, "Cards that are published.",
             (int64_t)card_inventory_count(cards));
    per_card(cards, NAME("card_healthy"), "Whether a card is published as Healthy.", -1,
             out);
    per_card(cards, NAME("card_memory_capacity_bytes"), "Memory of a card.",
             GPU_MEM_TOTAL, out);
    per_card(cards, NAME("card_memory_free_bytes"), "What is free of it, as measured.",
             GPU_MEM_FREE, out);
    per_card(cards, NAME("card_temperature_celsius"), "Temperature of a card.",
             GPU_TEMPERATURE, out);
    prom_one(out, NAME("samples_total"), PROM_COUNTER, "Samples of all cards.",
             (int64_t)atomic_load(&f->samples));
    prom_one(out, NAME("sample_failures_total"), PROM_COUNTER,
             "Samples that could not be taken.",
             (int64_t)atomic_load(&f->failed_samples));
    write_calls(f, out);
}
