/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "setup/checks.h"
#include "setup/checks_priv.h"

bool checks_list_known(const struct facts *f, enum facts_kind kind, const char *what,
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

/* -- the other control plane nodes -----------------------------------------------------
 */

/* The command of kube-scheduler, as one text. */
static void add_command(const struct scheduler_pod *pod, struct buf *out)
{
    static const char *const parts[] = {"command", "args"};
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        const json_t *words = jsonpath_at(pod->container, parts[k]);
        for (size_t i = 0; i < json_array_size(words); i++) {
            const char *word = json_string_value(json_array_get(words, i));
            buf_adds(out, out->n ? " " : "");
            buf_adds(out, word ? word : "?");
        }
    }
}

static bool same_option(const struct scheduler_pod *a, const struct scheduler_pod *b)
{
    static const char *const names[] = {"config", "policy-config-file"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!span_eq(span_of(scheduler_pod_option(a, names[i])),
                     span_of(scheduler_pod_option(b, names[i]))))
            return false;
    return true;
}

static void add_differs(const struct scheduler_pod *other, const char *node,
                        struct findings *out)
{
    cleanup_buf struct buf command = {0};
    add_command(other, &command);
    struct finding *it = findings_add(out, FINDING_PROBLEM, "control-planes-differ",
                                   "on node %s kube-scheduler runs with other files: %s",
                                   node, command.p ? command.p : "");
    findings_set_reason(out, it,
              "the control plane nodes take turns: when that one leads, pods "
              "that ask for GPU memory are scheduled in another way. (If it is "
              "this node, the kubelet has not taken the file up.)");
    findings_set_command(out, it, "scripts/install --yes    # on node %s", node);
}

static void checks_others(const struct facts *f, struct findings *out)
{
    struct scheduler_pod mine, other;
    const json_t *pods = checks_items(f, FACTS_SYSTEM_PODS);
    cleanup_buf struct buf nodes = {0};
    size_t n = 0;
    if (!facts_manifest(f, &mine))
        return;
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        const char *node = jsonpath_str(pod, "spec.nodeName");
        /* The mirror of a static pod. */
        cleanup_free char *mirror = xasprintf("%s-%s", mine.name, node);
        if (!scheduler_pod_read(pod, &other) || strcmp(other.name, mirror) != 0)
            continue;
        buf_printf(&nodes, "%s%s", n++ ? ", " : "", node);
        if (!same_option(&mine, &other))
            add_differs(&other, node, out);
    }
    if (n > 1) {
        struct finding *it = findings_add(
            out, FINDING_NOTE, "control-planes",
            "kube-scheduler runs on %zu nodes (%s), each with its own file and its own "
            "way to the extender; here only those of this node can be seen",
            n, nodes.p);
        findings_set_command(out, it, "scripts/install --check    # on each");
    }
}

/* -- the extender's own objects --------------------------------------------------------
 */

static int64_t node_port(const json_t *service)
{
    const json_t *ports = jsonpath_at(service, "spec.ports");
    int64_t port = 0;
    for (size_t i = 0; i < json_array_size(ports) && !port; i++)
        port = json_integer_value(jsonpath_at(json_array_get(ports, i), "nodePort"));
    return port;
}

/* The one for kube-scheduler: that with a node port. (One for the API server may be
 * beside it.) NULL: there is none at all. */
static const json_t *main_service(const struct facts *f)
{
    const json_t *all = checks_items(f, FACTS_SERVICES);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (node_port(json_array_get(all, i)))
            return json_array_get(all, i);
    return json_array_get(all, 0);
}

static void checks_service(const struct facts *f, struct findings *out)
{
    const json_t *service = main_service(f);
    bool answers = f->reach.answer == REACH_OK;
    struct finding *it;
    if (answers || !checks_list_known(f, FACTS_SERVICES, "Services", out))
        return;
    if (!service) {
        it = findings_add(out, FINDING_PROBLEM, "no-service",
                       "there is no Service with label component=gpushare-schd-extender");
        findings_set_reason(out, it, "it makes the node port through which kube-scheduler comes");
        findings_set_command(out, it, "kubectl apply -f manifests/service.yaml");
        return;
    }
    int64_t port = node_port(service);
    if (f->reach.answer != REACH_NOT_TRIED && port != f->reach.url.port) {
        it =
            findings_add(out, FINDING_PROBLEM, port ? "other-node-port" : "no-node-port",
                      port ? "Service %s has node port %" PRId64 ", and urlPrefix port %u"
                           : "Service %s has no node port (%" PRId64 "), and urlPrefix "
                             "port %u",
                      checks_name(service), port, f->reach.url.port);
        findings_set_command(out, it,
                 "kubectl apply -f manifests/service.yaml\n"
                 "or scripts/install --yes --address HOST:PORT");
    }
}

