/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Pod: the fields that GPU scheduling needs, and its requests of CPU and memory. */
#include "domain/pod.h"

#include "base/mem.h"
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

/* One ResourceList, in thousandths of a core or a byte. */
struct resource_list {
    int64_t cpu, memory;
    bool has_cpu, has_memory;
    bool has_any; /* another resource that a pod as a whole may request */
    bool present; /* the list is not null */
};

/* Sums over containers. */
struct container_sum {
    int64_t running;  /* app containers and sidecars */
    int64_t peak;     /* maximum of the init phase */
    int64_t sidecars; /* sidecars that have started so far */
};

struct container_sums {
    struct container_sum cpu, memory;
};

/* A container of the spec, or its status. */
struct container_entry {
    struct container_entry *next;
    struct span name;
    enum container_role role;       /* of the spec */
    struct resource_list spec;      /* of the spec */
    struct resource_list allocated; /* of the status */
    struct resource_list actuated;  /* of the status: resources.requests */
};

struct container_list {
    struct container_entry *first, **end;
    size_t n;
};

struct pod_requests_reader {
    struct container_sums spec; /* of all containers, however many */
    struct container_list containers, inits;
    struct container_list statuses, init_statuses; /* those with resources */
    struct resource_list overhead;
    struct resource_list pod_spec, pod_allocated,
        pod_actuated;    /* of the pod as a whole */
    bool has_pod_status; /* status.resources is not null */
    bool has_resize;     /* a condition PodResizePending ... */
    bool infeasible;     /* ... whose first one has this reason */
};

enum {
    /* Containers, and statuses of containers, of one pod that are kept until the pod is
     * read. A pod with more counts for its spec, whatever its status says. */
    ENTRIES_MAX = 128,
};

static const int64_t milli_max = RESOURCES_MAX * 1000;

static void read_amount(struct jread *j, struct arena *a, const char *where,
                        int64_t *amount, bool *has)
{
    struct span text = {0};
    if (jread_peek(j) == JREAD_NUMBER)
        jread_raw(j, &text);
    else
        jread_text(j, where, a, &text);
    if (!text.p)
        return;
    *amount = quantity_milli(text, milli_max);
    *has = true;
}

static void resource_list_read(struct jread *j, struct arena *a, const char *where,
                        struct resource_list *list)
{
    struct jread_str key;
    list->present = jread_peek(j) != JREAD_NULL;
    jread_object(j, where);
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "cpu")) {
            read_amount(j, a, where, &list->cpu, &list->has_cpu);
        } else if (jread_key_is(key, "memory")) {
            read_amount(j, a, where, &list->memory, &list->has_memory);
        } else {
            list->has_any |= span_starts((struct span){key.p, key.n}, SPAN("hugepages-"));
            jread_skip(j);
        }
    }
}

/* Reads "requests" of a ResourceRequirements. */
static void read_requests(struct jread *j, struct arena *a, const char *where,
                          struct resource_list *list)
{
    struct jread_str key;
    jread_object(j, where);
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "requests"))
            resource_list_read(j, a, where, list);
        else
            jread_skip(j);
    }
}

static void pod_requests_read_pod_level(struct jread *j, struct arena *a,
                                 struct pod_requests_reader *r)
{
    read_requests(j, a, "spec.resources", &r->pod_spec);
}

static void pod_requests_read_pod_status(struct jread *j, struct arena *a,
                                  struct pod_requests_reader *r)
{
    r->has_pod_status = jread_peek(j) != JREAD_NULL;
    read_requests(j, a, "status.resources", &r->pod_actuated);
}

static void read_condition(struct jread *j, struct pod_requests_reader *r)
{
    struct jread_str key, text;
    bool resize = false, infeasible = false;
    jread_object(j, "status.conditions[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "type"))
            resize = jread_string(j, "status.conditions[].type", &text) &&
                     jread_key_is(text, "PodResizePending");
        else if (jread_key_is(key, "reason"))
            infeasible = jread_string(j, "status.conditions[].reason", &text) &&
                         jread_key_is(text, "Infeasible");
        else
            jread_skip(j);
    }
    if (!resize || r->has_resize)
        return;
    r->has_resize = true;
    r->infeasible = infeasible;
}

