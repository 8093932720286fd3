/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "cli/world.h"

/*
 *   world.c          the core, and what becomes of its inputs
 *   world_records.c  copies of the objects, by kind and key
 *   world_read.c     what others ask for
 */

/* An object, copied. */
struct record {
    struct span key;    /* owned */
    char *strings;      /* of a node or pod; there are many of those */
    struct arena arena; /* of an Scv */
    uint64_t run;       /* of the list or watch that showed it last */
    struct record *next, *prev;
    union {
        struct world_node node;
        struct world_scv scv;
        struct world_pod pod;
        struct world_beat beat;
    };
};

enum { KEPT = CORE_LEASES + 1 }; /* nodes, pods, Scvs and Leases */

struct kept {
    struct map by_key;
    struct record *first;
    size_t n;
};

struct world {
    struct world_config config;
    struct core *core;
    struct core_outputs outputs;
    struct core_output *wishes[CORE_KINDS];
    struct kept kept[KEPT];
    uint64_t changes;
    struct err failed; /* the first list that failed while it was needed */
    struct buf faults; /* NUL-terminated each */
    size_t n_faults;
    struct arena scratch; /* for one pod */
};

/* An object came or went, or an Scv (a apisync_sink's scv; ctx is the world). */
void world_keep(struct world *w, const struct core_input *in);
void world_keep_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone);
/* A list has ended: what it did not show is gone. */
void world_sweep(struct world *w, const struct core_input *in);
void world_forget(struct world *w); /* all of it */
