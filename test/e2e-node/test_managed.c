/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "lib/doc.h"

/*
 * The chart on a managed cluster (`make managed`, `scripts/cluster up --managed`), as its user
 * installs it: with a kubeconfig and one command. The suite runs outside of the cell and has
 * no other way in.
 * test_chart shows upgrades and that what runs outlives the chart.
 */

#define NAMESPACE      "gpushare"
#define SCHEDULER_NAME "gpushare-scheduler"
#define CORE_API       "/api/v1/namespaces/default/"
#define CLASS          "by-hand"
#define SELECTED       "volume.kubernetes.io/selected-node"

enum { INSTALL_MS = 180 * 1000 };

#define helm(...) cluster_tool("helm", 0, ARGV("-n", NAMESPACE, __VA_ARGS__))
#define RELEASE   "gpushare", CHART

/* -- pods -- */

static void ck_on_its_card(const char *name)
{
    look_card(name);
    ck_assert_at(cluster_pod(name), "spec.schedulerName", SCHEDULER_NAME);
}

/* Creates a pod of this kind (node.h) and waits until it is on its card. */
static void run_pod(const char *kind, const char *name)
{
    node_create(kind, name);
    cluster_wait_running(name);
    ck_on_its_card(name);
}

/* -- the release -- */

/* Does the API server set the name? */
static bool policy_applies(void)
{
    const json_t *pod =
        peer_post(&cluster.api, CLUSTER_PODS "?dryRun=All", node_pod("one", "try"));
    return strcmp(lib_str(pod, "spec.schedulerName"), SCHEDULER_NAME) == 0;
}

static void install(void)
{
    helm("upgrade", "--install", "--create-namespace", "--reset-values", RELEASE,
         "--wait");
    ck_assert(policy_applies());
}

/* Annotations, Scv and the devices of the kubelet agree. */
static void ck_consistent(void)
{
    node_check(NULL, "no differences");
}

/* -- tests -- */

/* The control plane shows no node, and the user has no part in it. */
static void ck_managed(void)
{
    const json_t *nodes = cluster_list("/api/v1/nodes"),
                 *labels = lib_at(nodes, "0.metadata.labels");
    ck_assert_uint_eq(json_array_size(nodes), 1);
    ck_assert_at(nodes, "0.metadata.name", NODE);
    ck_assert(!json_object_get(labels, "node-role.kubernetes.io/control-plane"));
    ck_assert(!json_object_get(labels, "gpushare"));
}

static const char *container_of(const char *name)
{
    return lib_str(cluster_pod(name), "status.containerStatuses.0.containerID");
}

static void uninstall(const char *before)
{
    const char *container = container_of("gpu-mem");
    int64_t begun = lib_now_ms();
    helm("uninstall", "gpushare", "--wait");
    cluster_wait_gone(
        before, ARGV("CustomResourceDefinition /scvs.core.run-linux.com ",
                     "APIService /v1.core.run-linux.com ", "Scv /" NODE " ",
                     "Namespace /" NAMESPACE " ", "ServiceAccount " NAMESPACE "/default ",
                     "ConfigMap " NAMESPACE "/kube-root-ca.crt ", "Pod default/"));
    cluster_report("helm uninstall, until nothing but the CRD is left",
                   lib_now_ms() - begun);
    ck_assert_at(cluster_pod("gpu-mem"), "status.phase", "Running");
    ck_assert_str_eq(container_of("gpu-mem"), container);
}

