/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/node_files.h"
#include "lib/sim.h"
#include "lib/stub.h"
#include "lib/tls.h"

/*
 * scripts/install and gpushare-setup on a simulated control plane node: a folder with the
 * node's files, and a /proc with the files of a kube-scheduler process. The extender is
 * the real program, the API server is kube-sim. The checks themselves are tested in
 * test/setup, a real kube-scheduler in test/e2e.
 */

enum { SOON_S = 3600 };

/* -- check ------------------------------------------------------------------------------
 */

START_TEST(the_extender_answers_or_refuses)
{
    struct sim s;
    struct extender e;
    sim_start(&s, ARGV(NULL));
    extender_start(&e, &s, ARGV(NULL));
    cleanup_free char *url = node_files_url(e.verbs.port);
    node_files_make_installed(url);
    cleanup_free char *good = node_files_check(0);
    ck_assert_contains(good, "ok      the extender answers at http://127.0.0.1:");
    ck_assert_ptr_null(strstr(good, "PROBLEM"));
    extender_stop(&e);
    node_files_says(1, "PROBLEM no-answer: http://127.0.0.1:", NODE_FILES_CHECK);
    sim_stop(&s);
}
END_TEST

/* The Go extender: returns a filter result, and a version that is not JSON. */
static void play_go(struct stub_conn *conn, void *ctx)
{
    struct stub *s = conn->server;
    (void)ctx;
    while (stub_read(conn)) {
        cleanup_free char *request = stub_request(s, stub_requests(s) - 1);
        stub_reply(conn, 200, "",
                   strstr(request, "GET /version")
                       ? "0.1.0"
                       : "{\"NodeNames\":[],\"FailedNodes\":{},\"Error\":\"\"}");
    }
}

START_TEST(another_program_answers)
{
    struct sim s;
    sim_start(&s, ARGV(NULL));
    struct stub *go = stub_start(play_go, NULL);
    const struct {
        unsigned port;
        const char *says;
    } cases[] = {{s.api.port, "HTTP status 404"}, {stub_port(go), "go-extender: "}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *url = node_files_url(cases[i].port);
        node_files_make_installed(url);
        cleanup_free char *said = node_files_check(1);
        ck_assert_contains(said, cases[i].says);
    }
    stub_stop(go);
    sim_stop(&s);
}
END_TEST

