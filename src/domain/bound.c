/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/bound.h"

#include "base/mutant.h"
#include "domain/keys.h"

/* Did the Binding promise more than the labels request now? */
static bool is_larger(const struct promise *p, const struct request *r)
{
    if (r->kind == REQUEST_CARDS)
        return false;
    return p->whole || r->kind == REQUEST_NONE ||
           r->mib_per_card * r->cards < p->card_mib * (int64_t)p->n;
}

/* The request that the labels made when the pod was bound. */
static struct request recorded(const struct promise *p)
{
    struct request r = {.kind = p->whole ? REQUEST_CARDS : REQUEST_MEMORY,
                        .cards = (uint32_t)p->n,
                        .by_label = true,
                        .recorded = true};
    if (!p->whole) {
        r.mib_per_card = p->card_mib;
        r.units = promise_allocated_units(p);
    }
    return r;
}

/* The pod without its limits of compute: without one of memory they make a request invalid,
 * and a pod that was bound by its labels before that rule existed keeps its memory. */
static struct pod without_core(const struct pod *pod, struct arena *a)
{
    struct pod copy = *pod;
    copy.containers = arena_alloc(a, pod->n_containers * sizeof *copy.containers);
    for (size_t i = 0; i < pod->n_containers; i++) {
        copy.containers[i] = pod->containers[i];
        copy.containers[i].core = (struct span){0};
    }
    return copy;
}

int bound_request(const struct pod *pod, const struct promise *promise,
                  const struct request_rules *rules, struct arena *a,
                  struct request *request, struct err *err)
{
    struct limits limits = limits_of(pod);
    bool by_label = !limits_any(&limits);
    struct pod labels = by_label && limits.core ? without_core(pod, a) : *pod;
    int bad = request_of(&labels, rules, a, request, err);
    if (!by_label) {
        if (bad && (!MUTANT(limits_of_invalid_forgotten) || limits.mem < 0))
            request_of_limits(&limits, rules, request);
        return bad;
    }
    bool complete = MUTANT(labels_of_bound_trusted) ? false
                    : MUTANT(card_memory_alone_counts)
                        ? promise->n && (promise->whole || promise->card_mib >= 0)
                        : promise->complete;
    if (complete && is_larger(promise, request))
        *request = recorded(promise);
    if (request->kind == REQUEST_MEMORY)
        request->core =
            (uint8_t)(limits.core < REQUEST_CORE ? limits.core : REQUEST_CORE);
    return bad;
}

/* What the annotations promise. gpushare/card-memory means nothing beside limits. */
static void write_promise(struct buf *out, const struct promise *p, bool limits)
{
    int64_t units = p->allocated ? promise_allocated_units(p) : p->units;
    buf_adds(out, "the annotations promise ");
    if (p->whole && !limits)
        buf_adds(out, "whole cards");
    else if (p->card_mib >= 0 && !limits)
        buf_printf(out, "%lld MiB on each card", (long long)p->card_mib);
    else if (units >= 0)
        buf_printf(out, "%lld units of " KEY_GPU_MEM, (long long)units);
    else
        buf_adds(out, "memory");
    buf_printf(out, " (%zu card%s)", p->n, p->n == 1 ? "" : "s");
}

/* The units of all containers that run concurrently: what the allocation has. */
static int64_t running_units(const struct request *r)
{
    int64_t sum = 0;
    for (size_t i = 0; i < r->n_parts; i++)
        sum += r->parts[i].amount;
    return sum;
}

/* The Go extender counts only app containers, ignores the number of cards, and writes no
 * allocation. */
static bool agrees_with_go(const struct promise *p, const struct request *r, bool invalid)
{
    bool cards = p->n == 1 || p->n == r->cards || invalid;
    return cards && (r->kind == REQUEST_CARDS || p->units <= r->units);
}

static bool agrees(const struct promise *p, const struct request *r, bool invalid)
{
    int64_t running = invalid || !r->n_parts ? r->units : running_units(r);
    int64_t units = promise_allocated_units(p);
    if (!p->allocated)
        return agrees_with_go(p, r, invalid);
    if (r->kind == REQUEST_CARDS)
        return p->n == r->cards;
    if (p->units >= 0 && p->units != r->units && p->units != running)
        return false;
    return (units == r->units || units == running) && (p->n == r->cards || invalid);
}

void bound_differences(struct buf *out, const struct pod *pod, const struct promise *p,
                       const struct request *r, bool invalid, int64_t unit_mib)
{
    if ((!pod->idx.p && !pod->allocation.p) || r->kind == REQUEST_DEVICES)
        return;
    if (r->recorded) {
        write_promise(out, p, false);
        buf_adds(out, ", but the labels ask for less now; the annotations count, because "
                      "they are complete");
    } else if (r->kind == REQUEST_NONE) {
        write_promise(out, p, false);
        buf_adds(out, ", but the pod asks for nothing; it counts for nothing");
    } else if (p->n && !agrees(p, r, invalid)) {
        write_promise(out, p, !r->by_label);
        buf_adds(out, ", but the pod asks for ");
        request_write(out, r, unit_mib);
        buf_adds(out, ", which counts");
    }
}
