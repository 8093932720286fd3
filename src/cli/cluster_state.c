/* SPDX-License-Identifier: Apache-2.0 */

/* The extender's core in observer mode, and copies of what its ledger does not keep. */

#include "cli/cluster_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/jread.h"
#include "base/mem.h"
#include "cli/table.h"
#include "domain/promise.h"
#include "domain/quantity.h"

/* A copy of an object. */
struct record {
    struct span key;    /* owned */
    char *strings;      /* of a node, pod or heartbeat: one allocation per record */
    struct arena arena; /* of an Scv */
    uint64_t run;       /* the list or watch that delivered it last */
    struct record *next, *prev;
    union {
        struct cluster_state_node node;
        struct cluster_state_scv scv;
        struct cluster_state_pod pod;
        struct cluster_state_heartbeat heartbeat;
    };
};

enum { RECORD_TABLES = CORE_LEASES + 1 }; /* nodes, pods, Scvs and Leases */

struct record_table {
    struct map by_key;
    struct record *first;
    size_t n;
};

struct cluster_state {
    struct cluster_state_config config;
    struct core *core;
    struct step_outputs outputs;
    struct core_output *requests[CORE_KINDS];
    struct record_table tables[RECORD_TABLES];
    uint64_t changes;
    struct err list_error; /* of the first list that failed */
    struct buf errors;     /* each NUL-terminated */
    size_t n_errors;
    struct arena scratch; /* for one pod */
};

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
    r->node.named_invalid = node_cards_named(n, &r->node.named, NULL) != 0;
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

static void sweep_objects(struct cluster_state *cs, const struct core_input *in)
{
    struct record_table *t = &cs->tables[in->kind];
    for (struct record *r = t->first, *next; r; r = next) {
        next = r->next;
        if (r->run != in->run)
            drop(cs, t, r);
    }
}

static void clear_objects(struct cluster_state *cs)
{
    for (int kind = 0; kind < RECORD_TABLES; kind++) {
        while (cs->tables[kind].first)
            drop(cs, &cs->tables[kind], cs->tables[kind].first);
        map_fini(&cs->tables[kind].by_key);
    }
}

static void store_object(struct cluster_state *cs, const struct core_input *in)
{
    if (in->kind == CORE_NODES)
        store_node(cs, in);
    else if (in->kind == CORE_PODS)
        store_pod(cs, in);
    else if (in->kind == CORE_LEASES)
        store_heartbeat(cs, in);
}

/* -- Scvs: the core keeps only a part of them -- */

/* The copy is what scv_write makes of it, read again. */
static void store_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone)
{
    struct record *r = replace(ctx, CORE_SCVS, scv->meta.name, run, gone);
    cleanup_buf struct buf text = {0};
    struct jread j;
    if (!r)
        return;
    scv_write(&text, scv);
    struct span own = arena_copy(&r->arena, buf_span(&text));
    jread_init(&j, own.p, own.n);
    scv_read_all(&j, &r->arena, &r->scv.scv);
    r->scv.scv.damaged |= scv->damaged || jread_finish(&j, NULL);
    r->scv.name = r->key;
}

static const struct record *find(const struct cluster_state *cs, enum core_kind kind,
                                 struct span key)
{
    return map_get(&cs->tables[kind].by_key, key);
}

const struct cluster_state_node *cluster_state_node(const struct cluster_state *cs,
                                                    struct span name)
{
    const struct record *r = find(cs, CORE_NODES, name);
    return r ? &r->node : NULL;
}

const struct cluster_state_heartbeat *
cluster_state_heartbeat(const struct cluster_state *cs, struct span name)
{
    const struct record *r = find(cs, CORE_LEASES, name);
    return r ? &r->heartbeat : NULL;
}

const struct cluster_state_scv *cluster_state_scv(const struct cluster_state *cs,
                                                  struct span name)
{
    const struct record *r = find(cs, CORE_SCVS, name);
    return r ? &r->scv : NULL;
}

