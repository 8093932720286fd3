/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "lib/sim.h"
#include "lib/yamlfile.h"

/*
 * manifests/: kube-sim loads every file and knows its kinds, and the schema of the Scv
 * has every field that Scvs have.
 */

/* The caller calls globfree. */
static void manifest_files(glob_t *files)
{
    static const char *const patterns[] = {"manifests/*.yaml", "manifests/samples/*.yaml",
                                           "manifests/demo/*.yaml"};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
        ck_assert_int_eq(glob(patterns[i], i ? GLOB_APPEND : 0, NULL, files), 0);
}

/* All documents of all manifests: new. */
static json_t *manifest_all(void)
{
    json_t *all = json_array();
    glob_t files;
    manifest_files(&files);
    for (size_t i = 0; i < files.gl_pathc; i++)
        yamlfile_read(all, files.gl_pathv[i]);
    globfree(&files);
    return all;
}

/* -- loading into kube-sim -- */

struct known {
    const char *kind, *version;
    bool served; /* kube-sim serves the kind */
};
static const struct known known[] = {
    {"Namespace", "v1", true},
    {"Node", "v1", true},
    {"Pod", "v1", true},
    {"Lease", "coordination.k8s.io/v1", true},
    {"Scv", "core.run-linux.com/v1", true},
    {"ServiceAccount", "v1", false},
    {"Service", "v1", false},
    {"Deployment", "apps/v1", false},
    {"DaemonSet", "apps/v1", false},
    {"ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", false},
    {"ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1", false},
    {"NetworkPolicy", "networking.k8s.io/v1", false},
    {"CustomResourceDefinition", "apiextensions.k8s.io/v1", false},
    {"Role", "rbac.authorization.k8s.io/v1", false},
    {"RoleBinding", "rbac.authorization.k8s.io/v1", false},
    {"ClusterRole", "rbac.authorization.k8s.io/v1", false},
    {"ClusterRoleBinding", "rbac.authorization.k8s.io/v1", false},
};

static const struct known *known_kind(const json_t *object)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(lib_str(object, "kind"), known[i].kind) == 0 &&
            strcmp(lib_str(object, "apiVersion"), known[i].version) == 0)
            return &known[i];
    ck_abort_msg("kind \"%s\" of \"%s\"", lib_str(object, "kind"),
                 lib_str(object, "apiVersion"));
    return NULL;
}

static size_t count_text(const char *in, const char *what)
{
    size_t n = 0;
    for (; (in = strstr(in, what)); in += strlen(what))
        n++;
    return n;
}

START_TEST(every_file_loads_into_kube_sim)
{
    cleanup_json json_t *all = manifest_all();
    struct sim sim;
    const char *argv[100];
    size_t n = 0, i, skipped = 0;
    glob_t files;
    json_t *j;
    manifest_files(&files);
    ck_assert_uint_gt(files.gl_pathc, 10);
    for (i = 0; i < files.gl_pathc; i++) {
        ck_assert_uint_lt(n + 2, ARRAY_LEN(argv));
        argv[n++] = "--load";
        argv[n++] = files.gl_pathv[i];
    }
    argv[n] = NULL;
    sim_start(&sim, argv);
    json_array_foreach(all, i, j)
    {
        ck_assert_str_ne(lib_str(j, "metadata.name"), "");
        skipped += !known_kind(j)->served;
    }
    const char *said = program_output(&sim.program);
    ck_assert_msg(count_text(said, "level=warn") == skipped &&
                      count_text(said, "is not served") == skipped,
                  "%zu kinds are not served: %s", skipped, said);
    static const char *const there[] = {
        "/api/v1/namespaces/" KEY_LEASE_NAMESPACE,
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-extender",
        "/api/v1/namespaces/default/pods/gpu-count",
        "/apis/core.run-linux.com/v1/scvs/isl-super"};
    for (i = 0; i < ARRAY_LEN(there); i++)
        ck_assert_msg(peer_status(&sim.api, there[i]) == 200, "%s", there[i]);
    sim_stop(&sim);
    globfree(&files);
}

/* -- the keys of the admission policies -- */

#define OF_PROMISE                                                                       \
    KEY_MEM_IDX, KEY_MEM_DEV, KEY_MEM_POD, KEY_MEM_ASSIGNED, KEY_MEM_ASSUME_TIME,        \
        KEY_ALLOCATION, KEY_CARD_UUID, KEY_CARD_MEMORY
#define OF_REQUEST KEY_SCV_NUMBER, KEY_SCV_MEMORY, KEY_SCV_CLOCK, KEY_GPU_COUNT

/* The CEL list in the order of `keys`, which end with NULL. New. */
static char *cel_list(const char *const *keys)
{
    struct buf out = {0};
    buf_addc(&out, '[');
    for (size_t i = 0; keys[i]; i++)
        buf_printf(&out, "%s'%s'", i ? ", " : "", keys[i]);
    buf_addc(&out, ']');
    return buf_take(&out);
}

