/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The core under test: the test advances the clock and answers the calls. This file also defines
 * the main function of the program.
 */

#include "base/array.h"
#include "core/core.h"
#include "domain/objects.h"

static struct rig {
    struct core *core;
    struct step_time now;
    struct step_outputs out;
    struct arena arena;
    uint64_t runs[CORE_ALL_KINDS]; /* of the last list or watch */
} r;

static inline void rig_step(struct core_input in)
{
    core_step(r.core, r.now, &in, &r.out);
    STEP_EACH(struct core_output, o, &r.out)
    if ((o->type == CORE_LIST || o->type == CORE_WATCH) && o->run > r.runs[o->kind])
        r.runs[o->kind] = o->run;
}

static inline void rig_tick(int64_t ms)
{
    r.now.mono_ms += ms;
    r.now.wall_ns += ms * 1000000;
    rig_step((struct core_input){.type = CORE_TICK});
}

/* Removes and returns the first output of that type; fails the test if there is none. */
static inline struct core_output rig_take(enum core_output_type type)
{
    struct core_output *items = r.out.items;
    for (size_t i = 0; i < r.out.n; i++) {
        struct core_output o = items[i];
        if (o.type != type)
            continue;
        ARRAY_REMOVE(items, r.out.n, i);
        return o;
    }
    ck_abort_msg("no output of type %d", (int)type);
}

static inline size_t rig_count(enum core_output_type type)
{
    size_t n = 0;
    STEP_EACH(struct core_output, o, &r.out)
    n += o->type == type;
    return n;
}

/* The last log line since rig_reset; "": none. */
static inline const char *rig_log(void)
{
    return r.out.n_lines ? r.out.lines[r.out.n_lines - 1].text : "";
}

static inline void rig_answer(uint64_t call, enum err_code code)
{
    struct err err = {.code = code};
    snprintf(err.msg, sizeof err.msg, "%s", err_code_name(code));
    rig_step((struct core_input){
        .type = CORE_ANSWER, .call = call, .err = code == ERR_NONE ? NULL : &err});
}

/* Answers the first call of that type. */
static inline void rig_end(enum core_output_type type, enum err_code code)
{
    rig_answer(rig_take(type).call, code);
}

/* The call never reached the API server. */
static inline void rig_not_sent(uint64_t call)
{
    struct err err = {.code = ERR_UNAVAILABLE, .msg = "connection refused"};
    rig_step((struct core_input){
        .type = CORE_ANSWER, .call = call, .err = &err, .not_sent = true});
}

static inline void rig_answer_pod(uint64_t call, struct pod pod)
{
    rig_step((struct core_input){.type = CORE_ANSWER, .call = call, .pod = &pod});
}

/* Answers the first GET of a pod. */
static inline void rig_show_pod(struct pod pod)
{
    rig_answer_pod(rig_take(CORE_CALL_GET_POD).call, pod);
}

static inline void rig_answer_lease_of(uint64_t call, const char *holder,
                                       const char *version, const char *uid)
{
    struct lease lease = {.holder = span_of(holder),
                          .duration_s = 5,
                          .meta = {.version = span_of(version), .uid = span_of(uid)}};
    rig_step((struct core_input){.type = CORE_ANSWER, .call = call, .lease = &lease});
}

static inline void rig_answer_lease(uint64_t call, const char *holder,
                                    const char *version)
{
    rig_answer_lease_of(call, holder, version, "");
}

static inline void rig_lease_read(const char *holder, const char *version)
{
    rig_answer_lease(rig_take(CORE_CALL_LEASE_GET).call, holder, version);
}

static inline void rig_lease_written(const char *holder, const char *version)
{
    rig_answer_lease(rig_take(CORE_CALL_LEASE_WRITE).call, holder, version);
}

static inline void rig_pod(struct pod pod, bool gone)
{
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_PODS,
                                 .run = r.runs[CORE_PODS],
                                 .pod = &pod,
                                 .deleted = gone});
}

static inline void rig_see(struct pod pod)
{
    rig_pod(pod, false);
}

static inline void rig_delete(struct pod pod)
{
    rig_pod(pod, true);
}

