/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "lib/commands.h"
#include "lib/network.h"
#include "lib/promtool.h"
#include "lib/session.h"
#include "lib/sim.h"
#include "wire/yaml.h"

/*
 * The documents: each block matches its declared use; commands, inline code and links
 * refer to things that exist; and commands marked `sim` run. test_doc_reader checks the
 * helpers.
 */

enum { SESSION_MS = 60 * 1000 };

/* -- blocks and links -- */

/* A part of a file, line by line, except for the indentation. */
static void check_part(struct buf *faults, const struct doc *d, const struct doc_block *b)
{
    struct span rest = span_of(b->text);
    for (unsigned line = b->line + 1; rest.n; line++) {
        struct span wanted = span_trim(span_cut(&rest, '\n'));
        cleanup_free char *all = temp_read(".", b->seen_in);
        struct span lines = span_of(all);
        bool found = wanted.n == 0;
        while (!found && lines.n)
            found = span_eq(span_trim(span_cut(&lines, '\n')), wanted);
        if (!found)
            doc_fault(faults, d, line, "%s has no line \"%.*s\"", b->seen_in,
                      SPAN_ARG(wanted));
    }
}

/* Debian's promtool is built without the discovery of pods. */
static void check_prometheus(const struct doc_block *b)
{
    static const char finder[] = "kubernetes_sd_configs:";
    cleanup_buf struct buf text = {0};
    struct span rest = span_of(b->text);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        const char *at = memmem(line.p, line.n, finder, strlen(finder));
        buf_add(&text, line.p, at ? (size_t)(at - line.p) : line.n);
        buf_adds(&text, at ? "static_configs: []\n" : "\n");
    }
    temp_write(lib_dir, "prometheus.yml", text.p);
    cleanup_free char *path = temp_path(lib_dir, "prometheus.yml");
    promtool_rules("check config --syntax-only", path);
}

static void check_yaml(struct buf *faults, const struct doc *d, const struct doc_block *b)
{
    struct err err = {0};
    cleanup_yaml struct yaml *y = yaml_parse("block", b->text, strlen(b->text), &err);
    if (!y) {
        doc_fault(faults, d, b->line, "%s", err.msg);
        return;
    }
    if (b->use != DOC_CONFIG)
        return;
    const struct yaml_node *node = yaml_count(y) ? yaml_document(y, 0) : NULL;
    if (yaml_get(node, "scrape_configs"))
        check_prometheus(b);
    else
        doc_fault(faults, d, b->line,
                  "no object: of a part of a file say which, seen-in=PATH");
}

static void check_json(struct buf *faults, const struct doc *d, const struct doc_block *b)
{
    json_error_t error;
    cleanup_json json_t *j = json_loads(b->text, JSON_REJECT_DUPLICATES, &error);
    if (!j)
        doc_fault(faults, d, b->line + (unsigned)error.line, "%s", error.text);
}

static bool is_there(struct buf *faults, const struct doc *d, const struct doc_block *b)
{
    cleanup_free char *list = xstrdup(b->seen_in);
    char *rest = list;
    size_t before = faults->n;
    for (const char *path; (path = strsep(&rest, ","));)
        if (access(path, F_OK) != 0)
            doc_fault(faults, d, b->line, "there is no %s", path);
    return faults->n == before;
}

/* Whether a line of the text that is not indented has the name, followed by '('. */
static bool defines(const char *text, struct span name)
{
    cleanup_free char *call = xasprintf("%.*s(", SPAN_ARG(name));
    for (struct span rest = span_of(text); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        const char *at = line.n ? memmem(line.p, line.n, call, strlen(call)) : NULL;
        if (at && strchr(" \t/#", line.p[0]) == NULL &&
            (at == line.p || at[-1] == ' ' || at[-1] == '*'))
            return true;
    }
    return false;
}

/* A line "src/FILE.c  FUNCTION  ..." of a drawing names a function of that file. */
static void check_steps(struct buf *faults, const struct doc *d,
                        const struct doc_block *b)
{
    struct span rest = span_of(b->text);
    for (unsigned line = b->line + 1; rest.n; line++) {
        struct span step = span_trim(span_cut(&rest, '\n'));
        if (!span_starts(step, SPAN("src/")))
            continue;
        struct span path = span_cut(&step, ' ');
        step = span_trim(step);
        struct span name = span_cut(&step, ' ');
        cleanup_free char *file = xmemdup0(path.p, path.n);
        cleanup_free char *text = access(file, F_OK) == 0 ? temp_read(".", file) : NULL;
        if (!text)
            doc_fault(faults, d, line, "there is no %s", file);
        else if (!defines(text, name))
            doc_fault(faults, d, line, "%s has no function %.*s", file, SPAN_ARG(name));
    }
}

struct block_check {
    struct buf faults;
    char *options;
};

