/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "domain/ids.h"
#include "domain/pod.h"

/*
 * Allocations: which container holds which device ids. They are saved in the state file
 * (--state-file), because the kubelet shows only a part of them: never those of
 * plain init containers.
 */

struct allocation_card {
    struct span uuid; /* of the card; "index-3" for a card without UUID */
    int32_t index;    /* at the time of the allocation; informational */
    uint32_t *units;  /* ascending; none for a whole card */
    size_t n_units, cap_units;
};

struct allocation {
    struct span uid, ns, name, container;
    enum container_role role;
    enum ids_resource resource;
    int64_t slot_mib; /* of slots: what the promise gives it on each card; 0: not known */
    bool pod_deleted; /* the API server has no such pod; the kubelet still can */
    /* The driver's limit that the container has from this allocation, on each of its cards; 0:
     * none, as with 1.0. */
    int64_t driver_limit_mib;
    bool
        limit_device; /* the container starts only while the node has the CDI device of its limit */
    bool limit_needed; /* it may not start without */
    /* Ids of slots that another plugin, which served the resource before, gave the container. They
     * name no card. */
    struct span *others;
    size_t n_others, cap_others;
    struct allocation_card *cards;
    size_t n_cards;
    struct arena arena;
};

enum {
    /* Limits of a state file, above what a node can have. Without them a damaged file of
     * some hundred bytes could make the reader allocate gigabytes. */
    ALLOCATION_SET_MAX = 4096,
    ALLOCATION_SET_UNITS_MAX = 1 << 20, /* of all allocations; a whole card counts as 1 */
    ALLOCATION_SET_BYTES_MAX = 64 << 20,
};

struct allocation_set {
    struct allocation **items; /* oldest first */
    size_t n, cap;
};

/* Visits each, oldest first. The body must neither add nor drop any. */
#define ALLOCATION_EACH(al, set)                                                         \
    for (struct allocation **al##_at = (set)->items, *al;                                \
         (set)->n && al##_at < (set)->items + (set)->n && (al = *al##_at); al##_at++)

/* New and empty; the names are copied. */
struct allocation *allocation_new(struct span uid, struct span ns, struct span name,
                                  struct span container, enum container_role role,
                                  enum ids_resource resource);
void allocation_free(struct allocation *al); /* NULL is accepted */
/* Adds a unit of a card, or the whole card (unit -1). False if it is already included. */
bool allocation_add(struct allocation *al, struct span uuid, int32_t index, int64_t unit);
/* Adds an id of another plugin, copied. */
void allocation_add_other(struct allocation *al, struct span id);
const struct allocation_card *allocation_card(const struct allocation *al,
                                              struct span uuid); /* or NULL */
/* Does it include the unit, or (unit -1) any part of the card? */
bool allocation_holds(const struct allocation *al, struct span uuid, int64_t unit);
int64_t allocation_amount(const struct allocation *al); /* number of ids */
/* MiB that it has of that card, as units or by its slot; 0: of a whole card, or not known. */
int64_t allocation_mib(const struct allocation *al, const struct allocation_card *card,
                       int64_t unit_mib);

void allocation_set_fini(struct allocation_set *set);
/* Takes the allocation. It replaces that of the same pod, container and resource. */
void allocation_set_put(struct allocation_set *set, struct allocation *al);
/* NULL if there is none. */
struct allocation *allocation_set_find(const struct allocation_set *set, struct span uid,
                                       struct span container, enum ids_resource resource);
/* Removes and frees one of the set. */
void allocation_set_drop(struct allocation_set *set, struct allocation *al);

/* The state file (--state-file): the allocations of one node as JSON. The name is the
 * kubelet's for its own file of this kind. */

void allocation_set_write(struct buf *out, const struct allocation_set *set,
                          struct span node);
/* Fills an empty set; on error it stays empty. ERR_INVALID: the text is damaged.
 * ERR_CONFLICT: it belongs to another node. */
int allocation_set_read(struct allocation_set *set, struct span text, struct span node,
                        struct err *err);
