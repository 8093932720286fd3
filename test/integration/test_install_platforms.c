/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/node_files.h"
#include "lib/sim.h"

/*
 * scripts/install on nodes of k3s, RKE2 and OpenShift: a folder with the files that the
 * documentation of each distribution names. The merging of settings is tested in
 * test/setup; no distribution runs here.
 */

#define K3S      "root/etc/rancher/k3s/config.yaml"
#define RKE2     "root/etc/rancher/rke2/config.yaml"
#define RKE2_POD "root/var/lib/rancher/rke2/agent/pod-manifests/kube-scheduler.yaml"

/* Writes a file and its folders. */
static void add(const char *name, const char *text)
{
    cleanup_free char *path = temp_path(lib_dir, name);
    for (char *at = strchr(path + strlen(lib_dir) + 1, '/'); at;
         at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(path, 0755);
        *at = '/';
    }
    if (text)
        temp_write(lib_dir, name, text);
    else
        mkdir(path, 0755);
}

static char *read_data(const char *path)
{
    struct buf b = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, &b, &err), err);
    return buf_take(&b);
}

/* A server after the installation scripts of k3s, with settings of its administrator. */
static void make_k3s(void)
{
    add("proc", NULL);
    add("root/var/lib/rancher/k3s/server/cred", NULL);
    add("root/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n");
    add("root/etc/systemd/system/k3s.service",
        "[Service]\n# --config is not used\nExecStartPre=/bin/sh -c "
        "true\nExecStart=/usr/local/bin/k3s \\\n    server "
        "\\\n"
        "\t'--write-kubeconfig-mode' \\\n\t'644' \\\n");
    add("root/etc/systemd/system/k3s.service.env", "K3S_TOKEN=secret\n");
    add(K3S, "# of the administrator\ntoken: \"secret\"   # keep\nkube-scheduler-arg:\n"
             "    - v=2\n");
    add(K3S ".d/10-labels.yaml", "node-label+: [tier=gpu]\n");
    add(K3S ".d/README.md", "not: [yaml\n");
    add(K3S ".d/old.yaml.bak", "kube-scheduler-arg: [config=/old]\n");
}

static void make_rke2(void)
{
    cleanup_free char *pod = read_data("test/data/rke2/kube-scheduler.yaml");
    add("proc", NULL);
    add("root/var/lib/rancher/rke2/server/cred", NULL);
    add(RKE2_POD, pod);
    add("root/usr/local/lib/systemd/system/rke2-server.service",
        "[Service]\nExecStart=/usr/local/bin/rke2 server -c "
        "/etc/rancher/rke2/config.yaml\n"
        "ExecStopPost=-/bin/sh -c \"systemd-cgls | grep -d\"\n");
    add(RKE2, "");
    add("root/etc/kubernetes/gpushare/ca.crt", "ca\n");
    add("root/etc/kubernetes/gpushare/client.crt", "crt\n");
    add("root/etc/kubernetes/gpushare/client.key", "key\n");
}

/* The output of a shell command, whose $0 is lib_dir. New. */
static char *shell(const char *command)
{
    struct program p;
    program_start(&p, lib_dir, ARGV("sh", "-c", command, lib_dir));
    return program_end(&p, 0);
}

/* All files of the node with their content and mode, without the backups. */
static char *node_state(void)
{
    return shell("cd \"$0/root\" && find . -path ./var/lib/gpushare-install -prune -o "
                 "-printf '%p %m %l\\n' -type f -exec cat {} + | sort");
}

static void ck_state(const char *before)
{
    cleanup_free char *now = node_state();
    ck_assert_str_eq(now, before);
}

static bool exists(const char *name)
{
    cleanup_free char *path = temp_path(lib_dir, name);
    return access(path, F_OK) == 0;
}

static char *install(int status, const char *option)
{
    return node_files_install(
        status, ARGV("--yes", "--no-cluster", "--without-extender", option));
}

