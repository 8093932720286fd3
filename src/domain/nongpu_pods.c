/* SPDX-License-Identifier: Apache-2.0 */
/* Pods without GPU, and what all pods of a node request: CPU, memory, slots. Reservations and
 * pods with GPU are added up when needed; the sums of the others, which may be many, are kept. */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

struct nongpu_pod {
    uint32_t node; /* id of the node, below 2^31 */
    struct resources requests;
};

/* Open addressing with linear probing; removal shifts later entries back into the gap. */
struct nongpu_slot {
    uint64_t uid; /* hash of the UID; 0: free */
    uint32_t node : 31;
    uint32_t marked : 1; /* seen in the current list */
    uint32_t amount;
};
_Static_assert(sizeof(struct nongpu_slot) == 16, "16 bytes per pod");

/* Amounts that at least one pod requests, in a chain of equal hashes. */
struct nongpu_amount {
    int64_t cpu_milli, memory;
    uint32_t pods; /* that request it; 0: unused */
    uint32_t next; /* in the chain, or of the unused ones: index + 1; 0: the last */
};

enum { CAP_MIN = 16 };

void nongpu_pods_init(struct nongpu_pods *p, uint64_t seed)
{
    *p = (struct nongpu_pods){.seed = seed};
}

void nongpu_pods_fini(struct nongpu_pods *p)
{
    free(p->slots);
    free(p->amounts);
    free(p->buckets);
    *p = (struct nongpu_pods){0};
}

static size_t nongpu_pods_bytes(const struct nongpu_pods *p)
{
    return p->cap * sizeof *p->slots +
           p->amounts_cap * (sizeof *p->amounts + sizeof *p->buckets);
}

/* -- amounts -- */

static uint32_t *bucket_of(const struct nongpu_pods *p, const struct resources *r)
{
    const int64_t amounts[] = {r->cpu_milli, r->memory};
    uint64_t hash = hash_bytes(p->seed, amounts, sizeof amounts);
    return &p->buckets[hash & (p->amounts_cap - 1)];
}

static struct resources requests_of(const struct nongpu_amount *a)
{
    return (struct resources){a->cpu_milli, a->memory, 1};
}

static void grow_amounts(struct nongpu_pods *p)
{
    p->amounts_cap = p->amounts_cap ? p->amounts_cap * 2 : CAP_MIN;
    p->amounts = xreallocarray(p->amounts, p->amounts_cap, sizeof *p->amounts);
    free(p->buckets);
    p->buckets = xcalloc(p->amounts_cap, sizeof *p->buckets);
    for (uint32_t i = 0; i < p->n_amounts; i++) { /* none is unused */
        const struct resources r = requests_of(&p->amounts[i]);
        uint32_t *bucket = bucket_of(p, &r);
        p->amounts[i].next = *bucket;
        *bucket = i + 1;
    }
}

static uint32_t unused_amount(struct nongpu_pods *p)
{
    uint32_t i = p->free_amounts;
    if (i) {
        p->free_amounts = p->amounts[i - 1].next;
        return i - 1;
    }
    if (p->n_amounts == p->amounts_cap)
        grow_amounts(p);
    return p->n_amounts++;
}

static uint32_t take_amount(struct nongpu_pods *p, const struct resources *r)
{
    for (uint32_t i = p->amounts_cap ? *bucket_of(p, r) : 0; i;
         i = p->amounts[i - 1].next) {
        struct nongpu_amount *a = &p->amounts[i - 1];
        if (a->cpu_milli == r->cpu_milli && a->memory == r->memory) {
            a->pods++;
            return i - 1;
        }
    }
    uint32_t i = unused_amount(p), *bucket = bucket_of(p, r);
    p->amounts[i] = (struct nongpu_amount){r->cpu_milli, r->memory, 1, *bucket};
    *bucket = i + 1;
    return i;
}

