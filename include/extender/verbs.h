/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/counters.h"
#include "extender/store.h"
#include "placement/score.h"

/*
 * The verbs that kube-scheduler calls, from the bytes of a body to the bytes of a reply.
 * Each returns the HTTP status. 200 is an answer, also when no node fits; 400: the body
 * is malformed; 503: there is no full list of all objects yet. An error is {"Error":
 * "..."}.
 *
 * Output names are those of k8s.io/kube-scheduler/extender/v1, exactly.
 */

struct verbs;
struct forward;
struct event_recorder;

/* New. `store` is borrowed. `policy`: how prioritize gives points (placement/score.h). */
struct verbs *verbs_new(struct store *store, enum score_policy policy);
/* How binds get to the process that holds the lease; without it they wait here for the
 * lease. Borrowed; to be told before the first bind. */
void verbs_forward_by(struct verbs *v, struct forward *forward);
/* Where they count, and where they tell people of pods; without, they do not. Borrowed;
 * to be told before the first call. */
void verbs_tell(struct verbs *v, struct counters *counters,
                struct event_recorder *recorder);
void verbs_free(struct verbs *v);

/* Which nodes can take the pod; each refused node has its reason, in FailedNodes ("not
 * now") or FailedAndUnresolvableNodes ("never here"). */
unsigned verb_filter(struct verbs *v, struct span body, struct buf *reply);
/* How well each node suits the pod, 0..10. */
unsigned verb_prioritize(struct verbs *v, struct span body, struct buf *reply);
/* Which pods would have to leave so that the pod fits on one of the candidate nodes:
 * those that kube-scheduler proposes, and others as needed. */
unsigned verb_preempt(struct verbs *v, struct span body, struct buf *reply);
/* Promises cards to the pod and binds it, in one write. Blocks. Where another process
 * holds the lease, that one is asked to do it. */
unsigned verb_bind(struct verbs *v, struct span body, struct buf *reply);
/* The same of a bind that another process has handed on: it is not handed on again. 421:
 * this process does not hold the lease. */
unsigned verb_bind_forwarded(struct verbs *v, struct span body, struct buf *reply);
