/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/staticpod.h"
#include "lib/cluster.h"
#include "lib/network.h"
#include "lib/node_files.h"

/*
 * The extender makes its own certificates, and only kube-scheduler's opens the verbs.
 * scripts/install on a node with the files of kubeadm, whose kube-scheduler is really run
 * as its manifest says, with the real API server and extender: pods get no card before,
 * and get one after; and --check names what was broken since.
 */

#define SECRET "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls"

static char *run_install(int status, const char *const *options)
{
    const char *argv[PROGRAM_ARGS] = {"--kubeconfig",
                                      lib_fmt("%s/admin.kubeconfig", cluster.dir)};
    program_args(argv, 2, options);
    return node_files_install(status, argv);
}

static char *check(void)
{
    return run_install(-1, ARGV("--check"));
}

static bool has_card(const char *pod)
{
    return *lib_annotation(cluster_pod(pod), "ALIYUN_COM_GPU_MEM_IDX");
}

/* The kubelet applies changes a moment later. */
static void wait_clean(void)
{
    const char *said;
    lib_wait_saying(
        (said = check(), !strstr(said, "PROBLEM") && !strstr(said, "unknown ")),
        "never clean: %s", said);
}

/* Waits until --check reports the problem; returns its output, kept. */
static const char *expect_found(const char *id)
{
    const char *said;
    lib_wait_saying((said = check(), strstr(said, lib_fmt("PROBLEM %s: ", id))),
                    "never %s: %s", id, said);
    return said;
}

static void connect_as(bool kube_scheduler)
{
    extender_connect_secret(&cluster.extender, &cluster.api, "kube-system",
                            kube_scheduler);
}

/* A kubeconfig as kubeadm makes it, with the keys inside, and the manifest of this
 * release. */
static void make_node(void)
{
    const char *port = lib_output(
        0, ARGV("bash", "-c",
                "while :; do p=$((10000 + SRANDOM % 20000)); "
                "! (: </dev/tcp/127.0.0.1/$p) 2>/dev/null && break; done; echo $p"));
    node_files_make(cluster_release(), (unsigned)strtoul(port, NULL, 10));
    const char *proc = lib_path("root/proc");
    ck_assert(rmdir(proc) == 0 && symlink("/proc", proc) == 0);
    temp_write(lib_dir, "root/etc/kubernetes/scheduler.conf",
               cluster_kubectl("config", "view", "--raw", "--flatten", "--kubeconfig",
                               lib_fmt("%s/scheduler.kubeconfig", cluster.dir)));
}

/* Creates a pod and waits until it runs. With a card? */
static bool gets_card(const char *pod)
{
    cluster_create_pod(pod, 2, "", "");
    cluster_wait_running(pod);
    return has_card(pod);
}

/* -- the extender with certificates -- */

static void start_extender(void)
{
    cluster_start_with("gpushare-extender", ARGV("--insecure=off"));
}

static void check_unauthenticated(void)
{
    const struct peer *verbs = &cluster.extender.verbs;
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, "unknown", 1, ARGV("n1"));
    connect_as(false);
    ck_assert_uint_eq(
        peer_call(verbs, "POST", "/gpushare-scheduler/filter", body.p, &reply), 401);
    ck_assert_uint_eq(peer_call(verbs, "POST", "/gpushare-scheduler/bind", "{}", &reply),
                      401);
    ck_assert_uint_eq(peer_status(verbs, "/healthz"), 200);
    ck_assert_uint_eq(peer_status(verbs, "/version"), 200);
    connect_as(true);
    peer_do(verbs, "POST", "/gpushare-scheduler/filter", body.p);
}

