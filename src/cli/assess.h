/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/session.h"

/*
 * `assess`: how many cards the pods that hold GPUs would need if they shared them, from what each
 * used at most. It needs nothing of gpushare in the cluster.
 *
 * Every pod keeps the model of its node's cards, its node selector, required node affinity,
 * tolerations, CPU and memory. A pod with a constraint that is not checked here (defrag_rules_ties)
 * stays on its node. The others are placed one by one with placement/select.h on the cards that are
 * in use, and on an empty card only if none of these fits: the largest first, then in many random
 * orders.
 */

struct assess;

struct assess *assess_new(void); /* new */
void assess_free(struct assess *a);
/* Adds a document: a list of Pods, Nodes or Scvs, one such object, or an answer of Prometheus to
 * assess_query. An object that was added before is replaced. -1: an answer without numbers. */
int assess_add(struct assess *a, const json_t *document, struct err *err);
/* Appends the PromQL query: bytes that each pod used at most, and the size of each card. */
void assess_query(struct buf *out, int64_t window_ms);
/* Appends the result. A pod needs what it used and `headroom` percent of it. */
void assess_write(struct buf *out, struct assess *a, int64_t headroom,
                  enum show_format format, bool details, bool colors);

/* The command: reads the documents that the options name, and appends the result. */
int assess_run(struct buf *out, struct session *s, bool colors, struct err *err);
