/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/session.h"
#include "lib/unit.h"

/* A cluster_state made of lists, without a server. */

struct lists {
    const char *nodes, *pods, *scvs, *leases, *configmaps; /* items, or NULL: none */
};

static inline void lib_list(struct cluster_state *cs, const struct core_output *request,
                            const char *list)
{
    struct apisync feed;
    apisync_start(&feed, request->kind, false, request->run, (struct span){0},
                  &cluster_state_sink, cs);
    list_watch_begin(&feed.in, 200, -1);
    list_watch_data(&feed.in, list, strlen(list));
    apisync_end(&feed, NULL);
    apisync_fini(&feed);
}

static uint64_t lib_watches[CORE_KINDS]; /* the run of each watch */
static struct core_output *lib_lists[CORE_KINDS];

static inline void lib_request(void *ctx, const struct core_output *request)
{
    (void)ctx;
    if (request->type == CORE_WATCH) {
        lib_watches[request->kind] = request->run;
        return;
    }
    free(lib_lists[request->kind]);
    lib_lists[request->kind] = core_output_dup(request);
}

/* Answers the state's requests; `lists` has complete lists, not items. */
static inline void lib_fill(struct cluster_state *cs, const struct lists *lists)
{
    const char *const texts[CORE_KINDS] = {lists->nodes, lists->pods, lists->scvs,
                                           lists->leases, lists->configmaps};
    struct err err;
    cluster_state_tick(cs);
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct core_output *request = steal(&lib_lists[kind]);
        if (request)
            lib_list(cs, request, texts[kind]);
        free(request);
    }
    cluster_state_tick(cs);
    ck_assert_msg(cluster_state_check_ready(cs, &err) == 0, "not ready: %s", err.msg);
}

/* The cluster of the test. */
static struct cluster_state *cs;

/* Makes `cs` of the items of each list. The former cluster ends. */
static inline void lib_cluster(const struct lists *items)
{
    const struct cluster_state_config config = {
        .core = {.ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024},
                 .node_grace_ms = 40000},
        .request = lib_request};
    const char *const texts[CORE_KINDS] = {items->nodes, items->pods, items->scvs,
                                           items->leases, items->configmaps};
    char *all[CORE_KINDS];
    for (int i = 0; i < CORE_KINDS; i++)
        all[i] = xasprintf("{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}",
                           texts[i] ? texts[i] : "");
    cluster_state_free(cs);
    cs = cluster_state_new(&config);
    lib_fill(cs, &(struct lists){all[0], all[1], all[2], all[3], all[4]});
    for (int i = 0; i < CORE_KINDS; i++)
        free(all[i]);
}
#define CLUSTER(...) lib_cluster(&(struct lists){__VA_ARGS__})

/* The JSON text, which may be NULL; new. */
static inline json_t *lib_json(const char *text)
{
    json_error_t error;
    json_t *j = text ? json_loads(text, JSON_ALLOW_NUL, &error) : NULL;
    ck_assert_msg(j || !text, "%s: %s", error.text, text);
    return j;
}

#define NODE(name, mem, cards)                                                           \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"addresses\":[{\"type\":"        \
    "\"InternalIP\",\"address\":\"10.0.0.1\"}],\"capacity\":{\"aliyun.com/"              \
    "gpu-mem\":\"" mem "\",\"aliyun.com/gpu-count\":\"" cards "\"},\"allocatable\":{"    \
    "\"aliyun.com/gpu-mem\":\"" mem "\",\"aliyun.com/gpu-count\":\"" cards "\"}}}"
/* A card of an Scv; memory in MiB. */
#define CARD_OF(id, health, model, total, used)                                          \
    "{\"id\":" id ",\"health\":\"" health "\",\"model\":\"" model                        \
    "\",\"uuid\":\"GPU-" id "\",\"totalMemory\":" total ",\"usedMemory\":" used          \
    ",\"utilization\":37,\"temperature\":41}"
/* One card, on which a pod and a process outside Kubernetes use memory; all in MiB. */
#define SCV_USED(name, total, used, pod_uid, pod_used, process_used)                     \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"updateTime\":"                  \
    "\"2026-11-21T09:00:00Z\",\"cardList\":[{\"id\":0,\"health\":\"Healthy\","           \
    "\"totalMemory\":" total ",\"usedMemory\":" used ",\"uuid\":\"GPU-0\","              \
    "\"usageComplete\":true}],\"processList\":[{\"uuid\":\"GPU-0\",\"namespace\":"       \
    "\"ns\","                                                                            \
    "\"name\":\"a\",\"podUID\":\"" pod_uid "\",\"usedMemory\":" pod_used                 \
    "},{\"uuid\":\"GPU-0\",\"pid\":812,\"name\":\"Xorg\",\"usedMemory\":" process_used   \
    "}]}}"
#define SCV_OF(name, cards) ISOLATING("", name, cards)
/* `list`: what the node can enforce, with a comma. */
#define ISOLATING(list, name, cards)                                                     \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{" list "\"updateTime\":"          \
    "\"2026-01-01T00:00:00Z\",\"driverVersion\":\"535.1\",\"cardList\":[" cards "]}}"
#define LIBRARY "\"isolation\":[\"library\"],"
#define DRIVER  "\"isolation\":[\"driver\"],"
#define POD_OF(name, node, units, annotations)                                           \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{" annotations "}},\"spec\":{\"nodeName\":\"" node               \
    "\",\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"                     \
    "\"aliyun.com/gpu-mem\":\"" units "\"}}}]},\"status\":{\"phase\":\"Pending\"}}"
#define IDX(card) "\"ALIYUN_COM_GPU_MEM_IDX\":\"" card "\""
