/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/file.h"
#include "lib/unit.h"

/*
 * The layers of docs/architecture.md, checked against the #include lines of src/, include/
 * and tools/. A folder includes only folders of lower layers, and the modules have no
 * include cycle. A module is a source with the headers of the same name, name.h and
 * name_priv.h.
 */

enum { MODULES = 512, FILE_MAX = 1 << 20, PROGRAM = 6, CMD, TOOL };

/* Folders of one layer do not include each other. Nothing includes a tool: TOOL is the
 * highest layer. libgpushare-limit.so includes nothing but itself; the plugin reads the layout of
 * its files. kube-sim checks the product, so it shares only base and wire with it. */
static const struct layer {
    const char *folder;
    int layer;
} layers[] = {
    {"base", 1},        {"limit", 1},        {"wire", 2},      {"domain", 2},
    {"gpu", 2},         {"kube", 3},         {"placement", 3}, {"core", 4},
    {"apisync", 5},     {"view", 5},         {"node", 5},      {"extender", PROGRAM},
    {"agent", PROGRAM}, {"plugin", PROGRAM}, {"cli", PROGRAM}, {"setup", PROGRAM},
    {"cmd", CMD},       {"kube-sim", TOOL},  {"replay", TOOL}, {"card-check", TOOL}};

static int layer_of(struct span module)
{
    struct span rest = module, folder = span_cut(&rest, '/');
    array_items(c, layers)
        if (span_eq(folder, span_of(c->folder)))
            return c->layer;
    return 0; /* a generated file, or a library */
}

static bool same_folder(struct span a, struct span b)
{
    return span_eq(span_cut(&a, '/'), span_cut(&b, '/'));
}

static struct module {
    struct span name; /* "kube/config" */
    size_t uses[MODULES], n_uses;
    enum { UNVISITED, VISITING, VISITED } state; /* of the search for cycles */
} modules[MODULES];
static size_t n_modules;
static struct arena arena;

/* The module of "kube/name.c", "kube/name.h" and "kube/name_priv.h". */
static size_t module_of(struct span path)
{
    static const char *const ends[] = {"_priv.h", ".h", ".c"};
    struct span name = path;
    for (size_t i = 0; i < ARRAY_LEN(ends) && name.n == path.n; i++) {
        size_t n = strlen(ends[i]);
        if (path.n > n && !memcmp(path.p + path.n - n, ends[i], n))
            name.n -= n;
    }
    size_t i = 0;
    while (i < n_modules && !span_eq(modules[i].name, name))
        i++;
    if (i == n_modules) {
        ck_assert_uint_lt(n_modules, MODULES);
        modules[n_modules++].name = arena_copy(&arena, name);
    }
    return i;
}

static void add_use(struct module *m, struct span path)
{
    size_t other = module_of(path);
    if (&modules[other] == m || !layer_of(path))
        return;
    struct module *o = &modules[other];
    bool sim = same_folder(m->name, SPAN("kube-sim/"));
    ck_assert_msg(same_folder(m->name, o->name) ||
                      layer_of(o->name) < (sim ? 3 : layer_of(m->name)),
                  "%.*s includes %.*s, which is not in a lower layer", SPAN_ARG(m->name),
                  SPAN_ARG(o->name));
    ck_assert_msg(!sim || !same_folder(o->name, SPAN("domain/")),
                  "%.*s includes domain, which it tests", SPAN_ARG(m->name));
    m->uses[m->n_uses++] = other;
    ck_assert_uint_lt(m->n_uses, MODULES);
}

static void read_includes(const char *path, size_t skip)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    ck_assert_done(file_read(path, FILE_MAX, &text, &err), err);
    struct module *m = &modules[module_of(span_of(path + skip))];
    struct span rest = buf_span(&text);
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        if (!span_starts(line, SPAN("#include \"")))
            continue;
        span_cut(&line, '"');
        add_use(m, span_cut(&line, '"'));
    }
}

static void read_all(const char *pattern, size_t skip)
{
    glob_t files;
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    ck_assert_uint_gt(files.gl_pathc, 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        read_includes(files.gl_pathv[i], skip);
    globfree(&files);
}

/* Depth-first search. A cycle fails the test with the names of its modules. */
static void search(struct module *m, struct buf *path)
{
    size_t n = path->n;
    buf_printf(path, "%.*s ", SPAN_ARG(m->name));
    ck_assert_msg(m->state != VISITING, "include cycle: %s", path->p);
    if (m->state == UNVISITED) {
        m->state = VISITING;
        for (size_t i = 0; i < m->n_uses; i++)
            search(&modules[m->uses[i]], path);
        m->state = VISITED;
    }
    path->n = n;
    path->p[n] = '\0';
}

TEST(folders_and_modules_have_no_cycles)
{
    cleanup_buf struct buf path = {0};
    read_all("include/*/*.h", strlen("include/"));
    read_all("src/*/*.[ch]", strlen("src/"));
    read_all("tools/*/*.[ch]", strlen("tools/"));
    for (size_t i = 0; i < n_modules; i++)
        search(&modules[i], &path);
    ck_assert_uint_gt(n_modules, 100);
    arena_fini(&arena);
}
