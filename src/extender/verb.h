/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "base/budget.h"
#include "domain/pod.h"
#include "domain/request.h"
#include "extender/core_driver.h"
#include "extender/forward.h"
#include "extender/metrics.h"
#include "placement/score.h"

/*
 * The verbs that kube-scheduler calls: from the bytes of a request body to the bytes of a
 * reply. filter.c, prioritize.c, preempt.c and bind.c have one function each; verb.c has what
 * they share: the body, its limits, working memory and errors.
 *
 * A verb returns the HTTP status: 200 for an answer, also when no node fits; 400 for a
 * malformed body; 413 for more nodes or victims than the cluster can have, or a Pod that the
 * API server would not accept; 503 until every kind of object has been listed, or while the
 * requests in flight have used up their budget. An error reply is {"Error": "..."}.
 *
 * filter and prioritize read the ledger VERB_LOCK_NODES nodes at a time: each node is judged
 * by one state of the ledger, and binds, watch events and the renewal of the lease get in
 * between.
 *
 * Names are those of k8s.io/kube-scheduler/extender/v1: in replies exactly, in bodies in any
 * case, as Go's decoder matches them. The whole body is validated.
 */

struct verbs;
struct httpd_request;
struct gang_minimum;
struct event_recorder;
struct tried;

/* Everything is borrowed and must outlive the verbs. */
struct verbs_config {
    struct core_driver *driver;
    enum score_policy policy; /* how prioritize scores nodes (placement/score.h) */
    /* How many of the nodes that fit filter answers with, the best ones by that policy;
     * VERBS_ALL: all. With one, filter also reserves cards there. */
    int64_t answer;
    int64_t lease_ms;                /* as the core's settings; bind waits for a leader */
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
    VERB_LOCK_NODES = 512, /* nodes read under one lock */
    VERBS_ALL = 0,
    VERBS_BEST_MAX = 100,
    VERB_POD_MAX = 3 << 20,    /* bytes of a Pod: the API server accepts no larger one */
    VERB_ARENA_MAX = 16 << 20, /* bytes of strings of a body that are decoded */
};

/* New. */
struct verbs *verbs_new(const struct verbs_config *config);
void verbs_free(struct verbs *v); /* NULL is accepted */

/* -- a call -- */

enum verb_source {
    VERB_SCHEDULER,
    VERB_REPLICA, /* forwarded by another replica: not forwarded again */
    VERB_REPORT,  /* filter: for layout preemption (extender/forward.h) */
};

struct verb_work;

struct verb_call {
    struct verbs *verbs;
    struct span body;
    enum verb_source source;
    const struct httpd_request *request; /* NULL: the caller is no HTTP client */
    struct buf *reply;                   /* empty at first */
    struct verb_work *work;              /* from verb_read to verb_end */
};

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
 * A node that was the only answer to the pod, and did not lead to a bind, comes last for the
 * next five minutes (extender/tried.h).
 *
 * A member of a gang, then, gets a node only if all other members find cards, too
 * (placement/gang.h), and cards are reserved for all of them. If no leader answers,
 * the reply is an error with status 503.
 *
 * A call with template Nodes (domain/ledger.h) and no known node is a simulation. It
 * reserves nothing, ends no reservation, and is neither counted nor forwarded.
 *
 * A report is judged for layout preemption, as by --filter-answer=all, and nothing is
 * reserved. */
unsigned filter_answer(struct verb_call *call);
/* A score of 0 to 10 for each node. */
unsigned prioritize_answer(struct verb_call *call);
/* Which pods must be evicted so that the pod fits on a candidate node: the victims that
 * kube-scheduler proposes, and others as needed. */
unsigned preempt_answer(struct verb_call *call);
/* Promises cards to the pod and binds it, in one write. Blocks for up to 2 s beyond the
 * lease (20 s at most) to find a leader, and 20 s for the outcome; longer if the leader changes
 * meanwhile. If another replica is the leader, the bind is forwarded to that replica, or a call of
 * VERB_REPLICA answered with 421. */
unsigned bind_answer(struct verb_call *call);

/* Scoring the candidates, for filter and prioritize. Begins with the request mix of the ledger. */
void verb_score_begin(struct verb_call *call, struct score_run *run,
                      const struct ledger *l);
/* Visits the candidates at[0..n); NULL: the first n. */
void verb_score(struct verb_call *call, struct score_run *run, const uint32_t *at,
                size_t n);

