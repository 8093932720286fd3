/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "setup/checks_priv.h"

/* A bind answers after 15 s at most, and one that waits for the Lease seven later. */
enum { TIMEOUT_MIN_MS = 22 * 1000 };

/* What is looked at. */
struct entry {
    const struct facts *facts;
    const char *path;   /* of the file */
    const json_t *json; /* our entry in it */
    bool policy;
    struct findings *out;
};

static bool is_policy(const struct facts *f, struct scheduler_pod *pod)
{
    bool policy;
    if (!facts_manifest(f, pod))
        return false;
    scheduler_pod_config_option(pod, &policy);
    return policy;
}

static bool checks_form(const struct facts *f, const struct scheduler_pod *pod,
                       bool policy, struct findings *out)
{
    const json_t *json = f->config.json;
    const char *path = f->config.path, *api = jsonpath_str(json, "apiVersion");
    const char *kind = jsonpath_str(json, "kind");
    const char *wanted = policy ? "Policy" : "KubeSchedulerConfiguration";
    int minor = facts_minor(f, pod);
    struct finding *it;
    if (!json) {
        it = findings_add(out, FINDING_PROBLEM, "config-malformed", "%s", f->config.why.msg);
        findings_set_reason(out, it, "kube-scheduler ends at such a file");
        return false;
    }
    if (strcmp(kind, wanted) != 0) {
        it = findings_add(out, FINDING_PROBLEM, "config-kind", "%s has kind \"%s\", not %s",
                       path, kind, wanted);
        findings_set_reason(out, it, "kube-scheduler ends at such a file%s",
                  strcmp(kind, "Policy") ? ""
                                         : ": a Policy belongs to "
                                           "--policy-config-file, up to Kubernetes 1.22");
        return false;
    }
    if (policy || !minor || extender_entry_supports_api(api, minor))
        return true;
    it = findings_add(out, FINDING_PROBLEM, "api-version",
                   "%s has apiVersion \"%s\", which kube-scheduler 1.%d does not read",
                   path, api, minor);
    findings_set_reason(out, it,
              "it ends with \"no kind KubeSchedulerConfiguration is registered\"");
    findings_set_command(out, it, "sed -i 's|^apiVersion: .*|apiVersion: %s|' %s",
             extender_entry_newest_api(minor), path);
    return true;
}

static void checks_kubeconfig(const struct facts *f, const struct scheduler_pod *pod,
                             struct findings *out)
{
    const char *named = jsonpath_str(f->config.json, "clientConnection.kubeconfig");
    const char *option = scheduler_pod_option(pod, "kubeconfig");
    struct finding *it;
    if (!*named) {
        it = findings_add(out, FINDING_PROBLEM, "no-kubeconfig",
                       "%s has no clientConnection.kubeconfig", f->config.path);
        findings_set_reason(out, it,
                  "with --config kube-scheduler does not read --kubeconfig any "
                  "more: it finds no API server");
        findings_set_command(out, it, "add to it:\nclientConnection:\n  kubeconfig: %s",
                 option && *option ? option : "/etc/kubernetes/scheduler.conf");
    } else if (f->kubeconfig.path && f->kubeconfig.why.code != ERR_NONE) {
        it = findings_add(
            out, f->kubeconfig.why.code == ERR_FORBIDDEN ? FINDING_UNKNOWN : FINDING_PROBLEM,
            "kubeconfig-absent", "clientConnection.kubeconfig of %s: %s", f->config.path,
            f->kubeconfig.why.msg);
        findings_set_reason(out, it, "without it kube-scheduler finds no API server, and ends");
    }
}

static void checks_verbs(const struct entry *e)
{
    static const struct {
        const char *name, *verb, *id, *why;
    } verbs[] = {
        {"filterVerb", "filter", "no-filter",
         "nodes whose cards are full are not sorted out"},
        {"bindVerb", "bind", "no-bind",
         "pods are bound without a card, and their containers do not start"},
        {"prioritizeVerb", "prioritize", "no-prioritize",
         "pods fit, and are spread over the nodes, so that large ones find no room "
         "later"},
        {"preemptVerb", "preempt", "no-preempt",
         "preemption evicts pods of whom it does not know whether that frees a card"}};
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        const char *has = jsonpath_str(e->json, verbs[i].name);
        struct finding *it;
        if (!strcmp(has, verbs[i].verb))
            continue;
        it = findings_add(e->out, FINDING_PROBLEM, verbs[i].id, "%s: its %s is \"%s\"", e->path,
                       verbs[i].name, has);
        findings_set_reason(e->out, it, "%s", verbs[i].why);
        findings_set_command(e->out, it, "%s: %s", verbs[i].name, verbs[i].verb);
    }
    const json_t *weight = jsonpath_at(e->json, "weight");
    if (*jsonpath_str(e->json, "prioritizeVerb") && json_integer_value(weight) <= 0) {
        struct finding *it = findings_add(e->out, FINDING_PROBLEM, "no-weight",
                                       "%s: prioritizeVerb without a weight", e->path);
        findings_set_reason(e->out, it, "kube-scheduler refuses that, and ends");
        findings_set_command(e->out, it, "weight: 3");
    }
}

