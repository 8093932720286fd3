/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "integration/suite.h"
#include "lib/node_files.h"
#include "lib/stub.h"
#include "lib/tls.h"

/*
 * scripts/install and gpushare-setup on a simulated control plane node: a folder with the
 * node's files, and a /proc with the files of a kube-scheduler process. The extender is
 * the real program, the API server is kube-sim. The checks themselves are tested in
 * test/setup, a real kube-scheduler in test/e2e.
 */

enum { SOON_S = 3600 };

#define RELEASE  "1.35"
#define MANIFEST NODE_FILES_MANIFEST
#define CONFIG   NODE_FILES_CONFIG
#define OPTION   "--config=/etc/kubernetes/kube-scheduler-config.yaml"

static struct tls_server *scheduler; /* serves /healthz */
static char *address;                /* of the extender */
static char *before;                 /* the manifest */

/* Options: of an extender with plain HTTP, and of one that makes its own certificates. */
#define PLAIN       ARGV("--insecure", "--yes", "--no-cluster", "--address", address)
#define SECURE(...) ARGV("--kubeconfig", sim_kubeconfig(&sim), __VA_ARGS__)
#define CHECK       ARGV("--check", "--no-cluster")
#define UNDO        ARGV("--undo")

/* Larger than any process id of the kernel: `kill` hits no process. */
#define PID "4999999"

/* Adds a kube-scheduler that started `from_now_s` seconds from now, with the options of
 * kubeadm's manifest, `more` (or NULL) and the port of its health check (0: none). */
static void add_process(int64_t from_now_s, const char *more, unsigned port)
{
    struct timespec up;
    clock_gettime(CLOCK_BOOTTIME, &up);
    int64_t ticks = (up.tv_sec + from_now_s) * sysconf(_SC_CLK_TCK);
    char *line = lib_fmt("kube-scheduler\n"
                         "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf\n"
                         "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf\n"
                         "--bind-address=127.0.0.1\n"
                         "--kubeconfig=/etc/kubernetes/scheduler.conf\n"
                         "--leader-elect=true\n%s%s%s",
                         port ? lib_fmt("--secure-port=%u\n", port) : "",
                         more ? more : "", more ? "\n" : "");
    struct span words = span_of(line);
    for (size_t i = 0; i < words.n; i++)
        if (line[i] == '\n')
            line[i] = '\0';
    mkdir(lib_path("root/proc/" PID), 0700);
    temp_write(lib_dir, "root/proc/" PID "/comm", "kube-scheduler\n");
    temp_write(lib_dir, "root/proc/" PID "/stat",
               lib_fmt(PID " (kube-scheduler) S 1 1 1 0 -1 4194560 1 0 0 0 0 "
                           "0 0 0 20 0 9 0 %" PRId64 " 1 1 1\n",
                       ticks));
    temp_write_bytes(lib_dir, "root/proc/" PID "/cmdline", words);
}

/* Mode and content of a file below lib_dir, or "absent". */
static char *state_of(const char *path)
{
    struct stat st;
    if (stat(lib_path(path), &st))
        return lib_fmt("absent");
    return lib_fmt("%o\n%s", (unsigned)st.st_mode & 07777, lib_read(path));
}

/* -- check ------------------------------------------------------------------------------
 */

/* The node after an installation for an extender with plain HTTP at this port. */
static void make_installed(unsigned port)
{
    node_files_make(RELEASE, scheduler ? tls_server_port(scheduler) : 0);
    lib_edit(MANIFEST, "    image: ", "    - " OPTION "\n    image: ");
    lib_edit(MANIFEST, "    volumeMounts:\n",
             "    volumeMounts:\n    - mountPath: /etc/kubernetes/"
             "kube-scheduler-config.yaml\n      name: c\n");
    lib_edit(MANIFEST, "  volumes:\n",
             "  volumes:\n  - hostPath:\n      path: /etc/kubernetes/"
             "kube-scheduler-config.yaml\n    name: c\n");
    temp_write(lib_dir, CONFIG,
               node_files_without_tls(
                   lib_swap(lib_file("policy/kube-scheduler-config.yaml"),
                            "127.0.0.1:32766", lib_fmt("127.0.0.1:%u", port))));
    add_process(1, OPTION, 0);
}

TEST(the_extender_answers_or_refuses)
{
    suite_extender(NULL);
    make_installed(extender.verbs.port);
    const char *said = node_files_install(0, CHECK);
    ck_assert_contains(said, "ok      the extender answers at http://127.0.0.1:");
    ck_assert_lacks(said, "PROBLEM");
    said = node_files_install(0, SECURE("--check"));
    ck_assert_lacks(said, "PROBLEM");
    said = node_files_install(2, ARGV("--check", "--kubeconfig", "/nowhere/admin.conf"));
    ck_assert_contains(said, "unknown no-api: ");
    extender_stop(&extender);
    ck_assert_contains(node_files_install(1, CHECK),
                       "PROBLEM no-answer: http://127.0.0.1:");
}

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