START_TEST(the_api_server_is_checked)
{
    struct sim s;
    struct extender e;
    sim_start(&s, ARGV(NULL));
    extender_start(&e, &s, ARGV(NULL));
    cleanup_free char *url = node_files_url(e.verbs.port);
    cleanup_free char *config = lib_kubeconfig("config", "http", s.api.port, "", "");
    node_files_make_installed(url);
    cleanup_free char *fine =
        node_files_install(0, ARGV("--check", "--kubeconfig", config));
    ck_assert_ptr_null(strstr(fine, "PROBLEM"));
    node_files_says(
        2, "unknown no-api: ", ARGV("--check", "--kubeconfig", "/nowhere/admin.conf"));
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

/* A node whose kube-scheduler this program does not configure. */
START_TEST(other_distributions)
{
    node_files_make(0);
    node_files_add_process(1, NULL, 0);
    char *manifest = temp_read(lib_dir, NODE_FILES_MANIFEST);
    manifest = node_files_swap(manifest, "  name: kube-scheduler\n  names",
                               "  name: openshift-kube-scheduler\n  names");
    temp_write(lib_dir, NODE_FILES_MANIFEST, manifest);
    free(manifest);
    cleanup_free char *checked = node_files_check(1);
    ck_assert_contains(checked, "PROBLEM no-static-pod: ");
    ck_assert_contains(checked, "--set scheduler.enabled=true");
    cleanup_free char *refused = node_files_install(3, ARGV("--insecure", "--yes"));
    ck_assert_contains(refused, "--set scheduler.enabled=true");
    ck_assert_contains(refused, "policy/README.md");
}
END_TEST

/* Pipes, links and malformed files neither block the checks nor reach the terminal. */
START_TEST(hostile_files)
{
    node_files_make(0);
    node_files_add_process(1, NULL, 0);
    cleanup_free char *pipe = temp_path(lib_dir, NODE_FILES_MANIFESTS "/a-scheduler");
    cleanup_free char *link = temp_path(lib_dir, NODE_FILES_MANIFESTS "/b-scheduler");
    cleanup_free char *loop = temp_path(lib_dir, NODE_FILES_MANIFESTS "/c-scheduler");
    cleanup_free char *hidden =
        temp_path(lib_dir, NODE_FILES_MANIFESTS "/.kube-scheduler.yaml");
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ck_assert_int_eq(symlink("/dev/zero", link), 0);
    ck_assert_int_eq(symlink(loop, loop), 0);
    ck_assert_int_eq(symlink("kube-scheduler.yaml", hidden), 0);
    cleanup_free char *odd = node_files_check(1);
    ck_assert_contains(odd, "PROBLEM no-option: ");
    ck_assert_ptr_null(strstr(odd, "-scheduler:"));
    ck_assert_ptr_null(strstr(odd, "two-manifests"));
    cleanup_buf struct buf huge = {0};
    for (int i = 0; i < 200000; i++)
        buf_adds(&huge, "- [[[[[");
    temp_write_bytes(lib_dir, NODE_FILES_MANIFESTS "/d-scheduler", buf_span(&huge));
    cleanup_free char *big = node_files_check(1);
    ck_assert_contains(big, "PROBLEM manifest-unreadable: ");
    ck_assert_contains(big, "larger than");
    temp_write(lib_dir, NODE_FILES_MANIFESTS "/d-scheduler", "a: &a\n- *a\n\x1b[2J");
    cleanup_free char *bad = node_files_check(1);
    ck_assert_contains(bad, "PROBLEM manifest-unreadable: ");
    ck_assert_ptr_null(strchr(bad, '\x1b'));
}
END_TEST

/* -- install ----------------------------------------------------------------------------
 */

/* The manifest is as before, and there is no configuration file. */
static void expect_untouched(const char *manifest)
{
    cleanup_free char *now = node_files_state(NODE_FILES_MANIFEST),
                      *config = node_files_state(NODE_FILES_CONFIG);
    ck_assert_str_eq(now, manifest);
    ck_assert_str_eq(config, "absent");
}

struct rig {
    struct sim sim;
    struct extender extender;
    struct tls_server *scheduler; /* serves /healthz */
    char *address, *kubeconfig;
    char *before; /* the manifest */
};

/* The process of kube-scheduler, which started that many seconds from now. */
static void run_scheduler(const struct rig *r, int64_t from_now_s, const char *option)
{
    node_files_add_process(from_now_s, option, tls_server_port(r->scheduler));
}

/* `namespace`: that of an extender that makes its own certificates; NULL: it serves plain
 * HTTP. */
static void rig_start(struct rig *r, const char *namespace)
{
    sim_start(&r->sim, ARGV(NULL));
    sim_load(
        &r->sim,
        "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{"
        "\"name\":\"gpushare-extender\",\"namespace\":\"gpus\"},\"spec\":{}}");
    sim_add_node(&r->sim, "n1", 2, 15);
    r->kubeconfig = lib_kubeconfig("admin", "http", r->sim.api.port, "", "");
    if (namespace) {
        cleanup_free char *option = xasprintf("--lease-namespace=%s", namespace);
        extender_start_at(&r->extender, r->kubeconfig, ARGV("--insecure=off", option));
        ck_assert(program_wait_output(&r->extender.program, "valid-until="));
    } else {
        extender_start(&r->extender, &r->sim, ARGV(NULL));
    }
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "scheduler", "IP:127.0.0.1");
    r->scheduler = tls_server_start(
        lib_dir, 0, ARGV("-cert", "scheduler.crt", "-key", "scheduler.key"));
    r->address = xasprintf("127.0.0.1:%u", r->extender.verbs.port);
    node_files_make(tls_server_port(r->scheduler));
    cleanup_free char *path = temp_path(lib_dir, NODE_FILES_MANIFEST);
    ck_assert_int_eq(chmod(path, 0600), 0);
    r->before = node_files_state(NODE_FILES_MANIFEST);
    run_scheduler(r, SOON_S, NODE_FILES_OPTION); /* of the changed manifest */
}

static void rig_stop(struct rig *r)
{
    tls_server_stop(r->scheduler);
    extender_stop(&r->extender);
    sim_stop(&r->sim);
    free(r->address);
    free(r->kubeconfig);
    free(r->before);
}

