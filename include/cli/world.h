/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "feed/feed.h"

/*
 * The cluster as one who only looks sees it: the extender's core as an observer, fed with
 * the same lists and watches, and beside its ledger what the ledger has no use for and
 * people want to see. It reads the clocks, and opens no connection: whoever has those
 * takes the wishes, and brings what comes of them to world_sink (cli/look.h).
 */

struct world;

struct world_node {
    struct span name, address;                   /* the first InternalIP, or empty */
    struct node_resources capacity, allocatable; /* -1: not stated */
};

/* What a pod's object says, that the ledger has worked out or left out. Absent
 * annotations are {NULL, 0}. */
struct world_pod {
    struct span uid, ns, name, node;
    struct span idx, allocation, card_uuid, assigned;
    int64_t go_units; /* the sum of its containers' limits, as the Go plugin counts */
    bool over;        /* Succeeded or Failed */
    bool damaged;     /* it asks, or is promised, what cannot be read; see `why` */
    struct span why;
};

struct world_scv {
    struct span name;
    struct scv scv; /* all of it, as scv_read_all */
};

/* What the time in a Lease says of scv-agent on its node. */
enum world_doubt {
    DOUBT_NONE,     /* it is younger than the grace; or has been renewed since */
    DOUBT_OLD,      /* older: the node counts as silent, unless `heard` */
    DOUBT_AHEAD,    /* of the API server's clock: the node's own is wrong */
    DOUBT_UNDATED,  /* it has no renewTime that can be read */
    DOUBT_NO_CLOCK, /* nobody says what time it is */
};

struct world_beat {
    struct span name, renewed; /* renewTime as it is, or empty */
    enum world_doubt doubt;
    int64_t age_s; /* when world_judge looked; OLD and AHEAD */
    bool heard;    /* the extender hears of it all the same */
};

struct world_config {
    struct ledger_settings ledger;
    int64_t node_grace_ms; /* a heartbeat may be so old; 0: however old */
    bool only_pods; /* nodes and pods are all there is to see: nothing else is listed */
    uint64_t seed;
};

struct world *world_new(const struct world_config *config); /* new */
void world_free(struct world *w);

/* For feed_start; the world is its ctx. */
extern const struct feed_sink world_sink;
/* Time went by. At the beginning, and then when world_due says. */
void world_tick(struct world *w);
int64_t world_due(const struct world *w); /* monotonic */
/* A list or watch that is to be started, CORE_LIST or CORE_WATCH, in place of the one of
 * its kind. New, to be released with free; NULL: nothing more. */
struct core_output *world_wish(struct world *w);

/* Has everything been listed? 0: yes. -1: not yet; a code of ERR_NONE: nothing failed. */
int world_ready(const struct world *w, struct err *err);
/* The Leases were listed when the API server's clock said `server_s` (since 1970; 0: it
 * is not known), no more than `since_s` ago. Nodes whose heartbeat was older than the
 * grace then count as silent, as if this had watched; a renewal that comes later ends it.
 */
void world_judge(struct world *w, int64_t server_s, int64_t since_s);
/* What the extender, which has watched, says of that node: nothing was heard of it for so
 * long; 0: it is heard of. */
void world_told(struct world *w, struct span node, int64_t stale_s);
/* What is wrong now with what once was ready: 0 nothing. */
int world_trouble(const struct world *w, struct err *err);

/* Everything returned is borrowed until the next input. */
const struct ledger *world_ledger(const struct world *w);
uint64_t world_generation(const struct world *w); /* changes with what there is to see */
/* By name; pods by UID. NULL: there is none. */
const struct world_node *world_node(const struct world *w, struct span name);
const struct world_beat *world_beat(const struct world *w, struct span name);
const struct world_scv *world_scv(const struct world *w, struct span name);
const struct world_pod *world_pod(const struct world *w, struct span uid);
/* All, in the order of their names (pods: namespace, name, UID). In the arena. */
size_t world_nodes(const struct world *w, struct arena *a,
                   const struct world_node ***out);
size_t world_pods(const struct world *w, struct arena *a, const struct world_pod ***out);
/* Objects that could not be used, and why; each once, 256 at most. */
size_t world_faults(const struct world *w);
struct span world_fault(const struct world *w, size_t i);
