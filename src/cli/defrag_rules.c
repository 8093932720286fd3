/* SPDX-License-Identifier: Apache-2.0 */

/* Which pods may be moved, and to which nodes. */

#include "cli/defrag_rules.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/keys.h"

#define CORDON_KEY "node.kubernetes.io/unschedulable"

static const json_t *at(const json_t *o, const char *a, const char *b)
{
    return json_object_get(json_object_get(o, a), b);
}

static struct span text_at(const json_t *o, const char *key)
{
    return span_of(json_string_value(json_object_get(o, key)));
}

static bool is_in(const json_t *values, const char *value)
{
    const json_t *item;
    size_t i;
    json_array_foreach(values, i, item)
    {
        const char *text = json_string_value(item);
        if (text && !strcmp(text, value))
            return true;
    }
    return false;
}

/* Gt and Lt: one value, and both are integers. */
static bool compares(const json_t *values, const char *value, bool greater)
{
    const char *limit = json_string_value(json_array_get(values, 0));
    int64_t a, b;
    if (json_array_size(values) != 1 || !span_i64(span_of(value), &a) ||
        !span_i64(span_of(limit), &b))
        return false;
    return greater ? a > b : a < b;
}

/* `value` NULL: the node has no such label. */
static bool expression_matches(const json_t *e, const char *value)
{
    struct span operator= text_at(e, "operator");
    const json_t *values = json_object_get(e, "values");
    if (span_eq(operator, SPAN("In")))
        return value && is_in(values, value);
    if (span_eq(operator, SPAN("NotIn")))
        return !value || !is_in(values, value);
    if (span_eq(operator, SPAN("Exists")))
        return value != NULL;
    if (span_eq(operator, SPAN("DoesNotExist")))
        return !value;
    if (span_eq(operator, SPAN("Gt")))
        return compares(values, value, true);
    return span_eq(operator, SPAN("Lt")) && compares(values, value, false);
}

/* A term without expressions matches no node. */
static bool term_matches(const json_t *term, const json_t *node)
{
    const json_t *expressions = json_object_get(term, "matchExpressions");
    const json_t *fields = json_object_get(term, "matchFields"), *e;
    size_t i;
    if (!json_array_size(expressions) && !json_array_size(fields))
        return false;
    json_array_foreach(expressions, i, e)
    {
        const char *key = json_string_value(json_object_get(e, "key"));
        const json_t *value = key ? at(node, "labels", key) : NULL;
        if (!key || !expression_matches(e, json_string_value(value)))
            return false;
    }
    json_array_foreach(fields, i, e)
    {
        if (!span_eq(text_at(e, "key"), SPAN("metadata.name")) ||
            !expression_matches(e, json_string_value(json_object_get(node, "name"))))
            return false;
    }
    return true;
}

static bool matches_affinity(const json_t *pod, const json_t *node)
{
    const json_t *required =
        json_object_get(at(pod, "affinity", "nodeAffinity"),
                        "requiredDuringSchedulingIgnoredDuringExecution");
    const json_t *value;
    const char *key;
    size_t i;
    json_object_foreach((json_t *)json_object_get(pod, "nodeSelector"), key, value)
    {
        if (!json_is_string(value) || !json_equal(value, at(node, "labels", key)))
            return false;
    }
    if (!json_is_object(required))
        return true;
    json_array_foreach(json_object_get(required, "nodeSelectorTerms"), i, value)
    {
        if (term_matches(value, node))
            return true;
    }
    return false;
}

/* As in kube-scheduler: an empty key with Exists matches all keys, an empty effect all
 * effects. */
static bool tolerates(const json_t *pod, struct span key, struct span value,
                      struct span effect)
{
    const json_t *t;
    size_t i;
    json_array_foreach(json_object_get(pod, "tolerations"), i, t)
    {
        struct span of_key = text_at(t, "key"), of_effect = text_at(t, "effect");
        struct span operator= text_at(t, "operator");
        bool exists = span_eq(operator, SPAN("Exists"));
        bool equal = (!operator.n || span_eq(operator, SPAN("Equal"))) && of_key.n &&
                     span_eq(text_at(t, "value"), value);
        if ((of_key.n ? span_eq(of_key, key) : exists) && (exists || equal) &&
            (!of_effect.n || span_eq(of_effect, effect)))
            return true;
    }
    return false;
}

