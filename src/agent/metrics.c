/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of scv-agent as text. */
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

static void write_checks(const struct publisher *p, struct step_time now, struct buf *out)
{
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "Whether a check of /healthz passes, by name.");
    for (int check = 0; check < PUBLISHER_CHECKS; check++) {
        const char *name = publisher_check_name((enum publisher_check)check);
        prom_sample(out, NAME("healthcheck"), &(struct prom_label){"name", span_of(name)},
                    1, publisher_check(p, now, (enum publisher_check)check, NULL) == 0);
    }
}

static void write_card_sample(struct buf *out, const char *name, int index,
                              struct span uuid, int64_t value)
{
    char text[DIGITS];
    snprintf(text, sizeof text, "%d", index);
    const struct prom_label l[] = {{"card", span_of(text)}, {"uuid", uuid}};
    prom_sample(out, name, l, ARRAY_LEN(l), value);
}

static void write_cards(const struct card_inventory *cards, struct buf *out)
{
    enum { HEALTH = -1 };
    static const struct {
        const char *name, *help;
        int metric;
    } families[] = {
        {NAME("card_healthy"), "Whether a card is Healthy in the Scv.", HEALTH},
        {NAME("card_memory_capacity_bytes"), "Memory size of a card.", GPU_MEM_TOTAL},
        {NAME("card_memory_free_bytes"), "Measured free memory of a card.", GPU_MEM_FREE},
        {NAME("card_temperature_celsius"), "Temperature of a card.", GPU_TEMPERATURE},
    };
    prom_one(out, NAME("cards"), PROM_GAUGE, "Cards in the Scv.",
             (int64_t)card_inventory_count(cards));
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        prom_family(out, families[f].name, PROM_GAUGE, families[f].help);
        for (size_t i = 0; i < card_inventory_count(cards); i++) {
            bool healthy;
            const char *reason;
            const struct gpu_card *c = card_inventory_card(cards, i, &healthy, &reason);
            int m = families[f].metric;
            if (m == HEALTH || gpu_knows(c, (enum gpu_metric)m))
                write_card_sample(out, families[f].name, c->index, span_of(c->uuid),
                                  m == HEALTH ? healthy : c->value[m]);
        }
    }
}

/* -- what containers use -- */

enum { CONTAINERS_MAX = 2048 }; /* series of each family */

static struct span pod_label(const struct usage_container *c)
{
    return c->pod.n ? c->pod : c->pod_uid; /* its name is unknown */
}

/* Whether both have the same labels: a container that restarts can have two IDs. */
static bool is_same_series(const struct usage_container *a,
                           const struct usage_container *b)
{
    return a->card == b->card && span_eq(a->ns, b->ns) &&
           span_eq(pod_label(a), pod_label(b)) && span_eq(a->name, b->name);
}

enum usage_family { USED, PROMISED, SM };

static int64_t value_of(const struct usage_container *c, enum usage_family family)
{
    return family == USED       ? c->used_mib
           : family == PROMISED ? c->promised_mib
                                : c->sm_percent;
}

/* The sum of the containers of one series; a promise is of all of them. */
static int64_t sum_of(const struct usage_container *c, size_t n, enum usage_family family)
{
    int64_t sum = value_of(c, family);
    for (size_t i = 1; i < n && family != PROMISED; i++) {
        int64_t v = value_of(&c[i], family);
        sum = sum < 0 || v < 0 ? -1 : sum + v;
    }
    return family == SM && sum > 100 ? 100 : sum;
}

static void write_container(const struct usage *u, const struct usage_container *c,
                            size_t n, enum usage_family family, const char *name,
                            struct buf *out)
{
    const struct usage_card *card = &u->cards[c->card];
    int64_t v = sum_of(c, n, family);
    char index[DIGITS];
    snprintf(index, sizeof index, "%d", card->index);
    struct prom_label l[] = {{"namespace", c->ns},
                             {"pod", pod_label(c)},
                             {"container", c->name},
                             {"card", span_of(index)},
                             {"uuid", card->uuid}};
    if (v >= 0 && family == SM)
        prom_nano(out, name, l, ARRAY_LEN(l), v * 10000000); /* percent */
    else if (v >= 0)
        prom_sample(out, name, l, ARRAY_LEN(l), v << 20);
}

static void write_containers(const struct usage *u, enum usage_family family,
                             const char *name, const char *help, struct buf *out)
{
    size_t n, series = 0;
    prom_family(out, name, PROM_GAUGE, help);
    for (size_t i = 0; i < u->n_containers && series++ < CONTAINERS_MAX; i += n) {
        for (n = 1; i + n < u->n_containers &&
                    is_same_series(&u->containers[i], &u->containers[i + n]);
             n++) {
        }
        write_container(u, &u->containers[i], n, family, name, out);
    }
}

/* The memory of processes outside Kubernetes; -1: one of them is unknown. */
static int64_t outside_mib(const struct usage *u, size_t card)
{
    int64_t sum = 0;
    for (size_t i = 0; i < u->n_outside; i++)
        if (u->outside[i].card == card)
            sum =
                sum < 0 || u->outside[i].used_mib < 0 ? -1 : sum + u->outside[i].used_mib;
    return sum;
}

static void write_usage(const struct usage *u, struct buf *out)
{
    static const char outside[] = NAME("card_memory_outside_bytes");
    static const char complete[] = NAME("card_usage_complete");
    write_containers(u, PROMISED, "gpushare_container_gpu_memory_promised_bytes",
                     "Memory of a card that was promised to a container.", out);
    write_containers(u, USED, "gpushare_container_gpu_memory_used_bytes",
                     "Memory of a card that a container uses.", out);
    write_containers(u, SM, "gpushare_container_gpu_sm_utilization_ratio",
                     "Share of a card's SM time that a container uses.", out);
    prom_family(out, outside, PROM_GAUGE,
                "Memory that processes outside Kubernetes use.");
    for (size_t i = 0; i < u->n_cards; i++) {
        int64_t mib = outside_mib(u, i);
        if (mib >= 0)
            write_card_sample(out, outside, u->cards[i].index, u->cards[i].uuid,
                              mib << 20);
    }
    prom_family(out, complete, PROM_GAUGE,
                "Whether every process of a card was measured and mapped.");
    for (size_t i = 0; i < u->n_cards; i++)
        write_card_sample(out, complete, u->cards[i].index, u->cards[i].uuid,
                          u->cards[i].complete);
}

void metrics_write_agent(const struct metrics *m, const struct publisher *p,
                         struct step_time now, struct buf *out)
{
    prom_family(out, NAME("build_info"), PROM_GAUGE, "The version of this process.");
    prom_sample(out, NAME("build_info"),
                &(struct prom_label){"version", SPAN(GPUSHARE_VERSION)}, 1, 1);
    write_checks(p, now, out);
    write_cards(publisher_cards(p), out);
    write_usage(publisher_usage(p), out);
    prom_one(out, NAME("samples_total"), PROM_COUNTER, "Successful samples of the cards.",
             (int64_t)atomic_load(&m->samples));
    prom_one(out, NAME("sample_failures_total"), PROM_COUNTER,
             "Failed samples of the cards.", (int64_t)atomic_load(&m->failed_samples));
    write_calls(m, out);
}
