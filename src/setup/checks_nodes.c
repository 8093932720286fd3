/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/checks_priv.h"

#define MEM "aliyun.com/gpu-mem"

enum { NAMES_MAX = 3 };

static bool has_label(const json_t *node, const char *name, const char *value)
{
    const json_t *labels = jsonpath_at(node, "metadata.labels");
    const char *v = json_string_value(json_object_get(labels, name));
    return v && !strcmp(v, value);
}

static bool has_amount(const json_t *node, const char *resource)
{
    const json_t *amounts = jsonpath_at(node, "status.allocatable");
    const char *v = json_string_value(json_object_get(amounts, resource));
    return v && *v && strcmp(v, "0") != 0;
}

/* Do our DaemonSets run there by default? NVIDIA's GPU Feature Discovery sets the second
 * label. Beside NVIDIA's own device plugin, an administrator decides by other labels. */
static bool is_labeled(const json_t *node)
{
    if (has_label(node, "gpushare", "true"))
        return true;
    return has_label(node, "nvidia.com/gpu.present", "true") &&
           !has_label(node, "gpushare", "false") && !has_amount(node, "nvidia.com/gpu");
}

static bool has_memory(const json_t *node)
{
    return has_amount(node, MEM);
}

static void report_no_gpu_node(struct findings *out)
{
    struct finding *it = findings_add(
        out, FINDING_PROBLEM, "no-gpu-node",
        "no node has the label gpushare=true or nvidia.com/gpu.present=true, and "
        "none has " MEM);
    findings_why(out, it,
                 "scv-agent and the device plugin run on nodes with one of these labels; "
                 "pods that "
                 "request GPU memory fit nowhere");
    findings_fix(out, it, "kubectl label node NODE gpushare=true");
}

static void report_no_plugin(const struct facts *f, struct findings *out,
                             const char *names, size_t n)
{
    cleanup_buf struct buf more = {0};
    if (n > NAMES_MAX)
        buf_printf(&more, " and %zu more", n - NAMES_MAX);
    struct finding *it = findings_add(
        out, FINDING_PROBLEM, "no-plugin",
        "nodes with label gpushare=true or nvidia.com/gpu.present=true but without " MEM
        ": %s%s",
        names, more.n ? more.p : "");
    findings_why(out, it,
                 "no device plugin has registered with the kubelet there, so "
                 "kube-scheduler rejects the node before it calls the extender");
    findings_fix(out, it,
                 "kubectl -n %s get pods -l component=gpushare-device-plugin -o wide\n"
                 "kubectl -n %s logs daemonset/gpushare-device-plugin-ds",
                 facts_namespace(f), facts_namespace(f));
}

static void check_labels(const struct facts *f, struct findings *out)
{
    const json_t *nodes = checks_items(f, FACTS_NODES);
    cleanup_buf struct buf names = {0};
    size_t labeled = 0, with_memory = 0, without = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        with_memory += has_memory(node);
        labeled += is_labeled(node);
        if (!is_labeled(node) || has_memory(node))
            continue;
        if (without++ < NAMES_MAX)
            buf_printf(&names, "%s%s", names.n ? ", " : "", checks_name(node));
    }
    if (!labeled && !with_memory)
        report_no_gpu_node(out);
    if (without)
        report_no_plugin(f, out, names.p, without);
}

static bool requests_gpu(const json_t *pod)
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

/* The pod, of `pods`, that the event is about. */
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

/* Does the message report a failed call of an extender, not an extender's rejection? */
static bool is_extender_error(const char *message)
{
    static const char *const marks[] = {"extender", "32766", "gpushare-scheduler",
                                        "connection refused", "Client.Timeout"};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (strstr(message, marks[i]))
            return true;
    return false;
}

static const json_t *newest_error(const struct facts *f, const json_t *pods)
{
    const json_t *events = checks_items(f, FACTS_EVENTS), *newest = NULL;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const json_t *pod = pod_of(event, pods);
        if (pod && requests_gpu(pod) &&
            is_extender_error(jsonpath_str(event, "message")) &&
            (!newest || strcmp(time_of(event), time_of(newest)) > 0))
            newest = event;
    }
    return newest;
}

static void check_pending(const struct facts *f, struct findings *out)
{
    const json_t *pods = checks_items(f, FACTS_PENDING), *event = newest_error(f, pods);
    bool reached = f->reach.answer == FACTS_REACH_OK;
    size_t pending = 0;
    struct finding *it;
    for (size_t i = 0; i < json_array_size(pods); i++)
        pending += requests_gpu(json_array_get(pods, i));
    if (event) {
        it = findings_add(out, reached ? FINDING_NOTE : FINDING_PROBLEM, "pod-error",
                          "pod %s/%s is pending; kube-scheduler reported at %s: %s",
                          jsonpath_str(event, "involvedObject.namespace"),
                          jsonpath_str(event, "involvedObject.name"), time_of(event),
                          jsonpath_str(event, "message"));
        if (reached)
            findings_why(out, it,
                         "the extender answers now; kube-scheduler will retry the pod");
    } else if (pending) {
        it = findings_add(out, FINDING_NOTE, "pending-pods",
                          "%zu pending pod%s that request%s GPU memory%s", pending,
                          pending == 1 ? "" : "s", pending == 1 ? "s" : "",
                          reached ? "; the extender is not the reason" : "");
        findings_fix(out, it, "kubectl inspect gpushare explain pod NAMESPACE/NAME");
    }
}

void checks_nodes(const struct facts *f, struct findings *out)
{
    if (checks_has_list(f, FACTS_NODES, "Nodes", out))
        check_labels(f, out);
    check_pending(f, out);
}
