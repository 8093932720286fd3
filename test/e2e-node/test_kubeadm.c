/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "lib/doc.h"

/*
 * A control plane node of kubeadm whose own kube-scheduler calls the extender
 * (`scripts/cluster up --kubeadm`), as its administrator installs it: with the commands of
 * docs/install.md in a shell on the node.
 */

enum { INSTALL_MS = 180 * 1000 };

/* The words that run a command on the node. */
#define ON_THE_NODE                                                                      \
    lib_keep(realpath("scripts/cluster", NULL), free), "enter", "--dir", cluster.dir, "--"

static const char *install(const char *option)
{
    return lib_output(0, ARGV(ON_THE_NODE, "scripts/install", option));
}

TEST(the_other_way_gives_a_plain_pod_its_card)
{
    int64_t begun = lib_now_ms();
    char *dir = temp_dir();
    doc_run("docs/install.md", "bash other", NULL, dir,
            ARGV("REGISTRY=localhost", "NODES=" NODE, ON_THE_NODE), INSTALL_MS);
    temp_dir_remove(dir);
    cluster_report("the commands of install.md, until the sample runs",
                   lib_now_ms() - begun);
    look_card("gpu-mem");
    ck_assert_at(cluster_pod("gpu-mem"), "spec.schedulerName", "default-scheduler");
    install("--check"); /* finds nothing */
    node_check(NULL, "no differences");
    ck_assert_contains(install("--undo"), "kube-scheduler is healthy");

    /* kube-scheduler binds past the extender now. */
    node_create("one", "lost");
    node_check(NULL, "! the extender was not asked at ");
    ck_assert_contains(lib_output_of(0, "kubectl-inspect-gpushare",
                                     ARGV("explain", "pod", "lost", "--kubeconfig",
                                          lib_fmt("%s/admin.kubeconfig", cluster.dir))),
                       "it was bound to node " NODE
                       " without a card; kube-scheduler did not ask");
}

static int nothing(void)
{
    return 0;
}

int main(void)
{
    cell_run(nothing);
    cluster_no_extender();
    return node_run(ARGV("--kubeadm"));
}