static void pod_requests_read_conditions(struct jread *j, struct pod_requests_reader *r)
{
    jread_array(j, "status.conditions");
    while (jread_item(j))
        read_condition(j, r);
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

static void read_container_status(struct jread *j, struct arena *a, struct container_list *list)
{
    struct container_entry entry = {0};
    struct jread_str key;
    jread_object(j, "status.containerStatuses[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "name"))
            jread_text(j, "status.containerStatuses[].name", a, &entry.name);
        else if (jread_key_is(key, "allocatedResources"))
            resource_list_read(j, a, "status.containerStatuses[].allocatedResources",
                               &entry.allocated);
        else if (jread_key_is(key, "resources"))
            read_requests(j, a, "status.containerStatuses[].resources", &entry.actuated);
        else
            jread_skip(j);
    }
    if (entry.allocated.present || entry.actuated.present)
        entry_append(list, a, &entry);
}

static void pod_requests_read_statuses(struct jread *j, struct arena *a,
                                struct pod_requests_reader *r, bool init)
{
    jread_array(j, "status.containerStatuses");
    while (jread_item(j))
        read_container_status(j, a, init ? &r->init_statuses : &r->statuses);
}

static int64_t add_saturated(int64_t a, int64_t b)
{
    int64_t sum = a + b; /* both are at most milli_max */
    return sum < milli_max ? sum : milli_max;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Sidecars and init containers come in the order in which they start. App containers do
 * not change the peak, so their position does not matter. */
static void sum_add(struct container_sum *sum, enum container_role role, int64_t amount)
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
    sum_add(&sums->cpu, role, list->cpu);
    sum_add(&sums->memory, role, list->memory);
}

static void sums_total(const struct container_sums *sums, struct resource_list *total)
{
    *total = (struct resource_list){
        .cpu = larger(sums->cpu.running, sums->cpu.peak),
        .memory = larger(sums->memory.running, sums->memory.peak),
    };
}

static void raise_to(struct resource_list *most, const struct resource_list *list)
{
    most->cpu = larger(most->cpu, list->cpu);
    most->memory = larger(most->memory, list->memory);
    most->has_cpu |= list->has_cpu;
    most->has_memory |= list->has_memory;
}

static void pod_requests_add_container(struct pod_requests_reader *r, struct arena *a,
                                enum container_role role, struct span name,
                                const struct resource_list *spec)
{
    const struct container_entry entry = {.role = role, .name = name, .spec = *spec};
    sums_add(&r->spec, role, spec);
    entry_append(role == CONTAINER_APP ? &r->containers : &r->inits, a, &entry);
}

static const struct container_entry *entry_find(const struct container_list *list,
                                          struct span name)
{
    const struct container_entry *e = list->first;
    while (e && !span_eq(e->name, name))
        e = e->next;
    return e;
}

/* Adds what the kubelet allocated to each container of the list, and what each has.
 * Without a status, the spec counts. */
static void add_statuses(const struct pod_requests_reader *r,
                         const struct container_list *list,
                         struct container_sums *allocated,
                         struct container_sums *actuated)
{
    static const struct resource_list nothing;
    for (const struct container_entry *c = list->first; c; c = c->next) {
        const struct container_entry *status = entry_find(&r->statuses, c->name);
        if (!status)
            status = entry_find(&r->init_statuses, c->name);
        const struct resource_list *spec = r->infeasible ? &nothing : &c->spec;
        const struct resource_list *first =
            status && status->allocated.present ? &status->allocated : spec;
        sums_add(allocated, c->role, first);
        sums_add(actuated, c->role,
                 status && status->actuated.present ? &status->actuated : first);
    }
}

/* Of the containers together. */
static struct resource_list requests_of_containers(const struct pod_requests_reader *r)
{
    struct container_sums allocated = {0}, actuated = {0};
    struct resource_list total, part;
    sums_total(&r->spec, &total);
    bool status = r->statuses.n || r->init_statuses.n || r->infeasible ||
                  (r->pod_allocated.present && r->pod_actuated.present);
    bool many = r->containers.n > ENTRIES_MAX || r->inits.n > ENTRIES_MAX ||
                r->statuses.n > ENTRIES_MAX || r->init_statuses.n > ENTRIES_MAX;
    if (!status || many)
        return total;
    if (r->infeasible)
        total = (struct resource_list){0};
    if (r->pod_allocated.present && r->pod_actuated.present) {
        raise_to(&total, &r->pod_allocated);
        raise_to(&total, &r->pod_actuated);
        return total;
    }
    add_statuses(r, &r->containers, &allocated, &actuated);
    add_statuses(r, &r->inits, &allocated, &actuated);
    sums_total(&allocated, &part);
    raise_to(&total, &part);
    sums_total(&actuated, &part);
    raise_to(&total, &part);
    return total;
}

/* The requests of the pod as a whole replace those of its containers, by resource. */
static void apply_pod_level(const struct pod_requests_reader *r,
                            struct resource_list *total)
{
    const struct resource_list *spec = &r->pod_spec;
    struct resource_list whole = {0};
    if (!spec->has_cpu && !spec->has_memory && !spec->has_any)
        return;
    if (!r->has_pod_status || !r->infeasible)
        raise_to(&whole, spec);
    if (r->has_pod_status) {
        raise_to(&whole, &r->pod_allocated);
        raise_to(&whole, &r->pod_actuated);
    }
    if (whole.has_cpu)
        total->cpu = whole.cpu;
    if (whole.has_memory)
        total->memory = whole.memory;
}

static struct resources pod_requests_of(const struct pod_requests_reader *r)
{
    struct resource_list total = requests_of_containers(r);
    apply_pod_level(r, &total);
    int64_t cpu = add_saturated(total.cpu, r->overhead.cpu);
    int64_t memory = (add_saturated(total.memory, r->overhead.memory) + 999) / 1000;
    return (struct resources){
        .cpu_milli = cpu < RESOURCES_MAX ? cpu : RESOURCES_MAX,
        .memory = memory < RESOURCES_MAX ? memory : RESOURCES_MAX,
        .pods = 1,
    };
}

/* -- the object -- */

/* Containers while they are read: the number of app containers is not known yet. */
struct reading {
    struct pod *pod;
    struct arena *a;
    size_t cap;
    uint32_t apps, sidecars, inits;
    struct pod_requests_reader requests;
};

/* A quantity: a string, or a number as users write in manifests. */
static void read_quantity(struct jread *j, struct arena *a, struct span *out)
{
    struct span raw;
    if (jread_peek(j) == JREAD_NUMBER) {
        if (jread_raw(j, &raw))
            *out = raw;
    } else {
        jread_text(j, "resources.limits", a, out);
    }
}

static void read_limits(struct jread *j, struct arena *a, struct pod_container *c)
{
    struct jread_str key;
    jread_object(j, "resources.limits");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, KEY_GPU_MEM))
            read_quantity(j, a, &c->mem);
        else if (jread_key_is(key, KEY_GPU_COUNT))
            read_quantity(j, a, &c->cards);
        else if (jread_key_is(key, KEY_NVIDIA_GPU))
            read_quantity(j, a, &c->devices);
        else if (jread_key_is(key, KEY_GPU_CORE))
            read_quantity(j, a, &c->core);
        else
            jread_skip(j);
    }
}

