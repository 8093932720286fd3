/* SPDX-License-Identifier: Apache-2.0 */

/* The commands of kubectl inspect gpushare, and their completion. */

#include "cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/assess.h"
#include "cli/check.h"
#include "cli/classic.h"
#include "cli/defrag.h"
#include "cli/explain.h"
#include "cli/serve.h"
#include "wire/entry.h"
#include "wire/yaml.h"

/* The command being run. */
struct cli_run {
    struct session session;
    struct span node; /* empty: all */
    bool usage;       /* the command */
    struct buf out;
};

static bool cli_has_colors(const struct cli_config *c)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (c->color != COLOR_AUTO)
        return c->color == COLOR_ALWAYS;
    return isatty(STDOUT_FILENO) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

/* The option that the word names, if it needs a value; else NULL. */
static const struct opt *option_with_value(const char *word)
{
    const struct opt *o = NULL;
    while ((o = opt_next(&cli_program, o))) {
        bool letter = o->letter && word[0] == '-' && word[1] == o->letter && !word[2];
        bool name = !strncmp(word, "--", 2) && !strcmp(word + 2, o->name);
        if ((letter || name) && o->type != OPT_BOOL)
            return o;
    }
    return NULL;
}

/* Commands, or names of the cluster, that can follow the arguments so far. */
static void add_arguments(struct buf *all, const struct cli_config *c, struct span prefix,
                          cli_names_fn names)
{
    const char *first = c->args.n ? c->args.items[0] : "";
    bool of_pod = !strcmp(first, "explain") || !strcmp(first, "defrag");
    if (c->args.n == 0) {
        buf_adds(all, "explain\ndefrag\nassess\nusage\n");
        names(c, false, prefix, all);
    } else if (c->args.n == 1 && of_pod) {
        buf_adds(all, "pod\n");
    } else if (c->args.n == 2 && of_pod) {
        names(c, true, prefix, all);
    }
}

void cli_complete_words(int argc, char *const *argv, char *const *env, cli_names_fn names,
                        struct buf *out)
{
    cleanup_buf struct buf all = {0};
    const char *last = argc > 1 ? argv[argc - 1] : "";
    const struct opt *previous = argc > 2 ? option_with_value(argv[argc - 2]) : NULL;
    struct cli_config config = {0};
    FILE *null = fopen("/dev/null", "w");
    if (previous) {
        /* The words of "GiB|MiB|<n>MiB", but no placeholders in angle brackets. */
        struct span rest = span_of(strchr(previous->arg, '|') ? previous->arg : NULL);
        while (rest.n) {
            struct span word = span_cut(&rest, '|');
            if (!memchr(word.p, '<', word.n))
                buf_printf(&all, "%.*s\n", SPAN_ARG(word));
        }
    } else if (*last == '-') {
        for (const struct opt *o = NULL; (o = opt_next(&cli_program, o));)
            buf_printf(&all, "--%s\n", o->name);
        buf_adds(&all, "--config\n--help\n--version\n");
    } else if (null && opt_load(&cli_program, &config, argc > 1 ? argc - 1 : 1, argv, env,
                                yaml_read_options, null, NULL) == OPT_RUN) {
        add_arguments(&all, &config, span_of(last), names);
    }
    if (null)
        fclose(null);
    for (struct span rest = buf_span(&all); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (line.n && span_starts(line, span_of(last)))
            buf_printf(out, "%.*s\n", SPAN_ARG(line));
    }
    buf_adds(out, ":4\n");
    opt_free(&cli_program, &config);
}

/* As session_load; says why there is nothing to show. */
static int load(struct cli_run *r, struct err *err)
{
    int rc = session_load(&r->session, err);
    uint32_t cards = 0;
    if (rc)
        return rc;
    const struct ledger *l = cluster_state_ledger(r->session.state);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        cards += ledger_node_at(l, i) ? ledger_node_at(l, i)->n_cards : 0;
    if (!cards)
        fprintf(stderr,
                "%s: no node has cards; nodes with GPUs need the label gpushare=true or "
                "nvidia.com/gpu.present=true, and a pod of gpushare-node (DaemonSet "
                "gpushare-device-plugin-ds; docs/install.md)\n",
                cli_program.name);
    return 0;
}

