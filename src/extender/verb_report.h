/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/budget.h"
#include "extender/forward.h"

/*
 * Reports pods that filter has rejected to the leader, for layout preemption (core/core.h).
 * A thread sends them, so the answer of filter does not wait for the leader. The leader gets
 * the same call of filter with the header REPORT_HEADER, and reserves nothing: a report may
 * arrive after a later filter of the pod. A report that is lost is repeated by kube-scheduler's next
 * attempt, so the queue is short and nothing is retried.
 */

enum {
    VERB_REPORT_QUEUE = 16,      /* reports at a time, with the one that is being sent */
    VERB_REPORT_BYTES = 8 << 20, /* of their bodies */
};

struct verb_report;

/* New. Both are borrowed; `budget` is charged for queued bodies, NULL: none. A report waits
 * up to `timeout_ms` for the leader's answer. */
struct verb_report *verb_report_start(struct forward *forward, struct budget *budget,
                                      int64_t timeout_ms);
/* Copies the call. False: the queue has no room for it, and the call is dropped. Never
 * blocks. */
bool verb_report_add(struct verb_report *r, const char *address, struct span body);
/* Waits for the report that is being sent. NULL is accepted. */
void verb_report_free(struct verb_report *r);