/* The installation of README.md, as it is, and the way back. */
TEST(one_line_gives_a_plain_pod_its_card)
{
    ck_managed();
    /* The kubelet creates its Lease a moment after its Node. */
    lib_wait(peer_status(&cluster.api, "/apis/coordination.k8s.io/v1/namespaces/"
                                       "kube-node-lease/leases/" NODE) == 200);
    const char *before = cluster_everything();
    int64_t begun = lib_now_ms();
    char *dir = temp_dir();
    const char *kubectl = cluster_program("kubectl");
    doc_run("README.md", "bash install", NULL, dir,
            ARGV(lib_fmt("KUBECONFIG=%s/admin.kubeconfig", cluster.dir),
                 lib_fmt("PATH=%.*s:%s", (int)(strrchr(kubectl, '/') - kubectl), kubectl,
                         getenv("PATH")),
                 "REGISTRY=localhost", "NODES=" NODE, "VALUES="),
            INSTALL_MS);
    temp_dir_remove(dir);
    cluster_report("the commands of README.md, until the sample runs",
                   lib_now_ms() - begun);
    ck_on_its_card("gpu-mem");
    run_pod("two", "second");
    node_create("none", "plain");
    cluster_wait_running("plain");
    ck_assert_at(cluster_pod("plain"), "spec.schedulerName", "default-scheduler");
    ck_consistent();
    uninstall(before);
}

TEST(helm_test_passes)
{
    install();
    int64_t begun = lib_now_ms();
    helm("test", "gpushare", "--timeout", "120s");
    cluster_report("helm test", lib_now_ms() - begun);
}

/* A pod that is created as soon as helm returns gets its card, whether the policy or the webhook
 * names its scheduler. ROUNDS=12: how often. */
TEST(a_pod_right_after_an_installation_gets_its_card)
{
    const char *rounds = getenv("ROUNDS"), *const by[] = {"podDefaults.webhook=true",
                                                          "podDefaults.webhook=false"};
    int n = rounds ? atoi(rounds) : (int)ARRAY_LEN(by);
    install();
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        helm("uninstall", "gpushare", "--wait");
        int64_t begun = lib_now_ms();
        helm("install", RELEASE, "--set", by[i % 2]);
        int64_t installed = lib_now_ms();
        run_pod("one", "at-once");
        cluster_report(lib_fmt("%s: helm install", by[i % 2]), installed - begun);
        cluster_report("... and until the pod has its card", lib_now_ms() - installed);
        cluster_delete_pods();
    }
}

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
    long free = milli(
        lib_str(peer_get(&cluster.api, "/api/v1/nodes/" NODE), "status.allocatable.cpu"));
    json_t *pod, *c;
    lib_each(pod, cluster_list("/api/v1/pods"))
        lib_each(c, lib_at(pod, "spec.containers"))
            free -= milli(lib_str(c, "resources.requests.cpu"));
    return free;
}

/* A pod with this CPU, and with or without GPU memory. With `volume`, kube-scheduler decides,
 * and then waits for the volume of this name before it binds. */
static void create_with_cpu(const char *name, long cpu, bool gpu, const char *volume)
{
    const char *claim =
        volume ? lib_fmt(",\"volumes\":[{\"name\":\"v\",\"persistentVolumeClaim\":"
                         "{\"claimName\":\"%s\"}}]",
                         volume)
               : "";
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
    return peer_get(&cluster.api, lib_fmt(CORE_API "persistentvolumeclaims/%s", name));
}

/* Has kube-scheduler chosen a node for the pod of this claim? */
static bool is_decided(const char *claim)
{
    return strcmp(lib_annotation(claim_of(claim), SELECTED), NODE) == 0;
}

/* As the provisioner of the class would. */
static void provide(const char *claim)
{
    cluster_create(
        "/api/v1/persistentvolumes",
        "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"accessModes\":["
        "\"ReadWriteOnce\"],\"storageClassName\":\"" CLASS
        "\",\"capacity\":{\"storage\":\"1Mi\"},\"hostPath\":{\"path\":\"/tmp\"},"
        "\"claimRef\":{\"kind\":\"PersistentVolumeClaim\",\"apiVersion\":\"v1\","
        "\"namespace\":\"default\",\"name\":\"%s\",\"uid\":\"%s\"}}}",
        claim, claim, lib_str(claim_of(claim), "metadata.uid"));
}

