/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "domain/ledger.h"

/*
 * Which pods may be moved, and to which nodes: what the ledger does not keep of Pods and
 * Nodes. Pure.
 *
 * To move a pod means to evict it; its controller then creates another one, which
 * kube-scheduler places. So a pod is moved only if a controller replaces it at any place,
 * with nothing lost: the rules are those of Cluster Autoscaler, which empties nodes in the
 * same way, including its annotation cluster-autoscaler.kubernetes.io/safe-to-evict. Pods
 * of a gang stay, because the other members would wait for the replacement. So do pods
 * whose constraints are not checked here: required pod affinity and topology spread,
 * volumes that may be tied to a node, host ports, resource claims, and resources other than
 * CPU, memory and cards.
 */

struct move_rules;

struct move_rules *move_rules_new(uint64_t seed); /* new */
void move_rules_free(struct move_rules *m);

/* Adds the items of a PodList that the ledger has, or of a NodeList. An item replaces the
 * one with its UID or name. */
void move_rules_add_pods(struct move_rules *m, const struct ledger *l,
                         const json_t *items);
void move_rules_add_nodes(struct move_rules *m, const json_t *items);

bool move_rules_has_pod(const struct move_rules *m, struct span uid);
/* Why the pod stays where it is, as the end of a sentence; NULL: it may be moved. */
const char *move_rules_stays(const struct move_rules *m, struct span uid);
/* UID of the pod's controller; empty: it has none, or the pod is unknown. */
struct span move_rules_controller(const struct move_rules *m, struct span uid);
/* May the pod run on the node? UID empty: a pod without constraints that tolerates every
 * taint. `cordoned_too`: as in node_match_taints. */
bool move_rules_allow(struct move_rules *m, struct span uid, struct span node,
                      bool cordoned_too);
