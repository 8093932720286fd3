/* SPDX-License-Identifier: Apache-2.0 */
/* Matches the cards of each sample with those that are known. */
#include "node/card_inventory.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

struct item {
    struct scv_card card; /* as published, but for links; its texts are these: */
    char uuid[96], model[96], bus_id[32], parent[96], profile[32];
    struct card_place place;
    int32_t at; /* position in the last sample; -1: it lacks the card */
    /* As in struct card_near, if the connections are known. */
    bool linked;
    uint8_t width[GPU_MAX_LINKED];
    struct card_health health;
    char remark[420]; /* what to say although it is healthy */
    bool events;      /* its XIDs are watched */
    bool lost;
    bool present;             /* in the last sample */
    bool unhealthy_shown;     /* by card_inventory_changed */
    int64_t missing_since_ms; /* samples succeed without it since then; -1: present */
};

struct card_inventory {
    struct card_inventory_settings settings;
    struct item items[GPU_MAX_CARDS]; /* by index */
    size_t n;
    uint64_t mig, mig_before; /* bit i: card i is in MIG mode and left out */
    char mig_text[1024];      /* what to say about these cards */
    char failure[300];        /* of the last sample; empty: it succeeded */
    bool sampled;             /* at least one sample succeeded */
    int64_t failing_since_ms; /* -1: the last sample succeeded */
    char driver[80], cuda[16];
};

struct card_inventory *card_inventory_new(const struct card_inventory_settings *settings)
{
    struct card_inventory *inv = xcalloc(1, sizeof *inv);
    inv->settings = *settings;
    inv->failing_since_ms = -1;
    return inv;
}

void card_inventory_free(struct card_inventory *inv)
{
    free(inv);
}

/* -- one card -- */

static void set_text(char *out, size_t size, struct span s)
{
    snprintf(out, size, "%.*s", SPAN_ARG(s));
}

static struct item item_of(const struct gpu_card *c)
{
    const int64_t none = *c->parent_uuid ? INT32_MAX : -1;
    struct item item = {
        .card = {.id = c->index,
                 .has_used = gpu_knows(c, GPU_MEM_USED),
                 .total_mib = gpu_mib(c, GPU_MEM_TOTAL, 0),
                 /* Rounded so that the rest is whole MiB that programs can get. */
                 .reserved_mib = gpu_mib(c, GPU_MEM_TOTAL, 0) -
                                 ((gpu_value(c, GPU_MEM_TOTAL, 0) -
                                   gpu_value(c, GPU_MEM_RESERVED, 0)) >>
                                  20),
                 .free_mib = gpu_mib(c, GPU_MEM_FREE, 0),
                 .used_mib = gpu_mib(c, GPU_MEM_USED, 0),
                 .spec = {.power_w = gpu_value(c, GPU_POWER_LIMIT, 0) / 1000,
                          .clock_mhz = gpu_value(c, GPU_CLOCK_MEM_MAX, 0),
                          .sm_clock_mhz = gpu_value(c, GPU_CLOCK_SM_MAX, 0),
                          .bandwidth =
                              scv_bandwidth(gpu_value(c, GPU_PCIE_GEN_MAX, 0),
                                            gpu_value(c, GPU_PCIE_WIDTH_MAX, 0))},
                 .numa_node = gpu_value(c, GPU_NUMA_NODE, -1),
                 .temperature = gpu_value(c, GPU_TEMPERATURE, -1),
                 .utilization = gpu_value(c, GPU_UTILIZATION, -1),
                 .has_links_down = gpu_knows(c, GPU_LINKS_DOWN),
                 .links_down = gpu_value(c, GPU_LINKS_DOWN, 0)},
        .place = {(int32_t)gpu_value(c, GPU_MINOR, -1),
                  (int32_t)gpu_value(c, GPU_INSTANCE, none),
                  (int32_t)gpu_value(c, GPU_COMPUTE_INSTANCE, none)},
        .missing_since_ms = -1};
    struct scv_card *card = &item.card;
    card->has_temperature = card->temperature >= 0 && card->temperature <= 1000;
    card->has_utilization = card->utilization >= 0 && card->utilization <= 100;
    card->has_numa_node = card->numa_node >= 0;
    memcpy(item.uuid, c->uuid, sizeof item.uuid);
    memcpy(item.model, c->model, sizeof item.model);
    memcpy(item.bus_id, c->bus_id, sizeof item.bus_id);
    memcpy(item.parent, c->parent_uuid, sizeof item.parent);
    memcpy(item.profile, c->profile, sizeof item.profile);
    return item;
}

