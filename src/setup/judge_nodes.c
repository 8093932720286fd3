/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "setup/judge_priv.h"

#define MEM "aliyun.com/gpu-mem"

static const json_t *find(const json_t *items, const char *name)
{
    for (size_t i = 0; i < json_array_size(items); i++)
        if (!strcmp(judge_name(json_array_get(items, i)), name))
            return json_array_get(items, i);
    return NULL;
}

static bool is_labelled(const json_t *node)
{
    const json_t *labels = setup_at(node, "metadata.labels");
    const char *v = json_string_value(json_object_get(labels, "gpushare"));
    return v && !strcmp(v, "true");
}

static bool has_memory(const json_t *node)
{
    const json_t *amounts = setup_at(node, "status.allocatable");
    const char *v = json_string_value(json_object_get(amounts, MEM));
    return v && *v && strcmp(v, "0") != 0;
}

static void judge_crd(const struct setup_facts *f, struct found *out)
{
    const struct setup_list *crd = &f->lists[SETUP_CRD];
    if (f->lists[SETUP_SCVS].json)
        return; /* who can be listed is there */
    if (crd->json || crd->why.code != ERR_NOT_FOUND) {
        judge_list_known(f, SETUP_CRD, "CustomResourceDefinition of Scv", out);
        return;
    }
    struct finding *it = found_add(out, FOUND_WRONG, "no-crd",
                                   "there is no CustomResourceDefinition "
                                   "scvs.core.run-linux.com");
    found_why(out, it,
              "scv-agent cannot publish cards; the extender then knows of a node "
              "only what its capacity says");
    found_do(out, it, "kubectl apply -f manifests/crd.yaml");
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

static void judge_labelled(const struct setup_facts *f, struct found *out)
{
    const json_t *nodes = judge_items(f, SETUP_NODES), *scvs = judge_items(f, SETUP_SCVS);
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
            add_name(&mute, judge_name(node));
        if (f->lists[SETUP_SCVS].json && !find(scvs, judge_name(node)))
            add_name(&blind, judge_name(node));
    }
    if (!labelled && !able) {
        it = found_add(out, FOUND_WRONG, "no-gpu-node",
                       "no node has the label gpushare=true, and none has any " MEM);
        found_why(out, it,
                  "scv-agent and the device plugin run on nodes of that label; a pod "
                  "that asks for GPU memory finds no node");
        found_do(out, it, "kubectl label node NODE gpushare=true");
    }
    if (mute.n) {
        it = found_add(out, FOUND_WRONG, "no-plugin",
                       "labelled gpushare=true, and no " MEM " to give: %s",
                       names_text(&mute));
        found_why(out, it,
                  "no device plugin has registered with the kubelet there, so "
                  "kube-scheduler sorts the node out before the extender is asked");
        found_do(out, it,
                 "kubectl -n kube-system get pods -l component=gpushare-device-plugin "
                 "-o wide\nkubectl -n kube-system logs "
                 "daemonset/gpushare-device-plugin-ds");
    }
    if (blind.n) {
        it = found_add(out, FOUND_WRONG, "no-scv",
                       "labelled gpushare=true, and no Scv: %s", names_text(&blind));
        found_why(out, it, "the extender does not know the cards there one by one");
        found_do(out, it,
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
        json_array_get(setup_at(object, "spec.template.spec.containers"), 0);
    struct span unit = SPAN("GiB");
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        const json_t *words = setup_at(c, parts[k]);
        for (size_t i = 0; i < json_array_size(words); i++) {
            struct span word = span_of(json_string_value(json_array_get(words, i)));
            struct span key = span_cut(&word, '=');
            if (span_eq(key, SPAN("--memory-unit")) && word.n)
                unit = word;
        }
    }
    return unit;
}

static void judge_units(const struct setup_facts *f, struct found *out)
{
    const json_t *extenders = judge_items(f, SETUP_DEPLOYMENTS);
    const json_t *plugins = judge_items(f, SETUP_PLUGINS);
    if (!json_array_size(extenders))
        return;
    struct span ours = unit_of(json_array_get(extenders, 0));
    for (size_t i = 0; i < json_array_size(plugins); i++) {
        struct span theirs = unit_of(json_array_get(plugins, i));
        if (span_eq(ours, theirs))
            continue;
        struct finding *it = found_add(
            out, FOUND_WRONG, "units",
            "the extender has --memory-unit=%.*s, DaemonSet %s %.*s", SPAN_ARG(ours),
            judge_name(json_array_get(plugins, i)), SPAN_ARG(theirs));
        found_why(out, it,
                  "what a pod asks for means one thing to the one, and another to the "
                  "other: cards are over-promised or stay empty");
        found_do(out, it, "kubectl -n kube-system edit daemonset %s",
                 judge_name(json_array_get(plugins, i)));
    }
}

static bool asks_for_gpu(const json_t *pod)
{
    static const char *const lists[] = {"spec.containers", "spec.initContainers"};
    const char *key;
    json_t *value;
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        const json_t *all = setup_at(pod, lists[k]);
        for (size_t i = 0; i < json_array_size(all); i++) {
            json_t *limits =
                (json_t *)setup_at(json_array_get(all, i), "resources.limits");
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
        if (*setup_str(event, names[i]))
            return setup_str(event, names[i]);
    return "";
}

/* The one of `pods` that the event is about. */
static const json_t *pod_of(const json_t *event, const json_t *pods)
{
    for (size_t i = 0; i < json_array_size(pods); i++) {
        const json_t *pod = json_array_get(pods, i);
        if (!strcmp(judge_name(pod), setup_str(event, "involvedObject.name")) &&
            !strcmp(setup_str(pod, "metadata.namespace"),
                    setup_str(event, "involvedObject.namespace")))
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

static void judge_pending(const struct setup_facts *f, struct found *out)
{
    const json_t *pods = judge_items(f, SETUP_PENDING),
                 *events = judge_items(f, SETUP_EVENTS);
    const json_t *newest = NULL;
    size_t waiting = 0;
    for (size_t i = 0; i < json_array_size(pods); i++)
        waiting += asks_for_gpu(json_array_get(pods, i));
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const json_t *pod = pod_of(event, pods);
        const char *words = setup_str(event, "message");
        if (!pod || !asks_for_gpu(pod) || !is_of_extender(words) ||
            (newest && strcmp(time_of(event), time_of(newest)) <= 0))
            continue;
        newest = event;
    }
    if (newest) {
        /* If the extender answers now, it is told of what was. */
        bool over = f->reach.answer == SETUP_ANSWERS;
        struct finding *it = found_add(out, over ? FOUND_NOTE : FOUND_WRONG, "pod-error",
                                       "pod %s/%s waits; kube-scheduler said at %s: %s",
                                       setup_str(newest, "involvedObject.namespace"),
                                       setup_str(newest, "involvedObject.name"),
                                       time_of(newest), setup_str(newest, "message"));
        if (over)
            found_why(out, it,
                      "the extender answers now; kube-scheduler tries the pod again");
    } else if (waiting) {
        struct finding *it =
            found_add(out, FOUND_NOTE, "pods-wait", "%zu pod%s for GPU memory%s", waiting,
                      waiting == 1 ? " waits" : "s wait",
                      f->reach.answer == SETUP_ANSWERS
                          ? "; that is about room, not about the extender"
                          : "");
        found_do(out, it, "kubectl inspect gpushare explain pod NAMESPACE/NAME");
    }
}

void judge_nodes(const struct setup_facts *f, struct found *out)
{
    judge_crd(f, out);
    if (judge_list_known(f, SETUP_NODES, "Nodes", out))
        judge_labelled(f, out);
    judge_units(f, out);
    judge_pending(f, out);
}
