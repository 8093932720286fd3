/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "setup/checks_priv.h"

bool checks_has_list(const struct facts *f, enum facts_kind kind, const char *what,
                     struct findings *out)
{
    const struct facts_object *l = &f->lists[kind];
    if (!l->json && l->why.code != ERR_NONE)
        findings_add(out, FINDING_UNKNOWN, "api", "%s: %s", what, l->why.msg);
    return l->json != NULL;
}

const json_t *checks_items(const struct facts *f, enum facts_kind kind)
{
    return jsonpath_at(f->lists[kind].json, "items");
}

const char *checks_name(const json_t *object)
{
    return jsonpath_str(object, "metadata.name");
}

/* -- the other control plane nodes -- */

static bool same_option(const struct scheduler_pod *a, const struct scheduler_pod *b)
{
    static const char *const names[] = {"config", "policy-config-file"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!span_eq(span_of(scheduler_pod_option(a, names[i])),
                     span_of(scheduler_pod_option(b, names[i]))))
            return false;
    return true;
}

static void check_control_planes(const struct facts *f, struct findings *out)
{
    struct scheduler_pod mine, other;
    const json_t *pods = checks_items(f, FACTS_SYSTEM_PODS);
    if (!facts_manifest(f, &mine))
        return;
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        const char *node = jsonpath_str(pod, "spec.nodeName");
        cleanup_free char *mirror = xasprintf("%s-%s", mine.name, node);
        if (!scheduler_pod_read(pod, &other) || strcmp(other.name, mirror) != 0)
            continue;
        if (same_option(&mine, &other))
            continue;
        bool policy;
        struct finding *it = findings_add(
            out, FINDING_PROBLEM, "control-planes-differ",
            "on node %s, kube-scheduler has another configuration file: \"%s\"", node,
            scheduler_pod_config_option(&other, &policy));
        findings_why(out, it,
                     "when that control plane node leads, pods that request GPU memory "
                     "are scheduled differently. (On this node: the kubelet has not "
                     "applied the manifest.)");
        findings_fix(out, it, "scripts/install --yes    # on node %s", node);
    }
}

/* -- the extender's objects -- */

static int64_t node_port(const json_t *service)
{
    const json_t *ports = jsonpath_at(service, "spec.ports");
    int64_t port = 0;
    for (size_t i = 0; i < json_array_size(ports) && !port; i++)
        port = json_integer_value(jsonpath_at(json_array_get(ports, i), "nodePort"));
    return port;
}

/* The Service with a node port, or else the first. NULL: none. (The chart can create a
 * second one, for the API server.) */
static const json_t *main_service(const struct facts *f)
{
    const json_t *all = checks_items(f, FACTS_SERVICES);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (node_port(json_array_get(all, i)))
            return json_array_get(all, i);
    return json_array_get(all, 0);
}

static void check_service(const struct facts *f, struct findings *out)
{
    const json_t *service = main_service(f);
    struct finding *it;
    if (!checks_has_list(f, FACTS_SERVICES, "Services", out))
        return;
    if (!service) {
        it = findings_add(out, FINDING_PROBLEM, "no-service",
                          "no Service has label component=gpushare-schd-extender");
        findings_why(out, it, "it provides the node port that kube-scheduler calls");
        findings_fix(out, it, "kubectl apply -f manifests/service.yaml");
        return;
    }
    int64_t port = node_port(service);
    if (f->reach.answer == FACTS_REACH_NOT_TRIED || port == f->reach.url.port)
        return;
    it = findings_add(out, FINDING_PROBLEM, "node-port",
                      "Service %s has node port %" PRId64 ", urlPrefix has port %u",
                      checks_name(service), port, f->reach.url.port);
    findings_fix(out, it,
                 "kubectl apply -f manifests/service.yaml\n"
                 "or scripts/install --yes --address HOST:PORT");
}

