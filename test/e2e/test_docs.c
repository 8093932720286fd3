/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/lib.h"
#include "lib/network.h"
#include "lib/session.h"

/*
 * Follows each document as a user would: it gets a control plane of its own from
 * `scripts/cluster up`, with five nodes of two cards. Its command blocks run there, and
 * the API server must accept its objects. DOC=operations selects documents.
 *
 * The extender also listens on port 32766, where the configuration of kube-scheduler and
 * the documents expect it.
 */

enum { SESSION_MS = 240 * 1000, NODE_PORT = 32766 };

struct read {
    struct buf faults;
    size_t documents, blocks;
};

/* Runs scripts/cluster; the array ends with NULL. */
static void script(const char *const *args)
{
    struct program p;
    const char *home = getenv("HOME"), *argv[24] = {"scripts/cluster"};
    for (size_t n = 1; *args; n++, args++) {
        ck_assert_uint_lt(n, ARRAY_LEN(argv) - 1);
        argv[n] = *args;
    }
    program_start(&p, home ? home : "/", argv); /* which has the cache of the programs */
    ck_assert_msg(program_wait(&p) == 0, "scripts/cluster %s: %s", argv[1],
                  program_output(&p));
    program_fini(&p);
}

static void start_cluster(const char *dir)
{
    char owner[16], port[16];
    unsigned verbs, observers;
    snprintf(owner, sizeof owner, "%d", (int)getpid());
    snprintf(port, sizeof port, "%d", NODE_PORT);
    cleanup_free char *logs = program_path("e2e-logs/docs");
    script(ARGV("up", "--dir", dir, "--owner", owner, "--logs", logs, "--k8s",
                cluster_release()));
    cleanup_free char *ports = temp_read(dir, "run/gpushare-extender.port");
    ck_assert_int_eq(sscanf(ports, "%u %u", &verbs, &observers), 2);
    cleanup_free char *service = program_path("e2e-service");
    cleanup_free char *path = realpath(service, NULL);
    cleanup_free char *backend = xasprintf("%u:%u", verbs, observers);
    script(ARGV("run", "node-port", "--dir", dir, "--", path, port, backend));
}

/* The folder of kubectl, helm and the other programs of the cluster. */
static char *path_with(const char *dir)
{
    cleanup_free char *programs = temp_read(dir, "run/programs");
    return xasprintf("%.*s:%s", (int)strcspn(programs, "\n"), programs, getenv("PATH"));
}

/* The cluster of the documents is one of kubeadm, which the chart knows by this ConfigMap. */
static void name_kubeadm(const char *kubeconfig)
{
    struct program p;
    program_start(&p, lib_dir,
                  ARGV("env", kubeconfig, "kubectl", "-n", "kube-system", "create",
                       "configmap", "kubeadm-config"));
    ck_assert_msg(program_wait(&p) == 0, "%s", program_output(&p));
    program_fini(&p);
}

static void follow(const struct doc *d, void *ctx)
{
    struct read *r = ctx;
    const char *part = getenv("DOC");
    cleanup_free char *dir = temp_path(lib_dir, "c");
    cleanup_free char *config = xasprintf("KUBECONFIG=%s/admin.kubeconfig", dir);
    const char *const env[] = {config, NULL};
    const struct session session = {DOC_SH, "kubectl apply --dry-run=server -f", env,
                                    SESSION_MS};
    size_t blocks = session_blocks(&session, d), before = r->faults.n;
    if (!blocks || (part && !strstr(d->path, part)))
        return;
    int64_t began = lib_now_ms();
    start_cluster(dir);
    cleanup_free char *path = path_with(dir), *old = xstrdup(getenv("PATH"));
    cleanup_free char *logs = program_path("e2e-logs/docs");
    setenv("PATH", path, 1);
    name_kubeadm(config);
    session_run(&session, d, &r->faults);
    setenv("PATH", old, 1);
    if (r->faults.n > before)
        script(ARGV("down", "--dir", dir, "--logs", logs));
    else
        script(ARGV("down", "--dir", dir));
    printf("measured: %s: %zu blocks, %.1f s\n", d->path, blocks,
           (double)(lib_now_ms() - began) / 1000);
    fflush(stdout);
    r->documents++;
    r->blocks += blocks;
}

START_TEST(the_commands_of_the_documents_run)
{
    struct read r = {0};
    struct err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);     /* the cluster ends with this process */
    cleanup_buf struct buf ignored = {0}; /* test/integration/test_docs reports these */
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    doc_each(follow, &r, &ignored);
    ck_assert_msg(!r.faults.n, "\n%s", r.faults.p);
    ck_assert_uint_gt(r.documents, 0);
    buf_fini(&r.faults);
}
END_TEST

LIB_MAIN("docs", 1100, the_commands_of_the_documents_run)
