/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/checks_priv.h"

#define MEM "aliyun.com/gpu-mem"

static const json_t *find(const json_t *items, const char *name)
{
    for (size_t i = 0; i < json_array_size(items); i++)
        if (!strcmp(checks_name(json_array_get(items, i)), name))
            return json_array_get(items, i);
    return NULL;
}

static bool is_labelled(const json_t *node)
{
    const json_t *labels = jsonpath_at(node, "metadata.labels");
    const char *v = json_string_value(json_object_get(labels, "gpushare"));
    return v && !strcmp(v, "true");
}

static bool has_memory(const json_t *node)
{
    const json_t *amounts = jsonpath_at(node, "status.allocatable");
    const char *v = json_string_value(json_object_get(amounts, MEM));
    return v && *v && strcmp(v, "0") != 0;
}

static void checks_crd(const struct facts *f, struct findings *out)
{
    const struct facts_object *crd = &f->lists[FACTS_CRD];
    if (f->lists[FACTS_SCVS].json)
        return; /* who can be listed is there */
    if (crd->json || crd->why.code != ERR_NOT_FOUND) {
        checks_list_known(f, FACTS_CRD, "CustomResourceDefinition of Scv", out);
        return;
    }
    struct finding *it = findings_add(out, FINDING_PROBLEM, "no-crd",
                                   "there is no CustomResourceDefinition "
                                   "scvs.core.run-linux.com");
    findings_set_reason(out, it,
              "scv-agent cannot publish cards; the extender then knows of a node "
              "only what its capacity says");
    findings_set_command(out, it, "kubectl apply -f manifests/crd.yaml");
}

/* Each finding names three nodes at most, and how many more there are. */
struct names {
    struct buf text;
    size_t n;
};

static void add_name(struct names *to, const char *name)
{
    if (to->n++ < 3)
        buf_printf(&to->text, "%s%s", to->text.n ? ", " : "", name);
}

static const char *names_text(struct names *of)
{
    if (of->n > 3)
        buf_printf(&of->text, " and %zu more", of->n - 3);
    return of->text.p;
}

static void checks_labelled(const struct facts *f, struct findings *out)
{
    const json_t *nodes = checks_items(f, FACTS_NODES), *scvs = checks_items(f, FACTS_SCVS);
    struct names mute = {0}, blind = {0};
    size_t labelled = 0, able = 0;
    struct finding *it;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        able += has_memory(node);
        if (!is_labelled(node))
            continue;
        labelled++;
        if (!has_memory(node))
            add_name(&mute, checks_name(node));
        if (f->lists[FACTS_SCVS].json && !find(scvs, checks_name(node)))
            add_name(&blind, checks_name(node));
    }
    if (!labelled && !able) {
        it = findings_add(out, FINDING_PROBLEM, "no-gpu-node",
                       "no node has the label gpushare=true, and none has any " MEM);
        findings_set_reason(out, it,
                  "scv-agent and the device plugin run on nodes of that label; a pod "
                  "that asks for GPU memory finds no node");
        findings_set_command(out, it, "kubectl label node NODE gpushare=true");
    }
    if (mute.n) {
        it = findings_add(out, FINDING_PROBLEM, "no-plugin",
                       "labelled gpushare=true, and no " MEM " to give: %s",
                       names_text(&mute));
        findings_set_reason(out, it,
                  "no device plugin has registered with the kubelet there, so "
                  "kube-scheduler sorts the node out before the extender is asked");
        findings_set_command(out, it,
                 "kubectl -n kube-system get pods -l component=gpushare-device-plugin "
                 "-o wide\nkubectl -n kube-system logs "
                 "daemonset/gpushare-device-plugin-ds");
    }
    if (blind.n) {
        it = findings_add(out, FINDING_PROBLEM, "no-scv",
                       "labelled gpushare=true, and no Scv: %s", names_text(&blind));
        findings_set_reason(out, it, "the extender does not know the cards there one by one");
        findings_set_command(out, it,
                 "kubectl -n kube-system get pods -l component=scv-agent -o wide");
    }
    buf_fini(&mute.text);
    buf_fini(&blind.text);
}

/* The value of --memory-unit in an object with a pod template; "GiB" is the default. */
static struct span unit_of(const json_t *object)
{
    static const char *const parts[] = {"command", "args"};
    const json_t *c =
        json_array_get(jsonpath_at(object, "spec.template.spec.containers"), 0);
    struct span unit = SPAN("GiB");
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        const json_t *words = jsonpath_at(c, parts[k]);
        for (size_t i = 0; i < json_array_size(words); i++) {
            struct span word = span_of(json_string_value(json_array_get(words, i)));
            struct span key = span_cut(&word, '=');
            if (span_eq(key, SPAN("--memory-unit")) && word.n)
                unit = word;
        }
    }
    return unit;
}