static void forget_use(struct item *item)
{
    struct scv_card *c = &item->card;
    c->free_mib = 0;
    c->has_used = c->has_utilization = c->has_temperature = c->has_links_down = false;
}

static void mark_lost(struct card_inventory *inv, struct item *item, int64_t now_ms,
                      const char *reason)
{
    item->lost = true;
    item->events = false;
    item->remark[0] = '\0';
    forget_use(item);
    card_health_sample(&item->health, &inv->settings.health, now_ms, CARD_HEALTH_FAILED,
                       reason);
}

static void update(const struct card_inventory *inv, struct item *item, int64_t now_ms,
                   const struct gpu_card *g)
{
    const char *reason;
    enum card_health_reading reading = card_health_read(g, &reason);
    item->present = true;
    item->missing_since_ms = -1;
    item->card.id = g->index;
    card_health_sample(&item->health, &inv->settings.health, now_ms, reading, reason);
    if (item->health.tolerated)
        return;
    const char *why = g->state == GPU_WARN ? g->why : "";
    snprintf(item->remark, sizeof item->remark, "%s%s%s", why,
             *why && *g->unchecked ? "; " : "", g->unchecked);
    item->events = g->events;
    item->lost = g->state == GPU_LOST;
    if (item->lost || g->state == GPU_UNREADABLE) {
        forget_use(item);
        return;
    }
    struct item now = item_of(g);
    if (g->state != GPU_OK) { /* what a failed card does not report */
        struct scv_spec *to = &now.card.spec;
        const struct scv_spec *from = &item->card.spec;
        if (!now.uuid[0])
            memcpy(now.uuid, item->uuid, sizeof now.uuid);
        if (!now.model[0])
            memcpy(now.model, item->model, sizeof now.model);
        if (!now.bus_id[0])
            memcpy(now.bus_id, item->bus_id, sizeof now.bus_id);
        if (!now.card.total_mib) {
            now.card.total_mib = item->card.total_mib;
            now.card.reserved_mib = item->card.reserved_mib;
        }
        to->power_w = to->power_w ?: from->power_w;
        to->clock_mhz = to->clock_mhz ?: from->clock_mhz;
        to->sm_clock_mhz = to->sm_clock_mhz ?: from->sm_clock_mhz;
        to->bandwidth = to->bandwidth ?: from->bandwidth;
        if (!now.card.has_numa_node) {
            now.card.numa_node = item->card.numa_node;
            now.card.has_numa_node = item->card.has_numa_node;
        }
    }
    now.present = true;
    now.at = item->at;
    now.health = item->health;
    now.events = item->events;
    memcpy(now.remark, item->remark, sizeof now.remark);
    now.unhealthy_shown = item->unhealthy_shown;
    *item = now;
}

/* -- lookup -- */

typedef bool (*same_fn)(const struct item *a, const struct item *b);

static bool same_uuid(const struct item *a, const struct item *b)
{
    return a->uuid[0] && strcmp(a->uuid, b->uuid) == 0;
}

/* A card that cannot be opened has no UUID in the sample: its index identifies it. */
static bool same_index(const struct item *a, const struct item *b)
{
    return (!a->uuid[0] || !b->uuid[0]) && a->card.id == b->card.id;
}