/* A list that lacks a key would leave that key to every user. */
START_TEST(the_policies_name_every_key_of_a_promise)
{
    static const struct {
        const char *file;
        size_t promise, request, both;
    } files[] = {{"manifests/promise-policy.yaml", 2, 1, 2},
                 {"manifests/device-plugin-policy.yaml", 1, 0, 0}};
    cleanup_free char *promise = cel_list(ARGV(OF_PROMISE));
    cleanup_free char *request = cel_list(ARGV(OF_REQUEST));
    cleanup_free char *both = cel_list(ARGV(OF_PROMISE, OF_REQUEST));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_json json_t *all = json_array();
        yamlfile_read(all, files[i].file);
        cleanup_free char *text = json_dumps(all, 0);
        ck_assert_uint_eq(count_text(text, promise), files[i].promise);
        ck_assert_uint_eq(count_text(text, request), files[i].request);
        ck_assert_uint_eq(count_text(text, both), files[i].both);
    }
    cleanup_json json_t *all = json_array();
    yamlfile_read(all, "manifests/extender-policy.yaml");
    cleanup_free char *text = json_dumps(all, 0);
    ck_assert_uint_gt(count_text(text, "k == '" KEY_ROOM_SINCE "'"), 0);
}

/* -- the schema of the Scv -- */

static bool is_of_type(const json_t *j, const char *type)
{
    return (strcmp(type, "object") == 0 && json_is_object(j)) ||
           (strcmp(type, "array") == 0 && json_is_array(j)) ||
           (strcmp(type, "string") == 0 && json_is_string(j)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(j)) ||
           (strcmp(type, "integer") == 0 && json_is_integer(j));
}

/* Validates as the API server does, but fails the test for an unknown field, which the
 * API server drops. */
static void validate(const json_t *schema, const json_t *j, const char *where)
{
    const char *key;
    size_t i;
    json_t *v, *minimum = lib_at(schema, "minimum");
    ck_assert_msg(is_of_type(j, lib_str(schema, "type")), "%s is no %s", where,
                  lib_str(schema, "type"));
    if (minimum)
        ck_assert_msg(json_integer_value(j) >= json_integer_value(minimum),
                      "%s is too small", where);
    json_array_foreach(lib_at(schema, "required"), i, v)
        ck_assert_msg(lib_at(j, lib_str(v, "")) != NULL, "%s has no %s", where, lib_str(v, ""));
    json_array_foreach(json_is_array(j) ? j : NULL, i, v)
        validate(lib_at(schema, "items"), v, where);
    if (!json_is_object(j) || !lib_at(schema, "properties"))
        return;
    json_object_foreach((json_t *)j, key, v)
    {
        json_t *inner = json_object_get(lib_at(schema, "properties"), key);
        cleanup_free char *path = xasprintf("%s.%s", where, key);
        ck_assert_msg(inner != NULL, "the schema has no field %s", path);
        validate(inner, v, path);
    }
}

START_TEST(the_schema_has_every_field_of_an_scv)
{
    cleanup_json json_t *crd = read_one("manifests/crd.yaml");
    cleanup_json json_t *all = manifest_all();
    json_t *version = lib_at(crd, "spec.versions.0"), *j;
    json_t *schema = lib_at(version, "schema.openAPIV3Schema");
    size_t i, scvs = 0;
    ck_assert_str_eq(lib_str(crd, "metadata.name"), "scvs.core.run-linux.com");
    ck_assert_str_eq(lib_str(crd, "spec.group"), "core.run-linux.com");
    ck_assert_str_eq(lib_str(crd, "spec.names.plural"), "scvs");
    ck_assert_str_eq(lib_str(crd, "spec.names.kind"), "Scv");
    ck_assert_str_eq(lib_str(crd, "spec.scope"), "Cluster");
    ck_assert_str_eq(lib_str(version, "name"), "v1");
    ck_assert_ptr_null(lib_at(version, "subresources"));
    /* A structural schema gives only the type of "metadata". */
    ck_assert_uint_eq(json_object_size(lib_at(schema, "properties.metadata")), 1);
    json_object_del(lib_at(schema, "properties"), "metadata");
    json_array_foreach(all, i, j)
    {
        if (strcmp(lib_str(j, "kind"), "Scv") != 0)
            continue;
        json_object_del(j, "metadata");
        validate(schema, j, "Scv");
        scvs++;
    }
    ck_assert_uint_eq(scvs, 3);
    /* Every field that the sniffer writes. */
    cleanup_json json_t *full = json_load_file("test/golden/scv/full.json", 0, NULL);
    ck_assert_ptr_nonnull(full);
    json_object_del(full, "metadata");
    validate(schema, full, "Scv");
}

LIB_MAIN("manifests", 120, every_file_loads_into_kube_sim,
         the_policies_name_every_key_of_a_promise, the_schema_has_every_field_of_an_scv)
