/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cluster_state_priv.h"

enum {
    ERRORS_MAX = 256,
    CLOCK_SKEW_S = 10, /* more than synchronized clocks differ by */
};

static struct core_time now(void)
{
    return (struct core_time){clock_mono_ms(), clock_wall_ns()};
}

/* Kinds that are not listed count as empty. */
static bool is_listed(const struct cluster_state *cs, enum core_kind kind)
{
    return !cs->config.only_pods || kind == CORE_NODES || kind == CORE_PODS;
}

static void step(struct cluster_state *cs, const struct core_input *in)
{
    struct core_input ended = {.type = CORE_LIST_ENDED};
    core_outputs_reset(&cs->outputs);
    core_step(cs->core, now(), in, &cs->outputs);
    uint64_t runs[CORE_KINDS] = {0};
    for (size_t i = 0; i < cs->outputs.n; i++) {
        const struct core_output *o = &cs->outputs.items[i];
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
        cluster_state_store(cs, in);
    else if ((in->type == CORE_LIST_ENDED || absent) && (int)in->kind < RECORD_TABLES)
        cluster_state_sweep(cs, in);
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

const struct apisync_sink cluster_state_sink = {on_input, on_error,
                                                cluster_state_store_scv};

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
    cluster_state_clear(cs);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(cs->requests[kind]);
    core_outputs_fini(&cs->outputs);
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

void cluster_state_set_silence(struct cluster_state *cs, struct span node,
                               int64_t stale_s)
{
    struct record *r = map_get(&cs->tables[CORE_LEASES].by_key, node);
    if (r)
        r->heartbeat.confirmed = stale_s <= 0;
    set_silence(cs, node, stale_s);
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