/* A node of an earlier release: plain HTTP, and no certificate. */
static void upgrade_from_http(void)
{
    temp_write(lib_dir, NODE_FILES_CONFIG,
               node_files_without_tls(lib_read(NODE_FILES_CONFIG)));
    lib_edit(NODE_FILES_MANIFEST,
             "    - mountPath: /etc/kubernetes/gpushare\n      name: "
             "gpushare-scheduler-tls\n      readOnly: true\n",
             "");
    lib_edit(NODE_FILES_MANIFEST,
             "  - hostPath:\n      path: /etc/kubernetes/gpushare\n      type: "
             "Directory\n    name: gpushare-scheduler-tls\n",
             "");
    lib_output(0, ARGV("rm", "-r", lib_path("root/etc/kubernetes/gpushare")));
    expect_found("no-answer");
    cluster_create_pod("plain", 2, "", "");
    cluster_wait_refused("plain", "");
    /* The pod's last error may still stand. */
    ck_assert_contains(run_install(-1, ARGV("--yes")),
                       "ok      the extender answers at https://");
    cluster_wait_running("plain");
    ck_assert(has_card("plain"));
    wait_clean();
}

/* The leader makes another certificate; the node copies it. */
static void renew(void)
{
    cluster_delete(SECRET);
    lib_wait(peer_status(&cluster.api, SECRET) == 200);
    const char *said = run_install(0, ARGV("--renew"));
    ck_assert_contains(said, "renewed: ");
    ck_assert_lacks(said, "restarting");
    connect_as(true);
    wait_clean();
}

static void break_the_node(void)
{
    lib_edit(NODE_FILES_CONFIG, "httpTimeout: 30s", "httpTimeout: 3s");
    const char *old = expect_found("older-than-file");
    ck_assert_contains(old, "PROBLEM timeout-short: ");
    lib_edit(NODE_FILES_CONFIG, "httpTimeout: 3s", "httpTimeout: 30s");
    const char *fix = strstr(old, "  fix   kill "); /* the command of the finding */
    ck_assert_ptr_nonnull(fix);
    lib_output(0,
               ARGV("sh", "-c", lib_fmt("%.*s", (int)strcspn(fix + 8, "\n"), fix + 8)));
    wait_clean();

    lib_edit(NODE_FILES_MANIFEST, "mountPath: /etc/kubernetes/kube-scheduler-config",
             "mountPath: /x");
    expect_found("not-mounted");
    lib_edit(NODE_FILES_MANIFEST, "mountPath: /x",
             "mountPath: /etc/kubernetes/kube-scheduler-config");
    wait_clean();
}

static void break_the_extender(void)
{
    cluster_stop("gpushare-extender", "TERM");
    cluster_create_pod("w", 2, "", "");
    cluster_wait_refused("w", "connection refused");
    expect_found("no-answer");
    start_extender();
    cluster_wait_running("w");
    ck_assert(has_card("w"));
}

TEST(a_node_of_kubeadm)
{
    cluster_stop("kube-scheduler", "TERM");
    start_extender();
    lib_wait(peer_status(&cluster.api, SECRET) == 200);
    connect_as(true);
    extender_wait_answers(&cluster.extender);
    cluster_add_node("n1", "", CARDS(16384, 16384));
    const char *address = network_at(cluster.extender.verbs.port);
    make_node();
    const char *before = lib_read(NODE_FILES_MANIFEST);
    static_pod_start(lib_path("root"), lib_path(NODE_FILES_MANIFEST),
                     cluster_program("kube-scheduler"));

    ck_assert(!gets_card("before"));
    ck_assert_contains(run_install(1, ARGV("--check")), "PROBLEM no-option: ");

    const char *done = run_install(0, ARGV("--yes", "--address", address));
    ck_assert_contains(done, "kube-scheduler is healthy with the new files");
    ck_assert_contains(done, "ok      the extender answers at ");
    ck_assert(gets_card("after"));
    ck_assert_contains(run_install(0, ARGV("--yes")), "nothing to change");

    check_unauthenticated();
    renew();
    break_the_node();
    break_the_extender();

    ck_assert_contains(run_install(0, ARGV("--undo")), "kube-scheduler is healthy");
    ck_assert_str_eq(lib_read(NODE_FILES_MANIFEST), before);
    ck_assert(!gets_card("last"));

    run_install(0, ARGV("--yes", "--address", address));
    upgrade_from_http();
    static_pod_stop();
}

CLUSTER_MAIN(300)