START_TEST(nothing_is_changed_without_confirmation)
{
    struct rig r;
    rig_start(&r, NULL);
    cleanup_free char *said =
        node_files_install(1, ARGV("--insecure", "--address", r.address));
    ck_assert_contains(said, "+    - " NODE_FILES_OPTION "\n");
    ck_assert_contains(said, "nothing was changed");
    expect_untouched(r.before);
    /* Nor if the extender does not answer. */
    node_files_says(3, "install the extender first",
                    ARGV("--insecure", "--yes", "--address", "127.0.0.1:1"));
    expect_untouched(r.before);
    node_files_says(3, "HOST:PORT", ARGV("--insecure", "--yes", "--address", "nonsense"));
    expect_untouched(r.before);
    rig_stop(&r);
}
END_TEST

START_TEST(a_copy_of_the_manifest_prevents_changes)
{
    struct rig r;
    rig_start(&r, NULL);
    cleanup_free char *manifest = temp_read(lib_dir, NODE_FILES_MANIFEST);
    temp_write(lib_dir, NODE_FILES_MANIFEST ".bak", manifest);
    node_files_says(3, "are the same static pod",
                    ARGV("--insecure", "--yes", "--address", r.address));
    expect_untouched(r.before);
    node_files_says(1, "PROBLEM two-manifests: ", NODE_FILES_CHECK);
    rig_stop(&r);
}
END_TEST

START_TEST(install_twice_and_undo)
{
    struct rig r;
    rig_start(&r, NULL);
    cleanup_free char *said = node_files_install(
        0, ARGV("--insecure", "--yes", "--no-cluster", "--address", r.address));
    ck_assert_contains(said, "kube-scheduler is healthy with the new files");
    ck_assert_contains(said, "ok      the extender answers at ");
    cleanup_free char *after = node_files_state(NODE_FILES_MANIFEST),
                      *config = node_files_state(NODE_FILES_CONFIG);
    ck_assert_contains(after, "    - " NODE_FILES_OPTION "\n");
    ck_assert_int_eq(strncmp(after, "600\n", 4), 0);
    ck_assert_contains(config, r.address);
    node_files_says(0, "nothing to change", ARGV("--insecure", "--yes", "--no-cluster"));
    cleanup_free char *still = node_files_state(NODE_FILES_MANIFEST);
    ck_assert_str_eq(still, after);

    run_scheduler(&r, SOON_S, NULL);
    node_files_says(0, "restored: ", ARGV("--undo"));
    expect_untouched(r.before);
    node_files_says(0, "nothing to undo", ARGV("--undo"));
    rig_stop(&r);
}
END_TEST

START_TEST(an_unhealthy_kube_scheduler_restores_the_files)
{
    struct rig r;
    rig_start(&r, NULL);
    run_scheduler(&r, SOON_S, NULL); /* the process never gets the option */
    cleanup_free char *said =
        node_files_install(3, ARGV("--insecure", "--yes", "--no-cluster", "--wait", "1",
                                   "--address", r.address));
    ck_assert_contains(said,
                       "kube-scheduler is not healthy after 1 s: no kube-scheduler runs");
    ck_assert_contains(said, "restoring the previous files");
    expect_untouched(r.before);
    rig_stop(&r);
}
END_TEST

/* A folder for BUILD: while scripts/install waits for kube-scheduler, a person edits the
 * manifest. New. */
static char *make_editor(void)
{
    cleanup_free char *setup = program_path("gpushare-setup"),
                      *manifest = temp_path(lib_dir, NODE_FILES_MANIFEST);
    cleanup_free char *script = xasprintf("[ \"$1\" != running ] || {\n"
                                          "    echo '# mine' >>'%s'\n"
                                          "    exit 1\n"
                                          "}\n"
                                          "exec '%s' \"$@\"\n",
                                          manifest, setup);
    temp_script(lib_dir, "gpushare-setup", script);
    return xasprintf("BUILD=%s", lib_dir);
}

