/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Pod: the fields that GPU scheduling needs, and its requests of CPU and memory. */
#include "domain/pod.h"

#include "base/clock.h"
#include "base/mem.h"
#include "domain/fields.h"
#include "domain/keys.h"
#include "domain/quantity.h"

/* -- CPU and memory -- */

/*
 * The effective requests of a pod, from the parts of its spec and status: what
 * kube-scheduler's NodeInfo counts on the pod's node. Source: PodRequests in
 * k8s.io/component-helpers/resource (v0.37), with the feature gates that Kubernetes 1.37
 * enables by default:
 *
 *   - app containers and sidecars add up; a plain init container runs only beside the
 *     sidecars that started before it; the larger sum counts
 *   - while a pod is resized in place, the maximum of three sums counts: of the spec, of
 *     what the kubelet allocated, and of what the containers have. Without the spec if the
 *     node cannot ever grant the resize
 *   - requests of the pod as a whole (spec.resources) replace those of its containers
 *   - the overhead of the pod is added
 *
 * Before 1.37 the maximum is taken per container: a difference only while containers of
 * one pod are resized in opposite directions. CPU and memory that a ResourceClaim takes from
 * the node (an alpha feature in 1.37) are not counted.
 *
 * {0} is the state before anything was read. The parts may come in any order.
 */

enum { CPU, MEMORY, AMOUNTS };

/* One ResourceList, in thousandths of a core or a byte. */
struct resource_list {
    int64_t amount[AMOUNTS];
    bool has[AMOUNTS];
    bool has_any; /* another resource that a pod as a whole may request */
    bool present; /* the list is not null */
};

struct container_sums {
    struct container_sum of[AMOUNTS];
};

/* A container of the spec, or its status. */
struct container_entry {
    struct container_entry *next;
    struct span name;
    enum container_role role;       /* of the spec */
    struct resource_list spec;      /* of the spec */
    struct resource_list allocated; /* of the status */
    struct resource_list actuated;  /* of the status: resources.requests */
    struct span started;            /* of the status: when it began to run */
};

struct container_list {
    struct container_entry *first, **end;
    size_t n;
};

enum {
    /* Containers, and statuses of containers, of one pod that are kept until the pod is
     * read. A pod with more counts for its spec, whatever its status says. */
    ENTRIES_MAX = 128,
};

struct pod_requests_reader {
    struct container_sums spec;                 /* of all containers, however many */
    struct container_list containers, statuses; /* statuses with resources */
    struct {
        struct span name;
        int64_t started_s;
    } running[ENTRIES_MAX];
    size_t n_running;
    struct resource_list overhead;
    struct resource_list pod_spec, pod_allocated,
        pod_actuated;    /* of the pod as a whole */
    bool has_pod_status; /* status.resources is not null */
    bool has_resize;     /* a condition PodResizePending ... */
    bool infeasible;     /* ... whose first one has this reason */
    int64_t bound_s;     /* of the condition PodScheduled; 0: it has none */
};

static const int64_t milli_max = RESOURCES_MAX * 1000;

static void read_resource_list(struct field_reader *r, const struct field *f, void *at)
{
    struct resource_list *list = at;
    struct jread_str key;
    list->present = jread_peek(r->j) != JREAD_NULL;
    jread_object(r->j, f->where);
    while (jread_member(r->j, &key)) {
        struct span text = {0};
        int k = jread_key_is(key, "cpu")      ? CPU
                : jread_key_is(key, "memory") ? MEMORY
                                              : AMOUNTS;
        if (k == AMOUNTS) {
            list->has_any |= span_starts((struct span){key.p, key.n}, SPAN("hugepages-"));
            jread_skip(r->j);
            continue;
        }
        fields_read_quantity(r->j, f->where, r->a, &text);
        if (text.p) {
            list->amount[k] = quantity_milli(text, milli_max);
            list->has[k] = true;
        }
    }
}

#define RESOURCE_LIST .type = FIELD_OTHER, .read = read_resource_list

/* A ResourceRequirements; only its requests count. */
struct requirements {
    struct resource_list requests;
};
static const struct field requirements_fields[] = {
    {FIELD("resources.", "requests", requirements, requests), RESOURCE_LIST},
    FIELDS_END,
};

