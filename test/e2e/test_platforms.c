/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/expect.h"
#include "lib/install_node.h"
#include "lib/node_files.h"
#include "lib/staticpod.h"

/*
 * scripts/install on servers of RKE2 and k3s, with the real API server, kube-scheduler and
 * extender: pods get no card before, one after, and none after --undo. The two
 * distributions do not run: restart() plays what they do with their settings when they
 * start.
 */

#define SETTINGS   "etc/rancher/%s/config.yaml"
#define DROPIN     SETTINGS ".d/zz-gpushare.yaml"
#define KUBECONFIG "var/lib/rancher/%s/server/cred/scheduler.kubeconfig"
#define RKE2_POD   "var/lib/rancher/rke2/agent/pod-manifests/kube-scheduler.yaml"
#define K3S_POD    "k3s.yaml" /* only of this test: the arguments of its kube-scheduler */

static const char *distribution; /* "rke2", "k3s" */
static unsigned port;            /* of kube-scheduler */
static int restarts;

static char *path_of(const char *format)
{
    struct span rest = span_of(format), before = span_cut(&rest, '%');
    return xasprintf("%.*s%s%s", SPAN_ARG(before), distribution, rest.p + 1);
}

static void write_file(const char *path, const char *text)
{
    cleanup_free char *full = temp_path(install_node_root, path);
    cleanup_free char *folder = xasprintf("%.*s", (int)(strrchr(full, '/') - full), full);
    free(install_node_command(0, ARGV("mkdir", "-p", folder)));
    temp_write(install_node_root, path, text);
}

static void make_server(void)
{
    cleanup_free char *from = temp_path(cluster.dir, "scheduler.kubeconfig");
    cleanup_free char *kubeconfig = install_node_command(
        0, ARGV("kubectl", "config", "view", "--raw", "--flatten", "--kubeconfig", from));
    cleanup_free char *settings =
        xasprintf("# of the user\ntoken: secret\nkube-scheduler-arg: secure-port=%u\n",
                  port = install_node_port());
    cleanup_free char *credentials = path_of(KUBECONFIG), *file = path_of(SETTINGS);
    install_node_root = xasprintf("%s/%s", lib_dir, distribution);
    write_file(credentials, kubeconfig);
    write_file(file, settings);
}

/* The item of our file that begins with `from`, or "". New. */
static char *item(const char *from)
{
    cleanup_free char *path = path_of(DROPIN);
    cleanup_free char *full = temp_path(install_node_root, path);
    cleanup_free char *text =
        install_node_command(-1, ARGV("sh", "-c", "cat \"$0\" 2>&-", full));
    const char *at = strstr(text, from);
    return at ? xasprintf("%.*s", (int)strcspn(at + 2, "\n"), at + 2) : xstrdup("");
}

/* What rke2-server writes: test/data/rke2 with the arguments and mounts of the settings. */
static char *rke2_pod(const char *config, const char *mount)
{
    cleanup_free char *secure = xasprintf("--secure-port=%u", port);
    cleanup_free char *option = xasprintf("    - --%s\n    command:\n", config);
    char *pod =
        install_node_command(0, ARGV("cat", "test/data/rke2/kube-scheduler.yaml"));
    pod = node_files_swap(pod, "--secure-port=10259", secure);
    if (*config)
        pod = node_files_swap(pod, "    command:\n", option);
    cleanup_free char *mounts = xasprintf(
        "    volumeMounts:\n%s%s",
        *config ? "    - mountPath: /etc/kubernetes/kube-scheduler-config.yaml\n"
                  "      name: file1\n"
                : "",
        *mount ? "    - mountPath: /etc/kubernetes/gpushare\n      name: extra-mount-0\n"
               : "");
    cleanup_free char *volumes = xasprintf(
        "  volumes:\n%s%s",
        *config
            ? "  - hostPath:\n      path: /etc/kubernetes/kube-scheduler-config.yaml\n"
              "    name: file1\n"
            : "",
        *mount ? "  - hostPath:\n      path: /etc/kubernetes/gpushare\n    name: "
                 "extra-mount-0\n"
               : "");
    pod = node_files_swap(pod, "    volumeMounts:\n", mounts);
    return node_files_swap(pod, "  volumes:\n", volumes);
}

