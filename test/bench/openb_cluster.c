/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/openb_cluster.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench/kube_node.h"
#include "lib/cluster.h"

enum { CARD_MIB = TRACE_CARD * 1024 };
enum { CREATORS = 4, PODS_OF_A_NODE = 1001, SETTLE_MS = 120 * 1000 };
/* Nodes without cards; together they have room for every pod without cards. */
enum { PLAIN_CPU = 96, PLAIN_MIB = 512 << 10 };

#define TAINT  "gpushare"
#define TAINTS "[{\"key\":\"" TAINT "\",\"effect\":\"NoSchedule\"}]"
#define NODES  "/api/v1/nodes"
#define PODS   CLUSTER_PODS

static struct bed {
    const struct trace *trace;
    size_t plain, pods; /* nodes without cards; pods of openb_cluster_delete_all */
    bool tainted;
    char *scheduler; /* its shipped configuration */
} bed;

/* -- nodes -- */

static void create_nodes(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < bed.trace->n_nodes; i += CREATORS) {
        const struct trace_node *n = &bed.trace->nodes[i];
        kube_node_create(&(struct kube_node){.name = n->name,
                                             .model = n->model,
                                             .cpu_milli = n->cpu_milli,
                                             .memory_mib = n->memory_mib,
                                             .pods = PODS_OF_A_NODE,
                                             .cards = n->cards,
                                             .card_units = TRACE_CARD,
                                             .card_mib = CARD_MIB});
    }
}

static void taint_nodes(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < bed.trace->n_nodes; i += CREATORS) {
        const struct trace_node *n = &bed.trace->nodes[i];
        if (n->cards)
            kube_node_taint(n->name, bed.tainted ? TAINTS : "null");
    }
}

static void plain_nodes(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < bed.plain; i += CREATORS) {
        cleanup_free char *name = xasprintf("plain-%04zu", i);
        cleanup_free char *path = xasprintf(NODES "/%s", name);
        if (bed.tainted)
            kube_node_create(&(struct kube_node){.name = span_of(name),
                                                 .cpu_milli = PLAIN_CPU * 1000,
                                                 .memory_mib = PLAIN_MIB,
                                                 .pods = PODS_OF_A_NODE});
        else
            json_decref(peer_json(&cluster.api, "DELETE", path, NULL));
    }
}

/* As many nodes without cards as have all their CPU in use after twice the trace's pods
 * without cards. */
static size_t count_plain(const struct trace *trace)
{
    int64_t cpu = 0;
    for (size_t i = 0; i < trace->n_pods; i++)
        cpu += trace->pods[i].cards ? 0 : trace->pods[i].cpu_milli;
    return (size_t)(2 * cpu / (PLAIN_CPU * 1000)) + (cpu > 0);
}

void openb_cluster_create(const struct trace *trace)
{
    bed.trace = trace;
    bed.plain = count_plain(trace);
    bed.scheduler = temp_read(cluster.dir, "scheduler.yaml");
    kube_node_stop_programs();
    lib_threads(CREATORS, create_nodes, NULL);
}

static void taint(bool tainted)
{
    if (bed.tainted == tainted)
        return;
    bed.tainted = tainted;
    lib_threads(CREATORS, taint_nodes, NULL);
    lib_threads(CREATORS, plain_nodes, NULL);
}

/* -- setups -- */

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* The shipped configuration with the values of this setup, without the limit of 50 calls
 * per second. A pod that fits nowhere stays pending, and kube-scheduler repeats each that the
 * extender rejected after other binds: by default after 1 to 10 s, here after 30 to 600. */
static void configure(const struct openb_setup *s)
{
    cleanup_buf struct buf out = {0};
    cleanup_free char *text = xstrdup(bed.scheduler);
    char *rest = text, *line;
    bool in_resources = false;
    while ((line = strsep(&rest, "\n"))) {
        if (begins(line, "extenders:") && !s->extender)
            break;
        in_resources = begins(line, "  managedResources:") ||
                       (in_resources && (begins(line, "  - ") || begins(line, "    ") ||
                                         begins(line, "  #")));
        if ((in_resources && s->all_pods) || begins(line, "percentageOfNodesToScore:"))
            continue;
        if (begins(line, "  weight:"))
            buf_printf(&out, "  weight: %d\n", s->weight);
        else
            buf_printf(&out, "%s\n", line);
        if (begins(line, "clientConnection:"))
            buf_adds(&out, "  qps: 10000\n  burst: 20000\n");
        if (begins(line, "kind: "))
            buf_adds(&out, "podInitialBackoffSeconds: 30\npodMaxBackoffSeconds: 600\n");
        if (begins(line, "kind: ") && s->percentage)
            buf_printf(&out, "percentageOfNodesToScore: %d\n", s->percentage);
    }
    temp_write(cluster.dir, "scheduler.yaml", out.p);
}