TEST(another_program_answers)
{
    struct stub *go = stub_start(play_go, NULL);
    make_installed(sim.api.port);
    ck_assert_contains(node_files_install(1, CHECK), "HTTP status 404");
    make_installed(stub_port(go));
    ck_assert_contains(node_files_install(1, CHECK), "go-extender: ");
    stub_stop(go);
}

/* A node whose kube-scheduler this program does not configure. */
TEST(other_distributions)
{
    node_files_make(RELEASE, 0);
    add_process(1, NULL, 0);
    lib_edit(MANIFEST, "  name: kube-scheduler\n  names",
             "  name: openshift-kube-scheduler\n  names");
    const char *said = node_files_install(1, CHECK);
    ck_assert_contains(said, "PROBLEM no-static-pod: ");
    ck_assert_contains(said, "--create-namespace --set image.registry=REGISTRY\n");
    said = node_files_install(3, ARGV("--insecure", "--yes"));
    ck_assert_contains(said, "--set image.registry=REGISTRY");
    ck_assert_contains(said, "policy/README.md");
}

/* Pipes, links and malformed files neither block the checks nor reach the terminal. */
TEST(hostile_files)
{
    const char *loop = lib_path(NODE_FILES_MANIFESTS "/c-scheduler");
    cleanup_buf struct buf huge = {0};
    node_files_make(RELEASE, 0);
    add_process(1, NULL, 0);
    ck_assert_int_eq(mkfifo(lib_path(NODE_FILES_MANIFESTS "/a-scheduler"), 0600), 0);
    ck_assert_int_eq(symlink("/dev/zero", lib_path(NODE_FILES_MANIFESTS "/b-scheduler")),
                     0);
    ck_assert_int_eq(symlink(loop, loop), 0);
    ck_assert_int_eq(symlink("kube-scheduler.yaml",
                             lib_path(NODE_FILES_MANIFESTS "/.kube-scheduler.yaml")),
                     0);
    const char *said = node_files_install(1, CHECK);
    ck_assert_contains(said, "PROBLEM no-option: ");
    ck_assert_lacks(said, "-scheduler:");
    ck_assert_lacks(said, "two-manifests");
    for (int i = 0; i < 200000; i++)
        buf_adds(&huge, "- [[[[[");
    temp_write_bytes(lib_dir, NODE_FILES_MANIFESTS "/d-scheduler", buf_span(&huge));
    said = node_files_install(1, CHECK);
    ck_assert_contains(said, "PROBLEM manifest-unreadable: ");
    ck_assert_contains(said, "larger than");
    temp_write(lib_dir, NODE_FILES_MANIFESTS "/d-scheduler", "a: &a\n- *a\n\x1b[2J");
    said = node_files_install(1, CHECK);
    ck_assert_contains(said, "PROBLEM manifest-unreadable: ");
    ck_assert_ptr_null(strchr(said, '\x1b'));
}

/* -- install ----------------------------------------------------------------------------
 */

/* The process of kube-scheduler, which started that many seconds from now. */
static void run_scheduler(int64_t from_now_s, const char *option)
{
    add_process(from_now_s, option, tls_server_port(scheduler));
}

static void stop_scheduler(void *s)
{
    tls_server_stop(s);
    scheduler = NULL;
}

/* `namespace`: that of an extender that makes its own certificates; NULL: it serves plain
 * HTTP. */
static void set_up(const char *namespace)
{
    sim_load(
        &sim,
        "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{"
        "\"name\":\"gpushare-extender\",\"namespace\":\"gpus\"},\"spec\":{}}");
    sim_add_node(&sim, "n1", 2, 15);
    if (namespace) {
        extender_begin(&extender, &sim,
                       ARGV("--insecure=off", "--lease-namespace", namespace));
        ck_assert(program_wait_output(&extender.program, "valid-until="));
        extender_connect_secret(&extender, &sim.api, namespace, false);
        extender_wait_ready(&extender);
    } else {
        suite_extender(NULL);
    }
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "scheduler", "IP:127.0.0.1");
    scheduler =
        lib_keep(tls_server_start(
                     lib_dir, 0, ARGV("-cert", "scheduler.crt", "-key", "scheduler.key")),
                 stop_scheduler);
    address = lib_fmt("127.0.0.1:%u", extender.verbs.port);
    node_files_make(RELEASE, tls_server_port(scheduler));
    ck_assert_int_eq(chmod(lib_path(MANIFEST), 0600), 0);
    before = state_of(MANIFEST);
    run_scheduler(SOON_S, OPTION); /* of the changed manifest */
}

/* It ends with this status, and the files are as before. */
static void expect_untouched(int status, const char *text, const char *const *options)
{
    ck_assert_contains(node_files_install(status, options), text);
    ck_assert_str_eq(state_of(MANIFEST), before);
    ck_assert_str_eq(state_of(CONFIG), "absent");
}

