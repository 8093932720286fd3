/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "e2e-node/inside.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"
#include "lib/program.h"

/*
 * Manifests as users have them for HAMi, unchanged: the chart's admission and its kube-scheduler, the
 * extender, and a real kubelet give each container exactly its part of the cards, beside a node of
 * NVIDIA's device plugin, whose pods keep what they have. MPS, because its variables say the limits
 * of memory and of compute.
 */

#define FIRST_CARD "GPU-11111111-0a0a-4b4b-8c8c-000000000001"
#define LAST_CARD  "GPU-44444444-0a0a-4b4b-8c8c-000000000004"
#define OTHER      "nvidia-node" /* kwok plays it */
#define NODES      "/api/v1/nodes"

enum { SLOTS = 32, OTHER_CARDS = 2, PARTS = 2, MIB_PER_UNIT = 1024 };

static struct program scheduler;

/* -- the cluster -- */

/* The templates of the chart as `helm install` has them, without the pod of kube-scheduler, which is a
 * process here. */
static void apply_chart(void)
{
    temp_write(
        lib_dir, "chart.yaml",
        cluster_tool("helm", 0,
                     ARGV("template", "gpushare", CHART, "--no-hooks", "-n",
                          "kube-system", "--kube-version", cluster_release(), "--set",
                          "requestsOf=hami,scheduler.secondName=hami-scheduler,"
                          "extender.insecure=true,scheduler.replicas=1",
                          "-s", "templates/scheduler.yaml", "-s",
                          "templates/pod-defaults.yaml")));
    cluster_kubectl("apply", "-f", lib_path("chart.yaml"));
    cluster_kubectl("-n", "kube-system", "delete", "deployment", "gpushare-scheduler");
    cluster_add_user("gpushare-scheduler",
                     "/CN=system:serviceaccount:kube-system:gpushare-scheduler");
    temp_write(lib_dir, "scheduler.yaml",
               lib_in(peer_get(&cluster.api, "/api/v1/namespaces/kube-system/configmaps/"
                                             "gpushare-scheduler"),
                      "data", "config.yaml"));
    cluster_scheduler(&scheduler, lib_path("scheduler.yaml"), "gpushare-scheduler");
}

static void add_other_node(void)
{
    const char *amounts = lib_fmt("{\"cpu\":\"64\",\"memory\":\"256Gi\",\"pods\":\"250\","
                                  "\"nvidia.com/gpu\":\"%d\"}",
                                  OTHER_CARDS);
    cluster_create(NODES,
                   "{\"metadata\":{\"name\":\"" OTHER "\",\"labels\":{"
                   "\"kubernetes.io/hostname\":\"" OTHER "\"},\"annotations\":{"
                   "\"kwok.x-k8s.io/node\":\"fake\"}},\"status\":{\"capacity\":%s,"
                   "\"allocatable\":%s}}",
                   amounts, amounts);
    lib_wait(cluster_node_is_ready(OTHER));
}

