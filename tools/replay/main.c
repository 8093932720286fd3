/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/opt.h"
#include "replay/linked.h"
#include "wire/entry.h"

/* gpushare-replay: replays a trace of pods through the placement code and prints the
 * allocation that each policy reaches; or random pods, for the connections that they get. */

struct config {
    char *nodes, *pods, *links;
    struct opt_list policies;
    int64_t seeds, first_seed, churn, defrag, arrivals;
    int json; /* 0 or 1 */
    bool cpu;
};

#define OPT_CONFIG struct config
static const struct opt table[] = {
    OPT_STRING("nodes", nodes, "FILE", NULL,
               "CSV file with the nodes: sn,cpu_milli,memory_mib,gpu,model; required."),
    OPT_STRING("pods", pods, "FILE", NULL,
               "CSV file with the pods: "
               "name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]; required."),
    OPT_STRING(
        "links", links, "FILE", NULL,
        "CSV file with linked cards: nodes,numa,links; random pods come instead of "
        "the default, a trace."),
    OPT_INT("arrivals", arrivals, "N", "10000", 1, 10000000,
            "Pods that arrive in each run with --links."),
    OPT_LIST(
        "policy", policies, "NAME",
        "Node policy to replay: binpack, spread, scv or fgd; repeatable; default: all."),
    OPT_INT("seeds", seeds, "N", "10", 1, 10000,
            "Number of runs with different pod orders; the results are means over the "
            "runs."),
    OPT_INT("first-seed", first_seed, "N", "42", 0, 0,
            "Seed of the first run; each further run adds 1."),
    OPT_BOOL(
        "cpu", cpu, "on",
        "Policies see the CPU of nodes and pods; off: they see what the extender sees."),
    OPT_INT("churn", churn, "PERCENT", "0", 0, 100,
            "Percent of allocation to hold in a second run, where pods leave; 0 skips it "
            "(--links: 90)."),
    OPT_INT("defrag", defrag, "MOVES", "0", 0, 1000,
            "Moves per rejected pod, at most, that may let it fit at the end; 0 moves no "
            "pod."),
    OPT_CHOICE("output", json, "table|json", "table", "Output format.", .letter = 'o'),
    {0},
};
static const struct opt_program program = {
    .name = "gpushare-replay",
    .summary = "replays a trace of pods through the placement code",
    .version = GPUSHARE_VERSION,
    .table = table,
};

/* The selected policies, in the order of the policy table. */
static int read_policies(const struct opt_list *names, bool wanted[SCORE_POLICIES],
                         struct err *err)
{
    for (int i = 0; i < SCORE_POLICIES; i++)
        wanted[i] = names->n == 0;
    for (size_t i = 0; i < names->n; i++) {
        enum score_policy policy;
        if (score_policy_parse(span_of(names->items[i]), &policy, err))
            return err_wrap(err, "--policy");
        wanted[policy] = true;
    }
    return 0;
}

static int read_trace(const struct config *c, struct trace *trace, struct buf texts[2],
                      struct err *err)
{
    if (c->links && (c->nodes || c->pods || c->defrag || c->json))
        return err_set(err, ERR_INVALID,
                       "--links takes no --nodes, --pods, --defrag and --output=json");
    if (c->links)
        return file_read(c->links, TRACE_MAX_BYTES, &texts[0], err)
                   ?: trace_links(trace, c->links, buf_span(&texts[0]), err);
    if (!c->nodes || !c->pods)
        return err_set(err, ERR_INVALID, "--nodes and --pods are required (try --help)");
    return file_read(c->nodes, TRACE_MAX_BYTES, &texts[0], err)
               ?: file_read(c->pods, TRACE_MAX_BYTES, &texts[1], err)
               ?: trace_nodes(trace, c->nodes, buf_span(&texts[0]), err)
               ?: trace_pods(trace, c->pods, buf_span(&texts[1]), err);
}

static int run(void *ctx, struct err *err)
{
    const struct config *c = ctx;
    cleanup_buf struct buf out = {0};
    struct buf texts[2] = {{0}, {0}};
    struct trace trace = {0};
    bool wanted[SCORE_POLICIES];
    struct replay_line lines[SCORE_POLICIES];
    size_t n = 0;
    int rc = read_policies(&c->policies, wanted, err);
    if (rc == 0)
        rc = read_trace(c, &trace, texts, err);
    for (int i = 0; i < SCORE_POLICIES && rc == 0; i++) {
        struct replay_settings settings = {.policy = (enum score_policy)i,
                                           .sees_cpu = c->cpu,
                                           .first_seed = (uint64_t)c->first_seed,
                                           .seeds = (uint64_t)c->seeds,
                                           .churn = c->links && !c->churn ? 90 : c->churn,
                                           .defrag = c->defrag,
                                           .arrivals = (uint64_t)c->arrivals};
        if (!wanted[i])
            continue;
        lines[n].policy = settings.policy;
        if (c->links)
            linked_play(&trace, &settings, &out);
        else
            replay_run(&trace, &settings, &lines[n++].result);
    }
    if (rc == 0) {
        if (!c->links)
            (c->json ? replay_json : replay_table)(&out, lines, n, c->churn > 0);
        if (c->defrag && !c->json)
            replay_defrag_table(&out, lines, n);
        rc = entry_print(&out, err);
    }
    trace_fini(&trace);
    buf_fini(&texts[0]);
    buf_fini(&texts[1]);
    return rc;
}

int main(int argc, char **argv)
{
    struct config c = {0};
    return entry_command(&program, &c, argc, argv, run, &c) ? EXIT_FAILURE : EXIT_SUCCESS;
}
