/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "setup/judge_priv.h"

/* A bind answers after 15 s at most, and one that waits for the Lease seven later. */
enum { TIMEOUT_MIN_MS = 22 * 1000 };

/* What is looked at. */
struct entry {
    const struct setup_facts *facts;
    const char *path;   /* of the file */
    const json_t *json; /* our entry in it */
    bool policy;
    struct found *out;
};

static bool is_policy(const struct setup_facts *f, struct setup_pod *pod)
{
    bool policy;
    if (!setup_active(f, pod))
        return false;
    setup_config_option(pod, &policy);
    return policy;
}

static bool judge_form(const struct setup_facts *f, const struct setup_pod *pod,
                       bool policy, struct found *out)
{
    const json_t *json = f->config.json;
    const char *path = f->config.path, *api = setup_str(json, "apiVersion");
    const char *kind = setup_str(json, "kind");
    const char *wanted = policy ? "Policy" : "KubeSchedulerConfiguration";
    int minor = setup_minor(f, pod);
    struct finding *it;
    if (!json) {
        it = found_add(out, FOUND_WRONG, "config-malformed", "%s", f->config.why.msg);
        found_why(out, it, "kube-scheduler ends at such a file");
        return false;
    }
    if (strcmp(kind, wanted) != 0) {
        it = found_add(out, FOUND_WRONG, "config-kind", "%s has kind \"%s\", not %s",
                       path, kind, wanted);
        found_why(out, it, "kube-scheduler ends at such a file%s",
                  strcmp(kind, "Policy") ? ""
                                         : ": a Policy belongs to "
                                           "--policy-config-file, up to Kubernetes 1.22");
        return false;
    }
    if (policy || !minor || setup_api_is_read(api, minor))
        return true;
    it = found_add(out, FOUND_WRONG, "api-version",
                   "%s has apiVersion \"%s\", which kube-scheduler 1.%d does not read",
                   path, api, minor);
    found_why(out, it,
              "it ends with \"no kind KubeSchedulerConfiguration is registered\"");
    found_do(out, it, "sed -i 's|^apiVersion: .*|apiVersion: %s|' %s",
             setup_api_newest(minor), path);
    return true;
}

static void judge_kubeconfig(const struct setup_facts *f, const struct setup_pod *pod,
                             struct found *out)
{
    const char *named = setup_str(f->config.json, "clientConnection.kubeconfig");
    const char *option = setup_pod_option(pod, "kubeconfig");
    struct finding *it;
    if (!*named) {
        it = found_add(out, FOUND_WRONG, "no-kubeconfig",
                       "%s has no clientConnection.kubeconfig", f->config.path);
        found_why(out, it,
                  "with --config kube-scheduler does not read --kubeconfig any "
                  "more: it finds no API server");
        found_do(out, it, "add to it:\nclientConnection:\n  kubeconfig: %s",
                 option && *option ? option : "/etc/kubernetes/scheduler.conf");
    } else if (f->kubeconfig.path && f->kubeconfig.why.code != ERR_NONE) {
        it = found_add(
            out, f->kubeconfig.why.code == ERR_FORBIDDEN ? FOUND_UNKNOWN : FOUND_WRONG,
            "kubeconfig-absent", "clientConnection.kubeconfig of %s: %s", f->config.path,
            f->kubeconfig.why.msg);
        found_why(out, it, "without it kube-scheduler finds no API server, and ends");
    }
}

static void judge_verbs(const struct entry *e)
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
        const char *has = setup_str(e->json, verbs[i].name);
        struct finding *it;
        if (!strcmp(has, verbs[i].verb))
            continue;
        it = found_add(e->out, FOUND_WRONG, verbs[i].id, "%s: its %s is \"%s\"", e->path,
                       verbs[i].name, has);
        found_why(e->out, it, "%s", verbs[i].why);
        found_do(e->out, it, "%s: %s", verbs[i].name, verbs[i].verb);
    }
    const json_t *weight = setup_at(e->json, "weight");
    if (*setup_str(e->json, "prioritizeVerb") && json_integer_value(weight) <= 0) {
        struct finding *it = found_add(e->out, FOUND_WRONG, "no-weight",
                                       "%s: prioritizeVerb without a weight", e->path);
        found_why(e->out, it, "kube-scheduler refuses that, and ends");
        found_do(e->out, it, "weight: 3");
    }
}

