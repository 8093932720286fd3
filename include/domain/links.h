/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/str.h"

/*
 * What connects the cards of a node: for each pair of cards one word of `nvidia-smi topo -m`,
 * and for each card its NUMA node. A word has a width; a larger width is a better connection.
 *
 * NCCL connects the cards of a job in a ring, and the narrowest connection of the ring limits
 * all of them. So a set of cards is as good as its best ring: the order of the cards whose
 * narrowest connection is widest. Of two cards the ring is their pair; one card has LINK_MAX.
 */

enum {
    LINK_UNKNOWN, /* no word */
    LINK_SYS,     /* SYS: over the interconnect of the processors */
    LINK_NODE,    /* NODE: over host bridges of one NUMA node */
    LINK_PHB,     /* PHB: over a host bridge */
    LINK_PXB,     /* PXB: over several PCIe switches */
    LINK_PIX,     /* PIX: over one PCIe switch */
    LINK_NV,      /* any number of NVLinks: gpushare/min-link. NV1 is LINK_NV + 1 */
    LINK_MAX = UINT8_MAX,

    LINKS_MAX_CARDS = 32, /* of a node; the connections of more are unknown */
    LINKS_SMALL = 8,      /* every set of the cards of such a node is known */
    /* Of a larger one, too, up to this, if its words are of 12 widths at most, for 8 kinds of
     * nodes. */
    LINKS_EXACT = 16,
};

/* The width of a word, as NV12 or PXB; LINK_MAX of X. LINK_UNKNOWN: it is no such word. */
uint8_t link_width(struct span word);
/* The word of a width, in `text`; NV of LINK_NV, "" of LINK_UNKNOWN. Returns text. */
const char *link_word(uint8_t width, char text[static 8]);

/* Immutable. Nodes of one kind have equal connections, so they share one of these. */
struct links;

/* Equal ones of the pool, a list, or new ones in it; release them before the pool goes. `widths`
 * has n rows of n, as link_width gives them; the diagonal is not read. A pair for which the two
 * halves differ has the smaller width. `numa` has the NUMA node of each card, -1: unknown. NULL if
 * a width is LINK_UNKNOWN, or LINK_MAX of two cards, or n is not in 2..LINKS_MAX_CARDS. */
const struct links *links_take(struct list *pool, const uint8_t *widths,
                               const int32_t *numa, unsigned n);
void links_release(const struct links *links); /* NULL is accepted */

unsigned links_cards(const struct links *links);
uint8_t links_pair(const struct links *links, unsigned a, unsigned b);
int32_t links_numa(const struct links *links, unsigned card); /* -1: unknown */
/* Of a pair of cards in the set, the narrowest: gpushare/min-link. */
uint8_t links_narrowest(const struct links *links, uint32_t set);
/* The width of the best ring of the set. Where the node's sets are not known, of more than
 * LINKS_SMALL cards: of the ring that goes from each card to the one that is connected best, which
 * may be narrower than the best ring. */
uint8_t links_ring(const struct links *links, uint32_t set);
/* The same ring: its cards from the lowest of the set on, into `order`, unless NULL. */
uint8_t links_ring_order(const struct links *links, uint32_t set, uint8_t *order);
/* The sum over the pairs of the set: their widths, then the pairs on one NUMA node. */
uint32_t links_sum(const struct links *links, uint32_t set);
/* links_ring above links_sum, saturated: of two sets of k cards, the better one has more. */
uint32_t links_rank(const struct links *links, uint32_t set);
/* The sets of k cards with their ranks, the best first; of equal rank, the one that has the lowest
 * card in which they differ. *n sets, borrowed. NULL where the node's sets are not known. */
struct links_set {
    uint32_t rank, cards;
};
const struct links_set *links_sets(const struct links *links, unsigned k, uint32_t *n);
/* What sets of the cards in `free` are worth: the widths of the best ring of 2 cards, of 4, of 8
 * and so on, as pods ask for them, added. A choice of cards loses the difference. 0 where the
 * node's sets are not known. */
uint32_t links_worth(const struct links *links, uint32_t free);