TEST(nothing_is_changed)
{
    set_up(NULL);
    run_scheduler(SOON_S, NULL); /* the process never gets the option */
    expect_untouched(1, "+    - " OPTION "\n", ARGV("--insecure", "--address", address));
    expect_untouched(1, "nothing was changed", ARGV("--insecure", "--address", address));
    expect_untouched(3, "install the extender first",
                     ARGV("--insecure", "--yes", "--address", "127.0.0.1:1"));
    static const char *const invalid[] = {
        "",        "nonsense",    "fe80::1",      "::1:80",       "::ffff:1.2.3.4:80",
        "[::1:80", "[]:80",       "[::1]80",      "[::1]",        "[::1]:",
        "[::1]:0", "[::1]:65536", "[::1]x:80",    "[::1]:80/p",   "[zz]:80",
        ":80",     "host:80:80",  "[host.io]:80", "[1.2.3.4]:80", "[fe80::1%lo]:80",
        "a]:80",   "u@host:80",   "host:-1",      "host:+1",      "ho st:80"};
    array_items(c, invalid)
        expect_untouched(3, "HOST:PORT", ARGV("--insecure", "--yes", "--address", *c));
    expect_untouched(3, "install the extender first",
                     ARGV("--insecure", "--yes", "--address", "[::1]:1"));
    expect_untouched(
        3, "kube-scheduler is not healthy after 1 s: no kube-scheduler runs",
        ARGV("--insecure", "--yes", "--no-cluster", "--wait", "1", "--address", address));

    /* A copy of the manifest, or a symbolic link. */
    temp_write(lib_dir, MANIFEST ".bak", lib_read(MANIFEST));
    expect_untouched(3, "are the same static pod", PLAIN);
    ck_assert_contains(node_files_install(1, CHECK), "PROBLEM two-manifests: ");
    temp_remove(lib_dir, MANIFEST ".bak");
    ck_assert_int_eq(rename(lib_path(MANIFEST), lib_path("elsewhere.yaml")), 0);
    ck_assert_int_eq(symlink(lib_path("elsewhere.yaml"), lib_path(MANIFEST)), 0);
    expect_untouched(3, "is a symbolic link", PLAIN);
}

TEST(install_twice_and_undo)
{
    set_up(NULL);
    const char *said = node_files_install(0, PLAIN);
    ck_assert_contains(said, "kube-scheduler is healthy with the new files");
    ck_assert_contains(said, "ok      the extender answers at ");
    const char *after = state_of(MANIFEST);
    ck_assert_contains(after, "    - " OPTION "\n");
    ck_assert_int_eq(strncmp(after, "600\n", 4), 0);
    ck_assert_contains(state_of(CONFIG), address);
    said = node_files_install(0, ARGV("--insecure", "--yes", "--no-cluster"));
    ck_assert_contains(said, "nothing to change");
    ck_assert_str_eq(state_of(MANIFEST), after);

    run_scheduler(SOON_S, NULL);
    expect_untouched(0, "restored: ", UNDO);
    expect_untouched(0, "nothing to undo", UNDO);

    /* It keeps a file that was changed since. */
    run_scheduler(SOON_S, OPTION);
    node_files_install(0, PLAIN);
    lib_edit(CONFIG, "weight: 3", "weight: 9");
    const char *edited = lib_read(CONFIG);
    ck_assert_contains(node_files_install(3, UNDO),
                       "kube-scheduler-config.yaml was changed since");
    ck_assert_str_eq(lib_read(CONFIG), edited);
}

/* kubeadm writes the static pod again, in another order and with another image. */
TEST(undo_after_an_upgrade)
{
#define MOUNT                                                                            \
    "    - mountPath: /etc/kubernetes/kube-scheduler-config.yaml\n"                      \
    "      name: gpushare-scheduler-config\n      readOnly: true\n"
#define MINE "    - mountPath: /mine\n      name: mine\n"
    set_up(NULL);
    const char *old = lib_read(MANIFEST);
    node_files_install(0, PLAIN);
    lib_edit(MANIFEST, MOUNT, "");
    lib_edit(MANIFEST, "    volumeMounts:\n", "    volumeMounts:\n" MOUNT MINE);
    lib_edit(MANIFEST, "scheduler:v", "scheduler:v9.");
    run_scheduler(SOON_S, NULL);
    const char *want = lib_swap(old, "    volumeMounts:\n", "    volumeMounts:\n" MINE);
    want = lib_swap(want, "scheduler:v", "scheduler:v9.");
    ck_assert_contains(node_files_install(0, UNDO), "restored: ");
    ck_assert_str_eq(lib_read(MANIFEST), want);
    ck_assert_str_eq(state_of(CONFIG), "absent");
}

/* Interrupts an installation that waits for kube-scheduler, after a person has edited the
 * manifest, or not. Returns its output, kept. */
