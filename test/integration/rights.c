/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/rights.h"

#include "lib/yamlfile.h"

static void add_rule(struct rights *rights, const json_t *rule, const char *ns)
{
    size_t i;
    json_t *group, *resource, *verb;
    const json_t *names = lib_at(rule, "resourceNames");
    lib_each(group, lib_at(rule, "apiGroups"))
        lib_each(resource, lib_at(rule, "resources"))
            lib_each(verb, lib_at(rule, "verbs")) {
                i = 0;
                do {
                    ck_assert_uint_lt(rights->n, RIGHTS);
                    rights->r[rights->n++] =
                        (struct right){lib_str(verb, ""),
                                       lib_str(group, ""),
                                       lib_str(resource, ""),
                                       ns,
                                       json_string_value(json_array_get(names, i)),
                                       0};
                } while (++i < json_array_size(names));
            }
}

/* "KIND NAMESPACE NAME". */
static char *id_of(const char *kind, const json_t *object, const char *name)
{
    return lib_fmt("%s %s %s", kind, lib_str(object, "metadata.namespace"), name);
}

/* The rules of the binding's role. */
static const json_t *rules_of(const json_t *all, const json_t *binding)
{
    json_t *j;
    const char *want = id_of(lib_str(binding, "roleRef.kind"), binding,
                             lib_str(binding, "roleRef.name"));
    lib_each(j, all) {
        if (strcmp(want, id_of(lib_str(j, "kind"), j, lib_str(j, "metadata.name"))) == 0)
            return lib_at(j, "rules");
    }
    ck_abort_msg("there is no %s", want);
    return NULL;
}

void rights_read(struct rights *rights, const char *const *files, const char *workload)
{
    size_t bindings = 0;
    json_t *j, *rule, *all = lib_own(json_array());
    *rights = (struct rights){0};
    for (; *files; files++)
        yamlfile_read(all, *files);
    const json_t *runs = of_kind(all, workload);
    const char *account =
        lib_fmt("[{\"kind\":\"ServiceAccount\",\"name\":%s,\"namespace\":%s}]",
                lib_text(runs, "spec.template.spec.serviceAccountName"),
                lib_text(runs, "metadata.namespace"));
    lib_each(j, all) {
        const char *kind = lib_str(j, "kind");
        rights->roles += strcmp(kind, "Role") == 0 || strcmp(kind, "ClusterRole") == 0;
        bool bound_in_one = strcmp(kind, "RoleBinding") == 0;
        if (!bound_in_one && strcmp(kind, "ClusterRoleBinding") != 0)
            continue;
        bindings++;
        ck_assert_str_eq(lib_text(j, "subjects"), account);
        lib_each(rule, rules_of(all, j))
            add_rule(rights, rule,
                     bound_in_one ? lib_str(j, "metadata.namespace") : NULL);
    }
    ck_assert_uint_eq(rights->roles, bindings);
    ck_assert_uint_gt(rights->n, 0);
}

/* Fault rules that never fire; kube-sim counts their matches. */
void rights_count(const struct peer *api, const struct rights *rights)
{
    json_t *rules = lib_own(json_array());
    for (size_t i = 0; i < rights->n; i++) {
        const struct right *r = &rights->r[i];
        const char *slash = strchr(r->resource, '/');
        json_array_append_new(
            rules, json_pack("{s:s, s:s, s:s%, s:s, s:i, s:s, s:s*, s:s*}", "verb",
                             r->verb, "group", r->group, "resource", r->resource,
                             strcspn(r->resource, "/"), "subresource",
                             slash ? slash + 1 : "", "nth", INT32_MAX, "action", "cut",
                             "namespace", r->ns, "name", r->name));
    }
    peer_do(api, "POST", "/kube-sim/faults", lib_text(rules, ""));
}

/* Does it grant the requests of this counter? */
static bool is_right(const struct right *r, const json_t *counter)
{
    const char *sub = lib_str(counter, "subresource");
    return strcmp(lib_fmt("%s %s %s%s%s", lib_str(counter, "verb"),
                          lib_str(counter, "group"), lib_str(counter, "resource"),
                          *sub ? "/" : "", sub),
                  lib_fmt("%s %s %s", r->verb, r->group, r->resource)) == 0;
}

void rights_check(const struct peer *api, struct rights *rights)
{
    json_t *counters, *faults, *c;
    size_t i;
    do { /* both at one time: the program may call meanwhile */
        faults = peer_get(api, "/kube-sim/faults");
        counters = peer_get(api, "/kube-sim/counters");
    } while (!json_equal(faults, peer_get(api, "/kube-sim/faults")));
    const json_t *rules = lib_at(faults, "rules");
    ck_assert_uint_ge(json_array_size(rules), rights->n);
    for (i = 0; i < rights->n; i++)
        rights->r[i].covered += lib_int(json_array_get(rules, i), "matched");
    lib_each(c, lib_at(counters, "requests")) {
        json_int_t granted = 0;
        for (size_t k = 0; k < rights->n; k++)
            if (is_right(&rights->r[k], c))
                granted += lib_int(json_array_get(rules, k), "matched");
        ck_assert_msg(granted == lib_int(c, "count"), "the rules cover %lld of %s",
                      (long long)granted, lib_text(c, ""));
    }
}

void rights_used(const struct rights *rights)
{
    for (size_t i = 0; i < rights->n; i++)
        ck_assert_msg(rights->r[i].covered > 0, "granted but unused: %s %s in %s",
                      rights->r[i].verb, rights->r[i].resource,
                      rights->r[i].ns ? rights->r[i].ns : "all namespaces");
}
