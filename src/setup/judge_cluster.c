/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "setup/judge.h"
#include "setup/judge_priv.h"

bool judge_list_known(const struct setup_facts *f, enum setup_kind kind, const char *what,
                      struct found *out)
{
    const struct setup_list *l = &f->lists[kind];
    if (!l->json && l->why.code != ERR_NONE)
        found_add(out, FOUND_UNKNOWN, "api", "%s: %s", what, l->why.msg);
    return l->json != NULL;
}

const json_t *judge_items(const struct setup_facts *f, enum setup_kind kind)
{
    return setup_at(f->lists[kind].json, "items");
}

const char *judge_name(const json_t *object)
{
    return setup_str(object, "metadata.name");
}

/* -- the other control plane nodes -----------------------------------------------------
 */

/* The command of kube-scheduler, as one text. */
static void add_command(const struct setup_pod *pod, struct buf *out)
{
    static const char *const parts[] = {"command", "args"};
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        const json_t *words = setup_at(pod->container, parts[k]);
        for (size_t i = 0; i < json_array_size(words); i++) {
            const char *word = json_string_value(json_array_get(words, i));
            buf_adds(out, out->n ? " " : "");
            buf_adds(out, word ? word : "?");
        }
    }
}

static bool same_option(const struct setup_pod *a, const struct setup_pod *b)
{
    static const char *const names[] = {"config", "policy-config-file"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!span_eq(span_of(setup_pod_option(a, names[i])),
                     span_of(setup_pod_option(b, names[i]))))
            return false;
    return true;
}

static void add_differs(const struct setup_pod *other, const char *node,
                        struct found *out)
{
    cleanup_buf struct buf command = {0};
    add_command(other, &command);
    struct finding *it = found_add(out, FOUND_WRONG, "control-planes-differ",
                                   "on node %s kube-scheduler runs with other files: %s",
                                   node, command.p ? command.p : "");
    found_why(out, it,
              "the control plane nodes take turns: when that one leads, pods "
              "that ask for GPU memory are scheduled in another way. (If it is "
              "this node, the kubelet has not taken the file up.)");
    found_do(out, it, "scripts/install --yes    # on node %s", node);
}

static void judge_others(const struct setup_facts *f, struct found *out)
{
    struct setup_pod mine, other;
    const json_t *pods = judge_items(f, SETUP_SYSTEM_PODS);
    cleanup_buf struct buf nodes = {0};
    size_t n = 0;
    if (!setup_active(f, &mine))
        return;
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        const char *node = setup_str(pod, "spec.nodeName");
        /* The mirror of a static pod. */
        cleanup_free char *mirror = xasprintf("%s-%s", mine.name, node);
        if (!setup_pod_of(pod, &other) || strcmp(other.name, mirror) != 0)
            continue;
        buf_printf(&nodes, "%s%s", n++ ? ", " : "", node);
        if (!same_option(&mine, &other))
            add_differs(&other, node, out);
    }
    if (n > 1) {
        struct finding *it = found_add(
            out, FOUND_NOTE, "control-planes",
            "kube-scheduler runs on %zu nodes (%s), each with its own file and its own "
            "way to the extender; here only those of this node can be seen",
            n, nodes.p);
        found_do(out, it, "scripts/install --check    # on each");
    }
}

/* -- the extender's own objects --------------------------------------------------------
 */

static int64_t node_port(const json_t *service)
{
    const json_t *ports = setup_at(service, "spec.ports");
    int64_t port = 0;
    for (size_t i = 0; i < json_array_size(ports) && !port; i++)
        port = json_integer_value(setup_at(json_array_get(ports, i), "nodePort"));
    return port;
}

/* The one for kube-scheduler: that with a node port. (One for the API server may be
 * beside it.) NULL: there is none at all. */
static const json_t *main_service(const struct setup_facts *f)
{
    const json_t *all = judge_items(f, SETUP_SERVICES);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (node_port(json_array_get(all, i)))
            return json_array_get(all, i);
    return json_array_get(all, 0);
}

