/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"
#include "domain/mix.h"

/*
 * Fragmentation: how much of the memory that is free on a node the pods of a mix cannot
 * use. A pod of one shape can use what is free on a card if the card has enough for it,
 * and nothing at all of a node that has too few such cards or too little CPU. The measure
 * is the mean over the shapes of the mix, by their weights (Weng et al., USENIX ATC '23).
 */

enum { FRAG_SHIFT = 16 }; /* it is in MiB << FRAG_SHIFT */

/* What of a node is free. `whole`: the card has no promise and can be given out whole. */
struct frag_node {
    int64_t free_mib[SCV_MAX_CARDS];
    bool whole[SCV_MAX_CARDS];
    uint32_t n;
    int64_t cpu_free; /* 0 where CPU is not known, and then that of all shapes is 0 */
};

/* A mix, made ready for looking at many nodes. {0} is valid for frag_prepare. */
struct frag {
    /* The CPU that shapes want, rising, from 0 on: a node can take what is up to its own
     * level. `starved`: the weight of all the shapes above. */
    int64_t levels[MIX_SHAPES + 1], starved[MIX_SHAPES + 1];
    int64_t whole[MIX_SHAPES + 1]; /* of those up to the level that want one whole card */
    uint32_t n_levels;
    /* Sizes of shapes on one card, rising, and for each level and place in `sizes` the
     * weight of those from there on. */
    int64_t sizes[MIX_SHAPES];
    uint32_t n_sizes;
    int64_t *tails;
    size_t tails_cap;
    struct mix_shape several[MIX_SHAPES]; /* those on several cards */
    uint32_t n_several;
};

/* What is free on the node's cards now. Amounts that no card has are cut down
 * (frag_clamp), so that sums and products of them stay within their type. */
void frag_read_node(const struct ledger_node *node, int64_t cpu_free, struct frag_node *now);
int64_t frag_clamp(int64_t amount);

void frag_prepare(struct frag *f, const struct mix *mix);
void frag_fini(struct frag *f);
int64_t frag_measure(const struct frag *f, const struct frag_node *node);
/* Takes so much of each of these cards, or all that is free if that is less, and CPU (no
 * more than there is). Returns what frag_measure was less what it is then. */
int64_t frag_take(const struct frag *f, struct frag_node *node, const uint32_t *cards,
                  uint32_t n, int64_t mib, int64_t cpu);
