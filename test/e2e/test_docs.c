/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/prctl.h>

#include "lib/cluster.h"
#include "lib/doc.h"
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

enum { RUN_MS = 240 * 1000 };

static const char *owner; /* process id of main: a failed test leaves its cluster to it */

static void begin_all(void)
{
    owner = lib_fmt("%d", (int)getpid());
    cluster.dir = lib_fmt("%s/c", getenv("TMPDIR"));
}

static void end_all(void)
{
    if (access(cluster.dir, F_OK) == 0)
        cluster_script(
            ARGV("down", "--dir", cluster.dir, "--logs", lib_built("e2e-logs/docs")));
}

static void start_cluster(void)
{
    struct extender e;
    cluster_script(
        ARGV("up", "--dir", cluster.dir, "--owner", owner, "--k8s", cluster_release()));
    /* The chart's extender runs there and nowhere else. */
    cluster_kubectl("label", "node", "node-0", "node-role.kubernetes.io/control-plane=");
    cluster_extender("gpushare-extender", &e);
    cluster_add_program("node-port",
                        ARGV(lib_keep(realpath(lib_built("e2e-service"), NULL), free),
                             "32766", lib_fmt("%u:%u", e.verbs.port, e.observers.port)));
    peer_fini(&e.verbs);
    peer_fini(&e.observers);
}

static unsigned follow(const char *page)
{
    const char *part = getenv("DOC");
    if (part && !strstr(page, part))
        return 0;
    char *home = temp_dir();
    int64_t began = lib_now_ms();
    start_cluster();
    const char *kubectl = cluster_program("kubectl");
    unsigned blocks =
        doc_run(page, "sh", "kubectl apply --dry-run=server -f -", home,
                ARGV(lib_fmt("KUBECONFIG=%s/admin.kubeconfig", cluster.dir),
                     lib_fmt("PATH=%.*s:%s", (int)(strrchr(kubectl, '/') - kubectl),
                             kubectl, getenv("PATH"))),
                RUN_MS);
    cluster_script(ARGV("down", "--dir", cluster.dir));
    temp_dir_remove(home);
    cluster_report(lib_fmt("%s: %u blocks", page, blocks), lib_now_ms() - began);
    return blocks;
}

TEST(the_commands_of_the_documents_run)
{
    static const char *const pages[] = {"README.md", "docs/user-guide.md",
                                        "docs/install.md"};
    struct err err = {0};
    unsigned blocks = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    array_items(page, pages)
        blocks += follow(*page);
    ck_assert_uint_gt(blocks, 0);
}

int main(void)
{
    static const struct unit_fixtures around = {.begin_all = begin_all,
                                                .end_all = end_all};
    return lib_run(1100, around);
}