static bool has_endpoints(const struct facts *f, const char *service)
{
    const json_t *slices = checks_items(f, FACTS_SLICES);
    for (size_t i = 0; i < json_array_size(slices); i++) {
        const json_t *slice = json_array_get(slices, i);
        const json_t *labels = jsonpath_at(slice, "metadata.labels");
        const char *of =
            json_string_value(json_object_get(labels, "kubernetes.io/service-name"));
        const json_t *points = jsonpath_at(slice, "endpoints");
        for (size_t k = 0; of && !strcmp(of, service) && k < json_array_size(points); k++)
            if (!json_is_false(jsonpath_at(json_array_get(points, k), "conditions.ready")))
                return true;
    }
    return false;
}

static void checks_endpoints(const struct facts *f, struct findings *out)
{
    const json_t *service = main_service(f);
    if (!service || f->reach.answer == REACH_OK || !f->lists[FACTS_SLICES].json ||
        has_endpoints(f, checks_name(service)))
        return;
    struct finding *it =
        findings_add(out, FINDING_PROBLEM, "no-endpoints",
                  "no pod that is ready stands behind Service %s", checks_name(service));
    findings_set_reason(out, it, "kube-proxy refuses connections to a Service without any");
    findings_set_command(out, it,
             "kubectl -n kube-system get pods -l component=gpushare-schd-extender");
}

/* Why a container does not run, or "". */
static const char *waits_for(const json_t *pod, const char **words)
{
    const json_t *all = jsonpath_at(pod, "status.containerStatuses");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *state = jsonpath_at(json_array_get(all, i), "state.waiting");
        *words = jsonpath_str(state, "message");
        if (state)
            return jsonpath_str(state, "reason");
    }
    *words = "";
    return "";
}

static const json_t *condition(const json_t *pod, const char *type)
{
    const json_t *all = jsonpath_at(pod, "status.conditions");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strcmp(jsonpath_str(json_array_get(all, i), "type"), type))
            return json_array_get(all, i);
    return NULL;
}

static bool is_ready(const json_t *pod)
{
    return !strcmp(jsonpath_str(condition(pod, "Ready"), "status"), "True");
}

static void checks_pod(const struct facts *f, const json_t *pod, struct findings *out)
{
    const char *words, *reason = waits_for(pod, &words);
    const char *ns = jsonpath_str(pod, "metadata.namespace"), *name = checks_name(pod);
    struct finding *it;
    (void)f;
    if (is_ready(pod))
        return;
    if (!strcmp(jsonpath_str(pod, "status.phase"), "Pending") &&
        !*jsonpath_str(pod, "spec.nodeName")) {
        it = findings_add(out, FINDING_PROBLEM, "extender-pending",
                       "the extender's pod %s has no node: %s", name,
                       jsonpath_str(condition(pod, "PodScheduled"), "message"));
        findings_set_reason(out, it,
                  "it wants a node with label node-role.kubernetes.io/control-plane "
                  "(or master)");
        findings_set_command(out, it,
                 "kubectl label node NODE node-role.kubernetes.io/control-plane=");
        return;
    }
    it = findings_add(out, FINDING_PROBLEM, *reason ? "extender-waiting" : "extender-not-ready",
                   "the extender's pod %s is not ready%s%s%s%s", name,
                   *reason ? ": " : "", reason, *words ? ": " : "", words);
    if (strstr(reason, "Image"))
        findings_set_command(out, it,
                 "on its node: ctr -n k8s.io images import "
                 "gpushare-extender-VERSION.tar    # of make images\n"
                 "or name a registry that has it: docs/operations.md");
    else
        findings_set_command(out, it, "kubectl -n %s logs %s\nkubectl -n %s describe pod %s", ns,
                 name, ns, name);
}

/* "k8s-gpushare-schd-extender", "gpushare-scheduler-extender": not ours, whose name is
 * gpushare-extender. */
