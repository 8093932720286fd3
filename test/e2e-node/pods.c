/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "e2e-node/node.h"

/* The kinds of pods. */

enum role { APP, INIT, SIDECAR };

static const struct kind {
    const char *name, *labels;
    struct part {
        const char *resource;
        int n;
        enum role role;
    } parts[3];
} kinds[] = {
    {"none", "", {{"", 0, APP}}},
    {"equal", "", {{"gpu-mem", 2, APP}}},
    {"one", "", {{"gpu-mem", 4, APP}}},
    {"two", "", {{"gpu-mem", 2, APP}, {"gpu-mem", 4, APP}}},
    {"init", "", {{"gpu-mem", 3, INIT}, {"gpu-mem", 3, APP}}},
    {"side", "", {{"gpu-mem", 1, SIDECAR}, {"gpu-mem", 2, APP}}},
    {"split", "\"aliyun.com/gpu-count\":\"2\"", {{"gpu-mem", 4, APP}}},
    {"whole", "", {{"gpu-count", 1, APP}}},
};

static const struct kind *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    ck_abort_msg("there are no pods of kind %s", name);
    return NULL;
}

static void add(struct buf *out, size_t i, const struct part *p)
{
    static const char *const more[] = {
        [APP] = "",
        [INIT] = ",\"args\":[\"once\"]",
        [SIDECAR] = ",\"restartPolicy\":\"Always\"",
    };
    buf_printf(out,
               "%s{\"name\":\"%c\",\"image\":\"" NODE_GUEST
               "\",\"imagePullPolicy\":\"Never\"%s",
               out->n ? "," : "", (int)('c' + i), more[p->role]);
    if (p->n)
        buf_printf(out, ",\"resources\":{\"limits\":{\"aliyun.com/%s\":\"%d\"}}",
                   p->resource, p->n);
    buf_addc(out, '}');
}

char *node_spec_of(const char *name)
{
    const struct kind *kind = find(name);
    cleanup_buf struct buf apps = {0}, inits = {0};
    buf_adds(&inits, "");
    for (size_t i = 0; i < ARRAY_LEN(kind->parts) && kind->parts[i].resource; i++)
        add(kind->parts[i].role == APP ? &apps : &inits, i, &kind->parts[i]);
    return xasprintf("\"containers\":[%s],\"initContainers\":[%s],"
                     "\"automountServiceAccountToken\":false,"
                     "\"enableServiceLinks\":false,\"terminationGracePeriodSeconds\":5",
                     apps.p, inits.p);
}

void node_create(const char *kind, const char *name)
{
    cleanup_free char *spec = node_spec_of(kind);
    cluster_create(CLUSTER_PODS,
                   "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                   "\"%s\",\"labels\":{%s}},\"spec\":{%s}}",
                   name, find(kind)->labels, spec);
}

/* The kubelet reads every file, also a partial one, unless its name begins with a dot. */
void node_create_static(const char *kind, const char *name)
{
    cleanup_free char *spec = node_spec_of(kind);
    cleanup_free char *dir = temp_path(cell_dir(), CELL_STATIC);
    cleanup_free char *hidden = xasprintf(".%s", name);
    cleanup_free char *from = temp_path(dir, hidden);
    cleanup_free char *file = xasprintf("%s.json", name);
    cleanup_free char *to = temp_path(dir, file);
    cleanup_free char *text =
        xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":"
                  "\"%s\",\"namespace\":\"default\",\"labels\":{%s}},\"spec\":{%s}}",
                  name, find(kind)->labels, spec);
    temp_write(dir, hidden, text);
    ck_assert_int_eq(rename(from, to), 0);
}

void node_remove_static(const char *name)
{
    cleanup_free char *dir = temp_path(cell_dir(), CELL_STATIC);
    cleanup_free char *file = xasprintf("%s.json", name);
    temp_remove(dir, file);
}
