/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"

/*
 * The current Scv of a node: its cards, and the cards that containers hold through
 * resources of other device plugins. The strings are in one block.
 */

void ledger_facts_drop_scv(struct ledger_node_facts *f)
{
    free(f->scv_cards);
    free(f->holders);
    free(f->holder_uuids);
    free(f->assignments);
    free(f->scv_strings);
    f->scv_cards = NULL;
    f->holders = NULL;
    f->holder_uuids = NULL;
    f->assignments = NULL;
    f->scv_strings = NULL;
    f->n_scv_cards = f->n_holders = f->n_assignments = 0;
    f->held = f->duplicates = 0;
    f->scv_damaged = f->has_sample = false;
    f->sample_s = f->scv_created_s = 0;
}

/* Points *text to its copy at *at, and advances *at. */
static void move_in(struct span *text, const char **at)
{
    text->p = *at;
    *at += text->n;
}

static char *copy_strings(const struct scv *scv)
{
    cleanup_buf struct buf strings = {0};
    for (size_t i = 0; i < scv->n_cards; i++) {
        buf_add_span(&strings, scv->cards[i].model);
        buf_add_span(&strings, scv->cards[i].uuid);
        buf_add_span(&strings, scv->cards[i].bus_id);
    }
    for (size_t i = 0; i < scv->n_held; i++) {
        buf_add_span(&strings, scv->held[i].ns);
        buf_add_span(&strings, scv->held[i].pod);
        buf_add_span(&strings, scv->held[i].container);
        buf_add_span(&strings, scv->held[i].resource);
        for (size_t k = 0; k < scv->held[i].n_uuids; k++)
            buf_add_span(&strings, scv->held[i].uuids[k]);
    }
    return buf_take(&strings);
}

static void copy_cards(struct ledger_node_facts *f, const struct scv *scv,
                       const char **at)
{
    f->scv_cards = xcalloc(scv->n_cards, sizeof *f->scv_cards);
    f->n_scv_cards = scv->n_cards;
    for (size_t i = 0; i < scv->n_cards; i++) {
        struct scv_card *card = &f->scv_cards[i];
        *card = scv->cards[i];
        card->health = (struct span){0}; /* `healthy` has it */
        card->extra = NULL;
        move_in(&card->model, at);
        move_in(&card->uuid, at);
        move_in(&card->bus_id, at);
    }
}

static void find_duplicates(struct ledger_node_facts *f)
{
    for (size_t i = 0; i < f->n_scv_cards; i++)
        for (size_t k = 0; k < i && f->scv_cards[i].uuid.n; k++)
            if (span_eq(f->scv_cards[i].uuid, f->scv_cards[k].uuid))
                f->duplicates |= UINT64_C(1) << i | UINT64_C(1) << k;
}

/* The bits of the cards with these UUIDs. */
static uint64_t cards_of(const struct ledger_node_facts *f, const struct scv_held *held)
{
    uint64_t bits = 0;
    for (size_t k = 0; k < held->n_uuids; k++)
        for (size_t c = 0; c < f->n_scv_cards && held->uuids[k].n; c++)
            if (span_eq(held->uuids[k], f->scv_cards[c].uuid))
                bits |= UINT64_C(1) << c;
    return bits;
}

static void copy_holders(struct ledger_node_facts *f, const struct scv *scv,
                         const char **at)
{
    size_t n_uuids = 0;
    if (!scv->n_held)
        return;
    for (size_t i = 0; i < scv->n_held; i++)
        n_uuids += scv->held[i].n_uuids;
    struct span *uuid = f->holder_uuids = xcalloc(n_uuids, sizeof *uuid);
    f->holders = xcalloc(scv->n_held, sizeof *f->holders);
    for (size_t i = 0; i < scv->n_held; i++) {
        const struct scv_held *from = &scv->held[i];
        struct scv_held *to = &f->holders[i];
        *to = *from;
        move_in(&to->ns, at);
        move_in(&to->pod, at);
        move_in(&to->container, at);
        move_in(&to->resource, at);
        to->uuids = uuid;
        for (size_t k = 0; k < from->n_uuids; k++, uuid++) {
            *uuid = from->uuids[k];
            move_in(uuid, at);
        }
        if (scv_is_nvidia_resource(to->resource))
            f->held |= cards_of(f, to);
    }
    f->n_holders = scv->n_held;
}

static void copy_assignments(struct ledger_node_facts *f, const struct scv *scv)
{
    if (!scv->n_assignments)
        return;
    f->assignments = xcalloc(scv->n_assignments, sizeof *f->assignments);
    memcpy(f->assignments, scv->assignments, scv->n_assignments * sizeof *f->assignments);
    f->n_assignments = scv->n_assignments;
}

void ledger_facts_copy_scv(struct ledger_node_facts *f, const struct scv *scv)
{
    f->scv_damaged = scv->damaged;
    f->has_sample = scv->has_update_time;
    f->sample_s = scv->update_time;
    f->scv_created_s = scv->meta.created_s;
    if (scv->damaged)
        return;
    const char *at = f->scv_strings = copy_strings(scv);
    copy_cards(f, scv, &at);
    find_duplicates(f);
    copy_holders(f, scv, &at);
    copy_assignments(f, scv);
}

int64_t ledger_facts_devices_of(const struct ledger_node_facts *f,
                                const struct ledger_pod *pod)
{
    int64_t n = 0;
    for (size_t i = 0; i < f->n_holders; i++) {
        const struct scv_held *h = &f->holders[i];
        if (span_eq(h->pod, pod->name) && span_eq(h->ns, pod->ns) &&
            span_eq(h->resource, SPAN(KEY_NVIDIA_GPU)))
            n += h->units;
    }
    return n;
}
