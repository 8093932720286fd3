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

#define AT(field) offsetof(struct cli_config, field)

static const struct opt table[] = {
    {.name = "output",
     .letter = 'o',
     .arg = "table|wide|json",
     .init = "table",
     .type = OPT_CHOICE,
     .offset = AT(format),
     .help = "Output format."},
    {.name = "details",
     .letter = 'd',
     .type = OPT_BOOL,
     .offset = AT(details),
     .help = "Also show the pods on each card and the pending pods."},
    {.name = "topology",
     .type = OPT_BOOL,
     .offset = AT(topology),
     .help = "Also show what connects the cards of each node, as nvidia-smi topo -m."},
    {.name = "watch",
     .letter = 'w',
     .type = OPT_BOOL,
     .offset = AT(watch),
     .help = "Keep running and print the output again after each change."},
    {.name = "classic",
     .type = OPT_BOOL,
     .offset = AT(classic),
     .help = "Print exactly what the Go plugin prints, from nodes and pods only."},
    {.name = "check",
     .type = OPT_BOOL,
     .offset = AT(check),
     .help = "Compare ledger, annotations, Scvs and the extender; exit with 2 on "
             "differences."},
    {.name = "serve",
     .type = OPT_BOOL,
     .offset = AT(serve),
     .help = "Serve the web page on 127.0.0.1 and print its URL; the page follows the "
             "cluster."},
    {.name = "extender",
     .arg = "ADDRESS",
     .type = OPT_STRING,
     .offset = AT(extender),
     .help = "Extender for --check and explain: http[s]://HOST:PORT, "
             "NAMESPACE/SERVICE:PORT; default: none."},
    {.name = "extender-token",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(extender_token),
     .help = "File with the bearer token for --extender https://HOST:PORT; default: no "
             "token."},
    {.name = "extender-ca",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(extender_ca),
     .help = "PEM file of the CAs of the extender's certificate; default: the system's "
             "CAs."},
    {.name = "namespace",
     .letter = 'n',
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(ns),
     .help =
         "Namespace of the pod of explain or defrag (default: that of the context), or "
         "of usage."},
    {.name = "cards",
     .arg = "N",
     .type = OPT_INT,
     .max = REQUEST_MAX_CARDS,
     .offset = AT(cards),
     .help = "Cards of the shape for which defrag makes room; default: 1 with --memory."},
    {.name = "memory",
     .arg = "SIZE",
     .type = OPT_SIZE,
     .min = 1 << 20,
     .max = (int64_t)1 << 50,
     .offset = AT(memory),
     .help =
         "Memory on each card of the shape for which defrag makes room; default: whole "
         "cards."},
    {.name = "model",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(model),
     .help = "Models, separated by commas, of the cards for which defrag makes room; "
             "default: any."},
    {.name = "node",
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(node),
     .help = "Node on which defrag makes room; default: the one with the fewest moves."},
    {.name = "apply",
     .type = OPT_BOOL,
     .offset = AT(apply),
     .help =
         "Execute the plan of defrag: cordon the node and evict its pods one by one."},
    {.name = "move-timeout",
     .arg = "TIME",
     .init = "5m",
     .type = OPT_DURATION,
     .min = 100,
     .max = 24 * 3600 * 1000,
     .offset = AT(move_timeout_ms),
     .help = "Time limit of defrag --apply for each eviction and for each replacement."},
    {.name = "prometheus",
     .arg = "URL",
     .type = OPT_STRING,
     .offset = AT(prometheus),
     .help =
         "Prometheus that assess asks what pods used in a week; default: what scv-agent "
         "measures."},
    {.name = "from",
     .arg = "FILE",
     .type = OPT_LIST,
     .offset = AT(from),
     .help = "JSON file that assess reads; repeatable; default: the cluster."},
    {.name = "headroom",
     .arg = "PERCENT",
     .init = "20%",
     .type = OPT_CUSTOM,
     .parse = parse_percent,
     .offset = AT(headroom),
     .help = "What assess adds to the memory that a pod used, in percent of it."},
    {.name = "memory-unit",
     .arg = "auto|GiB|MiB|<n>MiB",
     .init = "auto",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(unit_mib),
     .help = "Unit of aliyun.com/gpu-mem. auto: MiB if a node has over 1024 units per "
             "card, else GiB."},
    {.name = "external-tolerance",
     .arg = "MIB",
     .init = "1024",
     .type = OPT_INT,
     .max = 1 << 30,
     .offset = AT(external_tolerance_mib),
     .help =
         "MiB of a card that may be used without a promise; as set for the extender."},
    {.name = "require-scv",
     .type = OPT_BOOL,
     .offset = AT(require_scv),
     .help = "Treat nodes without an Scv as unusable; as set for the extender."},
    {.name = "node-grace",
     .arg = "TIME",
     .init = "40s",
     .type = OPT_DURATION,
     .offset = AT(node_grace_ms),
     .help = "Age of a heartbeat that makes a node unusable; as set for the extender. 0s "
             "disables."},
    {.name = "scv-clock",
     .arg = "min|exact",
     .init = "min",
     .type = OPT_CHOICE,
     .offset = AT(scv_clock),
     .help =
         "Meaning of label scv/clock, minimum or exact MHz; as set for the extender."},
    {.name = "scv-number",
     .arg = "whole|share",
     .init = "whole",
     .type = OPT_CHOICE,
     .offset = AT(scv_number),
     .help = "What scv/number without scv/memory reserves on a card; as set for the "
             "extender."},
    {.name = "color",
     .arg = "auto|always|never",
     .init = "auto",
     .type = OPT_CHOICE,
     .offset = AT(color),
     .help = "When to color the output. auto: on a terminal, unless NO_COLOR is set."},
    {.name = "request-timeout",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .min = 100,
     .max = 3600 * 1000,
     .offset = AT(timeout_ms),
     .help = "Time limit for listing all objects."},
    ENTRY_KUBECONFIG(AT(kubeconfig)),
    ENTRY_CONTEXT(AT(context)),
    ENTRY_LOG_LEVEL(AT(log_level), "error"),
    {0},
};

const struct opt_program cli_program = {
    .name = "kubectl-inspect-gpushare",
    .summary =
        "shows promised, used and free GPU memory per card, and why a pod is pending",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "[NODE | explain pod [NAMESPACE/]NAME | defrag [pod [NAMESPACE/]NAME] | "
            "assess | usage]",
    .rest_at = AT(args),
};
