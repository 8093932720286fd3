/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Pods without GPU, in a namespace of their own that the oracle does not read: they are
 * created on nodes, resized, end and are deleted. At rest, what each replica counts of CPU
 * and pod slots of a node is compared with the pods of the API server.
 */

enum { PLAIN_PODS = 16 };

bool plain_is(json_t *meta)
{
    const char *ns = json_string_value(json_object_get(meta, "namespace"));
    return ns && !strcmp(ns, "kube-system");
}

static void create(struct world *w, const char *name)
{
    char body[512];
    struct rng *rng = &w->plain_rng;
    snprintf(
        body, sizeof body,
        "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"nodeName\":\"n%d\","
        "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"requests\":{"
        "\"cpu\":\"%dm\"}}}],\"initContainers\":[{\"name\":\"s\",\"image\":\"i\","
        "%s\"resources\":{\"requests\":{\"cpu\":\"%dm\"}}}]}}",
        name, (int)rng_below(rng, NODES), (int)rng_below(rng, 8) * 125,
        rng_below(rng, 2) ? "\"restartPolicy\":\"Always\"," : "",
        (int)rng_below(rng, 8) * 100);
    unsigned status = api_call(w, "POST", body, "/api/v1/namespaces/kube-system/pods");
    if (status != 201 && status != 409)
        violated(w, "cannot create a pod without GPU: %u", status);
}

#define PLAIN_PATH "/api/v1/namespaces/kube-system/pods/"

void plain_act(struct world *w)
{
    char name[16], body[256];
    uint64_t dice = rng_below(&w->plain_rng, 8);
    snprintf(name, sizeof name, "w%d", (int)rng_below(&w->plain_rng, PLAIN_PODS));
    if (dice == 0) {
        api_call(w, "DELETE", "{\"gracePeriodSeconds\":0}", PLAIN_PATH "%s", name);
    } else if (dice == 1) {
        api_call(w, "PATCH", "{\"status\":{\"phase\":\"Succeeded\"}}",
                 PLAIN_PATH "%s/status", name);
    } else if (dice == 2) { /* a resize, as the kubelet reports it */
        snprintf(body, sizeof body,
                 "{\"status\":{\"containerStatuses\":[{\"name\":\"c\","
                 "\"allocatedResources\":{\"cpu\":\"%dm\"}}]}}",
                 (int)rng_below(&w->plain_rng, 8) * 250);
        api_call(w, "PATCH", body, PLAIN_PATH "%s/status", name);
    } else {
        create(w, name);
    }
}

static int64_t cpu_of(json_t *list)
{
    const char *text = json_string_value(json_object_get(list, "cpu"));
    return text ? strtoll(text, NULL, 10) : 0; /* always with the suffix m */
}

static int64_t requested(json_t *pod)
{
    json_t *spec = json_object_get(pod, "spec"), *c;
    json_t *status = json_array_get(
        json_object_get(json_object_get(pod, "status"), "containerStatuses"), 0);
    int64_t apps = 0, sidecars = 0, peak = 0;
    size_t i;
    json_array_foreach(json_object_get(spec, "containers"), i, c)
    {
        int64_t allocated = cpu_of(json_object_get(status, "allocatedResources"));
        int64_t cpu =
            cpu_of(json_object_get(json_object_get(c, "resources"), "requests"));
        apps += cpu > allocated ? cpu : allocated;
    }
    json_array_foreach(json_object_get(spec, "initContainers"), i, c)
    {
        int64_t cpu =
            cpu_of(json_object_get(json_object_get(c, "resources"), "requests"));
        sidecars += json_object_get(c, "restartPolicy") ? cpu : 0;
        peak = cpu > peak ? cpu : peak;
    }
    return apps + sidecars > peak ? apps + sidecars : peak;
}

void plain_settled(struct world *w)
{
    struct resources sums[NODES] = {0};
    json_t *list = api_get(w, "/api/v1/pods"), *pod;
    size_t i;
    json_array_foreach(json_object_get(list, "items"), i, pod)
    {
        json_t *spec = json_object_get(pod, "spec");
        int node = oracle_index(json_string_value(json_object_get(spec, "nodeName")));
        const char *phase = ask_text(pod, "status", "phase");
        if (node < 0 ||
            (phase && (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed"))))
            continue;
        sums[node].pods++;
        sums[node].cpu_milli +=
            plain_is(json_object_get(pod, "metadata")) ? requested(pod) : 0;
    }
    json_decref(list);
    for (int k = 0; k < w->n_replicas * NODES; k++) {
        const struct replica *r = w->replicas[k / NODES];
        char name[8];
        snprintf(name, sizeof name, "n%d", k % NODES);
        const struct ledger_node *node =
            ledger_node_find(core_ledger(replica_core(r)), span_of(name));
        struct resources has = {0}, *want = &sums[k % NODES];
        if (node)
            has = ledger_node_requested(node);
        if (!resources_equal(&has, want))
            violated(w,
                     "r%d counts %lld m of CPU and %lld pods on %s; they are %lld, %lld",
                     replica_id(r), (long long)has.cpu_milli, (long long)has.pods, name,
                     (long long)want->cpu_milli, (long long)want->pods);
    }
}
