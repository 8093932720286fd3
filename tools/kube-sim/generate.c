/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

/* Makes nodes, Scvs, Leases and pods of any number for tests and benchmarks. */

const struct generate generate_defaults = {
    .nodes = 10,
    .cards = 8,
    .pods = 4,
    .mib = 81920,
    .unit = 1024,
    .full = 30,
    .node_bytes = 10240,
    .pod_bytes = 3400,
    .seed = 1,
    .scvs = true,
};

#define MODEL       "NVIDIA A100-SXM4-80GB"
#define MODEL_LABEL "NVIDIA-A100-SXM4-80GB"

/* -- padding -- */

/* An array of managedFields that pads `object` to about `wanted` bytes. New; NULL: the
 * object is large enough. */
static json_t *sim_gen_padding(int64_t wanted, const json_t *object, const char *now)
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
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "gpushare", "true",
                     "kubernetes.io/arch", "amd64", "kubernetes.io/hostname", n->name,
                     "kubernetes.io/os", "linux", "nvidia.com/gpu.product", MODEL_LABEL,
                     "topology.kubernetes.io/zone", zone);
}

static json_t *node_conditions(const char *now)
{
    static const char *const conditions[][3] = {
        {"MemoryPressure", "False", "KubeletHasSufficientMemory"},
        {"DiskPressure", "False", "KubeletHasNoDiskPressure"},
        {"PIDPressure", "False", "KubeletHasSufficientPID"},
        {"Ready", "True", "KubeletReady"}};
    json_t *all = json_array();
    for (size_t i = 0; i < ARRAY_LEN(conditions); i++)
        json_array_append_new(
            all,
            json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "type", conditions[i][0], "status",
                      conditions[i][1], "lastHeartbeatTime", now, "lastTransitionTime",
                      now, "reason", conditions[i][2], "message", conditions[i][2]));
    return all;
}

static json_t *sim_gen_node_object(const struct gen_node *n)
{
    json_t *status = json_pack(
        "{s:o,s:o,s:o,s:[{s:s,s:s}]}", "capacity", node_resources(n->g, "1056299Mi"),
        "allocatable", node_resources(n->g, "1050000Mi"), "conditions",
        node_conditions(n->now), "addresses", "type", "Hostname", "address", n->name);
    return json_pack("{s:s,s:s,s:{s:s,s:s,s:o,s:{s:s}},s:{s:s},s:o}", "kind", "Node",
                     "apiVersion", "v1", "metadata", "name", n->name, "uid", n->uid,
                     "labels", node_labels(n), "annotations",
                     "node.alpha.kubernetes.io/ttl", "0", "spec", "providerID", n->name,
                     "status", status);
}

/* -- cards -- */

/* Like 8 x V100. */
static void add_links(json_t *card, int64_t i, int64_t n)
{
    cleanup_buf struct buf row = {0};
    for (int64_t k = 0; k < n; k++) {
        const char *in_quad = (i ^ k) == 3 ? "NV2" : "NV1";
        const char *across = (i ^ k) == 4 ? "NV2" : "SYS";
        buf_printf(&row, "%s%s", k ? " " : "",
                   i == k           ? "X"
                   : i / 4 == k / 4 ? in_quad
                                    : across);
    }
    sim_jsonx_set_str(card, "links", row.p);
}

static json_t *sim_gen_scv_object(const struct gen_node *n)
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
        if (g->links)
            add_links(card, i, g->cards);
        json_array_append_new(cards, card);
    }
    json_int_t sum = (json_int_t)(g->cards * g->mib);
    return json_pack("{s:s,s:s,s:{s:s},s:{s:i},s:{s:o,s:I,s:I,s:I,s:s}}", "kind", "Scv",
                     "apiVersion", "core.run-linux.com/v1", "metadata", "name", n->name,
                     "spec", "updateInterval", 1000, "status", "cardList", cards,
                     "cardNumber", (json_int_t)g->cards, "totalMemorySum", sum,
                     "freeMemorySum", sum, "updateTime", n->now);
}

static json_t *sim_gen_lease_object(const struct gen_node *n)
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
    buf_adds(&allocation, "{\"0\":{");
    for (int64_t i = p->card; i < p->card + p->cards; i++) {
        const char *sep = i > p->card ? "," : "";
        buf_printf(&cards, "%s%lld", sep, (long long)i);
        buf_printf(&uuids, "%s%s", sep, n->uuids[i]);
        buf_printf(&allocation, "%s\"%lld\":%lld", sep, (long long)i,
                   (long long)p->units);
    }
    buf_adds(&allocation, "}}");
    sim_jsonx_set_str(a, "ALIYUN_COM_GPU_MEM_IDX", cards.p);
    set_number(a, "ALIYUN_COM_GPU_MEM_DEV", n->g->mib / n->g->unit);
    set_number(a, "ALIYUN_COM_GPU_MEM_POD", p->units * p->cards);
    sim_jsonx_set_str(a, "ALIYUN_COM_GPU_MEM_ASSIGNED", "true");
    set_number(a, "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
               n->now_ns + n->index * 1000 + p->index);
    sim_jsonx_set_str(a, "scheduler.framework.gpushare.allocation", allocation.p);
    if (n->g->uuid)
        sim_jsonx_set_str(a, "gpushare/card-uuid", uuids.p);
    return a;
}

