/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "cli/cluster_state.h"

/*
 *   world.c          the core, and what becomes of its inputs
 *   cluster_state_records.c  copies of the objects, by kind and key
 *   cluster_state_read.c     what others ask for
 */

/* An object, copied. */
struct record {
    struct span key;    /* owned */
    char *strings;      /* of a node or pod; there are many of those */
    struct arena arena; /* of an Scv */
    uint64_t run;       /* of the list or watch that showed it last */
    struct record *next, *prev;
    union {
        struct cluster_state_node node;
        struct cluster_state_scv scv;
        struct cluster_state_pod pod;
        struct cluster_state_heartbeat beat;
    };
};

enum { RECORD_TABLES = CORE_LEASES + 1 }; /* nodes, pods, Scvs and Leases */

struct record_table {
    struct map by_key;
    struct record *first;
    size_t n;
};

struct cluster_state {
    struct cluster_state_config config;
    struct core *core;
    struct core_outputs outputs;
    struct core_output *wishes[CORE_KINDS];
    struct record_table tables[RECORD_TABLES];
    uint64_t changes;
    struct err failed; /* the first list that failed while it was needed */
    struct buf faults; /* NUL-terminated each */
    size_t n_faults;
    struct arena scratch; /* for one pod */
};

/* An object came or went, or an Scv (a feed_sink's scv; ctx is the world). */
void cluster_state_store(struct cluster_state *w, const struct core_input *in);
void cluster_state_store_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone);
/* A list has ended: what it did not show is gone. */
void cluster_state_sweep(struct cluster_state *w, const struct core_input *in);
void cluster_state_clear(struct cluster_state *w); /* all of it */