/* An item of the same card, in the last sample or not. */
static struct item *find_item(struct card_inventory *inv, const struct item *like,
                              same_fn same, bool present)
{
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    if (item->present == present && same(item, like))
        return item;
    return NULL;
}

static void drop_item(struct card_inventory *inv, struct item *item)
{
    size_t i = (size_t)(item - inv->items);
    memmove(item, item + 1, (inv->n - i - 1) * sizeof *item);
    inv->n--;
}

/* In a full list, the card that is missing for longest is replaced. */
static struct item *add_item(struct card_inventory *inv, const struct item *new)
{
    struct item *oldest = NULL;
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    if (!item->present && (!oldest || item->missing_since_ms < oldest->missing_since_ms))
        oldest = item;
    if (inv->n == GPU_MAX_CARDS && oldest)
        drop_item(inv, oldest);
    if (inv->n == GPU_MAX_CARDS)
        return NULL;
    inv->items[inv->n] = *new;
    return &inv->items[inv->n++];
}

static bool has_index(const struct card_inventory *inv, const struct item *by_other,
                      int32_t index)
{
    ARRAY_EACH_ITEM(const struct item, item, inv->items, inv->n)
    if (item != by_other && item->card.id == index)
        return true;
    return false;
}

static int by_index(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    return a->card.id < b->card.id ? -1 : a->card.id > b->card.id;
}

static void settle_indexes(struct card_inventory *inv)
{
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    {
        if (item->present || !has_index(inv, item, item->card.id))
            continue;
        for (item->card.id = *item->parent ? GPU_MAX_CARDS : 0;
             has_index(inv, item, item->card.id);)
            item->card.id++;
    }
    qsort(inv->items, inv->n, sizeof *inv->items, by_index);
}

/* -- samples -- */

static void match_card(struct card_inventory *inv, int64_t now_ms,
                       const struct gpu_sample *s, size_t at, same_fn same,
                       bool last_chance)
{
    const struct gpu_card *g = &s->cards[at];
    const struct item new = item_of(g);
    struct item *item = find_item(inv, &new, same, false);
    if (last_chance && find_item(inv, &new, same_uuid, true))
        return; /* it was matched by its UUID */
    /* A lost card does not say its mode. */
    bool lost = g->state == GPU_LOST && g->index < GPU_MAX_CARDS &&
                inv->mig_before >> g->index & 1;
    if (g->state == GPU_MIG || lost) {
        if (item)
            drop_item(inv, item);
        size_t n = strlen(inv->mig_text);
        if (last_chance)
            snprintf(inv->mig_text + n, sizeof inv->mig_text - n,
                     "%sGPU%d is left out: %s", n ? "; " : "", g->index, g->why);
        if (g->index < GPU_MAX_CARDS)
            inv->mig |= 1ull << g->index;
        return;
    }
    if (!item && last_chance)
        item = add_item(inv, &new);
    if (!item)
        return;
    update(inv, item, now_ms, g);
    item->at = (int32_t)at;
    struct span words = s->n_cards <= GPU_MAX_LINKED ? g->links : (struct span){0};
    item->linked = words.n > 0;
    for (size_t i = 0; i < GPU_MAX_LINKED; i++) {
        const struct span word = span_cut(&words, ' ');
        item->width[i] = link_width(word);
        item->linked &= !word.n || item->width[i] != LINK_UNKNOWN;
    }
}

