/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/pod.h"
#include "domain/request.h"

/*
 * The cards that were promised to a pod, as its annotations say it. Ours and those of the
 * Go extender (which writes the first five keys only) are read alike. A UUID counts only
 * beside a readable allocation whose cards are all in the index: every writer of UUIDs
 * writes such an allocation, and a UUID beside the Go extender's keys was copied from
 * another pod's manifest.
 */

struct promise_share {
    int32_t card;       /* index */
    int64_t units;      /* of gpu-mem on that card; -1 when the annotations do not say */
    int64_t card_units; /* size of the card; for writing */
    struct span uuid;   /* of the card; empty when not known */
};

struct promise {
    struct promise_share *shares;
    size_t n;
    size_t n_indexes; /* cards that the index annotation names */
    /* gpushare/card-memory, which a Binding has when labels made the request: labels can
     * be edited later, and the units of the other annotations are rounded up. It means
     * nothing in a pod with limits, where it may be a copy from another pod's manifest.
     */
    bool whole;       /* the cards are promised whole */
    int64_t card_mib; /* MiB of each card; -1: unknown */
    bool fills; /* each share has all units of its card, by ALIYUN_COM_GPU_MEM_DEV */
};

/* Reads the annotations. False when they name no card: there are none, or they are
 * damaged. Where the allocation and the index annotation disagree, the cards of both
 * count: too much is promised then, never too little. */
bool promise_of(const struct pod *pod, struct arena *a, struct promise *promise);

/* The part of one container, by its index in the allocation annotation. False when the
 * annotation does not speak of it, or is damaged. */
bool promise_of_container(const struct pod *pod, uint32_t index, struct arena *a,
                          struct promise *promise);

/* What the share of card i weighs in MiB, given the pod's request: what the annotations
 * say, but not less in all than the pod asks for. */
int64_t promise_share_mib(const struct promise *promise, size_t i,
                          const struct request *request, int64_t unit_mib);

/* Appends the annotations of a Binding as a JSON object. `shares` are in the order in
 * which they are to be listed; `time_ns` is nanoseconds since 1970. Every key is written
 * at every bind, since what is left out survives from the pod's manifest. */
void promise_write(struct buf *out, const struct promise *promise,
                   const struct request *request, int64_t time_ns);
