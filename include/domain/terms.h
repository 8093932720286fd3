/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * Which nodes a pod's own terms exclude: its nodeSelector, its required node affinity, and the
 * taints that it does not tolerate. Filter is never asked about such nodes, so this decides what is
 * shown, and where defrag moves pods.
 *
 * Texts are kept as hashes, because every node has labels. Gt and Lt compare numbers as Kubernetes
 * writes them.
 */

/* The labels and taints of a node, or the terms of a pod, in one block. NULL: none. */
struct terms;

/* Of a valid object, as JSON. New; free() releases it. */
struct terms *terms_of_node(struct span object);
struct terms *terms_of_pod(struct span object);
size_t terms_size(const struct terms *t);
bool terms_equal(const struct terms *a, const struct terms *b);

enum terms_verdict { TERMS_ALLOW, TERMS_SELECTOR, TERMS_TAINTS };
/* Which of the pod's terms exclude the node? The taint of cordoned nodes does not count. */
enum terms_verdict terms_judge(const struct terms *pod, const struct terms *node,
                               struct span node_name);
/* Does the pod tolerate that taint? Pods of DaemonSets do. */
bool terms_tolerate_cordon(const struct terms *pod);