const struct cluster_state_pod *cluster_state_pod(const struct cluster_state *cs,
                                                  struct span uid)
{
    const struct record *r = find(cs, CORE_PODS, uid);
    return r ? &r->pod : NULL;
}

static int by_node_name(const void *a, const void *b)
{
    return span_cmp((*(const struct cluster_state_node *const *)a)->name,
                    (*(const struct cluster_state_node *const *)b)->name);
}

static int by_pod_name(const void *a, const void *b)
{
    const struct cluster_state_pod *x = *(const struct cluster_state_pod *const *)a;
    const struct cluster_state_pod *y = *(const struct cluster_state_pod *const *)b;
    int c = span_cmp(x->ns, y->ns);
    c = c ? c : span_cmp(x->name, y->name);
    return c ? c : span_cmp(x->uid, y->uid);
}

size_t cluster_state_nodes(const struct cluster_state *cs, struct arena *a,
                           const struct cluster_state_node ***out)
{
    const struct record_table *t = &cs->tables[CORE_NODES];
    size_t n = 0;
    *out = arena_alloc(a, t->n * sizeof **out);
    for (const struct record *r = t->first; r; r = r->next)
        (*out)[n++] = &r->node;
    if (n)
        qsort(*out, n, sizeof **out, by_node_name);
    return n;
}

size_t cluster_state_pods(const struct cluster_state *cs, struct arena *a,
                          const struct cluster_state_pod ***out)
{
    const struct record_table *t = &cs->tables[CORE_PODS];
    size_t n = 0;
    *out = arena_alloc(a, t->n * sizeof **out);
    for (const struct record *r = t->first; r; r = r->next)
        (*out)[n++] = &r->pod;
    if (n)
        qsort(*out, n, sizeof **out, by_pod_name);
    return n;
}

size_t cluster_state_errors(const struct cluster_state *cs)
{
    return cs->n_errors;
}

struct span cluster_state_error(const struct cluster_state *cs, size_t i)
{
    const char *p = cs->errors.p;
    while (i--)
        p += strlen(p) + 1;
    return span_of(p);
}

enum {
    ERRORS_MAX = 256,
    CLOCK_SKEW_S = 10, /* more than synchronized clocks differ by */
};

static struct step_time now(void)
{
    return (struct step_time){clock_mono_ms(), clock_wall_ns()};
}

/* Kinds that are not listed count as empty. */
static bool is_listed(const struct cluster_state *cs, enum core_kind kind)
{
    return !cs->config.only_pods || kind == CORE_NODES || kind == CORE_PODS;
}

static void step(struct cluster_state *cs, const struct core_input *in)
{
    struct core_input ended = {.type = CORE_LIST_ENDED};
    step_outputs_reset(&cs->outputs);
    core_step(cs->core, now(), in, &cs->outputs);
    uint64_t runs[CORE_KINDS] = {0};
    STEP_EACH (struct core_output, o, &cs->outputs) {
        if (o->type != CORE_LIST && o->type != CORE_WATCH)
            continue; /* in observer mode nothing else has an effect */
        if (is_listed(cs, o->kind)) {
            free(cs->requests[o->kind]);
            cs->requests[o->kind] = core_output_dup(o);
        } else if (o->type == CORE_LIST) {
            runs[o->kind] = o->run;
        }
    }
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        ended.kind = (enum core_kind)kind;
        ended.run = runs[kind];
        if (runs[kind])
            step(cs, &ended);
    }
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct cluster_state *cs = ctx;
    bool absent = in->type == CORE_LIST_FAILED && in->err->code == ERR_NOT_FOUND &&
                  (in->kind == CORE_SCVS || in->kind == CORE_LEASES);
    if (in->type == CORE_OBJECT)
        store_object(cs, in);
    else if ((in->type == CORE_LIST_ENDED || absent) && (int)in->kind < RECORD_TABLES)
        sweep_objects(cs, in);
    else if (in->type == CORE_LIST_FAILED && !absent && cs->list_error.code == ERR_NONE) {
        cs->list_error = *in->err;
        err_wrap(&cs->list_error, "list of %s", core_kind_name(in->kind));
    }
    step(cs, in);
}

