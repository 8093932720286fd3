/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "replay/cluster.h"
#include "replay/replay.h"

/*
 * Plays random arrivals and departures of pods of whole cards on nodes whose links are known
 * (trace_links), for four rules side by side:
 *
 *   gpushare  the extender
 *   today     the extender with --topology=off
 *   hami      HAMi's topology-aware policy: the cards with the largest sum of points of their
 *             pairs (100 for each NVLink; SYS 10 to PIX 50); of one card, that with the least
 *             points to the other free ones
 *   nvidia    go-gpuallocator's best effort, as in NVIDIA's device plugin: of the partitions of
 *             the free cards into sets of k and a rest, the one with the largest sum of these
 *             points; of its sets the one with the most
 *
 * hami and nvidia choose cards only: their node is that of today. Ties go to the lowest cards.
 */

enum { LINKED_RULES = 4 };
extern const struct cluster_rule linked_rules[LINKED_RULES];

/*
 * Pods have 1, 2, 4 or 8 cards, and each size asks for a quarter of all cards. Before one arrives,
 * random earlier ones leave, until those that have not left ask for at most `churn` percent of the
 * cards. That counts placed and rejected pods alike, so all rules have the same arrivals and
 * departures.
 *
 * Appends a line for each rule, with means over the runs. Of the pods on at least two cards: the
 * mean width of the best ring, and the share of those whose ring has NVLinks only. Of all pods: how
 * many were rejected. Allocated is the mean over the arrivals.
 */
void linked_play(const struct trace *nodes, const struct replay_settings *settings,
                 struct buf *out);
