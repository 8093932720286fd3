/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

enum { TESTS = 64 };

struct cluster cluster;

/* State of the main process; the tests are its children. */
static struct {
    const char *name;
    const char *const *up;
    struct unit_tally { /* shared with the children */
        unsigned begun, ended;
    } * tally;
    char *kubectl;
    char *down;    /* shell command that ends the cluster and removes its folder */
    pid_t running; /* scripts/cluster, or 0 */
    bool keeps_nodes, no_extender;
} suite;

/* -- scripts/cluster -- */

static void script(const char *const *args)
{
    struct program p;
    const char *home = getenv("HOME"), *argv[PROGRAM_ARGS] = {"scripts/cluster"};
    program_args(argv, 1, args);
    program_start(&p, home ? home : "/", argv); /* contains the cache of the programs */
    suite.running = p.pid;
    ck_assert_msg(program_wait(&p) == 0, "scripts/cluster %s: %s", argv[1],
                  program_output(&p));
    suite.running = 0;
    program_fini(&p);
}

void cluster_stop(const char *program, const char *signal)
{
    script(ARGV("stop", program, signal, "--dir", cluster.dir));
}

void cluster_start(const char *program)
{
    script(ARGV("start", program, "--dir", cluster.dir));
}

void cluster_start_with(const char *program, const char *const *options)
{
    const char *argv[PROGRAM_ARGS] = {"start", "--dir", cluster.dir, program, "--"};
    program_args(argv, 5, options);
    script(argv);
}

void cluster_add_program(const char *name, const char *const *command)
{
    const char *argv[PROGRAM_ARGS] = {"run", name, "--dir", cluster.dir, "--"};
    program_args(argv, 5, command);
    script(argv);
}

void cluster_add_user(const char *name, const char *subject)
{
    script(ARGV("user", name, subject, "--dir", cluster.dir));
}

void cluster_keep_nodes(void)
{
    suite.keeps_nodes = true;
}

void cluster_no_extender(void)
{
    suite.no_extender = true;
}

/* New. */
static char *extender_log(void)
{
    return temp_read(cluster.dir, "log/gpushare-extender.log");
}

static size_t log_start; /* offset in the log; each test is a process of its own */

void cluster_listen(void)
{
    cleanup_free char *log = extender_log();
    log_start = strlen(log);
}

size_t cluster_logged(const char *text)
{
    cleanup_free char *log = extender_log();
    size_t n = 0;
    for (const char *p = log + log_start; (p = strstr(p, text)) != NULL; p++)
        n++;
    return n;
}

pid_t cluster_pid(const char *program)
{
    cleanup_free char *name = xasprintf("run/%s.pid", program);
    cleanup_free char *text = temp_read(cluster.dir, name);
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    ck_assert_int_gt(pid, 0);
    return pid;
}

bool cluster_runs(const char *program)
{
    cleanup_free char *file = xasprintf("%s/run/%s.pid", cluster.dir, program);
    return access(file, F_OK) == 0 && kill(cluster_pid(program), 0) == 0;
}

