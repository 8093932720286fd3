/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/rng.h"
#include "base/str.h"
#include "placement/score.h"
#include "replay/trace.h"

/*
 * Replays a trace: pods arrive one after the other in a random order and stay; a pod that
 * fits nowhere is dropped. The first pass has each pod of the trace once; later pods are
 * drawn at random. The times of the trace are ignored, because its load is far below the
 * cluster's size.
 *
 * The load is the arrived demand in percent of all cards. "At 90 %" is the mean over the
 * arrivals at which the rounded load is 90 %, or the first arrival beyond 90 %.
 */

struct replay_settings {
    enum score_policy policy;
    bool sees_cpu; /* see cluster_new */
    uint64_t first_seed, seeds;
    int64_t churn;     /* percent; see replay_run; 0: no second run */
    int64_t defrag;    /* moves per plan, at most; see replay_run; 0: no plans */
    uint64_t arrivals; /* of linked_play alone, in each run */
};

/* Means over the seeds. */
struct replay_result {
    double alloc90, alloc100; /* percent allocated at a load of 90 and 100 percent */
    double first_reject;      /* load in percent, over the seeds with a rejection */
    uint64_t rejecting;       /* seeds with a rejection at a load of up to 100 % */
    double rejected_wide; /* rejected pods of 8 cards or more, at a load of up to 100 % */
    double decisions, seconds, decisions_per_s; /* the first two: sums */
    double churn_rejected; /* percent of the demand; see replay_run */
    /* Of the pods with cards that were rejected at a load of up to 100 %: their number and
     * their cards, those that plans placed (won_wide: of 8 cards or more), and the moves
     * of these plans. */
    double rejected, rejected_cards, won, won_wide, won_cards, moves;
    double plan_ms, longest_plan_ms; /* the mean and the maximum over all plans */
};

/*
 * `churn` adds a second run: before a pod arrives, random pods leave until at most `churn`
 * percent of the cards and of the CPU would be allocated with it. churn_rejected counts the
 * rejected demand at loads from 100 to 500 percent.
 *
 * `defrag` computes at the end of the first run, for each rejected pod in order of arrival,
 * the fewest pods to move so that it fits, and moves them.
 */
void replay_run(const struct trace *trace, const struct replay_settings *settings,
                struct replay_result *result);

/* The pods of a trace in a random order: first each one once, then drawn at random. Trace
 * and generator are borrowed; free `order`. */
struct replay_stream {
    const struct trace *trace;
    struct rng *rng;
    uint32_t *order;
    size_t next;
};
void replay_stream_start(struct replay_stream *s, const struct trace *trace,
                         struct rng *rng);
const struct trace_pod *replay_stream_next(struct replay_stream *s);

/* The mean of the samples whose rounded load is `load`; without such a sample, the first
 * one at a higher load. {.load = ...} to begin; replay_sample takes percentages. */
struct replay_at_load {
    int64_t load;
    double sum;
    uint64_t n;
    bool beyond; /* a sample was taken at a higher load */
};
void replay_sample(struct replay_at_load *at, double load, double allocated);

/* Results as a table, or as a JSON array of objects with the keys policy, alloc90,
 * alloc100, first_reject (null: no rejection), decisions_per_s. */
struct replay_line {
    enum score_policy policy;
    struct replay_result result;
};
void replay_table(struct buf *out, const struct replay_line *lines, size_t n, bool churn);
/* What defragmentation wins, as a table. */
void replay_defrag_table(struct buf *out, const struct replay_line *lines, size_t n);
void replay_json(struct buf *out, const struct replay_line *lines, size_t n, bool churn);
