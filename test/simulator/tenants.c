/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A hostile tenant with the rights of a namespace's editor. He creates pods that claim
 * promises: without any request, or with a small one; copies the annotations of other
 * pods; and edits or removes the promises of bound pods at any time, also while no
 * extender runs. Where the admission policy is on, it denies most of this.
 *
 * A pod without a request reaches a node by nodeName, or by the ordinary scheduler, which
 * does not ask the extender about such a pod.
 */

const char *const promise_keys[PROMISE_KEYS] = {
    "ALIYUN_COM_GPU_MEM_IDX",      "scheduler.framework.gpushare.allocation",
    "gpushare/card-uuid",          "gpushare/card-memory",
    "ALIYUN_COM_GPU_MEM_DEV",      "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
};

/* -- the policy --
 *
 * A model of the ValidatingAdmissionPolicy on pods, in the worlds that have it: what a
 * namespace's users may create and change. It compares the old and the new object, as the
 * API server does. The accounts of the extender, of the device plugin, of the kubelet and
 * of other schedulers do not pass through it.
 */

/* Labels, or annotations, that are part of a request. */
static const char *const request_keys[] = {"scv/number", "scv/memory", "scv/clock",
                                           "aliyun.com/gpu-count"};

static bool differs(json_t *old, json_t *new, const char *map, const char *key)
{
    json_t *a = json_object_get(sim_jsonx_at(old, map), key);
    json_t *b = json_object_get(sim_jsonx_at(new, map), key);
    return a != b && !json_equal(a, b);
}

/* Does the pod request our resources, by limits or labels? */
static bool requests(json_t *pod)
{
    static const char *const lists[] = {"spec.containers", "spec.initContainers"};
    size_t i;
    json_t *c;
    for (size_t l = 0; l < ARRAY_LEN(lists); l++)
        json_array_foreach(sim_jsonx_at(pod, lists[l]), i, c)
        {
            json_t *limits = sim_jsonx_at(c, "resources.limits");
            if (json_object_get(limits, "aliyun.com/gpu-mem") ||
                json_object_get(limits, "aliyun.com/gpu-share") ||
                json_object_get(limits, "aliyun.com/gpu-count"))
                return true;
        }
    for (i = 0; i < 3; i++)
        if (differs(NULL, pod, "metadata.labels", request_keys[i]))
            return true;
    return false;
}

/* `old` is NULL for a create. */
static bool is_denied(json_t *old, json_t *new)
{
    for (int i = 0; i < PROMISE_KEYS; i++)
        if (differs(old, new, "metadata.annotations", promise_keys[i]))
            return true;
    if (!old) {
        json_t *owner = json_array_get(sim_jsonx_at(new, "metadata.ownerReferences"), 0);
        return sim_jsonx_at(new, "spec.nodeName") && requests(new) &&
               strcmp(sim_jsonx_str(owner, "kind"), "DaemonSet") != 0;
    }
    if (!sim_jsonx_at(old, "spec.nodeName"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(request_keys); i++)
        if (differs(old, new, "metadata.labels", request_keys[i]))
            return true;
    return differs(old, new, "metadata.annotations", "aliyun.com/gpu-count") ||
           differs(old, new, "metadata.annotations", "gpushare/memory");
}

/* RFC 7386, for objects. */
static void merge(json_t *into, json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach(patch, key, value)
    {
        if (json_is_null(value))
            json_object_del(into, key);
        else if (json_is_object(value))
            merge(sim_jsonx_make(into, key), value);
        else
            json_object_set(into, key, value);
    }
}

unsigned policy_create(struct world *w, const char *body)
{
    cleanup_json_value json_t *pod = json_loads(body, 0, NULL);
    if (w->policy && is_denied(NULL, pod)) {
        w->stats.denied++;
        return 403;
    }
    unsigned status = api_call(w, "POST", body, "/api/v1/namespaces/default/pods");
    if (status != 201)
        violated(w, "cannot create the pod: %u %s", status, body);
    return status;
}

unsigned policy_patch(struct world *w, const char *name, const char *body)
{
    cleanup_json_value json_t *old = w->policy ? api_get(w, POD_PATH "%s", name) : NULL;
    cleanup_json_value json_t *new = json_deep_copy(old);
    cleanup_json_value json_t *patch = json_loads(body, 0, NULL);
    if (old)
        merge(new, patch);
    if (old && is_denied(old, new)) {
        w->stats.denied++;
        return 403;
    }
    unsigned status = api_call(w, "PATCH", body, POD_PATH "%s", name);
    if (status != 200)
        violated(w, "cannot edit the pod: %u %s", status, body);
    return status;
}

/* -- the tenant -- */

static bool dice(struct world *w, uint64_t sides)
{
    return any(w, sides) == 0;
}

static void add_member(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, "%s\"%s\":", b->n ? "," : "", key);
    if (value)
        buf_add_json(b, span_of(value));
    else
        buf_adds(b, "null");
}

/* A promise as the extender writes it, with an invented amount on an invented card. `uid`:
 * of the pod; NULL: not created yet. */
static void invent(struct world *w, struct buf *b, const char *uid)
{
    static const int units[] = {1, 8, 15, 16, 40, 999999};
    int node = any(w, NODES), card = any(w, 4), n = ONE_OF(w, units);
    char amount[64], text[64];
    snprintf(text, sizeof text, "%d", card);
    add_member(b, promise_keys[KEY_IDX], text);
    snprintf(amount, sizeof amount, "%d", n);
    add_member(b, promise_keys[KEY_POD], amount);
    add_member(b, promise_keys[KEY_DEV], dice(w, 2) ? amount : "16");
    add_member(b, promise_keys[KEY_ASSIGNED], dice(w, 2) ? "true" : "false");
    add_member(b, promise_keys[KEY_TIME], "1700000000000000000");
    snprintf(text, sizeof text, "{\"0\":{\"%d\":%d}}", card, n);
    if (!dice(w, 3))
        add_member(b, promise_keys[KEY_ALLOCATION], text);
    snprintf(text, sizeof text, "GPU-%d-%d", node, card);
    if (dice(w, 2))
        add_member(b, promise_keys[KEY_UUID], text);
    snprintf(text, sizeof text, "%s%s%s", dice(w, 2) ? "whole" : "16000", uid ? " " : "",
             uid ? uid : "");
    if (dice(w, 2))
        add_member(b, promise_keys[KEY_MEMORY], text);
}