static void on_error(void *ctx, const struct err *err)
{
    struct cluster_state *cs = ctx;
    for (size_t i = 0; i < cs->n_errors; i++)
        if (span_eq(cluster_state_error(cs, i), span_of(err->msg)))
            return;
    if (cs->n_errors == ERRORS_MAX)
        return;
    buf_adds(&cs->errors, err->msg);
    buf_addc(&cs->errors, '\0');
    cs->n_errors++;
    cs->changes++;
}

const struct apisync_sink cluster_state_sink = {on_input, on_error, store_scv};

struct cluster_state *cluster_state_new(const struct cluster_state_config *config)
{
    struct cluster_state *cs = xcalloc(1, sizeof *cs);
    const struct core_settings settings = {
        .ledger = config->ledger,
        .node_grace_ms = config->node_grace_ms,
        .observer = true,
        .seed = config->seed,
    };
    cs->config = *config;
    cs->core = core_new(&settings);
    for (int kind = 0; kind < RECORD_TABLES; kind++)
        map_init(&cs->tables[kind].by_key, config->seed, offsetof(struct record, key));
    return cs;
}

void cluster_state_free(struct cluster_state *cs)
{
    if (!cs)
        return;
    clear_objects(cs);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(cs->requests[kind]);
    step_outputs_fini(&cs->outputs);
    core_free(cs->core);
    buf_fini(&cs->errors);
    arena_fini(&cs->scratch);
    free(cs);
}

void cluster_state_tick(struct cluster_state *cs)
{
    step(cs, &(struct core_input){.type = CORE_TICK});
}

int64_t cluster_state_due(const struct cluster_state *cs)
{
    return core_due(cs->core);
}

struct core_output *cluster_state_take_request(struct cluster_state *cs)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (cs->requests[kind])
            return steal(&cs->requests[kind]);
    return NULL;
}

static void set_silence(struct cluster_state *cs, struct span node, int64_t stale_s)
{
    step(cs, &(struct core_input){
                 .type = CORE_HEARTBEAT_STALE, .node_name = node, .stale_s = stale_s});
    cs->changes++;
}

static void check_heartbeat(struct cluster_state *cs,
                            struct cluster_state_heartbeat *heartbeat, int64_t server_s,
                            int64_t since_s)
{
    int64_t renewed_s;
    if (server_s <= 0) {
        heartbeat->freshness = HEARTBEAT_NO_CLOCK;
        return;
    }
    if (!clock_parse(heartbeat->renewed, &renewed_s)) {
        heartbeat->freshness = HEARTBEAT_UNDATED;
        return;
    }
    heartbeat->age_s = server_s - renewed_s;
    if (-heartbeat->age_s > since_s + CLOCK_SKEW_S)
        heartbeat->freshness = HEARTBEAT_AHEAD;
    /* Both times are truncated to seconds. */
    if ((heartbeat->age_s - 1) * 1000 >= cs->config.node_grace_ms) {
        heartbeat->freshness = HEARTBEAT_OLD;
        set_silence(cs, heartbeat->name, heartbeat->age_s);
    }
}

void cluster_state_check_heartbeats(struct cluster_state *cs, int64_t server_s,
                                    int64_t since_s)
{
    if (cs->config.node_grace_ms <= 0)
        return;
    for (struct record *r = cs->tables[CORE_LEASES].first; r; r = r->next)
        check_heartbeat(cs, &r->heartbeat, server_s, since_s);
}

int cluster_state_check_fresh(const struct cluster_state *cs, struct err *err)
{
    return core_ready(cs->core, now(), err);
}

