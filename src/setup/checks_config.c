/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "setup/checks_priv.h"

/* A bind takes at most 15 s, and 7 s more while no replica holds the lease. */
enum { TIMEOUT_MIN_MS = 22 * 1000 };

/* Our entry in kube-scheduler's configuration. */
struct entry {
    const struct facts *facts;
    const char *path; /* of the file */
    const json_t *json;
    bool policy;
    struct findings *out;
};

static bool check_form(const struct facts *f, const struct scheduler_pod *pod,
                       bool policy, struct findings *out)
{
    const json_t *json = f->config.json;
    const char *path = f->config.path, *api = jsonpath_str(json, "apiVersion");
    const char *kind = jsonpath_str(json, "kind");
    const char *wanted = policy ? "Policy" : "KubeSchedulerConfiguration";
    int minor = facts_minor(f, pod);
    struct finding *it;
    if (!json) {
        it = findings_add(out, FINDING_PROBLEM, "config-malformed", "%s",
                          f->config.why.msg);
        findings_why(out, it, "kube-scheduler exits when it reads this file");
        return false;
    }
    if (strcmp(kind, wanted) != 0) {
        it = findings_add(out, FINDING_PROBLEM, "config-kind",
                          "%s has kind \"%s\" instead of %s", path, kind, wanted);
        findings_why(out, it, "kube-scheduler exits when it reads this file%s",
                     strcmp(kind, "Policy") ? ""
                                            : "; a Policy needs --policy-config-file, up "
                                              "to Kubernetes 1.22");
        return false;
    }
    if (policy || !minor || extender_entry_supports_api(api, minor))
        return true;
    it = findings_add(out, FINDING_PROBLEM, "api-version",
                      "%s has apiVersion \"%s\", which kube-scheduler 1.%d does not read",
                      path, api, minor);
    findings_why(out, it,
                 "kube-scheduler exits with \"no kind KubeSchedulerConfiguration is "
                 "registered\"");
    findings_fix(out, it, "sed -i 's|^apiVersion: .*|apiVersion: %s|' %s",
                 extender_entry_newest_api(minor), path);
    return true;
}

static void check_kubeconfig(const struct facts *f, const struct scheduler_pod *pod,
                             struct findings *out)
{
    const char *option = scheduler_pod_option(pod, "kubeconfig");
    if (*jsonpath_str(f->config.json, "clientConnection.kubeconfig"))
        return;
    struct finding *it =
        findings_add(out, FINDING_PROBLEM, "no-kubeconfig",
                     "%s has no clientConnection.kubeconfig", f->config.path);
    findings_why(out, it,
                 "with --config, kube-scheduler ignores --kubeconfig and does not find "
                 "the API server");
    findings_fix(out, it, "add:\nclientConnection:\n  kubeconfig: %s",
                 option && *option ? option : "/etc/kubernetes/scheduler.conf");
}

static const struct member {
    const char *id, *name, *want, *why;
} members[] = {
    {"no-filter", "filterVerb", "filter", "nodes whose cards are full are not rejected"},
    {"no-bind", "bindVerb", "bind",
     "pods are bound without a card, and their containers do not start"},
    {"no-prioritize", "prioritizeVerb", "prioritize",
     "pods are spread over the nodes, so that large pods do not fit later"},
    {"no-preempt", "preemptVerb", "preempt",
     "kube-scheduler evicts pods without knowing whether that frees a card"},
    {"ignorable", "ignorable", "false",
     "while the extender is unavailable, pods are bound without a card (since 1.30 also "
     "after a failed bind)"},
    {"no-node-cache", "nodeCacheCapable", "true",
     "each call carries whole Node objects, and all nodes look idle to prioritize"}};

static const char *value_of(const json_t *value)
{
    if (json_is_string(value))
        return json_string_value(value);
    return json_is_true(value) ? "true" : json_is_false(value) ? "false" : "";
}

static void check_members(const struct entry *e)
{
    struct finding *it;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct member *m = &members[i];
        const json_t *value = jsonpath_at(e->json, m->name);
        if (!strcmp(value_of(value), m->want) || (!value && !strcmp(m->want, "false")))
            continue;
        it = findings_add(e->out, FINDING_PROBLEM, m->id, "%s: %s is \"%s\"", e->path,
                          m->name, value_of(value));
        findings_why(e->out, it, "%s", m->why);
        findings_fix(e->out, it, "%s: %s", m->name, m->want);
    }
}

static const json_t *managed_resource(const struct entry *e, const char *name)
{
    const json_t *all = jsonpath_at(e->json, "managedResources"), *found = NULL;
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strcmp(jsonpath_str(json_array_get(all, i), "name"), name))
            found = json_array_get(all, i);
    return found;
}

