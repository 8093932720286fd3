/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "domain/request.h"

/*
 * The requests of pods, and the kinds of the cards that they are for. Each different one is
 * stored once, with the number of its users, because many pods and cards have equal ones. Equal
 * requests have equal parts, and equal resources of the node. What is counted of a request refers
 * to it:
 *
 * A class: the pending pods with equal requests and priorities, whatever their parts. Filter
 * answers them alike, but those that are nominated or have a reservation.
 *
 * A shape of the request mix, which is what pods of the cluster request as a rule: a request with
 * a weight and with what it takes of each kind of card, whatever its placement, the order of its
 * models, and the plugin that allocates its whole cards. A pod counts once, when it is first seen,
 * and loses half its weight after MIX_HALF_LIFE more pods. So the mix follows the workload and
 * needs no clock, and a shape outlives its pods. At most MIX_SHAPES are kept; a new one replaces
 * the lightest (the oldest of equals). The same pods in the same order give the same shapes and
 * weights.
 *
 * The amount of a shape on a kind is request_amount, computed when either of them is new, so that
 * reading the mix compares no text. It decides scores and what is shown, and never whether a pod
 * fits: nodes write their kinds, so only MIX_KINDS of them are distinguished. The others are kind
 * 0, of which nothing is known.
 */

enum {
    MIX_SHAPES = 128,
    MIX_HALF_LIFE = 4096, /* pods */
    MIX_KINDS = 64,
};

struct request_class {
    uint64_t id; /* never reused, as the position in the array is */
    int32_t priority;
    uint8_t
        due[2]; /* for core: on so many nodes it is to be retried, and cordoned ones */
    const struct request *request; /* without parts */
    size_t pods, members; /* none: the position is free. members: those in a gang */
};

struct request_shape {
    const struct request *request; /* without parts */
    int64_t cpu_milli;             /* 0: unknown */
    int64_t weight;                /* more than 0 */
    int64_t amounts[MIX_KINDS];
};

/* {0} is empty. Readers read the arrays. */
struct requests {
    struct map shared, kinds_by_key;
    struct request_class *classes; /* owned, as are the shapes; both unordered */
    size_t n_classes, classes_cap;
    uint64_t last_class; /* id */
    struct request_shape *shapes;
    size_t n_shapes, shapes_cap;
    uint32_t since; /* pods since the weights were last halved */
    struct {
        const struct card_kind *kind; /* NULL: there is none, as of kind 0 */
        int64_t free_mib; /* on all its cards; the owner of the cards writes it */
    } kinds[MIX_KINDS];
};

/* `seed` keys the hash tables; no result depends on it. */
void requests_init(struct requests *all, uint64_t seed);
/* All that users took has been released. */
void requests_fini(struct requests *all);
#define cleanup_requests __attribute__((cleanup(requests_fini)))

/* A copy, which does not change and lives until each user has released it. */
const struct request *requests_take(struct requests *all, const struct request *request,
                                    const struct resources *resources);
void requests_release(struct requests *all, const struct request *taken);
/* With which it was taken. */
const struct resources *requests_resources(const struct request *taken);

/* So many more pods, and members of gangs, are pending with the request, or fewer. Returns the
 * position of their class. Those without GPU are in no class: UINT32_MAX. */
uint32_t requests_pend(struct requests *all, const struct request *request,
                       int32_t priority, int pods, int members);

/* Counts a new pod in the mix. `cpu_milli`: its CPU request, or 0. */
void requests_weigh(struct requests *all, const struct request *request,
                    int64_t cpu_milli);

/* A copy with its `id`, like requests_take. */
const struct card_kind *requests_take_kind(struct requests *all,
                                           const struct card_kind *kind);
void requests_release_kind(struct requests *all, const struct card_kind *taken);