/* -- what they share -- */

/* ExtenderArgs: a pod and candidate nodes, as names (nodeCacheCapable) or as Node objects. */
struct verb_candidate {
    struct span raw;  /* bytes of the body: the quoted name, or the Node object */
    struct span name; /* decoded */
};

struct verb_args {
    struct pod pod;
    struct request request; /* kind NONE: requests nothing, or is invalid */
    struct err invalid;     /* code not ERR_NONE: why the request is invalid */
    bool full;              /* the candidates are Node objects */
    struct verb_candidate *nodes;
    size_t n, cap;
};

/* What a body may contain. A limit is found out before memory is taken beyond it. */
struct verb_limits {
    size_t nodes;          /* candidates: those that a cluster of so many ... */
    size_t nodes_known;    /* ... can have (kube-scheduler may know more by now) */
    struct budget *budget; /* of all requests; NULL: none */
};

/* Memory of one call. Reused by later calls, so that a steady load allocates nothing. */
struct verb_work {
    struct arena arena;
    struct verb_args args;
    struct buf failed, never; /* filter: nodes with reasons */
    int *points;              /* prioritize: the scores of the candidates */
    uint32_t *fitting;        /* filter: indexes of the candidates that fit */
    size_t points_cap, fitting_cap;
    struct score_pod scored;
    struct score_scratch scratch;
    uint64_t charged;     /* to the budget: what the buffers have */
    uint64_t charged_pod; /* ... and what the pod may need */
    struct verb_work *next;
};

struct verbs {
    struct verbs_config config;
    struct request_rules rules;
    struct forward_reports *reports; /* of pods, to the leader; or NULL */
    struct tried *tried;
    pthread_mutex_t lock; /* protects the members below */
    struct verb_work *free;
    size_t kept_bytes; /* of all in `free` */
};

/* A body that is being read. */
struct verb_reading {
    struct jread j;
    struct arena *a;
    struct verb_args *args;
    const struct verb_limits *limits;
    size_t seen; /* candidates, also of a list that a later one replaces */
    struct err *err;
    bool failed; /* err is set: the rest of the body is not read */
    void *ctx;
};

/* What a verb reads beside the Pod. */
struct verb_body {
    /* Reads the value of a member. False: it is none of the verb's, and not read. */
    bool (*member)(struct verb_reading *r, struct jread_str key);
    const char *missing; /* the error without any of them */
};
extern const struct verb_body verb_candidates; /* the nodes of struct verb_args */

/* Begins a call of any verb but bind: takes memory and reads the body; `ctx` is for `body`.
 * Spans borrow from the body and the arena. Returns 200, or the status of the error reply.
 * verb_end in any case. */
unsigned verb_read(struct verb_call *call, const struct verb_body *body, void *ctx);
void verb_end(struct verb_call *call);
/* Its second half: fills call->work->args. -1: malformed (ERR_INVALID; err says where), above a
 * limit (ERR_TOO_LARGE), or the budget is used up (ERR_UNAVAILABLE). */
int verb_read_body(struct verb_call *call, const struct verb_body *body, void *ctx,
                   const struct verb_limits *limits, struct err *err);
/* Charges the budget for the buffers of the call, and for `more` bytes that they are about
 * to grow by. To be called regularly while they grow. Returns 200, or 503 with the error
 * reply. */
unsigned verb_charge(struct verb_call *call, size_t more);
/* Writes {"Error": message} and returns the status, of which 0 stands for that of the
 * error's code. */
unsigned verb_error(struct buf *reply, unsigned status, const struct err *err);
int verb_too_many_nodes(const struct verb_limits *limits, struct err *err);
/* Reads the Pod of a body. -1: it is larger than VERB_POD_MAX (ERR_TOO_LARGE), or the budget
 * is used up (ERR_UNAVAILABLE). A syntax error is left to jread_finish. Adds to *charged what
 * the caller gives back. */
int verb_read_pod(struct jread *j, struct arena *a, struct budget *budget,
                  struct pod *pod, uint64_t *charged, struct err *err);
/* The ledger's nodes for the candidates at[i..end) (NULL: the i-th up to the end-th), at most
 * MAP_BATCH; NULL for a node that the ledger does not know. Returns how many. */
size_t verb_find_nodes(const struct verb_args *args, const uint32_t *at, size_t i,
                       size_t end, const struct ledger *l,
                       const struct ledger_node *nodes[MAP_BATCH]);
