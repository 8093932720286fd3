/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "placement/defrag.h"
#include "placement/placement_priv.h"

/*
 *   defrag.c        the nodes, in the order of the fewest pods that must leave at least
 *   defrag_set.c    which pods of one node leave
 *   defrag_place.c  where these pods go
 */

/* A pod that may leave the node under examination. */
struct defrag_item {
    const struct ledger_pod *pod;
    struct resources room;
    const int64_t *mib; /* by card of the node; -1: not there */
    int64_t all_mib;
    size_t from; /* the first node of the order that has room for it */
    bool removed;
};

/* The places of a pod by capacity alone: indexes into the order of nodes. */
struct defrag_shape {
    const struct request *request; /* NULL: the slot is free */
    struct resources room;
    size_t first, second; /* the first two nodes with room; n_order: none */
};
enum { DEFRAG_SHAPES = 4096 };

/* A node with moved pods. */
struct defrag_trial {
    struct ledger_node node;
    struct card *cards;
    struct resources room;
    uint32_t moved; /* 0: the slot is free */
};

struct defrag_state {
    const struct defrag_world *world;
    const struct defrag_target *target;
    struct arena *arena;
    const struct ledger_node **order; /* all nodes by rising free memory, then by name */
    struct resources *rooms;          /* of the nodes in that order */
    size_t n_order;
    struct defrag_shape *shapes;
    size_t n_shapes;
    struct defrag_trial **trials; /* by index into the order; NULL: never used */
    uint64_t steps;               /* left */
    bool bounded;
    bool found;
    struct defrag_plan best;
};

static inline bool defrag_has_room(struct resources has, struct resources needs)
{
    return has.cpu_milli >= needs.cpu_milli && has.memory >= needs.memory &&
           has.pods >= needs.pods;
}

static inline void defrag_add_room(struct resources *room, struct resources other,
                                   int sign)
{
    room->cpu_milli += sign * other.cpu_milli;
    room->memory += sign * other.memory;
    room->pods += sign * other.pods;
}

/* The first node, other than `own`, that has room for the pod, whatever its taints; n_order:
 * none. */
size_t defrag_first_place(struct defrag_state *s, const struct request *request,
                          struct resources room, const struct ledger_node *own);
/* Finds a place for all removed items at the same time, and stores the moves. False: there
 * is none, or the search is too long (then s->bounded is set). */
bool defrag_place(struct defrag_state *s, const struct ledger_node *own,
                  struct defrag_item *const *items, size_t n, struct defrag_move *moves);

/* A node under examination. */
struct defrag_node {
    const struct ledger_node *node;
    struct defrag_item *items; /* largest first */
    size_t n;
    struct card *cards; /* without the removed items */
    uint32_t *wholes;   /* by card: promises of the whole card */
    struct resources room;
    uint32_t widest; /* the most cards that one item has */
    size_t least;    /* the fewest items that must leave; SIZE_MAX: no set helps */
};

/* Reads the items of a node and the least number of them that must leave. */
void defrag_node_read(struct defrag_state *s, const struct ledger_node *node,
                      struct resources room, struct defrag_node *out);
/* Searches for sets of `m` items, and stores the best plan in s. False: no larger set can
 * help. */
bool defrag_node_search(struct defrag_state *s, struct defrag_node *node, size_t m);
