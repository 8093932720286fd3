/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e/cluster.h"

/*
 * Many pods at once on many nodes. The nodes have five classes, and each pod names its
 * class, so that the number of fitting pods is known in advance, for every order and
 * every choice of kube-scheduler (burst.c gives the proof):
 *
 *     class  nodes  cards of each         pods  request                     fit
 *     a      15     2 of 8 GiB            68    3 GiB                       60
 *     b      10     4 of 16 GiB           44    12 GiB over 2 cards         40
 *     c      10     4 of 22919 MiB        24    2 whole cards               20
 *     d      10     15, 11 and 22 GiB     120   1 to 5 GiB                  all
 *     e      5      8 of 16 GiB           24    2 GiB                       all
 *                                         16    1 whole card                all
 *                                         4     17 GiB on one card          none
 */

enum { BURST_NODES = 50, BURST_PODS = 300, BURST_FIT = 280 };

/* Adds the nodes and waits until they are usable. */
void burst_add_nodes(void);
/* Creates all pods at once, or replacements for missing ones, under new names. */
void burst_add_pods(void);
/* Waits until this many pods have a node. Returns how long that took, in ms. */
int64_t burst_wait_bound(size_t n);
/* The number of pods with a node now. This, the wait and the creation tolerate an API
 * server that is unavailable for a while. */
size_t burst_bound(void);
/* Every pod that fits is bound, the others are pending with a reason from
 * kube-scheduler, no card has more promised than it has, and inspect agrees. */
void burst_check(void);

/* Deletes every n-th pod with a node. Returns how many. */
size_t burst_delete_pods(size_t every);
/* Removes a node with its pods and adds it again; its Scv may stay meanwhile. Returns
 * the number of its pods. */
size_t burst_remove_node(const char *name, bool with_scv);
void burst_return_node(const char *name, bool with_scv);
