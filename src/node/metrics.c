/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of scv-agent as text. */
#include "node/metrics.h"

#include "base/array.h"
#include "base/mem.h"
#include "base/prom.h"

#define NAME(rest) "scv_agent_" rest

/* -- cards and containers -- */

enum {
    LABELS = 5,
    VALUES = 5,
    SERIES_MAX = 2048, /* of containers, in each family */
};

struct family {
    const char *name, *help;
    bool nano; /* billionths */
};

/* The samples of one card or container: a value for each family; -1: unknown. */
struct row {
    struct prom_label labels[LABELS];
    size_t n_labels;
    int64_t values[VALUES];
};

static void write_rows(const struct family *families, size_t n_families,
                       const struct row *rows, size_t n, struct buf *out)
{
    for (size_t f = 0; f < n_families; f++) {
        prom_family(out, families[f].name, PROM_GAUGE, families[f].help);
        for (size_t i = 0; i < n; i++)
            if (rows[i].values[f] >= 0)
                (families[f].nano ? prom_nano
                                  : prom_sample)(out, families[f].name, rows[i].labels,
                                                 rows[i].n_labels, rows[i].values[f]);
    }
}

/* -1: one of them is unknown. */
static int64_t sum(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : a + b;
}

static int64_t bytes(int64_t mib)
{
    return mib < 0 ? -1 : mib << 20;
}

static struct prom_label card_label(struct arena *a, int32_t index)
{
    return (struct prom_label){"card", span_of(arena_printf(a, "%d", (int)index))};
}

/* The cards of the Scv, and those that were measured. `current`: the last sample is. */
static void write_cards(const struct card_inventory *inv, const struct scv *scv,
                        const struct usage *u, bool current, struct arena *a,
                        struct buf *out)
{
    static const struct family families[] = {
        {.name = NAME("card_healthy"), .help = "Whether a card is Healthy in the Scv."},
        {.name = NAME("card_memory_free_bytes"),
         .help = "Measured free memory of a card."},
        {.name = NAME("card_memory_outside_bytes"),
         .help = "Memory that processes outside Kubernetes use, if any."},
        {.name = "gpushare_card_links_down",
         .help = "NVLinks of a card that are down, if any."},
        {.name = NAME("card_events_watched"),
         .help =
             "Whether XIDs of a card make it Unhealthy: 0 if they cannot be watched."},
    };
    enum { OUTSIDE = 2 };
    size_t n = scv->n_cards + u->n_cards;
    struct row *rows = arena_alloc(a, (n + 1) * sizeof *rows);
    struct row *measured = rows + scv->n_cards;
    int64_t incomplete = 0;
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *c = &scv->cards[i];
        bool has_free = current && (c->healthy || c->free_mib);
        bool links_down = current && c->has_links_down && c->links_down;
        rows[i] = (struct row){{card_label(a, c->id), {"uuid", c->uuid}},
                               2,
                               {current && c->healthy, bytes(has_free ? c->free_mib : -1),
                                -1, links_down ? c->links_down : -1,
                                current ? card_inventory_has_events(inv, i) : -1}};
    }
    for (size_t i = 0; i < u->n_cards; i++) {
        const struct usage_card *c = &u->cards[i];
        incomplete += !c->complete;
        measured[i] = (struct row){
            {card_label(a, c->index), {"uuid", c->uuid}}, 2, {-1, -1, 0, -1, -1}};
    }
    for (size_t i = 0; i < u->n_outside; i++) {
        int64_t *of_card = &measured[u->outside[i].card].values[OUTSIDE];
        *of_card = sum(*of_card, bytes(u->outside[i].used_mib));
    }
    for (size_t i = 0; i < u->n_cards; i++)
        measured[i].values[OUTSIDE] = measured[i].values[OUTSIDE] ?: -1;
    prom_one(out, NAME("cards"), "Cards in the Scv.", (int64_t)scv->n_cards);
    prom_one(out, NAME("cards_usage_incomplete"),
             "Cards with a process that was not measured or not mapped.", incomplete);
    write_rows(families, ARRAY_LEN(families), rows, n, out);
}

