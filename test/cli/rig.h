/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/world.h"
#include "support/unit.h"

/* A world made of lists, without any server. */

struct lists {
    const char *nodes, *pods, *scvs, *leases, *configmaps; /* items, or NULL: none */
};

static inline void rig_list(struct world *w, const struct core_output *wish,
                            const char *list)
{
    struct apisync feed;
    apisync_start(&feed, wish->kind, false, wish->run, (struct span){0}, &world_sink, w);
    apisync_begin(&feed, 200, -1);
    apisync_data(&feed, list, strlen(list));
    apisync_end(&feed, NULL);
    apisync_fini(&feed);
}

static uint64_t rig_watches[CORE_KINDS]; /* their runs */

/* Lists of that text: `lists` has whole lists, not items. */
static inline void rig_fill(struct world *w, const struct lists *lists)
{
    const char *const texts[CORE_KINDS] = {lists->nodes, lists->pods, lists->scvs,
                                           lists->leases, lists->configmaps};
    struct core_output *wish;
    struct err err;
    world_tick(w);
    while ((wish = world_wish(w))) {
        if (wish->type == CORE_LIST)
            rig_list(w, wish, texts[wish->kind]);
        else
            rig_watches[wish->kind] = wish->run;
        free(wish);
        world_tick(w);
    }
    ck_assert_msg(world_ready(w, &err) == 0, "not ready: %s", err.msg);
}

/* New; of items. */
static inline struct world *rig_world(const struct lists *items)
{
    const struct world_config config = {
        .ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024},
        .node_grace_ms = 40000};
    const char *const texts[CORE_KINDS] = {items->nodes, items->pods, items->scvs,
                                           items->leases, items->configmaps};
    char *all[CORE_KINDS];
    for (int i = 0; i < CORE_KINDS; i++)
        all[i] = xasprintf("{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}",
                           texts[i] ? texts[i] : "");
    struct world *w = world_new(&config);
    rig_fill(w, &(struct lists){all[0], all[1], all[2], all[3], all[4]});
    for (int i = 0; i < CORE_KINDS; i++)
        free(all[i]);
    return w;
}

#define NODE(name, mem, cards)                                                           \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"addresses\":[{\"type\":"        \
    "\"InternalIP\",\"address\":\"10.0.0.1\"}],\"capacity\":{\"aliyun.com/"              \
    "gpu-mem\":\"" mem "\",\"aliyun.com/gpu-count\":\"" cards "\"},\"allocatable\":{"    \
    "\"aliyun.com/gpu-mem\":\"" mem "\",\"aliyun.com/gpu-count\":\"" cards "\"}}}"
/* Cards of an Scv, MiB. */
#define CARD_OF(id, health, model, total, used)                                          \
    "{\"id\":" id ",\"health\":\"" health "\",\"model\":\"" model                        \
    "\",\"uuid\":\"GPU-" id "\",\"totalMemory\":" total ",\"usedMemory\":" used          \
    ",\"utilization\":37,\"temperature\":41}"
#define SCV_OF(name, cards)                                                              \
    "{\"metadata\":{\"name\":\"" name "\"},\"status\":{\"updateTime\":"                  \
    "\"2026-01-01T00:00:00Z\",\"driverVersion\":\"535.1\",\"cardList\":[" cards "]}}"
#define POD_OF(name, node, units, annotations)                                           \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u-" name        \
    "\",\"annotations\":{" annotations "}},\"spec\":{\"nodeName\":\"" node               \
    "\",\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{"                     \
    "\"aliyun.com/gpu-mem\":\"" units "\"}}}]},\"status\":{\"phase\":\"Pending\"}}"
#define IDX(card) "\"ALIYUN_COM_GPU_MEM_IDX\":\"" card "\""
