/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "lib/node_files.h"
#include "lib/sim.h"
#include "lib/tls.h"

/*
 * scripts/install with an extender that makes its own certificates: kube-scheduler's
 * certificate comes from the Secret, an installation with plain HTTP is upgraded, and
 * --renew follows the Secret.
 */

#define SECRET "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls"
#define FOLDER "root/etc/kubernetes/gpushare"

enum { SOON_S = 3600 };

struct rig {
    struct sim sim;
    struct extender extender;
    struct tls_server *scheduler; /* serves /healthz */
    char *address, *kubeconfig;
    char *before; /* the manifest */
};

static void rig_start_in(struct rig *r, const char *namespace)
{
    cleanup_free char *option = xasprintf("--lease-namespace=%s", namespace);
    sim_start(&r->sim, ARGV(NULL));
    sim_add_lease(&r->sim);
    sim_load(
        &r->sim,
        "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{"
        "\"name\":\"gpushare-extender\",\"namespace\":\"gpus\"},\"spec\":{}}");
    sim_add_node(&r->sim, "n1", 2, 15);
    r->kubeconfig = lib_kubeconfig("admin", "http", r->sim.api.port, "", "");
    extender_start_at(&r->extender, r->kubeconfig, ARGV("--insecure=off", option));
    ck_assert(program_wait_output(&r->extender.program, "valid-until="));
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "scheduler", "IP:127.0.0.1");
    r->scheduler = tls_server_start(
        lib_dir, 0, ARGV("-cert", "scheduler.crt", "-key", "scheduler.key"));
    r->address = xasprintf("127.0.0.1:%u", r->extender.verbs.port);
    node_files_make(tls_server_port(r->scheduler));
    r->before = node_files_state(NODE_FILES_MANIFEST);
    node_files_add_process(SOON_S, NODE_FILES_OPTION, tls_server_port(r->scheduler));
}

static void rig_start(struct rig *r)
{
    rig_start_in(r, "kube-system");
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

/* With the API server; the extender may not be ready at once. */
static char *run(const struct rig *r, int status, const char *mode, const char *more)
{
    char *said = NULL;
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
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
    struct program p;
    cleanup_free char *kept = temp_path(lib_dir, "root/var/lib/gpushare-install");
    program_start(&p, lib_dir, ARGV("grep", "-r", "PRIVATE KEY", kept));
    ck_assert_msg(program_wait(&p) == 1, "%s", program_output(&p));
    program_fini(&p);
}

START_TEST(the_certificate_comes_from_the_secret)
{
    struct rig r;
    rig_start(&r);
    cleanup_free char *shown = node_files_install(
        -1, ARGV("--kubeconfig", r.kubeconfig, "--address", r.address));
    ck_assert_contains(shown, "client.key: from Secret kube-system/");
    ck_assert_ptr_null(strstr(shown, "PRIVATE KEY"));
    node_files_add_process(-SOON_S, NODE_FILES_OPTION, tls_server_port(r.scheduler));
    cleanup_free char *failed =
        node_files_install(3, ARGV("--kubeconfig", r.kubeconfig, "--yes", "--address",
                                   r.address, "--wait", "1"));
    ck_assert_contains(failed, "restoring the previous files");
    expect_no_key_in_backups();
    node_files_add_process(SOON_S, NODE_FILES_OPTION, tls_server_port(r.scheduler));
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

    node_files_add_process(SOON_S, NULL, tls_server_port(r.scheduler));
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
    rig_start(&r);
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
    node_files_add_process(SOON_S, NULL, tls_server_port(r.scheduler));
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
    rig_start(&r);
    free(run(&r, 0, "--yes", "--address"));
    cleanup_free char *other = temp_read(lib_dir, "ca.crt");
    temp_write(lib_dir, FOLDER "/ca.crt", other);
    cleanup_free char *found = run(&r, 1, "--check", NULL);
    ck_assert_contains(found, "PROBLEM ca-outdated: ");
    ck_assert_contains(found, "PROBLEM no-answer: ");
    node_files_add_process(-3600, NODE_FILES_OPTION, tls_server_port(r.scheduler));
    cleanup_free char *said = node_files_install(
        3, ARGV("--kubeconfig", r.kubeconfig, "--renew", "--wait", "1"));
    ck_assert_contains(said, "renewed: ");
    ck_assert_contains(said, "restarting kube-scheduler (process " NODE_FILES_PID ")");
    ck_assert_contains(said, " was changed");
    node_files_add_process(SOON_S, NODE_FILES_OPTION, tls_server_port(r.scheduler));
    free(run(&r, 0, "--renew", NULL));
    free(run(&r, 0, "--check", NULL));
    rig_stop(&r);
}
END_TEST

/* The configuration of a release without certificates. */
START_TEST(plain_http_is_upgraded)
{
    struct rig r;
    rig_start(&r);
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
    node_files_add_process(SOON_S, NODE_FILES_OPTION, tls_server_port(r.scheduler));
    cleanup_free char *found = run(&r, 1, "--check", NULL);
    ck_assert_contains(found, "PROBLEM no-answer: ");
    ck_assert_contains(found, " scripts/install --yes    # or --renew");
    cleanup_free char *none = run(&r, 3, "--renew", NULL);
    ck_assert_contains(none, "run scripts/install first");
    cleanup_free char *done =
        node_files_install(0, ARGV("--kubeconfig", r.kubeconfig, "--yes"));
    ck_assert_contains(done, "ok      the extender answers at https://127.0.0.1:");
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
    rig_start(&r);
    cleanup_free char *none =
        node_files_install(3, ARGV("--yes", "--no-cluster", "--address", r.address));
    ck_assert_contains(none, "the certificate of kube-scheduler: the Secret was not read");
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
    rig_start_in(&r, "gpus");
    cleanup_free char *none = node_files_install(
        3, ARGV("--kubeconfig", r.kubeconfig, "--yes", "--address", r.address));
    ck_assert_contains(none, "Secret kube-system/gpushare-scheduler-tls");
    cleanup_free char *bad = node_files_install(
        3, ARGV("--kubeconfig", r.kubeconfig, "--namespace", "../x", "--check"));
    ck_assert_contains(bad, "--namespace: invalid name \"../x\"");
    const char *in[] = {"--kubeconfig", r.kubeconfig, "--namespace", "gpus",
                        "--yes",        "--address",  r.address,     NULL};
    char *said = NULL; /* the extender may not be ready at once */
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
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
    node_files_add_process(SOON_S, NODE_FILES_OPTION, tls_server_port(r.scheduler));
    free(node_files_install(0, in));
    cleanup_free char *now = temp_read(lib_dir, NODE_FILES_CONFIG);
    ck_assert_str_eq(now, config);
    rig_stop(&r);
}
END_TEST

LIB_MAIN("install_tls", 120, the_certificate_comes_from_the_secret,
         a_renewed_certificate_is_reported_and_copied,
         a_renewed_ca_restarts_kube_scheduler, plain_http_is_upgraded,
         without_a_certificate_nothing_is_changed, an_extender_in_another_namespace)