enum { EXIT_NO_PLAN = 2, EXIT_DIFFERENCES = 2 };

static int cli_check(struct cli_run *r, struct err *err)
{
    if (load(r, err))
        return -1;
    int found = check_run(&r->out, &r->session, r->node, err);
    return found < 0 || entry_print(&r->out, err) ? -1 : found ? EXIT_DIFFERENCES : 0;
}

/* explain */

/* Reads "[pod] [NAMESPACE/]NAME" or "pod/[NAMESPACE/]NAME" after the command; also "po" and
 * "pods". False: the arguments are others. */
static bool read_pod_name(const struct cli_run *r, struct span *ns, struct span *name)
{
    const struct opt_list *args = &r->session.config->args;
    *name = span_of(args->n > 1 ? args->items[1] : NULL);
    struct span rest = *name, type = span_cut(&rest, '/');
    bool typed = span_eq(type, SPAN("pod")) || span_eq(type, SPAN("pods")) ||
                 span_eq(type, SPAN("po"));
    if (args->n > 3 || (args->n == 3 && (!typed || rest.p)))
        return false;
    if (typed)
        *name = args->n == 3 ? span_of(args->items[2]) : rest;
    *ns = (struct span){0};
    if (name->n && memchr(name->p, '/', name->n))
        *ns = span_cut(name, '/');
    return name->n > 0;
}

static int cli_explain(struct cli_run *r, struct err *err)
{
    struct span name, ns;
    if (!read_pod_name(r, &ns, &name))
        return err_set(err, ERR_INVALID,
                       "invalid arguments; expected explain pod [NAMESPACE/]NAME");
    if (load(r, err))
        return -1;
    if (!ns.n && !(ns = span_of(session_namespace(&r->session, err))).n)
        return -1;
    bool colors = cli_has_colors(r->session.config);
    int rc = explain_run(&r->out, &r->session, ns, name, colors, err);
    if (r->session.view_error.code != ERR_NONE) /* reservations are unknown */
        table_line(&r->out, "! --extender %s: %s", r->session.config->extender,
                   r->session.view_error.msg);
    return rc ? -1 : entry_print(&r->out, err);
}

/* defrag */

static bool cli_has_shape(const struct cli_config *c)
{
    return c->cards || c->memory || c->model;
}

static int plan_moves(struct cli_run *r, json_t *rules, struct defrag_plan_goal *goal,
                      struct err *err)
{
    enum { MIB = 1 << 20 };
    const struct cli_config *c = r->session.config;
    const struct cluster_state *cs = r->session.state;
    cleanup_arena struct arena a = {0};
    struct defrag_plan_result plan;
    if (goal->name.n && !goal->ns.n &&
        !(goal->ns = span_of(session_namespace(&r->session, err))).n)
        return -1;
    if (!goal->name.n) {
        int64_t unit = ledger_settings(cluster_state_ledger(cs))->unit_mib;
        int64_t cards = c->cards ? c->cards : 1, mib = (c->memory + MIB - 1) / MIB;
        goal->shape = (struct request){.kind = mib ? REQUEST_MEMORY : REQUEST_CARDS,
                                       .cards = (uint32_t)cards,
                                       .units = (mib + unit - 1) / unit * cards,
                                       .mib_per_card = mib,
                                       .by_label = mib % unit != 0,
                                       .models = span_of(c->model)};
    }
    goal->node_is_cordoned = goal->node.n > 0;
    if (defrag_apply_load(&r->session, rules, err) ||
        defrag_plan_compute(cs, rules, goal, &a, &plan, err))
        return -1;
    defrag_plan_write(&r->out, cs, rules, &plan, c->format, cli_has_colors(c));
    if (c->format != SHOW_JSON && plan.plan.n && !c->apply)
        buf_adds(&r->out, "nothing was changed; --apply evicts these pods one by one\n");
    if (entry_print(&r->out, err))
        return -1;
    if (!plan.found)
        return EXIT_NO_PLAN;
    return c->apply && plan.plan.n
               ? defrag_apply_run(&r->session, rules, goal, &plan, err)
               : 0;
}

