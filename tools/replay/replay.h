/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"
#include "placement/score.h"
#include "replay/trace.h"

/*
 * A trace, replayed: pods come one after the other in a random order and stay; one that
 * fits nowhere is dropped. The first pass has each pod of the trace once, then they are
 * drawn again and again. (What the trace says of times is not used: its load is far below
 * the cluster's size.)
 *
 * Loads are in percent of all cards. "At 90 %" is the mean over the arrivals at which
 * what has arrived, rounded, is 90 % of them; if there is none, the first beyond.
 */

struct replay_settings {
    enum score_policy policy;
    bool sees_cpu; /* see cluster_new */
    uint64_t first_seed, seeds;
    int64_t churn; /* percent; see below; 0: no */
};

/* Means over the seeds. */
struct replay_result {
    double alloc90, alloc100; /* allocated, percent, when so much has arrived */
    double first_reject;      /* percent arrived; over the seeds that had one */
    uint64_t rejecting;       /* seeds in which a pod was rejected up to 100 % */
    double rejected_wide;     /* pods of eight cards and more that were, up to 100 % */
    double decisions_per_s;
    double churn_rejected; /* percent of what was asked for; see below */
};

/*
 * With `churn`, a second run: before a pod comes, random ones leave until with it at most
 * so much of cards and CPU would be allocated. What of the demand is rejected is counted
 * from the second hundred percent to the fifth.
 */
void replay_run(const struct trace *trace, const struct replay_settings *settings,
                struct replay_result *result);

/* Results as a table for people, or as a JSON array of objects with the keys policy,
 * alloc90, alloc100, first_reject (null: nothing was rejected), decisions_per_s. */
struct replay_line {
    enum score_policy policy;
    struct replay_result result;
};
void replay_table(struct buf *out, const struct replay_line *lines, size_t n, bool churn);
void replay_json(struct buf *out, const struct replay_line *lines, size_t n, bool churn);