static char *interrupt(bool edited)
{
    struct program p;
    node_files_begin(&p, PLAIN);
    ck_assert(program_wait_output(&p, "changed: "));
    if (edited)
        lib_edit(MANIFEST, "name: gpushare-scheduler-config\n      readOnly",
                 "name: x\n      readOnly");
    program_signal(&p, SIGTERM);
    if (edited) {
        ck_assert(program_wait_output(&p, "was changed since"));
        run_scheduler(SOON_S, OPTION); /* which the manifest still names */
    }
    return lib_keep(program_end(&p, 3), free);
}

TEST(a_signal_restores_the_files)
{
    set_up(NULL);
    run_scheduler(SOON_S, NULL);
    ck_assert_contains(interrupt(false), "interrupted; restoring the previous files");
    ck_assert_str_eq(state_of(MANIFEST), before);
    ck_assert_str_eq(state_of(CONFIG), "absent");

    /* A file that is not restored keeps its backup. */
    const char *old = lib_read(MANIFEST), *said = interrupt(true);
    static const char mark[] = "install: previous content: ";
    const char *at = strstr(said, mark);
    ck_assert_ptr_nonnull(at);
    at += strlen(mark);
    ck_assert_str_eq(lib_file(lib_fmt("%.*s", (int)strcspn(at, "\n"), at)), old);
}

/* As in `scripts/install --yes | head`. */
TEST(a_closed_standard_output_does_not_stop_it)
{
    set_up(NULL);
    run_scheduler(SOON_S, NULL);
    const char *line = lib_fmt(
        "exec 8> >(:); wait $!; BUILD='%s' scripts/install --insecure --yes --no-cluster "
        "--wait 1 --root '%s' --address %s >&8",
        lib_built(""), lib_path("root"), address);
    ck_assert_contains(
        lib_output(3, ARGV("env", "--default-signal=PIPE", "bash", "-c", line)),
        "restoring the previous files");
    ck_assert_str_eq(state_of(MANIFEST), before);
    ck_assert_str_eq(state_of(CONFIG), "absent");
}

/* Installed by `make install`: beside gpushare-setup, with policy/ in share. */
TEST(installed_under_another_prefix)
{
    const char *line =
        lib_fmt("d='%s' && mkdir -p $d/bin $d/share/gpushare && cp '%s' $d/bin && "
                "cp scripts/install $d/bin/gpushare-install && "
                "cp -rT policy $d/share/gpushare/policy && cd / && "
                "$d/bin/gpushare-install --check --no-cluster --root $d/root",
                lib_dir, lib_built("gpushare-setup"));
    const char *const *run = ARGV("env", "-u", "BUILD", "sh", "-c", line);
    node_files_make(RELEASE, 0);
    add_process(1, NULL, 0);
    const char *said = lib_output(1, run);
    ck_assert_contains(said, "PROBLEM no-option: ");
    ck_assert_contains(said, "  fix   gpushare-install --yes\n");

    /* Commands name files where they were installed. */
    lib_edit(MANIFEST, "  name: kube-scheduler\n  names",
             "  name: openshift-kube-scheduler\n  names");
    said = lib_output(1, run);
    ck_assert_contains(said, "PROBLEM no-static-pod: ");
    ck_assert_contains(
        said,
        lib_fmt("helm install gpushare %s/share/gpushare/manifests/chart ", lib_dir));
}

/* A server that edits the manifest during each request. */
static void edit_manifest(struct stub_conn *conn, void *ctx)
{
    (void)ctx;
    while (stub_read(conn)) {
        temp_write(lib_dir, MANIFEST,
                   lib_fmt("%s# edited by a user\n", lib_read(MANIFEST)));
        stub_reply(conn, 500, "", "{}");
    }
}

TEST(concurrent_edits_are_not_lost)
{
    set_up(NULL);
    struct stub *s = stub_start(edit_manifest, NULL);
    ck_assert_contains(
        node_files_install(3, ARGV("--insecure", "--yes", "--without-extender",
                                   "--address", lib_fmt("127.0.0.1:%u", stub_port(s)))),
        "the files were changed during the confirmation");
    const char *manifest = lib_read(MANIFEST);
    ck_assert_contains(manifest, "edited by a user");
    ck_assert_lacks(manifest, OPTION);
    ck_assert_str_eq(state_of(CONFIG), "absent");
    stub_stop(s);
}

/* -- an extender that makes its own certificates: kube-scheduler's comes from the Secret -- */

#define SECRET  "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls"
#define FOLDER  "root/etc/kubernetes/gpushare"
#define INSTALL SECURE("--yes", "--address", address)

static void expect_mode(const char *name, const char *mode)
{
    const char *state = state_of(lib_fmt(FOLDER "/%s", name));
    ck_assert_msg(strncmp(state, mode, strlen(mode)) == 0, "%s: %s", name, state);
}

static void expect_no_key_in_backups(void)
{
    lib_output(
        1, ARGV("grep", "-r", "PRIVATE KEY", lib_path("root/var/lib/gpushare-install")));
}

