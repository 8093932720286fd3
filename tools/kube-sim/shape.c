/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/shape_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kube-sim/quantity_priv.h"

const struct shape sim_shape_meta[] = {
    {"metadata", SHAPE_OBJECT},
    {"metadata.name", SHAPE_STRING},
    {"metadata.generateName", SHAPE_STRING},
    {"metadata.namespace", SHAPE_STRING},
    {"metadata.uid", SHAPE_STRING},
    {"metadata.resourceVersion", SHAPE_STRING},
    {"metadata.generation", SHAPE_INT},
    {"metadata.creationTimestamp", SHAPE_TIME},
    {"metadata.deletionTimestamp", SHAPE_TIME},
    {"metadata.deletionGracePeriodSeconds", SHAPE_INT},
    {"metadata.labels", SHAPE_TEXTS},
    {"metadata.annotations", SHAPE_TEXTS},
    {"metadata.finalizers", SHAPE_STRINGS},
    {"metadata.ownerReferences", SHAPE_OBJECTS},
    {"metadata.managedFields", SHAPE_OBJECTS},
    {0},
};
const struct shape sim_shape_namespace[] = {{"spec", SHAPE_OBJECT},
                                            {"spec.finalizers", SHAPE_STRINGS},
                                            {"status", SHAPE_OBJECT},
                                            {0}};
const struct shape sim_shape_node[] = {
    {"spec", SHAPE_OBJECT},
    {"spec.unschedulable", SHAPE_BOOL},
    {"spec.taints", SHAPE_OBJECTS},
    {"spec.podCIDR", SHAPE_STRING},
    {"spec.providerID", SHAPE_STRING},
    {"status", SHAPE_OBJECT},
    {"status.capacity", SHAPE_AMOUNTS},
    {"status.allocatable", SHAPE_AMOUNTS},
    {"status.conditions", SHAPE_OBJECTS},
    {"status.conditions[].type", SHAPE_STRING},
    {"status.conditions[].status", SHAPE_STRING},
    {"status.conditions[].lastHeartbeatTime", SHAPE_TIME},
    {"status.conditions[].lastTransitionTime", SHAPE_TIME},
    {"status.addresses", SHAPE_OBJECTS},
    {"status.images", SHAPE_OBJECTS},
    {"status.nodeInfo", SHAPE_OBJECT},
    {0},
};

#define CONTAINERS(list)                                                                 \
    {"spec." list, SHAPE_OBJECTS}, {"spec." list "[].name", SHAPE_STRING},               \
        {"spec." list "[].image", SHAPE_STRING},                                         \
        {"spec." list "[].command", SHAPE_STRINGS},                                      \
        {"spec." list "[].args", SHAPE_STRINGS},                                         \
        {"spec." list "[].restartPolicy", SHAPE_STRING},                                 \
        {"spec." list "[].env", SHAPE_OBJECTS},                                          \
        {"spec." list "[].env[].name", SHAPE_STRING},                                    \
        {"spec." list "[].env[].value", SHAPE_STRING},                                   \
        {"spec." list "[].resources", SHAPE_OBJECT},                                     \
        {"spec." list "[].resources.limits", SHAPE_AMOUNTS},                             \
        {"spec." list "[].resources.requests", SHAPE_AMOUNTS},                           \
    {                                                                                    \
        "spec." list "[].volumeMounts", SHAPE_OBJECTS                                    \
    }

