/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "domain/pod.h"
#include "domain/request.h"

/*
 * What kube-scheduler sends to filter and prioritize: a pod and candidate nodes, as names
 * (nodeCacheCapable) or as full Node objects. Source: k8s.io/kube-scheduler/extender/v1.
 * Keys are matched without regard to case, as by Go's decoder. The whole body is
 * validated.
 */

struct verb_candidate {
    struct span raw;  /* as it came: the quoted name, or the Node object */
    struct span name; /* decoded */
};

struct verb_args {
    struct pod pod;
    struct request request; /* kind NONE: asks for nothing, or see bad */
    struct err bad;         /* code not ERR_NONE: what it asks for cannot be meant */
    bool full;              /* candidates are Node objects */
    struct verb_candidate *nodes;
    size_t n, cap;
};

/* Reads a body. Spans borrow from it and from the arena. `args` may be used again for the
 * next body; release it with verb_args_fini. -1: malformed (err says where). */
int verb_args_read(struct verb_args *args, struct span body,
                   const struct request_rules *rules, struct arena *a, struct err *err);
void verb_args_fini(struct verb_args *args);
