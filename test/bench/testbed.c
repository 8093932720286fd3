/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "bench/bench.h"

/* The programs that bench measures: how they start and end, and what they use. */

enum { START_MS = 120 * 1000 };

/* -- a program -- */

/* The port in the log after `words`, or 0. */
static unsigned port_in(const char *path, const char *words)
{
    char line[4096];
    unsigned port = 0;
    FILE *f = fopen(path, "r");
    while (f && !port && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, words), *colon = at ? strrchr(at, ':') : NULL;
        if (colon && strchr(line, '\n')) /* the line is complete */
            port = (unsigned)strtoul(colon + 1, NULL, 10);
    }
    if (f)
        fclose(f);
    return port;
}

void server_start(struct server *s, const char *log, const char *const *argv)
{
    *s = (struct server){.log = xstrdup(log), .started_ns = bench_now_ns()};
    unlink(log); /* an older log names an older port */
    s->pid = fork();
    if (s->pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fd, STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    while (!(s->port = port_in(log, "listening on "))) {
        if (s->pid < 0 || waitpid(s->pid, NULL, WNOHANG) ||
            bench_now_ns() - s->started_ns > START_MS * 1000000LL)
            bench_die("%s does not start; see %s", argv[0], s->log);
        clock_sleep_ms(1);
    }
}

unsigned server_observe_port(const struct server *s)
{
    return port_in(s->log, "observing on ");
}

void server_stop(struct server *s, int signal)
{
    kill(s->pid, signal);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    free(s->log);
    *s = (struct server){0};
}

double server_cpu_ms(const struct server *s)
{
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(s->pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double server_wait(const struct server *s, const char *path)
{
    while (ask("GET", s->port, path, NULL, NULL) != 200) {
        if (bench_now_ns() - s->started_ns > START_MS * 1000000LL)
            bench_die("no %s; see %s", path, s->log);
        clock_sleep_ms(1);
    }
    return (double)(bench_now_ns() - s->started_ns) / 1e6;
}

/* -- vitals -- */

struct vitals vitals_now(const struct server *s)
{
    struct vitals v = {0};
    cleanup_free char *fds = xasprintf("/proc/%d/fd", s->pid);
    cleanup_free char *status = xasprintf("/proc/%d/status", s->pid);
    char line[256];
    DIR *dir = opendir(fds);
    for (struct dirent *e; dir && (e = readdir(dir));)
        v.fds += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    FILE *f = fopen(status, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            v.mib = strtod(line + 6, NULL) / 1024;
        if (strncmp(line, "Threads:", 8) == 0)
            v.threads = (unsigned)strtoul(line + 8, NULL, 10);
    }
    if (f)
        fclose(f);
    return v;
}

struct vitals vitals_peak(const struct vitals *samples, size_t n)
{
    struct vitals high = {0};
    for (size_t i = 0; i < n; i++) {
        const struct vitals *x = &samples[i];
        high.mib = x->mib > high.mib ? x->mib : high.mib;
        high.fds = x->fds > high.fds ? x->fds : high.fds;
        high.threads = x->threads > high.threads ? x->threads : high.threads;
    }
    return high;
}

/* -- kube-sim and the extender -- */

char *testbed_path(const struct testbed *w, const char *file)
{
    return xasprintf("%s/%s", w->dir, file);
}

static void write_file(const char *path, const char *text)
{
    struct err err;
    if (file_write(path, span_of(text), &err))
        bench_die("%s", err.msg);
}

/* `port` 0: a free one; `version`: of the newest object before the first one. */
static void start_sim(struct testbed *w, unsigned port, const char *version)
{
    cleanup_free char *sim = xasprintf("%s/kube-sim", w->build);
    cleanup_free char *log = testbed_path(w, "kube-sim.log");
    cleanup_free char *lease = testbed_path(w, "lease.yaml");
    cleanup_free char *number = xasprintf("%u", port);
    server_start(&w->sim, log,
                 (const char *const[]){sim, "--port", number, "--generate", w->generate,
                                       "--load", lease, "--resource-version", version,
                                       "--history", "20000",
                                       w->run_pods ? "--run-pods" : NULL, NULL});
}

void testbed_start(struct testbed *w, const char *build, const char *generate,
                   bool run_pods)
{
    const char *tmp = getenv("TMPDIR");
    *w = (struct testbed){.build = build,
                          .generate = generate,
                          .run_pods = run_pods,
                          .dir = xasprintf("%s/gpushare-bench-XXXXXX", tmp ? tmp : "/tmp")};
    if (!mkdtemp(w->dir))
        bench_die("%s: %s", w->dir, strerror(errno));
    w->kubeconfig = testbed_path(w, "kubeconfig");
    cleanup_free char *lease = testbed_path(w, "lease.yaml");
    write_file(lease,
               "apiVersion: coordination.k8s.io/v1\nkind: Lease\n"
               "metadata: {name: gpushare-extender, namespace: kube-system}\nspec: {}\n");
    start_sim(w, 0, "0");
    cleanup_free char *config =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: s\n"
                  "clusters: [{name: s, cluster: {server: \"http://127.0.0.1:%u\"}}]\n"
                  "users: [{name: s, user: {}}]\n"
                  "contexts: [{name: s, context: {cluster: s, user: s}}]\n",
                  w->sim.port);
    write_file(w->kubeconfig, config);
}

void testbed_extender(struct testbed *w, const char *const *options)
{
    enum { ARGS = 32 };
    cleanup_free char *extender = xasprintf("%s/gpushare-extender", w->build);
    cleanup_free char *log = testbed_path(w, "extender.log");
    const char *argv[ARGS] = {extender,   "--kubeconfig",   w->kubeconfig,
                              "--listen", "127.0.0.1",      "--port",
                              "0",        "--observe-port", "0"};
    if (w->extender.pid)
        server_stop(&w->extender, SIGTERM);
    for (size_t n = 9; *options && n + 1 < ARGS; options++)
        argv[n++] = *options;
    server_start(&w->extender, log, argv);
}

void testbed_stop(struct testbed *w)
{
    server_stop(&w->extender, SIGTERM);
    server_stop(&w->sim, SIGTERM);
    DIR *dir = opendir(w->dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        cleanup_free char *path = testbed_path(w, e->d_name);
        unlink(path); /* fails for "." and "..", which is fine */
    }
    if (dir)
        closedir(dir);
    rmdir(w->dir);
    free(w->kubeconfig);
    free(w->dir);
}

void testbed_restart_sim(struct testbed *w)
{
    json_t *state;
    unsigned port = w->sim.port;
    ask("GET", port, "/kube-sim/state", NULL, &state);
    const char *version = json_string_value(json_object_get(state, "resourceVersion"));
    if (!version)
        bench_die("cannot read the version of kube-sim");
    server_stop(&w->sim, SIGKILL);
    start_sim(w, port, version);
    json_decref(state);
}

/* -- the end -- */

static bool check(const struct testbed *w)
{
    cleanup_free char *inspect = xasprintf("%s/kubectl-inspect-gpushare", w->build);
    cleanup_free char *out = testbed_path(w, "check");
    cleanup_free char *extender = xasprintf("http://127.0.0.1:%u", w->extender.port);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen(out, "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
            _exit(127);
        execl(inspect, inspect, "--check", "--kubeconfig", w->kubeconfig, "--extender",
              extender, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status == 0;
}

bool testbed_agrees(const struct testbed *w, int64_t limit_ms)
{
    bool good = false;
    for (long waited = 0; !(good = check(w)) && waited < limit_ms; waited += 500)
        clock_sleep_ms(500);
    cleanup_free char *path = testbed_path(w, "check");
    FILE *f = fopen(path, "r");
    char line[1024];
    for (int i = 0; f && i < 20 && fgets(line, sizeof line, f); i++)
        printf("  %s", line);
    if (f)
        fclose(f);
    return good;
}