void card_inventory_sample(struct card_inventory *inv, int64_t now_ms,
                           const struct gpu_sample *s)
{
    inv->mig_before = inv->mig;
    inv->mig = 0;
    inv->mig_text[0] = '\0';
    inv->sampled = true;
    inv->failure[0] = '\0';
    inv->failing_since_ms = -1;
    memcpy(inv->driver, s->driver, sizeof inv->driver);
    memcpy(inv->cuda, s->cuda, sizeof inv->cuda);
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    item->present = false;
    for (size_t i = 0; i < s->n_cards; i++)
        match_card(inv, now_ms, s, i, same_uuid, false);
    for (size_t i = 0; i < s->n_cards; i++)
        match_card(inv, now_ms, s, i, same_index, true);
    for (size_t i = inv->n; i-- > 0;) {
        struct item *item = &inv->items[i];
        if (item->present)
            continue;
        item->at = -1;
        item->linked = false;
        if (item->missing_since_ms < 0)
            item->missing_since_ms = now_ms;
        if (now_ms - item->missing_since_ms >= inv->settings.keep_lost_ms)
            drop_item(inv, item);
        else
            mark_lost(inv, item, now_ms, CARD_NOT_LISTED);
    }
    settle_indexes(inv);
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
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    mark_lost(inv, item, now_ms, reason);
}

bool card_inventory_event(struct card_inventory *inv, int64_t now_ms,
                          const struct gpu_event *event)
{
    bool any = false, by_index = false;
    ARRAY_EACH_ITEM(const struct item, item, inv->items, inv->n)
    by_index |= item->present && item->card.id == event->index;
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    {
        const bool concerns =
            event->uuid[0]
                ? !strcmp(item->uuid, event->uuid) || !strcmp(item->parent, event->uuid)
                : !by_index || (item->present && item->card.id == event->index);
        any |= concerns &&
               card_health_event(&item->health, &inv->settings.health, now_ms, event);
    }
    return any;
}

/* -- the Scv of the previous process -- */

void card_inventory_adopt(struct card_inventory *inv, int64_t now_ms,
                          const struct scv *scv)
{
    ARRAY_EACH_ITEM(const struct scv_card, c, scv->cards, scv->n_cards)
    {
        struct item old = {.card = *c, .at = -1, .missing_since_ms = -1}, *item = NULL;
        if (c->id >= GPU_INDEXES)
            continue;
        set_text(old.uuid, sizeof old.uuid, c->uuid);
        set_text(old.model, sizeof old.model, c->model);
        set_text(old.bus_id, sizeof old.bus_id, c->bus_id);
        set_text(old.parent, sizeof old.parent, c->parent_uuid);
        set_text(old.profile, sizeof old.profile, c->mig_profile);
        old.card.use_complete = false;
        for (size_t k = 0; k < inv->n && !item; k++)
            if (same_uuid(&inv->items[k], &old) || same_index(&inv->items[k], &old))
                item = &inv->items[k];
        if (!item && (c->id >= GPU_MAX_CARDS || !(inv->mig >> c->id & 1))) {
            item = add_item(inv, &old);
            if (item && inv->sampled) {
                item->missing_since_ms = now_ms;
                mark_lost(inv, item, now_ms, CARD_NOT_LISTED);
            }
        }
        if (item && !inv->sampled && !item->health.sampled)
            card_health_sample(&item->health, &inv->settings.health, now_ms,
                               CARD_HEALTH_GOOD, NULL);
        if (item && !c->healthy)
            card_health_sample(&item->health, &inv->settings.health, now_ms,
                               CARD_HEALTH_FAILED, "unhealthy before scv-agent started");
    }
    settle_indexes(inv);
}

/* -- reading -- */

const struct card_health *card_inventory_changed(struct card_inventory *inv,
                                                 int32_t *index, const char **uuid)
{
    ARRAY_EACH_ITEM(struct item, item, inv->items, inv->n)
    {
        if (item->unhealthy_shown != item->health.healthy)
            continue;
        item->unhealthy_shown = !item->health.healthy;
        *index = item->card.id;
        *uuid = item->uuid;
        return &item->health;
    }
    return NULL;
}

/* The row of the card, with a word for each card of the inventory; empty: unknown. A card that the
 * sample lacks is not chosen before the next sample that has it, and nothing connects instances. */
