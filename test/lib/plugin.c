/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plugin.h"

#include "lib/agent.h"
#include "lib/network.h"

void plugin_start(struct plugin *p, const struct sim *s, const char *const *more)
{
    plugin_start_at(p, sim_kubeconfig(s), more);
}

static void start(struct plugin *p, const char *program, const char *kubeconfig,
                  const char *const *more)
{
    const char *source = lib_keep(agent_file(), free);
    lib_program(&p->program, program,
                ARGV("--listen", network_loopback(), "--port", "0", "--node-name", "n1",
                     "--kubeconfig", kubeconfig, "--gpu-source", source, "--plugin-dir",
                     lib_path("plugins"), "--podresources-socket",
                     lib_path("podresources.sock"), "--state-file",
                     lib_path("state.json"), "--sample-interval", "100ms", "--limit-dir",
                     lib_path("limits"), "--limit-library",
                     lib_built("libgpushare-limit.so")),
                more);
    peer_init(&p->health, program_port(&p->program, "listening on "));
}

void plugin_start_at(struct plugin *p, const char *kubeconfig, const char *const *more)
{
    start(p, "gpushare-device-plugin", kubeconfig, more);
}

void plugin_start_node(struct plugin *p, const struct sim *s, const char *const *more)
{
    const char *options[PROGRAM_ARGS] = {"--publish-port", "0", "--update-interval",
                                         "100ms"};
    program_args(options, 4, more);
    start(p, "gpushare-node", sim_kubeconfig(s), options);
}

void plugin_stop(struct plugin *p)
{
    peer_fini(&p->health);
    program_stop(&p->program);
}

double plugin_metric(const struct plugin *p, const char *name)
{
    cleanup_free char *sample = xasprintf("gpushare_plugin_%s", name);
    return peer_metric(&p->health, sample);
}

void plugin_pod(const struct sim *s, const char *name, int units, int card)
{
    const char *notes =
        lib_fmt("{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"
                "\"false\",\"scheduler.framework.gpushare.allocation\":\"{}\","
                "\"gpushare/card-uuid\":\"%s-%d\"}",
                card, card < 64 ? "GPU" : "MIG", card);
    sim_add_bound_pod(s, name, units, "n1", notes);
}