static void judge_switches(const struct entry *e)
{
    struct finding *it;
    if (json_is_true(setup_at(e->json, "ignorable"))) {
        it =
            found_add(e->out, FOUND_WRONG, "ignorable", "%s: ignorable is true", e->path);
        found_why(e->out, it,
                  "while the extender cannot be reached, pods are bound without a "
                  "card (since 1.30 also after a failed bind)");
        found_do(e->out, it, "ignorable: false");
    }
    if (!json_is_true(setup_at(e->json, "nodeCacheCapable"))) {
        it = found_add(e->out, FOUND_WRONG, "no-node-cache",
                       "%s: nodeCacheCapable is not true", e->path);
        found_why(e->out, it,
                  "whole Node objects travel with each call, and kube-scheduler "
                  "takes every node for idle when it scores");
        found_do(e->out, it, "nodeCacheCapable: true");
    }
    const char *stranger = setup_extender_stranger(e->json, e->policy);
    if (stranger) {
        it = found_add(e->out, FOUND_WRONG, "unknown-member",
                       "%s: an extender has no member \"%s\" here", e->path, stranger);
        found_why(e->out, it,
                  "kube-scheduler refuses it, or passes it over; a Policy has "
                  "enableHttps, a KubeSchedulerConfiguration enableHTTPS");
    }
}

static void judge_resources(const struct entry *e)
{
    static const char *const wanted[] = {"aliyun.com/gpu-mem", "aliyun.com/gpu-count"};
    const json_t *all = setup_at(e->json, "managedResources");
    struct finding *it;
    if (!json_array_size(all)) {
        it = found_add(e->out, FOUND_WRONG, "no-resources", "%s: no managedResources",
                       e->path);
        found_why(e->out, it,
                  "kube-scheduler asks the extender about every pod, and to bind "
                  "it: no pod of the cluster starts without the extender (right "
                  "only for a kube-scheduler of its own, with --bind-any)");
        found_do(e->out, it, "managedResources: as in policy/kube-scheduler-config.yaml");
        return;
    }
    for (size_t k = 0; k < ARRAY_LEN(wanted); k++) {
        const json_t *found = NULL;
        for (size_t i = 0; i < json_array_size(all); i++)
            if (!strcmp(setup_str(json_array_get(all, i), "name"), wanted[k]))
                found = json_array_get(all, i);
        if (!found) {
            it = found_add(e->out, FOUND_WRONG, k ? "no-gpu-count" : "no-gpu-mem",
                           "%s: managedResources do not name %s", e->path, wanted[k]);
            found_why(e->out, it, "pods that ask for it alone go past the extender");
            found_do(e->out, it, "- name: %s\n  ignoredByScheduler: false", wanted[k]);
        } else if (json_is_true(setup_at(found, "ignoredByScheduler"))) {
            it = found_add(e->out, FOUND_WRONG, "ignored-by-scheduler",
                           "%s: %s has ignoredByScheduler: true", e->path, wanted[k]);
            found_why(e->out, it,
                      "kube-scheduler then counts nothing of it: preemption never "
                      "acts, and full nodes are asked about each time");
            found_do(e->out, it, "ignoredByScheduler: false");
        }
    }
}

static void judge_timeout(const struct entry *e)
{
    const char *right = e->policy ? "\"httpTimeout\": 30000000000" : "httpTimeout: 30s";
    struct finding *it;
    struct err err = {0};
    int64_t ms;
    if (setup_extender_timeout(e->json, e->policy, &ms, &err)) {
        it = found_add(e->out, FOUND_WRONG, "timeout-malformed", "%s: httpTimeout: %s",
                       e->path, err.msg);
        found_why(e->out, it, "kube-scheduler ends at such a file");
    } else if (ms && ms < 1000) {
        it = found_add(e->out, FOUND_WRONG, "timeout-tiny",
                       "%s: httpTimeout is less than a second", e->path);
        found_why(e->out, it, "every call fails%s",
                  e->policy ? ": in a Policy it is a number of nanoseconds" : "");
    } else if (ms < TIMEOUT_MIN_MS) {
        it = found_add(e->out, FOUND_WRONG, ms ? "timeout-short" : "timeout-unset",
                       ms ? "%s: httpTimeout is %" PRId64 " ms"
                          : "%s: httpTimeout is left out, which means 5 s",
                       e->path, ms);
        found_why(e->out, it,
                  "a bind whose outcome has to be found out answers after 22 s at "
                  "most; kube-scheduler would give it up before");
    } else {
        return;
    }
    found_do(e->out, it, "%s", right);
}

