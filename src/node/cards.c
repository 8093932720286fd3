/* SPDX-License-Identifier: Apache-2.0 */

/* The cards of the inventory as the device list: tags, units, and the most that were listed. */

#include "node/cards.h"

#include <stdio.h>

#include "base/array.h"
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

/* One that was never readable, and has no UUID, is not listed. */
static void take_card(struct cards *cards, const struct card_seen *seen, struct err *say)
{
    char name[sizeof seen->uuid];
    if (seen->uuid[0])
        snprintf(name, sizeof name, "%s", seen->uuid);
    else
        snprintf(name, sizeof name, "index-%d", seen->index);
    struct plugin_card *c = (struct plugin_card *)cards_by_uuid(cards, span_of(name));
    if (!c && !seen->uuid[0] && !seen->health.healthy)
        return;
    if (!c) {
        const struct ids_tag tag = ids_tag_of(span_of(name));
        const struct plugin_card *twin = cards_by_tag(cards, &tag);
        if (twin) {
            err_set(say, ERR_CONFLICT,
                    "card %s is left out: its device ids are those of card %s", name,
                    twin->uuid);
            return;
        }
        c = cards->items + cards->n;
        if (cards->n == CARDS_MAX) /* a destroyed instance does not return */
            for (c = cards->items; c < cards->items + CARDS_MAX; c++)
                if (!c->present && c->parent[0] && !c->health.healthy)
                    break;
        if (c == cards->items + CARDS_MAX) {
            err_set(say, ERR_TOO_LARGE,
                    "card %s is left out: %d cards are listed already", name, CARDS_MAX);
            return;
        }
        cards->n += c == cards->items + cards->n;
        *c = (struct plugin_card){.has_uuid = seen->uuid[0] != '\0', .tag = tag};
        snprintf(c->uuid, sizeof c->uuid, "%s", name);
        memcpy(c->parent, seen->parent, sizeof c->parent);
    }
    c->present = seen->present;
    c->index = seen->index;
    c->place = seen->place;
    c->near = seen->near;
    c->health = seen->health;
    if (!seen->mib)
        return;
    c->mib = seen->mib;
    c->units = seen->mib / cards->settings.unit_mib;
    if (c->units > IDS_UNITS_MAX)
        c->units = IDS_UNITS_MAX;
    if (c->units > c->most_units)
        c->most_units = c->units;
}

static void set_unhealthy(struct plugin_card *c, const char *reason)
{
    c->health.healthy = false;
    snprintf(c->health.reason, sizeof c->health.reason, "%s", reason);
}

bool cards_take(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                size_t n, const struct err *why, struct err *say)
{
    const size_t n_before = cards->n;
    struct plugin_card before[CARDS_MAX];
    struct err left_out = {0};
    bool changed = false;
    *say = (struct err){0};
    cards->sampled_ms = now_ms;
    memcpy(before, cards->items, n_before * sizeof *before);
    ARRAY_EACH_ITEM(struct plugin_card, c, cards->items, n_before)
    {
        c->present = false;
        set_unhealthy(c, CARD_NOT_LISTED);
    }
    for (size_t i = 0; i < n; i++)
        take_card(cards, &seen[i], &left_out);
    for (size_t i = 0; i < cards->n; i++) {
        const struct plugin_card *c = &cards->items[i];
        changed |= i >= n_before || memcmp(&c->tag, &before[i].tag, sizeof c->tag) ||
                   c->health.healthy != before[i].health.healthy ||
                   c->units != before[i].units;
    }
    if (changed)
        *say = left_out;
    if (!why)
        step_succeeded(&cards->failure);
    else if (step_failed(&cards->failure, now_ms, why))
        err_set(say, why->code, "cannot sample the cards; retrying: %s", why->msg);
    return changed;
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
    bool changed = false;
    for (size_t i = 0; i < cards->n; i++) {
        changed |= cards->items[i].health.healthy;
        set_unhealthy(&cards->items[i], err.msg);
    }
    return changed;
}

int cards_check(const struct cards *cards, int64_t now_ms, struct err *err)
{
    const struct step_failure *f = &cards->failure;
    if (!cards->n)
        return err_set(err, ERR_UNAVAILABLE, "no card was sampled yet%s%s",
                       f->failures ? ": " : "", f->err.msg);
    for (size_t i = 0; i < cards->n; i++)
        if (cards->items[i].health.healthy)
            return 0;
    if (f->failures)
        return err_set(err, f->err.code, "no sample for %llds: %s",
                       (long long)(now_ms - f->since_ms) / 1000, f->err.msg);
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
    int64_t bytes = ids_message_bytes(units, cards->n, 1);
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