static json_t *pod_spec(const struct gen_node *n, const struct gen_pod *p)
{
    char units[24];
    snprintf(units, sizeof units, "%lld", (long long)(p->units * p->cards));
    json_t *amounts = json_pack("{s:s,s:s,s:s}", "aliyun.com/gpu-mem", units, "cpu", "4",
                                "memory", "16Gi");
    json_t *container =
        json_pack("{s:s,s:s,s:[s,s],s:[{s:s,s:s}],s:{s:O,s:o}}", "name", "main", "image",
                  "registry.example.com/team/model-server:v2.3.1", "args", "--port",
                  "8080", "env", "name", "MODE", "value", "serve", "resources", "limits",
                  amounts, "requests", amounts);
    return json_pack("{s:[o],s:s,s:s,s:[{s:s,s:s,s:s,s:i}]}", "containers", container,
                     "nodeName", n->name, "serviceAccountName", "default", "tolerations",
                     "key", "node.kubernetes.io/not-ready", "operator", "Exists",
                     "effect", "NoExecute", "tolerationSeconds", 300);
}

static json_t *sim_gen_pod_object(const struct gen_node *n, const struct gen_pod *p)
{
    char name[64], count[24];
    snprintf(name, sizeof name, "gpu-%05lld-%03lld", (long long)n->index,
             (long long)p->index);
    snprintf(count, sizeof count, "%lld", (long long)p->cards);
    json_t *labels = json_pack("{s:s,s:s}", "app", "model-server", "tier", "inference");
    if (p->cards > 1)
        sim_jsonx_set_str(labels, "aliyun.com/gpu-count", count);
    json_t *pod =
        json_pack("{s:s,s:s,s:{s:s,s:s,s:o,s:o},s:o}", "kind", "Pod", "apiVersion", "v1",
                  "metadata", "name", name, "namespace", "default", "labels", labels,
                  "annotations", pod_annotations(n, p), "spec", pod_spec(n, p));
    sim_pod_run(pod, n->now_ns / 1000000);
    return pod;
}

/* -- parameters -- */

#define AT(f) offsetof(struct generate, f)
static const struct parameter {
    const char *name;
    size_t offset;
    int64_t min, max; /* max 1: bool */
} parameters[] = {
    {"nodes", AT(nodes), 0, 100000},
    {"cards", AT(cards), 0, 64},
    {"pods", AT(pods), 0, 1000},
    {"mib", AT(mib), 1, 16 << 20},
    {"unit", AT(unit), 1, 1 << 20},
    {"full", AT(full), 0, 100},
    {"node-bytes", AT(node_bytes), 0, 1 << 20},
    {"pod-bytes", AT(pod_bytes), 0, 1 << 20},
    {"seed", AT(seed), 0, INT64_MAX},
    {"uuid", AT(uuid), 0, 1},
    {"links", AT(links), 0, 1},
    {"scvs", AT(scvs), 0, 1},
    {"leases", AT(leases), 0, 1},
};

static int set_parameter(struct generate *g, struct span key, struct span value,
                         struct err *err)
{
    int64_t v;
    for (size_t i = 0; i < ARRAY_LEN(parameters); i++) {
        const struct parameter *p = &parameters[i];
        if (!span_eq(key, span_of(p->name)))
            continue;
        if (!span_i64(value, &v) || v < p->min || v > p->max)
            return err_set(err, ERR_INVALID,
                           "%s: \"%.*s\" is not a number from %lld to %lld", p->name,
                           SPAN_ARG(value), (long long)p->min, (long long)p->max);
        void *field = (char *)g + p->offset;
        if (p->max == 1)
            *(bool *)field = v;
        else
            *(int64_t *)field = v;
        return 0;
    }
    return err_set(err, ERR_INVALID, "unknown parameter \"%.*s\"", SPAN_ARG(key));
}

int generate_parse(struct span text, struct generate *g, struct err *err)
{
    while (text.n) {
        struct span value = span_cut(&text, ',');
        struct span key = span_cut(&value, '=');
        if (set_parameter(g, span_trim(key), span_trim(value), err))
            return -1;
    }
    return 0;
}

/* -- objects -- */