static bool has_endpoints(const struct facts *f, const char *service)
{
    const json_t *slices = checks_items(f, FACTS_SLICES);
    for (size_t i = 0; i < json_array_size(slices); i++) {
        const json_t *slice = json_array_get(slices, i);
        const json_t *labels = jsonpath_at(slice, "metadata.labels");
        const char *of =
            json_string_value(json_object_get(labels, "kubernetes.io/service-name"));
        const json_t *all = jsonpath_at(slice, "endpoints");
        for (size_t k = 0; of && !strcmp(of, service) && k < json_array_size(all); k++)
            if (!json_is_false(jsonpath_at(json_array_get(all, k), "conditions.ready")))
                return true;
    }
    return false;
}

static void check_endpoints(const struct facts *f, struct findings *out)
{
    const json_t *service = main_service(f);
    if (!service || !f->lists[FACTS_SLICES].json ||
        has_endpoints(f, checks_name(service)))
        return;
    struct finding *it =
        findings_add(out, FINDING_PROBLEM, "no-endpoints", "Service %s has no ready pod",
                     checks_name(service));
    findings_why(out, it,
                 "kube-proxy rejects connections to a Service without endpoints");
    findings_fix(out, it,
                 "kubectl -n %s get pods -l component=gpushare-schd-extender\n"
                 "kubectl -n %s describe pods -l component=gpushare-schd-extender",
                 facts_namespace(f), facts_namespace(f));
}

static void check_deployment(const struct facts *f, struct findings *out)
{
    if (!checks_has_list(f, FACTS_DEPLOYMENTS, "Deployments", out) ||
        json_array_size(checks_items(f, FACTS_DEPLOYMENTS)))
        return;
    struct finding *it =
        findings_add(out, FINDING_PROBLEM, "no-deployment",
                     "no Deployment has label component=gpushare-schd-extender");
    findings_fix(out, it,
                 "helm install gpushare manifests/chart -n %s\n"
                 "or kubectl apply -f manifests/",
                 facts_namespace(f));
}

/* The images of other extenders, such as k8s-gpushare-schd-extender; the name of ours is
 * gpushare-extender. */
static bool is_other_extender(const char *image)
{
    struct span rest = span_of(image), name = {0};
    while (rest.n)
        name = span_cut(&rest, '/');
    rest = name;
    name = span_cut(&rest, ':');
    cleanup_free char *text = xmemdup0(name.p ? name.p : "", name.n);
    return strstr(text, "gpushare") && strstr(text, "extender") &&
           strcmp(text, "gpushare-extender") != 0;
}

static void check_other_extenders(const struct facts *f, struct findings *out)
{
    const json_t *pods = checks_items(f, FACTS_SYSTEM_PODS);
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        const json_t *c = json_array_get(jsonpath_at(pod, "spec.containers"), 0);
        const char *image = jsonpath_str(c, "image");
        if (!is_other_extender(image))
            continue;
        struct finding *it = findings_add(out, FINDING_PROBLEM, "second-extender",
                                          "pod kube-system/%s runs another extender: %s",
                                          checks_name(pod), image);
        findings_why(out, it,
                     "it has its own ledger: if any kube-scheduler calls it, cards are "
                     "overcommitted");
        findings_fix(out, it,
                     "delete its Deployment, or, if it has the same name:\n"
                     "kubectl replace -f manifests/deployment.yaml    # migration: "
                     "docs/operations.md");
    }
}

void checks_cluster(const struct facts *f, struct findings *out)
{
    if (f->cluster_why.code != ERR_NONE) {
        struct finding *it =
            findings_add(out, FINDING_UNKNOWN, "no-api",
                         "the API server was not checked: %s", f->cluster_why.msg);
        findings_fix(out, it, "scripts/install --check --kubeconfig %s", facts_admin(f));
        return;
    }
    check_control_planes(f, out);
    if (f->reach.answer != FACTS_REACH_OK) {
        check_service(f, out);
        check_endpoints(f, out);
        check_deployment(f, out);
    }
    check_other_extenders(f, out);
    checks_policies(f, out);
    checks_nodes(f, out);
}
