/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/classic.h"
#include "cli/complete.h"
#include "cli/rightsize_load.h"
#include "cli/serve.h"
#include "wire/yaml.h"

enum {
    REDRAW_MS = 1000,    /* minimum interval of --watch */
    AGES_MS = 10 * 1000, /* interval at which --watch updates ages on a terminal */
};

bool cli_has_colors(const struct cli_config *c)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (c->color != COLOR_AUTO)
        return c->color == COLOR_ALWAYS;
    return isatty(STDOUT_FILENO) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

int cli_print(struct buf *out, struct err *err)
{
    size_t n = out->n ? fwrite(out->p, 1, out->n, stdout) : 0;
    bool good = n == out->n && fflush(stdout) == 0;
    buf_clear(out);
    if (good)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "standard output: %s", strerror(errno));
}

int cli_load(struct cli_run *r, struct err *err)
{
    r->session.config = r->config;
    return session_load(&r->session, err);
}

const struct cluster_state *cli_state(const struct cli_run *r)
{
    return session_state(&r->session);
}

static void finish(struct cli_run *r)
{
    session_fini(&r->session);
    buf_fini(&r->out);
}

/* Renders the state once. -1: no such node; *missing: no such node, with --classic. */
static int render(struct cli_run *r, bool *missing, struct err *err)
{
    const struct cli_config *c = r->config;
    const struct cluster_state *cs = cli_state(r);
    struct show show = {.format = c->format,
                        .details = c->details,
                        .colors = cli_has_colors(c),
                        .node = r->node,
                        .unit_assumed = r->session.unit_assumed,
                        .now_s = clock_wall_ns() / 1000000000};
    *missing = false;
    if (c->classic) {
        *missing = !classic_write(&r->out, cs, r->node, c->details);
        return 0;
    }
    if (!show_write(&r->out, cs, &show))
        return err_set(err, ERR_NOT_FOUND, "nodes \"%.*s\" not found", SPAN_ARG(r->node));
    return 0;
}

static void render_warning(struct cli_run *r)
{
    struct err why;
    if (!r->config->classic && cluster_state_check_fresh(cli_state(r), &why) == 0)
        return;
    if (r->config->classic || r->config->format > SHOW_WIDE)
        return;
    buf_adds(&r->out, "! not up to date: ");
    table_plain(&r->out, span_of(why.msg));
    buf_addc(&r->out, '\n');
}

/* Runs until an error, such as a closed standard output. */
static int watch(struct cli_run *r, struct err *err)
{
    bool terminal = isatty(STDOUT_FILENO) != 0, missing, first = true;
    for (;;) {
        int64_t rendered_ms = clock_mono_ms();
        if (terminal)
            buf_adds(&r->out, "\033[H\033[2J");
        else if (!first)
            buf_adds(&r->out, r->config->format == SHOW_YAML ? "---\n" : "\n");
        if (render(r, &missing, err))
            return -1;
        render_warning(r);
        if (cli_print(&r->out, err))
            return -1;
        first = false;
        uint64_t seen = cluster_state_generation(cli_state(r));
        int64_t at;
        do {
            cluster_client_wait(r->session.cluster, REDRAW_MS);
            at = clock_mono_ms();
        } while (at < rendered_ms + REDRAW_MS ||
                 (cluster_state_generation(cli_state(r)) == seen &&
                  !(terminal && at >= rendered_ms + AGES_MS)));
    }
}

static int show(struct cli_run *r, struct err *err)
{
    bool missing = false;
    if (cli_load(r, err))
        return -1;
    if (r->config->watch)
        return watch(r, err);
    if (render(r, &missing, err) || cli_print(&r->out, err))
        return -1;
    return missing;
}

/* usage */

static int usage(struct cli_run *r, struct err *err)
{
    const struct cli_config *c = r->config;
    if (c->args.n > 1)
        return err_set(err, ERR_INVALID, "unexpected argument \"%s\" after usage",
                       c->args.items[1]);
    if (cli_load(r, err))
        return -1;
    struct rightsize *sizes = rightsize_new();
    int rc = rightsize_load(&r->session, sizes, err);
    if (rc == 0)
        rightsize_write(sizes, c->format,
                        ledger_settings(cluster_state_ledger(cli_state(r)))->unit_mib,
                        cli_has_colors(c), &r->out);
    rightsize_free(sizes);
    return rc ? -1 : cli_print(&r->out, err);
}