static struct span links_of(const struct card_inventory *inv, const struct item *item,
                            struct arena *a)
{
    cleanup_buf struct buf row = {0};
    bool any = false;
    if (item->at >= 0 && !item->linked && !*item->parent)
        return (struct span){0};
    ARRAY_EACH_ITEM(const struct item, other, inv->items, inv->n)
    {
        char text[8];
        const uint8_t width =
            other == item ? LINK_MAX
            : item->linked && other->at >= 0 && other->at < GPU_MAX_LINKED
                ? item->width[other->at]
                : LINK_UNKNOWN;
        any |= other->linked;
        buf_printf(&row, "%s%s", row.n ? " " : "",
                   link_word(width == LINK_UNKNOWN ? LINK_SYS : width, text));
    }
    return inv->n > 1 && any ? arena_copy(a, buf_span(&row)) : (struct span){0};
}

void card_inventory_report(const struct card_inventory *inv, struct arena *a,
                           struct scv *scv)
{
    scv->n_cards = 0;
    scv->cards = arena_alloc(a, inv->n * sizeof *scv->cards);
    ARRAY_EACH_ITEM(const struct item, item, inv->items, inv->n)
    {
        struct scv_card *card = &scv->cards[scv->n_cards++];
        *card = item->card;
        card->healthy = item->health.healthy;
        card->health = card->healthy ? SPAN("Healthy") : SPAN("Unhealthy");
        card->uuid = span_of(item->uuid);
        card->model = span_of(item->model);
        card->bus_id = span_of(item->bus_id);
        card->parent_uuid = span_of(item->parent);
        card->mig_profile = span_of(item->profile);
        card->links = links_of(inv, item, a);
    }
    scv->driver_version = span_of(inv->driver);
    scv->cuda_version = span_of(inv->cuda);
}

bool card_inventory_has_events(const struct card_inventory *inv, size_t i)
{
    return inv->items[i].events;
}

size_t card_inventory_seen(const struct card_inventory *inv,
                           struct card_seen seen[CARDS_MAX], size_t *n_present)
{
    size_t n = 0;
    *n_present = 0;
    for (size_t i = 0; i < 2 * inv->n; i++) {
        const struct item *item = &inv->items[i % inv->n];
        struct card_seen *to = &seen[n];
        if (i == inv->n)
            *n_present = n;
        if (item->present != (i < inv->n))
            continue;
        *to = (struct card_seen){.index = item->card.id,
                                 .present = item->present,
                                 .place = item->place,
                                 .near = {.at = (uint8_t)(item->at < 0 ? 0 : item->at),
                                          .numa_node = item->card.has_numa_node
                                                           ? (int32_t)item->card.numa_node
                                                           : -1},
                                 .mib = item->card.total_mib,
                                 .health = item->health};
        memcpy(to->uuid, item->uuid, sizeof to->uuid);
        memcpy(to->parent, item->parent, sizeof to->parent);
        if (item->linked)
            memcpy(to->near.width, item->width, sizeof item->width);
        n++;
    }
    return n;
}

bool card_inventory_any_lost(const struct card_inventory *inv)
{
    ARRAY_EACH_ITEM(const struct item, item, inv->items, inv->n)
    if (item->lost && !*item->parent)
        return true;
    return false;
}

bool card_inventory_is_empty(const struct card_inventory *inv)
{
    return !inv->n;
}

void card_inventory_message(const struct card_inventory *inv, struct buf *out)
{
    buf_adds(out, inv->failure);
    ARRAY_EACH_ITEM(const struct item, item, inv->items, inv->n)
    {
        const bool healthy = item->health.healthy;
        const char *text = healthy ? item->remark : item->health.reason;
        if (*text && (healthy || strcmp(text, inv->failure)))
            buf_printf(out, "%sGPU%d%s: %s", out->n ? "; " : "", (int)item->card.id,
                       healthy ? "" : " is Unhealthy", text);
    }
    buf_printf(out, "%s%s", out->n && *inv->mig_text ? "; " : "", inv->mig_text);
}
