/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "bench/bench.h"

#define UNITS "2" /* of aliyun.com/gpu-mem, the request of each pod */

/* `body`: NULL for a GET. */
static json_t *call(unsigned port, const char *path, const char *body)
{
    json_t *json;
    long status = ask(body ? "POST" : "GET", port, path, body, &json);
    const char *error = json_string_value(json_object_get(json, "Error"));
    if (!json || (error && *error))
        bench_die("%s: %ld, %s", path, status, json ? error : "no JSON");
    return json;
}

/* Builds a request. Takes `body`. */
static struct span post(const char *path, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    struct span request = load_request("POST", path, span_of(text));
    free(text);
    json_decref(body);
    return request;
}

/* A pending copy of a pod of the cluster, with its realistic size. */
static json_t *waiting_pod(const json_t *model, size_t i)
{
    char name[32], uid[40];
    snprintf(name, sizeof name, "waiting-%05zu", i);
    snprintf(uid, sizeof uid, "00000000-0000-4000-8000-%012zx", i);
    json_t *pod = json_deep_copy(model);
    json_t *meta = json_object_get(pod, "metadata"), *spec = json_object_get(pod, "spec");
    json_object_set_new(pod, "apiVersion", json_string("v1")); /* absent in list items */
    json_object_set_new(pod, "kind", json_string("Pod"));
    json_object_set_new(meta, "name", json_string(name));
    json_object_set_new(meta, "uid", json_string(uid));
    json_object_del(meta, "annotations");
    json_object_del(meta, "resourceVersion");
    json_object_del(spec, "nodeName");
    json_object_set_new(pod, "status", json_pack("{s:s}", "phase", "Pending"));
    json_t *containers = json_object_get(spec, "containers");
    json_t *resources = json_pack("{s:{s:s}}", "limits", "aliyun.com/gpu-mem", UNITS);
    json_object_set_new(json_array_get(containers, 0), "resources", resources);
    return pod;
}

static size_t chunk_of(size_t n, size_t workers)
{
    size_t chunk = 1;
    while ((chunk + 1) * (chunk + 1) <= n)
        chunk++;
    return chunk < n / workers + 1 ? chunk : n / workers + 1;
}

/* Each turn a worker is done with one node, or is interrupted. */
static void order_schedule(struct rng *rng, size_t *order, size_t n)
{
    enum { WORKERS = 16, INTERRUPTED = 8 };
    size_t at[WORKERS] = {0}, end[WORKERS] = {0};
    size_t chunk = chunk_of(n, WORKERS), start = rng_below(rng, n), taken = 0;
    for (size_t done = 0, turn = 0; done < n; turn++) {
        size_t w = turn % WORKERS;
        if (rng_below(rng, INTERRUPTED) == 0)
            continue;
        if (at[w] == end[w]) {
            at[w] = taken;
            end[w] = taken = taken + chunk < n ? taken + chunk : n;
        }
        if (at[w] < end[w])
            order[done++] = (start + at[w]++) % n;
    }
}

static void make_names(struct bodies *b, enum bodies_order kind, const json_t *pod,
                       unsigned port)
{
    struct rng rng;
    rng_init(&rng, 1);
    cleanup_free size_t *order = xcalloc(b->n_nodes, sizeof *order);
    for (size_t i = 0; i < BODIES_ORDERS; i++) {
        json_t *names = json_array();
        for (size_t k = 0; k < b->n_nodes; k++)
            order[k] = k;
        if (kind == BODIES_SCHEDULER)
            order_schedule(&rng, order, b->n_nodes);
        for (size_t k = b->n_nodes; kind == BODIES_SHUFFLED && k > 1; k--) {
            size_t other = rng_below(&rng, k), last = order[k - 1];
            order[k - 1] = order[other];
            order[other] = last;
        }
        for (size_t k = 0; k < b->n_nodes; k++)
            json_array_append_new(names, json_sprintf("node-%05zu", order[k]));
        json_t *body =
            json_pack("{s:O,s:n,s:o}", "Pod", pod, "Nodes", "NodeNames", names);
        b->filter[kind][i] = post("/gpushare-scheduler/filter", json_incref(body));
        if (kind != BODIES_SCHEDULER) {
            json_decref(body);
            continue;
        }
        cleanup_free char *text = json_dumps(body, JSON_COMPACT);
        json_t *reply = call(port, "/filter", text);
        json_object_set(body, "NodeNames", json_object_get(reply, "NodeNames"));
        b->prioritize[i] = post("/gpushare-scheduler/prioritize", body);
        json_decref(reply);
    }
}

static void make_full(struct bodies *b, const json_t *pod, unsigned sim_port)
{
    char path[64];
    snprintf(path, sizeof path, "/api/v1/nodes?limit=%d", BODIES_FULL);
    for (size_t i = 0; i < ARRAY_LEN(b->full); i++) {
        json_t *list = call(sim_port, path, NULL);
        json_t *items = json_object_get(list, "items");
        b->full[i] = post("/gpushare-scheduler/filter",
                          json_pack("{s:O,s:{s:{},s:O},s:n}", "Pod", pod, "Nodes",
                                    "metadata", "items", items, "NodeNames"));
        json_decref(list);
    }
}

