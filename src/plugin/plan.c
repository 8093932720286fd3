/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plan.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/promise.h"
#include "domain/quantity.h"

static struct plan_share *copy_shares(struct plan *plan, const struct promise_share *from,
                                      size_t n)
{
    struct plan_share *to = arena_zalloc(&plan->arena, n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i] = (struct plan_share){.uuid = arena_copy(&plan->arena, from[i].uuid),
                                    .index = from[i].card,
                                    .units = from[i].units};
    return to;
}

/* One entry for each resource that the container asks for. (Both in one pod are refused,
 * but the kubelet asks for both all the same.) */
static void add_limit(struct plan *plan, const struct pod_container *c,
                      enum ids_resource resource, struct span limit)
{
    int64_t amount = 0;
    if (!limit.p || quantity_read(limit, &amount, NULL) || amount <= 0)
        return;
    plan->containers[plan->n_containers++] =
        (struct plan_container){.name = arena_copy(&plan->arena, c->name),
                                .role = c->role,
                                .resource = resource,
                                .amount = amount,
                                .own_devices = c->own_devices};
}

/* The kubelet's order, not that of the struct: there, app containers may come first. */
static void add_containers(struct plan *plan, const struct pod *pod, bool apps,
                           uint32_t *indexes)
{
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_container *c = &pod->containers[i];
        if ((c->role == CONTAINER_APP) != apps)
            continue;
        size_t first = plan->n_containers;
        add_limit(plan, c, IDS_MEM, c->mem);
        add_limit(plan, c, IDS_COUNT, c->cards);
        for (size_t k = first; k < plan->n_containers; k++)
            indexes[k] = c->index;
    }
}

