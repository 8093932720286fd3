/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

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

static bool fits(int64_t all, int64_t requested, int64_t wanted)
{
    return !all || !wanted || requested + wanted <= all;
}

bool ledger_requests_fit(const struct ledger_node *node,
                         const struct resources *requested,
                         const struct resources *wanted)
{
    struct resources all = ledger_node_allocatable(node);
    return fits(all.cpu_milli, requested->cpu_milli, wanted->cpu_milli) &&
           fits(all.memory, requested->memory, wanted->memory) &&
           fits(all.pods, requested->pods, wanted->pods);
}

void ledger_requests_settle(struct ledger_node *node)
{
    struct resources sum = ledger_requests_seen(node, INT64_MIN, (struct span){0});
    node->cpu_free = ledger_saturated(node->cpu_milli - sum.cpu_milli);
}

/* Nobody shows or judges a node without cards by what its plain pods request. */
static void changed(struct ledger *l, struct ledger_node *node)
{
    ledger_requests_settle(node);
    if (node->n_cards)
        node->generation = ++l->generation;
}

static void add(struct ledger *l, struct ledger_node *node, const struct resources *r,
                int sign)
{
    struct ledger_node_facts *f = node->facts;
    f->plain_cpu_milli += sign * r->cpu_milli;
    f->plain_memory += sign * r->memory;
    f->plain_pods += (uint32_t)sign;
    changed(l, node);
}

/* Returns the node of the pod if it has cards. */
static const struct ledger_node *removed(struct ledger *l, const struct plain_pod *pod)
{
    struct ledger_node *node = ledger_node_slot(l, pod->node);
    bool has_cards = node->n_cards > 0;
    add(l, node, &pod->requests, -1);
    ledger_node_drop_if_unused(l, node);
    return has_cards ? node : NULL;
}

void ledger_plain_seen(struct ledger *l, struct span uid, struct span name,
                       const struct resources *requests, uint64_t list)
{
    struct plain_pod old;
    if (!uid.n)
        return;
    bool known = plain_pods_get(&l->plain, uid, &old);
    struct ledger_node *node = ledger_node_need(l, name);
    if (known && old.node == node->id && resources_equal(&old.requests, requests)) {
        plain_pods_mark(&l->plain, uid, list);
        return;
    }
    plain_pods_set(&l->plain, uid, &(struct plain_pod){node->id, *requests}, list);
    add(l, node, requests, 1);
    if (known)
        removed(l, &old);
}

void ledger_plain_exists(struct ledger *l, struct span uid, uint64_t list)
{
    plain_pods_mark(&l->plain, uid, list);
}

const struct ledger_node *ledger_plain_deleted(struct ledger *l, struct span uid)
{
    struct plain_pod pod;
    return plain_pods_remove(&l->plain, uid, &pod) ? removed(l, &pod) : NULL;
}

bool ledger_plain_sweep(struct ledger *l, uint64_t list, size_t *at,
                        const struct ledger_node **node)
{
    struct plain_pod pod;
    bool found = plain_pods_sweep(&l->plain, list, at, &pod);
    *node = found ? removed(l, &pod) : NULL;
    return found;
}

size_t ledger_plain_bytes(const struct ledger *l)
{
    return plain_pods_bytes(&l->plain);
}

size_t ledger_plain_pods(const struct ledger *l)
{
    return l->plain.n;
}
