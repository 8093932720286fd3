/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"
#include "setup/findings.h"

/*
 * What follows from what is known: pure. Each adds what is wrong, what could not be
 * known, and a line for what is as it should be, in the order of the way of a pod from
 * kube-scheduler to its card.
 */

/* The static pod, its file, its process. False: there is no point in what follows. */
bool checks_scheduler(const struct facts *f, struct findings *out);
/* The file that names extenders, and our entry in it. False: there is no entry. */
bool checks_config(const struct facts *f, struct findings *out);
/* Whether the extender answers where the entry says. */
void checks_reach(const struct facts *f, struct findings *out);
/* What the API server knows: other control planes, the extender's own objects and rights,
 * nodes, cards, pods that wait. */
void checks_cluster(const struct facts *f, struct findings *out);

/* All of them, but of the cluster only if it was asked. */
void checks_run(const struct facts *f, struct findings *out);
