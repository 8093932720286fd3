/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "core/core.h"
#include "feed/feed.h"

/*
 * The cluster as one who only looks sees it: the extender's core as an observer, fed with
 * the same lists and watches, and beside its ledger what the ledger has no use for and
 * people want to see. It reads the clocks, and opens no connection: whoever has those
 * takes the wishes, and brings what comes of them to cluster_state_sink (cli/look.h).
 */

struct cluster_state;

struct cluster_state_node {
    struct span name, address;                   /* the first InternalIP, or empty */
    struct node_resources capacity, allocatable; /* -1: not stated */
};

/* What a pod's object says, that the ledger has worked out or left out. Absent
 * annotations are {NULL, 0}. */
struct cluster_state_pod {
    struct span uid, ns, name, node;
    struct span idx, allocation, card_uuid, assigned;
    int64_t go_units; /* the sum of its containers' limits, as the Go plugin counts */
    bool over;        /* Succeeded or Failed */
    bool damaged;     /* it asks, or is promised, what cannot be read; see `why` */
    struct span why;
};

struct cluster_state_scv {
    struct span name;
    struct scv scv; /* all of it, as scv_read_all */
};

/* What the time in a Lease says of scv-agent on its node. */
enum cluster_state_freshness {
    HEARTBEAT_FRESH,     /* it is younger than the grace; or has been renewed since */
    HEARTBEAT_OLD,      /* older: the node counts as silent, unless `heard` */
    HEARTBEAT_AHEAD,    /* of the API server's clock: the node's own is wrong */
    HEARTBEAT_UNDATED,  /* it has no renewTime that can be read */
    HEARTBEAT_NO_CLOCK, /* nobody says what time it is */
};

struct cluster_state_heartbeat {
    struct span name, renewed; /* renewTime as it is, or empty */
    enum cluster_state_freshness doubt;
    int64_t age_s; /* when cluster_state_check_heartbeats looked; OLD and AHEAD */
    bool heard;    /* the extender hears of it all the same */
};

struct cluster_state_config {
    struct ledger_settings ledger;
    int64_t node_grace_ms; /* a heartbeat may be so old; 0: however old */
    bool only_pods; /* nodes and pods are all there is to see: nothing else is listed */
    uint64_t seed;
};

struct cluster_state *cluster_state_new(const struct cluster_state_config *config); /* new */
void cluster_state_free(struct cluster_state *w);

/* For feed_start; the world is its ctx. */
extern const struct feed_sink cluster_state_sink;
/* Time went by. At the beginning, and then when cluster_state_due says. */
void cluster_state_tick(struct cluster_state *w);
int64_t cluster_state_due(const struct cluster_state *w); /* monotonic */
/* A list or watch that is to be started, CORE_LIST or CORE_WATCH, in place of the one of
 * its kind. New, to be released with free; NULL: nothing more. */
struct core_output *cluster_state_take_request(struct cluster_state *w);

/* Has everything been listed? 0: yes. -1: not yet; a code of ERR_NONE: nothing failed. */
int cluster_state_check_ready(const struct cluster_state *w, struct err *err);
/* The Leases were listed when the API server's clock said `server_s` (since 1970; 0: it
 * is not known), no more than `since_s` ago. Nodes whose heartbeat was older than the
 * grace then count as silent, as if this had watched; a renewal that comes later ends it.
 */
void cluster_state_check_heartbeats(struct cluster_state *w, int64_t server_s, int64_t since_s);
/* What the extender, which has watched, says of that node: nothing was heard of it for so
 * long; 0: it is heard of. */
void cluster_state_set_silence(struct cluster_state *w, struct span node, int64_t silent_s);
/* What is wrong now with what once was ready: 0 nothing. */
int cluster_state_check_fresh(const struct cluster_state *w, struct err *err);

/* Everything returned is borrowed until the next input. */
const struct ledger *cluster_state_ledger(const struct cluster_state *w);
uint64_t cluster_state_generation(const struct cluster_state *w); /* changes with what there is to see */
/* By name; pods by UID. NULL: there is none. */
const struct cluster_state_node *cluster_state_node(const struct cluster_state *w, struct span name);
const struct cluster_state_heartbeat *cluster_state_heartbeat(const struct cluster_state *w, struct span name);
const struct cluster_state_scv *cluster_state_scv(const struct cluster_state *w, struct span name);
const struct cluster_state_pod *cluster_state_pod(const struct cluster_state *w, struct span uid);
/* All, in the order of their names (pods: namespace, name, UID). In the arena. */
size_t cluster_state_nodes(const struct cluster_state *w, struct arena *a,
                   const struct cluster_state_node ***out);
size_t cluster_state_pods(const struct cluster_state *w, struct arena *a, const struct cluster_state_pod ***out);
/* Objects that could not be used, and why; each once, 256 at most. */
size_t cluster_state_errors(const struct cluster_state *w);
struct span cluster_state_error(const struct cluster_state *w, size_t i);
