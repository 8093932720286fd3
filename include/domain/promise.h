/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/pod.h"
#include "domain/request.h"

/*
 * The promise of a pod: its cards, as in its annotations. Our annotations and those of
 * the Go extender (only the first five keys) have the same format. A UUID counts only with
 * a valid allocation whose cards are all in the index: every writer of UUIDs writes such
 * an allocation, and a UUID beside the Go extender's keys was copied from another pod's
 * manifest.
 *
 * A bound pod of slots (aliyun.com/gpu-share: k) has the same annotations. They are in MiB,
 * whatever --memory-unit is:
 *
 *   gpushare/memory-unit   1
 *   ALIYUN_COM_GPU_MEM_IDX k cards
 *   ALIYUN_COM_GPU_MEM_DEV MiB that each of them can promise
 *   ALIYUN_COM_GPU_MEM_POD MiB of all k cards together
 *   the allocation         {"<container>":{"<card>":<MiB>}}: each app container and sidecar with the
 *                          limit has the same part of each card
 *   gpushare/card-memory   "<MiB of each card> <UID of the pod>": the record of the bind, which
 *                          counts whatever the annotation gpushare/memory says later
 *
 * promise_of_bound has them as a request with `slots` > 0. The part of a container, also of a plain
 * init container, is mib_per_card / slots on each card.
 *
 * A pod that HAMi has bound is taken over: its annotations hami.io/vgpu-... are its promise
 * (dialect_promise), and ours, which a bind by us has written, count alone if there are both. We
 * never write HAMi's.
 */

struct promise_share {
    int32_t card;       /* index; -1: taken over, which names a UUID alone */
    int64_t units;      /* of gpu-mem on that card; -1: not in the annotations */
    int64_t card_units; /* size of the card; 0: not in the annotations */
    struct span uuid;   /* of the card; empty: unknown */
    /* Taken over: MiB, but at least `percent` of the card; percent of its compute. */
    int64_t mib;
    uint8_t percent, compute_percent;
};

struct promise {
    struct promise_share *shares;
    size_t n;
    size_t n_indexes; /* cards in a valid index annotation */
    bool allocated;   /* a valid allocation annotation */
    int64_t units;    /* ALIYUN_COM_GPU_MEM_POD; -1: absent or invalid */
    int64_t unit_mib; /* gpushare/memory-unit; -1: absent or invalid */
    /* gpushare/card-memory with the pod's UID: written when the request came from labels or from
     * gpushare/memory, because these can be edited, and units of labels are rounded up. */
    bool whole;       /* whole cards */
    int64_t card_mib; /* MiB of each card; -1: unknown, or of another pod */
    bool taken_over;  /* from HAMi; without shares, its cards are unknown */
    bool by_limits;   /* ... and its annotations say nothing */
    uint32_t slots;   /* ... at most, of a card */
};

/* Reads the annotations. False when they name no card: none, or damaged ones. If the
 * allocation and the index annotation disagree, the cards of both count: rather too much
 * than too little. */
bool promise_of(const struct pod *pod, struct arena *a, struct promise *promise);

/* The promise of a bound pod that HAMi's words `d` alone explain: its limits, or a limit of
 * nvidia.com/gpu and HAMi's annotations. False: it has a promise or limits of ours, or asks for
 * nothing in these words. `counts` false: its annotations are ignored. -1 in *bad, with the reason:
 * they cannot be read. */
bool promise_of_hami(const struct pod *pod, const struct dialect *d, bool counts,
                     struct arena *a, struct promise *promise, int *bad, struct err *err);

/* The part of one container, by its index in the allocation annotation. False if the
 * annotation lacks it or is damaged. */
bool promise_of_container(const struct pod *pod, uint32_t index, struct arena *a,
                          struct promise *promise);

/* MiB of share i. The annotations name the cards; the request decides the amount:
 * - as many cards as requested: the even part of each, or more if the allocation has more
 *   units there;
 * - an allocation of exactly the requested units on another number of cards: as allocated;
 * - otherwise the whole amount on each card, because any of them may have all of it.
 * A share is never more than the pod's request. */