static bool is_other_extender(const json_t *container)
{
    struct span image = span_of(jsonpath_str(container, "image")), name = image;
    while (image.n) {
        name = span_cut(&image, '/');
    }
    struct span rest = name;
    name = span_cut(&rest, ':');
    cleanup_free char *text = xmemdup0(name.p ? name.p : "", name.n);
    return strstr(text, "gpushare") && strstr(text, "extender") &&
           strcmp(text, "gpushare-extender") != 0;
}

static void checks_rivals(const struct facts *f, struct findings *out)
{
    static const enum facts_kind kinds[] = {FACTS_EXTENDERS, FACTS_SYSTEM_PODS};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        const json_t *pods = checks_items(f, kinds[k]);
        for (size_t i = 0; i < json_array_size(pods); i++) {
            const json_t *pod = json_array_get(pods, i);
            const json_t *c = json_array_get(jsonpath_at(pod, "spec.containers"), 0);
            const char *component = jsonpath_str(pod, "metadata.labels.component");
            bool labelled = !strcmp(component, "gpushare-schd-extender");
            if (!is_other_extender(c) || labelled != (kinds[k] == FACTS_EXTENDERS))
                continue;
            const char *ns = jsonpath_str(pod, "metadata.namespace");
            struct finding *it = findings_add(out, FINDING_PROBLEM, "second-extender",
                                           "pod %s/%s runs another extender: %s", ns,
                                           checks_name(pod), jsonpath_str(c, "image"));
            findings_set_reason(out, it,
                      "it knows no Lease: if any kube-scheduler asks it, it promises "
                      "cards that this one has promised too");
            findings_set_command(
                out, it,
                "kubectl -n %s get deployments -o wide    # and delete its Deployment; "
                "of the same "
                "name:\nkubectl replace -f manifests/deployment.yaml    # and what else "
                "docs/operations.md says",
                ns);
        }
    }
}

static void checks_deployment(const struct facts *f, struct findings *out)
{
    const json_t *all = checks_items(f, FACTS_DEPLOYMENTS);
    const json_t *pods = checks_items(f, FACTS_EXTENDERS);
    struct finding *it;
    if (f->reach.answer != REACH_OK &&
        checks_list_known(f, FACTS_DEPLOYMENTS, "Deployments", out)) {
        if (!json_array_size(all)) {
            it = findings_add(out, FINDING_PROBLEM, "no-deployment",
                           "there is no Deployment with label "
                           "component=gpushare-schd-extender");
            findings_set_command(out, it,
                     "helm install gpushare manifests/chart -n kube-system\n"
                     "or kubectl apply -f manifests/");
        } else if (!json_array_size(pods)) {
            it = findings_add(out, FINDING_PROBLEM, "no-pod", "Deployment %s has no pod",
                           checks_name(json_array_get(all, 0)));
            findings_set_command(out, it, "kubectl -n kube-system scale deployment %s --replicas 1",
                     checks_name(json_array_get(all, 0)));
        }
        for (size_t i = 0; i < json_array_size(pods); i++)
            checks_pod(f, json_array_get(pods, i), out);
    }
    checks_rivals(f, out);
}

static void checks_rights(const struct facts *f, struct findings *out)
{
    struct finding *it;
    if (!f->denied) {
        if (f->denied_why.code != ERR_NONE)
            findings_add(out, FINDING_UNKNOWN, "rights",
                      "rights of the extender's account: %s", f->denied_why.msg);
        return;
    }
    for (size_t i = 0; i < json_array_size(f->denied); i++) {
        it = findings_add(out, FINDING_PROBLEM, "right-missing",
                       "the extender's account may not %s",
                       json_string_value(json_array_get(f->denied, i)));
        findings_set_reason(out, it,
                  "it does not become ready without its lists, and binds nothing "
                  "without pods/binding and its Lease");
        findings_set_command(out, it, "kubectl apply -f manifests/rbac.yaml");
    }
}

void checks_cluster(const struct facts *f, struct findings *out)
{
    if (f->cluster_why.code != ERR_NONE) {
        struct finding *it =
            findings_add(out, FINDING_UNKNOWN, "no-api", "the API server was not asked: %s",
                      f->cluster_why.msg);
        findings_set_command(out, it,
                 "scripts/install --check --kubeconfig /etc/kubernetes/admin.conf");
        return;
    }
    checks_others(f, out);
    checks_service(f, out);
    checks_endpoints(f, out);
    checks_deployment(f, out);
    checks_rights(f, out);
    checks_nodes(f, out);
}
