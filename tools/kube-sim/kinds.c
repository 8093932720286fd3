/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"

/* The resources that are served, and the routes to them. */

#define NAME_FIELD                                                                       \
    {                                                                                    \
        "metadata.name", NULL, NULL                                                      \
    }
#define NS_FIELD                                                                         \
    {                                                                                    \
        "metadata.namespace", NULL, NULL                                                 \
    }

/* The types of their known members. */
#define CONTAINERS(list)                                                                 \
    "spec." list " objects\n"                                                            \
    "spec." list "[].name string\n"                                                      \
    "spec." list "[].image string\n"                                                     \
    "spec." list "[].resources object\n"                                                 \
    "spec." list "[].resources.limits amounts\n"                                         \
    "spec." list "[].resources.requests amounts\n"

static const struct field named[] = {NAME_FIELD, {0}};
static const struct field namespaced[] = {NAME_FIELD, NS_FIELD, {0}};
static const struct field namespace_fields[] = {
    NAME_FIELD, {"status.phase", NULL, NULL}, {"name", "metadata.name", NULL}, {0}};
static const struct field secret_fields[] = {
    NAME_FIELD, NS_FIELD, {"type", NULL, NULL}, {0}};
static const struct field node_fields[] = {
    NAME_FIELD, {"spec.unschedulable", NULL, "false"}, {0}};
static const struct field pod_fields[] = {NAME_FIELD,
                                          NS_FIELD,
                                          {"spec.nodeName", NULL, NULL},
                                          {"spec.schedulerName", NULL, NULL},
                                          {"status.phase", NULL, NULL},
                                          {0}};
static const struct field event_fields[] = {NAME_FIELD,
                                            NS_FIELD,
                                            {"regarding.kind", NULL, NULL},
                                            {"regarding.namespace", NULL, NULL},
                                            {"regarding.name", NULL, NULL},
                                            {"reason", NULL, NULL},
                                            {"reportingController", NULL, NULL},
                                            {"type", NULL, NULL},
                                            {0}};

const struct kind sim_kinds[KINDS_N] = {
    {"", "namespaces", "namespace", "Namespace", .status = true,
     .fields = namespace_fields,
     .shape = "spec object\n"
              "spec.finalizers strings\n"
              "status object\n",
     .fill = sim_fill_namespace},
    {"", "nodes", "node", "Node", .status = true, .fields = node_fields,
     .shape = "spec object\n"
              "spec.unschedulable bool\n"
              "spec.taints objects\n"
              "status object\n"
              "status.capacity amounts\n"
              "status.allocatable amounts\n"
              "status.conditions objects\n",
     .fill = sim_fill_node},
    {"", "pods", "pod", "Pod", .namespaced = true, .status = true, .binding = true,
     .graceful = true, .fields = pod_fields,
     .shape = "spec object\n" CONTAINERS("containers")
         CONTAINERS("initContainers") "spec.nodeName string\n"
                                      "spec.schedulerName string\n"
                                      "spec.priority int\n"
                                      "spec.terminationGracePeriodSeconds int\n"
                                      "spec.nodeSelector texts\n"
                                      "spec.tolerations objects\n"
                                      "spec.schedulingGates objects\n"
                                      "spec.overhead amounts\n"
                                      "status object\n"
                                      "status.phase string\n"
                                      "status.nominatedNodeName string\n"
                                      "status.conditions objects\n",
     .fill = sim_pod_fill, .check = sim_pod_check},
    {"", "configmaps", "configmap", "ConfigMap", .namespaced = true, .fields = namespaced,
     .shape = "data texts\n"
              "binaryData texts\n"
              "immutable bool\n"},
    {"", "resourcequotas", "resourcequota", "ResourceQuota", .namespaced = true,
     .status = true, .fields = namespaced,
     .shape = "spec object\n"
              "spec.hard amounts\n"
              "spec.scopes strings\n"
              "status object\n"
              "status.hard amounts\n"
              "status.used amounts\n"},
    {"", "secrets", "secret", "Secret", .namespaced = true, .fields = secret_fields,
     .shape = "data texts\n"
              "type string\n"
              "immutable bool\n",
     .fill = sim_fill_secret, .check = sim_check_secret},
    {"apps", "deployments", "deployment", "Deployment", .namespaced = true,
     .status = true, .fields = namespaced,
     .shape = "spec object\n"
              "spec.template object\n"
              "spec.template.metadata object\n"
              "spec.template.metadata.annotations texts\n"
              "spec.template.spec object\n"},
    {"coordination.k8s.io", "leases", "lease", "Lease", .versioned = true,
     .namespaced = true, .fields = namespaced,
     .shape = "spec object\n"
              "spec.holderIdentity string\n"
              "spec.leaseDurationSeconds int\n"
              "spec.leaseTransitions int\n"
              "spec.acquireTime micro\n"
              "spec.renewTime micro\n",
     .fill = sim_fill_lease},
    {"events.k8s.io", "events", "event", "Event", .namespaced = true,
     .fields = event_fields,
     .shape = "regarding object\n"
              "regarding.kind string\n"
              "regarding.namespace string\n"
              "regarding.name string\n"
              "regarding.uid string\n"
              "reason string\n"
              "note string\n"
              "type string\n"
              "action string\n"
              "eventTime micro\n"
              "series object\n"
              "series.count int\n"
              "series.lastObservedTime micro\n"
              "reportingController string\n"
              "reportingInstance string\n",
     .core_faults = true, .fill = sim_fill_event, .check = sim_check_event},
    {"core.run-linux.com", "scvs", "scv", "Scv", .custom = true, .versioned = true,
     .fields = named,
     .shape = "spec object\n"
              "spec.updateInterval int\n"
              "status object\n"
              "status.cardNumber int\n"
              "status.totalMemorySum int\n"
              "status.freeMemorySum int\n"
              "status.updateTime time\n"
              "status.driverVersion string\n"
              "status.cudaVersion string\n"
              "status.isolation strings\n"
              "status.podList objects\n"
              "status.cardList objects\n"
              "status.cardList[].id int\n"
              "status.cardList[].health string\n"
              "status.cardList[].model string\n"
              "status.cardList[].power int\n"
              "status.cardList[].totalMemory int\n"
              "status.cardList[].freeMemory int\n"
              "status.cardList[].usedMemory int\n"
              "status.cardList[].usageComplete bool\n"
              "status.cardList[].clock int\n"
              "status.cardList[].core int\n"
              "status.cardList[].bandwidth int\n"
              "status.cardList[].utilization int\n"
              "status.cardList[].temperature int\n"
              "status.cardList[].uuid string\n"
              "status.cardList[].busId string\n",
     .check = sim_check_scv},
};