START_TEST(a_file_that_is_not_restored_keeps_its_backup)
{
    struct rig r;
    rig_start(&r, NULL);
    cleanup_free char *old = temp_read(lib_dir, NODE_FILES_MANIFEST),
                      *build = make_editor(), *root = temp_path(lib_dir, "root"),
                      *proc = temp_path(lib_dir, "proc");
    cleanup_free char *said = lib_output(
        3, ARGV("env", build, "scripts/install", "--insecure", "--yes", "--no-cluster",
                "--root", root, "--proc", proc, "--address", r.address, "--wait", "1"));
    ck_assert_contains(said, "was changed since the installation");
    static const char mark[] = "install: previous content: ";
    const char *at = strstr(said, mark);
    ck_assert_ptr_nonnull(at);
    at += strlen(mark);
    cleanup_free char *path = xmemdup0(at, strcspn(at, "\n"));
    cleanup_buf struct buf kept = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 20, &kept, &err), err);
    ck_assert_str_eq(kept.p, old);
    rig_stop(&r);
}
END_TEST

START_TEST(a_signal_restores_the_files)
{
    struct rig r;
    struct program p;
    rig_start(&r, NULL);
    run_scheduler(&r, SOON_S, NULL);
    cleanup_free char *build = xasprintf("BUILD=%s", getenv("GPUSHARE_BUILD"));
    cleanup_free char *root = temp_path(lib_dir, "root"),
                      *proc = temp_path(lib_dir, "proc");
    program_start(&p, lib_dir,
                  ARGV("env", build, "scripts/install", "--insecure", "--yes",
                       "--no-cluster", "--root", root, "--proc", proc, "--address",
                       r.address));
    ck_assert(program_wait_output(&p, "changed: "));
    program_signal(&p, SIGTERM);
    ck_assert_int_eq(program_wait(&p), 3);
    ck_assert_contains(program_output(&p), "interrupted; restoring the previous files");
    program_fini(&p);
    expect_untouched(r.before);
    rig_stop(&r);
}
END_TEST

/* Installed by `make install`: beside gpushare-setup, with policy/ in share. */
START_TEST(installed_under_another_prefix)
{
    cleanup_free char *setup = program_path("gpushare-setup");
    cleanup_free char *bin = temp_path(lib_dir, "bin");
    cleanup_free char *share = temp_path(lib_dir, "share/gpushare");
    cleanup_free char *installed = temp_path(lib_dir, "bin/gpushare-install");
    cleanup_free char *root = temp_path(lib_dir, "root"),
                      *proc = temp_path(lib_dir, "proc");
    cleanup_free char *line = xasprintf(
        "mkdir -p '%s' '%s' && cp '%s' '%s' && cp scripts/install '%s' && "
        "cp -rT policy '%s/policy' && cd / && '%s' --check --no-cluster --root '%s' "
        "--proc '%s'",
        bin, share, setup, bin, installed, share, installed, root, proc);
    node_files_make(0);
    node_files_add_process(1, NULL, 0);
    cleanup_free char *said =
        lib_output(1, ARGV("env", "-u", "BUILD", "sh", "-c", line));
    ck_assert_contains(said, "PROBLEM no-option: ");
    ck_assert_contains(said, "  fix   gpushare-install --yes\n");

    /* Commands name files where they were installed. */
    cleanup_free char *manifest = temp_read(lib_dir, NODE_FILES_MANIFEST);
    cleanup_free char *absent = temp_path(lib_dir, "root/etc/kubernetes/scheduler.conf");
    cleanup_free char *copy =
        xasprintf("  fix   cp %s/policy/kube-scheduler-config.yaml ", share);
    manifest = node_files_swap(
        manifest, "--leader-elect=true\n",
        "--leader-elect=true\n    - --config=/etc/kubernetes/scheduler.conf\n");
    temp_write(lib_dir, NODE_FILES_MANIFEST, manifest);
    ck_assert_int_eq(unlink(absent), 0);
    cleanup_free char *again =
        lib_output(1, ARGV("env", "-u", "BUILD", "sh", "-c", line));
    ck_assert_contains(again, "PROBLEM file-absent: ");
    ck_assert_contains(again, copy);
}
END_TEST

