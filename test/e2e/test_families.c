/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/staticpod.h"
#include "lib/cluster.h"
#include "lib/network.h"
#include "lib/node_files.h"

/*
 * A control plane of IPv6 alone, and one of both families with IPv6 first: _i = 0 and 1. Two
 * replicas of the extender with certificates listen by default; scripts/install configures the
 * kube-scheduler of a node of kubeadm, which calls the replica that does not lead.
 */

enum { LEADER, FOLLOWER, REPLICAS };

static const char *names[REPLICAS]; /* each with a log of its own */
static struct extender replicas[REPLICAS];

static const char *said_by(const struct extender *e)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&e->observers, "GET", "/readyz", NULL, &reply);
    return lib_fmt("%u %s", status, reply.p);
}

/* As the pods of the Deployment, both on one address. */
static void start_replica(const char *name, struct extender *e)
{
    const char *log = lib_fmt("log/%s.log", name);
    const char *program = lib_keep(realpath(lib_built("gpushare-extender"), NULL), free);
    cluster_add_program(name, ARGV("env", "POD_IP=" NETWORK_POD, program, "--kubeconfig",
                                   "extender.kubeconfig", "--port", "0", "--observe-port",
                                   "0"));
    lib_wait(strstr(cluster_file(log), "listening on [::]:"));
    const char *said = cluster_file(log);
    *e = (struct extender){0};
    ck_assert_int_eq(sscanf(strstr(said, "observing on ["),
                            "observing on [::]:%u\nlistening on [::]:%u",
                            &e->observers.port, &e->verbs.port),
                     2);
    lib_wait(peer_status(&cluster.api, "/api/v1/namespaces/kube-system/secrets/"
                                       "gpushare-scheduler-tls") == 200);
    extender_connect_secret(e, &cluster.api, "kube-system", true);
    lib_wait_saying(extender_ready(e), "%s: %s", name, said_by(e));
}

static bool leads(const struct extender *e)
{
    const json_t *lease =
        peer_get(&cluster.api, "/apis/coordination.k8s.io/v1/namespaces/kube-system/"
                               "leases/gpushare-extender");
    return strstr(lib_str(lease, "spec.holderIdentity"),
                  lib_fmt("@[" NETWORK_POD "]:%u", e->verbs.port));
}

static json_int_t forwarded(void)
{
    return extender_metric(&replicas[FOLLOWER],
                           "gpushare_binds_total{result=\"forwarded\"}");
}

static bool answers_on_ipv4(const struct extender *e)
{
    const char *said = lib_output(
        -1, ARGV("curl", "-sk", lib_fmt("https://127.0.0.1:%u/readyz", e->verbs.port)));
    return strcmp(said, "ok\n") == 0;
}

/* -- the node -- */

static void make_node(void)
{
    node_files_make(cluster_release(), 0);
    lib_edit(NODE_FILES_MANIFEST, "--bind-address=127.0.0.1", "--bind-address=::1");
    const char *proc = lib_path("root/proc");
    ck_assert(rmdir(proc) == 0 && symlink("/proc", proc) == 0);
    temp_write(lib_dir, "root/etc/kubernetes/scheduler.conf",
               cluster_kubectl("config", "view", "--raw", "--flatten", "--kubeconfig",
                               lib_fmt("%s/scheduler.kubeconfig", cluster.dir)));
    static_pod_start(lib_path("root"), lib_path(NODE_FILES_MANIFEST),
                     cluster_program("kube-scheduler"));
}

static char *run_install(const char *const *options)
{
    const char *argv[PROGRAM_ARGS] = {"--kubeconfig",
                                      lib_fmt("%s/admin.kubeconfig", cluster.dir)};
    program_args(argv, 2, options);
    return node_files_install(0, argv);
}

static void gets_card(const char *pod)
{
    cluster_create_pod(pod, 2, "", "");
    cluster_wait_running(pod);
    ck_assert(*lib_annotation(cluster_pod(pod), "ALIYUN_COM_GPU_MEM_IDX"));
}

static void set_families(bool both)
{
    network_set_ipv4(both);
    if (both)
        cluster_start_with("kube-apiserver",
                           ARGV("--bind-address", "::", "--service-cluster-ip-range",
                                "fd00:10:96::/112,10.96.0.0/16"));
    lib_wait(peer_status(&cluster.api, "/readyz") == 200);
    cluster_stop("kube-scheduler", "TERM");
    cluster_stop("gpushare-extender", "TERM");
}

TEST_LOOP(pods_get_cards, 2)
{
    set_families(_i);
    names[LEADER] = _i ? "leader-of-both" : "leader-of-ipv6";
    names[FOLLOWER] = _i ? "follower-of-both" : "follower-of-ipv6";
    start_replica(names[LEADER], &replicas[LEADER]);
    lib_wait(leads(&replicas[LEADER]));
    start_replica(names[FOLLOWER], &replicas[FOLLOWER]);
    array_items(replica, replicas)
        ck_assert_int_eq(answers_on_ipv4(replica), _i);
    cluster.extender = replicas[FOLLOWER];
    cluster_add_node("n1", "", CARDS(16384, 16384));

    const char *address = lib_fmt(_i ? "127.0.0.1:%u" : "[" NETWORK_POD "]:%u",
                                  replicas[FOLLOWER].verbs.port);
    make_node();
    const char *said = run_install(ARGV("--yes", "--address", address));
    ck_assert_contains(said, "kube-scheduler is healthy with the new files");
    said = run_install(ARGV("--check"));
    ck_assert_contains(said,
                       lib_fmt("ok      the extender answers at https://%s/", address));
    gets_card("forwarded");
    ck_assert_int_eq(forwarded(), 1);
    cluster_stop(names[LEADER], "KILL");
    gets_card("bound");
    ck_assert(leads(&replicas[FOLLOWER]));
    ck_assert_int_eq(forwarded(), 1);

    said = lib_output_of(
        2, "kubectl-inspect-gpushare",
        ARGV("--check", "--kubeconfig", lib_fmt("%s/admin.kubeconfig", cluster.dir)));
    ck_assert_contains(said, "! Service gpushare-schd-extender has no ready endpoint");
    ck_assert_contains(said, "\n1 difference; "); /* kwok runs no extender */
    static_pod_stop();
    cluster_stop(names[FOLLOWER], "TERM");
}

int main(void)
{
    setenv("E2E_LOOPBACK", "::1", 1);
    return cluster_run(120, ARGV("--nodes", "0"));
}
