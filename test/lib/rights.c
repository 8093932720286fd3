/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/rights.h"

#include "base/mem.h"
#include "lib/peer.h"
#include "lib/yamlfile.h"

static void add_right(struct rights *rights, const char *verb, const char *group,
                      const char *resource, const char *ns, const json_t *names)
{
    size_t i = 0;
    do {
        ck_assert_uint_lt(rights->n, RIGHTS);
        rights->r[rights->n++] =
            (struct right){verb, group, resource, ns,
                           names ? json_string_value(json_array_get(names, i)) : NULL};
    } while (++i < json_array_size(names));
}

static void add_rule(struct rights *rights, const json_t *rule, const char *ns)
{
    size_t g, s, v;
    json_t *group, *resource, *verb;
    const json_t *names = lib_at(rule, "resourceNames");
    json_array_foreach(lib_at(rule, "apiGroups"), g, group)
    {
        json_array_foreach(lib_at(rule, "resources"), s, resource)
        {
            json_array_foreach(lib_at(rule, "verbs"), v, verb)
            {
                add_right(rights, json_string_value(verb), json_string_value(group),
                          json_string_value(resource), ns, names);
            }
        }
    }
}

/* The rules of the binding's role. */
static const json_t *role_of(const json_t *all, const json_t *binding)
{
    size_t i;
    json_t *j;
    json_array_foreach(all, i, j)
    {
        if (strcmp(lib_str(j, "kind"), lib_str(binding, "roleRef.kind")) == 0 &&
            strcmp(lib_str(j, "metadata.name"), lib_str(binding, "roleRef.name")) == 0 &&
            strcmp(lib_str(j, "metadata.namespace"),
                   lib_str(binding, "metadata.namespace")) == 0)
            return j;
    }
    ck_abort_msg("there is no %s %s", lib_str(binding, "roleRef.kind"),
                 lib_str(binding, "roleRef.name"));
    return NULL;
}

/* The binding's subject must be the workload's service account. */
static void check_subject(const json_t *workload, const json_t *binding)
{
    ck_assert_uint_eq(json_array_size(lib_at(binding, "subjects")), 1);
    ck_assert_str_eq(lib_str(binding, "subjects.0.kind"), "ServiceAccount");
    ck_assert_str_eq(lib_str(binding, "subjects.0.name"),
                     lib_str(workload, "spec.template.spec.serviceAccountName"));
    ck_assert_str_eq(lib_str(binding, "subjects.0.namespace"),
                     lib_str(workload, "metadata.namespace"));
}

void rights_read(struct rights *rights, const char *const *files, const char *workload)
{
    size_t i, k, bindings = 0;
    json_t *j, *rule;
    *rights = (struct rights){.all = json_array()};
    for (; *files; files++)
        yamlfile_read(rights->all, *files);
    const json_t *runs = of_kind(rights->all, workload);
    json_array_foreach(rights->all, i, j)
    {
        const char *kind = lib_str(j, "kind");
        rights->roles += strcmp(kind, "Role") == 0 || strcmp(kind, "ClusterRole") == 0;
        bool bound_in_one = strcmp(kind, "RoleBinding") == 0;
        if (!bound_in_one && strcmp(kind, "ClusterRoleBinding") != 0)
            continue;
        bindings++;
        check_subject(runs, j);
        json_array_foreach(lib_at(role_of(rights->all, j), "rules"), k, rule)
            add_rule(rights, rule, bound_in_one ? lib_str(j, "metadata.namespace") : NULL);
    }
    ck_assert_uint_eq(rights->roles, bindings);
    ck_assert_uint_gt(rights->n, 0);
}

void rights_fini(struct rights *rights)
{
    json_decref(rights->all);
}

/* Fault rules that never fire; kube-sim counts their matches. */
void rights_count(const struct peer *api, const struct rights *rights)
{
    cleanup_json json_t *rules = json_array();
    for (size_t i = 0; i < rights->n; i++) {
        const struct right *r = &rights->r[i];
        const char *slash = strchr(r->resource, '/');
        int n = (int)strcspn(r->resource, "/");
        json_t *rule =
            json_pack("{s:s, s:s, s:s%, s:s, s:i, s:s}", "verb", r->verb, "group",
                      r->group, "resource", r->resource, (size_t)n, "subresource",
                      slash ? slash + 1 : "", "nth", INT32_MAX, "action", "cut");
        if (r->ns)
            json_object_set_new(rule, "namespace", json_string(r->ns));
        if (r->name)
            json_object_set_new(rule, "name", json_string(r->name));
        json_array_append_new(rules, rule);
    }
    cleanup_free char *body = json_dumps(rules, 0);
    cleanup_buf struct buf reply = {0};
    ck_assert_uint_eq(peer_call(api, "POST", "/kube-sim/faults", body, &reply), 200);
}

static bool is_right(const struct right *r, const json_t *counter)
{
    const char *sub = lib_str(counter, "subresource");
    cleanup_free char *resource =
        xasprintf("%s%s%s", lib_str(counter, "resource"), *sub ? "/" : "", sub);
    return strcmp(lib_str(counter, "verb"), r->verb) == 0 &&
           strcmp(lib_str(counter, "group"), r->group) == 0 &&
           strcmp(resource, r->resource) == 0;
}

/* The counters of both kinds at one time: the program may call meanwhile. */
static void read_counters(const struct peer *api, json_t **counters, json_t **faults)
{
    bool same = false;
    *faults = peer_json(api, "GET", "/kube-sim/faults", NULL);
    *counters = NULL;
    while (!same) {
        json_t *before = *faults;
        json_decref(*counters);
        *counters = peer_json(api, "GET", "/kube-sim/counters", NULL);
        *faults = peer_json(api, "GET", "/kube-sim/faults", NULL);
        same = json_equal(before, *faults);
        json_decref(before);
    }
}

void rights_check(const struct peer *api, struct rights *rights)
{
    cleanup_json json_t *counters = NULL, *faults = NULL;
    read_counters(api, &counters, &faults);
    json_t *rules = lib_at(faults, "rules"), *c;
    size_t i;
    ck_assert_uint_ge(json_array_size(rules), rights->n);
    for (i = 0; i < rights->n; i++)
        rights->covered[i] += json_integer_value(lib_at(json_array_get(rules, i), "matched"));
    json_array_foreach(lib_at(counters, "requests"), i, c)
    {
        json_int_t granted = 0, asked = json_integer_value(lib_at(c, "count"));
        for (size_t k = 0; k < rights->n; k++)
            if (is_right(&rights->r[k], c))
                granted += json_integer_value(lib_at(json_array_get(rules, k), "matched"));
        ck_assert_msg(granted == asked,
                      "%s %s %s %s: %lld requests, the rules cover %lld",
                      lib_str(c, "verb"), lib_str(c, "group"), lib_str(c, "resource"),
                      lib_str(c, "subresource"), (long long)asked, (long long)granted);
    }
}

void rights_used(const struct rights *rights)
{
    for (size_t i = 0; i < rights->n; i++)
        ck_assert_msg(rights->covered[i] > 0, "granted but unused: %s %s in %s",
                      rights->r[i].verb, rights->r[i].resource,
                      rights->r[i].ns ? rights->r[i].ns : "all namespaces");
}