/* The folder that keeps the logs of a failed test. New. */
static char *logs(void)
{
    cleanup_free char *dir = program_path("e2e-logs");
    return xasprintf("%s/%s", dir, suite.name);
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

static void on_interrupt(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        signal(numbers[i], handler);
}

static void begin_all(void)
{
    char owner[16];
    cleanup_free char *base = temp_dir(), *keep = logs();
    suite.tally = mmap(NULL, sizeof *suite.tally, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(suite.tally != MAP_FAILED);
    cluster.dir = xasprintf("%s/c", base);
    snprintf(owner, sizeof owner, "%d", (int)getpid());
    suite.down = xasprintf("scripts/cluster down --dir '%s' --logs '%s'; rm -rf '%s'",
                           cluster.dir, keep, getenv("TMPDIR"));
    on_interrupt(interrupted);
    const char *argv[PROGRAM_ARGS] = {"up",     "--dir", cluster.dir, "--owner",        owner,
                                      "--logs", keep,    "--k8s",     cluster_release()};
    program_args(argv, 9, suite.up);
    script(argv);
    suite.kubectl = cluster_program("kubectl");
}

/* A failed test did not run its teardown. */
static void end_all(void)
{
    if (suite.tally->begun == suite.tally->ended) {
        script(ARGV("down", "--dir", cluster.dir));
    } else {
        cleanup_free char *keep = logs();
        script(ARGV("down", "--dir", cluster.dir, "--logs", keep));
        printf("the logs of %s's cluster are in %s\n", suite.name, keep);
    }
    on_interrupt(SIG_DFL);
    free((char *)cluster.dir);
    free(suite.down);
    free(suite.kubectl);
    munmap(suite.tally, sizeof *suite.tally);
}

const char *cluster_release(void)
{
    const char *k8s = getenv("E2E_K8S");
    return k8s && *k8s ? k8s : "1.37";
}

char *cluster_program(const char *name)
{
    cleanup_free char *programs = temp_read(cluster.dir, "run/programs");
    return xasprintf("%.*s/%s", (int)strcspn(programs, "\n"), programs, name);
}

/* -- each test -- */

static unsigned port_of(const char *program, unsigned which)
{
    cleanup_free char *name = xasprintf("run/%s.port", program);
    cleanup_free char *ports = temp_read(cluster.dir, name);
    char *p = ports;
    while (which--)
        strtoul(p, &p, 10);
    unsigned port = (unsigned)strtoul(p, NULL, 10);
    ck_assert_uint_gt(port, 0);
    return port;
}

void cluster_extender(const char *program, struct extender *e)
{
    peer_init(&e->verbs, port_of(program, 0));
    peer_init(&e->observers, port_of(program, 1));
}

static void connect_all(void)
{
    cleanup_free char *ca = temp_path(cluster.dir, "pki/ca.crt");
    cleanup_free char *cert = temp_path(cluster.dir, "pki/admin.crt");
    cleanup_free char *key = temp_path(cluster.dir, "pki/admin.key");
    peer_init_cert(&cluster.api, port_of("kube-apiserver", 0), ca, cert, key);
    if (!suite.no_extender)
        cluster_extender("gpushare-extender", &cluster.extender);
}

void cluster_extender_at(unsigned port)
{
    peer_init(&cluster.extender.verbs, port);
    peer_init(&cluster.extender.observers, port);
}

/* `which`: a label selector, or "". */
static void delete_all(const char *path, const char *which)
{
    cleanup_free char *now = xasprintf("%s?gracePeriodSeconds=0%s", path, which);
    json_decref(peer_json(&cluster.api, "DELETE", now, NULL));
}

static bool none_left(const char *path)
{
    cleanup_json json_t *items = cluster_items(path);
    return json_array_size(items) == 0;
}

static bool knows_no_node(void)
{
    cleanup_json json_t *j =
        peer_json(&cluster.extender.observers, "GET", "/inspect", NULL);
    return json_array_size(lib_at(j, "nodes")) == 0;
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
    on_interrupt(SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with the main process */
    suite.tally->begun++;
    script(ARGV("start", "--dir", cluster.dir));
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

int cluster_run(const char *name, const TTest *const *tests, size_t n, double seconds,
                const char *const *up)
{
    static const struct unit_fixtures around = {begin_all, end_all, begin, end};
    const TTest *chosen[TESTS];
    const char *part = getenv("E2E_TEST");
    size_t kept = 0;
    for (size_t i = 0; i < n && kept < TESTS; i++)
        if (!part || strstr(tests[i]->name, part))
            chosen[kept++] = tests[i];
    suite.name = name;
    suite.up = up;
    return lib_run_with(name, chosen, kept, seconds, &around);
}

char *cluster_kubectl(const char *const *args)
{
    struct program p;
    cleanup_free char *config = temp_path(cluster.dir, "admin.kubeconfig");
    const char *argv[PROGRAM_ARGS] = {suite.kubectl, "--kubeconfig", config};
    program_args(argv, 3, args);
    program_start(&p, lib_dir, argv);
    ck_assert_msg(program_wait(&p) == 0, "kubectl %s: %s", argv[3], program_output(&p));
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    return said;
}