/* kube-scheduler reads tlsConfig in any case. What the switch does is that, where no
 * authority is named, none is asked for. */
static void judge_https(const struct entry *e, const struct setup_url *url)
{
    const char *key = e->policy ? "enableHttps" : "enableHTTPS";
    bool on = json_is_true(setup_at(e->json, key));
    bool insecure = json_is_true(setup_at(e->json, "tlsConfig.insecure"));
    bool ca = *setup_str(e->json, "tlsConfig.caFile") ||
              *setup_str(e->json, "tlsConfig.caData");
    struct finding *it;
    if (ca && insecure) {
        it = found_add(e->out, FOUND_WRONG, "tls-insecure",
                       "%s: tlsConfig names an authority, and insecure is true", e->path);
        found_why(e->out, it, "kube-scheduler refuses that, and ends");
        found_do(e->out, it, "insecure: false");
    }
    if (url->tls == on || (url->tls && (ca || insecure)))
        return;
    it = found_add(e->out, FOUND_WRONG, "https",
                   "%s: urlPrefix begins with %s, and %s is %s", e->path,
                   url->tls ? "https://" : "http://", key, on ? "true" : "not true");
    found_why(e->out, it,
              url->tls ? "without a caFile in tlsConfig kube-scheduler then believes "
                         "public authorities alone"
                       : "the calls go out in the clear all the same");
    found_do(e->out, it, "%s: %s", key, url->tls ? "true" : "false");
}

static void judge_tls(const struct entry *e, const struct setup_url *url)
{
    struct finding *it;
    judge_https(e, url);
    for (size_t i = 0; i < ARRAY_LEN(e->facts->tls); i++) {
        const struct setup_file *file = &e->facts->tls[i];
        if (!file->path || file->why.code == ERR_NONE || file->why.code == ERR_INVALID)
            continue;
        it = found_add(e->out,
                       file->why.code == ERR_FORBIDDEN ? FOUND_UNKNOWN : FOUND_WRONG,
                       "tls-file", "tlsConfig of %s: %s", e->path, file->why.msg);
        found_why(e->out, it, "kube-scheduler ends without it");
    }
}

static bool judge_list(const struct setup_facts *f, struct found *out)
{
    const json_t *json = f->config.json;
    size_t n = json_array_size(setup_extenders(json));
    struct finding *it;
    if (setup_extenders_that_bind(json) > 1) {
        it = found_add(out, FOUND_WRONG, "two-binders",
                       "%s: more than one extender has a bindVerb", f->config.path);
        found_why(out, it, "kube-scheduler refuses that, and ends");
        found_do(out, it, "leave bindVerb to the one extender that is to bind GPU pods");
    }
    if (setup_extender_ours(json))
        return true;
    it = found_add(out, FOUND_WRONG, n ? "no-extender" : "no-extenders",
                   n ? "%s names %zu extenders, none of them for aliyun.com/gpu-mem"
                     : "%s names no extender",
                   f->config.path, n);
    found_why(out, it,
              "kube-scheduler gives pods that ask for GPU memory a node by itself, "
              "and no card");
    found_do(out, it, "scripts/install --yes, which adds the entry and leaves the rest");
    return false;
}

bool judge_config(const struct setup_facts *f, struct found *out)
{
    struct setup_pod pod;
    struct setup_url url;
    struct err err = {0};
    bool policy = is_policy(f, &pod);
    size_t before = found_count(out, FOUND_WRONG);
    if (!judge_form(f, &pod, policy, out))
        return false;
    if (!policy)
        judge_kubeconfig(f, &pod, out);
    if (!judge_list(f, out))
        return false;
    const struct entry e = {f, f->config.path, setup_extender_ours(f->config.json),
                            policy, out};
    if (setup_url_read(setup_str(e.json, "urlPrefix"), &url, &err)) {
        struct finding *it =
            found_add(out, FOUND_WRONG, "bad-url", "%s: urlPrefix \"%s\": %s", e.path,
                      setup_str(e.json, "urlPrefix"), err.msg);
        found_do(out, it, "urlPrefix: http://127.0.0.1:32766/gpushare-scheduler");
        return false;
    }
    judge_verbs(&e);
    judge_switches(&e);
    judge_resources(&e);
    judge_timeout(&e);
    judge_tls(&e, &url);
    judge_proxy(f, &url, out);
    if (found_count(out, FOUND_WRONG) == before)
        found_add(out, FOUND_GOOD, "config", "%s names the extender as it should",
                  e.path);
    return true;
}
