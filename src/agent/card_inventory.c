/* SPDX-License-Identifier: Apache-2.0 */
/* Matches the cards of each sample with those that the Scv has. */
#include "agent/card_inventory.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/node_scv.h"
#include "base/mem.h"

struct item {
    struct gpu_card card; /* as published; without processes */
    struct card_health health;
    bool present;         /* in the last sample */
    bool unhealthy_shown; /* by card_inventory_changed */
    int64_t
        missing_since_ms; /* samples succeed without the card since then; -1: present */
};

struct card_inventory {
    struct card_inventory_settings settings;
    struct item items[GPU_MAX_CARDS];
    size_t n;
    uint64_t mig;             /* bit i: card i is left out */
    char failure[300];        /* of the last sample; empty: it succeeded */
    bool sampled;             /* at least one sample succeeded */
    int64_t failing_since_ms; /* -1: the last sample succeeded */
    struct gpu_card shown[GPU_MAX_CARDS];
    struct gpu_sample sample; /* of `shown` */
};

#define NOT_LISTED "NVML no longer lists the card"

struct card_inventory *card_inventory_new(const struct card_inventory_settings *settings)
{
    struct card_inventory *inv = xcalloc(1, sizeof *inv);
    inv->settings = *settings;
    inv->failing_since_ms = -1;
    inv->sample.cards = inv->shown;
    return inv;
}

void card_inventory_free(struct card_inventory *inv)
{
    free(inv);
}

/* -- lookup -- */

typedef bool (*same_fn)(const struct gpu_card *a, const struct gpu_card *b);

static bool same_uuid(const struct gpu_card *a, const struct gpu_card *b)
{
    return a->uuid[0] && strcmp(a->uuid, b->uuid) == 0;
}

/* A card that cannot be opened has no UUID in the sample: its index identifies it. */
static bool same_index(const struct gpu_card *a, const struct gpu_card *b)
{
    return (!a->uuid[0] || !b->uuid[0]) && a->index == b->index;
}

/* An item that no card of the sample was matched with yet. */
static struct item *find_item(struct card_inventory *inv, const struct gpu_card *g,
                              same_fn same)
{
    for (size_t i = 0; i < inv->n; i++)
        if (!inv->items[i].present && same(&inv->items[i].card, g))
            return &inv->items[i];
    return NULL;
}

static void drop_item(struct card_inventory *inv, struct item *item)
{
    size_t i = (size_t)(item - inv->items);
    memmove(item, item + 1, (inv->n - i - 1) * sizeof *item);
    inv->n--;
}

/* In a full list, the card that is missing for longest is replaced. */
static struct item *add_item(struct card_inventory *inv, const struct gpu_card *g)
{
    struct item *oldest = NULL;
    for (size_t i = 0; i < inv->n; i++)
        if (!inv->items[i].present &&
            (!oldest || inv->items[i].missing_since_ms < oldest->missing_since_ms))
            oldest = &inv->items[i];
    if (inv->n == GPU_MAX_CARDS && oldest)
        drop_item(inv, oldest);
    if (inv->n == GPU_MAX_CARDS)
        return NULL;
    struct item *item = &inv->items[inv->n++];
    *item = (struct item){.card = *g, .missing_since_ms = -1};
    return item;
}

/* -- one card -- */

static void mark_lost(struct card_inventory *inv, struct item *item, int64_t now_ms,
                      const char *reason)
{
    item->card.state = GPU_LOST;
    snprintf(item->card.why, sizeof item->card.why, "%s", reason);
    card_health_sample(&item->health, &inv->settings.health, now_ms, CARD_HEALTH_FAILED,
                       reason);
    item->card.known &= ~(1u << GPU_MEM_FREE | 1u << GPU_MEM_USED |
                          1u << GPU_UTILIZATION | 1u << GPU_TEMPERATURE);
}

/* Keeps constant properties that a failed card does not report. */
static void keep_known(struct gpu_card *to, const struct gpu_card *from)
{
    static const enum gpu_metric fixed[] = {GPU_MEM_TOTAL,      GPU_CLOCK_SM_MAX,
                                            GPU_CLOCK_MEM_MAX,  GPU_PCIE_GEN_MAX,
                                            GPU_PCIE_WIDTH_MAX, GPU_POWER_LIMIT};
    if (!to->uuid[0])
        memcpy(to->uuid, from->uuid, sizeof to->uuid);
    if (!to->model[0])
        memcpy(to->model, from->model, sizeof to->model);
    if (!to->bus_id[0])
        memcpy(to->bus_id, from->bus_id, sizeof to->bus_id);
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        if (gpu_knows(to, fixed[i]) || !gpu_knows(from, fixed[i]))
            continue;
        to->known |= 1u << fixed[i];
        to->value[fixed[i]] = from->value[fixed[i]];
    }
}

