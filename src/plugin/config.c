/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "domain/quantity.h"
#include "kube/deviceplugin.h"
#include "plugin/plugin.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    return unit_read(text, field, err);
}

#define AT(field) offsetof(struct plugin_config, field)
#define DAY_MS    (24LL * 3600 * 1000)

static const struct opt table[] = {
    {.name = "node-name",
     .env = "NODE_NAME",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(node_name),
     .help = "Name of the Node that this plugin runs on."},
    {.name = "memory-unit",
     .arg = "GiB|MiB|<n>MiB",
     .init = "GiB",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(unit_mib),
     .help = "One unit of aliyun.com/gpu-mem; must be the same in the extender and the "
             "kubectl plugin."},
    {.name = "gpu-source",
     .arg = "nvml|nvml:LIBRARY|file:PATH",
     .init = "nvml",
     .type = OPT_STRING,
     .offset = AT(gpu_source),
     .help = "Source of the cards: NVML (libnvidia-ml.so.1, or LIBRARY), or a JSON file "
             "for tests."},
    {.name = "sample-interval",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .min = 50,
     .max = DAY_MS,
     .offset = AT(interval_ms),
     .help = "Time between two samples of the cards; XIDs and ECC errors are noticed at "
             "once."},
    {.name = "healthy-after",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(healthy_after_ms),
     .help = "Time that an unhealthy card must look healthy before it is listed as "
             "healthy again."},
    {.name = "xid-hold",
     .arg = "TIME",
     .init = "10m",
     .type = OPT_DURATION,
     .max = 366 * DAY_MS,
     .offset = AT(xid_hold_ms),
     .help = "Minimum time that a card stays unhealthy after an XID or an uncorrectable "
             "ECC error."},
    {.name = "sampler-limit",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = DAY_MS,
     .offset = AT(sampler_limit_ms),
     .help = "Time after --sample-interval without an answer of the driver that makes "
             "all cards unhealthy."},
    {.name = "late-after",
     .arg = "TIME",
     .init = "15s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = DAY_MS,
     .offset = AT(late_ms),
     .help =
         "Time that the API server or the kubelet can fail before /healthz reports it."},
    {.name = "device-list",
     .arg = "uuid|index",
     .init = "uuid",
     .type = OPT_CHOICE,
     .offset = AT(by_index),
     .help = "How containers name their cards: by UUID, or by index, which can change at "
             "a reboot."},
    {.name = "device-list-strategy",
     .arg = "envvar|volume-mounts|cdi",
     .init = "envvar",
     .type = OPT_CHOICE,
     .offset = AT(strategy),
     .help = "How cards are passed to the container runtime; envvar can be overridden by "
             "a container."},
    {.name = "cdi-kind",
     .arg = "VENDOR/CLASS",
     .init = "nvidia.com/gpu",
     .type = OPT_STRING,
     .offset = AT(cdi_kind),
     .help = "Kind of the CDI device names (VENDOR/CLASS=UUID) of "
             "--device-list-strategy=cdi."},
    {.name = "strict-env",
     .type = OPT_BOOL,
     .offset = AT(strict_env),
     .help = "Reject containers that set NVIDIA_VISIBLE_DEVICES themselves."},
    {.name = "allow-unpromised",
     .type = OPT_BOOL,
     .offset = AT(allow_unpromised),
     .help = "Give pods that the extender did not bind a card without promises, and "
             "annotate them."},
    {.name = "legacy-no-gpu-env",
     .type = OPT_BOOL,
     .offset = AT(legacy_env),
     .help =
         "Reject as the Go plugin does: a success that names no card; the kubelet never "
         "retries it."},
    {.name = "isolation",
     .arg = "none|mps",
     .init = "none",
     .type = OPT_CHOICE,
     .offset = AT(isolation),
     .help = "mps: set the limits of NVIDIA's Multi-Process Service; needs its daemon on "
             "the node."},
    {.name = "mps-dir",
     .arg = "DIR",
     .init = "/run/nvidia-mps",
     .type = OPT_STRING,
     .offset = AT(mps_dir),
     .help =
         "Directory on the host where the MPS daemon has its directories pipe and shm."},
    {.name = "identify-timeout",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .max = 60 * 1000,
     .offset = AT(wait_ms),
     .help = "Time to identify a container's pod; the kubelet admits no other pod "
             "meanwhile."},
    {.name = "reconcile-interval",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(reconcile_interval_ms),
     .help = "Time between two comparisons of a pod's allocation with its promise; 0s "
             "disables them."},
    {.name = "node-interval",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .min = 100,
     .max = DAY_MS,
     .offset = AT(node_ms),
     .help = "Time between two reads of the Node, for its label cgpu.disable.isolation."},
    {.name = "plugin-dir",
     .arg = "DIR",
     .init = DP_DIR,
     .type = OPT_STRING,
     .offset = AT(plugin_dir),
     .help = "The kubelet's device plugin directory."},
    {.name = "podresources-socket",
     .arg = "FILE",
     .init = "/var/lib/kubelet/pod-resources/kubelet.sock",
     .type = OPT_STRING,
     .offset = AT(podresources),
     .help = "Socket of the kubelet's podresources service."},
    {.name = "state-file",
     .arg = "FILE",
     .init = "/var/lib/gpushare/device-plugin.json",
     .type = OPT_STRING,
     .offset = AT(state),
     .help = "File that stores the allocation state."},
    {.name = "port",
     .env = "PORT",
     .arg = "N",
     .init = "12348",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(port),
     .help = "Port for health, metrics and version; 0 takes a free port, printed on "
             "standard error."},
    {0},
};

const struct opt_program plugin_program = {
    .name = "gpushare-device-plugin",
    .summary = "kubelet device plugin for shares of GPU memory and whole cards",
    .version = GPUSHARE_VERSION,
    .table = table,
    .shared = entry_table,
    .shared_at = AT(entry),
};