struct run {
    const struct generate *g;
    struct api *api;
    int64_t now_ms;
    const char *now;
    json_t *node_padding, *pod_padding; /* of the first object, shared by all */
};

/* Takes object. */
static int put(struct run *r, json_t *given, struct err *err)
{
    cleanup_json_value json_t *object = given;
    return sim_load_tree(r->api, r->now_ms, object, err);
}

static void pad(json_t *object, int64_t bytes, const char *now, json_t **padding)
{
    if (!*padding)
        *padding = sim_gen_padding(bytes, object, now);
    if (*padding)
        json_object_set(json_object_get(object, "metadata"), "managedFields", *padding);
}

static struct gen_node begin_node(struct run *r, int64_t index)
{
    struct gen_node n = {
        .g = r->g, .index = index, .now = r->now, .now_ns = r->now_ms * 1000000};
    snprintf(n.name, sizeof n.name, "node-%05lld", (long long)index);
    snprintf(n.uid, sizeof n.uid, "00000000-0000-4000-8000-%012lld", (long long)index);
    rng_init(&n.rng, (uint64_t)r->g->seed * 1000003 + (uint64_t)index);
    n.uuids = xcalloc((size_t)r->g->cards, sizeof *n.uuids);
    for (int64_t i = 0; i < r->g->cards; i++) {
        uint64_t a = rng_next(&n.rng), b = rng_next(&n.rng);
        snprintf(n.uuids[i], sizeof *n.uuids, "GPU-%08x-%04x-4%03x-%04x-%012llx",
                 (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff),
                 (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                 (unsigned long long)(b & 0xffffffffffff));
    }
    return n;
}

/* Spreads the full nodes evenly. */
static bool is_full(const struct generate *g, int64_t index)
{
    return (index + 1) * g->full / 100 != index * g->full / 100;
}

/* Several pods share a card; the first `more` cards have one pod more. */
static struct gen_pod shared_pod(struct gen_node *n, int64_t index, bool full)
{
    const struct generate *g = n->g;
    int64_t on_card = g->pods / g->cards, more = g->pods % g->cards;
    int64_t card = index % g->cards, n_here = on_card + (card < more);
    int64_t total = g->mib / g->unit, share = total / n_here;
    bool last = index + g->cards >= g->pods;
    int64_t units =
        full ? (last ? total - share * (n_here - 1) : share)
             : (share > 1 ? 1 + (int64_t)rng_below(&n->rng, (uint64_t)share - 1) : share);
    return (struct gen_pod){index, card, 1, units};
}

/* More cards than pods: on a full node a pod has several cards. */
static struct gen_pod wide_pod(struct gen_node *n, int64_t index, bool full)
{
    const struct generate *g = n->g;
    int64_t each = g->cards / g->pods, more = g->cards % g->pods;
    int64_t card = index * each + (index < more ? index : more);
    int64_t total = g->mib / g->unit;
    if (full)
        return (struct gen_pod){index, card, each + (index < more), total};
    return (struct gen_pod){
        index, card, 1,
        total > 1 ? 1 + (int64_t)rng_below(&n->rng, (uint64_t)total - 1) : total};
}

static int put_pods(struct run *r, struct gen_node *n, struct err *err)
{
    bool full = is_full(r->g, n->index);
    for (int64_t i = 0; i < r->g->pods && r->g->cards; i++) {
        struct gen_pod p =
            r->g->pods >= r->g->cards ? shared_pod(n, i, full) : wide_pod(n, i, full);
        if (!p.units)
            continue; /* more pods than units */
        json_t *object = sim_gen_pod_object(n, &p);
        pad(object, r->g->pod_bytes, r->now, &r->pod_padding);
        if (put(r, object, err))
            return -1;
    }
    return 0;
}

static int put_node(struct run *r, int64_t index, struct err *err)
{
    struct gen_node n = begin_node(r, index);
    json_t *object = sim_gen_node_object(&n);
    pad(object, r->g->node_bytes, r->now, &r->node_padding);
    int rc = put(r, object, err);
    if (!rc && r->g->scvs)
        rc = put(r, sim_gen_scv_object(&n), err);
    if (!rc && r->g->leases)
        rc = put(r, sim_gen_lease_object(&n), err);
    if (!rc)
        rc = put_pods(r, &n, err);
    free(n.uuids);
    return rc;
}

int generate_run(const struct generate *g, struct api *api, int64_t now_ms,
                 struct err *err)
{
    cleanup_buf struct buf now = {0};
    clock_format_s(&now, now_ms / 1000);
    struct run r = {.g = g, .api = api, .now_ms = now_ms, .now = now.p};
    int rc = 0;
    for (int64_t i = 0; !rc && i < g->nodes; i++)
        rc = put_node(&r, i, err);
    json_decref(r.node_padding);
    json_decref(r.pod_padding);
    return rc;
}