static void update(const struct card_inventory *inv, struct item *item, int64_t now_ms,
                   const struct gpu_card *g)
{
    const char *reason;
    enum card_health_reading reading = card_health_read(g, &reason);
    item->present = true;
    item->missing_since_ms = -1;
    card_health_sample(&item->health, &inv->settings.health, now_ms, reading, reason);
    if (item->health.tolerated) {
        item->card.index = g->index;
        return;
    }
    struct gpu_card card = *g;
    if (g->state != GPU_OK)
        keep_known(&card, &item->card);
    item->card = card;
    item->card.processes = NULL;
    item->card.n_processes = 0;
}

/* -- all of them -- */

static bool has_index(const struct card_inventory *inv, const struct item *by_other,
                      int32_t index)
{
    for (size_t i = 0; i < inv->n; i++)
        if (&inv->items[i] != by_other && inv->items[i].card.index == index)
            return true;
    return false;
}

static int by_index(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    return a->card.index < b->card.index ? -1 : a->card.index > b->card.index;
}

static void settle_indexes(struct card_inventory *inv)
{
    for (size_t i = 0; i < inv->n; i++) {
        struct item *item = &inv->items[i];
        if (item->present || !has_index(inv, item, item->card.index))
            continue;
        for (item->card.index = 0; has_index(inv, item, item->card.index);)
            item->card.index++;
    }
    qsort(inv->items, inv->n, sizeof *inv->items, by_index);
}

static void publish(struct card_inventory *inv)
{
    settle_indexes(inv);
    for (size_t i = 0; i < inv->n; i++)
        inv->shown[i] = inv->items[i].card;
    inv->sample.n_cards = inv->n;
}

static void match_card(struct card_inventory *inv, int64_t now_ms,
                       const struct gpu_card *g, same_fn same, bool last_chance)
{
    struct item *item = find_item(inv, g, same);
    if (g->state == GPU_MIG) {
        if (item)
            drop_item(inv, item);
        if (g->index >= 0 && g->index < 64)
            inv->mig |= 1ull << g->index;
        return;
    }
    if (!item && last_chance)
        item = add_item(inv, g);
    if (item)
        update(inv, item, now_ms, g);
}

static bool is_known(const struct card_inventory *inv, const struct gpu_card *g)
{
    for (size_t i = 0; i < inv->n; i++)
        if (inv->items[i].present && same_uuid(&inv->items[i].card, g))
            return true;
    return false;
}

static void mark_missing(struct card_inventory *inv, int64_t now_ms)
{
    for (size_t i = inv->n; i-- > 0;) {
        struct item *item = &inv->items[i];
        if (item->present)
            continue;
        if (item->missing_since_ms < 0)
            item->missing_since_ms = now_ms;
        if (now_ms - item->missing_since_ms >= inv->settings.keep_lost_ms)
            drop_item(inv, item);
        else
            mark_lost(inv, item, now_ms, NOT_LISTED);
    }
}

void card_inventory_sample(struct card_inventory *inv, int64_t now_ms,
                           const struct gpu_sample *s)
{
    inv->mig = 0;
    inv->sampled = true;
    inv->failure[0] = '\0';
    inv->failing_since_ms = -1;
    memcpy(inv->sample.driver, s->driver, sizeof s->driver);
    memcpy(inv->sample.cuda, s->cuda, sizeof s->cuda);
    for (size_t i = 0; i < inv->n; i++)
        inv->items[i].present = false;
    for (size_t i = 0; i < s->n_cards; i++)
        match_card(inv, now_ms, &s->cards[i], same_uuid, false);
    for (size_t i = 0; i < s->n_cards; i++)
        if (!is_known(inv, &s->cards[i]))
            match_card(inv, now_ms, &s->cards[i], same_index, true);
    mark_missing(inv, now_ms);
    publish(inv);
}

void card_inventory_failed(struct card_inventory *inv, int64_t now_ms, const char *reason,
                           bool at_once)
{
    if (inv->failing_since_ms < 0)
        inv->failing_since_ms = now_ms;
    if (!at_once && inv->n &&
        card_health_tolerates(&inv->settings.health, inv->failing_since_ms, now_ms))
        return;
    snprintf(inv->failure, sizeof inv->failure, "%s", reason);
    for (size_t i = 0; i < inv->n; i++)
        mark_lost(inv, &inv->items[i], now_ms, reason);
    publish(inv);
}

bool card_inventory_event(struct card_inventory *inv, int64_t now_ms,
                          const struct gpu_event *event)
{
    struct card_health_target cards[GPU_MAX_CARDS];
    for (size_t i = 0; i < inv->n; i++)
        cards[i] =
            (struct card_health_target){&inv->items[i].health, inv->items[i].card.uuid,
                                        inv->items[i].card.index, inv->items[i].present};
    return card_health_event(cards, inv->n, now_ms, event);
}

/* -- the Scv of the previous process -- */

static void set_metric(struct gpu_card *g, enum gpu_metric m, int64_t value)
{
    if (value <= 0)
        return;
    g->known |= 1u << m;
    g->value[m] = value;
}

