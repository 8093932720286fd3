/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "cli/cluster_state_priv.h"
#include "domain/promise.h"
#include "domain/quantity.h"

static void record_free(struct record *r)
{
    free((char *)r->key.p);
    free(r->strings);
    arena_fini(&r->arena);
    free(r);
}

/* A renewal alone changes nothing visible. */
static void note_change(struct cluster_state *cs, const struct record_table *t)
{
    if (t != &cs->tables[CORE_LEASES])
        cs->changes++;
}

static void drop(struct cluster_state *cs, struct record_table *t, struct record *r)
{
    map_remove(&t->by_key, r->key);
    if (r->prev)
        r->prev->next = r->next;
    else
        t->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    t->n--;
    note_change(cs, t);
    record_free(r);
}

/* An empty record for that key, which replaces the existing one; NULL if `gone`. */
static struct record *replace(struct cluster_state *cs, enum core_kind kind,
                              struct span key, uint64_t run, bool gone)
{
    struct record_table *t = &cs->tables[kind];
    struct record *r = map_get(&t->by_key, key);
    if (r)
        drop(cs, t, r);
    if (gone)
        return NULL;
    r = xcalloc(1, sizeof *r);
    r->run = run;
    r->key = (struct span){xmemdup0(key.p, key.n), key.n};
    r->next = t->first;
    if (t->first)
        t->first->prev = r;
    t->first = r;
    t->n++;
    note_change(cs, t);
    map_set(&t->by_key, r);
    return r;
}

/* Copies the strings of the fields, which are borrowed. */
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

static void store_node(struct cluster_state *cs, const struct core_input *in)
{
    const struct node *n = in->node;
    struct record *r = replace(cs, CORE_NODES, n->meta.name, in->run, in->deleted);
    if (!r)
        return;
    r->node = (struct cluster_state_node){.name = r->key,
                                          .address = n->address,
                                          .capacity = n->capacity,
                                          .allocatable = n->allocatable};
    r->node.named_invalid = template_node_named(n, &r->node.named, NULL) != 0;
    own_strings(r, (struct span *const[]){&r->node.address}, 1);
}

