/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cluster_state_priv.h"

enum {
    FAULTS_MAX = 256,
    AHEAD_S = 10, /* clocks of machines that are looked after differ by less */
};

static struct core_time now(void)
{
    return (struct core_time){clock_mono_ms(), clock_wall_ns()};
}

/* A kind that nobody wants to see is empty. */
static bool is_wanted(const struct cluster_state *w, enum core_kind kind)
{
    return !w->config.only_pods || kind == CORE_NODES || kind == CORE_PODS;
}

static void step(struct cluster_state *w, const struct core_input *in)
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

static void on_input(void *ctx, const struct core_input *in)
{
    struct cluster_state *w = ctx;
    bool absent = in->type == CORE_LIST_FAILED && in->err->code == ERR_NOT_FOUND &&
                  (in->kind == CORE_SCVS || in->kind == CORE_LEASES);
    if (in->type == CORE_OBJECT)
        cluster_state_store(w, in);
    else if ((in->type == CORE_LIST_ENDED || absent) && (int)in->kind < RECORD_TABLES)
        cluster_state_sweep(w, in);
    else if (in->type == CORE_LIST_FAILED && !absent && w->failed.code == ERR_NONE) {
        w->failed = *in->err;
        err_wrap(&w->failed, "list of %s", core_kind_name(in->kind));
    }
    step(w, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    struct cluster_state *w = ctx;
    for (size_t i = 0; i < w->n_faults; i++)
        if (span_eq(cluster_state_error(w, i), span_of(err->msg)))
            return;
    if (w->n_faults == FAULTS_MAX)
        return;
    buf_adds(&w->faults, err->msg);
    buf_addc(&w->faults, '\0');
    w->n_faults++;
    w->changes++;
}

const struct feed_sink cluster_state_sink = {on_input, on_fault, cluster_state_store_scv};

struct cluster_state *cluster_state_new(const struct cluster_state_config *config)
{
    struct cluster_state *w = xcalloc(1, sizeof *w);
    const struct core_settings settings = {
        .ledger = config->ledger,
        .node_grace_ms = config->node_grace_ms,
        .observer = true,
        .seed = config->seed,
    };
    w->config = *config;
    w->core = core_new(&settings);
    for (int kind = 0; kind < RECORD_TABLES; kind++)
        map_init(&w->tables[kind].by_key, config->seed, offsetof(struct record, key));
    return w;
}

void cluster_state_free(struct cluster_state *w)
{
    if (!w)
        return;
    cluster_state_clear(w);
    for (int kind = 0; kind < CORE_KINDS; kind++)
        free(w->wishes[kind]);
    core_outputs_fini(&w->outputs);
    core_free(w->core);
    buf_fini(&w->faults);
    arena_fini(&w->scratch);
    free(w);
}

void cluster_state_tick(struct cluster_state *w)
{
    step(w, &(struct core_input){.type = CORE_TICK});
}

int64_t cluster_state_due(const struct cluster_state *w)
{
    return core_due(w->core);
}

struct core_output *cluster_state_take_request(struct cluster_state *w)
{
    for (int kind = 0; kind < CORE_KINDS; kind++)
        if (w->wishes[kind])
            return steal(&w->wishes[kind]);
    return NULL;
}

static void tell_core(struct cluster_state *w, struct span node, int64_t silent_s)
{
    step(w, &(struct core_input){
                .type = CORE_SILENT, .node_name = node, .silent_s = silent_s});
    w->changes++;
}

static void judge(struct cluster_state *w, struct cluster_state_heartbeat *beat, int64_t server_s,
                  int64_t since_s)
{
    int64_t renewed_s;
    if (server_s <= 0) {
        beat->doubt = HEARTBEAT_NO_CLOCK;
        return;
    }
    if (!clock_parse(beat->renewed, &renewed_s)) {
        beat->doubt = HEARTBEAT_UNDATED;
        return;
    }
    beat->age_s = server_s - renewed_s;
    if (-beat->age_s > since_s + AHEAD_S)
        beat->doubt = HEARTBEAT_AHEAD;
    /* Of both times the fraction was cut off. */
    if ((beat->age_s - 1) * 1000 >= w->config.node_grace_ms) {
        beat->doubt = HEARTBEAT_OLD;
        tell_core(w, beat->name, beat->age_s);
    }
}

void cluster_state_check_heartbeats(struct cluster_state *w, int64_t server_s, int64_t since_s)
{
    if (w->config.node_grace_ms <= 0)
        return;
    for (struct record *r = w->tables[CORE_LEASES].first; r; r = r->next)
        judge(w, &r->beat, server_s, since_s);
}

void cluster_state_set_silence(struct cluster_state *w, struct span node, int64_t silent_s)
{
    struct record *r = map_get(&w->tables[CORE_LEASES].by_key, node);
    if (r)
        r->beat.heard = silent_s <= 0;
    tell_core(w, node, silent_s);
}

int cluster_state_check_fresh(const struct cluster_state *w, struct err *err)
{
    return core_ready(w->core, now(), err);
}

int cluster_state_check_ready(const struct cluster_state *w, struct err *err)
{
    if (core_ready(w->core, now(), NULL) == 0)
        return 0;
    *err = w->failed;
    return -1;
}

const struct ledger *cluster_state_ledger(const struct cluster_state *w)
{
    return core_ledger(w->core);
}

uint64_t cluster_state_generation(const struct cluster_state *w)
{
    return w->changes + ledger_generation(core_ledger(w->core));
}