/* A process of k3s that starts `from_now_s` seconds from now; it erases its arguments. */
static void add_k3s_process(int64_t from_now_s)
{
    struct timespec up;
    clock_gettime(CLOCK_BOOTTIME, &up);
    cleanup_free char *stat = xasprintf(
        NODE_FILES_PID " (k3s-server) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 "
                       "9 0 %" PRId64 " 1 1 1\n",
        (up.tv_sec + from_now_s) * sysconf(_SC_CLK_TCK));
    add("proc/" NODE_FILES_PID "/comm", "k3s-server\n");
    add("proc/" NODE_FILES_PID "/stat", stat);
    add("proc/" NODE_FILES_PID "/cmdline", "/usr/local/bin/k3s server");
}

/* The last installation was two hours ago: before a process of add_k3s_process(-3600). */
static void age_record(void)
{
    free(shell("touch -d '2 hours ago' \"$0\"/root/var/lib/gpushare-install/*Z/files"));
}

START_TEST(k3s_install_twice_and_undo)
{
    struct sim s;
    struct extender e;
    sim_start(&s, ARGV(NULL));
    extender_start(&e, &s, ARGV(NULL));
    cleanup_free char *address = xasprintf("127.0.0.1:%u", e.verbs.port);
    make_k3s();
    add_k3s_process(-3600);
    cleanup_free char *before = node_state();
    cleanup_free char *checked = node_files_check(1);
    ck_assert_contains(checked, "ok      a server of k3s; files with its settings: 2 ");
    ck_assert_contains(checked, "PROBLEM no-option: ");
    /* The settings are not shown: some are secrets. */
    cleanup_free char *asked =
        node_files_install(1, ARGV("--insecure", "--no-cluster", "--address", address));
    ck_assert_contains(asked, "+kube-scheduler-arg+:\n");
    ck_assert_ptr_null(strstr(asked, "secret"));
    cleanup_free char *said = node_files_install(
        1, ARGV("--insecure", "--yes", "--no-cluster", "--address", address));
    ck_assert_contains(said, "k3s must be restarted to use the files: systemctl restart");
    ck_assert_contains(said, "PROBLEM older-than-file: k3s (process " NODE_FILES_PID ")");
    cleanup_free char *config = temp_read(lib_dir, NODE_FILES_CONFIG);
    ck_assert_contains(
        config, "kubeconfig: /var/lib/rancher/k3s/server/cred/scheduler.kubeconfig");
    /* After the restart nothing is left to do. */
    add_k3s_process(3600);
    cleanup_free char *again =
        node_files_install(0, ARGV("--insecure", "--yes", "--no-cluster"));
    ck_assert_contains(again, "nothing to change");
    ck_assert_contains(again, "ok      the extender answers at ");
    /* Until the restart kube-scheduler reads the files. */
    add_k3s_process(-3600);
    age_record();
    cleanup_free char *undone = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(undone, "restored: ");
    ck_assert_contains(undone,
                       "k3s must be restarted to use the files: systemctl restart "
                       "k3s\n");
    ck_assert(!exists(K3S ".d/zz-gpushare.yaml"));
    ck_assert(exists(NODE_FILES_CONFIG));
    cleanup_free char *old = node_files_check(1);
    ck_assert_contains(old, "PROBLEM older-than-file: k3s (process " NODE_FILES_PID ")");
    cleanup_free char *early = node_files_install(3, ARGV("--undo"));
    ck_assert_contains(early, "k3s must be restarted");
    ck_assert(exists(NODE_FILES_CONFIG));
    /* An installation in between owns them again. */
    free(node_files_install(
        1, ARGV("--insecure", "--yes", "--no-cluster", "--address", address)));
    free(node_files_install(0, ARGV("--undo")));
    ck_assert(exists(NODE_FILES_CONFIG));
    add_k3s_process(3600);
    cleanup_free char *removed = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(removed, "removed: ");
    ck_state(before);
    cleanup_free char *none = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(none, "nothing to undo");
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(k3s_that_never_ran_with_the_files_needs_no_restart)
{
    make_k3s();
    add(K3S, "token: secret\n"); /* a file with arguments would be newer than k3s */
    add_k3s_process(-3600);
    cleanup_free char *before = node_state();
    cleanup_free char *said = install(1, "--insecure");
    ck_assert_contains(said, "systemctl restart k3s");
    cleanup_free char *undone = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(undone, "removed: ");
    ck_assert_contains(undone, "no restart is needed: kube-scheduler does not run with");
    ck_assert_ptr_null(strstr(undone, "systemctl"));
    ck_state(before);
    cleanup_free char *none = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(none, "nothing to undo");
}
END_TEST

/* kube-scheduler may run as another user than root. */
START_TEST(a_strict_umask_hides_no_file)
{
    static const char *const made[] = {"root/etc/rancher", "root/etc/rancher/rke2",
                                       RKE2 ".d", RKE2 ".d/zz-gpushare.yaml",
                                       NODE_FILES_CONFIG};
    make_rke2();
    static const char *const absent[] = {RKE2, "root/etc/rancher/rke2",
                                         "root/etc/rancher"};
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        cleanup_free char *path = temp_path(lib_dir, absent[i]);
        ck_assert_int_eq(remove(path), 0);
    }
    mode_t old = umask(077);
    free(install(1, "--insecure"));
    umask(old);
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        struct stat st;
        cleanup_free char *path = temp_path(lib_dir, made[i]);
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_msg((st.st_mode & 044) == 044, "%s: mode %o", made[i], st.st_mode);
    }
}
END_TEST

