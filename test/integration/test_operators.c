/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/file.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/ledger.h"
#include "lib/yamlfile.h"

/*
 * The samples for Kueue and Karpenter, whose resource definitions are not in this project:
 * they set only fields that the types of the named version have, with values of their JSON
 * type, and the objects of a file belong together. test/data/operators/fields.txt lists the
 * fields.
 */

#define FIELDS "test/data/operators/fields.txt"

enum { FIELD_MAX = 128 };

static struct field {
    struct span kind, path, type; /* kind: "API/VERSION/KIND" */
    bool required;
} fields[FIELD_MAX];
static size_t n_fields;
static struct buf text;

static void read_fields(void)
{
    struct err err;
    buf_clear(&text);
    ck_assert_done(file_read(FIELDS, 1 << 16, &text, &err), err);
    n_fields = 0;
    for (struct span rest = buf_span(&text); rest.n; n_fields++) {
        struct span line = span_cut(&rest, '\n');
        ck_assert_uint_lt(n_fields, FIELD_MAX);
        struct field *f = &fields[n_fields];
        f->kind = span_cut(&line, ' ');
        f->path = span_cut(&line, ' ');
        f->type = span_cut(&line, ' ');
        f->required = span_eq(line, SPAN("required"));
    }
}

static const char *type_name(const json_t *j)
{
    return json_is_object(j)    ? "object"
           : json_is_array(j)   ? "array"
           : json_is_string(j)  ? "string"
           : json_is_integer(j) ? "integer"
                                : "other";
}

static const struct field *find(const char *kind, const char *path)
{
    for (size_t i = 0; i < n_fields; i++)
        if (span_eq(fields[i].kind, span_of(kind)) &&
            span_eq(fields[i].path, span_of(path)))
            return &fields[i];
    return NULL;
}

/* The members that an object at `path` must have. */
static void check_required(struct buf *faults, const char *kind, const char *path,
                           const json_t *object)
{
    for (size_t i = 0; i < n_fields; i++) {
        const struct field *f = &fields[i];
        cleanup_free char *member = xasprintf("%.*s", SPAN_ARG(f->path));
        char *dot = strrchr(member, '.');
        *dot = '\0';
        if (f->required && span_eq(f->kind, span_of(kind)) && !strcmp(member, path) &&
            !json_object_get(object, dot + 1))
            buf_printf(faults, "%s: %s.%s is missing\n", kind, path, dot + 1);
    }
}

static void check_value(struct buf *faults, const char *kind, const char *path,
                        const json_t *value)
{
    size_t i;
    const char *key;
    json_t *child;
    const struct field *f = find(kind, path);
    if (!f && strcmp(path, "spec") != 0) {
        buf_printf(faults, "%s: there is no %s\n", kind, path);
        return;
    }
    if (f && !span_eq(f->type, span_of(type_name(value))))
        buf_printf(faults, "%s: %s is not of type %.*s\n", kind, path, SPAN_ARG(f->type));
    cleanup_free char *items = xasprintf("%s[]", path), *any = xasprintf("%s.*", path);
    json_array_foreach(value, i, child) check_value(faults, kind, items, child);
    if (!json_is_object(value))
        return;
    check_required(faults, kind, path, value);
    json_object_foreach((json_t *)value, key, child)
    {
        cleanup_free char *member = xasprintf("%s.%s", path, key);
        check_value(faults, kind, find(kind, any) ? any : member, child);
    }
}

static void check_object(struct buf *faults, const json_t *object)
{
    cleanup_free char *kind =
        xasprintf("%s/%s", lib_str(object, "apiVersion"), lib_str(object, "kind"));
    bool known = false;
    for (size_t i = 0; i < n_fields; i++)
        known |= span_eq(fields[i].kind, span_of(kind));
    if (!strcmp(kind, "batch/v1/Job"))
        return;
    if (!known)
        buf_printf(faults, "%s: not listed in " FIELDS "\n", kind);
    else
        check_value(faults, kind, "spec", lib_at(object, "spec"));
}

