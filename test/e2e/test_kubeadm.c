/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "e2e/staticpod.h"
#include "lib/cluster.h"
#include "lib/node_files.h"
#include "lib/yamlfile.h"

/*
 * `kubeadm upgrade` writes kube-scheduler's static pod from ConfigMap kubeadm-config. The
 * real kubeadm stores the ConfigMap, scripts/install changes both, and kubeadm writes the
 * static pod again for the folder of a node: kube-scheduler gets the same, and runs.
 */

#define FOLDER "root/etc/kubernetes/"

static char *run_install(int status, const char *option)
{
    const char *address = lib_fmt("127.0.0.1:%u", cluster.extender.verbs.port);
    return node_files_install(status, ARGV(option, "--address", address, "--kubeconfig",
                                           lib_fmt("%s/admin.kubeconfig", cluster.dir)));
}

/* Runs `kubeadm init phase` with root/FILE. */
static void run_kubeadm(const char *file, const char *const *phase)
{
    const char *argv[PROGRAM_ARGS] = {cluster_program("kubeadm"), "init", "phase"};
    size_t n = program_args(argv, 3, phase);
    program_args(argv, n, ARGV("--config", file));
    lib_output(0, argv);
}

/* kubeadm writes the ConfigMap, in its own order. */
static void upload(const char *file)
{
    run_kubeadm(lib_path(file), ARGV("upload-config", "kubeadm", "--kubeconfig",
                                     lib_fmt("%s/admin.kubeconfig", cluster.dir)));
}

static char *stored(void)
{
    return lib_fmt(
        "%s", lib_str(peer_get(&cluster.api, "/api/v1/namespaces/kube-system/configmaps/"
                                             "kubeadm-config"),
                      "data.ClusterConfiguration"));
}

/* The static pod that kubeadm writes from this ClusterConfiguration, in a chroot. */
static const char *write_pod(const char *configuration)
{
    lib_output(0, ARGV("mkdir", "-p", lib_path("new")));
    temp_write(lib_dir, "new/new.yaml", configuration);
    run_kubeadm("/new.yaml",
                ARGV("control-plane", "scheduler", "--rootfs", lib_path("new")));
    const char *pod = lib_read("new/etc/kubernetes/manifests/kube-scheduler.yaml");
    temp_write(lib_dir, NODE_FILES_MANIFEST, pod);
    return pod;
}

/* Lists of the same elements. */
static void expect_same_list(const json_t *a, const json_t *b, const char *path)
{
    json_t *x, *y;
    ck_assert_uint_eq(lib_size(a, path), lib_size(b, path));
    lib_each(x, lib_at(a, path)) {
        bool found = false;
        lib_each(y, lib_at(b, path))
            found |= json_equal(x, y);
        ck_assert_msg(found, "%s: kubeadm does not write %s", path, lib_text(x, ""));
    }
}

/* kubeadm may order arguments, mounts and volumes in another way. */
static void expect_same_pod(const json_t *ours, const json_t *kubeadms)
{
    static const struct {
        const char *at, *list;
    } lists[] = {{"spec.containers.0", "command"},
                 {"spec.containers.0", "volumeMounts"},
                 {"spec", "volumes"}};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        expect_same_list(lib_at(ours, lists[i].at), lib_at(kubeadms, lists[i].at),
                         lists[i].list);
        json_object_del(lib_at(ours, lists[i].at), lists[i].list);
        json_object_del(lib_at(kubeadms, lists[i].at), lists[i].list);
    }
    ck_assert_str_eq(lib_text(ours, ""), lib_text(kubeadms, ""));
}

/* What `init` stores, with settings of the user for kube-scheduler. */
static void make_node(const char *scheduler)
{
    node_files_make(cluster_release(), 0);
    ck_assert(rmdir(lib_path("root/proc")) == 0 &&
              symlink("/proc", lib_path("root/proc")) == 0);
    temp_write(lib_dir, FOLDER "scheduler.conf",
               cluster_kubectl("config", "view", "--raw", "--flatten", "--kubeconfig",
                               lib_fmt("%s/scheduler.kubeconfig", cluster.dir)));
    const char *defaults = lib_output(
        0, ARGV(cluster_program("kubeadm"), "config", "print", "init-defaults"));
    temp_write(lib_dir, "init.yaml", lib_swap(defaults, "scheduler: {}\n", scheduler));
    upload("init.yaml");
}

static unsigned free_port(void)
{
    const char *port = lib_output(
        0, ARGV("bash", "-c",
                "while :; do p=$((10000 + SRANDOM % 20000)); "
                "! (: </dev/tcp/127.0.0.1/$p) 2>/dev/null && break; done; echo $p"));
    return (unsigned)strtoul(port, NULL, 10);
}

static bool gets_card(const char *pod)
{
    cluster_create_pod(pod, 2, "", "");
    cluster_wait_running(pod);
    return *lib_annotation(cluster_pod(pod), "ALIYUN_COM_GPU_MEM_IDX");
}

START_TEST(an_upgrade_keeps_the_extender)
{
    cluster_stop("kube-scheduler", "TERM");
    cluster_start_with("gpushare-extender", ARGV("--insecure=off"));
    lib_wait(peer_status(&cluster.api, "/api/v1/namespaces/kube-system/secrets/"
                                       "gpushare-scheduler-tls") == 200);
    extender_connect_secret(&cluster.extender, &cluster.api, "kube-system", true);
    extender_wait_answers(&cluster.extender);
    cluster_add_node("n1", "", CARDS(16384, 16384));
    lib_output(0, ARGV("mkdir", "-p", lib_path("root/var/log/pods")));
    make_node(lib_fmt("scheduler:\n  extraArgs:\n  - name: secure-port\n"
                      "    value: \"%u\"\n"
                      "  extraVolumes:\n  - hostPath: /var/log/pods\n"
                      "    mountPath: /logs\n    name: logs\n    pathType: Directory\n",
                      free_port()));
    const char *was = stored(), *before = write_pod(was);
    static_pod_start(lib_path("root"), lib_path(NODE_FILES_MANIFEST),
                     cluster_program("kube-scheduler"));
    ck_assert(!gets_card("before"));

    run_install(0, "--yes");
    const char *said = NULL;
    ck_assert_str_ne(lib_read(NODE_FILES_MANIFEST), before);
    json_t *ours = yamlfile_one(lib_path(NODE_FILES_MANIFEST));
    write_pod(stored());
    upload("new/new.yaml");
    expect_same_pod(ours, yamlfile_one(lib_path(NODE_FILES_MANIFEST)));
    lib_wait_saying((said = run_install(-1, "--check"), !strstr(said, "PROBLEM")), "%s",
                    said);
    ck_assert(gets_card("after"));
    ck_assert_contains(run_install(0, "--yes"), "nothing to change");

    /* Of the files that kubeadm wrote. */
    ck_assert_contains(run_install(0, "--undo"), "on every control plane node");
    ck_assert_str_eq(lib_read(NODE_FILES_MANIFEST), before);
    ck_assert_str_eq(stored(), was);
    ck_assert_str_eq(write_pod(stored()), before);
    static_pod_stop();
}

CLUSTER_MAIN("kubeadm", 300, ARGV("--nodes", "0"), an_upgrade_keeps_the_extender)
