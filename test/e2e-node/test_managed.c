/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "lib/tools.h"

/*
 * The chart on a managed cluster (`make managed`, `scripts/cluster up --managed`), as its user installs it: with
 * a kubeconfig and one command. The suite runs outside of the cell and has no other way in.
 * test_chart shows upgrades and that what runs outlives the chart.
 */

#define NAMESPACE      "gpushare"
#define SCHEDULER_NAME "gpushare-scheduler"
#define CORE_API       "/api/v1/namespaces/default/"
#define CLASS          "by-hand"
#define SELECTED       "volume.kubernetes.io/selected-node"

#define helm(...) free(tools_run("helm", 0, ARGV("-n", NAMESPACE, __VA_ARGS__)))
#define RELEASE   "gpushare", CHART, "--set", "platform=managed"

/* -- pods -- */

/* kubectl logs of a container that prints its environment. New. */
static char *environment_of(const char *pod)
{
    for (int64_t end = lib_now_ms() + LIB_WAIT_MS;; lib_pause()) {
        char *log = cluster_kubectl(ARGV("logs", pod));
        if (strstr(log, "that is all\n"))
            return log;
        ck_assert_msg(lib_now_ms() < end, "pod %s has printed only: %s", pod, log);
        free(log);
    }
}

/* The running pod sees the card that its annotations promise. */
static void ck_on_its_card(const char *name)
{
    cleanup_json json_t *pod = cluster_pod(name);
    cleanup_free char *log = environment_of(name);
    cleanup_free char *card = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    bool known = false;
    for (int i = 0; i < NODE_CARDS; i++)
        known |= strcmp(card, node_cards[i].uuid) == 0;
    ck_assert_msg(known, "pod %s sees \"%s\"", name, card);
    ck_assert_str_eq(lib_annotation(pod, "gpushare/card-uuid"), card);
    ck_assert_str_eq(lib_str(pod, "spec.schedulerName"), SCHEDULER_NAME);
}

/* Creates a pod of this kind (node.h) and waits until it is on its card. */
static void run_pod(const char *kind, const char *name)
{
    node_create(kind, name);
    cluster_wait_running(name);
    ck_on_its_card(name);
}

/* -- the release -- */

/* A moment after its creation, the API server applies the policy that sets the name. */
static bool policy_applies(void)
{
    cleanup_free char *spec = node_spec_of("one");
    cleanup_free char *body = xasprintf(
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"try\"},"
        "\"spec\":{%s}}",
        spec);
    cleanup_json json_t *pod =
        peer_json(&cluster.api, "POST", CLUSTER_PODS "?dryRun=All", body);
    return strcmp(lib_str(pod, "spec.schedulerName"), SCHEDULER_NAME) == 0;
}

static void install(void)
{
    helm("upgrade", "--install", "--create-namespace", RELEASE, "--wait");
    lib_wait(policy_applies());
}

/* Annotations, Scv and the devices of the kubelet agree. */
static void ck_consistent(void)
{
    struct program p;
    cleanup_free char *config = temp_path(cluster.dir, "admin.kubeconfig");
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    cleanup_free char *said = xstrdup("");
    for (int64_t end = lib_now_ms() + LIB_WAIT_MS; !strstr(said, "no differences");) {
        ck_assert_msg(lib_now_ms() < end, "--check says: %s", said);
        free(said);
        program_start(&p, lib_dir, ARGV(plugin, "--kubeconfig", config, "--check"));
        program_wait(&p);
        said = xstrdup(program_output(&p));
        program_fini(&p);
    }
}

/* -- tests -- */

/* The control plane shows no node, and the user has no part in it. */
static void ck_managed(void)
{
    cleanup_json json_t *nodes = cluster_items("/api/v1/nodes");
    const json_t *node = json_array_get(nodes, 0),
                 *labels = lib_at(node, "metadata.labels");
    ck_assert_uint_eq(json_array_size(nodes), 1);
    ck_assert_str_eq(lib_str(node, "metadata.name"), NODE);
    ck_assert(!json_object_get(labels, "node-role.kubernetes.io/control-plane"));
    ck_assert(!json_object_get(labels, "gpushare"));
}