static void release_amount(struct nongpu_pods *p, uint32_t i)
{
    struct nongpu_amount *a = &p->amounts[i];
    if (--a->pods)
        return;
    const struct resources r = requests_of(a);
    uint32_t *link = bucket_of(p, &r);
    while (*link != i + 1)
        link = &p->amounts[*link - 1].next;
    *link = a->next;
    a->next = p->free_amounts;
    p->free_amounts = i + 1;
}

/* -- pods -- */

static uint64_t hash_uid(const struct nongpu_pods *p, struct span uid)
{
    uint64_t hash = hash_bytes(p->seed, uid.p, uid.n);
    return hash ? hash : 1;
}

/* The slot of the pod, or the free slot for it. cap must not be 0. */
static struct nongpu_slot *find(const struct nongpu_pods *p, uint64_t uid)
{
    size_t i = uid & (p->cap - 1);
    while (p->slots[i].uid && p->slots[i].uid != uid)
        i = (i + 1) & (p->cap - 1);
    return &p->slots[i];
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

static struct nongpu_pod pod_at(const struct nongpu_pods *p, const struct nongpu_slot *slot)
{
    return (struct nongpu_pod){slot->node, requests_of(&p->amounts[slot->amount])};
}

static bool nongpu_pods_get(const struct nongpu_pods *p, struct span uid, struct nongpu_pod *pod)
{
    const struct nongpu_slot *slot = p->n ? find(p, hash_uid(p, uid)) : NULL;
    if (!slot || !slot->uid)
        return false;
    *pod = pod_at(p, slot);
    return true;
}

/* The marks of another list mean nothing. */
static void begin_list(struct nongpu_pods *p, uint64_t list)
{
    for (size_t i = 0; i < p->cap && p->list != list; i++)
        p->slots[i].marked = 0;
    p->list = list;
}

static void nongpu_pods_set(struct nongpu_pods *p, struct span uid, const struct nongpu_pod *pod,
                    uint64_t list)
{
    begin_list(p, list);
    if (p->n + 1 > p->cap / 4 * 3)
        resize(p, p->cap ? p->cap * 2 : CAP_MIN);
    uint64_t hash = hash_uid(p, uid);
    struct nongpu_slot *slot = find(p, hash);
    uint32_t amount = take_amount(p, &pod->requests);
    if (slot->uid)
        release_amount(p, slot->amount);
    p->n += !slot->uid;
    *slot = (struct nongpu_slot){hash, pod->node & INT32_MAX, 1, amount};
}

static void nongpu_pods_mark(struct nongpu_pods *p, struct span uid, uint64_t list)
{
    begin_list(p, list);
    struct nongpu_slot *slot = p->n ? find(p, hash_uid(p, uid)) : NULL;
    if (slot && slot->uid)
        slot->marked = 1;
}

static struct nongpu_pod remove_at(struct nongpu_pods *p, size_t hole)
{
    size_t mask = p->cap - 1;
    struct nongpu_pod removed = pod_at(p, &p->slots[hole]);
    release_amount(p, p->slots[hole].amount);
    for (size_t i = (hole + 1) & mask; p->slots[i].uid; i = (i + 1) & mask) {
        size_t home = p->slots[i].uid & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            p->slots[hole] = p->slots[i];
            hole = i;
        }
    }
    p->slots[hole] = (struct nongpu_slot){0};
    p->n--;
    return removed;
}

static void shrink(struct nongpu_pods *p)
{
    size_t cap = p->cap;
    while (cap > CAP_MIN && p->n < cap / 16 * 3)
        cap /= 2;
    if (cap < p->cap)
        resize(p, cap);
}

static bool nongpu_pods_remove(struct nongpu_pods *p, struct span uid, struct nongpu_pod *pod)
{
    const struct nongpu_slot *slot = p->n ? find(p, hash_uid(p, uid)) : NULL;
    if (!slot || !slot->uid)
        return false;
    *pod = remove_at(p, (size_t)(slot - p->slots));
    shrink(p);
    return true;
}

