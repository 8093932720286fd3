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

struct defrag_rules;

struct defrag_rules *defrag_rules_new(void); /* new */
void defrag_rules_free(struct defrag_rules *m);

/* Adds the items of a PodList that the ledger has, or of a NodeList. An item replaces the
 * one with its UID or name. */
void defrag_rules_add_pods(struct defrag_rules *m, const struct ledger *l,
                           const json_t *items);
void defrag_rules_add_nodes(struct defrag_rules *m, const json_t *items);

bool defrag_rules_has_pod(const struct defrag_rules *m, struct span uid);
/* Why the pod stays where it is, as the end of a sentence; NULL: it may be moved. */
const char *defrag_rules_stays(const struct defrag_rules *m, struct span uid);
/* UID of the pod's controller; empty: it has none, or the pod is unknown. */
struct span defrag_rules_controller(const struct defrag_rules *m, struct span uid);
/* May the pod run on the node? UID empty: a pod without constraints that tolerates every
 * taint. `cordoned_too`: also on a cordoned node that its tolerations
 * allow. */
bool defrag_rules_allow(const struct defrag_rules *m, struct span uid, struct span node,
                        bool cordoned_too);
/* Does a Pod, as the API server returns it, tolerate the taint of cordoned nodes? Pods of
 * DaemonSets do. */
bool defrag_rules_tolerate_cordon(const json_t *pod);
