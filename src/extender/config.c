/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "domain/quantity.h"
#include "extender/extender.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    return quantity_read_unit(text, field, err);
}

/* all, best, or a number of nodes. */
static int parse_answer(struct span text, void *field, struct err *err)
{
    int64_t *answer = field, n = 0;
    if (span_eq(text, SPAN("all")) || span_eq(text, SPAN("best"))) {
        *answer = text.p[0] == 'a' ? VERBS_ALL : 1;
        return 0;
    }
    if (!span_i64(text, &n) || n < 1 || n > VERBS_BEST_MAX)
        return err_set(err, ERR_INVALID, "\"%.*s\" is not one of all|best|1..%d",
                       SPAN_ARG(text), VERBS_BEST_MAX);
    *answer = n;
    return 0;
}

#define AT(field) offsetof(struct extender_config, field)

static const struct opt table[] = {
    {.name = "port",
     .env = "PORT",
     .arg = "N",
     .init = "12345",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(server.port),
     .help = "TCP port for kube-scheduler; 0 picks a free port, and standard error names "
             "the port."},
    {.name = "observe-port",
     .arg = "N",
     .init = "12346",
     .type = OPT_INT,
     .max = 65535,
     .offset = AT(server.observe_port),
     .help =
         "TCP port of inspect, web page, metrics, health and version. 0 picks a free\n"
         "port."},
    {.name = "insecure",
     .type = OPT_SWITCH,
     .offset = AT(certs.insecure),
     .help = "Ask no client for credentials; default: on if --listen is a loopback "
             "address, else off."},
    {.name = "tls-cert",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(certs.cert_file),
     .help = "PEM file of the HTTPS certificate with its chain, for both ports; default: "
             "from a Secret."},
    {.name = "tls-key",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(certs.key_file),
     .help = "PEM file of the private key of --tls-cert; default: from a Secret."},
    {.name = "client-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(certs.client_ca_file),
     .help = "PEM file of the CAs that sign kube-scheduler's client certificate; "
             "default: from a Secret."},
    {.name = "client-name",
     .arg = "NAME",
     .type = OPT_LIST,
     .offset = AT(certs.client_names),
     .help = "Name (common or alternative) that certificates of --client-ca must have; "
             "repeatable; default: any."},
    {.name = "requestheader-client-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(certs.front_ca_file),
     .help = "PEM file of CAs of the front proxy whose X-Remote-User is trusted; "
             "default: none."},
    {.name = "requestheader-allowed-names",
     .arg = "NAME",
     .type = OPT_LIST,
     .offset = AT(certs.front_names),
     .help = "Common name that the front proxy's certificate must have; repeatable; "
             "default: any."},
    {.name = "observe-client-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(certs.observe_ca_file),
     .help = "PEM file of the CAs that sign the client certificates for views of the "
             "cluster; default: none."},
    {.name = "scheduler-deployment",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(certs.scheduler_deployment),
     .help =
         "Deployment of kube-scheduler, of --lease-namespace, to restart for a new CA; "
         "default: none."},
    {.name = "pod-scheduler",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(server.pod_defaults.scheduler),
     .help = "Scheduler that the webhook pod-defaults names in pods that name none; "
             "default: none."},
    {.name = "pod-runtime-class",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(server.pod_defaults.runtime_class),
     .help = "RuntimeClass that the webhook pod-defaults names in pods that name none; "
             "default: none."},
    {.name = "pod-webhook",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(certs.webhook),
     .help = "MutatingWebhookConfiguration whose caBundle follows the certificates; "
             "default: none."},
    {.name = "await-pod-defaults",
     .arg = "TIME",
     .init = "0s",
     .type = OPT_DURATION,
     .offset = AT(await_ms),
     .help = "Only wait until pods of --lease-namespace get what --pod-... name; 0s: run "
             "the extender."},
    {.name = "connections",
     .arg = "N",
     .init = "128",
     .type = OPT_INT,
     .min = 1,
     .max = 10000,
     .offset = AT(server.connections),
     .help =
         "Requests that the main port handles at once, each in a thread; three times as "
         "many may wait."},
    {.name = "body-limit",
     .arg = "SIZE",
     .init = "32Mi",
     .type = OPT_SIZE,
     .min = 4096,
     .max = 1 << 30,
     .offset = AT(server.max_body),
     .help = "Maximum size of a request body; full Node objects (nodeCacheCapable: "
             "false) need more."},
    {.name = "memory-unit",
     .arg = "GiB|MiB|<n>MiB",
     .init = "GiB",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(core.ledger.unit_mib),
     .help =
         "One unit of aliyun.com/gpu-mem; must be the same in all gpushare programs."},
    {.name = "external-tolerance",
     .arg = "MIB",
     .init = "1024",
     .type = OPT_INT,
     .max = 1 << 30,
     .offset = AT(core.ledger.external_tolerance_mib),
     .help =
         "MiB per card that may be used without a promise before memory is withheld."},
    {.name = "require-scv",
     .init = "off",
     .type = OPT_BOOL,
     .offset = AT(core.ledger.require_scv),
     .help = "Place no pods on a node without an Scv; off: the Node's capacity counts "
             "instead."},
    {.name = "node-grace",
     .arg = "TIME",
     .init = "40s",
     .type = OPT_DURATION,
     .offset = AT(core.node_grace_ms),
     .help =
         "Place no pods on a node whose scv-agent heartbeat is older. 0s disables the\n"
         "check."},
    {.name = "gang-wait",
     .arg = "TIME",
     .init = "5s",
     .type = OPT_DURATION,
     .offset = AT(core.gang_wait_ms),
     .help =
         "How long a gang of known minimum waits for members that do not exist yet; 0s:\n"
         "not at all."},
    {.name = "preempt-after",
     .arg = "TIME",
     .init = "0s",
     .type = OPT_DURATION,
     .offset = AT(core.preempt_after_ms),
     .help =
         "Evict pods of lower priority for a pod that no card fits for that long; 0s:\n"
         "never."},
    {.name = "bind-any",
     .init = "off",
     .type = OPT_BOOL,
     .offset = AT(core.bind_any),
     .help = "Also bind pods that request no GPU; needed if the extender has no "
             "managedResources."},
    {.name = "scv-clock",
     .arg = "min|exact",
     .init = "min",
     .type = OPT_CHOICE,
     .offset = AT(clock_exact),
     .help =
         "Whether label scv/clock is the minimum or the exact memory clock of a card,\n"
         "in MHz."},
    {.name = "scv-number",
     .arg = "whole|share",
     .init = "whole",
     .type = OPT_CHOICE,
     .offset = AT(number_shares),
     .help =
         "What scv/number without scv/memory reserves: whole cards, or nothing (share,\n"
         "as Yoda)."},
    {.name = "node-score",
     .arg = "binpack|spread|scv|fgd",
     .init = "fgd",
     .type = OPT_CHOICE,
     .offset = AT(server.verbs.policy),
     .help = "Preferred node: fullest, emptiest, best cards (scv), or least stranded\n"
             "memory (fgd)."},
    {.name = "topology",
     .arg = "prefer|off",
     .init = "prefer",
     .type = OPT_CHOICE,
     .offset = AT(ignore_links),
     .help = "Whether pods of several cards prefer connected ones; gpushare/min-link "
             "holds anyway."},
    {.name = "filter-answer",
     .arg = "all|best|N",
     .init = "best",
     .type = OPT_CUSTOM,
     .parse = parse_answer,
     .offset = AT(server.verbs.answer),
     .help = "Nodes that filter returns: all that fit, the best one and reserve cards "
             "there, or the best N."},
    {.name = "metrics-detail",
     .arg = "cluster|node|card",
     .init = "node",
     .type = OPT_CHOICE,
     .offset = AT(server.metrics_detail),
     .help = "Detail of /metrics: cluster sums only, also per node, or also per card."},
    {.name = "events",
     .init = "on",
     .type = OPT_BOOL,
     .offset = AT(events),
     .help =
         "Write Kubernetes Events about placed and rejected pods and about lost cards."},
    {.name = "api-compression",
     .init = "on",
     .type = OPT_BOOL,
     .offset = AT(api_compression),
     .help = "Request gzip-compressed lists from the API server; off is faster on a fast "
             "network."},
    {.name = "lease-namespace",
     .arg = "NAME",
     .init = "kube-system",
     .type = OPT_STRING,
     .offset = AT(core.lease_namespace),
     .help = "Namespace of the Lease gpushare-extender and of the Secrets with "
             "certificates."},
    {.name = "advertise",
     .env = "POD_IP",
     .arg = "ADDRESS",
     .type = OPT_STRING,
     .offset = AT(advertise),
     .help = "IP address or host name at which other replicas reach this one; default: "
             "--listen."},
    {.name = "replica-name",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(replica_name),
     .help =
         "Name that the certificate of another replica must have; default: its address."},
    {.name = "replica-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(replica_ca),
     .help = "PEM file of CAs for other replicas; default: --client-ca, else from a "
             "Secret."},
    {.name = "drain-delay",
     .env = "DRAIN_DELAY",
     .arg = "TIME",
     .init = "0s",
     .type = OPT_DURATION,
     .offset = AT(drain_delay_ms),
     .help =
         "Time that a stopping replica still serves requests after /readyz starts to\n"
         "fail."},
    {.name = "drain-timeout",
     .arg = "TIME",
     .init = "20s",
     .type = OPT_DURATION,
     .offset = AT(drain_ms),
     .help = "Maximum time that a stopping replica waits for requests in flight."},
    {.more = entry_table},
};

const struct opt_program extender_program = {
    .name = "gpushare-extender",
    .summary = "schedules GPU memory for kube-scheduler",
    .version = GPUSHARE_VERSION,
    .table = table,
};
