/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "e2e-node/cell.h"
#include "e2e-node/dns.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"
#include "lib/relay.h"

/*
 * The cluster of `scripts/cluster up --managed`: a control plane whose files and programs are
 * in a cell, as those of a managed cluster are at its provider, and one node with cards.
 *
 *   e2e-managed DIR PORT OPTION...
 *
 * Imports the images DIR/images/X.tar on the node, and forwards 127.0.0.1:PORT of this machine
 * to kube-apiserver. Writes ca.crt, admin.crt and
 * admin.key to DIR/pki when the node is ready, and the link DIR/log/cluster to the logs of
 * all programs. OPTION: of `scripts/cluster up`. Serves until it is killed.
 *
 * The frame is that of a test, because the harness reports an error by failing one.
 */

/* As GPU Feature Discovery labels a node. */
#define LABELS "nvidia.com/gpu.present=true"

static struct {
    const char *dir;
    const char *const *up;
    int listener;
} managed;

/* -- the parts of the cluster -- */

/* It has the defaults of Kubernetes, and nobody can change that. */
static void start_scheduler(void)
{
    cleanup_free char *program = cluster_program("kube-scheduler");
    cleanup_free char *config = temp_path(cluster.dir, "scheduler.kubeconfig");
    cluster_add_program("default-scheduler",
                        ARGV(program, "--kubeconfig", config, "--leader-elect=false",
                             "--authentication-kubeconfig", config,
                             "--authorization-kubeconfig", config));
}

/* runc, and what NVIDIA's runtime adds. */
static void write_runtime(void)
{
    cleanup_free char *relative = program_path("e2e-nvidia-runtime");
    cleanup_free char *program = realpath(relative, NULL), *library = node_nvml();
    cleanup_free char *cards = node_write_cards();
    cleanup_free char *text =
        xasprintf("exec '%s' runc '%s' '%s' \"$@\"\n", program, library, cards);
    temp_script(cell_dir(), "nvidia-runtime", text);
    real_set_runtime(temp_path(cell_dir(), "nvidia-runtime")); /* until the end */
}

static void import(void)
{
    cleanup_free char *files = temp_path(managed.dir, "images/*.tar");
    glob_t all;
    struct err err = {0};
    ck_assert_msg(glob(files, 0, NULL, &all) == 0, "there is no %s", files);
    for (size_t i = 0; i < all.gl_pathc; i++)
        ck_assert_done(real_import(all.gl_pathv[i], &err), err);
    globfree(&all);
}

static void give(const char *name)
{
    cleanup_free char *path = xasprintf("pki/%s", name);
    cleanup_free char *text = temp_read(cluster.dir, path);
    temp_write(managed.dir, path, text);
}

static int open_apiserver(void *ctx)
{
    (void)ctx;
    return relay_connect(cluster.api.port);
}

START_TEST(serve)
{
    struct err err = {0};
    cleanup_free char *logs = temp_path(cluster.dir, "log");
    cleanup_free char *link = temp_path(managed.dir, "log/cluster");
    ck_assert_msg(cell_why_not() == NULL, "%s", cell_why_not());
    ck_assert_int_eq(symlink(logs, link), 0);
    start_scheduler();
    write_runtime();
    dns_start();
    ck_assert_done(real_start(LABELS, &err), err);
    ck_assert_done(real_start_proxy(&err), err);
    import();
    give("ca.crt");
    give("admin.key");
    give("admin.crt"); /* the last one: scripts/cluster waits for it */
    relay_serve(managed.listener, open_apiserver, NULL);
}
END_TEST

static int suite(void)
{
    const TTest *const tests[] = {serve};
    if (cell_why_not()) {
        fprintf(stderr, "no containers on this machine: %s\n", cell_why_not());
        return EXIT_FAILURE;
    }
    cluster_keep_nodes();
    cluster_no_extender();
    return cluster_run("managed-node", tests, ARRAY_LEN(tests), 0, managed.up);
}

int main(int argc, char **argv)
{
    const char *up[32] = {"--empty", "--bare", "--address", CELL_ADDRESS};
    if (argc < 3 || (size_t)argc > ARRAY_LEN(up)) {
        fprintf(stderr, "usage: %s DIR PORT OPTION...\n", argv[0]);
        return 2;
    }
    for (int i = 3; i < argc; i++)
        up[i + 1] = argv[i];
    managed.dir = argv[1];
    managed.up = up;
    /* Before the cell has a network of its own. */
    managed.listener = relay_listen((unsigned)atoi(argv[2]));
    if (managed.listener < 0) {
        fprintf(stderr, "port %s: %s\n", argv[2], strerror(errno));
        return EXIT_FAILURE;
    }
    return cell_run(suite);
}
