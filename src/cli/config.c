/* SPDX-License-Identifier: Apache-2.0 */

/* The options of kubectl inspect gpushare. */

#include "cli/config.h"

#include "base/log.h"
#include "domain/quantity.h"
#include "domain/request.h"
#include "wire/entry.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    if (span_eq(text, SPAN("auto"))) {
        *(int64_t *)field = 0;
        return 0;
    }
    if (quantity_read_unit(text, field, NULL) == 0)
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is not one of auto|GiB|MiB|<n>MiB",
                   SPAN_ARG(text));
}

static int parse_percent(struct span text, void *field, struct err *err)
{
    int64_t *percent = field;
    text.n -= text.n && text.p[text.n - 1] == '%';
    if (span_i64(text, percent) && *percent >= 0 && *percent <= 1000)
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is not a percentage from 0%% to 1000%%",
                   SPAN_ARG(text));
}

/* As for kubectl, a number without a unit is seconds. */
static int parse_timeout(struct span text, void *field, struct err *err)
{
    enum { MIN_MS = 100, MAX_S = 24 * 3600 };
    int64_t *ms = field, seconds;
    if (span_i64(text, &seconds) && seconds >= 0 && seconds <= MAX_S)
        *ms = seconds * 1000;
    else if (opt_parse_duration(text, ms, err))
        return -1;
    if (*ms == 0 || (*ms >= MIN_MS && *ms <= MAX_S * 1000))
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is neither 0 nor within %d ms..%d s",
                   SPAN_ARG(text), MIN_MS, MAX_S);
}

#define OPT_CONFIG struct cli_config

const struct opt config_kubectl[] = {
    OPT_STRING("as", kubectl.as, "NAME", NULL,
               "User that kubectl impersonates; default: that of the kubeconfig."),
    OPT_LIST("as-group", kubectl.as_groups, "NAME",
             "Group that kubectl impersonates; repeatable; default: none."),
    OPT_STRING("as-uid", kubectl.as_uid, "UID", NULL,
               "UID that kubectl impersonates; default: none."),
    OPT_LIST("as-user-extra", kubectl.as_extra, "KEY=VALUE",
             "Attribute of the impersonated user; repeatable; default: none."),
    OPT_STRING("certificate-authority", kubectl.ca, "FILE", NULL,
               "CAs of the API server's certificate; default: those of the kubeconfig."),
    OPT_STRING("client-certificate", kubectl.cert, "FILE", NULL,
               "Certificate of the user; default: that of the kubeconfig."),
    OPT_STRING("client-key", kubectl.key, "FILE", NULL,
               "Key of the user's certificate; default: that of the kubeconfig."),
    OPT_STRING("cluster", kubectl.cluster, "NAME", NULL,
               "Cluster of the kubeconfig; default: that of the context."),
    OPT_BOOL("insecure-skip-tls-verify", kubectl.insecure, "off",
             "Accept every certificate of the API server."),
    OPT_STRING("password", kubectl.password, "TEXT", NULL,
               "Password of basic authentication; default: that of the kubeconfig."),
    OPT_STRING("server", kubectl.server, "URL", NULL,
               "API server; default: that of the kubeconfig.", .letter = 's'),
    OPT_STRING("tls-server-name", kubectl.server_name, "NAME", NULL,
               "Name in the API server's certificate; default: the host of its URL."),
    OPT_STRING("token", kubectl.token, "TEXT", NULL,
               "Bearer token, readable in the list of processes; default: that of the "
               "kubeconfig."),
    OPT_STRING("user", kubectl.user, "NAME", NULL,
               "User of the kubeconfig; default: that of the context."),
    OPT_STRING("username", kubectl.username, "NAME", NULL,
               "Name of basic authentication; default: that of the kubeconfig."),
    {0},
};