/* Any link with this bandwidth. */
static void set_link(struct gpu_card *g, int64_t bandwidth)
{
    for (int64_t generation = 6; bandwidth && generation > 0; generation--)
        for (int64_t lanes = 1; lanes <= 32; lanes *= 2)
            if (scv_bandwidth(generation, lanes) == bandwidth) {
                set_metric(g, GPU_PCIE_GEN_MAX, generation);
                set_metric(g, GPU_PCIE_WIDTH_MAX, lanes);
                return;
            }
}

static void text(char *out, size_t size, struct span s)
{
    snprintf(out, size, "%.*s", SPAN_ARG(s));
}

static struct gpu_card card_of(const struct scv_card *c)
{
    struct gpu_card g = {.index = c->id, .state = GPU_OK};
    text(g.uuid, sizeof g.uuid, c->uuid);
    text(g.model, sizeof g.model, c->model);
    set_metric(&g, GPU_MEM_TOTAL, c->total_mib << 20);
    set_metric(&g, GPU_MEM_FREE, c->free_mib << 20);
    set_metric(&g, GPU_POWER_LIMIT, c->spec.power_w * 1000);
    set_metric(&g, GPU_CLOCK_MEM_MAX, c->spec.clock_mhz);
    set_metric(&g, GPU_CLOCK_SM_MAX, c->spec.sm_clock_mhz);
    set_link(&g, c->spec.bandwidth);
    text(g.bus_id, sizeof g.bus_id, c->bus_id);
    return g;
}

static struct item *find_published(struct card_inventory *inv, const struct gpu_card *g)
{
    for (size_t i = 0; i < inv->n; i++)
        if (same_uuid(&inv->items[i].card, g) || same_index(&inv->items[i].card, g))
            return &inv->items[i];
    return NULL;
}

void card_inventory_adopt(struct card_inventory *inv, int64_t now_ms,
                          const struct scv *scv)
{
    for (size_t i = 0; i < scv->n_cards; i++) {
        struct gpu_card g = card_of(&scv->cards[i]);
        if (g.index >= GPU_MAX_CARDS)
            continue;
        struct item *item = find_published(inv, &g);
        if (!item && !(inv->mig >> g.index & 1)) {
            item = add_item(inv, &g);
            if (item && inv->sampled) {
                item->missing_since_ms = now_ms;
                mark_lost(inv, item, now_ms, NOT_LISTED);
            }
        }
        if (item && !inv->sampled && !item->health.sampled)
            card_health_sample(&item->health, &inv->settings.health, now_ms,
                               CARD_HEALTH_GOOD, NULL);
        if (item && !scv->cards[i].healthy)
            card_health_sample(&item->health, &inv->settings.health, now_ms,
                               CARD_HEALTH_FAILED, "unhealthy before scv-agent started");
    }
    publish(inv);
}

/* -- reading -- */

size_t card_inventory_count(const struct card_inventory *inv)
{
    return inv->n;
}

const struct gpu_card *card_inventory_card(const struct card_inventory *inv, size_t i,
                                           bool *healthy, const char **reason)
{
    *healthy = inv->items[i].health.healthy;
    *reason = inv->items[i].health.reason;
    return &inv->shown[i];
}

const struct gpu_card *card_inventory_changed(struct card_inventory *inv, bool *healthy,
                                              const char **reason)
{
    for (size_t i = 0; i < inv->n; i++)
        if (inv->items[i].unhealthy_shown == inv->items[i].health.healthy) {
            inv->items[i].unhealthy_shown = !inv->items[i].health.healthy;
            return card_inventory_card(inv, i, healthy, reason);
        }
    return NULL;
}

void card_inventory_report(const struct card_inventory *inv, struct arena *a,
                           struct scv *scv)
{
    bool healthy[GPU_MAX_CARDS];
    for (size_t i = 0; i < inv->n; i++)
        healthy[i] = inv->items[i].health.healthy;
    node_scv_add_cards(&inv->sample, healthy, a, scv);
}

bool card_inventory_any_lost(const struct card_inventory *inv)
{
    for (size_t i = 0; i < inv->n; i++)
        if (inv->items[i].card.state == GPU_LOST)
            return true;
    return false;
}

const char *card_inventory_driver(const struct card_inventory *inv)
{
    return inv->sample.driver;
}

void card_inventory_message(const struct card_inventory *inv, struct buf *out)
{
    if (inv->failure[0])
        buf_adds(out, inv->failure);
    for (size_t i = 0; i < inv->n; i++) {
        const char *reason = "";
        bool healthy;
        const struct gpu_card *g = card_inventory_card(inv, i, &healthy, &reason);
        if (healthy || (inv->failure[0] && strcmp(reason, inv->failure) == 0))
            continue;
        buf_printf(out, "%sGPU%d is Unhealthy: %s", out->n ? "; " : "", (int)g->index,
                   reason);
    }
    for (int i = 0; i < 64; i++)
        if (inv->mig >> i & 1)
            buf_printf(out, "%sGPU%d is in MIG mode and left out", out->n ? "; " : "", i);
}
