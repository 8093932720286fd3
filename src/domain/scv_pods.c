/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "domain/scv_priv.h"

/*
 * The lists of an Scv about containers and processes.
 */

static void read_uuids(struct jread *j, struct arena *a, struct scv_held *held)
{
    struct span uuids[SCV_MAX_CARDS];
    held->n_uuids = 0;
    jread_array(j, "status.podList[].cards");
    while (jread_item(j)) {
        struct span uuid = {0};
        jread_text(j, "status.podList[].cards[]", a, &uuid);
        if (held->n_uuids == SCV_MAX_CARDS)
            jread_fail(j, "status.podList[].cards", "has more than 64 cards");
        else
            uuids[held->n_uuids++] = uuid;
    }
    held->uuids = arena_alloc(a, held->n_uuids * sizeof *uuids);
    if (held->n_uuids)
        memcpy(held->uuids, uuids, held->n_uuids * sizeof *uuids);
}

/* An impossible measured number is unknown, and no fault of the object: a fault makes the
 * cards of the node unusable. */
static void read_measured(struct jread *j, const char *where, int64_t most, int64_t *out)
{
    int64_t v = -1;
    if (jread_i64(j, where, &v) && v >= 0 && v <= most)
        *out = v;
}

static bool read_use_of(struct jread *j, struct jread_str key, int64_t *used_mib,
                        int64_t *sm_percent)
{
    if (jread_key_is(key, "usedMemory"))
        read_measured(j, "usage[].usedMemory", SCV_MIB_MAX, used_mib);
    else if (jread_key_is(key, "utilization"))
        read_measured(j, "usage[].utilization", 100, sm_percent);
    else
        return false;
    return true;
}

static void read_use(struct jread *j, struct arena *a, struct scv_use *use)
{
    struct jread_str key;
    *use = (struct scv_use){.promised_mib = -1, .used_mib = -1, .sm_percent = -1};
    jread_object(j, "status.podList[].usage[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "uuid"))
            jread_text(j, "status.podList[].usage[].uuid", a, &use->uuid);
        else if (jread_key_is(key, "podUID"))
            jread_text(j, "status.podList[].usage[].podUID", a, &use->pod_uid);
        else if (jread_key_is(key, "promisedMemory"))
            read_measured(j, "usage[].promisedMemory", SCV_MIB_MAX, &use->promised_mib);
        else if (!read_use_of(j, key, &use->used_mib, &use->sm_percent))
            jread_skip(j);
    }
}

static void read_uses(struct jread *j, struct arena *a, struct scv_held *held)
{
    struct scv_use uses[SCV_MAX_CARDS];
    held->n_uses = 0;
    jread_array(j, "status.podList[].usage");
    while (jread_item(j)) {
        struct scv_use use;
        read_use(j, a, &use);
        if (held->n_uses < SCV_MAX_CARDS)
            uses[held->n_uses++] = use;
    }
    held->uses = arena_alloc(a, (held->n_uses + 1) * sizeof *uses);
    if (held->n_uses)
        memcpy(held->uses, uses, held->n_uses * sizeof *uses);
}

static void read_held(struct jread *j, struct arena *a, struct scv_held *held)
{
    struct jread_str key;
    *held = (struct scv_held){0};
    jread_object(j, "status.podList[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "namespace"))
            jread_text(j, "status.podList[].namespace", a, &held->ns);
        else if (jread_key_is(key, "name"))
            jread_text(j, "status.podList[].name", a, &held->pod);
        else if (jread_key_is(key, "container"))
            jread_text(j, "status.podList[].container", a, &held->container);
        else if (jread_key_is(key, "resource"))
            jread_text(j, "status.podList[].resource", a, &held->resource);
        else if (jread_key_is(key, "units"))
            scv_read_number(j, "status.podList[].units", SCV_MIB_MAX,
                            "is negative or too large", &held->units);
        else if (jread_key_is(key, "cards"))
            read_uuids(j, a, held);
        else if (jread_key_is(key, "usage"))
            read_uses(j, a, held);
        else
            jread_skip(j);
    }
}

static void add_assignments(struct scv *scv, size_t *cap, const struct scv_held *held)
{
    for (size_t i = 0; i < held->n_uuids && held->units; i++) {
        if (!held->uuids[i].n || scv->n_assignments == SCV_MAX_HELD)
            continue;
        MEM_GROW(scv->assignments, *cap, scv->n_assignments + 1);
        scv->assignments[scv->n_assignments++] = (struct scv_assignment){
            scv_pod_hash(held->ns, held->pod), scv_card_hash(held->uuids[i])};
    }
}

/* Moves the list into the arena. */
static void *move_list(struct arena *a, void *list, size_t bytes)
{
    void *copy = arena_alloc(a, bytes);
    if (bytes)
        memcpy(copy, list, bytes);
    free(list);
    return copy;
}

/* -- what pods use -- */

/* podList and processList add to it, in any order. */
struct use_list {
    struct scv_pod_use *items;
    size_t n, cap;
};