int cluster_state_check_ready(const struct cluster_state *cs, struct err *err)
{
    if (core_ready(cs->core, now(), NULL) == 0)
        return 0;
    *err = cs->list_error;
    return -1;
}

const struct core *cluster_state_core(const struct cluster_state *cs)
{
    return cs->core;
}

const struct ledger *cluster_state_ledger(const struct cluster_state *cs)
{
    return core_ledger(cs->core);
}

uint64_t cluster_state_generation(const struct cluster_state *cs)
{
    return cs->changes + ledger_generation(core_ledger(cs->core));
}

/* The extender also knows of Leases that were deleted. */
static bool is_unclear(const struct cluster_state *cs, const struct ledger_node *node)
{
    const struct cluster_state_heartbeat *h = cluster_state_heartbeat(cs, node->name);
    if (node->source != SOURCE_SCV)
        return false;
    return !h || h->freshness != HEARTBEAT_FRESH;
}

bool cluster_state_needs_view(const struct cluster_state *cs)
{
    const struct ledger *l = cluster_state_ledger(cs);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && is_unclear(cs, node))
            return true;
    }
    return false;
}

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

/* The extender, which watches Leases, knows for how many seconds there was no renewal. A node
 * that it rejects for another reason says nothing of its heartbeat. */
void cluster_state_apply_view(struct cluster_state *cs, const json_t *view)
{
    const json_t *item;
    size_t i;
    if (!text_at(view, "unit").n || json_object_get(view, "error"))
        return;
    json_array_foreach(json_object_get(view, "nodes"), i, item)
    {
        struct span name = text_at(item, "name");
        const struct ledger_node *node = ledger_node_find(cluster_state_ledger(cs), name);
        struct record *r = map_get(&cs->tables[CORE_LEASES].by_key, name);
        int64_t silence =
            json_integer_value(json_object_get(item, "heartbeatAgeSeconds"));
        if (!node || !is_unclear(cs, node) ||
            (silence <= 0 && text_at(item, "reason").n))
            continue;
        if (r)
            r->heartbeat.confirmed = silence <= 0;
        if (r && silence > 0 && r->heartbeat.age_s > silence)
            silence = r->heartbeat.age_s;
        set_silence(cs, node->name, silence > 0 ? silence : 0);
    }
}

void cluster_state_note_heartbeat(struct buf *out, const struct cluster_state *cs,
                                  const struct ledger_node *node)
{
    const struct cluster_state_heartbeat *h = cluster_state_heartbeat(cs, node->name);
    if (!h || node->source != SOURCE_SCV)
        return;
    static const char confirmed[] =
        "; the extender receives renewals: check the node's clock";
    bool open = node->state != NODE_STALE && !h->confirmed;
    switch (h->freshness) {
    case HEARTBEAT_FRESH:
        break;
    case HEARTBEAT_OLD:
        if (!h->confirmed && ledger_node_info(node).foreign)
            break; /* the node's reason names the Lease's owner and time */
        table_text(out,
                   "Lease last renewed at %.*s, %" PRId64
                   " s ago by the API server's clock%s",
                   SPAN_ARG(h->renewed), h->age_s, h->confirmed ? confirmed : "");
        break;
    case HEARTBEAT_AHEAD:
        if (node->state == NODE_STALE)
            break;
        table_text(out,
                   "Lease last renewed at %.*s, %" PRId64
                   " s ahead of the API server's clock%s",
                   SPAN_ARG(h->renewed), -h->age_s,
                   h->confirmed ? confirmed
                                : "; cannot tell whether scv-agent is running");
        break;
    case HEARTBEAT_UNDATED:
        if (open)
            buf_adds(out, "Lease has no valid renewTime; cannot tell whether scv-agent "
                          "is running");
        break;
    case HEARTBEAT_NO_CLOCK:
        if (open)
            buf_adds(out, "the API server sent no Date header; cannot tell from the "
                          "Lease whether scv-agent is running");
        break;
    }
}