START_TEST(undo_keeps_a_changed_file)
{
    struct rig r;
    rig_start(&r, NULL);
    free(node_files_install(
        0, ARGV("--insecure", "--yes", "--no-cluster", "--address", r.address)));
    cleanup_free char *config = temp_read(lib_dir, NODE_FILES_CONFIG);
    config = node_files_swap(config, "weight: 3", "weight: 9");
    temp_write(lib_dir, NODE_FILES_CONFIG, config);
    node_files_says(3, "kube-scheduler-config.yaml was changed since the installation",
                    ARGV("--undo"));
    cleanup_free char *still = temp_read(lib_dir, NODE_FILES_CONFIG);
    ck_assert_str_eq(still, config);
    rig_stop(&r);
}
END_TEST

static const char edited[] = "edited by a user\n";

/* A server that edits the manifest during each request. */
static void edit_manifest(struct stub_conn *conn, void *ctx)
{
    (void)ctx;
    while (stub_read(conn)) {
        cleanup_free char *manifest = temp_read(lib_dir, NODE_FILES_MANIFEST);
        cleanup_free char *more = xasprintf("%s# %s", manifest, edited);
        temp_write(lib_dir, NODE_FILES_MANIFEST, more);
        stub_reply(conn, 500, "", "{}");
    }
}

START_TEST(concurrent_edits_are_not_lost)
{
    struct rig r;
    rig_start(&r, NULL);
    struct stub *s = stub_start(edit_manifest, NULL);
    cleanup_free char *address = xasprintf("127.0.0.1:%u", stub_port(s));
    node_files_says(
        3, "the files were changed during the confirmation",
        ARGV("--insecure", "--yes", "--without-extender", "--address", address));
    cleanup_free char *manifest = node_files_state(NODE_FILES_MANIFEST),
                      *config = node_files_state(NODE_FILES_CONFIG);
    ck_assert_contains(manifest, edited);
    ck_assert_ptr_null(strstr(manifest, NODE_FILES_OPTION));
    ck_assert_str_eq(config, "absent");
    stub_stop(s);
    rig_stop(&r);
}
END_TEST

/* As in `scripts/install --yes | head`. */
START_TEST(a_closed_standard_output_does_not_stop_it)
{
    struct rig r;
    rig_start(&r, NULL);
    run_scheduler(&r, SOON_S, NULL);
    cleanup_free char *root = temp_path(lib_dir, "root"),
                      *proc = temp_path(lib_dir, "proc");
    cleanup_free char *line = xasprintf(
        "exec 8> >(:); wait $!; BUILD='%s' scripts/install --insecure --yes --no-cluster "
        "--wait 1 --root '%s' --proc '%s' --address %s >&8",
        getenv("GPUSHARE_BUILD"), root, proc, r.address);
    cleanup_free char *said =
        lib_output(3, ARGV("env", "--default-signal=PIPE", "bash", "-c", line));
    ck_assert_contains(said, "restoring the previous files");
    expect_untouched(r.before);
    rig_stop(&r);
}
END_TEST

START_TEST(a_symbolic_link_is_not_replaced)
{
    struct rig r;
    rig_start(&r, NULL);
    cleanup_free char *from = temp_path(lib_dir, NODE_FILES_MANIFEST);
    cleanup_free char *to = temp_path(lib_dir, "elsewhere.yaml");
    ck_assert_int_eq(rename(from, to), 0);
    ck_assert_int_eq(symlink(to, from), 0);
    cleanup_free char *said =
        node_files_install(3, ARGV("--insecure", "--yes", "--address", r.address));
    ck_assert_contains(said, "is a symbolic link");
    expect_untouched(r.before);
    rig_stop(&r);
}
END_TEST

/* -- an extender that makes its own certificates: kube-scheduler's comes from the Secret -- */

#define SECRET "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls"
#define FOLDER "root/etc/kubernetes/gpushare"

/* With the API server; the extender may not be ready at once. */
static char *run(const struct rig *r, int status, const char *mode, const char *more)
{
    char *said = NULL;
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    do {
        ck_assert_msg(lib_now_ms() < end, "never ready: %s", said ? said : "");
        free(said);
        said = node_files_install(
            -1, more ? ARGV("--kubeconfig", r->kubeconfig, mode, more, r->address)
                     : ARGV("--kubeconfig", r->kubeconfig, mode));
    } while (strstr(said, "not-ready") || strstr(said, "HTTP status 503"));
    free(said);
    return node_files_install(
        status, more ? ARGV("--kubeconfig", r->kubeconfig, mode, more, r->address)
                     : ARGV("--kubeconfig", r->kubeconfig, mode));
}