static const struct opt table[] = {
    OPT_CHOICE("output", format, "table|wide|json", "table", "Output format.",
               .letter = 'o'),
    OPT_BOOL("details", details, "off",
             "Also show the pods on each card and the pending pods.", .letter = 'd'),
    OPT_BOOL("topology", topology, "off",
             "Also show what connects the cards of each node, as nvidia-smi topo -m."),
    OPT_BOOL("watch", watch, "off",
             "Keep running and print the output again after each change.", .letter = 'w'),
    OPT_BOOL("classic", classic, "off",
             "Print exactly what the Go plugin prints, from nodes and pods only."),
    OPT_BOOL("check", check, "off",
             "Compare ledger, annotations, Scvs and the extender; exit with 2 on "
             "differences."),
    OPT_BOOL("serve", serve, "off",
             "Serve the web page on the loopback and print its URL; the page follows the "
             "cluster."),
    OPT_STRING("extender", extender, "ADDRESS", NULL,
               "Extender: http[s]://HOST:PORT, or NAMESPACE/SERVICE:PORT if it serves "
               "plain HTTP; default: none."),
    OPT_STRING("extender-token", extender_token, "FILE", NULL,
               "File with the bearer token for --extender https://HOST:PORT; default: no "
               "token."),
    OPT_STRING("extender-ca", extender_ca, "FILE", NULL,
               "PEM file of the CAs of the extender's certificate; default: the system's "
               "CAs."),
    OPT_STRING(
        "namespace", ns, "NAME", NULL,
        "Namespace of the pod of explain or defrag (default: that of the context), or "
        "of usage.",
        .letter = 'n'),
    OPT_INT("cards", cards, "N", NULL, 0, REQUEST_MAX_CARDS,
            "Cards of the shape for which defrag makes room; default: 1 with --memory."),
    OPT_SIZE(
        "memory", memory, NULL, 1 << 20, (int64_t)1 << 50,
        "Memory on each card of the shape for which defrag makes room; default: whole "
        "cards."),
    OPT_STRING("model", model, "NAME", NULL,
               "Models, separated by commas, of the cards for which defrag makes room; "
               "default: any."),
    OPT_STRING(
        "node", node, "NAME", NULL,
        "Node on which defrag makes room; default: the one with the fewest moves."),
    OPT_BOOL(
        "apply", apply, "off",
        "Execute the plan of defrag: cordon the node and evict its pods one by one."),
    OPT_DURATION(
        "move-timeout", move_timeout_ms, "5m", 100, 24 * 3600 * 1000,
        "Time limit of defrag --apply for each eviction and for each replacement."),
    OPT_STRING(
        "prometheus", prometheus, "URL", NULL,
        "Prometheus that assess asks what pods used in a week; default: what scv-agent "
        "measures."),
    OPT_LIST("from", from, "FILE",
             "JSON file that assess reads; repeatable; default: the cluster."),
    OPT_CUSTOM("headroom", headroom, "PERCENT", "20%", parse_percent,
               "What assess adds to the memory that a pod used, in percent of it."),
    OPT_CUSTOM("memory-unit", unit_mib, "auto|GiB|MiB|<n>MiB", "auto", parse_unit,
               "Unit of aliyun.com/gpu-mem. auto: MiB if a node has over 1024 units per "
               "card, else GiB."),
    OPT_INT("external-tolerance", external_tolerance_mib, "MIB", "1024", 0, 1 << 30,
            "MiB of a card that may be used without a promise; as set for the extender."),
    OPT_BOOL("require-scv", require_scv, "off",
             "Treat nodes without an Scv as unusable; as set for the extender."),
    OPT_DURATION(
        "node-grace", node_grace_ms, "40s", 0, 0,
        "Age of a heartbeat that makes a node unusable; as set for the extender. 0s "
        "disables."),
    OPT_CHOICE(
        "scv-clock", clock_exact, "min|exact", "min",
        "Meaning of label scv/clock, minimum or exact MHz; as set for the extender."),
    OPT_CHOICE("scv-number", number_shares, "whole|share", "whole",
               "What scv/number without scv/memory reserves on a card; as set for the "
               "extender."),
    OPT_CHOICE("color", color, "auto|always|never", "auto",
               "When to color the output. auto: on a terminal, unless NO_COLOR is set."),
    OPT_CUSTOM(
        "request-timeout", timeout_ms, "TIME", "60s", parse_timeout,
        "Time limit for the login and for listing all objects: 5 (seconds), 5s; 0: "
        "none."),
    ENTRY_KUBECONFIG,
    ENTRY_CONTEXT,
    ENTRY_LOG_LEVEL("error"),
    {.more = config_kubectl},
};

const struct opt_program cli_program = {
    .name = "kubectl-inspect-gpushare",
    .summary =
        "shows promised, used and free GPU memory per card, and why a pod is pending\n\n"
        "NODE     Show the cards of one node; without an argument, those of all nodes\n"
        "explain  Print why a pod is pending and what would let it fit, or a pod's "
        "cards\n"
        "defrag   Print the fewest pods to move so that a pending pod, or a shape, fits\n"
        "assess   Compute which pods could share cards, and how many cards that saves\n"
        "usage    Print what each pod uses beside what it was promised",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "[NODE | explain pod [NAMESPACE/]NAME | defrag [pod [NAMESPACE/]NAME] | "
            "assess | usage]",
    .rest_at = offsetof(struct cli_config, args),
};