/* A list that repeats a renewTime is not a renewal. */
static void store_heartbeat(struct cluster_state *cs, const struct core_input *in)
{
    struct span name = in->lease->meta.name, renewed = in->lease->renew_time;
    const struct cluster_state_heartbeat *old = cluster_state_heartbeat(cs, name);
    struct cluster_state_heartbeat heartbeat = {0};
    if (old && span_eq(old->renewed, renewed))
        heartbeat = *old;
    else if (old && old->freshness != HEARTBEAT_FRESH)
        cs->changes++;
    heartbeat.renewed = renewed; /* replace() frees `old` */
    struct record *r = replace(cs, CORE_LEASES, name, in->run, in->deleted);
    if (!r)
        return;
    r->heartbeat = heartbeat;
    r->heartbeat.name = r->key;
    own_strings(r, (struct span *const[]){&r->heartbeat.renewed}, 1);
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

/* Is the pod's request or its promise malformed? */
static bool is_invalid(struct cluster_state *cs, const struct pod *pod, struct err *err)
{
    struct request_rules rules = ledger_rules(&cs->config.ledger);
    struct request request;
    struct promise promise;
    bool promised = pod->idx.p || pod->allocation.p;
    arena_reset(&cs->scratch);
    if (request_of(pod, &rules, &cs->scratch, &request, err))
        return true;
    if (promised && pod->node.n && !promise_of(pod, &cs->scratch, &promise)) {
        err_set(err, ERR_INVALID,
                "annotations name no card: ALIYUN_COM_GPU_MEM_IDX \"%.*s\"",
                SPAN_ARG(pod->idx));
        return true;
    }
    return false;
}

static void store_pod(struct cluster_state *cs, const struct core_input *in)
{
    const struct pod *pod = in->pod;
    struct err err;
    struct record *r = replace(cs, CORE_PODS, pod->meta.uid, in->run, in->deleted);
    if (!r)
        return;
    struct cluster_state_pod *to = &r->pod;
    *to = (struct cluster_state_pod){
        .uid = r->key, .ns = pod->meta.ns, .name = pod->meta.name};
    if (!in->invalid) {
        to->node = pod->node;
        to->idx = pod->idx;
        to->allocation = pod->allocation;
        to->card_uuid = pod->card_uuid;
        to->assigned = pod->assigned;
        to->go_units = go_units(pod);
        to->finished = pod_is_terminal(pod);
        to->invalid = is_invalid(cs, pod, &err);
        to->reason = to->invalid ? span_of(err.msg) : (struct span){0};
    }
    struct span *const fields[] = {&to->ns,       &to->name,       &to->node,
                                   &to->idx,      &to->allocation, &to->card_uuid,
                                   &to->assigned, &to->reason};
    own_strings(r, fields, ARRAY_LEN(fields));
}

void cluster_state_sweep(struct cluster_state *cs, const struct core_input *in)
{
    struct record_table *t = &cs->tables[in->kind];
    for (struct record *r = t->first, *next; r; r = next) {
        next = r->next;
        if (r->run != in->run)
            drop(cs, t, r);
    }
}

void cluster_state_clear(struct cluster_state *cs)
{
    for (int kind = 0; kind < RECORD_TABLES; kind++) {
        while (cs->tables[kind].first)
            drop(cs, &cs->tables[kind], cs->tables[kind].first);
        map_fini(&cs->tables[kind].by_key);
    }
}

void cluster_state_store(struct cluster_state *cs, const struct core_input *in)
{
    if (in->kind == CORE_NODES)
        store_node(cs, in);
    else if (in->kind == CORE_PODS)
        store_pod(cs, in);
    else if (in->kind == CORE_LEASES)
        store_heartbeat(cs, in);
}

/* -- Scvs: the core keeps only a part of them -- */

static struct span copy(struct record *r, struct span text)
{
    return text.p ? arena_copy(&r->arena, text) : text;
}

static void copy_cards(struct record *r, struct scv *to, const struct scv *from)
{
    to->cards = arena_zalloc(&r->arena, from->n_cards * sizeof *to->cards);
    for (size_t i = 0; i < from->n_cards; i++) {
        struct scv_card *card = &to->cards[i];
        *card = from->cards[i];
        card->health = copy(r, card->health);
        card->model = copy(r, card->model);
        card->uuid = copy(r, card->uuid);
        card->bus_id = copy(r, card->bus_id);
    }
}

static void copy_held(struct record *r, struct scv *to, const struct scv *from)
{
    to->held = arena_zalloc(&r->arena, from->n_held * sizeof *to->held);
    for (size_t i = 0; i < from->n_held; i++) {
        struct scv_held *held = &to->held[i];
        *held = from->held[i];
        held->ns = copy(r, held->ns);
        held->pod = copy(r, held->pod);
        held->container = copy(r, held->container);
        held->resource = copy(r, held->resource);
        held->uuids = arena_zalloc(&r->arena, held->n_uuids * sizeof *held->uuids);
        for (size_t k = 0; k < held->n_uuids; k++)
            held->uuids[k] = copy(r, from->held[i].uuids[k]);
        held->uses = NULL; /* the ledger has them */
        held->n_uses = 0;
    }
}

static void copy_processes(struct record *r, struct scv *to, const struct scv *from)
{
    to->processes = arena_zalloc(&r->arena, from->n_processes * sizeof *to->processes);
    for (size_t i = 0; i < from->n_processes; i++) {
        struct scv_process *p = &to->processes[i];
        *p = from->processes[i];
        p->uuid = copy(r, p->uuid);
        p->ns = copy(r, p->ns);
        p->pod = copy(r, p->pod);
        p->container = copy(r, p->container);
        p->name = copy(r, p->name);
    }
}

void cluster_state_store_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
{
    struct record *r = replace(ctx, CORE_SCVS, scv->meta.name, run, gone);
    if (!r)
        return;
    struct scv *to = &r->scv.scv;
    *to = *scv;
    r->scv.name = r->key;
    to->meta = (struct object_meta){.name = r->key, .created_s = scv->meta.created_s};
    to->driver_version = copy(r, scv->driver_version);
    to->cuda_version = copy(r, scv->cuda_version);
    to->owner_uid = (struct span){0};
    copy_cards(r, to, scv);
    copy_held(r, to, scv);
    copy_processes(r, to, scv);
    to->assignments = NULL; /* the ledger has these two */
    to->uses = NULL;
    to->n_assignments = to->n_uses = 0;
}