START_TEST(one_line_gives_a_plain_pod_its_card)
{
    ck_managed();
    int64_t begun = lib_now_ms();
    helm("install", "--create-namespace", RELEASE);
    lib_wait(policy_applies());
    node_create("one", "first");
    cluster_wait_running("first");
    cluster_report("helm install, until the first pod with GPU memory runs",
                   lib_now_ms() - begun);
    ck_on_its_card("first");
    run_pod("two", "second");
    node_create("none", "plain");
    cluster_wait_running("plain");
    cleanup_json json_t *plain = cluster_pod("plain");
    ck_assert_str_eq(lib_str(plain, "spec.schedulerName"), "default-scheduler");
    ck_consistent();
}
END_TEST

START_TEST(helm_test_passes)
{
    install();
    int64_t begun = lib_now_ms();
    helm("test", "gpushare", "--timeout", "120s");
    cluster_report("helm test", lib_now_ms() - begun);
}
END_TEST

/* -- two schedulers, one node -- */

/* Of a quantity such as "2" or "900m". */
static long milli(const char *quantity)
{
    char *end;
    long n = strtol(quantity, &end, 10);
    return *end == 'm' ? n : n * 1000;
}

static long milli_free(void)
{
    cleanup_json json_t *node =
        peer_json(&cluster.api, "GET", "/api/v1/nodes/" NODE, NULL);
    cleanup_json json_t *pods = cluster_items("/api/v1/pods");
    long free = milli(lib_str(node, "status.allocatable.cpu"));
    size_t i, k;
    json_t *pod, *c;
    json_array_foreach(pods, i, pod)
        json_array_foreach(lib_at(pod, "spec.containers"), k, c) free -=
        milli(lib_str(c, "resources.requests.cpu"));
    return free;
}

/* A pod with this CPU, and with or without GPU memory. With `volume`, kube-scheduler decides,
 * and then waits for the volume of this name before it binds. */
static void create_with_cpu(const char *name, long cpu, bool gpu, const char *volume)
{
    cleanup_free char *claim =
        volume ? xasprintf(",\"volumes\":[{\"name\":\"v\",\"persistentVolumeClaim\":"
                           "{\"claimName\":\"%s\"}}]",
                           volume)
               : xstrdup("");
    cluster_create(
        CLUSTER_PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\"},"
        "\"spec\":{\"terminationGracePeriodSeconds\":5,\"containers\":[{"
        "\"name\":\"c\",\"image\":\"" NODE_GUEST "\",\"resources\":{"
        "\"requests\":{\"cpu\":\"%ldm\"},\"limits\":{%s}}}]%s}}",
        name, cpu, gpu ? "\"aliyun.com/gpu-mem\":\"2\"" : "", claim);
}

static void create_claim(const char *name)
{
    cluster_create(CORE_API "persistentvolumeclaims",
                   "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"accessModes\":["
                   "\"ReadWriteOnce\"],\"storageClassName\":\"" CLASS
                   "\",\"resources\":{\"requests\":{\"storage\":\"1Mi\"}}}}",
                   name);
}

static json_t *claim_of(const char *name)
{
    cleanup_free char *path = xasprintf(CORE_API "persistentvolumeclaims/%s", name);
    return peer_json(&cluster.api, "GET", path, NULL);
}

/* Has kube-scheduler chosen a node for the pod of this claim? */
static bool is_decided(const char *claim)
{
    cleanup_json json_t *j = claim_of(claim);
    return strcmp(lib_annotation(j, SELECTED), NODE) == 0;
}

/* As the provisioner of the class would. */
static void provide(const char *claim)
{
    cleanup_json json_t *j = claim_of(claim);
    cluster_create(
        "/api/v1/persistentvolumes",
        "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"accessModes\":["
        "\"ReadWriteOnce\"],\"storageClassName\":\"" CLASS
        "\",\"capacity\":{\"storage\":\"1Mi\"},\"hostPath\":{\"path\":\"/tmp\"},"
        "\"claimRef\":{\"kind\":\"PersistentVolumeClaim\",\"apiVersion\":\"v1\","
        "\"namespace\":\"default\",\"name\":\"%s\",\"uid\":\"%s\"}}}",
        claim, claim, lib_str(j, "metadata.uid"));
}