static void read_resources(struct jread *j, struct arena *a, struct pod_container *c,
                           struct resource_list *requests)
{
    struct jread_str key;
    jread_object(j, "resources");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "limits"))
            read_limits(j, a, c);
        else if (jread_key_is(key, "requests"))
            resource_list_read(j, a, "resources.requests", requests);
        else
            jread_skip(j);
    }
}

/* Are NVIDIA_VISIBLE_DEVICES and LD_PRELOAD among the variables? */
static void read_env(struct jread *j, struct pod_container *c)
{
    struct jread_str key, name;
    jread_array(j, "env");
    while (jread_item(j)) {
        jread_object(j, "env");
        while (jread_member(j, &key)) {
            if (!jread_key_is(key, "name"))
                jread_skip(j);
            else if (jread_string(j, "env.name", &name)) {
                c->own_devices |= jread_key_is(name, KEY_VISIBLE_DEVICES);
                c->own_preload |= jread_key_is(name, KEY_PRELOAD);
            }
        }
    }
}

static void add_container(struct reading *r, const struct pod_container *c)
{
    struct pod *pod = r->pod;
    if (!c->mem.p && !c->cards.p && !c->devices.p && !c->core.p)
        return;
    if (pod->n_containers == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 4;
        struct pod_container *more = arena_alloc(r->a, cap * sizeof *more);
        if (r->cap)
            memcpy(more, pod->containers, r->cap * sizeof *more);
        pod->containers = more;
        r->cap = cap;
    }
    pod->containers[pod->n_containers++] = *c;
}

