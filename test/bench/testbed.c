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

enum {
    START_MS = 120 * 1000,
    CHUNK = 500, /* objects per file, because kube-sim limits its size */
    FILES = 64,
};

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
    struct span request = load_request("GET", path, (struct span){0});
    while (load_once(s->port, request) != 200) {
        if (bench_now_ns() - s->started_ns > START_MS * 1000000LL)
            bench_die("no %s; see %s", path, s->log);
        clock_sleep_ms(1);
    }
    free((char *)request.p);
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

void testbed_start(struct testbed *w, const char *build, const char *generate,
                   bool run_pods)
{
    const char *tmp = getenv("TMPDIR");
    *w = (struct testbed){
        .build = build, .dir = xasprintf("%s/gpushare-bench-XXXXXX", tmp ? tmp : "/tmp")};
    if (!mkdtemp(w->dir))
        bench_die("%s: %s", w->dir, strerror(errno));
    w->kubeconfig = testbed_path(w, "kubeconfig");
    cleanup_free char *sim = xasprintf("%s/kube-sim", build);
    cleanup_free char *log = testbed_path(w, "kube-sim.log");
    cleanup_free char *lease = testbed_path(w, "lease.yaml");
    write_file(lease,
               "apiVersion: coordination.k8s.io/v1\nkind: Lease\n"
               "metadata: {name: gpushare-extender, namespace: kube-system}\nspec: {}\n");
    server_start(&w->sim, log,
                 (const char *const[]){sim, "--port", "0", "--generate", generate,
                                       "--load", lease, run_pods ? "--run-pods" : NULL,
                                       "--history", "20000", NULL});
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

/* -- another kube-sim with the same objects -- */

struct dump {
    char *files[FILES];
    size_t n;
};

/* Items from `from` on, each with kind and apiVersion, which list items lack. */
static void dump_chunk(struct dump *d, const struct testbed *w, const char *version,
                       const char *kind, json_t *items, size_t from)
{
    json_t *list = json_pack("{s:s,s:[]}", "kind", "List", "items");
    json_t *to = json_object_get(list, "items");
    for (size_t i = from; i < json_array_size(items) && i < from + CHUNK; i++) {
        json_t *item = json_array_get(items, i);
        json_object_set_new(item, "apiVersion", json_string(version));
        json_object_set_new(item, "kind", json_string(kind));
        json_array_append(to, item);
    }
    if (d->n == FILES)
        bench_die("too many objects");
    d->files[d->n] = xasprintf("%s/objects-%zu", w->dir, d->n);
    if (json_dump_file(list, d->files[d->n++], JSON_COMPACT))
        bench_die("cannot save the objects of kube-sim");
    json_decref(list);
}

static void dump_all(struct dump *d, const struct testbed *w)
{
    static const char *const kinds[][3] = {
        {"/api/v1/nodes", "v1", "Node"},
        {"/api/v1/pods", "v1", "Pod"},
        {"/api/v1/configmaps", "v1", "ConfigMap"},
        {"/apis/coordination.k8s.io/v1/leases", "coordination.k8s.io/v1", "Lease"},
        {"/apis/core.run-linux.com/v1/scvs", "core.run-linux.com/v1", "Scv"},
    };
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        json_t *list;
        ask("GET", w->sim.port, kinds[k][0], NULL, &list);
        if (!list)
            bench_die("cannot list the objects of kube-sim");
        json_t *items = json_object_get(list, "items");
        for (size_t i = 0; i < json_array_size(items); i += CHUNK)
            dump_chunk(d, w, kinds[k][1], kinds[k][2], items, i);
        json_decref(list);
    }
}

/* No change happens from here on. */
static void refuse_writes(const struct testbed *w)
{
    long status = ask("POST", w->sim.port, "/kube-sim/faults",
                      "[{\"method\":\"POST\",\"action\":\"answer\",\"status\":503},"
                      "{\"method\":\"PUT\",\"action\":\"answer\",\"status\":503},"
                      "{\"method\":\"PATCH\",\"action\":\"answer\",\"status\":503},"
                      "{\"method\":\"DELETE\",\"action\":\"answer\",\"status\":503}]",
                      NULL);
    if (status / 100 != 2)
        bench_die("kube-sim takes no faults");
}

static char *version_of(const struct testbed *w)
{
    json_t *state;
    ask("GET", w->sim.port, "/kube-sim/state", NULL, &state);
    const char *version = json_string_value(json_object_get(state, "resourceVersion"));
    if (!version)
        bench_die("cannot read the version of kube-sim");
    char *copy = xstrdup(version);
    json_decref(state);
    return copy;
}

void testbed_restart_sim(struct testbed *w)
{
    struct dump d = {0};
    refuse_writes(w);
    dump_all(&d, w);
    cleanup_free char *sim = xasprintf("%s/kube-sim", w->build);
    cleanup_free char *log = testbed_path(w, "kube-sim.log");
    cleanup_free char *version = version_of(w);
    cleanup_free char *port = xasprintf("%u", w->sim.port);
    /* The same seed would generate the same UIDs. */
    cleanup_free char *seed = xasprintf("%u", ++w->restarts + 1);
    const char *argv[2 * FILES + 16] = {sim,         "--port", port, "--resource-version",
                                        version,     "--seed", seed, "--run-pods",
                                        "--history", "20000"};
    size_t n = 10;
    for (size_t i = 0; i < d.n; i++) {
        argv[n++] = "--load";
        argv[n++] = d.files[i];
    }
    server_stop(&w->sim, SIGKILL);
    server_start(&w->sim, log, argv);
    for (size_t i = 0; i < d.n; i++)
        free(d.files[i]);
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
