/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "lib/network.h"
#include "lib/yamlfile.h"

struct cluster cluster;

/* State of the main process; the tests are its children. */
static struct {
    const char *const *up;
    struct unit_tally { /* shared with the children */
        unsigned begun, ended;
    } * tally;
    char *down;    /* shell command that ends the cluster and removes its folder */
    pid_t running; /* scripts/cluster, or 0 */
    bool keeps_nodes, no_extender;
} suite;

/* -- scripts/cluster -- */

void cluster_script(const char *const *words)
{
    struct program p;
    const char *home = getenv("HOME"), *argv[PROGRAM_ARGS] = {"scripts/cluster"};
    program_args(argv, 1, words);
    program_start(&p, home ? home : "/", argv); /* contains the cache of the programs */
    suite.running = p.pid;
    ck_assert_msg(program_wait(&p) == 0, "scripts/cluster %s: %s", argv[1],
                  program_output(&p));
    suite.running = 0;
    program_fini(&p);
}

void cluster_stop(const char *program, const char *signal)
{
    cluster_script(ARGV("stop", program, signal, "--dir", cluster.dir));
}

void cluster_start(const char *program)
{
    cluster_script(ARGV("start", program, "--dir", cluster.dir));
}

void cluster_start_with(const char *program, const char *const *options)
{
    const char *argv[PROGRAM_ARGS] = {"start", "--dir", cluster.dir, program, "--"};
    program_args(argv, 5, options);
    cluster_script(argv);
}

void cluster_add_program(const char *name, const char *const *command)
{
    const char *argv[PROGRAM_ARGS] = {"run", name, "--dir", cluster.dir, "--"};
    program_args(argv, 5, command);
    cluster_script(argv);
}

void cluster_add_user(const char *name, const char *subject)
{
    cluster_script(ARGV("user", name, subject, "--dir", cluster.dir));
}

void cluster_keep_nodes(void)
{
    suite.keeps_nodes = true;
}

void cluster_no_extender(void)
{
    suite.no_extender = true;
}

char *cluster_file(const char *name)
{
    return lib_file(lib_fmt("%s/%s", cluster.dir, name));
}

char *cluster_pki(const char *name)
{
    return lib_fmt("%s/pki/%s", cluster.dir, name);
}

#define EXTENDER_LOG "log/gpushare-extender.log"

static size_t log_start; /* offset in the log; each test is a process of its own */

void cluster_listen(void)
{
    log_start = strlen(cluster_file(EXTENDER_LOG));
}

size_t cluster_logged(const char *text)
{
    size_t n = 0;
    for (const char *p = cluster_file(EXTENDER_LOG) + log_start; (p = strstr(p, text));
         p++)
        n++;
    return n;
}

pid_t cluster_pid(const char *program)
{
    pid_t pid = (pid_t)strtol(cluster_file(lib_fmt("run/%s.pid", program)), NULL, 10);
    ck_assert_int_gt(pid, 0);
    return pid;
}

bool cluster_runs(const char *program)
{
    return access(lib_fmt("%s/run/%s.pid", cluster.dir, program), F_OK) == 0 &&
           kill(cluster_pid(program), 0) == 0;
}

/* The folder that keeps the logs of a failed test. */
static char *logs(void)
{
    return lib_fmt("%s/%s", lib_built("e2e-logs"), unit_name());
}

/* The main process gets SIGTERM or SIGINT. scripts/cluster up cleans up itself. */
static void interrupted(int number)
{
    if (suite.running > 0) {
        kill(suite.running, SIGTERM);
        waitpid(suite.running, NULL, 0);
    }
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", suite.down, NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
    signal(number, SIG_DFL);
    raise(number);
}

