/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "domain/mix.h"

/*
 * Fragmentation: how much of a node's free memory the pods of a mix cannot use. A shape
 * of the mix can use the free memory of a card if the card has enough of it. It can use
 * nothing on a node with too few such cards or too little free CPU. The measure is the
 * weighted mean over the shapes of the mix (Weng et al., USENIX ATC '23).
 */

enum { FRAG_SHIFT = 16 }; /* the measure is in MiB << FRAG_SHIFT */

/* The free resources of a node. `whole`: the card has no promise and can be promised
 * whole. */
struct frag_node {
    int64_t free_mib[SCV_MAX_CARDS];
    bool whole[SCV_MAX_CARDS];
    uint32_t n;
    int64_t cpu_free; /* 0 or more */
};

/* A mix, indexed so that measuring a node is cheap. {0} is valid for frag_prepare. */
struct frag {
    /* The distinct CPU requests of the shapes in rising order, from 0. A node can run the
     * shapes up to its own level. `starved`: the weight of all shapes above the level. */
    int64_t levels[MIX_SHAPES + 1], starved[MIX_SHAPES + 1];
    int64_t whole[MIX_SHAPES + 1]; /* weight up to the level that needs one whole card */
    uint32_t n_levels;
    /* The distinct sizes of one-card shapes in rising order. `tails` has for each level
     * and each index into `sizes` the weight of the shapes from that index on. */
    int64_t sizes[MIX_SHAPES];
    uint32_t n_sizes;
    int64_t *tails;
    size_t tails_cap;
    struct mix_shape several[MIX_SHAPES]; /* shapes on several cards */
    uint32_t n_several;
};

/* The free CPU of a node whose CPU is unknown: enough for every shape. */
#define FRAG_CPU_UNKNOWN INT64_MAX

/* Reads what is free on the node's cards. Amounts are clamped (frag_clamp), and a node
 * whose pods request more CPU than it has, has none left. */
void frag_read_node(const struct ledger_node *node, int64_t cpu_free,
                    struct frag_node *now);
/* Limits an amount to a value that no card has, so that sums and products of amounts do
 * not overflow. */
int64_t frag_clamp(int64_t amount);

void frag_prepare(struct frag *f, const struct mix *mix);
void frag_fini(struct frag *f);
/* The measure of the node, in MiB << FRAG_SHIFT. */
int64_t frag_measure(const struct frag *f, const struct frag_node *node);
/* Takes `mib` from each of the `n` cards, or all that is free there if that is less, and
 * `cpu`, or all that is left of it. Returns by how much the measure drops. */
int64_t frag_take(const struct frag *f, struct frag_node *node, const uint32_t *cards,
                  uint32_t n, int64_t mib, int64_t cpu);
