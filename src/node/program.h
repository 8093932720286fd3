/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/options.h"

/*
 * The node program: the parts that publishing and allocating share (the API client, the
 * thread that samples the cards, the ports of probes and metrics), and their start and stop.
 *
 * Publishing never delays or ends allocating: it has threads of its own, and where both run
 * /livez counts only what an admission needs.
 */

struct node_program;

/* New; its threads run at once. Borrows the options. The caller must have blocked the
 * signals that end the program, so that all threads block them. */
struct node_program *node_program_start(const struct node_options *options,
                                        struct err *err);
/* -1 with the reason: the program has sent SIGTERM to its process, which must exit with a
 * failure, so that the kubelet makes its container again. */
int node_program_verdict(struct node_program *p, struct err *err);
/* False: a thread hangs, and nothing was freed. The process must exit, because that thread
 * may continue at any moment. */
bool node_program_stop(struct node_program *p);
/* --once: appends the Scv of this node as JSON. */
int node_program_once(const struct node_options *options, struct buf *out,
                      struct err *err);
