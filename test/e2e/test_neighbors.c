/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/cluster.h"
#include "lib/temp.h"
#include "wire/base64.h"

/*
 * Beside other programs of a cluster, from their Go modules: training-operator creates the pods
 * of a PyTorchJob, and descheduler evicts GPU pods.
 */

#define API     "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
#define CERTS   "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
#define SERVING "/tmp/k8s-webhook-server" /* not an option of training-operator */

/* How many pods run that are not among `old` (or NULL). */
static size_t running(const json_t *old)
{
    size_t n = 0;
    json_t *pod, *before;
    lib_each(pod, cluster_list(CLUSTER_PODS)) {
        bool known = false;
        lib_each(before, old)
            known |=
                !strcmp(lib_str(pod, "metadata.uid"), lib_str(before, "metadata.uid"));
        n += !known && !strcmp(lib_str(pod, "status.phase"), "Running");
    }
    return n;
}

/* -- training-operator -- */

/* A port that no program gets without asking for it: the kernel gives a bound port to nobody, and
 * lets a server listen on it if both sockets have SO_REUSEADDR. */
static int keep_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

/* What the kubelet would do for training-operator's pod: the files of the Secret. */
static void mount_certificates(void)
{
    const char *key, *new = lib_fmt("%s/webhook/new", cluster.dir);
    json_t *data, *value;
    lib_wait(json_object_size(data = lib_at(peer_get(&cluster.api, CERTS), "data")) > 0);
    json_object_foreach(data, key, value)
    {
        cleanup_buf struct buf file = {0};
        ck_assert(base64_decode(span_of(json_string_value(value)), &file));
        temp_write_bytes(new, key, buf_span(&file));
    }
    ck_assert_int_eq(rename(new, lib_fmt("%s/webhook/serving-certs", cluster.dir)), 0);
}

/* No gang scheduler: kube-scheduler has no plugin that reads the PodGroup that it creates. */
static void start_operator(void)
{
    cluster_kubectl("apply", "--server-side", "-f",
                    cluster_program("training-operator-crds"));
    lib_wait(peer_status(&cluster.api, API) == 200);
    cluster_create("/api/v1/namespaces", "{\"metadata\":{\"name\":\"kubeflow\"}}");
    cluster_create("/api/v1/namespaces/kubeflow/secrets",
                   "{\"metadata\":{\"name\":\"training-operator-webhook-cert\"}}");
    cluster_create(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "{\"metadata\":{\"name\":\"validator.training-operator.kubeflow.org\"}}");
    temp_mkdir(cluster.dir, "webhook");
    temp_mkdir(cluster.dir, "webhook/new");
    cluster_add_program(
        "training-operator",
        ARGV("unshare", "--mount", "sh", "-c",
             "mkdir -p " SERVING " && mount --bind \"$0\" " SERVING
             " && TMPDIR=/tmp exec \"$@\"",
             lib_fmt("%s/webhook", cluster.dir), cluster_program("training-operator.v1"),
             "--kubeconfig", lib_fmt("%s/admin.kubeconfig", cluster.dir),
             "--metrics-bind-address=0", "--health-probe-bind-address=0",
             "--enable-scheme=pytorchjob", "--gang-scheduler-name=default-scheduler",
             lib_fmt("--webhook-server-port=%d", keep_port())));
    mount_certificates();
}

static void create_job(const char *name, int workers, int units)
{
    cluster_create(API,
                   "{\"apiVersion\":\"kubeflow.org/v1\",\"kind\":\"PyTorchJob\","
                   "\"metadata\":{\"name\":\"%s\"},\"spec\":{\"pytorchReplicaSpecs\":{"
                   "\"Worker\":{\"replicas\":%d,\"template\":{\"spec\":{\"containers\":[{"
                   "\"name\":\"pytorch\",\"image\":\"none\",\"resources\":{\"limits\":{"
                   "\"aliyun.com/gpu-mem\":\"%d\"}}}]}}}}}}",
                   name, workers, units);
}

/* Two on each card. */
TEST(a_pytorch_job_shares_cards_as_a_gang)
{
    start_operator();
    cluster_add_node("n1", "", CARDS(16276));
    cluster_add_node("n2", "", CARDS(16276));
    create_job("whole", 5, 7);
    lib_wait(peer_status(&cluster.api, CLUSTER_PODS "/whole-worker-4") == 200);
    cluster_wait_refused("whole-worker-0",
                         "gang whole: 1 of 5 members finds no place beside the others; "
                         "needs 7168 MiB on one card; none starts before all can");
    create_job("train", 4, 7);
    lib_wait(running(NULL) == 4);
    cluster_agrees();
    cluster_delete(API "/whole");
    cluster_delete(API "/train");
    cluster_delete_pods();
    cluster_agrees();
}

/* -- descheduler -- */

/* Runs descheduler once. It evicts pods that are older than a second. Is none of `old` left? */
static bool evicts_all(const json_t *old)
{
    size_t left = 0;
    json_t *before;
    cluster_tool("descheduler", 0,
                 ARGV("--kubeconfig", lib_fmt("%s/admin.kubeconfig", cluster.dir),
                      "--policy-config-file", lib_fmt("%s/descheduler.yaml", cluster.dir),
                      "--secure-port", "0", "--disable-metrics"));
    lib_each(before, old)
        left +=
            peer_status(&cluster.api, lib_fmt(CLUSTER_PODS "/%s",
                                              lib_str(before, "metadata.name"))) == 200;
    return !left;
}

TEST(evicted_pods_get_cards_again_and_none_is_promised_twice)
{
    cluster_add_node("n1", "", CARDS(16276));
    cluster_add_node("n2", "", CARDS(16276));
    cluster_create(
        "/apis/apps/v1/namespaces/default/deployments",
        "{\"metadata\":{\"name\":\"d\"},\"spec\":{\"replicas\":4,\"selector\":{"
        "\"matchLabels\":{\"a\":\"b\"}},\"template\":{\"metadata\":{\"labels\":{"
        "\"a\":\"b\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":"
        "\"none\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"7\"}}}]}}"
        "}}");
    lib_wait(running(NULL) == 4);
    json_t *old = cluster_list(CLUSTER_PODS);
    temp_write(cluster.dir, "descheduler.yaml",
               "apiVersion: descheduler/v1alpha2\n"
               "kind: DeschedulerPolicy\n"
               "profiles:\n"
               "- name: all\n"
               "  pluginConfig:\n"
               "  - {name: DefaultEvictor, args: {}}\n"
               "  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 1, namespaces: "
               "{include: [default]}}}\n"
               "  plugins: {deschedule: {enabled: [PodLifeTime]}}\n");
    lib_wait(evicts_all(old));
    lib_wait(running(old) == 4);
    cluster_agrees();
    cluster_delete("/apis/apps/v1/namespaces/default/deployments/d");
    lib_wait(json_array_size(cluster_list(CLUSTER_PODS)) == 0);
    cluster_settle();
}

CLUSTER_MAIN(60)
