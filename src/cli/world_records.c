/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "cli/world_priv.h"
#include "domain/promise.h"
#include "domain/quantity.h"

static void record_free(struct record *r)
{
    free((char *)r->key.p);
    free(r->strings);
    arena_fini(&r->arena);
    free(r);
}

/* Heartbeats come all the time: whoever looks at them says what can be seen of it. */
static void note_change(struct world *w, const struct kept *k)
{
    if (k != &w->kept[CORE_LEASES])
        w->changes++;
}

static void drop(struct world *w, struct kept *k, struct record *r)
{
    map_remove(&k->by_key, r->key);
    if (r->prev)
        r->prev->next = r->next;
    else
        k->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    k->n--;
    note_change(w, k);
    record_free(r);
}

/* An empty record for that key, in place of the one there was; NULL if `gone`. */
static struct record *renew(struct world *w, enum core_kind kind, struct span key,
                            uint64_t run, bool gone)
{
    struct kept *k = &w->kept[kind];
    struct record *r = map_get(&k->by_key, key);
    if (r)
        drop(w, k, r);
    if (gone)
        return NULL;
    r = xcalloc(1, sizeof *r);
    r->run = run;
    r->key = (struct span){xmemdup0(key.p, key.n), key.n};
    r->next = k->first;
    if (k->first)
        k->first->prev = r;
    k->first = r;
    k->n++;
    note_change(w, k);
    map_set(&k->by_key, r);
    return r;
}

/* Lets the fields, which are borrowed, point to copies. */
static void own_strings(struct record *r, struct span *const *fields, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += fields[i]->n;
    char *at = r->strings = xmalloc(bytes + 1);
    for (size_t i = 0; i < n; i++) {
        if (fields[i]->n)
            memcpy(at, fields[i]->p, fields[i]->n);
        if (fields[i]->p)
            fields[i]->p = at;
        at += fields[i]->n;
    }
}

static void see_node(struct world *w, const struct core_input *in)
{
    const struct node *n = in->node;
    struct record *r = renew(w, CORE_NODES, n->meta.name, in->run, in->deleted);
    if (!r)
        return;
    r->node = (struct world_node){.name = r->key,
                                  .address = n->address,
                                  .capacity = n->capacity,
                                  .allocatable = n->allocatable};
    own_strings(r, (struct span *const[]){&r->node.address}, 1);
}

/* A list that shows the same again is no renewal. */
static void see_beat(struct world *w, const struct core_input *in)
{
    struct span name = in->lease->meta.name, renewed = in->lease->renew_time;
    const struct world_beat *old = world_beat(w, name);
    struct world_beat beat = {0};
    if (old && span_eq(old->renewed, renewed))
        beat = *old;
    else if (old && old->doubt != DOUBT_NONE)
        w->changes++;
    beat.renewed = renewed; /* `old` goes */
    struct record *r = renew(w, CORE_LEASES, name, in->run, in->deleted);
    if (!r)
        return;
    r->beat = beat;
    r->beat.name = r->key;
    own_strings(r, (struct span *const[]){&r->beat.renewed}, 1);
}

static int64_t go_units(const struct pod *pod)
{
    int64_t sum = 0;
    for (size_t i = 0; i < pod->n_containers; i++) {
        int64_t units = 0;
        const struct pod_container *c = &pod->containers[i];
        if (c->role != CONTAINER_APP || !c->mem.p || quantity_read(c->mem, &units, NULL))
            continue;
        if (units < (int64_t)1 << 40 && sum < (int64_t)1 << 50)
            sum += units;
    }
    return sum;
}

/* Is there anything wrong with what the pod asks for, or was promised? */
static bool is_bad(struct world *w, const struct pod *pod, struct err *err)
{
    struct request_rules rules = ledger_rules(&w->config.ledger);
    struct request request;
    struct promise promise;
    bool promised = pod->idx.p || pod->allocation.p;
    arena_reset(&w->scratch);
    if (request_of(pod, &rules, &w->scratch, &request, err))
        return true;
    if (promised && pod->node.n && !promise_of(pod, &w->scratch, &promise)) {
        err_set(err, ERR_INVALID,
                "its annotations name no card: ALIYUN_COM_GPU_MEM_IDX \"%.*s\"",
                SPAN_ARG(pod->idx));
        return true;
    }
    return false;
}

