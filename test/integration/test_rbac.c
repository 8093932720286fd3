/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "integration/manifest.h"

/*
 * manifests/rbac.yaml against what the extender does: a real run that makes each of its
 * requests once, and kube-sim's record of them. Nothing may be asked that is not granted,
 * and nothing granted that is never asked.
 */

static char *dir; /* of the test */

/* -- what is granted -- */

struct right {
    const char *verb, *group, *resource; /* pods/binding: with the subresource */
    const char *ns, *name;               /* NULL: all */
};

enum { RIGHTS = 64 };
struct rights {
    struct right r[RIGHTS];
    size_t n;
    json_t *all; /* the strings are here */
};

static void add_rule(struct rights *rights, const json_t *rule, const char *ns)
{
    size_t g, s, v;
    json_t *group, *resource, *verb;
    json_t *names = at(rule, "resourceNames");
    ck_assert_uint_le(json_array_size(names), 1);
    json_array_foreach(at(rule, "apiGroups"), g, group)
    {
        json_array_foreach(at(rule, "resources"), s, resource)
        {
            json_array_foreach(at(rule, "verbs"), v, verb)
            {
                ck_assert_uint_lt(rights->n, RIGHTS);
                rights->r[rights->n++] = (struct right){
                    json_string_value(verb), json_string_value(group),
                    json_string_value(resource), ns,
                    names ? json_string_value(json_array_get(names, 0)) : NULL};
            }
        }
    }
}

/* The rules of the role that the binding names. */
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

/* The account under which the Deployment runs is the one that the binding is for. */
static void check_subject(const json_t *all, const json_t *binding)
{
    const json_t *deployment = of_kind(all, "Deployment");
    ck_assert_uint_eq(json_array_size(at(binding, "subjects")), 1);
    ck_assert_str_eq(str_at(binding, "subjects/0/kind"), "ServiceAccount");
    ck_assert_str_eq(str_at(binding, "subjects/0/name"),
                     str_at(deployment, "spec/template/spec/serviceAccountName"));
    ck_assert_str_eq(str_at(binding, "subjects/0/namespace"),
                     str_at(deployment, "metadata/namespace"));
}

static void read_rights(struct rights *rights)
{
    size_t i, k, roles = 0, bindings = 0;
    json_t *j, *rule;
    *rights = (struct rights){.all = json_array()};
    manifest_read(rights->all, "manifests/deployment.yaml");
    manifest_read(rights->all, "manifests/rbac.yaml");
    json_array_foreach(rights->all, i, j)
    {
        const char *kind = str_at(j, "kind");
        roles += strcmp(kind, "Role") == 0 || strcmp(kind, "ClusterRole") == 0;
        bool bound_in_one = strcmp(kind, "RoleBinding") == 0;
        if (!bound_in_one && strcmp(kind, "ClusterRoleBinding") != 0)
            continue;
        bindings++;
        check_subject(rights->all, j);
        json_array_foreach(at(role_of(rights->all, j), "rules"), k, rule)
            add_rule(rights, rule, bound_in_one ? str_at(j, "metadata/namespace") : NULL);
    }
    ck_assert_uint_eq(roles, bindings);
    ck_assert_uint_gt(rights->n, 0);
}

/* -- one kube-sim and one extender -- */

struct pair {
    struct program sim, extender;
    unsigned api, port;
};

/* kube-sim counts for each right how many requests it covers: rules that are never due.
 */
static void count_rights(const struct pair *p, const struct rights *rights)
{
    cleanup_json json_t *rules = json_array();
    for (size_t i = 0; i < rights->n; i++) {
        const struct right *r = &rights->r[i];
        const char *slash = strchr(r->resource, '/');
        int n = (int)strcspn(r->resource, "/");
        json_t *rule =
            json_pack("{s:s, s:s%, s:s, s:i, s:s}", "verb", r->verb, "resource",
                      r->resource, (size_t)n, "subresource", slash ? slash + 1 : "",
                      "nth", INT32_MAX, "action", "cut");
        if (r->ns)
            json_object_set_new(rule, "namespace", json_string(r->ns));
        if (r->name)
            json_object_set_new(rule, "name", json_string(r->name));
        json_array_append_new(rules, rule);
    }
    cleanup_free char *body = json_dumps(rules, 0);
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/faults", body, NULL), 200);
}