static void check_blocks(const struct doc *d, void *ctx)
{
    struct block_check *check = ctx;
    struct buf *faults = &check->faults;
    for (size_t i = 0; i < d->n; i++) {
        const struct doc_block *b = &d->blocks[i];
        if (b->seen_in && !is_there(faults, d, b))
            continue;
        if (b->use <= DOC_SEEN)
            commands_check(faults, d, b->line, b->text, b->seen_in);
        if (b->use >= DOC_YAML && b->use <= DOC_PART)
            check_yaml(faults, d, b);
        if (b->use == DOC_PART)
            check_part(faults, d, b);
        if (b->use == DOC_JSON)
            check_json(faults, d, b);
        if (b->use == DOC_TEXT)
            check_steps(faults, d, b);
    }
    for (size_t i = 0; i < d->code.n; i++)
        commands_check_code(faults, d, &d->code.items[i], check->options);
}

START_TEST(each_block_matches_its_declared_use)
{
    struct block_check check = {.options = commands_options()};
    doc_each(check_blocks, &check, &check.faults);
    ck_assert_msg(!check.faults.n, "\n%s", check.faults.p);
    buf_fini(&check.faults);
    free(check.options);
}
END_TEST

/* The path of a link target from the root; new. */
static char *resolve(const struct doc *d, struct span target)
{
    cleanup_free char *path = xmemdup0(target.p, target.n);
    const char *slash = strrchr(d->path, '/'), *rest = path;
    cleanup_free char *folder =
        slash ? xmemdup0(d->path, (size_t)(slash - d->path)) : xstrdup(".");
    return target.n ? xasprintf("%s/%s", folder, rest) : xstrdup(d->path);
}

static bool has_anchor(const struct doc *d, struct span anchor)
{
    for (size_t i = 0; i < d->anchors.n; i++)
        if (span_eq(span_of(d->anchors.items[i].text), anchor))
            return true;
    return false;
}

static void check_link(struct buf *faults, const struct doc *d,
                       const struct doc_word *link)
{
    struct span anchor = span_of(link->text), target = span_cut(&anchor, '#');
    if (strstr(link->text, "://") || span_starts(target, SPAN("mailto:")))
        return;
    cleanup_free char *path = resolve(d, target);
    size_t n = strlen(path);
    if (access(path, F_OK) != 0) {
        doc_fault(faults, d, link->line, "there is no such file: %s", link->text);
    } else if (anchor.p && n > 3 && strcmp(path + n - 3, ".md") == 0) {
        cleanup_doc struct doc other;
        cleanup_buf struct buf ignored = {0};
        doc_load(&other, path, &ignored);
        if (!has_anchor(&other, anchor))
            doc_fault(faults, d, link->line, "there is no such heading: %s", link->text);
    }
}

static void check_links(const struct doc *d, void *ctx)
{
    for (size_t i = 0; i < d->links.n; i++)
        check_link(ctx, d, &d->links.items[i]);
}

START_TEST(each_link_has_a_target)
{
    cleanup_buf struct buf faults = {0}, ignored = {0};
    doc_each(check_links, &faults, &ignored);
    ck_assert_msg(!faults.n, "\n%s", faults.p);
}
END_TEST

/* -- commands marked `sim` -- */

/* kube-sim and the extender as in `make demo`, on their documented ports. */
static void start_demo(struct sim *sim, struct extender *e)
{
    sim_start(sim,
              ARGV("--port", "8001", "--run-pods", "--load", "manifests/namespace.yaml",
                   "--load", "manifests/demo/filter.yaml", "--load",
                   "manifests/demo/bind.yaml", "--load", "manifests/demo/scvs.yaml",
                   "--load", "manifests/demo/burst.yaml"));
    cleanup_free char *config =
        lib_kubeconfig("kubeconfig", "http", sim->api.port, "", "");
    extender_start_at(
        e, config,
        ARGV("--memory-unit", "MiB", "--port", "12345", "--observe-port", "12346"));
    extender_wait_ready(e);
}

/* Whether the document starts its own kube-sim. */
static bool brings_its_own(const struct doc *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->blocks[i].use == DOC_SIM && strstr(d->blocks[i].text, "kube-sim --"))
            return true;
    return false;
}

struct runs {
    struct buf faults;
    size_t blocks;
};

static void run_commands(const struct doc *d, void *ctx)
{
    struct runs *r = ctx;
    struct sim sim;
    struct extender e;
    cleanup_free char *config = xasprintf("KUBECONFIG=%s/kubeconfig", lib_dir);
    const char *const env[] = {config, NULL};
    const struct session session = {DOC_SIM, NULL, env, SESSION_MS};
    if (!session_blocks(&session, d))
        return;
    bool alone = brings_its_own(d);
    if (!alone)
        start_demo(&sim, &e);
    session_run(&session, d, &r->faults);
    r->blocks += session_blocks(&session, d);
    if (!alone) {
        extender_stop(&e);
        sim_stop(&sim);
    }
}

START_TEST(commands_marked_sim_run)
{
    struct runs r = {0};
    struct err err = {0};
    cleanup_buf struct buf ignored = {0};
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    doc_each(run_commands, &r, &ignored);
    ck_assert_msg(!r.faults.n, "\n%s", r.faults.p);
    ck_assert_uint_gt(r.blocks, 0);
    printf("measured: %zu blocks of commands ran\n", r.blocks);
    buf_fini(&r.faults);
}
END_TEST

LIB_MAIN("docs", 120, each_block_matches_its_declared_use, each_link_has_a_target,
         commands_marked_sim_run)