static void expect_mode(const char *name, const char *mode)
{
    cleanup_free char *path = xasprintf(FOLDER "/%s", name);
    cleanup_free char *state = node_files_state(path);
    ck_assert_msg(strncmp(state, mode, strlen(mode)) == 0, "%s: %s", name, state);
}

static void expect_no_key_in_backups(void)
{
    cleanup_free char *kept = temp_path(lib_dir, "root/var/lib/gpushare-install");
    free(lib_output(1, ARGV("grep", "-r", "PRIVATE KEY", kept)));
}

START_TEST(the_certificate_comes_from_the_secret)
{
    struct rig r;
    rig_start(&r, "kube-system");
    cleanup_free char *shown = node_files_install(
        -1, ARGV("--kubeconfig", r.kubeconfig, "--address", r.address));
    ck_assert_contains(shown, "client.key: from Secret kube-system/");
    ck_assert_ptr_null(strstr(shown, "PRIVATE KEY"));
    run_scheduler(&r, -SOON_S, NODE_FILES_OPTION);
    node_files_says(3, "restoring the previous files",
                    ARGV("--kubeconfig", r.kubeconfig, "--yes", "--address", r.address,
                         "--wait", "1"));
    expect_no_key_in_backups();
    run_scheduler(&r, SOON_S, NODE_FILES_OPTION);
    cleanup_free char *done = run(&r, 0, "--yes", "--address");
    ck_assert_contains(done, "ok      the extender answers at https://127.0.0.1:");
    ck_assert_contains(done, "client.crt is valid until 20");
    expect_mode("ca.crt", "644\n");
    expect_mode("client.crt", "644\n");
    expect_mode("client.key", "600\n");
    cleanup_free char *config = node_files_state(NODE_FILES_CONFIG);
    ck_assert_contains(config, "https://127.0.0.1:");
    expect_no_key_in_backups();
    cleanup_free char *again = run(&r, 0, "--yes", "--address");
    ck_assert_contains(again, "nothing to change");
    cleanup_free char *fresh = run(&r, 0, "--renew", NULL);
    ck_assert_contains(fresh, "nothing to renew");
    cleanup_free char *silent =
        node_files_install(3, ARGV("--kubeconfig", "/none-such", "--renew"));
    ck_assert_contains(silent, "Secret kube-system/gpushare-scheduler-tls: ");
    ck_assert_contains(silent, "/none-such");

    run_scheduler(&r, SOON_S, NULL);
    free(node_files_install(0, ARGV("--undo")));
    cleanup_free char *manifest = node_files_state(NODE_FILES_MANIFEST);
    cleanup_free char *folder = temp_path(lib_dir, FOLDER);
    ck_assert_str_eq(manifest, r.before);
    struct stat st;
    ck_assert_int_eq(stat(folder, &st), -1);
    rig_stop(&r);
}
END_TEST

START_TEST(a_renewed_certificate_is_reported_and_copied)
{
    struct rig r;
    rig_start(&r, "kube-system");
    free(run(&r, 0, "--yes", "--address"));
    cleanup_free char *ca = node_files_state(FOLDER "/ca.crt");
    cleanup_free char *old = node_files_state(FOLDER "/client.crt");
    cleanup_buf struct buf reply = {0};
    ck_assert_uint_eq(peer_call(&r.sim.api, "DELETE", SECRET, NULL, &reply), 200);
    lib_wait(peer_status(&r.sim.api, SECRET) == 200); /* the leader makes another */
    cleanup_free char *noted = run(&r, 0, "--check", NULL);
    ck_assert_contains(noted, "note    Secret gpushare-scheduler-tls has a "
                              "newer certificate");
    cleanup_free char *renewed = run(&r, 0, "--renew", NULL);
    ck_assert_ptr_null(strstr(renewed, "restarting")); /* of the same CA */
    cleanup_free char *now = node_files_state(FOLDER "/client.crt"),
                      *same = node_files_state(FOLDER "/ca.crt");
    ck_assert_str_ne(now, old);
    ck_assert_str_eq(same, ca);
    expect_mode("client.key", "600\n");
    cleanup_free char *good = run(&r, 0, "--check", NULL);
    ck_assert_ptr_null(strstr(good, "newer certificate"));

    /* --undo removes the files whatever was renewed since. */
    run_scheduler(&r, SOON_S, NULL);
    free(node_files_install(0, ARGV("--undo")));
    cleanup_free char *gone = node_files_state(FOLDER "/client.key");
    ck_assert_str_eq(gone, "absent");
    rig_stop(&r);
}
END_TEST

