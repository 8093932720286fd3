/* SPDX-License-Identifier: Apache-2.0 */
/* The options of scv-agent. */
#include <stddef.h>

#include "agent/agent.h"

#define OPT_CONFIG struct agent_config
#define YEAR_MS    (366LL * 24 * 3600 * 1000)

static const struct opt table[] = {
    OPT_STRING(
        "node-name", node_name, "NAME", NULL,
        "Name of the Node that scv-agent runs on, and of its Scv and Lease; required.",
        .env = "NODE_NAME"),
    OPT_STRING("gpu-source", gpu_source, "nvml|nvml:LIBRARY|nvml:DIR|file:PATH", "nvml",
               "Source of the cards: NVML (libnvidia-ml.so.1, LIBRARY, or in driver root "
               "DIR), or a JSON file."),
    OPT_SIZE("unified-memory", unified_bytes, "0", 0, 1LL << 50,
             "Memory of a card whose memory is the system's, as GB10; 0: such a card is "
             "Unhealthy."),
    OPT_BOOL("once", once, "off",
             "Print the Scv of this node as JSON and exit, without an API server."),
    OPT_DURATION(
        "update-interval", publisher.interval_ms, "1s", PUBLISHER_MIN_INTERVAL_MS,
        PUBLISHER_MAX_INTERVAL_MS,
        "Time between two samples of the cards; also spec.updateInterval of a new Scv."),
    OPT_DURATION("refresh-interval", publisher.refresh_ms, "1m", 0, YEAR_MS,
                 "Minimum time between Scv writes for utilization, temperature or usage "
                 "alone; 0s: never."),
    OPT_DURATION(
        "unhealthy-after", publisher.cards.health.unhealthy_after_ms, "3s", 0, YEAR_MS,
        "Time that unreadable cards stay Healthy; lost cards are Unhealthy at once."),
    OPT_DURATION(
        "healthy-after", publisher.cards.health.healthy_after_ms, "30s", 0, YEAR_MS,
        "Time without a failure after which an Unhealthy card is Healthy again."),
    OPT_DURATION(
        "xid-hold", publisher.cards.health.xid_hold_ms, "10m", 0, YEAR_MS,
        "Minimum time that a card stays Unhealthy after an XID or an uncorrectable "
        "ECC error."),
    OPT_DURATION(
        "keep-lost", publisher.cards.keep_lost_ms, "24h", 0, YEAR_MS,
        "Time that a card that NVML no longer lists stays in the Scv as Unhealthy."),
    OPT_DURATION(
        "sampler-limit", publisher.sampler_limit_ms, "30s", 1000, YEAR_MS,
        "Time beyond the interval without a driver response that makes all cards "
        "Unhealthy."),
    OPT_DURATION(
        "late-after", publisher.late_ms, "15s", 1000, YEAR_MS,
        "Time without a watch or write of the Scv after which /healthz fails and "
        "the heartbeat stops."),
    OPT_STRING("podresources-socket", podresources, "PATH", NULL,
               "Kubelet socket pod-resources/kubelet.sock for podList; default: none, no "
               "podList."),
    OPT_DURATION(
        "pods-interval", pods_ms, "30s", 1000, YEAR_MS,
        "Time between two List calls to the kubelet; short intervals disturb pod "
        "admission."),
    OPT_STRING("plugin-state", plugin_state, "FILE",
               "/var/lib/gpushare/device-plugin.json",
               "The device plugin's --state-file, which has the promises of init "
               "containers."),
    OPT_CHOICE("on-overuse", overuse.most, "event|evict|kill", "event",
               "What happens to containers that use more memory of a card than promised; "
               "evict: the pod."),
    OPT_CHOICE(
        "on-unpromised", overuse.unpromised, "none|event|evict|kill", "none",
        "The same for pods without a promise, on cards that other pods were promised "
        "parts of."),
    OPT_DURATION("overuse-grace", overuse.grace_ms, "30s", 1000, YEAR_MS,
                 "Time, in sum, that a pod may use more memory of a card than promised."),
    OPT_SIZE(
        "overuse-tolerance", overuse_tolerance, "512Mi", 0, 1LL << 50,
        "Memory of a card beyond the promise that is no overuse, for the CUDA context "
        "of a process."),
    OPT_BOOL("overuse-always", overuse.always, "off",
             "Act on overuse also where every pod on the card can still get what it was "
             "promised."),
    OPT_STRING(
        "host-root", host_root, "PATH", "/",
        "Directory of the host's proc and var/log/containers, which map processes to "
        "containers."),
    OPT_STRING("limit-dir", limit_dir, "DIR", "/var/lib/gpushare/limit",
               "The device plugin's --limit-dir, whose limits are corrected by what NVML "
               "shows."),
    OPT_DURATION("lease-renew", publisher.renew_ms, "10s", 1000, YEAR_MS,
                 "Time between two heartbeats; at 10s, 5,000 nodes send 500 requests per "
                 "second."),
    OPT_DURATION(
        "lease-grace", publisher.grace_ms, "40s", 1000, YEAR_MS,
        "Age at which the extender rejects the node; also leaseDurationSeconds of "
        "the Lease."),
    OPT_INT("port", port, "N", "12347", 0, 65535,
            "Port for health, metrics and version; 0 takes a free one, printed to "
            "standard error.",
            .env = "PORT"),
    {.more = entry_table},
};

const struct opt_program agent_program = {
    .name = "scv-agent",
    .summary = "publishes the GPU cards of its node as an Scv object",
    .version = GPUSHARE_VERSION,
    .table = table,
};