static void pair_start(struct pair *p, const struct rights *rights, const char *lease)
{
    p->api = start_sim(&p->sim, dir, lease ? ARGV("--load", lease) : ARGV(NULL));
    count_rights(p, rights);
    p->port = start_extender(&p->extender, dir, p->api);
}

static bool inspect_says(const struct pair *p, const char *text)
{
    json_t *j;
    ask(p->port, "GET", "/inspect", "", &j);
    cleanup_free char *said = j ? json_dumps(j, JSON_COMPACT) : xstrdup("");
    json_decref(j);
    return strstr(said, text) != NULL;
}

static bool holds(void *ctx)
{
    return inspect_says(ctx, "\"leader\":true");
}

static bool first_waits(void *ctx)
{
    return inspect_says(ctx, "\"uid\":\"uid-first\",\"asks\"");
}

static bool second_waits(void *ctx)
{
    return inspect_says(ctx, "\"uid\":\"uid-second\",\"asks\"");
}

/* -- what is asked -- */

/* How often kube-sim was asked for it. */
static json_int_t asked(const struct pair *p, const struct right *r)
{
    cleanup_json json_t *counters = NULL;
    ck_assert_uint_eq(ask(p->api, "GET", "/kube-sim/counters", "", &counters), 200);
    json_int_t n = 0;
    size_t i;
    json_t *c;
    json_array_foreach(at(counters, "requests"), i, c)
    {
        const char *sub = str_at(c, "subresource");
        cleanup_free char *resource =
            xasprintf("%s%s%s", str_at(c, "resource"), *sub ? "/" : "", sub);
        if (strcmp(str_at(c, "verb"), r->verb) == 0 &&
            strcmp(str_at(c, "group"), r->group) == 0 &&
            strcmp(resource, r->resource) == 0)
            n += json_integer_value(at(c, "count"));
    }
    return n;
}

static bool node_is_marked(void *ctx)
{
    return asked(ctx, &(struct right){"patch", "", "nodes", NULL, NULL}) > 0;
}

/* Each request on record is covered by rights. Adds up what each right covered. */
static void check_record(const struct pair *p, const struct rights *rights,
                         json_int_t *covered)
{
    cleanup_json json_t *counters = NULL, *faults = NULL;
    ck_assert_uint_eq(ask(p->api, "GET", "/kube-sim/counters", "", &counters), 200);
    ck_assert_uint_eq(ask(p->api, "GET", "/kube-sim/faults", "", &faults), 200);
    json_t *rules = json_is_array(faults) ? faults : at(faults, "rules");
    ck_assert_uint_ge(json_array_size(rules), rights->n);
    for (size_t i = 0; i < rights->n; i++)
        covered[i] += json_integer_value(at(json_array_get(rules, i), "matched"));
    size_t i;
    json_t *c;
    json_array_foreach(at(counters, "requests"), i, c)
    {
        const char *sub = str_at(c, "subresource");
        cleanup_free char *resource =
            xasprintf("%s%s%s", str_at(c, "resource"), *sub ? "/" : "", sub);
        json_int_t granted = 0;
        for (size_t k = 0; k < rights->n; k++) {
            const struct right *r = &rights->r[k];
            if (strcmp(str_at(c, "verb"), r->verb) == 0 &&
                strcmp(str_at(c, "group"), r->group) == 0 &&
                strcmp(resource, r->resource) == 0)
                granted += json_integer_value(at(json_array_get(rules, k), "matched"));
        }
        ck_assert_msg(granted == json_integer_value(at(c, "count")),
                      "%s %s.%s: %lld requests, the rules cover %lld", str_at(c, "verb"),
                      resource, str_at(c, "group"),
                      (long long)json_integer_value(at(c, "count")), (long long)granted);
    }
}