/* kube-scheduler reads the CA only when it starts. */
START_TEST(a_renewed_ca_restarts_kube_scheduler)
{
    struct rig r;
    rig_start(&r, "kube-system");
    free(run(&r, 0, "--yes", "--address"));
    cleanup_free char *other = temp_read(lib_dir, "ca.crt");
    temp_write(lib_dir, FOLDER "/ca.crt", other);
    cleanup_free char *found = run(&r, 1, "--check", NULL);
    ck_assert_contains(found, "PROBLEM ca-outdated: ");
    ck_assert_contains(found, "PROBLEM no-answer: ");
    run_scheduler(&r, -3600, NODE_FILES_OPTION);
    cleanup_free char *said = node_files_install(
        3, ARGV("--kubeconfig", r.kubeconfig, "--renew", "--wait", "1"));
    ck_assert_contains(said, "renewed: ");
    ck_assert_contains(said, "restarting kube-scheduler (process " NODE_FILES_PID ")");
    ck_assert_contains(said, " was changed");
    run_scheduler(&r, SOON_S, NODE_FILES_OPTION);
    free(run(&r, 0, "--renew", NULL));
    free(run(&r, 0, "--check", NULL));
    rig_stop(&r);
}
END_TEST

/* The configuration of a release without certificates. */
START_TEST(plain_http_is_upgraded)
{
    struct rig r;
    rig_start(&r, "kube-system");
    cleanup_free char *url = node_files_url(r.extender.verbs.port);
    node_files_make_installed(url);
    cleanup_free char *old = temp_read(lib_dir, NODE_FILES_CONFIG);
    char *manifest = temp_read(lib_dir, NODE_FILES_MANIFEST);
    cleanup_free char *port = xasprintf("    - --secure-port=%u\n    - --config=",
                                        tls_server_port(r.scheduler));
    manifest = node_files_swap(manifest, "    - --config=", port);
    temp_write(lib_dir, NODE_FILES_MANIFEST, manifest);
    cleanup_free char *before = node_files_state(NODE_FILES_MANIFEST);
    free(manifest);
    run_scheduler(&r, SOON_S, NODE_FILES_OPTION);
    cleanup_free char *found = run(&r, 1, "--check", NULL);
    ck_assert_contains(found, "PROBLEM no-answer: ");
    ck_assert_contains(found, " scripts/install --yes    # or --renew");
    cleanup_free char *none = run(&r, 3, "--renew", NULL);
    ck_assert_contains(none, "run scripts/install first");
    node_files_says(0, "ok      the extender answers at https://127.0.0.1:",
                    ARGV("--kubeconfig", r.kubeconfig, "--yes"));
    expect_mode("client.key", "600\n");
    free(node_files_install(0, ARGV("--undo")));
    cleanup_free char *now = temp_read(lib_dir, NODE_FILES_CONFIG);
    cleanup_free char *after = node_files_state(NODE_FILES_MANIFEST);
    cleanup_free char *key = node_files_state(FOLDER "/client.key");
    ck_assert_str_eq(now, old);
    ck_assert_str_eq(after, before);
    ck_assert_str_eq(key, "absent");
    rig_stop(&r);
}
END_TEST

START_TEST(without_a_certificate_nothing_is_changed)
{
    struct rig r;
    rig_start(&r, "kube-system");
    node_files_says(3, "the certificate of kube-scheduler: the Secret was not read",
                    ARGV("--yes", "--no-cluster", "--address", r.address));
    /* An extender with --insecure makes no Secret. */
    extender_stop(&r.extender);
    extender_start(&r.extender, &r.sim, ARGV("--insecure"));
    cleanup_buf struct buf reply = {0};
    peer_call(&r.sim.api, "DELETE", SECRET, NULL, &reply);
    cleanup_free char *absent = node_files_install(
        3, ARGV("--kubeconfig", r.kubeconfig, "--yes", "--address", r.address));
    ck_assert_contains(absent, "not found");
    ck_assert_contains(absent, "scripts/install --insecure");
    cleanup_free char *manifest = node_files_state(NODE_FILES_MANIFEST);
    ck_assert_str_eq(manifest, r.before);
    rig_stop(&r);
}
END_TEST