static bool tolerates_cordon(const json_t *pod)
{
    return tolerates(pod, SPAN(CORDON_KEY), SPAN(""),
                     SPAN("NoSchedule"));
}

bool defrag_rules_tolerate_cordon(const json_t *pod)
{
    return tolerates_cordon(json_object_get(pod, "spec"));
}

static bool matches_taints(const json_t *pod, const json_t *node, bool cordoned_too)
{
    const json_t *taint;
    size_t i;
    json_array_foreach(json_object_get(node, "taints"), i, taint)
    {
        struct span key = text_at(taint, "key"), effect = text_at(taint, "effect");
        if (span_eq(effect, SPAN("PreferNoSchedule")) ||
            (!cordoned_too && span_eq(key, SPAN(CORDON_KEY))))
            continue;
        if (!tolerates(pod, key, text_at(taint, "value"), effect))
            return false;
    }
    return !cordoned_too || !json_is_true(json_object_get(node, "unschedulable")) ||
           tolerates_cordon(pod);
}

static struct span annotation(const json_t *pod, const char *key)
{
    return text_at(at(pod, "metadata", "annotations"), key);
}

static const json_t *controller_of(const json_t *pod)
{
    const json_t *owner;
    size_t i;
    json_array_foreach(at(pod, "metadata", "ownerReferences"), i, owner)
    {
        if (json_is_true(json_object_get(owner, "controller")))
            return owner;
    }
    return NULL;
}

static const char *stays_for_controller(const json_t *pod, bool safe)
{
    static const char *const replacing[] = {"ReplicaSet", "ReplicationController",
                                            "StatefulSet"};
    const json_t *controller = controller_of(pod);
    struct span kind = text_at(controller, "kind");
    if (annotation(pod, KEY_MIRROR).n)
        return "is the mirror pod of a static pod";
    if (!controller)
        return "has no controller that would replace it";
    if (span_eq(kind, SPAN("DaemonSet")))
        return "belongs to a DaemonSet";
    for (size_t i = 0; i < ARRAY_LEN(replacing); i++)
        if (span_eq(kind, span_of(replacing[i])))
            return NULL;
    if (safe)
        return NULL;
    return span_eq(kind, SPAN("Job"))
               ? "belongs to a Job, which would lose its work (safe-to-evict is not true)"
               : "has a controller of an unknown kind (safe-to-evict is not true)";
}

static const char *stays_for_volumes(const json_t *spec, bool safe)
{
    const json_t *volume, *dir;
    size_t i;
    json_array_foreach(json_object_get(spec, "volumes"), i, volume)
    {
        if (json_object_get(volume, "persistentVolumeClaim") ||
            json_object_get(volume, "ephemeral"))
            return "has a volume claim, whose volume may be tied to nodes";
        dir = json_object_get(volume, "emptyDir");
        if (!safe &&
            (json_object_get(volume, "hostPath") ||
             (dir && !span_eq(text_at(dir, "medium"), SPAN("Memory")))))
            return "has local data: emptyDir or hostPath (safe-to-evict is not true)";
    }
    return NULL;
}

static bool is_checked_resource(const char *name)
{
    return !strchr(name, '/')
               ? strncmp(name, "hugepages-", 10) != 0
               : !strcmp(name, KEY_GPU_MEM) || !strcmp(name, KEY_GPU_COUNT);
}

static const char *stays_for_containers(const json_t *containers)
{
    static const char *const lists[] = {"requests", "limits"};
    const json_t *c, *port, *amount;
    const char *name;
    size_t i, k;
    json_array_foreach(containers, i, c)
    {
        json_array_foreach(json_object_get(c, "ports"), k, port)
        {
            if (json_integer_value(json_object_get(port, "hostPort")))
                return "uses a port of its node";
        }
        for (k = 0; k < ARRAY_LEN(lists); k++)
            json_object_foreach((json_t *)at(c, "resources", lists[k]), name, amount)
            {
                if (!is_checked_resource(name))
                    return "requests a resource that the plan does not check";
            }
    }
    return NULL;
}

