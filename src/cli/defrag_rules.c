/* SPDX-License-Identifier: Apache-2.0 */

/* Which pods may be moved, and to which nodes. */

#include "cli/defrag_rules.h"

#include <errno.h>
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

static bool read_int(const char *text, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *text && !*end && !errno;
}

/* Gt and Lt: one value, and both are integers. */
static bool compares(const json_t *values, const char *value, bool greater)
{
    const char *limit = json_string_value(json_array_get(values, 0));
    long long a, b;
    if (json_array_size(values) != 1 || !limit || !value || !read_int(value, &a) ||
        !read_int(limit, &b))
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
        const json_t *value =
            key ? json_object_get(at(node, "metadata", "labels"), key) : NULL;
        if (!key || !expression_matches(e, json_string_value(value)))
            return false;
    }
    json_array_foreach(fields, i, e)
    {
        if (!span_eq(text_at(e, "key"), SPAN("metadata.name")) ||
            !expression_matches(e, json_string_value(at(node, "metadata", "name"))))
            return false;
    }
    return true;
}

static bool selector_matches(const json_t *selector, const json_t *node)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)selector, key, value)
    {
        const char *label =
            json_string_value(json_object_get(at(node, "metadata", "labels"), key));
        if (!label || !json_is_string(value) || strcmp(label, json_string_value(value)))
            return false;
    }
    return true;
}

static bool matches_affinity(const json_t *spec, const json_t *node)
{
    const json_t *required =
        json_object_get(at(spec, "affinity", "nodeAffinity"),
                        "requiredDuringSchedulingIgnoredDuringExecution");
    const json_t *term;
    size_t i;
    if (!selector_matches(json_object_get(spec, "nodeSelector"), node))
        return false;
    if (!json_is_object(required))
        return true;
    json_array_foreach(json_object_get(required, "nodeSelectorTerms"), i, term)
    {
        if (term_matches(term, node))
            return true;
    }
    return false;
}

/* As in kube-scheduler: an empty key with Exists matches all keys, an empty effect all
 * effects. */