static int serve(struct cli_run *r, struct err *err)
{
    const struct cli_config *c = r->config;
    if (c->check || c->classic || c->watch || c->format != SHOW_TABLE || r->node.n)
        return err_set(err, ERR_INVALID,
                       "--serve shows the whole cluster; it cannot be combined with a "
                       "node, --check, --classic, --output or --watch");
    if (cli_load(r, err))
        return -1;
    return serve_run(r->session.cluster, err);
}

static int completion(struct cli_run *r, struct err *err)
{
    const struct opt_list *args = &r->config->args;
    if (args->n != 2)
        return err_set(err, ERR_INVALID,
                       "missing shell; expected one of bash, zsh, fish");
    if (complete_script(args->items[1], &r->out, err))
        return -1;
    return cli_print(&r->out, err);
}

/* A complete_names_fn; appends nothing if the cluster does not respond within seconds. */
static void complete_names(void *ctx, const struct cli_config *config, bool pods,
                           struct span prefix, struct buf *out)
{
    struct cli_config quick = *config;
    struct cli_run r = {.config = &quick};
    cleanup_arena struct arena a = {0};
    const struct cluster_state_node **nodes;
    const struct cluster_state_pod **all;
    struct err err;
    (void)ctx;
    quick.classic = true; /* lists nodes and pods only */
    quick.timeout_ms = 3000;
    if (cli_load(&r, &err) == 0) {
        const struct cluster_state *cs = cli_state(&r);
        struct span own = memchr(prefix.p, '/', prefix.n)
                              ? (struct span){0}
                              : span_of(quick.ns ? quick.ns : r.session.ns);
        size_t n =
            pods ? cluster_state_pods(cs, &a, &all) : cluster_state_nodes(cs, &a, &nodes);
        for (size_t i = 0; i < n; i++) {
            if (pods && !ledger_pod_find(cluster_state_ledger(cs), all[i]->uid))
                continue;
            if (pods && !span_eq(all[i]->ns, own)) {
                table_plain(out, all[i]->ns);
                buf_addc(out, '/');
            }
            table_plain(out, pods ? all[i]->name : nodes[i]->name);
            buf_addc(out, '\n');
        }
    }
    finish(&r);
}

static int complete(int argc, char **argv)
{
    cleanup_buf struct buf out = {0};
    log_set_level(LOG_ERROR);
    complete_words(argc - 1, argv + 1, environ, complete_names, NULL, &out);
    fwrite(out.p, 1, out.n, stdout);
    return EXIT_SUCCESS;
}

static int command(struct cli_run *r, struct err *err)
{
    const struct cli_config *c = r->config;
    const char *first = c->args.n ? c->args.items[0] : "";
    if (!strcmp(first, "completion"))
        return completion(r, err);
    if (!strcmp(first, "explain"))
        return cli_explain(r, err);
    if (!strcmp(first, "defrag"))
        return cli_defrag(r, err);
    if (!strcmp(first, "usage"))
        return usage(r, err);
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
    if (c->classic && c->format != SHOW_TABLE)
        return err_set(err, ERR_INVALID, "--classic cannot be combined with --output");
    return c->check ? cli_check(r, err) : show(r, err);
}

int cli_main(int argc, char **argv)
{
    struct cli_config config = {0};
    struct cli_run run = {.config = &config};
    struct err err = {0};
    int rc = -1;
    if (argc > 1 && !strcmp(argv[1], "__complete"))
        return complete(argc, argv);
    enum opt_result r = opt_load(&cli_program, &config, argc, argv, environ,
                                 yaml_read_options, stdout, &err);
    if (r == OPT_RUN) {
        log_set_level((enum log_level)config.log_level);
        rc = command(&run, &err);
    } else if (r == OPT_DONE) {
        rc = 0;
    }
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", cli_program.name, err.msg);
    finish(&run);
    opt_free(&cli_program, &config);
    return rc < 0 ? EXIT_FAILURE : rc;
}