static void checks_switches(const struct entry *e)
{
    struct finding *it;
    if (json_is_true(jsonpath_at(e->json, "ignorable"))) {
        it =
            findings_add(e->out, FINDING_PROBLEM, "ignorable", "%s: ignorable is true", e->path);
        findings_set_reason(e->out, it,
                  "while the extender cannot be reached, pods are bound without a "
                  "card (since 1.30 also after a failed bind)");
        findings_set_command(e->out, it, "ignorable: false");
    }
    if (!json_is_true(jsonpath_at(e->json, "nodeCacheCapable"))) {
        it = findings_add(e->out, FINDING_PROBLEM, "no-node-cache",
                       "%s: nodeCacheCapable is not true", e->path);
        findings_set_reason(e->out, it,
                  "whole Node objects travel with each call, and kube-scheduler "
                  "takes every node for idle when it scores");
        findings_set_command(e->out, it, "nodeCacheCapable: true");
    }
    const char *stranger = setup_extender_stranger(e->json, e->policy);
    if (stranger) {
        it = findings_add(e->out, FINDING_PROBLEM, "unknown-member",
                       "%s: an extender has no member \"%s\" here", e->path, stranger);
        findings_set_reason(e->out, it,
                  "kube-scheduler refuses it, or passes it over; a Policy has "
                  "enableHttps, a KubeSchedulerConfiguration enableHTTPS");
    }
}

static void checks_resources(const struct entry *e)
{
    static const char *const wanted[] = {"aliyun.com/gpu-mem", "aliyun.com/gpu-count"};
    const json_t *all = jsonpath_at(e->json, "managedResources");
    struct finding *it;
    if (!json_array_size(all)) {
        it = findings_add(e->out, FINDING_PROBLEM, "no-resources", "%s: no managedResources",
                       e->path);
        findings_set_reason(e->out, it,
                  "kube-scheduler asks the extender about every pod, and to bind "
                  "it: no pod of the cluster starts without the extender (right "
                  "only for a kube-scheduler of its own, with --bind-any)");
        findings_set_command(e->out, it, "managedResources: as in policy/kube-scheduler-config.yaml");
        return;
    }
    for (size_t k = 0; k < ARRAY_LEN(wanted); k++) {
        const json_t *found = NULL;
        for (size_t i = 0; i < json_array_size(all); i++)
            if (!strcmp(jsonpath_str(json_array_get(all, i), "name"), wanted[k]))
                found = json_array_get(all, i);
        if (!found) {
            it = findings_add(e->out, FINDING_PROBLEM, k ? "no-gpu-count" : "no-gpu-mem",
                           "%s: managedResources do not name %s", e->path, wanted[k]);
            findings_set_reason(e->out, it, "pods that ask for it alone go past the extender");
            findings_set_command(e->out, it, "- name: %s\n  ignoredByScheduler: false", wanted[k]);
        } else if (json_is_true(jsonpath_at(found, "ignoredByScheduler"))) {
            it = findings_add(e->out, FINDING_PROBLEM, "ignored-by-scheduler",
                           "%s: %s has ignoredByScheduler: true", e->path, wanted[k]);
            findings_set_reason(e->out, it,
                      "kube-scheduler then counts nothing of it: preemption never "
                      "acts, and full nodes are asked about each time");
            findings_set_command(e->out, it, "ignoredByScheduler: false");
        }
    }
}

static void checks_timeout(const struct entry *e)
{
    const char *right = e->policy ? "\"httpTimeout\": 30000000000" : "httpTimeout: 30s";
    struct finding *it;
    struct err err = {0};
    int64_t ms;
    if (extender_entry_timeout(e->json, e->policy, &ms, &err)) {
        it = findings_add(e->out, FINDING_PROBLEM, "timeout-malformed", "%s: httpTimeout: %s",
                       e->path, err.msg);
        findings_set_reason(e->out, it, "kube-scheduler ends at such a file");
    } else if (ms && ms < 1000) {
        it = findings_add(e->out, FINDING_PROBLEM, "timeout-tiny",
                       "%s: httpTimeout is less than a second", e->path);
        findings_set_reason(e->out, it, "every call fails%s",
                  e->policy ? ": in a Policy it is a number of nanoseconds" : "");
    } else if (ms < TIMEOUT_MIN_MS) {
        it = findings_add(e->out, FINDING_PROBLEM, ms ? "timeout-short" : "timeout-unset",
                       ms ? "%s: httpTimeout is %" PRId64 " ms"
                          : "%s: httpTimeout is left out, which means 5 s",
                       e->path, ms);
        findings_set_reason(e->out, it,
                  "a bind whose outcome has to be found out answers after 22 s at "
                  "most; kube-scheduler would give it up before");
    } else {
        return;
    }
    findings_set_command(e->out, it, "%s", right);
}