/* The release is in another namespace: so are the Secret and the extender's name. */
START_TEST(an_extender_in_another_namespace)
{
    struct rig r;
    rig_start(&r, "gpus");
    node_files_says(3, "Secret kube-system/gpushare-scheduler-tls",
                    ARGV("--kubeconfig", r.kubeconfig, "--yes", "--address", r.address));
    node_files_says(3, "--namespace: invalid name \"../x\"",
                    ARGV("--kubeconfig", r.kubeconfig, "--namespace", "../x", "--check"));
    const char *in[] = {"--kubeconfig", r.kubeconfig, "--namespace", "gpus",
                        "--yes",        "--address",  r.address,     NULL};
    char *said = NULL; /* the extender may not be ready at once */
    int64_t end = lib_now_ms() + LIB_WAIT_MS;
    do {
        ck_assert_msg(lib_now_ms() < end, "never ready: %s", said ? said : "");
        free(said);
        said = node_files_install(-1, in);
    } while (strstr(said, "not-ready") || strstr(said, "HTTP status 503"));
    ck_assert_contains(said, "client.key: from Secret gpus/gpushare-scheduler-tls");
    ck_assert_contains(said, "ok      the extender answers at https://127.0.0.1:");
    free(said);
    cleanup_free char *config = temp_read(lib_dir, NODE_FILES_CONFIG);
    ck_assert_contains(config, "serverName: gpushare-schd-extender.gpus.svc");
    /* An entry with the name of a former namespace. */
    char *old = node_files_swap(xstrdup(config), "extender.gpus.svc", "extender.old.svc");
    temp_write(lib_dir, NODE_FILES_CONFIG, old);
    free(old);
    cleanup_free char *found = node_files_install(
        1, ARGV("--kubeconfig", r.kubeconfig, "--namespace", "gpus", "--check"));
    ck_assert_contains(found, "PROBLEM no-answer: ");
    ck_assert_contains(found, " scripts/install --namespace gpus --yes    # or --renew");
    run_scheduler(&r, SOON_S, NODE_FILES_OPTION);
    free(node_files_install(0, in));
    cleanup_free char *now = temp_read(lib_dir, NODE_FILES_CONFIG);
    ck_assert_str_eq(now, config);
    rig_stop(&r);
}
END_TEST

static char *setup(const char *const *options)
{
    struct program p;
    lib_program(&p, "gpushare-setup", ARGV(NULL), options);
    ck_assert_int_eq(program_wait(&p), 3);
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    return said;
}

START_TEST(a_missing_or_unknown_command)
{
    cleanup_free char *missing = setup(ARGV(NULL));
    ck_assert_str_eq(missing, "gpushare-setup: missing command; expected one of check, "
                              "plan, renew, running, reach\n");
    cleanup_free char *unknown = setup(ARGV("chek"));
    ck_assert_contains(unknown, "unknown command \"chek\"; expected one of check, plan");
    cleanup_free char *more = setup(ARGV("check", "it"));
    ck_assert_contains(more, "unknown command \"it\"; expected one of check, plan");
}
END_TEST

LIB_MAIN("install", 120, a_missing_or_unknown_command, the_extender_answers_or_refuses,
         another_program_answers, the_api_server_is_checked, other_distributions,
         hostile_files, nothing_is_changed_without_confirmation,
         a_copy_of_the_manifest_prevents_changes, install_twice_and_undo,
         an_unhealthy_kube_scheduler_restores_the_files,
         a_file_that_is_not_restored_keeps_its_backup, a_signal_restores_the_files,
         installed_under_another_prefix, undo_keeps_a_changed_file,
         concurrent_edits_are_not_lost, a_closed_standard_output_does_not_stop_it,
         a_symbolic_link_is_not_replaced, the_certificate_comes_from_the_secret,
         a_renewed_certificate_is_reported_and_copied,
         a_renewed_ca_restarts_kube_scheduler, plain_http_is_upgraded,
         without_a_certificate_nothing_is_changed, an_extender_in_another_namespace)
