/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A hostile tenant with the rights of a namespace's editor. He creates pods that claim
 * promises: without any request, or with a small one; copies the annotations of other
 * pods; and edits or removes the promises of bound pods at any time, also while no
 * extender runs. Where the admission policy is on (policy.c), it denies most of this.
 *
 * A pod without a request reaches a node by nodeName, or by the ordinary scheduler, which
 * does not ask the extender about such a pod.
 */

static bool dice(struct world *w, uint64_t sides)
{
    return rng_below(&w->rng, sides) == 0;
}

static void add_member(struct buf *b, const char *key, const char *value)
{
    if (b->n)
        buf_addc(b, ',');
    buf_printf(b, "\"%s\":", key);
    if (value)
        buf_add_json(b, span_of(value));
    else
        buf_adds(b, "null");
}

/* A promise as the extender writes it, with an invented amount on an invented card. */
static void invent(struct world *w, struct buf *b)
{
    static const int units[] = {1, 8, 15, 16, 40, 999999};
    int node = (int)rng_below(&w->rng, NODES), card = (int)rng_below(&w->rng, 4);
    int n = units[rng_below(&w->rng, ARRAY_LEN(units))];
    char text[64];
    snprintf(text, sizeof text, "%d", card);
    add_member(b, "ALIYUN_COM_GPU_MEM_IDX", text);
    snprintf(text, sizeof text, "%d", n);
    add_member(b, "ALIYUN_COM_GPU_MEM_POD", text);
    add_member(b, "ALIYUN_COM_GPU_MEM_DEV", dice(w, 2) ? text : "16");
    add_member(b, "ALIYUN_COM_GPU_MEM_ASSIGNED", dice(w, 2) ? "true" : "false");
    add_member(b, "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1700000000000000000");
    snprintf(text, sizeof text, "{\"0\":{\"%d\":%d}}", card, n);
    if (!dice(w, 3))
        add_member(b, "scheduler.framework.gpushare.allocation", text);
    snprintf(text, sizeof text, "GPU-%d-%d", node, card);
    if (dice(w, 2))
        add_member(b, "gpushare/card-uuid", text);
    if (dice(w, 2))
        add_member(b, "gpushare/card-memory", dice(w, 2) ? "whole" : "16000");
}

/* The annotations of a pod that has a promise. */
static void copy_promise(struct world *w, struct buf *b)
{
    const struct oracle_pod *p = oracle_pick(w, true);
    const char *key;
    json_t *value;
    if (!p)
        return;
    json_t *pod = api_get(w, POD_PATH "%s", p->name);
    json_object_foreach(json_object_get(json_object_get(pod, "metadata"), "annotations"),
                        key, value)
    {
        if (strncmp(key, "nvidia-", 7) != 0 && strcmp(key, "gpushare/placement") != 0)
            add_member(b, key, json_string_value(value));
    }
    json_decref(pod);
}

static void forge(struct world *w, struct buf *b)
{
    if (dice(w, 3))
        copy_promise(w, b);
    if (!b->n)
        invent(w, b);
}

static void bind_by_another_scheduler(struct world *w, const char *name)
{
    char body[160];
    snprintf(body, sizeof body,
             "{\"metadata\":{\"name\":\"%s\"},\"target\":{\"kind\":\"Node\",\"name\":"
             "\"n%d\"}}",
             name, (int)rng_below(&w->rng, NODES));
    unsigned status = api_call(w, "POST", body, POD_PATH "%s/binding", name);
    trace(w, "tenant: another scheduler binds %s: %u", name, status);
}

static void create_forged(struct world *w)
{
    cleanup_buf struct buf body = {0}, notes = {0};
    char name[32];
    bool asks = dice(w, 2), whole = asks && dice(w, 4), direct = dice(w, 2);
    snprintf(name, sizeof name, "f%llu", (unsigned long long)++w->stats.pods);
    forge(w, &notes);
    buf_printf(&body,
               "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
               "\"annotations\":{%s}},\"spec\":{",
               name, notes.p);
    if (direct)
        buf_printf(&body, "\"nodeName\":\"n%d\",", (int)rng_below(&w->rng, NODES));
    buf_adds(&body, "\"containers\":[{\"name\":\"c\",\"image\":\"i\"");
    if (asks)
        buf_printf(&body, ",\"resources\":{\"limits\":{\"%s\":\"%d\"}}",
                   whole ? "aliyun.com/gpu-count" : "aliyun.com/gpu-mem",
                   whole ? 1 : (int)between(w, 1, 4));
    buf_adds(&body, "}]}}");
    unsigned status = policy_create(w, body.p);
    trace(w, "tenant: create %s %s: %u: %s", name, asks ? "with limits" : "", status,
          notes.p);
    if (status != 201 && !(w->policy && status == 403))
        violated(w, "cannot create the pod: %u %s", status, body.p);
    w->stats.forged += status == 201;
    if (status == 201 && !direct && (!asks || dice(w, 2)))
        bind_by_another_scheduler(w, name);
}

/* Removes some keys of a promise, or all. */
static void add_removals(struct world *w, struct buf *b)
{
    static const char *const keys[] = {
        "ALIYUN_COM_GPU_MEM_IDX",      "scheduler.framework.gpushare.allocation",
        "gpushare/card-uuid",          "gpushare/card-memory",
        "ALIYUN_COM_GPU_MEM_DEV",      "ALIYUN_COM_GPU_MEM_POD",
        "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    };
    bool all = dice(w, 2);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (all || dice(w, 3))
            add_member(b, keys[i], NULL);
}

/* Moves a promise to another card, all keys consistent. */
static void add_move(struct world *w, struct buf *b, const struct oracle_pod *p)
{
    int node = oracle_node(p);
    int card = (int)rng_below(&w->rng, (uint64_t)oracle_cards(node));
    char text[64];
    snprintf(text, sizeof text, "%d", card);
    add_member(b, "ALIYUN_COM_GPU_MEM_IDX", text);
    snprintf(text, sizeof text, "{\"0\":{\"%d\":%lld}}", card, (long long)p->raw_mem);
    add_member(b, "scheduler.framework.gpushare.allocation", dice(w, 2) ? text : NULL);
    snprintf(text, sizeof text, "GPU-%d-%d", node, card);
    add_member(b, "gpushare/card-uuid", dice(w, 2) ? text : NULL);
}

static void edit_promise(struct world *w)
{
    cleanup_buf struct buf notes = {0}, body = {0};
    const struct oracle_pod *p = oracle_pick(w, !dice(w, 8));
    if (!p)
        return;
    cleanup_free char *name = xstrdup(p->name);
    switch (rng_below(&w->rng, 4)) {
    case 0:
        add_removals(w, &notes);
        break;
    case 1:
        if (p->node)
            add_move(w, &notes, p);
        break;
    default:
        forge(w, &notes);
        break;
    }
    if (!notes.n)
        return;
    buf_printf(&body, "{\"metadata\":{\"annotations\":{%s}}}", notes.p);
    unsigned status = policy_patch(w, name, body.p);
    trace(w, "tenant: edit the promise of %s: %u: %s", name, status, notes.p);
    if (status != 200 && !(w->policy && status == 403))
        violated(w, "cannot edit the pod: %u %s", status, body.p);
    w->stats.tampered += status == 200;
}

void tenants_act(struct world *w)
{
    if (dice(w, 3))
        create_forged(w);
    else
        edit_promise(w);
}
