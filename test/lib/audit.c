/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/audit.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/cluster.h"

enum { LOG_MAX = 1 << 30, RIGHTS = 64 };
#define SYSTEM "kube-system"
#define RBAC   "/apis/rbac.authorization.k8s.io/v1/"

/* Calls fn for each request of the service account in the API server's audit log. Returns
 * their number. */
static size_t each_entry(const char *account, void (*fn)(const json_t *entry, void *ctx),
                         void *ctx)
{
    cleanup_free char *user = xasprintf("system:serviceaccount:" SYSTEM ":%s", account);
    cleanup_free char *path = temp_path(cluster.dir, "log/audit.log");
    cleanup_buf struct buf log = {0};
    struct err err = {0};
    size_t n = 0;
    ck_assert_done(file_read(path, LOG_MAX, &log, &err), err);
    for (struct span rest = buf_span(&log); rest.n;) {
        struct span line = span_cut(&rest, '\n');
        if (!memmem(line.p, line.n, user, strlen(user)))
            continue;
        cleanup_json json_t *entry = json_loadb(line.p, line.n, 0, NULL);
        if (strcmp(lib_str(entry, "user.username"), user) != 0)
            continue;
        fn(entry, ctx);
        n++;
    }
    return n;
}

static void check(const json_t *entry, void *ctx)
{
    json_t *annotations = lib_at(entry, "annotations");
    const char *decision =
        json_string_value(json_object_get(annotations, "authorization.k8s.io/decision"));
    const char *reason =
        json_string_value(json_object_get(annotations, "authorization.k8s.io/reason"));
    json_int_t code = json_integer_value(lib_at(entry, "responseStatus.code"));
    cleanup_free char *subject =
        xasprintf("to ServiceAccount \"%s/" SYSTEM "\"", (const char *)ctx);
    ck_assert_msg(decision && strcmp(decision, "allow") == 0 && reason &&
                      strstr(reason, subject) && code != 401 && code != 403,
                  "%s %s: %d, %s, %s", lib_str(entry, "verb"),
                  lib_str(entry, "requestURI"), (int)code, decision ? decision : "",
                  reason ? reason : "");
}

void audit_check(const char *account)
{
    ck_assert_uint_gt(each_entry(account, check, (void *)account), 0);
}

struct count {
    const char *verb, *resource;
    size_t n;
};

/* "pods/binding". New. */
static char *resource_of(const json_t *entry)
{
    const char *sub = lib_str(entry, "objectRef.subresource");
    return xasprintf("%s%s%s", lib_str(entry, "objectRef.resource"), *sub ? "/" : "",
                     sub);
}

static void count(const json_t *entry, void *ctx)
{
    struct count *c = ctx;
    cleanup_free char *resource = resource_of(entry);
    c->n += strcmp(lib_str(entry, "verb"), c->verb) == 0 &&
            strcmp(resource, c->resource) == 0;
}

size_t audit_count(const char *verb, const char *resource)
{
    struct count c = {verb, resource, 0};
    each_entry(AUDIT_EXTENDER, count, &c);
    return c.n;
}

/* -- the rules -- */

/* One verb of a rule for one resource. */
struct right {
    const char *verb, *group, *resource;
    const char *ns, *name; /* "": all */
    size_t used;
};

struct rights {
    struct right r[RIGHTS];
    size_t n;
    json_t *roles; /* an array, which owns the strings */
};

static void add_verbs(struct rights *rights, const json_t *rule, struct right r)
{
    json_t *names = lib_at(rule, "resourceNames"), *name;
    size_t i, k;
    json_t *verb;
    json_array_foreach(lib_at(rule, "verbs"), i, verb)
    {
        r.verb = json_string_value(verb);
        ck_assert_uint_lt(rights->n + json_array_size(names), RIGHTS);
        if (json_array_size(names) == 0)
            rights->r[rights->n++] = r;
        json_array_foreach(names, k, name)
        {
            r.name = json_string_value(name);
            rights->r[rights->n++] = r;
        }
    }
}