void openb_cluster_start(const struct openb_setup *s)
{
    const char *options[OPENB_OPTIONS + 2] = {0};
    size_t n = 0;
    for (; s->options[n]; n++)
        options[n] = s->options[n];
    if (s->all_pods)
        options[n++] = "--bind-any";
    taint(s->tainted);
    if (s->extender) {
        cluster_start_with("gpushare-extender", options);
        extender_wait_answers(&cluster.extender);
    }
    configure(s);
    cluster_start("kube-scheduler");
}

void openb_cluster_stop(const struct openb_setup *s)
{
    cluster_stop("kube-scheduler", "KILL");
    if (!s->extender)
        return;
    oracle_check(&cluster.api);
    cluster_stop("gpushare-extender", "TERM");
}

/* -- pods -- */

static void add_request(struct buf *out, bool extender, const struct trace_pod *pod)
{
    if (pod->cards == 0)
        return;
    if (!extender || pod->gpu_milli < TRACE_CARD)
        buf_printf(out, ",\"limits\":{\"aliyun.com/gpu-mem\":\"%" PRId64 "\"}",
                   pod->gpu_milli * pod->cards);
    else
        buf_printf(out, ",\"limits\":{\"aliyun.com/gpu-count\":\"%u\"}", pod->cards);
}

static void add_models(struct buf *out, const struct trace_pod *pod)
{
    if (pod->models.n == 0)
        return;
    buf_adds(out, ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"");
    for (size_t i = 0; i < pod->models.n; i++)
        buf_addc(out, pod->models.p[i] == '|' ? ',' : pod->models.p[i]);
    buf_adds(out, "\"}");
}

void openb_cluster_pod(const struct openb_setup *s, size_t i, const struct trace_pod *pod)
{
    cleanup_buf struct buf out = {0};
    buf_printf(
        &out, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p%05zu\"",
        i);
    add_models(&out, pod);
    buf_adds(&out, "},\"spec\":{");
    if (pod->cards)
        buf_adds(&out, "\"tolerations\":[{\"key\":\"" TAINT "\"}],");
    buf_printf(&out,
               "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{"
               "\"requests\":{\"cpu\":\"%" PRId64 "m\",\"memory\":\"%" PRId64 "Mi\"}",
               pod->cpu_milli, pod->memory_mib);
    add_request(&out, s->extender, pod);
    buf_adds(&out, "}}]}}");
    kube_node_post(PODS, out.p);
}

void openb_cluster_delete(size_t i)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *path = xasprintf(PODS "/p%05zu?gracePeriodSeconds=0", i);
    unsigned status = peer_call(&cluster.api, "DELETE", path, NULL, &reply);
    ck_assert_msg(status == 200 || status == 404, "%s: %u %s", path, status, reply.p);
}

static void delete_pods(void *ctx, size_t creator)
{
    (void)ctx;
    for (size_t i = creator; i < bed.pods; i += CREATORS)
        openb_cluster_delete(i);
}

void openb_cluster_delete_all(size_t n)
{
    bed.pods = n;
    lib_threads(CREATORS, delete_pods, NULL);
    cluster_delete_pods();
}

/* Why kube-scheduler has not bound the pod: "Unschedulable", "SchedulerError" or "". */
static const char *reason_of(const json_t *pod)
{
    size_t i;
    json_t *c;
    json_array_foreach(lib_at(pod, "status.conditions"), i, c)
    {
        if (strcmp(lib_str(c, "type"), "PodScheduled") == 0)
            return lib_str(c, "reason");
    }
    return "";
}

static bool all_settled(void)
{
    cleanup_json json_t *pending = cluster_items(PODS "?fieldSelector=spec.nodeName%3D");
    size_t i, settled = 0;
    json_t *pod;
    json_array_foreach(pending, i, pod)
    {
        settled += strcmp(reason_of(pod), "Unschedulable") == 0;
    }
    return settled == json_array_size(pending);
}

void openb_cluster_settle(void)
{
    int64_t end = lib_now_ms() + SETTLE_MS;
    while (!all_settled()) {
        ck_assert_msg(lib_now_ms() < end,
                      "kube-scheduler has not decided about all pods");
        usleep(500 * 1000);
    }
}

char **openb_cluster_nodes(size_t n)
{
    char **nodes = xcalloc(n, sizeof *nodes);
    cleanup_json json_t *pods = cluster_items(PODS);
    size_t i;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        size_t at = strtoul(lib_str(pod, "metadata.name") + 1, NULL, 10);
        ck_assert_uint_lt(at, n);
        if (*lib_str(pod, "spec.nodeName"))
            nodes[at] = xstrdup(lib_str(pod, "spec.nodeName"));
    }
    return nodes;
}
