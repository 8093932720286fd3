/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/request.h"

/*
 * The request mix of a cluster: the shapes of requests, each with a weight, and the kinds
 * of cards that they accept. A pod counts once, when it is first seen, and loses half its
 * weight after MIX_HALF_LIFE more pods. So the mix follows the workload and needs no clock.
 *
 * At most MIX_SHAPES are kept; a new one replaces the lightest (the oldest of equals). The
 * same pods in the same order give the same shapes and weights.
 *
 * A kind is what a request can select cards by: model, profile, clock and size. A shape has a bit
 * for each kind, so that reading the mix compares no text. Tenants write the lists of
 * models and nodes write the models, so both are bounded: a shape keeps hashes of the
 * models that its pods name, because a pod can be listed before the cards, and at most
 * MIX_KINDS kinds are distinguished. Cards beyond that are of kind 0, which only shapes
 * accept that select nothing.
 */

enum {
    MIX_SHAPES = 128,
    MIX_HALF_LIFE = 4096, /* pods */
    MIX_KINDS = 64,
    MIX_MODELS = 16, /* in a shape; a longer list counts as any model */
};

struct request_mix_shape {
    enum request_kind kind; /* NONE: no GPU; CARDS: also DEVICES */
    uint32_t cards;
    int64_t mib_per_card; /* MEMORY; CARDS: minimum size of a card, or 0 */
    int64_t cpu_milli;    /* 0: unknown */
    int64_t clock_mhz;    /* of struct request */
    bool clock_exact;
    uint8_t n_models;            /* 0: any model */
    uint32_t models[MIX_MODELS]; /* hashes of the models, rising */
    uint64_t accepts;            /* bit i: cards of kinds[i] */
    int64_t weight;              /* more than 0 */
};

struct request_mix_kind {
    uint32_t model;   /* hash; 0: unknown */
    uint32_t profile; /* hash; 0: full cards */
    int64_t clock_mhz, total_mib;
    int64_t free_mib; /* on all its cards */
    uint32_t cards;   /* in the cluster. 0: another kind may replace it */
};

struct request_mix {
    struct request_mix_shape shapes[MIX_SHAPES]; /* unordered */
    uint32_t n;
    uint32_t since; /* pods since the weights were last halved */
    struct request_mix_kind kinds[MIX_KINDS];
    uint32_t n_kinds; /* 0: no card yet */
};

/* Counts a new pod. `cpu_milli`: its CPU request, or 0. */
void request_mix_add(struct request_mix *mix, const struct request *request,
                     int64_t cpu_milli);

/* Counts a new card and returns its kind, an index into mix->kinds. `clock_mhz` 0 and an
 * empty model: unknown. */
uint8_t request_mix_add_card(struct request_mix *mix, struct span model,
                             struct span profile, int64_t clock_mhz, int64_t total_mib);
/* A card of that kind is gone. */
void request_mix_remove_card(struct request_mix *mix, uint8_t kind);
/* The free memory of a card of that kind changes by `mib`. */
void request_mix_add_free(struct request_mix *mix, uint8_t kind, int64_t mib);
