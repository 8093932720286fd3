/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <glob.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/doc.h"
#include "lib/extender.h"
#include "lib/network.h"
#include "lib/sim.h"

/*
 * The documents: links lead to a file and a heading; files, functions and options exist;
 * docs/reasons.md has each reason and event of the sources; the commands marked `sh sim`
 * run.
 */

enum { RUN_MS = 60 * 1000, FILE_MAX = 1 << 20 };

static struct buf faults;

static void add_file(const char *path, struct buf *text)
{
    struct err err;
    ck_assert_done(file_read(path, FILE_MAX, text, &err), err);
}

static void each_file(const char *pattern, void (*each)(const char *path, void *ctx),
                      void *ctx)
{
    glob_t files;
    ck_assert_msg(glob(pattern, 0, NULL, &files) == 0, "there is no %s", pattern);
    for (size_t i = 0; i < files.gl_pathc; i++)
        each(files.gl_pathv[i], ctx);
    globfree(&files);
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
    cleanup_free char *path =
        target.n ? xasprintf("%.*s%.*s", folder, part->path, SPAN_ARG(target))
                 : xstrdup(part->path);
    if (access(path, F_OK) != 0) {
        FAULT(part, "there is no such file: %.*s", SPAN_ARG(part->text));
    } else if (anchor.n) {
        doc_read(path, find_heading, &anchor);
        if (anchor.n)
            FAULT(part, "there is no such heading: %.*s", SPAN_ARG(part->text));
    }
}

START_TEST(each_link_has_a_target)
{
    doc_each(check_link, NULL);
    report();
}
END_TEST

/* -- paths -- */

/* `src/core/core.c:core_step`: the file has the function. `src/domain/ledger*.c`: files. */
static void check_path(const struct doc_part *part, void *ctx)
{
    static const char *const folders[] = {"src/",     "include/",   "test/",  "tools/",
                                          "scripts/", "manifests/", "policy/"};
    struct span name = part->text, path = span_cut(&name, ':');
    bool ours = false;
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        ours |= span_starts(path, span_of(folders[i]));
    if (part->kind != DOC_CODE || !ours || memchr(path.p, ' ', path.n) ||
        memchr(path.p, '<', path.n) || strcmp(part->path, "CHANGELOG.md") == 0)
        return;
    cleanup_free char *pattern = xmemdup0(path.p, path.n);
    glob_t files;
    int rc = glob(pattern, 0, NULL, &files);
    cleanup_buf struct buf text = {0};
    if (rc == 0 && name.n)
        add_file(files.gl_pathv[0], &text);
    cleanup_free char *call = xasprintf("%.*s(", SPAN_ARG(name));
    if (rc != 0 || (name.n && !strstr(text.p, call)))
        FAULT(part, "there is no %.*s", SPAN_ARG(part->text));
    globfree(&files);
}

START_TEST(each_path_exists)
{
    doc_each(check_path, NULL);
    report();
}
END_TEST

/* -- options -- */

static void add_help(const char *page, void *ctx)
{
    cleanup_free char *name = xstrdup(strchr(page, '/') + 1);
    *strchr(name, '.') = '\0';
    cleanup_free char *help = doc_help(name);
    buf_adds(ctx, help);
}

static void add_text(const char *path, void *ctx)
{
    add_file(path, ctx);
}

/* Of other programs. */
#define FOREIGN                                                                          \
    " --dry-run --policy-config-file --take-ownership --config --force --validate "

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

START_TEST(each_option_exists)
{
    cleanup_buf struct buf known = {0};
    each_file("man/*.in", add_help, &known);
    each_file("scripts/[a-z]*[!e]", add_text, &known);
    each_file("test/*/main.c", add_text, &known);
    buf_adds(&known, FOREIGN);
    doc_each(check_option, &known);
    report();
}
END_TEST

/* -- reasons -- */

static struct buf page;
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
    if (!memmem(page.p, page.n, text.p, text.n))
        buf_printf(&faults, "docs/reasons.md lacks \"%.*s\" of %s\n", SPAN_ARG(text),
                   path);
}

/* Each string literal, without its conversions: "needs %d MiB on one card". */
static void check_texts(const char *path, void *ctx)
{
    cleanup_buf struct buf source = {0};
    (void)ctx;
    add_file(path, &source);
    for (char *p = source.p; *p; p++) {
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
    cleanup_buf struct buf source = {0};
    (void)ctx;
    add_file(path, &source);
    for (char *p = source.p; (p = strstr(p, "\"GPU")); p++) {
        size_t n =
            1 + strspn(p + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
        if (n < 6 || p[n] != '"')
            continue;
        cleanup_free char *name = xasprintf("`%.*s`", (int)n - 1, p + 1);
        found++;
        if (!strstr(page.p, name))
            buf_printf(&faults, "docs/reasons.md lacks the event %s of %s\n", name, path);
    }
}

START_TEST(each_reason_and_event_is_explained)
{
    add_file("docs/reasons.md", &page);
    each_file("src/placement/reason*.c", check_texts, NULL);
    each_file("src/domain/request.c", check_texts, NULL);
    ck_assert_uint_gt(found, 40);
    each_file("src/[aep]*/*.c", check_events, NULL);
    ck_assert_uint_gt(found, 50);
    report();
    buf_fini(&page);
}
END_TEST

/* -- commands -- */

/* The pages whose commands run: kube-sim and the extender as in `make demo`, on their
 * documented ports. */
static const char *const pages[] = {"README.md", "docs/user-guide.md", "docs/api.md"};

START_TEST(commands_marked_sim_run)
{
    struct err err = {0};
    if (network_own(&err))
        printf("measured: the ports of this machine are used: %s\n", err.msg);
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        struct sim sim;
        struct extender e;
        sim_start(&sim,
                  ARGV("--port", "8001", "--run-pods", "--load",
                       "manifests/namespace.yaml", "--load", "manifests/demo/filter.yaml",
                       "--load", "manifests/demo/bind.yaml", "--load",
                       "manifests/demo/scvs.yaml", "--load",
                       "manifests/demo/burst.yaml"));
        cleanup_free char *config =
            lib_kubeconfig("kubeconfig", "http", sim.api.port, "", "");
        cleanup_free char *env = xasprintf("KUBECONFIG=%s", config);
        extender_start_at(
            &e, config,
            ARGV("--memory-unit", "MiB", "--port", "12345", "--observe-port", "12346"));
        extender_wait_ready(&e);
        cleanup_free char *dir = temp_dir();
        unsigned n = doc_run(pages[i], "sh sim", NULL, dir, ARGV(env), RUN_MS);
        ck_assert_msg(n > 0, "%s has no command", pages[i]);
        printf("measured: %s: %u blocks of commands ran\n", pages[i], n);
        temp_dir_remove(dir);
        extender_stop(&e);
        sim_stop(&sim);
    }
}
END_TEST

LIB_MAIN("docs", 120, each_link_has_a_target, each_path_exists, each_option_exists,
         each_reason_and_event_is_explained, commands_marked_sim_run)
