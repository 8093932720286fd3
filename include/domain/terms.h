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

/* The labels and taints of a node, or the terms of a pod, in one block. NULL: none. Users write
 * them: of too many none is kept, so that it costs little to read and to judge them. */
struct terms;

/* Their JSON in a valid object; {NULL, 0}: absent. */
enum {
    TERMS_OF_LABELS,
    TERMS_OF_TAINTS,
    TERMS_OF_SELECTOR, /* of a pod, as the following */
    TERMS_OF_TOLERATIONS,
    TERMS_OF_REQUIRED, /* node affinity */
    TERMS_TEXTS
};
/* New; free() releases it. */
struct terms *terms_new(const struct span texts[TERMS_TEXTS]);
size_t terms_size(const struct terms *t);
bool terms_equal(const struct terms *a, const struct terms *b);

/* UNKNOWN: those of the pod or the node are too many. */
enum terms_verdict { TERMS_ALLOW, TERMS_UNKNOWN, TERMS_SELECTOR, TERMS_TAINTS };
/* Which of the pod's terms exclude the node? The taint of cordoned nodes does not count. */
enum terms_verdict terms_judge(const struct terms *pod, const struct terms *node,
                               struct span node_name);
/* Does the pod tolerate that taint? Pods of DaemonSets do. */
bool terms_tolerate_cordon(const struct terms *pod);