TEST(the_certificate_comes_from_the_secret)
{
    set_up("kube-system");
    const char *said = node_files_install(1, SECURE("--address", address));
    ck_assert_contains(said, "client.key: from Secret kube-system/");
    ck_assert_lacks(said, "PRIVATE KEY");
    run_scheduler(-SOON_S, OPTION);
    said = node_files_install(3, SECURE("--yes", "--address", address, "--wait", "1"));
    ck_assert_contains(said, "restoring the previous files");
    expect_no_key_in_backups();
    run_scheduler(SOON_S, OPTION);
    said = node_files_install(0, INSTALL);
    ck_assert_contains(said, "ok      the extender answers at https://127.0.0.1:");
    ck_assert_contains(said, "client.crt is valid until 20");
    expect_mode("ca.crt", "644\n");
    expect_mode("client.crt", "644\n");
    expect_mode("client.key", "600\n");
    ck_assert_contains(lib_read(CONFIG), "https://127.0.0.1:");
    expect_no_key_in_backups();
    ck_assert_contains(node_files_install(0, INSTALL), "nothing to change");
    ck_assert_contains(node_files_install(0, SECURE("--renew")), "nothing to renew");
    said = node_files_install(3, ARGV("--kubeconfig", "/none-such", "--renew"));
    ck_assert_contains(said, "Secret kube-system/gpushare-scheduler-tls: ");
    ck_assert_contains(said, "/none-such");

    run_scheduler(SOON_S, NULL);
    expect_untouched(0, "", UNDO);
    struct stat st;
    ck_assert_int_eq(stat(lib_path(FOLDER), &st), -1);
}

TEST(a_renewed_certificate_is_reported_and_copied)
{
    set_up("kube-system");
    node_files_install(0, INSTALL);
    const char *ca = lib_read(FOLDER "/ca.crt"), *old = lib_read(FOLDER "/client.crt");
    peer_do(&sim.api, "DELETE", SECRET, NULL);
    lib_wait(peer_status(&sim.api, SECRET) == 200); /* the leader makes another */
    ck_assert_contains(node_files_install(0, SECURE("--check")),
                       "note    Secret gpushare-scheduler-tls has a newer certificate");
    const char *said = node_files_install(0, SECURE("--renew"));
    ck_assert_lacks(said, "restarting"); /* of the same CA */
    ck_assert_str_ne(lib_read(FOLDER "/client.crt"), old);
    ck_assert_str_eq(lib_read(FOLDER "/ca.crt"), ca);
    expect_mode("client.key", "600\n");
    said = node_files_install(0, SECURE("--check"));
    ck_assert_lacks(said, "newer certificate");

    /* kube-scheduler reads the CA only when it starts. */
    temp_write(lib_dir, FOLDER "/ca.crt", lib_read("ca.crt"));
    said = node_files_install(1, SECURE("--check"));
    ck_assert_contains(said, "PROBLEM ca-outdated: ");
    ck_assert_contains(said, "PROBLEM no-answer: ");
    run_scheduler(-SOON_S, OPTION);
    said = node_files_install(3, SECURE("--renew", "--wait", "1"));
    ck_assert_contains(said, "renewed: ");
    ck_assert_contains(said, "restarting kube-scheduler (process " PID ")");
    ck_assert_contains(said, " was changed");
    run_scheduler(SOON_S, OPTION);
    node_files_install(0, SECURE("--renew"));
    node_files_install(0, SECURE("--check"));

    /* --undo removes the files whatever was renewed since. */
    run_scheduler(SOON_S, NULL);
    node_files_install(0, UNDO);
    ck_assert_str_eq(state_of(FOLDER "/client.key"), "absent");
}

/* The configuration of a release without certificates. */
#define KUBEADM "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"

static const char *cluster_configuration(void)
{
    return lib_str(peer_get(&sim.api, KUBEADM), "data.ClusterConfiguration");
}

/* With the escapes of JSON. */
static void set_cluster_configuration(const char *text)
{
    peer_do(&sim.api, "PATCH", KUBEADM,
            lib_fmt("{\"data\":{\"ClusterConfiguration\":\"%s\"}}", text));
}

#define VOLUME(path, name, type)                                                         \
    "  - hostPath: " path "\\n    mountPath: " path                                      \
    "\\n    name: gpushare-scheduler-" name "\\n    pathType: " type                     \
    "\\n    readOnly: true\\n"

