/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/cards.h"

#include <stdio.h>

#include "base/mem.h"
#include "domain/quantity.h"

void cards_init(struct cards *cards, int64_t unit_mib, int64_t well_ms, int64_t hold_ms,
                int64_t silent_ms)
{
    *cards = (struct cards){.unit_mib = unit_mib,
                            .well_ms = well_ms,
                            .hold_ms = hold_ms,
                            .silent_ms = silent_ms};
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

/* Of two that had the same index one after the other, the one that is there. */
const struct plugin_card *cards_by_index(const struct cards *cards, int32_t index)
{
    const struct plugin_card *found = NULL;
    for (size_t i = 0; i < cards->n; i++)
        if (cards->items[i].index == index && (!found || !found->looks_well))
            found = &cards->items[i];
    return found;
}

static void set_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static struct plugin_card *add_card(struct cards *cards, const struct card_seen *seen,
                                    const char *name, struct err *err)
{
    struct ids_tag tag = ids_tag_of(span_of(name));
    const struct plugin_card *twin = cards_by_tag(cards, &tag);
    if (twin) {
        err_set(err, ERR_CONFLICT,
                "card %s is left out: its ids would be those of card %s", name,
                twin->uuid);
        return NULL;
    }
    if (cards->n == CARDS_MAX) {
        err_set(err, ERR_TOO_LARGE, "card %s is left out: there are %d already", name,
                CARDS_MAX);
        return NULL;
    }
    struct plugin_card *c = &cards->items[cards->n++];
    set_text(c->uuid, sizeof c->uuid, name);
    c->has_uuid = seen->uuid[0] != '\0';
    c->tag = tag;
    c->healthy = seen->ill[0] == '\0'; /* nothing bad is known of it yet */
    return c;
}

/* Returns whether what is listed has changed. */
static bool set_ill(struct plugin_card *c, const char *why)
{
    bool was = c->healthy;
    c->healthy = c->looks_well = false;
    set_text(c->why, sizeof c->why, why);
    return was;
}

static bool set_well(struct plugin_card *c, int64_t now_ms, int64_t well_ms)
{
    if (!c->looks_well)
        c->well_since_ms = now_ms;
    c->looks_well = true;
    if (c->healthy || now_ms - c->well_since_ms < well_ms || now_ms < c->held_until_ms)
        return false;
    c->healthy = true;
    c->why[0] = '\0';
    return true;
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
                      bool *there, struct err *err)
{
    char name[sizeof seen->uuid];
    if (seen->uuid[0])
        set_text(name, sizeof name, seen->uuid);
    else
        snprintf(name, sizeof name, "index-%d", seen->index);
    struct plugin_card *c = (struct plugin_card *)cards_by_uuid(cards, span_of(name));
    bool changed = !c;
    /* One that is lost from the start has nothing by which it could be known later. */
    if (!c && !seen->uuid[0] && seen->ill[0])
        return false;
    if (!c && !(c = add_card(cards, seen, name, err)))
        return false;
    there[c - cards->items] = true;
    c->index = seen->index;
    if (seen->model[0])
        set_text(c->model, sizeof c->model, seen->model);
    if (seen->ill[0])
        return set_ill(c, seen->ill) || changed;
    changed |= set_size(c, seen->mib, cards->unit_mib);
    return set_well(c, now_ms, cards->well_ms) || changed;
}

bool cards_seen(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                size_t n, struct err *err)
{
    bool there[CARDS_MAX] = {false}, changed = false;
    err->code = ERR_NONE;
    cards->seen_ms = cards->looked_ms = now_ms;
    trouble_over(&cards->trouble);
    cards->blind = false;
    for (size_t i = 0; i < n; i++)
        changed |= take_card(cards, now_ms, &seen[i], there, err);
    for (size_t i = 0; i < cards->n; i++)
        if (!there[i])
            changed |= set_ill(&cards->items[i], "the driver does not know it any more");
    return changed;
}

static bool go_blind(struct cards *cards)
{
    bool changed = false;
    cards->blind = true;
    for (size_t i = 0; i < cards->n; i++)
        changed |= set_ill(&cards->items[i], cards->trouble.err.msg);
    return changed;
}

bool cards_unseen(struct cards *cards, int64_t now_ms, const char *why)
{
    struct err err;
    err_set(&err, ERR_UNAVAILABLE, "%s", why);
    cards->looked_ms = now_ms;
    trouble_note(&cards->trouble, now_ms, &err);
    return now_ms - cards->seen_ms >= CARDS_BLIND_MS && go_blind(cards);
}

bool cards_waited(struct cards *cards, int64_t now_ms, int64_t lost_ms)
{
    struct err err;
    cards->looked_ms += lost_ms;
    if (cards->looked_ms > now_ms)
        cards->looked_ms = now_ms;
    if (!cards->silent_ms || now_ms - cards->looked_ms < cards->silent_ms)
        return false;
    err_set(&err, ERR_TIMEOUT, "the driver does not answer");
    trouble_note(&cards->trouble, cards->looked_ms, &err);
    return go_blind(cards);
}

bool cards_struck(struct cards *cards, int64_t now_ms, struct span uuid, const char *what)
{
    bool changed = false;
    for (size_t i = 0; i < cards->n; i++) {
        struct plugin_card *c = &cards->items[i];
        if (uuid.n && !span_eq(span_of(c->uuid), uuid))
            continue;
        changed |= set_ill(c, what);
        c->held_until_ms = now_ms + cards->hold_ms;
    }
    return changed;
}

int cards_check(const struct cards *cards, int64_t now_ms, struct err *err)
{
    const struct trouble *t = &cards->trouble;
    if (!cards->n)
        return err_set(err, ERR_UNAVAILABLE, "none has been seen yet%s%s",
                       t->since_ms ? ": " : "", t->err.msg);
    if (cards->blind)
        return err_set(err, t->err.code, "nothing is seen of them for %lld s: %s",
                       (long long)(now_ms - t->since_ms) / 1000, t->err.msg);
    for (size_t i = 0; i < cards->n; i++)
        if (cards->items[i].healthy)
            return 0;
    return err_set(err, ERR_UNAVAILABLE, "none of %zu is healthy; %s: %s", cards->n,
                   cards->items[0].uuid, cards->items[0].why);
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
    quantity_write_unit(&unit, cards->unit_mib);
    quantity_write_unit(&better, ids_smallest_unit(mib, cards->n));
    return err_set(err, ERR_TOO_LARGE,
                   "in units of %s the list of the cards' memory has %lld bytes, and a "
                   "kubelet takes %d: use --memory-unit=%s or a larger one, in the "
                   "extender too",
                   unit.p, (long long)bytes, IDS_MESSAGE_MAX, better.p);
}
