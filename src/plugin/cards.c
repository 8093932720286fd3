/* SPDX-License-Identifier: Apache-2.0 */

/* The cards of the node: samples and events become the device list's size and health. */

#include "plugin/cards.h"

#include <stdio.h>

#include "base/mem.h"
#include "domain/quantity.h"

void cards_init(struct cards *cards, const struct cards_settings *settings)
{
    *cards = (struct cards){.settings = *settings};
}

const struct plugin_card *cards_by_tag(const struct cards *cards,
                                       const struct ids_tag *tag)
{
    for (size_t i = 0; i < cards->n; i++)
        if (memcmp(cards->items[i].tag.text, tag->text, IDS_TAG) == 0)
            return &cards->items[i];
    return NULL;
}

const struct plugin_card *cards_by_uuid(const struct cards *cards, struct span uuid)
{
    for (size_t i = 0; i < cards->n; i++)
        if (span_eq(span_of(cards->items[i].uuid), uuid))
            return &cards->items[i];
    return NULL;
}

/* Of several cards that had the index one after the other, the present one. */
const struct plugin_card *cards_by_index(const struct cards *cards, int32_t index)
{
    const struct plugin_card *found = NULL;
    for (size_t i = 0; i < cards->n; i++)
        if (cards->items[i].index == index && (!found || !found->present))
            found = &cards->items[i];
    return found;
}

static struct plugin_card *add_card(struct cards *cards, const struct card_seen *seen,
                                    const char *name, struct err *err)
{
    struct ids_tag tag = ids_tag_of(span_of(name));
    const struct plugin_card *twin = cards_by_tag(cards, &tag);
    if (twin) {
        err_set(err, ERR_CONFLICT,
                "card %s is left out: its device ids are those of card %s", name,
                twin->uuid);
        return NULL;
    }
    struct plugin_card *c = cards->items + cards->n;
    if (cards->n == CARDS_MAX) /* a destroyed instance does not return */
        for (c = cards->items; c < cards->items + CARDS_MAX; c++)
            if (!c->present && c->parent[0] && !c->health.healthy)
                break;
    if (c == cards->items + CARDS_MAX) {
        err_set(err, ERR_TOO_LARGE, "card %s is left out: %d cards are listed already",
                name, CARDS_MAX);
        return NULL;
    }
    cards->n += c == cards->items + cards->n;
    *c = (struct plugin_card){0};
    snprintf(c->uuid, sizeof c->uuid, "%s", name);
    c->has_uuid = seen->uuid[0] != '\0';
    memcpy(c->parent, seen->parent, sizeof c->parent);
    c->tag = tag;
    return c;
}

/* Returns whether the device list changed. */
static bool set_health(struct cards *cards, struct plugin_card *c, int64_t now_ms,
                       enum card_health_reading reading, const char *reason)
{
    bool before = c->health.healthy;
    card_health_sample(&c->health, &cards->settings.health, now_ms, reading, reason);
    return before != c->health.healthy;
}

static bool set_size(struct plugin_card *c, int64_t mib, int64_t unit_mib)
{
    int64_t units = mib / unit_mib < IDS_UNITS_MAX ? mib / unit_mib : IDS_UNITS_MAX;
    bool changed = units != c->units;
    c->mib = mib;
    c->units = units;
    if (units > c->most_units)
        c->most_units = units;
    return changed;
}

static bool take_card(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                      struct err *err)
{
    char name[sizeof seen->uuid];
    bool good = seen->reading == CARD_HEALTH_GOOD;
    if (seen->uuid[0])
        snprintf(name, sizeof name, "%s", seen->uuid);
    else
        snprintf(name, sizeof name, "index-%d", seen->index);
    struct plugin_card *c = (struct plugin_card *)cards_by_uuid(cards, span_of(name));
    if (!c && !seen->uuid[0] && !good) {
        /* A card that cannot be opened has no UUID: its index identifies it. */
        c = (struct plugin_card *)cards_by_index(cards, seen->index);
        if (!c || c->present)
            return false;
    }
    bool changed = !c;
    if (!c && !(c = add_card(cards, seen, name, err)))
        return false;
    c->present = true;
    c->index = seen->index;
    c->place = seen->place;
    c->near = seen->near;
    if (good)
        changed |= set_size(c, seen->mib, cards->settings.unit_mib);
    return set_health(cards, c, now_ms, seen->reading, seen->reason) || changed;
}