static void judge_service(const struct setup_facts *f, struct found *out)
{
    const json_t *service = main_service(f);
    bool answers = f->reach.answer == SETUP_ANSWERS;
    struct finding *it;
    if (answers || !judge_list_known(f, SETUP_SERVICES, "Services", out))
        return;
    if (!service) {
        it = found_add(out, FOUND_WRONG, "no-service",
                       "there is no Service with label component=gpushare-schd-extender");
        found_why(out, it, "it makes the node port through which kube-scheduler comes");
        found_do(out, it, "kubectl apply -f manifests/service.yaml");
        return;
    }
    int64_t port = node_port(service);
    if (f->reach.answer != SETUP_UNASKED && port != f->reach.url.port) {
        it =
            found_add(out, FOUND_WRONG, port ? "other-node-port" : "no-node-port",
                      port ? "Service %s has node port %" PRId64 ", and urlPrefix port %u"
                           : "Service %s has no node port (%" PRId64 "), and urlPrefix "
                             "port %u",
                      judge_name(service), port, f->reach.url.port);
        found_do(out, it,
                 "kubectl apply -f manifests/service.yaml\n"
                 "or scripts/install --yes --address HOST:PORT");
    }
}

static bool has_endpoints(const struct setup_facts *f, const char *service)
{
    const json_t *slices = judge_items(f, SETUP_SLICES);
    for (size_t i = 0; i < json_array_size(slices); i++) {
        const json_t *slice = json_array_get(slices, i);
        const json_t *labels = setup_at(slice, "metadata.labels");
        const char *of =
            json_string_value(json_object_get(labels, "kubernetes.io/service-name"));
        const json_t *points = setup_at(slice, "endpoints");
        for (size_t k = 0; of && !strcmp(of, service) && k < json_array_size(points); k++)
            if (!json_is_false(setup_at(json_array_get(points, k), "conditions.ready")))
                return true;
    }
    return false;
}

static void judge_endpoints(const struct setup_facts *f, struct found *out)
{
    const json_t *service = main_service(f);
    if (!service || f->reach.answer == SETUP_ANSWERS || !f->lists[SETUP_SLICES].json ||
        has_endpoints(f, judge_name(service)))
        return;
    struct finding *it =
        found_add(out, FOUND_WRONG, "no-endpoints",
                  "no pod that is ready stands behind Service %s", judge_name(service));
    found_why(out, it, "kube-proxy refuses connections to a Service without any");
    found_do(out, it,
             "kubectl -n kube-system get pods -l component=gpushare-schd-extender");
}

/* Why a container does not run, or "". */
static const char *waits_for(const json_t *pod, const char **words)
{
    const json_t *all = setup_at(pod, "status.containerStatuses");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *state = setup_at(json_array_get(all, i), "state.waiting");
        *words = setup_str(state, "message");
        if (state)
            return setup_str(state, "reason");
    }
    *words = "";
    return "";
}

static const json_t *condition(const json_t *pod, const char *type)
{
    const json_t *all = setup_at(pod, "status.conditions");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!strcmp(setup_str(json_array_get(all, i), "type"), type))
            return json_array_get(all, i);
    return NULL;
}

static bool is_ready(const json_t *pod)
{
    return !strcmp(setup_str(condition(pod, "Ready"), "status"), "True");
}

static void judge_pod(const struct setup_facts *f, const json_t *pod, struct found *out)
{
    const char *words, *reason = waits_for(pod, &words);
    const char *ns = setup_str(pod, "metadata.namespace"), *name = judge_name(pod);
    struct finding *it;
    (void)f;
    if (is_ready(pod))
        return;
    if (!strcmp(setup_str(pod, "status.phase"), "Pending") &&
        !*setup_str(pod, "spec.nodeName")) {
        it = found_add(out, FOUND_WRONG, "extender-pending",
                       "the extender's pod %s has no node: %s", name,
                       setup_str(condition(pod, "PodScheduled"), "message"));
        found_why(out, it,
                  "it wants a node with label node-role.kubernetes.io/control-plane "
                  "(or master)");
        found_do(out, it,
                 "kubectl label node NODE node-role.kubernetes.io/control-plane=");
        return;
    }
    it = found_add(out, FOUND_WRONG, *reason ? "extender-waiting" : "extender-not-ready",
                   "the extender's pod %s is not ready%s%s%s%s", name,
                   *reason ? ": " : "", reason, *words ? ": " : "", words);
    if (strstr(reason, "Image"))
        found_do(out, it,
                 "on its node: ctr -n k8s.io images import "
                 "gpushare-extender-VERSION.tar    # of make images\n"
                 "or name a registry that has it: docs/operations.md");
    else
        found_do(out, it, "kubectl -n %s logs %s\nkubectl -n %s describe pod %s", ns,
                 name, ns, name);
}

/* "k8s-gpushare-schd-extender", "gpushare-scheduler-extender": not ours, whose name is
 * gpushare-extender. */
