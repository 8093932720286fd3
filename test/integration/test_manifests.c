/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "domain/ledger.h"
#include "lib/doc.h"
#include "lib/sim.h"
#include "lib/yamlfile.h"

/*
 * manifests/: kube-sim loads every file and knows its kinds; the schema of the Scv has every
 * field that Scvs have; the samples for other programs set only fields that these have
 * (test/data/operators), and their objects belong together.
 */

#define FILES "manifests/{,samples/,demo/}*.yaml"

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
    {"Deployment", "apps/v1", true},
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
    array_items(c, known)
        if (strcmp(lib_str(object, "kind"), c->kind) == 0 &&
            strcmp(lib_str(object, "apiVersion"), c->version) == 0)
            return c;
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

TEST(an_update_of_the_nodes_waits_for_each_pod)
{
    size_t n = 0;
    json_t *j, *all = yamlfile_all("manifests/*.yaml");
    lib_each(j, all) {
        if (strcmp(lib_str(j, "kind"), "DaemonSet") != 0)
            continue;
        ck_assert_int_ge(lib_int(j, "spec.minReadySeconds"), 10);
        n++;
    }
    ck_assert_uint_eq(n, 1);
}

TEST(every_file_loads_into_kube_sim)
{
    struct sim sim;
    const char *options[PROGRAM_ARGS] = {NULL};
    size_t n = 0, i, skipped = 0;
    json_t *j;
    for (const char *const *file = lib_glob(FILES); *file; file++)
        n = program_args(options, n, ARGV("--load", *file));
    ck_assert_uint_gt(n, 20);
    sim_start(&sim, options);
    lib_each(j, yamlfile_all(FILES)) {
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
}

/* -- the keys of the admission policies -- */

#define OF_PROMISE                                                                       \
    KEY_MEM_IDX, KEY_MEM_DEV, KEY_MEM_POD, KEY_MEM_ASSIGNED, KEY_MEM_ASSUME_TIME,        \
        KEY_ALLOCATION, KEY_CARD_UUID, KEY_CARD_MEMORY, KEY_MEMORY_UNIT
#define OF_REQUEST                                                                       \
    KEY_SCV_NUMBER, KEY_SCV_MEMORY, KEY_SCV_CLOCK, KEY_GPU_COUNT, KEY_MEMORY

/* How often the file has the CEL list of these keys, which end with NULL. */
static size_t count_list(const char *text, const char *const *keys)
{
    const char *list = lib_fmt("['%s'", *keys);
    while (*++keys)
        list = lib_fmt("%s, '%s'", list, *keys);
    return count_text(text, lib_fmt("%s]", list));
}

/* A list that lacks a key would leave that key to every user. */
TEST(the_policies_name_every_key_of_a_promise)
{
    static const struct {
        const char *file;
        size_t promise, request, both;
    } files[] = {{"manifests/promise-policy.yaml", 2, 1, 2},
                 {"manifests/node-policy.yaml", 1, 0, 0}};
    array_items(f, files) {
        const char *text = lib_text(yamlfile_all(f->file), "");
        ck_assert_uint_eq(count_list(text, ARGV(OF_PROMISE)), f->promise);
        ck_assert_uint_eq(count_list(text, ARGV(OF_REQUEST)), f->request);
        ck_assert_uint_eq(count_list(text, ARGV(OF_PROMISE, OF_REQUEST)), f->both);
    }
    ck_assert_uint_eq(
        count_list(lib_text(yamlfile_all("manifests/hami-policy.yaml.example"), ""),
                   ARGV("hami.io/vgpu-node", "hami.io/vgpu-devices-allocated")),
        2);
    ck_assert_contains(lib_text(yamlfile_all("manifests/extender-policy.yaml"), ""),
                       "k == '" KEY_ROOM_SINCE "'");
}

/* -- schemas -- */

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
    json_t *v, *minimum = lib_at(schema, "minimum");
    ck_assert_msg(schema != NULL, "there is no field %s", where);
    ck_assert_msg(is_of_type(j, lib_str(schema, "type")), "%s is no %s", where,
                  lib_str(schema, "type"));
    if (minimum)
        ck_assert_msg(json_integer_value(j) >= json_integer_value(minimum),
                      "%s is too small", where);
    lib_each(v, lib_at(schema, "required"))
        ck_assert_msg(lib_at(j, lib_str(v, "")) != NULL, "%s has no %s", where,
                      lib_str(v, ""));
    lib_each(v, json_is_array(j) ? j : NULL)
        validate(lib_at(schema, "items"), v, lib_fmt("%s[]", where));
    json_object_foreach((json_t *)j, key, v)
    {
        json_t *any = lib_at(schema, "additionalProperties"),
               *inner = json_object_get(lib_at(schema, "properties"), key);
        validate(inner ? inner : any, v, lib_fmt("%s.%s", where, key));
    }
}

