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

#define OPT_CONFIG struct plugin_config
#define DAY_MS     (24LL * 3600 * 1000)

static const struct opt table[] = {
    OPT_STRING("node-name", alloc.node, "NAME", NULL,
               "Name of the Node that this plugin runs on; required.",
               .env = "NODE_NAME"),
    OPT_CUSTOM("memory-unit", alloc.unit_mib, "GiB|MiB|<n>MiB", "GiB", parse_unit,
               "One unit of aliyun.com/gpu-mem; must be the same in the extender and the "
               "kubectl plugin."),
    OPT_STRING("gpu-source", gpu_source, "nvml|nvml:LIBRARY|nvml:DIR|file:PATH", "nvml",
               "Source of the cards: NVML (libnvidia-ml.so.1, LIBRARY, or in driver root "
               "DIR), or a JSON file."),
    OPT_SIZE("unified-memory", unified_bytes, "0", 0, 1LL << 50,
             "Memory of a card whose memory is the system's, as GB10; 0: such a card is "
             "Unhealthy."),
    OPT_DURATION(
        "sample-interval", interval_ms, "5s", 50, DAY_MS,
        "Time between two samples of the cards; XIDs and ECC errors are noticed at "
        "once."),
    OPT_DURATION(
        "unhealthy-after", alloc.health.unhealthy_after_ms, "3s", 0, DAY_MS,
        "Time that unreadable cards stay healthy; lost cards are unhealthy at once."),
    OPT_DURATION("healthy-after", alloc.health.healthy_after_ms, "30s", 0, DAY_MS,
                 "Time that an unhealthy card must look healthy before it is listed as "
                 "healthy again."),
    OPT_DURATION(
        "xid-hold", alloc.health.xid_hold_ms, "10m", 0, 366 * DAY_MS,
        "Minimum time that a card stays unhealthy after an XID or an uncorrectable "
        "ECC error."),
    OPT_DURATION(
        "sampler-limit", sampler_limit_ms, "30s", 1000, DAY_MS,
        "Time after --sample-interval without an answer of the driver that makes "
        "all cards unhealthy."),
    OPT_DURATION(
        "late-after", late_ms, "15s", 1000, DAY_MS,
        "Time that the API server or the kubelet can fail before /healthz reports it."),
    OPT_CHOICE(
        "device-list", by_index, "uuid|index", "uuid",
        "How containers name their cards: by UUID, or by index, which can change at "
        "a reboot."),
    OPT_CHOICE(
        "device-list-strategy", driver.strategy,
        "auto|envvar|volume-mounts|cdi-annotations|cdi-cri", "auto",
        "How the container runtime learns the cards; auto: cdi-cri where the node has "
        "it, else envvar."),
    OPT_STRING(
        "host-root", driver.host_root, "DIR", "",
        "Directory with the host's /dev, /usr, /etc/cdi and driver root; empty: do not "
        "look there."),
    OPT_STRING("driver-root", driver.driver_root, "DIR", "/",
               "Root of NVIDIA's driver on the host; /run/nvidia/driver for a driver "
               "container."),
    OPT_STRING("cdi-dir", driver.cdi_dir, "DIR", "/var/run/cdi",
               "Directory of CDI specifications, where the plugin writes its own."),
    OPT_STRING(
        "cdi-kind", driver.cdi_kind, "VENDOR/CLASS", "",
        "Kind of the CDI names; empty: nvidia.com/gpu if it has all cards, else own "
        "names."),
    OPT_BOOL("strict-env", alloc.strict_env, "off",
             "Reject containers that set NVIDIA_VISIBLE_DEVICES themselves."),
    OPT_BOOL("allow-unpromised", alloc.allow_unpromised, "off",
             "Give a pod without a promise a card that has no promises, and annotate the "
             "pod."),
    OPT_BOOL(
        "legacy-no-gpu-env", alloc.legacy_env, "off",
        "Reject as the Go plugin does: a success that names no card; the kubelet never "
        "retries it."),
    OPT_CHOICE("isolation", alloc.response.isolation, "none|mps|limit", "none",
               "Memory limit in containers: NVIDIA's MPS, whose daemon must run, or a "
               "preloaded library."),
    OPT_BOOL(
        "allow-less-isolation", alloc.response.less_isolation, "off",
        "Let pods have less than --isolation, by annotation gpushare/isolation: none, "
        "limit-env, limit-file."),
    OPT_STRING("limit-dir", alloc.response.limit_dir, "DIR", "/var/lib/gpushare/limit",
               "Directory of the limits of pods; it needs the same path on the host and "
               "here."),
    OPT_STRING(
        "limit-library", limit_library, "FILE",
        "/usr/local/lib/gpushare/libgpushare-limit.so",
        "The library for containers with a limit, which is copied to --limit-dir."),
    OPT_STRING(
        "mps-dir", alloc.response.mps_dir, "DIR", "/run/nvidia-mps",
        "Directory on the host where the MPS daemon has its directories pipe and shm."),
    OPT_DURATION("identify-timeout", alloc.wait_ms, "5s", 0, 60 * 1000,
                 "Time to identify a container's pod; the kubelet admits no other pod "
                 "meanwhile."),
    OPT_DURATION(
        "reconcile-interval", alloc.reconcile_interval_ms, "60s", 0, DAY_MS,
        "Time between two comparisons of a pod's allocation with its promise; 0s "
        "disables them."),
    OPT_DURATION(
        "node-interval", alloc.node_ms, "60s", 100, DAY_MS,
        "Time between two reads of the Node, for its label cgpu.disable.isolation."),
    OPT_STRING("plugin-dir", plugin_dir, "DIR", DP_DIR,
               "The kubelet's device plugin directory."),
    OPT_STRING("podresources-socket", podresources, "FILE",
               "/var/lib/kubelet/pod-resources/kubelet.sock",
               "Socket of the kubelet's podresources service."),
    OPT_STRING("state-file", state, "FILE", "/var/lib/gpushare/device-plugin.json",
               "File that stores the allocation state."),
    OPT_INT("port", port, "N", "12348", 0, 65535,
            "Port for health, metrics and version; 0 takes a free port, printed on "
            "standard error.",
            .env = "PORT"),
    {.more = entry_table},
};

const struct opt_program plugin_program = {
    .name = "gpushare-device-plugin",
    .summary = "kubelet device plugin for shares of GPU memory and whole cards",
    .version = GPUSHARE_VERSION,
    .table = table,
};