static inline struct pod rig_mem(const char *uid, int mib)
{
    return object_pod_mem(&r.arena, uid, mib);
}

/* A pod that waits for a card. */
static inline void rig_pending(const char *uid, int mib)
{
    rig_see(rig_mem(uid, mib));
}

#define rig_text(...) quoted(&r.arena, __VA_ARGS__)
/* The pod with that JSON, printf-like, with ' for ". */
#define rig_json(...) object_pod(&r.arena, rig_text(__VA_ARGS__))

static inline void rig_scv(struct scv scv)
{
    rig_step((struct core_input){
        .type = CORE_OBJECT, .kind = CORE_SCVS, .run = r.runs[CORE_SCVS], .scv = &scv});
}

/* The Scv of a node with healthy cards. */
static inline void rig_cards(const char *node, int cards, int mib)
{
    rig_scv(object_scv_even(&r.arena, node, cards, mib));
}

/* The Scv of a node with a sick card and healthy ones, all of 16000 MiB. */
static inline void rig_sick(const char *node, int cards, int sick)
{
    struct scv scv = object_scv_even(&r.arena, node, cards, 16000);
    scv.cards[sick].healthy = false;
    rig_scv(scv);
}

static inline void rig_scv_gone(const char *node)
{
    struct scv scv = object_scv_even(&r.arena, node, 1, 16);
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_SCVS,
                                 .run = r.runs[CORE_SCVS],
                                 .scv = &scv,
                                 .deleted = true});
}

static inline void rig_node(struct node node)
{
    rig_step((struct core_input){.type = CORE_OBJECT,
                                 .kind = CORE_NODES,
                                 .run = r.runs[CORE_NODES],
                                 .node = &node});
}

static inline void rig_progress(enum core_kind kind)
{
    rig_step((struct core_input){
        .type = CORE_WATCH_PROGRESS, .kind = kind, .run = r.runs[kind]});
}

/* ERR_NONE: the API server closed the watch. */
static inline void rig_watch_ended(enum core_kind kind, enum err_code code)
{
    struct err err = {.code = code, .msg = "why"};
    rig_step((struct core_input){.type = CORE_WATCH_ENDED,
                                 .kind = kind,
                                 .run = r.runs[kind],
                                 .err = code == ERR_NONE ? NULL : &err,
                                 .retry_after_ms = -1});
}

static inline void rig_list_failed(enum core_kind kind, enum err_code code,
                                   int64_t retry_after_ms)
{
    struct err err = {.code = code, .msg = "why"};
    rig_step((struct core_input){.type = CORE_LIST_FAILED,
                                 .kind = kind,
                                 .run = r.runs[kind],
                                 .err = &err,
                                 .retry_after_ms = retry_after_ms});
}

static inline void rig_stop(void)
{
    rig_step((struct core_input){.type = CORE_STOP});
}

static inline void rig_list_end_at(enum core_kind kind, const char *version)
{
    rig_step((struct core_input){.type = CORE_LIST_ENDED,
                                 .kind = kind,
                                 .run = r.runs[kind],
                                 .version = span_of(version)});
}

static inline void rig_list_end(enum core_kind kind)
{
    rig_list_end_at(kind, "100");
}

/* CORE_KINDS: all lists end. In a dialect, pods are listed after ConfigMaps. */
static inline void rig_lists_end_but(enum core_kind open)
{
    bool waits = !r.runs[CORE_PODS] && open != CORE_CONFIGMAPS;
    if (waits) {
        rig_list_end(CORE_CONFIGMAPS);
        rig_tick(0);
    }
    for (enum core_kind kind = 0; kind < CORE_KINDS; kind++)
        if (kind != open && !(waits && kind == CORE_CONFIGMAPS))
            rig_list_end(kind);
}

static inline void rig_lists_end(void)
{
    rig_lists_end_but(CORE_KINDS);
}

static inline void rig_reset(void)
{
    step_outputs_reset(&r.out);
}

static inline void rig_free(void)
{
    core_free(r.core);
    step_outputs_fini(&r.out);
    arena_fini(&r.arena);
    r.core = NULL;
}

