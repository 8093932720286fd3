/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"

#include "base/clock.h"
#include "domain/objects.h"

/*
 * A ledger of the node n1 whose Scv is that of scv-agent: cards GPU-0 and GPU-1 of TOTAL
 * MiB, and what containers and processes use of them.
 */

enum { TOTAL = 16000, TOLERANCE = 1000 };

static struct arena arena;
static struct ledger *ledger;
static int64_t sample_s;

/* -- the Scv -- */

struct sample {
    struct buf held, processes; /* items of podList and processList */
    long used[2];
    bool incomplete; /* the cards are not marked */
};

static inline void start(void)
{
    const struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = TOLERANCE};
    ledger = ledger_new(&s, 1);
    sample_s = 1000;
}

/* A container without a device has its use in processList. */
static inline void uses(struct sample *s, const char *pod, int card, long mib)
{
    buf_printf(&s->held,
               "%s{'namespace':'default','name':'pod-%s','container':'c','units':1,"
               "'resource':'aliyun.com/gpu-mem','cards':['GPU-%d'],'usage':[{'uuid':"
               "'GPU-%d','podUID':'%s','promisedMemory':1,'usedMemory':%ld}]}",
               s->held.n ? "," : "", pod, card, card, pod, mib);
    s->used[card] += mib;
}

static inline void uses_without_device(struct sample *s, const char *pod, int card,
                                       long mib)
{
    buf_printf(&s->processes,
               "%s{'namespace':'default','name':'pod-%s','container':'i','uuid':'GPU-%d',"
               "'podUID':'%s','usedMemory':%ld}",
               s->processes.n ? "," : "", pod, card, pod, mib);
    s->used[card] += mib;
}

static inline void other_process(struct sample *s, int card, long mib)
{
    buf_printf(&s->processes,
               "%s{'pid':7,'name':'Xorg','uuid':'GPU-%d','usedMemory':%ld}",
               s->processes.n ? "," : "", card, mib);
    s->used[card] += mib;
}

/* The ledger gets it, as a new sample. */
static inline void see(struct sample *s)
{
    cleanup_buf struct buf time = {0};
    const char *mark = s->incomplete ? "" : "'usageComplete':true,";
    clock_format_s(&time, sample_s++);
    struct span text = quoted(
        &arena,
        "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Healthy',"
        "'uuid':'GPU-0',%s'totalMemory':%d,'freeMemory':%ld},{'id':1,'health':'Healthy',"
        "'uuid':'GPU-1',%s'totalMemory':%d,'freeMemory':%ld}],'updateTime':'%s',"
        "'podList':[%s],'processList':[%s]}}",
        mark, TOTAL, TOTAL - s->used[0], mark, TOTAL, TOTAL - s->used[1], time.p,
        s->held.n ? s->held.p : "", s->processes.n ? s->processes.p : "");
    struct scv scv = object_scv(&arena, text);
    ledger_scv_seen(ledger, &scv, 0);
    buf_fini(&s->held);
    buf_fini(&s->processes);
    *s = (struct sample){0};
}

/* -- pods -- */

static inline struct ledger_pod *place(const char *uid, int mib, int card)
{
    struct pod pod = object_pod_mem(&arena, uid, mib);
    struct request r = object_request(&arena, &pod, 1);
    struct ledger_pod *p = ledger_pod_add(ledger, &pod, &r, NULL);
    char uuid[] = "GPU-0";
    uuid[4] = (char)('0' + card);
    const struct ledger_share share = {
        .card = card, .mib = mib, .uuid = {uuid, sizeof uuid - 1}};
    ledger_pod_place(ledger, p, SPAN("n1"), &share, 1);
    return p;
}

static inline const struct card *card_of(int i)
{
    return &ledger_node_find(ledger, SPAN("n1"))->cards[i];
}
