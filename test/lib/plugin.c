/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plugin.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/agent.h"

void plugin_start(struct plugin *p, const struct sim *s, const char *const *more)
{
    cleanup_free char *kubeconfig =
        lib_kubeconfig("plugin-kubeconfig", "http", s->api.port, "", "");
    cleanup_free char *dir = temp_path(lib_dir, "plugins");
    cleanup_free char *podresources = temp_path(lib_dir, "podresources.sock");
    cleanup_free char *state = temp_path(lib_dir, "state.json");
    cleanup_free char *source = agent_file();
    cleanup_free char *limits = temp_path(lib_dir, "limits"),
                      *library = program_path("libgpushare-limit.so");
    lib_program(&p->program, "gpushare-device-plugin",
                ARGV("--listen", "127.0.0.1", "--port", "0", "--node-name", "n1",
                     "--kubeconfig", kubeconfig, "--gpu-source", source, "--plugin-dir",
                     dir, "--podresources-socket", podresources, "--state-file", state,
                     "--sample-interval", "100ms", "--limit-dir", limits,
                     "--limit-library", library),
                more);
    peer_init(&p->health, program_port(&p->program, "listening on "));
}

void plugin_stop(struct plugin *p)
{
    peer_fini(&p->health);
    program_stop(&p->program);
}

double plugin_metric(const struct plugin *p, const char *name)
{
    cleanup_buf struct buf reply = {0};
    ck_assert_uint_eq(peer_call(&p->health, "GET", "/metrics", NULL, &reply), 200);
    cleanup_free char *line = xasprintf("\ngpushare_plugin_%s ", name);
    const char *at = strstr(reply.p, line);
    return at ? strtod(at + strlen(line), NULL) : -1;
}

bool plugin_check_fails(const struct plugin *p, const char *part, const char *words)
{
    cleanup_free char *line = agent_line(&p->health, "/healthz", part);
    cleanup_free char *metric = xasprintf("healthcheck{name=\"%s\"}", part);
    return strstr(line, words) && peer_status(&p->health, "/healthz") == 503 &&
           plugin_metric(p, metric) == 0;
}

bool plugin_is_healthy(const struct plugin *p)
{
    return peer_status(&p->health, "/healthz") == 200 &&
           peer_status(&p->health, "/readyz") == 200;
}

void plugin_pod(const struct sim *s, const char *name, int units, int card)
{
    cleanup_free char *notes =
        xasprintf("{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_ASSIGNED\":"
                  "\"false\",\"scheduler.framework.gpushare.allocation\":\"{}\","
                  "\"gpushare/card-uuid\":\"GPU-%d\"}",
                  card, card);
    sim_add_bound_pod(s, name, units, "n1", notes);
}
