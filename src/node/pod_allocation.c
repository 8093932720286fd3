/* SPDX-License-Identifier: Apache-2.0 */

/* From a pod's limits and annotations to the shares of each of its containers. */

#include "node/pod_allocation.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"

static struct promise_share *copy_shares(struct pod_allocation *alloc,
                                         const struct promise_share *from, size_t n)
{
    struct promise_share *to = arena_alloc(&alloc->arena, n * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].uuid = arena_copy(&alloc->arena, from[i].uuid);
    }
    return to;
}

/* One entry per resource in the container's limits, `apps` or the others: init containers come
 * first in the order of admission. A pod with several resources is invalid, but the kubelet
 * requests them nevertheless. */
static void add_containers(struct pod_allocation *alloc, const struct pod *pod, bool apps,
                           const struct dialect *dialect)
{
    for (size_t i = 0; i < IDS_CARD_RESOURCES * pod->n_containers; i++) {
        const struct pod_container *c = &pod->containers[i / IDS_CARD_RESOURCES];
        const struct span limits[] = {c->mem, c->cards, c->slots,
                                      dialect ? c->devices : (struct span){0}};
        enum ids_resource resource = (enum ids_resource)(i % IDS_CARD_RESOURCES);
        struct span limit = limits[resource];
        struct pod_allocation_container to = {.name = arena_copy(&alloc->arena, c->name),
                                              .role = c->role,
                                              .index = c->index,
                                              .resource = resource,
                                              .own_devices = c->own_devices,
                                              .own_preload = c->own_preload,
                                              .privileged = c->privileged,
                                              .started_s = c->started_s};
        if ((c->role == CONTAINER_APP) != apps || !limit.p ||
            quantity_read(limit, &to.amount, NULL) || to.amount <= 0)
            continue;
        if (resource != IDS_COUNT && c->compute_percent.p &&
            quantity_read(c->compute_percent, &to.compute_percent, NULL))
            to.compute_percent = 0;
        alloc->containers[alloc->n_containers++] = to;
    }
}