START_TEST(samples_set_only_fields_that_exist)
{
    glob_t files;
    cleanup_json json_t *all = json_array();
    cleanup_buf struct buf faults = {0};
    size_t i;
    json_t *j;
    read_fields();
    ck_assert_int_eq(glob("manifests/samples/*/*.yaml.example", 0, NULL, &files), 0);
    for (i = 0; i < files.gl_pathc; i++)
        yamlfile_read(all, files.gl_pathv[i]);
    globfree(&files);
    json_array_foreach(all, i, j) check_object(&faults, j);
    ck_assert_msg(!faults.n, "%s", faults.p);
    ck_assert_uint_ge(json_array_size(all), 5);
    buf_fini(&text);
}
END_TEST

static bool names(const json_t *list, const char *name)
{
    size_t i;
    json_t *j;
    json_array_foreach(list, i, j) if (!strcmp(json_string_value(j), name)) return true;
    return false;
}

/* A queue that refers to nothing admits no job, and neither does one whose quota lacks a
 * resource of the job. */
START_TEST(the_objects_of_the_queue_belong_together)
{
    cleanup_json json_t *all = json_array();
    yamlfile_read(all, "manifests/samples/quota/kueue.yaml.example");
    const json_t *queue = of_kind(all, "ClusterQueue"),
                 *local = of_kind(all, "LocalQueue"), *job = of_kind(all, "Job"),
                 *group = lib_at(queue, "spec.resourceGroups.0");
    const json_t *covered = lib_at(group, "coveredResources");
    const json_t *quotas = lib_at(group, "flavors.0.resources");
    size_t i;
    json_t *j;
    const char *key;
    ck_assert_str_eq(lib_str(group, "flavors.0.name"),
                     lib_str(of_kind(all, "ResourceFlavor"), "metadata.name"));
    ck_assert_str_eq(lib_str(local, "spec.clusterQueue"), lib_str(queue, "metadata.name"));
    ck_assert_str_eq(json_string_value(json_object_get(lib_at(job, "metadata.labels"),
                                                       "kueue.x-k8s.io/queue-name")),
                     lib_str(local, "metadata.name"));
    ck_assert_uint_eq(json_array_size(quotas), json_array_size(covered));
    json_array_foreach(quotas, i, j) ck_assert_str_eq(
        lib_str(j, "name"), json_string_value(json_array_get(covered, i)));
    static const char *const asked[] = {"requests", "limits"};
    for (size_t k = 0; k < ARRAY_LEN(asked); k++) {
        json_t *some = json_object_get(
            lib_at(job, "spec.template.spec.containers.0.resources"), asked[k]);
        json_object_foreach(some, key, j) ck_assert(names(covered, key));
    }
    ck_assert(names(covered, KEY_GPU_MEM) && names(covered, KEY_GPU_COUNT));
}
END_TEST

/* The capacity of the overlay and the label that the comment names are the same cards. */
START_TEST(the_overlay_has_the_capacity_of_its_cards)
{
    static const char path[] = "manifests/samples/autoscaling/karpenter.yaml.example";
    cleanup_json json_t *one = read_one(path);
    cleanup_buf struct buf file = {0};
    struct node_cards cards;
    struct err err;
    ck_assert_done(file_read(path, 1 << 16, &file, &err), err);
    const char *label = strstr(file.p, KEY_CARDS ": ");
    ck_assert_ptr_nonnull(label);
    label += strlen(KEY_CARDS ": ");
    struct span value = {label, strcspn(label, ", \n")};
    ck_assert_done(node_cards_parse(value, &cards, &err), err);
    json_t *capacity = lib_at(one, "spec.capacity");
    ck_assert_int_eq(
        strtoll(json_string_value(json_object_get(capacity, KEY_GPU_MEM)), NULL, 10),
        cards.n * (cards.mib / 1024));
    ck_assert_int_eq(
        strtoll(json_string_value(json_object_get(capacity, KEY_GPU_COUNT)), NULL, 10),
        cards.n);
}
END_TEST

UNIT_MAIN("operators", samples_set_only_fields_that_exist,
          the_objects_of_the_queue_belong_together,
          the_overlay_has_the_capacity_of_its_cards)
