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

static int parse_requests_of(struct span text, void *field, struct err *err)
{
    *(bool *)field = span_eq(text, SPAN("hami"));
    return !text.n || span_eq(text, SPAN("hami"))
               ? 0
               : err_set(err, ERR_INVALID, "\"%.*s\" is not hami or empty",
                         SPAN_ARG(text));
}

/* The Lease has whole seconds: with a fraction, others would wait for less than this process. */
static int parse_lease(struct span text, void *field, struct err *err)
{
    int64_t *lease_ms = field, ms = 0;
    if (opt_parse_duration(text, &ms, err))
        return -1;
    if (ms % 1000 || ms < CORE_LEASE_MS || ms > CORE_LEASE_MAX_MS)
        return err_set(err, ERR_INVALID, "\"%.*s\" is not whole seconds from 5s to 60s",
                       SPAN_ARG(text));
    *lease_ms = ms;
    return 0;
}

#define OPT_CONFIG struct extender_config

static const struct opt table[] = {
    OPT_INT("port", server.port, "N", "12345", 0, 65535,
            "TCP port for kube-scheduler; 0 picks a free port, and standard error names "
            "the port.",
            .env = "PORT"),
    OPT_INT("observe-port", server.observe_port, "N", "12346", 0, 65535,
            "TCP port of inspect, web page, metrics, health and version. 0 picks a free\n"
            "port."),
    OPT_ENTRY(OPT_SWITCH, "insecure", certs.insecure, NULL, NULL,
              "Ask no client for credentials; default: on if --listen is a loopback "
              "address, else off."),
    OPT_STRING(
        "tls-cert", certs.cert_file, "FILE", NULL,
        "PEM file of the HTTPS certificate with its chain, for both ports; default: "
        "from a Secret."),
    OPT_STRING("tls-key", certs.key_file, "FILE", NULL,
               "PEM file of the private key of --tls-cert; default: from a Secret."),
    OPT_STRING("client-ca", certs.client_ca_file, "FILE", NULL,
               "PEM file of the CAs that sign kube-scheduler's client certificate; "
               "default: from a Secret."),
    OPT_LIST("client-name", certs.client_names, "NAME",
             "Name (common or alternative) that certificates of --client-ca must have; "
             "repeatable; default: any."),
    OPT_STRING("requestheader-client-ca", certs.front_ca_file, "FILE", NULL,
               "PEM file of CAs of the front proxy whose X-Remote-User is trusted; "
               "default: none."),
    OPT_LIST("requestheader-allowed-names", certs.front_names, "NAME",
             "Common name that the front proxy's certificate must have; repeatable; "
             "default: any."),
    OPT_STRING("observe-client-ca", certs.observe_ca_file, "FILE", NULL,
               "PEM file of the CAs that sign the client certificates for views of the "
               "cluster; default: none."),
    OPT_STRING(
        "scheduler-deployment", certs.scheduler_deployment, "NAME", NULL,
        "Deployment of kube-scheduler, of --lease-namespace, to restart for a new CA; "
        "default: none."),
    OPT_STRING("pod-scheduler", server.pod_defaults.scheduler, "NAME", NULL,
               "Scheduler that the webhook pod-defaults names in pods that name none; "
               "default: none."),
    OPT_STRING("pod-runtime-class", server.pod_defaults.runtime_class, "NAME", NULL,
               "RuntimeClass that the webhook pod-defaults names in pods that name none; "
               "default: none."),
    OPT_STRING("pod-webhook", certs.webhook, "NAME", NULL,
               "MutatingWebhookConfiguration whose caBundle follows the certificates; "
               "default: none."),
    OPT_DURATION(
        "await-pod-defaults", await_ms, "0s", 0, 0,
        "Only wait until pods of --lease-namespace get what --pod-... name; 0s: run "
        "the extender."),
    OPT_INT(
        "connections", server.connections, "N", "128", 1, 10000,
        "Requests that the main port handles at once, each in a thread; three times as "
        "many may wait."),
    OPT_SIZE("body-limit", server.max_body, "32Mi", 4096, 1 << 30,
             "Maximum size of a request body; full Node objects (nodeCacheCapable: "
             "false) need more."),
    OPT_CUSTOM(
        "memory-unit", core.ledger.unit_mib, "GiB|MiB|<n>MiB", "GiB", parse_unit,
        "One unit of aliyun.com/gpu-mem; must be the same in all gpushare programs."),
    OPT_INT("external-tolerance", core.ledger.external_tolerance_mib, "MIB", "1024", 0,
            1 << 30,
            "MiB per card that may be used without a promise before memory is withheld."),
    OPT_BOOL("require-scv", core.ledger.require_scv, "off",
             "Place no pods on a node without an Scv; off: the Node's capacity counts "
             "instead."),
    OPT_DURATION(
        "node-grace", core.node_grace_ms, "40s", 0, 0,
        "Place no pods on a node whose scv-agent heartbeat is older. 0s disables the\n"
        "check."),
    OPT_DURATION(
        "gang-wait", core.gang_wait_ms, "5s", 0, 0,
        "How long a gang of known minimum waits for members that do not exist yet; 0s:\n"
        "not at all."),
    OPT_DURATION(
        "preempt-after", core.preempt_after_ms, "0s", 0, 0,
        "Evict pods of lower priority for a pod that no card fits for that long; 0s:\n"
        "never."),
    OPT_BOOL("bind-any", core.bind_any, "off",
             "Also bind pods that request no GPU; needed if the extender has no "
             "managedResources."),
    OPT_CUSTOM("requests-of", requests_of, "hami", "", parse_requests_of,
               "Also read the requests of another system, on nodes of its dialect: hami; "
               "empty: none."),
    OPT_STRING(
        "hami-values", hami_values, "KEY=VALUE,...", NULL,
        "Values of HAMi's chart as resourceName or defaultMemory, where they differ; "
        "default: HAMi's."),
    OPT_CHOICE(
        "scv-clock", clock_exact, "min|exact", "min",
        "Whether label scv/clock is the minimum or the exact memory clock of a card,\n"
        "in MHz."),
    OPT_CHOICE(
        "scv-number", number_shares, "whole|share", "whole",
        "What scv/number without scv/memory reserves: whole cards, or nothing (share,\n"
        "as Yoda)."),
    OPT_CHOICE("node-score", server.verbs.policy, "binpack|spread|scv|fgd", "fgd",
               "Preferred node: fullest, emptiest, best cards (scv), or least stranded\n"
               "memory (fgd)."),
    OPT_CHOICE("topology", ignore_links, "prefer|off", "prefer",
               "Whether pods of several cards prefer connected ones; gpushare/min-link "
               "holds anyway."),
    OPT_CUSTOM("filter-answer", server.verbs.answer, "all|best|N", "best", parse_answer,
               "Nodes that filter returns: all that fit, the best one and reserve cards "
               "there, or the best N."),
    OPT_CHOICE("metrics-detail", server.metrics_detail, "cluster|node|card", "node",
               "Detail of /metrics: cluster sums only, also per node, or also per card."),
    OPT_BOOL(
        "events", events, "on",
        "Write Kubernetes Events about placed and rejected pods and about lost cards."),
    OPT_BOOL("api-compression", api_compression, "on",
             "Request gzip-compressed lists from the API server; off is faster on a fast "
             "network."),
    OPT_STRING("lease-namespace", core.lease_namespace, "NAME", "kube-system",
               "Namespace of the Lease gpushare-extender and of the Secrets with "
               "certificates."),
    OPT_CUSTOM("lease-duration", core.lease_ms, "TIME", "5s", parse_lease,
               "Whole seconds, 5s to 60s, until a killed leader is replaced; longer for "
               "a slow API server."),
    OPT_STRING("advertise", advertise, "ADDRESS", NULL,
               "IP address or host name at which other replicas reach this one; default: "
               "--listen.",
               .env = "POD_IP"),
    OPT_STRING(
        "replica-name", replica_name, "NAME", NULL,
        "Name that the certificate of another replica must have; default: its address."),
    OPT_STRING("replica-ca", replica_ca, "FILE", NULL,
               "PEM file of CAs for other replicas; default: --client-ca, else from a "
               "Secret."),
    OPT_DURATION(
        "drain-delay", drain_delay_ms, "0s", 0, 0,
        "Time that a stopping replica still serves requests after /readyz starts to\n"
        "fail.",
        .env = "DRAIN_DELAY"),
    OPT_DURATION("drain-timeout", drain_ms, "20s", 0, 0,
                 "Maximum time that a stopping replica waits for requests in flight."),
    {.more = entry_table},
};

const struct opt_program extender_program = {
    .name = "gpushare-extender",
    .summary = "schedules GPU memory for kube-scheduler",
    .version = GPUSHARE_VERSION,
    .table = table,
};
