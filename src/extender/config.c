/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "core/core.h"
#include "domain/quantity.h"
#include "extender/extender.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    return quantity_read_unit(text, field, err);
}

/* One of two words: false and true. */
static int parse_either(struct span text, const char *no, const char *yes, bool *field,
                        struct err *err)
{
    *field = span_eq(text, span_of(yes));
    if (*field || span_eq(text, span_of(no)))
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is neither %s nor %s", SPAN_ARG(text), no,
                   yes);
}

static int parse_clock(struct span text, void *field, struct err *err)
{
    return parse_either(text, "min", "exact", field, err);
}

static int parse_number(struct span text, void *field, struct err *err)
{
    return parse_either(text, "whole", "share", field, err);
}

static int parse_score(struct span text, void *field, struct err *err)
{
    return score_policy_read(text, field, err);
}

static int parse_detail(struct span text, void *field, struct err *err)
{
    return metrics_detail_read(text, field, err);
}

#define AT(field) offsetof(struct extender_config, field)

static const struct opt table[] = {
    {.name = "port",
     .env = "PORT",
     .arg = "N",
     .init = "12345",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(port),
     .help = "Port for kube-scheduler. 0 takes a free one; a line \"listening on\n"
             "ADDRESS:PORT\" on standard error says which."},
    {.name = "observe-port",
     .arg = "N",
     .init = "12346",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(observe_port),
     .help = "Port for those who only look: inspect, health, version."},
    {.name = "tls-cert",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(tls_cert),
     .help =
         "Serve HTTPS on both ports, with this certificate (PEM, with its chain). It\n"
         "is read again when it changes. Without it: plain HTTP."},
    {.name = "tls-key",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(tls_key),
     .help = "The key of --tls-cert (PEM)."},
    {.name = "client-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(client_ca),
     .help = "On the main port, let in only clients with a certificate of these\n"
             "authorities (PEM)."},
    {.name = "client-name",
     .arg = "NAME",
     .type = OPT_LIST,
     .offset = AT(client_names),
     .help = "... and only with this common or alternative name. May be given more than\n"
             "once, or as a comma list; without it: every name."},
    {.name = "requestheader-client-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(front_ca),
     .help =
         "On the observers' port, believe X-Remote-User of clients with a certificate\n"
         "of these authorities: the API server's aggregation layer."},
    {.name = "requestheader-allowed-names",
     .arg = "NAME",
     .type = OPT_LIST,
     .offset = AT(front_names),
     .help = "... and only with this common name. Without it: every name."},
    {.name = "observe-client-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(observe_ca),
     .help = "On the observers' port, show the cluster only to clients with a\n"
             "certificate of these authorities (PEM), and to the front proxy; version,\n"
             "health and metrics are shown to all. Needs --client-ca."},
    {.name = "connections",
     .arg = "N",
     .init = "128",
     .type = OPT_INT,
     .min = 1,
     .max = 10000,
     .offset = AT(connections),
     .help = "Connections to the main port at a time; each has a thread. More wait."},
    {.name = "body-limit",
     .arg = "SIZE",
     .init = "64Mi",
     .type = OPT_SIZE,
     .min = 4096,
     .max = 1 << 30,
     .offset = AT(max_body),
     .help = "Largest request. With nodeCacheCapable: false, kube-scheduler sends whole\n"
             "Node objects."},
    {.name = "memory-unit",
     .arg = "GiB|MiB|<n>MiB",
     .init = "GiB",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(unit_mib),
     .help = "What one unit of aliyun.com/gpu-mem is. Must be the same in extender,\n"
             "device plugin and kubectl plugin."},
    {.name = "external-tolerance",
     .arg = "MIB",
     .init = "1024",
     .type = OPT_INT,
     .max = 1 << 30,
     .offset = AT(external_tolerance_mib),
     .help = "Memory of a card that processes outside Kubernetes may use before it is\n"
             "withheld from pods."},
    {.name = "require-scv",
     .type = OPT_BOOL,
     .offset = AT(require_scv),
     .help = "Give nothing out on a node without an Scv object, instead of trusting the\n"
             "Node's capacity."},
    {.name = "node-grace",
     .arg = "TIME",
     .init = "40s",
     .type = OPT_DURATION,
     .offset = AT(node_grace_ms),
     .help = "A node whose scv-agent has not renewed its Lease for so long gets no new\n"
             "pods until it does. 0s: however long. An Scv without a Lease, as another\n"
             "daemon writes it, is not affected."},
    {.name = "bind-any",
     .type = OPT_BOOL,
     .offset = AT(bind_any),
     .help = "Also bind pods that ask for no GPU: for a kube-scheduler whose extender\n"
             "has no managedResources."},
    {.name = "scv-clock",
     .arg = "min|exact",
     .init = "min",
     .type = OPT_CUSTOM,
     .parse = parse_clock,
     .offset = AT(clock_exact),
     .help = "What label scv/clock means: the least memory clock of a card, or, as for\n"
             "Yoda-Scheduler, its clock exactly."},
    {.name = "scv-number",
     .arg = "whole|share",
     .init = "whole",
     .type = OPT_CUSTOM,
     .parse = parse_number,
     .offset = AT(number_shares),
     .help =
         "What label scv/number without scv/memory reserves: whole cards, or, as for\n"
         "Yoda-Scheduler, nothing."},
    {.name = "node-score",
     .arg = "binpack|spread|scv|fgd",
     .init = "fgd",
     .type = OPT_CUSTOM,
     .parse = parse_score,
     .offset = AT(node_score),
     .help =
         "Which of the nodes that fit is best: the fullest, the emptiest, the one with\n"
         "the best cards, or the one where the least memory is stranded."},
    {.name = "metrics-detail",
     .arg = "cluster|node|card",
     .init = "node",
     .type = OPT_CUSTOM,
     .parse = parse_detail,
     .offset = AT(metrics_detail),
     .help = "What /metrics tells beside sums over the cluster: seven lines for each\n"
             "node; with card, six more for each card."},
    {.name = "events",
     .init = "on",
     .type = OPT_BOOL,
     .offset = AT(events),
     .help =
         "Write events: which card a pod has, why none has room, cards lost or back."},
    {.name = "api-compression",
     .init = "on",
     .type = OPT_BOOL,
     .offset = AT(api_compression),
     .help = "Let the API server compress lists. Off is faster on a fast network."},
    {.name = "lease-namespace",
     .arg = "NAME",
     .init = "kube-system",
     .type = OPT_STRING,
     .offset = AT(lease_namespace),
     .help = "Where the Lease gpushare-extender is, which says who may bind."},
    {.name = "advertise",
     .env = "POD_IP",
     .arg = "ADDRESS",
     .type = OPT_STRING,
     .offset = AT(advertise),
     .help = "IP address or name under which other replicas reach this one (--port is\n"
             "added). Without it: --listen, unless that is every address; then binds\n"
             "that reach another replica wait there for the lease."},
    {.name = "replica-name",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(replica_name),
     .help = "With --tls-cert: the name that the certificates of the other replicas\n"
             "have. Without it: their address."},
    {.name = "replica-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(replica_ca),
     .help = "With --tls-cert: the authorities (PEM) that the certificates of the other\n"
             "replicas must be of. Without it: those of --client-ca, or else the\n"
             "system's."},
    {.name = "drain-delay",
     .env = "DRAIN_DELAY",
     .arg = "TIME",
     .init = "0s",
     .type = OPT_DURATION,
     .offset = AT(drain_delay_ms),
     .help = "At a stop: how long calls are still taken after /readyz says no, for\n"
             "whoever sends them to find another replica."},
    {.name = "drain-timeout",
     .arg = "TIME",
     .init = "20s",
     .type = OPT_DURATION,
     .offset = AT(drain_ms),
     .help = "How long a stop waits for requests in flight."},
    {0},
};

const struct opt_program extender_program = {
    .name = "gpushare-extender",
    .summary = "schedules GPU memory for kube-scheduler",
    .version = GPUSHARE_VERSION,
    .table = table,
    .shared = entry_table,
    .shared_at = AT(entry),
};
