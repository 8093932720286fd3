/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/rights.h"

#include "lib/manifest.h"

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
    const json_t *names = at(rule, "resourceNames");
    json_array_foreach(at(rule, "apiGroups"), g, group)
    {
        json_array_foreach(at(rule, "resources"), s, resource)
        {
            json_array_foreach(at(rule, "verbs"), v, verb)
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
        if (strcmp(str_at(j, "kind"), str_at(binding, "roleRef/kind")) == 0 &&
            strcmp(str_at(j, "metadata/name"), str_at(binding, "roleRef/name")) == 0 &&
            strcmp(str_at(j, "metadata/namespace"),
                   str_at(binding, "metadata/namespace")) == 0)
            return j;
    }
    ck_abort_msg("there is no %s %s", str_at(binding, "roleRef/kind"),
                 str_at(binding, "roleRef/name"));
    return NULL;
}

/* The binding's subject must be the workload's service account. */
static void check_subject(const json_t *workload, const json_t *binding)
{
    ck_assert_uint_eq(json_array_size(at(binding, "subjects")), 1);
    ck_assert_str_eq(str_at(binding, "subjects/0/kind"), "ServiceAccount");
    ck_assert_str_eq(str_at(binding, "subjects/0/name"),
                     str_at(workload, "spec/template/spec/serviceAccountName"));
    ck_assert_str_eq(str_at(binding, "subjects/0/namespace"),
                     str_at(workload, "metadata/namespace"));
}

void rights_read(struct rights *rights, const char *const *files, const char *workload)
{
    size_t i, k, bindings = 0;
    json_t *j, *rule;
    *rights = (struct rights){.all = json_array()};
    for (; *files; files++)
        manifest_read(rights->all, *files);
    const json_t *runs = of_kind(rights->all, workload);
    json_array_foreach(rights->all, i, j)
    {
        const char *kind = str_at(j, "kind");
        rights->roles += strcmp(kind, "Role") == 0 || strcmp(kind, "ClusterRole") == 0;
        bool bound_in_one = strcmp(kind, "RoleBinding") == 0;
        if (!bound_in_one && strcmp(kind, "ClusterRoleBinding") != 0)
            continue;
        bindings++;
        check_subject(runs, j);
        json_array_foreach(at(role_of(rights->all, j), "rules"), k, rule)
            add_rule(rights, rule, bound_in_one ? str_at(j, "metadata/namespace") : NULL);
    }
    ck_assert_uint_eq(rights->roles, bindings);
    ck_assert_uint_gt(rights->n, 0);
}

void rights_fini(struct rights *rights)
{
    json_decref(rights->all);
}

/* Fault rules that never fire; kube-sim counts their matches. */
void rights_count(unsigned port, const struct rights *rights)
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
    ck_assert_uint_eq(ask(port, "POST", "/kube-sim/faults", body, NULL), 200);
}

static json_t *get(unsigned port, const char *path)
{
    json_t *j = NULL;
    ck_assert_uint_eq(ask(port, "GET", path, "", &j), 200);
    return j;
}

static bool is_right(const struct right *r, const json_t *counter)
{
    const char *sub = str_at(counter, "subresource");
    cleanup_free char *resource =
        xasprintf("%s%s%s", str_at(counter, "resource"), *sub ? "/" : "", sub);
    return strcmp(str_at(counter, "verb"), r->verb) == 0 &&
           strcmp(str_at(counter, "group"), r->group) == 0 &&
           strcmp(resource, r->resource) == 0;
}

/* The counters of both kinds at one time: the program may call meanwhile. */
static void read_counters(unsigned port, json_t **counters, json_t **faults)
{
    bool same = false;
    *faults = get(port, "/kube-sim/faults");
    *counters = NULL;
    while (!same) {
        json_t *before = *faults;
        json_decref(*counters);
        *counters = get(port, "/kube-sim/counters");
        *faults = get(port, "/kube-sim/faults");
        same = json_equal(before, *faults);
        json_decref(before);
    }
}

void rights_check(unsigned port, struct rights *rights)
{
    cleanup_json json_t *counters = NULL, *faults = NULL;
    read_counters(port, &counters, &faults);
    json_t *rules = at(faults, "rules"), *c;
    size_t i;
    ck_assert_uint_ge(json_array_size(rules), rights->n);
    for (i = 0; i < rights->n; i++)
        rights->covered[i] += json_integer_value(at(json_array_get(rules, i), "matched"));
    json_array_foreach(at(counters, "requests"), i, c)
    {
        json_int_t granted = 0, asked = json_integer_value(at(c, "count"));
        for (size_t k = 0; k < rights->n; k++)
            if (is_right(&rights->r[k], c))
                granted += json_integer_value(at(json_array_get(rules, k), "matched"));
        ck_assert_msg(granted == asked,
                      "%s %s %s %s: %lld requests, the rules cover %lld",
                      str_at(c, "verb"), str_at(c, "group"), str_at(c, "resource"),
                      str_at(c, "subresource"), (long long)asked, (long long)granted);
    }
}

void rights_used(const struct rights *rights)
{
    for (size_t i = 0; i < rights->n; i++)
        ck_assert_msg(rights->covered[i] > 0, "granted but unused: %s %s in %s",
                      rights->r[i].verb, rights->r[i].resource,
                      rights->r[i].ns ? rights->r[i].ns : "all namespaces");
}
