/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A core under test: the test advances the clock and answers the calls.
 */

#include "core/core.h"
#include "domain/objects.h"

struct rig {
    struct core *core;
    struct core_time now;
    struct core_outputs out;
    struct arena arena;
    uint64_t runs[CORE_KINDS]; /* of the last list or watch */
};

static inline void rig_step(struct rig *r, struct core_input in)
{
    size_t before = r->out.n;
    core_step(r->core, r->now, &in, &r->out);
    for (size_t i = before; i < r->out.n; i++)
        if (r->out.items[i].type == CORE_LIST || r->out.items[i].type == CORE_WATCH)
            r->runs[r->out.items[i].kind] = r->out.items[i].run;
}

static inline void rig_tick(struct rig *r, int64_t ms)
{
    r->now.mono_ms += ms;
    r->now.wall_ns += ms * 1000000;
    rig_step(r, (struct core_input){.type = CORE_TICK});
}

/* Removes and returns the first output of that type; fails the test if there is none. */
static inline struct core_output rig_take(struct rig *r, enum core_output_type type)
{
    for (size_t i = 0; i < r->out.n; i++) {
        if (r->out.items[i].type != type)
            continue;
        struct core_output o = r->out.items[i];
        memmove(&r->out.items[i], &r->out.items[i + 1],
                (r->out.n - i - 1) * sizeof *r->out.items);
        r->out.n--;
        return o;
    }
    ck_abort_msg("no output of type %d", (int)type);
}

static inline size_t rig_count(const struct rig *r, enum core_output_type type)
{
    size_t n = 0;
    for (size_t i = 0; i < r->out.n; i++)
        n += r->out.items[i].type == type;
    return n;
}

static inline void rig_answer(struct rig *r, uint64_t call, enum err_code code)
{
    struct err err = {.code = code};
    snprintf(err.msg, sizeof err.msg, "%s", err_code_name(code));
    rig_step(r, (struct core_input){.type = CORE_ANSWER,
                                    .call = call,
                                    .err = code == ERR_NONE ? NULL : &err});
}

static inline void rig_answer_pod(struct rig *r, uint64_t call, struct pod pod)
{
    rig_step(r, (struct core_input){.type = CORE_ANSWER, .call = call, .pod = &pod});
}

static inline void rig_answer_lease_of(struct rig *r, uint64_t call, const char *holder,
                                       const char *version, const char *uid)
{
    struct lease lease = {.holder = span_of(holder),
                          .duration_s = 5,
                          .meta = {.version = span_of(version), .uid = span_of(uid)}};
    rig_step(r, (struct core_input){.type = CORE_ANSWER, .call = call, .lease = &lease});
}

static inline void rig_answer_lease(struct rig *r, uint64_t call, const char *holder,
                                    const char *version)
{
    rig_answer_lease_of(r, call, holder, version, "");
}

static inline void rig_pod(struct rig *r, struct pod pod, bool gone)
{
    rig_step(r, (struct core_input){.type = CORE_OBJECT,
                                    .kind = CORE_PODS,
                                    .run = r->runs[CORE_PODS],
                                    .pod = &pod,
                                    .deleted = gone});
}

static inline void rig_scv(struct rig *r, struct scv scv)
{
    rig_step(r, (struct core_input){.type = CORE_OBJECT,
                                    .kind = CORE_SCVS,
                                    .run = r->runs[CORE_SCVS],
                                    .scv = &scv});
}

static inline void rig_node(struct rig *r, struct node node)
{
    rig_step(r, (struct core_input){.type = CORE_OBJECT,
                                    .kind = CORE_NODES,
                                    .run = r->runs[CORE_NODES],
                                    .node = &node});
}

static inline void rig_list_end(struct rig *r, enum core_kind kind)
{
    rig_step(r, (struct core_input){.type = CORE_LIST_ENDED,
                                    .kind = kind,
                                    .run = r->runs[kind],
                                    .version = SPAN("100")});
}

static inline void rig_new(struct rig *r, struct core_settings settings)
{
    *r = (struct rig){.now = {1000000, 1700000000000000000}};
    if (!settings.identity)
        settings.identity = "me";
    if (!settings.ledger.unit_mib)
        settings.ledger.unit_mib = 1;
    settings.ledger.external_tolerance_mib = 1024;
    settings.lease_namespace = "kube-system";
    settings.lease_name = "gpushare-extender";
    r->core = core_new(&settings);
    rig_tick(r, 0);
}

/* Steps until it may bind: the lease was free, all lists are empty. */
static inline void rig_lead(struct rig *r)
{
    rig_answer_lease(r, rig_take(r, CORE_CALL_LEASE_GET).call, "", "1");
    rig_answer_lease(r, rig_take(r, CORE_CALL_LEASE_WRITE).call, "me", "2");
    for (int kind = 0; kind < CORE_KINDS; kind++)
        rig_list_end(r, (enum core_kind)kind);
    core_outputs_reset(&r->out);
}

static inline void rig_free(struct rig *r)
{
    core_free(r->core);
    core_outputs_fini(&r->out);
    arena_fini(&r->arena);
}

static inline void rig_bind(struct rig *r, uint64_t token, const char *uid,
                            const char *node)
{
    char name[64];
    snprintf(name, sizeof name, "pod-%s", uid);
    rig_step(r, (struct core_input){.type = CORE_BIND,
                                    .token = token,
                                    .ns = SPAN("default"),
                                    .name = span_of(name),
                                    .uid = span_of(uid),
                                    .node_name = span_of(node)});
}

/* Advances the clock and answers renewals of the lease. */
static inline void rig_pass(struct rig *r, int64_t ms)
{
    for (int64_t t = 0; t < ms; t += 100) {
        rig_tick(r, ms - t < 100 ? ms - t : 100);
        if (rig_count(r, CORE_CALL_LEASE_WRITE)) {
            char version[32];
            snprintf(version, sizeof version, "l%lld", (long long)r->now.mono_ms);
            rig_answer_lease(r, rig_take(r, CORE_CALL_LEASE_WRITE).call, "me", version);
        }
    }
}

static inline int64_t rig_free_mib(const struct rig *r, const char *node, uint32_t card)
{
    const struct ledger_node *n = ledger_node_find(core_ledger(r->core), span_of(node));
    ck_assert(n && card < n->n_cards);
    return n->cards[card].free_mib;
}

/* The pod in the API after a Binding with these annotations. */
static inline struct pod rig_bound_pod(struct rig *r, const char *uid, int units,
                                       const char *node, const char *annotations)
{
    struct span json =
        quoted(&r->arena,
               "{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s',"
               "'annotations':%s},'spec':{'nodeName':'%s','containers':[{'resources':{"
               "'limits':{'" KEY_GPU_MEM "':'%d'}}}]}}",
               uid, uid, annotations, node, units);
    return object_pod(&r->arena, json);
}
