/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli_priv.h"
#include "cli/explain_load.h"
#include "cli/move_apply.h"

enum { EXIT_NO_PLAN = 2 };

/* explain */

/* Reads "pod [NAMESPACE/]NAME" or "pod/[NAMESPACE/]NAME" after the command. False: the
 * arguments are others. */
static bool read_pod_name(const struct cli_run *r, struct span *ns, struct span *name)
{
    const struct opt_list *args = &r->config->args;
    *name = span_of(args->n > 1 ? args->items[1] : NULL);
    *ns = (struct span){0};
    if (span_starts(*name, SPAN("pod/")) && args->n == 2)
        span_cut(name, '/');
    else if ((span_eq(*name, SPAN("pod")) || span_eq(*name, SPAN("pods"))) &&
             args->n == 3)
        *name = span_of(args->items[2]);
    else
        return false;
    if (memchr(name->p, '/', name->n))
        *ns = span_cut(name, '/');
    return true;
}

static struct span default_namespace(const struct cli_run *r)
{
    return span_of(r->config->ns ? r->config->ns : r->session.ns);
}

/* Without its view, reservations and layout preemption are unknown. */
static void add_extender_error(struct cli_run *r)
{
    if (r->session.view_error.code == ERR_NONE)
        return;
    buf_adds(&r->out, "! --extender ");
    table_plain(&r->out, span_of(r->config->extender));
    buf_adds(&r->out, ": ");
    table_plain(&r->out, span_of(r->session.view_error.msg));
    buf_addc(&r->out, '\n');
}

int cli_explain(struct cli_run *r, struct err *err)
{
    struct span name, ns;
    if (!read_pod_name(r, &ns, &name))
        return err_set(err, ERR_INVALID,
                       "invalid arguments; expected explain pod [NAMESPACE/]NAME");
    if (cli_load(r, err))
        return -1;
    if (!ns.n)
        ns = default_namespace(r);
    struct explain_load loaded;
    explain_load(&r->session, ns, name, &loaded);
    loaded.facts.colors = cli_has_colors(r->config);
    int rc = explain_pod(&r->out, cli_state(r), ns, name, &loaded.facts, err);
    if (rc == 0 && r->session.unit_assumed)
        show_unit_assumed(&r->out,
                          ledger_settings(cluster_state_ledger(cli_state(r)))->unit_mib);
    add_extender_error(r);
    explain_load_fini(&loaded);
    return rc ? -1 : cli_print(&r->out, err);
}

/* defrag */

bool cli_has_shape(const struct cli_config *c)
{
    return c->cards || c->memory || c->model;
}

static int read_goal(struct cli_run *r, struct move_goal *goal, struct err *err)
{
    const struct cli_config *c = r->config;
    bool pod = c->args.n > 1;
    if (pod ? cli_has_shape(c) || !read_pod_name(r, &goal->ns, &goal->name)
            : !c->cards && !c->memory)
        return err_set(
            err, ERR_INVALID,
            "invalid arguments; expected defrag pod [NAMESPACE/]NAME, or defrag "
            "with --cards, --memory or both");
    if (c->apply && c->format > SHOW_WIDE)
        return err_set(err, ERR_INVALID, "--apply cannot be combined with --output");
    goal->node = span_of(c->node);
    return 0;
}

static void complete_goal(struct cli_run *r, struct move_goal *goal)
{
    const struct cli_config *c = r->config;
    enum { MIB = 1 << 20 };
    if (goal->name.n && !goal->ns.n)
        goal->ns = default_namespace(r);
    if (!goal->name.n)
        goal->shape = move_plan_shape(
            c->cards ? c->cards : 1, (c->memory + MIB - 1) / MIB, span_of(c->model),
            ledger_settings(cluster_state_ledger(cli_state(r)))->unit_mib);
    goal->node_is_cordoned = goal->node.n > 0;
}

static int plan_moves(struct cli_run *r, struct move_rules *rules, struct move_goal *goal,
                      struct err *err)
{
    const struct cli_config *c = r->config;
    cleanup_arena struct arena a = {0};
    struct move_plan plan;
    complete_goal(r, goal);
    if (move_apply_load(&r->session, rules, err) ||
        move_plan_compute(cli_state(r), rules, goal, &a, &plan, err))
        return -1;
    move_plan_write(&r->out, cli_state(r), rules, &plan, c->format, cli_has_colors(c));
    if (c->format <= SHOW_WIDE && plan.plan.n && !c->apply)
        buf_adds(&r->out, "nothing was changed; --apply evicts these pods one by one\n");
    if (c->format <= SHOW_WIDE && r->session.unit_assumed)
        show_unit_assumed(&r->out,
                          ledger_settings(cluster_state_ledger(cli_state(r)))->unit_mib);
    if (cli_print(&r->out, err))
        return -1;
    if (!plan.found)
        return EXIT_NO_PLAN;
    return c->apply && plan.plan.n ? move_apply_run(&r->session, rules, goal, &plan, err)
                                   : 0;
}

int cli_defrag(struct cli_run *r, struct err *err)
{
    struct move_goal goal = {0};
    if (read_goal(r, &goal, err) || cli_load(r, err))
        return -1;
    struct move_rules *rules = move_rules_new((uint64_t)clock_wall_ns());
    int rc = plan_moves(r, rules, &goal, err);
    move_rules_free(rules);
    return rc;
}
