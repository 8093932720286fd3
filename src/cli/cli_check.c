/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/check.h"
#include "cli/cli_priv.h"

enum {
    RECHECK_MS = 300, /* between two comparisons with the extender */
    COMPARISONS = 10,
    VIEW_MS = 5000, /* timeout of the extender's view */
    EXIT_DIFFERENCES = 2,
};

struct comparison {
    json_t *view;   /* NULL: the call failed, or --extender names none */
    struct err why; /* the call failed */
};

static void fetch_view(struct cli_run *r, struct comparison *c)
{
    json_decref(c->view);
    c->view = session_fetch_view(&r->session, VIEW_MS, &c->why);
}

/* The cluster may change between reading the API server and the extender: a difference
 * counts only if it remains. */
static size_t compare(struct cli_run *r, struct comparison *c)
{
    size_t found = 0;
    for (int i = 0; i < COMPARISONS; i++) {
        buf_clear(&r->out);
        fetch_view(r, c);
        if (i == 0) /* the view is newer than the lists: catch up */
            cluster_client_wait(r->session.cluster, RECHECK_MS);
        found = check_cluster(&r->out, cli_state(r), r->node);
        size_t found_in_view =
            c->view ? check_extender(&r->out, cli_state(r), c->view, r->node) : 0;
        found += found_in_view;
        if (!found_in_view)
            break;
        cluster_client_wait(r->session.cluster, RECHECK_MS);
    }
    return found;
}

static void add_verdict(struct buf *out, size_t found, const struct comparison *c)
{
    if (found)
        buf_printf(out, "%zu difference%s", found, found == 1 ? "" : "s");
    else
        buf_adds(out, "no differences");
    buf_adds(out, c->view ? "; compared with the extender\n"
                          : "; not compared with the extender (see --extender)\n");
}

int cli_check(struct cli_run *r, struct err *err)
{
    struct comparison c = {0};
    if (cli_load(r, err))
        return -1;
    if (r->node.n && !ledger_node_find(cluster_state_ledger(cli_state(r)), r->node))
        return err_set(err, ERR_NOT_FOUND, "nodes \"%.*s\" not found", SPAN_ARG(r->node));
    size_t found = compare(r, &c);
    if (!c.view && c.why.code != ERR_NONE) {
        *err = c.why;
        return err_wrap(err, "--extender %s", r->config->extender);
    }
    add_verdict(&r->out, found, &c);
    json_decref(c.view);
    return cli_print(&r->out, err) ? -1 : found ? EXIT_DIFFERENCES : 0;
}