static void damaged(struct plan *plan, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void damaged(struct plan *plan, const char *fmt, ...)
{
    cleanup_buf struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    plan->promise = PLAN_DAMAGED;
    plan->why_not = arena_copy(&plan->arena, buf_span(&b));
}

/* The same amount of each card of the pod. */
static void share_evenly(struct plan *plan, struct plan_container *c)
{
    size_t n = plan->n_cards;
    if (c->amount % (int64_t)n) {
        damaged(plan,
                "%zu cards are promised, and the %lld units of container %.*s cannot be "
                "split over them",
                n, (long long)c->amount, SPAN_ARG(c->name));
        return;
    }
    c->shares = arena_zalloc(&plan->arena, n * sizeof *c->shares);
    c->n_shares = n;
    for (size_t i = 0; i < n; i++) {
        c->shares[i] = plan->cards[i];
        c->shares[i].units = c->amount / (int64_t)n;
    }
}

/* Whole cards: app containers and sidecars take them in turn. An init container has them
 * for itself while it runs: it gets the first ones. */
static void share_in_turn(struct plan *plan, struct plan_container *c, size_t *next)
{
    size_t from = c->role == CONTAINER_INIT ? 0 : *next;
    if ((size_t)c->amount > plan->n_cards - from) {
        damaged(plan, "%zu cards are promised, which is less than its containers ask for",
                plan->n_cards);
        return;
    }
    c->n_shares = (size_t)c->amount;
    c->shares = arena_zalloc(&plan->arena, c->n_shares * sizeof *c->shares);
    for (size_t i = 0; i < c->n_shares; i++) {
        c->shares[i] = plan->cards[from + i];
        c->shares[i].units = 1;
    }
    if (c->role != CONTAINER_INIT)
        *next += (size_t)c->amount;
}

/* What the allocation says of the container. False: nothing, or not as much as it asks
 * for. */
static bool share_as_said(struct plan *plan, const struct pod *pod, uint32_t index,
                          struct plan_container *c)
{
    cleanup_arena struct arena a = {0};
    struct promise part;
    int64_t sum = 0;
    if (c->role == CONTAINER_INIT || !promise_of_container(pod, index, &a, &part))
        return false;
    for (size_t i = 0; i < part.n; i++)
        sum += c->resource == IDS_COUNT ? 1 : part.shares[i].units;
    if (sum != c->amount)
        return false;
    c->shares = copy_shares(plan, part.shares, part.n);
    c->n_shares = part.n;
    for (size_t i = 0; i < part.n; i++)
        c->shares[i].units = c->resource == IDS_COUNT ? 1 : part.shares[i].units;
    return true;
}

static bool all_as_said(struct plan *plan, const struct pod *pod, const uint32_t *indexes)
{
    for (size_t i = 0; i < plan->n_containers; i++)
        if (plan->containers[i].role != CONTAINER_INIT &&
            !share_as_said(plan, pod, indexes[i], &plan->containers[i]))
            return false;
    return true;
}

/* Either the allocation speaks of every container, or it is not gone by at all: half of
 * it and half of the index would give a card twice. */
static void share_out(struct plan *plan, const struct pod *pod, const uint32_t *indexes)
{
    bool said = pod && all_as_said(plan, pod, indexes);
    size_t next = 0;
    for (size_t i = 0; i < plan->n_containers && plan->promise == PLAN_PROMISED; i++) {
        struct plan_container *c = &plan->containers[i];
        if (said && c->role != CONTAINER_INIT)
            continue;
        if (c->resource == IDS_COUNT)
            share_in_turn(plan, c, &next);
        else
            share_evenly(plan, c);
    }
    for (size_t i = 0; i < plan->n_containers && plan->promise != PLAN_PROMISED; i++)
        plan->containers[i].n_shares = 0;
}

static void read_promise(struct plan *plan, const struct pod *pod,
                         const uint32_t *indexes)
{
    cleanup_arena struct arena a = {0};
    struct promise promise;
    if (!promise_of(pod, &a, &promise)) {
        plan->promise = PLAN_NONE;
        return;
    }
    plan->promise = PLAN_PROMISED;
    plan->cards = copy_shares(plan, promise.shares, promise.n);
    plan->n_cards = promise.n;
    share_out(plan, pod, indexes);
}

/* The reason of request_of, and the request without what it borrows. */
static bool read_request(struct plan *plan, const struct pod *pod, int64_t unit_mib)
{
    struct err err;
    const struct request_rules rules = {.unit_mib = unit_mib};
    if (request_of(pod, &rules, &plan->arena, &plan->request, &err) == 0)
        return true;
    plan->promise = PLAN_UNMEANT;
    plan->why_not = arena_copy(&plan->arena, span_of(err.msg));
    return false;
}

struct plan *plan_new(const struct pod *pod, int64_t unit_mib)
{
    struct plan *plan = xcalloc(1, sizeof *plan);
    struct arena *a = &plan->arena;
    size_t most = pod->n_containers * 2;
    cleanup_free uint32_t *indexes = xcalloc(most + 1, sizeof *indexes);
    plan->uid = arena_copy(a, pod->meta.uid);
    plan->ns = arena_copy(a, pod->meta.ns);
    plan->name = arena_copy(a, pod->meta.name);
    plan->over = pod_is_terminal(pod);
    plan->started = pod->phase != POD_PENDING;
    plan->mirror = pod->mirror;
    plan->assigned = span_eq(pod->assigned, SPAN("true"));
    plan->containers = arena_zalloc(a, most * sizeof *plan->containers);
    add_containers(plan, pod, false, indexes);
    add_containers(plan, pod, true, indexes);
    if (read_request(plan, pod, unit_mib))
        read_promise(plan, pod, indexes);
    return plan;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    struct arena arena = plan->arena;
    free(plan);
    arena_fini(&arena);
}

void plan_give(struct plan *plan, const struct plan_share *cards, size_t n)
{
    plan->promise = PLAN_PROMISED;
    plan->cards = arena_zalloc(&plan->arena, n * sizeof *cards);
    plan->n_cards = n;
    for (size_t i = 0; i < n; i++) {
        plan->cards[i] = cards[i];
        plan->cards[i].uuid = arena_copy(&plan->arena, cards[i].uuid);
    }
    share_out(plan, NULL, NULL);
}
