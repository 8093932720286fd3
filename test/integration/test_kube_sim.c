/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sim.h"

/* kube-sim as a program, and kubectl as its client. */

static struct sim sim;

/* The output of kubectl, which must end with the status. Kept. */
static char *kubectl(int status, const char *const *more)
{
    const char *argv[PROGRAM_ARGS] = {"kubectl", "--kubeconfig", sim_kubeconfig(&sim)};
    program_args(argv, 3, more);
    return lib_output(status, argv);
}

TEST(help_and_bad_options_do_not_start_it)
{
    ck_assert_contains(lib_output_of(0, "kube-sim", ARGV("--help")),
                       "--generate PARAMETERS");
    static const char *const bad[][3] = {{"--unknown", NULL, "unknown"},
                                         {"--port", "70000", "port"},
                                         {"--generate", "nodes=x", "nodes"},
                                         {"--load", "/nonexistent.yaml", "nonexistent"},
                                         {"--cert", "x.pem", "--key"},
                                         {"--log-level", "loud", "loud"}};
    array_indices(i, bad)
        ck_assert_contains(lib_output_of(1, "kube-sim", ARGV(bad[i][0], bad[i][1])),
                           bad[i][2]);
}

static const char manifest[] = "apiVersion: v1\n"
                               "kind: Namespace\n"
                               "metadata: {name: team}\n"
                               "---\n"
                               "# nothing\n"
                               "---\n"
                               "apiVersion: apps/v1\n"
                               "kind: DaemonSet\n"
                               "metadata: {name: skipped}\n"
                               "---\n"
                               "apiVersion: v1\n"
                               "kind: List\n"
                               "items:\n"
                               "- apiVersion: v1\n"
                               "  kind: Node\n"
                               "  metadata: {name: n1}\n"
                               "  status:\n"
                               "    capacity: {aliyun.com/gpu-mem: 16, cpu: 0.5}\n"
                               "- apiVersion: v1\n"
                               "  kind: Pod\n"
                               "  metadata: {name: p, namespace: team}\n"
                               "  spec:\n"
                               "    containers:\n"
                               "    - {name: c, image: i}\n";

TEST(manifests_are_loaded_and_unserved_kinds_are_logged)
{
    temp_write(lib_dir, "m.yaml", manifest);
    temp_write(lib_dir, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: NO}\n");
    sim_start(&sim, ARGV("--load", lib_path("m.yaml")));
    json_t *node = peer_get(&sim.api, "/api/v1/nodes/n1");
    ck_assert_str_eq(lib_in(node, "status.capacity", "aliyun.com/gpu-mem"), "16");
    ck_assert_at(node, "status.capacity.cpu", "500m");
    ck_assert_uint_eq(peer_status(&sim.api, "/api/v1/namespaces/team/pods/p"), 200);
    ck_assert(program_wait_output(&sim.program, "DaemonSet"));
    sim_stop(&sim);
    const char *said = lib_output_of(1, "kube-sim", ARGV("--load", lib_path("bad.yaml")));
    ck_assert_contains(said, "bad.yaml, document 1");
    ck_assert_contains(said, "metadata.name");
}

TEST(kubectl_shows_the_objects)
{
    sim_start(&sim, ARGV("--generate", "nodes=3,cards=2,pods=2,leases=1"));
    if (system("kubectl version --client >/dev/null 2>&1") != 0) {
        puts("skipped: cannot run kubectl");
    } else {
        const char *all = kubectl(
            0, ARGV("get", "nodes,pods,scvs,leases,events,configmaps,namespaces", "-A"));
        static const char *const lines[] = {
            "node/node-00000", "pod/gpu-00002-001", "scv.core.run-linux.com/node-00001",
            "lease.coordination.k8s.io/node-00002", "namespace/kube-system"};
        array_items(line, lines)
            ck_assert_contains(all, *line);
        ck_assert_str_eq(kubectl(0, ARGV("get", "pods", "--field-selector",
                                         "spec.nodeName=node-00001", "-o", "name")),
                         "pod/gpu-00001-000\npod/gpu-00001-001\n");
        ck_assert_str_eq(
            kubectl(0, ARGV("get", "nodes", "--chunk-size", "1", "-o", "name")),
            "node/node-00000\nnode/node-00001\nnode/node-00002\n");
        ck_assert_contains(kubectl(1, ARGV("get", "pod", "none")),
                           "Error from server (NotFound): pods \"none\" not found");
    }
    sim_stop(&sim);
}

LIB_MAIN(180)