/* The annotations of a pod that has a promise, or invented ones. */
static void forge(struct world *w, struct buf *b, const char *uid)
{
    const struct oracle_pod *p = dice(w, 3) ? oracle_pick(w, true) : NULL;
    p = p && p->raw_slots ? NULL : p;
    cleanup_json_value json_t *pod = p ? api_get(w, POD_PATH "%s", p->name) : NULL;
    const char *key;
    json_t *value;
    json_object_foreach(sim_jsonx_at(pod, "metadata.annotations"), key, value)
    {
        if (strncmp(key, "nvidia-", 7) != 0 && strcmp(key, "gpushare/placement") != 0)
            add_member(b, key, json_string_value(value));
    }
    if (!b->n)
        invent(w, b, uid);
}

static void create_forged(struct world *w)
{
    cleanup_buf struct buf body = {0}, notes = {0};
    cleanup_free char *name = NULL;
    bool asks = dice(w, 2), whole = asks && dice(w, 4), direct = dice(w, 2);
    name = xasprintf("f%llu", (unsigned long long)++w->stats.pods);
    forge(w, &notes, NULL);
    buf_printf(&body,
               "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
               "\"annotations\":{%s}%s},\"spec\":{",
               name, notes.p,
               !asks && dice(w, 2) ? ",\"labels\":{\"scv/memory\":\"1500\"}" : "");
    if (direct)
        buf_printf(&body, "\"nodeName\":\"n%d\",", any(w, NODES));
    buf_adds(&body, "\"containers\":[{\"name\":\"c\",\"image\":\"i\"");
    if (asks)
        buf_printf(&body, ",\"resources\":{\"limits\":{\"%s\":\"%d\"}}",
                   whole ? "aliyun.com/gpu-count" : "aliyun.com/gpu-mem",
                   whole ? 1 : (int)between(w, 1, 4));
    buf_adds(&body, "}]}}");
    unsigned status = policy_create(w, body.p);
    trace(w, "tenant: create %s %s: %u: %s", name, asks ? "with limits" : "", status,
          notes.p);
    w->stats.forged += status == 201;
    if (status == 201 && !direct && (!asks || dice(w, 2)))
        outsiders_bind(w, name, any(w, NODES), NULL);
}

/* Pods whose limits in HAMi's words say all of their memory claim that the bind gave them 1 MiB. */
static void lower_records(struct world *w)
{
    EACH_POD(w, p)
    {
        const uint8_t *parts = p->ask.parts;
        cleanup_buf struct buf body = {0};
        if (!p->node || p->over || p->foreign || !p->ask.in_words || p->tampered ||
            (!p->ask.whole && memchr(parts, 100, sizeof p->ask.parts)))
            continue;
        buf_printf(&body,
                   "{\"metadata\":{\"annotations\":{\"%s\":\"1 %s\",\"%s\":null}}}",
                   promise_keys[KEY_MEMORY], p->uid, promise_keys[KEY_ALLOCATION]);
        unsigned status = policy_patch(w, p->name, body.p);
        trace(w, "tenant: lower the record of %s: %u", p->name, status);
        w->stats.tampered += status == 200;
        return;
    }
}

static void edit_promise(struct world *w)
{
    cleanup_buf struct buf notes = {0}, body = {0};
    const struct oracle_pod *p = oracle_pick(w, !dice(w, 8));
    if (!p || p->raw_slots || p->raw_hami)
        return;
    cleanup_free char *name = xstrdup(p->name);
    int kind = any(w, 4), node = oracle_index(p->node);
    if (kind == 0) { /* removes some keys of a promise, or all */
        bool all = dice(w, 2);
        for (int i = 0; i < PROMISE_KEYS; i++)
            if (all || dice(w, 3))
                add_member(&notes, promise_keys[i], NULL);
    } else if (kind == 1 && node >= 0) { /* moves it to another card, consistently */
        int card = any(w, (uint64_t)oracle_cards(node));
        char text[64];
        snprintf(text, sizeof text, "%d", card);
        add_member(&notes, promise_keys[KEY_IDX], text);
        snprintf(text, sizeof text, "{\"0\":{\"%d\":%lld}}", card, (long long)p->raw_mem);
        add_member(&notes, promise_keys[KEY_ALLOCATION], dice(w, 2) ? text : NULL);
        snprintf(text, sizeof text, "GPU-%d-%d", node, card);
        add_member(&notes, promise_keys[KEY_UUID], dice(w, 2) ? text : NULL);
    } else if (kind > 1) {
        forge(w, &notes, dice(w, 2) ? p->uid : NULL);
    }
    if (!notes.n)
        return;
    buf_printf(&body, "{\"metadata\":{\"annotations\":{%s}}}", notes.p);
    unsigned status = policy_patch(w, name, body.p);
    trace(w, "tenant: edit the promise of %s: %u: %s", name, status, notes.p);
    w->stats.tampered += status == 200;
}

void tenants_act(struct world *w)
{
    if (dice(w, 3))
        create_forged(w);
    else if (w->in_words && dice(w, 4))
        lower_records(w);
    else
        edit_promise(w);
}