static void read_container(struct jread *j, struct reading *r, bool init)
{
    struct jread_str key, policy;
    struct pod_container c = {.role = init ? CONTAINER_INIT : CONTAINER_APP};
    struct resource_list requests = {0};
    jread_object(j, "container");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "resources")) {
            read_resources(j, r->a, &c, &requests);
        } else if (jread_key_is(key, "name")) {
            jread_text(j, "container.name", r->a, &c.name);
        } else if (jread_key_is(key, "env")) {
            read_env(j, &c);
        } else if (init && jread_key_is(key, "restartPolicy")) {
            if (jread_string(j, "restartPolicy", &policy) &&
                jread_key_is(policy, "Always"))
                c.role = CONTAINER_SIDECAR;
        } else {
            jread_skip(j);
        }
    }
    c.order = init ? r->inits++ : r->apps;
    c.index = c.role == CONTAINER_APP ? r->apps++ : 0;
    if (c.role == CONTAINER_SIDECAR)
        c.index = r->sidecars++;
    add_container(r, &c);
    pod_requests_add_container(&r->requests, r->a, c.role, c.name, &requests);
}

static void read_containers(struct jread *j, struct reading *r, bool init)
{
    jread_array(j, init ? "spec.initContainers" : "spec.containers");
    while (jread_item(j))
        read_container(j, r, init);
}

static void read_preemption_policy(struct jread *j, struct pod *pod)
{
    struct jread_str policy;
    if (jread_string(j, "spec.preemptionPolicy", &policy))
        pod->never_preempts = jread_key_is(policy, "Never");
}

/* A text of the pod that names its gang. */
struct gang_text {
    struct span key;
    struct span *out;
};

static void read_gang_texts(struct jread *j, struct arena *a, const char *where,
                            const struct gang_text *texts, size_t n)
{
    struct jread_str key;
    jread_object(j, where);
    while (jread_member(j, &key)) {
        size_t i = 0;
        while (i < n && !jread_str_eq(key, texts[i].key))
            i++;
        if (i == n)
            jread_skip(j);
        else
            jread_text(j, where, a, texts[i].out);
    }
}

/* k8s.io/api/core/v1: PodSpec.WorkloadRef of 1.35, PodSpec.SchedulingGroup since 1.36. */
static void read_workload(struct jread *j, struct arena *a, struct pod_gang *gang)
{
    const struct gang_text texts[] = {{SPAN("name"), &gang->workload},
                                      {SPAN("podGroup"), &gang->workload_group},
                                      {SPAN("podGroupReplicaKey"), &gang->replica}};
    read_gang_texts(j, a, "spec.workloadRef", texts, ARRAY_LEN(texts));
}

static void read_scheduling_group(struct jread *j, struct arena *a, struct pod_gang *gang)
{
    const struct gang_text texts[] = {{SPAN("podGroupName"), &gang->group}};
    read_gang_texts(j, a, "spec.schedulingGroup", texts, ARRAY_LEN(texts));
}

/* Preferences decide nothing here: values of other types are skipped, not faults. */
static bool is_next(struct jread *j, enum jread_type type)
{
    if (jread_peek(j) == type)
        return true;
    jread_skip(j);
    return false;
}

static void read_preferred(struct jread *j, struct pod *pod)
{
    if (!is_next(j, JREAD_ARRAY))
        return;
    jread_array(j, "spec.affinity");
    while (jread_item(j)) {
        pod->prefers = true;
        jread_skip(j);
    }
}

