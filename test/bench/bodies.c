/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "base/rng.h"

#define UNITS   "2" /* of aliyun.com/gpu-mem, on each card of a pod */
#define WAITING "waiting-%05zu"
#define UID     "00000000-0000-4000-8000-%012zx"

/* A pending copy of a pod of the cluster, with its realistic size. New. */
static char *waiting_pod(const json_t *model, size_t i, int cards)
{
    cleanup_json json_t *pod = json_deep_copy(model);
    json_t *meta = lib_at(pod, "metadata"), *spec = lib_at(pod, "spec");
    json_object_update_new(pod, json_pack("{s:s,s:s,s:{s:s}}", "apiVersion", "v1", "kind",
                                          "Pod", "status", "phase", "Pending"));
    json_object_update_new(meta, json_pack("{s:o,s:o,s:s}", "name",
                                           json_sprintf(WAITING, i), "uid",
                                           json_sprintf(UID, i), "namespace", "default"));
    json_object_set_new(
        meta, "annotations",
        json_pack("{s:o}", "aliyun.com/gpu-count", json_sprintf("%d", cards)));
    json_object_del(meta, "resourceVersion");
    json_object_del(spec, "nodeName");
    json_object_set_new(lib_at(spec, "containers.0"), "resources",
                        json_pack("{s:{s:o}}", "limits", "aliyun.com/gpu-mem",
                                  json_sprintf("%d", atoi(UNITS) * cards)));
    return json_dumps(pod, JSON_COMPACT);
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

static struct span post(struct bodies *b, const char *path, char *body)
{
    struct span request = load_request(&b->arena, "POST", path, span_of(body));
    free(body);
    return request;
}

static void make_names(struct bodies *b, enum bodies_order kind, const char *pod,
                       const struct extender *e, size_t n_nodes)
{
    struct rng rng;
    rng_init(&rng, 1);
    cleanup_free size_t *order = xcalloc(n_nodes, sizeof *order);
    for (size_t i = 0; i < BODIES_ORDERS; i++) {
        cleanup_buf struct buf body = {0};
        for (size_t k = 0; k < n_nodes; k++)
            order[k] = k;
        if (kind == BODIES_SCHEDULER)
            order_schedule(&rng, order, n_nodes);
        for (size_t k = n_nodes; kind == BODIES_SHUFFLED && k > 1; k--) {
            size_t other = rng_below(&rng, k), last = order[k - 1];
            order[k - 1] = order[other];
            order[other] = last;
        }
        buf_printf(&body, "{\"Pod\":%s,\"Nodes\":null,\"NodeNames\":[", pod);
        for (size_t k = 0; k < n_nodes; k++)
            buf_printf(&body, "%s\"node-%05zu\"", k ? "," : "", order[k]);
        buf_adds(&body, "]}");
        b->filter[kind][i] = post(b, "/gpushare-scheduler/filter", xstrdup(body.p));
        if (kind != BODIES_SCHEDULER)
            continue;
        cleanup_json json_t *reply = peer_json(&e->verbs, "POST", "/filter", body.p);
        cleanup_free char *passed = json_dumps(lib_at(reply, "NodeNames"), JSON_COMPACT);
        b->prioritize[i] =
            post(b, "/gpushare-scheduler/prioritize",
                 xasprintf("{\"Pod\":%s,\"Nodes\":null,\"NodeNames\":%s}", pod, passed));
    }
}

/* Creates the pods with one call. */
static void make_binds(struct bodies *b, const json_t *model, const struct sim *sim,
                       const json_t *nodes, size_t n_pods, int cards)
{
    cleanup_buf struct buf pods = {0};
    b->bind = arena_alloc(&b->arena, n_pods * sizeof *b->bind);
    b->binding = arena_alloc(&b->arena, n_pods * sizeof *b->binding);
    for (size_t i = 0; i < 2 * n_pods; i++) {
        cleanup_free char *pod = waiting_pod(model, i, cards);
        cleanup_free char *path =
            xasprintf("/api/v1/namespaces/default/pods/" WAITING "/binding", i);
        /* The two kinds use different nodes, so that they do not interfere. */
        const char *node =
            json_string_value(json_array_get(nodes, i % json_array_size(nodes)));
        buf_printf(&pods, "%s%s", i ? "," : "[", pod);
        if (i % 2)
            b->binding[i / 2] = post(
                b, path,
                xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{"
                          "\"name\":\"" WAITING "\",\"namespace\":\"default\",\"uid\":"
                          "\"" UID "\",\"annotations\":{"
                          "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"false\","
                          "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1700000000000000000\","
                          "\"ALIYUN_COM_GPU_MEM_DEV\":\"80\","
                          "\"ALIYUN_COM_GPU_MEM_IDX\":\"0\","
                          "\"ALIYUN_COM_GPU_MEM_POD\":\"" UNITS "\","
                          "\"gpushare/card-uuid\":"
                          "\"GPU-00000000-0000-4000-8000-000000000000\","
                          "\"scheduler.framework.gpushare.allocation\":"
                          "\"{\\\"0\\\":{\\\"0\\\":" UNITS "}}\"}},\"target\":{"
                          "\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"%s\"}}",
                          i, i, node));
        else
            b->bind[i / 2] = post(b, "/gpushare-scheduler/bind",
                                  xasprintf("{\"PodName\":\"" WAITING
                                            "\",\"PodNamespace\":\"default\","
                                            "\"PodUID\":\"" UID "\",\"Node\":\"%s\"}",
                                            i, i, node));
    }
    sim_load(sim, "%s]", pods.p);
}

void bodies_make(struct bodies *b, const struct sim *sim, const struct extender *e,
                 size_t n_nodes, size_t n_pods, int cards)
{
    cleanup_buf struct buf nodes = {0};
    cleanup_free char *path = xasprintf("/api/v1/nodes?limit=%d", BODIES_FULL);
    cleanup_json json_t *list = peer_json(&sim->api, "GET", "/api/v1/pods?limit=1", NULL);
    json_t *model = lib_at(list, "items.0");
    cleanup_free char *pod = waiting_pod(model, 99999, cards);
    *b = (struct bodies){0};
    make_names(b, BODIES_SCHEDULER, pod, e, n_nodes);
    make_names(b, BODIES_SHUFFLED, pod, e, n_nodes);
    peer_call(&sim->api, "GET", path, NULL, &nodes);
    b->full =
        post(b, "/gpushare-scheduler/filter",
             xasprintf("{\"Pod\":%s,\"Nodes\":%s,\"NodeNames\":null}", pod, nodes.p));
    cleanup_json json_t *passed =
        json_loads(strstr(b->prioritize[0].p, "\r\n\r\n") + 4, 0, NULL);
    ck_assert_uint_ge(json_array_size(lib_at(passed, "NodeNames")), 2);
    make_binds(b, model, sim, lib_at(passed, "NodeNames"), n_pods, cards);
}

void bodies_filter(struct buf *out, const char *annotations, size_t n_nodes, size_t least)
{
    buf_adds(out, "{\"Pod\":");
    lib_pod(out, "f", 2, NULL, annotations);
    buf_adds(out, ",\"NodeNames\":[");
    for (size_t i = 0; i < n_nodes || out->n < least; i++)
        buf_printf(out, "%s\"node-%05zu\"", i ? "," : "", i % n_nodes);
    buf_adds(out, "]}");
}
