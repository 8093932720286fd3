/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/request.h"

/*
 * The request mix of a cluster: what pods request, each request once, with a weight and with
 * what it takes of each kind of card. A pod counts once, when it is first seen, and loses half
 * its weight after MIX_HALF_LIFE more pods. So the mix follows the workload and needs no clock, and
 * a request outlives its pods.
 *
 * At most MIX_SHAPES are kept; a new one replaces the lightest (the oldest of equals). The
 * same pods in the same order give the same shapes and weights.
 *
 * The amount of a shape on a kind is request_amount, computed when either of them is new, so that
 * reading the mix compares no text. It decides scores, classes and what is shown, and never
 * whether a pod fits: nodes write their kinds, so only MIX_KINDS of them are distinguished. The
 * others are kind 0, of which nothing is known.
 */

enum {
    MIX_SHAPES = 128,
    MIX_HALF_LIFE = 4096, /* pods */
    MIX_KINDS = 64,
};

struct request_mix_shape {
    /* NONE: no GPU; CARDS: also DEVICES. Without parts and placement; request_mix_request has the
     * models, as a set. */
    struct request request;
    int64_t cpu_milli; /* 0: unknown */
    char models[REQUEST_MAX_MODELS];
    int64_t weight; /* more than 0 */
    int64_t amounts[MIX_KINDS];
};

/* {0} is empty. */
struct request_mix {
    struct request_mix_shape *shapes; /* unordered; owned */
    size_t n, cap;
    uint32_t since; /* pods since the weights were last halved */
    struct {
        const struct card_kind *kind; /* borrowed; NULL: there is none, as of kind 0 */
        int64_t free_mib;             /* on all its cards */
    } kinds[MIX_KINDS];
};

void request_mix_fini(struct request_mix *mix);
#define cleanup_mix __attribute__((cleanup(request_mix_fini)))

/* Of the shape, which it borrows the models of. */
struct request request_mix_request(const struct request_mix_shape *shape);

/* Counts a new pod. `cpu_milli`: its CPU request, or 0. */
void request_mix_add(struct request_mix *mix, const struct request *request,
                     int64_t cpu_milli);

/* Borrows a new kind until request_mix_remove_kind, and returns its id. */
uint8_t request_mix_add_kind(struct request_mix *mix, const struct card_kind *kind);
void request_mix_remove_kind(struct request_mix *mix, uint8_t id);
