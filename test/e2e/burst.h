/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e/cluster.h"

/*
 * Many pods at once on many nodes. The nodes are of five classes, and each pod names the
 * class that it is for, so that what fits can be said beforehand, in whatever order and
 * wherever kube-scheduler puts the pods (burst.c says why):
 *
 *     class  nodes  cards of each         pods  ask for                     fit
 *     a      15     2 of 8 GiB            68    3 GiB                       60
 *     b      10     4 of 16 GiB           44    12 GiB over 2 cards         40
 *     c      10     4 of 22919 MiB        24    2 whole cards               20
 *     d      10     15, 11 and 22 GiB     120   1 to 5 GiB                  all
 *     e      5      8 of 16 GiB           24    2 GiB                       all
 *                                         16    1 whole card                all
 *                                         4     17 GiB on one card          none
 */

enum { BURST_NODES = 50, BURST_PODS = 300, BURST_FIT = 280 };

/* Adds the nodes and waits until they can be used. */
void burst_add_nodes(void);
/* Creates all the pods at once, or as many as are missing of them, under new names. */
void burst_add_pods(void);
/* Waits until so many have a node. Returns how long that took, in ms. */
int64_t burst_wait_bound(size_t n);
/* How many have a node now. This, the wait and the creation go on when the API server is
 * away for a while. */
size_t burst_bound(void);
/* All that fit are bound, the others wait and kube-scheduler says why, no card is
 * promised more than it has, and inspect says the same. */
void burst_check(void);

/* Deletes every n-th of the pods that have a node. Returns how many. */
size_t burst_delete_pods(size_t every);
/* A node goes, with its pods, and comes back. It may leave its Scv behind. Returns how
 * many pods. */
size_t burst_remove_node(const char *name, bool with_scv);
void burst_return_node(const char *name, bool with_scv);
