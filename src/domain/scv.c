/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/scv.h"

#include "base/clock.h"

enum {
    ID_MAX = 65535,
};
static const int64_t mib_max = (int64_t)1 << 40;

static void read_mib(struct jread *j, const char *where, int64_t *out)
{
    int64_t v = 0;
    if (!jread_i64(j, where, &v))
        return;
    if (v < 0 || v > mib_max)
        jread_fail(j, where, "is no size of a card");
    else
        *out = v;
}

static void read_card(struct jread *j, struct arena *a, struct scv_card *card)
{
    struct jread_str key;
    int64_t id = 0;
    *card = (struct scv_card){0};
    jread_object(j, "status.cardList[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "id")) {
            jread_i64(j, "status.cardList[].id", &id);
        } else if (jread_key_is(key, "health")) {
            jread_text(j, "status.cardList[].health", a, &card->health);
        } else if (jread_key_is(key, "model")) {
            jread_text(j, "status.cardList[].model", a, &card->model);
        } else if (jread_key_is(key, "uuid")) {
            jread_text(j, "status.cardList[].uuid", a, &card->uuid);
        } else if (jread_key_is(key, "totalMemory")) {
            read_mib(j, "status.cardList[].totalMemory", &card->total_mib);
        } else if (jread_key_is(key, "freeMemory")) {
            read_mib(j, "status.cardList[].freeMemory", &card->free_mib);
        } else if (jread_key_is(key, "usedMemory")) {
            card->has_used = jread_peek(j) == JREAD_NUMBER;
            read_mib(j, "status.cardList[].usedMemory", &card->used_mib);
        } else {
            jread_skip(j);
        }
    }
    if (id < 0 || id > ID_MAX)
        jread_fail(j, "status.cardList[].id", "is no index of a card");
    card->id = (int32_t)(id & ID_MAX);
    card->healthy = span_eq(card->health, SPAN("Healthy"));
}

/* Keeps the cards sorted by id. */
static void insert_card(struct jread *j, struct scv *scv, const struct scv_card *card)
{
    size_t at = scv->n_cards;
    while (at && scv->cards[at - 1].id > card->id)
        at--;
    if (at && scv->cards[at - 1].id == card->id) {
        jread_fail(j, "status.cardList[].id", "comes twice");
        return;
    }
    memmove(scv->cards + at + 1, scv->cards + at,
            (scv->n_cards - at) * sizeof *scv->cards);
    scv->cards[at] = *card;
    scv->n_cards++;
}

static void read_cards(struct jread *j, struct arena *a, struct scv *scv)
{
    scv->n_cards = 0;
    scv->cards = arena_alloc(a, SCV_MAX_CARDS * sizeof *scv->cards);
    jread_array(j, "status.cardList");
    while (jread_item(j)) {
        struct scv_card card;
        read_card(j, a, &card);
        if (scv->n_cards == SCV_MAX_CARDS)
            jread_fail(j, "status.cardList", "has more than 64 cards");
        else
            insert_card(j, scv, &card);
    }
}

static void read_status(struct jread *j, struct arena *a, struct scv *scv)
{
    struct jread_str key;
    struct span time;
    jread_object(j, "status");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "cardList"))
            read_cards(j, a, scv);
        else if (jread_key_is(key, "updateTime"))
            scv->has_update_time = jread_text(j, "status.updateTime", a, &time) &&
                                   clock_parse(time, &scv->update_time);
        else
            jread_skip(j);
    }
}

void scv_read(struct jread *j, struct arena *a, struct scv *scv)
{
    struct jread_str key;
    *scv = (struct scv){0};
    jread_object(j, "scv");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &scv->meta, NULL, 0);
        else if (jread_key_is(key, "status"))
            read_status(j, a, scv);
        else
            jread_skip(j);
    }
    object_meta_check(j, &scv->meta);
}

int64_t scv_card_used(const struct scv_card *card)
{
    if (card->has_used)
        return card->used_mib;
    return card->total_mib > card->free_mib ? card->total_mib - card->free_mib : 0;
}