/* So that `kubeadm upgrade` makes the same static pod. */
TEST(kubeadms_own_configuration_has_the_same)
{
    static const char old[] = "apiVersion: kubeadm.k8s.io/v1beta4\\n"
                              "kind: ClusterConfiguration\\nscheduler: {}\\n";
    set_up("kube-system");
    peer_do(&sim.api, "POST", "/api/v1/namespaces/kube-system/configmaps",
            lib_fmt("{\"metadata\":{\"name\":\"kubeadm-config\"},\"data\":{"
                    "\"ClusterConfiguration\":\"%s\",\"other\":\"stays\"}}",
                    old));
    const char *was = cluster_configuration();
    ck_assert_contains(node_files_install(0, INSTALL), "kube-system/kubeadm-config");
    const char *now = cluster_configuration();
    ck_assert_contains(now, "  extraArgs:\n  - name: config\n"
                            "    value: /etc/kubernetes/kube-scheduler-config.yaml\n");
    ck_assert_contains(now, "    mountPath: /etc/kubernetes/gpushare\n");
    ck_assert_at(peer_get(&sim.api, KUBEADM), "data.other", "stays");
    ck_assert_contains(node_files_install(0, INSTALL), "nothing to change");
    run_scheduler(SOON_S, NULL);
    node_files_install(0, SECURE("--undo"));
    ck_assert_str_eq(cluster_configuration(), was);

    /* As `kubeadm upgrade` writes it. */
    run_scheduler(SOON_S, OPTION);
    node_files_install(0, INSTALL);
    set_cluster_configuration(
        "apiVersion: kubeadm.k8s.io/v1beta4\\n"
        "kubernetesVersion: v1.36.0\\nscheduler:\\n"
        "  extraVolumes:\\n" VOLUME("/etc/kubernetes/gpushare", "tls", "Directory")
            VOLUME("/etc/kubernetes/kube-scheduler-config.yaml", "config", "File"));
    ck_assert_contains(node_files_install(3, SECURE("--undo")),
                       "kubeadm-config was changed since");
    set_cluster_configuration(
        "apiVersion: kubeadm.k8s.io/v1beta4\\n"
        "kubernetesVersion: v1.36.0\\nscheduler:\\n"
        "  extraArgs:\\n  - name: config\\n    value: "
        "/etc/kubernetes/kube-scheduler-config.yaml\\n"
        "  extraVolumes:\\n" VOLUME("/etc/kubernetes/gpushare", "tls", "Directory")
            VOLUME("/etc/kubernetes/kube-scheduler-config.yaml", "config", "File"));
    run_scheduler(SOON_S, NULL);
    node_files_install(0, SECURE("--undo"));
    ck_assert_str_eq(cluster_configuration(),
                     "apiVersion: kubeadm.k8s.io/v1beta4\nkubernetesVersion: v1.36.0\n");

    /* One that cannot be edited is reported before the confirmation. */
    set_cluster_configuration("apiVersion: kubeadm.k8s.io/v1beta4\\n"
                              "scheduler: {extraArgs: [{name: v, value: x}]}\\n");
    const char *said = node_files_install(1, SECURE("--address", address));
    ck_assert_contains(said, "warning: `kubeadm upgrade` will leave the extender out: "
                             "kube-system/kubeadm-config: ");
    ck_assert_contains(said, "policy/README.md");
    set_cluster_configuration("a: &x [");
    run_scheduler(SOON_S, OPTION);
    said = node_files_install(1, INSTALL);
    ck_assert_contains(said, "warning: `kubeadm upgrade` will leave the extender out: "
                             "kube-system/kubeadm-config");
    ck_assert_contains(said, "PROBLEM upgrade-undoes: ");
    ck_assert_contains(said,
                       "  fix   kubectl -n kube-system edit configmap kubeadm-config");
    run_scheduler(SOON_S, NULL);
    node_files_install(0, SECURE("--undo"));

    /* One that lost them is reported. */
    run_scheduler(SOON_S, OPTION);
    set_cluster_configuration(old);
    node_files_install(0, INSTALL);
    set_cluster_configuration(old);
    ck_assert_contains(node_files_install(1, SECURE("--check")),
                       "PROBLEM upgrade-undoes: ");
}

/* On a node that joined later, kubeadm has written --config and the mounts. */
TEST(undo_keeps_what_the_static_pod_names)
{
    set_up("kube-system");
    const char *old = lib_read(MANIFEST);
    node_files_install(0, INSTALL);
    const char *joined = lib_read(MANIFEST), *config = lib_read(CONFIG);
    const char *const *forget = ARGV("rm", "-r", lib_path(CONFIG), lib_path(FOLDER),
                                     lib_path("root/var/lib/gpushare-install"));
    lib_output(0, forget);
    node_files_install(0, INSTALL);
    const char *said = node_files_install(3, UNDO);
    ck_assert_contains(said, "kube-scheduler-config.yaml stays: ");
    ck_assert_contains(said, "manifests/kube-scheduler.yaml, then run --undo again");
    ck_assert_str_eq(lib_read(CONFIG), config);
    expect_mode("client.key", "600\n");
    temp_write(lib_dir, MANIFEST, old); /* as it says */
    run_scheduler(SOON_S, NULL);
    node_files_install(0, UNDO);
    ck_assert_str_eq(state_of(CONFIG), "absent");
    ck_assert_int_eq(access(lib_path(FOLDER), F_OK), -1);

    /* Without the entry, the certificate is no longer named, but its folder is mounted. */
    temp_write(lib_dir, MANIFEST, joined);
    config = lib_fmt("%.*s\n", (int)(strstr(config, "\nextenders:") - config), config);
    temp_write(lib_dir, CONFIG, config);
    run_scheduler(SOON_S, OPTION);
    node_files_install(0, INSTALL);
    node_files_install(0, UNDO);
    ck_assert_str_eq(lib_read(CONFIG), config);
    ck_assert_str_eq(state_of(FOLDER "/client.key"), "absent");
    ck_assert_int_eq(access(lib_path(FOLDER), F_OK), 0);
}