static void check_resource(const struct entry *e, const char *name)
{
    const json_t *found = managed_resource(e, name);
    struct finding *it;
    if (!found) {
        it = findings_add(e->out, FINDING_PROBLEM, "resource-missing",
                          "%s: managedResources does not list %s", e->path, name);
        findings_why(e->out, it,
                     "kube-scheduler does not call the extender for pods that request "
                     "only this resource");
        findings_fix(e->out, it, "- name: %s\n  ignoredByScheduler: false", name);
    } else if (json_is_true(jsonpath_at(found, "ignoredByScheduler"))) {
        it = findings_add(e->out, FINDING_PROBLEM, "ignored-by-scheduler",
                          "%s: %s has ignoredByScheduler: true", e->path, name);
        findings_why(e->out, it,
                     "kube-scheduler does not count this resource: it never preempts "
                     "for it, and calls the extender for full nodes, too");
        findings_fix(e->out, it, "ignoredByScheduler: false");
    }
}

/* A request of compute needs memory as well, so the extender gets every valid pod without this
 * resource, too. */
static void check_compute(const struct entry *e, const char *name)
{
    if (managed_resource(e, name)) {
        check_resource(e, name);
        return;
    }
    struct finding *it =
        findings_add(e->out, FINDING_NOTE, "compute-unmanaged",
                     "%s: managedResources does not list %s", e->path, name);
    findings_why(e->out, it,
                 "kube-scheduler binds pods that request only this resource, which the "
                 "extender would reject, and they use it up on their nodes");
    findings_fix(e->out, it, "- name: %s\n  ignoredByScheduler: false", name);
}

/* Does an extender of the cluster bind every pod, and survive that one replica is replaced?
 * With a single replica, nobody would bind the pod of the next one. */
static bool serves_all_pods(const struct facts *f)
{
    const json_t *all = checks_items(f, FACTS_DEPLOYMENTS);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *spec = jsonpath_at(json_array_get(all, i), "spec");
        const json_t *containers = jsonpath_at(spec, "template.spec.containers");
        const json_t *args = jsonpath_at(json_array_get(containers, 0), "args");
        bool bind_any = false;
        for (size_t k = 0; k < json_array_size(args); k++) {
            const char *arg = json_string_value(json_array_get(args, k));
            bind_any |=
                arg && (!strcmp(arg, "--bind-any") || !strcmp(arg, "--bind-any=on"));
        }
        if (bind_any && json_integer_value(jsonpath_at(spec, "replicas")) > 1)
            return true;
    }
    return false;
}

static void check_resources(const struct entry *e)
{
    if (json_array_size(jsonpath_at(e->json, "managedResources"))) {
        check_resource(e, "aliyun.com/gpu-mem");
        check_resource(e, "aliyun.com/gpu-count");
        check_compute(e, "aliyun.com/gpu-core.percentage");
        return;
    }
    if (serves_all_pods(e->facts)) {
        findings_add(e->out, FINDING_NOTE, "all-pods",
                     "%s: no managedResources, so kube-scheduler calls the extender for "
                     "every pod",
                     e->path);
        return;
    }
    struct finding *it = findings_add(e->out, FINDING_PROBLEM, "no-resources",
                                      "%s: no managedResources", e->path);
    findings_why(e->out, it,
                 "kube-scheduler calls the extender for every pod, also to bind it: "
                 "without the extender no pod of the cluster starts (intended only for a "
                 "second kube-scheduler, or for an extender with --bind-any and at least "
                 "two replicas)");
    findings_fix(e->out, it, "managedResources: as in policy/kube-scheduler-config.yaml");
}

static void check_timeout(const struct entry *e)
{
    int64_t ms;
    if (!extender_entry_timeout(e->json, e->policy, &ms) || ms >= TIMEOUT_MIN_MS)
        return;
    struct finding *it = findings_add(e->out, FINDING_PROBLEM, "timeout-short",
                                      ms ? "%s: httpTimeout is %" PRId64 " ms"
                                         : "%s: httpTimeout is not set, which means 5 s",
                                      e->path, ms);
    findings_why(e->out, it,
                 "a bind may take 22 s; kube-scheduler would give up before%s",
                 e->policy ? " (in a Policy, the unit is nanoseconds)" : "");
    findings_fix(e->out, it, "%s",
                 e->policy ? "\"httpTimeout\": 30000000000" : "httpTimeout: 30s");
}

/* kube-scheduler uses tlsConfig in any case. enableHTTPS matters where tlsConfig names no
 * authority: with it, the certificate is not verified. */
