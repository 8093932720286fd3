/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/tools.h"

#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/yamlfile.h"

char *tools_run(const char *program, int status, const char *const *args)
{
    struct program p;
    cleanup_free char *path = cluster_program(program),
                      *config = temp_path(cluster.dir, "admin.kubeconfig"),
                      *kubeconfig = xasprintf("KUBECONFIG=%s", config);
    const char *argv[PROGRAM_ARGS] = {"env", kubeconfig, path};
    program_args(argv, 3, args);
    program_start(&p, lib_dir, argv);
    return program_end(&p, status);
}

char *tools_render(const char *set)
{
    cleanup_free char *name = xasprintf("%s.rendered.yaml", set ? set : "default"),
                      *values = set ? xasprintf("test/e2e/chart/%s.yaml", set) : NULL;
    /* The pods of `helm test` belong to no installation with kubectl. */
    cleanup_free char *said =
        tools_run("helm", 0,
                  ARGV("template", "gpushare", CHART, "-n", "kube-system",
                       "--kube-version", "1.35", values ? "-f" : "--skip-tests", values));
    temp_write(lib_dir, name, said);
    return temp_path(lib_dir, name);
}

json_t *tools_objects(const char *path)
{
    json_t *all = json_array();
    yamlfile_read(all, path);
    ck_assert_uint_gt(json_array_size(all), 0);
    return all;
}

/* -- differences -- */

static void report(struct buf *out, const char *where, const json_t *wanted,
                   const json_t *got)
{
    cleanup_free char *a =
        wanted ? json_dumps(wanted, JSON_ENCODE_ANY) : xstrdup("nothing");
    cleanup_free char *b = got ? json_dumps(got, JSON_ENCODE_ANY) : xstrdup("nothing");
    buf_printf(out, "\n%s: expected %s, got %s", where, a, b);
}

static void differ(struct buf *out, const char *where, const json_t *wanted,
                   const json_t *got);

static void differ_members(struct buf *out, const char *where, const json_t *wanted,
                           const json_t *got)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)wanted, key, v)
    {
        cleanup_free char *inner = xasprintf("%s.%s", where, key);
        differ(out, inner, v, json_object_get(got, key));
    }
    json_object_foreach((json_t *)got, key, v)
    {
        cleanup_free char *inner = xasprintf("%s.%s", where, key);
        if (!json_object_get(wanted, key))
            report(out, inner, NULL, v);
    }
}

static void differ(struct buf *out, const char *where, const json_t *wanted,
                   const json_t *got)
{
    if (json_is_object(wanted) && json_is_object(got)) {
        differ_members(out, where, wanted, got);
        return;
    }
    size_t n = json_array_size(wanted), i;
    if (!n || n != json_array_size(got)) {
        if (!json_equal(wanted, got))
            report(out, where, wanted, got);
        return;
    }
    for (i = 0; i < n; i++) {
        cleanup_free char *inner = xasprintf("%s[%zu]", where, i);
        differ(out, inner, json_array_get(wanted, i), json_array_get(got, i));
    }
}

/* New. */
static char *title(const json_t *object)
{
    return xasprintf("%s %s/%s", lib_str(object, "kind"),
                     lib_str(object, "metadata.namespace"),
                     lib_str(object, "metadata.name"));
}

static json_t *find(const json_t *all, const char *name)
{
    size_t i;
    json_t *j, *found = NULL;
    json_array_foreach(all, i, j)
    {
        cleanup_free char *its = title(j);
        if (strcmp(its, name) != 0)
            continue;
        ck_assert_msg(!found, "duplicate %s", name);
        found = j;
    }
    return found;
}

void tools_assert_same(const json_t *wanted, const json_t *all, bool others)
{
    cleanup_buf struct buf out = {0};
    size_t i;
    json_t *j;
    json_array_foreach(wanted, i, j)
    {
        cleanup_free char *name = title(j);
        const json_t *got = find(all, name);
        if (got)
            differ(&out, name, j, got);
        else
            buf_printf(&out, "\n%s is missing", name);
    }
    json_array_foreach(others ? NULL : all, i, j)
    {
        cleanup_free char *name = title(j);
        if (!find(wanted, name))
            buf_printf(&out, "\n%s is unexpected", name);
    }
    ck_assert_msg(out.n == 0, "%s", out.p);
}