static const char *stays_for_constraints(const json_t *spec)
{
    static const char required[] = "requiredDuringSchedulingIgnoredDuringExecution";
    const json_t *affinity = json_object_get(spec, "affinity"), *spread;
    size_t i;
    if (at(affinity, "podAffinity", required) ||
        at(affinity, "podAntiAffinity", required))
        return "has required pod affinity or anti-affinity, which the plan does not "
               "check";
    json_array_foreach(json_object_get(spec, "topologySpreadConstraints"), i, spread)
    {
        if (!span_eq(text_at(spread, "whenUnsatisfiable"), SPAN("ScheduleAnyway")))
            return "has a topology spread constraint, which the plan does not check";
    }
    if (json_array_size(json_object_get(spec, "resourceClaims")))
        return "has resource claims, which the plan does not check";
    const char *why = stays_for_containers(json_object_get(spec, "containers"));
    return why ? why : stays_for_containers(json_object_get(spec, "initContainers"));
}

static const char *stays(const json_t *pod, const struct ledger_pod *p)
{
    const json_t *spec = json_object_get(pod, "spec");
    struct span evict = annotation(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict");
    bool safe = span_eq(evict, SPAN("true"));
    const char *why;
    if (at(pod, "metadata", "deletionTimestamp"))
        return "is being deleted";
    if ((why = stays_for_controller(pod, safe)))
        return why;
    if (span_eq(evict, SPAN("false")))
        return "has the annotation safe-to-evict: false";
    if (p->member)
        return "is a member of a gang";
    why = stays_for_volumes(spec, safe);
    return why ? why : stays_for_constraints(spec);
}

/* By UID and by name: of each object, what the rules read. */
struct defrag_rules {
    json_t *pods, *nodes;
};

struct defrag_rules *defrag_rules_new(void)
{
    struct defrag_rules *m = xcalloc(1, sizeof *m);
    m->pods = json_object();
    m->nodes = json_object();
    return m;
}

void defrag_rules_free(struct defrag_rules *m)
{
    if (!m)
        return;
    json_decref(m->pods);
    json_decref(m->nodes);
    free(m);
}

/* An O* that is absent is left out. */
void defrag_rules_add_pods(struct defrag_rules *m, const struct ledger *l,
                           const json_t *items)
{
    const json_t *pod;
    size_t i;
    json_array_foreach(items, i, pod)
    {
        struct span uid = text_at(json_object_get(pod, "metadata"), "uid");
        const struct ledger_pod *p = ledger_pod_find(l, uid);
        if (!uid.n || !p)
            continue;
        json_object_set_new(
            m->pods, uid.p,
            json_pack("{s:O*,s:O*,s:O*,s:O*,s:s*}", "nodeSelector",
                      at(pod, "spec", "nodeSelector"), "affinity",
                      at(pod, "spec", "affinity"), "tolerations",
                      at(pod, "spec", "tolerations"), "controller",
                      json_object_get(controller_of(pod), "uid"), "stays",
                      stays(pod, p)));
    }
}

void defrag_rules_add_nodes(struct defrag_rules *m, const json_t *items)
{
    const json_t *node;
    size_t i;
    json_array_foreach(items, i, node)
    {
        struct span name = text_at(json_object_get(node, "metadata"), "name");
        if (!name.n)
            continue;
        json_object_set_new(
            m->nodes, name.p,
            json_pack("{s:O,s:O*,s:O*,s:O*}", "name", at(node, "metadata", "name"),
                      "labels", at(node, "metadata", "labels"), "taints",
                      at(node, "spec", "taints"), "unschedulable",
                      at(node, "spec", "unschedulable")));
    }
}

static const json_t *pod_of(const struct defrag_rules *m, struct span uid)
{
    return json_object_getn(m->pods, uid.n ? uid.p : "", uid.n);
}

bool defrag_rules_has_pod(const struct defrag_rules *m, struct span uid)
{
    return pod_of(m, uid) != NULL;
}

const char *defrag_rules_stays(const struct defrag_rules *m, struct span uid)
{
    const json_t *p = pod_of(m, uid);
    return p ? text_at(p, "stays").p : "has just been created";
}

struct span defrag_rules_controller(const struct defrag_rules *m, struct span uid)
{
    return text_at(pod_of(m, uid), "controller");
}

bool defrag_rules_allow(const struct defrag_rules *m, struct span uid, struct span node,
                        bool cordoned_too)
{
    const json_t *p = pod_of(m, uid);
    const json_t *n = json_object_getn(m->nodes, node.n ? node.p : "", node.n);
    if (!n || (!p && uid.n))
        return false;
    if (!p)
        return !cordoned_too || !json_is_true(json_object_get(n, "unschedulable"));
    return matches_affinity(p, n) && matches_taints(p, n, cordoned_too);
}
