/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/testbed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    CHUNK = 500, /* objects per file, because kube-sim limits its size */
    FILES = 64,
};

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "soak: %s\n", what);
    exit(1);
}

/* -- starting -- */

static void write_kubeconfig(const struct testbed *w)
{
    FILE *f = fopen(w->kubeconfig, "w");
    need(f &&
             fprintf(f,
                     "apiVersion: v1\nkind: Config\ncurrent-context: s\n"
                     "clusters: [{name: s, cluster: {server: \"http://127.0.0.1:%u\"}}]\n"
                     "users: [{name: s, user: {}}]\n"
                     "contexts: [{name: s, context: {cluster: s, user: s}}]\n",
                     w->sim.port) > 0 &&
             fclose(f) == 0,
         "cannot write the kubeconfig");
}

void testbed_start(struct testbed *w, const char *build, const char *generate,
                   const char *const *more)
{
    enum { ARGS = 32 };
    const char *tmp = getenv("TMPDIR");
    *w = (struct testbed){
        .build = build, .dir = xasprintf("%s/gpushare-soak-XXXXXX", tmp ? tmp : "/tmp")};
    need(mkdtemp(w->dir) != NULL, "cannot make a directory");
    w->kubeconfig = xasprintf("%s/kubeconfig", w->dir);
    cleanup_free char *sim = xasprintf("%s/kube-sim", build);
    cleanup_free char *extender = xasprintf("%s/gpushare-extender", build);
    cleanup_free char *sim_log = xasprintf("%s/kube-sim.log", w->dir);
    cleanup_free char *log = xasprintf("%s/extender.log", w->dir);
    server_start(&w->sim, sim_log,
                 (const char *const[]){sim, "--port", "0", "--run-pods", "--history",
                                       "20000", "--generate", generate, NULL});
    write_kubeconfig(w);
    const char *argv[ARGS] = {
        extender, "--kubeconfig",   w->kubeconfig, "--listen",    "127.0.0.1", "--port",
        "0",      "--observe-port", "0",           "--log-level", "error"};
    for (size_t n = 11; *more && n + 1 < ARGS; more++)
        argv[n++] = *more;
    server_start(&w->extender, log, argv);
}

void testbed_stop(struct testbed *w)
{
    server_stop(&w->extender);
    server_stop(&w->sim);
    DIR *dir = opendir(w->dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        cleanup_free char *path = xasprintf("%s/%s", w->dir, e->d_name);
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
    need(d->n < FILES, "too many objects");
    d->files[d->n] = xasprintf("%s/objects-%zu", w->dir, d->n);
    need(json_dump_file(list, d->files[d->n++], JSON_COMPACT) == 0,
         "cannot save the objects of kube-sim");
    json_decref(list);
}

static void dump_all(struct dump *d, const struct testbed *w, struct ask *ask)
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
        ask_call(ask, "GET", w->sim.port, kinds[k][0], NULL, &list);
        need(list != NULL, "cannot list the objects of kube-sim");
        json_t *items = json_object_get(list, "items");
        for (size_t i = 0; i < json_array_size(items); i += CHUNK)
            dump_chunk(d, w, kinds[k][1], kinds[k][2], items, i);
        json_decref(list);
    }
}

/* No change happens from here on. */
static void refuse_writes(const struct testbed *w, struct ask *ask)
{
    long status =
        ask_call(ask, "POST", w->sim.port, "/kube-sim/faults",
                 "[{\"method\":\"POST\",\"action\":\"answer\",\"status\":503},"
                 "{\"method\":\"PUT\",\"action\":\"answer\",\"status\":503},"
                 "{\"method\":\"PATCH\",\"action\":\"answer\",\"status\":503},"
                 "{\"method\":\"DELETE\",\"action\":\"answer\",\"status\":503}]",
                 NULL);
    need(status / 100 == 2, "kube-sim takes no faults");
}

static char *version_of(const struct testbed *w, struct ask *ask)
{
    json_t *state;
    ask_call(ask, "GET", w->sim.port, "/kube-sim/state", NULL, &state);
    const char *version = json_string_value(json_object_get(state, "resourceVersion"));
    need(version != NULL, "cannot read the version of kube-sim");
    char *copy = xstrdup(version);
    json_decref(state);
    return copy;
}

void testbed_restart_sim(struct testbed *w, struct ask *ask)
{
    struct dump d = {0};
    refuse_writes(w, ask);
    dump_all(&d, w, ask);
    cleanup_free char *sim = xasprintf("%s/kube-sim", w->build);
    cleanup_free char *log = xasprintf("%s/kube-sim.log", w->dir);
    cleanup_free char *version = version_of(w, ask);
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
    server_kill(&w->sim);
    server_start(&w->sim, log, argv);
    for (size_t i = 0; i < d.n; i++)
        free(d.files[i]);
}

/* -- the end -- */

static bool check(const struct testbed *w)
{
    cleanup_free char *inspect = xasprintf("%s/kubectl-inspect-gpushare", w->build);
    cleanup_free char *out = xasprintf("%s/check", w->dir);
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

static void show(const struct testbed *w)
{
    cleanup_free char *path = xasprintf("%s/check", w->dir);
    FILE *f = fopen(path, "r");
    char line[1024];
    for (int i = 0; f && i < 20 && fgets(line, sizeof line, f); i++)
        printf("  %s", line);
    if (f)
        fclose(f);
}

bool testbed_agrees(const struct testbed *w, long limit_ms)
{
    bool good = false;
    for (long waited = 0; !(good = check(w)) && waited < limit_ms; waited += 500)
        nanosleep(&(struct timespec){.tv_nsec = 500 * 1000000}, NULL);
    show(w);
    return good;
}