static bool has_same_labels(const struct row *a, const struct row *b)
{
    for (size_t i = 0; i < LABELS; i++)
        if (!span_eq(a->labels[i].value, b->labels[i].value))
            return false;
    return true;
}

/* A container that restarts can have two IDs, and the same labels. */
static void write_containers(const struct usage *u, struct arena *a, struct buf *out)
{
    static const struct family families[] = {
        {"gpushare_container_gpu_memory_promised_bytes",
         "Memory of a card that was promised to a container.", false},
        {"gpushare_container_gpu_memory_used_bytes",
         "Memory of a card that a container uses.", false},
        {"gpushare_container_gpu_sm_utilization_ratio",
         "Share of a card's SM time that a container uses.", true},
        {"gpushare_container_gpu_memory_unlimited_bytes",
         "Memory that a container uses without the limit of its pod.", false},
    };
    enum { USED = 1, SM = 2, UNLIMITED = 3, PERCENT = 10 * 1000 * 1000 };
    struct row *rows = arena_alloc(a, (u->n_containers + 1) * sizeof *rows);
    size_t n = 0;
    ARRAY_EACH_ITEM(const struct usage_container, c, u->containers, u->n_containers)
    {
        const struct usage_card *card = &u->cards[c->card];
        const struct row row = {{{"namespace", c->ns},
                                 {"pod", c->pod.n ? c->pod : c->pod_uid},
                                 {"container", c->name},
                                 card_label(a, card->index),
                                 {"uuid", card->uuid}},
                                LABELS,
                                {bytes(c->promised_mib), bytes(c->used_mib),
                                 c->sm_percent < 0 ? -1 : c->sm_percent * PERCENT,
                                 bytes(c->unlimited_mib ?: -1)}};
        if (n && has_same_labels(&rows[n - 1], &row)) { /* a promise is of all of them */
            int64_t *values = rows[n - 1].values;
            if (values[UNLIMITED] < 0)
                values[UNLIMITED] = row.values[UNLIMITED];
            else if (c->unlimited_mib)
                values[UNLIMITED] += row.values[UNLIMITED];
            values[USED] = sum(values[USED], row.values[USED]);
            values[SM] = sum(values[SM], row.values[SM]);
            if (values[SM] > INT64_C(100) * PERCENT)
                values[SM] = INT64_C(100) * PERCENT;
        } else if (n < SERIES_MAX) {
            rows[n++] = row;
        }
    }
    write_rows(families, ARRAY_LEN(families), rows, n, out);
}

void metrics_write_agent(const struct metrics *m, const struct publisher *p,
                         struct step_time now, struct buf *out)
{
    cleanup_arena struct arena a = {0};
    struct scv scv = {0};
    const struct usage none = {0};
    const bool current = publisher_check_driver(p, now, NULL) == 0;
    const struct usage *usage = current ? publisher_usage(p) : &none;
    card_inventory_report(publisher_cards(p), &a, &scv);
    prom_family(out, NAME("build_info"), PROM_GAUGE, "The version of this process.");
    prom_labelled(out, NAME("build_info"), "version", GPUSHARE_VERSION, 1);
    prom_family(out, NAME("healthcheck"), PROM_GAUGE,
                "Whether a check of /healthz passes, by name.");
    for (int check = 0; check < PUBLISHER_CHECKS; check++) {
        const char *name = publisher_check_name(check);
        prom_labelled(out, NAME("healthcheck"), "name", name,
                      publisher_check(p, now, check, NULL, NULL) == 0);
    }
    write_cards(publisher_cards(p), &scv, usage, current, &a, out);
    write_containers(usage, &a, out);
    prom_one(out, NAME("samples_total"), "Successful samples of the cards.", m->samples);
    prom_one(out, NAME("sample_failures_total"), "Failed samples of the cards.",
             m->failed_samples);
    prom_family(out, NAME("api_requests_total"), PROM_COUNTER,
                "Requests to the API server, by result.");
    for (int code = 0; code < METRICS_CODES; code++) {
        const char *result = code == ERR_NONE ? "ok" : err_code_name(code);
        if (m->calls[code] || code == ERR_NONE)
            prom_labelled(out, NAME("api_requests_total"), "code", result,
                          m->calls[code]);
    }
}