const struct shape sim_shape_pod[] = {
    {"spec", SHAPE_OBJECT},
    CONTAINERS("containers"),
    CONTAINERS("initContainers"),
    {"spec.nodeName", SHAPE_STRING},
    {"spec.schedulerName", SHAPE_STRING},
    {"spec.restartPolicy", SHAPE_STRING},
    {"spec.serviceAccountName", SHAPE_STRING},
    {"spec.hostNetwork", SHAPE_BOOL},
    {"spec.priority", SHAPE_INT},
    {"spec.priorityClassName", SHAPE_STRING},
    {"spec.terminationGracePeriodSeconds", SHAPE_INT},
    {"spec.activeDeadlineSeconds", SHAPE_INT},
    {"spec.nodeSelector", SHAPE_TEXTS},
    {"spec.tolerations", SHAPE_OBJECTS},
    {"spec.volumes", SHAPE_OBJECTS},
    {"spec.schedulingGates", SHAPE_OBJECTS},
    {"spec.overhead", SHAPE_AMOUNTS},
    {"spec.affinity", SHAPE_OBJECT},
    {"status", SHAPE_OBJECT},
    {"status.phase", SHAPE_STRING},
    {"status.reason", SHAPE_STRING},
    {"status.message", SHAPE_STRING},
    {"status.podIP", SHAPE_STRING},
    {"status.nominatedNodeName", SHAPE_STRING},
    {"status.startTime", SHAPE_TIME},
    {"status.conditions", SHAPE_OBJECTS},
    {"status.conditions[].type", SHAPE_STRING},
    {"status.conditions[].status", SHAPE_STRING},
    {"status.conditions[].lastTransitionTime", SHAPE_TIME},
    {"status.containerStatuses", SHAPE_OBJECTS},
    {"status.initContainerStatuses", SHAPE_OBJECTS},
    {0},
};
const struct shape sim_shape_event[] = {
    {"involvedObject", SHAPE_OBJECT},
    {"involvedObject.kind", SHAPE_STRING},
    {"involvedObject.namespace", SHAPE_STRING},
    {"involvedObject.name", SHAPE_STRING},
    {"involvedObject.uid", SHAPE_STRING},
    {"reason", SHAPE_STRING},
    {"message", SHAPE_STRING},
    {"type", SHAPE_STRING},
    {"source", SHAPE_OBJECT},
    {"source.component", SHAPE_STRING},
    {"source.host", SHAPE_STRING},
    {"firstTimestamp", SHAPE_TIME},
    {"lastTimestamp", SHAPE_TIME},
    {"eventTime", SHAPE_MICRO},
    {"count", SHAPE_INT},
    {"action", SHAPE_STRING},
    {"reportingComponent", SHAPE_STRING},
    {"reportingInstance", SHAPE_STRING},
    {0},
};
const struct shape sim_shape_event_v1[] = {
    {"regarding", SHAPE_OBJECT},
    {"regarding.kind", SHAPE_STRING},
    {"regarding.namespace", SHAPE_STRING},
    {"regarding.name", SHAPE_STRING},
    {"regarding.uid", SHAPE_STRING},
    {"reason", SHAPE_STRING},
    {"note", SHAPE_STRING},
    {"type", SHAPE_STRING},
    {"action", SHAPE_STRING},
    {"eventTime", SHAPE_MICRO},
    {"series", SHAPE_OBJECT},
    {"series.count", SHAPE_INT},
    {"series.lastObservedTime", SHAPE_MICRO},
    {"reportingController", SHAPE_STRING},
    {"reportingInstance", SHAPE_STRING},
    {0},
};
const struct shape sim_shape_configmap[] = {
    {"data", SHAPE_TEXTS}, {"binaryData", SHAPE_TEXTS}, {"immutable", SHAPE_BOOL}, {0}};
const struct shape sim_shape_secret[] = {
    {"data", SHAPE_TEXTS}, {"type", SHAPE_STRING}, {"immutable", SHAPE_BOOL}, {0}};
const struct shape sim_shape_lease[] = {
    {"spec", SHAPE_OBJECT},
    {"spec.holderIdentity", SHAPE_STRING},
    {"spec.leaseDurationSeconds", SHAPE_INT},
    {"spec.leaseTransitions", SHAPE_INT},
    {"spec.acquireTime", SHAPE_MICRO},
    {"spec.renewTime", SHAPE_MICRO},
    {0},
};
const struct shape sim_shape_scv[] = {
    {"spec", SHAPE_OBJECT},
    {"spec.updateInterval", SHAPE_INT},
    {"status", SHAPE_OBJECT},
    {"status.cardNumber", SHAPE_INT},
    {"status.totalMemorySum", SHAPE_INT},
    {"status.freeMemorySum", SHAPE_INT},
    {"status.updateTime", SHAPE_TIME},
    {"status.driverVersion", SHAPE_STRING},
    {"status.cudaVersion", SHAPE_STRING},
    {"status.podList", SHAPE_OBJECTS},
    {"status.cardList", SHAPE_OBJECTS},
    {"status.cardList[].id", SHAPE_INT},
    {"status.cardList[].health", SHAPE_STRING},
    {"status.cardList[].model", SHAPE_STRING},
    {"status.cardList[].power", SHAPE_INT},
    {"status.cardList[].totalMemory", SHAPE_INT},
    {"status.cardList[].freeMemory", SHAPE_INT},
    {"status.cardList[].usedMemory", SHAPE_INT},
    {"status.cardList[].usageComplete", SHAPE_BOOL},
    {"status.cardList[].clock", SHAPE_INT},
    {"status.cardList[].core", SHAPE_INT},
    {"status.cardList[].bandwidth", SHAPE_INT},
    {"status.cardList[].utilization", SHAPE_INT},
    {"status.cardList[].temperature", SHAPE_INT},
    {"status.cardList[].uuid", SHAPE_STRING},
    {"status.cardList[].busId", SHAPE_STRING},
    {0},
};
const struct shape sim_shape_binding[] = {{"target", SHAPE_OBJECT},
                                          {"target.kind", SHAPE_STRING},
                                          {"target.name", SHAPE_STRING},
                                          {0}};
