/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "cli/session.h"

/*
 * --check: consistency of everything that is known about the cluster. Each function
 * appends one line per difference, in a stable order, and returns their number. Lines
 * that begin with "note: " are not counted: they may be resolved a moment later.
 */

/* Ledger, annotations, Nodes and Scvs: cards promised beyond their size, promises without
 * a card, malformed annotations and objects, containers to which the kubelet gave other
 * cards, memory in use by processes outside Kubernetes, sizes that differ. `node` empty:
 * all nodes. */
size_t check_cluster(struct buf *out, const struct cluster_state *cs, struct span node);

/* The extender's view (GET /gpushare-scheduler/inspect, of ours or of the Go extender)
 * against the ledger. */
size_t check_extender(struct buf *out, const struct cluster_state *cs, const json_t *view,
                      struct span node);

/* The Events GPUIsolationFailed of pods that are still bound: a limit that was not applied, or
 * functions of CUDA that it does not know. NULL: they cannot be read. */
size_t check_isolation(struct buf *out, const struct cluster_state *cs,
                       const json_t *events, struct span node);

/* Nodes with an scv-agent of 1.0 beside gpushare-node, which writes the same Scv and Lease. `pods`:
 * a list of the pods of gpushare; NULL: they cannot be read. */
size_t check_publishers(struct buf *out, const struct cluster_state *cs,
                        const json_t *pods, struct span node);

/* All, with the extender's view if --extender names one. 1: there are differences. 0: none.
 * -1: an error. `s` is loaded. */
int check_run(struct buf *out, struct session *s, struct span node, struct err *err);