static bool nongpu_pods_sweep(struct nongpu_pods *p, uint64_t list, size_t *at,
                      struct nongpu_pod *pod)
{
    begin_list(p, list);
    for (; *at < p->cap; ++*at) {
        const struct nongpu_slot *slot = &p->slots[*at];
        if (!slot->uid || slot->marked)
            continue;
        *pod = remove_at(p, *at); /* another pod may be here now */
        return true;
    }
    shrink(p);
    return false;
}

/* -- what a node has left -- */

/*
 * CPU, memory and pod slots: what the pods and reservations of a node request, and what it
 * offers. Reservations and pods with GPU are added up when needed; the sums of the plain
 * pods, which may be many, are kept.
 */

struct resources ledger_node_allocatable(const struct ledger_node *node)
{
    return (struct resources){node->cpu_milli, node->facts->memory,
                              node->facts->pod_slots};
}

struct resources ledger_pod_requests(const struct ledger_pod *pod)
{
    return *request_pool_resources(pod->request);
}

struct resources ledger_node_requested(const struct ledger_node *node)
{
    const struct ledger_node_facts *f = node->facts;
    struct resources sum = {f->plain_cpu_milli, f->plain_memory, f->plain_pods};
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        resources_add(&sum, request_pool_resources(pod->request));
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

/* Nobody shows or judges a node without cards by what its plain pods request. */
static void requests_changed(struct ledger *l, struct ledger_node *node)
{
    ledger_requests_settle(node);
    if (node->n_cards)
        node->generation = ++l->generation;
}

static void add_requests(struct ledger *l, struct ledger_node *node, const struct resources *r,
                int sign)
{
    struct ledger_node_facts *f = node->facts;
    f->plain_cpu_milli += sign * r->cpu_milli;
    f->plain_memory += sign * r->memory;
    f->plain_pods += (uint32_t)sign;
    requests_changed(l, node);
}

/* Returns the node of the pod if it has cards. */
static const struct ledger_node *pod_removed(struct ledger *l, const struct nongpu_pod *pod)
{
    struct ledger_node *node = ledger_node_slot(l, pod->node);
    bool has_cards = node->n_cards > 0;
    add_requests(l, node, &pod->requests, -1);
    ledger_node_drop_if_unused(l, node);
    return has_cards ? node : NULL;
}

void ledger_plain_seen(struct ledger *l, struct span uid, struct span name,
                       const struct resources *requests, uint64_t list)
{
    struct nongpu_pod old;
    if (!uid.n)
        return;
    bool known = nongpu_pods_get(&l->plain, uid, &old);
    struct ledger_node *node = ledger_node_need(l, name);
    if (known && old.node == node->id && resources_equal(&old.requests, requests)) {
        nongpu_pods_mark(&l->plain, uid, list);
        return;
    }
    nongpu_pods_set(&l->plain, uid, &(struct nongpu_pod){node->id, *requests}, list);
    add_requests(l, node, requests, 1);
    if (known)
        pod_removed(l, &old);
}

void ledger_plain_exists(struct ledger *l, struct span uid, uint64_t list)
{
    nongpu_pods_mark(&l->plain, uid, list);
}

const struct ledger_node *ledger_plain_deleted(struct ledger *l, struct span uid)
{
    struct nongpu_pod pod;
    return nongpu_pods_remove(&l->plain, uid, &pod) ? pod_removed(l, &pod) : NULL;
}

bool ledger_plain_sweep(struct ledger *l, uint64_t list, size_t *at,
                        const struct ledger_node **node)
{
    struct nongpu_pod pod;
    bool found = nongpu_pods_sweep(&l->plain, list, at, &pod);
    *node = found ? pod_removed(l, &pod) : NULL;
    return found;
}

size_t ledger_plain_bytes(const struct ledger *l)
{
    return nongpu_pods_bytes(&l->plain);
}

size_t ledger_plain_pods(const struct ledger *l)
{
    return l->plain.n;
}
