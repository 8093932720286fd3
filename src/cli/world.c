/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/world.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/promise.h"
#include "domain/quantity.h"

enum { FAULTS_MAX = 256 };

/* An object, copied. */
struct record {
    struct span key;    /* owned */
    char *strings;      /* of a node or pod; there are many of those */
    struct arena arena; /* of an Scv */
    uint64_t run;       /* of the list or watch that showed it last */
    struct record *next, *prev;
    union {
        struct world_node node;
        struct world_scv scv;
        struct world_pod pod;
        struct world_beat beat;
    };
};

enum {
    KEPT = CORE_LEASES + 1, /* nodes, pods, Scvs and Leases */
    AHEAD_S = 10,           /* clocks of machines that are looked after differ by less */
};

struct kept {
    struct map by_key;
    struct record *first;
    size_t n;
};

struct world {
    struct world_config config;
    struct core *core;
    struct core_outputs outputs;
    struct core_output *wishes[CORE_KINDS];
    struct kept kept[KEPT];
    uint64_t changes;
    struct err failed; /* the first list that failed while it was needed */
    struct buf faults; /* NUL-terminated each */
    size_t n_faults;
    struct arena scratch; /* for one pod */
};

static struct core_time now(void)
{
    return (struct core_time){clock_mono_ms(), clock_wall_ns()};
}

/* A kind that nobody wants to see is empty. */
static bool is_wanted(const struct world *w, enum core_kind kind)
{
    return !w->config.only_pods || kind == CORE_NODES || kind == CORE_PODS;
}

static void step(struct world *w, const struct core_input *in)
{
    struct core_input ended = {.type = CORE_LIST_ENDED};
    core_outputs_reset(&w->outputs);
    core_step(w->core, now(), in, &w->outputs);
    uint64_t runs[CORE_KINDS] = {0};
    for (size_t i = 0; i < w->outputs.n; i++) {
        const struct core_output *o = &w->outputs.items[i];
        if (o->type != CORE_LIST && o->type != CORE_WATCH)
            continue; /* an observer calls nobody, and notes are for logs */
        if (is_wanted(w, o->kind)) {
            free(w->wishes[o->kind]);
            w->wishes[o->kind] = core_output_dup(o);
        } else if (o->type == CORE_LIST) {
            runs[o->kind] = o->run;
        }
    }
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        ended.kind = (enum core_kind)kind;
        ended.run = runs[kind];
        if (runs[kind])
            step(w, &ended);
    }
}

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
    struct record *r = renew(w, CORE_NODES, n->meta.name, in->run, in->gone);
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
    struct record *r = renew(w, CORE_LEASES, name, in->run, in->gone);
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
    struct record *r = renew(w, CORE_PODS, pod->meta.uid, in->run, in->gone);
    if (!r)
        return;
    struct world_pod *to = &r->pod;
    *to = (struct world_pod){.uid = r->key, .ns = pod->meta.ns, .name = pod->meta.name};
    if (!in->faulty) {
        to->node = pod->node;
        to->idx = pod->idx;
        to->allocation = pod->allocation;
        to->card_uuid = pod->card_uuid;
        to->assigned = pod->assigned;
        to->go_units = go_units(pod);
        to->over = pod_is_over(pod);
        to->damaged = is_bad(w, pod, &err);
        to->why = to->damaged ? span_of(err.msg) : (struct span){0};
    }
    struct span *const fields[] = {&to->ns,       &to->name,       &to->node,
                                   &to->idx,      &to->allocation, &to->card_uuid,
                                   &to->assigned, &to->why};
    own_strings(r, fields, ARRAY_LEN(fields));
}

static void sweep(struct world *w, const struct core_input *in)
{
    struct kept *k = &w->kept[in->kind];
    for (struct record *r = k->first, *next; r; r = next) {
        next = r->next;
        if (r->run != in->run)
            drop(w, k, r);
    }
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct world *w = ctx;
    bool absent = in->type == CORE_LIST_FAILED && in->err->code == ERR_NOT_FOUND &&
                  (in->kind == CORE_SCVS || in->kind == CORE_LEASES);
    if (in->type == CORE_OBJECT && in->kind == CORE_NODES)
        see_node(w, in);
    else if (in->type == CORE_OBJECT && in->kind == CORE_PODS)
        see_pod(w, in);
    else if (in->type == CORE_OBJECT && in->kind == CORE_LEASES)
        see_beat(w, in);
    else if ((in->type == CORE_LIST_ENDED || absent) && (int)in->kind < KEPT)
        sweep(w, in);
    else if (in->type == CORE_LIST_FAILED && !absent && w->failed.code == ERR_NONE) {
        w->failed = *in->err;
        err_wrap(&w->failed, "list of %s", core_kind_name(in->kind));
    }
    step(w, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    struct world *w = ctx;
    for (size_t i = 0; i < w->n_faults; i++)
        if (span_eq(world_fault(w, i), span_of(err->msg)))
            return;
    if (w->n_faults == FAULTS_MAX)
        return;
    buf_adds(&w->faults, err->msg);
    buf_addc(&w->faults, '\0');
    w->n_faults++;
    w->changes++;
}

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

static void on_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
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

const struct feed_sink world_sink = {on_input, on_fault, on_scv};

struct world *world_new(const struct world_config *config)
{
    struct world *w = xcalloc(1, sizeof *w);
    const struct core_settings settings = {
        .ledger = config->ledger,
        .node_grace_ms = config->node_grace_ms,
        .observer = true,
        .seed = config->seed,
    };
    w->config = *config;
    w->core = core_new(&settings);
    for (int kind = 0; kind < KEPT; kind++)
        map_init(&w->kept[kind].by_key, config->seed, offsetof(struct record, key));
    return w;
}

void world_free(struct world *w)
{
    if (!w)
        return;
    for (int kind = 0; kind < KEPT; kind++) {
        while (w->kept[kind].first)
            drop(w, &w->kept[kind], w->kept[kind].first);
        map_fini(&w->kept[kind].by_key);
    }
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(w->wishes[kind]);
    core_outputs_fini(&w->outputs);
    core_free(w->core);
    buf_fini(&w->faults);
    arena_fini(&w->scratch);
    free(w);
}

void world_tick(struct world *w)
{
    step(w, &(struct core_input){.type = CORE_TICK});
}

int64_t world_due(const struct world *w)
{
    return core_due(w->core);
}

struct core_output *world_wish(struct world *w)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (w->wishes[kind])
            return steal(&w->wishes[kind]);
    return NULL;
}