static void add_rules(struct rights *rights, const json_t *role, const char *ns)
{
    size_t i, k, n;
    json_t *rule, *group, *resource;
    json_array_foreach(lib_at(role, "rules"), i, rule)
    {
        json_array_foreach(lib_at(rule, "apiGroups"), k, group)
        {
            json_array_foreach(lib_at(rule, "resources"), n, resource)
            {
                add_verbs(rights, rule,
                          (struct right){.group = json_string_value(group),
                                         .resource = json_string_value(resource),
                                         .ns = ns,
                                         .name = ""});
            }
        }
    }
}

static bool binds(const json_t *binding, const char *account)
{
    const json_t *first = json_array_get(lib_at(binding, "subjects"), 0);
    return strcmp(lib_str(binding, "roleRef.name"), account) == 0 &&
           strcmp(lib_str(first, "kind"), "ServiceAccount") == 0 &&
           strcmp(lib_str(first, "namespace"), SYSTEM) == 0 &&
           strcmp(lib_str(first, "name"), account) == 0;
}

/* Adds the rules that these bindings grant. */
static void read_bindings(struct rights *rights, const char *account, const char *kind)
{
    cleanup_free char *path = xasprintf(RBAC "%s", kind);
    json_t *bindings = cluster_items(path), *binding;
    size_t i;
    json_array_append_new(rights->roles, bindings);
    json_array_foreach(bindings, i, binding)
    {
        const char *ns = lib_str(binding, "metadata.namespace");
        if (!binds(binding, account))
            continue;
        cleanup_free char *role =
            strcmp(lib_str(binding, "roleRef.kind"), "Role") == 0
                ? xasprintf(RBAC "namespaces/%s/roles/%s", ns, account)
                : xasprintf(RBAC "clusterroles/%s", account);
        json_t *j = peer_json(&cluster.api, "GET", role, NULL);
        json_array_append_new(rights->roles, j);
        add_rules(rights, j, ns);
    }
}

static void use(const json_t *entry, void *ctx)
{
    struct rights *rights = ctx;
    cleanup_free char *resource = resource_of(entry);
    for (size_t i = 0; i < rights->n; i++) {
        struct right *r = &rights->r[i];
        r->used +=
            strcmp(r->verb, lib_str(entry, "verb")) == 0 &&
            strcmp(r->group, lib_str(entry, "objectRef.apiGroup")) == 0 &&
            strcmp(r->resource, resource) == 0 &&
            (!*r->ns || strcmp(r->ns, lib_str(entry, "objectRef.namespace")) == 0) &&
            (!*r->name || strcmp(r->name, lib_str(entry, "objectRef.name")) == 0);
    }
}

/* Lists the rights that no request has used. */
static void add_unused(struct rights *rights, const char *account, struct buf *out)
{
    for (size_t i = 0; i < rights->n; i++)
        rights->r[i].used = 0;
    each_entry(account, use, rights);
    buf_clear(out);
    for (size_t i = 0; i < rights->n; i++) {
        const struct right *r = &rights->r[i];
        if (!r->used)
            buf_printf(out, "%s %s %s in \"%s\"; ", r->verb, r->resource, r->name, r->ns);
    }
}

void audit_check_used(const char *account)
{
    struct rights rights = {.roles = json_array()};
    cleanup_buf struct buf unused = {0};
    int64_t end = lib_now_ms() + PROGRAM_WAIT_MS;
    read_bindings(&rights, account, "clusterrolebindings");
    read_bindings(&rights, account, "rolebindings");
    ck_assert_uint_gt(rights.n, 0);
    for (add_unused(&rights, account, &unused); unused.n;
         add_unused(&rights, account, &unused)) {
        ck_assert_msg(lib_now_ms() < end, "%s has rights that it never used: %s", account,
                      unused.p);
        lib_pause();
    }
    json_decref(rights.roles);
}
