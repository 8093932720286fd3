/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <glob.h>

#include "lib/doc.h"
#include "lib/network.h"
#include "lib/sim.h"

/*
 * The documents: links lead to a file and a heading; files, functions and options exist;
 * docs/reasons.md has each reason and event of the sources; the commands marked `sh sim`
 * run.
 */

enum { RUN_MS = 60 * 1000 };

static struct buf faults;

static void each_file(const char *pattern, void (*each)(const char *path, void *ctx),
                      void *ctx)
{
    for (const char *const *file = lib_glob(pattern); *file; file++)
        each(*file, ctx);
}

static void report(void)
{
    ck_assert_msg(!faults.n, "\n%s", faults.p);
    buf_fini(&faults);
}

#define FAULT(part, fmt, ...)                                                            \
    buf_printf(&faults, "%s:%u: " fmt "\n", (part)->path, (part)->line, __VA_ARGS__)

/* -- links -- */

static void find_heading(const struct doc_part *part, void *ctx)
{
    struct span *anchor = ctx;
    if (part->kind == DOC_HEADING && span_eq(part->text, *anchor))
        *anchor = (struct span){0};
}

static void check_link(const struct doc_part *part, void *ctx)
{
    struct span anchor = part->text, target = span_cut(&anchor, '#');
    (void)ctx;
    if (part->kind != DOC_LINK || memmem(target.p, target.n, "://", 3))
        return;
    const char *slash = strrchr(part->path, '/');
    int folder = slash ? (int)(slash + 1 - part->path) : 0;
    const char *path =
        target.n ? lib_fmt("%.*s%.*s", folder, part->path, SPAN_ARG(target)) : part->path;
    if (access(path, F_OK) != 0) {
        FAULT(part, "there is no such file: %.*s", SPAN_ARG(part->text));
    } else if (anchor.n) {
        doc_read(path, find_heading, &anchor);
        if (anchor.n)
            FAULT(part, "there is no such heading: %.*s", SPAN_ARG(part->text));
    }
}

TEST(each_link_has_a_target)
{
    doc_each(check_link, NULL);
    report();
}

/* -- paths -- */

/* `src/core/core.c:core_step`: the file has the function. `src/domain/ledger*.c`: files. */
static void check_path(const struct doc_part *part, void *ctx)
{
    static const char *const folders[] = {"src/",     "include/",   "test/",  "tools/",
                                          "scripts/", "manifests/", "policy/"};
    struct span name = part->text, path = span_cut(&name, ':');
    bool ours = false;
    (void)ctx;
    array_items(folder, folders)
        ours |= span_starts(path, span_of(*folder));
    if (part->kind != DOC_CODE || !ours || memchr(path.p, ' ', path.n) ||
        memchr(path.p, '<', path.n) || strcmp(part->path, "CHANGELOG.md") == 0)
        return;
    glob_t files;
    int rc = glob(lib_fmt("%.*s", SPAN_ARG(path)), 0, NULL, &files);
    if (rc != 0 || (name.n && !strstr(lib_file(files.gl_pathv[0]),
                                      lib_fmt("%.*s(", SPAN_ARG(name)))))
        FAULT(part, "there is no %.*s", SPAN_ARG(part->text));
    globfree(&files);
}

TEST(each_path_exists)
{
    doc_each(check_path, NULL);
    report();
}

/* -- options -- */

static void add_help(const char *manual, void *ctx)
{
    struct span name = span_of(strchr(manual, '/') + 1);
    name = span_cut(&name, '.');
    buf_adds(ctx, doc_help(lib_fmt("%.*s", SPAN_ARG(name))));
}

static void add_text(const char *path, void *ctx)
{
    buf_adds(ctx, lib_file(path));
}

/* Of other programs. */
#define FOREIGN                                                                          \
    " --dry-run --policy-config-file --take-ownership --config --validate "              \
    "--no-hooks --kube-version --set --disable-eviction "

static void check_option(const struct doc_part *part, void *ctx)
{
    const struct buf *known = ctx;
    if (strcmp(part->path, "CHANGELOG.md") == 0) /* it names options that went */
        return;
    if (part->kind != DOC_CODE || part->text.n < 3 ||
        !span_starts(part->text, SPAN("--")))
        return;
    size_t n = 2;
    while (n < part->text.n &&
           (isalnum((unsigned char)part->text.p[n]) || part->text.p[n] == '-'))
        n++;
    for (const char *at = known->p;
         (at = memmem(at, (size_t)(known->p + known->n - at), part->text.p, n)); at++)
        if (!isalnum((unsigned char)at[n]) && at[n] != '-')
            return;
    FAULT(part, "no program has the option %.*s", (int)n, part->text.p);
}