const struct shape sim_shape_eviction[] = {
    {"deleteOptions", SHAPE_OBJECT},
    {"deleteOptions.dryRun", SHAPE_STRINGS},
    {"deleteOptions.gracePeriodSeconds", SHAPE_INT},
    {"deleteOptions.preconditions", SHAPE_OBJECT},
    {"deleteOptions.preconditions.uid", SHAPE_STRING},
    {"deleteOptions.preconditions.resourceVersion", SHAPE_STRING},
    {0},
};
const struct shape sim_shape_delete_options[] = {
    {"gracePeriodSeconds", SHAPE_INT},   {"preconditions", SHAPE_OBJECT},
    {"preconditions.uid", SHAPE_STRING}, {"preconditions.resourceVersion", SHAPE_STRING},
    {"propagationPolicy", SHAPE_STRING}, {0},
};

static int wrong(const struct shape *row, const json_t *v, const char *go,
                 struct err *err)
{
    bool meta = span_starts(span_of(row->path), SPAN("metadata."));
    return err_set(err, ERR_INVALID,
                   "json: cannot unmarshal %s into Go struct field %s%s of type %s",
                   sim_jsonx_type(v), meta ? "ObjectMeta." : "", row->path, go);
}

/* RFC 3339 with exactly six decimals: Go's layout of MicroTime. */
static bool is_micro_time(struct span s)
{
    int64_t seconds;
    const char *point = memchr(s.p, '.', s.n);
    return clock_parse(s, &seconds) && point && s.n - (size_t)(point - s.p) > 7 &&
           strspn(point + 1, "0123456789") == 6;
}

static int check_time(const struct shape *row, json_t *v, struct err *err)
{
    struct span s = sim_jsonx_text(v);
    int64_t seconds;
    if (!s.p)
        return wrong(row, v, "time.Time", err);
    if (row->type == SHAPE_MICRO ? is_micro_time(s) : clock_parse(s, &seconds))
        return 0;
    return err_set(err, ERR_INVALID, "parsing time \"%.*s\" as \"%s\": cannot parse",
                   (int)(s.n < 64 ? s.n : 64), s.p,
                   row->type == SHAPE_MICRO ? "2006-01-02T15:04:05.000000Z07:00"
                                            : "2006-01-02T15:04:05Z07:00");
}

static int check_texts(const struct shape *row, json_t *v, struct err *err)
{
    const char *key;
    json_t *text;
    if (!json_is_object(v))
        return wrong(row, v, "map[string]string", err);
    json_object_foreach(v, key, text) if (!json_is_string(text)) return wrong(
        row, text, "string", err);
    return 0;
}