TEST(the_schema_has_every_field_of_an_scv)
{
    json_t *crd = yamlfile_one("manifests/crd.yaml"), *all = yamlfile_all(FILES), *j;
    json_t *version = lib_at(crd, "spec.versions.0");
    json_t *schema = lib_at(version, "schema.openAPIV3Schema");
    size_t scvs = 0;
    ck_assert_at(crd, "metadata.name", "scvs.core.run-linux.com");
    ck_assert_at(crd, "spec.group", "core.run-linux.com");
    ck_assert_at(crd, "spec.names.plural", "scvs");
    ck_assert_at(crd, "spec.names.kind", "Scv");
    ck_assert_at(crd, "spec.scope", "Cluster");
    ck_assert_at(version, "name", "v1");
    ck_assert_ptr_null(lib_at(version, "subresources"));
    /* A structural schema gives only the type of "metadata". */
    ck_assert_uint_eq(json_object_size(lib_at(schema, "properties.metadata")), 1);
    json_object_del(lib_at(schema, "properties"), "metadata");
    /* Every field that the sniffer writes. */
    json_array_append_new(all, json_load_file("test/golden/scv/full.json", 0, NULL));
    lib_each(j, all) {
        if (strcmp(lib_str(j, "kind"), "Scv") != 0)
            continue;
        json_object_del(j, "metadata");
        validate(schema, j, "Scv");
        scvs++;
    }
    ck_assert_uint_eq(scvs, 4);
}

/* -- the samples for Kueue and Karpenter, whose resource definitions are not in this
 * project -- */

TEST(samples_set_only_fields_that_exist)
{
    json_t *schemas = yamlfile_one("test/data/operators/schemas.yaml"),
           *all = yamlfile_all("manifests/samples/*/*.yaml.example"), *j;
    lib_each(j, all) {
        const char *kind = lib_fmt("%s/%s", lib_str(j, "apiVersion"), lib_str(j, "kind"));
        if (strcmp(kind, "batch/v1/Job") != 0)
            validate(json_object_get(schemas, kind), lib_at(j, "spec"), kind);
    }
    ck_assert_uint_ge(json_array_size(all), 5);
}

/* It runs before anything is installed, and asks for no card that others have. */
TEST(the_check_of_a_card_needs_nothing_else)
{
    const json_t *pod = yamlfile_one("manifests/card-check.yaml.example"),
                 *plugin = of_kind(yamlfile_all("manifests/node.yaml"), "DaemonSet");
    const char *image = lib_str(plugin, "spec.template.spec.containers.0.image");
    ck_assert_at(pod, "kind", "Pod");
    ck_assert_at(pod, "spec.restartPolicy", "Never");
    ck_assert_at(pod, "spec.initContainers.0.image", image);
    ck_assert_at(pod, "spec.containers.0.image", image);
    ck_assert_lacks(lib_text(pod, "spec"), ".com/gpu");
    ck_assert_lacks(lib_text(pod, "spec"), "serviceAccountName");
    ck_assert_int_ge(lib_int(pod, "spec.activeDeadlineSeconds"), 600);
}

/* A queue that refers to nothing admits no job, and neither does one whose quota lacks a
 * resource of the job. */
