/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/doc.h"
#include "lib/lib.h"
#include "lib/network.h"

/*
 * Follows README.md, the user guide and the installation as a user would: each gets a
 * control plane of its own from `scripts/cluster up`, with five nodes of two cards. The
 * blocks marked `sh` run there, and the API server must accept the objects. DOC=user
 * selects a page. After a failure, the logs of the cluster are in build/e2e-logs/docs.
 *
 * The extender also listens on port 32766, where the configuration of kube-scheduler and
 * the documents expect it.
 */

enum { RUN_MS = 240 * 1000, NODE_PORT = 32766 };

/* Runs scripts/cluster; the array ends with NULL. */
static void script(const char *const *args)
{
    struct program p;
    const char *home = getenv("HOME"), *argv[PROGRAM_ARGS] = {"scripts/cluster"};
    program_args(argv, 1, args);
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

static unsigned follow(const char *page)
{
    const char *part = getenv("DOC");
    if (part && !strstr(page, part))
        return 0;
    cleanup_free char *dir = temp_path(lib_dir, "c"), *home = temp_dir();
    cleanup_free char *config = xasprintf("KUBECONFIG=%s/admin.kubeconfig", dir);
    int64_t began = lib_now_ms();
    start_cluster(dir);
    cleanup_free char *path = path_with(dir), *old = xstrdup(getenv("PATH"));
    setenv("PATH", path, 1);
    name_kubeadm(config);
    unsigned blocks = doc_run(page, "sh", "kubectl apply --dry-run=server -f -", home,
                              ARGV(config), RUN_MS);
    setenv("PATH", old, 1);
    script(ARGV("down", "--dir", dir));
    temp_dir_remove(home);
    printf("measured: %s: %u blocks, %.1f s\n", page, blocks,
           (double)(lib_now_ms() - began) / 1000);
    fflush(stdout);
    return blocks;
}

START_TEST(the_commands_of_the_documents_run)
{
    static const char *const pages[] = {"README.md", "docs/user-guide.md",
                                        "docs/install.md"};
    struct err err = {0};
    unsigned blocks = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the cluster ends with this process */
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        blocks += follow(pages[i]);
    ck_assert_uint_gt(blocks, 0);
}
END_TEST

LIB_MAIN("docs", 1100, the_commands_of_the_documents_run)