/* Normalizes one quantity. */
static int check_amount(json_t *map, const char *key, json_t *v, struct err *err)
{
    cleanup_buf struct buf text = {0};
    struct quantity q;
    if (json_is_string(v))
        buf_add_span(&text, sim_jsonx_text(v));
    else if (json_is_number(v))
        buf_printf(&text, "%.15g", json_number_value(v));
    if (!text.n || !sim_quantity_parse(buf_span(&text), &q))
        return err_set(err, ERR_INVALID,
                       "quantities must match the regular expression "
                       "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    cleanup_buf struct buf best = {0};
    sim_quantity_format(q, &best);
    if (!json_is_string(v) || !span_eq(buf_span(&best), sim_jsonx_text(v)))
        json_object_set_new(map, key, json_stringn(best.p, best.n));
    return 0;
}

static int check_amounts(const struct shape *row, json_t *v, struct err *err)
{
    const char *key;
    json_t *amount;
    if (!json_is_object(v))
        return wrong(row, v, "v1.ResourceList", err);
    json_object_foreach(v, key, amount) if (check_amount(v, key, amount, err)) return -1;
    return 0;
}

static int check_array(const struct shape *row, json_t *v, struct err *err)
{
    bool objects = row->type == SHAPE_OBJECTS;
    size_t i;
    json_t *item;
    if (!json_is_array(v))
        return wrong(row, v, objects ? "[]struct" : "[]string", err);
    json_array_foreach(
        v, i, item) if (objects ? !json_is_object(item)
                                : !json_is_string(item)) return wrong(row, item,
                                                                      objects ? "struct"
                                                                              : "string",
                                                                      err);
    return 0;
}

static int check_value(const struct shape *row, json_t *v, struct err *err)
{
    switch (row->type) {
    case SHAPE_OBJECT:
        return json_is_object(v) ? 0 : wrong(row, v, "struct", err);
    case SHAPE_STRING:
        return json_is_string(v) ? 0 : wrong(row, v, "string", err);
    case SHAPE_INT:
        return json_is_integer(v) ? 0 : wrong(row, v, "int64", err);
    case SHAPE_BOOL:
        return json_is_boolean(v) ? 0 : wrong(row, v, "bool", err);
    case SHAPE_OBJECTS:
    case SHAPE_STRINGS:
        return check_array(row, v, err);
    case SHAPE_TEXTS:
        return check_texts(row, v, err);
    case SHAPE_AMOUNTS:
        return check_amounts(row, v, err);
    default:
        return check_time(row, v, err);
    }
}

static const char *schema_type(enum shape_type type)
{
    switch (type) {
    case SHAPE_OBJECT:
    case SHAPE_TEXTS:
    case SHAPE_AMOUNTS:
        return "object";
    case SHAPE_INT:
        return "integer";
    case SHAPE_BOOL:
        return "boolean";
    case SHAPE_OBJECTS:
    case SHAPE_STRINGS:
        return "array";
    default:
        return "string";
    }
}

/* Follows the rest of a row's path from `at`, into each element of an array. On error
 * fault->where is the path of the faulty member; otherwise it is unchanged. */
static int follow(const struct shape *row, json_t *at, const char *path,
                  struct shape_fault *fault, struct err *err)
{
    char key[64];
    size_t n = strcspn(path, ".["), before = fault->where.n;
    memcpy(key, path, n);
    key[n] = '\0';
    json_t *v = json_object_get(at, key);
    if (!v || json_is_null(v))
        return 0;
    buf_printf(&fault->where, "%s%s", before ? "." : "", key);
    if (!path[n]) {
        bool time = row->type == SHAPE_TIME || row->type == SHAPE_MICRO;
        bool text = time && json_is_string(v);
        fault->given = text ? json_string_value(v) : sim_jsonx_type(v);
        fault->wanted = text ? "date-time" : schema_type(row->type);
        if (check_value(row, v, err))
            return -1;
    } else if (path[n] == '.') {
        if (follow(row, v, path + n + 1, fault, err))
            return -1;
    } else {
        size_t i, array = fault->where.n;
        json_t *item;
        json_array_foreach(v, i, item)
        {
            buf_printf(&fault->where, "[%zu]", i);
            if (follow(row, item, path + n + 3, fault, err))
                return -1;
            fault->where.n = array;
        }
    }
    fault->where.n = before;
    return 0;
}

static int check(const struct shape *rows, json_t *object, struct shape_fault *fault,
                 struct err *err)
{
    *fault = (struct shape_fault){0};
    for (const struct shape *row = rows; row->path; row++)
        if (follow(row, object, row->path, fault, err))
            return -1;
    buf_fini(&fault->where);
    return 0;
}

bool sim_shape_find(const struct shape *rows, json_t *object, struct shape_fault *fault)
{
    struct err err;
    return check(rows, object, fault, &err);
}

int sim_shape_check(const struct shape *rows, json_t *object, struct err *err)
{
    struct shape_fault fault;
    int rc = check(rows, object, &fault, err);
    buf_fini(&fault.where);
    return rc;
}