/* nodeAffinity, podAffinity and podAntiAffinity have a list of that name. */
static void read_affinity(struct jread *j, struct pod *pod)
{
    struct jread_str key;
    if (!is_next(j, JREAD_OBJECT))
        return;
    jread_object(j, "spec.affinity");
    while (jread_member(j, &key)) {
        if (!is_next(j, JREAD_OBJECT))
            continue;
        jread_object(j, "spec.affinity");
        while (jread_member(j, &key)) {
            if (jread_key_is(key, "preferredDuringSchedulingIgnoredDuringExecution"))
                read_preferred(j, pod);
            else
                jread_skip(j);
        }
    }
}

static void read_spread(struct jread *j, struct pod *pod)
{
    struct jread_str key, when;
    if (!is_next(j, JREAD_ARRAY))
        return;
    jread_array(j, "spec.topologySpreadConstraints");
    while (jread_item(j)) {
        if (!is_next(j, JREAD_OBJECT))
            continue;
        jread_object(j, "spec.topologySpreadConstraints");
        while (jread_member(j, &key)) {
            if (!jread_key_is(key, "whenUnsatisfiable") || jread_peek(j) != JREAD_STRING)
                jread_skip(j);
            else if (jread_string(j, "whenUnsatisfiable", &when))
                pod->prefers |= jread_key_is(when, "ScheduleAnyway");
        }
    }
}

static void read_spec(struct jread *j, struct reading *r)
{
    struct pod *pod = r->pod;
    struct jread_str key;
    jread_object(j, "spec");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "nodeName"))
            jread_text(j, "spec.nodeName", r->a, &pod->node);
        else if (jread_key_is(key, "priority"))
            jread_i64(j, "spec.priority", &pod->priority);
        else if (jread_key_is(key, "preemptionPolicy"))
            read_preemption_policy(j, pod);
        else if (jread_key_is(key, "containers"))
            read_containers(j, r, false);
        else if (jread_key_is(key, "initContainers"))
            read_containers(j, r, true);
        else if (jread_key_is(key, "overhead"))
            resource_list_read(j, r->a, "spec.overhead", &r->requests.overhead);
        else if (jread_key_is(key, "resources"))
            pod_requests_read_pod_level(j, r->a, &r->requests);
        else if (jread_key_is(key, "workloadRef"))
            read_workload(j, r->a, &pod->gang);
        else if (jread_key_is(key, "schedulingGroup"))
            read_scheduling_group(j, r->a, &pod->gang);
        else if (jread_key_is(key, "affinity"))
            read_affinity(j, pod);
        else if (jread_key_is(key, "topologySpreadConstraints"))
            read_spread(j, pod);
        else
            jread_skip(j);
    }
}

static void read_phase(struct jread *j, enum pod_phase *phase)
{
    static const struct {
        struct span name;
        enum pod_phase phase;
    } names[] = {
        {{"Pending", 7}, POD_PENDING},     {{"Running", 7}, POD_RUNNING},
        {{"Succeeded", 9}, POD_SUCCEEDED}, {{"Failed", 6}, POD_FAILED},
        {{"Unknown", 7}, POD_UNKNOWN},
    };
    struct jread_str s;
    if (!jread_string(j, "status.phase", &s))
        return;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (jread_str_eq(s, names[i].name))
            *phase = names[i].phase;
}

static void read_status(struct jread *j, struct reading *r)
{
    struct pod *pod = r->pod;
    struct jread_str key;
    jread_object(j, "status");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "phase"))
            read_phase(j, &pod->phase);
        else if (jread_key_is(key, "nominatedNodeName"))
            jread_text(j, "status.nominatedNodeName", r->a, &pod->nominated_node);
        else if (jread_key_is(key, "conditions"))
            pod_requests_read_conditions(j, &r->requests);
        else if (jread_key_is(key, "containerStatuses"))
            pod_requests_read_statuses(j, r->a, &r->requests, false);
        else if (jread_key_is(key, "initContainerStatuses"))
            pod_requests_read_statuses(j, r->a, &r->requests, true);
        else if (jread_key_is(key, "resources"))
            pod_requests_read_pod_status(j, r->a, &r->requests);
        else if (jread_key_is(key, "allocatedResources"))
            resource_list_read(j, r->a, "status.allocatedResources",
                               &r->requests.pod_allocated);
        else
            jread_skip(j);
    }
}