static void checks_units(const struct facts *f, struct findings *out)
{
    const json_t *extenders = checks_items(f, FACTS_DEPLOYMENTS);
    const json_t *plugins = checks_items(f, FACTS_PLUGINS);
    if (!json_array_size(extenders))
        return;
    struct span ours = unit_of(json_array_get(extenders, 0));
    for (size_t i = 0; i < json_array_size(plugins); i++) {
        struct span theirs = unit_of(json_array_get(plugins, i));
        if (span_eq(ours, theirs))
            continue;
        struct finding *it = findings_add(
            out, FINDING_PROBLEM, "units",
            "the extender has --memory-unit=%.*s, DaemonSet %s %.*s", SPAN_ARG(ours),
            checks_name(json_array_get(plugins, i)), SPAN_ARG(theirs));
        findings_set_reason(out, it,
                  "what a pod asks for means one thing to the one, and another to the "
                  "other: cards are over-promised or stay empty");
        findings_set_command(out, it, "kubectl -n kube-system edit daemonset %s",
                 checks_name(json_array_get(plugins, i)));
    }
}

static bool asks_for_gpu(const json_t *pod)
{
    static const char *const lists[] = {"spec.containers", "spec.initContainers"};
    const char *key;
    json_t *value;
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        const json_t *all = jsonpath_at(pod, lists[k]);
        for (size_t i = 0; i < json_array_size(all); i++) {
            json_t *limits =
                (json_t *)jsonpath_at(json_array_get(all, i), "resources.limits");
            json_object_foreach(limits, key, value)
            {
                if (!strncmp(key, "aliyun.com/gpu-", strlen("aliyun.com/gpu-")))
                    return true;
            }
        }
    }
    return false;
}

static const char *time_of(const json_t *event)
{
    static const char *const names[] = {"series.lastObservedTime", "lastTimestamp",
                                        "eventTime", "metadata.creationTimestamp"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (*jsonpath_str(event, names[i]))
            return jsonpath_str(event, names[i]);
    return "";
}

/* The one of `pods` that the event is about. */
static const json_t *pod_of(const json_t *event, const json_t *pods)
{
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        if (!strcmp(checks_name(pod), jsonpath_str(event, "involvedObject.name")) &&
            !strcmp(jsonpath_str(pod, "metadata.namespace"),
                    jsonpath_str(event, "involvedObject.namespace")))
            return pod;
    }
    return NULL;
}

/* Does kube-scheduler say that an extender failed, rather than that it refused? */
static bool is_of_extender(const char *words)
{
    static const char *const marks[] = {"extender", "32766", "gpushare-scheduler",
                                        "connection refused", "Client.Timeout"};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (strstr(words, marks[i]))
            return true;
    return false;
}

static void checks_pending(const struct facts *f, struct findings *out)
{
    const json_t *pods = checks_items(f, FACTS_PENDING),
                 *events = checks_items(f, FACTS_EVENTS);
    const json_t *newest = NULL;
    size_t waiting = 0;
    for (size_t i = 0; i < json_array_size(pods); i++)
        waiting += asks_for_gpu(json_array_get(pods, i));
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const json_t *pod = pod_of(event, pods);
        const char *words = jsonpath_str(event, "message");
        if (!pod || !asks_for_gpu(pod) || !is_of_extender(words) ||
            (newest && strcmp(time_of(event), time_of(newest)) <= 0))
            continue;
        newest = event;
    }
    if (newest) {
        /* If the extender answers now, it is told of what was. */
        bool over = f->reach.answer == REACH_OK;
        struct finding *it = findings_add(out, over ? FINDING_NOTE : FINDING_PROBLEM, "pod-error",
                                       "pod %s/%s waits; kube-scheduler said at %s: %s",
                                       jsonpath_str(newest, "involvedObject.namespace"),
                                       jsonpath_str(newest, "involvedObject.name"),
                                       time_of(newest), jsonpath_str(newest, "message"));
        if (over)
            findings_set_reason(out, it,
                      "the extender answers now; kube-scheduler tries the pod again");
    } else if (waiting) {
        struct finding *it =
            findings_add(out, FINDING_NOTE, "pods-wait", "%zu pod%s for GPU memory%s", waiting,
                      waiting == 1 ? " waits" : "s wait",
                      f->reach.answer == REACH_OK
                          ? "; that is about room, not about the extender"
                          : "");
        findings_set_command(out, it, "kubectl inspect gpushare explain pod NAMESPACE/NAME");
    }
}

void checks_nodes(const struct facts *f, struct findings *out)
{
    checks_crd(f, out);
    if (checks_list_known(f, FACTS_NODES, "Nodes", out))
        checks_labelled(f, out);
    checks_units(f, out);
    checks_pending(f, out);
}
