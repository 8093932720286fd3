/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "e2e-node/cell.h"
#include "e2e-node/dns.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"
#include "e2e/service/relay.h"

/*
 * The cluster of `scripts/cluster up --managed`: a control plane whose files and programs are
 * in a cell, as those of a managed cluster are at its provider, and one node with cards. With
 * --kubeadm the node is that of the control plane as well, with the files of kubeadm.
 *
 *   e2e-managed DIR PORT [--kubeadm] OPTION...
 *
 * Imports the images DIR/images/X.tar on the node, and forwards 127.0.0.1:PORT of this machine
 * to kube-apiserver. Writes ca.crt, admin.crt and
 * admin.key to DIR/pki when the node is ready, and the link DIR/log/cluster to the logs of
 * all programs. OPTION: of `scripts/cluster up`. Serves until it is killed.
 *
 * The frame is that of a test, because the harness reports an error by failing one.
 */

/* As GPU Feature Discovery labels a node. */
#define LABELS "nvidia.com/gpu.present=true"

static struct {
    const char *dir;
    const char *const *up;
    bool kubeadm;
    int listener;
} managed;

/* -- the parts of the cluster -- */

/* It has the defaults of Kubernetes, and nobody can change that. */
static void start_scheduler(void)
{
    char *config = lib_fmt("%s/scheduler.kubeconfig", cluster.dir);
    cluster_add_program("default-scheduler",
                        ARGV(cluster_program("kube-scheduler"), "--kubeconfig", config,
                             "--leader-elect=false", "--authentication-kubeconfig",
                             config, "--authorization-kubeconfig", config));
}

/* runc, and what NVIDIA's runtime adds. */
static void write_runtime(void)
{
    temp_script(cell_dir(), "nvidia-runtime",
                lib_fmt("exec '%s' runc '%s' '%s' \"$@\"\n",
                        node_built("e2e-nvidia-runtime"), node_nvml(),
                        node_write_cards(NULL)));
    real_set_runtime(lib_fmt("%s/nvidia-runtime", cell_dir()));
}

static void import(void)
{
    struct err err = {0};
    for (const char *const *file = lib_glob(lib_fmt("%s/images/*.tar", managed.dir));
         *file; file++)
        ck_assert_done(real_import(*file, &err), err);
}

static void give(const char *name)
{
    char *path = lib_fmt("pki/%s", name);
    temp_write(managed.dir, path, cluster_file(path));
}

static void write_kubeconfig(const char *user, const char *name)
{
    temp_write(CELL_KUBERNETES, name,
               cluster_kubectl("config", "view", "--raw", "--flatten", "--kubeconfig",
                               lib_fmt("%s/%s.kubeconfig", cluster.dir, user)));
}

#define SYSTEM        "/api/v1/namespaces/kube-system/"
#define SCHEDULER_POD SYSTEM "pods/kube-scheduler-" NODE

/* kube-scheduler is a static pod of the node, and kubeadm's ConfigMap knows it. */
static void play_kubeadm(void)
{
    const char *release = cluster_release();
    cluster_stop("default-scheduler", "TERM");
    write_kubeconfig("admin", "admin.conf");
    write_kubeconfig("scheduler", "scheduler.conf");
    cluster_create(SYSTEM "configmaps",
                   "{\"metadata\":{\"name\":\"kubeadm-config\"},\"data\":{"
                   "\"ClusterConfiguration\":\"apiVersion: kubeadm.k8s.io/v1beta4\\n"
                   "kind: ClusterConfiguration\\nkubernetesVersion: v%s.0\\n"
                   "scheduler: {}\\n\"}}",
                   release);
    cluster_kubectl("label", "node", NODE, "node-role.kubernetes.io/control-plane=");
    temp_write(CELL_STATIC, "kube-scheduler.yaml",
               lib_file(lib_fmt("test/data/kubeadm/kube-scheduler-%s.yaml", release)));
    lib_wait(peer_status(&cluster.api, SCHEDULER_POD) == 200);
    cluster_kubectl("-n", "kube-system", "wait", "--for=condition=Ready", "--timeout=60s",
                    "pod/kube-scheduler-" NODE);
}

static int open_apiserver(void *ctx)
{
    (void)ctx;
    return relay_connect(cluster.api.port);
}

START_TEST(serve)
{
    struct err err = {0};
    ck_assert_msg(cell_why_not() == NULL, "%s", cell_why_not());
    ck_assert_int_eq(
        symlink(lib_fmt("%s/log", cluster.dir), lib_fmt("%s/log/cluster", managed.dir)),
        0);
    start_scheduler();
    write_runtime();
    dns_start();
    ck_assert_done(real_start(managed.kubeadm ? "" : LABELS, &err), err);
    ck_assert_done(real_start_proxy(&err), err);
    import();
    if (managed.kubeadm)
        play_kubeadm();
    give("ca.crt");
    give("admin.key");
    give("admin.crt"); /* the last one: scripts/cluster waits for it */
    relay_serve(managed.listener, open_apiserver, NULL);
}

static int suite(void)
{
    const TTest *const tests[] = {serve};
    if (cell_why_not()) {
        fprintf(stderr, "no containers on this machine: %s\n", cell_why_not());
        return EXIT_FAILURE;
    }
    cluster_keep_nodes();
    cluster_no_extender();
    return cluster_run("managed-node", tests, ARRAY_LEN(tests), 0, managed.up);
}

int main(int argc, char **argv)
{
    const char *up[32] = {"--empty", "--bare", "--address", CELL_ADDRESS};
    if (argc < 3 || (size_t)argc > ARRAY_LEN(up)) {
        fprintf(stderr, "usage: %s DIR PORT [--kubeadm] OPTION...\n", argv[0]);
        return 2;
    }
    managed.kubeadm = argc > 3 && strcmp(argv[3], "--kubeadm") == 0;
    for (int i = 3 + managed.kubeadm; i < argc; i++)
        up[i + 1 - managed.kubeadm] = argv[i];
    managed.dir = argv[1];
    managed.up = up;
    /* Before the cell has a network of its own. */
    managed.listener = relay_listen((unsigned)atoi(argv[2]));
    if (managed.listener < 0) {
        fprintf(stderr, "port %s: %s\n", argv[2], strerror(errno));
        return EXIT_FAILURE;
    }
    return cell_run(suite);
}