static int cli_defrag(struct cli_run *r, struct err *err)
{
    const struct cli_config *c = r->session.config;
    struct defrag_plan_goal goal = {.node = span_of(c->node)};
    bool pod = c->args.n > 1;
    if (pod ? cli_has_shape(c) || !read_pod_name(r, &goal.ns, &goal.name)
            : !c->cards && !c->memory)
        return err_set(
            err, ERR_INVALID,
            "invalid arguments; expected defrag pod [NAMESPACE/]NAME, or defrag "
            "with --cards, --memory or both");
    if (c->apply && c->format == SHOW_JSON)
        return err_set(err, ERR_INVALID, "--apply cannot be combined with --output");
    if (load(r, err))
        return -1;
    json_auto_t *rules = json_object();
    return plan_moves(r, rules, &goal, err);
}

enum {
    REDRAW_MS = 1000,    /* minimum interval of --watch */
    AGES_MS = 10 * 1000, /* interval at which --watch updates ages on a terminal */
};

/* Renders the state once. -1: no such node; 1: no such node, with --classic. */
static int render(struct cli_run *r, struct err *err)
{
    const struct cli_config *c = r->session.config;
    const struct cluster_state *cs = r->session.state;
    struct show show = {.format = c->format,
                        .details = c->details,
                        .topology = c->topology,
                        .colors = cli_has_colors(c),
                        .node = r->node,
                        .usage = r->usage,
                        .ns = span_of(r->usage ? c->ns : NULL),
                        .now_s = clock_wall_ns() / 1000000000};
    if (c->classic)
        return !classic_write(&r->out, cs, r->node, c->details);
    if (!show_write(&r->out, cs, &show))
        return err_set(err, ERR_NOT_FOUND, "nodes \"%.*s\" not found", SPAN_ARG(r->node));
    return 0;
}

/* Runs until an error, such as a closed standard output or an expired login. */
static int watch(struct cli_run *r, struct err *err)
{
    struct session *s = &r->session;
    bool terminal = isatty(STDOUT_FILENO) != 0, first = true;
    bool tables = s->config->format != SHOW_JSON && (terminal || !s->config->classic);
    for (;;) {
        int64_t rendered_ms = clock_mono_ms();
        if (terminal)
            buf_adds(&r->out, "\033[H\033[2J");
        else if (!first)
            buf_addc(&r->out, '\n');
        if (render(r, err) < 0)
            return -1;
        if (tables && s->stale.n)
            table_line(&r->out, "! %.*s", SPAN_ARG(buf_span(&s->stale)));
        if (entry_print(&r->out, err))
            return -1;
        first = false;
        int changed = 0;
        uint64_t seen = cluster_state_generation(s->state);
        int64_t at;
        do {
            session_wait(s, REDRAW_MS);
            at = clock_mono_ms();
            changed |= session_check_current(s, err);
            if (changed < 0)
                return -1;
            terminal &= !s->kubectl_spoke;
        } while (at < rendered_ms + REDRAW_MS ||
                 (!changed && cluster_state_generation(s->state) == seen &&
                  !(terminal && at >= rendered_ms + AGES_MS)));
    }
}

static int show(struct cli_run *r, struct err *err)
{
    if (load(r, err))
        return -1;
    if (r->session.config->watch)
        return watch(r, err);
    int rc = render(r, err);
    return rc < 0 || entry_print(&r->out, err) ? -1 : rc;
}

static int serve(struct cli_run *r, struct err *err)
{
    const struct cli_config *c = r->session.config;
    if (c->check || c->classic || c->watch || c->format != SHOW_TABLE || r->node.n)
        return err_set(err, ERR_INVALID,
                       "--serve shows the whole cluster; it cannot be combined with a "
                       "node, --check, --classic, --output or --watch");
    if (session_load(&r->session, err))
        return -1;
    return serve_run(&r->session, err);
}

