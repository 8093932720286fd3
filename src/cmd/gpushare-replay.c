/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/opt.h"
#include "replay/replay.h"
#include "wire/yaml.h"

/* Replays a trace of pods against the placement code and says how much of the cluster
 * each policy could give out. */

struct policies {
    bool wanted[SCORE_POLICIES];
};

struct config {
    char *nodes, *pods;
    struct opt_list policies;
    int64_t seeds, first_seed, churn;
    bool cpu, json;
};

static int parse_output(struct span text, void *field, struct err *err)
{
    bool *json = field;
    *json = span_eq(text, SPAN("json"));
    if (*json || span_eq(text, SPAN("table")))
        return 0;
    return err_set(err, ERR_INVALID, "\"%.*s\" is neither table nor json",
                   SPAN_ARG(text));
}

#define AT(f) offsetof(struct config, f)
static const struct opt table[] = {
    {.name = "nodes",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(nodes),
     .help = "The cluster, as CSV: sn,cpu_milli,memory_mib,gpu,model."},
    {.name = "pods",
     .arg = "FILE",
     .type = OPT_STRING,
     .offset = AT(pods),
     .help = "The pods, as CSV: name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]."},
    {.name = "policy",
     .arg = "NAME",
     .type = OPT_LIST,
     .offset = AT(policies),
     .help = "binpack, spread, scv or fgd, as --node-score of gpushare-extender; may be\n"
             "given several times. Without it: all of them."},
    {.name = "seeds",
     .arg = "N",
     .init = "10",
     .type = OPT_INT,
     .min = 1,
     .max = 10000,
     .offset = AT(seeds),
     .help = "Runs, each with another order of the pods; the figures are their means."},
    {.name = "first-seed",
     .arg = "N",
     .init = "42",
     .type = OPT_INT,
     .offset = AT(first_seed),
     .help = "Seed of the first run; the others follow."},
    {.name = "cpu",
     .init = "on",
     .type = OPT_BOOL,
     .offset = AT(cpu),
     .help = "Let the policies see the CPU of nodes and pods. The extender, which\n"
             "kube-scheduler tells names only, does not: off shows what it does."},
    {.name = "churn",
     .arg = "PERCENT",
     .init = "0",
     .type = OPT_INT,
     .max = 100,
     .offset = AT(churn),
     .help = "Also run with pods that leave, so that about so much is allocated, and\n"
             "say how much of the demand was rejected."},
    {.name = "output",
     .arg = "table|json",
     .init = "table",
     .type = OPT_CUSTOM,
     .parse = parse_output,
     .offset = AT(json),
     .help = "Form of the output; also -o."},
    {0},
};
static const struct opt_program program = {
    .name = "gpushare-replay",
    .summary = "replays a trace of pods through the placement code",
    .version = GPUSHARE_VERSION,
    .table = table,
};

/* Which policies, in the order of the table of policies. */
static int read_policies(const struct opt_list *names, struct policies *p,
                         struct err *err)
{
    for (int i = 0; i < SCORE_POLICIES; i++)
        p->wanted[i] = names->n == 0;
    for (size_t i = 0; i < names->n; i++) {
        enum score_policy policy;
        if (score_policy_parse(span_of(names->items[i]), &policy, err))
            return err_wrap(err, "--policy");
        p->wanted[policy] = true;
    }
    return 0;
}

static int read_trace(const struct config *c, struct trace *trace, struct buf texts[2],
                      struct err *err)
{
    if (!c->nodes || !c->pods)
        return err_set(err, ERR_INVALID, "--nodes and --pods are needed (try --help)");
    if (file_read(c->nodes, TRACE_MAX_BYTES, &texts[0], err) ||
        file_read(c->pods, TRACE_MAX_BYTES, &texts[1], err))
        return -1;
    return trace_nodes(trace, c->nodes, buf_span(&texts[0]), err) ||
                   trace_pods(trace, c->pods, buf_span(&texts[1]), err)
               ? -1
               : 0;
}

static int run(const struct config *c, struct err *err)
{
    cleanup_buf struct buf out = {0};
    struct buf texts[2] = {{0}, {0}};
    struct trace trace = {0};
    struct policies policies;
    struct replay_line lines[SCORE_POLICIES];
    size_t n = 0;
    int rc = read_policies(&c->policies, &policies, err);
    if (rc == 0)
        rc = read_trace(c, &trace, texts, err);
    for (int i = 0; i < SCORE_POLICIES && rc == 0; i++) {
        struct replay_settings settings = {.policy = (enum score_policy)i,
                                           .sees_cpu = c->cpu,
                                           .first_seed = (uint64_t)c->first_seed,
                                           .seeds = (uint64_t)c->seeds,
                                           .churn = c->churn};
        if (!policies.wanted[i])
            continue;
        lines[n].policy = settings.policy;
        replay_run(&trace, &settings, &lines[n++].result);
    }
    if (rc == 0) {
        (c->json ? replay_json : replay_table)(&out, lines, n, c->churn > 0);
        fwrite(out.p, 1, out.n, stdout);
        if (fflush(stdout))
            rc = err_set(err, ERR_UNAVAILABLE, "standard output cannot be written");
    }
    trace_fini(&trace);
    buf_fini(&texts[0]);
    buf_fini(&texts[1]);
    return rc;
}

int main(int argc, char **argv)
{
    static char output[] = "--output";
    struct config c = {0};
    struct err err = {0};
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "-o"))
            argv[i] = output;
    enum opt_result r =
        opt_load(&program, &c, argc, argv, environ, yaml_read_options, stdout, &err);
    int rc = r == OPT_FAILED ? -1 : 0;
    if (r == OPT_RUN)
        rc = run(&c, &err);
    if (rc)
        fprintf(stderr, "gpushare-replay: %s\n", err.msg);
    opt_free(&program, &c);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