START_TEST(rke2_gets_the_mount_of_the_certificate)
{
    make_rke2();
    cleanup_free char *before = node_state();
    cleanup_free char *said = install(1, NULL);
    ck_assert_contains(said, "+kube-scheduler-extra-mount+:\n"
                             "+- /etc/kubernetes/gpushare:/etc/kubernetes/gpushare:ro\n");
    ck_assert_contains(said, "RKE2 must be restarted to use the files: systemctl restart "
                             "rke2-server");
    ck_assert_contains(said, "PROBLEM not-applied: the static pod of RKE2, ");
    cleanup_free char *again = install(1, NULL);
    ck_assert_contains(again, "nothing to change");
    cleanup_free char *undone = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(undone, "restored: ");
    ck_assert_contains(undone, "no restart is needed: kube-scheduler does not run with");
    ck_assert_ptr_null(strstr(undone, "systemctl"));
    ck_state(before);
}
END_TEST

/* Writes the static pod that rke2-server makes of the settings of an installation. */
static void apply_to_rke2(const char *old)
{
    cleanup_free char *pod =
        node_files_swap(xstrdup(old), "    - --profiling=false\n",
                        "    - --profiling=false\n    - " NODE_FILES_OPTION "\n");
    add(RKE2_POD, pod);
}

/* RKE2 runs with the files of an installation that --undo has begun to take back. Returns
 * the node's state, new. */
static char *leave_undo(const char *old)
{
    free(install(1, "--insecure"));
    apply_to_rke2(old);
    free(node_files_install(0, ARGV("--undo")));
    ck_assert(exists(NODE_FILES_CONFIG));
    return node_state();
}

/* kube-scheduler, which still reads the files of an installation that --undo has begun to
 * take back, is not healthy with those of the next one. */