int64_t promise_share_mib(const struct promise *promise, size_t i,
                          const struct request *request, int64_t unit_mib);

/* MiB of one unit in a promise of so many units on a card of `card_mib`, in a cluster whose unit is
 * `unit_mib`. It is the unit that the promise names (`written`; 0: the cluster's). If it names none
 * (-1), it is the one of unit_mib, GiB and MiB in which the card has about `card_units` (0:
 * unknown; its size changes a little with the driver), else the larger of unit_mib and GiB.
 * Annotations can be forged: a unit below unit_mib counts only if so many units of unit_mib are
 * more than the card. */
int64_t promise_unit_mib(int64_t unit_mib, int64_t written, int64_t card_units,
                         int64_t units, int64_t card_mib);

/* Units of all cards in the allocation. */
int64_t promise_allocated_units(const struct promise *promise);

/* Appends the annotations of a Binding as a JSON object. `shares` are listed in their
 * order, with card_units; unit_mib is set; `uid` is the pod's, `time_ns` nanoseconds since
 * 1970. Every key is written at every bind, because an omitted key keeps its value from the
 * pod's manifest. */
void promise_write(struct buf *out, const struct promise *promise,
                   const struct request *request, struct span uid, int64_t time_ns);

/*
 * The amount that a bound pod has in the ledger: what its spec asks for. Users can write
 * any annotation, so annotations only name the cards. Binding is final, so an error in a
 * label or annotation must not free memory.
 *
 * - Valid request: the request.
 * - Invalid request with limits: the raw limits (domain/request.h).
 * - No limits: the request came from labels, which users can edit later. The record of the
 *   bind (gpushare/card-memory) counts if the current labels ask for less or nothing, and
 *   never for more than a card has. It names the pod's UID, which nobody knows before the
 *   API server has created the pod: what a manifest says, or a copy of another pod, is no
 *   record. A user who writes it into a bound pod gains what the label would have given
 *   him: a request by label needs no quota either.
 *   A limit of gpu-core.percentage alone gives these pods that share of each of their
 *   cards, at most 100 percent; it does not make their request invalid.
 * - Slots: the record of the bind, as above, or the allocation if that has more of a card: an edit of
 *   one of them lowers nothing. Without a valid record, and beside a limit of gpu-mem, all of each
 *   card that the annotations name, and without such a card, what the annotation gpushare/memory asks
 *   for; if that is invalid, all of each card.
 * - Taken over: what the annotations say of each card, or its limits if these ask for more. All of the
 *   compute of a card is all of the card, as HAMi gives it to no other pod then. If the annotations
 *   cannot be read, all of each card of the node; if they do not count, what the limits ask for on each.
 * - In a dialect (rules->dialect): what nvidia.com/gpu is on other nodes, and `hami` with the record of
 *   the bind as above, or without it with what the limits ask for. The record can be edited, and the
 *   limits cannot, so the ledger counts the larger of it and of request_mib_of_limits on the card. The
 *   defaults of HAMi can change, so an amount that no limit says is the record's alone. A percentage
 *   of a card that has grown grows with it, as the size in the annotations can be edited, too. That
 *   overcommits no card: all percentages of a card together grow by no more than the card, and
 *   request_mib_of_limits leaves one MiB for the rounding. Of one that has shrunk, the record counts.
 * - Otherwise a pod that asks for nothing has nothing, whatever its annotations say.
 */

/* Computes the amount of a bound pod, given the promise in its annotations (n == 0:
 * none). -1 with `err` when the pod's own request is invalid; `request` is valid anyway
 * (kind NONE: nothing). */
int promise_of_bound(const struct pod *pod, const struct promise *promise,
                     const struct request_rules *rules, struct arena *a,
                     struct request *request, struct err *err);

/* Appends how the annotations of a bound pod and its request differ; nothing if they
 * agree. `request` and `invalid` are from promise_of_bound. The first number is that of the
 * annotations, the second that of the request. */
void promise_differences(struct buf *out, const struct pod *pod,
                         const struct promise *promise, const struct request *request,
                         bool invalid, int64_t unit_mib);
