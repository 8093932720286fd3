/* SPDX-License-Identifier: Apache-2.0 */
/* Pods without GPU, and what all pods of a node request: CPU, memory, slots. Reservations and
 * pods with GPU are added up when needed; the sums of the others, which may be many, are kept. */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "domain/quantity.h"

/* Open addressing with linear probing; removal shifts later entries back into the gap. */
struct nongpu_slot {
    uint64_t uid; /* hash of the UID; 0: free */
    int64_t memory;
    uint32_t cpu_milli;  /* saturated: no node has as much */
    uint32_t node : 31;  /* id */
    uint32_t marked : 1; /* seen in the current list */
};
_Static_assert(sizeof(struct nongpu_slot) == NONGPU_BYTES, "24 bytes per pod");

enum { CAP_MIN = 16 };

/* The slot of the pod, or the free slot for it. cap must not be 0. */
static struct nongpu_slot *find(const struct nongpu_pods *p, uint64_t uid)
{
    size_t i = uid & (p->cap - 1);
    while (p->slots[i].uid && p->slots[i].uid != uid)
        i = (i + 1) & (p->cap - 1);
    return &p->slots[i];
}

static uint64_t hash_uid(const struct nongpu_pods *p, struct span uid)
{
    uint64_t hash = hash_bytes(p->seed, uid.p, uid.n);
    return hash ? hash : 1;
}

/* The slot of the pod; NULL: it is unknown. */
static struct nongpu_slot *find_known(const struct nongpu_pods *p, struct span uid)
{
    struct nongpu_slot *slot = p->n ? find(p, hash_uid(p, uid)) : NULL;
    return slot && slot->uid ? slot : NULL;
}

static void resize(struct nongpu_pods *p, size_t cap)
{
    struct nongpu_slot *old = p->slots;
    size_t old_cap = p->cap;
    p->cap = cap;
    p->slots = xcalloc(cap, sizeof *p->slots);
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].uid)
            *find(p, old[i].uid) = old[i];
    free(old);
}

static void shrink(struct nongpu_pods *p)
{
    size_t cap = p->cap;
    while (cap > CAP_MIN && p->n < cap / 16 * 3)
        cap /= 2;
    if (cap < p->cap)
        resize(p, cap);
}

/* The marks of another list mean nothing. */
static void begin_list(struct nongpu_pods *p, uint64_t list)
{
    for (size_t i = 0; i < p->cap && p->list != list; i++)
        p->slots[i].marked = 0;
    p->list = list;
}

/* -- what a node has left -- */

/*
 * CPU, memory and pod slots: what the pods and reservations of a node request, and what it
 * offers. Reservations and pods with GPU are added up when needed; the sums of the other
 * pods, which may be many, are kept.
 */

struct resources ledger_node_allocatable(const struct ledger_node *node)
{
    return (struct resources){node->cpu_milli, node->facts->memory,
                              node->facts->pod_slots};
}

bool ledger_node_offers(const struct ledger_node *node, const struct request *r)
{
    const struct node_resources *a = &node->facts->allocatable;
    return !node->cpu_milli || r->kind == REQUEST_NONE ||
           (r->dialect                  ? (a->devices > 0 ? a->devices : a->slots)
            : r->slots                  ? a->slots
            : r->kind == REQUEST_MEMORY ? a->mem
            : r->kind == REQUEST_CARDS  ? a->cards
                                        : a->devices) > 0;
}

struct resources ledger_node_requested(const struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    struct resources sum = {f->nongpu_cpu_milli, f->nongpu_memory, f->nongpu_pods};
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next) {
        struct resources of_pod = ledger_pod_requests(pod);
        resources_add(&sum, &of_pod);
    }
    return sum;
}

struct resources ledger_requests_seen(const struct ledger_node *node, int64_t priority,
                                      struct span uid)
{
    struct resources sum = ledger_node_requested(node);
    for (const struct ledger_reservation *r = node->reserved; r; r = r->next_here)
        if (r->priority >= priority && !span_eq(r->uid, uid))
            resources_add(&sum, &r->requests);
    return sum;
}

static bool amount_fits(int64_t all, int64_t requested, int64_t wanted)
{
    return !all || !wanted || requested + wanted <= all;
}

