/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/unit.h"

/*
 * The layers of docs/architecture.md, checked against the #include lines of src/, include/
 * and tools/. A folder includes only folders of lower layers, and the modules have no
 * include cycle. A module is a header (but for _priv.h) with the sources whose names begin
 * with the name of the header.
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
    {"cmd", CMD},       {"kube-sim", TOOL},  {"replay", TOOL}};

static int layer_of(struct span module)
{
    struct span rest = module, folder = span_cut(&rest, '/');
    for (size_t i = 0; i < ARRAY_LEN(layers); i++)
        if (span_eq(folder, span_of(layers[i].folder)))
            return layers[i].layer;
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

static size_t find(struct span name)
{
    size_t i = 0;
    while (i < n_modules && !span_eq(modules[i].name, name))
        i++;
    return i;
}

/* "src/kube/name_more.c" belongs to "kube/name" if kube/name.h exists. */
static size_t module_of(struct span path)
{
    struct span name = path;
    while (name.n && name.p[name.n - 1] != '.')
        name.n--;
    name.n -= name.n > 0;
    for (struct span s = name; s.n && s.p[s.n - 1] != '/'; s.n--)
        if ((s.n == name.n || s.p[s.n] == '_') && find(s) < n_modules)
            return find(s);
    ck_assert_uint_lt(n_modules, MODULES);
    modules[n_modules].name = arena_copy(&arena, name);
    return n_modules++;
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

static bool span_ends(struct span s, struct span end)
{
    return s.n >= end.n && span_eq((struct span){s.p + s.n - end.n, end.n}, end);
}

/* Every public header defines a module: "plugin_dir.h" is not a part of "plugin.h". */
static void add_header(struct span path)
{
    if (span_ends(path, SPAN("_priv.h")))
        return;
    ck_assert_uint_lt(n_modules, MODULES);
    modules[n_modules++].name =
        arena_copy(&arena, (struct span){path.p, path.n - strlen(".h")});
}

static void read_all(const char *pattern, size_t skip, bool names_only)
{
    glob_t files;
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    ck_assert_uint_gt(files.gl_pathc, 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        if (names_only)
            add_header(span_of(files.gl_pathv[i] + skip));
        else
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

START_TEST(folders_and_modules_have_no_cycles)
{
    cleanup_buf struct buf path = {0};
    /* Headers first: they define the modules to which sources belong. */
    read_all("include/*/*.h", strlen("include/"), true);
    read_all("src/*/*.h", strlen("src/"), true);
    read_all("tools/*/*.h", strlen("tools/"), true);
    read_all("include/*/*.h", strlen("include/"), false);
    read_all("src/*/*.[ch]", strlen("src/"), false);
    read_all("tools/*/*.[ch]", strlen("tools/"), false);
    for (size_t i = 0; i < n_modules; i++)
        search(&modules[i], &path);
    ck_assert_uint_gt(n_modules, 100);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("includes", folders_and_modules_have_no_cycles)
