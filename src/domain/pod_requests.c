/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/pod_requests_priv.h"

#include "domain/quantity.h"

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

void resource_list_read(struct jread *j, struct arena *a, const char *where,
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

void pod_requests_read_pod_level(struct jread *j, struct arena *a,
                                 struct pod_requests_reader *r)
{
    read_requests(j, a, "spec.resources", &r->pod_spec);
}

void pod_requests_read_pod_status(struct jread *j, struct arena *a,
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

void pod_requests_read_conditions(struct jread *j, struct pod_requests_reader *r)
{
    jread_array(j, "status.conditions");
    while (jread_item(j))
        read_condition(j, r);
}

static void append(struct container_list *list, struct arena *a,
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

static void read_status(struct jread *j, struct arena *a, struct container_list *list)
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
        append(list, a, &entry);
}

void pod_requests_read_statuses(struct jread *j, struct arena *a,
                                struct pod_requests_reader *r, bool init)
{
    jread_array(j, "status.containerStatuses");
    while (jread_item(j))
        read_status(j, a, init ? &r->init_statuses : &r->statuses);
}

static int64_t add(int64_t a, int64_t b)
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
    int64_t init = add(sum->sidecars, amount);
    if (role != CONTAINER_APP)
        sum->peak = larger(init, sum->peak);
    if (role == CONTAINER_SIDECAR)
        sum->sidecars = init;
    if (role != CONTAINER_INIT)
        sum->running = add(sum->running, amount);
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

static void raise(struct resource_list *most, const struct resource_list *list)
{
    most->cpu = larger(most->cpu, list->cpu);
    most->memory = larger(most->memory, list->memory);
    most->has_cpu |= list->has_cpu;
    most->has_memory |= list->has_memory;
}

void pod_requests_add_container(struct pod_requests_reader *r, struct arena *a,
                                enum container_role role, struct span name,
                                const struct resource_list *spec)
{
    const struct container_entry entry = {.role = role, .name = name, .spec = *spec};
    sums_add(&r->spec, role, spec);
    append(role == CONTAINER_APP ? &r->containers : &r->inits, a, &entry);
}

static const struct container_entry *find(const struct container_list *list,
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
        const struct container_entry *status = find(&r->statuses, c->name);
        if (!status)
            status = find(&r->init_statuses, c->name);
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
        raise(&total, &r->pod_allocated);
        raise(&total, &r->pod_actuated);
        return total;
    }
    add_statuses(r, &r->containers, &allocated, &actuated);
    add_statuses(r, &r->inits, &allocated, &actuated);
    sums_total(&allocated, &part);
    raise(&total, &part);
    sums_total(&actuated, &part);
    raise(&total, &part);
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
        raise(&whole, spec);
    if (r->has_pod_status) {
        raise(&whole, &r->pod_allocated);
        raise(&whole, &r->pod_actuated);
    }
    if (whole.has_cpu)
        total->cpu = whole.cpu;
    if (whole.has_memory)
        total->memory = whole.memory;
}

struct resources pod_requests_of(const struct pod_requests_reader *r)
{
    struct resource_list total = requests_of_containers(r);
    apply_pod_level(r, &total);
    int64_t cpu = add(total.cpu, r->overhead.cpu);
    int64_t memory = (add(total.memory, r->overhead.memory) + 999) / 1000;
    return (struct resources){
        .cpu_milli = cpu < RESOURCES_MAX ? cpu : RESOURCES_MAX,
        .memory = memory < RESOURCES_MAX ? memory : RESOURCES_MAX,
        .pods = 1,
    };
}
