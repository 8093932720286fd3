/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"

/*
 * The current Scv of a node: its cards, and the cards that containers hold through
 * resources of other device plugins. The strings are in one block.
 */

static void drop_assignments(struct ledger_node_facts *f)
{
    free(f->assignments);
    f->assignments = NULL;
    f->n_assignments = 0;
    f->assignments_kept = false;
}

/* All but the assignments. */
static void drop_cards(struct ledger_node_facts *f)
{
    free(f->scv_cards);
    free(f->holders);
    free(f->holder_uuids);
    free(f->scv_strings);
    f->scv_cards = NULL;
    f->holders = NULL;
    f->holder_uuids = NULL;
    f->scv_strings = NULL;
    f->n_scv_cards = f->n_holders = 0;
    ledger_use_drop(f);
    f->held = f->duplicates = 0;
    f->scv_damaged = f->has_sample = false;
    f->sample_s = f->scv_created_s = 0;
}

void ledger_facts_drop_scv(struct ledger_node_facts *f)
{
    drop_cards(f);
    drop_assignments(f);
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
        to->uses = NULL; /* f->uses has them */
        to->n_uses = 0;
        for (size_t k = 0; k < from->n_uuids; k++, uuid++) {
            *uuid = from->uuids[k];
            move_in(uuid, at);
        }
        if (scv_is_nvidia_resource(to->resource))
            f->held |= cards_of(f, to);
    }
    f->n_holders = scv->n_held;
}

/* -- assignments -- */

static int by_pod(const void *a, const void *b)
{
    const struct ledger_assignment *x = a, *y = b;
    if (x->pod != y->pod)
        return x->pod < y->pod ? -1 : 1;
    return x->card < y->card ? -1 : x->card > y->card;
}

static void copy_assignments(struct ledger_node_facts *f, const struct scv *scv)
{
    drop_assignments(f);
    if (!scv->n_assignments)
        return;
    f->assignments = xcalloc(scv->n_assignments, sizeof *f->assignments);
    for (size_t i = 0; i < scv->n_assignments; i++)
        f->assignments[i] = (struct ledger_assignment){.pod = scv->assignments[i].pod,
                                                       .card = scv->assignments[i].card};
    qsort(f->assignments, scv->n_assignments, sizeof *f->assignments, by_pod);
    f->n_assignments = scv->n_assignments;
}

static void find_assigned_cards(struct ledger_node_facts *f)
{
    uint64_t hashes[SCV_MAX_CARDS];
    for (size_t c = 0; c < f->n_scv_cards && f->n_assignments; c++)
        hashes[c] = scv_card_hash(f->scv_cards[c].uuid);
    for (size_t i = 0; i < f->n_assignments; i++) {
        struct ledger_assignment *a = &f->assignments[i];
        a->at = -1;
        for (size_t c = 0; c < f->n_scv_cards && a->at < 0; c++)
            if (hashes[c] == a->card && f->scv_cards[c].uuid.n)
                a->at = (int32_t)c;
    }
}

const struct ledger_assignment *ledger_facts_assigned(const struct ledger_node_facts *f,
                                                      const struct ledger_pod *pod,
                                                      size_t *n)
{
    size_t from = 0, to = f->n_assignments;
    *n = 0;
    if (!to)
        return NULL;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (f->assignments[middle].pod < pod->hash)
            from = middle + 1;
        else
            to = middle;
    }
    while (from + *n < f->n_assignments && f->assignments[from + *n].pod == pod->hash)
        ++*n;
    return f->assignments + from;
}

/* Keeps the assignments of the pods on the node: a later pod can have the name of one that
 * has left. */
static void keep_assignments(struct ledger_node *node)
{
    struct ledger_node_facts *f = node->facts;
    size_t n, kept = 0;
    if (f->assignments_kept || !f->n_assignments)
        return;
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
        for (size_t i = 0; i < n; i++)
            f->assignments[a - f->assignments + i].at = INT32_MAX;
    }
    for (size_t i = 0; i < f->n_assignments; i++)
        if (f->assignments[i].at == INT32_MAX)
            f->assignments[kept++] = f->assignments[i];
    f->n_assignments = kept;
    f->assignments_kept = true;
}

void ledger_facts_forget(struct ledger_node_facts *f, const struct ledger_pod *pod)
{
    size_t n;
    const struct ledger_assignment *a = ledger_facts_assigned(f, pod, &n);
    if (!f->assignments_kept || !n)
        return;
    size_t from = (size_t)(a - f->assignments);
    memmove(f->assignments + from, f->assignments + from + n,
            (f->n_assignments - from - n) * sizeof *f->assignments);
    f->n_assignments -= n;
}

void ledger_facts_copy_scv(struct ledger_node *node, const struct scv *scv)
{
    struct ledger_node_facts *f = node->facts;
    drop_cards(f);
    f->scv_damaged = scv->damaged;
    f->has_sample = scv->has_update_time;
    f->sample_s = scv->update_time;
    f->scv_created_s = scv->meta.created_s;
    if (scv->damaged || (!scv->n_held && !scv->n_assignments))
        keep_assignments(node);
    else
        copy_assignments(f, scv);
    if (scv->damaged)
        return;
    const char *at = f->scv_strings = copy_strings(scv);
    copy_cards(f, scv, &at);
    find_duplicates(f);
    copy_holders(f, scv, &at);
    ledger_use_copy(f, scv);
    find_assigned_cards(f);
}

bool ledger_facts_holds(const struct ledger_node_facts *f, const struct ledger_pod *pod,
                        uint32_t card)
{
    for (size_t i = 0; i < f->n_holders; i++) {
        const struct scv_held *h = &f->holders[i];
        if (span_eq(h->pod, pod->name) && span_eq(h->ns, pod->ns) &&
            scv_is_nvidia_resource(h->resource) && cards_of(f, h) >> card & 1)
            return true;
    }
    return false;
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
