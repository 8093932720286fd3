/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/scv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "domain/scv_priv.h"

enum {
    ID_MAX = 65535,
};

bool scv_read_number(struct jread *j, const char *where, int64_t most, const char *why,
                     int64_t *out)
{
    int64_t v = 0;
    if (!jread_i64(j, where, &v))
        return false;
    if (v < 0 || v > most)
        jread_fail(j, where, why);
    else
        *out = v;
    return true;
}

static bool read_mib(struct jread *j, const char *where, int64_t *out)
{
    return scv_read_number(j, where, SCV_MIB_MAX, "is not the size of a card", out);
}

static void read_temperature(struct jread *j, struct scv_extra *x)
{
    x->has_temperature = jread_i64(j, "status.cardList[].temperature", &x->temperature);
    if (x->temperature < -1000 || x->temperature > 1000)
        jread_fail(j, "status.cardList[].temperature", "is not a temperature");
}

/* False when the key is another one; its value is then still unread. */
static bool read_spec_of(struct jread *j, struct jread_str key, struct scv_spec *spec)
{
    static const char why[] = "is negative or too large";
    if (jread_key_is(key, "power"))
        scv_read_number(j, "status.cardList[].power", SCV_MIB_MAX, why, &spec->power_w);
    else if (jread_key_is(key, "clock"))
        scv_read_number(j, "status.cardList[].clock", SCV_MIB_MAX, why, &spec->clock_mhz);
    else if (jread_key_is(key, "core"))
        scv_read_number(j, "status.cardList[].core", SCV_MIB_MAX, why, &spec->core_mhz);
    else if (jread_key_is(key, "bandwidth"))
        scv_read_number(j, "status.cardList[].bandwidth", SCV_MIB_MAX, why,
                        &spec->bandwidth);
    else
        return false;
    return true;
}

/* Like read_spec_of. */
static bool read_extra(struct jread *j, struct jread_str key, struct scv_extra *x)
{
    if (jread_key_is(key, "utilization"))
        x->has_utilization = scv_read_number(j, "status.cardList[].utilization", 100,
                                             "is not a percentage", &x->utilization);
    else if (jread_key_is(key, "temperature"))
        read_temperature(j, x);
    else
        return false;
    return true;
}

static void read_card(struct jread *j, struct arena *a, bool all, struct scv_card *card)
{
    struct jread_str key;
    int64_t id = 0;
    *card = (struct scv_card){.extra = all ? arena_zalloc(a, sizeof *card->extra) : NULL};
    jread_object(j, "status.cardList[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "id"))
            jread_i64(j, "status.cardList[].id", &id);
        else if (jread_key_is(key, "health"))
            jread_text(j, "status.cardList[].health", a, &card->health);
        else if (jread_key_is(key, "model"))
            jread_text(j, "status.cardList[].model", a, &card->model);
        else if (jread_key_is(key, "uuid"))
            jread_text(j, "status.cardList[].uuid", a, &card->uuid);
        else if (jread_key_is(key, "busId"))
            jread_text(j, "status.cardList[].busId", a, &card->bus_id);
        else if (jread_key_is(key, "totalMemory"))
            read_mib(j, "status.cardList[].totalMemory", &card->total_mib);
        else if (jread_key_is(key, "freeMemory"))
            read_mib(j, "status.cardList[].freeMemory", &card->free_mib);
        else if (jread_key_is(key, "usageComplete"))
            jread_bool(j, "status.cardList[].usageComplete", &card->use_complete);
        else if (jread_key_is(key, "usedMemory"))
            card->has_used = read_mib(j, "status.cardList[].usedMemory", &card->used_mib);
        else if (!read_spec_of(j, key, &card->spec) &&
                 (!all || !read_extra(j, key, card->extra)))
            jread_skip(j);
    }
    if (id < 0 || id > ID_MAX)
        jread_fail(j, "status.cardList[].id", "is not an index of a card");
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
        jread_fail(j, "status.cardList[].id", "is a duplicate");
        return;
    }
    memmove(scv->cards + at + 1, scv->cards + at,
            (scv->n_cards - at) * sizeof *scv->cards);
    scv->cards[at] = *card;
    scv->n_cards++;
}

static void read_cards(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    scv->n_cards = 0;
    scv->cards = arena_alloc(a, SCV_MAX_CARDS * sizeof *scv->cards);
    jread_array(j, "status.cardList");
    while (jread_item(j)) {
        struct scv_card card;
        read_card(j, a, all, &card);
        if (scv->n_cards == SCV_MAX_CARDS)
            jread_fail(j, "status.cardList", "has more than 64 cards");
        else
            insert_card(j, scv, &card);
    }
}

bool scv_is_nvidia_resource(struct span resource)
{
    return span_starts(resource, SPAN("nvidia.com/"));
}

uint64_t scv_pod_hash(struct span ns, struct span name)
{
    return hash_bytes(hash_bytes(0, ns.p, ns.n), name.p, name.n);
}

uint64_t scv_uid_hash(struct span uid)
{
    return hash_bytes(0, uid.p, uid.n);
}

uint64_t scv_card_hash(struct span uuid)
{
    return hash_bytes(0, uuid.p, uuid.n);
}

static void read_status(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    struct jread_str key;
    struct span time;
    jread_object(j, "status");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "cardList"))
            read_cards(j, a, all, scv);
        else if (jread_key_is(key, "updateTime"))
            scv->has_update_time = jread_text(j, "status.updateTime", a, &time) &&
                                   clock_parse(time, &scv->update_time);
        else if (all && jread_key_is(key, "driverVersion"))
            jread_text(j, "status.driverVersion", a, &scv->driver_version);
        else if (all && jread_key_is(key, "cudaVersion"))
            jread_text(j, "status.cudaVersion", a, &scv->cuda_version);
        else if (jread_key_is(key, "podList"))
            scv_pods_read(j, a, all, scv);
        else if (jread_key_is(key, "processList"))
            scv_pods_read_processes(j, a, all, scv);
        else
            jread_skip(j);
    }
}

static void read_spec(struct jread *j, struct scv *scv)
{
    struct jread_str key;
    jread_object(j, "spec");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "updateInterval"))
            scv_read_number(j, "spec.updateInterval", SCV_MIB_MAX,
                            "is negative or too large", &scv->update_interval_ms);
        else
            jread_skip(j);
    }
}

static void read_scv(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    struct jread_str key;
    *scv = (struct scv){0};
    jread_object(j, "scv");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &scv->meta, NULL, 0);
        else if (jread_key_is(key, "status"))
            read_status(j, a, all, scv);
        else if (all && jread_key_is(key, "spec"))
            read_spec(j, scv);
        else
            jread_skip(j);
    }
    object_meta_check(j, &scv->meta);
}

void scv_read(struct jread *j, struct arena *a, struct scv *scv)
{
    read_scv(j, a, false, scv);
}

void scv_read_all(struct jread *j, struct arena *a, struct scv *scv)
{
    read_scv(j, a, true, scv);
}

int64_t scv_card_used(const struct scv_card *card)
{
    if (card->has_used)
        return card->used_mib;
    return card->total_mib > card->free_mib ? card->total_mib - card->free_mib : 0;
}