static bool is_failed(const char *name)
{
    return strcmp(lib_str(cluster_pod(name), "status.phase"), "Failed") == 0;
}

static bool has_event(const char *pod, const char *reason, const char *text)
{
    return cluster_events(lib_fmt("involvedObject.name=%s,reason=%s", pod, reason), text);
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
    json_t *pod = cluster_pod(slow);
    ck_assert_at(pod, "status.reason", "OutOfcpu");
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

TEST(two_schedulers_race_for_cpu)
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

/* By a pod that asks for the default scheduler after the policy was switched off. */
TEST(a_pod_of_another_scheduler_is_refused_with_the_remedy)
{
    install();
    helm("upgrade", RELEASE, "--set", "podDefaults.schedulerName=false", "--wait");
    lib_wait(!policy_applies());
    node_create("one", "lost");
    lib_wait(is_failed("lost"));
    json_t *pod = cluster_pod("lost");
    ck_assert_at(pod, "spec.schedulerName", "default-scheduler");
    ck_assert_at(pod, "status.reason", "UnexpectedAdmissionError");
    ck_assert_contains(lib_str(pod, "status.message"),
                       "set schedulerName to one that does");
    lib_wait(has_event("lost", "GPUAllocationFailed", "set schedulerName"));
}

/* -- certificates -- */

#define IN_NAMESPACE "/api/v1/namespaces/" NAMESPACE
#define SCHEDULERS   IN_NAMESPACE "/pods?labelSelector=component%3D" SCHEDULER_NAME

static const char *const secrets[] = {"gpushare-extender-ca", "gpushare-extender-tls",
                                      "gpushare-scheduler-tls"};

static bool is_there(const char *kind, const char *name)
{
    return peer_status(&cluster.api, lib_fmt(IN_NAMESPACE "/%s/%s", kind, name)) == 200;
}

static bool is_one_there(const json_t *pods)
{
    json_t *pod;
    bool found = false;
    lib_each(pod, pods)
        found |= is_there("pods", lib_str(pod, "metadata.name"));
    return found;
}

/* The former certificates are worth nothing then, so kube-scheduler must start again. */
TEST(pods_get_their_cards_after_the_certificates_were_deleted)
{
    enum { PODS = 40, STEP_MS = 500 }; /* of 2 units each */
    const json_t *former;
    install();
    run_pod("one", "before");
    /* The Deployment got its first checksum only after the installation. */
    lib_wait(json_array_size(former = cluster_list(SCHEDULERS)) == 2);
    cluster_kubectl("-n", NAMESPACE, "delete", "secret", secrets[0], secrets[1],
                    secrets[2]);
    int64_t begun = lib_now_ms(), longest = 0;
    int n = 0;
    for (bool last = false; !last && n < PODS; n++) {
        last = !is_one_there(former);
        int64_t created = lib_now_ms();
        node_create("equal", lib_fmt("p%d", n));
        lib_wait(cluster_bound(lib_fmt("p%d", n)));
        int64_t waited = lib_now_ms() - created;
        longest = waited > longest ? waited : longest;
        lib_wait(last || lib_now_ms() >= created + STEP_MS);
        if (last)
            cluster_report("certificates deleted, until the last former kube-scheduler "
                           "was gone",
                           created - begun);
    }
    cluster_report(lib_fmt("... and the longest of %d pods until it was bound", n),
                   longest);
    ck_assert(!is_one_there(former));
    array_items(secret, secrets)
        ck_assert(is_there("secrets", *secret));
    run_pod("two", "later");
}

static int nothing(void)
{
    return 0;
}

int main(void)
{
    cell_run(nothing);
    cluster_no_extender();
    /* The API of the policy is behind a gate in 1.35. */
    const char *k8s = getenv("E2E_K8S");
    bool gate = k8s && strcmp(k8s, "1.35") == 0;
    return node_run(gate ? ARGV("--managed", "--gates", "MutatingAdmissionPolicy=true")
                         : ARGV("--managed"));
}
