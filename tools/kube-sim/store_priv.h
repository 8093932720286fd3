/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "kube-sim/object_priv.h"

/*
 * All objects of one kind, in the order of their keys, and the history of their changes.
 *
 * The history serves two readers: watches, which go through it forwards from where they
 * are, and lists of a past version, which start from the present and undo what came
 * since. So a page of a long list needs no copy of the store, only the version of its
 * first page.
 */

enum change { CHANGE_ADDED, CHANGE_MODIFIED, CHANGE_DELETED };

struct event {
    enum change change;
    uint64_t rv;
    struct object *now; /* for a deletion: the last state, under the deletion's version */
    struct object *prev; /* NULL for an addition */
};

struct store {
    const struct kind *kind;
    struct object **items;
    size_t n, cap;
    struct event *ring; /* event number s is at s & (ring_cap - 1) */
    size_t ring_cap;
    uint64_t first_seq, next_seq; /* first_seq <= s < next_seq are kept */
    size_t max_events, max_bytes;
    size_t bytes;      /* of states that only the history keeps */
    uint64_t floor_rv; /* all changes after this version are kept */
};

void sim_store_init(struct store *s, const struct kind *kind, size_t max_events,
                    size_t max_bytes);
void sim_store_fini(struct store *s);

struct object *sim_store_find(const struct store *s,
                              struct span key); /* borrowed; NULL */
/* Position of the first object whose key is not below `key`. */
size_t sim_store_lower(const struct store *s, struct span key);

/* Adds the object or replaces the one with its key. Takes it. */
void sim_store_put(struct store *s, struct object *o);
/* Takes the object with last's key out; `last` is its last state. Takes `last`. */
void sim_store_remove(struct store *s, struct object *last);

/* An event by its number, which must be kept. */
const struct event *sim_store_event(const struct store *s, uint64_t seq);
/* Number of the first event after the version. */
uint64_t sim_store_seq_after(const struct store *s, uint64_t rv);
/* Drops all history up to and with `rv`, the present version. */
void sim_store_compact(struct store *s, uint64_t rv);

/* Walks the objects as they were at version rv, in order, from the first key that is not
 * below `from`, until `each` answers false. rv must not be below floor_rv. */
typedef bool (*store_each_fn)(void *ctx, struct object *o);
void sim_store_walk(const struct store *s, uint64_t rv, struct span from,
                    store_each_fn each, void *ctx);