START_TEST(a_failed_installation_keeps_what_the_last_undo_left)
{
    make_rke2();
    cleanup_free char *before = node_state(), *old = temp_read(lib_dir, RKE2_POD),
                      *left = leave_undo(old);
    static const char *const others[] = {"127.0.0.1:32766", "127.0.0.2:32766"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        cleanup_free char *said = node_files_install(
            3, ARGV("--yes", "--no-cluster", "--without-extender", "--insecure",
                    "--address", others[i], "--wait", "1"));
        ck_assert_contains(said, "restoring the previous files");
        ck_state(left);
        cleanup_free char *early = node_files_install(3, ARGV("--undo"));
        ck_assert_contains(early, "systemctl restart rke2-server\n");
    }
    add(RKE2_POD, old);
    cleanup_free char *removed = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(removed, "removed: ");
    ck_state(before);
}
END_TEST

/* A mv for PATH that sends SIGTERM to scripts/install once the folder of the last undo is
 * moved. */
static void make_mv(void)
{
    cleanup_free char *bin = temp_path(lib_dir, "bin"),
                      *path = xasprintf("%s:%s", bin, getenv("PATH"));
    temp_mkdir(lib_dir, "bin");
    temp_script(lib_dir, "bin/mv",
                "/bin/mv \"$@\" || exit\n"
                "case \"$*\" in */undone\\ */undone) kill -TERM $PPID ;; esac\n");
    ck_assert_int_eq(setenv("PATH", path, 1), 0);
}

START_TEST(a_signal_keeps_what_the_last_undo_left)
{
    make_rke2();
    cleanup_free char *old = temp_read(lib_dir, RKE2_POD),
                      *path = xstrdup(getenv("PATH")), *left = leave_undo(old);
    make_mv();
    cleanup_free char *said = node_files_install(
        3, ARGV("--yes", "--no-cluster", "--without-extender", "--insecure", "--address",
                "127.0.0.2:32766", "--wait", "1"));
    setenv("PATH", path, 1);
    ck_assert_contains(said, "interrupted; restoring the previous files");
    ck_state(left);
    cleanup_free char *early = node_files_install(3, ARGV("--undo"));
    ck_assert_contains(early, "systemctl restart rke2-server\n");
}
END_TEST

/* k3s was restarted after --undo; what a roll back puts back is as old as before. */
START_TEST(a_roll_back_does_not_renew_the_last_undo)
{
    make_k3s();
    add(K3S, "token: secret\n"); /* a file with arguments would be newer than k3s */
    free(install(1, "--insecure"));
    add_k3s_process(-3600);
    age_record();
    free(node_files_install(0, ARGV("--undo")));
    ck_assert(exists(NODE_FILES_CONFIG));
    add_k3s_process(-600);
    free(shell("cd \"$0\"/root/var/lib/gpushare-install && touch -d '20 minutes ago' "
               "undone && mkdir x && mv undone x && mv x/undone ."));
    cleanup_free char *checked = node_files_check(1);
    ck_assert_ptr_null(strstr(checked, "older-than-file"));
    cleanup_free char *removed = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(removed, "removed: ");
    ck_assert(!exists(NODE_FILES_CONFIG));
}
END_TEST

/* The static pod of RKE2 names the files until rke2-server starts again. */
START_TEST(rke2_keeps_the_files_until_the_restart)
{
    make_rke2();
    cleanup_free char *before = node_state(), *old = temp_read(lib_dir, RKE2_POD);
    free(install(1, "--insecure"));
    apply_to_rke2(old);
    cleanup_free char *undone = node_files_install(0, ARGV("--undo"));
    ck_assert_contains(undone, "systemctl restart rke2-server\n");
    ck_assert(exists(NODE_FILES_CONFIG));
    cleanup_free char *checked = node_files_check(1);
    ck_assert_contains(checked, "PROBLEM not-applied: ");
    /* Of a user's own file only the mount is left. */
    cleanup_free char *mount = node_files_swap(
        xstrdup(old), "    volumeMounts:\n",
        "    volumeMounts:\n    - {mountPath: /etc/kubernetes/gpushare, name: ours}\n");
    mount = node_files_swap(mount, "  volumes:\n",
                            "  volumes:\n  - {name: ours, hostPath: {path: "
                            "/etc/kubernetes/gpushare}}\n");
    add(RKE2_POD, mount);
    cleanup_free char *early = node_files_install(3, ARGV("--undo"));
    ck_assert_contains(early, "systemctl restart rke2-server\n");
    add(RKE2_POD, old);
    free(node_files_install(0, ARGV("--undo")));
    ck_state(before);
}
END_TEST