static bool is_other_extender(const json_t *container)
{
    struct span image = span_of(setup_str(container, "image")), name = image;
    while (image.n) {
        name = span_cut(&image, '/');
    }
    struct span rest = name;
    name = span_cut(&rest, ':');
    cleanup_free char *text = xmemdup0(name.p ? name.p : "", name.n);
    return strstr(text, "gpushare") && strstr(text, "extender") &&
           strcmp(text, "gpushare-extender") != 0;
}

static void judge_rivals(const struct setup_facts *f, struct found *out)
{
    static const enum setup_kind kinds[] = {SETUP_EXTENDERS, SETUP_SYSTEM_PODS};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        const json_t *pods = judge_items(f, kinds[k]);
        for (size_t i = 0; i < json_array_size(pods); i++) {
            const json_t *pod = json_array_get(pods, i);
            const json_t *c = json_array_get(setup_at(pod, "spec.containers"), 0);
            const char *component = setup_str(pod, "metadata.labels.component");
            bool labelled = !strcmp(component, "gpushare-schd-extender");
            if (!is_other_extender(c) || labelled != (kinds[k] == SETUP_EXTENDERS))
                continue;
            const char *ns = setup_str(pod, "metadata.namespace");
            struct finding *it = found_add(out, FOUND_WRONG, "second-extender",
                                           "pod %s/%s runs another extender: %s", ns,
                                           judge_name(pod), setup_str(c, "image"));
            found_why(out, it,
                      "it knows no Lease: if any kube-scheduler asks it, it promises "
                      "cards that this one has promised too");
            found_do(
                out, it,
                "kubectl -n %s get deployments -o wide    # and delete its Deployment; "
                "of the same "
                "name:\nkubectl replace -f manifests/deployment.yaml    # and what else "
                "docs/operations.md says",
                ns);
        }
    }
}

static void judge_deployment(const struct setup_facts *f, struct found *out)
{
    const json_t *all = judge_items(f, SETUP_DEPLOYMENTS);
    const json_t *pods = judge_items(f, SETUP_EXTENDERS);
    struct finding *it;
    if (f->reach.answer != SETUP_ANSWERS &&
        judge_list_known(f, SETUP_DEPLOYMENTS, "Deployments", out)) {
        if (!json_array_size(all)) {
            it = found_add(out, FOUND_WRONG, "no-deployment",
                           "there is no Deployment with label "
                           "component=gpushare-schd-extender");
            found_do(out, it,
                     "helm install gpushare manifests/chart -n kube-system\n"
                     "or kubectl apply -f manifests/");
        } else if (!json_array_size(pods)) {
            it = found_add(out, FOUND_WRONG, "no-pod", "Deployment %s has no pod",
                           judge_name(json_array_get(all, 0)));
            found_do(out, it, "kubectl -n kube-system scale deployment %s --replicas 1",
                     judge_name(json_array_get(all, 0)));
        }
        for (size_t i = 0; i < json_array_size(pods); i++)
            judge_pod(f, json_array_get(pods, i), out);
    }
    judge_rivals(f, out);
}

static void judge_rights(const struct setup_facts *f, struct found *out)
{
    struct finding *it;
    if (!f->denied) {
        if (f->denied_why.code != ERR_NONE)
            found_add(out, FOUND_UNKNOWN, "rights",
                      "rights of the extender's account: %s", f->denied_why.msg);
        return;
    }
    for (size_t i = 0; i < json_array_size(f->denied); i++) {
        it = found_add(out, FOUND_WRONG, "right-missing",
                       "the extender's account may not %s",
                       json_string_value(json_array_get(f->denied, i)));
        found_why(out, it,
                  "it does not become ready without its lists, and binds nothing "
                  "without pods/binding and its Lease");
        found_do(out, it, "kubectl apply -f manifests/rbac.yaml");
    }
}

void judge_cluster(const struct setup_facts *f, struct found *out)
{
    if (f->cluster_why.code != ERR_NONE) {
        struct finding *it =
            found_add(out, FOUND_UNKNOWN, "no-api", "the API server was not asked: %s",
                      f->cluster_why.msg);
        found_do(out, it,
                 "scripts/install --check --kubeconfig /etc/kubernetes/admin.conf");
        return;
    }
    judge_others(f, out);
    judge_service(f, out);
    judge_endpoints(f, out);
    judge_deployment(f, out);
    judge_rights(f, out);
    judge_nodes(f, out);
}