struct condition {
    struct span type, reason, status, since;
};
static const struct field condition_fields[] = {
    {FIELD("status.conditions[].", "type", condition, type)},
    {FIELD("status.conditions[].", "reason", condition, reason)},
    {FIELD("status.conditions[].", "status", condition, status)},
    {FIELD("status.conditions[].", "lastTransitionTime", condition, since)},
    FIELDS_END,
};

static void read_condition(struct field_reader *r, const struct field *f, void *at)
{
    struct pod_requests_reader *requests = at;
    struct condition c = {0};
    fields_read(r, f->where, condition_fields, &c);
    if (span_eq(c.type, SPAN("PodScheduled")) && span_eq(c.status, SPAN("True")) &&
        !clock_parse(c.since, &requests->bound_s))
        requests->bound_s = 0;
    if (!span_eq(c.type, SPAN("PodResizePending")) || requests->has_resize)
        return;
    requests->has_resize = true;
    requests->infeasible = span_eq(c.reason, SPAN("Infeasible"));
}

static void entry_append(struct container_list *list, struct arena *a,
                         const struct container_entry *entry)
{
    if (list->n++ >= ENTRIES_MAX)
        return;
    struct container_entry *copy = arena_alloc(a, sizeof *copy);
    *copy = *entry;
    if (!list->first)
        list->end = &list->first;
    *list->end = copy;
    list->end = &copy->next;
}

#define STATUS(key, member)                                                              \
    FIELD("status.containerStatuses[].", key, container_entry, member)
static const struct field running_fields[] = {
    {FIELD("status.containerStatuses[].state.running.", "startedAt", container_entry,
           started)},
    FIELDS_END,
};
static const struct field container_state_fields[] = {
    {FIELD("status.containerStatuses[].state.", "running", container_entry, next),
     FIELD_IS_OBJECT(running_fields)},
    FIELDS_END,
};
static const struct field container_status_fields[] = {
    {STATUS("name", name)},
    {STATUS("state", next), FIELD_IS_OBJECT(container_state_fields)},
    {STATUS("allocatedResources", allocated), RESOURCE_LIST},
    {STATUS("resources", actuated), FIELD_IS_OBJECT(requirements_fields)},
    FIELDS_END,
};

static void read_container_status(struct field_reader *r, const struct field *f, void *at)
{
    struct pod_requests_reader *requests = at;
    struct container_entry entry = {0};
    fields_read(r, f->where, container_status_fields, &entry);
    int64_t started_s;
    if (clock_parse(entry.started, &started_s) && requests->n_running < ENTRIES_MAX) {
        requests->running[requests->n_running].name = entry.name;
        requests->running[requests->n_running++].started_s = started_s;
    }
    if (entry.allocated.present || entry.actuated.present)
        entry_append(&requests->statuses, r->a, &entry);
}

