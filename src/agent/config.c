/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "agent/agent.h"
#include "base/log.h"
#include "domain/keys.h"

static int parse_log_level(struct span text, void *field, struct err *err)
{
    enum log_level level;
    if (log_level_parse(text, &level, err))
        return -1;
    *(int *)field = (int)level;
    return 0;
}

#define AT(field) offsetof(struct agent_config, field)
#define YEAR_MS   (366LL * 24 * 3600 * 1000)

static const struct opt table[] = {
    {.name = "node-name",
     .env = "NODE_NAME",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(node_name),
     .help = "The Node that this runs on; the Scv and the Lease are called like it."},
    {.name = "gpu-source",
     .arg = "nvml|nvml:LIBRARY|file:PATH",
     .init = "nvml",
     .type = OPT_STRING,
     .offset = AT(gpu_source),
     .help = "Where the cards are read: from NVML (libnvidia-ml.so.1, or the library\n"
             "that is named), or from a JSON file, for demos and tests."},
    {.name = "once",
     .type = OPT_BOOL,
     .offset = AT(once),
     .help = "Print the Scv object of this node as JSON, and end. Asks no API server."},
    {.name = "kubeconfig",
     .env = "KUBECONFIG",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(kubeconfig),
     .help = "How to reach the API server. Without it: the service account of the pod,\n"
             "then ~/.kube/config."},
    {.name = "context",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(context),
     .help = "Context of the kubeconfig, instead of its current one."},
    {.name = "update-interval",
     .arg = "TIME",
     .init = "1s",
     .type = OPT_DURATION,
     .min = MACHINE_MIN_INTERVAL_MS,
     .max = MACHINE_MAX_INTERVAL_MS,
     .offset = AT(interval_ms),
     .help = "spec.updateInterval of an Scv that is created: how often the cards are\n"
             "read. What the object says from then on is what counts."},
    {.name = "refresh-interval",
     .arg = "TIME",
     .init = "1m",
     .type = OPT_DURATION,
     .max = YEAR_MS,
     .offset = AT(refresh_ms),
     .help = "Utilization and temperature alone are no reason to write more often than\n"
             "this (0: none at all). At 1m, 5,000 busy nodes make 83 writes a second."},
    {.name = "unhealthy-after",
     .arg = "TIME",
     .init = "3s",
     .type = OPT_DURATION,
     .max = YEAR_MS,
     .offset = AT(unhealthy_after_ms),
     .help = "How long a card, or all of them, may be unreadable before that makes it\n"
             "Unhealthy. One that is lost or has to be reset is so at once."},
    {.name = "healthy-after",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .max = YEAR_MS,
     .offset = AT(healthy_after_ms),
     .help = "How long a card must be well before it is Healthy again."},
    {.name = "xid-hold",
     .arg = "TIME",
     .init = "10m",
     .type = OPT_DURATION,
     .max = YEAR_MS,
     .offset = AT(xid_hold_ms),
     .help = "How long a card stays Unhealthy after an XID that is not a program's own\n"
             "mistake, or an ECC error that could not be corrected."},
    {.name = "keep-lost",
     .arg = "TIME",
     .init = "24h",
     .type = OPT_DURATION,
     .max = YEAR_MS,
     .offset = AT(keep_lost_ms),
     .help = "How long a card that NVML lists no more stays in the Scv, as Unhealthy."},
    {.name = "sampler-limit",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = YEAR_MS,
     .offset = AT(sampler_limit_ms),
     .help = "If the driver answers nothing for so long beyond the interval, all cards\n"
             "are Unhealthy and the Lease is not renewed."},
    {.name = "podresources-socket",
     .arg = "PATH",
     .type = OPT_STRING,
     .offset = AT(podresources),
     .help = "Socket of the kubelet (/var/lib/kubelet/pod-resources/kubelet.sock) that\n"
             "tells which container holds which card. Without it this is not published."},
    {.name = "pods-interval",
     .arg = "TIME",
     .init = "30s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = YEAR_MS,
     .offset = AT(pods_ms),
     .help = "How often it is asked. Not too often: each answer makes some kubelets\n"
             "forget the devices of a pod that is being admitted at that moment."},
    {.name = "lease-namespace",
     .arg = "NAME",
     .init = KEY_LEASE_NAMESPACE,
     .type = OPT_STRING,
     .offset = AT(lease_namespace),
     .help = "Where the heartbeat is."},
    {.name = "lease-renew",
     .arg = "TIME",
     .init = "10s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = YEAR_MS,
     .offset = AT(renew_ms),
     .help = "How often the heartbeat is sent. At 10s, 5,000 nodes make 500 a second."},
    {.name = "lease-grace",
     .arg = "TIME",
     .init = "40s",
     .type = OPT_DURATION,
     .min = 1000,
     .max = YEAR_MS,
     .offset = AT(grace_ms),
     .help = "How old the heartbeat may become; written into the Lease."},
    {.name = "listen",
     .arg = "ADDRESS",
     .init = "0.0.0.0",
     .type = OPT_STRING,
     .offset = AT(listen),
     .help = "IP address to listen on."},
    {.name = "port",
     .env = "PORT",
     .arg = "N",
     .init = "12347",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(port),
     .help = "Port for health and version. 0 takes a free one; a line \"listening on\n"
             "ADDRESS:PORT\" on standard error says which."},
    {.name = "log-level",
     .env = "LOG_LEVEL",
     .arg = "LEVEL",
     .init = "info",
     .type = OPT_CUSTOM,
     .parse = parse_log_level,
     .offset = AT(log_level),
     .help = "error, warn, info or debug."},
    {0},
};

const struct opt_program agent_program = {
    .name = "scv-agent",
    .summary = "publishes the GPU cards of its node as an Scv object",
    .version = GPUSHARE_VERSION,
    .table = table,
};