static void set_invalid(struct pod_allocation *alloc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void set_invalid(struct pod_allocation *alloc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    alloc->promise = POD_ALLOCATION_INVALID;
    alloc->why_not = span_of(arena_vprintf(&alloc->arena, fmt, ap));
    va_end(ap);
}

static void give_cards(struct pod_allocation *alloc, struct pod_allocation_container *c,
                       const struct promise_share *cards, size_t n, int64_t units)
{
    c->shares = arena_alloc(&alloc->arena, n * sizeof *c->shares);
    for (c->n_shares = 0; c->n_shares < n; c->n_shares++) {
        c->shares[c->n_shares] = cards[c->n_shares];
        c->shares[c->n_shares].units = units;
    }
}

/* Takes the shares of app containers and sidecars from the allocation annotation. False: it
 * does not match the limit of each of them. It is used only if it covers every container:
 * mixing it with the index annotation could assign a card twice. */
static bool share_as_annotated(struct pod_allocation *alloc, const struct pod *pod)
{
    ARRAY_EACH_ITEM(struct pod_allocation_container, c, alloc->containers,
                    alloc->n_containers)
    {
        cleanup_arena struct arena a = {0};
        struct promise part;
        int64_t sum = 0;
        if (c->role == CONTAINER_INIT)
            continue;
        if (!promise_of_container(pod, c->index, &a, &part))
            return false;
        c->shares = copy_shares(alloc, part.shares, part.n);
        c->n_shares = part.n;
        for (size_t k = 0; k < part.n; k++) {
            if (c->resource == IDS_COUNT)
                c->shares[k].units = 1;
            sum += c->shares[k].units;
        }
        if (sum != c->amount)
            return false;
    }
    return true;
}

/*
 * Memory evenly. Whole cards: app containers and sidecars get disjoint parts. A plain init
 * container runs alone, so it gets the first cards. But the kubelet reuses its ids in no order:
 * where there is one (`reused`), each container gets as many as it requests of all cards.
 * `annotated`: the app containers and sidecars have their shares.
 */
static void share_out(struct pod_allocation *alloc, bool annotated)
{
    const size_t n = alloc->n_cards;
    size_t next = 0;
    bool reused = false;
    for (size_t i = 0; i < alloc->n_containers; i++)
        reused |= alloc->containers[i].role == CONTAINER_INIT;
    ARRAY_EACH_ITEM(struct pod_allocation_container, c, alloc->containers,
                    alloc->n_containers)
    {
        const bool whole = c->resource == IDS_COUNT, init = c->role == CONTAINER_INIT;
        const size_t amount = (size_t)c->amount, from = init ? 0 : next;
        if (alloc->promise != POD_ALLOCATION_PROMISED ||
            (annotated && !init && !(whole && reused)))
            continue;
        if (!whole && amount % n)
            set_invalid(alloc,
                        "the promise has %zu cards, and the %zu units of container %.*s "
                        "are not divisible by it",
                        n, amount, SPAN_ARG(c->name));
        else if (!whole)
            give_cards(alloc, c, alloc->cards, n, (int64_t)(amount / n));
        else if (amount > n - from)
            set_invalid(
                alloc, "the promise has %zu cards, fewer than the containers request", n);
        else
            give_cards(alloc, c, alloc->cards + (reused ? 0 : from), reused ? n : amount,
                       1);
        if (whole && !init)
            next += amount;
    }
    for (size_t i = 0; i < alloc->n_containers; i++)
        if (alloc->promise != POD_ALLOCATION_PROMISED)
            alloc->containers[i].n_shares = 0;
}

/* Annotations can be forged, and limits cannot change: a promise of more cards or units
 * than the limits request is rejected, and so are parts of no container, unless the even
 * part is what the ledger counts on each card. */
static void check_covered(struct pod_allocation *alloc, const struct promise *promise,
                          bool annotated)
{
    const struct request *r = &alloc->request;
    bool memory = r->kind == REQUEST_MEMORY;
    int64_t units = promise_allocated_units(promise);
    /* Is the allocation what the limits request, on exactly these cards? The label with the
     * number of cards may have changed since the bind. A plain init container has no part
     * of its own in the allocation. */
    bool exact =
        annotated && memory && promise->allocated && promise->n == promise->n_indexes;
    for (size_t i = 0; i < alloc->n_containers; i++)
        exact &= alloc->containers[i].role != CONTAINER_INIT;
    if (promise->n > r->cards && !exact)
        set_invalid(alloc, "the annotations promise %zu cards, and the pod requests %u",
                    promise->n, r->cards);
    else if (memory && units > r->units)
        set_invalid(alloc,
                    "the annotation " KEY_ALLOCATION
                    " promises %lld units, and the limits "
                    "request %lld",
                    (long long)units, (long long)r->units);
    else if (memory && promise->allocated && !exact && promise->n > 1 &&
             promise->n != r->cards)
        set_invalid(alloc, "the annotation " KEY_ALLOCATION
                           " does not match the limits of the containers");
}

/* Each container has the same part of each card, by the record of the Binding: the annotation
 * gpushare/memory may be another one since. */
static void share_slots(struct pod_allocation *alloc, const struct promise *promise)
{
    struct request *r = &alloc->request;
    if (promise->n != r->cards || promise->card_mib < r->slots) {
        set_invalid(alloc,
                    "the annotations promise %zu cards, and the pod has slots on %u, "
                    "or " KEY_CARD_MEMORY " does not say how much memory of each",
                    promise->n, r->cards);
        return;
    }
    const int64_t part = promise->card_mib / r->slots;
    for (size_t i = 0; i < promise->n; i++)
        if (promise->shares[i].units >= 0 &&
            promise->shares[i].units != part * (int64_t)r->n_parts) {
            set_invalid(alloc, "the annotations " KEY_ALLOCATION " and " KEY_CARD_MEMORY
                               " differ in the memory of a card");
            return;
        }
    request_settle(r, promise->card_mib, 0);
    ARRAY_EACH_ITEM(struct pod_allocation_container, c, alloc->containers,
                    alloc->n_containers)
    give_cards(alloc, c, alloc->cards, alloc->n_cards, part);
}

/* In a dialect each container has its own part, the same of each card, by the record of the
 * Binding, as the defaults of the limits are the extender's. The record has no plain init
 * containers: they run before, and can have what the sidecars leave of the promise. */
static void share_dialect(struct pod_allocation *alloc, const struct pod *pod,
                          const struct promise *promise, const struct dialect *dialect)
{
    const int64_t mib =
        promise->whole ? promise->shares[0].card_units : promise->card_mib;
    int64_t running = 0, left = mib;
    bool good = mib > 0;
    ARRAY_EACH_ITEM(struct pod_allocation_container, c, alloc->containers,
                    alloc->n_containers)
    {
        cleanup_arena struct arena a = {0};
        struct promise part;
        good &= c->amount == (int64_t)promise->n;
        if (c->role == CONTAINER_INIT)
            continue;
        good &= promise_of_container(pod, c->index, &a, &part) && part.n == promise->n;
        for (size_t k = 0; good && k < part.n; k++)
            good =
                part.shares[k].units > 0 && part.shares[k].units == part.shares[0].units;
        if (!good)
            break;
        give_cards(alloc, c, alloc->cards, alloc->n_cards, part.shares[0].units);
        running += part.shares[0].units;
        left -= c->role == CONTAINER_SIDECAR ? part.shares[0].units : 0;
    }
    good = good && running <= mib;
    ARRAY_EACH_ITEM(struct pod_allocation_container, c, alloc->containers,
                    alloc->n_containers)
    {
        if (!good)
            c->n_shares = 0;
        else if (c->role == CONTAINER_INIT)
            give_cards(alloc, c, alloc->cards, left > 0 ? alloc->n_cards : 0, left);
    }
    if (!good) {
        set_invalid(alloc, "the annotations " KEY_ALLOCATION " and " KEY_CARD_MEMORY
                           " do not say what each container has of the cards that it "
                           "requests as " KEY_NVIDIA_GPU);
        return;
    }
    alloc->request = (struct request){
        .kind = promise->whole ? REQUEST_CARDS : REQUEST_MEMORY,
        .cards = (uint32_t)promise->n,
        .slots = alloc->request.slots,
        .mib_per_card = mib,
        .units = promise->whole ? 0 : mib * (int64_t)promise->n,
    };
    /* Percent of the compute of each card, as the containers' limits say. */
    cleanup_arena struct arena a = {0};
    struct dialect_pod words = {0};
    struct jread j;
    jread_init(&j, pod->object.p, pod->object.n);
    dialect_read(&j, &a, dialect, &words);
    if (jread_finish(&j, NULL) || dialect_request(&words, NULL))
        return;
    for (const struct dialect_container *of = words.containers; of; of = of->next)
        ARRAY_EACH_ITEM(struct pod_allocation_container, c, alloc->containers,
                        alloc->n_containers)
    if (span_eq(c->name, of->name))
        c->compute_percent = (int64_t)of->cores * c->amount;
}

static void read_promise(struct pod_allocation *alloc, const struct pod *pod,
                         int64_t unit_mib, const struct dialect *dialect)
{
    cleanup_arena struct arena a = {0};
    struct promise promise;
    bool invalid = alloc->promise == POD_ALLOCATION_INVALID;
    /* A pod without limits gets no device, whatever its annotations claim. Labels can
     * request cards without limits. */
    if (!alloc->n_containers && (invalid || alloc->request.kind == REQUEST_NONE))
        return;
    if (!promise_of(pod, &a, &promise))
        return;
    alloc->cards = copy_shares(alloc, promise.shares, promise.n);
    alloc->n_cards = promise.n;
    alloc->lacks_uuids =
        promise.allocated && promise.n == promise.n_indexes && !promise.shares[0].uuid.n;
    if (invalid)
        return; /* a pod whose labels became invalid after its bind still uses its cards */
    alloc->promise = POD_ALLOCATION_PROMISED;
    if (dialect && alloc->request.slots && alloc->request.kind == REQUEST_DEVICES) {
        share_dialect(alloc, pod, &promise, dialect);
        return;
    }
    if (alloc->request.slots) {
        share_slots(alloc, &promise);
        return;
    }
    bool annotated = share_as_annotated(alloc, pod);
    check_covered(alloc, &promise, annotated);
    if (promise.unit_mib > 0 && promise.unit_mib != unit_mib &&
        !alloc->request.by_label && alloc->request.kind == REQUEST_MEMORY)
        set_invalid(
            alloc,
            "the promise is in units of %lld MiB, and the device plugin's unit is %lld "
            "MiB (--memory-unit)",
            (long long)promise.unit_mib, (long long)unit_mib);
    share_out(alloc, annotated);
}

struct pod_allocation *pod_allocation_new(const struct pod *pod, int64_t unit_mib,
                                          const struct dialect *dialect)
{
    struct pod_allocation *alloc = xcalloc(1, sizeof *alloc);
    struct arena *a = &alloc->arena;
    const struct request_rules rules = {.unit_mib = unit_mib};
    struct err err;
    alloc->uid = arena_copy(a, pod->meta.uid);
    alloc->ns = arena_copy(a, pod->meta.ns);
    alloc->name = arena_copy(a, pod->meta.name);
    alloc->full_name =
        arena_printf(a, "%.*s/%.*s", SPAN_ARG(alloc->ns), SPAN_ARG(alloc->name));
    alloc->isolation = arena_copy(a, pod->isolation);
    alloc->terminal = pod_is_terminal(pod);
    alloc->started = pod->phase != POD_PENDING;
    alloc->mirror = pod->mirror;
    alloc->assigned = span_eq(pod->assigned, SPAN("true"));
    alloc->containers = arena_zalloc(a, IDS_CARD_RESOURCES * pod->n_containers *
                                            sizeof *alloc->containers);
    add_containers(alloc, pod, false, dialect);
    add_containers(alloc, pod, true, dialect);
    alloc->promise = POD_ALLOCATION_UNPROMISED;
    if (request_of(pod, &rules, a, &alloc->request, &err)) {
        alloc->promise = POD_ALLOCATION_INVALID;
        alloc->why_not = arena_copy(a, span_of(err.msg));
    }
    for (size_t i = 0; i < alloc->n_containers; i++)
        alloc->request.slots += alloc->containers[i].resource == IDS_DIALECT;
    read_promise(alloc, pod, unit_mib, dialect);
    return alloc;
}

void pod_allocation_free(struct pod_allocation *alloc)
{
    if (!alloc)
        return;
    struct arena arena = alloc->arena;
    free(alloc);
    arena_fini(&arena);
}

void pod_allocation_assign(struct pod_allocation *alloc,
                           const struct promise_share *cards, size_t n)
{
    alloc->promise = POD_ALLOCATION_PROMISED;
    alloc->is_chosen = true;
    alloc->cards = copy_shares(alloc, cards, n);
    alloc->n_cards = n;
    share_out(alloc, false);
}

const struct plugin_card *pod_allocation_card(const struct cards *cards,
                                              const struct promise_share *share)
{
    return share->uuid.n ? cards_by_uuid(cards, share->uuid)
                         : cards_by_index(cards, share->card);
}
