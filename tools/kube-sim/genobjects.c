/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube-sim/generate_priv.h"

#define MODEL       "NVIDIA A100-SXM4-80GB"
#define MODEL_LABEL "NVIDIA-A100-SXM4-80GB"

/* -- padding -- */

json_t *sim_gen_padding(int64_t wanted, const json_t *object, const char *now)
{
    cleanup_buf struct buf text = {0};
    sim_jsonx_dump(&text, object);
    /* The API server adds about 220 bytes: names, UID, version, times. */
    int64_t missing = wanted - (int64_t)text.n - 220;
    json_t *fields = json_object();
    json_t *padding = json_pack("[{s:s,s:s,s:s,s:s,s:s,s:{s:o}}]", "manager", "kubelet",
                                "operation", "Update", "apiVersion", "v1", "time", now,
                                "fieldsType", "FieldsV1", "fieldsV1", "f:status", fields);
    buf_clear(&text);
    sim_jsonx_dump(&text, padding);
    missing -= (int64_t)text.n;
    if (missing <= 0) {
        json_decref(padding);
        return NULL;
    }
    for (int i = 0; missing > 0; i++) {
        char key[32];
        int n = snprintf(key, sizeof key, "k:{\"type\":\"%06d\"}", i);
        json_object_set_new(fields, key, json_pack("{s:{},s:{}}", ".", "f:status"));
        missing -= n + 4 + (int)sizeof "\"\":{\".\":{},\"f:status\":{}},";
    }
    return padding;
}

/* -- nodes -- */

static json_t *condition(const char *type, const char *status, const char *reason,
                         const char *now)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "type", type, "status", status,
                     "lastHeartbeatTime", now, "lastTransitionTime", now, "reason",
                     reason, "message", reason);
}

static json_t *node_resources(const struct generate *g, const char *memory)
{
    char cards[24], core[24], units[24];
    snprintf(core, sizeof core, "%lld", (long long)(g->cards * 100));
    snprintf(cards, sizeof cards, "%lld", (long long)g->cards);
    snprintf(units, sizeof units, "%lld", (long long)(g->cards * (g->mib / g->unit)));
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}",
                     "aliyun.com/gpu-core.percentage", core, "aliyun.com/gpu-count",
                     cards, "aliyun.com/gpu-mem", units, "cpu", "128",
                     "ephemeral-storage", "1855363320Ki", "hugepages-1Gi", "0",
                     "hugepages-2Mi", "0", "memory", memory, "pods", "110");
}

static json_t *node_labels(const struct gen_node *n)
{
    char zone[16];
    snprintf(zone, sizeof zone, "zone-%c", (char)('a' + n->index % 3));
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "beta.kubernetes.io/arch",
                     "amd64", "beta.kubernetes.io/os", "linux", "gpushare", "true",
                     "kubernetes.io/arch", "amd64", "kubernetes.io/hostname", n->name,
                     "kubernetes.io/os", "linux", "node.kubernetes.io/instance-type",
                     "gpu.8xlarge", "nvidia.com/gpu.product", MODEL_LABEL,
                     "topology.kubernetes.io/zone", zone);
}

static json_t *node_conditions(const char *now)
{
    json_t *all = json_array();
    json_array_append_new(
        all, condition("MemoryPressure", "False", "KubeletHasSufficientMemory", now));
    json_array_append_new(
        all, condition("DiskPressure", "False", "KubeletHasNoDiskPressure", now));
    json_array_append_new(
        all, condition("PIDPressure", "False", "KubeletHasSufficientPID", now));
    json_array_append_new(all, condition("Ready", "True", "KubeletReady", now));
    return all;
}

static json_t *node_info(const struct gen_node *n)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "machineID", n->name,
                     "systemUUID", n->name, "bootID", n->name, "kernelVersion",
                     "6.1.0-28-amd64", "osImage", "Debian GNU/Linux 12 (bookworm)",
                     "containerRuntimeVersion", "containerd://1.7.22", "kubeletVersion",
                     "v1.35.4", "kubeProxyVersion", "", "operatingSystem", "linux",
                     "architecture", "amd64");
}

static json_t *node_images(void)
{
    json_t *all = json_array();
    for (int i = 0; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "registry.example.com/team/image-%02d:v1.%d.0", i, i);
        json_array_append_new(all, json_pack("{s:[s],s:I}", "names", name, "sizeBytes",
                                             (json_int_t)(500000000 - 10000000 * i)));
    }
    return all;
}