/* -- the run -- */

#define POD(name)                                                                        \
    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"" name             \
    "\",\"namespace\":\"default\",\"uid\":\"uid-" name "\"},\"spec\":{\"containers\":[{" \
    "\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{\"" KEY_GPU_MEM           \
    "\":\"8\"}}}]}}"
#define NODE(units, cards)                                                               \
    "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n1\"},"           \
    "\"status\":{\"capacity\":{\"" KEY_GPU_MEM "\":\"" units "\",\"" KEY_GPU_COUNT       \
    "\":\"" cards "\"},\"allocatable\":{\"" KEY_GPU_MEM "\":\"" units                    \
    "\",\"" KEY_GPU_COUNT "\":\"" cards "\"}}}"

/* Neither counted nor a request of the extender's. */
static void load(const struct pair *p, const char *object)
{
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/load", object, NULL), 200);
}

static void watch_of_pods(const struct pair *p, const char *action)
{
    cleanup_free char *order =
        xasprintf("{\"action\":\"%s\",\"resource\":\"pods\"}", action);
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/watches", order, NULL), 200);
}

/* A bind whose answer is lost and which no watch tells of, so that the pod is asked for;
 * a pod that does not fit; and room for it. */
static void bind_and_mark(struct pair *p)
{
    cleanup_json json_t *answer = NULL, *second = NULL;
    load(p, NODE("8", "1"));
    load(p, POD("first"));
    load(p, POD("second"));
    ck_assert_uint_eq(ask(p->api, "POST", "/kube-sim/faults",
                          "{\"verb\":\"create\",\"resource\":\"pods\",\"subresource\":"
                          "\"binding\",\"nth\":1,\"action\":\"apply-cut\"}",
                          NULL),
                      200);
    ck_assert(program_until(first_waits, p));
    watch_of_pods(p, "stall");
    ck_assert_uint_eq(ask(p->port, "POST", "/bind",
                          "{\"PodName\":\"first\",\"PodNamespace\":\"default\","
                          "\"PodUID\":\"uid-first\",\"Node\":\"n1\"}",
                          &answer),
                      200);
    ck_assert_str_eq(str_at(answer, "Error"), "");
    watch_of_pods(p, "release");
    ck_assert_uint_eq(ask(p->port, "POST", "/filter",
                          "{\"NodeNames\":[\"n1\"],\"Pod\":" POD("second") "}", &second),
                      200);
    ck_assert_says(str_at(second, "FailedNodes/n1"), "most free: 0 of 8192 MiB");
    ck_assert(program_until(second_waits, p));
    load(p, NODE("16", "2"));
    ck_assert_msg(program_until(node_is_marked, p), "the node is never marked");
}

START_TEST(rules_grant_what_the_extender_asks_for_and_nothing_else)
{
    struct rights rights;
    struct pair usual, lost; /* lost: somebody has deleted the Lease */
    json_int_t covered[RIGHTS] = {0};
    dir = temp_dir();
    read_rights(&rights);
    pair_start(&lost, &rights, NULL);
    pair_start(&usual, &rights, "manifests/lease.yaml");
    ck_assert(program_until(holds, &usual));
    bind_and_mark(&usual);
    ck_assert(program_until(holds, &lost)); /* makes the Lease, after five seconds */
    /* The record is read when it stands still. */
    program_stop(&usual.extender);
    program_stop(&lost.extender);
    check_record(&usual, &rights, covered);
    check_record(&lost, &rights, covered);
    for (size_t i = 0; i < rights.n; i++)
        ck_assert_msg(covered[i] > 0, "granted but never asked: %s %s in %s",
                      rights.r[i].verb, rights.r[i].resource,
                      rights.r[i].ns ? rights.r[i].ns : "all namespaces");
    program_stop(&usual.sim);
    program_stop(&lost.sim);
    json_decref(rights.all);
    temp_dir_remove(dir);
    free(dir);
}

UNIT_MAIN_SECONDS("rbac", 240, rules_grant_what_the_extender_asks_for_and_nothing_else)