static json_t *binding_of(const char *name, const char *uid, const char *node)
{
    json_t *annotations = json_pack(
        "{s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "ALIYUN_COM_GPU_MEM_ASSIGNED", "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1700000000000000000", "ALIYUN_COM_GPU_MEM_DEV",
        "80", "ALIYUN_COM_GPU_MEM_IDX", "0", "ALIYUN_COM_GPU_MEM_POD", UNITS,
        "gpushare/card-uuid", "GPU-00000000-0000-4000-8000-000000000000",
        "scheduler.framework.gpushare.allocation", "{\"0\":{\"0\":" UNITS "}}");
    return json_pack("{s:s,s:s,s:{s:s,s:s,s:s,s:o},s:{s:s,s:s,s:s}}", "apiVersion", "v1",
                     "kind", "Binding", "metadata", "name", name, "namespace", "default",
                     "uid", uid, "annotations", annotations, "target", "apiVersion", "v1",
                     "kind", "Node", "name", node);
}

/* Creates the pods with one call. */
static void make_binds(struct bodies *b, const json_t *model, unsigned sim_port,
                       const json_t *nodes)
{
    json_t *items = json_array();
    b->bind = xcalloc(b->n_pods, sizeof *b->bind);
    b->binding = xcalloc(b->n_pods, sizeof *b->binding);
    for (size_t i = 0; i < 2 * b->n_pods; i++) {
        json_t *pod = waiting_pod(model, i), *meta = json_object_get(pod, "metadata");
        const char *name = json_string_value(json_object_get(meta, "name"));
        const char *uid = json_string_value(json_object_get(meta, "uid"));
        /* The two kinds use different nodes, so that they do not interfere. */
        const char *node =
            json_string_value(json_array_get(nodes, i % json_array_size(nodes)));
        json_object_set_new(meta, "namespace", json_string("default"));
        json_array_append_new(items, pod);
        if (i % 2) {
            char path[128];
            snprintf(path, sizeof path, "/api/v1/namespaces/default/pods/%s/binding",
                     name);
            b->binding[i / 2] = post(path, binding_of(name, uid, node));
        } else {
            b->bind[i / 2] =
                post("/gpushare-scheduler/bind",
                     json_pack("{s:s,s:s,s:s,s:s}", "PodName", name, "PodNamespace",
                               "default", "PodUID", uid, "Node", node));
        }
    }
    char *text = json_dumps(items, JSON_COMPACT);
    json_decref(items);
    json_decref(call(sim_port, "/kube-sim/load", text));
    free(text);
}

void bodies_make(struct bodies *b, const struct testbed *w, size_t n_nodes, size_t n_pods)
{
    unsigned sim_port = w->sim.port;
    *b = (struct bodies){.n_nodes = n_nodes, .n_pods = n_pods};
    json_t *list = call(sim_port, "/api/v1/pods?limit=1", NULL);
    json_t *model = json_array_get(json_object_get(list, "items"), 0);
    if (!model)
        bench_die("the cluster has no pods");
    json_t *pod = waiting_pod(model, 99999);
    make_names(b, BODIES_SCHEDULER, pod, w->extender.port);
    make_names(b, BODIES_SHUFFLED, pod, w->extender.port);
    make_full(b, pod, sim_port);

    json_t *passed = json_loads(strstr(b->prioritize[0].p, "\r\n\r\n") + 4, 0, NULL);
    json_t *nodes = json_object_get(passed, "NodeNames");
    if (json_array_size(nodes) < 2)
        bench_die("no two nodes have room");
    make_binds(b, model, sim_port, nodes);
    json_decref(passed);
    json_decref(pod);
    json_decref(list);
}

void bodies_fini(struct bodies *b)
{
    for (size_t i = 0; i < BODIES_ORDERS; i++) {
        for (size_t kind = 0; kind < BODIES_KINDS; kind++)
            free((char *)b->filter[kind][i].p);
        free((char *)b->prioritize[i].p);
    }
    for (size_t i = 0; i < ARRAY_LEN(b->full); i++)
        free((char *)b->full[i].p);
    for (size_t i = 0; i < b->n_pods; i++) {
        free((char *)b->bind[i].p);
        free((char *)b->binding[i].p);
    }
    free(b->bind);
    free(b->binding);
    *b = (struct bodies){0};
}

char *bodies_filter(size_t n_nodes)
{
    struct buf body = {0};
    buf_adds(&body,
             "{\"Pod\":{\"metadata\":{\"name\":\"f\",\"namespace\":\"default\","
             "\"uid\":\"f\"},\"spec\":{\"containers\":[{\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"2\"}}}]}},\"NodeNames\":[");
    for (size_t i = 0; i < n_nodes; i++)
        buf_printf(&body, "%s\"node-%05zu\"", i ? "," : "", i);
    buf_adds(&body, "]}");
    return buf_take(&body);
}