static void check_https(const struct entry *e, const struct extender_entry_url *url)
{
    const char *key = e->policy ? "enableHttps" : "enableHTTPS";
    bool on = json_is_true(jsonpath_at(e->json, key));
    bool insecure = json_is_true(jsonpath_at(e->json, "tlsConfig.insecure"));
    bool ca = *jsonpath_str(e->json, "tlsConfig.caFile") ||
              *jsonpath_str(e->json, "tlsConfig.caData");
    if (url->tls == on || (url->tls && (ca || insecure)))
        return;
    struct finding *it = findings_add(
        e->out, FINDING_PROBLEM, "https", "%s: urlPrefix begins with %s, but %s is %s",
        e->path, url->tls ? "https://" : "http://", key, on ? "true" : "not true");
    findings_why(e->out, it,
                 url->tls ? "without a caFile in tlsConfig, kube-scheduler trusts only "
                            "public authorities"
                          : "kube-scheduler does not encrypt the calls");
    findings_fix(e->out, it, "%s: %s", key, url->tls ? "true" : "false");
}

static void check_tls_files(const struct entry *e)
{
    for (size_t i = 0; i < CLIENT_SECRET_FILES; i++) {
        const struct facts_file *file = &e->facts->tls[i];
        if (!file->path || file->why.code == ERR_NONE)
            continue;
        struct finding *it = findings_add(
            e->out, file->why.code == ERR_FORBIDDEN ? FINDING_UNKNOWN : FINDING_PROBLEM,
            "tls-file", "tlsConfig of %s: %s", e->path, file->why.msg);
        findings_why(e->out, it, "kube-scheduler exits without this file");
    }
}

static bool check_list(const struct facts *f, struct findings *out)
{
    const json_t *json = f->config.json;
    struct finding *it;
    if (extender_entry_find(json))
        return true;
    it = findings_add(out, FINDING_PROBLEM, "no-extender",
                      "%s has no extender for aliyun.com/gpu-mem", f->config.path);
    findings_why(out, it,
                 "kube-scheduler gives pods that request GPU memory a node, but no card");
    findings_fix(out, it, "scripts/install --yes, which adds the entry");
    return false;
}

/* By default our filter answers with one node, so a later extender can only accept it or
 * reject it. */
static void check_order(const struct entry *e)
{
    const json_t *list = extender_entry_list(e->facts->config.json), *later = NULL;
    bool seen = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (seen && *jsonpath_str(one, "filterVerb"))
            later = one;
        seen |= one == e->json;
    }
    if (!later)
        return;
    struct finding *it = findings_add(
        e->out, FINDING_NOTE, "not-last",
        "%s: the extender at %s has a filterVerb and comes after the one of gpushare",
        e->path, jsonpath_str(later, "urlPrefix"));
    findings_why(e->out, it,
                 "unless the extender runs with --filter-answer=all, its filter answers "
                 "with few nodes or one; if a later filter rejects them, the pod stays "
                 "pending although it may fit elsewhere");
    findings_fix(e->out, it, "move the entry of gpushare to the end of extenders");
}

static void check_entry(const struct entry *e, const struct extender_entry_url *url)
{
    check_members(e);
    check_order(e);
    check_resources(e);
    check_timeout(e);
    check_https(e, url);
    check_tls_files(e);
    checks_certificate(e->facts, url, e->out);
    checks_proxy(e->facts, url, e->out);
}

bool checks_config(const struct facts *f, struct findings *out)
{
    struct scheduler_pod pod;
    struct extender_entry_url url;
    struct err err = {0};
    bool policy = false;
    size_t before = findings_count(out, FINDING_PROBLEM);
    if (!facts_manifest(f, &pod))
        return false;
    scheduler_pod_config_option(&pod, &policy);
    if (!check_form(f, &pod, policy, out))
        return false;
    if (!policy)
        check_kubeconfig(f, &pod, out);
    if (!check_list(f, out))
        return false;
    const struct entry e = {f, f->config.path, extender_entry_find(f->config.json),
                            policy, out};
    const char *prefix = jsonpath_str(e.json, "urlPrefix");
    if (extender_entry_read_url(prefix, &url, &err)) {
        struct finding *it =
            findings_add(out, FINDING_PROBLEM, "bad-url",
                         "%s: invalid urlPrefix \"%s\": %s", e.path, prefix, err.msg);
        findings_fix(out, it, "urlPrefix: https://127.0.0.1:32766/gpushare-scheduler");
        return false;
    }
    check_entry(&e, &url);
    if (findings_count(out, FINDING_PROBLEM) == before)
        findings_add(out, FINDING_OK, "config", "%s configures the extender correctly",
                     e.path);
    return true;
}
