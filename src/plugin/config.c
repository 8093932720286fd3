/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "domain/quantity.h"
#include "kube/deviceplugin.h"
#include "plugin/plugin.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    return quantity_read_unit(text, field, err);
}

static int parse_strategy(struct span text, void *field, struct err *err)
{
    enum response_strategy s;
    if (response_strategy_read(text, &s, err))
        return -1;
    *(int *)field = (int)s;
    return 0;
}

/* One of two words: 0 for the first, 1 for the second. */
static int parse_either(struct span text, const char *no, const char *yes, void *field,
                        struct err *err)
{
    *(int *)field = span_eq(text, span_of(yes));
    if (*(int *)field || span_eq(text, span_of(no)))
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is neither %s nor %s", SPAN_ARG(text), no,
                   yes);
}

static int parse_list(struct span text, void *field, struct err *err)
{
    return parse_either(text, "uuid", "index", field, err);
}

static int parse_isolation(struct span text, void *field, struct err *err)
{
    return parse_either(text, "none", "mps", field, err);
}

#define AT(field) offsetof(struct plugin_config, field)
#define DAY_MS    (24LL * 3600 * 1000)

static const struct opt table[] = {
    {.name = "node-name",
     .env = "NODE_NAME",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(node_name),
     .help = "The Node that this runs on."},
    {.name = "memory-unit",
     .arg = "GiB|MiB|<n>MiB",
     .init = "GiB",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(unit_mib),
     .help = "What one unit of aliyun.com/gpu-mem is. Must be the same in extender,\n"
             "device plugin and kubectl plugin."},
    {.name = "gpu-source",
     .arg = "nvml|nvml:LIBRARY|file:PATH",
     .init = "nvml",
     .type = OPT_STRING,
     .offset = AT(gpu_source),
     .help = "Where the cards are read: from NVML (libnvidia-ml.so.1, or the library\n"
             "that is named), or from a JSON file, for demos and tests."},
    {.name = "sample-interval",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .min = 50,
     .max = DAY_MS,
     .offset = AT(interval_ms),
     .help = "How often the cards are looked at. Events of them come at once."},
    {.name = "healthy-after",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(healthy_after_ms),
     .help = "A card that was ill is healthy again when it has looked well for so long."},
    {.name = "xid-hold",
     .arg = "TIME",
     .init = "10m",
     .type = OPT_DURATION,
     .max = 366 * DAY_MS,
     .offset = AT(xid_hold_ms),
     .help =
         "And when so much time has passed since the last XID that spoke of the card.\n"
         "Both as for scv-agent, so that the two agree."},
    {.name = "sampler-limit",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = DAY_MS,
     .offset = AT(sampler_limit_ms),
     .help = "If the driver answers nothing for so long beyond the interval, all cards\n"
             "are unhealthy. As for scv-agent."},
    {.name = "late-after",
     .arg = "TIME",
     .init = "15s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = DAY_MS,
     .offset = AT(late_ms),
     .help =
         "How long API server or kubelet may fail to answer before /healthz says so."},
    {.name = "device-list",
     .arg = "uuid|index",
     .init = "uuid",
     .type = OPT_CUSTOM,
     .parse = parse_list,
     .offset = AT(by_index),
     .help = "What a container's cards are called. The index is the old form, and\n"
             "changes when cards are added or lost."},
    {.name = "device-list-strategy",
     .arg = "envvar|volume-mounts|cdi",
     .init = "envvar",
     .type = OPT_CUSTOM,
     .parse = parse_strategy,
     .offset = AT(strategy),
     .help =
         "How the container's runtime is told them: by NVIDIA_VISIBLE_DEVICES, which\n"
         "a container can set itself; by mounts; or by the Container Device Interface."},
    {.name = "cdi-kind",
     .arg = "VENDOR/CLASS",
     .init = "nvidia.com/gpu",
     .type = OPT_STRING,
     .offset = AT(cdi_kind),
     .help = "What the cards are called there: VENDOR/CLASS=UUID."},
    {.name = "strict-env",
     .type = OPT_BOOL,
     .offset = AT(strict_env),
     .help = "Refuse containers that set NVIDIA_VISIBLE_DEVICES themselves."},
    {.name = "allow-unpromised",
     .type = OPT_BOOL,
     .offset = AT(allow_unpromised),
     .help = "Give pods that the extender did not bind a card on which nothing is\n"
             "promised, and annotate them. (Static pods get one in any case.)"},
    {.name = "legacy-no-gpu-env",
     .type = OPT_BOOL,
     .offset = AT(legacy_env),
     .help =
         "Fail as the Go plugin does: with a success that names no card. The kubelet\n"
         "then never tries again."},
    {.name = "isolation",
     .arg = "none|mps",
     .init = "none",
     .type = OPT_CUSTOM,
     .parse = parse_isolation,
     .offset = AT(isolation),
     .help = "mps: limits of NVIDIA's Multi-Process Service for each container. Needs\n"
             "its control daemon on the node."},
    {.name = "mps-dir",
     .arg = "DIR",
     .init = "/run/nvidia-mps",
     .type = OPT_STRING,
     .offset = AT(mps_dir),
     .help = "On the host, where that daemon has its directories pipe and shm."},
    {.name = "wait",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .max = 60 * 1000,
     .offset = AT(wait_ms),
     .help = "How long a container waits for news of the API server before it is\n"
             "refused. The kubelet admits no other pod meanwhile."},
    {.name = "audit-interval",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(audit_ms),
     .help = "How often what the kubelet has handed out is compared with what was\n"
             "promised. 0s: never."},
    {.name = "node-interval",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .min = 100,
     .max = DAY_MS,
     .offset = AT(node_ms),
     .help = "How often the Node is looked at, for the label cgpu.disable.isolation."},
    {.name = "plugin-dir",
     .arg = "DIR",
     .init = DP_DIR,
     .type = OPT_STRING,
     .offset = AT(plugin_dir),
     .help = "Where the kubelet and its plugins have their sockets."},
    {.name = "podresources-socket",
     .arg = "FILE",
     .init = "/var/lib/kubelet/pod-resources/kubelet.sock",
     .type = OPT_STRING,
     .offset = AT(podresources),
     .help = "Where the kubelet says which container holds what."},
    {.name = "state-file",
     .arg = "FILE",
     .init = "/var/lib/gpushare/device-plugin.json",
     .type = OPT_STRING,
     .offset = AT(state),
     .help = "Where what was handed out is written down."},
    {.name = "port",
     .env = "PORT",
     .arg = "N",
     .init = "12348",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(port),
     .help =
         "Port for them. 0 takes a free one; a line \"listening on ADDRESS:PORT\" on\n"
         "standard error says which."},
    {0},
};

const struct opt_program plugin_program = {
    .name = "gpushare-device-plugin",
    .summary = "gives each container the card that was promised to its pod",
    .version = GPUSHARE_VERSION,
    .table = table,
    .shared = entry_table,
    .shared_at = AT(entry),
};
