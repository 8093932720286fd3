/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/unit.h"

/*
 * The house of docs/architecture.md: who includes whom, as the files of src/ and include/
 * say. A folder uses only lower floors, and no two modules include each other, by
 * whatever way round. A module is a header of include/ with the sources that begin with
 * its name.
 */

enum { MODULES = 512, FILE_MAX = 1 << 20, SIM = 6 };

/* Of one floor, none includes another; the simulated API server is an opinion of its own,
 * with no more than base and wire. */
static const struct floor {
    const char *folder;
    int floor;
} floors[] = {{"base", 1},       {"wire", 2},      {"domain", 2},   {"gpu", 2},
              {"kube", 3},       {"placement", 3}, {"core", 4},     {"apisync", 5},
              {"extender", SIM}, {"agent", SIM},   {"plugin", SIM}, {"sim", SIM},
              {"replay", SIM},   {"cli", SIM},     {"setup", SIM},  {"cmd", 7}};

static int floor_of(struct span module)
{
    struct span rest = module, folder = span_cut(&rest, '/');
    for (size_t i = 0; i < ARRAY_LEN(floors); i++)
        if (span_eq(folder, span_of(floors[i].folder)))
            return floors[i].floor;
    return 0; /* what is generated, and libraries */
}

static bool same_folder(struct span a, struct span b)
{
    return span_eq(span_cut(&a, '/'), span_cut(&b, '/'));
}

static struct module {
    struct span name; /* "kube/config" */
    size_t uses[MODULES], n_uses;
    int state; /* of the search: 0 new, 1 on the way, 2 done */
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

/* "src/kube/config_file.c" is of "kube/config", if that has a header. */
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
    if (&modules[other] == m || !floor_of(path))
        return;
    struct module *o = &modules[other];
    bool sim = same_folder(m->name, SPAN("sim/"));
    ck_assert_msg(same_folder(m->name, o->name) ||
                      floor_of(o->name) < (sim ? 3 : floor_of(m->name)),
                  "%.*s includes %.*s, which is no lower floor", SPAN_ARG(m->name),
                  SPAN_ARG(o->name));
    ck_assert_msg(!sim || !same_folder(o->name, SPAN("domain/")),
                  "%.*s shares domain with what it judges", SPAN_ARG(m->name));
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

static void read_all(const char *pattern, size_t skip, bool names_only)
{
    glob_t files;
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    ck_assert_uint_gt(files.gl_pathc, 10);
    for (size_t i = 0; i < files.gl_pathc; i++)
        if (names_only)
            module_of(span_of(files.gl_pathv[i] + skip));
        else
            read_includes(files.gl_pathv[i], skip);
    globfree(&files);
}

/* Fails with the way round, if there is one. */
static void search(struct module *m, struct buf *way)
{
    size_t n = way->n;
    buf_printf(way, "%.*s ", SPAN_ARG(m->name));
    ck_assert_msg(m->state != 1, "a cycle: %s", way->p);
    if (m->state == 0) {
        m->state = 1;
        for (size_t i = 0; i < m->n_uses; i++)
            search(&modules[m->uses[i]], way);
        m->state = 2;
    }
    way->n = n;
    way->p[n] = '\0';
}

START_TEST(folders_and_modules_have_no_cycles)
{
    cleanup_buf struct buf way = {0};
    /* Headers first: they make the modules to which sources belong. */
    read_all("include/*/*.h", strlen("include/"), true);
    read_all("include/*/*.h", strlen("include/"), false);
    read_all("src/*/*.[ch]", strlen("src/"), false);
    for (size_t i = 0; i < n_modules; i++)
        search(&modules[i], &way);
    ck_assert_uint_gt(n_modules, 100);
    arena_fini(&arena);
}
END_TEST

UNIT_MAIN("includes", folders_and_modules_have_no_cycles)