/* Begins again with these settings. */
static inline void rig_new(struct core_settings settings)
{
    rig_free();
    r = (struct rig){.now = {1000000, 1700000000000000000}};
    if (!settings.identity)
        settings.identity = "me";
    if (!settings.ledger.unit_mib)
        settings.ledger.unit_mib = 1;
    settings.ledger.external_tolerance_mib = 1024;
    settings.lease_namespace = "kube-system";
    settings.lease_name = "gpushare-extender";
    r.core = core_new(&settings);
    rig_tick(0);
}

/* With the defaults. */
static inline void rig_start(void)
{
    rig_new((struct core_settings){0});
}

/* The lease is free. */
static inline void rig_acquire(void)
{
    rig_lease_read("", "1");
    rig_lease_written("me", "2");
}

/* Steps until it may bind: the lease was free, all lists are empty. */
static inline void rig_lead(void)
{
    rig_acquire();
    rig_lists_end();
    rig_reset();
}

static inline void rig_bind(uint64_t token, const char *uid, const char *node)
{
    char name[64];
    snprintf(name, sizeof name, "pod-%s", uid);
    rig_step((struct core_input){.type = CORE_BIND,
                                 .token = token,
                                 .ns = SPAN("default"),
                                 .name = span_of(name),
                                 .uid = span_of(uid),
                                 .node_name = span_of(node)});
}

/* filter of the pod with these nodes. */
static inline struct core_output rig_reserve(struct pod pod, const struct span *nodes,
                                             size_t n)
{
    struct gang gang;
    bool in_gang = gang_of(&pod, &gang);
    struct request request;
    struct err err;
    const struct request_rules rules = {
        .unit_mib = 1, .dialect = ledger_settings(core_ledger(r.core))->dialect};
    ck_assert_done(request_of(&pod, &rules, &r.arena, &request, &err), err);
    rig_step((struct core_input){.type = CORE_RESERVE,
                                 .ns = pod.meta.ns,
                                 .name = pod.meta.name,
                                 .uid = pod.meta.uid,
                                 .request = &request,
                                 .priority = pod.priority,
                                 .requests = pod.requests,
                                 .scheduler = pod.scheduler,
                                 .gang = in_gang ? &gang : NULL,
                                 .nodes = nodes,
                                 .n_nodes = n});
    return rig_take(CORE_RESERVED);
}

/* Advances the clock and answers renewals of the lease. */
static inline void rig_pass(int64_t ms)
{
    for (int64_t t = 0; t < ms; t += 100) {
        rig_tick(ms - t < 100 ? ms - t : 100);
        if (rig_count(CORE_CALL_LEASE_WRITE)) {
            char version[32];
            snprintf(version, sizeof version, "l%lld", (long long)r.now.mono_ms);
            rig_lease_written("me", version);
        }
    }
}

static inline const struct ledger_node *rig_ledger_node(const char *name)
{
    return ledger_node_find(core_ledger(r.core), span_of(name));
}

static inline const struct ledger_pod *rig_ledger_pod(const char *uid)
{
    return ledger_pod_find(core_ledger(r.core), span_of(uid));
}

static inline int64_t rig_free_mib(const char *node, uint32_t card)
{
    const struct ledger_node *n = rig_ledger_node(node);
    ck_assert(n && card < n->n_cards);
    return n->cards[card].free_mib;
}

/* The pod in the API after a Binding with these annotations. */
static inline struct pod rig_bound_pod(const char *uid, int units, const char *node,
                                       const char *annotations)
{
    return rig_json(
        "{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s',"
        "'annotations':%s},'spec':{'nodeName':'%s','containers':[{'resources':{"
        "'limits':{'" KEY_GPU_MEM "':'%d'}}}]}}",
        uid, uid, annotations, node, units);
}

#define ck_total(what, n) ck_assert_uint_eq(ledger_totals(core_ledger(r.core)).what, n)
/* So many reservations exist. */
#define ck_reserved(n) ck_total(reservations, n)

/* So many outputs of that type wait. */
#define ck_count(type, n) ck_assert_uint_eq(rig_count(type), n)

/* The Binding has the annotation. */
#define ck_noted(bind, key, value)                                                       \
    ck_assert_contains((bind).annotations, "\"" key "\":\"" value "\"")

UNIT_MAIN_AROUND(NULL, rig_free)