static bool tolerates(const json_t *spec, struct span key, struct span value,
                      struct span effect)
{
    const json_t *t;
    size_t i;
    json_array_foreach(json_object_get(spec, "tolerations"), i, t)
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

static bool matches_taints(const json_t *spec, const json_t *node, bool cordoned_too)
{
    const json_t *taint;
    size_t i;
    json_array_foreach(at(node, "spec", "taints"), i, taint)
    {
        struct span key = text_at(taint, "key"), effect = text_at(taint, "effect");
        if (span_eq(effect, SPAN("PreferNoSchedule")) ||
            (!cordoned_too && span_eq(key, SPAN(CORDON_KEY))))
            continue;
        if (!tolerates(spec, key, text_at(taint, "value"), effect))
            return false;
    }
    return !cordoned_too || !json_is_true(at(node, "spec", "unschedulable")) ||
           tolerates(spec, SPAN(CORDON_KEY), (struct span){"", 0}, SPAN("NoSchedule"));
}

/* Pods with the same constraints share them. The verdict on a node is computed once. */
struct constraints {
    struct span text; /* compact JSON */
    json_t *spec;
    unsigned char *verdicts; /* by node: 0 unknown, else VERDICT_* */
    size_t n_verdicts;
    struct constraints *next;
};
enum { VERDICT_KNOWN = 1, VERDICT_ALLOWED = 2, VERDICT_UNLESS_CORDONED = 4 };

struct known_pod {
    struct span uid, controller;
    const char *stays;
    struct constraints *constraints;
    struct known_pod *next;
    char bytes[];
};

struct known_node {
    struct span name;
    size_t index;
    json_t *object;
    struct known_node *next;
};

struct defrag_rules {
    struct map pods, nodes, constraints;
    struct known_pod *first_pod;
    struct known_node *first_node;
    struct constraints *first_constraints;
    size_t n_nodes;
};

struct defrag_rules *defrag_rules_new(uint64_t seed)
{
    struct defrag_rules *m = xcalloc(1, sizeof *m);
    map_init(&m->pods, seed, offsetof(struct known_pod, uid));
    map_init(&m->nodes, seed, offsetof(struct known_node, name));
    map_init(&m->constraints, seed, offsetof(struct constraints, text));
    return m;
}

void defrag_rules_free(struct defrag_rules *m)
{
    if (!m)
        return;
    for (struct known_pod *p = m->first_pod, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    for (struct known_node *n = m->first_node, *next; n; n = next) {
        next = n->next;
        json_decref(n->object);
        free(n);
    }
    for (struct constraints *c = m->first_constraints, *next; c; c = next) {
        next = c->next;
        free((char *)c->text.p);
        json_decref(c->spec);
        free(c->verdicts);
        free(c);
    }
    map_fini(&m->pods);
    map_fini(&m->nodes);
    map_fini(&m->constraints);
    free(m);
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

/* Labels and annotations by which the members of a gang name their group. */
static bool is_of_gang(const json_t *pod)
{
    static const char *const labels[] = {
        "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name",
        "scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name",
        "volcano.sh/job-name"};
    static const char *const annotations[] = {"scheduling.k8s.io/group-name",
                                              "scheduling.volcano.sh/group-name"};
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (json_object_get(at(pod, "metadata", "labels"), labels[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(annotations); i++)
        if (annotation(pod, annotations[i]).n)
            return true;
    return at(pod, "spec", "workloadRef") || at(pod, "spec", "schedulingGroup");
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

static bool is_memory(const json_t *empty_dir)
{
    return span_eq(text_at(empty_dir, "medium"), SPAN("Memory"));
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
        if (!safe && (json_object_get(volume, "hostPath") || (dir && !is_memory(dir))))
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
        json_object_foreach((json_t *)at(c, "resources", "requests"), name, amount)
        {
            if (!is_checked_resource(name))
                return "requests a resource that the plan does not check";
        }
        json_object_foreach((json_t *)at(c, "resources", "limits"), name, amount)
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

static const char *stays(const json_t *pod)
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
    if (is_of_gang(pod))
        return "is a member of a gang";
    why = stays_for_volumes(spec, safe);
    return why ? why : stays_for_constraints(spec);
}

static struct constraints *share_constraints(struct defrag_rules *m, const json_t *spec)
{
    static const char *const keys[] = {"nodeSelector", "affinity", "tolerations"};
    json_t *o = json_object();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(spec, keys[i]))
            json_object_set(o, keys[i], json_object_get(spec, keys[i]));
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    struct constraints *c = map_get(&m->constraints, span_of(text));
    if (!c) {
        c = xcalloc(1, sizeof *c);
        c->text = span_of(xstrdup(text ? text : ""));
        c->spec = json_deep_copy(o);
        c->next = m->first_constraints;
        m->first_constraints = c;
        map_set(&m->constraints, c);
    }
    free(text);
    json_decref(o);
    return c;
}

static void add_pod(struct defrag_rules *m, const json_t *pod)
{
    struct span uid = text_at(json_object_get(pod, "metadata"), "uid");
    struct span controller = text_at(controller_of(pod), "uid");
    struct known_pod *p = xcalloc(1, sizeof *p + uid.n + controller.n + 2);
    memcpy(p->bytes, uid.p, uid.n);
    if (controller.n)
        memcpy(p->bytes + uid.n + 1, controller.p, controller.n);
    p->uid = (struct span){p->bytes, uid.n};
    p->controller = (struct span){p->bytes + uid.n + 1, controller.n};
    p->stays = stays(pod);
    p->constraints = share_constraints(m, json_object_get(pod, "spec"));
    p->next = m->first_pod; /* an older state of the pod stays in the list */
    m->first_pod = p;
    map_set(&m->pods, p);
}

void defrag_rules_add_pods(struct defrag_rules *m, const struct ledger *l,
                           const json_t *items)
{
    const json_t *pod;
    size_t i;
    json_array_foreach(items, i, pod)
    {
        struct span uid = text_at(json_object_get(pod, "metadata"), "uid");
        if (uid.n && ledger_pod_find(l, uid))
            add_pod(m, pod);
    }
}

/* Keeps only what the rules read. */
static json_t *pruned(const json_t *node)
{
    json_t *o = json_object(), *meta = json_object(), *spec = json_object();
    json_object_set(meta, "name",
                    json_object_get(json_object_get(node, "metadata"), "name"));
    if (at(node, "metadata", "labels"))
        json_object_set(meta, "labels", (json_t *)at(node, "metadata", "labels"));
    if (at(node, "spec", "taints"))
        json_object_set(spec, "taints", (json_t *)at(node, "spec", "taints"));
    if (at(node, "spec", "unschedulable"))
        json_object_set(spec, "unschedulable",
                        (json_t *)at(node, "spec", "unschedulable"));
    json_object_set_new(o, "metadata", meta);
    json_object_set_new(o, "spec", spec);
    return o;
}

/* The verdicts of a node that was replaced are of its former state. */
static void forget_verdicts(struct defrag_rules *m, size_t index)
{
    for (struct constraints *c = m->first_constraints; c; c = c->next)
        if (index < c->n_verdicts)
            c->verdicts[index] = 0;
}

void defrag_rules_add_nodes(struct defrag_rules *m, const json_t *items)
{
    const json_t *node;
    size_t i;
    json_array_foreach(items, i, node)
    {
        struct span name = text_at(json_object_get(node, "metadata"), "name");
        struct known_node *n = map_get(&m->nodes, name);
        if (!name.n)
            continue;
        if (n) {
            map_remove(&m->nodes, name);
            json_decref(n->object);
            forget_verdicts(m, n->index);
        } else {
            n = xcalloc(1, sizeof *n);
            n->index = m->n_nodes++;
            n->next = m->first_node;
            m->first_node = n;
        }
        n->object = pruned(node);
        n->name = text_at(json_object_get(n->object, "metadata"), "name");
        map_set(&m->nodes, n);
    }
}

bool defrag_rules_has_pod(const struct defrag_rules *m, struct span uid)
{
    return map_get(&m->pods, uid) != NULL;
}

const char *defrag_rules_stays(const struct defrag_rules *m, struct span uid)
{
    const struct known_pod *p = map_get(&m->pods, uid);
    return p ? p->stays : "has just been created";
}

struct span defrag_rules_controller(const struct defrag_rules *m, struct span uid)
{
    const struct known_pod *p = map_get(&m->pods, uid);
    return p ? p->controller : (struct span){0};
}

static unsigned char judge(const struct constraints *c, const struct known_node *n)
{
    if (!matches_affinity(c->spec, n->object) ||
        !matches_taints(c->spec, n->object, false))
        return VERDICT_KNOWN;
    return matches_taints(c->spec, n->object, true)
               ? VERDICT_KNOWN | VERDICT_ALLOWED
               : VERDICT_KNOWN | VERDICT_UNLESS_CORDONED;
}

bool defrag_rules_allow(struct defrag_rules *m, struct span uid, struct span node,
                        bool cordoned_too)
{
    const struct known_pod *p = map_get(&m->pods, uid);
    const struct known_node *n = map_get(&m->nodes, node);
    if (!n || (!p && uid.n))
        return false;
    if (!p)
        return !cordoned_too || !json_is_true(at(n->object, "spec", "unschedulable"));
    struct constraints *c = p->constraints;
    if (n->index >= c->n_verdicts) {
        c->verdicts = xreallocarray(c->verdicts, m->n_nodes, 1);
        memset(c->verdicts + c->n_verdicts, 0, m->n_nodes - c->n_verdicts);
        c->n_verdicts = m->n_nodes;
    }
    if (!c->verdicts[n->index])
        c->verdicts[n->index] = judge(c, n);
    return c->verdicts[n->index] &
           (cordoned_too ? VERDICT_ALLOWED : VERDICT_ALLOWED | VERDICT_UNLESS_CORDONED);
}