json_t *sim_gen_node_object(const struct gen_node *n)
{
    char ip[24], cidr[24];
    int hi = (int)(n->index / 250 % 250), lo = (int)(n->index % 250 + 1);
    snprintf(ip, sizeof ip, "10.0.%d.%d", hi, lo);
    snprintf(cidr, sizeof cidr, "10.%d.%d.0/24", 64 + hi % 64, lo);
    json_t *status = json_pack(
        "{s:o,s:o,s:o,s:[{s:s,s:s},{s:s,s:s}],s:{s:{s:i}},s:o,s:o}", "capacity",
        node_resources(n->g, "1056299Mi"), "allocatable",
        node_resources(n->g, "1050000Mi"), "conditions", node_conditions(n->now),
        "addresses", "type", "InternalIP", "address", ip, "type", "Hostname", "address",
        n->name, "daemonEndpoints", "kubeletEndpoint", "Port", 10250, "nodeInfo",
        node_info(n), "images", node_images());
    return json_pack(
        "{s:s,s:s,s:{s:s,s:s,s:o,s:{s:s,s:s}},s:{s:s,s:[s],s:s},s:o}", "kind", "Node",
        "apiVersion", "v1", "metadata", "name", n->name, "uid", n->uid, "labels",
        node_labels(n), "annotations", "node.alpha.kubernetes.io/ttl", "0",
        "volumes.kubernetes.io/controller-managed-attach-detach", "true", "spec",
        "podCIDR", cidr, "podCIDRs", cidr, "providerID", n->name, "status", status);
}

/* -- cards -- */

json_t *sim_gen_scv_object(const struct gen_node *n)
{
    const struct generate *g = n->g;
    json_t *cards = json_array();
    for (int64_t i = 0; i < g->cards; i++) {
        json_t *card =
            json_pack("{s:I,s:s,s:s,s:i,s:I,s:i,s:I,s:i,s:i}", "id", (json_int_t)i,
                      "health", "Healthy", "model", MODEL, "power", 400, "totalMemory",
                      (json_int_t)g->mib, "clock", 1593, "freeMemory", (json_int_t)g->mib,
                      "core", 1410, "bandwidth", 31504);
        if (g->uuid)
            sim_jsonx_set_str(card, "uuid", n->uuids[i]);
        json_array_append_new(cards, card);
    }
    json_int_t sum = (json_int_t)(g->cards * g->mib);
    return json_pack("{s:s,s:s,s:{s:s},s:{s:i},s:{s:o,s:I,s:I,s:I,s:s}}", "kind", "Scv",
                     "apiVersion", "core.run-linux.com/v1", "metadata", "name", n->name,
                     "spec", "updateInterval", 1000, "status", "cardList", cards,
                     "cardNumber", (json_int_t)g->cards, "totalMemorySum", sum,
                     "freeMemorySum", sum, "updateTime", n->now);
}

json_t *sim_gen_lease_object(const struct gen_node *n)
{
    cleanup_buf struct buf now = {0};
    clock_format_us(&now, n->now_ns / 1000);
    json_t *owner = json_pack("{s:s,s:s,s:s,s:s}", "apiVersion", "v1", "kind", "Node",
                              "name", n->name, "uid", n->uid);
    return json_pack("{s:s,s:s,s:{s:s,s:s,s:[o]},s:{s:s,s:i,s:s}}", "kind", "Lease",
                     "apiVersion", "coordination.k8s.io/v1", "metadata", "name", n->name,
                     "namespace", "nvidia-gpu-scheduler-node-lease", "ownerReferences",
                     owner, "spec", "holderIdentity", n->name, "leaseDurationSeconds", 40,
                     "renewTime", now.p);
}

/* -- pods -- */

/* Appends what `add` writes for each card, joined by commas. */
static void each_card(const struct gen_node *n, const struct gen_pod *p, struct buf *out,
                      void (*add)(const struct gen_node *, const struct gen_pod *,
                                  int64_t, struct buf *))
{
    for (int64_t i = 0; i < p->cards; i++) {
        if (i)
            buf_addc(out, ',');
        add(n, p, p->card + i, out);
    }
    buf_adds(out, "");
}

static void add_index(const struct gen_node *n, const struct gen_pod *p, int64_t card,
                      struct buf *out)
{
    (void)n;
    (void)p;
    buf_add_i64(out, card);
}

static void add_uuid(const struct gen_node *n, const struct gen_pod *p, int64_t card,
                     struct buf *out)
{
    (void)p;
    buf_adds(out, n->uuids[card]);
}

static void add_allocation(const struct gen_node *n, const struct gen_pod *p,
                           int64_t card, struct buf *out)
{
    (void)n;
    buf_printf(out, "\"%lld\":%lld", (long long)card, (long long)p->units);
}

static void set_number(json_t *object, const char *key, int64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)v);
    sim_jsonx_set_str(object, key, text);
}