START_TEST(openshift_stays_as_it_is)
{
    static const char command[] = "helm install gpushare manifests/chart -n gpushare "
                                  "--create-namespace --set platform=openshift";
    cleanup_free char *pod = read_data("test/data/openshift/kube-scheduler-pod.yaml");
    add("proc", NULL);
    add("root/etc/kubernetes/static-pod-resources/kube-scheduler-pod-7", NULL);
    add("root/etc/kubernetes/manifests/kube-scheduler-pod.yaml", pod);
    cleanup_free char *before = node_state();
    cleanup_free char *checked = node_files_check(0);
    ck_assert_contains(checked, "note    OpenShift: ");
    ck_assert_contains(checked, command);
    cleanup_free char *said = install(3, NULL);
    ck_assert_contains(said, command);
    ck_state(before);
    /* A worker node has no static pods, but Red Hat CoreOS names its OpenShift. */
    temp_remove(lib_dir, "root/etc/kubernetes/manifests/kube-scheduler-pod.yaml");
    cleanup_free char *folder =
        temp_path(lib_dir, "root/etc/kubernetes/static-pod-resources");
    cleanup_free char *elsewhere = temp_path(lib_dir, "root/elsewhere");
    ck_assert_int_eq(rename(folder, elsewhere), 0);
    add("root/etc/os-release", "ID=\"rhcos\"\nOPENSHIFT_VERSION=\"4.20\"\n");
    cleanup_free char *worker = node_files_check(0);
    ck_assert_contains(worker, command);
}
END_TEST

START_TEST(other_nodes)
{
    /* An agent of k3s. */
    add("proc", NULL);
    add(K3S, "server: https://10.0.0.1:6443\n");
    add("root/var/lib/rancher/k3s/agent", NULL);
    cleanup_free char *agent = node_files_check(0);
    ck_assert_contains(agent, "note    a node of k3s without a control plane");
    cleanup_free char *refused = install(3, NULL);
    ck_assert_contains(refused, "runs no kube-scheduler");
    /* What is left of k3s on a node of kubeadm. */
    node_files_make(0);
    cleanup_free char *kubeadm = node_files_check(1);
    ck_assert_contains(kubeadm, "etc/kubernetes/manifests/kube-scheduler.yaml");
    ck_assert_ptr_null(strstr(kubeadm, "k3s"));
    /* What is left of OpenShift. */
    add("root/etc/kubernetes/static-pod-resources", NULL);
    cleanup_free char *again = node_files_check(1);
    ck_assert_contains(again, "etc/kubernetes/manifests/kube-scheduler.yaml");
    ck_assert_ptr_null(strstr(again, "OpenShift"));
}
END_TEST

