/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/expect.h"
#include "lib/node_files.h"
#include "lib/staticpod.h"

/*
 * The extender makes its own certificates, and only kube-scheduler's opens the verbs.
 * scripts/install on a node with the files of kubeadm, whose kube-scheduler is really run
 * as its manifest says, with the real API server and extender: pods get no card before,
 * and get one after; and --check names what was broken since.
 */

#define MANIFEST "etc/kubernetes/manifests/kube-scheduler.yaml"
#define CONFIG   "etc/kubernetes/kube-scheduler-config.yaml"

static char *node_root; /* a folder with the files of a control plane node */

static void change_file(const char *path, const char *from, const char *to)
{
    cleanup_free char *text = node_files_swap(temp_read(node_root, path), from, to);
    temp_write(node_root, path, text);
}

static char *run_command(int status, const char *const *argv)
{
    struct program p;
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

static char *run_install(int status, const char *const *options)
{
    cleanup_free char *build = xasprintf("BUILD=%s", getenv("GPUSHARE_BUILD"));
    cleanup_free char *admin = temp_path(cluster.dir, "admin.kubeconfig");
    const char *argv[PROGRAM_ARGS] = {"env",    build,   "scripts/install", "--root",
                                      node_root, "--proc", "/proc", "--kubeconfig", admin};
    program_args(argv, 9, options);
    return run_command(status, argv);
}

static unsigned find_free_port(void)
{
    cleanup_free char *said = run_command(
        0, ARGV("bash", "-c",
                "while :; do p=$((10000 + SRANDOM % 20000)); "
                "! (: </dev/tcp/127.0.0.1/$p) 2>/dev/null && break; done; echo $p"));
    return (unsigned)strtoul(said, NULL, 10);
}

static bool has_card(const char *pod)
{
    cleanup_json json_t *j = cluster_pod(pod);
    return json_object_get(lib_at(j, "metadata.annotations"), "ALIYUN_COM_GPU_MEM_IDX");
}

static bool is_clean(char **said)
{
    free(*said);
    *said = run_install(-1, ARGV("--check"));
    return !strstr(*said, "PROBLEM") && !strstr(*said, "unknown ");
}

/* The kubelet applies changes a moment later. */
static void wait_clean(void)
{
    char *said = NULL;
    int64_t until = lib_now_ms() + LIB_WAIT_MS;
    while (!is_clean(&said))
        ck_assert_msg(lib_now_ms() < until, "never clean: %s", said);
    free(said);
}

static bool has_secret(void)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(&cluster.api, "GET",
                     "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls",
                     NULL, &reply) == 200;
}

/* Writes a key of the Secret to cluster.dir/FILE; returns the path, new. */
static char *secret_file(const char *key, const char *file)
{
    cleanup_free char *path =
        xasprintf("go-template={{index .data \"%s\" | base64decode}}", key);
    cleanup_free char *text = cluster_kubectl(
        ARGV("-n", "kube-system", "get", "secret", "gpushare-scheduler-tls", "-o", path));
    temp_write(cluster.dir, file, text);
    return temp_path(cluster.dir, file);
}

static void connect_as(bool kube_scheduler)
{
    unsigned verbs = cluster.extender.verbs.port, look = cluster.extender.observers.port;
    cleanup_free char *ca = secret_file("ca.crt", "ca.crt"),
                      *crt = secret_file("tls.crt", "client.crt"),
                      *key = secret_file("tls.key", "client.key");
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    if (kube_scheduler) {
        peer_init_cert(&cluster.extender.verbs, verbs, ca, crt, key);
        peer_init_cert(&cluster.extender.observers, look, ca, crt, key);
    } else {
        peer_init_tls(&cluster.extender.verbs, verbs, ca);
        peer_init_tls(&cluster.extender.observers, look, ca);
    }
}

static char *address;

/* A kubeconfig as kubeadm makes it, with the keys inside, and the manifest of this
 * release. */
