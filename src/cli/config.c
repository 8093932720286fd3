/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config.h"

#include "base/log.h"
#include "domain/quantity.h"
#include "wire/entry.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    if (span_eq(text, SPAN("auto"))) {
        *(int64_t *)field = 0;
        return 0;
    }
    if (quantity_read_unit(text, field, NULL) == 0)
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is none of auto, GiB, MiB, <n>MiB",
                   SPAN_ARG(text));
}

/* Which of the words it is: its place. */
static int parse_word(struct span text, const char *const *words, int *place,
                      struct err *err)
{
    cleanup_buf struct buf all = {0};
    for (int i = 0; words[i]; i++) {
        *place = i;
        if (span_eq(text, span_of(words[i])))
            return 0;
        buf_adds(&all, i ? ", " : "");
        buf_adds(&all, words[i]);
    }
    return err_set(err, ERR_INVALID, "\"%.*s\" is none of %s", SPAN_ARG(text), all.p);
}

static int parse_form(struct span text, void *field, struct err *err)
{
    static const char *const words[] = {"table", "wide", "json", "yaml", NULL};
    int place;
    if (parse_word(text, words, &place, err))
        return -1;
    *(enum show_form *)field = (enum show_form)place;
    return 0;
}

static int parse_colour(struct span text, void *field, struct err *err)
{
    static const char *const words[] = {"auto", "always", "never", NULL};
    int place;
    if (parse_word(text, words, &place, err))
        return -1;
    *(enum cli_colour *)field = (enum cli_colour)place;
    return 0;
}

static int parse_clock(struct span text, void *field, struct err *err)
{
    static const char *const words[] = {"min", "exact", NULL};
    int place;
    if (parse_word(text, words, &place, err))
        return -1;
    *(bool *)field = place == 1;
    return 0;
}

static int parse_number(struct span text, void *field, struct err *err)
{
    static const char *const words[] = {"whole", "share", NULL};
    int place;
    if (parse_word(text, words, &place, err))
        return -1;
    *(bool *)field = place == 1;
    return 0;
}

#define AT(field) offsetof(struct cli_config, field)

static const struct opt table[] = {
    {.name = "output",
     .letter = 'o',
     .arg = "table|wide|json|yaml",
     .init = "table",
     .type = OPT_CUSTOM,
     .parse = parse_form,
     .offset = AT(form),
     .help = "Form of the output."},
    {.name = "details",
     .letter = 'd',
     .type = OPT_BOOL,
     .offset = AT(details),
     .help = "Show the pods, too."},
    {.name = "watch",
     .letter = 'w',
     .type = OPT_BOOL,
     .offset = AT(watch),
     .help = "Go on, and show it again when something has changed."},
    {.name = "classic",
     .type = OPT_BOOL,
     .offset = AT(classic),
     .help = "The Go plugin's output, byte for byte, from nodes and pods alone."},
    {.name = "check",
     .type = OPT_BOOL,
     .offset = AT(check),
     .help =
         "Compare ledger, annotations, Scv and the extender's view, print a line for\n"
         "each difference, and exit with 2 if there is one."},
    {.name = "extender",
     .arg = "WHERE",
     .type = OPT_STRING,
     .offset = AT(extender),
     .help = "Where the extender is: http://HOST:PORT, or NAMESPACE/SERVICE:PORT to go\n"
             "through the API server, or none. Without it:\n"
             "kube-system/gpushare-schd-extender:12345, if that can be reached. It is\n"
             "asked for --check, and where heartbeats, or what a unit is, leave doubt."},
    {.name = "namespace",
     .letter = 'n',
     .arg = "NAME",
     .type = OPT_STRING,
     .offset = AT(ns),
     .help = "Namespace of a pod. Without it: that of the context."},
    {.name = "memory-unit",
     .arg = "auto|GiB|MiB|<n>MiB",
     .init = "auto",
     .type = OPT_CUSTOM,
     .parse = parse_unit,
     .offset = AT(unit_mib),
     .help =
         "What one unit of aliyun.com/gpu-mem is. auto: what follows from the nodes'\n"
         "capacity and their cards, or else what the extender says."},
    {.name = "external-tolerance",
     .arg = "MIB",
     .init = "1024",
     .type = OPT_INT,
     .max = 1 << 30,
     .offset = AT(external_tolerance_mib),
     .help = "As of the extender: what processes outside Kubernetes may use of a card."},
    {.name = "require-scv",
     .type = OPT_BOOL,
     .offset = AT(require_scv),
     .help = "As of the extender: a node without an Scv gives nothing out."},
    {.name = "node-grace",
     .arg = "TIME",
     .init = "40s",
     .type = OPT_DURATION,
     .offset = AT(node_grace_ms),
     .help =
         "As of the extender: a node whose scv-agent has not renewed its Lease for so\n"
         "long, by the API server's clock, gets no new pods. 0s: however long."},
    {.name = "scv-clock",
     .arg = "min|exact",
     .init = "min",
     .type = OPT_CUSTOM,
     .parse = parse_clock,
     .offset = AT(clock_exact),
     .help = "As of the extender: what label scv/clock means."},
    {.name = "scv-number",
     .arg = "whole|share",
     .init = "whole",
     .type = OPT_CUSTOM,
     .parse = parse_number,
     .offset = AT(number_shares),
     .help = "As of the extender: what label scv/number without scv/memory reserves."},
    {.name = "color",
     .arg = "auto|always|never",
     .init = "auto",
     .type = OPT_CUSTOM,
     .parse = parse_colour,
     .offset = AT(colour),
     .help = "Colours. auto: on a terminal, unless NO_COLOR is set."},
    {.name = "request-timeout",
     .arg = "TIME",
     .init = "60s",
     .type = OPT_DURATION,
     .min = 100,
     .max = 3600 * 1000,
     .offset = AT(timeout_ms),
     .help = "How long the API server may take to list everything."},
    ENTRY_KUBECONFIG(AT(kubeconfig)),
    ENTRY_CONTEXT(AT(context)),
    ENTRY_LOG_LEVEL(AT(log_level), "error"),
    {0},
};

const struct opt_program cli_program = {
    .name = "kubectl-inspect-gpushare",
    .summary = "shows the GPU memory of a cluster: promised, measured, free, and why",
    .version = GPUSHARE_VERSION,
    .table = table,
    .rest = "[NODE | explain pod [NAMESPACE/]NAME | completion bash|zsh|fish]",
    .rest_at = AT(words),
};
