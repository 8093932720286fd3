/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/budget.h"
#include "base/err.h"
#include "domain/pod.h"
#include "domain/request.h"

/*
 * The ExtenderArgs that kube-scheduler sends to filter and prioritize: a pod and
 * candidate nodes, as names (nodeCacheCapable) or as full Node objects. Source:
 * k8s.io/kube-scheduler/extender/v1. Keys are matched case-insensitively, as Go's decoder
 * does. The whole body is validated.
 */

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
    const char *end; /* of the body */
};

/* What a body may contain. A limit is found out before memory is taken beyond it. */
enum {
    VERB_ARGS_POD_MAX =
        3 << 20, /* bytes of a Pod: the API server accepts no larger one */
    VERB_ARGS_ARENA_MAX = 16 << 20, /* decoded strings */
};
struct verb_args_limits {
    size_t nodes;          /* candidates */
    size_t nodes_known;    /* for the message */
    struct budget *budget; /* of all requests; NULL: none */
};
/* The candidates that a cluster of so many nodes can have: kube-scheduler may know nodes
 * that this process does not know yet. */
struct verb_args_limits verb_args_limits_of(size_t nodes_known, struct budget *budget);
int verb_args_too_many_nodes(const struct verb_args_limits *limits, struct err *err);

/* Reads the Pod of a body. -1: it is larger than VERB_ARGS_POD_MAX (ERR_TOO_LARGE), or the budget is used up (ERR_UNAVAILABLE). A syntax
 * error is left to jread_finish. Adds to *charged what the caller gives back. */
int verb_args_read_pod(struct jread *j, struct arena *a, struct budget *budget,
                       struct pod *pod, uint64_t *charged, struct err *err);

/* Reads a body. Spans borrow from the body and the arena. `args` can be reused for the
 * next body; verb_args_fini releases it. -1: malformed (ERR_INVALID; err says where),
 * above a limit (ERR_TOO_LARGE), or the budget is used up (ERR_UNAVAILABLE). The memory
 * that the pod needs is added to *charged; the caller gives it back to the budget. */
int verb_args_read(struct verb_args *args, struct span body,
                   const struct request_rules *rules,
                   const struct verb_args_limits *limits, struct arena *a,
                   uint64_t *charged, struct err *err);
void verb_args_fini(struct verb_args *args);