/* kube-scheduler reads tlsConfig in any case. What the switch does is that, where no
 * authority is named, none is asked for. */
static void checks_https(const struct entry *e, const struct extender_entry_url *url)
{
    const char *key = e->policy ? "enableHttps" : "enableHTTPS";
    bool on = json_is_true(jsonpath_at(e->json, key));
    bool insecure = json_is_true(jsonpath_at(e->json, "tlsConfig.insecure"));
    bool ca = *jsonpath_str(e->json, "tlsConfig.caFile") ||
              *jsonpath_str(e->json, "tlsConfig.caData");
    struct finding *it;
    if (ca && insecure) {
        it = findings_add(e->out, FINDING_PROBLEM, "tls-insecure",
                       "%s: tlsConfig names an authority, and insecure is true", e->path);
        findings_set_reason(e->out, it, "kube-scheduler refuses that, and ends");
        findings_set_command(e->out, it, "insecure: false");
    }
    if (url->tls == on || (url->tls && (ca || insecure)))
        return;
    it = findings_add(e->out, FINDING_PROBLEM, "https",
                   "%s: urlPrefix begins with %s, and %s is %s", e->path,
                   url->tls ? "https://" : "http://", key, on ? "true" : "not true");
    findings_set_reason(e->out, it,
              url->tls ? "without a caFile in tlsConfig kube-scheduler then believes "
                         "public authorities alone"
                       : "the calls go out in the clear all the same");
    findings_set_command(e->out, it, "%s: %s", key, url->tls ? "true" : "false");
}

static void checks_tls(const struct entry *e, const struct extender_entry_url *url)
{
    struct finding *it;
    checks_https(e, url);
    for (size_t i = 0; i < ARRAY_LEN(e->facts->tls); i++) {
        const struct facts_file *file = &e->facts->tls[i];
        if (!file->path || file->why.code == ERR_NONE || file->why.code == ERR_INVALID)
            continue;
        it = findings_add(e->out,
                       file->why.code == ERR_FORBIDDEN ? FINDING_UNKNOWN : FINDING_PROBLEM,
                       "tls-file", "tlsConfig of %s: %s", e->path, file->why.msg);
        findings_set_reason(e->out, it, "kube-scheduler ends without it");
    }
}

static bool checks_list(const struct facts *f, struct findings *out)
{
    const json_t *json = f->config.json;
    size_t n = json_array_size(extender_entry_list(json));
    struct finding *it;
    if (extender_entry_count_binders(json) > 1) {
        it = findings_add(out, FINDING_PROBLEM, "two-binders",
                       "%s: more than one extender has a bindVerb", f->config.path);
        findings_set_reason(out, it, "kube-scheduler refuses that, and ends");
        findings_set_command(out, it, "leave bindVerb to the one extender that is to bind GPU pods");
    }
    if (extender_entry_find(json))
        return true;
    it = findings_add(out, FINDING_PROBLEM, n ? "no-extender" : "no-extenders",
                   n ? "%s names %zu extenders, none of them for aliyun.com/gpu-mem"
                     : "%s names no extender",
                   f->config.path, n);
    findings_set_reason(out, it,
              "kube-scheduler gives pods that ask for GPU memory a node by itself, "
              "and no card");
    findings_set_command(out, it, "scripts/install --yes, which adds the entry and leaves the rest");
    return false;
}

bool checks_config(const struct facts *f, struct findings *out)
{
    struct scheduler_pod pod;
    struct extender_entry_url url;
    struct err err = {0};
    bool policy = is_policy(f, &pod);
    size_t before = findings_count(out, FINDING_PROBLEM);
    if (!checks_form(f, &pod, policy, out))
        return false;
    if (!policy)
        checks_kubeconfig(f, &pod, out);
    if (!checks_list(f, out))
        return false;
    const struct entry e = {f, f->config.path, extender_entry_find(f->config.json),
                            policy, out};
    if (extender_entry_read_url(jsonpath_str(e.json, "urlPrefix"), &url, &err)) {
        struct finding *it =
            findings_add(out, FINDING_PROBLEM, "bad-url", "%s: urlPrefix \"%s\": %s", e.path,
                      jsonpath_str(e.json, "urlPrefix"), err.msg);
        findings_set_command(out, it, "urlPrefix: http://127.0.0.1:32766/gpushare-scheduler");
        return false;
    }
    checks_verbs(&e);
    checks_switches(&e);
    checks_resources(&e);
    checks_timeout(&e);
    checks_tls(&e, &url);
    checks_proxy(f, &url, out);
    if (findings_count(out, FINDING_PROBLEM) == before)
        findings_add(out, FINDING_OK, "config", "%s names the extender as it should",
                  e.path);
    return true;
}
