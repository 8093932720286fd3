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
 * stays on its node. The others are placed with placement/select.h, the largest first, on the cards
 * that are in use, and on an empty card only if none of these fits.
 *
 * Pods of HAMi (domain/dialect.h) have a member `asks`: the request in both languages, or why
 * gpushare rejects it. It is also the reason of those that could share. Pending ones have a row,
 * and count nowhere.
 */

/* Appends the result. `documents`: an array of lists of Nodes, Pods and Scvs, and of answers of
 * Prometheus to the query of `assess --prometheus`; of an object that it has twice, the first
 * counts. A pod needs what it used and c->headroom percent of it; aliyun.com/gpu-mem counts in
 * c->unit_mib, or GiB. -1: a document is none of these. */
int assess_write(struct buf *out, const json_t *documents, const struct cli_config *c,
                 bool colors, struct err *err);

/* The command: reads the documents that the options name, and appends the result. */
int assess_run(struct buf *out, struct session *s, bool colors, struct err *err);