/* The process of k3s sees the node's own files. */
static char *k3s_pod(const char *config)
{
    cleanup_free char *kubeconfig = path_of(KUBECONFIG);
    return xasprintf(
        "spec:\n  containers:\n  - command:\n    - k3s-server\n"
        "    - --authentication-kubeconfig=/%s\n"
        "    - --authorization-kubeconfig=/%s\n    - --kubeconfig=/%s\n"
        "    - --bind-address=127.0.0.1\n    - --leader-elect=false\n"
        "    - --profiling=false\n    - --secure-port=%u\n%s%s\n"
        "    volumeMounts:\n"
        "    - {name: a, mountPath: /etc/kubernetes}\n"
        "    - {name: b, mountPath: /var/lib/rancher/k3s/server/cred}\n"
        "  volumes:\n"
        "  - {name: a, hostPath: {path: /etc/kubernetes}}\n"
        "  - {name: b, hostPath: {path: /var/lib/rancher/k3s/server/cred}}\n",
        kubeconfig, kubeconfig, kubeconfig, port, *config ? "    - --" : "", config);
}

static void restart(void)
{
    bool rke2 = !strcmp(distribution, "rke2");
    cleanup_free char *config = item("- config="), *mount = item("- /etc/kubernetes");
    cleanup_free char *pod = rke2 ? rke2_pod(config, mount) : k3s_pod(config);
    cleanup_free char *text = xasprintf("# %d\n%s", restarts++, pod);
    write_file(rke2 ? RKE2_POD : K3S_POD, text);
}

/* Does kube-scheduler run with the files of now? The one of before ends a moment later. */
static bool runs_with_the_files(void)
{
    cleanup_free char *said = install_node_run(-1, ARGV("--check", "--no-cluster"));
    return strstr(said, " runs with the ") != NULL;
}

static void try_pod(const char *name, bool card)
{
    cluster_create_pod(name, 2, "", "");
    cluster_wait_running(name);
    ck_assert_int_eq(install_node_has_card(name), card);
}

/* kube-scheduler with the base name `name`: k3s runs it in a process of its own name. */
static char *program_as(const char *name)
{
    cleanup_free char *programs = temp_read(cluster.dir, "run/programs");
    cleanup_free char *from =
        xasprintf("%.*s/kube-scheduler", (int)strcspn(programs, "\n"), programs);
    char *to = temp_path(lib_dir, name);
    free(install_node_command(
        0, ARGV("sh", "-c", "ln \"$0\" \"$1\" || cp \"$0\" \"$1\"", from, to)));
    return to;
}

static void check_server(const char *program, const char *manifest, const char *before)
{
    cleanup_free char *binary = program_as(program);
    cleanup_free char *address = xasprintf("127.0.0.1:%u", cluster.extender.verbs.port);
    cluster_stop("kube-scheduler", "TERM");
    cluster_start_with("gpushare-extender", ARGV("--insecure=off"));
    lib_wait(install_node_has_secret());
    install_node_connect(true);
    extender_wait_answers(&cluster.extender);
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    make_server();
    cleanup_free char *file = path_of(SETTINGS);
    cleanup_free char *settings = temp_read(install_node_root, file);
    restart();
    struct static_pod *runs = static_pod_start(install_node_root, manifest, binary);
    lib_wait(runs_with_the_files());
    try_pod("before", false);
    cleanup_free char *found = install_node_run(1, ARGV("--check"));
    ck_assert_contains(found, "PROBLEM no-option: ");

    char *done = NULL; /* the extender may not be ready yet */
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    do {
        ck_assert_msg(lib_now_ms() < end, "never ready: %s", done ? done : "");
        free(done);
        done = install_node_run(-1, ARGV("--yes", "--address", address));
    } while (strstr(done, "not-ready") || strstr(done, "refused: "));
    ck_assert_contains(done, "must be restarted to use the files: systemctl restart");
    ck_assert_contains(done, before);
    free(done);
    restart();
    install_node_wait_clean();
    try_pod("after", true);
    cleanup_free char *again = install_node_run(0, ARGV("--yes"));
    ck_assert_contains(again, "nothing to change");

    cleanup_free char *undone = install_node_run(0, ARGV("--undo"));
    ck_assert_contains(undone, "must be restarted");
    cleanup_free char *early = install_node_run(3, ARGV("--undo"));
    ck_assert_contains(early, "must be restarted");
    restart();
    lib_wait(runs_with_the_files());
    try_pod("last", false);
    cleanup_free char *removed = install_node_run(0, ARGV("--undo"));
    ck_assert_contains(removed, "removed: ");
    cleanup_free char *same = temp_read(install_node_root, file);
    ck_assert_str_eq(same, settings);
    static_pod_stop(runs);
    free(install_node_root);
    install_node_root = NULL;
}

START_TEST(a_server_of_rke2)
{
    distribution = "rke2";
    check_server("kube-scheduler", RKE2_POD, "PROBLEM not-applied: ");
}
END_TEST

START_TEST(a_server_of_k3s)
{
    distribution = "k3s";
    check_server("k3s-server", K3S_POD, "PROBLEM older-than-file: k3s ");
}
END_TEST

CLUSTER_MAIN("platforms", 300, ARGV("--nodes", "0"), a_server_of_rke2, a_server_of_k3s)