static void begin_all(void)
{
    suite.tally = mmap(NULL, sizeof *suite.tally, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(suite.tally != MAP_FAILED);
    cluster.dir = lib_fmt("%s/c", getenv("TMPDIR"));
    suite.down = lib_fmt("scripts/cluster down --dir '%s' --logs '%s'; rm -rf '%s'",
                         cluster.dir, logs(), getenv("TMPDIR"));
    lib_on_interrupt(interrupted);
    const char *argv[PROGRAM_ARGS] = {
        "up",     "--dir", cluster.dir, "--owner",        lib_fmt("%d", (int)getpid()),
        "--logs", logs(),  "--k8s",     cluster_release()};
    bool is_ipv6 = strchr(network_loopback(), ':');
    argv[9] = is_ipv6 ? "--loopback" : NULL;
    argv[10] = is_ipv6 ? network_loopback() : NULL;
    program_args(argv, is_ipv6 ? 11 : 9, suite.up);
    cluster_script(argv);
}

/* A failed test did not run its teardown. */
static void end_all(void)
{
    bool failed = suite.tally->begun != suite.tally->ended;
    cluster_script(ARGV("down", "--dir", cluster.dir, failed ? "--logs" : NULL, logs()));
    if (failed)
        printf("the logs of %s's cluster are in %s\n", unit_name(), logs());
    lib_on_interrupt(SIG_DFL);
    munmap(suite.tally, sizeof *suite.tally);
}

const char *cluster_release(void)
{
    const char *k8s = getenv("E2E_K8S");
    return k8s && *k8s ? k8s : "1.37";
}

char *cluster_program(const char *name)
{
    const char *programs = cluster_file("run/programs");
    return lib_fmt("%.*s/%s", (int)strcspn(programs, "\n"), programs, name);
}

char *cluster_tool(const char *program, int status, const char *const *args)
{
    const char *argv[PROGRAM_ARGS] = {
        "env", lib_fmt("KUBECONFIG=%s/admin.kubeconfig", cluster.dir),
        cluster_program(program)};
    program_args(argv, 3, args);
    return lib_output(status, argv);
}

void cluster_scheduler(struct program *p, const char *config, const char *user)
{
    const char *kubeconfig = lib_fmt("%s/%s.kubeconfig", cluster.dir, user);
    json_t *all = yamlfile_one(config), *extender = lib_at(all, "extenders.0");
    json_object_set_new(all, "clientConnection",
                        json_pack("{ss}", "kubeconfig", kubeconfig));
    if (extender) {
        json_object_del(extender, "enableHTTPS");
        json_object_del(extender, "tlsConfig");
        json_object_set_new(extender, "urlPrefix",
                            json_sprintf("http://%s/gpushare-scheduler",
                                         network_at(cluster.extender.verbs.port)));
    }
    temp_write(lib_dir, "scheduler.json", lib_text(all, ""));
    program_start(p, lib_dir,
                  ARGV(cluster_program("kube-scheduler"), "--config",
                       lib_path("scheduler.json"), "--secure-port", "0",
                       "--authentication-kubeconfig", kubeconfig,
                       "--authorization-kubeconfig", kubeconfig));
}

/* -- each test -- */

void cluster_extender(const char *program, struct extender *e)
{
    unsigned verbs, observers;
    ck_assert_int_eq(sscanf(cluster_file(lib_fmt("run/%s.port", program)), "%u %u",
                            &verbs, &observers),
                     2);
    peer_init(&e->verbs, verbs);
    peer_init(&e->observers, observers);
}

static void connect_all(void)
{
    peer_init_cert(&cluster.api,
                   (unsigned)strtoul(cluster_file("run/kube-apiserver.port"), NULL, 10),
                   cluster_pki("ca.crt"), cluster_pki("admin.crt"),
                   cluster_pki("admin.key"));
    if (!suite.no_extender)
        cluster_extender("gpushare-extender", &cluster.extender);
}

/* `which`: a label selector, or "". */
static void delete_all(const char *path, const char *which)
{
    peer_do(&cluster.api, "DELETE", lib_fmt("%s?gracePeriodSeconds=0%s", path, which),
            NULL);
}

static bool none_left(const char *path)
{
    return json_array_size(cluster_list(path)) == 0;
}

static bool knows_no_node(void)
{
    return lib_size(peer_get(&cluster.extender.observers, "/inspect"), "nodes") == 0;
}

#define PODS        "/api/v1/namespaces/default/pods"
#define DEPLOYMENTS "/apis/apps/v1/namespaces/default/deployments"
#define REPLICAS    "/apis/apps/v1/namespaces/default/replicasets"
#define SCVS        "/apis/core.run-linux.com/v1/scvs"

void cluster_delete_pods(void)
{
    delete_all(DEPLOYMENTS, "");
    delete_all(REPLICAS, "");
    lib_wait(none_left(DEPLOYMENTS) && none_left(REPLICAS));
    delete_all(PODS, "");
    lib_wait(none_left(PODS));
}

static void begin(void)
{
    lib_on_interrupt(SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with the main process */
    suite.tally->begun++;
    cluster_script(ARGV("start", "--dir", cluster.dir));
    connect_all();
    if (!suite.no_extender)
        extender_wait_answers(&cluster.extender);
    lib_wait(peer_status(&cluster.api, "/readyz") == 200);
    cluster_delete_pods();
    if (suite.keeps_nodes)
        return;
    delete_all("/api/v1/nodes", "");
    delete_all(SCVS, "");
    delete_all("/api/v1/namespaces/kube-system/configmaps", "&labelSelector=test");
    lib_wait(none_left("/api/v1/nodes") && none_left(SCVS) && knows_no_node());
}

static void end(void)
{
    peer_fini(&cluster.api);
    peer_fini(&cluster.extender.verbs);
    peer_fini(&cluster.extender.observers);
    suite.tally->ended++;
}

int cluster_run(double seconds, const char *const *up)
{
    const char *loopback = getenv("E2E_LOOPBACK");
    struct err err = {0};
    if (loopback && strcmp(loopback, "::1") == 0 && network_own_ipv6(&err)) {
        fprintf(stderr, "E2E_LOOPBACK: %s\n", err.msg);
        return 1;
    }
    suite.up = up;
    return lib_run(seconds, (struct unit_fixtures){begin_all, end_all, begin, end});
}