static void make_node(void)
{
    cleanup_free char *from = temp_path(cluster.dir, "scheduler.kubeconfig");
    cleanup_free char *manifest_from =
        xasprintf("test/data/kubeadm/kube-scheduler-%s.yaml", cluster_release());
    cleanup_free char *option =
        xasprintf("--leader-elect=true\n    - --secure-port=%u\n", find_free_port());
    struct buf text = {0};
    struct err err = {0};
    node_root = temp_path(lib_dir, "root");
    cleanup_free char *folder = temp_path(node_root, "etc/kubernetes/manifests");
    free(run_command(0, ARGV("mkdir", "-p", folder)));
    address = xasprintf("127.0.0.1:%u", cluster.extender.verbs.port);
    ck_assert_done(file_read(manifest_from, 1 << 20, &text, &err), err);
    cleanup_free char *manifest =
        node_files_swap(buf_take(&text), "--leader-elect=true\n", option);
    cleanup_free char *kubeconfig = run_command(
        0, ARGV("kubectl", "config", "view", "--raw", "--flatten", "--kubeconfig", from));
    temp_write(node_root, "etc/kubernetes/scheduler.conf", kubeconfig);
    temp_write(node_root, MANIFEST, manifest);
}

static bool finds(const char *id, char **said)
{
    cleanup_free char *line = xasprintf("PROBLEM %s: ", id);
    free(*said);
    *said = run_install(1, ARGV("--check"));
    return strstr(*said, line) != NULL;
}

/* Waits until --check reports the problem; returns its output, new. */
static char *expect_found(const char *id)
{
    char *said = NULL;
    int64_t until = lib_now_ms() + LIB_WAIT_MS;
    while (!finds(id, &said))
        ck_assert_msg(lib_now_ms() < until, "never %s: %s", id, said);
    return said;
}

/* Runs the command of the finding. */
static void run_fix(const char *said)
{
    const char *at = strstr(said, "  fix   kill ");
    ck_assert_msg(at != NULL, "no command in: %s", said);
    cleanup_free char *line = xasprintf("%.*s", (int)strcspn(at + 8, "\n"), at + 8);
    free(run_command(0, ARGV("sh", "-c", line)));
}

/* -- the extender with certificates -- */

static void start_extender(void)
{
    cluster_start_with("gpushare-extender", ARGV("--insecure=off"));
}

static void check_unauthenticated(void)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, "unknown", 1, ARGV("n1"));
    connect_as(false);
    ck_assert_uint_eq(peer_call(&cluster.extender.verbs, "POST",
                                "/gpushare-scheduler/filter", body.p, &reply),
                      401);
    ck_assert_uint_eq(peer_call(&cluster.extender.verbs, "POST",
                                "/gpushare-scheduler/bind", "{}", &reply),
                      401);
    ck_assert_uint_eq(peer_status(&cluster.extender.verbs, "/healthz"), 200);
    ck_assert_uint_eq(peer_status(&cluster.extender.verbs, "/version"), 200);
    connect_as(true);
    ck_assert_uint_eq(peer_call(&cluster.extender.verbs, "POST",
                                "/gpushare-scheduler/filter", body.p, &reply),
                      200);
}

/* A node of an earlier release: plain HTTP, and no certificate. */
static void downgrade(void)
{
    char *config = temp_read(node_root, CONFIG);
    config = node_files_swap(config, "https://", "http://");
    config = node_files_swap(config, "enableHTTPS: true", "enableHTTPS: false");
    char *from = strstr(config, "  tlsConfig:\n"),
         *to = strstr(config, "  # The default is");
    ck_assert(from && to);
    memmove(from, to, strlen(to) + 1);
    temp_write(node_root, CONFIG, config);
    free(config);
    change_file(MANIFEST,
                "    - mountPath: /etc/kubernetes/gpushare\n      name: "
                "gpushare-scheduler-tls\n      readOnly: true\n",
                "");
    change_file(MANIFEST,
                "  - hostPath:\n      path: /etc/kubernetes/gpushare\n      type: "
                "Directory\n    name: gpushare-scheduler-tls\n",
                "");
    cleanup_free char *folder = temp_path(node_root, "etc/kubernetes/gpushare");
    free(run_command(0, ARGV("rm", "-r", folder)));
}

