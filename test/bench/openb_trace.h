/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "replay/trace.h"

/*
 * The trace of make bench-openb, the order in which its pods arrive, and what an order
 * achieves: in gpushare-replay, or in a real cluster.
 */

/* The pods of one seed in the order of gpushare-replay: each pod of the trace once, then
 * pods drawn at random, until more than 100 percent of the cards are requested. Pods
 * are borrowed from the trace; free `pods`. */
struct openb_arrivals {
    const struct trace *trace;
    const struct trace_pod **pods;
    size_t n, cap;
};
void openb_arrive(struct openb_arrivals *a, const struct trace *trace, uint64_t seed);

/* What became of the arrivals. */
struct openb_result {
    double alloc100; /* percent of the cards allocated when 100 percent are requested */
    double first;    /* percent requested at the first rejection; 100: no rejection */
    size_t rejected; /* pods */
};
/* `placed`: of each arrival, whether it got its node and its cards. */
struct openb_result openb_rate(const struct openb_arrivals *a, const bool *placed);

/* The same arrivals in gpushare-replay, with its default policy. `cards_only`: pods without
 * cards run on other nodes. */
struct openb_result openb_replay(const struct openb_arrivals *a, bool cards_only,
                                 uint64_t seed);

/* The cards of the nodes, for a cluster without an extender: does the pod get cards on this
 * node, after the pods before it? Takes the fullest card that fits, as bind does. */
struct openb_cards;
struct openb_cards *openb_cards_new(const struct trace *trace);
void openb_cards_free(struct openb_cards *c);
bool openb_cards_take(struct openb_cards *c, struct span node,
                      const struct trace_pod *pod);