static void read_meta(struct jread *j, struct arena *a, struct pod *pod)
{
    struct span mirror = {0}, daemon_set = {0};
    const struct object_field fields[] = {
        {OBJECT_LABEL, SPAN(KEY_GPU_COUNT), &pod->count_label},
        {OBJECT_ANNOTATION, SPAN(KEY_GPU_COUNT), &pod->count_annotation},
        {OBJECT_ANNOTATION, SPAN(KEY_PLACEMENT), &pod->placement},
        {OBJECT_ANNOTATION, SPAN(KEY_GPU_MODEL), &pod->models},
        {OBJECT_ANNOTATION, SPAN(KEY_ISOLATION), &pod->isolation},
        {OBJECT_LABEL, SPAN(KEY_SCV_NUMBER), &pod->scv_number},
        {OBJECT_LABEL, SPAN(KEY_SCV_MEMORY), &pod->scv_memory},
        {OBJECT_LABEL, SPAN(KEY_SCV_CLOCK), &pod->scv_clock},
        {OBJECT_ANNOTATION, SPAN(KEY_MEM_IDX), &pod->idx},
        {OBJECT_ANNOTATION, SPAN(KEY_MEM_DEV), &pod->card_units},
        {OBJECT_ANNOTATION, SPAN(KEY_MEM_POD), &pod->units},
        {OBJECT_ANNOTATION, SPAN(KEY_MEM_ASSUME_TIME), &pod->assume_time},
        {OBJECT_ANNOTATION, SPAN(KEY_ALLOCATION), &pod->allocation},
        {OBJECT_ANNOTATION, SPAN(KEY_CARD_UUID), &pod->card_uuid},
        {OBJECT_ANNOTATION, SPAN(KEY_CARD_MEMORY), &pod->card_memory},
        {OBJECT_ANNOTATION, SPAN(KEY_MEM_ASSIGNED), &pod->assigned},
        {OBJECT_ANNOTATION, SPAN(KEY_MIRROR), &mirror},
        {OBJECT_OWNER, SPAN("DaemonSet"), &daemon_set},
        {OBJECT_LABEL, SPAN(KEY_COSCHEDULING), &pod->gang.coscheduling},
        {OBJECT_LABEL, SPAN(KEY_COSCHEDULING_GROUP), &pod->gang.old_group},
        {OBJECT_LABEL, SPAN(KEY_COSCHEDULING_NAME), &pod->gang.old_name},
        {OBJECT_LABEL, SPAN(KEY_COSCHEDULING_MINIMUM), &pod->gang.old_minimum},
        {OBJECT_LABEL, SPAN(KEY_KUEUE_GROUP), &pod->gang.kueue},
        {OBJECT_ANNOTATION, SPAN(KEY_KUEUE_TOTAL), &pod->gang.kueue_total},
        {OBJECT_ANNOTATION, SPAN(KEY_VOLCANO_GROUP), &pod->gang.volcano},
        {OBJECT_ANNOTATION, SPAN(KEY_VOLCANO_KUBE_GROUP), &pod->gang.volcano_kube},
        {OBJECT_ANNOTATION, SPAN(KEY_GANG_MINIMUM), &pod->gang.minimum},
    };
    object_meta_read(j, a, &pod->meta, fields, ARRAY_LEN(fields));
    pod->mirror = mirror.p != NULL;
    pod->daemon = daemon_set.n > 0;
}

/* These names become parts of URL paths and of replies. */
static void check_name(struct jread *j, const char *where, struct span name)
{
    if (name.n && !object_is_name(name))
        jread_fail(j, where, "cannot be a name");
}

void pod_read(struct jread *j, struct arena *a, struct pod *pod)
{
    struct jread_str key;
    struct reading r = {.pod = pod, .a = a};
    *pod = (struct pod){0};
    jread_object(j, "pod");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            read_meta(j, a, pod);
        else if (jread_key_is(key, "spec"))
            read_spec(j, &r);
        else if (jread_key_is(key, "status"))
            read_status(j, &r);
        else
            jread_skip(j);
    }
    for (size_t i = 0; i < pod->n_containers; i++)
        if (pod->containers[i].role == CONTAINER_SIDECAR)
            pod->containers[i].index += r.apps;
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
