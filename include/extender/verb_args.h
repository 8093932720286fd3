/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

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
};

/* Reads a body. Spans borrow from the body and the arena. `args` can be reused for the
 * next body; verb_args_fini releases it. -1: malformed; err says where. */
int verb_args_read(struct verb_args *args, struct span body,
                   const struct request_rules *rules, struct arena *a, struct err *err);
void verb_args_fini(struct verb_args *args);