static void add_use(const struct scv *scv, struct use_list *l, struct scv_pod_use use)
{
    if (scv->n_uses + l->n >= SCV_MAX_HELD)
        return;
    MEM_GROW(l->items, l->cap, l->n + 1);
    l->items[l->n++] = use;
}

static struct scv_pod_use use_of(struct span ns, struct span pod, struct span uid)
{
    return uid.n ? (struct scv_pod_use){.user = SCV_USER_UID, .pod = scv_uid_hash(uid)}
                 : (struct scv_pod_use){.pod = scv_pod_hash(ns, pod)};
}

static void add_held_uses(const struct scv *scv, struct use_list *l,
                          const struct scv_held *held)
{
    for (size_t i = 0; i < held->n_uses; i++) {
        const struct scv_use *from = &held->uses[i];
        struct scv_pod_use use = use_of(held->ns, held->pod, from->pod_uid);
        use.card = scv_card_hash(from->uuid);
        use.used_mib = from->used_mib;
        use.sm_percent = from->sm_percent;
        if (from->uuid.n)
            add_use(scv, l, use);
    }
}

static void add_process_use(const struct scv *scv, struct use_list *l,
                            const struct scv_process *p)
{
    struct scv_pod_use use = p->pid ? (struct scv_pod_use){.user = SCV_USER_PROCESS}
                                    : use_of(p->ns, p->pod, p->pod_uid);
    use.card = scv_card_hash(p->uuid);
    use.used_mib = p->used_mib;
    use.sm_percent = p->sm_percent;
    add_use(scv, l, use);
}

static void keep_uses(struct scv *scv, struct use_list *l, struct arena *a)
{
    struct scv_pod_use *all = arena_alloc(a, (scv->n_uses + l->n + 1) * sizeof *all);
    if (scv->n_uses)
        memcpy(all, scv->uses, scv->n_uses * sizeof *all);
    if (l->n)
        memcpy(all + scv->n_uses, l->items, l->n * sizeof *all);
    scv->uses = all;
    scv->n_uses += l->n;
    free(l->items);
}

void scv_pods_read(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    struct scv_held *list = NULL;
    size_t cap = 0, assignments_cap = 0;
    struct use_list uses = {0};
    scv->n_held = scv->n_assignments = 0;
    scv->assignments = NULL;
    jread_array(j, "status.podList");
    while (jread_item(j)) {
        struct scv_held held;
        read_held(j, a, &held);
        add_held_uses(scv, &uses, &held);
        if (!all && !scv_is_nvidia_resource(held.resource)) {
            add_assignments(scv, &assignments_cap, &held);
            continue;
        }
        if (scv->n_held == SCV_MAX_HELD) {
            jread_fail(j, "status.podList", "has more than 8192 containers");
            continue;
        }
        MEM_GROW(list, cap, scv->n_held + 1);
        list[scv->n_held++] = held;
    }
    scv->held = move_list(a, list, scv->n_held * sizeof *list);
    scv->assignments =
        move_list(a, scv->assignments, scv->n_assignments * sizeof *scv->assignments);
    keep_uses(scv, &uses, a);
}

static void read_process(struct jread *j, struct arena *a, struct scv_process *p)
{
    struct jread_str key;
    *p = (struct scv_process){.used_mib = -1, .sm_percent = -1};
    jread_object(j, "status.processList[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "uuid"))
            jread_text(j, "status.processList[].uuid", a, &p->uuid);
        else if (jread_key_is(key, "namespace"))
            jread_text(j, "status.processList[].namespace", a, &p->ns);
        else if (jread_key_is(key, "name"))
            jread_text(j, "status.processList[].name", a, &p->name);
        else if (jread_key_is(key, "container"))
            jread_text(j, "status.processList[].container", a, &p->container);
        else if (jread_key_is(key, "pid"))
            read_measured(j, "status.processList[].pid", UINT32_MAX, &p->pid);
        else if (jread_key_is(key, "podUID"))
            jread_text(j, "status.processList[].podUID", a, &p->pod_uid);
        else if (jread_key_is(key, "unmapped"))
            jread_bool(j, "status.processList[].unmapped", &p->unmapped);
        else if (!read_use_of(j, key, &p->used_mib, &p->sm_percent))
            jread_skip(j);
    }
    if (!p->pid) { /* a container: `name` is that of its pod */
        p->pod = p->name;
        p->name = (struct span){0};
    }
}

void scv_pods_read_processes(struct jread *j, struct arena *a, bool all, struct scv *scv)
{
    struct use_list uses = {0};
    scv->n_processes = 0;
    scv->processes =
        all ? arena_alloc(a, SCV_MAX_PROCESSES * sizeof *scv->processes) : NULL;
    jread_array(j, "status.processList");
    while (jread_item(j)) {
        struct scv_process p;
        read_process(j, a, &p);
        add_process_use(scv, &uses, &p);
        if (all && scv->n_processes < SCV_MAX_PROCESSES)
            scv->processes[scv->n_processes++] = p;
    }
    keep_uses(scv, &uses, a);
}