static json_t *pod_annotations(const struct gen_node *n, const struct gen_pod *p)
{
    cleanup_buf struct buf cards = {0}, uuids = {0}, allocation = {0};
    json_t *a = json_object();
    each_card(n, p, &cards, add_index);
    sim_jsonx_set_str(a, "ALIYUN_COM_GPU_MEM_IDX", cards.p);
    set_number(a, "ALIYUN_COM_GPU_MEM_DEV", n->g->mib / n->g->unit);
    set_number(a, "ALIYUN_COM_GPU_MEM_POD", p->units * p->cards);
    sim_jsonx_set_str(a, "ALIYUN_COM_GPU_MEM_ASSIGNED", "true");
    set_number(a, "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
               n->now_ns + n->index * 1000 + p->index);
    buf_adds(&allocation, "{\"0\":{");
    each_card(n, p, &allocation, add_allocation);
    buf_adds(&allocation, "}}");
    sim_jsonx_set_str(a, "scheduler.framework.gpushare.allocation", allocation.p);
    if (n->g->uuid) {
        each_card(n, p, &uuids, add_uuid);
        sim_jsonx_set_str(a, "gpushare/card-uuid", uuids.p);
    }
    return a;
}

static json_t *pod_spec(const struct gen_node *n, const struct gen_pod *p)
{
    char units[24];
    snprintf(units, sizeof units, "%lld", (long long)(p->units * p->cards));
    json_t *resources =
        json_pack("{s:{s:s,s:s,s:s},s:{s:s,s:s,s:s}}", "limits", "aliyun.com/gpu-mem",
                  units, "cpu", "4", "memory", "16Gi", "requests", "aliyun.com/gpu-mem",
                  units, "cpu", "4", "memory", "16Gi");
    json_t *container =
        json_pack("{s:s,s:s,s:[s,s],s:[{s:s,s:s}],s:o,s:s,s:s,s:s}", "name", "main",
                  "image", "registry.example.com/team/model-server:v2.3.1", "args",
                  "--port", "8080", "env", "name", "MODE", "value", "serve", "resources",
                  resources, "imagePullPolicy", "IfNotPresent", "terminationMessagePath",
                  "/dev/termination-log", "terminationMessagePolicy", "File");
    return json_pack("{s:[o],s:s,s:s,s:b,s:s,s:[{s:s,s:s,s:s,s:i},{s:s,s:s,s:s,s:i}]}",
                     "containers", container, "nodeName", n->name, "serviceAccountName",
                     "default", "enableServiceLinks", 1, "preemptionPolicy",
                     "PreemptLowerPriority", "tolerations", "key",
                     "node.kubernetes.io/not-ready", "operator", "Exists", "effect",
                     "NoExecute", "tolerationSeconds", 300, "key",
                     "node.kubernetes.io/unreachable", "operator", "Exists", "effect",
                     "NoExecute", "tolerationSeconds", 300);
}

static json_t *pod_condition(const char *type, const char *now)
{
    return json_pack("{s:s,s:s,s:n,s:s}", "type", type, "status", "True", "lastProbeTime",
                     "lastTransitionTime", now);
}

static json_t *pod_status(const struct gen_node *n, const struct gen_pod *p)
{
    char ip[24];
    snprintf(ip, sizeof ip, "10.%d.%d.%d", (int)(64 + n->index / 250 % 64),
             (int)(n->index % 250 + 1), (int)(p->index % 250 + 2));
    return json_pack(
        "{s:s,s:[o,o,o,o],s:[{s:s,s:{s:{s:s}},s:b,s:i,s:s,s:s,s:b}],s:s,s:s,s:s}",
        "phase", "Running", "conditions", pod_condition("Initialized", n->now),
        pod_condition("Ready", n->now), pod_condition("ContainersReady", n->now),
        pod_condition("PodScheduled", n->now), "containerStatuses", "name", "main",
        "state", "running", "startedAt", n->now, "ready", 1, "restartCount", 0, "image",
        "registry.example.com/team/model-server:v2.3.1", "imageID", "sha256:0", "started",
        1, "podIP", ip, "qosClass", "Guaranteed", "startTime", n->now);
}

json_t *sim_gen_pod_object(const struct gen_node *n, const struct gen_pod *p)
{
    char name[64], count[24];
    snprintf(name, sizeof name, "gpu-%05lld-%03lld", (long long)n->index,
             (long long)p->index);
    snprintf(count, sizeof count, "%lld", (long long)p->cards);
    json_t *labels = json_pack("{s:s,s:s}", "app", "model-server", "tier", "inference");
    if (p->cards > 1)
        sim_jsonx_set_str(labels, "aliyun.com/gpu-count", count);
    return json_pack("{s:s,s:s,s:{s:s,s:s,s:o,s:o},s:o,s:o}", "kind", "Pod", "apiVersion",
                     "v1", "metadata", "name", name, "namespace", "default", "labels",
                     labels, "annotations", pod_annotations(n, p), "spec", pod_spec(n, p),
                     "status", pod_status(n, p));
}
