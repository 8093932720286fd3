/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/hash.h"
#include "cli/cluster_state.h"

/*
 *   cluster_state.c          the core and its inputs
 *   cluster_state_records.c  copies of the objects, by kind and key
 *   cluster_state_read.c     lookups and sorted lists
 */

/* A copy of an object. */
struct record {
    struct span key;    /* owned */
    char *strings;      /* of a node, pod or heartbeat: one allocation per record */
    struct arena arena; /* of an Scv */
    uint64_t run;       /* the list or watch that delivered it last */
    struct record *next, *prev;
    union {
        struct cluster_state_node node;
        struct cluster_state_scv scv;
        struct cluster_state_pod pod;
        struct cluster_state_heartbeat heartbeat;
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
    struct core_output *requests[CORE_KINDS];
    struct record_table tables[RECORD_TABLES];
    uint64_t changes;
    struct err list_error; /* of the first list that failed */
    struct buf errors;     /* each NUL-terminated */
    size_t n_errors;
    struct arena scratch; /* for one pod */
};

/* Stores or removes an object; Scvs come from a apisync_sink, whose ctx is the state. */
void cluster_state_store(struct cluster_state *cs, const struct core_input *in);
void cluster_state_store_scv(void *ctx, const struct scv *scv, uint64_t run, bool gone);
/* Removes the objects that the list which ended did not contain. */
void cluster_state_sweep(struct cluster_state *cs, const struct core_input *in);
void cluster_state_clear(struct cluster_state *cs);
