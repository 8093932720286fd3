/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/keys.h"

/*
 * The current Scv of a node: its cards, and the cards that containers hold through
 * resources of other device plugins. A large cluster has tens of thousands of cards, so the
 * cards of a node are one block, and those of one model share its name and properties.
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
    f->scv_cards = NULL;
    f->holders = NULL;
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

/* Position of the first card with the model of card i. */
static size_t first_of_model(const struct scv *scv, size_t i)
{
    const struct scv_card *card = &scv->cards[i];
    size_t k = 0;
    while (!span_eq(scv->cards[k].model, card->model) ||
           !scv_spec_equal(&scv->cards[k].spec, &card->spec))
        k++;
    return k;
}

static size_t block_bytes(const struct scv *scv, size_t *n_models)
{
    size_t bytes = scv->n_cards * sizeof(struct ledger_scv_card);
    *n_models = 0;
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *card = &scv->cards[i];
        bytes += card->uuid.n + card->bus_id.n;
        if (first_of_model(scv, i) != i)
            continue;
        bytes += sizeof(struct ledger_card_model) + card->model.n;
        ++*n_models;
    }
    return bytes;
}

/* The block begins with the cards. Then come the models, then the strings. */
static void copy_cards(struct ledger_node_facts *f, const struct scv *scv)
{
    size_t n_models;
    size_t bytes = block_bytes(scv, &n_models);
    f->n_scv_cards = scv->n_cards;
    f->scv_cards = xmalloc(bytes);
    struct ledger_card_model *model = (void *)(f->scv_cards + scv->n_cards);
    char *at = (char *)(model + n_models);
    for (size_t i = 0; i < scv->n_cards; i++) {
        const struct scv_card *from = &scv->cards[i];
        size_t first = first_of_model(scv, i);
        if (first == i)
            *model = (struct ledger_card_model){span_put(from->model, &at), from->spec};
        f->scv_cards[i] = (struct ledger_scv_card){
            .uuid = span_put(from->uuid, &at),
            .bus_id = span_put(from->bus_id, &at),
            .model = first == i ? model++ : f->scv_cards[first].model,
            .total_mib = from->total_mib,
            .used_mib = scv_card_used(from),
            .id = from->id,
            .healthy = from->healthy,
            .use_complete = from->use_complete,
        };
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

static size_t holder_bytes(const struct scv_held *held)
{
    size_t bytes = sizeof *held + held->ns.n + held->pod.n + held->container.n +
                   held->resource.n + held->n_uuids * sizeof *held->uuids;
    for (size_t k = 0; k < held->n_uuids; k++)
        bytes += held->uuids[k].n;
    return bytes;
}

static void copy_holders(struct ledger_node_facts *f, const struct scv *scv)
{
    size_t n_uuids = 0, bytes = 0;
    if (!scv->n_held)
        return;
    for (size_t i = 0; i < scv->n_held; i++) {
        n_uuids += scv->held[i].n_uuids;
        bytes += holder_bytes(&scv->held[i]);
    }
    f->holders = xmalloc(bytes);
    f->n_holders = scv->n_held;
    struct span *uuid = (struct span *)(f->holders + scv->n_held);
    char *at = (char *)(uuid + n_uuids);
    for (size_t i = 0; i < scv->n_held; i++) {
        const struct scv_held *from = &scv->held[i];
        struct scv_held *to = &f->holders[i];
        *to = (struct scv_held){
            .ns = span_put(from->ns, &at),
            .pod = span_put(from->pod, &at),
            .container = span_put(from->container, &at),
            .resource = span_put(from->resource, &at),
            .units = from->units,
            .uuids = uuid,
            .n_uuids = from->n_uuids,
        }; /* without uses: f->uses has them */
        for (size_t k = 0; k < from->n_uuids; k++)
            *uuid++ = span_put(from->uuids[k], &at);
        if (scv_is_nvidia_resource(to->resource))
            f->held |= cards_of(f, to);
    }
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
        hashes[c] = scv_hash(f->scv_cards[c].uuid);
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
    *n = 0;
    if (!f->n_assignments)
        return NULL;
    size_t from =
        ARRAY_LOWER_BOUND(a, f->assignments, f->n_assignments, a->pod < pod->hash);
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
    if (MUTANT(dropped_pod_list_frees) &&
        (scv->damaged || (!scv->n_held && !scv->n_assignments)))
        drop_assignments(f);
    else if (scv->damaged || (!scv->n_held && !scv->n_assignments))
        keep_assignments(node);
    else
        copy_assignments(f, scv);
    if (!scv->damaged) {
        copy_cards(f, scv);
        find_duplicates(f);
        copy_holders(f, scv);
        ledger_use_copy(f, scv);
    }
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