size_t sim_kind_index(const struct kind *k)
{
    return (size_t)(k - sim_kinds);
}

/* NULL: not served. `group_version` is "v1" or "group/version". */
static const struct kind *sim_kind_by_plural(struct span group, struct span version,
                                             struct span plural)
{
    for (size_t i = 0; i < KINDS_N; i++)
        if (span_eq(plural, span_of(sim_kinds[i].plural)) &&
            span_eq(group, span_of(sim_kinds[i].group)) && span_eq(version, SPAN("v1")))
            return &sim_kinds[i];
    return NULL;
}

const struct kind *sim_kind_by_type(struct span group_version, struct span kind)
{
    for (size_t i = 0; i < KINDS_N; i++) {
        struct buf version = {0};
        sim_kind_add_group_version(&sim_kinds[i], &version);
        bool same = span_eq(buf_span(&version), group_version) &&
                    span_eq(kind, span_of(sim_kinds[i].kind));
        buf_fini(&version);
        if (same)
            return &sim_kinds[i];
    }
    return NULL;
}

const struct kind *sim_kind_by_resource(struct span plural)
{
    for (size_t i = 0; i < KINDS_N; i++)
        if (span_eq(plural, span_of(sim_kinds[i].plural)))
            return &sim_kinds[i];
    return NULL;
}

void sim_kind_add_group_version(const struct kind *k, struct buf *out)
{
    buf_adds(out, k->group);
    if (k->group[0])
        buf_addc(out, '/');
    buf_adds(out, "v1");
}

void sim_kind_add_root(const struct kind *k, struct buf *out)
{
    buf_adds(out, k->group[0] ? "/apis/" : "/api/");
    sim_kind_add_group_version(k, out);
}

bool sim_kind_knows_path(struct span path)
{
    for (size_t i = 0; i < KINDS_N; i++) {
        cleanup_buf struct buf root = {0};
        sim_kind_add_root(&sim_kinds[i], &root);
        buf_addc(&root, '/');
        if (span_starts(path, buf_span(&root)))
            return true;
    }
    return false;
}

void sim_kind_add_resource(const struct kind *k, struct buf *out)
{
    buf_adds(out, k->plural);
    if (k->group[0])
        buf_addc(out, '.');
    buf_adds(out, k->group);
}

int sim_kind_field(const struct kind *k, struct span path)
{
    for (int i = 0; k->fields[i].name; i++)
        if (span_eq(path, span_of(k->fields[i].name)))
            return i;
    return -1;
}

struct span sim_kind_key(const struct kind *k, struct span ns, struct span name,
                         struct buf *out)
{
    buf_clear(out);
    if (k->namespaced) {
        buf_add_span(out, ns);
        buf_addc(out, '/');
    }
    buf_add_span(out, name);
    return buf_span(out);
}

/* Takes the next segment of the path. */
static struct span part(struct span *rest)
{
    return rest->p ? span_cut(rest, '/') : *rest;
}

/* The path after "/namespaces/": a Namespace, or resources in it. */
static void in_namespace(struct route *r, struct span group, struct span version,
                         struct span rest)
{
    struct span ns = part(&rest), plural = part(&rest);
    if (!plural.n) {
        r->kind = sim_kind_by_plural(group, version, SPAN("namespaces"));
        r->name = ns;
        return;
    }
    r->kind = sim_kind_by_plural(group, version, plural);
    if (r->kind && !r->kind->namespaced)
        r->kind = NULL;
    r->ns = ns;
    r->name = part(&rest);
    r->sub = part(&rest);
    if (rest.p)
        r->kind = NULL;
}

struct route sim_route_parse(const char *path)
{
    struct route r = {0};
    struct span rest = span_of(path), group = {"", 0};
    if (rest.n > 1 && rest.p[rest.n - 1] == '/')
        rest.n--;
    if (part(&rest).n)
        return r;
    struct span root = part(&rest);
    if (span_eq(root, SPAN("apis")))
        group = part(&rest);
    else if (!span_eq(root, SPAN("api")))
        return r;
    struct span version = part(&rest), plural = part(&rest);
    if (span_eq(plural, SPAN("namespaces")) && rest.n) {
        in_namespace(&r, group, version, rest);
    } else {
        r.kind = sim_kind_by_plural(group, version, plural);
        r.name = part(&rest);
        r.sub = part(&rest);
        if (rest.p || (r.kind && r.kind->namespaced && r.name.n))
            r.kind = NULL;
    }
    if ((r.ns.p && !r.ns.n) || (r.name.p && !r.name.n) || (r.sub.p && !r.sub.n))
        r.kind = NULL; /* an empty segment */
    return r;
}