TEST(each_option_exists)
{
    cleanup_buf struct buf known = {0};
    each_file("man/*.in", add_help, &known);
    each_file("scripts/[a-z]*[!e]", add_text, &known);
    each_file("test/*/main.c", add_text, &known);
    buf_adds(&known, FOREIGN);
    doc_each(check_option, &known);
    report();
}

/* -- reasons -- */

static const char *page;
static size_t found;

static void want(const char *path, struct span text)
{
    static const char around[] = " ;:,.()\"";
    while (text.n && strchr(around, text.p[0]))
        text = (struct span){text.p + 1, text.n - 1};
    while (text.n && strchr(around, text.p[text.n - 1]))
        text.n--;
    if (!memchr(text.p, ' ', text.n))
        return;
    found++;
    if (!memmem(page, strlen(page), text.p, text.n))
        buf_printf(&faults, "docs/reasons.md lacks \"%.*s\" of %s\n", SPAN_ARG(text),
                   path);
}

/* Each string literal, without its conversions: "needs %d MiB on one card". */
static void check_texts(const char *path, void *ctx)
{
    (void)ctx;
    for (const char *p = lib_file(path); *p; p++) {
        if (strncmp(p, "/*", 2) == 0)
            p = strstr(p, "*/");
        else if (*p == '#')
            p += strcspn(p, "\"\n");
        else if (*p == '\'')
            p += p[1] == '\\' ? 3 : 2;
        if (*p != '"')
            continue;
        const char *from = ++p;
        for (; *p != '"'; p++)
            if (*p == '%' || *p == '\\') {
                want(path, (struct span){from, (size_t)(p - from)});
                if (*p == '%')
                    p += strspn(p + 1, ".*0123456789lz");
                p += p[1] != '"' || *p == '\\';
                from = p + 1;
            }
        want(path, (struct span){from, (size_t)(p - from)});
    }
}

static void check_events(const char *path, void *ctx)
{
    (void)ctx;
    for (const char *p = lib_file(path); (p = strstr(p, "\"GPU")); p++) {
        size_t n =
            1 + strspn(p + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
        if (n < 6 || p[n] != '"')
            continue;
        char *name = lib_fmt("`%.*s`", (int)n - 1, p + 1);
        found++;
        if (!strstr(page, name))
            buf_printf(&faults, "docs/reasons.md lacks the event %s of %s\n", name, path);
    }
}

TEST(each_reason_and_event_is_explained)
{
    page = lib_file("docs/reasons.md");
    each_file("src/placement/reason*.c", check_texts, NULL);
    each_file("src/domain/request.c", check_texts, NULL);
    ck_assert_uint_gt(found, 40);
    each_file("src/[aep]*/*.c", check_events, NULL);
    ck_assert_uint_gt(found, 50);
    report();
}

/* -- commands -- */

/* The pages whose commands run: kube-sim and the extender as in `make demo`, on their
 * documented ports. */
static const char *const pages[] = {"README.md", "docs/user-guide.md", "docs/api.md"};

TEST(commands_marked_sim_run)
{
    struct err err = {0};
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    array_items(p, pages) {
        struct sim sim;
        struct extender e;
        sim_start(&sim,
                  ARGV("--port", "8001", "--run-pods", "--load",
                       "manifests/namespace.yaml", "--load", "manifests/demo/filter.yaml",
                       "--load", "manifests/demo/bind.yaml", "--load",
                       "manifests/demo/scvs.yaml", "--load",
                       "manifests/demo/burst.yaml"));
        extender_start(
            &e, &sim,
            ARGV("--memory-unit", "MiB", "--port", "12345", "--observe-port", "12346"));
        char *dir = lib_keep(temp_dir(), free);
        unsigned n =
            doc_run(*p, "sh sim", NULL, dir,
                    ARGV(lib_fmt("KUBECONFIG=%s", sim_kubeconfig(&sim))), RUN_MS);
        ck_assert_msg(n > 0, "%s has no command", *p);
        printf("measured: %s: %u blocks of commands ran\n", *p, n);
        temp_dir_remove(dir);
        extender_stop(&e);
        sim_stop(&sim);
    }
}

LIB_MAIN(120)
