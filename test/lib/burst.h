/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/cluster.h"

/*
 * Many pods at once on many nodes. There are five node classes, and each pod selects a
 * class, so that the number of pods that fit does not depend on the order and the nodes
 * that kube-scheduler chooses (burst.c has the proof):
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

/* Adds the nodes and waits until they are usable. */
void burst_add_nodes(void);
/* Creates all pods at once, or those that are missing, under new names. */
void burst_add_pods(void);
/* Waits until n pods are bound. Returns the time in ms. */
int64_t burst_wait_bound(size_t n);
/* Number of bound pods. This function, the wait and the creation retry while the API server
 * is down. */
size_t burst_bound(void);
/* Creates all pods while the function makes trouble, waits until those that fit are bound, and
 * reports the time. */
void burst_meanwhile(void (*trouble)(void), const char *what);
/* Checks that all pods that fit are bound, kube-scheduler gives a reason for the others, no
 * card is overcommitted, and inspect matches. */
void burst_check(void);

/* Adds a node that was removed, which burst_wait_bound does not wait for. */
void burst_return_node(const char *name, bool with_scv);