TEST(the_objects_of_the_queue_belong_together)
{
    const json_t *all = yamlfile_all("manifests/samples/quota/kueue.yaml.example"),
                 *queue = of_kind(all, "ClusterQueue"),
                 *local = of_kind(all, "LocalQueue"), *job = of_kind(all, "Job"),
                 *group = lib_at(queue, "spec.resourceGroups.0");
    const char *covered = lib_text(group, "coveredResources"), *quotas = "";
    size_t i;
    json_t *j;
    const char *key;
    ck_assert_at(group, "flavors.0.name",
                 lib_str(of_kind(all, "ResourceFlavor"), "metadata.name"));
    ck_assert_at(local, "spec.clusterQueue", lib_str(queue, "metadata.name"));
    ck_assert_str_eq(lib_in(job, "metadata.labels", "kueue.x-k8s.io/queue-name"),
                     lib_str(local, "metadata.name"));
    json_array_foreach(lib_at(group, "flavors.0.resources"), i, j) quotas =
        lib_fmt("%s%s\"%s\"", quotas, i ? "," : "", lib_str(j, "name"));
    ck_assert_str_eq(lib_fmt("[%s]", quotas), covered);
    static const char *const asked[] = {"requests", "limits"};
    array_items(a, asked) {
        json_t *some =
            lib_at(lib_at(job, "spec.template.spec.containers.0.resources"), *a);
        json_object_foreach(some, key, j)
            ck_assert_contains(covered, lib_fmt("\"%s\"", key));
    }
    ck_assert_contains(covered, "\"" KEY_GPU_MEM "\"");
    /* The transformation of the comment makes whole cards of it. */
    ck_assert_lacks(covered, KEY_GPU_COUNT);
    const char *text = lib_file("manifests/samples/quota/kueue.yaml.example"),
               *units = strstr(text, "outputs: {" KEY_GPU_MEM ": \"");
    ck_assert(units && strstr(text, "- input: " KEY_GPU_COUNT "\n"));
    units += strlen("outputs: {" KEY_GPU_MEM ": \"");
    ck_assert_int_eq(atoi(lib_str(group, "flavors.0.resources.2.nominalQuota")),
                     4 * atoi(units)); /* cards */
}

/* The capacity of the overlay and the label that the comment names are the same cards. */
TEST(the_overlay_has_the_capacity_of_its_cards)
{
    static const char path[] = "manifests/samples/autoscaling/karpenter.yaml.example";
    struct node_cards cards;
    struct err err;
    const json_t *one = yamlfile_one(path);
    const char *label = strstr(lib_file(path), KEY_CARDS ": ");
    ck_assert_ptr_nonnull(label);
    label += strlen(KEY_CARDS ": ");
    struct span value = {label, strcspn(label, ", \n")};
    ck_assert_done(node_cards_parse(value, &cards, &err), err);
    ck_assert_str_eq(lib_in(one, "spec.capacity", KEY_GPU_MEM),
                     lib_fmt("%lld", (long long)cards.n * (cards.mib / 1024)));
    ck_assert_str_eq(lib_in(one, "spec.capacity", KEY_GPU_COUNT),
                     lib_fmt("%lld", (long long)cards.n));
}

/* -- the way to a running pod -- */

/* Of the block with the commands of this way: how many, and how many values its reader chooses, which
 * are variables. VALUES is the platform's. */
struct way {
    const char *info, *known;
    int n, decisions;
};

static void count_way(const struct doc_part *part, void *ctx)
{
    struct way *w = ctx;
    if (part->kind != DOC_BLOCK || !span_eq(part->info, span_of(w->info)))
        return;
    char *rest = lib_fmt("%.*s", SPAN_ARG(part->text)), *line;
    while ((line = strsep(&rest, "\n"))) {
        w->n += *line && *line != ' ' && *line != '#';
        for (const char *at = line; (at = strchr(at, '$')); at++) {
            const char *name =
                lib_fmt("%.*s ", (int)strspn(at, "$ABCDEFGHIJKLMNOPQRSTUVWXYZ"), at);
            if (strstr(w->known, name))
                continue;
            w->known = lib_fmt("%s%s", w->known, name);
            w->decisions++;
        }
    }
}

/* docs/install.md says how much work each platform is, and its blocks are that much. */
TEST(the_way_to_a_running_pod_is_as_short_as_the_page_says)
{
    struct way ways[] = {{.info = "bash install", .known = "$VALUES "},
                         {.info = "bash other", .known = "$VALUES "}};
    doc_read("README.md", count_way, &ways[0]);
    doc_read("docs/install.md", count_way, &ways[1]);
    array_items(w, ways) {
        ck_assert_int_le(w->n, 5);
        ck_assert_int_le(w->decisions, 2);
        ck_assert_contains(lib_file("docs/install.md"),
                           lib_fmt("%d commands and %d decisions", w->n, w->decisions));
    }
}

LIB_MAIN(120)
