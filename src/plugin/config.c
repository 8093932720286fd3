/* SPDX-License-Identifier: Apache-2.0 */

/* The options of gpushare-device-plugin. */

#include <stddef.h>

#include "domain/quantity.h"
#include "kube/deviceplugin.h"
#include "plugin/plugin.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    return quantity_read_unit(text, field, err);
}

#define AT(field) offsetof(struct plugin_config, field)
#define DAY_MS    (24LL * 3600 * 1000)

static const struct opt table[] = {
    {.name = "node-name",
     .env = "NODE_NAME",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(alloc.node),
     .help = "Name of the Node that this plugin runs on; required."},
    {.name = "memory-unit",
     .arg = "GiB|MiB|<n>MiB",
     .init = "GiB",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(alloc.unit_mib),
     .help = "One unit of aliyun.com/gpu-mem; must be the same in the extender and the "
             "kubectl plugin."},
    {.name = "gpu-source",
     .arg = "nvml|nvml:LIBRARY|nvml:DIR|file:PATH",
     .init = "nvml",
     .type = OPT_STRING,
     .offset = AT(gpu_source),
     .help = "Source of the cards: NVML (libnvidia-ml.so.1, LIBRARY, or in driver root "
             "DIR), or a JSON file."},
    {.name = "unified-memory",
     .arg = "SIZE",
     .init = "0",
     .type = OPT_SIZE,
     .max = 1LL << 50,
     .offset = AT(unified_bytes),
     .help = "Memory of a card whose memory is the system's, as GB10; 0: such a card is "
             "Unhealthy."},
    {.name = "sample-interval",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .min = 50,
     .max = DAY_MS,
     .offset = AT(interval_ms),
     .help = "Time between two samples of the cards; XIDs and ECC errors are noticed at "
             "once."},
    {.name = "unhealthy-after",
     .arg = "TIME",
     .init = "3s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(alloc.health.unhealthy_after_ms),
     .help =
         "Time that unreadable cards stay healthy; lost cards are unhealthy at once."},
    {.name = "healthy-after",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(alloc.health.healthy_after_ms),
     .help = "Time that an unhealthy card must look healthy before it is listed as "
             "healthy again."},
    {.name = "xid-hold",
     .arg = "TIME",
     .init = "10m",
     .type = OPT_DURATION,
     .max = 366 * DAY_MS,
     .offset = AT(alloc.health.xid_hold_ms),
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
     .arg = "auto|envvar|volume-mounts|cdi-annotations|cdi-cri",
     .init = "auto",
     .type = OPT_CHOICE,
     .offset = AT(driver.strategy),
     .help =
         "How the container runtime learns the cards; auto: cdi-cri where the node has "
         "it, else envvar."},
    {.name = "host-root",
     .arg = "DIR",
     .init = "",
     .type = OPT_STRING,
     .offset = AT(driver.host_root),
     .help =
         "Directory with the host's /dev, /usr, /etc/cdi and driver root; empty: do not "
         "look there."},
    {.name = "driver-root",
     .arg = "DIR",
     .init = "/",
     .type = OPT_STRING,
     .offset = AT(driver.driver_root),
     .help = "Root of NVIDIA's driver on the host; /run/nvidia/driver for a driver "
             "container."},
    {.name = "cdi-dir",
     .arg = "DIR",
     .init = "/var/run/cdi",
     .type = OPT_STRING,
     .offset = AT(driver.cdi_dir),
     .help = "Directory of CDI specifications, where the plugin writes its own."},
    {.name = "cdi-kind",
     .arg = "VENDOR/CLASS",
     .init = "",
     .type = OPT_STRING,
     .offset = AT(driver.cdi_kind),
     .help = "Kind of the CDI names; empty: nvidia.com/gpu if it has all cards, else own "
             "names."},
    {.name = "strict-env",
     .type = OPT_BOOL,
     .offset = AT(alloc.strict_env),
     .help = "Reject containers that set NVIDIA_VISIBLE_DEVICES themselves."},
    {.name = "allow-unpromised",
     .type = OPT_BOOL,
     .offset = AT(alloc.allow_unpromised),
     .help = "Give a pod without a promise a card that has no promises, and annotate the "
             "pod."},
    {.name = "legacy-no-gpu-env",
     .type = OPT_BOOL,
     .offset = AT(alloc.legacy_env),
     .help =
         "Reject as the Go plugin does: a success that names no card; the kubelet never "
         "retries it."},
    {.name = "isolation",
     .arg = "none|mps|limit",
     .init = "none",
     .type = OPT_CHOICE,
     .offset = AT(alloc.response.isolation),
     .help = "Memory limit in containers: NVIDIA's MPS, whose daemon must run, or a "
             "preloaded library."},
    {.name = "allow-less-isolation",
     .type = OPT_BOOL,
     .offset = AT(alloc.response.less_isolation),
     .help =
         "Let pods have less than --isolation, by annotation gpushare/isolation: none, "
         "limit-env, limit-file."},
    {.name = "limit-dir",
     .arg = "DIR",
     .init = "/var/lib/gpushare/limit",
     .type = OPT_STRING,
     .offset = AT(alloc.response.limit_dir),
     .help = "Directory of the limits of pods; it needs the same path on the host and "
             "here."},
    {.name = "limit-library",
     .arg = "FILE",
     .init = "/usr/local/lib/gpushare/libgpushare-limit.so",
     .type = OPT_STRING,
     .offset = AT(limit_library),
     .help = "The library for containers with a limit, which is copied to --limit-dir."},
    {.name = "mps-dir",
     .arg = "DIR",
     .init = "/run/nvidia-mps",
     .type = OPT_STRING,
     .offset = AT(alloc.response.mps_dir),
     .help =
         "Directory on the host where the MPS daemon has its directories pipe and shm."},
    {.name = "identify-timeout",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .max = 60 * 1000,
     .offset = AT(alloc.wait_ms),
     .help = "Time to identify a container's pod; the kubelet admits no other pod "
             "meanwhile."},
    {.name = "reconcile-interval",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .max = DAY_MS,
     .offset = AT(alloc.reconcile_interval_ms),
     .help = "Time between two comparisons of a pod's allocation with its promise; 0s "
             "disables them."},
    {.name = "node-interval",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .min = 100,
     .max = DAY_MS,
     .offset = AT(alloc.node_ms),
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
    {.more = entry_table},
};

const struct opt_program plugin_program = {
    .name = "gpushare-device-plugin",
    .summary = "kubelet device plugin for shares of GPU memory and whole cards",
    .version = GPUSHARE_VERSION,
    .table = table,
};