static void upgrade_from_http(void)
{
    downgrade();
    free(expect_found("no-answer"));
    cluster_create_pod("plain", 2, "", "");
    cluster_wait_refused("plain", "");
    /* The pod's last error may still stand. */
    cleanup_free char *done = run_install(-1, ARGV("--yes"));
    ck_assert_contains(done, "ok      the extender answers at https://");
    cluster_wait_running("plain");
    ck_assert(has_card("plain"));
    wait_clean();
}

/* The leader makes another certificate; the node copies it. */
static void renew(void)
{
    cluster_delete("/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls");
    lib_wait(has_secret());
    cleanup_free char *said = run_install(0, ARGV("--renew"));
    ck_assert_contains(said, "renewed: ");
    ck_assert_ptr_null(strstr(said, "restarting"));
    connect_as(true);
    wait_clean();
}

static void break_the_node(void)
{
    change_file(CONFIG, "httpTimeout: 30s", "httpTimeout: 3s");
    cleanup_free char *old = expect_found("older-than-file");
    ck_assert_contains(old, "PROBLEM timeout-short: ");
    change_file(CONFIG, "httpTimeout: 3s", "httpTimeout: 30s");
    run_fix(old);
    wait_clean();

    change_file(MANIFEST, "mountPath: /etc/kubernetes/kube-scheduler-config",
                "mountPath: /x");
    free(expect_found("not-mounted"));
    change_file(MANIFEST, "mountPath: /x",
                "mountPath: /etc/kubernetes/kube-scheduler-config");
    wait_clean();
}

static void break_the_extender(void)
{
    cluster_stop("gpushare-extender", "TERM");
    cluster_create_pod("w", 2, "", "");
    cluster_wait_refused("w", "connection refused");
    free(expect_found("no-answer"));
    start_extender();
    cluster_wait_running("w");
    ck_assert(has_card("w"));
}

START_TEST(a_node_of_kubeadm)
{
    cleanup_free char *programs = temp_read(cluster.dir, "run/programs");
    cleanup_free char *binary =
        xasprintf("%.*s/kube-scheduler", (int)strcspn(programs, "\n"), programs);
    cluster_stop("kube-scheduler", "TERM");
    start_extender();
    lib_wait(has_secret());
    connect_as(true);
    extender_wait_answers(&cluster.extender);
    cluster_add_node("n1", NULL, NULL, CARDS(16384, 16384));
    make_node();
    cleanup_free char *before = temp_read(node_root, MANIFEST);
    struct static_pod *kubelet = static_pod_start(node_root, MANIFEST, binary);

    cluster_create_pod("before", 2, "", "");
    cluster_wait_running("before");
    ck_assert(!has_card("before"));
    cleanup_free char *found = run_install(1, ARGV("--check"));
    ck_assert_contains(found, "PROBLEM no-option: ");

    cleanup_free char *done = run_install(0, ARGV("--yes", "--address", address));
    ck_assert_contains(done, "kube-scheduler is healthy with the new files");
    ck_assert_contains(done, "ok      the extender answers at ");
    cluster_create_pod("after", 2, "", "");
    cluster_wait_running("after");
    ck_assert(has_card("after"));
    cleanup_free char *again = run_install(0, ARGV("--yes"));
    ck_assert_contains(again, "nothing to change");

    check_unauthenticated();
    renew();
    break_the_node();
    break_the_extender();

    cleanup_free char *undone = run_install(0, ARGV("--undo"));
    ck_assert_contains(undone, "kube-scheduler is healthy");
    cleanup_free char *now = temp_read(node_root, MANIFEST);
    ck_assert_str_eq(now, before);
    cluster_create_pod("last", 2, "", "");
    cluster_wait_running("last");
    ck_assert(!has_card("last"));

    free(run_install(0, ARGV("--yes", "--address", address)));
    upgrade_from_http();
    static_pod_stop(kubelet);
}
END_TEST

CLUSTER_MAIN("install", 300, ARGV("--nodes", "0"), a_node_of_kubeadm)