static void tell_core(struct world *w, struct span node, int64_t silent_s)
{
    step(w, &(struct core_input){
                .type = CORE_SILENT, .node_name = node, .silent_s = silent_s});
    w->changes++;
}

static void judge(struct world *w, struct world_beat *beat, int64_t server_s,
                  int64_t since_s)
{
    int64_t renewed_s;
    if (server_s <= 0) {
        beat->doubt = DOUBT_NO_CLOCK;
        return;
    }
    if (!clock_parse(beat->renewed, &renewed_s)) {
        beat->doubt = DOUBT_UNDATED;
        return;
    }
    beat->age_s = server_s - renewed_s;
    if (-beat->age_s > since_s + AHEAD_S)
        beat->doubt = DOUBT_AHEAD;
    /* Of both times the fraction was cut off. */
    if ((beat->age_s - 1) * 1000 >= w->config.node_grace_ms) {
        beat->doubt = DOUBT_OLD;
        tell_core(w, beat->name, beat->age_s);
    }
}

void world_judge(struct world *w, int64_t server_s, int64_t since_s)
{
    if (w->config.node_grace_ms <= 0)
        return;
    for (struct record *r = w->kept[CORE_LEASES].first; r; r = r->next)
        judge(w, &r->beat, server_s, since_s);
}

void world_told(struct world *w, struct span node, int64_t silent_s)
{
    struct record *r = map_get(&w->kept[CORE_LEASES].by_key, node);
    if (r)
        r->beat.heard = silent_s <= 0;
    tell_core(w, node, silent_s);
}

int world_trouble(const struct world *w, struct err *err)
{
    return core_ready(w->core, now(), err);
}

int world_ready(const struct world *w, struct err *err)
{
    if (core_ready(w->core, now(), NULL) == 0)
        return 0;
    *err = w->failed;
    return -1;
}

const struct ledger *world_ledger(const struct world *w)
{
    return core_ledger(w->core);
}

uint64_t world_generation(const struct world *w)
{
    return w->changes + ledger_generation(core_ledger(w->core));
}

static const struct record *find(const struct world *w, enum core_kind kind,
                                 struct span key)
{
    return map_get(&w->kept[kind].by_key, key);
}

const struct world_node *world_node(const struct world *w, struct span name)
{
    const struct record *r = find(w, CORE_NODES, name);
    return r ? &r->node : NULL;
}

const struct world_beat *world_beat(const struct world *w, struct span name)
{
    const struct record *r = find(w, CORE_LEASES, name);
    return r ? &r->beat : NULL;
}

const struct world_scv *world_scv(const struct world *w, struct span name)
{
    const struct record *r = find(w, CORE_SCVS, name);
    return r ? &r->scv : NULL;
}

const struct world_pod *world_pod(const struct world *w, struct span uid)
{
    const struct record *r = find(w, CORE_PODS, uid);
    return r ? &r->pod : NULL;
}

static int by_node_name(const void *a, const void *b)
{
    return span_cmp((*(const struct world_node *const *)a)->name,
                    (*(const struct world_node *const *)b)->name);
}

static int by_pod_name(const void *a, const void *b)
{
    const struct world_pod *x = *(const struct world_pod *const *)a;
    const struct world_pod *y = *(const struct world_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

size_t world_nodes(const struct world *w, struct arena *a, const struct world_node ***out)
{
    const struct kept *k = &w->kept[CORE_NODES];
    size_t n = 0;
    *out = arena_alloc(a, k->n * sizeof **out);
    for (const struct record *r = k->first; r; r = r->next)
        (*out)[n++] = &r->node;
    if (n)
        qsort(*out, n, sizeof **out, by_node_name);
    return n;
}

size_t world_pods(const struct world *w, struct arena *a, const struct world_pod ***out)
{
    const struct kept *k = &w->kept[CORE_PODS];
    size_t n = 0;
    *out = arena_alloc(a, k->n * sizeof **out);
    for (const struct record *r = k->first; r; r = r->next)
        (*out)[n++] = &r->pod;
    if (n)
        qsort(*out, n, sizeof **out, by_pod_name);
    return n;
}

size_t world_faults(const struct world *w)
{
    return w->n_faults;
}

struct span world_fault(const struct world *w, size_t i)
{
    const char *p = w->faults.p;
    while (i--)
        p += strlen(p) + 1;
    return span_of(p);
}
