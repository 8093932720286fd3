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
 * The history has two readers: a watch reads it forward from its position; a list of a past
 * version undoes the changes since that version. So the pages of a long list need no copy
 * of the store, only the version of the first page.
 */

enum change { CHANGE_ADDED, CHANGE_MODIFIED, CHANGE_DELETED };

struct event {
    enum change change;
    uint64_t rv;
    struct object *now;  /* of a deletion: the last state, with the deletion's version */
    struct object *prev; /* NULL for an addition */
};

struct store {
    const struct kind *kind;
    struct object **items;
    size_t n, cap;
    struct event *ring; /* event number s is at s & (ring_cap - 1) */
    size_t ring_cap;
    uint64_t first_seq, next_seq; /* events first_seq <= s < next_seq are kept */
    size_t max_events, max_bytes;
    size_t bytes;      /* of states that only the history references */
    uint64_t floor_rv; /* every change after this version is kept */
};

void sim_store_init(struct store *s, const struct kind *kind, size_t max_events,
                    size_t max_bytes);
void sim_store_fini(struct store *s);

struct object *sim_store_find(const struct store *s,
                              struct span key); /* borrowed; NULL */
/* Index of the first object with a key >= `key`. */
size_t sim_store_lower(const struct store *s, struct span key);

/* Adds the object, or replaces the object with the same key. Takes `o`. */
void sim_store_put(struct store *s, struct object *o);
/* Removes the object with last's key; `last` is its last state. Takes `last`. */
void sim_store_remove(struct store *s, struct object *last);

/* An event by its number, which must be in the history. */
const struct event *sim_store_event(const struct store *s, uint64_t seq);
/* Number of the first event after the version. */
uint64_t sim_store_seq_after(const struct store *s, uint64_t rv);
/* Discards the history up to `rv`, the newest version. */
void sim_store_compact(struct store *s, uint64_t rv);

/* Walks the objects at version rv in key order, from the first key >= `from`, until `each`
 * returns false. Requires rv >= floor_rv. */
typedef bool (*store_each_fn)(void *ctx, struct object *o);
void sim_store_walk(const struct store *s, uint64_t rv, struct span from,
                    store_each_fn each, void *ctx);
