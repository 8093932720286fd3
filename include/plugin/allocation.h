/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "domain/ids.h"
#include "domain/pod.h"

/*
 * What was handed out: which container holds which ids of which cards. It is what must
 * survive a restart of the plugin, because the kubelet shows it only in part (never for
 * plain init containers), and it is what the state file holds.
 */

struct allocation_card {
    struct span uuid; /* by which the card is known; see struct card */
    int32_t index;    /* when it was handed out; for people */
    uint32_t *units;  /* rising; none when it is whole */
    size_t n_units;
};

struct allocation {
    struct span uid, ns, name, container;
    enum container_role role;
    enum ids_resource resource;
    int64_t time_ns;  /* since 1970 */
    bool pod_deleted; /* its pod is gone, and perhaps not yet from the kubelet */
    struct allocation_card *cards;
    size_t n_cards;
    struct arena arena;
};

enum {
    /* In a state file. No node has so many; without a bound, a damaged file of some
     * hundred bytes could ask for gigabytes, and for hours. */
    ALLOCATION_SET_MAX = 4096,
    ALLOCATION_SET_UNITS_MAX = 1 << 20, /* of all grants together; a whole card is one */
};

struct allocation_set {
    struct allocation **items; /* oldest first */
    size_t n, cap;
};

/* An empty one for these names (copied). New; allocation_free or allocation_set_put. */
struct allocation *allocation_new(struct span uid, struct span ns, struct span name,
                                  struct span container, enum container_role role,
                                  enum ids_resource resource);
void allocation_free(struct allocation *al); /* NULL is accepted */
/* Adds a unit of a card, -1: the whole card. In any order; false if it has it already. */
bool allocation_add(struct allocation *al, struct span uuid, int32_t index, int64_t unit);
const struct allocation_card *allocation_card(const struct allocation *al,
                                              struct span uuid); /* or NULL */
bool allocation_holds(const struct allocation *al, struct span uuid, int64_t unit);
int64_t allocation_amount(const struct allocation *al); /* how many ids */

void allocation_set_fini(struct allocation_set *set);
/* Takes over the grant. It replaces that of the same pod, container and resource. */
void allocation_set_put(struct allocation_set *set, struct allocation *al);
/* NULL if there is none. */
struct allocation *allocation_set_find(const struct allocation_set *set, struct span uid,
                                       struct span container, enum ids_resource resource);
/* Forget one, or all of a pod. Return how many were forgotten. */
size_t allocation_set_drop(struct allocation_set *set, const struct allocation *al);
size_t allocation_set_drop_pod(struct allocation_set *set, struct span uid);

/* As JSON, for the state file. */
void checkpoint_write(struct buf *out, const struct allocation_set *set,
                      struct span node);
/* Reads that, adding to set what it does not have yet. After an error set is as it was.
 * ERR_INVALID: it is damaged. ERR_CONFLICT: it is that of another node. */
int checkpoint_read(struct allocation_set *set, struct span text, struct span node,
                    struct err *err);