bool cards_sampled(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                   size_t n, struct err *err)
{
    bool changed = false;
    err->code = ERR_NONE;
    cards->sampled_ms = now_ms;
    cards->failed = false;
    step_succeeded(&cards->failure);
    for (size_t i = 0; i < cards->n; i++)
        cards->items[i].present = false;
    for (size_t i = 0; i < n; i++)
        changed |= take_card(cards, now_ms, &seen[i], err);
    for (size_t i = 0; i < cards->n; i++)
        if (!cards->items[i].present)
            changed |= set_health(cards, &cards->items[i], now_ms, CARD_HEALTH_FAILED,
                                  "NVML no longer lists the card");
    return changed;
}

static bool fail_all(struct cards *cards, int64_t now_ms)
{
    bool changed = false;
    cards->failed = true;
    for (size_t i = 0; i < cards->n; i++)
        changed |= set_health(cards, &cards->items[i], now_ms, CARD_HEALTH_FAILED,
                              cards->failure.err.msg);
    return changed;
}

bool cards_sample_failed(struct cards *cards, int64_t now_ms, const struct err *why,
                         bool *log)
{
    cards->sampled_ms = now_ms;
    *log = step_failed(&cards->failure, now_ms, why);
    return !card_health_tolerates(&cards->settings.health, cards->failure.since_ms,
                                  now_ms) &&
           fail_all(cards, now_ms);
}

bool cards_event(struct cards *cards, int64_t now_ms, const struct gpu_event *event)
{
    struct card_health_target targets[CARDS_MAX];
    size_t healthy = 0;
    for (size_t i = 0; i < cards->n; i++) {
        struct plugin_card *c = &cards->items[i];
        targets[i] = (struct card_health_target){&c->health, c->uuid, c->index,
                                                 c->present, c->parent};
        healthy += c->health.healthy;
    }
    card_health_event(targets, cards->n, now_ms, event);
    for (size_t i = 0; i < cards->n; i++)
        healthy -= cards->items[i].health.healthy;
    return healthy > 0;
}

bool cards_tick(struct cards *cards, int64_t now_ms, int64_t suspended_ms)
{
    struct err err;
    int64_t limit = cards->settings.silent_ms;
    cards->sampled_ms += suspended_ms;
    if (cards->sampled_ms > now_ms)
        cards->sampled_ms = now_ms;
    if (!limit || now_ms - cards->sampled_ms < limit)
        return false;
    err_set(&err, ERR_TIMEOUT, "the driver does not respond");
    step_failed(&cards->failure, cards->sampled_ms, &err);
    return fail_all(cards, now_ms);
}

int cards_check(const struct cards *cards, int64_t now_ms, struct err *err)
{
    const struct step_failure *f = &cards->failure;
    if (!cards->n)
        return err_set(err, ERR_UNAVAILABLE, "no card was sampled yet%s%s",
                       f->failures ? ": " : "", f->err.msg);
    if (cards->failed)
        return err_set(err, f->err.code, "no sample for %llds: %s",
                       (long long)(now_ms - f->since_ms) / 1000, f->err.msg);
    for (size_t i = 0; i < cards->n; i++)
        if (cards->items[i].health.healthy)
            return 0;
    return err_set(err, ERR_UNAVAILABLE, "none of %zu cards is healthy; %s: %s", cards->n,
                   cards->items[0].uuid, cards->items[0].health.reason);
}

int cards_fit(const struct cards *cards, struct err *err)
{
    int64_t units[CARDS_MAX], mib[CARDS_MAX];
    for (size_t i = 0; i < cards->n; i++) {
        units[i] = cards->items[i].most_units;
        mib[i] = cards->items[i].mib;
    }
    int64_t bytes = ids_message_bytes(units, cards->n);
    if (bytes <= IDS_MESSAGE_MAX)
        return 0;
    cleanup_buf struct buf unit = {0}, better = {0};
    quantity_write_unit(&unit, cards->settings.unit_mib);
    quantity_write_unit(&better, ids_smallest_unit(mib, cards->n));
    return err_set(err, ERR_TOO_LARGE,
                   "in units of %s the device list has %lld bytes, more than the "
                   "kubelet's limit of %d: use --memory-unit=%s or a larger one, in the "
                   "extender too",
                   unit.p, (long long)bytes, IDS_MESSAGE_MAX, better.p);
}
