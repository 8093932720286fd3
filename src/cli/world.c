/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/world_priv.h"

enum {
    FAULTS_MAX = 256,
    AHEAD_S = 10, /* clocks of machines that are looked after differ by less */
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

static void on_input(void *ctx, const struct core_input *in)
{
    struct world *w = ctx;
    bool absent = in->type == CORE_LIST_FAILED && in->err->code == ERR_NOT_FOUND &&
                  (in->kind == CORE_SCVS || in->kind == CORE_LEASES);
    if (in->type == CORE_OBJECT)
        world_keep(w, in);
    else if ((in->type == CORE_LIST_ENDED || absent) && (int)in->kind < KEPT)
        world_sweep(w, in);
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

const struct feed_sink world_sink = {on_input, on_fault, world_keep_scv};

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
    world_forget(w);
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

static void tell_core(struct world *w, struct span node, int64_t stale_s)
{
    step(w, &(struct core_input){
                .type = CORE_HEARTBEAT_STALE, .node_name = node, .stale_s = stale_s});
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

void world_told(struct world *w, struct span node, int64_t stale_s)
{
    struct record *r = map_get(&w->kept[CORE_LEASES].by_key, node);
    if (r)
        r->beat.heard = stale_s <= 0;
    tell_core(w, node, stale_s);
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
