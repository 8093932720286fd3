/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "extender/store.h"
#include "placement/score.h"

/*
 * The verbs that kube-scheduler calls: from the bytes of a request body to the bytes of a
 * reply. Each function returns the HTTP status: 200 for an answer, also when no node
 * fits; 400 for a malformed body; 413 for more nodes or victims than the cluster can have,
 * or a Pod that the API server would not accept; 503 until every kind of object has been
 * listed, or while the requests in flight have used up their budget. An error reply is
 * {"Error": "..."}.
 *
 * filter and prioritize read the ledger VERBS_LOCK_NODES nodes at a time: each node is
 * judged by one state of the ledger, and binds, watch events and the renewal of the lease
 * get in between.
 *
 * Output names are those of k8s.io/kube-scheduler/extender/v1, exactly.
 */

struct verbs;
struct forward;
struct gang_minimum;
struct event_recorder;

/* Everything is borrowed and must outlive the verbs. */
struct verbs_config {
    struct store *store;
    enum score_policy policy; /* how prioritize scores nodes (placement/score.h) */
    /* How many of the nodes that fit filter answers with, the best ones by that policy;
     * VERBS_ALL: all. With one, filter also reserves cards there. */
    int64_t answer;
    bool preempts;                   /* layout preemption is on (core/core.h) */
    struct forward *forward;         /* NULL: nothing is forwarded to the leader */
    struct gang_minimum *gangs;      /* NULL: only pods say how large a gang must be */
    struct counters *counters;       /* NULL: nothing is counted */
    struct event_recorder *recorder; /* NULL: no events */
    /* Working memory and replies of the verbs; NULL: not limited. What a reply takes after
     * its verb has returned is charged by the caller. */
    struct budget *budget;
};

enum {
    VERBS_LOCK_NODES = 512, /* nodes read under one lock */
    VERBS_ALL = 0,
    VERBS_BEST_MAX = 100,
};

/* New. */
struct verbs *verbs_new(const struct verbs_config *config);
void verbs_free(struct verbs *v); /* NULL is accepted */

/* Which nodes can take the pod. Each rejected node has a reason, in FailedNodes (the pod
 * may fit later) or FailedAndUnresolvableNodes (the pod can never fit there).
 *
 * With config.answer, only the best nodes, without any reason: kube-scheduler reads reasons
 * only when no node is left (schedulePod in its schedule_one.go). Pods with preferences
 * that only kube-scheduler knows (struct pod), and pods that request no GPU, are answered
 * with all nodes; but under fgd, a pod without GPU goes where its CPU strands the least
 * memory. With one node, cards are reserved there; only the leader can, so another replica
 * forwards the call. If that fails, it answers by itself, without a reservation.
 *
 * A member of a gang, then, gets a node only if all other members find cards, too
 * (placement/gang_judge.h), and cards are reserved for all of them. If no leader answers,
 * the reply is an error with status 503.
 *
 * A call with template Nodes (domain/template_node.h) and no known node is a simulation. It
 * reserves nothing, ends no reservation, and is neither counted nor forwarded. */
unsigned verb_filter(struct verbs *v, struct span body, struct buf *reply);
/* As verb_filter, for a call that another replica forwarded: it is not forwarded again. */
unsigned verb_filter_forwarded(struct verbs *v, struct span body, struct buf *reply);
/* For a report (verb_report.h): the pod is judged for layout preemption, as by
 * --filter-answer=all, and nothing is reserved. */
unsigned verb_filter_report(struct verbs *v, struct span body, struct buf *reply);
/* A score of 0 to 10 for each node. */
unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply);
/* Which pods must be evicted so that the pod fits on a candidate node: the victims that
 * kube-scheduler proposes, and others as needed. */
unsigned verb_preempt(struct verbs *v, struct span body, struct buf *reply);
/* Promises cards to the pod and binds it, in one write. Blocks for up to 15 s. If another
 * replica is the leader, the bind is forwarded to that replica. */
unsigned verb_bind(struct verbs *v, struct span body, struct buf *reply);
/* As verb_bind, for a bind that another replica forwarded: it is not forwarded again.
 * 421: this replica is not the leader. */
unsigned verb_bind_forwarded(struct verbs *v, struct span body, struct buf *reply);