static void finish(struct cli_run *r)
{
    session_fini(&r->session);
    buf_fini(&r->out);
}

/* A cli_names_fn; appends nothing if the cluster does not respond within seconds. */
static void complete_names(const struct cli_config *config, bool pods, struct span prefix,
                           struct buf *out)
{
    struct cli_config quick = *config;
    struct cli_run r = {.session.config = &quick};
    cleanup_arena struct arena a = {0};
    const struct cluster_state_node **nodes;
    const struct cluster_state_pod **all;
    struct err err;
    quick.classic = true; /* lists nodes and pods only */
    quick.timeout_ms = 3000;
    if (session_load(&r.session, &err) == 0) {
        const struct cluster_state *cs = r.session.state;
        struct span own = !pods || memchr(prefix.p, '/', prefix.n)
                              ? (struct span){0}
                              : span_of(session_namespace(&r.session, &err));
        size_t n =
            pods ? cluster_state_pods(cs, &a, &all) : cluster_state_nodes(cs, &a, &nodes);
        for (size_t i = 0; i < n; i++) {
            if (pods && !ledger_pod_find(cluster_state_ledger(cs), all[i]->uid))
                continue;
            if (pods && !span_eq(all[i]->ns, own))
                table_text(out, "%.*s/", SPAN_ARG(all[i]->ns));
            table_line(out, "%.*s", SPAN_ARG(pods ? all[i]->name : nodes[i]->name));
        }
    }
    finish(&r);
}

static int command(void *ctx, struct err *err)
{
    struct cli_run *r = ctx;
    const struct cli_config *c = r->session.config;
    const char *first = c->args.n ? c->args.items[0] : "";
    log_set_level((enum log_level)c->log_level);
    if (!strcmp(first, "explain"))
        return cli_explain(r, err);
    if (!strcmp(first, "defrag"))
        return cli_defrag(r, err);
    bool assess = !strcmp(first, "assess"), usage = !strcmp(first, "usage");
    if ((assess || usage) && c->args.n > 1)
        return err_set(err, ERR_INVALID, "unexpected argument \"%s\" after %s",
                       c->args.items[1], first);
    if (assess)
        return assess_run(&r->out, &r->session, cli_has_colors(c), err) ||
                       entry_print(&r->out, err)
                   ? -1
                   : 0;
    if (usage) {
        r->usage = true;
        return show(r, err);
    }
    if (c->prometheus || c->from.n)
        return err_set(err, ERR_INVALID,
                       "--prometheus and --from need the command assess");
    if (cli_has_shape(c) || c->node || c->apply)
        return err_set(err, ERR_INVALID,
                       "--cards, --memory, --model, --node and --apply need the command "
                       "defrag");
    if (c->args.n > 1)
        return err_set(
            err, ERR_INVALID,
            "unexpected argument \"%s\"; expected at most one node name (see --help)",
            c->args.items[1]);
    r->node = span_of(*first ? first : NULL);
    if (span_starts(r->node, SPAN("node/")))
        span_cut(&r->node, '/');
    if (c->serve)
        return serve(r, err);
    if (c->check && (c->classic || c->watch))
        return err_set(err, ERR_INVALID,
                       "--check cannot be combined with --classic or --watch");
    if (c->classic && (c->format != SHOW_TABLE || c->topology))
        return err_set(err, ERR_INVALID,
                       "--classic cannot be combined with --output or --topology");
    return c->check ? cli_check(r, err) : show(r, err);
}

int cli_main(int argc, char **argv)
{
    struct cli_config config = {0};
    struct cli_run run = {.session.config = &config};
    int rc;
    if (argc > 1 && !strcmp(argv[1], "__complete")) {
        log_set_level(LOG_ERROR);
        cli_complete_words(argc - 1, argv + 1, environ, complete_names, &run.out);
        rc = entry_print(&run.out, NULL);
    } else {
        rc = entry_command(&cli_program, &config, argc, argv, command, &run);
    }
    finish(&run);
    return rc < 0 ? EXIT_FAILURE : rc;
}
