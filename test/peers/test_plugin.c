/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gpushare-device-plugin between kube-sim and a kubelet made with @grpc/grpc-js
 * (plugin.js), which says what is asked and what has to be answered.
 */

#include "lib/temp.h"
#include "lib/unit.h"
#include "peers/peers.h"

static const char cards[] =
    "{\"driverVersion\":\"535.1\",\"cudaVersion\":\"12.2\",\"cards\":["
    "{\"uuid\":\"GPU-0\",\"model\":\"Tesla T4\",\"memoryTotal\":17179869184},"
    "{\"uuid\":\"GPU-1\",\"model\":\"Tesla T4\",\"memoryTotal\":17179869184}]}";

static const char node[] =
    "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"}}\n";

static unsigned start_sim(struct program *p, const char *dir)
{
    cleanup_free char *sim = program_path("kube-sim");
    cleanup_free char *objects = temp_path(dir, "objects.yaml");
    temp_write(dir, "objects.yaml", node);
    program_start(p, dir, ARGV(sim, "--port", "0", "--tick", "20ms", "--load", objects));
    return program_port(p, "listening on ");
}

static void start_plugin(struct program *p, const char *dir, unsigned api)
{
    cleanup_free char *plugin = program_path("gpushare-device-plugin");
    cleanup_free char *kubeconfig = temp_path(dir, "kubeconfig");
    cleanup_free char *sockets = temp_path(dir, "plugins");
    cleanup_free char *podresources = temp_path(dir, "podresources.sock");
    cleanup_free char *state = temp_path(dir, "state.json");
    cleanup_free char *source = xasprintf("file:%s/cards.json", dir);
    cleanup_free char *config =
        xasprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                  "clusters: [{name: c, cluster: {server: \"http://127.0.0.1:%u\"}}]\n"
                  "users: [{name: u, user: {}}]\n"
                  "contexts: [{name: c, context: {cluster: c, user: u}}]\n",
                  api);
    temp_write(dir, "kubeconfig", config);
    temp_write(dir, "cards.json", cards);
    temp_mkdir(dir, "plugins");
    program_start(p, dir,
                  ARGV(plugin, "--listen", "127.0.0.1", "--port", "0", "--node-name",
                       "n1", "--kubeconfig", kubeconfig, "--gpu-source", source,
                       "--plugin-dir", sockets, "--podresources-socket", podresources,
                       "--state-file", state, "--sample-interval", "50ms",
                       "--healthy-after", "100ms", "--identify-timeout", "3s"));
    program_port(p, "listening on ");
}

TEST(the_device_plugin_and_a_kubelet_of_grpc_js)
{
    struct program sim, plugin, kubelet;
    cleanup_free char *dir = temp_dir();
    unsigned port = start_sim(&sim, dir);
    start_plugin(&plugin, dir, port);
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u", port);
    cleanup_free char *pid = xasprintf("%d", (int)plugin.pid);
    peers_node(&kubelet, dir, "plugin.js", ARGV(dir, url, pid));
    int status = program_wait(&kubelet);
    printf("%s", program_output(&kubelet));
    ck_assert_msg(status == 0, "exit status %d: %s\n%s", status, program_output(&kubelet),
                  program_output(&plugin));
    ck_assert_int_eq(program_wait(&plugin), 0); /* plugin.js has stopped it */
    program_fini(&kubelet);
    program_fini(&plugin);
    program_stop(&sim);
    temp_dir_remove(dir);
}

UNIT_MAIN(240)