/* The second change replaces lost files, which the first one's static pod names. */
TEST(each_undo_takes_one_change_back)
{
    set_up("kube-system");
    node_files_install(0, INSTALL);
    lib_output(0, ARGV("rm", "-r", lib_path(FOLDER), lib_path(CONFIG)));
    node_files_install(0, INSTALL);
    const char *said = node_files_install(0, UNDO);
    ck_assert_contains(said, "an earlier change remains");
    expect_mode("client.key", "600\n");
    ck_assert_contains(lib_read(CONFIG), address);
    run_scheduler(SOON_S, NULL);
    said = node_files_install(0, UNDO);
    ck_assert_lacks(said, "remains");
    expect_untouched(0, "nothing to undo", UNDO);
    ck_assert_int_eq(access(lib_path(FOLDER), F_OK), -1);
}

TEST(plain_http_is_upgraded)
{
    set_up("kube-system");
    make_installed(extender.verbs.port);
    const char *old = lib_read(CONFIG), *manifest = lib_read(MANIFEST);
    run_scheduler(SOON_S, OPTION);
    const char *said = node_files_install(1, SECURE("--check"));
    ck_assert_contains(said, "PROBLEM no-answer: ");
    ck_assert_contains(said, " scripts/install --yes    # or --renew");
    ck_assert_contains(node_files_install(3, SECURE("--renew")),
                       "run scripts/install first");
    ck_assert_contains(node_files_install(0, SECURE("--yes")),
                       "ok      the extender answers at https://127.0.0.1:");
    expect_mode("client.key", "600\n");

    /* All files go back, or none: the entry still names the certificate. */
    const char *after = lib_read(MANIFEST);
    lib_edit(CONFIG, "weight: 3", "weight: 9");
    ck_assert_contains(node_files_install(3, UNDO),
                       "kube-scheduler-config.yaml was changed since");
    ck_assert_str_eq(lib_read(MANIFEST), after);
    expect_mode("client.key", "600\n");
    lib_edit(CONFIG, "weight: 9", "weight: 3");

    node_files_install(0, UNDO);
    ck_assert_str_eq(lib_read(CONFIG), old);
    ck_assert_str_eq(lib_read(MANIFEST), manifest);
    ck_assert_str_eq(state_of(FOLDER "/client.key"), "absent");
}

TEST(without_a_certificate_nothing_is_changed)
{
    set_up("kube-system");
    expect_untouched(3, "the certificate of kube-scheduler: the Secret was not read",
                     ARGV("--yes", "--no-cluster", "--address", address));
    /* An extender with --insecure makes no Secret. */
    suite_restart(ARGV("--insecure"));
    peer_do(&sim.api, "DELETE", SECRET, NULL);
    expect_untouched(3, "not found", INSTALL);
    expect_untouched(3, "scripts/install --insecure", INSTALL);
}

/* The release is in another namespace: so are the Secret and the extender's name. */
TEST(an_extender_in_another_namespace)
{
    set_up("gpus");
    expect_untouched(3, "Secret kube-system/gpushare-scheduler-tls", INSTALL);
    expect_untouched(3, "--namespace: invalid name \"../x\"",
                     SECURE("--namespace", "../x", "--check"));
    const char *const *in = SECURE("--namespace", "gpus", "--yes", "--address", address);
    const char *said = node_files_install(0, in);
    ck_assert_contains(said, "client.key: from Secret gpus/gpushare-scheduler-tls");
    ck_assert_contains(said, "ok      the extender answers at https://127.0.0.1:");
    const char *config = lib_read(CONFIG);
    ck_assert_contains(config, "serverName: gpushare-schd-extender.gpus.svc");
    /* An entry with the name of a former namespace. */
    lib_edit(CONFIG, "extender.gpus.svc", "extender.old.svc");
    said = node_files_install(1, SECURE("--namespace", "gpus", "--check"));
    ck_assert_contains(said, "PROBLEM no-answer: ");
    ck_assert_contains(said, " scripts/install --namespace gpus --yes    # or --renew");
    run_scheduler(SOON_S, OPTION);
    node_files_install(0, in);
    ck_assert_str_eq(lib_read(CONFIG), config);
}

