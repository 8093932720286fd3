/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/quantity.h"
#include "domain/requests.h"
#include "placement/select.h"

/*
 * Fragmentation: how much of a node's free memory the pods of a mix cannot use. A shape
 * of the mix can use the free memory of a card if it accepts the card and the card has
 * enough of it. It can use nothing on a node with too few such cards or too little free
 * CPU. The measure is the weighted mean over the shapes of the mix (Weng et al., USENIX
 * ATC '23).
 */

enum { FRAG_SHIFT = 16 }; /* the measure is in MiB << FRAG_SHIFT */

/* The free resources of a node. `whole`: the card has no promise and can be promised
 * whole. */
struct frag_node {
    int64_t free_mib[SCV_MAX_CARDS];
    uint64_t whole;              /* bit i: of card i */
    uint8_t kind[SCV_MAX_CARDS]; /* of struct requests */
    uint32_t n;
    int64_t cpu_free;
};

enum { FRAG_RANGES = 128 }; /* of sizes: a search begins in the range of its value */

/* A mix, indexed so that measuring a node is cheap. {0} is valid for frag_prepare. */
struct frag {
    /* Kinds of cards of which each shape takes the same are one class. */
    uint8_t class_of[MIX_KINDS];
    uint32_t n_classes;
    /* The distinct CPU requests of the shapes in rising order, from 0. A node can run the
     * shapes up to its own level. `starved`: the weight of all shapes above the level. */
    int64_t levels[MIX_SHAPES + 1], starved[MIX_SHAPES + 1];
    uint32_t n_levels;
    /* The distinct sizes of one-card shapes in rising order. A search for x reads `widest`
     * sizes, beginning at `before[x >> shift]`. */
    int64_t sizes[MIX_SHAPES];
    uint32_t n_sizes, shift, widest;
    uint8_t before[FRAG_RANGES];
    /* For each class and level: for each index into `sizes` the weight of the one-card
     * shapes from that index on; the shapes that do not accept the class are in all of
     * them, the last one included. Then the weight of those that need one whole card. */
    int64_t *tails;
    size_t tails_cap;
    struct frag_shape {
        bool memory;
        uint32_t cards;
        int64_t cpu_milli, weight;
        int64_t amounts[MIX_KINDS];
    } several[MIX_SHAPES]; /* on several cards, with such a weight */
    uint32_t n_several;
};

/* The free CPU of a node whose CPU is unknown: enough for every shape. */
#define FRAG_CPU_UNKNOWN INT64_MAX

/* Reads what is free on the cards of the view, and the free CPU of the node. Amounts are
 * clamped; a node whose pods request more CPU than it has, has none left. Returns the size of
 * all available cards. */
int64_t frag_read(const struct select_view *view, int64_t cpu_free,
                  struct frag_node *now);
/* Limits an amount to a value that no card has, so that sums and products of amounts do not
 * overflow: API objects can contain any size, and SCV_MAX_CARDS such cards with the largest
 * weights add up to 2^62. */
static inline int64_t frag_clamp(int64_t amount)
{
    return quantity_at_most(amount, INT64_C(1) << 34);
}

/* `by_scarcity`, for comparing placements: the weight of a shape is divided by the share of
 * the cluster's free memory that is on cards which it accepts. So what counts is the relative
 * loss: a GiB of a model that has little left is worth more to the pods that need it than to
 * those that can go elsewhere, and the model that few pods name but that is nearly used up is
 * spared as well. Without shapes that select cards it makes no difference. */
void frag_prepare(struct frag *f, const struct requests *mix, bool by_scarcity);
void frag_fini(struct frag *f);
/* The measure of the node, in MiB << FRAG_SHIFT. */
int64_t frag_measure(const struct frag *f, const struct frag_node *node);
/* Takes `mib` from each card of the set, or all that is free there if that is less, and `cpu`,
 * or all that is left of it. Returns by how much the measure drops. */
int64_t frag_take(const struct frag *f, struct frag_node *node, uint64_t cards,
                  int64_t mib, int64_t cpu);
