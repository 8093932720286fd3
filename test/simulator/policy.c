/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <string.h>

/*
 * A model of the ValidatingAdmissionPolicy on pods, in the worlds that have it: what a
 * namespace's users may create and change. It compares the old and the new object, as the
 * API server does. The accounts of the extender, of the device plugin, of the kubelet and
 * of other schedulers do not pass through it.
 */

static const char *const promise_keys[] = {
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
    "scheduler.framework.gpushare.allocation",
    "gpushare/card-uuid",
    "gpushare/card-memory",
};

/* Labels, or annotations, that are part of a request. */
static const char *const request_keys[] = {"scv/number", "scv/memory", "scv/clock",
                                           "aliyun.com/gpu-count"};

static bool differs(json_t *old, json_t *new, const char *map, const char *key)
{
    const char *a = ask_text(json_object_get(old, "metadata"), map, key);
    const char *b = ask_text(json_object_get(new, "metadata"), map, key);
    return a && b ? strcmp(a, b) != 0 : a != b;
}

static bool has_limits(json_t *spec, const char *list)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(spec, list), i, c)
    {
        json_t *resources = json_object_get(c, "resources");
        if (ask_text(resources, "limits", "aliyun.com/gpu-mem") ||
            ask_text(resources, "limits", "aliyun.com/gpu-count"))
            return true;
    }
    return false;
}

/* Does the pod request our resources, by limits or labels? */
static bool requests(json_t *pod)
{
    json_t *spec = json_object_get(pod, "spec"), *meta = json_object_get(pod, "metadata");
    return has_limits(spec, "containers") || has_limits(spec, "initContainers") ||
           ask_text(meta, "labels", "scv/number") ||
           ask_text(meta, "labels", "scv/memory") ||
           ask_text(meta, "labels", "scv/clock");
}

static bool is_of_daemon_set(json_t *pod)
{
    json_t *owners = json_object_get(json_object_get(pod, "metadata"), "ownerReferences");
    const char *kind =
        json_string_value(json_object_get(json_array_get(owners, 0), "kind"));
    return kind && !strcmp(kind, "DaemonSet");
}

static const char *node_of(json_t *pod)
{
    return json_string_value(json_object_get(json_object_get(pod, "spec"), "nodeName"));
}

/* `old` is NULL for a create. */
static bool is_denied(json_t *old, json_t *new)
{
    for (size_t i = 0; i < ARRAY_LEN(promise_keys); i++)
        if (differs(old, new, "annotations", promise_keys[i]))
            return true;
    if (!old)
        return node_of(new) && requests(new) && !is_of_daemon_set(new);
    for (size_t i = 0; node_of(old) && i < ARRAY_LEN(request_keys); i++)
        if (differs(old, new, "labels", request_keys[i]))
            return true;
    return node_of(old) && differs(old, new, "annotations", "aliyun.com/gpu-count");
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
        else if (json_is_object(value)) {
            if (!json_is_object(json_object_get(into, key)))
                json_object_set_new(into, key, json_object());
            merge(json_object_get(into, key), value);
        } else
            json_object_set(into, key, value);
    }
}

unsigned policy_create(struct world *w, const char *body)
{
    json_t *pod = json_loads(body, 0, NULL);
    bool denied = w->policy && is_denied(NULL, pod);
    json_decref(pod);
    w->stats.denied += denied;
    return denied ? 403
                  : api_call(w, "POST", body, "/api/v1/namespaces/default/pods");
}

unsigned policy_patch(struct world *w, const char *name, const char *body)
{
    json_t *old = w->policy ? api_get(w, POD_PATH "%s", name) : NULL;
    if (old) {
        json_t *new = json_deep_copy(old), *patch = json_loads(body, 0, NULL);
        merge(new, patch);
        bool denied = is_denied(old, new);
        json_decref(new);
        json_decref(patch);
        json_decref(old);
        w->stats.denied += denied;
        if (denied)
            return 403;
    }
    return api_call(w, "PATCH", body, POD_PATH "%s", name);
}