static int64_t add_saturated(int64_t a, int64_t b)
{
    return quantity_at_most(a + b, milli_max); /* both are at most milli_max */
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void container_sum_add(struct container_sum *sum, enum container_role role,
                       int64_t amount)
{
    int64_t init = add_saturated(sum->sidecars, amount);
    if (role != CONTAINER_APP)
        sum->peak = larger(init, sum->peak);
    if (role == CONTAINER_SIDECAR)
        sum->sidecars = init;
    if (role != CONTAINER_INIT)
        sum->running = add_saturated(sum->running, amount);
}

static void sums_add(struct container_sums *sums, enum container_role role,
                     const struct resource_list *list)
{
    for (int k = 0; k < AMOUNTS; k++)
        container_sum_add(&sums->of[k], role, list->amount[k]);
}

static void raise_to(struct resource_list *most, const struct resource_list *list)
{
    for (int k = 0; k < AMOUNTS; k++) {
        most->amount[k] = larger(most->amount[k], list->amount[k]);
        most->has[k] |= list->has[k];
    }
}

static void raise_to_sums(struct resource_list *most, const struct container_sums *sums)
{
    for (int k = 0; k < AMOUNTS; k++)
        most->amount[k] = larger(most->amount[k], container_sum_most(&sums->of[k]));
}

/* Of the containers together. */
static struct resource_list requests_of_containers(const struct pod_requests_reader *r)
{
    struct container_sums allocated = {0}, actuated = {0};
    struct resource_list total = {0};
    bool of_pod = r->pod_allocated.present && r->pod_actuated.present;
    bool has_status = r->statuses.n || r->infeasible || of_pod;
    bool many = r->containers.n > ENTRIES_MAX || r->statuses.n > ENTRIES_MAX;
    if (!r->infeasible || many)
        raise_to_sums(&total, &r->spec);
    if (!has_status || many)
        return total;
    if (of_pod) {
        raise_to(&total, &r->pod_allocated);
        raise_to(&total, &r->pod_actuated);
        return total;
    }
    /* What the kubelet allocated to each container, and what each has. Without a status,
     * the spec counts. */
    static const struct resource_list nothing;
    for (const struct container_entry *c = r->containers.first; c; c = c->next) {
        const struct container_entry *status = r->statuses.first;
        while (status && !span_eq(status->name, c->name))
            status = status->next;
        const struct resource_list *spec = r->infeasible ? &nothing : &c->spec;
        const struct resource_list *first =
            status && status->allocated.present ? &status->allocated : spec;
        sums_add(&allocated, c->role, first);
        sums_add(&actuated, c->role,
                 status && status->actuated.present ? &status->actuated : first);
    }
    raise_to_sums(&total, &allocated);
    raise_to_sums(&total, &actuated);
    return total;
}

static struct resources pod_requests_of(const struct pod_requests_reader *r)
{
    struct resource_list total = requests_of_containers(r), whole = {0};
    const struct resource_list *spec = &r->pod_spec;
    /* The requests of the pod as a whole replace those of its containers, by resource. */
    if (spec->has[CPU] || spec->has[MEMORY] || spec->has_any) {
        if (!r->has_pod_status || !r->infeasible)
            raise_to(&whole, spec);
        if (r->has_pod_status) {
            raise_to(&whole, &r->pod_allocated);
            raise_to(&whole, &r->pod_actuated);
        }
    }
    for (int k = 0; k < AMOUNTS; k++)
        if (whole.has[k])
            total.amount[k] = whole.amount[k];
    for (int k = 0; k < AMOUNTS; k++)
        total.amount[k] = add_saturated(total.amount[k], r->overhead.amount[k]);
    return (struct resources){
        .cpu_milli = quantity_at_most(total.amount[CPU], RESOURCES_MAX),
        .memory = quantity_at_most((total.amount[MEMORY] + 999) / 1000, RESOURCES_MAX),
        .pods = 1,
    };
}

/* -- the object -- */

/* A pod while it is read: the number of app containers is not known yet. */
struct reading {
    struct pod pod;
    size_t cap; /* of its containers */
    uint32_t apps, sidecars, inits;
    struct pod_requests_reader requests;
    struct span phase, preemption_policy;
};

struct container {
    struct pod_container c;
    struct resource_list requests;
    struct span restart_policy;
};

#define NAME_FIELD(path) .name = {"name", 4}, .where = path ".name"
static const struct field variable_fields[] = {{NAME_FIELD("env")}, FIELDS_END};

/* Are NVIDIA_VISIBLE_DEVICES and LD_PRELOAD among the variables? */
static void read_variable(struct field_reader *r, const struct field *f, void *at)
{
    struct pod_container *c = at;
    struct span name = {0};
    fields_read(r, f->where, variable_fields, &name);
    c->own_devices |= span_eq(name, SPAN(KEY_VISIBLE_DEVICES));
    c->own_preload |= span_eq(name, SPAN(KEY_PRELOAD));
}

#define LIMIT(key, member)                                                               \
    FIELD("resources.limits.", key, pod_container, member), .type = FIELD_QUANTITY
static const struct field limit_fields[] = {
    {LIMIT(KEY_GPU_MEM, mem)},
    {LIMIT(KEY_GPU_COUNT, cards)},
    {LIMIT(KEY_NVIDIA_GPU, devices)},
    {LIMIT(KEY_GPU_SHARE, slots)},
    {LIMIT(KEY_GPU_CORE, compute_percent)},
    FIELDS_END,
};

static const struct field resources_fields[] = {
    {FIELD("resources.", "limits", container, c), FIELD_IS_OBJECT(limit_fields)},
    {FIELD("resources.", "requests", container, requests), RESOURCE_LIST},
    FIELDS_END,
};

static const struct field security_fields[] = {
    {FIELD("securityContext.", "privileged", pod_container, privileged),
     .type = FIELD_FLAG},
    FIELDS_END,
};

static const struct field container_fields[] = {
    {.name = {"resources", 9}, .where = "resources", FIELD_IS_OBJECT(resources_fields)},
    {FIELD("container.", "name", container, c.name)},
    {FIELD("container.", "env", container, c), .type = FIELD_LIST, .read = read_variable},
    {FIELD("container.", "securityContext", container, c),
     FIELD_IS_OBJECT(security_fields)},
    {FIELD("container.", "restartPolicy", container, restart_policy)},
    FIELDS_END,
};

static void read_container(struct field_reader *reader, const struct field *f, void *at)
{
    struct reading *r = at;
    struct container read = {0};
    struct pod_container *c = &read.c;
    fields_read(reader, f->where, container_fields, &read);
    if (span_eq(f->name, SPAN("containers"))) {
        c->role = CONTAINER_APP;
        c->order = c->index = r->apps++;
    } else {
        c->role = span_eq(read.restart_policy, SPAN("Always")) ? CONTAINER_SIDECAR
                                                               : CONTAINER_INIT;
        c->order = r->inits++;
        c->index = c->role == CONTAINER_SIDECAR ? r->sidecars++ : 0;
    }
    bool limited = false;
    for (int k = 0; k < POD_LIMITS; k++)
        limited |= c->limits[k].p != NULL;
    struct pod *pod = &r->pod;
    if (limited && pod->n_containers == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 4;
        struct pod_container *more = arena_alloc(reader->a, cap * sizeof *more);
        if (r->cap)
            memcpy(more, pod->containers, r->cap * sizeof *more);
        pod->containers = more;
        r->cap = cap;
    }
    if (limited)
        pod->containers[pod->n_containers++] = *c;
    struct pod_requests_reader *requests = &r->requests;
    const struct container_entry entry = {
        .role = c->role, .name = c->name, .spec = read.requests};
    sums_add(&requests->spec, c->role, &read.requests);
    entry_append(&requests->containers, reader->a, &entry);
}

/* k8s.io/api/core/v1: PodSpec.WorkloadRef of 1.35, PodSpec.SchedulingGroup since 1.36. */
#define WORKLOAD(key, member) FIELD("spec.workloadRef.", key, pod_gang, member)
static const struct field workload_fields[] = {
    {WORKLOAD("name", workload)},
    {WORKLOAD("podGroup", workload_group)},
    {WORKLOAD("podGroupReplicaKey", replica)},
    FIELDS_END,
};
static const struct field scheduling_group_fields[] = {
    {FIELD("spec.schedulingGroup.", "podGroupName", pod_gang, group)},
    FIELDS_END,
};

/* nodeAffinity, podAffinity and podAntiAffinity have a list of preferences. */
static void read_preference(struct field_reader *r, const struct field *f, void *at)
{
    struct pod *pod = at;
    (void)f;
    pod->prefers = true;
    jread_skip(r->j);
}

#define AFFINITY(key)     FIELD("spec.affinity.", key, pod, meta)
#define LIST_OF(function) .type = FIELD_LIST, .read = (function)
#define PREFERRED                                                                        \
    AFFINITY("preferredDuringSchedulingIgnoredDuringExecution"), LIST_OF(read_preference)
static const struct field preferred_fields[] = {{PREFERRED}, FIELDS_END};
static const struct field node_affinity_fields[] = {
    {PREFERRED},
    {FIELD("spec.affinity.", "requiredDuringSchedulingIgnoredDuringExecution", pod,
           terms[TERMS_OF_REQUIRED]),
     .type = FIELD_RAW},
    FIELDS_END,
};
static const struct field affinity_fields[] = {
    {AFFINITY("nodeAffinity"), FIELD_IS_OBJECT(node_affinity_fields)},
    {AFFINITY("podAffinity"), FIELD_IS_OBJECT(preferred_fields)},
    {AFFINITY("podAntiAffinity"), FIELD_IS_OBJECT(preferred_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct pod, meta) == 0, "the lists are read into the pod");

struct spread {
    struct span when;
};
static const struct field spread_fields[] = {
    {FIELD("spec.topologySpreadConstraints[].", "whenUnsatisfiable", spread, when)},
    FIELDS_END,
};

static void read_spread(struct field_reader *r, const struct field *f, void *at)
{
    struct pod *pod = at;
    struct spread spread = {0};
    fields_read(r, f->where, spread_fields, &spread);
    pod->prefers |= span_eq(spread.when, SPAN("ScheduleAnyway"));
}

static void read_gate(struct field_reader *r, const struct field *f, void *at)
{
    (void)f;
    ((struct pod *)at)->gated = true;
    jread_skip(r->j);
}

#define LABEL(key, member)                                                               \
    {                                                                                    \
        OBJECT_LABEL, SPAN(key), &pod->member                                            \
    }
#define ANNOTATION(key, member)                                                          \
    {                                                                                    \
        OBJECT_ANNOTATION, SPAN(key), &pod->member                                       \
    }

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct pod *pod = at;
    struct span mirror = {0}, daemon_set = {0};
    const struct object_field fields[] = {
        LABEL(KEY_GPU_COUNT, count_label),
        ANNOTATION(KEY_GPU_COUNT, count_annotation),
        ANNOTATION(KEY_PLACEMENT, placement),
        ANNOTATION(KEY_MEMORY, memory),
        ANNOTATION(KEY_GPU_MODEL, models),
        ANNOTATION(KEY_MIN_LINK, min_link),
        ANNOTATION(KEY_TOPOLOGY, topology),
        ANNOTATION(KEY_ISOLATION, isolation),
        LABEL(KEY_SCV_NUMBER, scv_number),
        LABEL(KEY_SCV_MEMORY, scv_memory),
        LABEL(KEY_SCV_CLOCK, scv_clock),
        ANNOTATION(KEY_MEM_IDX, idx),
        ANNOTATION(KEY_MEM_DEV, card_units),
        ANNOTATION(KEY_MEM_POD, units),
        ANNOTATION(KEY_MEM_ASSUME_TIME, assume_time),
        ANNOTATION(KEY_ALLOCATION, allocation),
        ANNOTATION(KEY_CARD_UUID, card_uuid),
        ANNOTATION(KEY_CARD_MEMORY, card_memory),
        ANNOTATION(KEY_MEMORY_UNIT, memory_unit),
        ANNOTATION(KEY_MEM_ASSIGNED, assigned),
        {OBJECT_ANNOTATION, SPAN(KEY_MIRROR), &mirror},
        {OBJECT_OWNER, SPAN("DaemonSet"), &daemon_set},
        LABEL(KEY_COSCHEDULING, gang.coscheduling),
        LABEL(KEY_COSCHEDULING_GROUP, gang.old_group),
        LABEL(KEY_COSCHEDULING_NAME, gang.old_name),
        LABEL(KEY_COSCHEDULING_MINIMUM, gang.old_minimum),
        LABEL(KEY_KUEUE_GROUP, gang.kueue),
        ANNOTATION(KEY_KUEUE_TOTAL, gang.kueue_total),
        ANNOTATION(KEY_VOLCANO_GROUP, gang.volcano),
        ANNOTATION(KEY_VOLCANO_KUBE_GROUP, gang.volcano_kube),
        ANNOTATION(KEY_GANG_MINIMUM, gang.minimum),
    };
    (void)f;
    object_meta_read(r->j, r->a, &pod->meta, fields, ARRAY_LEN(fields));
    pod->mirror = mirror.p != NULL;
    pod->daemon = daemon_set.n > 0;
}

#define SPEC(key, member)   FIELD("spec.", key, reading, member)
#define STATE(key, member)  FIELD("status.", key, reading, member)
#define READ_WITH(function) .type = FIELD_OTHER, .read = (function)

static const struct field spec_fields[] = {
    {SPEC("nodeName", pod.node)},
    {SPEC("schedulerName", pod.scheduler)},
    {SPEC("priority", pod.priority), FIELD_IS_NUMBER},
    {SPEC("preemptionPolicy", preemption_policy)},
    {SPEC("containers", pod), LIST_OF(read_container)},
    {SPEC("initContainers", pod), LIST_OF(read_container)},
    {SPEC("overhead", requests.overhead), RESOURCE_LIST},
    {SPEC("resources", requests.pod_spec), FIELD_IS_OBJECT(requirements_fields)},
    {SPEC("workloadRef", pod.gang), FIELD_IS_OBJECT(workload_fields)},
    {SPEC("schedulingGroup", pod.gang), FIELD_IS_OBJECT(scheduling_group_fields)},
    {SPEC("nodeSelector", pod.terms[TERMS_OF_SELECTOR]), .type = FIELD_RAW},
    {SPEC("tolerations", pod.terms[TERMS_OF_TOLERATIONS]), .type = FIELD_RAW},
    {SPEC("affinity", pod), FIELD_IS_OBJECT(affinity_fields)},
    {SPEC("schedulingGates", pod), LIST_OF(read_gate)},
    {SPEC("topologySpreadConstraints", pod), LIST_OF(read_spread)},
    FIELDS_END,
};

static const struct field status_fields[] = {
    {STATE("phase", phase)},
    {STATE("nominatedNodeName", pod.nominated_node)},
    {STATE("conditions", requests), LIST_OF(read_condition)},
    {STATE("containerStatuses", requests), LIST_OF(read_container_status)},
    {STATE("initContainerStatuses", requests), LIST_OF(read_container_status)},
    {STATE("resources", requests.pod_actuated), FIELD_IS_OBJECT(requirements_fields),
     .has = offsetof(struct reading, requests.has_pod_status)},
    {STATE("allocatedResources", requests.pod_allocated), RESOURCE_LIST},
    FIELDS_END,
};

static const struct field pod_fields[] = {
    {FIELD("", "metadata", reading, pod), READ_WITH(read_meta)},
    {FIELD("", "spec", reading, pod), FIELD_IS_OBJECT(spec_fields)},
    {FIELD("", "status", reading, pod), FIELD_IS_OBJECT(status_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct reading, pod) == 0, "so that it is both");

/* These names become parts of URL paths and of replies. */
static void check_name(struct jread *j, const char *where, struct span name)
{
    if (name.n && !object_is_name(name))
        jread_fail(j, where, "cannot be a name");
}

void pod_read(struct jread *j, struct arena *a, struct pod *pod)
{
    static const char *const phases[] = {[POD_PENDING] = "Pending",
                                         [POD_RUNNING] = "Running",
                                         [POD_SUCCEEDED] = "Succeeded",
                                         [POD_FAILED] = "Failed",
                                         [POD_UNKNOWN] = "Unknown"};
    struct field_reader reader = {.j = j, .a = a};
    struct reading r = {.pod = {.phase = POD_PENDING}};
    jread_peek(j); /* moves to the first byte of the object */
    const char *start = j->data + j->pos;
    fields_read(&reader, "pod", pod_fields, &r);
    *pod = r.pod;
    pod->object = (struct span){start, (size_t)(j->data + j->pos - start)};
    for (size_t i = 0; i < ARRAY_LEN(phases); i++)
        if (span_eq(r.phase, span_of(phases[i])))
            pod->phase = (enum pod_phase)i;
    pod->bound_s = r.requests.bound_s;
    pod->never_preempts = span_eq(r.preemption_policy, SPAN("Never"));
    for (size_t i = 0; i < pod->n_containers; i++) {
        struct pod_container *c = &pod->containers[i];
        if (c->role == CONTAINER_SIDECAR)
            c->index += r.apps;
        for (size_t k = 0; k < r.requests.n_running; k++)
            if (span_eq(c->name, r.requests.running[k].name))
                c->started_s = r.requests.running[k].started_s;
    }
    pod->requests = pod_requests_of(&r.requests);
    object_meta_check(j, &pod->meta);
    check_name(j, "metadata.namespace", pod->meta.ns);
    check_name(j, "spec.nodeName", pod->node);
    check_name(j, "status.nominatedNodeName", pod->nominated_node);
}

bool pod_is_terminal(const struct pod *pod)
{
    return pod->phase == POD_SUCCEEDED || pod->phase == POD_FAILED;
}