START_TEST(options_of_the_service)
{
    static const struct {
        const char *path, *text, *want;
    } cases[] = {{"root/etc/systemd/system/k3s.service",
                  "ExecStart=/usr/local/bin/k3s \\\n  server "
                  "\\\n\t'--kube-scheduler-arg=v=9' \\\n",
                  "k3s.service: --kube-scheduler-arg is set beside"},
                 {"root/etc/systemd/system/k3s.service.env",
                  "K3S_CONFIG_FILE=/opt/s3cret\n",
                  "k3s.service.env: K3S_CONFIG_FILE is set beside"},
                 {"root/etc/systemd/system/k3s.service.d/override.conf",
                  "[Service]\nExecStart=\nExecStart=/usr/local/bin/k3s server -c "
                  "\"/opt/s3cret\"\n",
                  "override.conf: -c is set beside"},
                 {"root/etc/systemd/system/k3s.service.d/variables.conf",
                  "[Service]\nEnvironment=K3S_DATA_DIR=/s3cret\n",
                  "variables.conf: K3S_DATA_DIR is set beside"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_k3s();
        add(cases[i].path, cases[i].text);
        cleanup_free char *checked = node_files_check(1);
        ck_assert_contains(checked, "unknown service-option: ");
        ck_assert_contains(checked, cases[i].want);
        ck_assert_ptr_null(strstr(checked, "s3cret"));
        cleanup_free char *before = node_state();
        cleanup_free char *said = install(3, "--insecure");
        ck_assert_contains(said, "takes precedence over");
        ck_state(before);
        temp_write(lib_dir, cases[i].path, "");
    }
}
END_TEST

/* Links and pipes neither block nor are followed for writing; what k3s could not read is
 * reported. */
START_TEST(odd_files)
{
    make_k3s();
    cleanup_free char *pipe = temp_path(lib_dir, K3S ".d/20-pipe.yaml");
    cleanup_free char *dropin = temp_path(lib_dir, K3S ".d/zz-gpushare.yaml");
    cleanup_free char *other = temp_path(lib_dir, "other.yaml");
    add(K3S ".d/folder.yaml", NULL);
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    cleanup_free char *piped = node_files_check(1);
    ck_assert_contains(piped, "PROBLEM settings-malformed: ");
    ck_assert_contains(piped, "is not a regular file");
    ck_assert_int_eq(unlink(pipe), 0);
    /* A user's file may be a link: it is only read. */
    add("other.yaml", "kube-scheduler-arg+: [vmodule=x=1]\n");
    cleanup_free char *linked = temp_path(lib_dir, K3S ".d/30-link.yaml");
    ck_assert_int_eq(symlink(other, linked), 0);
    ck_assert_int_eq(symlink(linked, dropin), 0);
    cleanup_free char *before = node_state();
    cleanup_free char *said = install(3, "--insecure");
    ck_assert_contains(said, "zz-gpushare.yaml was edited");
    ck_assert_int_eq(unlink(dropin), 0);
    ck_assert_int_eq(symlink("/nowhere", dropin), 0);
    cleanup_free char *dangling = install(3, "--insecure");
    ck_assert_contains(dangling, "zz-gpushare.yaml");
    ck_assert_int_eq(unlink(dropin), 0);
    ck_assert_int_eq(symlink(linked, dropin), 0);
    ck_state(before);
    /* A file that is read later, and one that cannot be parsed. */
    ck_assert_int_eq(unlink(dropin), 0);
    add(K3S ".d/zzz.yaml", "kube-scheduler-arg: [v=3]\n");
    cleanup_free char *later = install(3, "--insecure");
    ck_assert_contains(later, "zzz.yaml is read after");
    add(K3S ".d/zzz.yaml", "a: &a [*a]\x1b[2J\n");
    cleanup_free char *malformed = node_files_check(1);
    ck_assert_contains(malformed, "PROBLEM settings-malformed: ");
    ck_assert_ptr_null(strchr(malformed, '\x1b'));
    cleanup_free char *refused = install(3, "--insecure");
    ck_assert_contains(refused, "zzz.yaml");
}
END_TEST

LIB_MAIN("install_platforms", 120, k3s_install_twice_and_undo,
         k3s_that_never_ran_with_the_files_needs_no_restart, a_strict_umask_hides_no_file,
         rke2_gets_the_mount_of_the_certificate,
         a_failed_installation_keeps_what_the_last_undo_left,
         a_signal_keeps_what_the_last_undo_left, a_roll_back_does_not_renew_the_last_undo,
         rke2_keeps_the_files_until_the_restart, openshift_stays_as_it_is, other_nodes,
         options_of_the_service, odd_files)