TEST(a_namespace_without_a_release)
{
#define ELSEWHERE "--namespace", "gpushare"
    set_up("kube-system");
    node_files_install(0, INSTALL);
    const char *config = lib_read(CONFIG);
    const char *said = node_files_install(1, SECURE(ELSEWHERE, "--check"));
    ck_assert_contains(said, "PROBLEM no-secret: Secret gpushare/gpushare-scheduler-tls");
    said = node_files_install(3, SECURE(ELSEWHERE, "--yes"));
    ck_assert_contains(said, "Secret gpushare/gpushare-scheduler-tls: ");
    /* The extender does not have the planned name. */
    said = node_files_install(3, ARGV(ELSEWHERE, "--yes", "--no-cluster"));
    ck_assert_contains(said, "PROBLEM no-answer: ");
    ck_assert_contains(said, "install the extender first");
    ck_assert_str_eq(lib_read(CONFIG), config);

    /* Before the release is installed. */
    peer_do(&sim.api, "DELETE",
            "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls", NULL);
    node_files_make(RELEASE, 0);
    said = node_files_install(1, SECURE(ELSEWHERE, "--check"));
    ck_assert_contains(said, "PROBLEM no-secret: Secret gpushare/gpushare-scheduler-tls");
    ck_assert_contains(said, "helm install gpushare manifests/chart -n gpushare ");
    ck_assert(strstr(said, "no-secret") < strstr(said, "PROBLEM no-option: "));
}

/* An extender that answers only until the files are changed. */
static void play_gone(struct stub_conn *conn, void *ctx)
{
    (void)ctx;
    while (stub_read(conn)) {
        bool changed = strstr(state_of(MANIFEST), OPTION);
        stub_reply(conn, changed ? 404 : 200, "",
                   "{\"NodeNames\":[],\"FailedNodes\":{},\"version\":\"1\"}");
    }
}

TEST(an_extender_that_no_longer_answers_restores_the_files)
{
    set_up(NULL);
    struct stub *gone = stub_start(play_gone, NULL);
    expect_untouched(3, "no longer answers; restoring the previous files",
                     ARGV("--insecure", "--yes", "--no-cluster", "--wait", "0",
                          "--address", lib_fmt("127.0.0.1:%u", stub_port(gone))));
    stub_stop(gone);
}

/* An API server that has the Service `ctx`, of release namespace `gpus`, and nothing else. */
static void answer_service(struct stub_conn *conn, void *ctx)
{
    while (stub_read(conn)) {
        cleanup_free char *request =
            stub_request(conn->server, stub_requests(conn->server) - 1);
        bool is = strstr(request, "GET /api/v1/namespaces/gpus/services/"
                                  "gpushare-schd-extender HTTP") != NULL;
        stub_reply(conn, is ? 200 : 404, "", is ? ctx : "");
    }
}

TEST(the_node_port_is_that_of_the_service)
{
    static const struct {
        const char *service, *ns, *address, *want;
    } cases[] = {
        {"{\"spec\":{\"ports\":[{\"nodePort\":30001}]}}", "gpus", NULL,
         "127.0.0.1:30001"},
        {"{\"spec\":{\"ports\":[{\"nodePort\":30001}]}}", "gpus", "n:5", "n:5"},
        {"{\"spec\":{\"ports\":[{\"port\":1}]}}", "gpus", NULL, "127.0.0.1:32766"},
        {"{\"spec\":{\"ports\":[{\"nodePort\":30001}]}}", "other", NULL,
         "127.0.0.1:32766"},
        {"no JSON", "gpus", NULL, "127.0.0.1:32766"},
    };
    node_files_make(RELEASE, 0);
    mkdir(lib_path("out"), 0700);
    array_items(c, cases) {
        struct stub *s = stub_start(answer_service, (void *)c->service);
        temp_write(lib_dir, "stub",
                   lib_fmt("{\"current-context\":\"c\",\"clusters\":[{\"name\":\"c\","
                           "\"cluster\":{\"server\":\"%s\"}}],\"contexts\":[{\"name\":"
                           "\"c\",\"context\":{\"cluster\":\"c\",\"user\":\"u\"}}],"
                           "\"users\":[{\"name\":\"u\",\"user\":{}}]}",
                           stub_url(s)));
        lib_output_of(0, "gpushare-setup",
                      ARGV("plan", "--insecure", "--root", lib_path("root"), "--policy",
                           lib_keep(realpath("policy", NULL), free), "--out",
                           lib_path("out"), "--kubeconfig", lib_path("stub"),
                           "--namespace", c->ns, c->address ? "--address" : NULL,
                           c->address));
        ck_assert_contains(lib_read("out/config"),
                           lib_fmt("urlPrefix: http://%s/gpushare-scheduler ", c->want));
        stub_stop(s);
    }
}

TEST(a_missing_or_unknown_command)
{
    ck_assert_str_eq(
        lib_output_of(3, "gpushare-setup", NULL),
        "gpushare-setup: missing command; expected one of check, plan, renew, "
        "running, named, reach, store\n");
    ck_assert_contains(lib_output_of(3, "gpushare-setup", ARGV("chek")),
                       "unknown command \"chek\"; expected one of check, plan");
    ck_assert_contains(lib_output_of(3, "gpushare-setup", ARGV("check", "it")),
                       "unknown command \"it\"; expected one of check, plan");
}

SUITE_MAIN(120, NULL)