bool ledger_requests_fit(const struct ledger_node *node,
                         const struct resources *requested,
                         const struct resources *wanted)
{
    struct resources all = ledger_node_allocatable(node);
    return amount_fits(all.cpu_milli, requested->cpu_milli, wanted->cpu_milli) &&
           amount_fits(all.memory, requested->memory, wanted->memory) &&
           amount_fits(all.pods, requested->pods, wanted->pods);
}

void ledger_requests_settle(struct ledger_node *node)
{
    struct resources sum = ledger_requests_seen(node, INT64_MIN, (struct span){0});
    node->cpu_free = ledger_saturated(node->cpu_milli - sum.cpu_milli);
}

/* Counts the pod on its node, or no longer (sign -1). Nobody shows or judges a node without
 * cards by what such pods request. */
static void count_requests(struct ledger *l, const struct nongpu_slot *pod, int sign)
{
    struct ledger_node *node = ledger_node_slot(l, pod->node);
    struct ledger_node_facts *f = node->facts;
    f->nongpu_cpu_milli += sign * (int64_t)pod->cpu_milli;
    f->nongpu_memory += sign * pod->memory;
    f->nongpu_pods += (uint32_t)sign;
    ledger_requests_settle(node);
    if (node->n_cards)
        node->generation = ++l->generation;
}

/* Returns the node that the pod has left, if that has cards. */
static const struct ledger_node *count_removal(struct ledger *l,
                                               const struct nongpu_slot *pod)
{
    struct ledger_node *node = ledger_node_slot(l, pod->node);
    bool has_cards = node->n_cards > 0;
    count_requests(l, pod, -1);
    ledger_node_drop_if_unused(l, node);
    return has_cards ? node : NULL;
}

static const struct ledger_node *remove_at(struct ledger *l, size_t hole)
{
    struct nongpu_pods *p = &l->nongpu;
    size_t mask = p->cap - 1;
    const struct nongpu_slot removed = p->slots[hole];
    for (size_t i = (hole + 1) & mask; p->slots[i].uid; i = (i + 1) & mask) {
        size_t home = p->slots[i].uid & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            p->slots[hole] = p->slots[i];
            hole = i;
        }
    }
    p->slots[hole] = (struct nongpu_slot){0};
    p->n--;
    return count_removal(l, &removed);
}

void ledger_nongpu_seen(struct ledger *l, struct span uid, struct span name,
                        const struct resources *requests, uint64_t list)
{
    struct nongpu_pods *p = &l->nongpu;
    if (!uid.n)
        return;
    begin_list(p, list);
    if (p->n + 1 > p->cap / 4 * 3)
        resize(p, p->cap ? p->cap * 2 : CAP_MIN);
    const struct nongpu_slot pod = {
        .uid = hash_uid(p, uid),
        .memory = requests->memory,
        .cpu_milli = (uint32_t)quantity_at_most(requests->cpu_milli, UINT32_MAX),
        .node = ledger_node_need(l, name)->id & INT32_MAX,
        .marked = 1};
    struct nongpu_slot *slot = find(p, pod.uid), old = *slot;
    p->n += !old.uid;
    *slot = pod;
    if (old.uid && old.node == pod.node && old.cpu_milli == pod.cpu_milli &&
        old.memory == pod.memory)
        return;
    count_requests(l, &pod, 1);
    if (old.uid)
        count_removal(l, &old);
}

void ledger_nongpu_exists(struct ledger *l, struct span uid, uint64_t list)
{
    begin_list(&l->nongpu, list);
    struct nongpu_slot *slot = find_known(&l->nongpu, uid);
    if (slot)
        slot->marked = 1;
}

const struct ledger_node *ledger_nongpu_deleted(struct ledger *l, struct span uid)
{
    const struct nongpu_slot *slot = find_known(&l->nongpu, uid);
    if (!slot)
        return NULL;
    const struct ledger_node *node = remove_at(l, (size_t)(slot - l->nongpu.slots));
    shrink(&l->nongpu);
    return node;
}

bool ledger_nongpu_sweep(struct ledger *l, uint64_t list, size_t *at,
                         const struct ledger_node **node)
{
    struct nongpu_pods *p = &l->nongpu;
    begin_list(p, list);
    for (; *at < p->cap; ++*at) {
        if (!p->slots[*at].uid || p->slots[*at].marked)
            continue;
        *node = remove_at(l, *at); /* another pod may be here now */
        return true;
    }
    shrink(p);
    *node = NULL;
    return false;
}
