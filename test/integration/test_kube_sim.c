/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "lib/sim.h"

/* kube-sim as a program, and kubectl as its client. */

/* The output of kube-sim, which must end with the status. New. */
static char *ends(int status, const char *const *options)
{
    struct program p;
    lib_program(&p, "kube-sim", options, ARGV(NULL));
    return program_end(&p, status);
}

/* The output of kubectl, which must end with the status. New. */
static char *kubectl(int status, const struct sim *s, const char *const *more)
{
    struct program p;
    cleanup_free char *server = xasprintf("http://127.0.0.1:%u", s->api.port);
    const char *argv[PROGRAM_ARGS] = {"kubectl", "--server", server};
    program_args(argv, 3, more);
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

START_TEST(help_and_bad_options_do_not_start_it)
{
    cleanup_free char *help = ends(0, ARGV("--help"));
    ck_assert_contains(help, "--generate PARAMETERS");
    static const char *const bad[][3] = {{"--unknown", NULL, "unknown"},
                                         {"--port", "70000", "port"},
                                         {"--generate", "nodes=x", "nodes"},
                                         {"--load", "/nonexistent.yaml", "nonexistent"},
                                         {"--cert", "x.pem", "--key"},
                                         {"--log-level", "loud", "loud"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cleanup_free char *said = ends(1, ARGV(bad[i][0], bad[i][1]));
        ck_assert_contains(said, bad[i][2]);
    }
}

static const char manifest[] = "apiVersion: v1\n"
                               "kind: Namespace\n"
                               "metadata: {name: team}\n"
                               "---\n"
                               "# nothing\n"
                               "---\n"
                               "apiVersion: apps/v1\n"
                               "kind: Deployment\n"
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

START_TEST(manifests_are_loaded_and_unserved_kinds_are_logged)
{
    struct sim s;
    cleanup_free char *good = temp_path(lib_dir, "m.yaml"),
                      *bad = temp_path(lib_dir, "bad.yaml");
    temp_write(lib_dir, "m.yaml", manifest);
    temp_write(lib_dir, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: NO}\n");
    sim_start(&s, ARGV("--load", good));
    cleanup_json json_t *node = peer_json(&s.api, "GET", "/api/v1/nodes/n1", NULL);
    ck_assert_str_eq(lib_in(node, "status.capacity", "aliyun.com/gpu-mem"), "16");
    ck_assert_str_eq(lib_str(node, "status.capacity.cpu"), "500m");
    ck_assert_uint_eq(peer_status(&s.api, "/api/v1/namespaces/team/pods/p"), 200);
    ck_assert(program_wait_output(&s.program, "Deployment"));
    sim_stop(&s);
    cleanup_free char *said = ends(1, ARGV("--load", bad));
    ck_assert_contains(said, "bad.yaml, document 1");
    ck_assert_contains(said, "metadata.name");
}

START_TEST(kubectl_shows_the_objects)
{
    struct sim s;
    if (system("kubectl version --client >/dev/null 2>&1") != 0) {
        puts("skipped: cannot run kubectl");
        return;
    }
    sim_start(&s, ARGV("--generate", "nodes=3,cards=2,pods=2,leases=1"));
    cleanup_free char *all = kubectl(
        0, &s,
        ARGV("get", "nodes,pods,scvs,leases,events,configmaps,namespaces", "-A"));
    static const char *const lines[] = {
        "node/node-00000", "pod/gpu-00002-001", "scv.core.run-linux.com/node-00001",
        "lease.coordination.k8s.io/node-00002", "namespace/kube-system"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        ck_assert_contains(all, lines[i]);
    cleanup_free char *pods = kubectl(0, &s,
                                      ARGV("get", "pods", "--field-selector",
                                           "spec.nodeName=node-00001", "-o", "name")),
                      *nodes = kubectl(
                          0, &s, ARGV("get", "nodes", "--chunk-size", "1", "-o", "name")),
                      *none = kubectl(1, &s, ARGV("get", "pod", "none"));
    ck_assert_str_eq(pods, "pod/gpu-00001-000\npod/gpu-00001-001\n");
    ck_assert_str_eq(nodes, "node/node-00000\nnode/node-00001\nnode/node-00002\n");
    ck_assert_contains(none, "Error from server (NotFound): pods \"none\" not found");
    sim_stop(&s);
}

LIB_MAIN("kube-sim", 180, help_and_bad_options_do_not_start_it,
         manifests_are_loaded_and_unserved_kinds_are_logged, kubectl_shows_the_objects)