static void see_pod(struct world *w, const struct core_input *in)
{
    const struct pod *pod = in->pod;
    struct err err;
    struct record *r = renew(w, CORE_PODS, pod->meta.uid, in->run, in->deleted);
    if (!r)
        return;
    struct world_pod *to = &r->pod;
    *to = (struct world_pod){.uid = r->key, .ns = pod->meta.ns, .name = pod->meta.name};
    if (!in->invalid) {
        to->node = pod->node;
        to->idx = pod->idx;
        to->allocation = pod->allocation;
        to->card_uuid = pod->card_uuid;
        to->assigned = pod->assigned;
        to->go_units = go_units(pod);
        to->over = pod_is_terminal(pod);
        to->damaged = is_bad(w, pod, &err);
        to->why = to->damaged ? span_of(err.msg) : (struct span){0};
    }
    struct span *const fields[] = {&to->ns,       &to->name,       &to->node,
                                   &to->idx,      &to->allocation, &to->card_uuid,
                                   &to->assigned, &to->why};
    own_strings(r, fields, ARRAY_LEN(fields));
}

void world_sweep(struct world *w, const struct core_input *in)
{
    struct kept *k = &w->kept[in->kind];
    for (struct record *r = k->first, *next; r; r = next) {
        next = r->next;
        if (r->run != in->run)
            drop(w, k, r);
    }
}

void world_forget(struct world *w)
{
    for (int kind = 0; kind < KEPT; kind++) {
        while (w->kept[kind].first)
            drop(w, &w->kept[kind], w->kept[kind].first);
        map_fini(&w->kept[kind].by_key);
    }
}

void world_keep(struct world *w, const struct core_input *in)
{
    if (in->kind == CORE_NODES)
        see_node(w, in);
    else if (in->kind == CORE_PODS)
        see_pod(w, in);
    else if (in->kind == CORE_LEASES)
        see_beat(w, in);
}

/* -- Scvs, which the core does not keep whole -- */

static struct span keep(struct record *r, struct span text)
{
    return text.p ? arena_copy(&r->arena, text) : text;
}

static void keep_cards(struct record *r, struct scv *to, const struct scv *from)
{
    to->cards = arena_zalloc(&r->arena, from->n_cards * sizeof *to->cards);
    for (size_t i = 0; i < from->n_cards; i++) {
        struct scv_card *card = &to->cards[i];
        *card = from->cards[i];
        card->health = keep(r, card->health);
        card->model = keep(r, card->model);
        card->uuid = keep(r, card->uuid);
        card->bus_id = keep(r, card->bus_id);
        if (card->extra) {
            struct scv_extra *extra = arena_alloc(&r->arena, sizeof *extra);
            *extra = *card->extra;
            card->extra = extra;
        }
    }
}

static void keep_held(struct record *r, struct scv *to, const struct scv *from)
{
    to->held = arena_zalloc(&r->arena, from->n_held * sizeof *to->held);
    for (size_t i = 0; i < from->n_held; i++) {
        struct scv_held *held = &to->held[i];
        *held = from->held[i];
        held->ns = keep(r, held->ns);
        held->pod = keep(r, held->pod);
        held->container = keep(r, held->container);
        held->resource = keep(r, held->resource);
        held->uuids = arena_zalloc(&r->arena, held->n_uuids * sizeof *held->uuids);
        for (size_t k = 0; k < held->n_uuids; k++)
            held->uuids[k] = keep(r, from->held[i].uuids[k]);
    }
}

void world_keep_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
{
    struct record *r = renew(ctx, CORE_SCVS, scv->meta.name, run, gone);
    if (!r)
        return;
    struct scv *to = &r->scv.scv;
    *to = *scv;
    r->scv.name = r->key;
    to->meta = (struct object_meta){.name = r->key, .created_s = scv->meta.created_s};
    to->driver_version = keep(r, scv->driver_version);
    to->cuda_version = keep(r, scv->cuda_version);
    to->owner_uid = (struct span){0};
    keep_cards(r, to, scv);
    keep_held(r, to, scv);
}