static bool policy_applies(void)
{
    const json_t *pod = peer_post(
        &cluster.api, CLUSTER_PODS "?dryRun=All",
        "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":[{\"name\":"
        "\"c\",\"image\":\"i\",\"resources\":{\"limits\":{\"nvidia.com/gpumem\":"
        "\"1\"}}}]}}");
    return strcmp(lib_str(pod, "spec.schedulerName"), "gpushare-scheduler") == 0;
}

static bool serves_hami(void)
{
    return atoi(lib_in(peer_get(&cluster.api, NODES "/" NODE), "status.allocatable",
                       KEY_NVIDIA_GPU)) == NODE_CARDS * SLOTS &&
           strcmp(
               lib_str(peer_get(&cluster.api, "/apis/core.run-linux.com/v1/scvs/" NODE),
                       "status.dialect"),
               "hami") == 0;
}

static bool begin(void)
{
    if (peer_status(&cluster.api, "/apis/admissionregistration.k8s.io/v1/"
                                  "mutatingadmissionpolicies") != 200) {
        printf("measured: nothing, because this API server has no policies that change "
               "pods\n");
        return false;
    }
    if (!node_decide("gpushare=true"))
        return false;
    const char *mps = lib_fmt("%s/mps", cell_dir());
    lib_output(0, ARGV("mkdir", "-p", lib_fmt("%s/pipe", mps), lib_fmt("%s/shm", mps)));
    node_daemons_are_one();
    node_up_with(ARGV("--requests-of", "hami", "--isolation", "mps", "--mps-dir", mps,
                      "--host-root", "/", "--driver-root", inside_make_driver(),
                      "--device-list-strategy", "envvar"));
    cluster_start_with("gpushare-extender", ARGV("--requests-of=hami"));
    extender_wait_answers(&cluster.extender);
    lib_wait(extender_leads(&cluster.extender));
    if (peer_status(&cluster.api, NODES "/" OTHER) == 404)
        add_other_node();
    apply_chart();
    lib_wait(serves_hami() && policy_applies());
    return true;
}

static void finish(void)
{
    ck_assert_lacks(program_output(&scheduler), "forbidden");
    look_finish();
    program_stop(&scheduler);
}

/* -- pods -- */

#define POD(name, notes)                                                                 \
    "apiVersion: v1\n"                                                                   \
    "kind: Pod\n"                                                                        \
    "metadata:\n"                                                                        \
    "  name: " name "\n"                                                                 \
    "  annotations: {" notes "}\n"                                                       \
    "spec:\n"                                                                            \
    "  containers:\n"
#define CONTAINER(name, limits)                                                          \
    "  - name: " name "\n"                                                               \
    "    image: " NODE_GUEST "\n"                                                        \
    "    resources: {limits: {" limits "}}\n"
#define SHAPE(pod, notes, containers) .name = pod, .manifest = POD(pod, notes) containers
#define GPU(n)                        "nvidia.com/gpu: " n
#define MEM(mib)                      "nvidia.com/gpumem: " mib
#define PERCENT(p)                    "nvidia.com/gpumem-percentage: " p
#define CORES(c)                      "nvidia.com/gpucores: " c

struct shape {
    const char *name;     /* of the pod, or of the Deployment */
    const char *manifest; /* NULL: manifests/samples/hami/SAMPLE.yaml */
    const char *sample;
    /* Of a container, on each of its cards: MiB or percent, and compute if it has that limit. */
    struct part {
        const char *container;
        int cards, mib, percent, compute;
    } parts[PARTS];
    int replicas; /* 0: a pod */
    int init;     /* MiB of init container "i", and so of the pod */
    bool whole;   /* no other pod gets the cards */
};

static const struct shape shapes[] = {
    {.name = "hami-gpumem", .sample = "gpumem", .parts = {{"main", 1, 3000, 0, 30}}},
    {.name = "hami-percentage",
     .sample = "gpumem-percentage",
     .parts = {{"main", 2, 0, 25, 0}}},
    {.name = "hami-deployment",
     .sample = "deployment",
     .parts = {{"main", 1, 2000, 0, 0}},
     .replicas = 2},
    {SHAPE("suffix", "", CONTAINER("c", GPU("1") ", " MEM("3k"))),
     .parts = {{"c", 1, 3000, 0, 0}}},
    {SHAPE("percent", "", CONTAINER("c", GPU("1") ", " PERCENT("10"))),
     .parts = {{"c", 1, 0, 10, 0}}},
    {SHAPE("cards", "", CONTAINER("c", GPU("2") ", " MEM("1000") ", " CORES("10"))),
     .parts = {{"c", 2, 1000, 0, 10}}},
    {SHAPE("other-type", "nvidia.com/nouse-gputype: \"A100,v100\"",
           CONTAINER("c", GPU("1") ", " MEM("500"))),
     .parts = {{"c", 1, 500, 0, 0}}},
    {SHAPE("uuid", "nvidia.com/use-gpuuuid: " LAST_CARD,
           CONTAINER("c", GPU("1") ", " MEM("20000"))),
     .parts = {{"c", 1, 20000, 0, 0}}},
    {SHAPE("containers", "",
           CONTAINER("a", GPU("1") ", " MEM("1000"))
               CONTAINER("b", GPU("1") ", " MEM("1500"))),
     .parts = {{"a", 1, 1000, 0, 0}, {"b", 1, 1500, 0, 0}}},
    {SHAPE("init", "",
           CONTAINER("c", GPU("1") ", " MEM("500")) "  initContainers:\n" CONTAINER(
               "i", GPU("1") ", " MEM("700")) "    args: [once]\n"),
     .parts = {{"c", 1, 500, 0, 0}}, .init = 700},
    {SHAPE("memory-alone", "", CONTAINER("c", MEM("1100"))),
     .parts = {{"c", 1, 1100, 0, 0}}},
    /* The second annotation and the priority are for HAMi's own library. */
    {SHAPE("library",
           "hami.io/gpu-scheduler-policy: spread, nvidia.com/vgpu-mode: hami-core",
           CONTAINER("c", GPU("1") ", " MEM("400") ", nvidia.com/priority: 1")),
     .parts = {{"c", 1, 400, 0, 0}}},
    {SHAPE("percent-alone", "", CONTAINER("c", PERCENT("5"))),
     .parts = {{"c", 1, 0, 5, 0}}},
};

/* Those that take all memory of cards. */
enum { TWO, COMPUTE, ONE };
static const struct shape large[] = {
    [TWO] = {SHAPE("two", "nvidia.com/nouse-gpuuuid: \"" FIRST_CARD "," LAST_CARD "\"",
                   CONTAINER("c", GPU("2"))),
             .parts = {{"c", 2, 0, 100, 0}}, .whole = true},
    [COMPUTE] = {SHAPE("compute", "nvidia.com/use-gpuuuid: " LAST_CARD,
                       CONTAINER("c", CORES("20"))),
                 .parts = {{"c", 1, 0, 100, 20}}},
    [ONE] = {.name = "hami-gpu",
             .sample = "gpu",
             .parts = {{"main", 1, 0, 100, 0}},
             .whole = true},
};

/* As a user does it, but for the image of a sample, which is an example. */
static void apply(const struct shape *s)
{
    const char *text = s->manifest;
    if (!text)
        text = lib_output(0, ARGV("sed", "s,image: .*,image: " NODE_GUEST ",",
                                  lib_fmt("manifests/samples/hami/%s.yaml", s->sample)));
    temp_write(lib_dir, "manifest.yaml", text);
    cluster_kubectl("apply", "-f", lib_path("manifest.yaml"));
}

static json_t *pods_of(const struct shape *s)
{
    json_t *mine = lib_own(json_array()), *pod;
    lib_each(pod, cluster_list(CLUSTER_PODS)) {
        const char *name = lib_str(pod, "metadata.name"), *at = strstr(name, s->name);
        if (at == name && (s->replicas || !name[strlen(s->name)]))
            json_array_append(mine, pod);
    }
    ck_assert_int_eq((int)json_array_size(mine), s->replicas ?: 1);
    return mine;
}

static int size_of(int card)
{
    return node_cards[card].units * MIB_PER_UNIT;
}

static int mib_on(const struct part *p, int card)
{
    return p->percent ? size_of(card) * p->percent / 100 : p->mib;
}

static const char *log_of(const json_t *pod, const char *container)
{
    return real_log(lib_str(pod, "metadata.name"), lib_str(pod, "metadata.uid"),
                    container);
}

/* What the container is told, and what the Binding says of it. */
static void check_part(const json_t *pod, size_t i, const struct part *p)
{
    const char *limits = "", *mibs = "", *log = log_of(pod, p->container);
    int n = 0, least = 100; /* percent of the memory of a card */
    for (struct span rest = span_of(lib_annotation(pod, KEY_MEM_IDX)); rest.n; n++) {
        struct span index = span_cut(&rest, ',');
        int card = atoi(lib_fmt("%.*s", SPAN_ARG(index))), mib = mib_on(p, card),
            share = mib * 100 / size_of(card);
        limits = lib_fmt("%s%s%d=%dM", limits, n ? "," : "", n, mib);
        mibs = lib_fmt("%s%s\"%d\":%d", mibs, n ? "," : "", card, mib);
        least = share < least ? share : least;
    }
    ck_assert_int_eq(n, p->cards);
    ck_assert_str_eq(look_variable(log, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), limits);
    ck_assert_str_eq(look_variable(log, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
                     lib_fmt("%d", p->compute ?: least ?: 1));
    const char *note = lib_annotation(pod, KEY_ALLOCATION);
    ck_assert_str_eq(
        lib_text(lib_at(lib_parse(note, strlen(note)), lib_fmt("%zu", i)), ""),
        lib_fmt("{%s}", mibs));
}

static void check_pod(const struct shape *s, const json_t *pod)
{
    int card = atoi(lib_annotation(pod, KEY_MEM_IDX)), mib = 0;
    for (size_t i = 0; i < PARTS && s->parts[i].container; i++) {
        check_part(pod, i, &s->parts[i]);
        mib += mib_on(&s->parts[i], card);
    }
    unsigned cards = inside_cards(lib_str(pod, "metadata.name"));
    inside_check_opens(lib_str(pod, "metadata.name"), cards, cards);
    if (s->init)
        ck_assert_str_eq(
            look_variable(log_of(pod, "i"), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            lib_fmt("0=%dM", s->init));
    ck_assert_at(pod, "spec.schedulerName",
                 s->replicas ? "hami-scheduler" : "gpushare-scheduler");
    mib = s->init ?: mib;
    ck_assert_str_eq(lib_annotation(pod, KEY_CARD_MEMORY),
                     lib_fmt("%s %s", s->whole ? "whole" : lib_fmt("%d", mib),
                             lib_str(pod, "metadata.uid")));
}

static void check_shape(const struct shape *s)
{
    json_t *pod;
    lib_each(pod, pods_of(s))
        check_pod(s, pod);
}

/* -- tests -- */

TEST(each_shape_gets_exactly_its_part)
{
    int pods = 0;
    size_t containers = 0;
    if (!begin())
        return;
    array_items(s, shapes) {
        int n = s->replicas ?: 1;
        apply(s);
        pods += n;
        containers += (size_t)n * (s->parts[1].container || s->init ? 2 : 1);
    }
    array_items(s, shapes)
        if (!s->replicas)
            cluster_wait_running(s->name);
    node_wait_running(pods);
    ck_assert_uint_eq(look_check(), containers);
    array_items(s, shapes)
        check_shape(s);
    ck_assert_str_eq(lib_annotation(cluster_pod("uuid"), KEY_CARD_UUID), LAST_CARD);
    apply(&(struct shape){SHAPE("no-type", "nvidia.com/nouse-gputype: t4",
                                CONTAINER("c", GPU("1") ", " MEM("500")))});
    cluster_wait_refused("no-type", "the node has 4 x Tesla T4");
    finish();
}

/* A pod with nvidia.com/gpu alone is for both kinds of nodes: here for the only card that is left, and
 * for the cards of the other node, about which nothing is written. */
TEST(whole_cards_are_those_of_both_nodes)
{
    if (!begin())
        return;
    apply(&(struct shape){SHAPE("large", "", CONTAINER("c", MEM("60000")))});
    cluster_wait_refused("large", "this node serves no requests of HAMi");
    cluster_delete(CLUSTER_PODS "/large");
    apply(&large[TWO]);
    apply(&large[COMPUTE]);
    node_wait_running(2);
    for (int i = 0; i < OTHER_CARDS; i++)
        cluster_create_asking(lib_fmt("other-%d", i), KEY_NVIDIA_GPU, 1, "", ON(OTHER));
    node_wait_running(2 + OTHER_CARDS);
    apply(&large[ONE]);
    node_wait_running(3 + OTHER_CARDS);
    ck_assert_uint_eq(look_check(), 3);
    array_items(s, large)
        check_shape(s);
    ck_assert_str_eq(lib_annotation(cluster_pod("hami-gpu"), KEY_CARD_UUID), FIRST_CARD);
    for (int i = 0; i < OTHER_CARDS; i++) {
        const json_t *pod = cluster_pod(lib_fmt("other-%d", i));
        ck_assert_at(pod, "spec.nodeName", OTHER);
        ck_assert_str_eq(lib_text(pod, "metadata.annotations"), "");
    }
    /* Both nodes are full. */
    cluster_create_asking("late", KEY_NVIDIA_GPU, 1, "", "");
    cluster_wait_refused("late", "Insufficient nvidia.com/gpu");
    cluster_delete(CLUSTER_PODS "/other-0");
    cluster_wait_running("late");
    ck_assert_at(cluster_pod("late"), "spec.nodeName", OTHER);
    finish();
}

NODE_MAIN