static bool is_failed(const char *name)
{
    cleanup_json json_t *pod = cluster_pod(name);
    return strcmp(lib_str(pod, "status.phase"), "Failed") == 0;
}

static bool has_event(const char *pod, const char *reason, const char *text)
{
    cleanup_free char *path =
        xasprintf(CORE_API "events?fieldSelector=involvedObject.name%%3D%s,reason%%3D%s",
                  pod, reason);
    cleanup_json json_t *events = cluster_items(path);
    json_t *event;
    size_t i;
    json_array_foreach(events, i, event)
    {
        if (strstr(lib_str(event, "message"), text))
            return true;
    }
    return false;
}

/* Both pods fit alone, and not together. The scheduler of `slow` decides first and binds last,
 * and neither knows the other's decision: the kubelet rejects `slow`. */
static void race(const char *slow, bool slow_has_gpu, const char *fast, bool fast_has_gpu)
{
    long cpu = milli_free() * 3 / 5;
    create_claim(slow);
    create_with_cpu(slow, cpu, slow_has_gpu, slow);
    lib_wait(is_decided(slow));
    create_with_cpu(fast, cpu, fast_has_gpu, NULL);
    cluster_wait_running(fast);
    provide(slow);
    lib_wait(is_failed(slow));
    cleanup_json json_t *pod = cluster_pod(slow);
    ck_assert_str_eq(lib_str(pod, "status.reason"), "OutOfcpu");
    ck_assert_contains(lib_str(pod, "status.message"), "enough resource: cpu");
    lib_wait(has_event(slow, "OutOfcpu", "enough resource: cpu"));
}

static void create_class(void)
{
    cluster_create("/apis/storage.k8s.io/v1/storageclasses",
                   "{\"metadata\":{\"name\":\"" CLASS
                   "\"},\"provisioner\":\"example.com/by-hand\",\"volumeBindingMode\":"
                   "\"WaitForFirstConsumer\"}");
}

START_TEST(two_schedulers_race_for_cpu)
{
    install();
    create_class();
    race("slow-plain", false, "fast-gpu", true);
    ck_on_its_card("fast-gpu");
    cluster_delete_pods();
    race("slow-gpu", true, "fast-plain", false);
    ck_consistent();
    run_pod("one", "after"); /* no card is kept for the rejected pod */
}
END_TEST

/* By a pod that asks for the default scheduler after the policy was switched off. */
START_TEST(a_pod_of_another_scheduler_is_refused_with_the_remedy)
{
    install();
    helm("upgrade", RELEASE, "--set", "podDefaults.schedulerName=false", "--wait");
    lib_wait(!policy_applies());
    node_create("one", "lost");
    lib_wait(is_failed("lost"));
    cleanup_json json_t *pod = cluster_pod("lost");
    ck_assert_str_eq(lib_str(pod, "spec.schedulerName"), "default-scheduler");
    ck_assert_str_eq(lib_str(pod, "status.reason"), "UnexpectedAdmissionError");
    ck_assert_contains(lib_str(pod, "status.message"),
                       "Set schedulerName to a kube-scheduler "
                       "that calls the extender");
    lib_wait(has_event("lost", "GPUAllocationFailed", "Set schedulerName"));
}
END_TEST

static int nothing(void)
{
    return 0;
}

int main(void)
{
    const TTest *const tests[] = {one_line_gives_a_plain_pod_its_card,
                                  two_schedulers_race_for_cpu,
                                  a_pod_of_another_scheduler_is_refused_with_the_remedy,
                                  helm_test_passes};
    cell_run(nothing);
    cluster_no_extender();
    /* The API of the policy is behind a gate in 1.35. */
    const char *k8s = getenv("E2E_K8S");
    bool gate = k8s && strcmp(k8s, "1.35") == 0;
    return node_run("managed", tests, ARRAY_LEN(tests),
                    gate ? ARGV("--managed", "--gates", "MutatingAdmissionPolicy=true")
                         : ARGV("--managed"));
}
