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

struct grant_card {
    struct span uuid; /* by which the card is known; see struct card */
    int32_t index;    /* when it was handed out; for people */
    uint32_t *units;  /* rising; none when it is whole */
    size_t n_units;
};

struct grant {
    struct span uid, ns, name, container;
    enum container_role role;
    enum ids_resource resource;
    int64_t time_ns; /* since 1970 */
    bool leaving;    /* its pod is gone, and perhaps not yet from the kubelet */
    struct grant_card *cards;
    size_t n_cards;
    struct arena arena;
};

enum {
    /* In a state file. No node has so many; without a bound, a damaged file of some
     * hundred bytes could ask for gigabytes, and for hours. */
    GRANTS_MAX = 4096,
    GRANTS_UNITS_MAX = 1 << 20, /* of all grants together; a whole card is one */
};

struct grants {
    struct grant **items; /* oldest first */
    size_t n, cap;
};

/* An empty one for these names (copied). New; grant_free or grants_put. */
struct grant *grant_new(struct span uid, struct span ns, struct span name,
                        struct span container, enum container_role role,
                        enum ids_resource resource);
void grant_free(struct grant *g); /* NULL is accepted */
/* Adds a unit of a card, -1: the whole card. In any order; false if it has it already. */
bool grant_add(struct grant *g, struct span uuid, int32_t index, int64_t unit);
const struct grant_card *grant_card(const struct grant *g,
                                    struct span uuid); /* or NULL */
bool grant_holds(const struct grant *g, struct span uuid, int64_t unit);
int64_t grant_amount(const struct grant *g); /* how many ids */

void grants_fini(struct grants *gs);
/* Takes over the grant. It replaces that of the same pod, container and resource. */
void grants_put(struct grants *gs, struct grant *g);
/* NULL if there is none. */
struct grant *grants_find(const struct grants *gs, struct span uid, struct span container,
                          enum ids_resource resource);
/* Forget one, or all of a pod. Return how many were forgotten. */
size_t grants_drop(struct grants *gs, const struct grant *g);
size_t grants_drop_pod(struct grants *gs, struct span uid);

/* As JSON, for the state file. */
void grants_write(struct buf *out, const struct grants *gs, struct span node);
/* Reads that, adding to gs what it does not have yet. After an error gs is as it was.
 * ERR_INVALID: it is damaged. ERR_CONFLICT: it is that of another node. */
int grants_read(struct grants *gs, struct span text, struct span node, struct err *err);
